"""How a reduction reads what it sums: along memory or across it, and whether its elements are one run."""

from __future__ import annotations

from ...ir import IntImm, TensorRead
from ...ir.visit import free_vars, walk_exprs
from ...te import ComputeOp
from ..group import const_shape, size_of


def most_read(red: ComputeOp) -> TensorRead | None:
    """The read of the largest tensor in a reduction's body."""
    reads = [e for b in red.body for e in walk_exprs(b) if isinstance(e, TensorRead) and e.indices]
    return max(reads, key=lambda e: size_of(e.tensor.shape) or (1 << 60), default=None)


def along(red: ComputeOp) -> bool:
    """Whether what is read most lies along the reduction: neighbours of memory go into one sum."""
    most = most_read(red)
    if most is None:
        return False
    inner = free_vars(most.indices[-1])
    return any(v is a.var for v in inner for a in red.reduce_axis) and not any(
        v is a.var for v in inner for a in red.axis
    )


def in_a_row(red: ComputeOp) -> bool:
    """Whether the elements of a sum lie one after another in what is read most: the reduction's axes are its last indices, whole and in order."""
    axes, most = list(red.reduce_axis), most_read(red)
    if most is None or len(most.indices) < len(axes):
        return False
    shape, last = const_shape(most.tensor), most.indices[-len(axes) :]
    extents = [a.dom.extent if a.dom is not None else None for a in axes]
    inner = zip(extents[1:], shape[len(shape) - len(axes) + 1 :])
    return all(i is a.var for i, a in zip(last, axes)) and all(type(e) is IntImm and e.value == n for e, n in inner)
