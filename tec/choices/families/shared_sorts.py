"""The k largest of a line by a work-group that sorts all of it in shared memory: one kernel, where a sort of all lines together is one for each step.

An element and its place are one word, as lanes sort them (`selection`): of 32 bits where both are short. What fills a line up to a power of two is 0, no element's word.
"""

from __future__ import annotations

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


def size_of(of: TopK) -> int:
    """Words of a line."""
    return 1 << (of.lines.n - 1).bit_length()


def word_bytes(of: TopK) -> int:
    return 4 if dtype_info(of.dtype).bytes <= 2 and of.lines.n < 1 << 16 else 8


def threads_of(of: TopK) -> int:
    """One for a pair that is compared, or for some."""
    return max(1, min(_THREADS, of.target.max_threads, size_of(of) // 2))


def steps_of(of: TopK) -> int:
    """Of a bitonic sort (Batcher 1968), between which threads wait for each other."""
    deep = size_of(of).bit_length() - 1
    return deep * (deep + 1) // 2


def can(of: TopK) -> bool:
    """Whether words stand for the elements, and shared memory holds a line of them."""
    info = dtype_info(of.dtype)
    fits = size_of(of) * word_bytes(of) <= MOST_BYTES
    return of.target.is_gpu and info.bytes <= 4 and of.dtype != "bool" and of.lines.n > 1 and fits


def sorted_by_groups(of: TopK, ib: IRBuilder, src: BufferVar, values: BufferVar, index: BufferVar) -> None:
    """Runs are doubled until one is the line; each step compares words that are `apart` from each other, the greater first in every other run and in the last."""
    lines, n, threads, size = of.lines, of.lines.n, threads_of(of), size_of(of)
    word = f"uint{8 * word_bytes(of)}"
    half = 8 * word_bytes(of) // 2
    last = (1 << (half - (half == 32))) - 1  # place of a word of 0

    def made(value: Expr, at: Index) -> Expr:
        bits = short_key(value, of.largest) if half == 16 else key(value, of.largest)
        return te.bitwise_or(bits.astype(word) << te.const(half, word), (te.const(last, "int32") - at).astype(word))

    with loops.launch(ib, (lines.count,), (threads,)) as (line, t):
        words = ib.allocate(word, (size,), "words", scope="shared")
        for begin in range(0, size, threads):
            at = ib.let("at", te.min(t + begin, n - 1))
            element = made(src[lines.at(line, at)], at)
            words[t + begin] = te.select(t + begin < n, element, te.const(0, word))
        with ib.for_range(0, size.bit_length() - 1, "run") as run, ib.for_range(0, run + 1, "step") as step:
            apart = ib.let("apart", te.const(1, "int32") << (run - step))
            pairs = []
            for begin in range(0, size // 2, threads):
                low = te.bitwise_and(t + begin, apart - 1)
                a = ib.let("a", (t + begin - low) * 2 + low)
                pairs.append((a, ib.let("u", words[a]), ib.let("v", words[a + apart])))
            for a, u, v in pairs:
                is_up = te.bitwise_and(a >> (run + 1), 1) == 0
                first, second = te.max(u, v), te.min(u, v)
                words[a] = te.select(is_up, first, second)
                words[a + apart] = te.select(is_up, second, first)
        for begin in range(0, of.k, threads):
            with loops.where(ib, *[t + begin < of.k] * (begin + threads > of.k)):
                place = te.bitwise_and(words[t + begin], te.const(last, word)).astype("int32")
                at = ib.let("at", te.const(last, "int32") - place)
                to = of.kept.at(line, t + begin)
                values[to] = src[lines.at(line, at)]
                index[to] = at.astype("int64")
