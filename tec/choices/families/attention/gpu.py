"""Attention on a GPU with plain vector code: a work-group has a tile of queries of one head and walks over blocks of keys.

16 x 16 threads; a thread has some queries (threadIdx.y) by some keys (threadIdx.x) of the scores, and the same queries by some columns of the result.
Keys, then values of a block lie in shared memory, as do the block's weights; running maxima and sums are in registers, alike in the 16
threads that share queries. Where queries are few and keys many, blocks of keys are divided over work-groups as well (`splits`): each leaves its
maximum, sum and weighted values, which a second small kernel joins ("flash decoding").
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, ClassVar

from .... import te
from ....ir import Expr
from ....ir.dtype import dtype_info
from ....ops.attention import Geometry
from ....ops.forms import Form
from ....target import Target
from ....te import Tensor
from ....te.ir_builder import BufferVar
from ....te.like import Index
from ...group import Group
from ...parts import loops, needs
from ...space import Choice, Cost
from .grid import Grid, Results, Rows
from .kernel import Kernel, SplitAttention
from .softmax import RunningSoftmax

WIDE = 4  # float32 numbers that one instruction reads of shared memory
SIDE = 16  # threads of a work-group in each direction: 16 neighbours share sums by shuffles on any wavefront


class GpuAttention(SplitAttention):
    """A tile of `queries` by a block of `keys` a work-group; blocks of keys over `splits` work-groups."""

    template: ClassVar[str] = "gpu attention"
    open_queries: ClassVar[int] = 64

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor]):
        super().__init__(group, target, form, carriers)
        self.parameters = {"queries": (64, 32, 16), "keys": (64, 32, 16), "splits": (1, 2, 4, 8, 16, 32, 64)}

    @property
    def fits_at_all(self) -> bool:
        """Whether the smallest tile goes into shared memory."""
        return self.why_not(self.choice(queries=16, keys=16, splits=1)) is None

    def why_not(self, choice: Choice) -> str | None:
        sums = choice["queries"] // SIDE * -(-self.g.value_size // SIDE)
        return needs.first(
            needs.shared_memory(_shared_bytes(self, choice), self.target.lds_bytes), needs.sums(sums, 64)
        )

    @property
    def default(self) -> Choice:
        tile = next(q for q in (16, 32, 64) if q >= min(self.rows[0], 64))
        for queries, keys in ((64, 64), (64, 32), (32, 32), (16, 32), (16, 16)):
            if queries <= tile and self.why_not(self.choice(queries=queries, keys=keys, splits=1)) is None:
                break
        return self.choice(queries=queries, keys=keys, splits=self.splits(queries, keys))

    def cost(self, choice: Choice) -> Cost:
        """Multiply-adds at the vector rate and three reads of shared memory for two of them, by how many work-groups there are."""
        machine = self.target.machine
        groups = self.groups(choice["queries"]) * choice["splits"]
        block = choice["queries"] * choice["keys"] * (self.g.size + self.g.value_size)
        steps = -(-self.length // (choice["keys"] * choice["splits"]))
        clocks = steps * (2 * block / machine.macs("float32", matrix=False) + 200)
        seconds = -(-groups // (2 * machine.units)) * 2 * clocks / machine.clock_hz
        return Cost(seconds + (1 + (choice["splits"] > 1)) * machine.launch_seconds, "issue")

    def loops(self, kernel: Kernel, choice: Choice) -> None:
        grid = Grid(kernel, self.rows[1], choice["queries"], choice["splits"], (SIDE, SIDE))
        grid.launch(lambda of, first, tx, ty: _Tile(kernel, choice, of, first, tx, ty, self.target))


def _widths(g: Geometry, dtype: str, target: Target) -> tuple[int, int]:
    """Elements that a thread reads at once of rows of queries, keys and weights, and of rows of values. One at a time, two products of float32 wait for three
    reads; four at a time, products set the time."""
    if dtype != "float32" or target.kind != "cuda":
        return 1, 1
    return WIDE if g.size % WIDE == 0 else 1, math.gcd(WIDE, g.value_size // SIDE) if g.value_size % SIDE == 0 else 1


def _stride(elements: int, dtype: str, width: int) -> int:
    """Elements from row to row in shared memory: an odd number of 32-bit words, or of what is read at once, so that rows begin in different banks."""
    per = max(width, 4 // dtype_info(dtype).bytes)
    words = -(-elements // per)
    return (words | 1) * per


def _strides(g: Geometry, dtype: str, acc: str, keys: int, target: Target) -> tuple[int, int, int]:
    """Of queries, of keys and values, and of weights."""
    one, values = _widths(g, dtype, target)
    size, both = g.size, max(g.size, g.value_size)
    return _stride(size, dtype, one), _stride(both, dtype, max(one, values)), _stride(keys, acc, one)


def _shared_bytes(space: GpuAttention, choice: Choice) -> int:
    dtype = space.form.inputs[0].dtype
    acc = "float64" if dtype == "float64" else "float32"
    q, k = choice["queries"], choice["keys"]
    step_q, step_k, step_p = _strides(space.g, dtype, acc, k, space.target)
    total: int = (q * step_q + k * step_k) * dtype_info(dtype).bytes + q * step_p * dtype_info(acc).bytes
    return total


class _Tile:
    """One tile of queries: its loop over blocks of keys."""

    def __init__(self, k: Kernel, choice: Choice, of: Rows, first: Index, tx: Index, ty: Index, target: Target):
        self.k, self.ib, self.g, self.acc = k, k.ib, k.g, k.acc
        self.of, self.first, self.tx, self.ty = of, first, tx, ty
        self.queries, self.keys = choice["queries"], choice["keys"]
        self.own_rows, self.own_keys = self.queries // SIDE, self.keys // SIDE
        self.columns = -(-self.g.value_size // SIDE)
        self.dtype = k.sources["q"].dtype
        self.wide, self.wide_values = _widths(self.g, self.dtype, target)
        self.step_q, self.step_k, self.step_p = _strides(self.g, self.dtype, self.acc, self.keys, target)

    def row(self, a: int) -> Any:
        return self.ty * self.own_rows + a

    def run(self, split: Index, splits: int) -> None:
        ib, g, dtype = self.ib, self.g, self.dtype
        self.q = ib.allocate(dtype, (self.queries * self.step_q,), "q_tile", scope="shared")
        self.kv = ib.allocate(dtype, (self.keys * self.step_k,), "key_tile", scope="shared")
        self.p = ib.allocate(self.acc, (self.queries * self.step_p,), "weights", scope="shared")
        self.softmax = RunningSoftmax(self.k, self.own_rows)
        self.o = ib.allocate(self.acc, (self.own_rows * self.columns,), "sums", scope="local")
        for a in range(self.own_rows):
            self.softmax.begin(a)
            for c in range(self.columns):
                self.o[a * self.columns + c] = self.k.const(0)

        def query(row: Index, d: Index) -> Any:
            head, i = self.of.at(te.min(self.first + row, self.of.count - 1))
            return self.k.query(self.of.b, head, i, d)

        self._fill(self.q, self.queries, g.size, self.step_q, query)
        begin, end = self.of.blocks(*self.of.reach(self.first, self.queries), self.keys, split, splits)
        with ib.for_range(begin, te.max(end, begin), "block") as block:
            self._block(ib.let("key", block * self.keys))

    def _fill(self, to: BufferVar, rows: int, size: int, step: int, value: Callable[[Any, Any], Any]) -> None:
        """All threads write rows of `size` elements into shared memory."""

        def one(e: Expr) -> None:
            row, d = te.indexdiv(e, pieces), te.indexmod(e, pieces) * wide
            if wide == 1:
                to[row * step + d] = value(row, d)
                return
            with self.ib.for_range(0, wide, "v", kind="vectorize") as v:
                to[row * step + d + v] = value(row, d + v)

        wide = self.wide if size % self.wide == 0 and step % self.wide == 0 else 1
        pieces = size // wide
        # Loads of several rows are under way at once where they are wide.
        kind = "serial" if wide == 1 else "unroll"
        loops.dealt(self.ib, rows * pieces, SIDE * SIDE, (self.ty * SIDE, self.tx), one, kind)

    def _load(self, operand: str, key: Index, size: int) -> None:
        # A block's end beyond the last key repeats that key; its scores are hidden.
        def value(row: Index, d: Index) -> Any:
            return self.k.stored_at(operand, self.of.b, self.of.key_head, te.min(key + row, self.g.keys - 1), d)

        self._fill(self.kv, self.keys, size, self.step_k, value)

    def _block(self, key: Index) -> None:
        """Scores, weights and weighted values of a block of keys, which shared memory holds in turn with its values."""
        ib, g, acc = self.ib, self.g, self.acc
        self._load("k", key, g.size)
        s = ib.allocate(acc, (self.own_rows * self.own_keys,), "scores", scope="local")
        for n in range(self.own_rows * self.own_keys):
            s[n] = self.k.const(0)
        with ib.for_range(0, g.size // self.wide, "d") as part:
            d = part * self.wide
            x = [self._some(self.q, self.row(a) * self.step_q + d, self.wide) for a in range(self.own_rows)]
            y = [self._some(self.kv, (c * SIDE + self.tx) * self.step_k + d, self.wide) for c in range(self.own_keys)]
            for e in range(self.wide):
                for a in range(self.own_rows):
                    for c in range(self.own_keys):
                        s[a * self.own_keys + c] = s[a * self.own_keys + c] + x[a][e] * y[c][e]
        self._load("v", key, g.value_size)
        for a in range(self.own_rows):
            self._weights(a, key, s)
        with ib.for_range(0, self.keys // self.wide, "j") as part:
            x = [
                self._some(self.p, self.row(a) * self.step_p + part * self.wide, self.wide)
                for a in range(self.own_rows)
            ]
            for e in range(self.wide):
                for c in range(0, self.columns, self.wide_values):
                    y = self._some(self.kv, (part * self.wide + e) * self.step_k + self._column(c), self.wide_values)
                    for a in range(self.own_rows):
                        for v in range(self.wide_values):
                            n = a * self.columns + c + v
                            self.o[n] = self.o[n] + x[a][e] * y[v]

    def _column(self, c: int) -> Any:
        """The first of the columns of values that a thread reads at once with its c-th; no further than the last."""
        column = c * SIDE + self.tx * self.wide_values
        return te.min(column, self.g.value_size - 1) if (c + 1) * SIDE > self.g.value_size else column

    def _some(self, buffer: BufferVar, first: Index, n: int) -> list[Any]:
        """Elements side by side, read at once, in the accumulator's type."""
        if n == 1:
            return [self.ib.let("x", buffer[first].astype(self.acc))]
        some = self.ib.allocate(self.acc, (n,), "some", scope="local")
        loops.put_vector(self.ib, some, 0, loops.vector(buffer, first, n))
        return [some[e] for e in range(n)]

    def _weights(self, a: int, key: Index, s: BufferVar) -> None:
        """Scores of one row into weights; what was summed before is scaled."""
        ib, k, softmax = self.ib, self.k, self.softmax
        best = loops.scalar(ib, self.acc, "best", softmax.top[a])
        for c in range(self.own_keys):
            n = a * self.own_keys + c
            s[n] = self._masked(s[n] * k.const(k.scores.scale), self.first + self.row(a), key + c * SIDE + self.tx)
            best[0] = te.max(best[0], s[n])
        loops.over_lanes(self.ib, best, loops.doublings(SIDE), SIDE, te.max)
        factor = softmax.raised(a, best[0])
        more = loops.scalar(ib, self.acc, "more", k.const(0))
        for c in range(self.own_keys):
            weight = ib.let("weight", softmax.weight(s[a * self.own_keys + c] - softmax.top[a]))
            more[0] = more[0] + weight
            self.p[self.row(a) * self.step_p + c * SIDE + self.tx] = weight
        loops.over_lanes(self.ib, more, loops.doublings(SIDE), SIDE, operator.add)
        softmax.scale(a, factor)
        softmax.add(a, more[0])
        for c in range(self.columns):
            self.o[a * self.columns + c] = self.o[a * self.columns + c] * factor

    def _masked(self, score: Expr, row: Index, key: Index) -> Expr:
        k, b = self.k, self.of.b
        head, i = self.of.at(te.min(row, self.of.count - 1))
        score = k.biased(score, (b, head, i, te.min(key, self.g.keys - 1)))
        return k.seen(score, b, i, key, k.inside(key, self.keys))

    def results(self, out: Results) -> None:
        g, softmax = self.g, self.softmax
        for a in range(self.own_rows):
            with out.row(self.first + self.row(a), softmax.top[a], softmax.total[a], self.tx == 0) as put:
                for c in range(self.columns):
                    first = c // self.wide_values * self.wide_values
                    column = first * SIDE + self.tx * self.wide_values + c % self.wide_values
                    value = self.o[a * self.columns + c]
                    if (c + 1) * SIDE > g.value_size:
                        with self.ib.if_scope(column < g.value_size):
                            put(column, value)
                    else:
                        put(column, value)
