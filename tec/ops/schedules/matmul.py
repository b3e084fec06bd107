"""Matrix products: C[..., i, j] = sum_k A[..., i, k] * B[..., k, j], with an elementwise epilogue.

CPU: a register tile of C (rows times two or four vectors), the other loops over threads; B is read in place (its rows are
contiguous) or comes packed. GPU: a tile of C a work-group, A and B staged through shared memory, a register tile a thread;
on matrix units where the chip has them for the type (see tec.te.intrin).
"""

from __future__ import annotations

from ...schedule import Schedule
from ...target import Target
from ...te import ComputeOp, Operation, thread_axis
from .analysis import Group, const_shape, extent, largest_divisor, reduce_size, same_shape, size_of

_OPEN_ROWS = 8  # of a register tile where the number of rows is symbolic
TAGS = ("matmul", "tiled_product")


def _anchor_and_output(group: Group, op: Operation) -> tuple[ComputeOp, ComputeOp] | None:
    """The product and the one output it ends in, where the output has the product's shape."""
    if not isinstance(op, ComputeOp) or len(group.output_ops) != 1 or len(group.reductions()) != 1:
        return None
    out = group.output_ops[0]
    if not isinstance(out, ComputeOp) or not same_shape(out.output(0), op.output(0)):
        return None
    return op, out


def schedule_cpu(s: Schedule, group: Group, op: Operation, target: Target) -> bool:
    """Register tiling; returns False where the shape does not fit the template."""
    pair = _anchor_and_output(group, op)
    if pair is None or len(op.axis) < 2 or len(op.reduce_axis) != 1:
        return False
    mm, out = pair
    *_, m, n = const_shape(mm.output(0))
    lanes = max(4, target.vector_bytes // 4)
    if (n is not None and n < lanes) or mm.output(0).dtype not in ("float32", "float64", "int32"):
        return False
    width = mm.attrs.get("block") or (2 * lanes if n is not None and n % (2 * lanes) == 0 else lanes)
    open_sizes = m is None or n is None
    if m is None:
        height = _OPEN_ROWS
    else:
        height = largest_divisor(m, 12 if width == 2 * lanes else 16)
        if height < 4:
            height = min(m, 8)
    stage = s[out]
    cached = s.cache_write(out.output(0), "local") if out is mm else mm.output(0)
    final = s[out.output(0)] if out is mm else stage
    axes = list(final.op.axis)
    io, ii = final.split(axes[-2], factor=height)
    jo, ji = final.split(axes[-1], factor=width)
    # The column panel outermost: its part of B stays in the second-level cache while the rows go by.
    final.reorder(*axes[:-2], jo, io, ii, ji)
    final.vectorize(ji) if n is None or n % width == 0 else None
    acc = s[cached]
    if open_sizes:
        # Loops of unknown length are not fused: it would take a division to find the place, and full tiles do not part from the
        # ragged ones at the end.
        lead = [*axes[:-2], jo] if n is not None else axes[:-2]
        panels = final.fuse(*lead) if len(lead) > 1 else lead[0] if lead else jo
        final.parallel(panels if len(axes) > 2 or n is None or n >= 4 * width else io)
        outer = io
    else:
        outer = final.fuse(*axes[:-2], jo, io)
        if 2 * m * n * (reduce_size(mm) or 1) >= 1 << 18:  # type: ignore[operator]
            final.parallel(outer)
    acc.compute_at(final, outer)
    acc.set_scope("local")
    *lead, ci, cj = acc.op.axis
    (k,) = acc.op.reduce_axis
    ko, ki = acc.split(k, factor=4 if (reduce_size(acc.op) or 1) % 4 == 0 else 1)
    cjo, cji = acc.split(cj, factor=lanes)
    acc.reorder(*lead, ko, ki, ci, cjo, cji)
    acc.vectorize(cji)
    acc.unroll(cjo)
    acc.unroll(ci)
    acc.unroll(ki)
    return True


def schedule_gpu(s: Schedule, group: Group, op: Operation, target: Target) -> bool:
    """A `tiled_product` (tec/ops/conv_gemm.py): its operands' tiles in shared memory, a block of the result a thread."""
    if op.tag != "tiled_product" or not isinstance(op, ComputeOp) or len(group.output_ops) != 1:
        return False
    out = group.output_ops[0]
    if not isinstance(out, ComputeOp) or len(out.axis) != len(op.axis):
        return False
    tile_m, tile_n, step = op.attrs["tile"]
    rows, cols = min(16, tile_m // 4), min(16, tile_n // 4)
    tx, ty = thread_axis((0, cols), "threadIdx.x"), thread_axis((0, rows), "threadIdx.y")
    final, acc = s[out], s[op]
    acc.set_scope("local")
    *lead, i, j = out.axis
    io, ii = final.split(i, factor=tile_m)
    jo, ji = final.split(j, factor=tile_n)
    ti, iv = final.split(ii, nparts=rows)
    tj, jv = final.split(ji, nparts=cols)
    final.reorder(*lead, io, jo, ti, tj, iv, jv)
    if lead:
        final.bind(final.fuse(*lead) if len(lead) > 1 else lead[0], thread_axis("blockIdx.z"))
    for axis, thread in ((io, thread_axis("blockIdx.y")), (jo, thread_axis("blockIdx.x")), (ti, ty), (tj, tx)):
        final.bind(axis, thread)
    final.unroll(iv)
    if (extent(out.axis[-1].dom.extent) or 1) % tile_n == 0:  # type: ignore[union-attr]
        final.vectorize(jv)
    else:
        final.unroll(jv)
    acc.compute_at(final, tj)
    (k,) = op.reduce_axis
    ko, ki = acc.split(k, factor=step)
    own = list(op.axis)
    acc.reorder(ko, ki, *own)
    if (size_of([k.dom.extent]) or 2 * step) > step:  # type: ignore[union-attr]
        acc.pragma(ko, "software_pipeline", 1)  # the next step's loads are under way in registers meanwhile
    for axis in own[-2:]:
        acc.unroll(axis)
    for tile in op.inputs:
        stage = s[tile]
        stage.set_scope("shared")
        stage.compute_at(acc, ko)
        fused = stage.fuse(*tile.op.axis)
        _, f = stage.split(fused, factor=cols * rows)
        fy, fx = stage.split(f, factor=cols)
        stage.bind(fy, ty)
        stage.bind(fx, tx)
    return True
