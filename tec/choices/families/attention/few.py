"""Attention of few queries on a CPU: a vector has elements of a head, or keys, as its lanes.

The work is reading keys and values once; all queries that share a key head, of all heads of its group, take each block while it is in the first-level cache.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from .... import te
from ....ir import Expr
from ....te.ir_builder import BufferVar
from ....te.like import Index
from .kernel import Kernel
from .softmax import RunningSoftmax

MOST = 8  # queries times heads of a group: beyond, lanes of queries are filled well enough
_SUMS = 8  # vectors of results that are summed at once


def lanes_of(size: int, most: int) -> int:
    """The largest power of two that divides a size, `most` at the most."""
    return min(most, size & -size)


class Vectors:
    """Vectors of so many elements, each a power of two of lanes: of a size that they do not divide the last one begins earlier, and its first `again` lanes are of the one before."""

    def __init__(self, size: int, most: int):
        self.lanes = min(most, 1 << size.bit_length() - 1)
        self.count = -(-size // self.lanes)
        self.again = self.count * self.lanes - size

    def first(self, v: int) -> int:
        """The first element of vector `v`."""
        return v * self.lanes - (self.again if v == self.count - 1 else 0)


class FewQueries:
    """One key head of one batch entry: its queries over blocks of keys."""

    def __init__(self, kernel: Kernel, keys: int, rows: int, lanes: int, b: Index, key_head: Expr):
        self.kernel, self.ib, self.g, self.acc = kernel, kernel.ib, kernel.g, kernel.acc
        self.keys, self.rows, self.lanes, self.b, self.key_head = keys, rows, lanes, b, key_head
        self.count = self.g.queries * self.g.group
        self.over = lanes_of(keys, lanes)  # of a vector of keys: a pool's block may have fewer than a vector has lanes
        self.elements, self.results = Vectors(self.g.size, lanes), Vectors(self.g.value_size, lanes)

    def run(self) -> None:
        """The block of rows: queries and sums in local memory, then the keys in blocks."""
        ib, g, k = self.ib, self.g, self.kernel
        self.q = ib.allocate(self.acc, (MOST * g.size,), "queries", scope="local")
        self.kept = self.results.count * self.results.lanes  # of a row's sums: vector behind vector
        self.o = ib.allocate(self.acc, (MOST * self.kept,), "sums", scope="local")
        self.p = ib.allocate(self.acc, (self.keys,), "weights", scope="local")
        self.softmax = softmax = RunningSoftmax(k, MOST)
        with ib.for_range(0, self.count, "row") as row:
            head, i = self._at(row)

            def put(d: Index, x: Expr, row: Index = row) -> None:
                self.q[row * g.size + d] = x * k.const(k.scores.scale)

            k.each_element(self.b, head, i, put)
            with ib.for_range(0, self.kept, "d") as d:
                self.o[row * self.kept + d] = k.const(0)
            softmax.begin(row)
        begin, end = k.key_range(self.b, 0, g.queries - 1, self.keys)
        with ib.for_range(begin, te.max(end, begin), "block") as block:
            key = ib.let("key", block * self.keys)
            k.enter(self.b, key)
            count = ib.let("count", te.min(self.keys, g.keys - key))
            with ib.for_range(0, self.count, "row") as row:
                self._block(row, key, count)
        with ib.for_range(0, self.count, "row") as row:
            at = (self.b, *self._at(row))
            one = ib.let("one", k.normalized(k.const(1), softmax.total[row], softmax.top[row], at))
            again, whole = self.results.again, self.kept - self.results.lanes * (self.results.again > 0)
            for begin, end, behind in ((0, whole, 0), (whole, g.value_size, again)):
                with ib.for_range(begin, end, "d") as d:
                    k.write((*at, d), self.o[row * self.kept + d + behind] * one)

    def _at(self, row: Index) -> tuple[Any, Any]:
        return self.key_head * self.g.group + te.indexdiv(row, self.g.queries), te.indexmod(row, self.g.queries)

    def _vector(self, n: int) -> Any:
        return self.ib.for_range(0, n, "lane", kind="vectorize")

    def _folded(self, values: BufferVar, first: int, lanes: int, both: Callable[[Any, Any], Any]) -> Expr:
        """`lanes` values as one, by halves."""
        while lanes > 1:
            lanes //= 2
            with self._vector(lanes) as lane:
                values[first + lane] = both(values[first + lane], values[first + lanes + lane])
        return values[first]

    def _over_keys(self, both: Callable[[Any, Any], Any]) -> Any:
        """The block's weights as one value."""
        ib, lanes = self.ib, self.over
        part = ib.allocate(self.acc, (lanes,), "part", scope="local")
        with self._vector(lanes) as lane:
            part[lane] = self.p[lane]
        with ib.for_range(1, self.keys // lanes, "c") as c, self._vector(lanes) as lane:
            part[lane] = both(part[lane], self.p[c * lanes + lane])
        return ib.let("all", self._folded(part, 0, lanes, both))

    def _block(self, row: Index, key: Index, count: Index) -> None:
        ib, lanes, softmax = self.ib, self.over, self.softmax
        whole = te.indexdiv(count, self.rows)
        with ib.for_range(0, whole, "j") as j:
            self._scores(row, key, j * self.rows, self.rows)
        with ib.for_range(whole * self.rows, count, "j") as j:
            self._scores(row, key, j, 1)
        with ib.for_range(0, self.keys // lanes, "c") as c, self._vector(lanes) as lane:
            j = c * lanes + lane
            self.p[j] = self._masked(row, key, j, count)
        fresh = ib.let("fresh", te.max(softmax.top[row], self._over_keys(te.max)))
        factor = softmax.raised(row, fresh)
        with ib.for_range(0, self.keys // lanes, "c") as c, self._vector(lanes) as lane:
            self.p[c * lanes + lane] = softmax.weight(self.p[c * lanes + lane] - fresh)
        more = self._over_keys(operator.add)
        softmax.scale(row, factor)
        softmax.add(row, more)
        self._values(row, key, count, factor)

    def _scores(self, row: Index, key: Index, j: Index, n: int) -> None:
        ib, k, lanes, again = self.ib, self.kernel, self.elements.lanes, self.elements.again
        sums = ib.allocate(self.acc, (n * lanes,), "scores", scope="local")
        for r in range(n):
            with self._vector(lanes) as lane:
                sums[r * lanes + lane] = k.const(0)

        def add(first: Index, is_own: Callable[[Any], Any] | None = None) -> None:
            for r in range(n):
                with self._vector(lanes) as lane:
                    d = first + lane
                    x = self.q[row * self.g.size + d] * k.code_at("k", self.b, self.key_head, key + j + r, d)
                    x = x if is_own is None else te.select(is_own(lane), x, k.const(0))
                    sums[r * lanes + lane] = sums[r * lanes + lane] + x

        with ib.for_range(0, self.elements.count - (again > 0), "c") as c:
            add(c * lanes)
        if again:
            add(self.g.size - lanes, lambda lane: lane >= again)
        for r in range(n):
            scale = k.scale_at("k", self.b, self.key_head, key + j + r)
            total = self._folded(sums, r * lanes, lanes, operator.add)
            self.p[j + r] = total if scale is None else total * scale

    def _masked(self, row: Index, key: Index, j: Index, count: Index) -> Expr:
        head, i = self._at(row)
        at = te.min(key + j, self.g.keys - 1)
        return self.kernel.seen(self.kernel.biased(self.p[j], (self.b, head, i, at)), self.b, i, at, [j < count])

    def _values(self, row: Index, key: Index, count: Index, factor: Expr) -> None:
        ib, k, lanes, vectors = self.ib, self.kernel, self.results.lanes, self.results.count
        for first in range(0, vectors, _SUMS):
            n = min(_SUMS, vectors - first)
            sums = ib.allocate(self.acc, (n * lanes,), "values", scope="local")
            kept = row * self.kept + first * lanes
            for r in range(n):
                with self._vector(lanes) as lane:
                    sums[r * lanes + lane] = self.o[kept + r * lanes + lane] * factor
            with ib.for_range(0, count, "j") as j:
                scale = k.scale_at("v", self.b, self.key_head, key + j)
                weight = ib.let("weight", self.p[j] if scale is None else self.p[j] * scale)
                for r in range(n):
                    with self._vector(lanes) as lane:
                        x = k.code_at("v", self.b, self.key_head, key + j, self.results.first(first + r) + lane)
                        sums[r * lanes + lane] = sums[r * lanes + lane] + weight * x
            for r in range(n):
                with self._vector(lanes) as lane:
                    self.o[kept + r * lanes + lane] = sums[r * lanes + lane]
