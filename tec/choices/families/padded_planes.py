"""Windows over plain padded images (poolings) on a CPU: a plane gets its padding first, which stays near, and its windows are vectors of neighbours without a mask.

Vectors along a row would else ask each lane of each tap whether it lies in the image, and gather what does.
"""

from __future__ import annotations

from typing import ClassVar

from ...target import Target
from ...te import ComputeOp
from .. import parallel
from ..cost import Footprint, on_cores
from ..group import Group, const_shape, extent_of, same_shape, size_of
from ..parts.counts import lanes_for, moved_bytes, work
from ..parts.pointwise import LEAST_ROW, begin_cpu
from ..space import Choice, Scheduled, Space

_LEAD = 2  # axes of images and channels
_WRITTEN = 32  # taps and vectors of a body that is written out
_WORTH = 1.5  # elements that windows see, over those that are copied


class PaddedPlanes(Space):
    """Each plane by itself, `vectors` of a row at once."""

    template: ClassVar[str] = "cpu padded planes"

    def __init__(self, group: Group, target: Target, pad: ComputeOp, red: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.pad, self.red, self.out = pad, red, out
        self.parameters = {"vectors": (1, 2, 4), "parallel": (True, False)}

    @classmethod
    def match(cls, group: Group, target: Target) -> PaddedPlanes | None:
        """Of one reduction of windows along all axes but those of images and channels, the last of which is padded."""
        found = None if target.is_gpu else group.ended_sum()
        if found is None or found[0].tag != "pool" or found[0].num_outputs > 1 or len(group.outputs) != 1:
            return None
        red, out = found
        pads = [op for op in group.ops if isinstance(op, ComputeOp) and op.tag == "pad"]
        shape, axes = const_shape(red.output(0)), len(red.axis)
        if len(pads) != 1 or None in shape or axes - _LEAD != len(red.reduce_axis) or (shape[-1] or 0) < LEAST_ROW:
            return None
        (pad,) = pads
        image, whole = [const_shape(t) for t in pad.inputs], const_shape(pad.output(0))
        if (
            len(image) != 1
            or len(whole) != axes
            or image[0][-1] == whole[-1]
            or not same_shape(out.output(0), red.output(0))
        ):
            return None
        if group.consumers[pad] != [red] or work(red) < _WORTH * (size_of(whole) or 0):
            return None
        return cls(group, target, pad, red, out)

    @property
    def default(self) -> Choice:
        return self.choice(vectors=1, parallel=parallel.worth(work(self.red) * parallel.POINTWISE))

    def sketch(self, choice: Choice) -> Footprint:
        return on_cores(work(self.red) * parallel.POINTWISE, moved_bytes(self.group), choice["parallel"])

    def _lanes(self) -> int:
        """Of a vector: a register's, or the largest part of one, by halves, that a row fills."""
        n = const_shape(self.red.output(0))[-1] or 1
        return min(lanes_for(self.red.output(0).dtype, self.target), 1 << (n.bit_length() - 1))

    def build(self, choice: Choice) -> Scheduled:
        s, out, red = begin_cpu(self.group, self.target, keep=[self.pad]), self.out, self.red
        sums = s.cache_write(out.output(0), "local") if out is red else red.output(0)
        final, own, lanes = s[out.output(0)], s[sums], self._lanes()
        own.set_scope("local")
        *lead, row = final.op.axis
        plane = final.fuse(*lead[:_LEAD])
        if choice["parallel"]:
            final.parallel(plane)
        many = lanes * min(choice["vectors"], max(1, (const_shape(red.output(0))[-1] or 1) // lanes))
        outer, vec = final.split(row, factor=many, shift_inwards=True)
        final.vectorize(vec)
        own.compute_at(final, outer)
        vectors, vec = own.split(own.op.axis[-1], factor=lanes)
        own.reorder(*own.op.axis[:-1], *own.op.reduce_axis, vectors, vec)
        own.vectorize(vec)
        own.unroll(vectors)
        written = many // lanes
        for axis in reversed(own.op.reduce_axis):
            written *= extent_of(axis) or _WRITTEN
            if written > _WRITTEN:
                break
            own.unroll(axis)
        s[self.pad].compute_at(final, plane)
        return Scheduled(s, self.group.outputs, choice)
