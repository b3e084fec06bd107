"""The own ELF writer against ld.lld, and both read back."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest

from tec.codegen.objects import linking
from tec.codegen.objects.linking import link
from tec.errors import CodegenError
from tec.runtime.objects.codeobject import CodeObject, read_code_object
from tests.linkers import has_lld

# One kernel with static and dynamic LDS, a call, a constant table, a global that other global data points to.
IR = r"""
target triple = "amdgcn-amd-amdhsa"
@lds = internal unnamed_addr addrspace(3) global [64 x float] poison, align 16
@tab = internal unnamed_addr addrspace(4) constant [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0], align 16
@gv = addrspace(1) global [4 x float] zeroinitializer, align 16
@ptrs = addrspace(1) global [2 x ptr addrspace(1)] [ptr addrspace(1) @gv, ptr addrspace(1) @ptrs], align 16
declare i32 @llvm.amdgcn.workitem.id.x()
define internal float @helper(float %x, i32 %i) noinline {
  %p = getelementptr float, ptr addrspace(4) @tab, i32 %i
  %v = load float, ptr addrspace(4) %p
  %r = fmul float %v, %x
  ret float %r
}
define amdgpu_kernel void @first(ptr addrspace(1) noalias %a, ptr addrspace(1) noalias %b) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr float, ptr addrspace(1) %a, i32 %t
  %v = load float, ptr addrspace(1) %pa
  %l = getelementptr float, ptr addrspace(3) @lds, i32 %t
  store float %v, ptr addrspace(3) %l
  %w0 = call float @helper(float %v, i32 %t)
  %g = getelementptr float, ptr addrspace(1) @gv, i32 %t
  %g0 = load float, ptr addrspace(1) %g
  %w = fadd float %w0, %g0
  %pb = getelementptr float, ptr addrspace(1) %b, i32 %t
  store float %w, ptr addrspace(1) %pb
  ret void
}
define amdgpu_kernel void @second(ptr addrspace(1) %a, i32 %n) #0 {
  store i32 %n, ptr addrspace(1) %a
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
"""
REL_LO, REL_HI, REL64, ABS64, GOT_LO, RELATIVE64 = 10, 11, 5, 3, 8, 13
needs_lld = pytest.mark.skipif(not has_lld(), reason="no ld.lld here")


def compile_object(ir: str, chip: str) -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=chip, opt=3)
    return machine.emit_object(llvm.parse_assembly(ir))


@pytest.fixture(scope="module", params=["gfx942", "gfx1100"])
def obj(request: pytest.FixtureRequest) -> bytes:
    return compile_object(IR, request.param)


def read_bytes(image: CodeObject, address: int, size: int) -> bytes:
    for s in image.segments:
        if s.vaddr <= address and address + size <= s.vaddr + s.memory_bytes:
            data = s.data + bytes(s.memory_bytes - len(s.data))
            return data[address - s.vaddr : address - s.vaddr + size]
    raise AssertionError(f"address {address:#x} is not mapped")


def check_image(image: CodeObject, suffix: str = "") -> None:
    """Kernels and data of `IR`, whose names end in `suffix`."""
    assert {"first" + suffix, "second" + suffix} <= set(image.kernels)
    first = image.kernels["first" + suffix]
    assert first.lds_bytes == 256
    assert [a.size for a in image.kernels["second" + suffix].explicit_args] == [8, 4]
    for k in image.kernels.values():
        assert k.entry == image.symbols[k.name].value
        assert k.entry % 256 == 0
        assert any(s.executable and s.vaddr <= k.entry < s.vaddr + len(s.data) for s in image.segments)
    spans = sorted((s.vaddr // 4096, (s.vaddr + s.memory_bytes - 1) // 4096) for s in image.segments)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(spans)), "segments share a page"
    # The pointers in @ptrs, as a loader would leave them at load address 0.
    ptrs = image.symbols["ptrs" + suffix].value
    stored = {
        r.offset: r.addend if r.kind == RELATIVE64 else image.symbols[r.symbol].value + r.addend
        for r in image.relocations
    }
    assert stored[ptrs] == image.symbols["gv" + suffix].value
    assert stored[ptrs + 8] == ptrs


def test_own_writer(obj: bytes) -> None:
    check_image(read_code_object(link(obj, "own")))


def test_only_rocm_is_asked_for_a_linker_by_itself(obj: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process for each kernel costs more than the own writer: it is worth one that the driver comes with."""
    folder = tmp_path / "llvm" / "bin"
    folder.mkdir(parents=True)
    lld = folder / "ld.lld"
    lld.write_text("#!/bin/sh\nexit 3\n")
    lld.chmod(0o755)
    for name in ("TEC_LLD", "ROCM_PATH", "HIP_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(linking, "link_with", lambda command, obj: asked.append(command) or b"linked")
    linking.find_lld.cache_clear()
    try:
        if linking.find_lld(anywhere=False) is None:  # no ROCm here
            check_image(read_code_object(link(obj)))
            assert not asked
        linking.find_lld.cache_clear()
        monkeypatch.setenv("ROCM_PATH", str(tmp_path))
        assert link(obj) == b"linked" and asked == [(str(lld),)]
    finally:
        linking.find_lld.cache_clear()


@needs_lld
def test_lld(obj: bytes) -> None:
    check_image(read_code_object(link(obj, "lld")))


def relocated(obj: bytes, image: CodeObject) -> dict[int, str]:
    """Offset in .text -> the symbol (plus offset) that each pc-relative pair, patched, points at."""
    (shoff,) = struct.unpack_from("<Q", obj, 40)
    count, _ = struct.unpack_from("<HH", obj, 60)
    rows = [struct.unpack_from("<IIQQQQIIQQ", obj, shoff + 64 * i) for i in range(count)]
    base = image.kernels["first"].entry - entry_offset(obj, rows)
    text = next(i for i, r in enumerate(rows) if r[2] & 4)
    got = {r.offset: (r.symbol or hex(r.addend)) for r in image.relocations}
    names = {s.value: n for n, s in sorted(image.symbols.items())}
    found = {}
    for r in rows:
        if r[1] != 4 or r[7] != text:
            continue
        for o in range(r[4], r[4] + r[5], 24):
            offset, info, addend = struct.unpack_from("<QQq", obj, o)
            kind = info & 0xFFFFFFFF
            if kind in (REL_LO, GOT_LO):
                low = struct.unpack("<I", read_bytes(image, base + offset, 4))[0]
                high = struct.unpack("<i", read_bytes(image, base + offset + 8, 4))[0]
                target = (high << 32 | low) + base + offset - addend
                found[offset] = "got" if kind == GOT_LO and target in got else names.get(target, hex(target))
    return found


def entry_offset(obj: bytes, rows: list[tuple[int, ...]]) -> int:
    table = next(r for r in rows if r[1] == 2)
    names = obj[rows[table[6]][4] :]
    for o in range(table[4], table[4] + table[5], 24):
        name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", obj, o)
        if names[name : names.index(b"\0", name)] == b"first":
            return value
    raise AssertionError("no symbol 'first'")


def test_relocations_point_at_their_symbols(obj: bytes) -> None:
    found = relocated(obj, read_code_object(link(obj, "own")))
    assert {"tab", "got"} <= set(found.values())
    assert "helper" in found.values() or "0x" not in "".join(found.values())


@needs_lld
def test_own_writer_agrees_with_lld(obj: bytes) -> None:
    own, lld = read_code_object(link(obj, "own")), read_code_object(link(obj, "lld"))
    assert own.flags == lld.flags and own.chip == lld.chip and own.metadata == lld.metadata
    assert relocated(obj, own) == relocated(obj, lld)
    # Text is equal apart from relocated words.
    words = [(a, b) for a, b in zip(struct.iter_unpack("<I", own.text), struct.iter_unpack("<I", lld.text)) if a != b]
    assert len(own.text) == len(lld.text) and len(words) <= 2 * len(relocated(obj, own))
    for name, kernel in own.kernels.items():
        other = lld.kernels[name]
        for field in ("lds_bytes", "kernarg_bytes", "args", "rsrc1", "rsrc2", "rsrc3", "properties", "vgprs", "sgprs"):
            assert getattr(kernel, field) == getattr(other, field), field
        assert own.symbols[name].size == lld.symbols[name].size


def test_hash_tables_find_every_symbol(obj: bytes) -> None:
    image = link(obj, "own")
    (shoff,) = struct.unpack_from("<Q", image, 40)
    count, _ = struct.unpack_from("<HH", image, 60)
    rows = {r[1]: r for r in (struct.unpack_from("<IIQQQQIIQQ", image, shoff + 64 * i) for i in range(count))}
    symtab, hashes = rows[11], rows[5]
    strings = image[struct.unpack_from("<IIQQQQIIQQ", image, shoff + 64 * symtab[6])[4] :]
    n_bucket, n_chain = struct.unpack_from("<II", image, hashes[4])
    table = struct.unpack_from(f"<{n_bucket + n_chain}I", image, hashes[4] + 8)

    def name(k: int) -> bytes:
        start = struct.unpack_from("<I", image, symtab[4] + 24 * k)[0]
        return strings[start : strings.index(b"\0", start)]

    for k in range(1, symtab[5] // 24):
        h = 0
        for c in name(k):  # the gABI's function
            h = (h << 4) + c
            h = (h ^ (h & 0xF0000000) >> 24) & 0x0FFFFFFF
        at = table[h % n_bucket]
        while at and name(at) != name(k):
            at = table[n_bucket + at]
        assert at == k


@pytest.mark.parametrize("damage", ["empty", "truncated", "machine", "linked", "not ELF"])
def test_bad_objects_are_refused(obj: bytes, damage: str) -> None:
    bad = {
        "empty": b"",
        "truncated": obj[: len(obj) // 2],
        "machine": obj[:18] + b"\x3e\x00" + obj[20:],
        "linked": link(obj, "own"),
        "not ELF": b"MZ" + obj[2:],
    }[damage]
    with pytest.raises(CodegenError):
        link(bad, "own")


def test_undefined_function_is_named() -> None:
    ir = IR.replace(
        "define internal float @helper(float %x, i32 %i) noinline {",
        "declare float @missing(float, i32)\ndefine internal float @helper(float %x, i32 %i) noinline {",
    )
    ir = ir.replace("%w0 = call float @helper", "%w0 = call float @missing")
    with pytest.raises(CodegenError, match="missing"):
        link(compile_object(ir, "gfx942"), "own")


def test_every_truncation_is_refused_or_links(obj: bytes) -> None:
    """No cut of the file gives anything but a CodegenError."""
    for size in range(0, len(obj), 97):
        with pytest.raises(CodegenError):
            link(obj[:size], "own")


def test_a_linker_that_is_asked_for_must_exist(monkeypatch: pytest.MonkeyPatch, obj: bytes) -> None:
    monkeypatch.setenv("TEC_LLD", "/no/such/ld.lld")
    with pytest.raises(CodegenError, match="TEC_LLD"):
        link(obj)
    monkeypatch.setenv("TEC_LLD", "own")
    assert read_code_object(link(obj)).kernels.keys() == {"first", "second"}
    monkeypatch.setenv("TEC_LLD", "/bin/false")
    with pytest.raises(CodegenError, match="failed with"):
        link(obj)
