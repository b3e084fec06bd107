"""Running sums by work-groups whose threads share lines: lines of neighbours (`SharedRow`), and lines that lie side by side (`SharedColumns`).

Of few long lines each has several work-groups, one for each part of it. A kernel ahead adds up the parts, and each work-group begins from the sum of the parts before its own.
The line is read twice for that, which is little beside a GPU of which most units have nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ... import te
from ...ir import Expr
from ...ir.dtype import dtype_info
from ...te.ir_builder import BufferVar
from ...te.like import Index
from ..parts import loops
from ..parts.threads import neighbour_on_a_die
from .running_scan import Scan

ACROSS = 32  # neighbouring lines of a work-group
_WORD_BYTES = 4
_FEW_WAVES = 8  # whose sums each thread adds up by itself; more of them are added up by the lanes of each wavefront, in as many steps as the number has digits
KEPT = 16  # elements of a thread that are in its registers at once


class Shared:
    """A work-group of `threads` that goes through a part of its lines in tiles, with what came before in a register."""

    tile: int  # elements of a line that a work-group has at once
    grain: int = 1  # elements: lines that begin between multiples of it are divided from the multiple before on

    def __init__(self, scan: Scan, threads: int, parts: int):
        self.s, self.ib, self.threads = scan, scan.ib, threads
        self.longest = -(-scan.n // parts)  # elements of a part, where tiles are no matter

    def _divide(self) -> None:
        """Parts of whole tiles, once a tile's size is known."""
        self.turns = -(-self.longest // self.tile)
        self.length = self.turns * self.tile
        self.parts = -(-(self.s.n + self.grain - 1) // self.length)

    def _sums(self) -> BufferVar | None:
        """For each line the sums of its parts; None where a line is one part."""
        if self.parts == 1:
            return None
        return self.ib.allocate(self.s.wide, (self.s.lines.count * self.parts,), "sums_of_parts")

    def _place(self, line: Index, part: Index) -> Any:
        """Where a part's sum is kept: beside those of neighbouring lines."""
        return part * self.s.lines.count + line

    def _before(self, sums: Any, line: Index, part: Index) -> BufferVar:
        """A variable that begins with the sum of a line's parts before one."""
        s, ib = self.s, self.ib
        carry: BufferVar = loops.scalar(ib, s.wide, "carry", s.one)
        # All are asked for at once, and none waits for the one before.
        for q in range(self.parts - 1):
            value = ib.let("part_sum", sums[self._place(line, q)])
            carry[0] = te.select(part > q, s.both(carry[0], value), carry[0])
        return carry

    def _together(self, value: BufferVar, first: int, wave: int) -> None:
        """A lane's sum becomes that of all lanes of its wavefront that differ by multiples of `first`."""
        loops.over_lanes(self.ib, value, (m for m in loops.doublings(wave) if m >= first), wave, self.s.both)

    def ahead_in_wave(self, value: Expr, place: Index, apart: int, wave: int) -> tuple[Any, Any]:
        """Of a lane's sum, with those of the lanes so many apart ahead of it in its wavefront: what they come to, and that without its own."""
        s, ib, step = self.s, self.ib, apart
        value = ib.let("value", value)
        while step < wave:
            other = ib.let("other", te.call_intrin(s.wide, "shuffle_up", value, step, wave))
            value = ib.let("value", te.select(place >= step, s.both(other, value), value))
            step *= 2
        if apart >= wave:
            return value, s.one
        before = ib.let("before", te.call_intrin(s.wide, "shuffle_up", value, apart, wave))
        return value, te.select(place >= apart, before, s.one)

    def ahead_of_wave(self, own: Expr, waves: int, carry: BufferVar, total: Callable[[int], Any]) -> Expr:
        """What is ahead of wavefront `own`, each of which has a total; `carry` goes on by all of them."""
        mine = loops.scalar(self.ib, self.s.wide, "mine", self.s.one)
        for w in range(waves):
            with self.ib.if_scope(own == w):
                mine[0] = carry[0]
            carry[0] = self.s.both(carry[0], total(w))
        return mine[0]

    def _inside(self, k: Index) -> Any:
        return loops.where(self.ib, self.s.n % self.length == 0 or k < self.s.n)

    def summed(self, kept: BufferVar, begin: int, count: int, acc: BufferVar) -> None:
        """Elements of a thread as what stands after (or before) each of them from `acc` on, in place."""
        for j in range(begin, begin + count):
            value = self.ib.let("value", kept[j])
            if self.s.strict:
                kept[j] = acc[0]
                acc[0] = self.s.both(acc[0], value)
            else:
                acc[0] = self.s.both(acc[0], value)
                kept[j] = acc[0]

    def store(self, kept: BufferVar, j: int, line: Index, k: Index, before: Expr) -> None:
        self.s.dst[self.s.place(line, k)] = self.s.both(before, kept[j]).astype(self.s.dtype)


class SharedRow(Shared):
    """A line of neighbours: pieces of 16 bytes a thread side by side, several of them a tile; one meeting of the wavefronts a tile."""

    def __init__(self, scan: Scan, threads: int, parts: int):
        super().__init__(scan, threads, parts)
        self.wave = min(scan.target.wavefront_size, threads)
        self.waves = threads // self.wave
        self.piece = 1 if scan.lines.after else max(1, 16 // max(2, dtype_info(scan.dtype).bytes))
        while scan.n < self.piece:
            self.piece //= 2
        # Loads of several words begin at multiples of one, and lines of an odd number of float16 do not.
        bytes_ = dtype_info(scan.dtype).bytes
        if self.piece > 1 and scan.n * bytes_ % _WORD_BYTES:
            self.grain = _WORD_BYTES // bytes_
        if self.piece < self.grain:
            self.piece = self.grain = 1
        self.pieces = min(max(1, KEPT // self.piece), -(-self.longest // (threads * self.piece)))
        self.tile = threads * self.piece * self.pieces
        self._divide()

    def _shift(self, line: Index) -> Index:
        """How far ahead of the line its first piece begins."""
        if self.grain == 1:
            return 0
        ahead = te.indexmod((line + 1 if self.s.back else line) * self.s.n, self.grain)
        return self.ib.let("shift", te.indexmod(self.grain - ahead, self.grain) if self.s.back else ahead)

    def _begins(self, part: Index, turn: Index, t: Index, shift: Index) -> list[Expr]:
        """Where a thread's pieces of a turn begin in the line."""
        first = part * self.length + turn * self.tile - shift
        return [self.ib.let("begin", first + (p * self.threads + t) * self.piece) for p in range(self.pieces)]

    def _add_up(self, sums: BufferVar) -> None:
        """The sums of all parts but the last, by a kernel of its own."""
        s, ib, wave, waves = self.s, self.ib, self.wave, self.waves
        with loops.launch(ib, (s.lines.count * (self.parts - 1),), (self.threads,)) as (group, t):
            line, part = te.indexdiv(group, self.parts - 1), te.indexmod(group, self.parts - 1)
            acc, shift = loops.scalar(ib, s.wide, "acc", s.one), self._shift(line)
            with ib.for_range(0, self.turns, "turn") as turn:
                begins = self._begins(part, turn, t, shift)  # only the last part may end within a tile
                for begin, read in zip(begins, [self._read(line, begin) for begin in begins]):
                    for j in range(self.piece):
                        value = read[j].astype(s.wide)
                        own = te.select(begin + j >= 0, value, s.one) if self.grain > 1 else value
                        acc[0] = s.both(acc[0], own)
            self._together(acc, 1, wave)
            if waves > 1:
                totals = ib.allocate(s.wide, (waves,), "totals", scope="shared")
                with ib.if_scope(te.indexmod(t, wave) == 0):
                    totals[te.indexdiv(t, wave)] = acc[0]
                acc[0] = totals[0]
                for w in range(1, waves):
                    acc[0] = s.both(acc[0], totals[w])
            with ib.if_scope(t == 0):
                sums[self._place(line, part)] = acc[0]

    def run(self) -> None:
        """The kernels: the parts' sums first where a line is shared by several work-groups, then the running values of each part, a turn of all threads
        after another."""
        s, ib, threads = self.s, self.ib, self.threads
        wave, waves, piece, pieces = self.wave, self.waves, self.piece, self.pieces
        sums = self._sums()
        if sums is not None:
            self._add_up(sums)
        with loops.launch(ib, (s.lines.count * self.parts,), (threads,)) as (group, t):
            line, part = te.indexdiv(group, self.parts), te.indexmod(group, self.parts)
            lane = ib.let("lane", te.indexmod(t, wave))
            totals = ib.allocate(s.wide, (pieces * waves,), "totals", scope="shared") if waves > 1 else None
            carry, shift = self._before(sums, line, part), self._shift(line)
            with ib.for_range(0, self.turns, "turn") as turn:
                kept = ib.allocate(s.wide, (pieces * piece,), "kept", scope="local")
                # Of a thread's piece, within its wavefront.
                ahead = ib.allocate(s.wide, (pieces,), "ahead", scope="local")
                whole = ib.allocate(s.wide, (pieces,), "whole", scope="local")  # of its wavefront
                begins = self._begins(part, turn, t, shift)
                # A piece that would run past the line's end is read from before it: what is another's adds nothing.
                is_clamped = self.is_ragged and self.grain == 1
                there = [ib.let("there", te.min(begin, s.n - piece)) if is_clamped else begin for begin in begins]
                for p, read in enumerate([self._read(line, at) for at in there]):
                    for j in range(piece):
                        at, value = there[p] + j, read[j].astype(s.wide)
                        own = at >= begins[p] if is_clamped else te.all(at >= 0, at < s.n)
                        kept[p * piece + j] = te.select(own, value, s.one) if self.is_ragged else value
                for p in range(pieces):
                    acc = loops.scalar(ib, s.wide, "acc", s.one)
                    self.summed(kept, p * piece, piece, acc)
                    value, ahead[p] = self.ahead_in_wave(acc[0], lane, 1, wave)
                    whole[p] = te.call_intrin(s.wide, "shuffle_idx", value, wave - 1, wave)
                if totals is None:
                    for p in range(pieces):
                        ahead[p] = s.both(carry[0], ahead[p])
                        carry[0] = s.both(carry[0], whole[p])
                else:
                    self._meet(totals, ahead, whole, carry, t, wave, waves, pieces)
                for p, begin in enumerate(begins):
                    self._write(kept, p, line, begin, there[p], ahead[p])

    @property
    def is_ragged(self) -> bool:
        """Whether the last part ends within a tile."""
        return self.grain > 1 or bool(self.s.n % self.length)

    def _row(self, line: Index, first: Index) -> tuple[tuple[Any, ...], Any]:
        """Where the piece that begins with an element of the line lies: the index of its row, and the first place in memory."""
        *row, at = self.s.place(line, first)
        return tuple(row), at - (self.piece - 1) if self.s.back else at

    def _read(self, line: Index, first: Index) -> list[Expr]:
        """The elements of a piece in the line's order, by one load; where lines begin between words, those of a piece that ends behind the line one by one."""
        s, ib, piece = self.s, self.ib, self.piece
        raw = ib.allocate(s.dtype, (piece,), "raw", scope="local")
        if piece == 1:
            raw[0] = s.src[s.place(line, first)]
            return [raw[0]]
        order = [piece - 1 - j if s.back else j for j in range(piece)]
        is_inside = first + piece <= s.n
        if s.back and s.lines.count * s.n % self.grain:  # the last line's first piece begins behind the array
            is_inside = te.all(first >= 0, is_inside)
        with ib.if_scope(is_inside) if self.grain > 1 else nullcontext():
            loops.put_vector(ib, raw, 0, loops.vector_at(s.src, *self._row(line, first), piece))
        if self.grain > 1:
            with ib.else_scope():
                for j in range(piece):
                    raw[order[j]] = s.src[s.place(line, te.max(te.min(first + j, s.n - 1), 0))]
        return [raw[j] for j in order]

    def _write(self, kept: BufferVar, p: int, line: Index, begin: Index, there: Index, before: Expr) -> None:
        """The results of a piece: those that are inside the line."""
        s, ib, piece = self.s, self.ib, self.piece
        if piece == 1:
            with self._inside(begin):
                self.store(kept, p, line, begin, before)
            return
        is_whole = begin + piece <= s.n if self.grain == 1 else te.all(begin >= 0, begin + piece <= s.n)
        with ib.if_scope(is_whole) if self.is_ragged else nullcontext():
            made = ib.allocate(s.dtype, (piece,), "made", scope="local")
            for j in range(piece):
                value = s.both(before, kept[p * piece + j]).astype(s.dtype)
                made[piece - 1 - j if s.back else j] = value
            row, at = self._row(line, begin)
            loops.put_vector_at(ib, s.dst, row, at, loops.vector(made, 0, piece))
        if self.is_ragged and s.n % piece:
            with ib.else_scope(), ib.if_scope(begin < s.n):
                for j in range(piece):
                    k = there + j
                    with ib.if_scope(k >= begin if self.grain == 1 else te.all(k >= 0, k < s.n)):
                        self.store(kept, p * piece + j, line, k, before)

    def _meet(
        self,
        totals: BufferVar,
        ahead: BufferVar,
        whole: BufferVar,
        carry: BufferVar,
        t: Index,
        wave: int,
        waves: int,
        pieces: int,
    ) -> None:
        """The wavefronts' sums to all: what is ahead of each thread's pieces in the line, and the line's sum so far."""
        ib, s = self.ib, self.s
        own = ib.let("own", te.indexdiv(t, wave))
        with ib.if_scope(te.indexmod(t, wave) == 0):
            for p in range(pieces):
                totals[p * waves + own] = whole[p]
        for p in range(pieces):
            if waves <= _FEW_WAVES:
                mine: Any = self.ahead_of_wave(own, waves, carry, lambda w, p=p: totals[p * waves + w])  # type: ignore[misc]
            else:
                lane = te.indexmod(t, waves)
                through, before = self.ahead_in_wave(totals[p * waves + lane], lane, 1, waves)
                mine = ib.let("mine", s.both(carry[0], te.call_intrin(s.wide, "shuffle_idx", before, own, waves)))
                carry[0] = s.both(carry[0], te.call_intrin(s.wide, "shuffle_idx", through, waves - 1, waves))
            ahead[p] = s.both(mine, ahead[p])


class SharedColumns(Shared):
    """Lines side by side: a thread has a run of `each` elements of one of them, so that neighbours read neighbours. Sums of runs meet by shuffles within a
    wavefront, and through shared memory across. What the next turn needs is loaded before this one's results are stored."""

    def __init__(self, scan: Scan, threads: int, parts: int):
        super().__init__(scan, threads, parts)
        count, target = scan.lines.count, scan.target
        units, self.dies = target.machine.units, target.machine.dies
        # Twice as many where one would give few units a second work-group, which all would wait for.
        usual = 2 * ACROSS if units < -(-count // ACROSS) < 2 * units else ACROSS
        bytes_ = dtype_info(scan.dtype).bytes
        across = scan.rule("across", usual, lines=count, usual=usual, bytes=bytes_, groups=None)
        self.across = across
        self.runs = max(1, threads // across)
        self.wave = min(target.wavefront_size, across * self.runs)
        self.waves = -(-across * self.runs // self.wave)
        self.beside = max(1, across // self.wave)  # wavefronts that neighbouring lines take
        self.groups = -(-count // across)
        # Registers for what is stored and for what is loaded; fewer where two work-groups share a unit.
        words = scan.rule("words", 32, lines=count, usual=usual, bytes=bytes_, groups=self.groups * parts)
        words //= max(1, dtype_info(scan.wide).bytes // 4)
        self.each = -(-self.longest // self.runs) if self.longest <= words * self.runs else words // 2
        self.tile = self.runs * self.each
        self._divide()

    @contextmanager
    def _launched(self, parts: int) -> Iterator[tuple[Any, ...]]:
        """A kernel of so many parts of each line: the thread, its part, its line if there is one, and the one that it may read."""
        with loops.launch(self.ib, (self.groups * parts,), (self.across * self.runs,)) as (group, t):
            # On the die of its neighbours, whose L2 puts the parts of a line together.
            group = self.ib.let("group", neighbour_on_a_die(group, self.groups * parts, self.dies))
            part = te.indexdiv(group, self.groups) if parts > 1 else 0
            first = (te.indexmod(group, self.groups) if parts > 1 else group) * self.across
            line = self.ib.let("own_line", first + te.indexmod(t, self.across))
            yield t, part, line, self.ib.let("line", te.min(line, self.s.lines.count - 1))

    def _add_up(self, sums: BufferVar) -> None:
        """The sums of all parts but the last, by a kernel of its own."""
        s, ib, across, wave = self.s, self.ib, self.across, self.wave
        with self._launched(self.parts - 1) as (t, part, own, line):
            begin = ib.let("begin", part * self.length + te.indexdiv(t, across) * self.each)
            acc = loops.scalar(ib, s.wide, "acc", s.one)
            with ib.for_range(0, self.turns, "turn") as turn:
                for j in range(self.each):  # only the last part may end within a tile
                    at = s.place(line, begin + turn * self.tile + j)
                    acc[0] = s.both(acc[0], s.src[at].astype(s.wide))
            self._together(acc, across, wave)
            totals = ib.allocate(s.wide, (across * self.waves,), "totals", scope="shared")
            column = te.indexmod(t, across)
            with ib.if_scope(te.indexmod(t, wave) < across):
                totals[te.indexdiv(te.indexdiv(t, wave), self.beside) * across + column] = acc[0]
            with ib.if_scope(te.all(t < across, own < s.lines.count)):
                whole = totals[column]
                for w in range(1, self.waves // self.beside):
                    whole = s.both(whole, totals[w * across + column])
                sums[self._place(line, part)] = whole

    def run(self) -> None:
        """Sums of parts first, where lines are in several; then each part from what comes before it."""
        s, ib, each, across = self.s, self.ib, self.each, self.across
        sums = self._sums()
        if sums is not None:
            self._add_up(sums)
        with self._launched(self.parts) as (t, part, own, line):
            first = ib.let("first", part * self.length + te.indexdiv(t, across) * each)
            totals = ib.allocate(s.wide, (across * self.waves,), "totals", scope="shared")
            carry = self._before(sums, line, part)
            coming = ib.allocate(s.dtype, (each,), "coming", scope="local")
            self._bring(coming, line, first)
            with ib.for_range(0, self.turns, "turn") as turn:
                begin = ib.let("begin", first + turn * self.tile)
                kept = ib.allocate(s.wide, (each,), "kept", scope="local")
                for j in range(each):
                    value = coming[j].astype(s.wide)
                    kept[j] = te.select(begin + j < s.n, value, s.one) if s.n % self.length else value
                if self.turns > 1:
                    with ib.if_scope(turn + 1 < self.turns):
                        self._bring(coming, line, ib.let("next", begin + self.tile))
                acc = loops.scalar(ib, s.wide, "acc", s.one)
                self.summed(kept, 0, each, acc)
                ahead = self._meet(totals, acc[0], carry, t)
                with loops.where(ib, s.lines.count % self.across == 0 or own < s.lines.count):
                    for j in range(each):
                        with self._inside(begin + j):
                            self.store(kept, j, line, begin + j, ahead)

    def _bring(self, coming: BufferVar, line: Index, begin: Index) -> None:
        """A thread's elements of a turn, without a condition, so that none waits for another: behind the end the last one."""
        s = self.s
        for j in range(self.each):
            k = te.min(begin + j, s.n - 1) if s.n % self.length else begin + j
            coming[j] = s.src[s.place(line, k)]

    def _meet(self, totals: BufferVar, value: Expr, carry: BufferVar, t: Index) -> Expr:
        """What is ahead of a thread's run, whose sum is `value`, in its line; `carry` goes on to the end of the turn."""
        s, ib, across, wave = self.s, self.ib, self.across, self.wave
        place, own = ib.let("place", te.indexmod(t, wave)), ib.let("own", te.indexdiv(t, wave))
        value, before = self.ahead_in_wave(value, place, across, wave)
        column = te.indexmod(t, across)
        with ib.if_scope(place >= wave - across):
            totals[te.indexdiv(own, self.beside) * across + column] = value
        row = te.indexdiv(own, self.beside)
        mine = self.ahead_of_wave(row, self.waves // self.beside, carry, lambda w: totals[w * across + column])
        return ib.let("ahead", s.both(mine, before))
