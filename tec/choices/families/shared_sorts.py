"""The k largest of a line by a work-group that sorts all of it in shared memory: one kernel, where a sort of all lines together is one for each step.

An element and its place are one word, as lanes sort them (`selection`): of 32 bits where both are short. What fills a line up to a power of two is 0, no element's word.
A thread has all words whose places differ in a few digits alone, and does so many steps of the sort in registers before words go back and others come: with one pair at a time
each step wrote all words and waited twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ... import te
from ...ir import Expr
from ...ir.dtype import dtype_info
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..parts import loops
from .selection_keys import key, short_key
from .top_k import TopK

MOST_BYTES = 32768  # of words: any GPU's shared memory has room for one such line
_THREADS = 512  # of a work-group: a unit holds several, which wait for barriers in turn
_MOST_DIGITS = 4  # 16 words of 64 bits are 32 registers
_PAD = 4  # a word more behind every 16: threads that each have 16 neighbours read different banks


def size_of(of: TopK) -> int:
    """Words of a line."""
    return 1 << (int(of.lines.n) - 1).bit_length()


def word_bytes(of: TopK) -> int:
    return 4 if dtype_info(of.dtype).bytes <= 2 and of.lines.n < 1 << 16 else 8


def digits_of(of: TopK) -> int:
    """Binary digits of a place in which a thread's words differ: fewer where a wavefront would not be full."""
    deep = size_of(of).bit_length() - 1
    lanes = of.target.wavefront_size.bit_length() - 1
    most = min(_THREADS, of.target.max_threads).bit_length() - 1
    return max(1, min(_MOST_DIGITS, deep - lanes), deep - most)


def threads_of(of: TopK) -> int:
    return size_of(of) >> digits_of(of)


def shared_bytes(of: TopK) -> int:
    return int(_padded(size_of(of))) * word_bytes(of)


