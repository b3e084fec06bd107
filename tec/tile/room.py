"""How much shared memory the loops of a program use at a time: rings of tiles, and operands that stay there for several loops.

Loops in a row use one place (`ir.passes.plan_storage`), since all threads meet between them; within another loop or a branch each has its own.
"""

from __future__ import annotations

from typing import Any

from ..ir import expr as E
from ..ir.buffer import Buffer
from ..ir.dtype import dtype_info
from .control import Control
from .grammar import Op, walk


class Room(Control):
    """Shared memory in use."""

    loop_bytes: int = 0  # with a buffer of its own, in use now
    most_bytes: int = 0  # of it at a time
    # Of operands that stay there, by the tile: bytes, and how many products to come read it.
    kept_bytes: dict[int, tuple[int, int]]

    def take(self, count: int) -> None:
        """Use so many bytes more."""
        self.loop_bytes += count
        self.most_bytes = max(self.most_bytes, self.loop_bytes)

    def ring(self, planned: list[Any], stages: int) -> int:
        """Take the slots that a loop fills; their bytes."""
        count = sum(bytes_of(p.place.buffer) for p in planned) * stages
        self.take(count)
        return count

    def left(self, loop: Op, ring: int) -> None:
        """Behind a loop its ring makes room, and what no other product reads."""
        if self.nested:
            return
        self.loop_bytes -= ring
        for x in walk(loop.blocks[0]):
            for v in x.operands:
                count, uses = self.kept_bytes.get(id(v), (0, 0))
                if uses == 1:
                    self.loop_bytes -= count
                if uses:
                    self.kept_bytes[id(v)] = count, uses - 1


def bytes_of(buffer: Buffer) -> int:
    """Bytes of a buffer of constant size."""
    (size,) = buffer.shape
    assert isinstance(size, E.IntImm)
    return size.value * dtype_info(buffer.dtype).bytes


__all__ = ["Room", "bytes_of"]
