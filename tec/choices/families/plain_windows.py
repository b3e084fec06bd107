"""Windows over plain images (NCHW, NCL) of each channel by itself (poolings, and depthwise convolutions with their weights), on GPUs: a thread has a tile of neighbouring outputs of one channel,
rows by columns, all written out, so that what their windows have in common is loaded once. Neighbouring threads have neighbouring columns.

An image that no other convolution wants as pixels by channels needs no copies for this, which would take longer than the windows.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import ClassVar

from ...ir.dtype import dtype_info
from ...ops.dims import is_symbolic
from ...ops.layouts import Layout
from ...ops.registry import TensorType
from ...target import Target
from ...te import ComputeOp
from ..cost import Footprint, Kernel
from ..group import Group, begin, const_shape, extent_of, same_shape
from ..parts.counts import moved_bytes
from ..parts.operands import accumulators
from ..parts.threads import over_groups
from ..rules import figures
from ..space import Choice, Scheduled, Space

TEMPLATE = "gpu plain windows"
_MOST = 800  # multiply-adds of a thread, written out
_MOST_READ = 160  # elements that its windows see
_DIMENSIONS = (3, 4)  # of an image: signals and pictures


def are_worth(target: Target, x: TensorType, w: TensorType, pixels: Layout, lies: Collection[Layout]) -> bool:
    """Whether a depthwise convolution stays as it is: where the template was measured and takes it, of an image that does not lie in `pixels` yet."""
    if "overhead" not in figures.of(TEMPLATE, target) or pixels in lies:
        return False
    return x.ndim in _DIMENSIONS and not is_symbolic(x.shape) and math.prod(w.shape[2:]) <= min(_MOST, _MOST_READ)


class PlainWindows(Space):
    """A thread makes `rows` by `columns` outputs of a channel."""

    template: ClassVar[str] = TEMPLATE

    def __init__(self, group: Group, target: Target, red: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.red, self.out = red, out
        self.shape = tuple(n or 1 for n in const_shape(red.output(0)))
        window = tuple(extent_of(a) or 1 for a in red.reduce_axis)
        self.space = len(self.shape) - 2
        self.window = window[-self.space :]
        self.parameters = {
            "rows": (1, 2, 4, 8) if self.space > 1 else (1,), "columns": (1, 2, 4), "threads": self.threads_up_to_limit(128, 64),
        }  # fmt: skip

    @classmethod
    def match(cls, group: Group, target: Target) -> PlainWindows | None:
        """Of one depthwise sum, or pooling where a model prices it, whose result the output reads at its own place, where something was measured for it."""
        found = group.ended_sum() if target.is_gpu else None
        tags = ("depthwise", "pool") if target.machine.priced_by_model else ("depthwise",)
        if found is None or found[0].tag not in tags or len(group.outputs) != 1:
            return None
        red, out = found
        shape = const_shape(red.output(0))
        if (
            red.num_outputs > 1
            or None in shape
            or len(shape) not in _DIMENSIONS
            or not same_shape(out.output(0), red.output(0))
        ):
            return None
        if any(extent_of(a) is None for a in red.reduce_axis):
            return None
        space = cls(group, target, red, out)
        return space if "overhead" in space.figures and next(space.all, None) is not None else None

    def _read(self, choice: Choice) -> int:
        """Elements of the image that a thread's windows see."""
        tile = (choice["rows"], choice["columns"])[-self.space :]
        strides, dilations = self.red.attrs["strides"], self.red.attrs.get("dilations", (1,) * self.space)
        return math.prod(
            len({o * s + t * d for o in range(n) for t in range(k)})
            for n, s, k, d in zip(tile, strides, self.window, dilations)
        )

    def why_not(self, choice: Choice) -> str | None:
        rows, columns = choice["rows"], choice["columns"]
        if rows > self.shape[-2] or columns > self.shape[-1]:
            return "there are fewer rows or columns"
        if rows * columns > self.figures["most_made"]:
            return "more outputs of a thread leave too few of them under way"
        if math.prod(self.window) * rows * columns > _MOST or self._read(choice) > _MOST_READ:
            return "so long a window by so many outputs is too long to be written out"
        if self._threads(choice) < choice["threads"]:
            return "a work-group has more threads than there are tiles"
        return None

    def _threads(self, choice: Choice) -> int:
        *lead, height, width = self.shape
        rows = int(choice["rows"])  # 1 of signals, whose second last dimension is the channels
        return math.prod(lead) * -(-height // rows) * -(-width // int(choice["columns"]))

    def _asked(self, choice: Choice) -> float:
        """Bytes that all lanes' loads ask the first cache for."""
        read, made, strides = self._read(choice), choice["rows"] * choice["columns"], self.red.attrs["strides"]
        if "lane_bytes" not in self.figures:
            again: float = read / max(1.0, float(math.prod(strides)) * made)
            return moved_bytes(self.group) * again
        # A load has one element of each lane. Neighbouring lanes are `columns` outputs apart, what lies between is asked for with them, and few rows begin where a line does.
        apart = choice["columns"] * strides[-1] * dtype_info(self.red.inputs[0].dtype).bytes
        l1 = self.target.machine.level("L1")
        line = (l1.line_bytes if l1 is not None else 0) / self.target.wavefront_size
        asked: float = self._threads(choice) * read * max(self.figures["lane_bytes"], apart + line)
        return asked

    def sketch(self, choice: Choice) -> Footprint:
        read, taps, made = self._read(choice), math.prod(self.window), choice["rows"] * choice["columns"]
        threads, moved = self._threads(choice), float(moved_bytes(self.group))
        f = self.figures
        issued = f["overhead"] + f["read"] * read + 2 * taps + taps * made + 4 * made
        return Footprint((Kernel(
            threads / choice["threads"], choice["threads"], registers=made + taps, memory_bytes=moved, asked_bytes=self._asked(choice), issued=issued,
            waits=2 + f["waits_a_load"] * read,
        ),))  # fmt: skip

    def build(self, choice: Choice) -> Scheduled:
        s, out, red = begin(self.group), self.out, self.red
        own, final = s[accumulators(s, red, out, "local")], s[out.output(0)]
        *lead, y, x = final.op.axis
        x, column = final.split(x, factor=choice["columns"], shift_inwards=True)
        tile = [column]
        if self.space > 1:
            y, row = final.split(y, factor=choice["rows"], shift_inwards=True)
            tile = [row, column]
        final.reorder(*lead, y, x, *tile)
        # Neighbours on a die, whose L2 brings the rows once that their windows have in common.
        items, dies = self._threads(choice), self.target.machine.dies
        tiles = final.fuse(*lead, y, x)
        own.compute_at(final, over_groups(final, tiles, choice["threads"], repeated=True, items=items, dies=dies))
        inner = list(own.op.axis[-len(tile) :])
        own.reorder(*own.op.axis[: -len(tile)], *own.op.reduce_axis, *inner)
        for stage, axes in ((final, tile), (own, [*own.op.reduce_axis, *inner])):
            for axis in axes:
                stage.unroll(axis)
        return Scheduled(s, self.group.outputs, choice)
