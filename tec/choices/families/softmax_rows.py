"""Softmax of rows on a CPU in three passes over two buffers: the largest element; the powers, which go into the result while their sum is taken; and the result times one over
the sum, in place.

As stages, the powers are a row of their own beside the operand's and the result's, and their sum is a pass of its own: rows of thousands of elements then leave the first cache
once more (`rows`, which has whatever is computed around a softmax too).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Self

from ... import te
from ...ir import Broadcast, Expr, Shuffle
from ...ops.forms import Form
from ...ops.registry import static_shape
from ...ops.typical import typical
from ...target import Target
from ...te import ComputeOp
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from .. import parallel
from ..cost import Footprint, on_cores
from ..group import Group
from ..parts import loops
from ..parts.counts import lanes_for, moved_bytes
from ..space import Choice

# Vectors whose maxima are taken side by side: as many as hide the latency of one; a power of two.
_TOGETHER = 4
# The same of powers: each is some 15 instructions, beside whose constants more sums than one leave no registers of 16, and which hide an addition's latency.
_POWERS_TOGETHER = 2


class SoftmaxRows(loops.LoopForm):
    """A softmax of rows in float32 with nothing around it: a row after another, over threads."""

    template: ClassVar[str] = "cpu softmax"
    kind: ClassVar[str] = "softmax"

    @classmethod
    def match(cls, group: Group, target: Target) -> Self | None:
        found = super().match(group, target)
        return found if found is not None and list(found.carriers.values()) == list(group.outputs) else None

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        (x,) = form.inputs
        n = static_shape(x)[-1]
        is_long = isinstance(n, int) and n >= lanes_for(x.dtype, target) and (loops.fits(form) or loops.is_open(form))
        return not target.is_gpu and is_long and not isinstance(x.op, ComputeOp)

    def read_form(self) -> None:
        *self.rows, self.n = static_shape(self.form.inputs[0])  # any number of rows

    def sketch(self, choice: Choice) -> Footprint:
        elements = math.prod(map(typical, self.rows)) * self.n
        return on_cores(elements * parallel.ROWS, moved_bytes(self.group))

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        x = self.form.inputs[0]
        lines, lanes = loops.Lines(loops.index_of(x.shape), len(self.rows)), lanes_for(x.dtype, self.target)
        with loops.each(ib, self.target, lines.count, "row") as row:
            _Row(ib, sources[0], results[0], lines.at(row, 0)[:-1], self.n, lanes).run()


class _Row:
    """The statements for one row."""

    def __init__(self, ib: IRBuilder, src: BufferVar, dst: BufferVar, row: tuple[Index, ...], n: int, lanes: int):
        self.ib, self.src, self.dst, self.row, self.n, self.lanes = ib, src, dst, row, n, lanes
        self.whole, self.left = divmod(n, lanes)

    def run(self) -> None:
        """A row in three passes: the largest, powers and their sum, the quotients."""
        ib = self.ib
        top = self._kept("top", _TOGETHER, self._all(te.const(float("-inf"), "float32")))
        self._each(_TOGETHER, lambda v, at: self._put(top, v, te.max(self._at(self.src, at), self._of(top, v))))
        if self.left:  # the last vector begins earlier
            self._put(top, 0, te.max(self._at(self.src, self.n - self.lanes), self._of(top, 0)))
        largest = ib.let("largest", self._all(self._joined(top, _TOGETHER, te.max)))
        total = self._kept("total", 1, self._all(te.const(0, "float32")))

        def power(at: Index) -> Expr:
            return ib.let("power", loops.exp_below(self._at(self.src, at) - largest))

        def add(v: int, at: Index) -> None:
            e = power(at)
            loops.put_vector_at(ib, self.dst, self.row, at, e)
            self._put(total, 0, self._of(total, 0) + e)

        self._each(_POWERS_TOGETHER, add)
        last = None
        if self.left:
            # Its first lanes were counted before.
            last = power(self.n - self.lanes)
            lane = loops.neighbours(0, self.lanes)
            is_new = lane >= self._all(te.const(self.lanes - self.left, "int32"))
            new = te.select(is_new, last, self._all(te.const(0, "float32")))
            self._put(total, 0, self._of(total, 0) + new)
        scale = ib.let("scale", self._all(te.const(1, "float32") / self._joined(total, 1, lambda a, b: a + b)))
        self._each(
            _TOGETHER, lambda v, at: loops.put_vector_at(ib, self.dst, self.row, at, self._at(self.dst, at) * scale)
        )
        if last is not None:
            loops.put_vector_at(ib, self.dst, self.row, self.n - self.lanes, last * scale)

    def _each(self, together: int, do: Callable[[int, Index], None]) -> None:
        """`do(number, place)` for the whole vectors of the row, some side by side."""
        turns, rest = divmod(self.whole, together)
        if turns:
            with self.ib.for_range(0, turns, "c") as c:
                for v in range(together):
                    do(v, (c * together + v) * self.lanes)
        for v in range(rest):
            do(v, (turns * together + v) * self.lanes)

    def _at(self, buffer: BufferVar, at: Index) -> Expr:
        return loops.vector_at(buffer, self.row, at, self.lanes)

    def _all(self, value: Expr) -> Expr:
        return Broadcast(value, self.lanes)

    def _kept(self, name: str, vectors: int, start: Expr) -> BufferVar:
        """Vectors in registers."""
        kept = self.ib.allocate("float32", (vectors * self.lanes,), name, scope="local")
        for v in range(vectors):
            self._put(kept, v, start)
        return kept

    def _of(self, kept: BufferVar, v: int) -> Expr:
        return loops.vector(kept, v * self.lanes, self.lanes)

    def _put(self, kept: BufferVar, v: int, value: Expr) -> None:
        loops.put_vector(self.ib, kept, v * self.lanes, value)

    def _joined(self, kept: BufferVar, vectors: int, both: Callable[[Any, Any], Any]) -> Expr:
        """All elements of some vectors as one: vectors first, then halves of one."""
        ib, lanes = self.ib, self.lanes
        some = [self._of(kept, v) for v in range(vectors)]
        while len(some) > 1:
            some = [both(a, b) for a, b in zip(some[::2], some[1::2])]
        value = ib.let("joined", some[0])
        while lanes > 1:
            lanes //= 2
            low = ib.let("low", Shuffle((value,), tuple(range(lanes))))
            high = ib.let("high", Shuffle((value,), tuple(range(lanes, 2 * lanes))))
            value = ib.let("joined", both(low, high))
        return value
