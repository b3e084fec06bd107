"""LU and Cholesky factors, and what follows from them, of batches of real matrices on a device (`factor_kernels`)."""

from __future__ import annotations

from math import prod
from typing import Any

from ..runtime.arrays.filled import zeros
from ..runtime.arrays.ndarray import NDArray, empty
from . import build, dtypes, factor_kernels
from .array import Array
from .computing import in_memory
from .errors import ArrayValueError
from .factor_kernels import BLOCK
from .node import Node, leaf, scalar


def _held(x: Array) -> NDArray:
    return in_memory(x._node)


def _own(n: Node, shape: tuple[int, ...]) -> Array:
    """A copy of a node, that kernels may write to."""
    a = in_memory(n)
    made = empty(shape, a.dtype, a.device)
    return Array(leaf(a.reshape(*shape).copyto(made)))


def _matrices(n: Node) -> Array:
    size = n.shape[-1]
    return _own(n, (prod(n.shape[:-2]), size, size))


class LU:
    """P A = L U of square matrices: `a` holds both factors, `pivots` the exchanges of rows."""

    def __init__(self, n: Node):
        self.shape = n.shape
        self.a = _matrices(n)
        count, size, _ = self.a.shape
        self.pivots = zeros((count, size), "int32", n.device)
        for first in range(0, size, BLOCK):
            last = min(first + BLOCK, size)
            factor_kernels.lu_block(_held(self.a), self.pivots, first, last)
            if last < size:
                factor_kernels.triangular(_held(self.a), _held(self.a), last, first, last, False)
                a = self.a
                a[:, last:, last:] = a[:, last:, last:] - a[:, last:, first:last] @ a[:, first:last, last:]

    def diagonal(self) -> Node:
        """U's, of shape (matrices, n)."""
        count, size, _ = self.a.shape
        flat = build.reshape(self.a._node, (count, size * size))
        return build.slices(flat, (0, 0), (1, size + 1), (count, size))

    def sign(self) -> Node:
        """1 or -1 of each matrix: whether rows changed places an even number of times."""
        pivots = Array(leaf(self.pivots))
        place = build.positions(1, pivots.shape, pivots.device, pivots.dtype)
        odd = build.binary("not_equal", pivots._node, place, dtypes.bool)
        count = Array(build.reduce("sum", build.cast(odd, self.a.dtype), (1,), False))
        return (1.0 - 2.0 * (count % 2.0))._node

    def solve(self, b: Array) -> Array:
        """X with A X = B, of (matrices, n, m), which is overwritten. Raises ArrayValueError where a matrix is singular."""
        count, size, _ = self.a.shape
        if size and count:
            zero = scalar(0.0, self.a.dtype, self.a.device)
            none = build.binary("equal", build.boundary(self.diagonal()), zero, dtypes.bool)
            if build.value(build.reduce("any", none, (0, 1), False)):
                raise ArrayValueError(
                    "a matrix is singular: it has no inverse", hint="tec.array.linalg.pinv(x) has one"
                )
        factor_kernels.swap_rows(_held(b), self.pivots)
        a = self.a
        for first in range(0, size, BLOCK):
            last = min(first + BLOCK, size)
            factor_kernels.triangular(_held(a), _held(b), 0, first, last, False)
            if last < size:
                b[:, last:, :] = b[:, last:, :] - a[:, last:, first:last] @ b[:, first:last, :]
        for first in reversed(range(0, size, BLOCK)):
            last = min(first + BLOCK, size)
            factor_kernels.triangular(_held(a), _held(b), 0, first, last, True)
            if first:
                b[:, :first, :] = b[:, :first, :] - a[:, :first, first:last] @ b[:, first:last, :]
        return b


def solved(a: Node, b: Node) -> Node:
    """X with A X = B, whose batches are alike."""
    made = LU(a).solve(_own(b, (prod(b.shape[:-2]), *b.shape[-2:])))
    return build.reshape(made._node, b.shape)


def determinants(a: Node) -> tuple[Node, Node]:
    """U's diagonal, and the sign of the exchanges."""
    lu = LU(a)
    return build.reshape(build.boundary(lu.diagonal()), a.shape[:-1]), build.reshape(
        build.boundary(lu.sign()), a.shape[:-2]
    )


def cholesky(n: Node) -> Node:
    """L with A = L L^T, zeros above. Raises ArrayValueError where a matrix is not positive definite."""
    a = _matrices(n)
    count, size, _ = a.shape
    wrong = zeros((count,), "int32", n.device)
    for first in range(0, size, BLOCK):
        last = min(first + BLOCK, size)
        factor_kernels.cholesky_block(_held(a), wrong, first, last)
        if last < size:
            below: Any = a[:, last:, first:last]
            a[:, last:, last:] = a[:, last:, last:] - below @ below.mT
    if count and wrong.numpy().any():
        raise ArrayValueError(
            "cholesky of a matrix that is not positive definite",
            hint="a symmetric matrix whose eigenvalues are above 0: a small multiple of tec.array.eye added often makes one",
        )
    return build.reshape(a._node, n.shape)
