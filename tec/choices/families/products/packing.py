"""A CPU's product whose second operand is copied into panels while it runs: some panels at a time stay in a core's caches, and all rows go by them.

Rows of an operand as it lies are far from each other: each step of a register tile then meets another page, and parts of two lines. In a panel the columns of a tile
lie one step after another. Several panels side by side make tiles follow each other along a row of the result, whose pages are so met once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .... import te
from ....ir import IterVar
from ....schedule import Schedule, Stage
from ....target import Target
from ....target.cpus import Core
from ....te import ComputeOp, Tensor
from ...group import Group, const_shape, substitute
from ...parts.counts import lanes_for
from ...parts.operands import contraction
from ...rules import figures
from . import tile_clocks
from .tile_clocks import LINE_BYTES

# Rows whose sums of all parts wait together: of 32 parts and a panel of 16 columns these are 512 KB. All of them read a part of a panel that was brought once.
PART_ROWS = 256
_PAGE_BYTES, _PAGES = 4096, 64  # of memory; whose places a core has at hand


class Packed(NamedTuple):
    """A group whose product reads panels: the stage that makes them, the product of whole panels, and the output."""

    group: Group
    panels: ComputeOp
    product: ComputeOp
    out: ComputeOp


def packed(group: Group, op: ComputeOp, width: int) -> Packed:
    """The same computation by panels of `width` columns, the last filled up with zeros."""
    found = contraction(group, op)
    assert found is not None
    c, result = found
    n = const_shape(op.output(0))[-1]
    assert n is not None
    count, k = -(-n // width), te.reduce_axis((0, c.k), "k")

    def element(*at: Any) -> Any:
        *batch, panel, step, lane = at
        column = panel * width + lane
        value = c.b.at(batch, column, step).astype(c.acc)
        if n % width == 0:
            return value
        # Of whole panels one question is enough.
        return te.if_then_else(panel < n // width, value, te.if_then_else(column < n, value, te.const(0, c.acc)))

    panels = te.compute((*c.batch, count, c.k, width), element, name="panels")

    def body(*at: Any) -> Any:
        *batch, i, j = at
        b = panels(*batch, te.indexdiv(j, width), k, te.indexmod(j, width))
        return te.sum(c.a.at(batch, i, k).astype(c.acc) * b, axis=k)

    made, wide, out = _taken(group, result, te.compute((*c.batch, c.m, count * width), body, name="matmul", tag="matmul", attrs=op.attrs))  # fmt: skip
    assert isinstance(panels.op, ComputeOp)
    return Packed(made, panels.op, wide, out)


def whole(group: Group, op: ComputeOp, block: int) -> tuple[Group, ComputeOp, ComputeOp]:
    """The group with a product of whole panels, the last of which lies filled up; that product, and the output."""
    found = contraction(group, op)
    assert found is not None
    c, result = found
    k = te.reduce_axis((0, c.k), "k")

    def body(*at: Any) -> Any:
        *batch, i, j = at
        return te.sum(c.a.at(batch, i, k).astype(c.acc) * c.b.at(batch, j, k).astype(c.acc), axis=k)

    n = const_shape(op.output(0))[-1]
    assert n is not None
    shape = (*c.batch, c.m, -(-n // block) * block)
    return _taken(group, result, te.compute(shape, body, name="matmul", tag="matmul", attrs=op.attrs))


def _taken(group: Group, result: Tensor, wide: Tensor) -> tuple[Group, ComputeOp, ComputeOp]:
    """The group with the real columns of a wider product in place of its result; the product, and the output."""
    taken = te.compute(result.shape, lambda *at: wide(*at).astype(result.dtype), name="matmul_columns")
    made = Group.of(substitute(group.outputs, {result: taken}))
    (out,) = made.output_ops
    assert isinstance(out, ComputeOp) and isinstance(wide.op, ComputeOp)
    return made, wide.op, out


def walk(s: Schedule, final: Stage, panels: ComputeOp | None, batch: Sequence[IterVar], tiles: tuple[Any, Any, Any, Any], together: int, lanes: int, threads: bool, is_enough: bool) -> IterVar:  # fmt: skip
    """Tiles (rows, columns: outer and inner) by `together` panels at a time, which are made before (`panels`) or lie so; returns the loop at which a tile is summed. is_enough: each
    core has elements of the batch."""
    io, ii, jo, ji = tiles
    js, jp = final.split(jo, factor=together)
    final.reorder(*batch, js, io, jp, ii, ji)
    if is_enough or not threads:
        # The loop over panels is no part of a fused one: its last turn, of fewer panels or columns, then parts from the others, which need no guards.
        task = final.fuse(*(batch or [js]))
        place = js
    else:
        tasks = (*batch, js) if panels is not None else (*batch, js, io)
        place = task = final.fuse(*tasks)
    if threads:
        final.parallel(task)
    if panels is not None:
        make_at(s, panels, final, place, lanes)
    return jp


def make_at(s: Schedule, panels: ComputeOp, reader: Stage, place: IterVar, lanes: int) -> None:
    """Make panels where a loop of their reader begins, in vectors."""
    s[panels].compute_at(reader, place)
    _, lane = s[panels].split(panels.axis[-1], factor=lanes)
    s[panels].vectorize(lane)


def product_clocks(target: Target, sizes: tuple[int, int, int, int], tile: tuple[int, int, int], lanes: int, is_block: bool, gathered: bool = False, element_bytes: int = 4, parts: int = 1, chains: int = 1) -> float:  # fmt: skip
    """Of a core, of a product of `sizes` (batch, m, n, k) by tiles of (rows, columns) and so many panels together (0: B is read as it lies); is_block: it lies in panels;
    gathered: panels are made of an image's windows; element_bytes: of B and of the sums; parts: of the sum, whose partial sums wait in memory; chains: of additions
    for each sum."""
    if parts > 1:
        size, m, n, k = sizes
        part = product_clocks(target, (size, m, n, k // parts), tile, lanes, is_block, gathered, element_bytes)
        held, wide = float(element_bytes) * parts * min(m, PART_ROWS) * tile[1] * tile[2], -(-n // (tile[1] * tile[2]))
        loads = size * m * -(-n // lanes) * parts / figures.of(tile_clocks.TEMPLATE, target)["loads"]
        # They are written and read once.
        return parts * part + loads + 2 * size * wide * -(-m // PART_ROWS) * tile_clocks.again_clocks(target, held, 1)
    size, m, n, k = sizes
    rows, columns, together = tile
    core, told = target.core, figures.of("cpu product", target)
    vectors = -(-columns // lanes)
    high, wide, sums = -(-m // rows), -(-n // columns), rows * vectors
    step, instructions = tile_clocks.step(target, rows, vectors, chains=chains)
    clocks = high * wide * (k * step + figures.of(tile_clocks.TEMPLATE, target)["tile"] + sums)
    # Vectors of a tile's results that find no room to wait for their lines.
    if float(element_bytes) * size * m * n > core.l2_bytes:
        clocks += high * wide * told["store_wait"] * max(0, sums - told["stores"])
        clocks += m * wide * told["run"] * min(1.0, element_bytes * n / _PAGE_BYTES) / max(1, together)
    row_bytes, apart = float(element_bytes) * columns, element_bytes * n
    lines = row_bytes / LINE_BYTES
    if not is_block and (apart % LINE_BYTES or row_bytes % LINE_BYTES):
        lines += told["cut_lines"]
    far = told["memory_clocks"] if float(element_bytes) * size * k * n > core.l2_bytes else told["l2_clocks"]
    if together:
        making = 0.0 if is_block else told["gathered_vector" if gathered else "packed_vector"]
        clocks += _panel_clocks(target, told, k, row_bytes, wide, high, together, far, making)
        clocks += 0.0 if is_block or gathered else wide * k * run_clocks(told, far, apart) / together
    else:
        # Lines that a core has under way: those of as many instructions as it looks ahead, and no more than it has buffers for.
        under_way = told["misses"] if is_block else min(told["misses"], told["ahead"] * lines / instructions)
        near = _near_clocks(target.core, told, k * max(row_bytes, LINE_BYTES))
        clocks += wide * k * lines * (far + near * (high - 1)) / under_way
        clocks += 0.0 if is_block else wide * k * run_clocks(told, far, apart)
        # Of a panel's rows of B, for each tile but the first.
        if not is_block and (pages := k * min(1.0, apart / _PAGE_BYTES)) > _PAGES:
            clocks += (high - 1) * wide * pages * told["page"]
    # A goes by once for all panels that rows go along together.
    clocks += tile_clocks.again_clocks(target, float(element_bytes) * m * k, wide / max(1, together))
    if m * min(1.0, apart / _PAGE_BYTES) > _PAGES:  # a panel's rows of the result
        clocks += m * wide * told["page"] / max(1, together)
    return float(size * clocks)


def run_clocks(told: figures.Figures, far: float, apart: float) -> float:
    """Of a run of lines in a row of B, from memory: where the next row's lies in another page, no prefetcher brings its first lines."""
    return told["run"] * min(1.0, apart / _PAGE_BYTES) if far == told["memory_clocks"] else 0.0


