"""Rounding to a microscaling format (`tec.ops.microscaling`) on a GPU: one kernel, a block of 32 a thread, which is in registers from its loads to its stores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any, ClassVar

from .... import te
from ....ir.microscaling import BIAS, BLOCK, NO_SCALE, format_of
from ....ops.microscaling import code_of, exponent_of, magnitude, power
from ....target import Target
from ....te import Tensor
from ....te.ir_builder import BufferVar, IRBuilder
from ...cost import Footprint
from ...group import Group
from ...parts import loops
from ...space import Choice

_PIECE = 8  # elements that a thread loads at once, and bytes that it stores


def match(group: Group, target: Target) -> Iterator[loops.LoopForm]:
    """The space of a group that makes elements and scales of a matrix of known size."""
    found = group.form("mx_quantize")
    if found is not None and target.is_gpu and loops.fits(found[0]):
        yield Blocks(group, target, *found)


class Blocks(loops.LoopForm):
    """There is one way."""

    template: ClassVar[str] = "microscaling blocks"
    parameters: ClassVar[dict[str, tuple[Any, ...]]] = {}  # type: ignore[misc]

    @property
    def default(self) -> Choice:
        return self.choice()

    def sketch(self, choice: Choice) -> Footprint:
        x = self.form.inputs[0]
        return self.chains(BLOCK, int(x.shape[0].value) * int(x.shape[1].value) / BLOCK)

    def tensors(self, choice: Choice) -> list[Tensor]:
        f, (x,) = format_of(self.form.attrs["format"]), self.form.inputs
        elements, scales = self.form.outputs
        rows, blocks = (int(n) for n in scales.shape)
        stored = f.stored(BLOCK)

        def body(ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
            """A block a thread: its largest magnitude makes the scale, by which its elements become codes."""
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

        return loops.extern("mx_blocks", [x], [(elements.shape, "uint8"), (scales.shape, "uint8")], body)


__all__ = ["Blocks", "match"]
