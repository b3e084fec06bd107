"""Rounding to a microscaling format (`tec.ops.microscaling`) on a GPU: one kernel, a block of 32 a thread, which is in registers from its loads to its stores."""

from __future__ import annotations

from functools import reduce
from typing import ClassVar

from .... import te
from ....ir.microscaling import BIAS, BLOCK, NO_SCALE, format_of
from ....ops.forms import Form
from ....ops.microscaling import code_of, exponent_of, magnitude, power
from ....target import Target
from ....te.ir_builder import BufferVar, IRBuilder
from ...cost import Footprint
from ...parts import loops
from ...space import Choice

_PIECE = 8  # elements that a thread loads at once, and bytes that it stores


class Blocks(loops.LoopForm):
    """Elements and scales of a matrix of known size. There is one way."""

    template: ClassVar[str] = "microscaling blocks"
    kind: ClassVar[str] = "mx_quantize"
    stage = "mx_blocks"

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        return target.is_gpu and loops.fits(form)

    def sketch(self, choice: Choice) -> Footprint:
        x = self.form.inputs[0]
        return self.chains(BLOCK, int(x.shape[0].value) * int(x.shape[1].value) / BLOCK)

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        """A block a thread: its largest magnitude makes the scale, by which its elements become codes."""
        f = format_of(self.form.attrs["format"])
        rows, blocks = (int(n) for n in self.form.outputs[1].shape)
        stored = f.stored(BLOCK)
        with loops.each(ib, self.target, rows * blocks, "block") as e:
            row, block = ib.let("row", te.indexdiv(e, blocks)), ib.let("block", te.indexmod(e, blocks))
            held = ib.allocate("float32", (BLOCK,), "held", scope="local")
            for first in range(0, BLOCK, _PIECE):
                loaded = loops.vector_at(sources[0], (row,), block * BLOCK + first, _PIECE)
                loops.put_vector(ib, held, first, loaded.astype(f"float32x{_PIECE}"))
            top = reduce(te.max, [magnitude(held[i]) for i in range(BLOCK)])
            own = ib.let("own", exponent_of(top, f))
            results[1][row, block] = own.astype("uint8")
            inverse = ib.let("inverse", power(te.max(2 * BIAS - own, 0)))
            codes = ib.allocate("int32", (BLOCK,), "codes", scope="local")
            for i in range(BLOCK):
                codes[i] = te.select(own == NO_SCALE, 0, code_of(held[i] * inverse, f))
            made = ib.allocate("uint8", (stored,), "made", scope="local")
            for p in range(stored):
                first = p * 8 // f.bits
                bits = codes[first] >> (p * 8 - first * f.bits)
                for k in range(first + 1, min(BLOCK, -(-(p + 1) * 8 // f.bits))):
                    bits = bits | (codes[k] << (k * f.bits - p * 8))
                made[p] = bits.astype("uint8")
            for p in range(0, stored, _PIECE):
                loops.put_vector_at(ib, results[0], (row,), block * stored + p, loops.vector(made, p, _PIECE))
