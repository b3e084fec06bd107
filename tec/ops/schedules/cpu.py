"""CPU schedules: vectors along the innermost axis, threads over the outer ones, reductions in registers.

Kinds, in the order they are tried: a tagged template (matmul, conv2d_nchwc), rows with several reductions over them
(softmax, normalisation), one reduction with its epilogue, elementwise; what is left runs stage by stage.
"""

from __future__ import annotations

from ...schedule import Schedule, Stage, create_schedule
from ...target import Target
from ...te import ComputeOp, Operation, Tensor
from . import conv, matmul
from .analysis import Group, analyze, const_shape, extent, reduce_size, shape_key, size_of

PARALLEL_FROM = 16 * 1024  # elements times reduction length below which a thread start costs more than it brings


def schedule(outputs: list[Tensor], target: Target) -> Schedule:
    """The CPU schedule of a group."""
    s = create_schedule([t.op for t in outputs])
    group = analyze(outputs)
    pads = [
        op
        for op in group.ops
        if op.tag == "pad" and any(c.tag in conv.PADDED_FIRST for c in group.consumers.get(op, []))
    ]
    inline_injective(s, group, keep=pads)
    for op in pads:
        elementwise(s, op, target)  # type: ignore[arg-type]
    reductions = group.reductions()
    for op in group.ops:
        if op.tag in matmul.TAGS and matmul.schedule_cpu(s, group, op, target):
            return s
        if op.tag in conv.TAGS and conv.schedule_cpu(s, group, op, target):
            return s
    if len(reductions) > 1 and rows(s, group, reductions, target):
        return s
    if len(reductions) == 1 and with_epilogue(s, group, reductions[0], target):
        return s
    for op in group.ops:
        if isinstance(op, ComputeOp) and (group.is_output(op) or op.reduce_axis):
            (reduction if op.reduce_axis else elementwise)(s, op, target)
    return s


def inline_injective(s: Schedule, group: Group, keep: list[Operation] | None = None) -> None:
    """Computes without a reduction that are no outputs go into their readers, but for those to `keep`."""
    for op in group.ops:
        if (
            not isinstance(op, ComputeOp)
            or op.reduce_axis
            or group.is_output(op)
            or op.num_outputs != 1
            or (keep and op in keep)
        ):
            continue
        if all(isinstance(c, ComputeOp) for c in group.consumers.get(op, [])):
            s[op].compute_inline()


