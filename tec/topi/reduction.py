"""Reductions over axes: `axis` is one or several, None for all; `keepdims` keeps them with extent 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import listed
from ..te import Tensor
from .operators import output, tensor
from .tag import COMM_REDUCE, COMM_REDUCE_IDX
from .transform import flatten_all, reshape

__all__ = ["all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "sum"]

Axis = int | Sequence[int] | None


def _axes(x: Tensor, axis: Axis) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def _reduction(name: str, text: str, of: str = "float32") -> Callable[..., Tensor]:
    def operator(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        x = tensor(data, name)
        return output(f"reduce_{name}", [x], COMM_REDUCE, axes=_axes(x, axis), keepdims=bool(keepdims))

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"""{text} over `axis`. Raises ExprError for an axis that there is not, or that is named twice.

    >>> x = te.placeholder((2, 3), "{of}", name="x")
    >>> topi.{name}(x, axis=1).shape, topi.{name}(x, axis=1, keepdims=True).shape
    ((2,), (2, 1))
    """
    return operator


sum = _reduction("sum", "The sum")
prod = _reduction("prod", "The product")
max = _reduction("max", "The largest element")
min = _reduction("min", "The smallest element")
mean = _reduction("mean", "The mean")
all = _reduction("all", "Test whether all elements hold (bool)", "bool")
any = _reduction("any", "Test whether an element holds (bool)", "bool")


def _arg(name: str, data: Tensor, axis: int | None, keepdims: bool, last: bool) -> Tensor:
    x = tensor(data, name)
    if axis is None:
        found = output(name, [flatten_all(x)], COMM_REDUCE_IDX, axis=0, keepdims=bool(keepdims), last=bool(last))
        return reshape(found, (1,) * x.ndim) if keepdims else found
    return output(name, [x], COMM_REDUCE_IDX, axis=axis, keepdims=bool(keepdims), last=bool(last))


def argmax(data: Tensor, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False) -> Tensor:
    """The int64 index of the largest element along `axis`, of the whole tensor laid flat by default; the first of equals, or the last.

    >>> x = te.placeholder((2, 3), name="x")
    >>> te.evaluate([topi.argmax(x, axis=1)], {x: np.float32([[1, 3, 2], [4, 0, 0]])})[0]
    array([1, 0])
    """
    return _arg("argmax", data, axis, keepdims, select_last_index)


def argmin(data: Tensor, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False) -> Tensor:
    """The int64 index of the smallest element along `axis`, of the whole tensor laid flat by default; the first of equals, or the last.

    >>> x = te.placeholder((2, 3), name="x")
    >>> te.evaluate([topi.argmin(x, axis=1)], {x: np.float32([[1, 3, 2], [4, 0, 0]])})[0]
    array([0, 1])
    """
    return _arg("argmin", data, axis, keepdims, select_last_index)


__dir__ = listed(__name__)