def _panel_clocks(target: Target, told: figures.Figures, k: int, row_bytes: float, wide: int, high: int, together: int, far: float, making: float) -> float:  # fmt: skip
    """Of `wide` panels whose rows have so many bytes: making them (a vector in so many clocks; 0: that was done before), whose lines come from `far` away, and the lines that `high` tiles read of
    each where the first level does not hold those that rows go along together."""
    lines = row_bytes / LINE_BYTES
    made = making * row_bytes / target.vector_bytes + lines * far / told["misses"]
    if making:  # neighbouring panels share the lines in which they meet
        made += told["cut_lines"] / together * far / told["misses"]
    held = together * k * row_bytes
    again = lines * _near_clocks(target.core, told, held) / told["misses"] * high
    return wide * k * (made + again)


def _near_clocks(core: Core, told: figures.Figures, held: float) -> float:
    """Clocks to a line of bytes that were there a tile ago."""
    if held <= core.l1_bytes / 2:
        return 0.0
    return told["l2_clocks"] if held <= 0.75 * core.l2_bytes else told["memory_clocks"]


@lru_cache(maxsize=512)  # a network has the same convolution many times, and each is asked about by several passes
def least_clocks(target: Target, sizes: tuple[int, int, int, int], gathered: bool) -> float:
    """Of the cheapest tile of a product whose second operand is copied into panels."""
    lanes = lanes_for("float32", target)
    found = (
        product_clocks(target, sizes, (rows, vectors * lanes, together), lanes, False, gathered)
        for vectors in (1, 2, 3)
        for rows in range(1, min(14, sizes[1]) + 1)
        if rows * vectors + vectors + 1 <= target.core.registers
        for together in (1, 4, 16)
        if together <= max(1, sizes[2] // (vectors * lanes))
    )
    return min(found, default=math.inf)
