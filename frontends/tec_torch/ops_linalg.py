"""Linear algebra of square matrices: inverses, determinants, Cholesky and LU factors, and systems of equations.

torch counts the rows of pivots from 1. Where it checks what a factorization says of itself (`_linalg_check_errors`), a run of the network fails in the same cases.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import Builder, control
from tec.graph.builders import linear_algebra as la

from .importer import AtenCall, aten_op
from .remedies import LEFT_TO_TORCH


def checked(c: AtenCall, value: Value, info: Value, place: int, says: str) -> Value:
    """`value`, where nobody asks whether result number `place`, `info`, is zero; else a run fails where one is not."""
    asked = any(
        getattr(user.target, "__name__", "").startswith("_linalg_check_errors")
        for getter in c.node.users if getter.args[1:] == (place,) for user in getter.users
    )  # fmt: skip
    if not asked:
        return value
    wrong = c.op("not_equal", c.reshape(info, (prod(info.shape),)), c.const(0, "int32"))
    count = c.op("reduce_sum", c.cast(wrong, "int32"), axes=(0,), keepdims=False)
    return c.op("require", value, c.op("equal", count, c.const(0, "int32")), text=f"{c.name_of_op}: {says}")


def from_one(c: AtenCall, pivots: Value, by: int = 1) -> Value:
    """Rows counted from 1, of those counted from 0 (`by` 1), or back (-1)."""
    return c.op("add", c.cast(pivots, "int32"), c.const(by, "int32"))


SINGULAR = "a matrix is singular"


@aten_op("linalg_inv_ex")
def inv(c: AtenCall, a: Value, check_errors: bool = False) -> Any:
    inverse, info = la.inverse(c, a)
    return checked(c, inverse, info, 1, SINGULAR), info


@aten_op("linalg_cholesky_ex")
def cholesky(c: AtenCall, a: Value, upper: bool = False, check_errors: bool = False) -> Any:
    factor, info = la.cholesky(c, a, upper)
    return checked(c, factor, info, 1, "a matrix is not positive definite"), info


@aten_op("linalg_lu_factor_ex")
def lu_factor(c: AtenCall, a: Value, pivot: bool = True, check_errors: bool = False) -> Any:
    made = factors(c, a, pivot)
    return checked(c, made.factors, made.info, 2, SINGULAR), from_one(c, made.pivots), made.info


def factors(c: AtenCall, a: Value, pivot: bool = True) -> la.LU:
    if not pivot or a.shape[-1] != a.shape[-2]:
        raise ImportModelError(
            f"LU factors of {a.type} {'' if pivot else 'without pivots'}".rstrip(),
            hint=f"square matrices of known size, with pivot=True; {LEFT_TO_TORCH}",
        )
    return la.lu(c, a)


@aten_op("linalg_lu_solve")
def lu_solve(c: AtenCall, lu: Value, pivots: Value, y: Value, left: bool = True, adjoint: bool = False) -> Value:
    return la.solve_by_lu(c, lu, from_one(c, pivots, -1), y, left, adjoint)


@aten_op("linalg_lu")
def lu(c: AtenCall, a: Value, pivot: bool = True) -> Any:
    made = factors(c, a, pivot)
    return unpacked(c, made.factors, made.pivots)


@aten_op("lu_unpack")
def lu_unpack(c: AtenCall, lu: Value, pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    return unpacked(c, lu, from_one(c, pivots, -1))


def unpacked(c: AtenCall, lu: Value, pivots: Value) -> tuple[Value, Value, Value]:
    """P, L and U with A = P L U."""
    one = c.broadcast(c.const(np.eye(lu.shape[-1]), lu.dtype), lu.shape)
    n = lu.shape[-1]
    below = c.const(np.tril(np.ones((n, n), bool), -1))
    lower = c.op("add", c.op("where", below, lu, c.like(0, lu)), one)
    return la.rows_in_order(c, one, pivots, inverse=True), lower, c.op("where", below, c.like(0, lu), lu)


@aten_op("_linalg_solve_ex")
def solve(c: AtenCall, a: Value, y: Value, left: bool = True, check_errors: bool = False) -> Any:
    is_vector = y.ndim == 1 or (y.ndim == a.ndim - 1 and y.shape == a.shape[:-1])
    columns = c.unsqueeze(y, y.ndim) if is_vector else y
    made = la.lu(c, a)
    batch = la.batches(a, columns)
    wide = [c.broadcast(x, (*batch, *x.shape[-2:])) for x in (made.factors, columns)]
    pivots = c.broadcast(made.pivots, (*batch, a.shape[-1]))
    x = la.solve_by_lu(c, wide[0], pivots, wide[1], left)
    x = c.squeeze(x, x.ndim - 1) if is_vector else x
    return checked(c, x, made.info, 3, SINGULAR), made.factors, from_one(c, made.pivots), made.info


@aten_op("_linalg_det")
def det(c: AtenCall, a: Value) -> Any:
    made = factors_of_determinant(c, a)
    return la.determinant(c, made), made.factors, from_one(c, made.pivots)


@aten_op("_linalg_slogdet")
def slogdet(c: AtenCall, a: Value) -> Any:
    made = factors_of_determinant(c, a)
    return *la.log_determinant(c, made), made.factors, from_one(c, made.pivots)


def factors_of_determinant(c: AtenCall, a: Value) -> Any:
    """Of the transposed matrix where torch's lies row by row: there its gradient solves with these factors, and says itself which of both they are."""
    given = c.node.args[0].meta["val"]  # type: ignore[union-attr]
    return la.lu(c, la.transposed(c, a) if given.is_contiguous() else a)


