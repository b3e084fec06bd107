"""The few largest elements of lines on a CPU: a sorted list of them in a vector, into which better ones are put by two comparisons and a shift of lanes.

A heap of five elements takes a branch for each level that it sifts through, most of them guessed wrong. Here an element that is better than the last of the list takes one branch, and the list
stays in order: nothing is sorted in the end. Runs of a long line in which no element is better are passed over by vectors, as with heaps (`sorts`).
"""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import Broadcast, Expr, Shuffle
from ...ir.dtype import dtype_info
from ...ops.sort import above
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..parts import loops
from .top_k import TopK, offered

MOST = 16  # elements of a list: two vectors of an AVX2 core
_TYPES = ("float32", "float64", "int32", "int64", "uint32")


def can(target: Target, dtype: str, k: int) -> bool:
    """Whether lists of so many elements are kept in vectors."""
    return not target.is_gpu and 0 < k <= MOST and dtype in _TYPES


def inserted(of: TopK, ib: IRBuilder, src: BufferVar, values: BufferVar, index: BufferVar) -> None:
    """A line a task."""
    lines, k = of.lines, of.k
    with loops.each(ib, of.target, lines.count, "line") as line:
        found = _List(ib, of.dtype, k, of.largest)
        for j in range(k):
            found.put(src[lines.at(line, j)], j, is_full=False)

        def offer(j: Expr) -> None:
            v = ib.let("v", src[lines.at(line, j)])
            with ib.if_scope(found.before(v, found.values[k - 1])):
                found.put(v, j, is_full=True)

        if not isinstance(lines.n, int) or k < lines.n:
            offered(ib, src, lines, line, (k, lines.n), found.values[k - 1], of.largest, offer)
        for p in range(k):
            values[of.kept.at(line, p)] = found.values[p]
            index[of.kept.at(line, p)] = found.places[p].astype("int64")


class _List:
    """`k` elements in order, and their places, -1 of those that are not there yet."""

    def __init__(self, ib: IRBuilder, dtype: str, k: int, largest: bool):
        self.ib, self.dtype, self.largest = ib, dtype, largest
        self.lanes = next(n for n in (4, 8, 16) if n >= k)
        self.values = ib.allocate(dtype, (self.lanes,), "best", scope="local")
        self.places = ib.allocate("int32", (self.lanes,), "places", scope="local")
        loops.put_vector(ib, self.values, 0, self._all(te.const(0, dtype)))
        loops.put_vector(ib, self.places, 0, self._all(te.const(-1, "int32")))

    def _all(self, v: Expr) -> Expr:
        return Broadcast(v, self.lanes)

    def before(self, a: Expr, b: Expr) -> Any:
        """Whether a comes before what was found before it."""
        return above(a, b, self.dtype) if self.largest else above(b, a, self.dtype)

    def put(self, value: Expr, place: Index, is_full: bool) -> None:
        """An element into the list, of which the last is dropped. Those that it comes before move on by a lane."""
        ib, n = self.ib, self.lanes
        new, at = self._all(value), self._all(te.const(place, "int32") if isinstance(place, int) else place)
        values, places = (
            ib.let("values", loops.vector(self.values, 0, n)),
            ib.let("at", loops.vector(self.places, 0, n)),
        )
        # In front of the first stands what nothing comes before.
        moved = ib.let("moved", Shuffle((self._all(self._first()), values), (0, *range(n, 2 * n - 1))))
        from_ = ib.let("from", Shuffle((self._all(te.const(0, "int32")), places), (0, *range(n, 2 * n - 1))))
        here, ahead = self.before(new, values), self.before(new, moved)
        if not is_full:
            none = self._all(te.const(0, "int32"))
            here, ahead = te.any(here, places < none), te.any(ahead, from_ < none)
        here, ahead = ib.let("here", here), ib.let("ahead", ahead)
        loops.put_vector(ib, self.values, 0, te.select(here, te.select(ahead, moved, new), values))
        loops.put_vector(ib, self.places, 0, te.select(here, te.select(ahead, from_, at), places))

    def _first(self) -> Expr:
        is_float = dtype_info(self.dtype).is_float
        if is_float:
            return te.const(float("nan") if self.largest else float("-inf"), self.dtype)
        return te.max_value(self.dtype) if self.largest else te.min_value(self.dtype)
