"""Regions of vector instructions that run in strips of 16 or 8 lanes: what crosses their edges, and LDS loads within them."""

from __future__ import annotations

import numpy as np
import pytest

from tec.emulator import modules
from tec.emulator.errors import KernelFault
from tec.emulator.translate.jit import get_jit
from tests.thinned import thinned

from .rows import Bench
from .test_valu import F32, U32

MASK = 0x5A5A_1234_8001_F00F
CHIPS = ("gfx942", "gfx1100")


@pytest.fixture(params=[8, 16, "fast"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds of code: for few wavefronts in strips of so many lanes, and for many, where loads of LDS have a version for how lanes are expected to lie."""
    if request.param == "fast":
        monkeypatch.setattr(modules, "QUICK_WAVES", -1)
    else:
        monkeypatch.setattr(get_jit(), "quick_strip", request.param)


def lanes_on(bench: Bench, mask: int) -> np.ndarray:
    return np.array([mask >> l & 1 for l in range(bench.lanes)], bool)


def words(lanes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, lanes, dtype=U32)


def spelled(chip: str, dwords: int) -> str:
    return f"ds_read_b{32 * dwords}" if chip.startswith("gfx9") else f"ds_load_b{32 * dwords}"


@thinned(1, ("masked", [False, True]), ("chip", CHIPS), ("dwords", [1, 2, 4]))
def test_lds_loads_of_every_pattern(chip: str, dwords: int, masked: bool) -> None:
    """All lanes at one place, lanes in sequence, lanes apart; read, then used late, overwritten, or never used."""
    bench = Bench(chip, {"a": 1, "one": 1, "row": 1, "apart": 1}, masked=masked)
    n = bench.lanes
    fill = ["v_lshlrev_b32 v9, 2, v0"] + [f"ds_write_b32 v9, {bench.reg('a')} offset:{4 * n * k}" for k in range(8)]
    dst = "v2" if dwords == 1 else f"v[2:{1 + dwords}]"
    cases = []
    for where in ("one", "row", "apart"):
        read = f"{spelled(chip, dwords)} {dst}, {bench.reg(where)} offset:16"
        # The address register changes after the load; one of its results is overwritten before it is used.
        late = [
            read,
            f"v_mov_b32 {bench.reg(where)}, -1",
            "v_mov_b32 v8, v2",
            f"v_mov_b32 v{1 + dwords}, 5",
            "v_mov_b32 v7, v2",
        ]
        save, back = f"v_mov_b32 v6, {bench.reg(where)}", f"v_mov_b32 {bench.reg(where)}, v6"
        olds = [f"v_mov_b32 v{k}, 77" for k in (2, 3, 4, 5, 7, 8)]
        cases.append((where, bench.case(late, [*fill, *olds, save], [back, "v_mov_b32 v6, v8"], 6)))
    lane = np.arange(n)
    raw = {"a": words(n, 1), "one": np.full(n, 64, U32), "row": (lane * 4 * dwords).astype(U32),
           "apart": (lane * 52 % (4 * n) & ~3).astype(U32)}  # fmt: skip
    raw["one"][n // 2 :] = 128
    mask = MASK if masked else -1
    out = bench.launch(lds=4 * n * 8 + 64)(raw, mask)
    memory, on = np.tile(raw["a"], 8), lanes_on(bench, mask)
    for where, at in cases:
        got = [memory[(raw[where] + 16 + 4 * k) // 4] for k in range(dwords)]
        first = got[0]
        got[-1] = np.full(n, 5, U32)
        for k in range(dwords):
            assert (out[at + k] == np.where(on, got[k], 77)).all(), (where, k)
        assert (out[at + 4] == np.where(on, first, 77)).all(), where
        assert (out[at + 5] == np.where(on, got[0], 77)).all(), where


@thinned(1, ("chip", CHIPS), ("bad", [0, 5, 23]), ("pattern", ["one", "row", "apart"]))
def test_lds_loads_out_of_bounds_name_their_lane(chip: str, bad: int, pattern: str) -> None:
    bench = Bench(chip, {"at": 1}, masked=False)
    n, size = bench.lanes, 4096
    bench.case([f"{spelled(chip, 2)} v[2:3], {bench.reg('at')} offset:8"])
    at = {"one": np.zeros(n), "row": np.arange(n) * 8.0, "apart": np.arange(n) * 20.0}[pattern].astype(U32)
    run = bench.launch(lds=size)
    run({"at": at})
    at[bad] = size - 8
    with pytest.raises(KernelFault, match="LDS access out of bounds") as e:
        run({"at": at})
    assert (e.value.fault.lane, e.value.fault.address) == (bad, size)
    assert spelled(chip, 2) in e.value.fault.instruction
    at[:] = 0xFFFFFFF0  # past the end of the address space is not its beginning
    with pytest.raises(KernelFault, match="LDS access out of bounds"):
        run({"at": at})


# LDS addresses out of the lane's number t, and what they are.
FORMS = {
    "one": (["v_and_b32 v9, 48, v0"], lambda t: t & 48),
    "sequence": (["v_and_b32 v9, 15, v0", "v_lshlrev_b32 v9, 4, v9"], lambda t: (t & 15) * 16),
    "two sequences": (["v_and_b32 v9, 7, v0", "v_lshl_or_b32 v9, v9, 4, 4"], lambda t: (t & 7) * 16 + 4),
    "rows and columns": (["v_lshrrev_b32 v9, 2, v0", "v_mul_u32_u24 v9, v9, 20"], lambda t: (t >> 2) * 20),
    "backwards": (["v_xor_b32 v9, 15, v0", "v_lshlrev_b32 v9, 3, v9"], lambda t: (t ^ 15) * 8),
    "swizzled": (["v_bfe_u32 v9, v0, 1, 2", "v_xor_b32 v9, v9, v0", "v_lshlrev_b32 v9, 3, v9"], lambda t: (t ^ (t >> 1 & 3)) * 8),
    "far apart": (["v_mul_u32_u24 v9, 68, v0"], lambda t: t * 68),
    "not by dwords": (["v_mad_u32_u24 v9, v0, 6, 2"], lambda t: t * 6 + 2),
    "by an argument": (["v_mul_lo_u32 v9, v0, s36", "v_add_u32 v9, 8, v9"], lambda t: t * 12 + 8),
    "otherwise than expected": (["s_lshr_b32 s40, s36, 2", "v_and_b32 v9, s40, v0", "v_lshlrev_b32 v9, 3, v9"], lambda t: (t & 3) * 8),
}  # fmt: skip


@thinned(1, ("masked", [False, True]), ("chip", CHIPS), ("form", FORMS))
def test_lds_loads_by_the_lane(chip: str, form: str, masked: bool) -> None:
    """Addresses that the code shows, in every shape; and what the code makes expect is not what comes."""
    bench = Bench(chip, {"a": 1}, masked=masked)
    n = bench.lanes
    fill = ["v_lshlrev_b32 v9, 2, v0"] + [f"ds_write_b32 v9, {bench.reg('a')} offset:{4 * n * k}" for k in range(20)]
    make, place = FORMS[form]
    lines = [line.replace("v_add_u32", "v_add_nc_u32") if chip != "gfx942" else line for line in make]
    cases = []
    for dwords in (1, 2, 4):
        regs = "v2" if dwords == 1 else f"v[2:{1 + dwords}]"
        read = [
            f"{spelled(chip, dwords)} {regs}, v9 offset:16",
            f"{spelled(chip, 1)} v8, v9 offset:28",
            "v_mov_b32 v7, v2",
        ]
        olds = [f"v_mov_b32 v{k}, 77" for k in (2, 3, 4, 5, 7, 8)]
        cases.append((dwords, bench.case(read, [*fill, *olds, *lines], ["v_mov_b32 v6, v8"], 6)))
    raw, mask, t = {"a": words(n, 1)}, MASK if masked else -1, np.arange(n)
    out = bench.launch(lds=4 * n * 20 + 64)(raw, mask, 12)
    memory, on = np.tile(raw["a"], 20).view(np.uint8), lanes_on(bench, mask)
    at = np.asarray(place(t))

    def word(offset: int) -> np.ndarray:
        return np.array([memory[x + offset : x + offset + 4].view(U32)[0] for x in at])

    for dwords, row in cases:
        for k in range(dwords):
            assert (out[row + k] == np.where(on, word(16 + 4 * k), 77)).all(), (form, dwords, k)
        assert (out[row + 4] == np.where(on, word(28), 77)).all() and (out[row + 5] == np.where(on, word(16), 77)).all()


@thinned(1, ("masked", [False, True]), ("chip", CHIPS))
def test_lds_loads_by_the_lane_and_by_data(chip: str, masked: bool) -> None:
    """One stretch of code with addresses of both kinds, in several runs whose data lie otherwise."""
    bench = Bench(chip, {"a": 1, "at": 1}, masked=masked)
    n, at = bench.lanes, bench.reg("at")
    fill = ["v_lshlrev_b32 v9, 2, v0"] + [f"ds_write_b32 v9, {bench.reg('a')} offset:{4 * n * k}" for k in range(4)]
    lines = [
        "v_and_b32 v9, 15, v0", "v_lshlrev_b32 v9, 3, v9", f"{spelled(chip, 2)} v[2:3], v9", f"{spelled(chip, 1)} v4, {at}",
        "v_xor_b32 v2, v2, v4", f"{spelled(chip, 1)} v5, v9 offset:32", f"{spelled(chip, 2)} v[6:7], {at} offset:8", "v_xor_b32 v3, v3, v7",
        "v_xor_b32 v5, v5, v6",
    ]  # fmt: skip
    case = bench.case(lines, [*fill, *(f"v_mov_b32 v{k}, 0" for k in range(2, 8))], [], 4)
    run, t = bench.launch(lds=4 * n * 4 + 64), np.arange(n)
    mask = MASK if masked else -1
    on = lanes_on(bench, mask)
    for where in (np.full(n, 20), t * 4, t * 52 % (4 * n) & ~3):
        raw = {"a": words(n, 1), "at": where.astype(U32)}
        out, memory, row = run(raw, mask), np.tile(raw["a"], 4), (t & 15) * 2
        want = (
            memory[row] ^ memory[where // 4],
            memory[row + 1] ^ memory[where // 4 + 3],
            memory[where // 4],
            memory[row + 8] ^ memory[where // 4 + 2],
        )
        for k, w in enumerate(want):
            assert (out[case + k] == np.where(on, w, 0)).all(), k


@pytest.mark.parametrize("offset", [0, 4080, 4084, 4096])
def test_lds_loads_by_the_lane_out_of_bounds(offset: int) -> None:
    """The furthest of several loads by one address decides; the first lane past the end is named."""
    bench = Bench("gfx942", {}, masked=False)
    bench.case(
        [
            "v_lshrrev_b32 v9, 4, v0",
            "v_lshlrev_b32 v9, 2, v9",
            "ds_read_b32 v2, v9",
            f"ds_read_b32 v3, v9 offset:{offset}",
        ]
    )
    run = bench.launch(lds=4096)
    if offset <= 4080:
        run({})
        return
    with pytest.raises(KernelFault, match="LDS access out of bounds") as e:
        run({})
    first = 0 if offset == 4096 else 48
    assert (e.value.fault.lane, e.value.fault.address) == (first, offset + 4 * (first // 16))
    assert f"offset:{offset}" in e.value.fault.instruction


def test_a_pair_of_vopd_reads_lds_before_it_writes() -> None:
    bench = Bench("gfx1100", {"at": 1, "a": 1}, masked=False)
    fill = ["v_lshlrev_b32 v9, 3, v0", f"ds_store_b32 v9, {bench.reg('a')}", "ds_store_b32 v9, v0 offset:4"]
    swap = [f"ds_load_b64 v[2:3], {bench.reg('at')}", "v_dual_mov_b32 v2, v3 :: v_dual_mov_b32 v3, v2"]
    add = [f"ds_load_b64 v[4:5], {bench.reg('at')}", "v_dual_add_f32 v2, v4, v4 :: v_dual_mov_b32 v4, v5"]
    first, second = bench.case(swap, fill), bench.case(add, fill, ["v_mov_b32 v3, v4"])
    raw = {"at": (np.arange(32) * 8).astype(U32), "a": np.linspace(-3, 3, 32).astype(F32).view(U32)}
    out = bench.launch(lds=4096)(raw)
    lane = np.arange(32, dtype=U32)
    assert (out[first] == lane).all() and (out[first + 1] == raw["a"]).all()
    assert (out[second].view(F32) == 2 * raw["a"].view(F32)).all() and (out[second + 1] == lane).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_lane_masks_leave_the_loop(chip: str) -> None:
    """A compare's mask is used by lanes at once, by scalars after the loop, and is overwritten in between."""
    bench = Bench(chip, {"a": 1, "b": 1})
    a, b, wide = bench.reg("a"), bench.reg("b"), bench.lanes == 64
    m, vcc, n = ("s[40:41]", "vcc", "s[42:43]") if wide else ("s40", "vcc_lo", "s42")
    lines = [
        f"v_cmp_lt_u32 {vcc}, {a}, {b}", f"v_cndmask_b32 v2, 0, 1, {vcc}", f"v_cmp_eq_u32 {m}, {a}, {a}",
        f"v_cmp_gt_u32 {vcc}, {a}, {b}", f"v_cndmask_b32 v3, 0, 1, {vcc}", f"s_and_{bench.b} {n}, {vcc}, {m}",
        f"v_cndmask_b32 v4, 0, 1, {n}", f"v_mov_b32 v5, {vcc.replace('vcc', 'vcc_lo') if wide else vcc}",
    ]  # fmt: skip
    at = bench.case(lines, [f"v_mov_b32 v{k}, 9" for k in (2, 3, 4, 5)], dwords=4)
    raw = {"a": words(bench.lanes, 3), "b": words(bench.lanes, 4)}
    run = bench.launch()
    for mask in (-1, MASK):
        out, on = run(raw, mask), lanes_on(bench, mask)
        less, more = raw["a"] < raw["b"], raw["a"] > raw["b"]
        assert (out[at] == np.where(on, less, 9)).all() and (out[at + 1] == np.where(on, more, 9)).all()
        assert (out[at + 2] == np.where(on, more, 9)).all()
        bits = sum(1 << l for l in range(32) if on[l] and more[l])
        assert (out[at + 3] == np.where(on, bits, 9)).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_exec_changes_within_a_region(chip: str) -> None:
    """Scalar code between vector instructions is written before the loop, and each of them keeps its own EXEC."""
    bench = Bench(chip, {"a": 1})
    e, m = bench.exec, "s[36:37]" if bench.lanes == 64 else "s36"
    lines = ["v_mov_b32 v2, 1", f"s_and_{bench.b} {e}, {e}, {m}", "v_mov_b32 v2, 2", "v_mov_b32 v3, 2",
             f"s_not_{bench.b} {e}, {e}", "v_mov_b32 v3, 3"]  # fmt: skip
    at = bench.case(lines, ["v_mov_b32 v2, 9", "v_mov_b32 v3, 9"])
    part = 0x0FF0_3C3C_A5A5_1881
    out = bench.launch()({"a": words(bench.lanes, 1)}, MASK, part)
    on, few = lanes_on(bench, MASK), lanes_on(bench, MASK & part)
    assert (out[at] == np.where(few, 2, np.where(on, 1, 9))).all()
    assert (out[at + 1] == np.where(few, 2, 3)).all()


def test_bit_select_under_a_mask_of_registers_in_memory() -> None:
    """(m & a) | (~m & b) in the lanes that are on, b straight from a register: LLVM 22 gets a masked vpternlog of it wrong.

    The end of LLVM's remainder of two floats, which is where it showed.
    """
    bench = Bench("gfx942", {"x": 1, "y": 1, "e": 1, "r": 1, "n": 1, "q": 1})
    x, y, e, r, n, q = (bench.reg(k) for k in "xyernq")
    lines = [
        f"v_add_u32 v6, 1, {n}", f"v_ldexp_f32 {r}, {r}, v6", f"v_mul_f32 v6, {r}, {q}", "v_rndne_f32 v6, v6",
        f"v_fma_f32 {r}, -v6, {y}, {r}", f"v_add_f32 {y}, {r}, {y}", f"v_cmp_gt_f32 vcc, 0, {r}", "s_brev_b32 s40, -2",
        f"v_cndmask_b32 {y}, {r}, {y}, vcc", f"v_ldexp_f32 {y}, {y}, {e}", f"v_bfi_b32 {y}, s40, {y}, {x}",
    ]  # fmt: skip
    at = bench.case(lines, ["v_mov_b32 v6, 0"], [f"v_mov_b32 v2, {y}"], 1)
    rng = np.random.default_rng(5)
    f = {k: rng.uniform(0.5, 8, 64).astype(F32) for k in "xyrq"}
    f["x"] *= np.where(np.arange(64) % 3 == 0, -1, 1).astype(F32)
    raw = {k: v.view(U32) for k, v in f.items()} | {k: rng.integers(0, 5, 64, dtype=U32) for k in "en"}
    out, on = bench.launch()(raw, MASK), lanes_on(bench, MASK)
    scaled = np.ldexp(f["r"], raw["n"].astype(int) + 1).astype(F32)
    rest = scaled.astype(np.float64) - np.rint((scaled * f["q"]).astype(F32)).astype(np.float64) * f["y"].astype(
        np.float64
    )
    rest = rest.astype(F32)
    picked = np.where(rest < 0, rest + f["y"], rest).astype(F32)
    want = np.copysign(np.ldexp(picked, raw["e"].astype(int)).astype(F32), f["x"])
    assert (out[at] == np.where(on, want, f["y"]).view(U32)).all()
