"""Operands of less than 32 bits, as a GPU's vector units multiply them: in words of 32 bits, of neighbours along the sum, or widened.

A chip's dot product takes the words of two operands and adds the products of their halves (quarters) to a sum of 32 bits, in the time of one multiply-add (v_dot2_f32_f16, v_dot4_i32_i8;
RDNA 2's and Vega 20's ISA manuals). So a tile in shared memory lies along the sum, whichever way its operand lies in memory. What no dot product takes gets the type of the sums on its
way into the tile: once an element of the tile, and not once a use.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....ir.dtype import dtype_info
from ....ops.contraction import Contraction, Operand
from ....records import dataclass
from ....target import Target
from ....te import intrin


@dataclass(frozen=True)
class Words:
    """A product whose operands' tiles are of 32-bit words, `pack` elements each (1: the elements are as wide as the sums). `memory`: the product as its operands lie."""

    contraction: Contraction
    pack: int
    memory: Contraction

    @property
    def bytes(self) -> int:
        """Of a word."""
        return 4 if self.pack > 1 else dtype_info(self.contraction.acc).bytes

    @property
    def is_turned(self) -> tuple[bool, bool]:
        """Whether each operand lies along its rows (columns) in memory, and along the sum in its tile."""
        pairs = ((self.contraction.a, self.memory.a), (self.contraction.b, self.memory.b))
        a, b = (tile.k_last and not o.k_last for tile, o in pairs)
        return a, b

    def dot(self) -> Any:
        """The instruction for `pack` terms of a sum; None where a multiply-add takes one."""
        if self.pack == 1:
            return None
        dtype = self.contraction.a.dtype
        return intrin.dot2(dtype) if self.pack == 2 else intrin.dot4(dtype)


def in_words(c: Contraction, target: Target) -> Words | None:
    """The product in words of 32 bits, or of its sums' 64; None where the sums are shorter."""
    if dtype_info(c.acc).bits < 32:
        return None
    if c.a.dtype == c.b.dtype == c.acc:
        return Words(c, 1, c)
    pack = _pack(c, target)
    if pack > 1:
        return Words(replace(c, a=_along_sum(c.a), b=_along_sum(c.b)), pack, c)
    return Words(replace(c, a=_widened(c.a, c.acc), b=_widened(c.b, c.acc)), 1, c)


def _pack(c: Contraction, target: Target) -> int:
    if c.a.dtype != c.b.dtype:
        return 1
    chip = target.chip
    if c.a.dtype == "float16" and c.acc == "float32" and chip.dot2:
        return 2
    return 4 if c.a.dtype in ("int8", "uint8") and c.acc == "int32" and chip.dot4 else 1


def _along_sum(o: Operand) -> Operand:
    return o if o.k_last else replace(o, k_last=True, wide=1)


def _widened(o: Operand, dtype: str) -> Operand:
    return replace(o, at=lambda *index: o.at(*index).astype(dtype), dtype=dtype)
