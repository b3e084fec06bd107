"""Scalar stores and atomics of gfx9: one access a wave, whatever EXEC holds, against NumPy; scalar loads of buffers."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tec.emulator import get_driver
from tec.emulator.isa import opcodes
from tec.emulator.isa.table import ROWS

from .harness import download, function, upload
from .planted import WAIT, image, text

opcodes.load()

ATOMICS = {
    "add": lambda a, d: a + d,
    "sub": lambda a, d: a - d,
    "smin": lambda a, d: min(a, d, key=signed),
    "smax": lambda a, d: max(a, d, key=signed),
    "umin": min,
    "umax": max,
    "and": lambda a, d: a & d,
    "or": lambda a, d: a | d,
    "xor": lambda a, d: a ^ d,
    "swap": lambda a, d: d,
    "inc": lambda a, d: 0 if a >= d else a + 1,
    "dec": lambda a, d: d if a == 0 or a > d else a - 1,
}
NAMES = {
    name: n
    for name in ROWS
    for n in ("store", "atomic")
    if name.startswith((f"s_{n}_", f"s_buffer_{n}_"))
}  # fmt: skip
OLD, DATA, COMPARED = 0x8000_0000_1234_5678, 0x0000_0007_F000_0010, 0x8000_0000_1234_5678
GROUPS = 3


def signed(x: int) -> int:
    """A 64-bit number's order as a signed one; 32-bit ones are brought there by `run`."""
    return x - (1 << 64) if x >> 63 else x


def run(chip: str, name: str, check: str = "bounds") -> tuple[np.ndarray, np.ndarray]:
    """(32 dwords of memory after the instruction, what it gave), by one wave of each of three groups, each at 128 bytes of its own; no lane is on."""
    wide, compares = name.endswith("_x2"), "cmpswap" in name
    base = "s[16:19]" if "buffer" in name else "s[16:17]"
    atomic = "atomic" in name
    dwords = (1 + wide) * (1 + compares) if atomic else int(name[-1]) if name[-1].isdigit() else 1
    data = "s20" if dwords == 1 else f"s[20:{19 + dwords}]"
    values = [DATA & 0xFFFFFFFF, DATA >> 32] if wide or not atomic else [DATA & 0xFFFFFFFF]
    values += [COMPARED & 0xFFFFFFFF, COMPARED >> 32] if wide or not atomic else [COMPARED & 0xFFFFFFFF]
    lines = [
        "s_mov_b32 s16, $0", "s_mov_b32 s17, $1", "s_mov_b32 s18, 0x1000", "s_mov_b32 s19, 0x27000",
        *(f"s_mov_b32 s{20 + k}, {x:#x}" for k, x in enumerate(values)),
        "s_mov_b64 s[24:25], exec", "s_mov_b64 exec, 0",
        f"{name} {data}, {base}, 0x8{' glc' if atomic else ''}", "s_waitcnt lgkmcnt(0)", "s_dcache_wb",
        "s_mov_b64 exec, s[24:25]", "v_mov_b32 v2, s20", "v_mov_b32 v3, s21", "v_mov_b32 v0, $2", "v_mov_b32 v1, $3",
        "global_store_dwordx2 v[0:1], v[2:3], off", "s_waitcnt vmcnt(0)",
    ]  # fmt: skip
    text = "\\0A".join(lines)
    clobbers = ",".join(f"~{{s{k}}}" for k in range(16, 26)) + ",~{v0},~{v1},~{v2},~{v3},~{memory}"
    ir = f"""define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %b) #0 {{
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %o = mul i32 %g, 128
  %q = getelementptr i8, ptr addrspace(1) %a, i32 %o
  %z = mul i32 %g, 8
  %r = getelementptr i8, ptr addrspace(1) %b, i32 %z
  %qi = ptrtoint ptr addrspace(1) %q to i64
  %ri = ptrtoint ptr addrspace(1) %r to i64
  %ql = trunc i64 %qi to i32
  %qs = lshr i64 %qi, 32
  %qh = trunc i64 %qs to i32
  %rl = trunc i64 %ri to i32
  %rs = lshr i64 %ri, 32
  %rh = trunc i64 %rs to i32
  call void asm sideeffect "{text}", "s,s,s,s,{clobbers}"(i32 %ql, i32 %qh, i32 %rl, i32 %rh)
  ret void
}}
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" }}"""
    driver, kernel = function(ir, chip, check=check)
    memory = np.arange(32 * GROUPS, dtype=np.uint32).reshape(GROUPS, 32)
    memory[:, 2], memory[:, 3] = OLD & 0xFFFFFFFF, OLD >> 32
    given = np.zeros((GROUPS, 2), np.uint32)
    held = [upload(driver, x) for x in (memory, given)]
    driver.launch(kernel, (GROUPS, 1, 1), (64, 1, 1), 0, struct.pack("<QQ", *held))
    return download(driver, held[0], memory), download(driver, held[1], given)


