"""Scatters whose sizes are open, on a CPU, as loops in linear work: the elements as they were, then one update after another. Loops go over dimensions, so that no place asks
for a division by an open size."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from ... import te
from ...ir.dtype import dtype_info
from ...ops.dims import at_most
from ...ops.registry import static_shape
from ...ops.scatter import place_of
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ..parts import loops
from ..parts.counts import lanes_for
from ..space import Choice
from .scatter_atomics import combined


class OpenScatter(loops.OpenLoopForm):
    """See the module."""

    template: ClassVar[str] = "scatter of open sizes"
    kind: ClassVar[str] = "scatter"

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        (old, index, new), (dst,), axis = sources, results, self.form.attrs["axis"]
        shape, count = (loops.index_of(t.shape) for t in self.form.inputs[:2])
        copied(ib, self.target, old, dst, shape)
        lead = count if axis is not None else count[:-1]
        with ExitStack() as around:
            here = [around.enter_context(ib.for_range(0, n, "e")) for n in lead]
            if axis is None:
                depth = int(count[-1])
                place = [ib.let("place", place_of(index[(*here, d)], shape[d])) for d in range(depth)]
                inside: list[Any] = [p >= 0 for p in place]
                rest = shape[depth:]
            else:
                k = ib.let("place", place_of(index[tuple(here)], shape[axis]))
                of_index, of_data = static_shape(self.form.inputs[1]), static_shape(self.form.inputs[0])
                fits = [d == axis or at_most(a, b) for d, (a, b) in enumerate(zip(of_index, of_data))]
                inside = [k >= 0, *(a < n for a, n, fit in zip(here, shape, fits) if not fit)]
                place, rest = [*here[:axis], k, *here[axis + 1 :]], ()
            around.enter_context(loops.where(ib, *inside))
            within = [around.enter_context(ib.for_range(0, n, "b")) for n in rest]
            at = (*place, *within)
            dst[at] = combined(self.form.attrs["reduction"], dst[at], new[(*here, *within)], dst.dtype)


def copied(ib: IRBuilder, target: Target, old: BufferVar, dst: BufferVar, shape: Sequence[Any]) -> None:
    """All elements, vectors of a row at a time."""
    lanes = lanes_for(dst.dtype, target) if dtype_info(dst.dtype).bytes > 1 else 1
    *outer, n = shape or (1,)
    with ExitStack() as around:
        row = [around.enter_context(ib.for_range(0, m, "i", kind="serial" if j else "parallel")) for j, m in enumerate(outer)]  # fmt: skip
        whole = te.indexdiv(n, lanes) if lanes > 1 else 0
        if lanes > 1:
            with ib.for_range(0, whole, "c") as c:
                loops.put_vector_at(ib, dst, row, c * lanes, loops.vector_at(old, row, c * lanes, lanes))
        with ib.for_range(whole * lanes, n, "j") as j:
            at = (*row, j) if shape else ()
            dst[at] = old[at]
