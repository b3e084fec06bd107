"""The largest elements of lines of open length in order, on a CPU, by what lines of known length have: lists of the few, heaps, sorts of words.

What is sorted whole as words is so by a bitonic sort of a size found at run time, or, of a long line, digit by digit, each step a count of the words with each digit and a move
of all to their places, which keeps the order of equal ones (Knuth, The Art of Computer Programming 3, 5.2.5). Tasks have some lines each, so that words have their memory once.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ... import te
from ...ir.dtype import dtype_info
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..parts import loops
from ..space import Choice
from . import heaps, insertions, word_sorts
from .top_k import TopK

_TASKS = 64  # that lines are dealt to: some for each core
_LONG = 1 << 11  # elements of a line from which on digits are quicker
_DIGIT = 8  # bits: their counts lie in the first cache
_MOST_LEFT = 4  # times k that a line may be, so that it is worth sorting all of it
_STEPS = 32 // _DIGIT
MOVES = _STEPS + 2  # of a word in all: to its counts and from them too
_KEY = 32  # bits of a word below its key


class OpenLargest(loops.OpenLoopForm):
    """See the module."""

    template: ClassVar[str] = "largest of open lines"
    kind: ClassVar[str] = "topk"

    def read_form(self) -> None:
        self.of = TopK.of(self.form, self.target)

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        of, (src,) = self.of, sources
        n, k = of.lines.n, of.k
        if isinstance(k, int) and insertions.can(self.target, of.dtype, k):
            insertions.inserted(of, ib, src, *results)
        elif isinstance(k, int) and word_sorts.can(
            self.target, of.dtype, n if isinstance(n, int) else word_sorts.MOST_WORDS, k
        ):
            word_sorts.sorted_words(of, ib, src, *results)
        elif can(of.dtype):
            sorted_lines(of, ib, src, *results)
        else:
            heaps.heaped(of, ib, src, *results)


def can(dtype: str) -> bool:
    """Whether words stand for the elements."""
    info = dtype_info(dtype)
    return info.bytes <= 4 and dtype != "bool" and info.lanes == 1


def are_quicker(n: int, k: int) -> bool:
    """Whether lines of known length are better sorted so than the k best of them are kept in order."""
    return n >= _LONG and _MOST_LEFT * k >= n


def sorted_lines(of: TopK, ib: IRBuilder, src: BufferVar, values: BufferVar, index: BufferVar) -> None:
    """Whole lines in order, and the first k of them."""
    n, count = of.lines.n, of.lines.count
    lanes = of.target.vector_bytes // 8
    room = loops.scalar(ib, "int32", "room", te.const(2 * lanes, "int32"))
    with ib.while_loop(room[0] < te.min(n, _LONG)):
        room[0] = room[0] * 2
    size = ib.let("size", te.max(room[0], n))  # a power of two for what no digits sort
    tasks = ib.let("tasks", te.min(count, _TASKS))
    with loops.each(ib, of.target, tasks, "task") as task:
        words = ib.allocate("int64", (size,), "words")
        is_long = te.const(n, "int32") >= _LONG if isinstance(n, int) else n >= _LONG
        other = ib.allocate("int64", (te.if_then_else(is_long, size, 1),), "other")
        begin, end = (te.indexdiv(t.astype("int64") * count, tasks).astype("int32") for t in (task, task + 1))
        with ib.for_range(begin, end, "line") as line:
            made = word_sorts.Line(of, ib, src, line, words, size)
            with ib.if_scope(is_long):
                made.fill(n)
                _by_digits(ib, words, other, n)
            with ib.else_scope():
                made.first(n)
            made.put(values, index)


def _by_digits(ib: IRBuilder, words: BufferVar, other: BufferVar, n: Index) -> None:
    """`n` words with the greatest key first, of equal keys in the order in which they stand."""
    digits = 1 << _DIGIT
    counts = ib.allocate("int32", (_STEPS * digits,), "counts")
    with ib.for_range(0, _STEPS * digits, "d") as d:
        counts[d] = te.const(0, "int32")

    def digit(word: Any, step: Any) -> Any:
        """Of a word, so that what comes first has the least: the last digit has the sign."""
        number = (word >> (te.const(_KEY, "int64") + (step * _DIGIT).astype("int64"))).astype("int32")
        flip = te.select(step == _STEPS - 1, te.const(digits // 2 - 1, "int32"), te.const(digits - 1, "int32"))
        return te.bitwise_xor(te.bitwise_and(number, te.const(digits - 1, "int32")), flip)

    with ib.for_range(0, n, "j") as j:
        word = ib.let("word", words[j])
        for number in range(_STEPS):
            at = ib.let("at", digit(word, te.const(number, "int32")) + number * digits)
            counts[at] = counts[at] + 1
    ahead = ib.allocate("int32", (1,), "ahead", scope="local")
    with ib.for_range(0, _STEPS, "step") as step:
        ahead[0] = te.const(0, "int32")
        with ib.for_range(0, digits, "d") as d:
            own = ib.let("own", counts[step * digits + d])
            counts[step * digits + d] = ahead[0]
            ahead[0] = ahead[0] + own

    def moved(source: BufferVar, to: BufferVar, step: Any) -> None:
        with ib.for_range(0, n, "j") as j:
            word = ib.let("word", source[j])
            own = ib.let("own", digit(word, step) + step * digits)
            place = ib.let("place", counts[own])
            to[place] = word
            counts[own] = place + 1

    with ib.for_range(0, _STEPS // 2, "pair") as pair:
        moved(words, other, pair * 2)
        moved(other, words, pair * 2 + 1)
