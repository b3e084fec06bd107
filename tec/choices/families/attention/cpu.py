"""Attention in one pass over the keys on a CPU: running maximum, sum and weighted values; no matrix of scores is kept.

For each block of keys: scores, their largest m', weights exp(s - m'); what was summed before is scaled by exp(m - m'), and the weights' sum and
the weighted values are added (Milakov and Gimelshein's online softmax; Dao and others' FlashAttention).

Many queries: a vector has a query a lane (`lanes`), so that maxima and sums are lane-wise and keys and values are read as they lie, each
element once for all lanes. Only the tile of queries is turned, and the result back. Few queries: see `few`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from .... import te
from ....ir import Expr
from ....ops.attention import scores_of
from ....te.like import Index
from ... import parallel
from ...cost import Footprint, on_cores
from ...parts.counts import lanes_for
from ...space import Choice
from ..products import tile_clocks
from .few import MOST, FewQueries
from .kernel import AttentionSpace, Kernel, places_of
from .softmax import RunningSoftmax

_OPEN_SIZE = 64  # of a head whose size is open
_SIDE = 8  # of a square of queries by elements that is turned in registers
_TURN_CLOCKS, _ALONE_CLOCKS = 4, 3  # of a vector of queries or results that is turned in registers; of an element alone
KEYS = 64  # of a block: its weights for 32 queries are 8 KiB, which stay in the first-level cache


class CpuAttention(AttentionSpace):
    """A tile of `queries` over vector lanes and a block of keys at a time; heads and tiles over threads."""

    template: ClassVar[str] = "cpu attention"

    def read_form(self) -> None:
        super().read_form()
        self.lanes = lanes_for(scores_of(self.form.inputs, self.form.attrs).acc, self.target)
        places = places_of(self.form)  # a block of keys is then one of the pool's
        self.keys = KEYS if places is None else places
        self.parameters = {
            "queries": tuple(v * self.lanes for v in (2, 1, 4)), "keys": (KEYS, 32, 128, 256) if places is None else (places,), "rows": (8, 4, 6, 12, 2)
        }  # fmt: skip

    @property
    def default(self) -> Choice:
        # Two registers of queries by 8 elements are 16 sums, half of 32 registers; 4 where there are 16.
        rows = 8 if self.target.vector_bytes >= 64 else 4
        usual = self.choice(queries=2 * self.lanes, keys=self.keys, rows=rows)
        if not isinstance(self.g.queries, int):
            return usual
        # Of few queries tiles that leave few lanes without one.
        some = self.legal({**self.parameters, "keys": (self.keys,), "rows": (rows, 4, 6, 8)})
        return min((usual, *some), key=lambda c: self.sketch(c).kernels[0].issued)

    def sketch(self, choice: Choice) -> Footprint:
        """Steps of register tiles (`tile_clocks`) of whole tiles of queries, and turning the queries and results; loops where registers do not hold the sums."""
        g, rows, vectors = self.g, choice["rows"], choice["queries"] // self.lanes
        size, values = (n if isinstance(n, int) else _OPEN_SIZE for n in (g.size, g.value_size))

        def steps(count: int) -> float:
            """Of so many sums, some at a time and the rest together."""
            parts = [rows] * (count // rows) + [count % rows] * (count % rows > 0)
            spilled = max(0, rows * vectors + vectors + 1 - self.target.core.registers)
            return float(sum(tile_clocks.step(self.target, n, vectors)[0] + 2 * spilled for n in parts))

        tiles = self.batch * (g.heads if isinstance(g.heads, int) else 1) * -(-self.queries // choice["queries"])
        products = size * steps(self.length) + self.length * steps(values)
        turned = _TURN_CLOCKS if self.queries >= choice["queries"] else _ALONE_CLOCKS * self.lanes
        return on_cores(tiles * ((size + values) * vectors * turned + products), 0.0, True)

    def loops(self, kernel: Kernel, choice: Choice) -> None:
        """Lanes of queries, or of elements where queries are few; both, where their number is open."""
        few = kernel.g.queries * kernel.g.group
        # Vectors of elements are of known ones.
        if not (isinstance(kernel.g.size, int) and isinstance(kernel.g.value_size, int)):
            by_lanes(kernel, choice, lambda *at: Tile(kernel, choice, *at))
        elif not isinstance(few, int):
            with kernel.ib.if_scope(few <= MOST):
                by_heads(kernel, choice, self.lanes)
            with kernel.ib.else_scope():
                by_lanes(kernel, choice, lambda *at: Tile(kernel, choice, *at))
        elif few <= min(MOST, self.lanes - 1):  # as many as lanes fill a vector
            by_heads(kernel, choice, self.lanes)
        else:
            by_lanes(kernel, choice, lambda *at: Tile(kernel, choice, *at))


def tasks_kind(g: Any) -> str:
    """How tasks are run: over threads, where that is worth their start."""
    work = [g.batch, g.heads, g.queries, g.keys, g.size]
    known = all(isinstance(n, int) for n in work)
    # Two products at some 8 multiply-adds a clock.
    return "parallel" if not known or parallel.worth(2 * math.prod(work) / 8) else "serial"


def by_heads(kernel: Kernel, choice: Choice, lanes: int) -> None:
    """A task a head of keys: few queries."""
    ib, g = kernel.ib, kernel.g
    with ib.for_range(0, g.batch * g.key_heads, "task", kind=tasks_kind(g)) as task:
        b, head = ib.let("b", te.indexdiv(task, g.key_heads)), ib.let("head", te.indexmod(task, g.key_heads))
        FewQueries(kernel, choice["keys"], choice["rows"], lanes, b, head).run()


def by_lanes(kernel: Kernel, choice: Choice, make: Callable[[Any, Any, Any], Tile]) -> None:
    """A task a tile of queries: `make(batch entry, head, first query)`."""
    ib, g = kernel.ib, kernel.g
    width = choice["queries"]
    tiles = te.indexdiv(g.queries + (width - 1), width) if not isinstance(g.queries, int) else -(-g.queries // width)
    with ib.for_range(0, g.batch * g.heads * tiles, "task", kind=tasks_kind(g)) as task:
        tile = ib.let("tile", te.indexmod(task, tiles))
        head = ib.let("head", te.indexmod(te.indexdiv(task, tiles), g.heads))
        b = ib.let("b", te.indexdiv(task, tiles * g.heads))
        first = tile * width
        if isinstance(g.queries, int) and g.queries >= width:  # the last tile begins earlier: all are full
            first = te.min(first, g.queries - width)
        make(b, head, ib.let("first", first)).run()


class Tile:
    """One tile of queries of one head: its loops over blocks of keys."""

    def __init__(self, kernel: Kernel, choice: Choice, b: Index, head: Index, first: Index):
        self.kernel, self.b, self.head, self.first = kernel, b, head, first
        self.ib, self.g, self.acc = kernel.ib, kernel.g, kernel.acc
        self.width, self.keys, self.rows = choice["queries"], choice["keys"], choice["rows"]
        self.kv = te.indexdiv(head, self.g.group)

    def _lanes(self) -> Any:
        return self.ib.for_range(0, self.width, "lane", kind="vectorize")

    def run(self) -> None:
        ib, g, w = self.ib, self.g, self.width
        make = ib.allocate
        self.q = make(self.acc, (g.size * w,), "q_tile", scope="local")
        self.o = make(self.acc, (g.value_size * w,), "o_tile", scope="local")
        self.p = make(self.acc, (self.keys * w,), "weights", scope="local")
        self.softmax = RunningSoftmax(self.kernel, w)
        self.factor = make(self.acc, (w,), "factor", scope="local")
        self._begin()
        last = te.min(self.first + w, g.queries) - 1
        begin, end = self.kernel.key_range(self.b, self.first, last, self.keys)
        whole = te.min(end, te.indexdiv(g.keys, self.keys))
        with ib.for_range(begin, whole, "block") as block:
            self._block(block * self.keys, self.keys)
        if not isinstance(g.keys, int) or g.keys % self.keys:
            rest = te.indexmod(g.keys, self.keys)
            with ib.if_scope(te.all(end > whole, rest > 0)):
                self._block(te.indexdiv(g.keys, self.keys) * self.keys, rest)
        self._finish()

    def _begin(self) -> None:
        """The queries put down; sums at 0."""
        ib, g, w, k = self.ib, self.g, self.width, self.kernel
        self._put_queries()
        with self._lanes() as lane:
            self.softmax.begin(lane)
        with ib.for_range(0, g.value_size, "d") as d, self._lanes() as lane:
            self.o[d * w + lane] = k.const(0)

    def _put_queries(self) -> None:
        """The queries turned, an element of all of them beside each other."""
        if self._is_turned(self.g.size) and self.kernel.turn is None:
            self._squares(self.g.size, self._turn_queries)
        else:
            self._put_each_query()

    def _put_each_query(self) -> None:
        """Element by element; where there are fewer queries than lanes, the last one's again."""
        with self.ib.for_range(0, self.width, "i") as i:
            place = self.ib.let("place", te.min(self.first + i, self.g.queries - 1))
            self.kernel.each_element(self.b, self.head, place, partial(self._put_query, i))

    def _is_turned(self, size: Index) -> bool:
        """Whether tiles of so many elements are whole squares, all of whose queries there are."""
        whole = isinstance(self.g.queries, int) and self.g.queries >= self.width and self.width % _SIDE == 0
        return whole and isinstance(size, int) and size % _SIDE == 0 and self.acc == "float32"

    def _squares(self, size: Index, emit: Callable[[Any, Any], None]) -> None:
        """`emit(first query, first element)` of each square of a tile."""
        with (
            self.ib.for_range(0, self.width // _SIDE, "i") as i,
            self.ib.for_range(0, te.indexdiv(size, _SIDE), "d") as d,
        ):
            emit(i * _SIDE, d * _SIDE)

    def _turn_queries(self, i: Expr, d: Expr) -> None:
        """A square of queries: lines of elements are read, lines of queries written (`ir.passes.turn_squares`)."""
        ib, scale = self.ib, self.kernel.const(self.kernel.scores.scale)
        with ib.for_range(0, _SIDE, "k", kind="unroll") as k, ib.for_range(0, _SIDE, "lane", kind="vectorize") as lane:
            x = self.kernel.at("q", self.b, self.head, self.first + i + lane, d + k)
            self.q[(d + k) * self.width + i + lane] = x * scale

    def _turn_results(self, i: Expr, d: Expr) -> None:
        """A square of results, back."""
        ib, at = self.ib, (self.b, self.head)
        with ib.for_range(0, _SIDE, "k", kind="unroll") as k, ib.for_range(0, _SIDE, "lane", kind="vectorize") as lane:
            x = self.o[(d + lane) * self.width + i + k]
            self.kernel.write((*at, self.first + i + k, d + lane), x)

    def _put_query(self, i: Index, d: Index, x: Expr) -> None:
        """Query i's element d."""
        self.q[d * self.width + i] = x * self.kernel.const(self.kernel.scores.scale)

    def _grouped(self, count: Index, name: str, emit: Any) -> None:
        """`emit(first, n)` for all numbers below `count`, `rows` at a time and the rest one by one."""
        ib, rows = self.ib, self.rows
        with ib.for_range(0, te.indexdiv(count, rows), name) as r:
            emit(r * rows, rows)
        if not isinstance(count, int):
            with ib.for_range(te.indexdiv(count, rows) * rows, count, name) as r:
                emit(r, 1)
        elif count % rows:
            emit(count - count % rows, count % rows)

    def _block(self, key: Index, count: Index) -> None:
        """Keys `key` and on, `count` of them."""
        ib, w, softmax = self.ib, self.width, self.softmax
        self.kernel.enter(self.b, key)
        self._score_block(key, count)
        fresh = ib.allocate(self.acc, (w,), "fresh", scope="local")
        with self._lanes() as lane:
            fresh[lane] = softmax.top[lane]
        with ib.for_range(0, count, "j") as j, self._lanes() as lane:
            fresh[lane] = te.max(fresh[lane], self.p[j * w + lane])
        with self._lanes() as lane:
            self.factor[lane] = softmax.raised(lane, fresh[lane])
            softmax.scale(lane, self.factor[lane])
        with ib.for_range(0, count, "j") as j, self._lanes() as lane:
            self.p[j * w + lane] = softmax.weight(self.p[j * w + lane] - softmax.top[lane])
        with ib.for_range(0, count, "j") as j, self._lanes() as lane:
            softmax.add(lane, self.p[j * w + lane])
        self._value_block(key, count)

    def _score_block(self, key: Index, count: Index) -> None:
        """Scores of a block, masked."""
        self._grouped(count, "j", lambda j, n: self._scores(key, j, n))

    def _value_block(self, key: Index, count: Index) -> None:
        """Sums of values brought up to date by a block's weights."""
        self._grouped(self.g.value_size, "d", lambda d, n: self._values(key, d, n, count))

    def _scores(self, key: Index, j: Index, n: int) -> None:
        ib, w, k = self.ib, self.width, self.kernel
        sums = ib.allocate(self.acc, (n * w,), "scores", scope="local")
        for r in range(n):
            with self._lanes() as lane:
                sums[r * w + lane] = k.const(0)
        with ib.for_range(0, self.g.size, "d") as d:
            for r in range(n):
                x = ib.let("x", k.at("k", self.b, self.kv, key + j + r, d))
                with self._lanes() as lane:
                    sums[r * w + lane] = sums[r * w + lane] + self.q[d * w + lane] * x
        for r in range(n):
            place = ib.let("key", key + j + r)
            with self._lanes() as lane:
                self.p[(j + r) * w + lane] = self._masked(sums[r * w + lane], lane, place)

    def _masked(self, score: Expr, lane: Index, key: Index) -> Expr:
        i = te.min(self.first + lane, self.g.queries - 1)
        score = self.kernel.biased(score, (self.b, self.head, i, key))
        return self.kernel.seen(score, self.b, self.first + lane, key)

    def _values(self, key: Index, d: Index, n: int, count: Index) -> None:
        ib, w, k = self.ib, self.width, self.kernel
        sums = ib.allocate(self.acc, (n * w,), "values", scope="local")
        for r in range(n):
            with self._lanes() as lane:
                sums[r * w + lane] = self.o[(d + r) * w + lane] * self.factor[lane]
        with ib.for_range(0, count, "j") as j:
            for r in range(n):
                x = ib.let("x", k.at("v", self.b, self.kv, key + j, d + r))
                with self._lanes() as lane:
                    sums[r * w + lane] = sums[r * w + lane] + self.p[j * w + lane] * x
        for r in range(n):
            with self._lanes() as lane:
                self.o[(d + r) * w + lane] = sums[r * w + lane]

    def _finish(self) -> None:
        ib, g, w, k, softmax = self.ib, self.g, self.width, self.kernel, self.softmax
        if self._is_turned(g.value_size):
            with self._lanes() as lane:
                at = (self.b, self.head, self.first + lane)
                self.factor[lane] = k.normalized(k.const(1), softmax.total[lane], softmax.top[lane], at)
            with ib.for_range(0, g.value_size, "d") as d, self._lanes() as lane:
                self.o[d * w + lane] = self.o[d * w + lane] * self.factor[lane]
            self._squares(g.value_size, self._turn_results)
            return
        with ib.for_range(0, te.min(w, g.queries - self.first), "i") as i:
            at = (self.b, self.head, self.first + i)
            one = ib.let("one", k.normalized(k.const(1), softmax.total[i], softmax.top[i], at))
            with ib.for_range(0, g.value_size, "d") as d:
                k.write((*at, d), self.o[d * w + i] * one)
