"""How blocks of keys and values lie in shared memory for an attention on matrix units."""

from __future__ import annotations

from ....ir.dtype import dtype_info
from ....ops.attention import Geometry
from ...space import Choice
from .fragments import Fragments

PIECE_BYTES = 16  # the widest access of a thread


def sizes(f: Fragments, g: Geometry) -> tuple[int, int]:
    """Of a key and of a value, as whole operands."""
    to = f.keys if f.turned else 2 * f.keys  # ldmatrix brings operands of two tiles at once
    return -(-g.size // f.instr.k) * f.instr.k, -(-g.value_size // to) * to


def strides(f: Fragments, g: Geometry, dtype: str, keys: int) -> tuple[int, int, int]:
    """Elements from row to row of keys and of values in shared memory, and rows of values. 16 bytes more than the row has: the rows that
    lanes read side by side then begin in different banks."""
    piece = PIECE_BYTES // dtype_info(dtype).bytes
    size, value_size = sizes(f, g)
    return (size + piece, *((keys + piece, value_size) if f.turned else (value_size + piece, keys)))


def shared_bytes(f: Fragments, g: Geometry, dtype: str, choice: Choice) -> int:
    """Of blocks of keys and values, and of queries where they are not held in registers."""
    step_k, step_v, rows_v = strides(f, g, dtype, choice["keys"])
    blocks = (choice["keys"] * step_k + rows_v * step_v) * max(1, choice["stages"])
    queries = 0 if choice["hold"] else choice["rows"] * choice["waves"] * step_k
    total: int = (blocks + queries) * dtype_info(dtype).bytes
    return total
