"""Running sums and products, as loops.

A running sum of n elements is n additions. On a GPU the threads of a work-group share a line ("wave"): each has a run of it, whose sums are added up by shuffles
within a wavefront and through shared memory across; of lines that lie side by side a thread has a run of one of them, so that neighbours read neighbours. Or it goes
by chunks, whose sums are summed in turn, a kernel each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from ... import te
from ...ir.dtype import dtype_info
from ...ops.forms import Form
from ...ops.registry import static_shape
from ...target import Target
from ...te import Tensor
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..cost import Footprint
from ..group import Group
from ..parts import loops
from ..parts.pointwise import lanes_for, neighbour_on_a_die
from ..space import Choice

CHUNK = 256  # elements that one GPU thread sums one after another
MANY_LINES = 4096  # lines that fill a GPU with a thread each
SHORT = 64  # elements of a line below which a thread has it for itself
_STRIP = 8  # vectors: four lines of a cache, in half of the registers of an AVX2 core
_MEETING = 16  # steps in which the threads of a work-group learn what is ahead of them: shuffles and a barrier
_WORTH = 0.8  # of a thread's time for a line, from which on a wavefront has it: prices are no better than that
_KEPT = 16  # elements of a thread that are in its registers at once


class Running(loops.LoopForm):
    """A running sum: `wave` threads a line, or `chunk` elements of a line a thread, or 0 and 0 for the whole line."""

    template: ClassVar[str] = "running sum"

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor]):
        super().__init__(group, target, form, carriers)
        self.lines = loops.Lines(static_shape(form.inputs[0]), form.attrs["axis"])
        chunks = (CHUNK, 64, 128, 512) if target.is_gpu else ()
        self.parameters = {
            "chunk": (0, *(n for n in chunks if self.lines.n > 2 * n)),
            "wave": (0, 64, 128, 256, 512, 1024) if target.is_gpu else (0,),
        }

    @property
    def default(self) -> Choice:
        n, count = self.lines.n, self.lines.count
        if (
            self.target.is_gpu
            and n >= SHORT
            and count * n < loops.LIMIT // 2
            and (n <= 1 << 16 or count >= self.target.machine.units)
        ):
            wide = self.lines.inner > 1
            return self.choice(chunk=0, wave=512 if wide else 64 if n <= 512 else 256)
        apart = self.target.is_gpu and n > 2 * CHUNK and count < MANY_LINES
        alone = self.choice(chunk=CHUNK if apart else 0, wave=0)
        # A thread waits for each element of its line; of few short lines a wavefront each has a part of that.
        if self.target.is_gpu and self.lines.inner == 1 and not apart and count * n < loops.LIMIT // 2:
            together = self.choice(chunk=0, wave=64)
            if self.cost(together).seconds < _WORTH * self.cost(alone).seconds:
                return together
        return alone

    def why_not(self, choice: Choice) -> str | None:
        return "a line goes by chunks or by a work-group" if choice["chunk"] and choice["wave"] else None

    def sketch(self, choice: Choice) -> Footprint:
        """Elements that one thread adds one after another, in passes of one kernel each."""
        chunk, n, count = choice["chunk"], self.lines.n, self.lines.count
        if choice["wave"]:
            return self.chains(n / choice["wave"] + _MEETING, count * choice["wave"])
        return self.chains(2 * chunk, count * -(-n // chunk), 3) if chunk else self.chains(n, count)

    def _strip(self) -> tuple[int, int] | None:
        """Lanes of a vector of neighbouring lines, and how many such vectors go down the lines together: on a CPU whose sums are of the elements' own type. A vector alone
        takes part of each line of the cache that it meets, and comes to the next row in another page."""
        x, after = self.form.inputs[0], self.lines.after
        lanes = lanes_for(x.dtype, self.target)
        if self.target.is_gpu or not after or after[-1] < lanes or x.dtype != self.form.attrs["acc"]:
            return None
        vectors = -(-after[-1] // lanes)
        spread = max(1, self.lines.count // after[-1] * vectors // self.target.machine.units)  # of each core
        return lanes, min(vectors, spread, _STRIP)

    def tensors(self, choice: Choice) -> list[Tensor]:
        x = self.form.inputs[0]

        def body(ib: IRBuilder, sources: list[Any], results: list[Any]) -> None:
            scan = _Scan(self, ib, sources[0], results[0])
            if choice["wave"]:
                (_Columns if self.lines.inner > 1 else _Row)(scan, choice["wave"]).run()
            elif choice["chunk"]:
                scan.by_chunks(choice["chunk"])
            elif (strip := self._strip()) is not None:
                scan.by_strips(*strip)
            else:
                with loops.each(ib, self.target, self.lines.count, "line") as line:
                    scan.write(line, 0, self.lines.n, loops.scalar(ib, scan.wide, "acc", scan.one))

        return loops.extern(self.form.attrs["name"], [x], [(static_shape(x), x.dtype)], body)


class _Scan:
    """What all ways share: the elements of a line from its end or its beginning, and what is done with two."""

    def __init__(self, space: Running, ib: IRBuilder, src: Any, dst: Any):
        a = space.form.attrs
        self.ib, self.src, self.dst, self.target, self.lines, self.rule = (
            ib,
            src,
            dst,
            space.target,
            space.lines,
            space.rule,
        )
        self.product, self.strict, self.back, self.wide = a["product"], a["exclusive"], a["reverse"], a["acc"]
        self.dtype, self.n = space.form.inputs[0].dtype, space.lines.n
        self.one = te.const(1 if self.product else 0, self.wide)

    def both(self, a: Any, b: Index) -> Any:
        return a * b if self.product else a + b

    def place(self, line: Index, k: Index) -> tuple[Any, ...]:
        return self.lines.at(line, self.n - 1 - k if self.back else k)

    def write(self, line: Index, begin: Index, count: Index, acc: BufferVar) -> None:
        """The results of `count` elements from `begin` on, one after another."""
        with self.ib.for_range(0, count, "k") as k:
            at = self.place(line, begin + k)
            value = self.src[at].astype(self.wide)
            if self.strict:
                following = self.ib.let("following", self.both(acc[0], value))
                self.dst[at] = acc[0].astype(self.dtype)
                acc[0] = following
            else:
                acc[0] = self.both(acc[0], value)
                self.dst[at] = acc[0].astype(self.dtype)

    def by_strips(self, lanes: int, vectors: int) -> None:
        """Some vectors of neighbouring lines at a time, whose sums stay in registers. Those of a strip that would run past the last line begin earlier."""
        ib, lines, n = self.ib, self.lines, self.n
        inner, vector = lines.after[-1], f"{self.dtype}x{lanes}"
        strips = -(-inner // (lanes * vectors))
        around = loops.Lines((*lines.before, n, *lines.after[:-1]), len(lines.before))
        with loops.each(ib, self.target, around.count * strips, "strip") as strip:
            line, first = te.indexdiv(strip, strips), ib.let("first", te.indexmod(strip, strips) * (lanes * vectors))
            acc = ib.allocate(self.dtype, (lanes * vectors,), "acc", scope="local")
            one = te.const(1 if self.product else 0, vector)
            for v in range(vectors):
                loops.put_vector(ib, acc, v * lanes, one)
            with ib.for_range(0, n, "k") as k:
                row = around.at(line, n - 1 - k if self.back else k)
                for v in range(vectors):
                    at = (*row, te.min(first + v * lanes, inner - lanes))
                    before = ib.let("before", loops.vector(acc, v * lanes, lanes))
                    after = ib.let("after", self.both(before, self.src.buffer.vload(at, vector)))
                    loops.put_vector(ib, acc, v * lanes, after)
                    ib.emit(self.dst.buffer.vstore(at, before if self.strict else after))

    def by_chunks(self, chunk_size: int) -> None:
        """Sums of chunks, of chunks of chunks, ... until a line of them is short; then each level starts from the one above."""
        ib, target, lines, n = self.ib, self.target, self.lines, self.n
        counts: list[int] = []
        while (counts[-1] if counts else n) > chunk_size:
            counts.append(-(-(counts[-1] if counts else n) // chunk_size))
        levels = [ib.allocate(self.wide, (lines.count * c,), f"sums{k}") for k, c in enumerate(counts)]
        for k, (level, c) in enumerate(zip(levels, counts)):
            length = n if k == 0 else counts[k - 1]
            with loops.each(ib, target, lines.count * c) as e:
                line, chunk = te.indexdiv(e, c), te.indexmod(e, c)
                acc = loops.scalar(ib, self.wide, "acc", self.one)
                with ib.for_range(0, te.min(chunk_size, length - chunk * chunk_size), "j") as j:
                    i = chunk * chunk_size + j
                    value = (
                        self.src[self.place(line, i)].astype(self.wide) if k == 0 else levels[k - 1][line * length + i]
                    )
                    acc[0] = self.both(acc[0], value)
                level[e] = acc[0]
        for k in reversed(range(len(levels))):
            length = counts[k]
            parts = counts[k + 1] if k + 1 < len(counts) else 1
            with loops.each(ib, target, lines.count * parts) as e:
                line, chunk = te.indexdiv(e, parts), te.indexmod(e, parts)
                acc = loops.scalar(ib, self.wide, "acc", levels[k + 1][e] if k + 1 < len(levels) else self.one)
                size = te.min(chunk_size, length - chunk * chunk_size) if parts > 1 else length
                with ib.for_range(0, size, "j") as j:
                    i = line * length + chunk * chunk_size + j
                    following = ib.let("following", self.both(acc[0], levels[k][i]))
                    levels[k][i] = acc[0]
                    acc[0] = following
        c = counts[0]
        with loops.each(ib, target, lines.count * c) as e:
            line, chunk = te.indexdiv(e, c), te.indexmod(e, c)
            begin = chunk * chunk_size
            self.write(line, begin, te.min(chunk_size, n - begin), loops.scalar(ib, self.wide, "acc", levels[0][e]))


class _Shared:
    """A work-group of `threads` that goes through its lines in tiles, with what came before in a register."""

    def __init__(self, scan: _Scan, threads: int):
        self.s, self.ib, self.threads = scan, scan.ib, threads

    @contextmanager
    def launch(self, groups: int, *threads: int) -> Iterator[tuple[Any, ...]]:
        """A kernel; the indices of the work-group and the thread."""
        with self.ib.new_scope():
            axes = []
            for tag, n in zip(("blockIdx.x", "threadIdx.x", "threadIdx.y"), (groups, *threads)):
                axis = te.thread_axis(tag)
                self.ib.scope_attr(axis, "thread_extent", n)
                axes.append(axis.var)
            yield tuple(axes)

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

    def load(self, kept: BufferVar, j: int, line: Index, k: Index) -> None:
        kept[j] = self.s.src[self.s.place(line, k)].astype(self.s.wide)

    def store(self, kept: BufferVar, j: int, line: Index, k: Index, before: Any) -> None:
        self.s.dst[self.s.place(line, k)] = self.s.both(before, kept[j]).astype(self.s.dtype)


class _Row(_Shared):
    """A line of neighbours: pieces of 16 bytes a thread side by side, several of them a tile; one meeting of the wavefronts a tile."""

    def run(self) -> None:
        s, ib, threads = self.s, self.ib, self.threads
        wave = min(s.target.wavefront_size, threads)
        waves = threads // wave
        piece = max(1, 16 // max(2, dtype_info(s.dtype).bytes))
        while s.n % piece:
            piece //= 2
        pieces = min(max(1, _KEPT // piece), -(-s.n // (threads * piece)))
        tile = threads * piece * pieces
        with self.launch(s.lines.count, threads) as (line, t):
            lane = ib.let("lane", te.indexmod(t, wave))
            totals = ib.allocate(s.wide, (pieces * waves,), "totals", scope="shared") if waves > 1 else None
            carry = loops.scalar(ib, s.wide, "carry", s.one)
            with ib.for_range(0, -(-s.n // tile), "turn") as turn:
                kept = ib.allocate(s.wide, (pieces * piece,), "kept", scope="local")
                ahead = ib.allocate(
                    s.wide, (pieces,), "ahead", scope="local"
                )  # of a thread's piece, within its wavefront
                whole = ib.allocate(s.wide, (pieces,), "whole", scope="local")  # of its wavefront
                begins = [ib.let("begin", turn * tile + (p * threads + t) * piece) for p in range(pieces)]
                for p, begin in enumerate(begins):
                    for j in range(piece):
                        kept[p * piece + j] = s.one
                    with self._inside(begin, tile):
                        for j in range(piece):
                            self.load(kept, p * piece + j, line, begin + j)
                for p in range(pieces):
                    acc = loops.scalar(ib, s.wide, "acc", s.one)
                    self.summed(kept, p * piece, piece, acc)
                    value, step = ib.let("value", acc[0]), 1
                    while step < wave:
                        other = ib.let("other", te.call_intrin(s.wide, "shuffle_up", value, step, wave))
                        value = ib.let("value", te.select(lane >= step, s.both(other, value), value))
                        step *= 2
                    before = ib.let("before", te.call_intrin(s.wide, "shuffle_up", value, 1, wave))
                    ahead[p] = te.select(lane >= 1, before, s.one)
                    whole[p] = te.call_intrin(s.wide, "shuffle_idx", value, wave - 1, wave)
                if totals is None:
                    for p in range(pieces):
                        ahead[p] = s.both(carry[0], ahead[p])
                        carry[0] = s.both(carry[0], whole[p])
                else:
                    self._meet(totals, ahead, whole, carry, t, wave, waves, pieces)
                for p, begin in enumerate(begins):
                    with self._inside(begin, tile):
                        for j in range(piece):
                            self.store(kept, p * piece + j, line, begin + j, ahead[p])

    @contextmanager
    def _inside(self, begin: Index, tile: int) -> Iterator[None]:
        if self.s.n % tile == 0:
            yield
            return
        with self.ib.if_scope(begin < self.s.n):
            yield

    def _meet(
        self,
        totals: BufferVar,
        ahead: BufferVar,
        whole: Any,
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
            mine = loops.scalar(ib, s.wide, "mine", s.one)
            for w in range(waves):
                with ib.if_scope(own == w):
                    mine[0] = carry[0]
                carry[0] = s.both(carry[0], totals[p * waves + w])
            ahead[p] = s.both(mine[0], ahead[p])


class _Columns(_Shared):
    """Lines side by side: a thread has a run of `each` elements of one of them, so that neighbours read neighbours. Sums of runs meet by shuffles within a
    wavefront, and through shared memory across. What the next turn needs is loaded before this one's results are stored."""

    def __init__(self, scan: _Scan, threads: int):
        super().__init__(scan, threads)
        count, target = scan.lines.count, scan.target
        units, self.dies = target.machine.units, target.machine.dies
        # Twice as many where one would give few units a second work-group, which all would wait for.
        usual = 64 if units < -(-count // 32) < 2 * units else 32
        across = scan.rule("across", usual, lines=count, usual=usual, bytes=dtype_info(scan.dtype).bytes, groups=None)
        self.across = across
        self.runs = max(1, threads // across)
        self.wave = min(target.wavefront_size, across * self.runs)
        self.waves = -(-across * self.runs // self.wave)
        self.groups = -(-count // across)
        # Registers for what is stored and for what is loaded; fewer where two work-groups share a unit.
        words = scan.rule("words", 32, lines=count, usual=usual, bytes=dtype_info(scan.dtype).bytes, groups=self.groups)
        words //= max(1, dtype_info(scan.wide).bytes // 4)
        self.each = -(-scan.n // self.runs) if scan.n <= words * self.runs else words // 2
        self.tile = self.runs * self.each

    def run(self) -> None:
        s, ib, each, across, dies = self.s, self.ib, self.each, self.across, self.dies
        turns = -(-s.n // self.tile)
        with self.launch(self.groups, across * self.runs) as (group, t):
            # On the die of its neighbours, whose L2 puts the parts of a line together.
            group = ib.let("group", neighbour_on_a_die(group, self.groups, dies))
            tx, ty = ib.let("tx", te.indexmod(t, across)), ib.let("ty", te.indexdiv(t, across))
            line = ib.let("line", te.min(group * across + tx, s.lines.count - 1))
            totals = ib.allocate(s.wide, (across * self.waves,), "totals", scope="shared")
            carry = loops.scalar(ib, s.wide, "carry", s.one)
            coming = ib.allocate(s.dtype, (each,), "coming", scope="local")
            self._bring(coming, line, ib.let("begin", ty * each))
            with ib.for_range(0, turns, "turn") as turn:
                begin = ib.let("begin", turn * self.tile + ty * each)
                kept = ib.allocate(s.wide, (each,), "kept", scope="local")
                for j in range(each):
                    kept[j] = coming[j].astype(s.wide)
                if turns > 1:
                    with ib.if_scope(turn + 1 < turns):
                        self._bring(coming, line, ib.let("next", begin + self.tile))
                acc = loops.scalar(ib, s.wide, "acc", s.one)
                self.summed(kept, 0, each, acc)
                ahead = self._meet(totals, acc[0], carry, t)
                with self._real(group * across + tx):
                    for j in range(each):
                        with self._inside(begin + j):
                            self.store(kept, j, line, begin + j, ahead)

    def _bring(self, coming: Any, line: Index, begin: Index) -> None:
        """A thread's elements of a turn; what is beyond the end adds nothing."""
        s = self.s
        for j in range(self.each):
            if s.n % self.tile:
                coming[j] = s.one.astype(s.dtype)
            with self._inside(begin + j):
                coming[j] = s.src[s.place(line, begin + j)]

    def _meet(self, totals: BufferVar, value: Any, carry: BufferVar, t: Index) -> Any:
        """What is ahead of a thread's run, whose sum is `value`, in its line; `carry` goes on to the end of the turn."""
        s, ib, across, wave = self.s, self.ib, self.across, self.wave
        place, own = ib.let("place", te.indexmod(t, wave)), ib.let("own", te.indexdiv(t, wave))
        value, step = ib.let("value", value), across
        while step < wave:
            other = ib.let("other", te.call_intrin(s.wide, "shuffle_up", value, step, wave))
            value = ib.let("value", te.select(place >= step, s.both(other, value), value))
            step *= 2
        before = s.one
        if across < wave:
            before = ib.let("before", te.call_intrin(s.wide, "shuffle_up", value, across, wave))
            before = te.select(place >= across, before, s.one)
        column = te.indexmod(t, across)
        parts = max(1, across // wave)  # wavefronts of a row
        with ib.if_scope(place >= wave - across):
            totals[te.indexdiv(own, parts) * across + column] = value
        mine = loops.scalar(ib, s.wide, "mine", s.one)
        for w in range(self.waves // parts):
            with ib.if_scope(te.indexdiv(own, parts) == w):
                mine[0] = carry[0]
            carry[0] = s.both(carry[0], totals[w * across + column])
        return ib.let("ahead", s.both(mine[0], before))

    @contextmanager
    def _real(self, line: Index) -> Iterator[None]:
        if self.s.lines.count % self.across == 0:
            yield
            return
        with self.ib.if_scope(line < self.s.lines.count):
            yield

    @contextmanager
    def _inside(self, k: Index) -> Iterator[None]:
        if self.s.n % self.tile == 0:
            yield
            return
        with self.ib.if_scope(k < self.s.n):
            yield
