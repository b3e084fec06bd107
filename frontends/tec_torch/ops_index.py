"""ATen operators that read and write by indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of
from tec.ops.dims import is_symbolic
from tec.ops.registry import broadcast_shapes

from .importer import AtenCall, aten_op


@aten_op("embedding")
def embedding(c: AtenCall, weight: Value, index: Value, *more: Any) -> Value:
    return c.op("gather", weight, index, axis=0)


@aten_op("index_select")
def index_select(c: AtenCall, x: Value, dim: int, index: Value) -> Value:
    if x.ndim == 0:
        return x
    index = index if index.ndim else c.reshape(index, (1,))
    return c.op("gather", x, index, axis=axis_of(dim, x.ndim))


@aten_op("gather")
def gather(c: AtenCall, x: Value, dim: int, index: Value, *more: Any) -> Value:
    if x.ndim == 0 or index.ndim == 0:
        y = c.op("gather", c.reshape(x, (x.type.size,)), c.reshape(index, (index.type.size,)), axis=0)
        return c.reshape(y, c.shape)
    axis = axis_of(dim, x.ndim)
    for d in range(x.ndim):  # the index may be smaller in the other dimensions
        if d != axis and x.shape[d] != index.shape[d]:
            x = c.slice(x, d, 0, index.shape[d])
    return c.op("gather_elements", x, index, axis=axis)


@aten_op("take")
def take(c: AtenCall, x: Value, index: Value) -> Value:
    return c.op("gather", c.reshape(x, (x.type.size,)), index, axis=0)


def _points(c: AtenCall, x: Value, indices: Sequence[Value | None]) -> tuple[Value, list[int], tuple[Any, ...]]:
    """(points, the dimensions that they count in, the shape of the indices broadcast)."""
    at = [k for k, i in enumerate(indices) if i is not None]
    some = [i for i in indices if i is not None]
    if any(i.dtype in ("bool", "uint8") for i in some):
        raise ImportModelError("indices by a mask, whose number values decide")
    shape: tuple[Any, ...] = some[0].shape
    for i in some[1:]:
        shape = broadcast_shapes(shape, i.shape)
    parts = []
    for k, i in zip(at, some):
        i = c.cast(i, "int64")
        if len(at) > 1:  # a point counts from 0
            n = c.value(x.shape[k], "int64")
            i = c.op("where", c.op("less", i, c.const(np.int64(0))), c.op("add", i, n), i)
        parts.append(c.unsqueeze(c.broadcast(i, shape), len(shape)))
    return c.concat(parts, len(shape)), at, shape


@aten_op("index", "_unsafe_index")
def index(c: AtenCall, x: Value, indices: Sequence[Value | None]) -> Value:
    """NumPy's: the indexed dimensions stand where they were where they are neighbours, in front otherwise."""
    at = [k for k, i in enumerate(indices) if i is not None]
    if not at:
        return x
    if len(at) == 1:
        only: Any = indices[at[0]]
        if only.dtype in ("bool", "uint8"):
            raise ImportModelError("indices by a mask, whose number values decide")
        return c.op("gather", x, only, axis=at[0])
    points, at, shape = _points(c, x, indices)
    rest = [k for k in range(x.ndim) if k not in at]
    y = c.op("gather_nd", c.transpose(x, (*at, *rest)), points, batch_dims=0)
    if at == list(range(at[0], at[0] + len(at))) and at[0]:
        n = len(shape)
        before = len([k for k in rest if k < at[0]])
        y = c.transpose(y, (*range(n, n + before), *range(n), *range(n + before, y.ndim)))
    return y


