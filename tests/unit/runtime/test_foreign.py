"""Code objects that another compiler made: found in files of every form, their kernels called by their metadata."""

from __future__ import annotations

import ctypes
import random
import struct
import zlib
from functools import cache

import llvmlite.binding as llvm
import numpy as np
import pytest

import tec
from tec.codegen.objects.linking import link
from tec.errors import ArgumentError, DeviceError, InternalError, TecError
from tec.runtime.objects.codeobject import read_code_object

IR = """target triple = "amdgcn-amd-amdhsa"
@lds = external addrspace(3) global [0 x i32], align 16
%pair = type { i32, float, i16 }
define amdgpu_kernel void @scale(ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %n, float %a, i8 %b, %pair %p) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %imp = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %sp = getelementptr i8, ptr addrspace(4) %imp, i32 12
  %size16 = load i16, ptr addrspace(4) %sp
  %size = zext i16 %size16 to i32
  %base = mul i32 %g, %size
  %i = add i32 %base, %t
  %in = icmp ult i32 %i, %n
  br i1 %in, label %go, label %end
go:
  %px = getelementptr float, ptr addrspace(1) %x, i32 %i
  %v = load float, ptr addrspace(1) %px
  %p0 = extractvalue %pair %p, 0
  %p1 = extractvalue %pair %p, 1
  %p2 = extractvalue %pair %p, 2
  %p0f = sitofp i32 %p0 to float
  %p2f = sitofp i16 %p2 to float
  %bf = sitofp i8 %b to float
  %v1 = fmul float %v, %a
  %v2 = fadd float %v1, %bf
  %v3 = fadd float %v2, %p0f
  %v4 = fmul float %v3, %p1
  %v5 = fadd float %v4, %p2f
  %py = getelementptr float, ptr addrspace(1) %y, i32 %i
  store float %v5, ptr addrspace(1) %py
  br label %end
end:
  ret void
}
define amdgpu_kernel void @turn(ptr addrspace(1) %x, ptr addrspace(3) %s) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %px = getelementptr i32, ptr addrspace(1) %x, i32 %t
  %v = load i32, ptr addrspace(1) %px
  %ps = getelementptr i32, ptr addrspace(3) %s, i32 %t
  store i32 %v, ptr addrspace(3) %ps
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %r = sub i32 63, %t
  %pr = getelementptr i32, ptr addrspace(3) %s, i32 %r
  %w = load i32, ptr addrspace(3) %pr
  store i32 %w, ptr addrspace(1) %px
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare void @llvm.amdgcn.s.barrier()
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
!0 = !{i32 64, i32 1, i32 1}
!llvm.module.flags = !{!9}
!9 = !{i32 1, !"amdhsa_code_object_version", i32 VERSION}
"""


