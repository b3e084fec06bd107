"""One row times constant matrices on a GPU, with a norm before and a gate behind (`tec.ops.projection`), as one kernel.

A work-group makes some columns of the result. Its threads share each sum along the row: that of the squares once, those of the columns one after another.
Rows are short beside the matrix, so that each work-group sums the squares for itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from ..target import Target
from ..te import ComputeOp, thread_axis
from .group import Group, begin, reduce_size, size_of
from .pointwise import moved_bytes
from .space import Choice, Cost, Scheduled, Space


def match(group: Group, target: Target) -> Iterator[Space]:
    """The space of a group with a projection in it."""
    if target.is_gpu and group.form("projection") is not None and len(group.output_ops) == 1:
        yield Projection(group, target)


class Projection(Space):
    """`threads` share each sum; a work-group has `columns` of the result."""

    template: ClassVar[str] = "gpu projection"

    def __init__(self, group: Group, target: Target):
        super().__init__(group, target)
        self.out = group.output_ops[0]
        self.count = size_of(self.out.output(0).shape) or 1
        self.parameters = {"threads": (64, 32, 128, 256), "columns": (1, 2, 4, 8)}

    def why_not(self, choice: Choice) -> str | None:
        if self.count % choice["columns"]:
            return f"{self.count} columns are no whole number of {choice['columns']}"
        return None

    @property
    def default(self) -> Choice:
        """A wavefront for a sum needs no barrier; more columns a work-group only where there are more than the units take at once."""
        columns = 4 if self.count >= 16 * self.target.machine.units else 1
        return self.choice(threads=64, columns=math.gcd(columns, self.count))

    def cost(self, choice: Choice) -> Cost:
        """What moves, or the latency of a work-group's sums."""
        machine = self.target.machine
        memory = moved_bytes(self.group) / ((machine.memory.gbps or machine.memory_gbps) * 1e9)
        length = max(reduce_size(r) or 1 for r in self.group.reductions())
        sums = len(self.group.reductions()) * choice["columns"]
        clocks = sums * (length / choice["threads"] * 4 + 60 + 30 * (choice["threads"] > self.target.wavefront_size))
        resident = machine.units * max(1, 2048 // choice["threads"])
        issue = -(-self.count // choice["columns"] // resident) * clocks / (machine.clock_mhz * 1e6)
        return Cost(machine.launch_us * 1e-6 + max(memory, issue), "memory" if memory >= issue else "latency")

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
            k, run = (
                red.reduce_axis[0],
                math.gcd(red.attrs.get("run", 4), (reduce_size(red) or threads) // threads or 1),
            )
            if run > 1:
                k, inner = rstage.split(k, factor=run)
                rstage.unroll(inner)
            _, ki = rstage.split(k, factor=threads)
            rstage.bind(ki, tx)
            rstage.compute_at(stage, own if red.tag == "projected" else block)
            rstage.set_scope("local")
        return Scheduled(s, self.group.outputs, choice)
