"""Attention on a GPU with plain vector code: a work-group has a tile of queries of one head and walks over blocks of keys.

16 x 16 threads; a thread has some queries (threadIdx.y) by some keys (threadIdx.x) of the scores, and the same queries by some columns of the result.
Keys, then values of a block lie in shared memory, as do the block's weights; running maxima and sums are in registers, alike in the 16
threads that share queries. Where queries are few and keys many, blocks of keys are divided over work-groups as well (`splits`): each leaves its
maximum, sum and weighted values, which a second small kernel joins ("flash decoding").
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

from .... import te
from ....ir.dtype import dtype_info
from ....ops.forms import Form
from ....target import Target
from ....te import Tensor
from ....te.ir_builder import BufferVar
from ....te.like import Index
from ...group import Group
from ...parts import loops
from ...space import Choice, Cost
from .grid import Grid, Results, Rows
from .kernel import Kernel, SplitAttention

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
        need, have = _shared_bytes(self, choice), self.target.static_lds_bytes
        if need > have:
            return f"tiles take {need} bytes of shared memory, there are {have}"
        sums = choice["queries"] // SIDE * -(-self.g.value_size // SIDE)
        return f"a thread would hold {sums} sums of values" if sums > 64 else None

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
        seconds = -(-groups // (2 * machine.units)) * 2 * clocks / (machine.clock_mhz * 1e6)
        return Cost(seconds + (1 + (choice["splits"] > 1)) * machine.launch_us * 1e-6, "issue")

    def loops(self, kernel: Kernel, choice: Choice) -> None:
        grid = Grid(kernel, self.rows[1], choice["queries"], choice["splits"], (SIDE, SIDE))
        grid.launch(lambda of, first, tx, ty: _Tile(kernel, choice, of, first, tx, ty))


def _stride(elements: int, dtype: str) -> int:
    """Elements from row to row in shared memory: an odd number of 32-bit words, so that rows begin in different banks."""
    per = max(1, 4 // dtype_info(dtype).bytes)
    words = -(-elements // per)
    return (words | 1) * per


def _shared_bytes(space: GpuAttention, choice: Choice) -> int:
    dtype = space.form.inputs[0].dtype
    acc = "float64" if dtype == "float64" else "float32"
    q, k = choice["queries"], choice["keys"]
    rows = q * _stride(space.g.size, dtype) + k * _stride(max(space.g.size, space.g.value_size), dtype)
    total: int = rows * dtype_info(dtype).bytes + q * _stride(k, acc) * dtype_info(acc).bytes
    return total


class _Tile:
    """One tile of queries: its loop over blocks of keys."""

    def __init__(self, k: Kernel, choice: Choice, of: Rows, first: Index, tx: Index, ty: Index):
        self.k, self.ib, self.g, self.acc = k, k.ib, k.g, k.acc
        self.of, self.first, self.tx, self.ty = of, first, tx, ty
        self.queries, self.keys = choice["queries"], choice["keys"]
        self.own_rows, self.own_keys = self.queries // SIDE, self.keys // SIDE
        self.columns = -(-self.g.value_size // SIDE)
        self.dtype = k.sources["q"].dtype

    def row(self, a: int) -> Any:
        return self.ty * self.own_rows + a

    def run(self, split: Index, splits: int) -> None:
        ib, g, dtype = self.ib, self.g, self.dtype
        self.step_q, self.step_p = _stride(g.size, dtype), _stride(self.keys, self.acc)
        self.step_k = _stride(max(g.size, g.value_size), dtype)
        self.q = ib.allocate(dtype, (self.queries * self.step_q,), "q_tile", scope="shared")
        self.kv = ib.allocate(dtype, (self.keys * self.step_k,), "key_tile", scope="shared")
        self.p = ib.allocate(self.acc, (self.queries * self.step_p,), "weights", scope="shared")
        self.top = ib.allocate(self.acc, (self.own_rows,), "top", scope="local")
        self.total = ib.allocate(self.acc, (self.own_rows,), "total", scope="local")
        self.o = ib.allocate(self.acc, (self.own_rows * self.columns,), "sums", scope="local")
        for a in range(self.own_rows):
            self.top[a] = self.k.lowest
            self.total[a] = self.k.const(0)
            for c in range(self.columns):
                self.o[a * self.columns + c] = self.k.const(0)

        def query(row: Index, d: Index) -> Any:
            head, i = self.of.at(te.min(self.first + row, self.of.count - 1))
            return self.k.query(self.of.b, head, i, d)

        self._fill(self.q, self.queries, g.size, self.step_q, query)
        begin, end = self.of.blocks(*self.of.reach(self.first, self.queries), self.keys, split, splits)
        with ib.for_range(begin, te.max(end, begin), "block") as block:
            self._block(ib.let("key", block * self.keys))

    def _fill(self, to: Any, rows: int, size: int, step: int, value: Callable[[Any, Any], Any]) -> None:
        """All threads write rows of `size` elements into shared memory."""

        def one(e: Any) -> None:
            row, d = te.indexdiv(e, size), te.indexmod(e, size)
            to[row * step + d] = value(row, d)

        loops.dealt(self.ib, rows * size, SIDE * SIDE, (self.ty * SIDE, self.tx), one, "serial")

    def _load(self, operand: str, key: Index, size: int) -> None:
        # A block's end beyond the last key repeats that key; its scores are hidden.
        def value(row: Index, d: Index) -> Any:
            return self.k.stored_at(operand, self.of.b, self.of.key_head, te.min(key + row, self.g.keys - 1), d)

        self._fill(self.kv, self.keys, size, self.step_k, value)

    def _block(self, key: Index) -> None:
        ib, g, acc = self.ib, self.g, self.acc
        self._load("k", key, g.size)
        s = ib.allocate(acc, (self.own_rows * self.own_keys,), "scores", scope="local")
        for n in range(self.own_rows * self.own_keys):
            s[n] = self.k.const(0)
        with ib.for_range(0, g.size, "d") as d:
            x = [ib.let("x", self.q[self.row(a) * self.step_q + d].astype(acc)) for a in range(self.own_rows)]
            y = [ib.let("y", self.kv[(c * SIDE + self.tx) * self.step_k + d].astype(acc)) for c in range(self.own_keys)]
            for a in range(self.own_rows):
                for c in range(self.own_keys):
                    s[a * self.own_keys + c] = s[a * self.own_keys + c] + x[a] * y[c]
        self._load("v", key, g.value_size)
        for a in range(self.own_rows):
            self._weights(a, key, s)
        with ib.for_range(0, self.keys, "j") as j:
            x = [ib.let("x", self.p[self.row(a) * self.step_p + j]) for a in range(self.own_rows)]
            for c in range(self.columns):
                column = self.tx + c * SIDE
                if (c + 1) * SIDE > g.value_size:
                    column = te.min(column, g.value_size - 1)
                y = ib.let("y", self.kv[j * self.step_k + column].astype(acc))
                for a in range(self.own_rows):
                    n = a * self.columns + c
                    self.o[n] = self.o[n] + x[a] * y

    def _weights(self, a: int, key: Index, s: BufferVar) -> None:
        """Scores of one row into weights; what was summed before is scaled."""
        ib, k = self.ib, self.k
        best = loops.scalar(ib, self.acc, "best", self.top[a])
        for c in range(self.own_keys):
            n = a * self.own_keys + c
            s[n] = self._masked(s[n] * k.const(k.scores.scale), self.first + self.row(a), key + c * SIDE + self.tx)
            best[0] = te.max(best[0], s[n])
        loops.over_lanes(self.ib, best, loops.doublings(SIDE), SIDE, te.max)
        factor = ib.let("factor", te.exp(self.top[a] - best[0]))
        self.top[a] = best[0]
        more = loops.scalar(ib, self.acc, "more", k.const(0))
        for c in range(self.own_keys):
            weight = ib.let("weight", te.exp(s[a * self.own_keys + c] - self.top[a]))
            more[0] = more[0] + weight
            self.p[self.row(a) * self.step_p + c * SIDE + self.tx] = weight
        loops.over_lanes(self.ib, more, loops.doublings(SIDE), SIDE, operator.add)
        self.total[a] = self.total[a] * factor + more[0]
        for c in range(self.columns):
            self.o[a * self.columns + c] = self.o[a * self.columns + c] * factor

    def _masked(self, score: Any, row: Index, key: Index) -> Any:
        k, scores = self.k, self.k.scores
        head, i = self.of.at(te.min(row, self.of.count - 1))
        at = te.min(key, self.g.keys - 1)
        score = scores.biased(scores.capped(score), k.extra, (self.of.b, head, i, at))
        return k.seen(score, self.of.b, i, key, self.keys)

    def results(self, out: Results) -> None:
        g = self.g
        for a in range(self.own_rows):
            with out.row(self.first + self.row(a), self.top[a], self.total[a], self.tx == 0) as put:
                for c in range(self.columns):
                    column, value = self.tx + c * SIDE, self.o[a * self.columns + c]
                    if (c + 1) * SIDE > g.value_size:
                        with self.ib.if_scope(column < g.value_size):
                            put(column, value)
                    else:
                        put(column, value)
