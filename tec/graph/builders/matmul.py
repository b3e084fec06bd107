"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

from ...errors import ImportModelError
from ...ops.dims import is_zero
from ..graph import Value
from .builder import Builder


def matmul(b: Builder, x: Value, y: Value, **attrs: Any) -> Value:
    """NumPy's matmul: vectors are rows or columns that vanish from the result. `attrs` are those of the operator matmul."""
    rows = b.reshape(x, (1, x.shape[0])) if x.ndim == 1 else x
    cols = b.reshape(y, (y.shape[0], 1)) if y.ndim == 1 else y
    if cols.ndim == 2 and rows.ndim > 2 and not attrs.get("transpose_a") and not is_zero(rows.type.size):
        # One product of all rows with the same matrix.
        flat = b.op("matmul", b.reshape(rows, (math.prod(rows.shape[:-1]), rows.shape[-1])), cols, **attrs)
        out = b.reshape(flat, (*rows.shape[:-1], flat.shape[-1]))
    else:
        out = b.op("matmul", rows, cols, **attrs)
    shape = list(out.shape)
    if x.ndim == 1:
        del shape[-2]
    if y.ndim == 1:
        del shape[-1]
    return b.reshape(out, shape)


def determinant(b: Builder, x: Value) -> Value:
    """Of (..., n, n), by cofactors: for small n. ImportModelError where x is not square."""
    n = x.shape[-1]
    if x.shape[-2] != n:
        raise ImportModelError(f"the determinant of {x.type}", hint="square matrices")

    def at(i: int, j: int) -> Value:
        return b.reshape(b.slice(b.slice(x, -2, i, 1), -1, j, 1), x.shape[:-2])

    def minor(rows: list[int], cols: list[int]) -> Value:
        if len(rows) == 1:
            return at(rows[0], cols[0])
        total = None
        for k, j in enumerate(cols):
            term = b.op("multiply", at(rows[0], j), minor(rows[1:], cols[:k] + cols[k + 1 :]))
            total = term if total is None else b.op("subtract" if k % 2 else "add", total, term)
        assert total is not None
        return total

    return minor(list(range(n)), list(range(n)))
