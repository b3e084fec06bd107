"""Factors of small matrices, and systems of equations with triangles: Cholesky, LU with partial pivoting, and substitution, for batches of matrices.

What is more (inverses, determinants, solutions) follows from these by products, gathers and reductions (`tec.graph.builders.linear_algebra`). The loops are
written by hand, since each step needs the one before it; they go along rows, which lie side by side in memory. Each takes (matrices, rows, columns).

Source: G. Golub, C. Van Loan, "Matrix Computations", 3.1 (substitution), 3.4.1 (pivots), 4.2.5 (Cholesky by outer products).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from .. import te
from ..te import Tensor
from ..te.ir_builder import BufferVar, IRBuilder
from .dims import Dim, product
from .forms import Form, carry
from .registry import OPAQUE, Attrs, TensorType, fail, register

Body = Callable[[Any], None]


class Walk:
    """How loops over a matrix run: one after another, in vectors of `lanes`, or over the threads of a work-group (see `tec.choices.families.factors`)."""

    def __init__(self, ib: IRBuilder, lanes: int = 1):
        self.ib, self.lanes = ib, lanes

    @contextmanager
    def matrices(self, count: Any) -> Iterator[Any]:
        """A block for each matrix, by its number."""
        with self.ib.for_range(0, count, "matrix") as m:
            yield m

    def each(self, begin: Any, end: Any, body: Body) -> None:
        """`body(i)` for begin <= i < end, in any order."""
        with self.ib.for_range(begin, end, "i") as i:
            body(i)

    def along(self, begin: Any, end: Any, body: Body) -> None:
        """`each`, for elements that lie side by side in a row."""
        if self.lanes == 1:
            self.each(begin, end, body)
            return
        whole = self.ib.let("vectors", te.indexdiv(end - begin, self.lanes))
        with self.ib.for_range(0, whole, "v") as v, self.ib.for_range(0, self.lanes, "lane", kind="vectorize") as lane:
            body(begin + v * self.lanes + lane)
        self.each(begin + whole * self.lanes, end, body)

    def meet(self) -> None:
        """What was stored before is there for every loop behind."""

    def once(self) -> AbstractContextManager[object]:
        """A block for what is done once a matrix."""
        return nullcontext()


def _scalar(ib: IRBuilder, dtype: str, name: str, value: Any) -> BufferVar:
    v = ib.allocate(dtype, (1,), name, scope="local")
    v[0] = value
    return v


def _size(x: Any) -> int:
    """The rows of the matrices in a buffer."""
    return int(getattr(x.shape[1], "value", x.shape[1]))


# ---- the loops: `run(walk, sources, results, attrs)`


def cholesky(walk: Walk, sources: Sequence[Any], results: Sequence[Any], attrs: Attrs) -> None:
    """Row k of U is row k of what is left over the root of its first element; what is left loses the outer product of that row."""
    (x,), (u, info), ib = sources, results, walk.ib
    n, dtype = _size(x), u.dtype
    zero = te.const(0, dtype)
    with walk.matrices(x.shape[0]) as m:
        with ib.for_range(0, n, "r") as r:

            def copy(j: Any, r: Any = r) -> None:
                u[m, r, j] = te.select(j >= r, x[m, r, j], zero)

            walk.along(0, n, copy)
        with walk.once():
            info[m] = te.const(0, "int32")
        walk.meet()
        with ib.for_range(0, n, "k") as k:
            pivot = ib.let("pivot", u[m, k, k])
            root = ib.let("root", te.sqrt(pivot))
            walk.meet()  # everybody has read the pivot
            with walk.once(), ib.if_scope(te.all(info[m] < 1, te.any(pivot <= zero, pivot != pivot))):
                info[m] = te.cast("int32", k + 1)

            def scale(j: Any, k: Any = k, root: Any = root) -> None:
                u[m, k, j] = u[m, k, j] / root

            walk.along(k, n, scale)
            walk.meet()
            with ib.for_range(k + 1, n, "r") as r:
                factor = ib.let("factor", u[m, k, r])

                def update(j: Any, k: Any = k, r: Any = r, factor: Any = factor) -> None:
                    u[m, r, j] = u[m, r, j] - factor * u[m, k, j]

                walk.along(r, n, update)
            walk.meet()


def lu(walk: Walk, sources: Sequence[Any], results: Sequence[Any], attrs: Attrs) -> None:
    """Step k: the row with the largest element of column k changes places with row k, and the rows below lose their share of it."""
    (x,), (a, pivots, info), ib = sources, results, walk.ib
    n, dtype = _size(x), a.dtype
    zero = te.const(0, dtype)
    with walk.matrices(x.shape[0]) as m:
        with ib.for_range(0, n, "r") as r:

            def copy(j: Any, r: Any = r) -> None:
                a[m, r, j] = x[m, r, j]

            walk.along(0, n, copy)
        with walk.once():
            info[m] = te.const(0, "int32")
        walk.meet()
        with ib.for_range(0, n, "k") as k:
            largest = _scalar(ib, dtype, "largest", te.abs(a[m, k, k]))
            row = _scalar(ib, "int32", "row", te.cast("int32", k))
            with ib.for_range(k + 1, n, "r") as r:
                size = ib.let("size", te.abs(a[m, r, k]))
                with ib.if_scope(size > largest[0]):
                    largest[0] = size
                    row[0] = te.cast("int32", r)
            chosen = ib.let("chosen", row[0])
            walk.meet()  # everybody has read the column
            with ib.if_scope(chosen != te.cast("int32", k)):

                def swap(j: Any, k: Any = k, chosen: Any = chosen) -> None:
                    upper, lower = ib.let("upper", a[m, k, j]), ib.let("lower", a[m, chosen, j])
                    a[m, k, j] = lower
                    a[m, chosen, j] = upper

                walk.along(0, n, swap)
            walk.meet()
            pivot = ib.let("pivot", a[m, k, k])
            with walk.once():
                pivots[m, k] = chosen
                with ib.if_scope(te.all(info[m] < 1, pivot == zero)):
                    info[m] = te.cast("int32", k + 1)

            def share(i: Any, k: Any = k, pivot: Any = pivot) -> None:
                with ib.if_scope(pivot != zero):
                    a[m, i, k] = a[m, i, k] / pivot

            walk.each(k + 1, n, share)
            walk.meet()
            with ib.for_range(k + 1, n, "r") as r:
                factor = ib.let("factor", a[m, r, k])

                def update(j: Any, k: Any = k, r: Any = r, factor: Any = factor) -> None:
                    a[m, r, j] = a[m, r, j] - factor * a[m, k, j]

                walk.along(k + 1, n, update)
            walk.meet()


def substitution(walk: Walk, sources: Sequence[Any], results: Sequence[Any], attrs: Attrs) -> None:
    """Row i of the result is that of the right-hand side less the rows before it, each times its element of the triangle. A column is one thread's."""
    (a, b), (y,), ib = sources, results, walk.ib
    n, columns, upper = _size(a), b.shape[2], attrs["upper"]
    with walk.matrices(a.shape[0]) as m, ib.for_range(0, n, "step") as step:
        r = ib.let("r", n - 1 - step) if upper else step

        def copy(j: Any) -> None:
            y[m, r, j] = b[m, r, j]

        walk.along(0, columns, copy)
        with ib.for_range(0, step, "before") as before:
            k = ib.let("k", n - 1 - before) if upper else before
            factor = ib.let("factor", a[m, r, k])

            def less(j: Any) -> None:
                y[m, r, j] = y[m, r, j] - factor * y[m, k, j]

            walk.along(0, columns, less)
        if not attrs["unit"]:
            pivot = ib.let("pivot", a[m, r, r])

            def over(j: Any) -> None:
                y[m, r, j] = y[m, r, j] / pivot

            walk.along(0, columns, over)


