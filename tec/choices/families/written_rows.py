"""Rows that are written into blocks of a pool on a GPU, as loops."""

from __future__ import annotations

import math
from typing import ClassVar

from ... import te
from ...ops.forms import Form
from ...ops.registry import static_shape
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ..cost import Footprint
from ..parts import loops
from ..space import Choice


class WrittenRows(loops.LoopForm):
    """Rows into blocks of a pool on a GPU: a work-group a row."""

    template: ClassVar[str] = "written rows"
    kind: ClassVar[str] = "write_rows"

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        return target.is_gpu  # on a CPU the definition's loops are it

    def sketch(self, choice: Choice) -> Footprint:
        """An element a thread."""
        rows = self.form.inputs[0]
        return self.chains(1, math.prod(d if isinstance(d, int) else 16 for d in static_shape(rows)))

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        (source, at), (target,) = sources, results
        blocks, heads, places, size = self.form.outputs[0].shape
        n, count = static_shape(self.form.inputs[0])[0], heads * size
        threads = min(loops.THREADS, 1 << (count - 1).bit_length())
        with loops.launch(ib, (n,), (threads,)) as (row, t):
            slot = ib.let("slot", at[row].astype("int32"))
            inside = te.all(slot >= 0, slot < blocks * places)
            with ib.if_scope(inside), ib.for_range(0, -(-count // threads), "r") as r:
                e = r * threads + t
                with ib.if_scope(e < count):
                    head, d = te.indexdiv(e, size), te.indexmod(e, size)
                    target[te.indexdiv(slot, places), head, te.indexmod(slot, places), d] = source[row, head, d]
