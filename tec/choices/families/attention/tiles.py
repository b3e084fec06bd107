"""How blocks of keys and values lie in shared memory for an attention on matrix units."""

from __future__ import annotations

from ....ir.dtype import dtype_info
from ....ops.attention import Geometry
from ...space import Choice
from .fragments import Fragments

_MOST_PIECES = 3  # 0, 1 or 2 pieces behind a row: with one of them no two lanes meet in a bank
PIECE_BYTES = 16  # the widest access of a thread


def sizes(f: Fragments, g: Geometry) -> tuple[int, int]:
    """Of a key and of a value, as whole operands."""
    to = f.keys if f.turned else 2 * f.keys  # ldmatrix brings operands of two tiles at once
    return -(-g.size // f.instr.k) * f.instr.k, -(-g.value_size // to) * to


def strides(f: Fragments, g: Geometry, dtype: str, keys: int) -> tuple[int, int, int]:
    """Elements from row to row of keys and of values in shared memory, and rows of values. Some bytes more than the row has: the rows that lanes read side by side then begin in
    different banks."""
    bytes_ = dtype_info(dtype).bytes
    piece = PIECE_BYTES // bytes_
    size, value_size = sizes(f, g)
    if not f.turned:
        return size + piece, value_size + piece, keys

    def apart(row: int) -> int:
        ways = [row + n * piece for n in range(_MOST_PIECES)]
        return min(ways, key=lambda n: f.read_clocks(n * bytes_))

    return apart(size), apart(keys), value_size


def shared_bytes(f: Fragments, g: Geometry, dtype: str, choice: Choice) -> int:
    """Of blocks of keys and values, and of queries where they are not held in registers."""
    step_k, step_v, rows_v = strides(f, g, dtype, choice["keys"])
    blocks = (choice["keys"] * step_k + rows_v * step_v) * max(1, choice["stages"])
    queries_step = sizes(f, g)[0] + PIECE_BYTES // dtype_info(dtype).bytes
    queries = 0 if choice["hold"] else choice["rows"] * choice["waves"] * queries_step
    total: int = (blocks + queries) * dtype_info(dtype).bytes
    return total
