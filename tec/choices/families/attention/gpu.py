"""Attention on a GPU with plain vector code: a work-group has a tile of queries of one head and walks over blocks of keys.

16 x 16 threads; a thread has some queries (threadIdx.y) by some keys (threadIdx.x) of the scores, and the same queries by some columns of the result.
Keys, then values of a block lie in shared memory, as do the block's weights; running maxima and sums are in registers, alike in the 16
threads that share queries. Where queries are few and keys many, blocks of keys are divided over work-groups as well (`splits`): each leaves its
maximum, sum and weighted values, which a second small kernel joins ("flash decoding").

Where heads are too large for shared memory beside so large a tile that products set the time, queries and keys come by `parts` of their elements, values by as many parts of the block's
keys. On AMD chips that multiply pairs of float16 in one instruction (v_dot2_f32_f16) the pairs are elements of the head in scores, and neighbouring keys in what is summed, whose values lie
so in shared memory. On AMD float32 comes by way of registers: the loads of the next keys or values are under way while those that shared memory holds are worked on.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from .... import te
from ....ir import Expr
from ....ir.dtype import dtype_info, with_lanes
from ....ir.expr import Shuffle
from ....ops.attention import Geometry
from ....records import dataclass
from ....target import Target, latency_ns, level_gbps
from ....te.ir_builder import BufferVar
from ....te.like import Index
from ...parts import loops, needs
from ...space import Choice, Cost
from .grid import Grid, Results, Rows
from .kernel import Kernel, SplitAttention
from .softmax import RunningSoftmax

WIDE = 4  # float32 numbers that one instruction reads of shared memory
PAIRED = 8  # elements of float16 that one instruction reads of shared memory
# Of the usual choice's price, that another one must be at: of few work-groups prices err by a quarter.
_WELL_BELOW = 0.8
_AHEAD_PARTS = 4  # of heads, up to which the loads of each are written out
SIDE = 16  # threads of a work-group in each direction: 16 neighbours share sums by shuffles on any wavefront


class GpuAttention(SplitAttention):
    """A tile of `queries` by a block of `keys` a work-group, in shared memory by `parts`; blocks of keys over `splits` work-groups."""

    template: ClassVar[str] = "gpu attention"
    open_queries: ClassVar[int] = 64

    def read_form(self) -> None:
        super().read_form()
        self.parameters = {
            "queries": (64, 32, 16), "keys": (64, 32, 16), "splits": (1, 2, 4, 8, 16, 32, 64),
            "parts": (1, 2, 4, 8) if self.target.machine.priced_by_model else (1,),  # no clock has judged it
        }  # fmt: skip

    @property
    def fits_at_all(self) -> bool:
        """Whether the smallest tile goes into shared memory."""
        return self.why_not(self.choice(queries=16, keys=16, splits=1, parts=1)) is None

    def why_not(self, choice: Choice) -> str | None:
        sums, parts = choice["queries"] // SIDE * -(-self.g.value_size // SIDE), choice["parts"]
        if self.g.size % (parts * PAIRED) and parts > 1:
            return f"heads of {self.g.size} have no {parts} parts that wide loads bring"
        return needs.first(
            needs.shared_memory(_shared_bytes(self, choice), self.target.lds_bytes), needs.sums(sums, 64)
        )

    @property
    def default(self) -> Choice:
        tile = next(q for q in (16, 32, 64) if q >= min(self.rows[0], 64))
        some = [n for n in self.parameters["parts"] if n <= 4]
        tiles = [(64, 64, 1), *((q, 64, n) for q in (64, 32) for n in some if n > 1), (64, 32, 1), (32, 32, 1), (16, 32, 1), (16, 16, 1)]  # fmt: skip
        for queries, keys, parts in tiles:
            made = self.choice(queries=queries, keys=keys, splits=1, parts=parts)
            if queries <= tile and self.why_not(made) is None and _lines_of(self, made).whole:
                break
        usual = {**made, "splits": self.splits(queries, keys)}
        if not self.target.machine.priced_by_model or self.groups(queries) >= self.target.machine.units:
            return usual
        # Smaller tiles, or parts of fewer keys, for units that would have nothing to do.
        legal = (c for c in self.legal(self.parameters) if c["queries"] <= queries and _lines_of(self, c).whole)
        best = min(legal, key=lambda c: self.cost(c).seconds)
        return best if self.cost(best).seconds < _WELL_BELOW * self.cost(usual).seconds else usual

    def cost(self, choice: Choice) -> Cost:
        """Multiply-adds at the vector rate and reads of shared memory, by how many work-groups there are."""
        machine = self.target.machine
        groups = self.groups(choice["queries"]) * choice["splits"]
        block = choice["queries"] * choice["keys"] * (self.g.size + self.g.value_size)
        steps = -(-self.length // (choice["keys"] * choice["splits"]))
        step = 2 * block / machine.macs("float32", matrix=False)
        if machine.priced_by_model:
            rounds = -(-groups // machine.units)
            clocks = rounds * steps * (max(step, self._read_clocks(choice)) + 200)
            # Of two work-groups a unit one begins while the other works.
            begin = -(-rounds // 2) * self.figures["begin_waits"] * choice["queries"] // SIDE
            waits = begin + rounds * steps / min(2, rounds)  # for a step's keys too
            seconds = clocks / machine.clock_hz + waits * latency_ns(machine, "memory") * 1e-9 + machine.launch_seconds
        else:
            # Threads with fewer rows read what they multiply more often.
            step = step / self.figures.along("row_rate", choice["queries"]) + 200
            seconds = -(-groups // (2 * machine.units)) * 2 * steps * step / machine.clock_hz + machine.launch_seconds
        if choice["splits"] > 1:  # each part's sums, written and read, and what joins them
            moved = 2 * groups * choice["queries"] * (self.g.value_size + 2) * 4
            seconds += machine.launch_seconds + moved / (level_gbps(machine, "memory") * 1e9)
            if machine.priced_by_model:
                seconds += 2e-9 * latency_ns(machine, "memory")
        return Cost(seconds, "issue")

    def _read_clocks(self, choice: Choice) -> float:
        """Of a step's reads of shared memory: a thread reads its rows and its keys for each product of them, and its rows and its columns."""
        rows, keys, columns = choice["queries"] // SIDE, choice["keys"] // SIDE, -(-self.g.value_size // SIDE)
        reads = self.g.size * (1 / rows + 1 / keys) + self.g.value_size * (1 / rows + 1 / columns)
        bytes_ = dtype_info(self.form.inputs[0].dtype).bytes
        return float(choice["queries"] * choice["keys"] * reads * bytes_ / self.target.machine.scratch_bytes_a_clock)

    def loops(self, kernel: Kernel, choice: Choice) -> None:
        grid = Grid(kernel, self.rows[1], choice["queries"], choice["splits"], (SIDE, SIDE))
        grid.launch(lambda of, first, tx, ty: _Tile(kernel, choice, of, first, tx, ty, self.target))


