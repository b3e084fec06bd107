"""Positions of elements: extrema, elements that are not 0, positions in a sorted array."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from . import build, dtypes
from .array import Array, node_of, pair
from .errors import ArrayValueError
from .manipulation import axis_of
from .node import scalar
from .search_kernels import coordinates_of, searched


def _best(op: str, x: Array, axis: int | None, keepdims: bool) -> Array:
    n = node_of(x)
    if n.dtype == "bool":
        n = build.cast(n, dtypes.uint8)
    if not n.size and (axis is None or not n.shape or not n.shape[axis_of(axis, len(n.shape))]):
        raise ArrayValueError(f"{op} of no elements: shape {n.shape}", hint="test x.size first")
    if axis is None:
        made = build.best(op, build.reshape(n, (n.size,)), 0, False)
        return Array(build.reshape(made, (1,) * len(n.shape) if keepdims else ()))
    if not n.shape:
        raise ArrayValueError(f"axis {axis} of an array of 0 dimensions", hint="leave the axis out")
    return Array(build.best(op, n, axis_of(axis, len(n.shape)), keepdims))


def argmax(x: Array, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """The index of the largest element along `axis`, the first of equal ones. NaN counts as larger than all. With
    axis=None the index counts in one dimension.

    >>> xp.argmax(xp.asarray([3, 5, 1]))
    Array(1, dtype=int64)
    """
    return _best("argmax", x, axis, keepdims)


def argmin(x: Array, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """The index of the smallest element along `axis`, the first of equal ones. NaN counts as smaller than all. With
    axis=None the index counts in one dimension.

    >>> xp.argmin(xp.asarray([3, 5, 1]))
    Array(2, dtype=int64)
    """
    return _best("argmin", x, axis, keepdims)


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """Return, for each dimension, the indices of the elements that are not 0, in order. It waits for the device, because their
    number is a shape.

    >>> xp.nonzero(xp.asarray([0, 5, 0, 7]))[0].tolist()
    [1, 3]
    """
    n = node_of(x)
    if not n.shape:
        raise ArrayValueError("nonzero of an array of 0 dimensions", hint="x.reshape(1) has a dimension")
    found = coordinates_of(build.cast(n, dtypes.bool))
    # The places themselves stand for several dimensions; results are arrays of their own.
    return tuple(
        Array(build.unary("identity", at) if at.data is not None or at in found[:k] else at)
        for k, at in enumerate(found)
    )


@overload
def where(condition: Array, x1: Any, x2: Any, /) -> Array: ...


@overload
def where(condition: Array, /) -> tuple[Array, ...]: ...


def where(condition: Array, x1: Any = None, x2: Any = None, /) -> Any:
    """x1 where the condition holds (is not 0), and x2 elsewhere. The three broadcast. x1 and x2 may be numbers. Of the condition alone: `nonzero`.

    >>> xp.where(xp.asarray([True, False]), xp.asarray([1, 2]), 0).tolist()
    [1, 0]
    """
    if x1 is None and x2 is None:
        return nonzero(condition)
    x1, x2 = (x.item() if isinstance(x, np.generic) else x for x in (x1, x2))
    c = build.cast(node_of(condition, "the condition"), dtypes.bool)
    if (
        type(x1) is not Array
        and type(x2) is not Array
        and all(type(x) in (bool, int, float, complex) for x in (x1, x2))
    ):
        x1 = Array(scalar(x1, dtypes.result_type(*(dtypes.of_scalar(x, None) for x in (x1, x2))), c.device))
    a, b = pair(x1, x2)
    return Array(build.where(c, a, b))


def searchsorted(x1: Array, x2: Any, /, side: str = "left", sorter: Array | None = None) -> Array:
    """The position of each element of x2 in the sorted, one-dimensional x1: before equal elements ("left") or behind
    them ("right"). sorter: indices that sort x1.

    >>> xp.searchsorted(xp.asarray([1, 3, 5]), xp.asarray([0, 3, 9]))
    Array([0, 1, 3], dtype=int64)
    """
    if side not in ("left", "right"):
        raise ArrayValueError(f"searchsorted(side={side!r})", hint='"left" or "right"')
    if len(node_of(x1).shape) != 1:
        raise ArrayValueError(
            f"searchsorted in an array of {x1.ndim} dimensions", hint="tec.array.ravel(x), or a loop over the rows"
        )
    table, sought = pair(x1, x2)
    order = None
    if sorter is not None:
        order = build.cast(node_of(sorter, "sorter"), dtypes.int64)
        if order.shape != table.shape:
            raise ArrayValueError(
                f"a sorter of shape {order.shape} for shape {table.shape}", hint="tec.array.argsort(x) gives one"
            )
    return Array(searched(table, sought, side == "right", order))
