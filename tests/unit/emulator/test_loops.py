"""Loops that a strip of lanes runs alone, held against the same loops run iteration by iteration."""

from __future__ import annotations

import numpy as np
import pytest

from tec.emulator import modules
from tec.emulator.errors import EmulationError, KernelFault
from tec.emulator.translate import kernel as translating

from .rows import Bench
from .test_valu import F32, U32

CHIPS = ("gfx942", "gfx1100")


@pytest.fixture(params=["quick", "fast"], autouse=True)
def fast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether it is code for many wavefronts, or for few (see test_strips)."""
    if request.param == "fast":
        monkeypatch.setattr(modules, "QUICK_WAVES", -1)
    return bool(request.param == "fast")


def found(bench: Bench, monkeypatch: pytest.MonkeyPatch, resident: bool):  # type: ignore[no-untyped-def]
    """The bench's run, with or without such loops; and how many there were."""
    seen = []
    inner = translating.loop_end

    def loop_end(*args):  # type: ignore[no-untyped-def]
        end = inner(*args)
        if end is not None:
            seen.append(end)
        return end if resident else None

    monkeypatch.setattr(translating, "loop_end", loop_end)
    run = bench.launch(lds=8192)

    def go(*args):  # type: ignore[no-untyped-def]
        out = run(*args)
        monkeypatch.setattr(translating, "loop_end", inner)
        return out

    return go, seen


def horner(chip: str) -> tuple[Bench, int]:
    """x = x a + k, k = 0, 1, ...; the count in an SGPR; a register made in the loop and one that only the loop reads."""
    bench = Bench(chip, {"x": 1, "a": 1}, masked=False)
    x, a = bench.reg("x"), bench.reg("a")
    lines = [
        "s_mov_b32 s40, 0", f"v_mov_b32 v2, {x}", "v_mov_b32 v4, 0", ".LLOOP:", "v_cvt_f32_u32 v3, s40",
        f"v_fma_f32 v2, v2, {a}, v3", "v_add_u32 v4, s40, v4", "s_add_u32 s40, s40, 1", "s_nop 0",
        "s_cmp_lt_u32 s40, s36", "s_cbranch_scc1 .LLOOP", "v_mov_b32 v5, s40",
    ]  # fmt: skip
    return bench, bench.case(lines, dwords=4)