def _is_paired(g: Geometry, dtype: str, target: Target) -> bool:
    """Whether pairs are multiplied by one instruction."""
    return bool(target.machine.priced_by_model and dtype == "float16" and target.chip.dot2) and g.size % PAIRED == 0


def _widths(g: Geometry, dtype: str, target: Target) -> tuple[int, int]:
    """Elements that a thread reads at once of rows of queries, keys and weights, and of rows of values. One at a time, two products of float32 wait for three
    reads; four at a time, products set the time."""
    if dtype not in (("float32", "float16", "bfloat16") if target.machine.priced_by_model else ("float32",)):
        return 1, 1
    # Of columns of values side by side each result would be stored alone, some apart from its neighbour's: on AMD that is what splits wait for.
    values = (
        math.gcd(WIDE, g.value_size // SIDE) if not target.machine.priced_by_model and g.value_size % SIDE == 0 else 1
    )
    return WIDE if g.size % WIDE == 0 else 1, values


def _stride(elements: int, dtype: str, width: int) -> int:
    """Elements from row to row in shared memory: an odd number of 32-bit words, or of what is read at once, so that rows begin in different banks."""
    per = max(width, 4 // dtype_info(dtype).bytes)
    words = -(-elements // per)
    return (words | 1) * per


@dataclass(frozen=True)
class _Lines:
    """Elements from row to row in shared memory: of queries, of keys, of values (in pairs: of two keys' values), and of weights; and the elements of each array."""

    rows: int
    size: int
    values: int
    weights: int
    queries: int
    keys: int
    all_weights: int
    whole: bool  # queries stay, and are not brought by parts for each block

    @staticmethod
    def of(g: Geometry, dtype: str, acc: str, tile: Mapping[str, Any], target: Target) -> _Lines:
        one, wide_values = _widths(g, dtype, target)
        paired, parts, queries, keys = _is_paired(g, dtype, target), tile["parts"], tile["queries"], tile["keys"]
        one = PAIRED if paired else one
        size, weights = _stride(g.size // parts, dtype, one), _stride(keys, dtype if paired else acc, one)
        values = 2 * g.value_size if paired else _stride(g.value_size, dtype, max(one, wide_values))
        own = max(keys * size, keys // parts * values // (2 if paired else 1))
        whole, each = _stride(g.size, dtype, one), dtype_info(dtype).bytes
        rest = own * each + queries * weights * (each if paired else dtype_info(acc).bytes)
        stay = parts == 1 or queries * whole * each + rest <= target.lds_bytes
        rows = whole if stay else size
        return _Lines(rows, size, values, weights, queries * rows, own, queries * weights, stay)


def _types(space: GpuAttention) -> tuple[str, str]:
    """Of the operands and of the sums."""
    dtype = space.form.inputs[0].dtype
    return dtype, "float64" if dtype == "float64" else "float32"


def _lines_of(space: GpuAttention, choice: Choice) -> _Lines:
    return _Lines.of(space.g, *_types(space), choice, space.target)


def _shared_bytes(space: GpuAttention, choice: Choice) -> int:
    dtype, acc = _types(space)
    lines, one = _lines_of(space, choice), dtype_info(dtype).bytes
    weight = one if _is_paired(space.g, dtype, space.target) else dtype_info(acc).bytes
    total: int = (lines.queries + lines.keys) * one + lines.all_weights * weight
    return total


@dataclass(frozen=True)
class _Part:
    """What shared memory holds at once of keys or values: rows of so many elements, a step apart."""

    rows: int
    size: int
    step: int
    value: Callable[[Any, Any], Any]  # of a row and an element


class _Tile:
    """One tile of queries: its loop over blocks of keys."""

    def __init__(self, k: Kernel, choice: Choice, of: Rows, first: Index, tx: Index, ty: Index, target: Target):
        self.k, self.ib, self.g, self.acc = k, k.ib, k.g, k.acc
        self.of, self.first, self.tx, self.ty = of, first, tx, ty
        self.queries, self.keys, self.parts = choice["queries"], choice["keys"], choice["parts"]
        self.own_rows, self.own_keys = self.queries // SIDE, self.keys // SIDE
        self.columns = -(-self.g.value_size // SIDE)
        self.dtype = k.sources["q"].dtype
        self.wide, self.wide_values = _widths(self.g, self.dtype, target)
        self.paired = _is_paired(self.g, self.dtype, target)
        self.lines = _Lines.of(self.g, self.dtype, self.acc, choice, target)
        # By way of registers, where wide loads bring both and registers are left beside the sums.
        self.comes_ahead = (
            target.machine.priced_by_model
            and {k.sources[n].dtype for n in "qkv"} == {"float32"}
            and self.lines.whole
            and self.parts <= _AHEAD_PARTS
            and all(
                n % WIDE == 0
                for n in (self.g.size // self.parts, self.g.value_size, self.lines.size, self.lines.values)
            )
        )

    def row(self, a: int) -> Any:
        return self.ty * self.own_rows + a

    def run(self, split: Index, splits: int) -> None:
        ib, g, dtype = self.ib, self.g, self.dtype
        self.q = ib.allocate(dtype, (self.lines.queries,), "q_tile", scope="shared")
        self.kv = ib.allocate(dtype, (self.lines.keys,), "key_tile", scope="shared")
        self.p = ib.allocate(dtype if self.paired else self.acc, (self.lines.all_weights,), "weights", scope="shared")
        self.softmax = RunningSoftmax(self.k, self.own_rows)
        self.o = ib.allocate(self.acc, (self.own_rows * self.columns,), "sums", scope="local")
        for a in range(self.own_rows):
            self.softmax.begin(a)
            for c in range(self.columns):
                self.o[a * self.columns + c] = self.k.const(0)

        if self.lines.whole:
            self._load_queries(0, g.size)
        begin, end = self.of.blocks(*self.of.reach(self.first, self.queries), self.keys, split, splits)
        if self.comes_ahead:
            most = max(self.keys * g.size, self.keys * g.value_size) // self.parts
            self.ahead = ib.allocate(dtype, (-(-most // (SIDE * SIDE * WIDE)) * WIDE,), "ahead", scope="local")
            self._fetch(self._own_keys(begin * self.keys, 0))
        with ib.for_range(begin, te.max(end, begin), "block") as block:
            self._block(ib.let("key", block * self.keys))

    def _load_queries(self, first: Index, size: int) -> None:
        """`size` of their elements."""

        def query(row: Index, d: Index) -> Any:
            head, i = self.of.at(te.min(self.first + row, self.of.count - 1))
            return self.k.query(self.of.b, head, i, first + d)

        self._fill(self.q, self.queries, size, self.lines.rows, query)

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

    def _own_keys(self, key: Index, part: int) -> _Part:
        """A part of the elements of a block's keys."""
        own = self.g.size // self.parts
        return _Part(self.keys, own, self.lines.size, lambda row, d: self._stored("k", key + row, part * own + d))

    def _own_values(self, key: Index, part: int) -> _Part:
        """The values of a part of a block's keys."""
        rows = self.keys // self.parts
        value = lambda row, d: self._stored("v", key + part * rows + row, d)  # noqa: E731
        return _Part(rows, self.g.value_size, self.lines.values, value)

    def _each_piece(self, part: _Part, one: Callable[[Any, Any, Any], None]) -> None:
        """`one` of a piece's number among its thread's, its row and its first element."""
        pieces, threads = part.size // WIDE, SIDE * SIDE
        loops.dealt(
            self.ib, part.rows * pieces, threads, (self.ty * SIDE, self.tx),
            lambda e: one(te.indexdiv(e, threads), te.indexdiv(e, pieces), te.indexmod(e, pieces) * WIDE),
        )  # fmt: skip

    def _fetch(self, part: _Part) -> None:
        """Into registers: the loads are under way while what lies in shared memory is worked on."""

        def one(n: Expr, row: Expr, d: Expr) -> None:
            with self.ib.for_range(0, WIDE, "v", kind="vectorize") as v:
                self.ahead[n * WIDE + v] = part.value(row, d + v)

        self._each_piece(part, one)

    def _put(self, part: _Part) -> None:
        """What came into registers, into shared memory."""

        def one(n: Expr, row: Expr, d: Expr) -> None:
            with self.ib.for_range(0, WIDE, "v", kind="vectorize") as v:
                self.kv[row * part.step + d + v] = self.ahead[n * WIDE + v]

        self._each_piece(part, one)

    def _stored(self, operand: str, key: Index, d: Index) -> Any:
        # A block's end beyond the last key repeats that key; its scores are hidden.
        return self.k.stored_at(operand, self.of.b, self.of.key_head, te.min(key, self.g.keys - 1), d)

    def _load_keys(self, key: Index, first: Index) -> None:
        """A part of a block's elements."""
        own = self.g.size // self.parts
        self._fill(self.kv, self.keys, own, self.lines.size, lambda row, d: self._stored("k", key + row, first + d))

    def _load_values(self, key: Index) -> None:
        """Of a part of a block's keys; in pairs those of two keys beside each other."""
        size, rows, step = self.g.value_size, self.keys // self.parts, self.lines.values
        if not self.paired:
            self._fill(self.kv, rows, size, step, lambda row, d: self._stored("v", key + row, d))
            return

        def one(e: Expr) -> None:
            row, d = te.indexdiv(e, size // wide), te.indexmod(e, size // wide) * wide
            with self.ib.for_range(0, wide, "v", kind="vectorize" if wide > 1 else "serial") as v:
                to = te.indexdiv(row, 2) * step + (d + v) * 2 + te.indexmod(row, 2)
                self.kv[to] = self._stored("v", key + row, d + v)

        wide = math.gcd(WIDE, size)
        loops.dealt(self.ib, rows * (size // wide), SIDE * SIDE, (self.ty * SIDE, self.tx), one)

    def _block(self, key: Index) -> None:
        """Scores, weights and weighted values of a block of keys, which shared memory holds in turn with its values."""
        ib, acc = self.ib, self.acc
        s = ib.allocate(acc, (self.own_rows * self.own_keys,), "scores", scope="local")
        for n in range(self.own_rows * self.own_keys):
            s[n] = self.k.const(0)
        if self.comes_ahead:
            self._block_ahead(key, s)
            return
        own = self.g.size // self.parts
        with self._each_part() as part:
            if not self.lines.whole:
                self._load_queries(part * own, own)
            self._load_keys(key, part * own)
            self._scores(s, part * own if self.lines.whole else 0, own)
        first = self.keys // self.parts
        if self.parts == 1:  # its loads are under way beside the weights
            self._load_values(key)
        for a in range(self.own_rows):
            self._weights(a, key, s)
        with self._each_part() as part:
            if self.parts > 1:
                self._load_values(key + part * first)
            self._summed(part * first, first)

    def _block_ahead(self, key: Index, s: BufferVar) -> None:
        """The same, where each part's loads are under way while the part before is worked on."""
        own, rows = self.g.size // self.parts, self.keys // self.parts
        keys = [self._own_keys(key, p) for p in range(self.parts)]
        values = [self._own_values(key, p) for p in range(self.parts)]
        for p, (part, then) in enumerate(zip(keys, [*keys[1:], values[0]])):
            self._put(part)
            self._fetch(then)
            self._scores(s, p * own, own)
        for p, (part, then) in enumerate(zip(values, [*values[1:], self._own_keys(key + self.keys, 0)])):
            self._put(part)
            self._fetch(then)
            if p == 0:
                for a in range(self.own_rows):
                    self._weights(a, key, s)
            self._summed(p * rows, rows)

    def _each_part(self) -> AbstractContextManager[Any]:
        return nullcontext(0) if self.parts == 1 else self.ib.for_range(0, self.parts, "part")

    def _scores(self, s: BufferVar, first: Index, size: int) -> None:
        """Products of `size` elements of keys and of queries, from their `first` in shared memory on, added up."""
        wide = PAIRED if self.paired else self.wide
        some = self._pairs if self.paired else self._some
        with self.ib.for_range(0, size // wide, "d") as piece:
            d = piece * wide
            x = [some(self.q, self.row(a) * self.lines.rows + first + d, wide) for a in range(self.own_rows)]
            y = [some(self.kv, (c * SIDE + self.tx) * self.lines.size + d, wide) for c in range(self.own_keys)]
            for e in range(len(x[0])):
                for a in range(self.own_rows):
                    for c in range(self.own_keys):
                        n = a * self.own_keys + c
                        s[n] = self._added(s[n], x[a][e], y[c][e])

    def _summed(self, first: Index, keys: int) -> None:
        """Weighted values of so many keys, from the block's `first` on."""
        wide = PAIRED if self.paired else self.wide
        some, each, width = self._pairs if self.paired else self._some, 2 if self.paired else 1, self.wide_values
        with self.ib.for_range(0, keys // wide, "j") as piece:
            x = [
                some(self.p, self.row(a) * self.lines.weights + first + piece * wide, wide)
                for a in range(self.own_rows)
            ]
            for e in range(len(x[0])):
                row = (piece * (wide // each) + e) * self.lines.values
                for c in range(0, self.columns, width):
                    y = some(self.kv, row + each * self._column(c, width), each * width)
                    for a in range(self.own_rows):
                        for v in range(width):
                            n = a * self.columns + c + v
                            self.o[n] = self._added(self.o[n], x[a][e], y[v])

    def _added(self, to: Index, x: Index, y: Index) -> Any:
        return te.call_intrin(self.acc, "dot2", x, y, to) if self.paired else to + x * y

    def _pairs(self, buffer: BufferVar, first: Index, n: int) -> list[Any]:
        """Elements side by side, read at once, two by two."""
        some = self.ib.let("some", loops.vector(buffer, first, n))
        return [some] if n == 2 else [Shuffle((some,), (k, k + 1)) for k in range(0, n, 2)]

    def _column(self, c: int, width: int) -> Any:
        """The first of the columns of values that a thread reads at once with its c-th; no further than the last."""
        column = c * SIDE + self.tx * width
        return te.min(column, self.g.value_size - 1) if (c + 1) * SIDE > self.g.value_size else column

    def _some(self, buffer: BufferVar, first: Index, n: int) -> list[Any]:
        """Elements side by side, read at once, in the accumulator's type."""
        if n == 1:
            return [self.ib.let("x", buffer[first].astype(self.acc))]
        some = self.ib.allocate(self.acc, (n,), "some", scope="local")
        value = loops.vector(buffer, first, n)
        loops.put_vector(self.ib, some, 0, value.astype(with_lanes(self.acc, n)))
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
            self.p[self.row(a) * self.lines.weights + c * SIDE + self.tx] = weight.astype(self.p.buffer.dtype)
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
                    width = self.wide_values
                    first = c // width * width
                    column = first * SIDE + self.tx * width + c % width
                    value = self.o[a * self.columns + c]
                    if (c + 1) * SIDE > g.value_size:
                        with self.ib.if_scope(column < g.value_size):
                            put(column, value)
                    else:
                        put(column, value)
