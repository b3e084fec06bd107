"""Attention of few queries over many keys on a GPU: a decoder's step, which is as long as it takes to read its keys and values.

The queries of the heads that share keys are in registers. Some lanes share a key: each has 16 bytes of it, of the same places of the queries, and of the sums. So a wavefront
walks over several streams of keys at once, each with a maximum and sums of its own, and loads nothing into shared memory. At the end streams meet by shuffles, wavefronts in
shared memory, and work-groups that share keys in a second kernel (`grid`). Lanes that share a key are a power of two: of a head of 80 elements ten of sixteen have
a piece, and the others add nothing. Where keys lie in blocks of a pool, found through a table (Kwon and others, arXiv 2309.06180), the table is asked for a step's keys while those
of the step before are on their way, so that no load waits for two.

    waves     of a work-group
    ahead     keys of a stream whose loads are under way at once
    splits    work-groups that share the keys
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .... import te
from ....ir.dtype import dtype_info, with_lanes
from ....ops.attention import order_of, stored
from ....ops.forms import Form
from ....ops.registry import broadcast_index, static_shape
from ....ops.typical import typical
from ....target import level_gbps
from ....te.like import Index
from ...parts import loops, needs
from ...space import Choice, Cost
from .grid import Grid, Results, Rows
from .kernel import Kernel, SplitAttention, places_of
from .softmax import RunningSoftmax, joined

PIECE_BYTES = 16  # of a lane's load
_GROUPS_A_UNIT = 6  # of four wavefronts
_WAVES_A_UNIT = 4  # that ask for as much as memory gives
_MOST_ROWS = 8  # queries of heads that share keys: each has registers for a piece of itself and of its sums


class FewRowsAttention(SplitAttention):
    """See the module."""

    template: ClassVar[str] = "few rows attention"
    waits: ClassVar[int] = 2  # for memory, of a block

    def read_form(self) -> None:
        super().read_form()
        self.piece = PIECE_BYTES // dtype_info(self.dtype).bytes
        self.wave = self.target.wavefront_size
        if places_of(self.form) is not None:  # many texts
            self.batch = _typical_batch(self.form)
        waves = self.threads_up_to_limit(4, 8, 2, 1, each=self.wave)
        self.parameters = {"waves": waves, "ahead": (2, 4, 1), "splits": (1, 2, 4, 8, 16, 32)}

    @property
    def lanes(self) -> int:
        """That share a key: a power of two, of which the last may have no piece of it."""
        return 1 << (int(self.g.size) // self.piece - 1).bit_length()

    @property
    def fits_at_all(self) -> bool:
        g = self.g
        if not isinstance(g.queries, int) or self.dtype not in ("float16", "bfloat16", "float32"):
            return False
        if g.size != g.value_size or g.size % self.piece or self.rows[0] > _MOST_ROWS:
            return False
        if self.lanes > self.wave:
            return False
        return all(order_of(self.form.attrs, name)[3] == 3 for name in "qkv")

    @property
    def is_busy(self) -> bool:
        """Whether so many queries share keys that vector code is longer at work than they take to come, which matrix units are not."""
        rows: int = self.rows[0]
        known = "busy_rows" in self.figures and dtype_info(self.dtype).bytes == 2
        return known and rows >= self.figures["busy_rows"]

    def streams(self, choice: Choice) -> int:
        """Keys that a work-group walks over at once."""
        return int(choice["waves"]) * (self.wave // self.lanes)

    def step(self, choice: Choice) -> int:
        """Keys of a work-group's step."""
        return self.streams(choice) * int(choice["ahead"])

    def why_not(self, choice: Choice) -> str | None:
        sums = choice["waves"] * self.rows[0] * (self.g.value_size + 2) * 4
        return needs.shared_memory(sums, self.target.static_lds_bytes)

    @property
    def default(self) -> Choice:
        waves = next(
            w for w in self.parameters["waves"] if self.why_not(self.choice(waves=w, ahead=2, splits=1)) is None
        )
        one = self.choice(waves=waves, ahead=2, splits=1)
        block = self.streams(one) * one["ahead"]
        # Each work-group waits for its blocks one after another, so that there are many of them beside each other, of a block or two each.
        wanted = min(_GROUPS_A_UNIT * self.target.machine.units // self.groups(self.rows[0]), self.length // block)
        return {**one, "splits": min(int(self.parameters["splits"][-1]), 1 << max(0, wanted.bit_length() - 1))}

    def cost(self, choice: Choice) -> Cost:
        """Keys and values at memory's rate, or what the busiest work-group waits for its blocks; and a launch more where a second kernel joins."""
        machine, g = self.target.machine, self.g
        heads = g.key_heads if isinstance(g.key_heads, int) else 1
        moved = 2.0 * self.batch * heads * self.length * g.size * dtype_info(self.form.inputs[1].dtype).bytes
        groups = self.groups(self.rows[0]) * choice["splits"]
        blocks = -(-self.length // (self.step(choice) * choice["splits"]))
        latency = (machine.memory.latency_ns or 500.0) * 1e-9
        busy = min(1.0, groups * choice["waves"] / (_WAVES_A_UNIT * machine.units))
        rate = level_gbps(machine, "memory") * 1e9 * busy
        waiting = -(-groups // (4 * machine.units)) * (blocks + 2) * self.waits * latency
        launches = 1 + (choice["splits"] > 1)
        return Cost(launches * machine.launch_seconds + max(moved / rate, waiting), "memory" if moved / rate > waiting else "latency")  # fmt: skip

    def loops(self, kernel: Kernel, choice: Choice) -> None:
        grid = Grid(kernel, self.rows[1], self.rows[0], choice["splits"], (self.wave, choice["waves"]), early=True)
        streams = PagedStreams if kernel.places else Streams
        grid.launch(lambda of, first, tx, ty: streams(kernel, self, choice, of, tx, ty))


def _typical_batch(form: Form) -> int:
    """Texts that choices are made for where their keys lie in blocks: a fourth of how many there may be. There are fewer most of the time and their lengths differ, and too
    few parts of keys cost more than too many (docs/decisions/paged-cache.md has the figures)."""
    return max(1, typical(static_shape(form.inputs[0])[order_of(form.attrs, "q")[0]]) // 4)


def query_piece(k: Kernel, of: Rows, row: Index, d: Index, piece: int) -> list[Any]:
    """`piece` elements of a query from d on, turned where they are, in the operand's own type: by loads of whole pieces where turns and sizes have it so."""
    ib, turn, dtype = k.ib, k.turn, k.sources["q"].dtype
    head, i = of.at(row)
    if turn is not None and (turn.near or turn.whole or turn.half % piece or 2 * turn.half != k.g.size):
        return [k.query(of.b, head, i, d + e) for e in range(piece)]

    def loaded(at: Index, name: str) -> Any:
        to = ib.allocate(dtype, (piece,), name, scope="local")
        index = stored(order_of(k.form.attrs, "q"), (of.b, head, i, 0))[:3]
        loops.put_vector(ib, to, 0, loops.vector_at(k.sources["q"], index, at, piece))
        return to

    if turn is None:
        own = loaded(d, "own")
        return [own[e] for e in range(piece)]
    first = ib.let("first_half", d < turn.half)
    column = ib.let("column", te.select(first, d, d - turn.half))
    other = ib.let("other", te.select(first, d + turn.half, d - turn.half))
    x, y = (loaded(at, n) for at, n in ((d, "own"), (other, "paired")))
    cos, sin = (_angles(k, n, (of.b, head, i), column, piece) for n in ("cos", "sin"))
    made = []
    for e in range(piece):
        a, b, t = x[e].astype(k.acc), y[e].astype(k.acc), sin(e)
        made.append((a * cos(e) + b * te.select(first, -t, t)).astype(dtype))
    return made


def _angles(k: Kernel, name: str, at: Sequence[Any], column: Index, piece: int) -> Callable[[int], Any]:
    """Cosines or sines of a place (batch, head, query) from a column on."""
    source = k.sources[name]
    index = broadcast_index(k.scores.shapes[name][:3], at)
    to = k.ib.allocate(source.dtype, (piece,), name, scope="local")
    n = min(piece, PIECE_BYTES // dtype_info(source.dtype).bytes)
    for first in range(0, piece, n):
        loops.put_vector(k.ib, to, first, loops.vector_at(source, index, column + first, n))
    return lambda e: to[e].astype(k.acc)


def meet(
    k: Kernel, out: Results, waves: int, rows: int, thread: tuple[Index, Index], wave: int, leave: Callable[[Any, int], None]
) -> None:  # fmt: skip
    """Sums of wavefronts that share queries meet in shared memory, and leave as results. thread: (wavefront, lane), of `wave` lanes. `leave(shared, line)` puts this
    wavefront's there: a line of each row, [wavefront, row], which is sums of values, then the maximum in powers of e and the sum of weights."""
    ib, size = k.ib, k.g.value_size
    line = size + 2
    shared = ib.allocate(k.acc, (waves * rows * line,), "sums_of_waves", scope="shared")
    leave(shared, line)

    def one(e: Any) -> None:
        row, column = ib.let("row", te.indexdiv(e, size)), ib.let("column", te.indexmod(e, size))
        (value,), total, top = joined(k, shared, waves, lambda w: (w * rows + row) * line, column)
        with out.row(row, top, total, column == 0) as put:
            put(column, value)

    loops.dealt(ib, rows * size, waves * wave, (thread[0] * wave, thread[1]), one)


class Streams:
    """One work-group: the queries of heads that share keys."""

    def __init__(self, k: Kernel, space: FewRowsAttention, choice: Choice, of: Rows, tx: Index, ty: Index):
        self.k, self.ib, self.g, self.acc = k, k.ib, k.g, k.acc
        self.of, self.tx, self.ty = of, tx, ty
        self.rows, self.piece, self.lanes, self.wave = space.rows[0], space.piece, space.lanes, space.wave
        self.waves, self.ahead = choice["waves"], choice["ahead"]
        self.streams = space.streams(choice)
        self.dtype = k.sources["q"].dtype

    def run(self, split: Index, splits: int) -> None:
        """A work-group's share of the keys, in streams of lanes, which are joined at the end."""
        ib, rows, piece = self.ib, self.rows, self.piece
        self.d = ib.let("d", te.indexmod(self.tx, self.lanes) * piece)
        self.has_piece: Any = None  # whether this lane has one; None where all have
        if self.lanes * piece != self.g.size:
            self.has_piece = ib.let("has_piece", self.d < self.g.size)
            self.d = ib.let("d", te.min(self.d, self.g.size - piece))
        self.stream = ib.let("stream", self.ty * (self.wave // self.lanes) + te.indexdiv(self.tx, self.lanes))
        self.q, self.o = self._local(self.acc, rows * piece, "queries"), self._local(self.acc, rows * piece, "sums")
        self.keys, self.values = (self._local(self.dtype, self.ahead * piece, n) for n in ("keys", "values"))
        scaled = [operand for operand in "kv" if f"{operand}_scale" in self.k.sources]
        self.scales = {operand: self._local(self.acc, self.ahead, f"{operand}_scales") for operand in scaled}
        self.softmax = RunningSoftmax(self.k, rows)
        self.s = self._local(self.acc, self.ahead, "scores")
        for r in range(rows):
            self._query(r)
            self.softmax.begin(r)
            for i in range(piece):
                self.o[r * piece + i] = self.k.const(0)
        block = self.streams * self.ahead
        low, high = self.of.reach(0, rows)
        # Rows of a cache that nothing has filled hold anything, and 0 times a NaN is none: no lane reads behind the last key that is seen.
        last = te.max(self.k.last_key(self.of.b, high), 0)
        self.last = last if isinstance(last, int) else ib.let("last_key", last)
        begin, end = self.of.blocks(low, high, block, split, splits)
        if not isinstance(begin, int):
            begin = ib.let("begin", begin)
        self._enter(begin * block)
        with ib.for_range(begin, te.max(end, begin), "block") as b:
            self._block(b * block, block)

    def _local(self, dtype: str, n: int, name: str) -> Any:
        return self.ib.allocate(dtype, (n,), name, scope="local")

    # ---- queries

    def _query(self, r: int) -> None:
        """A lane's piece of a query, turned where they are, times the scale."""
        for e, x in enumerate(query_piece(self.k, self.of, r, self.d, self.piece)):
            self.q[r * self.piece + e] = x.astype(self.acc) * self.k.const(self.k.scores.scale)

    # ---- keys

    def _enter(self, base: Any) -> None:
        """Ahead of the first step, whose keys begin at `base`."""

    def _bring(self, base: Any, there: list[Any], block: int) -> None:
        """Keys and values of a step, whose keys begin at `base`, into registers; `there`: the places of this lane's."""
        for operand, to in (("k", self.keys), ("v", self.values)):
            for u, at in enumerate(there):
                index = stored(order_of(self.k.form.attrs, operand), (self.of.b, self.of.key_head, at, 0))[:3]
                self._put(operand, to, u, index)

    def _put(self, operand: str, to: Any, u: int, row: tuple[Any, ...]) -> None:
        """This lane's piece of a row, and the row's scale."""
        value = loops.vector_at(self.k.sources[operand], row, self.d, self.piece)
        loops.put_vector(self.ib, to, u * self.piece, value.astype(with_lanes(self.dtype, self.piece)))
        if operand in self.scales:
            self.scales[operand][u] = self.k.sources[f"{operand}_scale"][(*row, 0)].astype(self.acc)

    def _block(self, base: Any, block: int) -> None:
        """`ahead` keys of each stream."""
        ib = self.ib
        first = ib.let("first", base + self.stream)
        keys = [ib.let("key", first + u * self.streams) for u in range(self.ahead)]
        there = [ib.let("there", te.min(key, self.last)) for key in keys]
        self._bring(base, there, block)
        for r in range(self.rows):
            for u, (key, at) in enumerate(zip(keys, there)):
                self.s[u] = self._score(r, u, key, at, block)
            self._add(r)

    def _score(self, r: int, u: int, key: Index, there: Index, block: int) -> Any:
        """What the lanes of a stream make of a query and a key."""
        ib, k, piece = self.ib, self.k, self.piece
        total = loops.scalar(ib, self.acc, "score", k.const(0))
        for i in range(piece):
            total[0] = total[0] + self.q[r * piece + i] * self.keys[u * piece + i].astype(self.acc)
        if self.has_piece is not None:
            total[0] = te.select(self.has_piece, total[0], k.const(0))
        loops.over_lanes(ib, total, loops.doublings(self.lanes), self.lanes, operator.add)
        if "k" in self.scales:
            total[0] = total[0] * self.scales["k"][u]
        head, i = self.of.at(r)
        score = k.biased(total[0], (self.of.b, head, i, there))
        return k.seen(score, self.of.b, i, key, k.inside(key, block))

    def _add(self, r: int) -> None:
        """A block's weights and values of one query to what was summed before."""
        ib, piece, softmax = self.ib, self.piece, self.softmax
        best = softmax.top[r]
        for u in range(self.ahead):
            best = te.max(best, self.s[u])
        best = ib.let("best", best)
        factor = softmax.raised(r, best)
        weights = [ib.let("weight", softmax.weight(self.s[u] - best)) for u in range(self.ahead)]
        softmax.scale(r, factor)
        for w in weights:
            softmax.add(r, w)
        if "v" in self.scales:
            weights = [ib.let("scaled", w * self.scales["v"][u]) for u, w in enumerate(weights)]
        for i in range(piece):
            y = self.o[r * piece + i] * factor
            for u, w in enumerate(weights):
                y = y + w * self.values[u * piece + i].astype(self.acc)
            self.o[r * piece + i] = y

    # ---- results

    def results(self, out: Results) -> None:
        ib, rows, piece, size = self.ib, self.rows, self.piece, self.g.value_size
        for r in range(rows):
            step = self.lanes
            while step < self.wave:
                self._join(r, step)
                step *= 2

        def leave(shared: Any, line: int) -> None:
            first_stream = self.tx < self.lanes
            with ib.if_scope(first_stream if self.has_piece is None else te.all(first_stream, self.has_piece)):
                for r in range(rows):
                    at = ib.let("at", (self.ty * rows + r) * line)
                    for i in range(piece):
                        shared[at + self.d + i] = self.o[r * piece + i]
                    with ib.if_scope(self.tx == 0):
                        shared[at + size] = self.softmax.top[r]
                        shared[at + size + 1] = self.softmax.total[r]

        meet(self.k, out, self.waves, rows, (self.ty, self.tx), self.wave, leave)

    def _join(self, r: int, step: int) -> None:
        """The sums of two streams of a wavefront become those of both."""
        ib, piece, softmax = self.ib, self.piece, self.softmax

        def theirs(x: Any) -> Any:
            return ib.let("theirs", te.call_intrin(self.acc, "shuffle_xor", x, step, self.wave))

        other = theirs(softmax.top[r])
        best = ib.let("best", te.max(softmax.top[r], other))
        mine = softmax.raised(r, best)
        its = ib.let("its", softmax.weight(other - best))
        total = theirs(softmax.total[r])
        softmax.scale(r, mine)
        softmax.add(r, total * its)
        for i in range(piece):
            x = self.o[r * piece + i]
            self.o[r * piece + i] = x * mine + theirs(x) * its


class PagedStreams(Streams):
    """Streams of keys whose blocks are looked up a step ahead."""

    def _number(self, base: Any, u: int) -> Any:
        """The block of key `u` of a step of this lane, no further than that of the last key that is seen. Where a block is a whole number of streams' steps,
        all lanes have the same one, which AMD's scalar unit reads."""
        places = self.k.places
        key = base + u * self.streams
        if places % self.streams:
            key = key + self.stream
        return te.min(te.indexdiv(key, places), te.indexdiv(self.last, places))

    def _enter(self, base: Any) -> None:
        self.ahead_entries = self._local("int32", self.ahead, "entries")
        for u in range(self.ahead):
            self.ahead_entries[u] = self.k.entry(self.of.b, self._number(base, u))

    def _bring(self, base: Any, there: list[Any], block: int) -> None:
        ib, places = self.ib, self.k.places
        own = [ib.let("entry", self.ahead_entries[u]) for u in range(self.ahead)]
        at = [ib.let("at", te.indexmod(key, places)) for key in there]
        for operand, to in (("k", self.keys), ("v", self.values)):
            for u in range(self.ahead):
                self._put(operand, to, u, (own[u], self.of.key_head, at[u]))
        for u in range(self.ahead):
            self.ahead_entries[u] = self.k.entry(self.of.b, self._number(base + block, u))
