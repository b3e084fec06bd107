"""Where the elements of a product's operand stand in shared memory: see `operands` for the three ways."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import build as B
from ..ir import expr as E
from ..ir.dtype import dtype_info
from .boxes import LINE_BYTES, LINES
from .layouts import padded

ACCESS_BYTES = 16  # what a lane reads of shared memory at once
At = Callable[[E.Expr, E.Expr], E.Expr]


def operand_stride(k: int, dtype: str) -> int:
    """Elements from row to row of an operand in shared memory: rows begin at multiples of 16 bytes, and in different banks."""
    size = dtype_info(dtype).bytes
    return padded(k, size, ACCESS_BYTES // size)


def rows_at(stride: int, along: int) -> At:
    """Places in padded rows."""
    return lambda row, column: B.add(B.mul(row, stride), column) if along else B.add(B.mul(column, stride), row)


def turned_at(columns: int, along: int, bytes_: int) -> At:
    """Places in rows without padding, whose pieces are exchanged."""
    piece = ACCESS_BYTES // bytes_
    pieces, lines = columns // piece, max(1, LINE_BYTES // (columns * bytes_))

    def at(row: E.Expr, column: E.Expr) -> E.Expr:
        line, far = (row, column) if along else (column, row)
        turn = B.floormod(B.bitwise_xor(B.floordiv(line, lines), B.floordiv(line, LINES)), min(LINES, pieces))
        moved = B.bitwise_xor(B.floordiv(far, piece), turn)
        return B.add(B.mul(line, columns), B.add(B.mul(moved, piece), B.floormod(far, piece)))

    return at


def boxes_at(lines: int, along: int, bytes_: int) -> At:
    """Places in boxes of so many lines of 128 bytes."""
    width, piece = LINE_BYTES // bytes_, ACCESS_BYTES // bytes_

    def at(row: E.Expr, column: E.Expr) -> E.Expr:
        line, far = (row, column) if along else (column, row)
        within = B.floormod(far, width)
        moved = B.bitwise_xor(B.floordiv(within, piece), B.floormod(line, LINES))
        start = B.mul(B.add(B.mul(B.floordiv(far, width), lines), line), width)
        return B.add(start, B.add(B.mul(moved, piece), B.floormod(far, piece)))

    return at


__all__ = ["ACCESS_BYTES", "At", "boxes_at", "operand_stride", "rows_at", "turned_at"]
