"""ATen operators that read and write by indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of
from tec.graph.builders.slices import fitted
from tec.ops.dims import Size, is_symbolic, maximum
from tec.ops.registry import broadcast_shapes

from .importer import AtenCall, aten_op
from .ops_math import FLOATS, truth, whole_floor_divide
from .remedies import FIX_THE_SIZE, KEEP_THE_SHAPE, LEFT_TO_TORCH, OTHER_TYPE


@aten_op("embedding")
def embedding(c: AtenCall, weight: Value, index: Value, *more: Any) -> Value:
    return c.op("gather", weight, index, axis=0)


def bag_of(c: AtenCall, offsets: Value, count: int, bags: Any) -> Value:
    """The bag of each of `count` indices: how many bags have begun by then, less one."""
    begins = c.cast(c.slice(offsets, 0, 0, bags), "int64")
    none, one = c.const(np.zeros(count + 1, "int64")), c.broadcast(c.const(np.int64(1)), begins.shape)
    marks = c.op("scatter_elements", none, begins, one, axis=0, reduction="add")
    begun = c.op("cumsum", c.slice(marks, 0, 0, count), axis=0, exclusive=False, reverse=False)
    return c.op("subtract", begun, c.const(np.int64(1)))


def sizes_of(c: AtenCall, bag: Value, bags: Any, counts: Value) -> Value:
    """How many indices of each bag count."""
    none = c.const(np.zeros(bags, "int64"))
    return c.op("scatter_elements", none, bag, c.cast(counts, "int64"), axis=0, reduction="add")


@aten_op("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    c: AtenCall, weight: Value, indices: Value, offsets: Value, by_frequency: bool = False, mode: int = 0, sparse: bool = False,
    weights: Value | None = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Value | None, ...]:  # fmt: skip
    """The sum (mode 0), the mean (1) or the largest (2) of the rows of each bag."""
    (bags, width), count = c.shape, indices.shape[0]
    if is_symbolic([bags, count]):
        raise ImportModelError("bags of an open number of indices", hint=FIX_THE_SIZE)
    bag, rows = bag_of(c, offsets, count, bags), c.op("gather", weight, indices, axis=0)
    if weights is not None:
        rows = c.op("multiply", rows, c.unsqueeze(weights, 1))
    counts = c.op("not_equal", indices, c.like(padding_idx, indices))
    nothing = c.like(-math.inf if mode == 2 else 0, rows)
    rows = c.op("where", c.unsqueeze(counts, 1), rows, nothing)
    size = sizes_of(c, bag, bags, counts)
    at = c.broadcast(c.unsqueeze(bag, 1), rows.shape)
    kind = "max" if mode == 2 else "add"
    y = c.op("scatter_elements", c.broadcast(nothing, (bags, width)), at, rows, axis=0, reduction=kind)
    filled = c.op("maximum", size, c.const(np.int64(1)))
    if mode == 1:
        y = c.op("divide", y, c.unsqueeze(c.cast(filled, y.dtype), 1))
    if mode == 2:
        y = c.op("where", c.unsqueeze(c.op("equal", size, c.const(np.int64(0))), 1), c.like(0, y), y)
    # What the backward call reads, in the shapes of torch's kernels: nothing where they find it out again, and no places of the largest.
    kept = [_as_kept(c, v, t) for v, t in zip((bag, size, size), c.types[1:])]
    return y, *kept[:2], None if mode == 2 else kept[2]


def _as_kept(c: AtenCall, v: Value, wanted: Any) -> Value | None:
    if wanted is None:
        return None
    return (
        c.const(np.zeros(wanted[1]), wanted[0])
        if 0 in wanted[1]
        else c.cast(v, wanted[0])
        if v.shape == wanted[1]
        else None
    )


@aten_op("_embedding_bag_backward")
def embedding_bag_backward(
    c: AtenCall, g: Value, indices: Value, offsets: Value, bag: Any, size: Any, most: Any, count: Any, by_frequency: bool, mode: int,
    sparse: bool, weights: Value | None, padding_idx: int = -1,
) -> Value:  # fmt: skip
    """By the table."""
    if by_frequency or mode == 2 or sparse:
        raise ImportModelError(
            "the gradient of bags by their largest, by frequency or as a sparse tensor",
            hint=f"mode sum or mean, scale_grad_by_freq=False and sparse=False; {LEFT_TO_TORCH}",
        )
    bag = bag_of(c, offsets, indices.shape[0], g.shape[0])
    if mode == 1:
        size = sizes_of(c, bag, g.shape[0], c.op("not_equal", indices, c.like(padding_idx, indices)))
        g = c.op("divide", g, c.unsqueeze(c.cast(c.op("maximum", size, c.like(1, size)), g.dtype), 1))
    rows = c.op("gather", g, bag, axis=0)
    if weights is not None:
        rows = c.op("multiply", rows, c.unsqueeze(weights, 1))
    rows = c.op("where", c.unsqueeze(c.op("equal", indices, c.like(padding_idx, indices)), 1), c.like(0, rows), rows)
    at = c.broadcast(c.unsqueeze(indices, 1), rows.shape)
    return c.op("scatter_elements", c.broadcast(c.like(0, rows), c.shape), at, rows, axis=0, reduction="add")


@aten_op("_embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    c: AtenCall, g: Value, table: Value, indices: Value, offsets: Value, bag: Any, mode: int, padding_idx: int = -1
) -> Value:
    own = c.op("gather", g, bag_of(c, offsets, indices.shape[0], g.shape[0]), axis=0)
    products = c.op("multiply", own, c.op("gather", table, indices, axis=0))
    total = c.op("reduce_sum", products, axes=(1,), keepdims=False)
    return c.op("where", c.op("equal", indices, c.like(padding_idx, indices)), c.like(0, total), total)


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
        raise ImportModelError("indices by a mask, whose number values decide", hint=KEEP_THE_SHAPE)
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
            return taken_by_mask(c, x, only, at[0])
        return c.op("gather", x, only, axis=at[0])
    points, at, shape = _points(c, x, indices)
    rest = [k for k in range(x.ndim) if k not in at]
    y = c.op("gather_nd", c.transpose(x, (*at, *rest)), points, batch_dims=0)
    if at == list(range(at[0], at[0] + len(at))) and at[0]:
        n = len(shape)
        before = len([k for k in rest if k < at[0]])
        y = c.transpose(y, (*range(n, n + before), *range(n), *range(n + before, y.ndim)))
    return y


@aten_op("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    c: AtenCall,
    x: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Value:
    masks = [i for i in indices if i is not None and i.dtype == "bool"]
    if masks:
        if sum(i is not None for i in indices) != 1:
            raise ImportModelError(
                "values put where a mask and other indices say, whose number values decide", hint=KEEP_THE_SHAPE
            )
        return put_by_mask(c, x, masks[0], indices.index(masks[0]), values, accumulate)
    points, at, shape = _points(c, x, indices)
    rest = [k for k in range(x.ndim) if k not in at]
    neighbours = at == list(range(at[0], at[0] + len(at)))
    before = len([k for k in rest if k < at[0]]) if neighbours else 0
    # The values' own order has the indices where the first of them was.
    target = (*[x.shape[k] for k in rest[:before]], *shape, *[x.shape[k] for k in rest[before:]])
    values = c.broadcast(fitted(c, values, target), target)
    n = len(shape)
    values = c.transpose(values, (*range(before, before + n), *range(before), *range(before + n, len(target))))
    moved = c.transpose(x, (*at, *rest))
    y = c.op("scatter_nd", moved, points, values, reduction="add" if accumulate else "none")
    back = [(*at, *rest).index(k) for k in range(x.ndim)]
    return c.transpose(y, back)


def put_by_mask(c: AtenCall, x: Value, mask: Value, first: int, values: Value, accumulate: bool) -> Value:
    """Values for where a mask of the dimensions from `first` on holds: one for all of them, or in turn, each the one of the mask's running count."""
    end = first + mask.ndim
    lead, rest = x.shape[:first], x.shape[end:]
    chosen = c.reshape(mask, (*mask.shape, *[1] * len(rest)))
    values = c.reshape(values, (*[1] * (len(lead) + 1 + len(rest) - values.ndim), *values.shape))
    count = values.shape[first]
    if count == 1:
        values = c.reshape(values, (*values.shape[:first], *[1] * mask.ndim, *values.shape[first + 1 :]))
    else:
        taken = c.op("gather", values, places_in_turn(c, mask, count), axis=first)
        values = c.reshape(taken, (*values.shape[:first], *mask.shape, *values.shape[first + 1 :]))
    return c.broadcast(c.op("where", chosen, c.op("add", x, values) if accumulate else values, x), x.shape)


