"""gfx1250's rows that stand alone: those whose operands have forms of their own. What fits the walks of `test_rows` and `test_rows_packed` is there."""

from __future__ import annotations

import numpy as np

from .rows import Bench
from .test_valu import U32

MASK = 0x8001_F00F


def ramp(lanes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, lanes, dtype=U32)


def lanes_on(bits: int) -> np.ndarray:
    return np.array([bits >> l & 1 for l in range(32)], bool)


def test_dual_cndmask() -> None:
    """v_dual_cndmask_b32 by VCC, and by a mask that it names, in either half."""
    bench = Bench("gfx1250", {"a": 1, "b": 1})
    a, b = bench.reg("a"), bench.reg("b")
    before = ["s_mov_b32 vcc_lo, s36", "s_not_b32 s40, s36", "v_mov_b32 v2, 7", "v_mov_b32 v3, 7"]
    short = bench.case([f"v_dual_cndmask_b32 v2, {a}, {b} :: v_dual_mov_b32 v3, {b}"], before)
    long = bench.case([f"v_dual_mov_b32 v3, {a} :: v_dual_cndmask_b32 v2, {a}, {b}, s40"], before)
    raw = {"a": ramp(32, 1), "b": ramp(32, 2)}
    out = bench.launch()(raw, MASK, 0x3C5A_7781)
    on, pick = lanes_on(MASK), lanes_on(0x3C5A_7781)
    assert (out[short] == np.where(on, np.where(pick, raw["b"], raw["a"]), 7)).all()
    assert (out[long] == np.where(on, np.where(pick, raw["a"], raw["b"]), 7)).all()
    assert (out[short + 1] == np.where(on, raw["b"], 7)).all() and (out[long + 1] == np.where(on, raw["a"], 7)).all()


def test_clamped_integers() -> None:
    """With clamp the sum of v_add_max_i32 and its sisters saturates, before the other operand is looked at."""
    bench = Bench("gfx1250", {"a": 1, "b": 1, "c": 1})
    names = [f"v_add_{n}_{t}32" for n in ("min", "max") for t in "iu"]
    text = ", ".join(bench.reg(x) for x in "abc")
    first = {n: bench.case([f"{n} v2, {text} clamp"], ["v_mov_b32 v2, 7"], dwords=1) for n in names}
    raw = {x: ramp(32, k) for k, x in enumerate("abc")}
    out = bench.launch()(raw, MASK)
    for name, at in first.items():
        signed, pick = name.endswith("i32"), max if "max" in name else min
        a, b, c = (x.view(np.int32).astype(np.int64) if signed else x.astype(np.int64) for x in raw.values())
        ends = (-(2**31), 2**31 - 1) if signed else (0, 2**32 - 1)
        want = [pick(int(np.clip(x + y, *ends)), int(z)) & 0xFFFFFFFF for x, y, z in zip(a, b, c)]
        assert (out[at] == np.where(lanes_on(MASK), np.array(want, np.uint64).astype(U32), 7)).all(), name


def test_registers_beyond_v255() -> None:
    """`s_set_vgpr_msb` gives each place of an operand two more bits; they hold along both ways of a branch that agree, for LDS and memory too."""
    bench = Bench("gfx1250", {"a": 1})
    a = bench.reg("a")
    at = bench.case([
        "s_set_vgpr_msb 0x40",  # destinations from v256 on
        f"v_mov_b32 v2, {a}", f"v_lshlrev_b32 v3, 1, {a}",
        "s_cbranch_scc1 Lgo", "v_mov_b32 v4, 9", "Lgo:", "v_mov_b32 v4, 11",
        "s_set_vgpr_msb 0x85",  # src0 and src1 from v256 on, destinations from v512
        "v_add_nc_u32 v2, v2, v3", "v_dual_mov_b32 v6, v4 :: v_dual_add_nc_u32 v7, v2, v4",
        "s_set_vgpr_msb 2",  # src0 from v512 on
        "v_mov_b32 v2, v2", "v_mov_b32 v3, v7", "s_set_vgpr_msb 0",
    ])  # fmt: skip
    raw = {"a": ramp(32, 3)}
    out = bench.launch()(raw)
    assert (out[at] == raw["a"] * U32(3)).all() and (out[at + 1] == raw["a"] + U32(11)).all()


def test_paths_that_disagree_on_upper_bits() -> None:
    import pytest

    from tec.emulator.errors import UnsupportedInstruction

    bench = Bench("gfx1250", {"a": 1})
    bench.case(["s_cbranch_scc1 Lgo", "s_set_vgpr_msb 1", "Lgo:", "v_mov_b32 v2, v3"])
    with pytest.raises(UnsupportedInstruction, match="differ between paths"):
        bench.launch()({"a": ramp(32, 3)})
