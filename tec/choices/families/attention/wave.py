"""One wavefront's part of an attention on matrix units: its queries, scores, weights and sums; see `matrix`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from .... import te
from ....ir.dtype import dtype_info, with_lanes
from ....ir.expr import Broadcast, Call, Expr, Shuffle
from ....ir.stmt import Evaluate
from ....te.ir_builder import BufferVar
from ....te.like import Index
from ...parts import loops
from ...space import Choice
from .fragments import Fragments
from .grid import Results, Rows
from .kernel import Kernel
from .softmax import RunningSoftmax
from .tiles import PIECE_BYTES, sizes, strides

TURN_BYTES = 8  # of a column of values that a thread turns at once
LOG2_E = math.log2(math.e)


class Wave:
    """The loops of one work-group, as one of its wavefronts sees them."""

    def __init__(self, k: Kernel, f: Fragments, choice: Choice, of: Rows, first: Index, lane: Index, wave: Expr):
        self.k, self.f, self.of, self.group_first, self.lane, self.wave = k, f, of, first, lane, wave
        self.ib, self.g, self.dtype = k.ib, k.g, k.sources["q"].dtype
        self.keys, self.stages, self.waves = choice["keys"], choice["stages"], choice["waves"]
        self.group_rows, self.holds = choice["rows"] * choice["waves"], choice["hold"]
        self.first = first + wave * choice["rows"]
        self.tiles = choice["rows"] // f.queries
        self.bytes = dtype_info(self.dtype).bytes
        self.size, self.value_size = sizes(f, self.g)
        self.acc = f.instr.acc_elems
        self.key_tiles, self.value_tiles = self.keys // f.keys, self.value_size // f.keys
        self.parts = self.size // f.instr.k  # of the sum of a score
        self.slots = f.slots  # of a tile, whose weights are computed
        # Elements of values may be in the keys' order: a lane then has runs of them to write.
        self.in_key_order = f.turned and self.value_tiles % f.period == 0
        self.threads = f.instr.wave * self.waves
        scores = k.scores
        self.is_plain = scores.are_products
        # What a score is to be multiplied by before 2 is raised to it.
        self.power = LOG2_E * (scores.scale if self.is_plain and 0 < scores.scale * LOG2_E <= 1 else 1.0)
        self.is_raw = self.is_plain and self.power != LOG2_E

    # ---- vectors in buffers

    def _product(self, one: Expr, other: Expr, acc: Expr) -> Expr:
        """acc + the product of a query's (or weights') operand and a key's (or values')."""
        a, b = (other, one) if self.f.turned else (one, other)
        return self.f.instr.call(a, b, acc)

    # ---- the loop

    def run(self, split: Index, splits: int) -> None:
        ib = self.ib
        self._begin()
        begin, end = self._range(split, splits)
        with ib.new_scope():
            if self.stages:
                ib.scope_attr(None, "software_pipeline", self.stages)
            with ib.for_range(begin, end, "block") as block:
                self._block(block * self.keys)

    def _begin(self) -> None:
        """Queries in their place, and sums of nothing."""
        ib, f, acc = self.ib, self.f, self.k.acc
        self.lane = ib.let("lane", self.lane + 0)
        self.q_elems = f.instr.elems(f.query_role)
        self.o = ib.allocate(acc, (self.tiles * self.value_tiles * self.acc,), "sums", scope="local")
        self.softmax = RunningSoftmax(self.k, self.tiles * self.slots, 2, self.power)
        self.places = [
            [self.of.at(te.min(self._row(a, s), self.of.count - 1)) for s in range(self.slots)]
            for a in range(self.tiles)
        ]
        self._read_queries()
        for n in range(self.tiles * self.slots):
            self.softmax.begin(n)
        for n in range(self.tiles * self.value_tiles):
            loops.put_vector(self.ib, self.o, n * self.acc, Broadcast(self.k.const(0), self.acc))

    def _row(self, tile: int, slot: int) -> Any:
        return self.first + tile * self.f.queries + self.f.query(self.lane, slot)

    def _range(self, split: Index, splits: int) -> tuple[Any, Any]:
        self.low, self.high = self.of.reach(self.group_first, self.group_rows)
        begin, end = self.of.blocks(self.low, self.high, self.keys, split, splits)
        if isinstance(begin, int) and isinstance(end, int):
            return begin, end
        begin = self.ib.let("begin", begin)
        return begin, self.ib.let("end", te.max(end, begin))

    def _read_queries(self) -> None:
        """The wavefront's queries into registers, each lane its part, or all of the work-group's into shared memory; 0 beyond the head's size."""
        if not self.holds:
            self._fill_queries()
            return
        self.q = self.ib.allocate(self.dtype, (self.tiles * self.parts * self.q_elems,), "queries", scope="local")
        for a in range(self.tiles):
            for part in range(self.parts):
                for i in range(self.q_elems):
                    row, d = self.f.operand(self.f.query_role, self.lane, i)
                    at = (a * self.parts + part) * self.q_elems + i
                    first = part * self.f.instr.k
                    reach = first, first + self.f.instr.k
                    self.q[at] = self._query_element(self.first + a * self.f.queries + row, d + first, reach)

    def _query_element(self, row: Index, d: Index, reach: tuple[int, int] | None = None) -> Any:
        """`reach`: the first element that d may be, and the one behind the last."""
        head, place = self.of.at(te.min(row, self.of.count - 1))
        if self.size == self.g.size:
            return self.k.query(self.of.b, head, place, d, reach)
        value = self.k.query(self.of.b, head, place, te.min(d, self.g.size - 1))
        return te.select(d < self.g.size, value, te.const(0, self.dtype))

    def _fill_queries(self) -> None:
        piece = PIECE_BYTES // self.bytes
        step, pieces = self.size + piece, self.size // piece
        self.q = self.ib.allocate(self.dtype, (self.group_rows * step,), "query_tile", scope="shared")

        def body(e: Expr) -> None:
            row, column = te.indexdiv(e, pieces), te.indexmod(e, pieces) * piece
            with self.ib.for_range(0, piece, "v", kind="vectorize") as v:
                self.q[row * step + column + v] = self._query_element(self.group_first + row, column + v)

        self._fill(self.group_rows * pieces, body)

    def _query(self, tile: int, part: int) -> Expr:
        """The queries' operand of a tile for a part of the sum."""
        f = self.f
        if self.holds:
            return loops.vector(self.q, (tile * self.parts + part) * self.q_elems, self.q_elems)
        first = (self.first - self.group_first + tile * f.queries, part * f.instr.k)
        step = self.size + PIECE_BYTES // self.bytes
        if f.turned:
            row, d = f.operand(f.query_role, self.lane, 0)
            return loops.vector(self.q, (first[0] + row) * step + first[1] + d, self.q_elems)
        row, d = te.indexmod(self.lane, 16), te.indexdiv(self.lane, 16) * 8
        return self._matrices(self.q, (first[0] + row) * step + first[1] + d, False)

    # ---- shared memory

    def _fill(self, count: int, body: Callable[[Any], None]) -> None:
        """`body(e)` for all numbers below `count`, dealt to the work-group's threads."""
        loops.dealt(self.ib, count, self.threads, (self.wave * self.f.instr.wave, self.lane), body)

    def _place(self, key: Index) -> Any:
        """A key's place; the last one's beyond the end, where scores are hidden."""
        exact = isinstance(self.g.keys, int) and self.g.keys % self.keys == 0
        return key if exact else te.min(key, self.g.keys - 1)

    def _column(self, operand: str, first: Index, count: int) -> Any:
        """Where `count` elements of a row are read for those from `first` on. Beyond the row's end these are others of the row, and no matter:
        queries are 0 there, and results are not written."""
        size, padded = (self.g.value_size, self.value_size) if operand == "v" else (self.g.size, self.size)
        return first if size == padded else te.min(first, size - count)

    def _fill_rows(self, operand: str, to: BufferVar, key: Index, size: int, step: int) -> None:
        """Rows of keys or values as they are, 16 bytes a thread at once."""
        ib, piece = self.ib, PIECE_BYTES // self.bytes
        pieces = size // piece

        def body(e: Expr) -> None:
            row, column = te.indexdiv(e, pieces), te.indexmod(e, pieces) * piece
            from_, place = self._column(operand, column, piece), self._place(key + row)
            read = self.k.near(operand, self.of.b, self.of.key_head, place)
            at = self.f.place(row) if self.f.turned else row
            with ib.for_range(0, piece, "v", kind="vectorize") as v:
                to[at * step + column + v] = read(place, from_ + v)

        self._fill(self.keys * pieces, body)

    def _fill_turned(self, to: BufferVar, key: Index, step: int) -> None:
        """Values with an element a row: a thread reads the same few elements of some keys, and writes each element's side by side."""
        ib, along = self.ib, TURN_BYTES // self.bytes
        blocks = self.keys // along
        own = next(
            n
            for n in (16 // self.bytes, 8 // self.bytes, 4 // self.bytes)
            if n <= 4 or self.threads * n <= blocks * self.value_size
        )
        near = math.gcd(4, self.value_size // own)  # threads side by side that read along a row

        def body(e: Expr) -> None:
            rest, x = te.indexdiv(e, near), te.indexmod(e, near)
            j = te.indexmod(rest, blocks) * along
            d = (te.indexdiv(rest, blocks) * near + x) * own
            from_ = self._column("v", d, own)
            read = self.k.near("v", self.of.b, self.of.key_head, self._place(key + j))
            with ib.for_range(0, own, "x", kind="unroll") as x, ib.for_range(0, along, "v", kind="vectorize") as v:
                row = self.f.place(d + x) if self.in_key_order else d + x
                to[row * step + j + v] = read(self._place(key + j + v), from_ + x)

        self._fill(blocks * self.value_size // own, body)

    # ---- a block of keys

    def _blocks(self, key: Index) -> None:
        """Keys and values of a block in shared memory. Where they are of one block of a pool, one entry of its table serves all rows."""
        if self.k.places % self.keys == 0:
            self.k.enter(self.of.b, key)
        ib, f = self.ib, self.f
        step_k, step_v, rows_v = strides(f, self.g, self.dtype, self.keys)
        self.step_k, self.step_v = step_k, step_v
        self.ks = ib.allocate(self.dtype, (self.keys * step_k,), "key_tile", scope="shared")
        self.vs = ib.allocate(self.dtype, (rows_v * step_v,), "value_tile", scope="shared")
        self._fill_rows("k", self.ks, key, self.size, step_k)
        if f.turned:
            self._fill_turned(self.vs, key, step_v)
        else:
            self._fill_rows("v", self.vs, key, self.value_size, step_v)

    def _block(self, key: Index) -> None:
        self._blocks(key)
        self._allocate_scores()
        self._scores()
        self._masks(key)
        self._weighted()
        self._values()

    def _allocate_scores(self) -> None:
        ib, f = self.ib, self.f
        vectors = self.tiles * self.keys // f.instr.k
        self.s = ib.allocate(self.k.acc, (self.tiles * self.key_tiles * self.acc,), "scores", scope="local")
        self.p = ib.allocate(self.dtype, (vectors * self.q_elems,), "weights", scope="local")

    def _weighted(self) -> None:
        """A block's scores into weights, and sums so far by what a larger maximum makes of them."""
        for a in range(self.tiles):
            with self.ib.new_scope():
                factors = [self._maximum(a, slot) for slot in range(self.slots)]
                self._weights(a, factors)
                self._scale(a, factors)

    def _scores(self) -> None:
        n = self.acc
        for at in range(0, self.tiles * self.key_tiles * n, n):
            loops.put_vector(self.ib, self.s, at, Broadcast(self.k.const(0), n))
        for first in range(0, self.key_tiles, self.at_once):
            for part in range(self.parts):
                with self.ib.new_scope():
                    for t, key in self._keys_of(first, part):
                        for a in range(self.tiles):
                            at = (a * self.key_tiles + t) * n
                            acc = loops.vector(self.s, at, n)
                            loops.put_vector(self.ib, self.s, at, self._product(self._query(a, part), key, acc))

    @property
    def at_once(self) -> int:
        """Tiles whose operands are read together."""
        return 1 if self.f.turned else 2

    def _keys_of(self, tile: int, part: int) -> list[tuple[int, Expr]]:
        """The keys' operands of tiles of scores for a part of the sum."""
        f = self.f
        if f.turned:
            row, d = f.operand(f.key_role, self.lane, 0)
            at = (row + tile * f.keys) * self.step_k + d + part * f.instr.k
            return [(tile, loops.vector(self.ks, at, f.instr.elems(f.key_role)))]
        # 16 keys by 16 elements: four matrices of 8 rows of 16 bytes, those of the second tile behind those of the first.
        key = tile * f.keys + te.indexdiv(self.lane, 16) * 8 + te.indexmod(self.lane, 8)
        at = key * self.step_k + part * f.instr.k + te.indexmod(te.indexdiv(self.lane, 8), 2) * 8
        return self._two(tile, self.ks, at, False)

    def _two(self, tile: int, buffer: BufferVar, at: Index, trans: bool) -> list[tuple[int, Expr]]:
        """Operands of two tiles by one ldmatrix."""
        both = self.ib.allocate(self.dtype, (8,), "pair", scope="local")
        loops.put_vector(self.ib, both, 0, self._matrices(buffer, at, trans))
        return [(tile, loops.vector(both, 0, 4)), (tile + 1, loops.vector(both, 4, 4))]

    def _matrices(self, buffer: BufferVar, at: Index, trans: bool) -> Expr:
        return Call("ldmatrix", (buffer[at],), with_lanes(self.dtype, 8), {"num": 4, "trans": trans})

    def _masks(self, key: Index) -> None:
        """Scale, soft cap and biases on every score; what is not seen is -inf, where the block has such."""
        ib = self.ib
        if not self.is_raw:
            self._each_score(key, self._biased)
        cases = self._hidden_cases(key)
        if not cases:
            return
        # LLVM sinks what was asked for ahead of a branch to where it is used, behind it.
        ib.emit(Evaluate(Call("keep_order", (), "int32", {"memory": True})))
        with ib.if_scope(te.any(*cases)):
            self._each_score(key, self._masked)

    def _each_score(self, key: Index, change: Callable[..., Any]) -> None:
        """Each score as `change(score, batch entry, head, query, key)`."""
        f = self.f
        for a in range(self.tiles):
            for n in range(self.key_tiles * self.acc):
                if f.slot(n % self.acc) >= self.slots:
                    continue
                head, i = self.places[a][f.slot(n % self.acc)]
                at = a * self.key_tiles * self.acc + n
                self.s[at] = change(self.s[at], self.of.b, head, i, key + f.key(self.lane, n))

    def _hidden_cases(self, key: Index) -> list[Expr]:
        """Conditions, alike for the work-group, of which one holds where the block has a key that some query does not see."""
        k, g, attrs = self.k, self.g, self.k.form.attrs
        cases = []
        if not (isinstance(g.keys, int) and g.keys % self.keys == 0):
            cases.append(key + self.keys > g.keys)
        offset = k.scores.offset(k.extra, self.of.b) if k.scores.has_range else 0
        if attrs.get("right") is not None:
            cases.append(key + (self.keys - 1) > self.low + offset + attrs["right"])
        if attrs.get("left") is not None:
            cases.append(key < self.high + offset - attrs["left"])
        if "length" in k.scores.shapes:
            cases.append(key + self.keys > k.extra("length", (self.of.b,)).astype("int32"))
        return cases

    def _masked(self, score: Expr, b: Index, head: Index, i: Index, key: Index) -> Expr:
        return self.k.seen(score, b, i, key, self.k.inside(key, self.keys))

    def _biased(self, score: Index, b: Index, head: Index, i: Index, key: Index) -> Any:
        return self.k.biased(score * self.k.const(self.k.scores.scale), (b, head, i, self._place(key)))

    def _own(self, a: int, slot: int) -> list[int]:
        """Places of a tile's scores that are of one slot."""
        count = self.key_tiles * self.acc
        return [a * count + n for n in range(count) if self.f.slot(n % self.acc) == slot]

    def _maximum(self, a: int, slot: int) -> Expr:
        """The running maximum of a slot brought up to date; what sums so far are to be scaled by."""
        ib, k, at = self.ib, self.k, a * self.slots + slot
        best = loops.scalar(ib, k.acc, "best", self.softmax.top[at])
        for n in self._own(a, slot):
            best[0] = te.max(best[0], self.s[n])
        loops.over_lanes(ib, best, self.f.partners, self.f.instr.wave, te.max)
        return self.softmax.raised(at, best[0])

    def _weights(self, a: int, factors: list[Expr]) -> None:
        """Scores of a tile into weights, and these into operands of the second product."""
        self._exponentials(a, factors)
        self._packed(a)

    def _exponentials(self, a: int, factors: list[Expr]) -> None:
        """Scores of a tile into weights, in their place; sums of weights brought up to date."""
        ib, softmax = self.ib, self.softmax
        for slot in range(self.slots):
            at = a * self.slots + slot
            # Of products alone the maximum is taken off with the scaling; biases may be so large that this would lose all digits.
            low = ib.let("low", -(softmax.top[at] * self.k.const(self.power))) if self.is_raw else None
            # Two at a time, which CDNA's vector units do at once.
            softmax.scale(at, factors[slot])
            for n in self._own(a, slot)[::2]:
                with ib.new_scope():
                    weights = ib.let("weights", softmax.exp2(self._relative(loops.vector(self.s, n, 2), at, low)))
                    softmax.add(at, weights)
                    loops.put_vector(self.ib, self.s, n, weights)

    def _packed(self, a: int) -> None:
        """Weights as operands of the second product."""
        ib, f = self.ib, self.f
        own, count = f.weights, self.key_tiles * self.acc
        for vector in range(count // own):
            to = (a * (count // own) + vector) * self.q_elems
            from_ = a * count + vector * own
            if f.copies > 1:
                with ib.new_scope():
                    self._exchanged(to, from_)
                continue
            for i in range(0, own, 2):
                loops.put_vector(self.ib, self.p, to + i, self._narrowed(loops.vector(self.s, from_ + i, 2)))

    def _narrowed(self, weights: Expr) -> Expr:
        """Two weights in the operands' type. Where no instruction makes bfloat16, to the nearest by an addition and the halves above, ties up: a sixth of LLVM's instructions, which also
        keep every NaN. A weight that is one makes the row's sum one, which the result is divided by."""
        pair = with_lanes(self.dtype, 2)
        if self.f.narrows:
            same: Expr = weights.astype(pair)
            return same
        bits: Expr = Call("reinterpret", (weights,), "uint32x2") + Broadcast(te.const(0x8000, "uint32"), 2)
        halves = Call("reinterpret", (bits,), "uint16x4")
        return Call("reinterpret", (Shuffle((halves,), (1, 3)),), pair)

    def _relative(self, scores: Expr, at: int, low: Any) -> Expr:
        """Two scores of a slot below its maximum, in powers of 2; `low`: less the maximum."""
        power = Broadcast(self.k.const(self.power), 2)
        if low is not None:
            return te.fma(scores, power, Broadcast(low, 2))
        below: Expr = (scores - Broadcast(self.softmax.top[at], 2)) * power
        return below

    def _exchanged(self, to: int, from_: int) -> None:
        """Both halves of the wavefront get all weights of their queries: the lower half's first."""
        ib, own = self.ib, self.f.weights
        mine = ib.allocate(self.dtype, (own,), "mine", scope="local")
        for i in range(0, own, 2):
            loops.put_vector(self.ib, mine, i, self._narrowed(loops.vector(self.s, from_ + i, 2)))
        is_low = self.lane < 16
        pair = with_lanes(self.dtype, 2)
        for w in range(own // 2):
            word = ib.let("word", Call("reinterpret", (loops.vector(mine, 2 * w, 2),), "uint32"))
            other = ib.let("theirs", te.call_intrin("uint32", "shuffle_xor", word, 16, self.f.instr.wave))
            for start, value in ((0, te.select(is_low, word, other)), (own, te.select(is_low, other, word))):
                loops.put_vector(self.ib, self.p, to + start + 2 * w, Call("reinterpret", (value,), pair))

    def _scale(self, a: int, factors: list[Expr]) -> None:
        for c in range(self.value_tiles):
            at = (a * self.value_tiles + c) * self.acc
            if self.f.slots == 1:
                loops.put_vector(
                    self.ib, self.o, at, loops.vector(self.o, at, self.acc) * Broadcast(factors[0], self.acc)
                )
                continue
            for i in range(self.acc):
                if self.f.slot(i) < self.slots:
                    self.o[at + i] = self.o[at + i] * factors[self.f.slot(i)]

    def _values(self) -> None:
        n, vectors = self.acc, self.keys // self.f.instr.k
        for j in range(vectors):
            for first in range(0, self.value_tiles, self.at_once):
                with self.ib.new_scope():
                    for c, value in self._values_of(first, j):
                        for a in range(self.tiles):
                            at = (a * self.value_tiles + c) * n
                            weights = loops.vector(self.p, (a * vectors + j) * self.q_elems, self.q_elems)
                            loops.put_vector(
                                self.ib, self.o, at, self._product(weights, value, loops.vector(self.o, at, n))
                            )

    def _values_of(self, tile: int, vector: int) -> list[tuple[int, Expr]]:
        """The values' operands of tiles of results for an operand of weights."""
        f = self.f
        if f.turned:
            row, key = f.operand(f.key_role, self.lane, 0)
            at = (row + tile * f.keys) * self.step_v + key + vector * f.instr.k
            return [(tile, loops.vector(self.vs, at, f.instr.elems(f.key_role)))]
        # 16 keys by 16 elements of the values, turned on their way.
        key = vector * f.instr.k + te.indexmod(self.lane, 16)
        return self._two(tile, self.vs, key * self.step_v + tile * f.keys + te.indexdiv(self.lane, 16) * 8, True)

    # ---- the end

    def results(self, out: Results) -> None:
        for a in range(self.tiles):
            for slot in range(self.slots):
                top, total, is_first = self._whole(a, slot)
                with out.row(self._row(a, slot), top, total, is_first) as put:
                    self._columns(a, slot, put)

    def _whole(self, a: int, slot: int) -> tuple[Any, Any, Any]:
        """Of a slot the maximum in powers of e, the sum of weights over all lanes, and whether this lane is the first of those that share the query."""
        ib, f, k, softmax, at = self.ib, self.f, self.k, self.softmax, a * self.slots + slot
        is_first = (
            te.all(*[te.bitwise_and(self.lane, m) == 0 for m in f.partners]) if f.partners else te.const(True, "bool")
        )
        total = loops.scalar(ib, k.acc, "whole", softmax.total[2 * at] + softmax.total[2 * at + 1])
        loops.over_lanes(ib, total, f.partners, f.instr.wave, operator.add)
        return softmax.top[at] * k.const(self.power / LOG2_E), total[0], is_first

    def _columns(self, a: int, slot: int, put: Callable[[Any, Any], None]) -> None:
        """The elements of a row that this lane has, neighbours together."""
        ib, f = self.ib, self.f
        count = self.value_tiles * self.acc
        if self.in_key_order:
            run = f.weights
        elif f.instr.unit == "wmma":
            run = 1
        else:
            run = 4 if f.turned else 2
        for n in range(0, count, run):
            c, i = divmod(n, self.acc)
            if f.slot(i) != slot:
                continue
            column = f.key(self.lane, n) if self.in_key_order else c * f.keys + f.value_column(self.lane, i)
            with loops.where(ib, self.value_size <= self.g.value_size or column < self.g.value_size):
                with ib.for_range(0, run, "v", kind="vectorize") as v:
                    put(column + v, self.o[a * count + n + v])
