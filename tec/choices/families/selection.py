"""The k largest of a line by a work-group: a bound from the threads' own largest leaves few elements, each of which counts those ahead of it.

Of the numbers that are the largest of a thread's own, the k-th largest is no greater than the k-th largest of all. A wavefront searches it bit by bit, roughly, and all
elements that reach it (random ones: 80 where 64 are looked for) meet in shared memory. Where these are too many, as of equal elements, the k-th of all is searched: elements
become unsigned keys in whose order they stand (NaN above all), each step asks how many keys reach a number, and of equal keys at the end the first places are searched alike.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import Expr
from ...ir.dtype import dtype_info
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..parts import loops
from .selection_keys import key, own_type, short_key, unkeyed
from .top_k import TopK

MOST = 256  # that are looked for: each counts those ahead of it
_ROOM = 4  # threads, and room for elements that reach the bound, for each that is looked for
_NEAR = 4  # the bound is near enough where a quarter more threads than k reach it
# Threads of a work-group of short lines, where each unit has work-groups enough: few work-groups begin sooner than many.
_GROUP, _FULL = 256, 8
_MOST_OWN = 16  # elements of a short line that a lane has at most
_KEPT = 32  # (bits of a word) keys of a thread that stay in its registers; with more they are made again at each step


def can(dtype: str, k: int) -> bool:
    """Whether keys of 32 bits stand for the type, and there are few enough to be sorted by counting."""
    return dtype_info(dtype).bytes <= 4 and dtype != "bool" and k <= MOST


def can_by_wave(n: int, k: int, target: Target) -> bool:
    """Whether a wavefront may have a line for itself: its threads keep the line's elements, and have as many best ones as are looked for."""
    wave = target.wavefront_size
    return n <= 2 * wave or (k <= wave and n <= wave * _KEPT)


def threads_of(of: TopK, by_wave: bool) -> int:
    """Of the work-group that has a line."""
    fewest = max(256, _ROOM * (1 << (of.k - 1).bit_length()))
    return of.target.wavefront_size if by_wave else 1024 if of.lines.n > 16384 else fewest


