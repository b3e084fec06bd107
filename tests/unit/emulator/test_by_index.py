"""Registers by an index in M0, scalar ones and two at a time; counters of LDS that lanes append to."""

from __future__ import annotations

import numpy as np
import pytest

from .rows import Bench
from .test_valu import U32

MASK = 0x0F0F_1234_8001_F00F


def test_scalars_by_index() -> None:
    """s_movrels_b32, s_movrels_b64, s_movreld_b32, s_movreld_b64; s_movrelsd_2_b32 with an index for each side. Constants in s60 to s67."""
    for chip in ("gfx942", "gfx1100"):
        b = Bench(chip, {}, masked=False)
        b.lines += [f"s_mov_b32 s{60 + k}, {100 + k}" for k in range(8)]
        lines = [
            "s_mov_b32 m0, s36",
            "s_movrels_b32 s40, s60",
            "s_movrels_b64 s[42:43], s[60:61]",
            "s_movreld_b32 s70, s61",
            "s_movreld_b64 s[80:81], s[62:63]",
        ]
        if chip == "gfx1100":
            lines += [
                "s_lshl_b32 s50, s36, 16",
                "s_add_u32 s50, s50, 3",
                "s_mov_b32 m0, s50",
                "s_movrelsd_2_b32 s90, s60",
            ]
        before = [f"s_mov_b32 s{k}, 7" for k in (*range(70, 76), *range(80, 86), *range(90, 96))]
        shown = [40, 42, 43, 70, 72, 74, 80, 81, 82, 83, 84, 85, 90, 92, 94]
        at = b.case(lines, before, [f"v_mov_b32 v{2 + k}, s{s}" for k, s in enumerate(shown)], len(shown))
        run = b.launch()
        for m in (0, 2, 4):
            got = dict(zip(shown, run({}, -1, m)[at : at + len(shown), 0].tolist()))
            assert (got[40], got[42], got[43]) == (100 + m, 100 + m, 101 + m)
            assert got[70 + m] == 101 and (got[80 + m], got[81 + m]) == (102, 103)
            assert got[70 + (m + 2) % 6] == 7
            assert chip != "gfx1100" or got[90 + m] == 103


@pytest.mark.parametrize("chip", ["gfx1030", "gfx1100"])
def test_two_vectors_by_index(chip: str) -> None:
    """v_movrelsd_2_b32 and v_swaprel_b32: the destination by M0[25:16], the source by M0[9:0], in lanes that are on."""
    b = Bench(chip, {"a": 1, "b": 1, "c": 1})
    first = [f"v_mov_b32 v{4 + k}, {b.reg(n)}" for k, n in enumerate("abc")] + ["s_mov_b32 m0, s36"]
    moved = b.case(["v_movrelsd_2_b32 v2, v4"], [*first, "v_mov_b32 v2, 1", "v_mov_b32 v3, 2"], dwords=2)
    swapped = b.case(["v_swaprel_b32 v2, v4"], [*first, "v_mov_b32 v2, 1", "v_mov_b32 v3, 2"], dwords=5)
    rng = np.random.default_rng(0)
    raw = {n: rng.integers(0, 2**32, b.lanes, dtype=U32) for n in "abc"}
    on = np.array([MASK >> l & 1 for l in range(b.lanes)], bool)
    run = b.launch()
    for to, source in ((0, 0), (1, 2), (0, 1)):
        out = run(raw, MASK, to << 16 | source)
        old, taken = (1, 2)[to], raw["abc"[source]]
        assert (out[moved + to] == np.where(on, taken, old)).all() and (out[moved + 1 - to] == (1, 2)[1 - to]).all()
        assert (out[swapped + to] == np.where(on, taken, old)).all()
        assert (out[swapped + 2 + source] == np.where(on, old, taken)).all()


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_counters_in_lds(chip: str) -> None:
    """ds_append and ds_consume move a counter by the lanes that are on; all of them get its value before. ds_condxchg32_rtn_b64 replaces what bit 31 asks for."""
    b = Bench(chip, {"d": 2})
    old = chip == "gfx942"
    write, read = ("ds_write_b32", "ds_read_b32") if old else ("ds_store_b32", "ds_load_b32")
    first = [
        "v_mov_b32 v8, 0",
        "v_mov_b32 v9, 50",
        f"{write} v8, v9 offset:20",
        "s_mov_b32 m0, 16",
        "v_mov_b32 v2, 7",
        "v_mov_b32 v3, 7",
    ]
    at = b.case(["ds_append v2 offset:4", "ds_consume v3 offset:4"], first, dwords=2)
    ended = b.case(
        ["ds_append v2 offset:4"], ["v_mov_b32 v2, 7"], [f"{read} v3, v8 offset:20", "s_waitcnt lgkmcnt(0)"], dwords=2
    )
    pair = b.reg("d")
    exchange = b.case([f"ds_condxchg32_rtn_b64 v[2:3], v6, {pair}"], ["v_lshlrev_b32 v6, 3, v0", "v_add_nc_u32 v6, 64, v6" if not old else "v_add_u32 v6, 64, v6",
                      "v_mov_b32 v7, 9", f"{write} v6, v7", f"{write} v6, v7 offset:4", "v_mov_b32 v2, 7", "v_mov_b32 v3, 7"],
                      [f"{read} v4, v6", f"{read} v5, v6 offset:4", "s_waitcnt lgkmcnt(0)"], dwords=4)  # fmt: skip
    rng = np.random.default_rng(1)
    data = rng.integers(0, 2**32, (b.lanes, 2), dtype=U32)
    out = b.launch(lds=1024)({"d": data}, MASK)
    on = np.array([MASK >> l & 1 for l in range(b.lanes)], bool)
    n = int(on.sum())
    assert (out[at] == np.where(on, 50, 7)).all() and (out[at + 1] == np.where(on, 50 + n, 7)).all()
    assert (out[ended] == np.where(on, 50, 7)).all() and (out[ended + 1] == 50 + n).all()
    for k in (0, 1):
        asked = on & (data[:, k] >> U32(31) == 1)
        assert (out[exchange + k] == np.where(on, 9, 7)).all()
        assert (out[exchange + 2 + k] == np.where(asked, data[:, k] & U32(0x7FFFFFFF), 9)).all()
