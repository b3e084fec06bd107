"""Slices, of bounds that are numbers or are read from tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from .operators import axis_of, compute, output, tensor, type_of
from .tag import INJECTIVE

__all__ = ["slice_of", "strided_slice"]


def slice_of(x: Tensor, axis: int, start: Any, step: int, count: Any) -> Tensor:
    """`count` elements along an axis."""
    whole = type_of(x).shape

    def put(value: Any, rest: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(value if k == axis else rest[k] for k in range(x.ndim))

    zeros, ones = [0] * x.ndim, [1] * x.ndim
    return output("slice", [x], INJECTIVE, starts=put(start, zeros), steps=put(step, ones), sizes=put(count, whole))


def strided_slice(
    a: Tensor,
    begin: Sequence[int] | Tensor,
    end: Sequence[int] | Tensor,
    strides: Sequence[int] | Tensor | None = None,
    axes: Sequence[int] | None = None,
) -> Tensor:
    """`a[begin:end:strides]` by dimension (of `axes`, or the first ones), as Python's slices have it.

    Where one of the three is a tensor, the result has sizes of its own, which the array that it is written to gives: `end` is not read.

    >>> topi.strided_slice(te.placeholder((8, 3), name="a"), begin=[1, 0], end=[7, 3], strides=[2, 1]).shape
    (3, 3)
    """
    x = tensor(a, "strided_slice")
    if any(isinstance(v, Tensor) for v in (begin, end, strides)):
        return _slice_by_values(x, begin, strides, axes)
    where = [axis_of(k, x.ndim, "strided_slice") for k in (axes if axes is not None else range(len(begin)))]
    steps = list(strides) if strides else [1] * len(begin)
    steps += [1] * (len(begin) - len(steps))
    for axis, b, e, s in zip(where, begin, end, steps):
        n = type_of(x).shape[axis]
        if s == 0 or not isinstance(n, int):
            raise ExprError(
                f"strided_slice with step {s} of dimension {axis}, of {n} elements",
                hint="the size is a number, the step is not 0",
            )
        taken = range(*slice(b, e, s).indices(n))
        x = slice_of(x, axis, taken.start if taken else 0, s, len(taken))
    return x


def number_of(of: Any, k: int) -> Any:
    """Number k of bounds or steps, which a list or a tensor gives; 1 where there is none."""
    if of is None or k >= (type_of(of).size if isinstance(of, Tensor) else len(of)):
        return te.const(1, "int64")
    return te.cast("int64", of(k) if isinstance(of, Tensor) else of[k])


def _slice_by_values(x: Tensor, begin: Any, strides: Any, axes: Sequence[int] | None) -> Tensor:
    """A slice whose bounds are read when it runs. An array that is larger than what is between them repeats the last element."""
    count = type_of(begin).size if isinstance(begin, Tensor) else len(begin)
    where = [axis_of(k, x.ndim, "strided_slice") for k in (axes if axes is not None else range(count))]
    shape = [te.size_var(f"taken{k}") if k in where else n for k, n in enumerate(x.shape)]

    def element(*i: Any) -> Any:
        index = list(i)
        for k, axis in enumerate(where):
            n, zero = te.cast("int64", x.shape[axis]), te.const(0, "int64")
            first = number_of(begin, k)
            first = te.min(te.max(te.select(first < 0, first + n, first), zero), n - 1)
            index[axis] = te.min(te.max(first + te.cast("int64", i[axis]) * number_of(strides, k), zero), n - 1)
        return x(*index)

    return compute(shape, element, "strided_slice", INJECTIVE)
