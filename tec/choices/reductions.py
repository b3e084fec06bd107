"""One reduction with its epilogue.

CPU: sums in vector registers, along the data where that is contiguous, else one partial sum a lane. GPU: a thread an output, or a work-group where
outputs are few and sums long; windows over (pixels, channels) in 16-byte pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from ..ir import TensorRead
from ..ir.dtype import dtype_info
from ..ir.visit import free_vars, walk_exprs
from ..schedule import Schedule, Stage
from ..target import Target
from ..te import ComputeOp, thread_axis
from . import parallel
from .group import Group, begin, const_shape, extent, reduce_size, size_of
from .pointwise import begin_cpu, bind_all, lanes_for, moved_bytes, work
from .space import Choice, Cost, Scheduled, Space

LONG_CHAIN = 1024  # additions one after another, from which rounding errors are worth a second step
LONG_SUM, FEW_OUTPUTS = (
    256,
    4096,
)  # a GPU's threads share sums so long where there are no more of them: else a thread an output fills the chip


def match(group: Group, target: Target) -> Iterator[Space]:
    """The spaces of a group of one reduction whose result the output reads at its own place."""
    reductions = group.reductions()
    if len(reductions) == 1:
        space = GpuReduction.match(group, target) if target.is_gpu else CpuReduction.match(group, target)
        if space is not None:
            yield space


class CpuReduction(Space):
    """The reduction computed inside of the output's loops, over threads or not."""

    template: ClassVar[str] = "cpu reduction"

    def __init__(self, group: Group, target: Target, red: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.red, self.out = red, out
        self.parameters = {"vectors": (1, 2, 4), "parallel": (True, False)}

    @classmethod
    def match(cls, group: Group, target: Target) -> CpuReduction | None:
        (red,) = group.reductions()
        if group.is_output(red) or len(group.output_ops) != 1:
            return None
        out = group.output_ops[0]
        if not isinstance(out, ComputeOp) or out.reduce_axis or not out.axis:
            return None
        if len(out.axis) != len(red.axis) or size_of(out.output(0).shape) != size_of(red.output(0).shape):
            return None
        return cls(group, target, red, out)

    @property
    def default(self) -> Choice:
        return self.choice(vectors=1, parallel=parallel.worth(work(self.red) * parallel.POINTWISE))

    def cost(self, choice: Choice) -> Cost:
        machine = self.target.machine
        threads = machine.units if choice["parallel"] else 1
        issue = work(self.red) * parallel.POINTWISE / (machine.clock_mhz * 1e6) / threads
        memory = moved_bytes(self.group) / ((machine.memory.gbps or machine.memory_gbps) * 1e9)
        start = parallel.START_SECONDS if choice["parallel"] else 0.0
        return Cost(start + max(issue, memory), "issue" if issue >= memory else "memory")

    def build(self, choice: Choice) -> Scheduled:
        s, target, out = begin_cpu(self.group, self.target), self.target, self.out
        red = in_parts(s, self.red, target)
        stage = s[out]
        if len(out.axis) == 1:
            outer, _ = stage.split(out.axis[0], factor=16)
        else:
            outer = stage.fuse(*out.axis[:-1]) if len(out.axis) > 2 else out.axis[0]
        if choice["parallel"]:
            stage.parallel(outer)
        s[red].compute_at(stage, outer)
        last = red.axis[-1]
        n = extent(last.dom.extent) if last.dom is not None else None
        lanes = lanes_for(red.output(0).dtype, target) * choice["vectors"]
        if (n is None or n >= lanes) and len(out.axis) > 1 and reads_contiguously(red, last.var):
            o, vec = s[red].split(last, factor=lanes)
            s[red].reorder(*red.axis[:-1], o, *red.reduce_axis, vec)
            s[red].vectorize(vec)
        else:
            rows_in_lanes(s, red, target)
        return Scheduled(s, self.group.outputs, choice)


def cpu_reduction(s: Schedule, op: ComputeOp, target: Target, vectors: int = 1, threads: bool = True) -> None:
    """A reduction that stands alone: threads over the data axes; vectors along the last data axis, or along the reduced one."""
    op = in_parts(s, op, target)
    stage = s[op]
    axes = list(op.axis)
    last_extent = const_shape(op.output(0))[-1] if axes else 1
    lanes = lanes_for(op.output(0).dtype, target) * vectors
    outer = None
    if axes and (last_extent is None or last_extent >= lanes) and reads_contiguously(op, axes[-1].var):
        outer, vec = stage.split(axes[-1], factor=lanes)
        stage.reorder(*axes[:-1], outer, *op.reduce_axis, vec)
        stage.vectorize(vec)
        axes = [*axes[:-1], outer]
    partial = in_lanes(s, op, target) if outer is None else None
    if partial is not None:
        stage = s[op]
        axes = list(stage.op.axis)
    loop = axes[-1] if axes else None
    if axes and threads and parallel.worth(work(op) * parallel.POINTWISE):
        loop = stage.fuse(*axes) if len(axes) > 1 else axes[0]
        stage.parallel(loop)
    if partial is not None and loop is not None:
        partial.compute_at(stage, loop)


LONG_CHAIN = 1024  # additions one after another, from which rounding errors are worth a second step


def in_parts(s: Schedule, op: ComputeOp, target: Target) -> ComputeOp:
    """A long sum whose vectors lie along the data, as sums of parts and their sum; the operation that is left to schedule.

    Only where each element goes into one sum, so that the parts' sums are few beside the elements.
    """
    length, count, dtype = reduce_size(op), size_of(op.output(0).shape), op.output(0).dtype
    shape = const_shape(op.output(0))
    if length is None or count is None or length < LONG_CHAIN or op.num_outputs != 1 or not dtype.startswith("float"):
        return op
    if not shape or (shape[-1] or 0) < lanes_for(dtype, target) or not reads_contiguously(op, op.axis[-1].var):
        return op
    reads = [size_of(e.tensor.shape) for b in op.body for e in walk_exprs(b) if isinstance(e, TensorRead)]
    if max((n or 0 for n in reads), default=0) < length * count:
        return op
    first = op.reduce_axis[0]
    n = (extent(first.dom.extent) if first.dom is not None else None) or 1
    outer = first if len(op.reduce_axis) > 1 and n * n >= length // 4 else s[op].split(first, nparts=min(n, 64))[0]
    partial = s[s.rfactor(op.output(0), outer)]
    cpu_reduction(s, partial.op, target)  # type: ignore[arg-type]
    left = s[op].op
    assert isinstance(left, ComputeOp)
    return left


def in_lanes(s: Schedule, op: ComputeOp, target: Target) -> Stage | None:
    """A long reduction along contiguous memory, as a partial one for each vector lane and the reduction of those: the stage
    of the partial results, for the caller to place, or None where that does not fit.

    One chain of additions takes their latency an element, and its rounding errors grow with its length.
    """
    length = reduce_size(op)
    lanes = lanes_for(op.output(0).dtype, target)
    if op.num_outputs != 1 or not op.reduce_axis or (length is not None and length < 4 * lanes):
        return None
    last = op.reduce_axis[-1]
    n = extent(last.dom.extent) if last.dom is not None else None
    if n is None:  # a row of symbolic length; with other axes symbolic instead, it is as short as it says
        n = lanes
    if n < lanes or not reads_contiguously(op, last.var, directly=True):
        return None
    _, inner = s[op].split(last, factor=2 * lanes if n >= 8 * lanes else lanes)
    partial = s[s.rfactor(op.output(0), inner)]
    vec, *data = partial.op.axis
    partial.reorder(*data, *partial.op.reduce_axis, vec)
    partial.vectorize(vec)
    return partial


def rows_in_lanes(s: Schedule, op: ComputeOp, target: Target) -> None:
    """The same inside of another stage's loops: partial results for one element at a time."""
    partial = in_lanes(s, op, target)
    if partial is not None and s[op].op.axis:
        partial.compute_at(s[op], s[op].op.axis[-1])


def reads_contiguously(op: ComputeOp, var: object, directly: bool = False) -> bool:
    """Whether the axis `var` is the last index of every read that depends on it; `directly`: nothing but it, and some read is."""
    reads = [e for b in op.body for e in walk_exprs(b) if isinstance(e, TensorRead)]
    for e in reads:
        for k, i in enumerate(e.indices):
            if any(v is var for v in free_vars(i)) and k != len(e.indices) - 1:
                return False
    if directly:
        last = [e.indices[-1] for e in reads if e.indices and any(v is var for v in free_vars(e.indices[-1]))]
        return bool(last) and all(i is var for i in last)
    return True


class GpuReduction(Space):
    """`shared`: the threads of a work-group share a sum; else a thread has an output, or 16 bytes of channels."""

    template: ClassVar[str] = "gpu reduction"

    def __init__(self, group: Group, target: Target, red: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.red, self.out = red, out
        can_share = bool(out.axis) and red.num_outputs == 1
        self.parameters = {"shared": (False, True) if can_share else (False,), "threads": (64, 32, 128, 256)}

    @classmethod
    def match(cls, group: Group, target: Target) -> GpuReduction | None:
        (red,) = group.reductions()
        if len(group.output_ops) != 1:
            return None
        out = group.output_ops[0]
        if not isinstance(out, ComputeOp):
            return None
        if out is not red and (out.reduce_axis or size_of(out.output(0).shape) != size_of(red.output(0).shape)):
            return None
        return cls(group, target, red, out)

    @property
    def default(self) -> Choice:
        outputs, length = size_of(self.red.output(0).shape), reduce_size(self.red)
        few = outputs is not None and length is not None and length >= LONG_SUM and outputs <= FEW_OUTPUTS
        return self.choice(shared=few and True in self.parameters["shared"], threads=64)

    def cost(self, choice: Choice) -> Cost:
        """Elements read once from memory, or by as many threads as there are: a thread alone waits for each of its loads."""
        machine = self.target.machine
        outputs, length = size_of(self.red.output(0).shape) or 1, reduce_size(self.red) or 1
        memory = moved_bytes(self.group) / ((machine.memory.gbps or machine.memory_gbps) * 1e9)
        latency = (machine.memory.latency_ns or 500.0) * 1e-9
        own = -(-length // choice["threads"]) if choice["shared"] else length
        waves = outputs * (choice["threads"] if choice["shared"] else 1) / (machine.units * 1024)
        waiting = max(1.0, waves) * own / 8 * latency  # some eight loads of a thread are under way at once
        return Cost(machine.launch_us * 1e-6 + max(memory, waiting), "memory" if memory >= waiting else "latency")

    def build(self, choice: Choice) -> Scheduled:
        s, out, red = begin(self.group), self.out, self.red
        if choice["shared"]:
            _group_per_output(s, out, red, choice["threads"])
        elif not (red.tag == "pixels" and _pixels(s, out, red, choice["threads"])):
            inner = bind_all(s, out, choice["threads"])
            if out is not red:
                s[red].compute_at(s[out], inner)
                s[red].set_scope("local")
        return Scheduled(s, self.group.outputs, choice)


def _pixels(s: Schedule, out: ComputeOp, red: ComputeOp, threads: int) -> bool:
    """Windows over (pixels, channels): 16 bytes of channels a thread, neighbours side by side, so that they touch whole cache
    lines."""
    channels = const_shape(out.output(0))[-1]
    if len(out.axis) != 2 or channels is None:
        return False
    lanes = math.gcd(channels, 16 // dtype_info(out.output(0).dtype).bytes)
    acc = s.cache_write(out.output(0), "local") if out is red else red.output(0)
    final, own = s[out.output(0)], s[acc]
    own.set_scope("local")
    p, c = final.op.axis
    c, vec = final.split(c, factor=lanes)
    outer, inner = final.split(final.fuse(p, c), factor=threads)
    final.bind(outer, thread_axis("blockIdx.x"))
    final.bind(inner, thread_axis("threadIdx.x"))
    final.vectorize(vec)
    own.compute_at(final, inner)
    op = own.op
    own.reorder(*op.reduce_axis, *op.axis)
    own.vectorize(op.axis[-1])
    if (reduce_size(op) or 0) <= 32:
        for axis in op.reduce_axis:
            own.unroll(axis)
    return True


def _group_per_output(s: Schedule, out: ComputeOp, red: ComputeOp, threads: int) -> None:
    """Few outputs, long sums: the threads of a work-group share one sum."""
    tx = thread_axis("threadIdx.x")
    stage = s[out]
    fused = stage.fuse(*out.axis) if len(out.axis) > 1 else out.axis[0]
    stage.bind(fused, thread_axis("blockIdx.x"))
    rstage = s[red]
    k = rstage.fuse(*red.reduce_axis) if len(red.reduce_axis) > 1 else red.reduce_axis[0]
    # Neighbours of the sum in one thread: its loads come in pieces of up to 16 bytes.
    size = min((dtype_info(t.dtype).bytes for t in red.inputs), default=4)
    run = math.gcd(max(1, 16 // size), (reduce_size(red) or threads) // threads)
    if run > 1:
        k, own = rstage.split(k, factor=run)
        rstage.unroll(own)
    _, ki = rstage.split(k, factor=threads)
    rstage.bind(ki, tx)
    if out is red:
        return
    rstage.compute_at(stage, fused)
    rstage.set_scope("local")