def row_order(walk: Walk, sources: Sequence[Any], results: Sequence[Any], attrs: Attrs) -> None:
    """The exchanges one after another, on the numbers of the rows; from the last to the first they give the inverse."""
    (pivots,), (order,), ib = sources, results, walk.ib
    n = _size(pivots)
    with walk.matrices(pivots.shape[0]) as m:

        def number(i: Any) -> None:
            order[m, i] = te.cast("int32", i)

        walk.each(0, n, number)
        walk.meet()
        with walk.once(), ib.for_range(0, n, "step") as step:
            k = ib.let("k", n - 1 - step) if attrs["inverse"] else step
            p = ib.let("p", pivots[m, k])
            here, there = ib.let("here", order[m, k]), ib.let("there", order[m, p])
            order[m, k] = there
            order[m, p] = here


LOOPS = {"cholesky": cholesky, "lu": lu, "row_order": row_order, "substitution": substitution}


# ---- operators


def _squares(types: Sequence[TensorType]) -> tuple[Any, int]:
    """The number of matrices, and their rows."""
    t = types[0]
    if t.ndim != 3 or t.shape[1] != t.shape[2] or isinstance(t.shape[1], Dim) or t.dtype not in ("float32", "float64"):
        raise fail(
            f"factors of {t}: (matrices, n, n) of float32 or float64", hint="reshape to three dimensions, and cast"
        )
    return t.shape[0], t.shape[1]


def _cholesky_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    count, _ = _squares(types)
    return [types[0], TensorType("int32", (count,))]


def _lu_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    count, n = _squares(types)
    return [types[0], TensorType("int32", (count, n)), TensorType("int32", (count,))]