@cache
def built(chip: str, version: int = 5) -> tuple[bytes, str]:
    """(relocatable object, assembly)."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=chip, opt=2)
    text = IR.replace("VERSION", str(100 * version)).replace("%s) #0 {", "%s) #0 !reqd_work_group_size !0 {")
    if version == 4:  # the hidden block size came with version 5
        text = text.replace("  %size = zext i16 %size16 to i32\n", "  %size = add i32 64, 0\n")
    return machine.emit_object(llvm.parse_assembly(text)), machine.emit_assembly(llvm.parse_assembly(text))


def bundle(entries: dict[str, bytes]) -> bytes:
    head = sum(24 + len(n) for n in entries) + 32
    table, body = b"", b""
    for name, image in entries.items():
        table += struct.pack("<QQQ", head + len(body), len(image), len(name)) + name.encode()
        body += image
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + table + body


def compressed(data: bytes, version: int = 2, method: int = 0) -> bytes:
    packed = zlib.compress(data)
    sizes = {1: struct.pack("<I", len(data)), 2: struct.pack("<II", 24 + len(packed), len(data)),
             3: struct.pack("<QQ", 32 + len(packed), len(data))}[version]  # fmt: skip
    return b"CCOB" + struct.pack("<HH", version, method) + sizes + bytes(8) + packed


def hosts_binary(inner: bytes) -> bytes:
    """Enough of an x86-64 executable: a header, and the bundle at a page."""
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 2, 62)
    return header.ljust(4096, b"\0") + inner


def check_scale(code) -> None:  # type: ignore[no-untyped-def]
    class Pair(ctypes.Structure):
        _fields_ = [("i", ctypes.c_int32), ("f", ctypes.c_float), ("h", ctypes.c_int16)]

    x = np.arange(100, dtype=np.float32)
    y = np.zeros_like(x)
    code["scale"][2, 64](x, y, 100, 0.5, -3, Pair(7, 2.0, -9))
    np.testing.assert_array_equal(y, (x * np.float32(0.5) - 3 + 7) * 2 - 9)


FORMS = {
    "linked": lambda obj, other, target: link(obj, "own"),
    "relocatable": lambda obj, other, target: obj,
    "bundle": lambda obj, other, target: bundle({"host-x86_64-unknown-linux-gnu-": b"", "hipv4-amdgcn-amd-amdhsa--gfx1030": link(other), target: link(obj)}),
    "zlib": lambda obj, other, target: compressed(bundle({target: link(obj)})),
    "fat binary": lambda obj, other, target: hosts_binary(bundle({target: link(obj)})),
    "fat binary, zlib, version 3": lambda obj, other, target: hosts_binary(compressed(bundle({target: link(obj)}), 3)),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (obj, asm), (other, _) = built("gfx942"), built("gfx1030")
    data = FORMS[form](obj, other, "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-")
    path = tmp_path / "kernel.hsaco"
    path.write_bytes(data)
    path.with_suffix(".s").write_text(asm)
    code = tec.rocm_emu("gfx942").load(path)
    assert code.names == ["scale", "turn"]
    check_scale(code)


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("chip", ["gfx90a", "gfx1100"])
def test_versions(chip: str, version: int) -> None:
    obj, asm = built(chip, version)
    check_scale(tec.rocm_emu(chip).load(obj, asm))


def test_dynamic_lds() -> None:
    """An argument that is LDS takes its size; the work-group's shape is the kernel's own."""
    obj, asm = built("gfx942")
    dev = tec.rocm_emu("gfx942")
    turn = dev.load(obj, asm)["turn"]
    x = tec.nd.array(np.arange(64, dtype=np.int32), dev)
    turn[1](x, 256)
    np.testing.assert_array_equal(x.numpy(), np.arange(64)[::-1])
    with pytest.raises(TecError, match="LDS"):
        turn[1](x, 128)  # half of what it stores


def test_mistakes() -> None:
    obj, asm = built("gfx942")
    dev = tec.rocm_emu("gfx942")
    code = dev.load(obj, asm)
    x = np.zeros(64, np.float32)
    scale, pair = code["scale"], bytes(12)
    for call, match in (
        (lambda: code["none"], "no kernel 'none'"),
        (lambda: scale[1](x), "no work-group size"),
        (lambda: scale[0, 64](x), "grid 0"),
        (lambda: scale[1, 64](x), "1 argument given, 6 wanted"),
        (lambda: scale[1, 64]("x", x, 1, 1.0, 0, pair), "argument 1 .* is a str"),
        (lambda: scale[1, 64](x[::2], x, 1, 1.0, 0, pair), "not contiguous"),
        (lambda: scale[1, 64](tec.nd.array(x), x, 1, 1.0, 0, pair), "on cpu"),
        (lambda: scale[1, 64](x, x, 1 << 40, 1.0, 0, pair), "4 bytes do not hold"),
        (lambda: scale[1, 64](x, x, np.int64(1), 1.0, 0, pair), "8 bytes, and takes 4"),
        (lambda: scale[1, 64](x, x, 1, 1e60, 0, pair), "does not hold"),
        (lambda: scale[1, 64](x, x, 1, 1.0, 1.5, pair), "is a float"),
        (lambda: scale[1, 64](x, x, 1, 1.0, 0, b"123"), "3 bytes, and takes 12"),
    ):
        with pytest.raises((ArgumentError, DeviceError), match=match):
            call()


def test_damaged_files(tmp_path) -> None:  # type: ignore[no-untyped-def]
    dev = tec.rocm_emu("gfx942")
    whole = bundle({"hipv4-amdgcn-amd-amdhsa--gfx942": link(built("gfx942")[0])})
    for data, match in (
        (b"", "no AMDGPU code object"),
        (b"hello", "no AMDGPU code object"),
        (whole[:40], "damaged bundle"),
        (whole[:-100], "past the file"),
        (compressed(whole)[:100], "damaged|no AMDGPU"),
        (compressed(whole, method=1), "zstd"),
        (b"CCOB" + struct.pack("<HHIIQ", 2, 0, 24, 2**32 - 1, 0), "damaged|no AMDGPU"),
        (bundle({"hipv4-amdgcn-amd-amdhsa--gfx1030": link(built("gfx1030")[0])}), "no code object for gfx942"),
    ):  # fmt: skip
        with pytest.raises(TecError, match=match):
            dev.load(data)
    with pytest.raises(DeviceError, match="No such file"):
        dev.load(tmp_path / "none.hsaco")
    with pytest.raises(DeviceError, match="cannot load"):
        tec.cpu().load(whole)


def patched(image: bytes, kernel: str, at: int, data: bytes) -> bytes:
    """A linked code object with other bytes at `at` of a kernel's descriptor."""
    code = read_code_object(image)
    value = code.symbols[kernel + ".kd"].value
    where = image.index(next(s.data for s in code.segments if s.vaddr <= value < s.vaddr + len(s.data))[value:][:64])
    return image[: where + at] + data + image[where + at + len(data) :]


