"""Float modes, registers by index, arguments that arrive in registers: what other compilers' kernels use."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tec.emulator.errors import EmulationError

from .harness import LANES, download, function, upload
from .rows import Bench
from .test_valu import F32, U32

CHIPS = ["gfx942", "gfx1100"]
TINY = np.array([0x00000001, 0x807FFFFF, 0x00800000, 0x3F800000, 0x80000001, 0x00400000, 0x7F800000, 0], U32)


def _setreg(offset: int, width: int, value: int) -> str:
    return f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, {offset}, {width}), {value}"


def _flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(F32).tiny, np.copysign(F32(0), x), x)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("mode", range(4))
def test_f32_denormals(chip: str, mode: int) -> None:
    """Bit 0 keeps those read, bit 1 those written; moves and selects change nothing."""
    bench = Bench(chip, {"a": 1, "b": 1}, masked=False)
    a, b = bench.reg("a"), bench.reg("b")
    at = bench.case(
        [_setreg(4, 2, mode), f"v_add_f32 v2, {a}, {b}", f"v_mul_f32 v3, 0.5, {a}", f"v_mov_b32 v4, {a}", _setreg(4, 2, 3),
         f"v_mul_f32 v5, 0.5, {a}"], dwords=4,
    )  # fmt: skip
    a_bits = np.resize(TINY, bench.lanes)
    b_bits = np.resize(np.repeat(TINY, 8), bench.lanes)
    out = bench.launch()({"a": a_bits, "b": b_bits})
    x, y = a_bits.view(F32), b_bits.view(F32)
    read = (lambda v: v) if mode & 1 else _flush
    written = (lambda v: v) if mode & 2 else _flush
    np.testing.assert_array_equal(out[at], written(read(x) + read(y)).view(U32))
    np.testing.assert_array_equal(out[at + 1], written(F32(0.5) * read(x)).view(U32))
    np.testing.assert_array_equal(out[at + 2], a_bits)
    np.testing.assert_array_equal(out[at + 3], (F32(0.5) * x).view(U32))


@pytest.mark.parametrize("chip", CHIPS)
def test_a_mode_across_a_branch_is_refused(chip: str) -> None:
    bench = Bench(chip, {"a": 1}, masked=False)
    bench.case(
        ["s_branch .Lq", ".Lq:", _setreg(4, 2, 0), "s_branch .Lp", ".Lp:", f"v_add_f32 v2, {bench.reg('a')}, v0"]
    )
    with pytest.raises(EmulationError, match="float mode 0xc0 across a branch, 0xf0 before"):
        bench.launch()({"a": np.zeros(bench.lanes, U32)})


@pytest.mark.parametrize("chip", CHIPS)
def test_f16_overflow(chip: str) -> None:
    """FP16_OVFL: the largest finite number in place of an infinity that no operand is."""
    bench = Bench(chip, {"a": 1}, masked=False)
    a = bench.reg("a")
    at = bench.case([_setreg(23, 1, 1), f"v_cvt_f16_f32 v2, {a}", "v_add_f16 v3, v2, v2", _setreg(23, 1, 0)])
    x = np.resize(np.array([1e6, -1e6, np.inf, -np.inf, 60000, 2.5, np.nan, 0], F32), bench.lanes)
    out = bench.launch()({"a": x.view(U32)})
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
        first = np.where(np.isinf(want) & np.isfinite(x), np.copysign(np.float16(65504), want), want)
        twice = first + first
        second = np.where(np.isinf(twice) & np.isfinite(first), np.copysign(np.float16(65504), twice), twice)
    np.testing.assert_array_equal(out[at].astype(np.uint16).view(np.float16), first)
    np.testing.assert_array_equal(out[at + 1].astype(np.uint16).view(np.float16), second)


def test_registers_by_index() -> None:
    """v_movrels and v_movreld, under a mask, and v_nop."""
    bench = Bench("gfx1100", {"a": 1, "b": 1, "c": 1})
    first = bench.place["a"]
    before = [f"v_mov_b32 v2, {bench.reg('a')}", "v_mov_b32 v3, 7", "v_mov_b32 v4, 8", "s_mov_b32 m0, 2"]
    at = bench.case([f"v_movrels_b32 v2, v{first}", "v_nop", f"v_movreld_b32 v2, {bench.reg('b')}"], before, dwords=3)
    both = bench.case([f"v_movrelsd_b32 v2, v{first}"], before, dwords=3)
    planes = {p: np.arange(32, dtype=U32) + U32(1000 * k) for k, p in enumerate("abc", 1)}
    mask = 0x8001_F00F
    out = bench.launch()(planes, mask)
    on = np.array([mask >> i & 1 for i in range(32)], bool)
    np.testing.assert_array_equal(out[at], np.where(on, planes["c"], planes["a"]))
    np.testing.assert_array_equal(out[at + 1], np.full(32, 7, U32))
    np.testing.assert_array_equal(out[both : both + 2], [planes["a"], np.full(32, 7, U32)])
    np.testing.assert_array_equal(out[both + 2], np.where(on, planes["c"], U32(8)))
    np.testing.assert_array_equal(out[at + 2], np.where(on, planes["b"], U32(8)))


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942"])
def test_the_index_mode(chip: str) -> None:
    """s_set_gpr_idx: moves from and to VGPRs by M0, under a mask; M0 keeps its other bits."""
    bench = Bench(chip, {"a": 1, "b": 1, "c": 1})
    a, b = bench.reg("a"), bench.reg("b")
    before = ["v_mov_b32 v2, 5", "v_mov_b32 v3, 7", "v_mov_b32 v4, 8", "s_mov_b32 s40, 0x102", "s_mov_b32 m0, 0x70000"]
    lines = [
        "s_set_gpr_idx_on s40, gpr_idx(SRC0)", f"v_mov_b32 v2, {a}", "s_mov_b32 s41, 1", "s_set_gpr_idx_idx s41",
        f"v_mov_b32 v3, {a}", "s_set_gpr_idx_idx s40", "s_set_gpr_idx_mode gpr_idx(DST)", f"v_mov_b32 v2, {b}",
        "s_set_gpr_idx_off", "v_mov_b32 v5, m0", "v_mov_b32 v6, v4",
    ]  # fmt: skip
    at = bench.case(lines, [*before, "v_mov_b32 v5, 0", "v_mov_b32 v6, 0"], dwords=5)
    both = ["s_set_gpr_idx_on s40, gpr_idx(SRC0,DST)", f"v_mov_b32 v2, {a}", "s_set_gpr_idx_off"]
    last = bench.case(both, before, dwords=3)
    planes = {p: np.arange(64, dtype=U32) + U32(1000 * k) for k, p in enumerate("abc", 1)}
    mask = 0x5A5A_1234_8001_F00F
    out = bench.launch()(planes, mask)
    on = np.array([mask >> i & 1 for i in range(64)], bool)
    for plane, value, old in (
        (at, planes["c"], 5), (at + 1, planes["b"], 7), (at + 2, planes["b"], 8), (at + 3, U32(0x78002), 0),
        (at + 4, planes["b"], 0), (last, U32(5), 5), (last + 1, U32(7), 7), (last + 2, planes["c"], 8),
    ):  # fmt: skip
        np.testing.assert_array_equal(out[plane], np.where(on, value, U32(old)))


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950"])
def test_preloaded_arguments(chip: str) -> None:
    """Arguments in SGPRs, as Triton and IREE ask for them: pointers and scalars, some loaded beside them."""
    ir = """define amdgpu_kernel void @k(ptr addrspace(1) inreg %p, i32 inreg %n, i32 inreg %m, ptr addrspace(1) inreg %q, i32 %r) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %a = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %x = load i32, ptr addrspace(1) %a
  %y = mul i32 %x, %n
  %z = add i32 %y, %m
  %w = xor i32 %z, %r
  %b = getelementptr i32, ptr addrspace(1) %q, i32 %t
  store i32 %w, ptr addrspace(1) %b
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" }"""
    driver, kernel = function(ir, chip)
    assert kernel.info.kernarg_preload_dwords >= 4
    lanes = LANES[chip]
    x = np.arange(lanes, dtype=U32)
    p, q = upload(driver, x), upload(driver, np.zeros_like(x))
    driver.launch(kernel, (1, 1, 1), (lanes, 1, 1), 0, struct.pack("<QiiQi", p, 3, 5, q, 9))
    np.testing.assert_array_equal(download(driver, q, x), (x * 3 + 5) ^ 9)
