"""Inverses, determinants and solutions of systems of equations, by factors of matrices (`tec.ops.factors`). Matrices are the last two dimensions; what is before them is a batch."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from ...errors import ImportModelError
from ...ops.dims import Size, is_symbolic
from ...ops.registry import broadcast_shapes
from ..graph import Value
from .builder import Builder

WIDE = ("float32", "float64")  # that factors are computed in


class LU(NamedTuple):
    """P A = L U: both factors in one matrix; the row, from 0, that changed places with each; 0 or the number of a pivot that is zero."""

    factors: Value
    pivots: Value
    info: Value


def transposed(b: Builder, x: Value) -> Value:
    """Matrices with rows and columns exchanged."""
    return b.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def lu(b: Builder, a: Value) -> LU:
    """The factors of square matrices."""
    batch, n = a.shape[:-2], a.shape[-1]
    factors, pivots, info = b.ops("lu", _stacked(b, a))
    return LU(b.reshape(factors, a.shape), b.reshape(pivots, (*batch, n)), b.reshape(info, batch))


def cholesky(b: Builder, a: Value, upper: bool = False) -> tuple[Value, Value]:
    """L with A = L L^T of the lower triangles of A (or U with A = U^T U of the upper ones), zeros beside it; and 0, or the number of a pivot that is not positive."""
    u, info = b.ops("cholesky", _stacked(b, a if upper else transposed(b, a)))
    u = b.reshape(u, a.shape)
    return u if upper else transposed(b, u), b.reshape(info, a.shape[:-2])


def solve_triangular(b: Builder, a: Value, y: Value, upper: bool, unit: bool = False, left: bool = True) -> Value:
    """X with A X = Y of triangular matrices, or X A = Y where not `left`."""
    if not left:
        return transposed(b, solve_triangular(b, transposed(b, a), transposed(b, y), not upper, unit))
    a, y = _alike(b, a, y)
    x = b.op("substitution", _stacked(b, a), _stacked(b, y), upper=upper, unit=unit)
    return b.reshape(x, y.shape)


def solve_by_lu(b: Builder, factors: Value, pivots: Value, y: Value, left: bool = True, adjoint: bool = False) -> Value:
    """X with A X = Y, or X A = Y where not `left`; of A^T in A's place where `adjoint`."""
    if not left:
        return transposed(b, solve_by_lu(b, factors, pivots, transposed(b, y), adjoint=not adjoint))
    if not adjoint:
        y = solve_triangular(b, factors, rows_in_order(b, y, pivots), upper=False, unit=True)
        return solve_triangular(b, factors, y, upper=True)
    turned = transposed(b, factors)
    y = solve_triangular(b, turned, y, upper=False)
    return rows_in_order(b, solve_triangular(b, turned, y, upper=True, unit=True), pivots, inverse=True)


def inverse(b: Builder, a: Value) -> tuple[Value, Value]:
    """The inverses, and 0 or the number of a pivot that is zero."""
    made = lu(b, a)
    one = b.broadcast(b.const(np.eye(a.shape[-1]), a.dtype), a.shape)
    return solve_by_lu(b, made.factors, made.pivots, one), made.info


def rows_in_order(b: Builder, y: Value, pivots: Value, inverse: bool = False) -> Value:
    """P Y, or P^T Y where `inverse`; pivots may have fewer batches, which are all matrices'."""
    n = y.shape[-2]
    count = prod(pivots.shape[:-1])
    order = b.op("row_order", b.reshape(pivots, (count, n)), inverse=inverse)
    order = b.reshape(b.broadcast(b.reshape(order, pivots.shape), y.shape[:-1]), (prod(y.shape[:-2]), n))
    first = b.reshape(b.op("iota", size=prod(y.shape[:-2]), start=0, step=n, dtype="int32"), (prod(y.shape[:-2]), 1))
    flat = b.reshape(y, (prod(y.shape[:-1]), y.shape[-1]))
    at = b.reshape(b.op("add", order, first), (prod(y.shape[:-1]),))
    return b.reshape(b.op("gather", flat, at, axis=0), y.shape)


def diagonal(b: Builder, a: Value) -> Value:
    """(..., n) of square matrices."""
    n = a.shape[-1]
    flat = b.reshape(a, (*a.shape[:-2], n * n))
    return b.slice(flat, a.ndim - 2, 0, n, n + 1)


def sign_of_order(b: Builder, pivots: Value, dtype: str) -> Value:
    """1 or -1 of each matrix: whether rows changed places an even number of times."""
    n = pivots.shape[-1]
    moved = b.cast(b.op("not_equal", pivots, b.const(np.arange(n), "int32")), "int32")
    count = b.op("reduce_sum", moved, axes=(pivots.ndim - 1,), keepdims=False)
    odd = b.op("bitwise_and", count, b.const(1, "int32"))
    return b.cast(b.op("subtract", b.const(1, "int32"), b.op("add", odd, odd)), dtype)


def determinant(b: Builder, made: LU) -> Value:
    """Of matrices by their factors."""
    product = b.op("reduce_prod", diagonal(b, made.factors), axes=(made.pivots.ndim - 1,), keepdims=False)
    return b.op("multiply", product, sign_of_order(b, made.pivots, product.dtype))


def log_determinant(b: Builder, made: LU) -> tuple[Value, Value]:
    """The sign of a determinant (0 of a singular matrix), and the logarithm of its magnitude."""
    d = diagonal(b, made.factors)
    axes = (made.pivots.ndim - 1,)
    sign = b.op("reduce_prod", b.op("sign", d), axes=axes, keepdims=False)
    logs = b.op("reduce_sum", b.op("log", b.op("abs", d)), axes=axes, keepdims=False)
    return b.op("multiply", sign, sign_of_order(b, made.pivots, sign.dtype)), logs


def batches(a: Value, y: Value) -> tuple[Size, ...]:
    """The batches of a system of equations."""
    return tuple(broadcast_shapes(a.shape[:-2], y.shape[:-2]))


def _stacked(b: Builder, x: Value) -> Value:
    """As (matrices, rows, columns)."""
    if x.dtype not in WIDE:
        raise ImportModelError(f"factors of matrices of {x.dtype}", hint="cast them to float32")
    if is_symbolic(x.shape[-2:]):
        raise ImportModelError(
            f"factors of matrices of symbolic size {x.type}", hint="a size for the matrices in shapes="
        )
    return b.reshape(x, (prod(x.shape[:-2]), *x.shape[-2:]))


def _alike(b: Builder, a: Value, y: Value) -> tuple[Value, Value]:
    """Both with the batches of either."""
    batch = batches(a, y)
    return b.broadcast(a, (*batch, *a.shape[-2:])), b.broadcast(y, (*batch, *y.shape[-2:]))
