"""Stages one after another: what no other template takes. Each has loops of its own; a reduction stands alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ..target import Target
from ..te import ExternOp
from . import parallel
from .group import Group, begin
from .pointwise import THREADS, begin_cpu, bind_all, computed, elementwise, moved_bytes, work
from .reductions import cpu_reduction
from .space import Choice, Cost, Scheduled, Space


def match(group: Group, target: Target) -> Iterator[Space]:
    """The space of any group; on a GPU but where loops without threads define it, which a template has another form of."""
    if target.is_gpu and any(isinstance(op, ExternOp) and "form" in op.attrs for op in group.ops):
        return
    yield GpuStages(group, target) if target.is_gpu else CpuStages(group, target)


class CpuStages(Space):
    """One loop nest a stage: vectors of `vectors` registers innermost, over threads or not."""

    template: ClassVar[str] = "cpu stages"

    def __init__(self, group: Group, target: Target):
        super().__init__(group, target)
        self.parameters = {"vectors": (1, 2, 4), "parallel": (True, False)}

    @property
    def default(self) -> Choice:
        return self.choice(vectors=1, parallel=True)

    def cost(self, choice: Choice) -> Cost:
        machine = self.target.machine
        threads = machine.units if choice["parallel"] else 1
        clocks = sum(work(op) for op in computed(self.group)) * parallel.POINTWISE
        issue = clocks / (machine.clock_mhz * 1e6) / threads
        memory = moved_bytes(self.group) / ((machine.memory.gbps or machine.memory_gbps) * 1e9)
        start = parallel.START_SECONDS if choice["parallel"] else 0.0
        return Cost(start + max(issue, memory), "issue" if issue >= memory else "memory")

    def build(self, choice: Choice) -> Scheduled:
        s = begin_cpu(self.group, self.target)
        for op in computed(self.group):
            make = cpu_reduction if op.reduce_axis else elementwise
            make(s, op, self.target, choice["vectors"], choice["parallel"])
        return Scheduled(s, self.group.outputs, choice)


class GpuStages(Space):
    """One kernel a stage: `threads` of a work-group, `vector` bytes of an elementwise result a thread."""

    template: ClassVar[str] = "gpu stages"

    def __init__(self, group: Group, target: Target):
        super().__init__(group, target)
        self.parameters = {"threads": (256, 64, 128, 512, 1024), "vector": (16, 8, 4, 1)}

    @property
    def default(self) -> Choice:
        return self.choice(threads=THREADS, vector=self.target.max_vector_bytes)

    def why_not(self, choice: Choice) -> str | None:
        return None if choice["threads"] <= self.target.max_threads else f"{self.target.max_threads} threads at most"

    def cost(self, choice: Choice) -> Cost:
        """The bytes that move, at a rate that narrow accesses lower; and a launch for each stage."""
        machine = self.target.machine
        rate = (machine.memory.gbps or machine.memory_gbps) * 1e9 * min(1.0, 0.5 + choice["vector"] / 32)
        launches = len(computed(self.group)) * machine.launch_us * 1e-6
        memory = moved_bytes(self.group) / rate
        return Cost(launches + memory, "memory" if memory > launches else "launch")

    def build(self, choice: Choice) -> Scheduled:
        s = begin(self.group)
        for op in computed(self.group):
            bind_all(s, op, choice["threads"], 0 if op.reduce_axis else choice["vector"])
        return Scheduled(s, self.group.outputs, choice)
