"""A CPU's product whose second operand is copied into panels while it runs: some panels at a time stay in a core's caches, and all rows go by them.

Rows of an operand as it lies are far from each other: each step of a register tile then meets another page, and parts of two lines. In a panel the columns of a tile
lie one step after another. Several panels side by side make tiles follow each other along a row of the result, whose pages are so met once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .... import te
from ....ir import IterVar
from ....schedule import Schedule, Stage
from ....target import Target
from ....te import ComputeOp
from ...group import Group, const_shape, substitute
from ...parts.operands import contraction
from ...rules import figures
from .tile_clocks import LINE_BYTES


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

    wide = te.compute((*c.batch, c.m, count * width), body, name="matmul", tag="matmul", attrs=op.attrs)
    taken = te.compute(result.shape, lambda *at: wide(*at).astype(result.dtype), name="matmul_columns")
    made = Group.of(substitute(group.outputs, {result: taken}))
    (out,) = made.output_ops
    assert isinstance(out, ComputeOp) and isinstance(wide.op, ComputeOp) and isinstance(panels.op, ComputeOp)
    return Packed(made, panels.op, wide.op, out)


def walk(s: Schedule, final: Stage, panels: ComputeOp | None, batch: Sequence[IterVar], tiles: tuple[Any, Any, Any, Any], together: int, lanes: int, threads: bool) -> Any:  # fmt: skip
    """Tiles (rows, columns: outer and inner) by `together` panels at a time, which are made before (`panels`) or lie so; returns the loop at which a tile is summed."""
    io, ii, jo, ji = tiles
    js, jp = final.split(jo, factor=together)
    final.reorder(*batch, js, io, jp, ii, ji)
    tasks = (*batch, js) if panels is not None else (*batch, js, io)
    task = final.fuse(*tasks) if len(tasks) > 1 else js
    if threads:
        final.parallel(task)
    if panels is not None:
        s[panels].compute_at(final, task)
        _, lane = s[panels].split(panels.axis[-1], factor=lanes)
        s[panels].vectorize(lane)
    return jp


def clocks(
    target: Target, k: int, columns: int, wide: int, high: int, together: int, far: float, is_made: bool
) -> float:
    """Of a core, of `wide` panels of `columns`: making them (unless that was done before), whose lines come from `far` away, and the lines that `high` tiles read of each where
    the first level does not hold those that rows go along together."""
    told, core = figures.of("cpu product", target), target.core
    vectors, row_bytes = 4 * columns / target.vector_bytes, 4.0 * columns
    lines = row_bytes / LINE_BYTES
    cut = told["cut_lines"] / together  # neighbouring panels share the lines in which they meet
    first = lines * far / told["misses"]
    making = first if is_made else told["packed_vector"] * vectors + cut * far / told["misses"] + first
    held = together * k * row_bytes
    near = told["l2_clocks"] if held <= core.l2_bytes / 2 else told["memory_clocks"]
    again = lines * near / told["misses"] * high if held > core.l1_bytes / 2 else 0.0
    return wide * k * (making + again)


__all__ = ["Packed", "clocks", "packed", "walk"]