def piece_of(n: int, dtype: str, threads: int) -> int:
    """Elements of a load. All threads have elements where there are as many: of the own best of few threads the bound is low, and too many elements reach it."""
    piece = max(1, min(8, 16 // dtype_info(dtype).bytes))
    while piece > 1 and (n % piece or n < threads * piece):
        piece //= 2
    return piece


def selected(of: TopK, by_wave: bool, ib: IRBuilder, src: BufferVar, *results: BufferVar) -> None:
    """by_wave: by a wavefront alone, which meets at no barrier."""
    lines, wave = of.lines, of.target.wavefront_size
    if by_wave and lines.n <= 2 * wave:
        _whole_lines(of, ib, src, results)
        return
    threads = threads_of(of, by_wave)
    with loops.launch(ib, (lines.count,), (threads,)) as (line, t):
        _Selection(of, ib, src, results, threads, line, t).run()


def _whole_lines(of: TopK, ib: IRBuilder, src: BufferVar, results: tuple[BufferVar, ...]) -> None:
    """Short lines, each by as many lanes as it needs, so that a wavefront has some; wavefronts share work-groups where there are many. Where lines are many, as many lanes as are looked
    for are enough, each with several elements: the steps in which their runs become one serve all lines of the wavefront."""
    lines, wave = of.lines, of.target.wavefront_size
    width = min(wave, max(2, 1 << (lines.n - 1).bit_length()))
    narrow = max(2, 1 << (of.k - 1).bit_length())
    while narrow < width and (
        -(-lines.n // narrow) > _MOST_OWN or lines.count * narrow < _GROUP * _FULL * of.target.machine.units
    ):
        narrow *= 2
    width = min(width, narrow)
    threads = _GROUP if lines.count * width >= _GROUP * _FULL * of.target.machine.units else wave
    each = threads // width
    with loops.launch(ib, (-(-lines.count // each),), (threads,)) as (block, t):
        line = ib.let("line", block * each + te.indexdiv(t, width))
        lane = ib.let("lane", te.indexmod(t, width))
        # All lanes meet in the sort; those beyond the last line sort it again, and store nothing.
        there = ib.let("there", te.min(line, lines.count - 1))
        of_one = _Selection(of, ib, src, results, wave, there, lane, width)
        of_one.whole(None if lines.count % each == 0 else line < lines.count)


class _Selection:
    """The statements for one line."""

    def __init__(
        self, of: TopK, ib: IRBuilder, src: BufferVar, results: tuple[BufferVar, ...], threads: int, line: Index, t: Index, lanes: int = 0
    ):  # fmt: skip
        lines, k = of.lines, of.k
        self.ib, self.src, self.results, self.lines, self.kept = ib, src, results, lines, of.kept
        self.k, self.largest, self.threads, self.line, self.t = k, of.largest, threads, line, t
        self.wave, self.units = lanes or of.target.wavefront_size, of.target.machine.units
        self.waves = threads // self.wave
        # For elements that reach the bound: a wavefront alone sorts up to two a lane (`_by_lanes`).
        self.room = max(threads * (2 if self.waves == 1 else 1), _ROOM * (1 << (k - 1).bit_length()))
        self.piece = piece_of(lines.n, src.dtype, threads)
        self.own = -(-lines.n // (threads * self.piece)) * self.piece
        self.wide = own_type(src.dtype)
        # A key and a place in one word of 32 bits, where both are short: half the work of a sort.
        self.word = "uint32" if dtype_info(src.dtype).bytes <= 2 and lines.n < 1 << 16 else "uint64"
        self.elements: Any = None
        self.keys: Any = None

    def run(self) -> None:
        ib, room = self.ib, self.room
        words = ib.allocate("uint64", (room,), "words", scope="shared")
        places = ib.allocate("int32", (room,), "places", scope="shared")
        filled = ib.allocate("int32", (1,), "filled", scope="shared")
        if self.own <= _KEPT:
            self.elements = ib.allocate(self.wide, (self.own,), "elements", scope="local")
        for begin in range(0, room, self.threads):
            places[self.t + begin] = te.max_value("int32")
        least = ib.allocate("uint32", (1,), "least", scope="shared")
        with ib.if_scope(self.t == 0):
            filled[0] = te.const(0, "int32")
            # From here on: in the place of what is read beside it, it would need a barrier more.
            least[0] = te.const(0, "uint32")
        self._bound(least)
        self._gather(places, filled, ib.let("bound", unkeyed(least[0], self.wide, self.largest)))
        count = ib.let("count", filled[0])
        if self.waves == 1:
            self._by_lanes(words, places, count)
            return
        with ib.if_scope(count <= room):
            self._ranked(words, places, count)
        with ib.else_scope():
            self._searched(count >> 30)

    @property
    def _turn(self) -> Expr:
        """The wavefront that begins where not all have work: another one for each work-group of a unit (they are as many lines apart as there are units), so that no
        SIMD has all of it."""
        return te.indexmod(te.indexdiv(self.line, self.units), self.waves)

    # ---- by a bound

    def _worst(self) -> Expr:
        """What no element is behind."""
        if dtype_info(self.wide).is_float:
            return te.const(float("-inf") if self.largest else float("inf"), self.wide)
        return te.min_value(self.wide) if self.largest else te.max_value(self.wide)

    def _bound(self, bound: BufferVar) -> None:
        """To `bound` a key that k threads' own best reach, and few more do; 0 where fewer than k threads have a number."""
        ib, t = self.ib, self.t
        best = loops.scalar(ib, self.wide, "best", self._worst())
        # Where more are looked for than half of the lanes' own best, a lane has its second best too: few more reach the bound then.
        second = loops.scalar(ib, self.wide, "second", self._worst()) if 2 * self.k > self.wave else None
        above, below = (te.max, te.min) if self.largest else (te.min, te.max)

        def look(j: int, at: Index) -> None:
            v = ib.let("v", self.src[self.lines.at(self.line, at)].astype(self.wide))
            if self.elements is not None:
                self.elements[j] = v
            # NaNs are left out: the bound is no greater for it, and they reach it.
            if second is not None and self.waves == 1:
                second[0] = above(second[0], below(best[0], v))
            best[0] = above(best[0], v)

        self.each(look)
        if self.waves == 1:
            bests = [ib.let("mine", key(v[0], self.largest)) for v in (best, second) if v is not None]
            reached = loops.sorted_lanes(ib, bests, te.const(0, "int32") + t, self.wave, self.k)[0]
            with ib.if_scope(t == self.k - 1):
                bound[0] = reached
            return
        own = ib.allocate("uint32", (self.threads,), "own", scope="shared")
        own[t] = key(best[0], self.largest)
        turn = self._turn
        mine, lane = ib.let("wave", te.indexdiv(t, self.wave)), ib.let("lane", te.indexmod(t, self.wave))
        with ib.if_scope(mine == turn):
            found = self._near([ib.let("mine", own[w * self.wave + lane]) for w in range(self.waves)])
            with ib.if_scope(lane == 0):
                bound[0] = found

    def _near(self, mine: list[Expr]) -> Expr:
        """A number that k of the wavefront's keys reach, and few more."""
        ib, k = self.ib, self.k
        found = loops.scalar(ib, "uint32", "found", te.const(0, "uint32"))
        bit = loops.scalar(ib, "uint32", "bit", te.const(1 << 31, "uint32"))
        with ib.while_loop(bit[0] != te.const(0, "uint32")):
            probe = ib.let("probe", te.bitwise_or(found[0], bit[0]))
            count = ib.let("count", sum(self._votes(m >= probe) for m in mine))
            bit[0] = bit[0] >> te.const(1, "uint32")
            with ib.if_scope(count >= k):
                found[0] = probe
                with ib.if_scope(count <= k + k // _NEAR):
                    bit[0] = te.const(0, "uint32")
        return found[0]

    def _reaches(self, j: int, at: Index, bound: Index) -> Expr:
        v = self._element(j, at)
        return te.bitwise_xor(v < bound if self.largest else v > bound, te.const(True, "bool"))  # a NaN does

    def _element(self, j: int, at: Index) -> Any:
        return (
            self.elements[j] if self.elements is not None else self.src[self.lines.at(self.line, at)].astype(self.wide)
        )

    def _gather(self, places: BufferVar, filled: BufferVar, bound: Index) -> None:
        """Places of what reaches the bound to shared memory, in any order, as far as there is room."""
        if self.waves == 1:
            self._gather_in_lanes(places, filled, bound)
            return
        ib = self.ib
        those = loops.scalar(ib, "uint32", "those", te.const(0, "uint32"))

        def note(j: int, at: Index) -> None:
            bit = te.const(1 << j, "uint32")
            those[0] = te.bitwise_or(those[0], te.select(self._reaches(j, at, bound), bit, te.const(0, "uint32")))

        def keep(turn: Index) -> None:
            with ib.while_loop(those[0] != te.const(0, "uint32")):
                j = ib.let("j", te.ctz(those[0]).astype("int32"))
                piece = (turn + te.indexdiv(j, self.piece)) * self.threads + self.t
                slot = ib.let("slot", te.call_intrin("int32", "atomic_add", filled[0], te.const(1, "int32")))
                with ib.if_scope(slot < self.room):
                    # An atomic, and no store: no two threads have one slot, which only they know.
                    at = piece * self.piece + te.indexmod(j, self.piece)
                    ib.emit(te.call_intrin("int32", "atomic_min", places[slot], at))
                those[0] = te.bitwise_and(those[0], those[0] - te.const(1, "uint32"))

        self.each(note, keep)

    def _gather_in_lanes(self, places: Any, filled: Any, bound: Index) -> None:
        """The same by a wavefront alone: a vote on each element of its threads says where each goes, and nothing is counted in shared memory."""
        ib, lane = self.ib, te.const(0, "int32") + self.t
        before = ib.let("before", (te.const(1, "uint64") << lane.astype("uint64")) - te.const(1, "uint64"))
        base = loops.scalar(ib, "int32", "base", te.const(0, "int32"))

        def keep(j: int, at: Index) -> None:
            # Of what lies behind the line's end nothing reaches the bound; all threads vote.
            inside = at < self.lines.n
            reaches = ib.let("reaches", te.all(inside, self._reaches(j, te.min(at, self.lines.n - 1), bound)))
            votes = ib.let("votes", self._ballot(reaches))
            slot = ib.let("slot", base[0] + te.popcount(te.bitwise_and(votes, before)).astype("int32"))
            with ib.if_scope(te.all(reaches, slot < self.room)):
                places[slot] = at
            base[0] = base[0] + te.popcount(votes).astype("int32")

        for turn in range(self.own // self.piece):
            begin = ib.let("begin", turn * self.threads * self.piece + self.t * self.piece)
            for j in range(self.piece):
                keep(turn * self.piece + j, begin + j)
        with ib.if_scope(self.t == 0):
            filled[0] = base[0]

    def _ballot(self, holds: Expr) -> Expr:
        return te.call_intrin("uint64", "ballot", holds)

    def _votes(self, holds: Expr) -> Any:
        """Of how many of the wavefront's threads it holds."""
        return te.popcount(self._ballot(holds)).astype("int32")

    def _ranked(self, words: BufferVar, places: BufferVar, count: Index) -> None:
        """Each of `count` elements to the place that the number of those ahead of it says. A word is greater than those behind it: a key above, a place below."""
        ib = self.ib
        t = ib.let("t", te.indexmod(self.t + (self.waves - self._turn) * self.wave, self.threads))
        held = [self._word(words, places, t, begin, count) for begin in range(0, self.room, self.threads)]
        for begin, (mine, at, value) in zip(range(0, self.room, self.threads), held):
            with ib.if_scope(t + begin < count):
                self._put(words, count, mine, at, value)

    def _by_lanes(self, words: Any, places: Any, count: Index) -> None:
        """A wavefront alone has one element a lane, or two where more reach the bound, and sorts them in registers. Of equal elements there may be more."""
        ib, wave = self.ib, self.wave
        with ib.if_scope(count <= wave):
            self._sorted_in_lanes(places, count, 1)
        with ib.else_scope():
            with ib.if_scope(count <= 2 * wave):
                self._sorted_in_lanes(places, count, 2)
            if self.lines.n > 2 * wave:
                with ib.else_scope():
                    if self.lines.n <= self.room:
                        self._ranked(words, places, count)
                    else:
                        with ib.if_scope(count <= self.room):
                            self._ranked(words, places, count)
                        with ib.else_scope():
                            self._searched(count >> 30)

    def _sorted_in_lanes(self, places: Any, count: Index, each: int) -> None:
        """`count` elements in order, `each` a lane, and the first of them to their places."""
        ib, wave = self.ib, self.wave
        held = []
        for r in range(each):
            word = loops.scalar(ib, self.word, "word", te.const(0, self.word))
            with ib.if_scope(self.t + r * wave < count):
                at = ib.let("at", places[self.t + r * wave])
                word[0] = self._sortable(self.src[self.lines.at(self.line, at)], at)
            held.append(ib.let("word", word[0]))
        self._in_order(held)

    def _sortable(self, value: Expr, at: Index) -> Expr:
        if self.word == "uint64":
            return self._as_word(value, at)
        place = (te.const((1 << 16) - 1, "int32") - at).astype("uint32")
        return te.bitwise_or(short_key(value, self.largest) << te.const(16, "uint32"), place)

    def whole(self, stores: Expr | None) -> None:
        """A line of an element a lane, or two, is sorted as it is. stores: whether it is there, None for yes."""
        ib, wave, held = self.ib, self.wave, []
        for r in range(-(-self.lines.n // wave)):
            at = ib.let("at", te.min(te.const(r * wave, "int32") + self.t, self.lines.n - 1))
            word = self._sortable(self.src[self.lines.at(self.line, at)], at)
            held.append(ib.let("word", te.select(self.t + r * wave < self.lines.n, word, te.const(0, self.word))))
        self._in_order(held, stores)

    def _in_order(self, held: list[Any], stores: Expr | None = None) -> None:
        """The first of the wavefront's words to their places."""
        ib, wave = self.ib, self.wave
        last = (1 << (31 if self.word == "uint64" else 16)) - 1
        for r, word in enumerate(loops.sorted_lanes(ib, held, te.const(0, "int32") + self.t, wave, self.k)):
            if r * wave >= self.k:
                continue
            chosen = self.t + r * wave < self.k
            with ib.if_scope(chosen if stores is None else te.all(stores, chosen)):
                low = te.bitwise_and(word, te.const(last, self.word)).astype("int32")
                at = ib.let("at", te.const(last, "int32") - low)
                to = self.kept.at(self.line, self.t + r * wave)
                self.results[0][to] = self.src[self.lines.at(self.line, at)]
                self.results[1][to] = at.astype("int64")

    def _as_word(self, value: Expr, at: Index) -> Expr:
        """A number that is greater than those of elements behind this one: a key above, a place below."""
        place = (te.const((1 << 31) - 1, "int32") - at).astype("uint64")
        return te.bitwise_or(key(value, self.largest).astype("uint64") << te.const(32, "uint64"), place)

    def _word(self, words: BufferVar, places: BufferVar, t: Index, begin: int, count: Index) -> tuple[Any, Any, Any]:
        """A thread's element from a place on as a word, in shared memory too; 0 where there is none."""
        ib = self.ib
        mine, at = (
            loops.scalar(ib, "uint64", "mine", te.const(0, "uint64")),
            loops.scalar(ib, "int32", "at", te.const(0, "int32")),
        )
        value = ib.allocate(self.src.dtype, (1,), "value", scope="local")
        with ib.if_scope(t + begin < count):
            at[0] = places[t + begin]
            value[0] = self.src[self.lines.at(self.line, at[0])]
            mine[0] = self._as_word(value[0], at[0])
        words[t + begin] = mine[0]
        return mine, at, value

    def _put(self, words: BufferVar, count: Index, mine: BufferVar, at: BufferVar, value: BufferVar) -> None:
        """An element to where the number of words ahead of it says, if that is one of the k."""
        ib, turn = self.ib, 16
        ahead = loops.scalar(ib, "int32", "ahead", te.const(0, "int32"))
        with ib.for_range(0, te.indexdiv(count + (turn - 1), turn), "c") as c:
            for j in range(turn):
                ahead[0] = ahead[0] + (words[c * turn + j] > mine[0]).astype("int32")
        with ib.if_scope(ahead[0] < self.k):
            to = self.kept.at(self.line, ahead[0])
            self.results[0][to] = value[0]
            self.results[1][to] = at[0].astype("int64")

    # ---- by the k-th

    def _searched(self, none: Any) -> None:
        """`none`: zero, which a compiler does not know: elements are read again and not kept in registers while the bound is searched, and loops stay loops
        (kept elements take registers, and a unit then holds fewer work-groups)."""
        ib, k, n = self.ib, self.k, self.lines.n
        if self.own <= _KEPT:
            keys = ib.allocate("uint32", (self.own,), "keys", scope="local")
            self.each(lambda j, at: keys.__setitem__(j, self._made(at + none)))
            self.keys = keys
        counts = ib.allocate("int32", (2 * self.waves,), "counts", scope="shared")
        least = self._search(counts, 32 + none, lambda v, probe, at: v >= probe, k, "uint32")
        # Of equal keys those at the first places: the greatest number of places that leaves too few is one short.
        more = self._count(counts, 0, lambda v, at: v > least)
        beside = ib.let("beside", k - more)
        bits = max(1, n.bit_length())
        last = loops.scalar(ib, "int32", "last", te.const(0, "int32"))
        with ib.for_range(0, bits + none, "b") as b:
            step = ib.let("step", te.const(1, "int32") << (bits - 1 - b))
            found = self._count(counts, te.indexmod(b + 1, 2), self._before(least, ib.let("probe", last[0] + step)))
            with ib.if_scope(found < beside):
                last[0] = last[0] + step
        self._sorted(least, ib.let("end", last[0] + 1), k + none)

    def _before(self, least: Expr, probe: Expr) -> Callable[[Any, Any], Any]:
        return lambda v, at: te.all(v == least, at < probe)

    def _made(self, at: Index) -> Expr:
        return key(self.src[self.lines.at(self.line, at)], self.largest)

    def each(self, do: Callable[[int, Any], None], behind: Callable[[Any], None] | None = None) -> None:
        """`do(number, place)` for a thread's elements that there are, and `behind(turn)` after those from a turn on."""
        ib, n, stride = self.ib, self.lines.n, self.threads * self.piece

        def pieces(p: Index, number: int) -> None:
            begin = ib.let("begin", p * stride + self.t * self.piece)
            with ib.if_scope(begin < n):
                for j in range(self.piece):
                    do(number + j, begin + j)

        turns = self.own // self.piece
        if self.own <= _KEPT:
            for p in range(turns):
                with ib.new_scope():
                    pieces(p, p * self.piece)
            if behind is not None:
                behind(0)
        else:
            with ib.for_range(0, turns, "p") as turn:
                pieces(turn, 0)
                if behind is not None:
                    behind(turn)

    def value(self, j: int, at: Index) -> Expr:
        return self.keys[j] if self.keys is not None else self._made(at)

    def _count(self, counts: BufferVar, slot: Index, holds: Callable[[Any, Any], Any]) -> Expr:
        """In how many elements of the line it holds, known to all threads; calls after one another take turns at two slots."""
        ib = self.ib
        mine = loops.scalar(ib, "int32", "mine", te.const(0, "int32"))

        def add(j: int, at: Index) -> None:
            mine[0] = mine[0] + holds(self.value(j, at), at).astype("int32")

        self.each(add)
        loops.over_lanes(ib, mine, loops.doublings(self.wave), self.wave, operator.add)
        total = ib.let("total", mine[0])
        if self.waves == 1:
            return total
        with ib.if_scope(te.indexmod(self.t, self.wave) == 0):
            counts[slot * self.waves + te.indexdiv(self.t, self.wave)] = total
        whole = te.const(0, "int32")
        for w in range(self.waves):
            whole = whole + ib.let("part", counts[slot * self.waves + w])
        return ib.let("whole", whole)

    def _search(self, counts: BufferVar, bits: Expr, holds: Callable[[Any, Any, Any], Any], k: int, dtype: str) -> Expr:
        """The greatest number that so many keys reach."""
        ib = self.ib
        found = loops.scalar(ib, dtype, "found", te.const(0, dtype))
        with ib.for_range(0, bits, "b") as b:
            probe = ib.let("probe", te.bitwise_or(found[0], te.const(1, dtype) << (bits - 1 - b).astype(dtype)))
            count = self._count(counts, te.indexmod(b, 2), lambda v, at: holds(v, probe, at))
            with ib.if_scope(count >= k):
                found[0] = probe
        return ib.let("least", found[0])

    def _sorted(self, least: Expr, end: Index, count: Index) -> None:
        """The k that are left to shared memory in any order; then each to the place that the number of those ahead of it says."""
        ib, k = self.ib, self.k
        keys = ib.allocate("uint32", (k,), "best", scope="shared")
        places = ib.allocate("int32", (k,), "places", scope="shared")
        filled = ib.allocate("int32", (1,), "filled", scope="shared")
        with ib.if_scope(self.t == 0):
            filled[0] = te.const(0, "int32")

        def keep(j: int, at: Index) -> None:
            v = ib.let("v", self.value(j, at))
            with ib.if_scope(te.any(v > least, te.all(v == least, at < end))):
                slot = ib.let("slot", te.call_intrin("int32", "atomic_add", filled[0], te.const(1, "int32")))
                # Exchanged, not stored: no two threads have one slot, which only they know.
                ib.emit(te.call_intrin("uint32", "atomic_exch", keys[slot], v))
                ib.emit(te.call_intrin("int32", "atomic_exch", places[slot], at))

        self.each(keep)
        own = ib.let("own", te.min(self.t, k - 1))
        v, at = ib.let("v", keys[own]), ib.let("at", places[own])
        ahead = loops.scalar(ib, "int32", "ahead", te.const(0, "int32"))
        with ib.for_range(0, count, "c") as c:
            u, other = ib.let("u", keys[c]), ib.let("other", places[c])
            ahead[0] = ahead[0] + te.any(u > v, te.all(u == v, other < at)).astype("int32")
        with ib.if_scope(self.t < k):
            to = self.kept.at(self.line, ahead[0])
            self.results[0][to] = self.src[self.lines.at(self.line, at)]
            self.results[1][to] = at.astype("int64")
