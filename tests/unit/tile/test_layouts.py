"""Layouts: each element has one place in each copy, views rename bits, and shared memory's banks are asked once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tec.ir.dtype import dtype_info
from tec.ir.matrix import MatrixInstr, instructions
from tec.target import Target
from tec.tile.exchange import steps
from tec.tile.layouts import (
    Layout,
    accumulators,
    blocked,
    conflicts,
    padded,
    register_bits,
    reshaped,
    show,
    spare,
    table,
    whole,
)
from tec.tile.operands import operand_stride, turned_at
from tec.tile.units import lane_run, shared_out, widened
from tests import seeds

CHIPS = ["rocm -mcpu=gfx90a", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "rocm -mcpu=gfx1201", "cuda -arch=sm_80"]


def holds_all(layout: Layout, threads: int) -> None:
    """Each element is held, by as many threads as the spare bits say, in one register of each."""
    found = table(layout, threads)
    shape = [d.size for d in layout]
    assert set(found) == set(np.ndindex(*shape))
    copies = 1 << len(spare(layout, threads))
    assert all(len(places) == copies and len({t for t, _ in places}) == copies for places in found.values())


def drawn(r: random.Random) -> tuple[Layout, int]:
    shape = tuple(1 << r.randint(0, 5) for _ in range(r.randint(1, 3)))
    order = list(range(len(shape)))
    r.shuffle(order)
    threads = 1 << r.randint(0, 7)
    return blocked(shape, tuple(order), 1 << r.randint(0, 3), threads), threads


@pytest.mark.parametrize("seed", seeds.some(60))
def test_blocked_layouts_hold_each_element(seed: int) -> None:
    holds_all(*drawn(random.Random(seed)))


@pytest.mark.parametrize("seed", seeds.some(60))
def test_a_reshape_keeps_each_element_where_it_is(seed: int) -> None:
    r = random.Random(seed)
    layout, threads = drawn(r)
    size = int(np.prod([d.size for d in layout]))
    shape: list[int] = []
    while size > 1 and len(shape) < 3:
        shape.append(1 << r.randint(0, size.bit_length() - 1))
        size //= shape[-1]
    shape.append(size)
    other = reshaped(layout, shape)
    holds_all(other, threads)

    def flat(of: Layout, sides: list[int]) -> dict[tuple[int, int], int]:
        """(thread, its flat register) -> the element's number."""
        bits = register_bits(of)
        return {
            (t, sum(1 << k for k, (d, b) in enumerate(bits) if reg[d] >> b & 1)): int(np.ravel_multi_index(at, sides))
            for at, places in table(of, threads).items()
            for t, reg in places
        }

    assert flat(layout, [d.size for d in layout]) == flat(other, shape)


def units() -> list[MatrixInstr]:
    return list(dict.fromkeys(i for chip in CHIPS for i in instructions(Target(chip)) if i.blocks == 1))


@pytest.mark.parametrize("instr", units(), ids=lambda i: i.name)
def test_sums_lie_where_the_matrix_unit_leaves_them(instr: MatrixInstr) -> None:
    """The layout's table against the formulas of `ir.matrix`, for four waves and two tiles a wave."""
    waves = (2, 2)
    layout = accumulators(instr, (instr.m * 4, instr.n * 2), waves)
    threads = 4 * instr.wave
    holds_all(layout, threads)
    found = table(layout, threads)
    for lane in range(0, instr.wave, 5):
        for e in range(instr.acc_elems):
            _, row, column = instr.coords("acc", lane, e)
            at = (instr.m * 3 + row, instr.n + column)  # the second tile of the waves of the second row, second column
            assert any(t == 3 * instr.wave + lane for t, _ in found[at])


def test_waves_share_a_product() -> None:
    assert shared_out(4, 4, 4) == (2, 2)
    assert shared_out(4, 8, 1) == (4, 1)
    assert shared_out(8, 2, 2) == (2, 2)  # four waves of copies
    assert shared_out(1, 4, 4) == (1, 1)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("columns", [16, 32, 64, 128])
