"""The k largest of lines by a heap each, whatever their type and k: n log k."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import Expr
from ...ops.sort import above, alike
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..parts import loops
from .top_k import TopK, offered


class _Heap:
    """The best elements of a line so far and their places, in `values` and `index` at `at(0)`, `at(1)` ...; the worst of them at `at(0)`."""

    def __init__(
        self,
        ib: IRBuilder,
        values: BufferVar,
        index: BufferVar,
        at: Callable[[Index], Any],
        better: Callable[..., Expr],
    ):
        self.ib, self.values, self.index, self.at, self.better = ib, values, index, at, better
        self.top = ib.allocate(values.dtype, (1,), "top", scope="local")
        self.which = ib.allocate("int64", (1,), "which", scope="local")
        self.here = ib.allocate("int32", (1,), "at", scope="local")
        self.child = ib.allocate("int32", (1,), "child", scope="local")

    def hold(self, value: Expr, place: Expr) -> None:
        """The element that goes down next."""
        self.top[0] = value
        self.which[0] = place

    def put(self, place: Any, value: Expr, which: Expr) -> None:
        self.values[place] = value
        self.index[place] = which

    def sift(self, root: Index, size: Index) -> None:
        """What is held goes down from `root` until both children are better."""
        ib, values, index, better, here, child = self.ib, self.values, self.index, self.better, self.here, self.child
        here[0] = root
        child[0] = root * 2 + 1
        with ib.while_loop(child[0] < size):
            with ib.if_scope(child[0] + 1 < size):
                a, b = self.at(child[0]), self.at(child[0] + 1)
                with ib.if_scope(better(values[a], index[a], values[b], index[b])):
                    child[0] = child[0] + 1
            c = self.at(child[0])
            with ib.if_scope(better(self.top[0], self.which[0], values[c], index[c])):
                self.put(self.at(here[0]), values[c], index[c])
                here[0] = child[0]
                child[0] = here[0] * 2 + 1
            with ib.else_scope():
                child[0] = size
        self.put(self.at(here[0]), self.top[0], self.which[0])


def heaped(of: TopK, ib: IRBuilder, src: BufferVar, values: BufferVar, index: BufferVar) -> None:
    """A thread makes a heap of its line's k best elements, the worst of them on top; then sorts it in place, the worst to the end first."""
    lines, kept, k, target, largest = of.lines, of.kept, of.k, of.target, of.largest
    n = lines.n
    better = _better(ib, of.dtype, largest)
    with loops.each(ib, target, lines.count, "line") as line:
        heap = _Heap(ib, values, index, functools.partial(kept.at, line), better)
        with ib.for_range(0, k, "j") as j:
            heap.put(heap.at(j), src[lines.at(line, j)], j.astype("int64"))
        half = k // 2 if isinstance(k, int) else te.indexdiv(k, 2)
        with ib.for_range(0, half, "r") as r:
            h = heap.at(half - 1 - r)
            heap.hold(values[h], index[h])
            heap.sift(half - 1 - r, k)
        if not isinstance(n, int) or not isinstance(k, int) or k < n:
            worst = heap.at(0)

            def offer(j: Expr) -> None:
                heap.hold(src[lines.at(line, j)], j.astype("int64"))
                with ib.if_scope(better(heap.top[0], heap.which[0], values[worst], index[worst])):
                    heap.sift(0, k)

            offered(ib, src, lines, line, (k, n), None if target.is_gpu else values[worst], largest, offer)
        with ib.for_range(0, k - 1, "e") as e:
            last, first = heap.at(k - 1 - e), heap.at(0)
            heap.hold(values[last], index[last])
            heap.put(last, values[first], index[first])
            heap.sift(0, k - 1 - e)


def _better(ib: IRBuilder, dtype: str, largest: bool) -> Any:
    """Whether an element and its place come before another's."""

    def better(a: Expr, i: Expr, b: Expr, j: Expr) -> Expr:
        # In steps: one large condition is slow to simplify.
        u, v = ib.let("u", a), ib.let("v", b)
        first = ib.let("first", above(u, v, dtype) if largest else above(v, u, dtype))
        same, sooner = ib.let("same", alike(u, v, dtype)), ib.let("sooner", i < j)
        return te.any(first, te.all(same, sooner))

    return better
