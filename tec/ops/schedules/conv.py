"""Direct convolutions on the CPU, blocked layout: data (N, C/c, H, W, c), weights (O/o, C/c, KH, KW, c, o), output (N, O/o, OH, OW, o).

A register tile of `ow` output columns times one vector of output channels stays in registers over the whole reduction; each
step broadcasts one input value against one vector of weights.
"""

from __future__ import annotations

from ...schedule import Schedule
from ...target import Target
from ...te import ComputeOp, Operation
from .analysis import Group, const_shape, same_shape

TAGS = ("conv2d_nchwc", "depthwise_nchwc")
# Whose padded input is made first. A sum over channels reads it many times; a depthwise one so few that the copy would cost as much
# as the sum: there the tiles at the edges have conditions, which are known once the window is unrolled.
PADDED_FIRST = ("conv2d_nchwc",)
_OPEN_COLUMNS = 8  # of the register tile where the image's width is symbolic
MAX_ACCUMULATORS = 28  # of 32 vector registers; the others hold weights and the broadcast input


def column_tile(ow: int, limit: int = 14) -> int:
    """Columns of the register tile: the largest divisor up to the limit, or the limit with a ragged end."""
    best = max(d for d in range(1, min(ow, limit) + 1) if ow % d == 0)
    return best if best >= min(4, ow) else min(ow, 8)


def schedule_cpu(s: Schedule, group: Group, op: Operation, target: Target) -> bool:
    """The register-tiled direct convolution with its elementwise epilogue."""
    if not isinstance(op, ComputeOp) or len(group.output_ops) != 1 or len(group.reductions()) != 1:
        return False
    out = group.output_ops[0]
    if (
        not isinstance(out, ComputeOp)
        or not same_shape(out.output(0), op.output(0))
        or const_shape(op.output(0))[4] is None
    ):
        return False
    ow = const_shape(op.output(0))[3] or _OPEN_COLUMNS
    cached = s.cache_write(out.output(0), "local") if out is op else op.output(0)
    final, acc = s[out.output(0)], s[cached]
    acc.set_scope("local")
    n, co, oh, w, c = final.op.axis
    tile = column_tile(ow, MAX_ACCUMULATORS if ow % 28 == 0 else 14)
    wo, wi = final.split(w, factor=tile)
    final.reorder(n, co, oh, wo, wi, c)
    final.vectorize(c)
    outer = final.fuse(n, co, oh)
    final.parallel(outer)
    acc.compute_at(final, wo)
    _, _, _, aw, ac = acc.op.axis
    reduce = list(acc.op.reduce_axis)
    acc.reorder(*reduce, *acc.op.axis[:3], aw, ac)
    acc.vectorize(ac)
    acc.unroll(aw)
    return True
