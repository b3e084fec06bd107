"""Sorting: stable, NaN beyond all numbers, by `kernels.sort`."""

from __future__ import annotations

from . import build, dtypes, kernels
from .array import Array, node_of
from .complexes import is_complex
from .computing import in_memory
from .errors import ArrayValueError
from .manipulation import axis_of
from .node import RECORDERS, Node, leaf, note
from .steps import alone, apart, unwritten

_MOST = 1 << 31  # elements: places are 32-bit numbers in the kernels


def ordered(n: Node, axis: int, descending: bool) -> tuple[Node, Node]:
    """The elements along an axis in order, and their places."""
    if is_complex(n):
        return _ordered_complex(n, axis, descending)
    kind, ndim = n.dtype, len(n.shape)
    if n.size >= _MOST:
        raise ArrayValueError(f"sorting {n.size} elements at once", hint="fewer than 2**31")
    if kind == "bool":
        n = build.cast(n, dtypes.uint8)
    last = (*(k for k in range(ndim) if k != axis), axis)
    back = tuple(last.index(k) for k in range(ndim))

    def lines(m: Node) -> tuple[Node, Node]:
        values, order = kernels.sort(in_memory(m), descending)
        return leaf(values), leaf(order)

    values, order = apart(lines, build.transpose(n, last))
    if RECORDERS:  # the values are elements of n, at places that do not move with them
        with unwritten():
            order_of = alone(build.transpose(build.cast(order, dtypes.int64), back))
        note("order", order_of, (n,), again=lambda whole: ordered(whole, axis + 1, descending)[1])
        picked = build.gather_elements(build.boundary(n), order_of, axis)
        return build.cast(picked, kind), order_of
    return build.transpose(build.cast(values, kind), back), build.transpose(build.cast(order, dtypes.int64), back)


def _ordered_complex(n: Node, axis: int, descending: bool) -> tuple[Node, Node]:
    """By real parts, those that are equal by imaginary ones."""
    real, imag = map(build.boundary, build.parts(n))
    by_imag = build.boundary(ordered(imag, axis, descending)[1])
    by_real = ordered(build.boundary(build.gather_elements(real, by_imag, axis)), axis, descending)[1]
    order = build.boundary(build.gather_elements(by_imag, build.boundary(by_real), axis))
    return build.gather_elements(n, order, axis), order


def _given(x: Array, axis: int | None) -> tuple[Node, int]:
    n = node_of(x)
    return (build.reshape(n, (n.size,)), 0) if axis is None else (n, axis)


def sort(
    x: Array, /, axis: int | None = -1, kind: str | None = None, *, descending: bool = False, stable: bool = True
) -> Array:
    """The elements in order along `axis`, of None all in one dimension. The sort is stable, whatever `kind` NumPy's users name, and NaN comes last.

    >>> xp.sort(xp.asarray([3, 1, 2]), descending=True).tolist()
    [3, 2, 1]
    """
    n, axis = _given(x, axis)
    k = axis_of(axis, len(n.shape))
    return Array(ordered(n, k, descending)[0] if n.size else build.copy(n))


def argsort(
    x: Array, /, axis: int | None = -1, kind: str | None = None, *, descending: bool = False, stable: bool = True
) -> Array:
    """The indices that sort the elements along `axis`, as `sort` does. Equal elements keep their order.

    >>> xp.argsort(xp.asarray([3, 1, 2]))
    Array([1, 2, 0], dtype=int64)
    """
    n, axis = _given(x, axis)
    k = axis_of(axis, len(n.shape))
    return Array(ordered(n, k, descending)[1] if n.size else build.full(0, n.shape, dtypes.int64, n.device))
