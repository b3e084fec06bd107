"""Products with sparse matrices, of whose rows the elements that are not zero are kept: CSR, and BSR with blocks in their place.

Row i of a CSR matrix has the elements data[indptr[i] : indptr[i + 1]] in the columns indices[indptr[i] : indptr[i + 1]]; of BSR, data has blocks of bs_r x bs_c,
and indices the columns of blocks. How many there are is an extent of `data`, which may be a variable. Each element of a result is one loop over the elements
of its row. SciPy's `csr_matrix` and `bsr_matrix` hold the same three arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import te
from ..errors import ExprError, listed
from ..te import Tensor

__all__ = [
    "CSR", "csrmm", "csrmv", "dense", "placeholder", "sparse_add", "sparse_dense", "sparse_dense_sp_lhs", "sparse_dense_sp_rhs", "sparse_transpose",
]  # fmt: skip


class CSR(NamedTuple):
    """A sparse matrix of `shape`: tensors `data` (nonzeros,), `indices` (nonzeros,) and `indptr` (rows + 1,)."""

    data: Tensor
    indices: Tensor
    indptr: Tensor
    shape: tuple[Any, Any]


def placeholder(
    shape: tuple[Any, Any], nonzeros: Any, dtype: str = "float32", itype: str = "int32", name: str = "A"
) -> CSR:
    """A sparse matrix that is an input. nonzeros: an int or a variable (`te.var`). itype: dtype of the indices."""
    return CSR(
        te.placeholder((nonzeros,), dtype, f"{name}_data"), te.placeholder((nonzeros,), itype, f"{name}_indices"),
        te.placeholder((shape[0] + 1,), itype, f"{name}_indptr"), tuple(shape),
    )  # fmt: skip


def _row(indptr: Tensor, row: Any, name: str) -> tuple[Any, Any]:
    """Where a row begins, and the axis over its elements."""
    start = indptr[row]
    return start, te.reduce_axis((0, indptr[row + 1] - start), name=name)


def csrmv(a: CSR, x: Tensor, y: Tensor | None = None) -> Tensor:
    """a x + y. x: (columns, 1) or (columns,); y: of as many dimensions, of 1 element, or None. Gives (rows, 1) or (rows,)."""
    flat = x.ndim == 1
    if x.ndim > 2 or (not flat and _constant(x.shape[1]) not in (1, None)):
        raise ExprError(
            f"csrmv with x of shape {x.shape}", hint="(columns, 1) or (columns,); topi.sparse.csrmm takes more columns"
        )
    made = csrmm(a, _compute((x.shape[0], 1), lambda i, _: x[i], name="column") if flat else x)
    if not flat:
        return made if y is None else _compute(made.shape, lambda i, j: made[i, j] + y[0], name="csrmv")
    return _compute(made.shape[:1], lambda i: made[i, 0] if y is None else made[i, 0] + y[0], name="csrmv")


def csrmm(a: CSR, b: Tensor, c: Tensor | None = None) -> Tensor:
    """a b + c. b: (columns, n); c: (n,) or None. Gives (rows, n)."""
    if b.ndim != 2:
        raise ExprError(f"csrmm with a matrix of {b.ndim} dimensions", hint="(columns, n)")

    def element(i: Any, j: Any) -> Any:
        start, k = _row(a.indptr, i, "k")
        return te.sum(a.data[start + k] * b[a.indices[start + k], j], axis=k)

    made = _compute((a.indptr.shape[0] - 1, b.shape[1]), element, name="csrmm")
    return made if c is None else _compute(made.shape, lambda i, j: made[i, j] + c[j], name="csrmm_bias")


def dense(data: Tensor | CSR, weight: Tensor | CSR, bias: Tensor | None = None) -> Tensor:
    """data (m, k) times the transpose of weight (n, k), one of which is a CSR matrix, and a bias (n,) or None. Gives (m, n). Raises ExprError where both or none are sparse."""
    if isinstance(data, CSR) and isinstance(weight, Tensor):
        made = sparse_dense(weight, data.data, data.indices, data.indptr, True)
    elif isinstance(weight, CSR) and isinstance(data, Tensor):
        made = sparse_dense(data, weight.data, weight.indices, weight.indptr)
    else:
        raise ExprError(
            "topi.sparse.dense of two sparse or two dense matrices",
            hint="one is of topi.sparse.placeholder; topi.nn.dense takes dense ones",
        )
    return made if bias is None else _compute(made.shape, lambda i, j: made[i, j] + bias[j], name="sparse_dense_bias")


def sparse_dense(
    dense_data: Tensor, sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor, sparse_lhs: bool = False
) -> Tensor:
    """dense times the transpose of sparse (m, k) (n, k) -> (m, n), or with `sparse_lhs` sparse times the transpose of dense, (m, k) (n, k) -> (m, n).

    sparse_data: (nonzeros,) of a CSR matrix, or (blocks, bs_r, bs_c) of a BSR matrix.
    """
    if dense_data.ndim != 2 or sparse_data.ndim not in (1, 3):
        raise ExprError(
            f"sparse_dense of data of {dense_data.ndim} dimensions, and sparse data of {sparse_data.ndim}",
            hint="(m, k) and (nonzeros,) of CSR, or (blocks, bs_r, bs_c) of BSR",
        )
    of = _csr if sparse_data.ndim == 1 else _bsr
    value = of(dense_data, sparse_data, sparse_indices, sparse_indptr)
    rows: Any = sparse_indptr.shape[0] - 1
    if sparse_data.ndim == 3:
        rows = rows * sparse_data.shape[1]
    if sparse_lhs:
        return _compute((rows, dense_data.shape[0]), lambda i, j: value(j, i), name="sparse_dense")
    return _compute((dense_data.shape[0], rows), value, name="sparse_dense")


def sparse_dense_sp_lhs(data_data: Tensor, data_indices: Tensor, data_indptr: Tensor, weight: Tensor) -> Tensor:
    """Sparse data (m, k) times the transpose of a dense weight (n, k). See `sparse_dense`."""
    return sparse_dense(weight, data_data, data_indices, data_indptr, True)


def sparse_dense_sp_rhs(data: Tensor, weight_data: Tensor, weight_indices: Tensor, weight_indptr: Tensor) -> Tensor:
    """Dense data (m, k) times the transpose of a sparse weight (n, k). See `sparse_dense`."""
    return sparse_dense(data, weight_data, weight_indices, weight_indptr)


def sparse_add(dense_data: Tensor, sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor) -> Tensor:
    """A dense matrix plus a CSR matrix of its shape; elements of one place add up."""
    if dense_data.ndim != 2 or sparse_data.ndim != 1:
        raise ExprError(
            f"sparse_add of data of {dense_data.ndim} dimensions, and sparse data of {sparse_data.ndim}", hint="(m, n), and (nonzeros,) of CSR"
        )  # fmt: skip

    def added(i: Any, j: Any) -> Any:
        start, k = _row(sparse_indptr, i, "k")
        zero = te.const(0, sparse_data.dtype)
        return te.sum(te.select(sparse_indices[start + k] == j, sparse_data[start + k], zero), axis=k)

    part = _compute(dense_data.shape, added, name="sparse")
    return _compute(dense_data.shape, lambda i, j: dense_data[i, j] + part[i, j], name="sparse_add")


def sparse_transpose(sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor) -> list[Tensor]:
    """The transpose of a square CSR matrix: data, indices and indptr, each row's elements in the order of their columns."""
    if sparse_data.ndim != 1 or sparse_indptr.ndim != 1:
        raise ExprError(f"sparse_transpose of data of {sparse_data.ndim} dimensions", hint="(nonzeros,) of CSR")
    count, rows = sparse_data.shape[0], sparse_indptr.shape[0] - 1

    def row_of(e: Any) -> Any:
        r = te.reduce_axis((0, rows), name="r")
        return te.sum(te.cast("int32", sparse_indptr[r + 1] <= e), axis=r)

    row = _compute((count,), row_of, name="row")

    def place_of(
        e: Any,
    ) -> Any:  # elements of earlier columns, and earlier ones of its own: they stand in the order of rows
        k = te.reduce_axis((0, count), name="k")
        before = te.any(
            sparse_indices[k] < sparse_indices[e], te.all(sparse_indices[k] == sparse_indices[e], row[k] < row[e])
        )
        return te.sum(te.cast("int32", before), axis=k)

    place = _compute((count,), place_of, name="place")

    def placed(values: Tensor, name: str) -> Tensor:
        def element(p: Any) -> Any:
            k = te.reduce_axis((0, count), name="k")
            return te.sum(te.select(place[k] == p, values[k], te.const(0, values.dtype)), axis=k)

        return _compute((count,), element, name=name)

    def begins(c: Any) -> Any:
        k = te.reduce_axis((0, count), name="k")
        return te.sum(te.cast("int32", sparse_indices[k] < c), axis=k)

    return [
        placed(sparse_data, "out_data"), placed(row, "out_indices"), _compute((rows + 1,), begins, name="out_indptr"),
    ]  # fmt: skip


def _csr(x: Tensor, data: Tensor, indices: Tensor, indptr: Tensor) -> Any:
    def value(i: Any, row: Any) -> Any:
        start, k = _row(indptr, row, "k")
        return te.sum(data[start + k] * x[i, indices[start + k]], axis=k)

    return value


def _bsr(x: Tensor, data: Tensor, indices: Tensor, indptr: Tensor) -> Any:
    rows, columns = data.shape[1], data.shape[2]

    def value(i: Any, row: Any) -> Any:
        start, k = _row(indptr, te.indexdiv(row, rows), "k")
        c = te.reduce_axis((0, columns), name="c")
        at = indices[start + k] * columns + c
        return te.sum(data[start + k, te.indexmod(row, rows), c] * x[i, at], axis=[k, c])

    return value


def _compute(shape: Any, f: Callable[..., Any], name: str) -> Tensor:
    made: Tensor = te.compute(shape, f, name=name)
    return made


def _constant(e: Any) -> int | None:
    return e if isinstance(e, int) else getattr(e, "value", None)


__dir__ = listed(__name__)
