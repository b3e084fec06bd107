"""GPU schedules: blocks and threads for everything; shared memory and matrix units where a template says so.

Kinds, in the order they are tried: a tagged template (matmul), rows with several reductions over them (a work-group a row),
one reduction with its epilogue (a thread an output, or a work-group where there are few outputs and long sums),
elementwise. What is left runs as one kernel a stage.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir.dtype import dtype_info
from ...schedule import Schedule, create_schedule
from ...target import Target
from ...te import ComputeOp, Tensor, thread_axis
from . import matmul, matrix_units
from .analysis import Group, analyze, const_shape, reduce_size, shape_key, size_of
from .cpu import _common_rows, inline_injective

THREADS = 256
_OPEN_ROW = 256  # elements of a row of symbolic length, for the choice of threads


def schedule(outputs: list[Tensor], target: Target) -> Schedule:
    """The GPU schedule of a group."""
    s = create_schedule([t.op for t in outputs])
    group = analyze(outputs)
    inline_injective(s, group, keep=[op for op in group.ops if op.tag == "tile"])
    for reduction in group.reductions():
        if matrix_units.schedule_group(s, group, reduction, target):
            return s
    for op in group.ops:
        if op.tag in matmul.TAGS and matmul.schedule_gpu(s, group, op, target):
            return s
    for op in group.ops:
        if op.tag == "tile":
            s[op].compute_inline()
    reductions = group.reductions()
    if reductions and rows(s, group, reductions, target):
        return s
    if len(reductions) == 1 and with_epilogue(s, group, reductions[0], target):
        return s
    for op in group.ops:
        if isinstance(op, ComputeOp) and (group.is_output(op) or op.reduce_axis):
            bind_all(s, op, vector=not op.reduce_axis)
    return s


def bind_all(s: Schedule, op: ComputeOp, threads: int = THREADS, vector: bool = False) -> Any:
    """All data axes fused and bound to blocks and threads; 16-byte vectors where they divide. Returns the thread's axis."""
    stage = s[op]
    total = size_of(op.output(0).shape)
    bx, tx = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
    if not op.axis:
        if not op.reduce_axis:
            one = stage.fuse()  # no axes: a loop of one
            stage.bind(one, tx)
            return one
        # One sum: a work-group shares it.
        k = stage.fuse(*op.reduce_axis) if len(op.reduce_axis) > 1 else op.reduce_axis[0]
        _, inner = stage.split(k, factor=64)
        stage.bind(inner, tx)
        return inner
    fused = stage.fuse(*op.axis) if len(op.axis) > 1 else op.axis[0]
    lanes = 16 // max(1, {"64": 8, "32": 4, "16": 2}.get(op.output(0).dtype[-2:], 1))
    if vector and total is not None and lanes > 1 and total % lanes == 0 and total >= lanes * 64:
        fused, vec = stage.split(fused, factor=lanes)
        stage.vectorize(vec)
        total //= lanes
    if total is not None:
        threads = min(threads, max(32, 1 << (total - 1).bit_length())) if total < threads else threads
    outer, inner = stage.split(fused, factor=threads)
    stage.bind(outer, bx)
    stage.bind(inner, tx)
    return inner


def with_epilogue(s: Schedule, group: Group, red: ComputeOp, target: Target) -> bool:
    """One reduction, its output read elementwise: a thread an output."""
    if len(group.output_ops) != 1:
        return False
    out = group.output_ops[0]
    if not isinstance(out, ComputeOp):
        return False
    if out is not red and (out.reduce_axis or size_of(out.output(0).shape) != size_of(red.output(0).shape)):
        return False
    outputs, length = size_of(red.output(0).shape), reduce_size(red)
    if (
        outputs is not None
        and length is not None
        and length >= 256
        and outputs <= 4096
        and out.axis
        and red.num_outputs == 1
    ):
        return _group_per_output(s, out, red)
    if red.tag == "pixels" and pixels(s, out, red):
        return True
    inner = bind_all(s, out, 64)
    if out is not red:
        s[red].compute_at(s[out], inner)
        s[red].set_scope("local")
    return True


def pixels(s: Schedule, out: ComputeOp, red: ComputeOp) -> bool:
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
    outer, inner = final.split(final.fuse(p, c), factor=64)
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


def _group_per_output(s: Schedule, out: ComputeOp, red: ComputeOp) -> bool:
    """Few outputs, long sums: the threads of a work-group share one sum."""
    tx = thread_axis("threadIdx.x")
    stage = s[out]
    fused = stage.fuse(*out.axis) if len(out.axis) > 1 else out.axis[0]
    stage.bind(fused, thread_axis("blockIdx.x"))
    rstage = s[red]
    k = rstage.fuse(*red.reduce_axis) if len(red.reduce_axis) > 1 else red.reduce_axis[0]
    # Neighbours of the sum in one thread: its loads come in pieces of up to 16 bytes.
    size = min((dtype_info(t.dtype).bytes for t in red.inputs), default=4)
    run = math.gcd(max(1, 16 // size), (reduce_size(red) or 64) // 64)
    if run > 1:
        k, own = rstage.split(k, factor=run)
        rstage.unroll(own)
    _, ki = rstage.split(k, factor=64)
    rstage.bind(ki, tx)
    if out is red:
        return True
    rstage.compute_at(stage, fused)
    rstage.set_scope("local")
    return True


def rows(s: Schedule, group: Group, reductions: list[ComputeOp], target: Target) -> bool:
    """Reductions along the rows of one output (softmax, normalisation): a work-group a row, the threads share each reduction."""
    if len(group.output_ops) != 1:
        return False
    out = group.output_ops[0]
    if not isinstance(out, ComputeOp) or out.reduce_axis:
        return False
    outer = _common_rows(out, reductions)
    if not outer or outer >= len(out.axis):
        return False
    length = size_of(a.dom.extent for a in out.axis[outer:] if a.dom is not None)
    if length is not None and length < 2:
        return False
    if any(shape_key(r.output(0))[:outer] != shape_key(out.output(0))[:outer] for r in reductions):
        return False
    if any(size_of(r.output(0).shape[outer:]) != 1 for r in reductions):
        return False  # sums for each element of the row, not for the row
    # Rows of symbolic length: as many threads as suit short and middling ones.
    sizes = [length, *[reduce_size(r) for r in reductions]]
    longest = max(_OPEN_ROW if n is None else n for n in sizes)
    threads = 32 if longest <= 64 else 64 if longest <= 1024 else 256
    stage = s[out]
    lead = stage.fuse(*out.axis[:outer]) if outer > 1 else out.axis[0]
    stage.bind(lead, thread_axis("blockIdx.x"))
    rest = stage.fuse(*out.axis[outer:]) if len(out.axis) - outer > 1 else out.axis[outer]
    _, inner = stage.split(rest, factor=threads)
    tx = thread_axis((0, threads), "threadIdx.x")
    stage.bind(inner, tx)
    for red in reductions:
        rstage = s[red]
        k = rstage.fuse(*red.reduce_axis) if len(red.reduce_axis) > 1 else red.reduce_axis[0]
        _, ki = rstage.split(k, factor=threads)
        rstage.bind(ki, tx)
        rstage.compute_at(stage, lead)
        rstage.set_scope("shared")
    return True