def test_descriptors_that_cannot_be() -> None:
    image = link(built("gfx942")[0], "own")
    dev = tec.rocm_emu("gfx942")
    for at, data, match in (
        (16, struct.pack("<q", 64), "where no code is"),  # the entry: among the read-only data
        (16, struct.pack("<q", -(1 << 40)), "where no code is"),
        (16, struct.pack("<q", 1 << 40), "where no code is"),
    ):
        with pytest.raises(DeviceError, match=match):
            dev.load(patched(image, "turn", at, data))
    preloads = patched(image, "turn", 58, struct.pack("<H", 0x7F))  # 127 dwords of arguments in registers
    with pytest.raises(DeviceError, match="SGPRs"):
        dev.load(preloads)["turn"][1, 64](np.zeros(64, np.int32), 256)
    # The size of an argument, in the metadata: 8 bytes become an empty map.
    with pytest.raises(DeviceError, match=r"metadata|argument of"):
        dev.load(image.replace(b"\xa5.size\x08", b"\xa5.size\x80"))


def check_damaged(seed: int, count: int) -> None:
    """Files with some bytes changed are refused, or run; nothing else comes of them."""
    rng = random.Random(seed)
    obj = built("gfx942")[0]
    whole = bundle({"hipv4-amdgcn-amd-amdhsa--gfx942": link(obj, "own")})
    forms = [obj, link(obj, "own"), whole, hosts_binary(whole), compressed(whole)]
    dev = tec.rocm_emu("gfx942", budget=1 << 20)
    for _ in range(count):
        data = bytearray(rng.choice(forms))
        for _ in range(rng.choice((1, 2, 8))):
            data[rng.randrange(len(data) if rng.random() < 0.5 else min(len(data), 2000))] = rng.choice(
                (0, 1, 0x80, 0xFF, rng.randrange(256))
            )
        try:
            code = dev.load(bytes(data))
            for name in code:
                if name == "turn":
                    code[name][1, 64](np.zeros(64, np.int32), 256)
        except InternalError:
            raise
        except TecError:
            pass


def test_changed_bytes() -> None:
    check_damaged(0, 60)


@pytest.mark.slow
def test_many_changed_bytes() -> None:
    check_damaged(1, 4000)


def test_features_of_a_target() -> None:
    """An entry that wants xnack off is not for a device with it on; a device that does not say takes any."""
    from tec.runtime.objects.bundle import choose, code_objects

    image = link(built("gfx942")[0])
    entries = code_objects(
        bundle({"hipv4-amdgcn-amd-amdhsa--gfx942:xnack+": image, "hip-amdgcn-amd-amdhsa--gfx942:xnack-": image})
    )
    assert choose(entries, "gfx942").target == "gfx942:xnack+"
    assert choose(entries, "gfx942:sramecc+:xnack-").target == "gfx942:xnack-"
