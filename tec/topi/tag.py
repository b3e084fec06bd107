"""Tags of operators, by which a schedule function tells what it may inline: as te's users know them."""

from __future__ import annotations

from ..errors import listed
from ..te.tensor_ops import BROADCAST, ELEMWISE

INJECTIVE = "injective"
COMM_REDUCE = "comm_reduce"
COMM_REDUCE_IDX = "comm_reduce_idx"

__all__ = ["BROADCAST", "COMM_REDUCE", "COMM_REDUCE_IDX", "ELEMWISE", "INJECTIVE", "is_broadcast", "is_injective"]


def is_broadcast(tag: str) -> bool:
    """Whether an operator of this tag reads each tensor at the place that it writes, as far as that one has the dimension."""
    return tag in (ELEMWISE, BROADCAST) or tag.startswith((ELEMWISE, BROADCAST))


def is_injective(tag: str) -> bool:
    """Whether an operator of this tag reads one place of each input for an output element: it may be inlined."""
    return is_broadcast(tag) or tag.startswith(INJECTIVE)


__dir__ = listed(__name__)
