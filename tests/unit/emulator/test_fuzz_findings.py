"""What random kernels found in the emulator, each as a small kernel."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tec.emulator.errors import KernelFault
from tests.thinned import thinned

from .harness import download, function, upload

_DECLARES = """
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" "amdgpu-no-implicitarg-ptr" }
"""


def kernel(body: str) -> str:
    return f"""define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %n) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
{body}  ret void
}}
{_DECLARES}"""


@thinned(1, ("check", ["bounds", "init"]), ("chip", ["gfx90a", "gfx942", "gfx1100"]))
def test_unaligned_scratch(chip: str, check: str) -> None:
    """Values of every width at odd offsets of a local array, read back byte by byte."""
    body = "  %l = alloca [64 x i8], align 4, addrspace(5)\n"
    for k in range(16):
        body += f"  %z{k} = getelementptr i32, ptr addrspace(5) %l, i32 {k}\n  store volatile i32 0, ptr addrspace(5) %z{k}\n"
    body += "  %t8 = shl i32 %t, 8\n  %v0 = add i32 %t8, 16909060\n  %v1 = zext i32 %v0 to i64\n  %v2 = mul i64 %v1, 4294967297\n"
    at = 0
    for k, (ty, value, offset) in enumerate(
        (
            ("i32", "%v0", 1),
            ("i64", "%v2", 7),
            ("i16", "%h", 17),
            ("i32", "%v0", 23),
            ("i64", "%v2", 33),
            ("i16", "%h", 45),
        )
    ):
        if k == 2:
            body += "  %h = trunc i32 %v0 to i16\n"
        body += f"  %o{k} = add i32 %n, {offset}\n  %w{k} = getelementptr i8, ptr addrspace(5) %l, i32 %o{k}\n"
        body += f"  store volatile {ty} {value}, ptr addrspace(5) %w{k}, align 1\n"
    for k, (ty, offset) in enumerate(
        (("i32", 1), ("i64", 7), ("i16", 17), ("i32", 23), ("i64", 33), ("i16", 45), ("i64", 3))
    ):
        body += f"  %p{k} = add i32 %n, {offset}\n  %q{k} = getelementptr i8, ptr addrspace(5) %l, i32 %p{k}\n"
        body += f"  %x{k} = load volatile {ty}, ptr addrspace(5) %q{k}, align 1\n"
        if ty != "i64":
            body += f"  %y{k} = zext {ty} %x{k} to i64\n"
        else:
            body += f"  %y{k} = add i64 %x{k}, 0\n"
        body += f"  %i{k} = mul i32 %t, 7\n  %j{k} = add i32 %i{k}, {k}\n"
        body += (
            f"  %g{k} = getelementptr i64, ptr addrspace(1) %o, i32 %j{k}\n  store i64 %y{k}, ptr addrspace(1) %g{k}\n"
        )
        at += 1
    driver, k = function(kernel(body), chip, check=check)
    o = upload(driver, np.zeros(7 * 64, np.uint64))
    for n in (0, 1, 2, 3):
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", o, o, n))
        got = download(driver, o, np.zeros(7 * 64, np.uint64)).reshape(64, 7)
        for lane in range(64):
            v0 = (lane * 256 + 16909060) & 0xFFFFFFFF
            memory = np.zeros(80, np.uint8)
            for ty, offset in (("4", 1), ("8", 7), ("2", 17), ("4", 23), ("8", 33), ("2", 45)):
                value = v0 | v0 << 32
                raw = value.to_bytes(8, "little")[: int(ty)]
                memory[n + offset : n + offset + len(raw)] = list(raw)
            want = [
                int.from_bytes(memory[n + offset : n + offset + width].tobytes(), "little")
                for width, offset in ((4, 1), (8, 7), (2, 17), (4, 23), (8, 33), (2, 45), (8, 3))
            ]
            assert got[lane].tolist() == want, (n, lane)
    strict, ks = function(kernel(body), chip, check="align")
    with pytest.raises(KernelFault, match="misaligned scratch"):
        strict.launch(
            ks, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", *(upload(strict, np.zeros(448, np.uint64)),) * 2, 0)
        )


# Three halves at an 8-byte boundary are loaded as two dwords; the last two bytes may lie past the allocation.
THREE = kernel("""  %i = mul i32 %t, 8
  %a = getelementptr i8, ptr addrspace(1) %p, i32 %i
  %x = load <3 x i16>, ptr addrspace(1) %a, align 8
  %h = extractelement <3 x i16> %x, i32 2
  %c = getelementptr i16, ptr addrspace(1) %o, i32 %t
  store i16 %h, ptr addrspace(1) %c
""")
FOUR = THREE.replace("<3 x i16>", "<4 x i16>").replace("= load", "= load volatile").replace("i32 2\n", "i32 3\n")


@thinned(1, ("chip", ["gfx90a", "gfx942", "gfx1100"]), ("check", ["bounds", "init"]))
def test_widened_loads(chip: str, check: str) -> None:
    data = np.arange(31, dtype=np.uint16)
    driver, k = function(THREE, chip, check=check)
    p, o = upload(driver, data), upload(driver, np.zeros(16, np.uint16))
    driver.launch(k, (1, 1, 1), (8, 1, 1), 0, struct.pack("<QQi", p, o, 0))
    assert (download(driver, o, np.zeros(16, np.uint16))[:8] == 4 * np.arange(8) + 2).all()
    with pytest.raises(KernelFault, match="out of bounds") as e:
        driver.launch(k, (1, 1, 1), (9, 1, 1), 0, struct.pack("<QQi", p, o, 0))  # the ninth begins past the end
    assert e.value.fault.lane == 8


def test_what_lies_past_an_allocation_is_undefined() -> None:
    """The fourth half is used: no fault by the bounds alone, as the instruction is the same, but its value is undefined."""
    driver, k = function(FOUR, "gfx942", check="init")
    p, o = upload(driver, np.arange(31, dtype=np.uint16)), upload(driver, np.zeros(16, np.uint16))
    driver.launch(k, (1, 1, 1), (7, 1, 1), 0, struct.pack("<QQi", p, o, 0))
    with pytest.raises(KernelFault, match="value stored") as e:
        driver.launch(k, (1, 1, 1), (8, 1, 1), 0, struct.pack("<QQi", p, o, 0))
    assert e.value.fault.lane == 7


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100"])
def test_widened_scalar_loads(chip: str) -> None:
    """Three uniform dwords at an 8-byte boundary, the last ones of an allocation."""
    body = "  %i = mul i32 %n, 8\n  %a = getelementptr i8, ptr addrspace(1) %p, i32 %i\n  %x = load <3 x i32>, ptr addrspace(1) %a, align 8, !invariant.load !0\n"
    for k in range(3):
        body += f"  %e{k} = extractelement <3 x i32> %x, i32 {k}\n"
    body += "  %s = add i32 %e0, %e1\n  %r = add i32 %s, %e2\n  %c = getelementptr i32, ptr addrspace(1) %o, i32 %t\n  store i32 %r, ptr addrspace(1) %c\n"
    driver, k = function(kernel(body) + "!0 = !{}\n", chip)
    p, o = upload(driver, np.arange(5, dtype=np.int32)), upload(driver, np.zeros(64, np.int32))
    driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 1))
    assert (download(driver, o, np.zeros(64, np.int32)) == 2 + 3 + 4).all()
    with pytest.raises(KernelFault, match="out of bounds"):
        driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQi", p, o, 3))