def test_rows_of_moved_tiles_begin_in_different_banks(size: int, columns: int) -> None:
    """Down a column and along a row, 32 lanes ask a bank at most as often as the bytes need."""
    stride = padded(columns, size)
    least = max(1, size // 4)
    assert conflicts([lane % columns for lane in range(32)], size) <= least
    down = conflicts([lane * stride for lane in range(32)], size)
    assert down <= max(2, 2 * least), f"{down} turns"
    assert conflicts([lane * columns for lane in range(32)], size) >= down  # what rows without padding would take


@pytest.mark.parametrize("role", ["a", "b"])
@pytest.mark.parametrize("instr", units(), ids=lambda i: i.name)
def test_operands_are_read_without_conflicts(instr: MatrixInstr, role: str) -> None:
    """What a product lays out and reads, lane by lane: as many lanes as ask for 128 bytes take one turn. Two where a lane reads less than the 16 bytes
    that rows are padded by."""
    size = dtype_info(instr.storage_dtype).bytes
    for k in (k for k in (16, 32, 64, 128) if k % instr.k == 0):
        wide, stride = widened(instr, k), operand_stride(k, instr.storage_dtype)
        assert stride * size % min(16, k * size) == 0
        run = lane_run(wide, role)
        group = min(instr.wave, 128 // (run * size))
        for first in range(0, instr.wave, group):
            for e in range(0, wide.elems(role), run):
                places = [wide.coords(role, lane, e) for lane in range(first, first + group)]
                asked = [
                    (row * stride + at if role == "a" else at * stride + row) + b
                    for _, row, at in places
                    for b in range(run)
                ]
                turns = conflicts(asked, size)
                assert turns <= (1 if run * size >= 16 or instr.unit == "mma.sync" else 2), f"k = {k}: {turns} turns"


@pytest.mark.parametrize("k", [16, 32, 64, 128])
def test_turned_operands_meet_in_no_bank(k: int) -> None:
    """Rows along k of what lies across: every element has its place, eight rows' pieces are read in a turn, and 8 bytes of every eighth row written in as
    few as a line of 128 bytes has rows."""
    at = turned_at(k, 0, 2)
    rows = 64
    assert {at(c, n).value for n in range(rows) for c in range(k)} == set(range(rows * k))
    for piece in range(0, k, 8):
        for n in range(0, rows, 8):
            start = [at(piece, n + j).value for j in range(8)]
            assert conflicts([s + b for s in start for b in range(8)], 2) == 1
        across = [at(piece, 8 * j + 3).value for j in range(8)]
        assert conflicts([s + b for s in across for b in range(4)], 2) <= max(1, 64 // k, 8 * 8 // k)


def test_a_picture() -> None:
    assert show(blocked((2, 4), (1, 0), 2, 4), 4) == "T0:0 T0:1 T1:0 T1:1\nT2:0 T2:1 T3:0 T3:1"
    assert show(whole((4,))) == "T0:0 T0:1 T0:2 T0:3"


@pytest.mark.parametrize("seed", seeds.some(20))
def test_exchanges_bring_neighbours_together(seed: int) -> None:
    """Swapped bits are still a layout of the whole tile, and no thread's part leaves its wave."""
    r = random.Random(seed)
    chip = Target(r.choice(["cuda -arch=sm_80", "cuda -arch=sm_90a"]))
    fits = [i for i in instructions(chip) if i.blocks == 1]
    instr = r.choice(fits)
    waves = (1 << r.randint(0, 2), 1 << r.randint(0, 1))
    shape = (instr.m * waves[0] << r.randint(0, 1), instr.n * waves[1] << r.randint(0, 2))
    layout, threads = accumulators(instr, shape, waves), instr.wave * waves[0] * waves[1]
    run = 1 << r.randint(0, 3)
    todo, wide = steps(layout, 1, run, 32)
    holds_all(wide, threads)
    assert wide[0] == layout[0] and wide[1].held == layout[1].held
    assert wide[1].low_run() >= min(run, layout[1].low_run() << len(todo))
    waves_of = [{at: {t // 32 for t, _ in places} for at, places in table(x, threads).items()} for x in (layout, wide)]
    rows = [{at[0]: set() for at in w} for w in waves_of]
    for k, found in enumerate(waves_of):
        for at, held in found.items():
            rows[k][at[0]] |= held
    assert rows[0] == rows[1]