def passes_of(of: TopK) -> tuple[int, int]:
    """(how often words are read and written, the steps between) of a bitonic sort (Batcher 1968)."""
    deep, digits = size_of(of).bit_length() - 1, digits_of(of)
    return 1 + sum(-(-(run + 1) // digits) for run in range(digits, deep)), deep * (deep + 1) // 2


def _padded(place: Any) -> Any:
    return place + (place >> _PAD)


def can(of: TopK) -> bool:
    """Whether words stand for the elements, and shared memory holds a line of them."""
    info = dtype_info(of.dtype)
    fits = size_of(of) * word_bytes(of) <= MOST_BYTES
    return of.target.is_gpu and info.bytes <= 4 and of.dtype != "bool" and of.lines.n > 1 and fits


def sorted_by_groups(of: TopK, ib: IRBuilder, src: BufferVar, values: BufferVar, index: BufferVar) -> None:
    lines, n, threads, size = of.lines, of.lines.n, threads_of(of), size_of(of)
    word = f"uint{8 * word_bytes(of)}"
    half = 8 * word_bytes(of) // 2
    last = (1 << (half - (half == 32))) - 1  # place of a word of 0

    def made(value: Expr, at: Index) -> Expr:
        bits = short_key(value, of.largest) if half == 16 else key(value, of.largest)
        return te.bitwise_or(bits.astype(word) << te.const(half, word), (te.const(last, "int32") - at).astype(word))

    with loops.launch(ib, (lines.count,), (threads,)) as (line, t):
        words = ib.allocate(word, (_padded(size),), "words", scope="shared")
        for begin in range(0, size, threads):
            at = ib.let("at", te.min(t + begin, n - 1))
            element = made(src[lines.at(line, at)], at)
            words[_padded(t + begin)] = te.select(t + begin < n, element, te.const(0, word))
        _Sort(ib, words, t, size.bit_length() - 1, digits_of(of)).run()
        for begin in range(0, of.k, threads):
            with loops.where(ib, *[t + begin < of.k] * (begin + threads > of.k)):
                place = te.bitwise_and(words[_padded(t + begin)], te.const(last, word)).astype("int32")
                at = ib.let("at", te.const(last, "int32") - place)
                to = of.kept.at(line, t + begin)
                values[to] = src[lines.at(line, at)]
                index[to] = at.astype("int64")


class _Sort:
    """Runs are doubled until one is the line; a step compares words whose places differ in one digit, the greater first in every other run and in the last.

    deep: digits of a place; digits: those of a thread's words.
    """

    def __init__(self, ib: IRBuilder, words: BufferVar, t: Expr, deep: int, digits: int):
        self.ib, self.words, self.t, self.deep, self.digits = ib, words, t, deep, digits

    def run(self) -> None:
        """The runs of a thread's neighbours first; then of each run the steps of its upper digits, of the next ones, and so on."""
        with self._words_apart(0) as (base, kept):
            for run in range(self.digits):
                for step in reversed(range(run + 1)):
                    for j in self._firsts(step):
                        is_inside = run + 1 < self.digits
                        down = bool(j >> (run + 1) & 1) if is_inside else self._is_down(base, run)
                        self._exchange(kept, j, step, down)
        tops = range(self.deep, 0, -self.digits)
        passes = [(max(0, top - self.digits), top) for top in tops]
        for k, (low, top) in reversed([*enumerate(passes)]):
            first = max(self.digits, low)
            if first >= top:
                continue
            with self.ib.for_range(first, top, "run") as number:
                self._upper(low, top, first, number)
                for low_, top_ in passes[k + 1 :]:
                    with self._words_apart(low_) as (base, kept):
                        down = self._is_down(base, number)
                        for step in reversed(range(top_ - low_)):
                            for j in self._firsts(step):
                                self._exchange(kept, j, step, down)

    def _upper(self, low: int, top: int, first: int, run: Expr) -> None:
        """The steps of a run's upper digits, which are those from `low` up to the run's own; the digit that says which way the run goes may be among them."""
        with self._words_apart(low) as (base, kept):
            down = [self._is_down(base + (j << low), run) for j in range(1 << self.digits)]
            for step in reversed(range(low, top)):
                with loops.where(self.ib, *[run >= step] * (step > first)):
                    for j in self._firsts(step - low):
                        self._exchange(kept, j, step - low, down[j])

    def _is_down(self, place: Index, run: Index) -> Expr:
        return self.ib.let("is_down", te.bitwise_and(place >> (run + 1), 1) == 1)

    def _firsts(self, step: int) -> list[int]:
        return [j for j in range(1 << self.digits) if not j >> step & 1]

    @contextmanager
    def _words_apart(self, low: int) -> Iterator[tuple[Expr, BufferVar]]:
        """A thread's words, whose places differ in the digits from `low` on, in registers; and the place of the first. They go back at the end."""
        ib, t, words = self.ib, self.t, self.words
        base = ib.let("base", ((t >> low) << (low + self.digits)) + te.bitwise_and(t, (1 << low) - 1))
        begin = ib.let("begin", _padded(base))
        kept = ib.allocate(words.dtype, (1 << self.digits,), "kept", scope="local")
        for j in range(1 << self.digits):
            kept[j] = words[begin + _padded(j << low)]
        yield base, kept
        for j in range(1 << self.digits):
            words[begin + _padded(j << low)] = kept[j]

    def _exchange(self, kept: BufferVar, j: int, step: int, down: Expr | bool) -> None:
        """The greater of two words to the first place, or to the second where the run goes down."""
        u, v = self.ib.let("u", kept[j]), self.ib.let("v", kept[j | 1 << step])
        if isinstance(down, bool):
            is_changed = u > v if down else u < v
        else:
            is_changed = (u < v) != down
        is_changed = self.ib.let("is_changed", is_changed)
        kept[j], kept[j | 1 << step] = te.select(is_changed, v, u), te.select(is_changed, u, v)