@aten_op("linalg_solve_triangular")
def solve_triangular(
    c: AtenCall, a: Value, y: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    return la.solve_triangular(c, a, y, upper, unitriangular, left)


@aten_op("triangular_solve")
def triangular_solve(
    c: AtenCall, y: Value, a: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    x = la.solve_triangular(c, la.transposed(c, a) if transpose else a, y, upper != transpose, unitriangular)
    return x, c.broadcast(a, (*x.shape[:-2], *a.shape[-2:]))


@aten_op("cholesky_solve")
def cholesky_solve(c: AtenCall, y: Value, factor: Value, upper: bool = False) -> Value:
    lower = la.transposed(c, factor) if upper else factor
    return la.solve_triangular(c, la.transposed(c, lower), la.solve_triangular(c, lower, y, False), True)


@aten_op("cholesky_inverse")
def cholesky_inverse(c: AtenCall, factor: Value, upper: bool = False) -> Value:
    one = c.broadcast(c.const(np.eye(factor.shape[-1]), factor.dtype), factor.shape)
    return cholesky_solve(c, one, factor, upper)


# Taylor's series of a matrix whose norm is at most 1: the first term left out is below a unit in the last place.
_TERMS = {"float32": 11, "float64": 18}
_MOST_SQUARINGS = 64  # a matrix of a larger norm than 2^64 has no exponential that a float holds


@aten_op("linalg_matrix_exp")
def matrix_exp(c: AtenCall, a: Value) -> Value:
    """The series of a / 2^s, squared s times (N. Higham, "The scaling and squaring method for the matrix exponential revisited", 2005)."""
    if a.dtype not in _TERMS:
        raise ImportModelError(f"matrix_exp of {a.dtype}", hint="x.float() or x.double() before")
    columns = c.op("reduce_sum", c.op("abs", a), axes=(a.ndim - 2,), keepdims=True)
    norm = c.op("reduce_max", columns, axes=(a.ndim - 1,), keepdims=True)
    halvings = c.op("ceil", c.op("log2", c.op("maximum", norm, c.like(1, norm))))
    halvings = c.op("minimum", halvings, c.like(_MOST_SQUARINGS, norm))
    small = c.op("multiply", a, c.op("exp2", c.op("neg", halvings)))
    one = c.broadcast(c.const(np.eye(a.shape[-1]), a.dtype), a.shape)
    y = one
    for k in range(_TERMS[a.dtype], 0, -1):
        y = c.op("add", one, c.op("multiply", c.op("matmul", small, y), c.like(1 / k, a)))
    times = c.cast(halvings, "int64")
    most = c.op("reduce_max", times, axes=tuple(range(a.ndim)), keepdims=False)

    def square(into: Builder, trip: Value, now: list[Value], rows: list[Value]) -> Any:
        (x,) = now
        return [into.op("where", into.op("less", trip, times), into.op("matmul", x, x), x)], [], None

    (y,), _ = control.loop(c, square, [y], _MOST_SQUARINGS, count=most)
    return y
