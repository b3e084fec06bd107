"""Factors of matrices on a device: right-looking blocked algorithms. The columns of a block are one work-group's a matrix, what lies behind them
is a product of tec's own.

Arrays are compact, of shape (matrices, rows, columns), and hold float32 or float64. Source: G. Golub, C. Van Loan, "Matrix Computations", 3.2.10 (LU),
3.4.1 (pivots), 4.2.6 (Cholesky).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.language import barrier, block_idx, grid_idx, shared, thread_idx, unrolled
from ..runtime.arrays.ndarray import NDArray
from .radix import kernel

THREADS = 256  # a work-group's; the search for a pivot halves them eight times
BLOCK = 32  # columns of a block: the product behind them then has as many products an element as a tile of the matrix units takes a step


@kernel
def _lu_block(a: Any, pivots: Any, n: Any, first: Any, last: Any) -> None:
    """Columns first..last of each matrix in place: below the diagonal L, on and above it U. pivots[j]: the row that changed places with row j."""
    t = thread_idx.x
    base = np.int64(block_idx.x) * n * n
    sizes = shared((THREADS,), np.float64)
    rows = shared((THREADS,), np.int32)
    for j in range(first, last):
        largest = np.float64(-1.0)
        row = np.int32(j)
        i = np.int32(j) + t
        while i < n:
            v = np.float64(a[base + np.int64(i) * n + j])
            if v < 0.0:
                v = -v
            if v > largest:
                largest = v
                row = i
            i = i + THREADS
        sizes[t] = largest
        rows[t] = row
        barrier()
        for s in unrolled(8):
            half = THREADS >> (s + 1)
            if t < half:
                other = sizes[t + half]
                if other > sizes[t] or (other == sizes[t] and rows[t + half] < rows[t]):
                    sizes[t] = other
                    rows[t] = rows[t + half]
            barrier()
        p = rows[0]
        if t == 0:
            pivots[block_idx.x * n + j] = p
        if p != j:
            c = np.int32(0) + t
            while c < n:
                upper = base + np.int64(j) * n + c
                lower = base + np.int64(p) * n + c
                held = a[upper]
                a[upper] = a[lower]
                a[lower] = held
                c = c + THREADS
        barrier()
        pivot = a[base + np.int64(j) * n + j]
        i = np.int32(j) + 1 + t
        while i < n:
            at = base + np.int64(i) * n
            f = a[at + j]
            if pivot != 0.0:
                f = f / pivot
            a[at + j] = f
            for c in range(j + 1, last):
                a[at + c] = a[at + c] - f * a[base + np.int64(j) * n + c]
            i = i + THREADS
        barrier()


def lu_block(a: NDArray, pivots: NDArray, first: int, last: int) -> None:
    """Factor columns first..last of (matrices, n, n) in place, with partial pivoting of whole rows."""
    count, n, _ = a.shape
    _lu_block[count, THREADS](a.reshape(a.size), pivots.reshape(pivots.size), n, first, last)


@kernel
def _cholesky_block(a: Any, wrong: Any, n: Any, first: Any, last: Any) -> None:
    """Columns first..last of each matrix in place: L on and below the diagonal. wrong[m] = 1 where a pivot is not positive."""
    t = thread_idx.x
    base = np.int64(block_idx.x) * n * n
    for j in range(first, last):
        square = a[base + np.int64(j) * n + j]
        if t == 0 and not (square > 0.0):
            wrong[block_idx.x] = 1
        pivot = square**0.5
        barrier()
        i = np.int32(j) + t
        while i < n:
            at = base + np.int64(i) * n + j
            a[at] = a[at] / pivot
            i = i + THREADS
        barrier()
        i = np.int32(j) + 1 + t
        while i < n:
            at = base + np.int64(i) * n
            f = a[at + j]
            for c in range(j + 1, last):
                a[at + c] = a[at + c] - f * a[base + np.int64(c) * n + j]
            i = i + THREADS
        barrier()


def cholesky_block(a: NDArray, wrong: NDArray, first: int, last: int) -> None:
    """Factor columns first..last of (matrices, n, n) in place."""
    count, n, _ = a.shape
    _cholesky_block[count, THREADS](a.reshape(a.size), wrong, n, first, last)


@kernel
def _swap_rows(b: Any, pivots: Any, n: Any, m: Any) -> None:
    """The exchanges of rows, in order, on each column of each right-hand side."""
    g = grid_idx(1)
    which = g // m
    base = np.int64(which) * n * m + g % m
    for j in range(n):
        p = pivots[which * n + j]
        if p != j:
            upper = base + np.int64(j) * m
            lower = base + np.int64(p) * m
            held = b[upper]
            b[upper] = b[lower]
            b[lower] = held


def swap_rows(b: NDArray, pivots: NDArray) -> None:
    """Exchange the rows of (matrices, n, m) as `lu_block` did."""
    count, n, m = b.shape
    _swap_rows.launch(count * m)(b.reshape(b.size), pivots.reshape(pivots.size), n, m)


@kernel
def _triangular(a: Any, b: Any, n: Any, m: Any, skip: Any, first: Any, last: Any, upper: Any) -> None:
    """Rows first..last of b, whose columns from `skip` on are threads, by the triangle of a in these rows: L with ones on its diagonal, or U."""
    g = grid_idx(1)
    columns = m - skip
    which = g // columns
    at_a = np.int64(which) * n * n
    at_b = np.int64(which) * n * m + skip + g % columns
    for k in range(last - first):
        r = first + k
        if upper != 0:
            r = last - 1 - k
        s = b[at_b + np.int64(r) * m]
        low = first
        high = r
        if upper != 0:
            low = r + 1
            high = last
        for q in range(low, high):
            s = s - a[at_a + np.int64(r) * n + q] * b[at_b + np.int64(q) * m]
        if upper != 0:
            s = s / a[at_a + np.int64(r) * n + r]
        b[at_b + np.int64(r) * m] = s


def triangular(a: NDArray, b: NDArray, skip: int, first: int, last: int, upper: bool) -> None:
    """Solve rows first..last of (matrices, n, m) in place, columns from `skip` on."""
    count, n, m = b.shape
    _triangular.launch(count * (m - skip))(a.reshape(a.size), b.reshape(b.size), n, m, skip, first, last, int(upper))