def places_in_turn(c: AtenCall, mask: Value, count: Size) -> Value:
    """For each element of a mask, in a row, how many before it are true: of `count` values the one that it takes where it is true."""
    flat = c.cast(c.reshape(mask, (mask.type.size,)), "int64")
    place = c.op("cumsum", flat, axis=0, exclusive=True, reverse=False)
    return c.op("minimum", place, c.value(maximum(count - 1, 0), "int64"))


# ---- scatters


_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


@aten_op("scatter", "scatter_add", "scatter_reduce.two")
def scatter(
    c: AtenCall, x: Value, dim: int, index: Value, source: Any, reduce: str | None = None, include_self: bool = True
) -> Value:
    kind = "add" if c.name_of_op == "scatter_add" else "none" if reduce is None else _REDUCTIONS.get(reduce, reduce)
    if x.dtype == "bool" and kind != "none":
        raise ImportModelError(f"scatter_reduce {reduce!r} of {x.dtype}", hint=OTHER_TYPE)
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
    y = reduced_into(c, x, index, update, axis, kind, include_self)
    return c.reshape(y, ()) if flat else y


def reduced_into(c: AtenCall, x: Value, index: Value, update: Value, axis: int, kind: str, with_own: bool) -> Value:
    """Updates of one shape with `index`, reduced into x by "add", "mul", "max", "min" or "mean"; elements of x that are hit do not count unless `with_own`."""
    attrs = {"axis": axis, "reduction": "add" if kind == "mean" else kind}
    if not with_own and kind != "none":
        nothing = c.broadcast(c.const(_least(kind, x.dtype), x.dtype), index.shape)
        x = c.op("scatter_elements", x, index, nothing, axis=axis, reduction="none")
    y = c.op("scatter_elements", x, index, update, **attrs)
    if kind != "mean":
        return y
    own, one = c.broadcast(c.like(1 if with_own else 0, x), x.shape), c.broadcast(c.like(1, x), index.shape)
    count = c.op("scatter_elements", own, index, one, **attrs)
    count = c.op("maximum", count, c.like(1, x))
    return c.op("divide", y, count) if x.dtype in FLOATS else whole_floor_divide(c, y, count)


