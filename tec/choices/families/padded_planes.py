"""Windows over plain images (poolings) on a CPU, as vectors of neighbours without a mask.

Where an image is padded, a plane gets its padding first, or the rows of one line of windows do, which stay near: vectors along a row would else ask each lane of each tap
whether it lies in the image, and gather what does. Large windows are reduced over their rows first, for all columns at once, and then along the line:

    rows[w] = max over rh of padded[h * s + rh, w]            out[h, o] = max over rw of rows[o * s + rw]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ... import te
from ...ir import build as B
from ...ir import expr as E
from ...ir.arith import Analyzer
from ...ir.visit import map_expr, substitute, walk_exprs
from ...schedule import Schedule, Stage
from ...target import Target
from ...te import ComputeOp, PlaceholderOp, Tensor
from .. import group as groups
from .. import parallel
from ..cost import Footprint, on_cores
from ..group import Group, const_shape, extent_of, likely_shape, reduce_size, same_shape, shape_key, whole_reduce
from ..parts.counts import lanes_for, moved_bytes, work
from ..parts.pointwise import LEAST_ROW, begin_cpu
from ..space import Choice, Scheduled, Space

_LEAD = 2  # axes of images and channels
_WRITTEN = 32  # taps and vectors of a body that is written out
_WORTH = 1.5  # elements that windows see, over those that are copied
# The same where neighbouring windows are not neighbouring elements: a vector of masked ones is then as many loads and branches as it has lanes, and copies are vectors.
_STRIDED_WORTH = 0.25
_LINE = 1.3  # operations of windows taken whole, over those with rows first, from which rows come first: they pass through memory, and begin and end a loop more


@dataclass(frozen=True, slots=True)
class _Windows:
    """The one place of a reduction of windows where it reads the image."""

    read: E.TensorRead
    steps: tuple[int, ...]  # from one window to the next, along each of the image's own axes
    apart: bool  # whether the reduction along a line may follow that over the rows

    @staticmethod
    def of(red: ComputeOp) -> _Windows | None:
        """None where there are several such places, or an index is no sum."""
        body = red.body[0]
        reads = [e for e in walk_exprs(body) if isinstance(e, E.TensorRead)]
        if not isinstance(body, E.Reduce) or len(reads) != 1 or len(reads[0].indices) != len(red.axis):
            return None
        (read,) = reads
        steps = []
        for index, axis in list(zip(read.indices, red.axis))[_LEAD:]:
            terms = Analyzer().detect_linear(index, [axis.var])
            step = None if terms is None else B.const_value(terms[0])
            if step is None:
                return None
            steps.append(int(step))
        line = {red.axis[-1].var, red.reduce_axis[-1].var}
        others = {a.var for a in (*red.axis[:-1], *red.reduce_axis[:-1])}
        *lead, last = read.indices
        elsewhere = [*lead, *[_with(e, read, B.const(0, read.dtype)) for e in body.source]]
        apart = not any(_uses(e, line) for e in elsewhere) and not _uses(last, others)
        return _Windows(read, tuple(steps), apart and whole_reduce(red) is not None)


def _with(e: E.Expr, read: E.Expr, by: E.Expr) -> E.Expr:
    return by if e is read else map_expr(e, lambda x: _with(x, read, by))


def _uses(e: E.Expr, variables: set[E.Var]) -> bool:
    return any(isinstance(x, E.Var) and any(x is v for v in variables) for x in walk_exprs(e))


def _strided(step: int, lanes: int) -> int:
    """Operations that a vector of every `step`-th element takes: the vectors that they lie in and as many that put them together, or single elements."""
    return 1 if step == 1 else min(2 * step, 2 * lanes)


class PaddedPlanes(Space):
    """Each plane by itself, `vectors` of a row at once."""

    template: ClassVar[str] = "cpu padded planes"

    def __init__(
        self, group: Group, target: Target, pad: ComputeOp | None, red: ComputeOp, out: ComputeOp, windows: _Windows,
        width: int | None = None,
    ):  # fmt: skip
        """width: of a row, where it is open and this is for such rows."""
        super().__init__(group, target)
        self.pad, self.red, self.out, self.windows = pad, red, out, windows
        self.width = width or likely_shape(red.output(0))[-1]
        # Windows that share no rows: the rows of one line of them are copied, which stay nearer than a plane.
        upright = zip(windows.steps[:-1], red.reduce_axis)
        self.own_rows = all(step >= (extent_of(axis) or step + 1) for step, axis in upright)
        both = windows.apart and len(red.reduce_axis) > 1
        self.parameters = {
            "vectors": (1, 2, 4),
            "rows_first": (False, True) if both else (False,),
            "parallel": (True, False),
        }

    @classmethod
    def match(cls, group: Group, target: Target) -> PaddedPlanes | None:
        """Of one reduction of windows along all axes but those of images and channels: of an image that is padded at the ends of its lines, or large ones."""
        found = None if target.is_gpu else group.ended_sum()
        if found is None or found[0].tag != "pool" or found[0].num_outputs > 1 or len(group.outputs) != 1:
            return None
        red, out = found
        pads = [op for op in group.ops if isinstance(op, ComputeOp) and op.tag == "pad"]
        axes = len(red.axis)
        shape = likely_shape(red.output(0))
        if len(pads) > 1 or axes - _LEAD != len(red.reduce_axis) or shape[-1] < LEAST_ROW:
            return None
        windows = _Windows.of(red)
        if windows is None or not same_shape(out.output(0), red.output(0)):
            return None
        image = windows.read.tensor.op
        if isinstance(image, PlaceholderOp):
            space = cls(group, target, None, red, out, windows)
            return space if space.default["rows_first"] else None
        if pads != [image] or group.consumers[image] != [red]:
            return None
        before, whole = [shape_key(t) for t in image.inputs], shape_key(image.output(0))
        if len(before) != 1 or len(whole) != axes or before[0][-1] == whole[-1]:
            return None
        worth = _WORTH if windows.steps[-1] == 1 else _STRIDED_WORTH
        seen = math.prod(shape) * (reduce_size(red) or 1)
        is_worth = seen >= worth * math.prod(likely_shape(image.output(0)))
        return cls(group, target, image, red, out, windows) if is_worth else None

    @property
    def default(self) -> Choice:
        return self.choice(
            vectors=1, rows_first=self._rows_are_quick(), parallel=parallel.worth(work(self.red) * parallel.POINTWISE)
        )

    def _rows_are_quick(self) -> bool:
        """Whether a vector of windows takes fewer operations with rows first."""
        if True not in self.parameters["rows_first"]:
            return False
        *upright, taps = (extent_of(a) or 1 for a in self.red.reduce_axis)
        step = self.windows.steps[-1]
        each, rows = _strided(step, self._lanes()), math.prod(upright)
        return rows * taps * each >= _LINE * (rows * step + step + taps * each)

    def sketch(self, choice: Choice) -> Footprint:
        return on_cores(work(self.red) * parallel.POINTWISE, moved_bytes(self.group), choice["parallel"])

    def _lanes(self) -> int:
        """Of a vector: a register's, or the largest part of one, by halves, that a row fills."""
        return min(lanes_for(self.red.output(0).dtype, self.target), 1 << (self.width.bit_length() - 1))

    def _rows(self) -> tuple[list[Tensor], Tensor]:
        """The outputs made of windows with rows first, and these rows."""
        red, read = self.red, self.windows.read
        body, shape = red.body[0], red.output(0).shape
        assert isinstance(body, E.Reduce)
        *upright, taps = [te.reduce_axis((0, extent_of(a) or 1), a.var.name) for a in red.reduce_axis]

        def reduced(source: E.Expr, axes: Sequence[Any]) -> E.Expr:
            return E.Reduce(body.combiner, (source,), tuple(axes), B.const(True))

        def column(*at: Any) -> E.Expr:
            values = {a.var: i for a, i in zip(red.axis[:-1], at[:-1])}
            values |= {old.var: new.var for old, new in zip(red.reduce_axis, upright)}
            there = E.TensorRead(read.tensor, (*[substitute(i, values) for i in read.indices[:-1]], at[-1]))
            hole = E.Var("element", read.dtype)
            source = substitute(_with(body.source[0], read, hole), {**values, hole: there})
            return reduced(source, upright)

        width = read.tensor.shape[-1]
        rows: Tensor = te.compute((*shape[:-1], width), column, name=f"{red.name}_rows")

        def window(*at: Any) -> E.Expr:
            last = substitute(read.indices[-1], {red.axis[-1].var: at[-1], red.reduce_axis[-1].var: taps.var})
            return reduced(E.TensorRead(rows, (*at[:-1], last)), [taps])

        made = te.compute(shape, window, name=red.name, tag=red.tag)
        return groups.substitute(self.group.outputs, {red.output(0): made}), rows

    def build(self, choice: Choice) -> Scheduled:
        group, red, out, rows = self.group, self.red, self.out, None
        if choice["rows_first"]:
            outputs, rows = self._rows()
            group = Group.of(outputs)
            (out,) = (op for op in group.output_ops if isinstance(op, ComputeOp))
            (red,) = (op for op in group.reductions() if op is not rows.op)
        s = begin_cpu(group, self.target, keep=[] if self.pad is None else [self.pad])
        sums = s.cache_write(out.output(0), "local") if out is red else red.output(0)
        final, own, lanes = s[out.output(0)], s[sums], self._lanes()
        own.set_scope("local")
        *lead, row = final.op.axis
        plane = final.fuse(*(lead if self.own_rows else lead[:_LEAD]))
        line = plane if self.own_rows else lead[-1]
        if choice["parallel"]:
            final.parallel(plane)
        many = lanes * min(choice["vectors"], max(1, self.width // lanes))
        outer, vec = final.split(row, factor=many, shift_inwards=True, long=True)
        final.vectorize(vec)
        own.compute_at(final, outer)
        vectors, vec = own.split(own.op.axis[-1], factor=lanes)
        own.reorder(*own.op.axis[:-1], *own.op.reduce_axis, vectors, vec)
        own.vectorize(vec)
        own.unroll(vectors)
        _write_out(own, many // lanes)
        if rows is not None:
            self._schedule_rows(s, rows, final, line)
        if self.pad is not None:
            s[self.pad].compute_at(final, plane)
        return Scheduled(s, group.outputs, choice, otherwise=self._for_narrower(choice))

    def _for_narrower(self, choice: Choice) -> Scheduled | None:
        """What serves where an open row is shorter than a vector: one of half the width."""
        width = self._lanes() // 2
        if const_shape(self.red.output(0))[-1] is not None or width < LEAST_ROW:
            return None
        parts = self.pad, self.red, self.out, self.windows
        narrower = PaddedPlanes(self.group, self.target, *parts, width)
        return narrower.build({**narrower.default, "rows_first": choice["rows_first"], "parallel": choice["parallel"]})

    def _schedule_rows(self, s: Schedule, rows: Tensor, final: Stage, line: Any) -> None:
        """The rows of a line of windows in vectors, each of which stays in a register until it is whole."""
        low = s.cache_write(rows, "local")
        whole, own = s[rows], s[low]
        width = likely_shape(rows)[-1]
        is_open = const_shape(rows)[-1] is None  # no shorter than the row of windows that is made of it
        lanes = self._lanes() if is_open else min(lanes_for(rows.dtype, self.target), 1 << (width.bit_length() - 1))
        outer, vec = whole.split(whole.op.axis[-1], factor=lanes, shift_inwards=True, long=True)
        whole.vectorize(vec)
        whole.compute_at(final, line)
        own.compute_at(whole, outer)
        own.reorder(*own.op.axis[:-1], *own.op.reduce_axis, own.op.axis[-1])
        own.vectorize(own.op.axis[-1])
        _write_out(own, 1)


def _write_out(stage: Stage, vectors: int) -> None:
    """Unroll the reductions, as far as the body stays short."""
    written = vectors
    for axis in reversed(stage.op.reduce_axis):
        written *= extent_of(axis) or _WRITTEN
        if written > _WRITTEN:
            break
        stage.unroll(axis)
