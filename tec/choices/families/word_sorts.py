"""The k largest of lines on a CPU by sorts of words in vectors: no branch depends on an element, which a heap's all do.

An element and its place are one word of 64 bits, of which the greater comes first: the element's number in the order of elements (NaN above all) over the place counted from the
end, so that of equal elements the first comes first. A bitonic sort (Batcher 1968) of words takes the greater and the less of two vectors at each step. A line that is not
much longer than k is sorted whole. Of a longer one an array holds the k best so far, sorted, and behind them what has come since that is better than the last of
them; it is sorted again when it is full.
"""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import Broadcast, Expr, Shuffle
from ...ir.dtype import dtype_info
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..parts import loops
from .top_k import TopK

MOST_WORDS = 1 << 14  # that are sorted at once: half of a second cache of 256 KB
_LEAST_WORDS = 64
_ROOM = 2  # times k, or more: of an array that is sorted each time that it is full, most should be new
_RUN = 8  # elements that are asked together whether one of them is better: with more, most that are put behind the best are not
_PLACE = (1 << 31) - 1
_LAST = -(1 << 63)  # no element's word


def words_of(n: int, k: int) -> int:
    """Words that are sorted at once for the k largest of n elements."""
    most = max(_LEAST_WORDS, _ROOM * k)
    return 1 << (min(n, most) - 1).bit_length()


def can(target: Target, dtype: str, n: int, k: int) -> bool:
    """Whether words stand for the elements, and few enough are sorted at once."""
    info = dtype_info(dtype)
    return not target.is_gpu and info.bytes <= 4 and dtype != "bool" and info.lanes == 1 and n < _PLACE and words_of(n, k) <= MOST_WORDS  # fmt: skip


def steps(n: int, k: int) -> float:
    """Comparisons of vectors' elements for a line: of a first sort, and of one for each time that an array fills, as of random elements."""
    size = words_of(n, k)
    deep = size.bit_length() - 1
    return n + size * deep * (deep + 1) / 2 * (1 + (n > size))


def sorted_words(of: TopK, ib: IRBuilder, src: BufferVar, values: BufferVar, index: BufferVar) -> None:
    """A line a task."""
    n, size = of.lines.n, words_of(of.lines.n if isinstance(of.lines.n, int) else MOST_WORDS, of.k)
    with loops.each(ib, of.target, of.lines.count, "line") as line:
        words = ib.allocate("int64", (size + _RUN,), "words", scope="local")
        made = Line(of, ib, src, line, words, size)
        first = min(n, size) if isinstance(n, int) else ib.let("first", te.min(n, size))
        made.first(first)
        if not isinstance(n, int):
            with ib.if_scope(n > size):
                made.rest(size)
        elif n > size:
            made.rest(size)
        made.put(values, index)


