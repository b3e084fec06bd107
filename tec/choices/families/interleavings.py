"""Transposes on a CPU whose result has lines of two or three elements: as many vectors of the operand's lines are put together element by element, and stored side by side.

Squares (`squares`) take lines of four elements or more. Axes that follow one another in the operand as in the result are one axis.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from ... import te
from ...ir import Expr, Shuffle, TensorRead
from ...target import Target
from ...te import ComputeOp, Tensor
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from .. import parallel
from ..cost import Footprint, on_cores
from ..group import Group, const_shape
from ..parts import loops
from ..parts.counts import lanes_for, moved_bytes
from ..parts.digits import split_index
from ..parts.pointwise import begin_cpu
from ..space import Choice, Scheduled, Space

_LINE = (2, 3)  # elements of a line of the result
_STRIP = 16  # vectors of each of the operand's lines that a task has


class Interleaving(Space):
    """Strips of the operand's lines, over threads."""

    template: ClassVar[str] = "cpu interleaving"

    @classmethod
    def match(cls, group: Group, target: Target) -> Self | None:
        """The space of a group that is one such transpose of a tensor in memory."""
        if target.is_gpu or len(group.ops) != 1 or len(group.outputs) != 1:
            return None
        (op,) = group.ops
        read = op.body[0] if isinstance(op, ComputeOp) and len(op.body) == 1 else None
        if not isinstance(op, ComputeOp) or op.reduce_axis or not isinstance(read, TensorRead) or len(op.axis) < 2:
            return None
        shape, own = const_shape(op.output(0)), [a.var for a in op.axis]
        order = [next((k for k, v in enumerate(own) if i is v), None) for i in read.indices]
        # All axes of the result once, and the operand's last one elsewhere than last.
        if None in (*shape, *order) or sorted(k or 0 for k in order) != list(range(len(own))) or shape[-1] not in _LINE:
            return None
        laid = tuple(shape[k or 0] for k in order)
        if read.tensor.dtype != op.output(0).dtype or order[-1] != len(own) - 2 or const_shape(read.tensor) != laid:
            return None
        space = cls(group, target, read.tensor, [k or 0 for k in order])
        return space if space.along >= space.lanes else None

    def __init__(self, group: Group, target: Target, source: Tensor, order: list[int]):
        super().__init__(group, target)
        self.source, self.order = source, order
        self.out = group.outputs[0]
        self.shape = [n or 1 for n in const_shape(self.out)]
        self.lanes = lanes_for(source.dtype, target)
        count = 1  # of the axes that make one along the operand's lines
        while count < len(order) - 1 and order[-1 - count] == order[-count] - 1:
            count += 1
        last = len(order) - 1
        self.outer, self.inner = self.shape[: last - count], self.shape[last - count : last]
        self.along = math.prod(self.inner)

    def sketch(self, choice: Choice) -> Footprint:
        elements = math.prod(self.shape)
        return on_cores(elements * parallel.POINTWISE, moved_bytes(self.group), parallel.worth(elements))

    def build(self, choice: Choice) -> Scheduled:
        tensors = loops.extern("interleaved", [self.source], [(self.shape, self.out.dtype)], self._body)
        return Scheduled(begin_cpu(Group.of(tensors), self.target), tensors, choice)

    def _body(self, ib: IRBuilder, sources: list[Any], results: list[Any]) -> None:
        line, lanes = self.shape[-1], self.lanes
        width = lanes * min(_STRIP, -(-self.along // lanes))
        strips = -(-self.along // width)
        with loops.each(ib, self.target, math.prod(self.outer) * strips, "strip") as strip:
            outer = split_index(te.indexdiv(strip, strips), self.outer) if self.outer else []
            begin = ib.let("begin", te.indexmod(strip, strips) * width)
            with ib.for_range(0, width // lanes, "v") as v:
                # The last vector of a line begins earlier.
                at = ib.let("at", te.min(begin + v * lanes, self.along - lanes))
                parts = [ib.let("part", self._load(sources[0], outer, at, j)) for j in range(line)]
                for r in range(line):
                    picked = tuple((e % line) * lanes + e // line for e in range(r * lanes, (r + 1) * lanes))
                    place = split_index(at + r * lanes // line, self.inner)
                    value = Shuffle(tuple(parts), picked)
                    ib.emit(results[0].buffer.vstore((*outer, *place, r * lanes % line), value))

    def _load(self, source: BufferVar, outer: list[Any], at: Index, j: int) -> Expr:
        """A vector of the operand's line number j."""
        index = [*outer, *split_index(at, self.inner), j]
        return source.buffer.vload(tuple(index[k] for k in self.order), f"{self.source.dtype}x{self.lanes}")
