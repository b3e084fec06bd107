"""Where a kernel's shared buffers lie when the launch provides the memory: one behind the other, in the order of their allocation."""

from __future__ import annotations

from . import expr as E
from . import stmt as S
from .buffer import Buffer
from .dtype import dtype_info
from .visit import visit

PIECE_BYTES = 16  # the widest access of a thread: where every buffer starts at least
_DEFAULT_ALIGN = 64  # of a Buffer: a promise about pointers that come from outside, and no wish


def boundary_of(b: Buffer) -> int:
    """The alignment that a shared buffer asks for, in bytes: 16, or its own where it was set for a reason (swizzled boxes)."""
    return b.align_bytes if b.align_bytes > _DEFAULT_ALIGN else PIECE_BYTES


def shared_layout(body: S.Stmt) -> tuple[dict[int, int], int]:
    """(`id(buffer)` -> offset in bytes, bytes in all) of the shared buffers of constant size that a kernel's body allocates."""
    offsets: dict[int, int] = {}
    end = 0

    def on_stmt(s: S.Stmt) -> None:
        nonlocal end
        if isinstance(s, S.Alloc) and s.buffer.scope.startswith("shared"):
            info, size = dtype_info(s.buffer.dtype), 1
            for d in s.buffer.shape:
                size *= d.value if isinstance(d, E.IntImm) else 0
            boundary = boundary_of(s.buffer)
            start = -(-end // boundary) * boundary
            offsets[id(s.buffer)] = start
            end = start + -(-size * info.bytes * info.lanes // PIECE_BYTES) * PIECE_BYTES

    visit(body, None, on_stmt)
    return offsets, end
