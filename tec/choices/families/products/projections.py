"""One row times constant matrices on a GPU, with a norm before and a gate behind (`tec.ops.projection`), as one kernel.

A work-group makes some columns of the result. Its threads share each sum along the row: that of the squares once, those of the columns one after another.
Rows are short beside the matrix, so that each work-group sums the squares for itself.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

from ....target import Target
from ....te import ComputeOp, thread_axis
from ...cost import Footprint, Kernel
from ...group import Group, begin, reduce_size, size_of
from ...parts.counts import moved_bytes
from ...parts.threads import dealt
from ...space import Choice, Scheduled, Space

_ROW_BYTES = 2  # of the row that each sum reads again, from a cache
_OPERATIONS = 2  # of an element of a sum: it is converted, and multiplied and added


class Projection(Space):
    """`threads` share each sum; a work-group has `columns` of the result."""

    template: ClassVar[str] = "gpu projection"

    @classmethod
    def match(cls, group: Group, target: Target) -> Self | None:
        """The space of a group with a projection in it."""
        found = target.is_gpu and group.form("projection") is not None and len(group.output_ops) == 1
        return cls(group, target) if found else None

    def __init__(self, group: Group, target: Target):
        super().__init__(group, target)
        self.out = group.output_ops[0]
        self.count = size_of(self.out.output(0).shape) or 1
        self.parameters = {
            "threads": (64, 32, 128, 256),
            "columns": tuple(n for n in (1, 2, 4, 8) if self.count % n == 0),
        }

    @property
    def default(self) -> Choice:
        """A wavefront for a sum needs no barrier; more columns a work-group only where there are more than the units take at once."""
        columns = 4 if self.count >= 16 * self.target.machine.units else 1
        return self.choice(threads=64, columns=math.gcd(columns, self.count))

    def sketch(self, choice: Choice) -> Footprint:
        """A work-group's sums, one after another: each thread its part of the row's products."""
        threads, columns = choice["threads"], choice["columns"]
        lengths = [reduce_size(r) or 1 for r in self.group.reductions()]
        own = [-(-n // threads) for n in lengths]
        sums, meets = columns * sum(own), columns * len(lengths) * (threads > self.target.wavefront_size)
        moved = moved_bytes(self.group)
        return Footprint((Kernel(
            self.count / columns, threads, memory_bytes=moved, asked_bytes=moved + sums * threads * self.count / columns * _ROW_BYTES,
            issued=_OPERATIONS * sums, waits=sums / 4, barriers=2 * meets,
        ),))  # fmt: skip

    def build(self, choice: Choice) -> Scheduled:
        s, threads = begin(self.group), choice["threads"]
        stage = s[self.out]
        assert isinstance(self.out, ComputeOp)
        block, own = stage.split(stage.fuse(*self.out.axis), factor=choice["columns"])
        stage.unroll(own)
        stage.bind(block, thread_axis("blockIdx.x"))
        tx = thread_axis((0, threads), "threadIdx.x")
        for red in self.group.reductions():
            rstage = s[red]
            run = math.gcd(red.attrs.get("run", 4), (reduce_size(red) or threads) // threads or 1)
            dealt(rstage, red.reduce_axis[0], threads, tx, run)
            rstage.compute_at(stage, own if red.tag == "projected" else block)
            rstage.set_scope("local")
        return Scheduled(s, self.group.outputs, choice)