@pytest.mark.parametrize("name", sorted(n for n, kind in NAMES.items() if kind == "atomic"))
def test_scalar_atomics(name: str) -> None:
    wide = name.endswith("_x2")
    bits = 64 if wide else 32
    old, data = (x & (1 << bits) - 1 for x in (OLD, DATA))
    operation = name.removesuffix("_x2").rsplit("_", 1)[1]
    if operation == "cmpswap":
        new = data  # what is compared with is what is there
    elif operation in ("smin", "smax"):
        new = ATOMICS[operation](old << 64 - bits, data << 64 - bits) >> 64 - bits
    else:
        new = ATOMICS[operation](old, data) & (1 << bits) - 1
    want = np.tile(np.arange(32, dtype=np.uint32), (GROUPS, 1)) + 32 * np.arange(GROUPS, dtype=np.uint32)[:, None]
    want[:, 2], want[:, 3] = new & 0xFFFFFFFF, new >> 32 if wide else OLD >> 32
    got, given = run("gfx942", name)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(given[:, 0], np.full(GROUPS, OLD & 0xFFFFFFFF))
    if wide:
        np.testing.assert_array_equal(given[:, 1], np.full(GROUPS, OLD >> 32))


@pytest.mark.parametrize("name", sorted(n for n, kind in NAMES.items() if kind == "store"))
def test_scalar_stores(name: str) -> None:
    dwords = int(name[-1]) if name[-1].isdigit() else 1
    want = np.tile(np.arange(32, dtype=np.uint32), (GROUPS, 1)) + 32 * np.arange(GROUPS, dtype=np.uint32)[:, None]
    want[:, 2], want[:, 3] = OLD & 0xFFFFFFFF, OLD >> 32
    values = [DATA & 0xFFFFFFFF, DATA >> 32, COMPARED & 0xFFFFFFFF, COMPARED >> 32]
    want[:, 2 : 2 + dwords] = values[:dwords]
    np.testing.assert_array_equal(run("gfx90a", name, "race")[0], want)


def test_nothing_is_left_out() -> None:
    assert len(NAMES) == 2 * (3 + 26)


# Chip -> a load of four dwords and the wait for it, the last word of a resource.
BUFFERS = {
    "gfx90a": ("s_buffer_load_dwordx4", WAIT, 0x20000),
    "gfx942": ("s_buffer_load_dwordx4", WAIT, 0x20000),
    "gfx1100": ("s_buffer_load_b128", "s_waitcnt lgkmcnt(0)\n", 0x31016000),
    "gfx1201": ("s_buffer_load_b128", "s_wait_kmcnt 0x0\n", 0x31016000),
}


