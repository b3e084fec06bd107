"""An attention's softmax as its blocks of keys come: of each row of scores the largest so far, and the sum of the weights exp(score - largest).

A block that has a larger one makes what was summed before smaller by a factor (Milakov and Gimelshein, arXiv 1805.02867). Parts of a row's keys that were
summed apart meet in the same way (`joined`). What a row is each template says: one of a thread, of a lane, or of a lane of a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import te
from ....ir import Expr
from ....ir.expr import Broadcast
from ....te.ir_builder import BufferVar
from ....te.like import Index
from ...parts import loops
from .kernel import Kernel


class RunningSoftmax:
    """The maxima (`top`) and sums of weights (`total`) of `rows` rows in registers. wide: numbers that a row's sum is kept as, side by side; power: weights are
    2 to the power of so many times a score, by the unit's fast instruction, where it is given."""

    def __init__(self, k: Kernel, rows: int, wide: int = 1, power: float | None = None):
        self.k, self.ib, self.wide, self.power = k, k.ib, wide, power
        self.top = k.ib.allocate(k.acc, (rows,), "top", scope="local")
        self.total = k.ib.allocate(k.acc, (rows * wide,), "total", scope="local")

    def begin(self, row: Index) -> None:
        """Nothing is summed."""
        self.top[row] = self.k.lowest
        self._put(row, self._of_width(self.k.const(0)))

    def raised(self, row: Index, best: Expr) -> Expr:
        """`best` is the maximum from now on. Returns what sums so far are to be multiplied by."""
        factor = self.ib.let("factor", self.weight(self.top[row] - best))
        self.top[row] = best
        return factor

    def weight(self, below: Expr) -> Expr:
        """The weight of a score that is so much below the maximum."""
        return loops.exp_below(below) if self.power is None else self.exp2(below * self.k.const(self.power))

    @staticmethod
    def exp2(x: Expr) -> Expr:
        return te.call_intrin(x.dtype, "exp2_fast", x)

    def scale(self, row: Index, factor: Expr) -> None:
        """The sum by what `raised` returned."""
        self._put(row, self._sum(row) * self._of_width(factor))

    def add(self, row: Index, weights: Expr) -> None:
        self._put(row, self._sum(row) + weights)

    def _of_width(self, x: Expr) -> Expr:
        return x if self.wide == 1 else Broadcast(x, self.wide)

    def _sum(self, row: Index) -> Expr:
        return self.total[row] if self.wide == 1 else loops.vector(self.total, row * self.wide, self.wide)

    def _put(self, row: Index, value: Expr) -> None:
        if self.wide == 1:
            self.total[row] = value
        else:
            loops.put_vector(self.ib, self.total, row * self.wide, value)


def joined(
    k: Kernel, parts: BufferVar, count: int, place: Callable[[int], Any], column: Index, wide: int = 1
) -> tuple[list[Any], Any, Any]:
    """`wide` columns of a row whose keys are in `count` parts, as (sums of weighted values, sum of weights, maximum). `place(part)`: where a part's line in `parts` begins,
    which is its sums of values, then its maximum and its sum of weights."""
    ib, size = k.ib, k.g.value_size
    # Two passes, whose loads wait for nothing but the one maximum of all.
    top = loops.scalar(ib, k.acc, "top", parts[place(0) + size])
    for part in range(1, count):
        top[0] = te.max(top[0], parts[place(part) + size])
    total = loops.scalar(ib, k.acc, "total", k.const(0))
    values = ib.allocate(k.acc, (wide,), "values", scope="local")
    for v in range(wide):
        values[v] = k.const(0)
    for part in range(count):
        at = ib.let("at", place(part))
        factor = ib.let("factor", te.exp(parts[at + size] - top[0]))
        total[0] = total[0] + parts[at + (size + 1)] * factor
        if wide == 1:
            values[0] = values[0] + parts[at + column] * factor
        else:
            more = loops.vector(parts, at + column, wide) * Broadcast(factor, wide)
            loops.put_vector(ib, values, 0, loops.vector(values, 0, wide) + more)
    return [values[v] for v in range(wide)], total[0], top[0]
