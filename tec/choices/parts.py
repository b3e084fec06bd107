"""Sums in parts: the second kernel of a product whose first one stores a sum for each part of k (see `padding.padded`, `bulk_products.in_parts`)."""

from __future__ import annotations

from typing import Any

from ..te import ComputeOp
from .group import Group, const_shape
from .pointwise import bind_all

_PIECE = 4  # neighbours of a row that a thread ends together
KERNEL_US = 2.0  # a second kernel, in a network's graph


def schedule_total(s: Any, group: Group, product: ComputeOp) -> None:
    """Schedule what adds the parts up and ends the computation."""
    out = group.output_ops[0]
    assert isinstance(out, ComputeOp)
    (total,) = (o for o in group.reductions() if o is not product)
    # Four neighbours of a row at once: where they were of two rows, whole rows would be summed for them.
    inner = bind_all(s, out, vector=16 if (const_shape(out.output(0))[-1] or 1) % _PIECE == 0 else 0)
    if total is not out:
        s[total].compute_at(s[out], inner)
        s[total].set_scope("local")
    s[total].unroll(s[total].op.reduce_axis[0])


def traffic_seconds(parts: int, results: int, gbps: float) -> float:
    """What storing and adding up the parts takes; they are still in the second-level cache, at about twice its memory's rate."""
    return KERNEL_US * 1e-6 + 4.0 * results * (2 * parts + 1) / (2e9 * gbps)


__all__ = ["schedule_total", "traffic_seconds"]