@pytest.mark.parametrize("chip", CHIPS)
def test_values_carried_from_one_iteration_to_the_next(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    results = []
    for resident in (True, False):
        bench, at = horner(chip)
        raw = {"x": rng.standard_normal(bench.lanes).astype(F32) * 0 + np.linspace(-1, 1, bench.lanes, dtype=F32),
               "a": np.linspace(0.2, 0.9, bench.lanes, dtype=F32)}  # fmt: skip
        run, seen = found(bench, monkeypatch, resident)
        results.append([run(raw, -1, count)[at : at + 4] for count in (1, 2, 17)])
        assert len(seen) == 1
    for count, got, plain in zip((1, 2, 17), *results):
        assert (got == plain).all()
        x = raw["x"].astype(np.float64)
        for k in range(count):
            x = x * raw["a"] + k
        assert np.abs(got[0].view(F32) - x).max() < 1e-4 * count
        assert (got[2] == count * (count - 1) // 2).all() and (got[3] == count).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_lds_reads_in_a_loop(chip: str, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over LDS whose address moves on; a read that the iteration does not use until the next."""
    results = []
    for resident in (True, False):
        bench = Bench(chip, {"at": 1, "data": 1}, masked=False)
        n = bench.lanes
        read = "ds_read_b32" if chip == "gfx942" else "ds_load_b32"
        fill = ["v_lshlrev_b32 v9, 2, v0"] + [
            f"ds_write_b32 v9, {bench.reg('data')} offset:{4 * n * k}" for k in range(8)
        ]
        lines = [
            f"v_mov_b32 v6, {bench.reg('at')}", "v_mov_b32 v2, 0", "v_mov_b32 v3, 0", "v_mov_b32 v4, 0", "s_mov_b32 s40, 6",
            ".LLOOP:", "v_xor_b32 v3, v3, v4", f"{read} v4, v6 offset:8", f"{read} v5, v9", "v_add_u32 v6, 20, v6",
            "v_add_u32 v2, v2, v5", "s_sub_u32 s40, s40, 1", "s_cmp_eq_u32 s40, 0", "s_cbranch_scc0 .LLOOP",
        ]  # fmt: skip
        at = bench.case(lines, fill, ["v_mov_b32 v5, v6"], 4)
        raw = {
            "at": (np.arange(n) * 36 % (n * 24) // 4 * 4).astype(U32),
            "data": np.arange(n, dtype=U32) * U32(2654435761),
        }
        run, seen = found(bench, monkeypatch, resident)
        results.append(run(raw)[at : at + 4])
        assert len(seen) == fast  # in quick code a function reads LDS
    assert (results[0] == results[1]).all()
    memory = np.tile(raw["data"], 8)
    reads = [memory[(raw["at"] + 8 + 20 * k) // 4] for k in range(6)]
    assert (results[0][0] == 6 * raw["data"]).all() and (results[0][2] == reads[5]).all()
    assert (results[0][1] == np.bitwise_xor.reduce(reads[:5])).all() and (results[0][3] == raw["at"] + 120).all()


@pytest.mark.parametrize("chip", CHIPS)
def test_lds_reads_by_the_lane_that_leave_the_expected_way(
    chip: str, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iteration whose lanes lie otherwise begins again with the scalars that it began with."""
    results = []
    read = "ds_read_b32" if chip == "gfx942" else "ds_load_b32"
    for resident in (True, False):
        bench = Bench(chip, {"data": 1}, masked=False)
        n = bench.lanes
        fill = [
            "v_lshlrev_b32 v9, 2, v0",
            f"ds_write_b32 v9, {bench.reg('data')}",
            f"ds_write_b32 v9, {bench.reg('data')} offset:{4 * n}",
        ]
        lines = ["v_mov_b32 v2, 0", "v_mov_b32 v3, 0", "s_mov_b32 s40, 0", ".LLOOP:", "s_add_u32 s40, s40, 1", "v_add_u32 v3, s40, v3",
                 f"{read} v4, v9 offset:4", "v_mul_lo_u32 v2, v2, 3", "v_add_u32 v2, v2, v4", "v_mul_lo_u32 v9, v9, s40",
                 f"v_and_b32 v9, {4 * n - 4}, v9", "s_cmp_lt_u32 s40, 5", "s_cbranch_scc1 .LLOOP", "v_mov_b32 v5, s40"]  # fmt: skip
        at = bench.case(lines, fill, [], 4)
        run, seen = found(bench, monkeypatch, resident)
        results.append(run({"data": np.arange(n, dtype=U32) * U32(2654435761)})[at : at + 4])
        assert len(seen) == fast  # in quick code a function reads LDS
    assert (results[0] == results[1]).all()
    data, place, total = np.tile(np.arange(n, dtype=U32) * U32(2654435761), 2), np.arange(n) * 4, np.zeros(n, U32)
    for k in range(1, 6):
        total = total * U32(3) + data[place // 4 + 1]
        place = place * k & 4 * n - 4
    assert (results[0][0] == total).all() and (results[0][1] == 15).all() and (results[0][3] == 5).all()


def test_an_address_that_runs_out_names_its_lane() -> None:
    bench = Bench("gfx942", {"at": 1}, masked=False)
    lines = [f"v_mov_b32 v6, {bench.reg('at')}", "s_mov_b32 s40, 0", ".LLOOP:", "ds_read_b32 v2, v6", "v_add_u32 v6, 4, v6",
             "s_add_u32 s40, s40, 1", "s_cmp_lt_u32 s40, 100", "s_cbranch_scc1 .LLOOP"]  # fmt: skip
    bench.case(lines)
    at = np.zeros(64, U32)
    at[37] = 4000
    with pytest.raises(KernelFault, match="LDS access out of bounds") as e:
        bench.launch(lds=4096)({"at": at})
    assert (e.value.fault.lane, e.value.fault.address) == (37, 4096)


def test_a_loop_that_does_not_end() -> None:
    bench = Bench("gfx942", {}, masked=False)
    bench.case([".LLOOP:", "v_add_u32 v2, 1, v2", "s_cmp_eq_u32 s36, s36", "s_cbranch_scc1 .LLOOP"])
    with pytest.raises(EmulationError, match="budget"):
        bench.launch(budget=100000)({})


def test_loops_of_other_kinds_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane mask, a lane exchange, a store to LDS, a label inside, a branch on VCC: none may go strip by strip."""
    count = ["s_add_u32 s40, s40, 1", "s_cmp_lt_u32 s40, 3", "s_cbranch_scc1 .LLOOP"]
    for inside in (
        ["v_cmp_lt_u32 vcc, v2, v0", "v_cndmask_b32 v2, v2, v0, vcc", *count],
        ["v_add_u32_dpp v2, v2, v2 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1", *count],
        ["ds_write_b32 v9, v2", "v_add_u32 v2, 1, v2", *count],
        ["v_add_u32 v2, 1, v2", ".LINNER:", "v_add_u32 v2, 1, v2", *count],
        ["v_readfirstlane_b32 s41, v2", "v_add_u32 v2, s41, v2", *count],
        ["v_mov_b32 v2, vcc_lo", *count],
        ["s_add_u32 s40, s40, 1", "s_cmp_lt_u32 s40, 3", "s_cbranch_vccnz .LLOOP"],
    ):
        bench = Bench("gfx942", {}, masked=False)
        bench.case(["s_mov_b32 s40, 0", "s_mov_b64 vcc, 0", "v_mov_b32 v9, 0", ".LLOOP:", *inside], ["v_mov_b32 v2, 1"])
        run, seen = found(bench, monkeypatch, True)
        run({})
        assert not seen, inside