def _order_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    t = types[0]
    if t.ndim != 2 or t.dtype != "int32" or isinstance(t.shape[1], Dim):
        raise fail(f"exchanges of rows by {t}: (matrices, n) of int32")
    return [t]


def _substitution_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    count, n = _squares(types)
    b = types[1]
    if b.dtype != types[0].dtype or b.ndim != 3 or b.shape[:2] != (count, n) or isinstance(b.shape[2], Dim):
        raise fail(f"a triangle of {types[0]} for {b}")
    return [b]


def _flops(times: int, over: int) -> Any:
    """That share of a product's multiplications."""

    def flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
        count: int = product(outs[0].shape) * types[0].shape[1] * times // over
        return count

    return flops


def _cholesky_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    u = np.triu(arrays[0])
    info = np.zeros(len(u), np.int32)
    with np.errstate(all="ignore"):
        for k in range(u.shape[1]):
            info[(info == 0) & ~(u[:, k, k] > 0)] = k + 1
            u[:, k, k:] /= np.sqrt(u[:, k, k])[:, None]
            u[:, k + 1 :] -= np.triu(u[:, k, k + 1 :, None] * u[:, k, None, :], k + 1)
    return [u, info]


def _lu_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    a = np.array(arrays[0])
    count, n, _ = a.shape
    every = np.arange(count)
    pivots, info = np.zeros((count, n), np.int32), np.zeros(count, np.int32)
    for k in range(n):
        p = k + np.argmax(np.abs(a[:, k:, k]), axis=1)
        pivots[:, k] = p
        a[every, k], a[every, p] = a[every, p], a[every, k].copy()
        pivot = a[:, k, k].copy()
        info[(info == 0) & (pivot == 0)] = k + 1
        a[:, k + 1 :, k] /= np.where(pivot == 0, 1, pivot)[:, None]
        a[:, k + 1 :, k + 1 :] -= a[:, k + 1 :, k, None] * a[:, k, None, k + 1 :]
    return [a, pivots, info]


def _order_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    pivots = arrays[0]
    count, n = pivots.shape
    order, every = np.tile(np.arange(n, dtype=np.int32), (count, 1)), np.arange(count)
    for k in reversed(range(n)) if attrs["inverse"] else range(n):
        p = pivots[:, k]
        order[every, k], order[every, p] = order[every, p], order[every, k].copy()
    return [order]


def _substitution_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    a, y = arrays[0], np.array(arrays[1])
    rows = range(a.shape[1])
    with np.errstate(all="ignore"):
        for r in reversed(rows) if attrs["upper"] else rows:
            done = slice(r + 1, None) if attrs["upper"] else slice(0, r)
            y[:, r] -= np.einsum("mk,mkj->mj", a[:, r, done], y[:, done])
            if not attrs["unit"]:
                y[:, r] /= a[:, r, r, None]
    return [y]


def _made(kind: str, attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    def body(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder.create()
        LOOPS[kind](Walk(ib), [ib.buffer_ptr(x) for x in ins], [ib.buffer_ptr(x) for x in outs], attrs)
        return ib.get()

    made = te.extern([t.shape for t in outputs], inputs, body, name=kind, dtype=[t.dtype for t in outputs])
    form = Form("factors", tuple(inputs), tuple(outputs), {"loops": kind, **attrs})
    return carry(form, list(made) if isinstance(made, (list, tuple)) else [made])


@register("cholesky", OPAQUE, _cholesky_type, flops=_flops(1, 3), host=_cholesky_host, takes=1)
def _cholesky(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """U with A = U^T U, of the upper triangles, zeros below; and of each matrix 0, or the number (from 1) of the first pivot that is not positive."""
    return _made("cholesky", attrs, inputs, outputs)


@register("lu", OPAQUE, _lu_type, flops=_flops(2, 3), host=_lu_host, takes=1)
def _lu(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """P A = L U in one matrix, L's diagonal of ones left out; the row, from 0, that changed places with each row; and of each matrix 0, or the number
    (from 1) of the first pivot that is zero."""
    return _made("lu", attrs, inputs, outputs)


@register("row_order", OPAQUE, _order_type, host=_order_host, takes=1)
def _row_order(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The rows of A in the order that P A has, of the exchanges that "lu" gives; `inverse`: the rows of P A in the order that A has."""
    return _made("row_order", attrs, inputs, outputs)


@register("substitution", OPAQUE, _substitution_type, flops=_flops(1, 1), host=_substitution_host, takes=2)
def _substitution(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """X with A X = B of the triangles A, the `upper` ones or the lower, on whose diagonal are ones where `unit`; the other triangle is not read."""
    return _made("substitution", attrs, inputs, outputs)
