"""Operators that write or count by indices: scatters, masks of sequences, coordinates, searches in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from .operators import axis_of, check_sizes, compute, output, tensor, type_of
from .tag import INJECTIVE
from .transform import transpose

__all__ = [
    "meshgrid", "ndarray_size", "scatter_elements", "scatter_nd", "searchsorted", "sequence_mask", "sliding_window", "sparse_to_dense", "unravel_index",
]  # fmt: skip

_REDUCTIONS = {"update": "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _reduction(what: str, name: str) -> str:
    if name not in _REDUCTIONS:
        raise ExprError(f"{what} by {name!r}", hint=f"one of {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS[name]


def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update"
) -> Tensor:
    """`data` with out[.., indices[i], ..] = updates[i], the index along `axis`. reduction: "update", or "add", "mul", "min", "max" with what is there.

    >>> x, i, u = (te.placeholder((4, 3), t, name=n) for n, t in (("x", "float32"), ("i", "int32"), ("u", "float32")))
    >>> topi.scatter_elements(x, i, u, axis=1, reduction="add").shape
    (4, 3)
    """
    x, i, u = (tensor(t, "scatter_elements") for t in (data, indices, updates))
    k = axis_of(axis, x.ndim, "scatter_elements")
    return output("scatter_elements", [x, i, u], axis=k, reduction=_reduction("scatter_elements", reduction))


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str = "update") -> Tensor:
    """`data` with `updates` at points, whose parts are the first dimension of `indices`. mode: as `reduction` of `scatter_elements`.

    >>> x, i, u = te.placeholder((4, 3), name="x"), te.placeholder((2, 5), "int32", name="i"), te.placeholder((5,), name="u")
    >>> topi.scatter_nd(x, i, u, "add").shape
    (4, 3)
    """
    x, i, u = (tensor(t, "scatter_nd") for t in (data, indices, updates))
    points = transpose(i, (*range(1, i.ndim), 0))
    return output("scatter_nd", [x, points, u], reduction=_reduction("scatter_nd", mode))


def sparse_to_dense(
    sparse_indices: Tensor, output_shape: Sequence[int], sparse_values: Tensor, default_value: float = 0
) -> Tensor:
    """A tensor of `default_value` with values at indices: numbers of one dimension, or (values, parts) of points.

    >>> i, v = te.placeholder((2,), "int32", name="i"), te.placeholder((2,), name="v")
    >>> topi.sparse_to_dense(i, (6,), v).shape
    (6,)
    """
    i, v = tensor(sparse_indices, "sparse_to_dense"), tensor(sparse_values, "sparse_to_dense")
    parts = i.shape[1] if i.ndim == 2 else 1
    if i.ndim > 2 or parts != len(output_shape):
        raise ExprError(
            f"sparse_to_dense with indices of shape {i.shape} into {len(output_shape)} dimensions",
            hint="(values, parts of a point), or (values,) for a vector",
        )
    rest = default_value() if isinstance(default_value, Tensor) else te.const(default_value, v.dtype)
    begun = compute(tuple(output_shape), lambda *_: rest, "default", INJECTIVE)
    if i.ndim < 2:  # of a vector; a point and its value may be numbers
        points = compute((*i.shape, 1) if i.ndim else (1, 1), lambda k, _: i(*[k][: i.ndim]), "points", INJECTIVE)
    else:
        points = i
    v = v if v.ndim else compute((1,), lambda _, v=v: v(), "value", INJECTIVE)
    return output("scatter_nd", [begun, points, v], reduction="none")


def sequence_mask(data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0) -> Tensor:
    """`data` with `mask_value` beyond the length of each sequence. axis: that of time, 0 or 1; the batch is the other.

    >>> x, n = te.placeholder((5, 2, 3), name="x"), te.placeholder((2,), "int32", name="n")
    >>> topi.sequence_mask(x, n, -1.0).shape
    (5, 2, 3)
    """
    x, n = tensor(data, "sequence_mask"), tensor(valid_length, "sequence_mask")
    if axis not in (0, 1) or x.ndim < 2 or n.ndim != 1:
        raise ExprError(
            f"sequence_mask along axis {axis} of shape {x.shape}", hint="time and batch are the first two dimensions"
        )
    check_sizes("sequence_mask", (n.shape[0], x.shape[1 - axis]))
    held = te.const(mask_value, x.dtype)
    return compute(
        x.shape, lambda *i: te.if_then_else(i[axis] < n[i[1 - axis]], x(*i), held), "sequence_mask", INJECTIVE
    )


def meshgrid(a_tuple: Sequence[Tensor], indexing: str = "ij") -> list[Tensor]:
    """The coordinates of a grid of vectors, one tensor for each. indexing: "ij", or "xy" with the first two dimensions exchanged.

    >>> [g.shape for g in topi.meshgrid([te.placeholder((2,), name="a"), te.placeholder((3,), name="b")], "xy")]
    [(3, 2), (3, 2)]
    """
    given = [tensor(a, "meshgrid") for a in a_tuple]
    if indexing not in ("ij", "xy"):
        raise ExprError(f"meshgrid({indexing=})", hint='"ij" or "xy"')
    order = list(range(len(given)))
    if indexing == "xy" and len(given) > 1:
        order[:2] = 1, 0
    shape = tuple(given[k].shape[0] if given[k].ndim else 1 for k in order)
    return [
        compute(shape, lambda *i, a=a, at=order.index(k): a(i[at]) if a.ndim else a(), "meshgrid", INJECTIVE)
        for k, a in enumerate(given)
    ]


def unravel_index(indices: Tensor, shape: Sequence[int] | Tensor) -> Tensor:
    """The coordinates, in a new first dimension, of places in an array of `shape`, numbers or a tensor of them, counted in one dimension.

    >>> topi.unravel_index(te.placeholder((5,), "int32", name="i"), (3, 4)).shape
    (2, 5)
    """
    i = tensor(indices, "unravel_index")
    sizes = [shape(k) for k in range(type_of(shape).size)] if isinstance(shape, Tensor) else list(shape)

    def at(part: Any, *place: Any) -> Any:
        left, made = i(*place), None
        for k in reversed(range(len(sizes))):
            coordinate = te.floormod(left, sizes[k])
            made = coordinate if made is None else te.if_then_else(part == k, coordinate, made)
            left = te.floordiv(left, sizes[k])
        return made

    return compute((len(sizes), *i.shape), at, "unravel_index", INJECTIVE)


def ndarray_size(array: Tensor, dtype: str = "int32") -> Tensor:
    """How many elements a tensor has, as a tensor without dimensions."""
    x = tensor(array, "ndarray_size")
    count = te.const(1, dtype)
    for n in x.shape:
        count = count * te.cast(dtype, n)
    return compute((), lambda: count, "ndarray_size", INJECTIVE)


def sliding_window(data: Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]) -> Tensor:
    """Windows over the dimensions from `axis` on: their numbers come behind the dimensions in front, the windows last.

    >>> topi.sliding_window(te.placeholder((2, 7, 8), name="x"), 1, (3, 4), (2, 2)).shape
    (2, 3, 3, 3, 4)
    """
    x = tensor(data, "sliding_window")
    k = axis_of(axis, x.ndim, "sliding_window")
    if not len(window_shape) == len(strides) == x.ndim - k:
        raise ExprError(
            f"windows of {len(window_shape)} dimensions over {x.ndim - k}",
            hint="one extent and one stride for each from the axis on",
        )
    counts = [(n - w) // s + 1 for n, w, s in zip(x.shape[k:], window_shape, strides)]

    def at(*i: Any) -> Any:
        d = len(counts)
        return x(*i[:k], *(c * s + w for c, s, w in zip(i[k : k + d], strides, i[k + d :])))

    return compute((*x.shape[:k], *counts, *window_shape), at, "sliding_window", INJECTIVE)


def searchsorted(sorted_sequence: Tensor, values: Tensor, right: bool = False, out_dtype: str = "int64") -> Tensor:
    """How many elements of each sorted row come before a value: those that are less, with `right` also those that are equal.

    sorted_sequence: (..., n), or one row for all values. values: (..., m).

    >>> topi.searchsorted(te.placeholder((9,), name="s"), te.placeholder((2, 5), name="v")).shape
    (2, 5)
    """
    s, v = tensor(sorted_sequence, "searchsorted"), tensor(values, "searchsorted")
    if s.ndim not in (1, v.ndim):
        raise ExprError(f"searchsorted of shape {v.shape} in {s.shape}", hint="one row, or as many as the values have")
    if s.ndim > 1:
        check_sizes("searchsorted", *zip(s.shape[:-1], v.shape[:-1]))
    j = te.reduce_axis((0, s.shape[-1]), name="j")

    def before(*i: Any) -> Any:
        held = s(*(i[:-1] if s.ndim > 1 else ()), j)
        return te.sum(te.cast(out_dtype, held <= v(*i) if right else held < v(*i)), axis=j)

    return te.compute(v.shape, before, name="T_searchsorted")  # type: ignore[no-any-return]
