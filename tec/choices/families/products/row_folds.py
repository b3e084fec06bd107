"""Products whose rows any reducer folds (the two largest of each row, the argmax): a tile of the result meets in shared memory and is folded there, and
nobody stores the result. What the tiles of a row found a second kernel folds; a CPU's task has whole rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from ....ops.contraction import Contraction
from ....target import Target
from ....te import Tensor, compute, thread_axis
from ...cost import Footprint, Kernel, on_cores
from ...group import Group, const_shape
from ...parts import ends, padding, sums
from ...parts.counts import lanes_for, moved_bytes
from ...parts.operands import begin_with, folds_rows
from ...parts.threads import bind_all
from ...space import Choice, Scheduled, Space
from . import mainloops


def match(group: Group, target: Target) -> Iterator[Space]:
    found, after = group.form("product"), group.output_ops
    if found is not None and len(after) == 1 and folds_rows(after[0], found[1][0].op):
        space = RowFold(group, target, found[0].attrs["contraction"], found[1][0])
        if space.c.fold is None and None not in const_shape(space.result) and space.parameters["tile"]:
            yield space


class RowFold(Space):
    """`tile`: rows by columns that a work-group, or a CPU's task, multiplies and folds."""

    template: ClassVar[str] = "product with folded rows"

    def __init__(self, group: Group, target: Target, c: Contraction, result: Tensor):
        super().__init__(group, target)
        self.c, self.result = c, result
        self.loops = {loop.name: loop for loop in mainloops.of(c, target, group, result)}
        self.parameters = {"tile": tuple(self.loops) if target.is_gpu else ("4", "8", "2", "1")}

    def sketch(self, choice: Choice) -> Footprint:
        c, moved, loop = self.c, moved_bytes(self.group), self.loops.get(choice["tile"])
        m, n, k, batch = padding.sizes(c)
        if loop is None:
            return on_cores(batch * m * n * k / self.target.machine.macs("float32"), moved, True)
        tiles, (high, wide, _) = ends.sketch(loop, c), loop.tile
        found, issued = 16.0 * tiles.groups * high, tiles.issued + 8 * high * wide / tiles.threads
        first = replace(tiles, shared_bytes=4 * high * (wide + ends.PIECE), memory_bytes=moved + found, issued=issued)
        return Footprint((first, Kernel(batch * m / 256, 256, 0, 0, found, found, waits=n / wide)))

    def build(self, choice: Choice) -> Scheduled:
        c, loop, lanes = self.c, self.loops.get(choice["tile"]), lanes_for("float32", self.target)
        product, met = ends.met(loop, c) if loop else ends.copied(self.group.reductions()[0].output(0))
        made = compute(c.shape, lambda *i: met(*(0,) * (loop is not None), *i).astype(c.out_dtype), name="result")
        begun = begin_with(self.group, self.result, made, [met.op])
        s: Any = begun.s
        stage, (*lead, row) = s[begun.out], begun.out.axis
        if loop is None:
            stage.parallel(task := stage.fuse(*lead, stage.split(row, factor=int(choice["tile"]))[0]))
            panel, column = s[met].split(met.op.axis[-1], factor=2 * lanes)
            s[met].reorder(*met.op.axis[:-2], panel, met.op.axis[-2], column)
            s[met].compute_at(stage, task)
            sums.in_vectors(s, product.output(0), s[met], panel, lanes)
        else:
            high, wide, _ = loop.tile
            found = s.rfactor(begun.outputs[0], stage.split(begun.out.reduce_axis[0], factor=wide)[0])
            part = s[(found[0] if isinstance(found, list) else found).op]
            column, *lead, row = part.op.axis
            row, i = part.split(row, factor=high)
            part.reorder(*lead, row, column, i)
            part.bind(part.fuse(*lead, row), thread_axis("blockIdx.y"))
            part.bind(column, thread_axis("blockIdx.x"))
            loop.over_threads(part, i, high)
            s[met].set_scope("shared")
            s[met].compute_at(part, column)
            loop.schedule(s, product, s[met].op)
            bind_all(s, stage.op)
        return Scheduled(s, begun.outputs, choice)