def lanes_for(dtype: str, target: Target) -> int:
    """Lanes of a vector register for a dtype (at least 4)."""
    bits = {"64": 8, "16": 2, "t8": 1}.get(dtype[-2:], 4)
    return max(4, target.vector_bytes // bits if bits >= 4 else 16)


def work(op: Operation) -> int:
    """Multiply-adds, roughly; large where sizes are symbolic."""
    elems = size_of(op.output(0).shape)
    return (elems if elems is not None else 1 << 30) * (reduce_size(op) or 1)


def elementwise(s: Schedule, op: ComputeOp, target: Target) -> None:
    """Outer axes fused over threads, the innermost split into vectors."""
    stage = s[op]
    axes = list(op.axis)
    if not axes:
        return
    lanes = lanes_for(op.output(0).dtype, target)
    total = size_of(op.output(0).shape)
    inner = extent(axes[-1].dom.extent) if axes[-1].dom is not None else None
    if inner is not None and inner % lanes and total is not None and total % lanes == 0 and len(axes) > 1:
        axes = [stage.fuse(*axes)]
        inner = total
    outer, vec = stage.split(axes[-1], factor=lanes if inner is None or inner >= lanes else max(inner, 1))
    if inner is None or inner >= 4:
        stage.vectorize(vec)
    loops = [*axes[:-1], outer]
    if work(op) >= PARALLEL_FROM:
        stage.parallel(stage.fuse(*loops) if len(loops) > 1 else loops[0])


def reduction(s: Schedule, op: ComputeOp, target: Target) -> None:
    """A reduction that stands alone: threads over the data axes; vectors along the last data axis, or along the reduced one."""
    op = in_parts(s, op, target)
    stage = s[op]
    axes = list(op.axis)
    last_extent = const_shape(op.output(0))[-1] if axes else 1
    lanes = lanes_for(op.output(0).dtype, target)
    outer = None
    if axes and (last_extent is None or last_extent >= lanes) and _reads_contiguously(op, axes[-1].var):
        outer, vec = stage.split(axes[-1], factor=lanes)
        stage.reorder(*axes[:-1], outer, *op.reduce_axis, vec)
        stage.vectorize(vec)
        axes = [*axes[:-1], outer]
    partial = in_lanes(s, op, target) if outer is None else None
    if partial is not None:
        stage = s[op]
        axes = list(stage.op.axis)
    loop = axes[-1] if axes else None
    if axes and work(op) >= PARALLEL_FROM:
        loop = stage.fuse(*axes) if len(axes) > 1 else axes[0]
        stage.parallel(loop)
    if partial is not None and loop is not None:
        partial.compute_at(stage, loop)


LONG_CHAIN = 1024  # additions one after another, from which rounding errors are worth a second step


def in_parts(s: Schedule, op: ComputeOp, target: Target) -> ComputeOp:
    """A long sum whose vectors lie along the data, as sums of parts and their sum; the operation that is left to schedule.

    Only where each element goes into one sum, so that the parts' sums are few beside the elements.
    """
    from ...ir import TensorRead
    from ...ir.visit import walk_exprs

    length, count, dtype = reduce_size(op), size_of(op.output(0).shape), op.output(0).dtype
    shape = const_shape(op.output(0))
    if length is None or count is None or length < LONG_CHAIN or op.num_outputs != 1 or not dtype.startswith("float"):
        return op
    if not shape or (shape[-1] or 0) < lanes_for(dtype, target) or not _reads_contiguously(op, op.axis[-1].var):
        return op
    reads = [size_of(e.tensor.shape) for b in op.body for e in walk_exprs(b) if isinstance(e, TensorRead)]
    if max((n or 0 for n in reads), default=0) < length * count:
        return op
    first = op.reduce_axis[0]
    n = (extent(first.dom.extent) if first.dom is not None else None) or 1
    outer = first if len(op.reduce_axis) > 1 and n * n >= length // 4 else s[op].split(first, nparts=min(n, 64))[0]
    partial = s[s.rfactor(op.output(0), outer)]
    reduction(s, partial.op, target)  # type: ignore[arg-type]
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
    if n < lanes or not _reads_contiguously(op, last.var, directly=True):
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


def _reads_contiguously(op: ComputeOp, var: object, directly: bool = False) -> bool:
    """Whether the axis `var` is the last index of every read that depends on it; `directly`: nothing but it, and some read is."""
    from ...ir import TensorRead
    from ...ir.visit import free_vars, walk_exprs

    reads = [e for b in op.body for e in walk_exprs(b) if isinstance(e, TensorRead)]
    for e in reads:
        for k, i in enumerate(e.indices):
            if any(v is var for v in free_vars(i)) and k != len(e.indices) - 1:
                return False
    if directly:
        last = [e.indices[-1] for e in reads if e.indices and any(v is var for v in free_vars(e.indices[-1]))]
        return bool(last) and all(i is var for i in last)
    return True


def with_epilogue(s: Schedule, group: Group, red: ComputeOp, target: Target) -> bool:
    """One reduction and an injective output that reads it elementwise: the reduction computed inside the output's loops."""
    if group.is_output(red) or len(group.output_ops) != 1:
        return False
    out = group.output_ops[0]
    if not isinstance(out, ComputeOp) or out.reduce_axis or not out.axis:
        return False
    if len(out.axis) != len(red.axis) or size_of(out.output(0).shape) != size_of(red.output(0).shape):
        return False
    red = in_parts(s, red, target)
    stage = s[out]
    if len(out.axis) == 1:
        outer, _ = stage.split(out.axis[0], factor=16)
    else:
        outer = stage.fuse(*out.axis[:-1]) if len(out.axis) > 2 else out.axis[0]
    if work(red) >= PARALLEL_FROM:
        stage.parallel(outer)
    s[red].compute_at(stage, outer)
    last = red.axis[-1]
    n = extent(last.dom.extent) if last.dom is not None else None
    lanes = lanes_for(red.output(0).dtype, target)
    if (n is None or n >= lanes) and len(out.axis) > 1 and _reads_contiguously(red, last.var):
        o, vec = s[red].split(last, factor=lanes)
        s[red].reorder(*red.axis[:-1], o, *red.reduce_axis, vec)
        s[red].vectorize(vec)
    else:
        rows_in_lanes(s, red, target)
    return True


def rows(s: Schedule, group: Group, reductions: list[ComputeOp], target: Target) -> bool:
    """Several reductions over the trailing axes of the output's rows: one pass of loops a row, everything else inside."""
    if len(group.output_ops) != 1:
        return False
    out = group.output_ops[0]
    if not isinstance(out, ComputeOp) or out.reduce_axis:
        return False
    lead = min(len([a for a in red.axis if extent(a.dom.extent) != 1]) for red in reductions) if reductions else 0  # type: ignore[union-attr]
    outer = _common_rows(out, reductions)
    if outer is None or outer == 0 or lead == 0:
        return False
    stage = s[out]
    lead_loop = stage.fuse(*out.axis[:outer]) if outer > 1 else out.axis[0]
    if work(out) >= PARALLEL_FROM // 4:
        stage.parallel(lead_loop)
    for red in reductions:
        s[red].compute_at(stage, lead_loop)
        rows_in_lanes(s, red, target)
    inner = out.axis[-1]
    n = extent(inner.dom.extent) if inner.dom is not None else None
    lanes = lanes_for(out.output(0).dtype, target)
    if outer < len(out.axis) and (n is None or n >= lanes):
        _, vec = stage.split(inner, factor=lanes)
        stage.vectorize(vec)
    return True


def _common_rows(out: ComputeOp, reductions: list[ComputeOp]) -> int | None:
    """How many leading axes of the output all reductions share with it (equal extents); None where that is no row pattern."""
    shape = shape_key(out.output(0))
    best = len(shape) - 1
    for red in reductions:
        own = shape_key(red.output(0))
        k = 0
        while k < min(len(own), len(shape)) and own[k] == shape[k]:
            k += 1
        if any(d != 1 for d in own[k:]):
            return None
        best = min(best, k)
    return best