@pytest.mark.parametrize("check", ["bounds", "all"])
@pytest.mark.parametrize("chip", BUFFERS)
def test_scalar_loads_of_buffers_give_zeros_beyond_the_end(chip: str, check: str) -> None:
    """Of 1,024 numbers a resource has the first 1,022, by bytes or by elements of four; the last of four dwords lie beyond, then all."""
    load, wait, word = BUFFERS[chip]
    store = "global_store_dword" if chip.startswith("gfx9") else "global_store_b32"
    driver = get_driver(chip, check=check)
    got = []
    for records, stride in ((4088, 0), (1022, 4)):
        for offset in (0, 4080, 4088, 8000):
            body = f"s_mov_b64 s[12:13], s[4:5]\ns_or_b32 s13, s13, {stride << 16:#x}\ns_mov_b32 s14, {records}\ns_mov_b32 s15, {word:#x}\n"
            body += f"s_movk_i32 s3, {offset}\n{load} s[12:15], s[12:15], s3\n{wait}"
            body += "".join(f"v_mov_b32_e32 v3, s{12 + k}\n{store} v2, v3, s[6:7] offset:{4 * k}\n" for k in range(4))
            kernel = driver.get_function(driver.load_module(0, image(chip), text(chip, body)), "k")
            held = [upload(driver, x) for x in (np.arange(1024, dtype=np.int32) + 1, np.full(4, -1, np.int32))]
            driver.launch(kernel, (1, 1, 1), (1, 1, 1), 0, struct.pack("<QQi", *held, 0))
            got.append(download(driver, held[1], np.empty(4, np.int32)).tolist())
            for at in held:
                driver.free(0, at)
    assert got == 2 * [[1, 2, 3, 4], [1021, 1022, 0, 0], [0] * 4, [0] * 4]


def test_the_last_group_is_found_by_a_scalar_atomic() -> None:
    """As hipBLASLt's products whose k is shared by work-groups count who is done; the race check sees the order that it makes."""
    lines = [
        "s_lshl_b32 s20, $4, 8", "v_lshlrev_b32 v0, 2, v31", "v_add_u32 v1, s20, v0", "v_add_u32 v2, 5, v1",
        "s_mov_b32 s16, $0", "s_mov_b32 s17, $1", "s_mov_b32 s18, $2", "s_mov_b32 s19, $3",
        "global_store_dword v1, v2, s[16:17] offset:256 sc1", "s_waitcnt vmcnt(0)",
        f"s_mov_b32 s21, {GROUPS - 1}", "s_atomic_dec s21, s[16:17], 0x0 glc", "s_waitcnt lgkmcnt(0)",
        "s_cmp_lg_u32 s21, 1", "s_cbranch_scc1 .Lend", "buffer_inv sc1",
        *(f"global_load_dword v{4 + k}, v0, s[16:17] offset:{256 * (k + 1)}" for k in range(GROUPS)),
        "s_waitcnt vmcnt(0)", "v_add3_u32 v4, v4, v5, v6", "global_store_dword v0, v4, s[18:19]", ".Lend:", "s_nop 0",
    ]  # fmt: skip
    text = "\\0A".join(x.replace("v31", "$5") for x in lines)
    clobbers = ",".join(f"~{{s{k}}}" for k in range(16, 22)) + "," + ",".join(f"~{{v{k}}}" for k in range(7))
    ir = f"""define amdgpu_kernel void @k(i64 %a, i64 %b) #0 {{
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %al = trunc i64 %a to i32
  %as = lshr i64 %a, 32
  %ah = trunc i64 %as to i32
  %bl = trunc i64 %b to i32
  %bs = lshr i64 %b, 32
  %bh = trunc i64 %bs to i32
  call void asm sideeffect "{text}", "s,s,s,s,s,v,{clobbers},~{{memory}},~{{scc}}"(i32 %al, i32 %ah, i32 %bl, i32 %bh, i32 %g, i32 %t)
  ret void
}}
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" }}"""
    driver, kernel = function(ir, "gfx942", check="race")
    memory, out = np.zeros(64 * (GROUPS + 1), np.uint32), np.zeros(64, np.uint32)
    memory[0] = GROUPS
    held = [upload(driver, x) for x in (memory, out)]
    for _ in range(2):
        driver.copy_to_device(0, held[0], memory.ctypes.data, memory.nbytes)
        driver.launch(kernel, (GROUPS, 1, 1), (64, 1, 1), 0, struct.pack("<QQ", *held))
    want = sum(4 * np.arange(64) + 256 * g + 5 for g in range(GROUPS))
    np.testing.assert_array_equal(download(driver, held[1], out), want)
