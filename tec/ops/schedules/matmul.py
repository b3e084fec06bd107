"""Matrix products: C[..., i, j] = sum_k A[..., i, k] * B[..., k, j], with an elementwise epilogue.

CPU: a register tile of C (rows times two or four vectors), the other loops over threads; B is read in place (its rows are
contiguous) or comes packed. GPU: a tile of C a work-group, A and B staged through shared memory, a register tile a thread;
on matrix units where the chip has them for the type (see tec.te.intrin).
"""

from __future__ import annotations

from typing import Any

from ...schedule import Schedule
from ...target import Target
from ...te import ComputeOp, Operation, thread_axis
from .analysis import Group, const_shape, largest_divisor, size_of

TAGS = ("matmul", "conv_gemm")


def _anchor_and_output(group: Group, op: Operation) -> tuple[ComputeOp, ComputeOp] | None:
    """The product and the one output it ends in, where the output has the product's shape."""
    if not isinstance(op, ComputeOp) or len(group.output_ops) != 1 or len(group.reductions()) != 1:
        return None
    out = group.output_ops[0]
    mine, theirs = const_shape(op.output(0)), const_shape(out.output(0))
    if not isinstance(out, ComputeOp) or None in mine or None in theirs:
        return None
    flat = op.tag == "conv_gemm" and size_of(out.output(0).shape) == size_of(op.output(0).shape)
    if mine != theirs and not (flat and len(theirs) == len(mine) + 1):
        return None
    return op, out


def schedule_cpu(s: Schedule, group: Group, op: Operation, target: Target) -> bool:
    """Register tiling; returns False where the shape does not fit the template."""
    pair = _anchor_and_output(group, op)
    if pair is None or len(op.axis) < 2 or len(op.reduce_axis) != 1:
        return False
    mm, out = pair
    *_, m, n = (int(d or 0) for d in const_shape(mm.output(0)))
    lanes = max(4, target.vector_bytes // 4)
    if n < lanes or mm.output(0).dtype not in ("float32", "float64", "int32"):
        return False
    width = 2 * lanes if n % (2 * lanes) == 0 else lanes
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
    final.vectorize(ji) if n % width == 0 else None
    acc = s[cached]
    loops = [*axes[:-2], jo, io]
    outer = final.fuse(*loops)
    if 2 * m * n * (size_of([mm.reduce_axis[0].dom.extent]) or 1) >= 1 << 18:
        final.parallel(outer)
    acc.compute_at(final, outer)
    acc.set_scope("local")
    *lead, ci, cj = acc.op.axis
    (k,) = acc.op.reduce_axis
    ko, ki = acc.split(k, factor=4 if (size_of([k.dom.extent]) or 0) % 4 == 0 else 1)
    cjo, cji = acc.split(cj, factor=lanes)
    acc.reorder(*lead, ko, ki, ci, cjo, cji)
    acc.vectorize(cji)
    acc.unroll(cjo)
    acc.unroll(ci)
    acc.unroll(ki)
    return True


def schedule_gpu(s: Schedule, group: Group, op: Operation, target: Target) -> bool:
    """Shared-memory tiling; returns False for products too small for it.

    The product's axes are (batch..., m, n). The output of a "conv_gemm" has two axes for n: its rows and columns.
    """
    pair = _anchor_and_output(group, op)
    if pair is None or len(op.axis) < 2 or len(op.reduce_axis) != 1:
        return False
    mm, out = pair
    columns = len(out.axis) - len(mm.axis) + 1
    *_, m, n = (int(d or 0) for d in const_shape(mm.output(0)))
    k_size = size_of(a.dom.extent for a in mm.reduce_axis if a.dom is not None) or 0
    if m < 8 or n < 8 or k_size < 4:
        return False
    tile_m, tile_n = (64 if m >= 48 else 32 if m >= 24 else 16), (64 if n >= 48 else 32 if n >= 24 else 16)
    ty_n, tx_n = min(16, tile_m // 4), min(16, tile_n // 4)
    step = 16 if k_size >= 16 else 8 if k_size >= 8 else 4
    final = s[out.output(0)]
    cached = s.cache_write(out.output(0), "local") if out is mm else mm.output(0)
    acc = s[cached]
    acc.set_scope("local")
    tiles = [_shared_tile(s, t, cached) for t in acc.op.inputs]
    tx, ty = thread_axis((0, tx_n), "threadIdx.x"), thread_axis((0, ty_n), "threadIdx.y")
    axes = list(final.op.axis)
    lead, i, js = axes[: -columns - 1], axes[-columns - 1], axes[-columns:]
    j = final.fuse(*js) if columns > 1 else js[0]
    io, ii = final.split(i, factor=tile_m)
    jo, ji = final.split(j, factor=tile_n)
    ti, iv = final.split(ii, nparts=ty_n)
    tj, jv = final.split(ji, nparts=tx_n)
    final.reorder(*lead, io, jo, ti, tj, iv, jv)
    if lead:
        final.bind(final.fuse(*lead) if len(lead) > 1 else lead[0], thread_axis("blockIdx.z"))
    for axis, thread in ((io, thread_axis("blockIdx.y")), (jo, thread_axis("blockIdx.x")), (ti, ty), (tj, tx)):
        final.bind(axis, thread)
    acc.compute_at(final, tj)
    (k,) = acc.op.reduce_axis
    ko, ki = acc.split(k, factor=step)
    own = list(acc.op.axis)
    acc.reorder(ko, ki, *own)
    for axis in own[-2:]:
        acc.unroll(axis)
    for tile in tiles:
        stage = s[tile]
        stage.compute_at(acc, ko)
        fused = stage.fuse(*stage.op.axis)
        _, f = stage.split(fused, factor=tx_n * ty_n)
        fy, fx = stage.split(f, factor=tx_n)
        stage.bind(fy, ty)
        stage.bind(fx, tx)
    return True


def _shared_tile(s: Schedule, t: Any, reader: Any) -> Any:
    """The stage that fills the shared tile of an operand: an im2col computed straight into it, or a copy."""
    if t.op.tag == "im2col":
        s[t].set_scope("shared")
        return t
    return s.cache_read(t, "shared", [reader])