class Line:
    """The statements for one line of which `size` words, a power of two, are sorted at once."""

    def __init__(self, of: TopK, ib: IRBuilder, src: BufferVar, line: Index, words: BufferVar, size: Index):
        self.ib, self.src, self.lines, self.kept, self.line = ib, src, of.lines, of.kept, line
        self.k, self.largest, self.words, self.size = of.k, of.largest, words, size
        lanes = of.target.vector_bytes // 8
        self.lanes = max(2, min(lanes, size // 2)) if isinstance(size, int) else lanes

    def first(self, count: Index) -> None:
        """The words of the first elements in order."""
        self.fill(count)
        self._pad(te.const(count, "int32") if isinstance(count, int) else count)
        self._sort()

    def put(self, values: BufferVar, index: BufferVar) -> None:
        """Values and places of the first k words."""
        ib = self.ib
        with ib.for_range(0, self.k, "p") as p:
            at = ib.let("at", self._place(self.words[p]))
            values[self.kept.at(self.line, p)] = self.src[self.lines.at(self.line, at)]
            index[self.kept.at(self.line, p)] = at.astype("int64")

    # ---- words

    def _word(self, v: Expr, place: Index, lanes: int) -> Expr:
        """The word of an element, or of a vector of them."""

        def each(value: Expr) -> Any:
            return Broadcast(value, lanes) if lanes > 1 else value

        def of(dtype: str) -> str:
            return f"{dtype}x{lanes}" if lanes > 1 else dtype

        info = dtype_info(v.dtype)
        if info.is_float:
            v = self.ib.let("number", v.astype(of("float32")) + each(te.const(0, "float32")))  # both zeros are one
            bits = te.call_intrin(of("int32"), "reinterpret", v)
            low = te.bitwise_and(bits >> each(te.const(31, "int32")), each(te.const(_PLACE, "int32")))
            made = te.select(v != v, each(te.const(_PLACE, "int32")), te.bitwise_xor(bits, low))
        elif info.is_signed or info.bytes < 4:
            made = v.astype(of("int32"))
        else:
            made = te.bitwise_xor(v, each(te.const(1 << 31, "uint32"))).astype(of("int32"))
        if not self.largest:
            made = te.bitwise_xor(made, each(te.const(-1, "int32")))
        high = made.astype(of("int64")) << each(te.const(32, "int64"))
        return te.bitwise_or(high, (each(te.const(_PLACE, "int32")) - place).astype(of("int64")))

    def _place(self, word: Expr) -> Any:
        return (te.const(_PLACE, "int64") - te.bitwise_and(word, te.const(_PLACE, "int64"))).astype("int32")

    def _word_at(self, j: Index) -> Expr:
        return self._word(self.ib.let("v", self.src[self.lines.at(self.line, j)]), j, 1)

    def fill(self, count: Index) -> None:
        """The words of the first elements."""
        ib, lanes = self.ib, self.lanes
        is_line = isinstance(self.lines.inner, int) and self.lines.inner == 1
        is_known = isinstance(count, int)
        whole = 0 if not is_line else count // lanes if is_known else te.indexdiv(count, lanes)
        if not is_known or whole:
            with ib.for_range(0, whole, "c") as c:
                v = ib.let("v", self.src.buffer.vload(self.lines.at(self.line, c * lanes), f"{self.src.dtype}x{lanes}"))
                loops.put_vector(ib, self.words, c * lanes, self._word(v, loops.neighbours(c * lanes, lanes), lanes))  # fmt: skip
        if not is_known or whole * lanes < count:
            with ib.for_range(whole * lanes, count, "j") as j:
                self.words[j] = self._word_at(j)

    def _pad(self, filled: Index) -> None:
        with self.ib.for_range(0, self.size - filled, "j") as j:
            self.words[filled + j] = te.const(_LAST, "int64")

    # ---- what comes behind the first sort

    def rest(self, first: int) -> None:
        """The line's other elements, from `first` on: words that come before the last of the k stand behind them, and are sorted in when there is no room
        for a run more."""
        ib, n = self.ib, self.lines.n
        filled = loops.scalar(ib, "int32", "filled", te.const(self.k, "int32"))
        last = loops.scalar(ib, "int64", "last", self.words[self.k - 1])
        bound = ib.allocate(self.src.dtype, (1,), "bound", scope="local")
        bound[0] = self.src[self.lines.at(self.line, self._place(last[0]))]

        def again() -> None:
            self._pad(ib.let("filled", filled[0]))
            self._sort()
            filled[0] = te.const(self.k, "int32")
            last[0] = self.words[self.k - 1]
            bound[0] = self.src[self.lines.at(self.line, self._place(last[0]))]

        def offer(j: Index) -> None:
            word = ib.let("word", self._word_at(j))
            self.words[filled[0]] = word
            filled[0] = filled[0] + (word > last[0]).astype("int32")

        is_known = isinstance(n, int)
        runs = (n - first) // _RUN if is_known else ib.let("runs", te.indexdiv(n - first, _RUN))
        with ib.for_range(0, runs, "run") as run:
            begin = first + run * _RUN
            with ib.if_scope(self._some(begin, bound[0])):
                with ib.for_range(0, _RUN, "r") as r:
                    offer(begin + r)
                with ib.if_scope(filled[0] > self.size - _RUN):
                    again()
        if not is_known or first + runs * _RUN < n:
            with ib.for_range(first + runs * _RUN, n, "j") as j:
                offer(j)
        with ib.if_scope(filled[0] > self.k):
            again()

    def _some(self, begin: Index, bound: Index) -> Any:
        """Whether one of a run's elements may be better than the bound: a NaN compares with nothing, and may."""
        ib = self.ib
        limit = ib.let("limit", bound)
        some = loops.scalar(ib, "int32", "some", te.const(0, "int32"))
        with ib.for_range(0, _RUN, "r") as r:
            v = self.src[self.lines.at(self.line, begin + r)]
            behind = v <= limit if self.largest else v >= limit
            some[0] = te.max(some[0], te.select(behind, te.const(0, "int32"), te.const(1, "int32")))
        return some[0] > 0

    # ---- the sort

    def _sort(self) -> None:
        """All words, the greatest first. Each vector alone; then runs of 2, 4, ... vectors: the second half is met backwards, so that all steps go the same way."""
        ib, lanes = self.ib, self.lanes
        is_known = isinstance(self.size, int)
        vectors: Any = self.size // lanes if is_known else ib.let("vectors", te.indexdiv(self.size, lanes))
        with ib.for_range(0, vectors, "c") as c:
            v = ib.let("v", loops.vector(self.words, c * lanes, lanes))
            for bit in loops.doublings(lanes):
                v = self._within(v, 2 * bit - 1, bit)
                v = self._halves(v, bit // 2)
            loops.put_vector(ib, self.words, c * lanes, v)
        deep = vectors.bit_length() - 1 if is_known else self._doublings(vectors)  # of runs, in vectors
        pairs = vectors // 2 if is_known else te.indexdiv(vectors, 2)
        with ib.for_range(0, deep, "s") as s, ib.for_range(0, s + 1, "t") as t:
            # Vectors that two of a pair are apart, or of half a run.
            half = ib.let("half", te.const(1, "int32") << (s - t))
            with ib.for_range(0, pairs, "p") as p:
                low = ib.let("low", te.bitwise_and(p, half - 1))
                run = ib.let("run", (p - low) * 2)
                with ib.if_scope(t == 0):
                    self._meet(run + low, run + 2 * half - 1 - low, is_backwards=True)
                with ib.else_scope():
                    self._meet(run + low, run + low + half, is_backwards=False)
            with ib.if_scope(t == s), ib.for_range(0, vectors, "c") as c:
                v = ib.let("v", loops.vector(self.words, c * lanes, lanes))
                loops.put_vector(ib, self.words, c * lanes, self._halves(v, lanes // 2))

    def _doublings(self, vectors: Any) -> Any:
        """Of an open power of two its exponent."""
        ib = self.ib
        deep = loops.scalar(ib, "int32", "deep", te.const(0, "int32"))
        with ib.while_loop((vectors >> deep[0]) > 1):
            deep[0] = deep[0] + 1
        return ib.let("deep", deep[0])

    def _meet(self, first: Index, second: Index, is_backwards: bool) -> None:
        """Two vectors: to the first the greater of each two words, to the second the others."""
        ib, lanes = self.ib, self.lanes
        back = tuple(range(lanes - 1, -1, -1))
        u = ib.let("u", loops.vector(self.words, first * lanes, lanes))
        v = loops.vector(self.words, second * lanes, lanes)
        v = ib.let("v", Shuffle((v,), back) if is_backwards else v)
        less = ib.let("less", te.min(u, v))
        loops.put_vector(ib, self.words, first * lanes, te.max(u, v))
        loops.put_vector(ib, self.words, second * lanes, Shuffle((less,), back) if is_backwards else less)

    def _halves(self, v: Expr, half: int) -> Any:
        """The steps within a vector from words that are `half` apart on."""
        while half:
            v = self._within(v, half, half)
            half //= 2
        return v

    def _within(self, v: Expr, mask: int, bit: int) -> Any:
        """Each word of a vector meets the one whose lane differs by `mask`; the greater comes to the lane without `bit`."""
        ib, lanes = self.ib, self.lanes
        other = ib.let("other", Shuffle((v,), tuple(j ^ mask for j in range(lanes))))
        greater, less = ib.let("greater", te.max(v, other)), ib.let("less", te.min(v, other))
        return ib.let("v", Shuffle((greater, less), tuple(j + (lanes if j & bit else 0) for j in range(lanes))))
