"""The elements of the lines of a running sum, product or maximum, and the ways in which a thread has a line, or some of it, for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import Expr
from ...ir.dtype import dtype_info
from ...ops.sort import joined, neutral
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..parts import loops

# Elements of a thread's own line that it loads at once: their additions wait for each other, the loads need not.
AHEAD = 16
_ROWS = 4  # that a wide strip goes down together: as many lines of memory come, and as many go


class Scan:
    """What all ways share: the elements of a line from its end or its beginning, and what is done with two."""

    def __init__(self, space: loops.LoopForm, lines: loops.Lines, ib: IRBuilder, src: BufferVar, dst: BufferVar):
        a = space.form.attrs
        self.ib, self.src, self.dst, self.target, self.lines = ib, src, dst, space.target, lines
        self.rule = space.rule
        self.join, self.strict, self.back, self.wide = a["join"], a["exclusive"], a["reverse"], a["acc"]
        self.dtype, self.n = space.form.inputs[0].dtype, lines.n
        self.one = neutral(self.join, self.wide)

    def both(self, a: Expr, b: Index) -> Any:
        return joined(self.join, a, b)

    def place(self, line: Index, k: Index) -> tuple[Any, ...]:
        return self.lines.at(line, self.n - 1 - k if self.back else k)

    def write(self, line: Index, begin: Index, count: Index, acc: BufferVar) -> None:
        """The results of `count` elements from `begin` on, one after another; on a GPU after the loads of some of them."""
        if not self.target.is_gpu or not isinstance(count, int):
            with self.ib.for_range(0, count, "k") as k:
                self._together(line, begin + k, 1, acc)
            return
        if count >= AHEAD:
            with self.ib.for_range(0, count // AHEAD, "k") as k:
                self._together(line, begin + k * AHEAD, AHEAD, acc)
        self._together(line, begin + count // AHEAD * AHEAD, count % AHEAD, acc)

    def _together(self, line: Index, begin: Index, count: int, acc: BufferVar) -> None:
        """The results of a few elements, all of which are loaded first."""
        places = [self.place(line, begin + k) for k in range(count)]
        values = [self.src[at].astype(self.wide) for at in places]
        if count > 1:
            values = [self.ib.let("value", v) for v in values]
        for at, value in zip(places, values):
            if self.strict:
                following = self.ib.let("following", self.both(acc[0], value))
                self.dst[at] = acc[0].astype(self.dtype)
                acc[0] = following
            else:
                acc[0] = self.both(acc[0], value)
                self.dst[at] = acc[0].astype(self.dtype)

    def by_tiles(self, threads: int) -> None:
        """Lines that lie one after another in memory: each work-group brings as many as it has threads through shared memory, where neighbours of memory are read and
        written by neighbours, and each thread has a line of the tile."""
        ib, n, lines = self.ib, self.n, self.lines
        apart = pitch(n, dtype_info(self.dtype).bytes)

        with loops.launch(ib, (-(-lines.count // threads),), (threads,)) as (group, thread):
            tile = ib.allocate(self.dtype, (threads * apart,), "tile", scope="shared")

            def moved(first: Any, some: int, back: bool) -> None:
                """`some` elements of a thread, all of which are loaded first; those beyond the last line are the last one's, and are not written."""
                at = [first + k * threads + thread for k in range(some)]
                ours = [te.indexdiv(e, n) * apart + te.indexmod(e, n) for e in at]
                whole = [ib.let("line", group * threads + te.indexdiv(e, n)) for e in at]
                places = [lines.at(te.min(w, lines.count - 1), te.indexmod(e, n)) for w, e in zip(whole, at)]
                values = [ib.let("value", tile[o] if back else self.src[p]) for o, p in zip(ours, places)]
                for line, own, place, value in zip(whole, ours, places, values):
                    if not back:
                        tile[own] = value
                        continue
                    with loops.where(ib, lines.count % threads == 0 or line < lines.count):
                        self.dst[place] = value

            def move(back: bool) -> None:
                if n >= AHEAD:
                    with ib.for_range(0, n // AHEAD, "r") as r:
                        moved(r * (AHEAD * threads), AHEAD, back)
                moved(n // AHEAD * (AHEAD * threads), n % AHEAD, back)

            move(False)
            ib.emit(te.call_intrin("int32", "barrier"))
            own = _OfTile(self, tile, apart)
            own.write(thread, 0, n, loops.scalar(ib, self.wide, "acc", self.one))
            ib.emit(te.call_intrin("int32", "barrier"))
            move(True)

    def by_strips(self, lanes: int, vectors: int, in_registers: bool) -> None:
        """Some vectors of neighbouring lines at a time, whose sums stay in registers, or in an array. Those of a strip that would run past the last line begin earlier."""
        ib, lines, n = self.ib, self.lines, self.n
        inner, vector, wide = lines.after[-1], f"{self.dtype}x{lanes}", f"{self.wide}x{lanes}"
        width = lanes * vectors
        strips = -(-inner // width)
        around = loops.Lines((*lines.before, n, *lines.after[:-1]), len(lines.before))
        with loops.each(ib, self.target, around.count * strips, "strip") as strip:
            line = te.indexdiv(strip, strips)
            begin: Any = te.indexmod(strip, strips) * width
            # Of strips in an array the last begins earlier, as a whole.
            first: Any = ib.let("first", begin if in_registers else te.min(begin, max(0, inner - width)))
            acc = ib.allocate(self.wide, (width,), "acc", scope="local" if in_registers else "global")
            one = neutral(self.join, wide)

            def each(do: Callable[[Any], None]) -> None:
                if not in_registers:
                    with ib.for_range(0, vectors, "v") as v:
                        do(v)
                    return
                for number in range(vectors):
                    do(number)

            def down(v: Any, k: Any, rows: int, before: Any) -> Any:
                """The results of a vector in some rows, and what is ahead of the next one."""
                for r in range(rows):
                    step = k + r
                    row = around.at(line, n - 1 - step if self.back else step)
                    at = (*row, te.min(first + v * lanes, inner - lanes))
                    value = self.src.buffer.vload(at, vector)
                    after = ib.let("after", self.both(before, value if wide == vector else value.astype(wide)))
                    result = before if self.strict else after
                    ib.emit(self.dst.buffer.vstore(at, result if wide == vector else result.astype(vector)))
                    before = after
                return before

            def go_on(k: Any, rows: int, is_first: bool = False, is_last: bool = False) -> None:
                def one_vector(v: Any) -> None:
                    before = one if is_first else ib.let("before", loops.vector(acc, v * lanes, lanes))
                    after = down(v, k, rows, before)
                    if not is_last:
                        loops.put_vector(ib, acc, v * lanes, after)

                each(one_vector)

            if in_registers:
                each(lambda v: loops.put_vector(ib, acc, v * lanes, one))
                with ib.for_range(0, n, "k") as k:
                    go_on(k, 1)
            else:
                # Some rows at once: sums in a cache take a load and a store for each vector that goes by.
                rows, rest = min(n, _ROWS), n % _ROWS if n > _ROWS else 0
                go_on(0, rows, is_first=True, is_last=n == rows)
                if n >= 2 * _ROWS:
                    with ib.for_range(1, n // _ROWS, "k") as k:
                        go_on(k * _ROWS, _ROWS)
                if rest:
                    go_on(n - rest, rest, is_last=True)


class _OfTile(Scan):
    """A scan whose lines lie in shared memory, and become their sums there."""

    def __init__(self, scan: Scan, tile: BufferVar, apart: int):
        self.__dict__.update(scan.__dict__)
        self.src = self.dst = tile
        self.apart = apart

    def place(self, line: Index, k: Index) -> tuple[Any, ...]:
        return (line * self.apart + (self.n - 1 - k if self.back else k),)


def pitch(n: int, nbytes: int) -> int:
    """Elements from line to line of a tile: an odd number of words of 4 bytes where lines are whole words, so that lanes that read one element each meet in no bank."""
    word = max(1, 4 // nbytes)
    return n + (word if n % word == 0 and n // word % 2 == 0 else 0)
