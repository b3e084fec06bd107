"""Products whose rows any reducer folds (the two largest of each row, the argmax): a tile of the result meets in shared memory and is folded there, and
nobody stores the result. What the tiles of a row found a second kernel folds; a CPU's task has whole rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ....ops.contraction import Contraction
from ....target import Target
from ....te import Tensor, compute, thread_axis
from ...cost import Footprint, Kernel, on_cores
from ...group import Group, const_shape
from ...parts.operands import begin_with, folds_rows
from ...parts.pointwise import bind_all, moved_bytes
from ...parts.staging import deal
from ...parts.sums import in_vectors
from ...space import Choice, Scheduled, Space
from . import matrix_units, tilings
from .matrix_schedule import schedule, threads_of


def match(group: Group, target: Target) -> Iterator[Space]:
    found, ends = group.form("product"), group.output_ops
    if found is not None and len(ends) == 1 and folds_rows(ends[0], found[1][0].op):
        space = RowFold(group, target, found[0].attrs["contraction"], found[1][0])
        if space.c.fold is None and None not in const_shape(space.result) and space.parameters["tile"]:
            yield space


class RowFold(Space):
    """`tile`: rows by columns that a work-group, or a CPU's task, multiplies and folds."""

    template: ClassVar[str] = "product with folded rows"

    def __init__(self, group: Group, target: Target, c: Contraction, result: Tensor):
        super().__init__(group, target)
        self.c, self.result, self.shape = c, result, matrix_units.shape_of(c, target)
        drafts = tilings.drafts(self.shape, target) if target.is_gpu else ()
        self.tilings = {f"{t.m}x{t.n}": t for t in drafts if tilings.fills_wavefronts(t, self.shape)}
        self.parameters = {"tile": tuple(self.tilings) if target.is_gpu else ("4", "8", "2", "1")}

    def sketch(self, choice: Choice) -> Footprint:
        s, moved, t = self.shape, moved_bytes(self.group), self.tilings.get(choice["tile"])
        if t is None:
            return on_cores(s.batch * s.m * s.n * s.k / self.target.machine.macs("float32"), moved, True)
        groups, steps, threads = tilings.groups(t, s), -(-s.k // t.k), t.waves * self.target.wavefront_size
        asked, found = groups * steps * (t.m + t.n) * t.k * s.bytes, 16.0 * groups * t.m
        return Footprint((Kernel(
            groups, threads, 4 * t.m * (t.n + tilings.PIECE), 0, moved + found, asked, asked, 8 * t.m * t.n / threads, asked / (t.m + t.n) * t.m * t.n / s.bytes, waits=steps, dtype=s.dtype,
        ), Kernel(s.batch * s.m / 256, 256, 0, 0, found, found, waits=s.n / t.n)))  # fmt: skip

    def build(self, choice: Choice) -> Scheduled:
        c, t, lanes = self.c, self.tilings.get(choice["tile"]), max(4, self.target.vector_bytes // 4)
        product, met = matrix_units.met(c, t) if t else matrix_units.copied(self.group.reductions()[0].output(0))
        made = compute(c.shape, lambda *i: met(*(0,) * (t is not None), *i).astype(c.out_dtype), name="result")
        begun = begin_with(self.group, self.result, made, [met.op])
        s: Any = begun.s
        stage, (*lead, row) = s[begun.out], begun.out.axis
        if t is None:
            task = stage.fuse(*lead, stage.split(row, factor=int(choice["tile"]))[0])
            stage.parallel(task)
            panel, column = s[met].split(met.op.axis[-1], factor=2 * lanes)
            s[met].reorder(*met.op.axis[:-2], panel, met.op.axis[-2], column)
            s[met].compute_at(stage, task)
            in_vectors(s, product.output(0), s[met], panel, lanes)
        else:
            found = s.rfactor(begun.outputs[0], stage.split(begun.out.reduce_axis[0], factor=t.n)[0])
            part = s[(found[0] if isinstance(found, list) else found).op]
            column, *lead, row = part.op.axis
            row, i = part.split(row, factor=t.m)
            part.reorder(*lead, row, column, i)
            for axis, number in ((part.fuse(*lead, row), "blockIdx.y"), (column, "blockIdx.x")):
                part.bind(axis, thread_axis(number))
            deal(part, i, threads_of(t, self.target, t.m))
            s[met].set_scope("shared")
            s[met].compute_at(part, column)
            schedule(s, product, s[met].op, self.target, t)
            bind_all(s, stage.op)
        return Scheduled(s, begun.outputs, choice)
