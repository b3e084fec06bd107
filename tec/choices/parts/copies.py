"""Operands that are copied ahead of a product: rows that begin anywhere, in memory of their own where each begins at a multiple of 16 bytes, and weights of few bits, as numbers.

A tile's copies in the background bring 16 bytes at once from such rows, where rows of an odd number of 16-bit elements come one by one through registers. The copy is a kernel of
its own; what lies behind the end of a row in it is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ... import te
from ...ir.dtype import dtype_info
from ...ops.contraction import Contraction, Operand, piece_elems
from ...ops.dims import is_symbolic, round_up
from ...ops.typical import typical
from ...schedule import Schedule
from ...target.machines import Machine
from ...te import ComputeOp, Tensor
from . import padding, split_k
from .threads import bind_all

SIDES = ("", "a", "b", "ab")  # which operands of a product are copied
_PIECE_BYTES = 16
# Of weights of few bits as numbers: what a last cache keeps for the product. Who packs large ones has no memory for them as numbers.
_MOST_UNPACKED = 1 << 24
_SINGLES_BYTES = 8  # that a thread stores of elements that it loads one by one: with more, a wavefront's load touches as many lines again


def may_copy(c: Contraction, o: Operand) -> bool:
    """Whether a copy lies better than an operand, or has the numbers that its codes stand for: no windows, whose elements it has several times, and known sizes."""
    sized = not is_symbolic((*c.batch, c.m, c.n, c.k))
    if not sized or o.guarded:
        return False
    size = dtype_info(o.dtype).bytes
    is_small = o.unpacked and math.prod((*c.batch, *_extents(c, o))) * size <= _MOST_UNPACKED
    return is_small or padding.run(c, o) * size < _PIECE_BYTES


def options(c: Contraction) -> tuple[str, ...]:
    """The choices among `SIDES` that a product has."""
    able = {name for name, o in (("a", c.a), ("b", c.b)) if may_copy(c, o)}
    return tuple(side for side in SIDES if able.issuperset(side))


def copied(c: Contraction, sides: str) -> tuple[Contraction, list[Tensor]]:
    """The product that reads copies of some operands, and the copies."""
    made = list[Tensor]()

    def side(name: str, o: Operand) -> Operand:
        if name not in sides:
            return o
        lines, row = _extents(c, o)
        pitch, run = round_up(row, piece_elems(o.dtype)), padding.run(c, o)

        def element(*at: Any) -> Any:
            # Behind a row's end its last elements are read again: loads under conditions would wait for each other.
            *batch, line, place = at
            inner = te.min(place // run, row // run - 1) * run + place % run
            value = o.at(batch, *((line, inner) if o.k_last else (inner, line)))
            return te.select(place < row, value, te.const(0, o.dtype))

        copy = te.compute((*c.batch, lines, pitch), element, name=f"aligned_{name}", attrs={"run": run})
        made.append(copy)
        return replace(
            o, at=lambda b, i, k: copy(*b, *((i, k) if o.k_last else (k, i))), wide=piece_elems(o.dtype), pitch=pitch
        )

    return replace(c, a=side("a", c.a), b=side("b", c.b)), made


def _extents(c: Contraction, o: Operand) -> tuple[int, int]:
    """Of an operand of known sizes: how many lines it has in memory, and the elements of one."""
    rows = c.m if o is c.a else c.n
    assert isinstance(rows, int) and isinstance(c.k, int)
    return (rows, c.k) if o.k_last else (c.k, rows)


def schedule(s: Schedule, copies: Sequence[Tensor]) -> None:
    """A kernel for each copy: a thread has what one load brings of a row, and where that is a single element some neighbours."""
    for copy in copies:
        assert isinstance(copy.op, ComputeOp)
        run = copy.op.attrs["run"] * dtype_info(copy.dtype).bytes
        bind_all(s, copy.op, vector=run if copy.op.attrs["run"] > 1 else _SINGLES_BYTES)


def seconds(c: Contraction, sides: str, machine: Machine) -> float:
    """What making the copies takes: each is read and written once, and is a kernel more."""
    gbps = machine.reached_gbps
    total = 0.0
    for name, o in (("a", c.a), ("b", c.b)):
        if name in sides:
            elements = typical(math.prod((*c.batch, *_extents(c, o))))
            total += split_k.KERNEL_US * 1e-6 + 2 * elements * dtype_info(o.dtype).bytes / (gbps * 1e9)
    return total