def _least(kind: str, dtype: str) -> Any:
    """What changes nothing in a reduction."""
    if kind not in ("max", "min"):
        return 1 if kind == "mul" else 0
    if dtype in FLOATS:
        return -math.inf if kind == "max" else math.inf
    bounds = np.iinfo(dtype)
    return bounds.min if kind == "max" else bounds.max


@aten_op("index_add", "index_copy", "index_fill")
def index_write(c: AtenCall, x: Value, dim: int, index: Value, source: Any, alpha: Any = 1) -> Value:
    if x.ndim == 0:
        raise ImportModelError(f"{c.name_of_op} of a scalar", hint="reshape it to one element: x.reshape(1)")
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


@aten_op("index_reduce")
def index_reduce(
    c: AtenCall, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    if x.ndim == 0 or x.dtype == "bool":
        raise ImportModelError(f"index_reduce {reduce!r} of {x.type}", hint=OTHER_TYPE)
    axis = axis_of(dim, x.ndim)
    lined = c.reshape(c.cast(index, "int64"), [source.shape[axis] if k == axis else 1 for k in range(x.ndim)])
    kind = _REDUCTIONS.get(reduce, reduce)
    return reduced_into(c, x, c.broadcast(lined, source.shape), source, axis, kind, include_self)


@aten_op("put")
def put(c: AtenCall, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """Into the elements as one row."""
    if accumulate and x.dtype == "bool":
        raise ImportModelError("put of bool that accumulates", hint="accumulate in another type: x.to(torch.int32)")
    flat, at = c.reshape(x, (x.type.size,)), c.reshape(index, (index.type.size,))
    update = c.reshape(source, (index.type.size,))
    y = c.op("scatter_elements", flat, at, update, axis=0, reduction="add" if accumulate else "none")
    return c.reshape(y, x.shape)


@aten_op("masked_scatter")
def masked_scatter(c: AtenCall, x: Value, mask: Value, source: Value) -> Value:
    """The source's elements one after another where the mask holds: each takes the one of the mask's running count."""
    mask, count = c.broadcast(mask, x.shape), source.type.size
    taken = c.op("gather", c.reshape(source, (count,)), places_in_turn(c, mask, count), axis=0)
    return c.op("where", mask, c.reshape(taken, x.shape), x)


@aten_op("nonzero_static")
def nonzero_static(c: AtenCall, x: Value, *, size: int, fill_value: int = -1) -> Value:
    """The first `size` places of elements that are not 0."""
    if is_symbolic([*x.shape, size]):
        raise ImportModelError("nonzero_static of open sizes", hint=FIX_THE_SIZE)
    total = math.prod(x.shape)
    there = truth(c, c.reshape(x, (total,)))
    flat = places_where(c, there, size)
    rows = c.op("divide", c.unsqueeze(flat, 1), c.const(_strides(x.shape), "int64"))
    places = c.op("floor_mod", rows, c.const(np.array(x.shape, "int64")))
    return c.op("where", c.unsqueeze(c.op("less", flat, c.const(0, "int64")), 1), c.const(fill_value, "int64"), places)


def places_where(c: AtenCall, there: Value, size: int) -> Value:
    """The first `size` places where a row of bools holds, -1 behind the last: each goes to the row of their running count, all others to one that is cut off."""
    count = c.op("cumsum", c.cast(there, "int64"), axis=0, exclusive=False, reverse=False)
    fits = c.op("logical_and", there, c.op("less_equal", count, c.const(size, "int64")))
    row = c.op("where", fits, c.op("subtract", count, c.const(1, "int64")), c.const(size, "int64"))
    empty = c.const(np.full(size + 1, -1), "int64")
    made = c.op("scatter_elements", empty, row, c.iota(there.shape[0]), axis=0, reduction="none")
    return c.slice(made, 0, 0, size)


def taken_by_mask(c: AtenCall, x: Value, mask: Value, first: int) -> Value:
    """The elements where a mask of the dimensions from `first` on holds, whose number torch knows: the gradient of values that were put there."""
    if is_symbolic([*mask.shape, c.shape[first]]):
        raise ImportModelError("indices by a mask, whose number values decide", hint=KEEP_THE_SHAPE)
    size, end = math.prod(mask.shape), first + mask.ndim
    there = truth(c, c.reshape(mask, (size,)))
    places = c.op("maximum", places_where(c, there, int(c.shape[first])), c.const(0, "int64"))
    return c.op("gather", c.reshape(x, (*x.shape[:first], size, *x.shape[end:])), places, axis=first)


def _strides(shape: Sequence[int]) -> Any:
    return np.array([math.prod(shape[k + 1 :]) for k in range(len(shape))], "int64")


@aten_op("one_hot")
def one_hot(c: AtenCall, x: Value, count: int = -1) -> Value:
    depth = c.shape[-1]
    return c.cast(c.op("equal", c.unsqueeze(x, x.ndim), c.iota(depth)), c.dtype)


@aten_op("bucketize", "searchsorted")
def bucketize(c: AtenCall, a: Any, b: Any, **more: Any) -> Value:
    """How many boundaries lie below (or at) each value."""
    values, bounds = (a, b) if c.name_of_op == "bucketize" else (b, a)
    if not isinstance(values, Value):
        values = c.value(values, bounds.dtype)
    if more.get("sorter") is not None:
        bounds = c.op("gather_elements", bounds, more["sorter"], axis=bounds.ndim - 1)
    if bounds.ndim > 1:  # rows of boundaries, one for each row of values
        bounds = c.unsqueeze(bounds, bounds.ndim - 1)
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
