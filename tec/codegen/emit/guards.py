"""What guarded loads, `if_then_else(cond, A[i], constant)`, have in common on GPUs: they need no branch where the buffer's size is known."""

from __future__ import annotations

from ...ir import expr as E
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info

_MOST_BYTES = 1 << 31  # that offsets of 32 bits reach


def bytes_of(buffer: Buffer) -> int | None:
    """Bytes of a buffer that 32-bit offsets reach; None where they are not known, or more."""
    element = dtype_info(buffer.dtype)
    size = element.bytes * element.lanes
    for n in buffer.shape:
        if not isinstance(n, E.IntImm):
            return None
        size *= n.value
    return size if size < _MOST_BYTES else None


def lane_of(e: E.Expr) -> E.Expr:
    """What all lanes of a broadcast are."""
    return e.value if isinstance(e, E.Broadcast) else e


def is_constant(e: E.Expr) -> bool:
    """Whether all lanes are one number."""
    return isinstance(lane_of(e), (E.IntImm, E.FloatImm))
