"""Scatters that replace single elements of many places: an atomic maximum of number and value in one word finds both, and all goes through memory in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import te
from ...ir.dtype import dtype_info
from ...te.ir_builder import BufferVar, IRBuilder
from ..parts import loops
from ..parts.digits import split_index

if TYPE_CHECKING:
    from .scatters import Updates

_WORD_BITS = 32  # of a value, and of an update's number, in a word of both


def by_words(of: Updates, ib: IRBuilder, old: BufferVar, at: BufferVar, new: BufferVar, dst: BufferVar) -> None:
    """Words of 0; each update's number, from 1 on, above its value, of which a place keeps the largest; then each place by its word."""
    shape, size = tuple(of.places), dtype_info(dst.dtype).bytes
    words = ib.allocate("int64", (of.total,), "words")
    run = of.vector_of(dst.dtype, shape)
    bits = f"int{8 * size}"
    with loops.each(ib, of.target, of.total) as t:
        words[t] = te.const(0, "int64")
    with loops.each(ib, of.target, of.count) as e:
        inside, place, source = of.one(at, e)
        with ib.if_scope(inside):
            value = te.call_intrin(bits, "reinterpret", new[tuple(source)])
            value = value.astype(f"u{bits}").astype("int64")
            word = (e + 1).astype("int64") * (1 << _WORD_BITS) + value
            ib.emit(te.call_intrin("int64", "atomic_max", words[of.flat(place)], word))
    with loops.each(ib, of.target, of.total // run) as t:
        here = split_index(t * run, shape)
        made = ib.allocate(dst.dtype, (run,), "made", scope="local")
        if run > 1:
            loops.put_vector(ib, made, 0, of.values(old, here, run))
        else:
            made[0] = old[tuple(here)]
        for k in range(run):
            word = ib.let("word", words[t * run + k])
            with ib.if_scope(word > 0):
                made[k] = te.call_intrin(dst.dtype, "reinterpret", word.astype(bits))
        of.put(ib, dst, here, run, loops.vector(made, 0, run) if run > 1 else made[0])