@aten_op("index_put", "_unsafe_index_put")
def index_put(c: AtenCall, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    masks = [i for i in indices if i is not None and i.dtype == "bool"]
    if masks:
        mask = masks[0]
        if len(indices) != 1 or accumulate or values.type.size != 1:
            raise ImportModelError("values put where a mask says, whose number values decide")
        mask = c.reshape(mask, (*mask.shape, *[1] * (x.ndim - mask.ndim)))
        return c.broadcast(c.op("where", mask, c.reshape(values, ()), x), x.shape)
    points, at, shape = _points(c, x, indices)
    rest = [k for k in range(x.ndim) if k not in at]
    neighbours = at == list(range(at[0], at[0] + len(at)))
    before = len([k for k in rest if k < at[0]]) if neighbours else 0
    # The values' own order has the indices where the first of them was.
    target = (*[x.shape[k] for k in rest[:before]], *shape, *[x.shape[k] for k in rest[before:]])
    values = c.broadcast(values, target)
    n = len(shape)
    values = c.transpose(values, (*range(before, before + n), *range(before), *range(before + n, len(target))))
    moved = c.transpose(x, (*at, *rest))
    y = c.op("scatter_nd", moved, points, values, reduction="add" if accumulate else "none")
    back = [(*at, *rest).index(k) for k in range(x.ndim)]
    return c.transpose(y, back)


# ---- scatters


_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


@aten_op("scatter", "scatter_add", "scatter_reduce.two")
def scatter(
    c: AtenCall, x: Value, dim: int, index: Value, source: Any, reduce: str | None = None, include_self: bool = True
) -> Value:
    kind = "add" if c.name_of_op == "scatter_add" else "none" if reduce is None else _REDUCTIONS.get(reduce, reduce)
    if kind == "mean" or not include_self or (x.dtype == "bool" and kind != "none"):
        raise ImportModelError(
            f"scatter_reduce {reduce!r} of {x.dtype}, with itself {'in' if include_self else 'left out'}"
        )
    if x.ndim == 0:
        x, flat = c.reshape(x, (1,)), True
        index = c.reshape(index, (1,)) if index.ndim == 0 else index
        source = c.reshape(source, (1,)) if isinstance(source, Value) else source
    else:
        flat = False
    axis = axis_of(dim, x.ndim)
    if isinstance(source, Value) and source.ndim == x.ndim:
        for d in range(x.ndim):
            source = c.slice(source, d, 0, index.shape[d])
    update = c.broadcast(c.value(source, x.dtype), index.shape)
    if index.type.size == 0:
        return c.reshape(x, c.shape)
    y = c.op("scatter_elements", x, index, update, axis=axis, reduction=kind)
    return c.reshape(y, ()) if flat else y


@aten_op("index_add", "index_copy", "index_fill")
def index_write(c: AtenCall, x: Value, dim: int, index: Value, source: Any, alpha: Any = 1) -> Value:
    if x.ndim == 0:
        raise ImportModelError(f"{c.name_of_op} of a scalar")
    axis = axis_of(dim, x.ndim)
    index = c.cast(c.reshape(index, (index.type.size,)), "int64")
    shape = [index.shape[0] if k == axis else n for k, n in enumerate(x.shape)]
    update = c.value(source, x.dtype)
    update = (
        c.reshape(update, shape)
        if update.ndim == x.ndim and c.name_of_op != "index_fill"
        else c.broadcast(c.reshape(update, ()), shape)
    )
    if alpha != 1:
        update = c.op("multiply", update, c.value(alpha, x.dtype))
    lined = c.reshape(index, [index.shape[0] if k == axis else 1 for k in range(x.ndim)])
    kind = "add" if c.name_of_op == "index_add" else "none"
    return c.op("scatter_elements", x, c.broadcast(lined, shape), update, axis=axis, reduction=kind)


@aten_op("masked_scatter")
def masked_scatter(c: AtenCall, x: Value, mask: Value, source: Value) -> Value:
    """The source's elements one after another where the mask holds: each takes the one of the mask's running count."""
    mask = c.broadcast(mask, x.shape)
    if is_symbolic(x.shape):
        raise ImportModelError("masked_scatter of open sizes")
    size = math.prod(x.shape)
    count = c.op("cumsum", c.cast(c.reshape(mask, (size,)), "int64"), axis=0, exclusive=False, reverse=False)
    place = c.op("clip", c.op("subtract", count, c.const(np.int64(1))), low=0, high=max(source.type.size - 1, 0))
    taken = c.op("gather", c.reshape(source, (source.type.size,)), place, axis=0)
    return c.op("where", mask, c.reshape(taken, x.shape), x)


@aten_op("one_hot")
def one_hot(c: AtenCall, x: Value, count: int = -1) -> Value:
    depth = c.shape[-1]
    return c.cast(c.op("equal", c.unsqueeze(x, x.ndim), c.iota(depth)), c.dtype)


@aten_op("bucketize", "searchsorted")
def bucketize(c: AtenCall, a: Any, b: Any, **more: Any) -> Value:
    """How many boundaries lie below (or at) each value."""
    values, bounds = (a, b) if c.name_of_op == "bucketize" else (b, a)
    if not isinstance(values, Value) or bounds.ndim != 1 or more.get("sorter") is not None:
        raise ImportModelError(f"{c.name_of_op} of rows of boundaries")
    right = bool(more.get("right", False)) or more.get("side") == "right"
    values = c.unsqueeze(values, values.ndim)
    wide = "float64" if "float" in values.dtype or "float" in bounds.dtype else "int64"
    below = c.op("less_equal" if right else "less", c.cast(bounds, wide), c.cast(values, wide))
    return c.cast(c.op("reduce_sum", c.cast(below, "int64"), axes=(values.ndim - 1,), keepdims=False), c.dtype)


@aten_op("isin")
def isin(c: AtenCall, a: Any, b: Any, assume_unique: bool = False, invert: bool = False) -> Value:
    kind = c.common
    a, b = c.value(a, kind), c.value(b, kind)
    same = c.op("equal", c.unsqueeze(a, a.ndim), c.reshape(b, (b.type.size,)))
    y = c.op("reduce_any", same, axes=(a.ndim,), keepdims=False)
    return c.op("logical_not", y) if invert else y
