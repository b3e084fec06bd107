"""ATen reductions, running sums, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of
from tec.graph.builders.reduce import log_sum_exp, p_norm, widened
from tec.ops.dims import Size, is_symbolic

from .importer import AtenCall, aten_op
from .ops_math import FLOATS, truth
from .remedies import FIX_THE_SIZE, LEFT_TO_TORCH


def axes_of(x: Value, dim: Any) -> tuple[int, ...]:
    """The axes that `dim` names: one, several, or all where it is None or empty."""
    dims = [dim] if isinstance(dim, int) else list(dim) if dim is not None else []
    return tuple(sorted(axis_of(d, x.ndim) for d in dims)) if dims and x.ndim else tuple(range(x.ndim))


@aten_op("sum", "mean", "prod")
def reduce(c: AtenCall, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    name = f"reduce_{c.name_of_op}"
    if name == "reduce_prod" and dim is None:
        keepdim = False
    return c.op(name, c.cast(x, c.dtype), axes=axes_of(x, dim), keepdims=bool(keepdim))


@aten_op("sum", "prod", space=torch.ops.prims)
def reduced(c: AtenCall, x: Value, dims: Any = None, **more: Any) -> Value:
    return reduce(c, x, dims)


@aten_op("amax", "amin")
def extremum(c: AtenCall, x: Value, dim: Any = (), keepdim: bool = False) -> Value:
    return extreme(c, x, axes_of(x, dim), keepdim, c.name_of_op == "amax")


def extreme(c: AtenCall, x: Value, axes: tuple[int, ...], keepdim: bool, largest: bool) -> Value:
    if x.dtype == "bool":
        return c.op("reduce_any" if largest else "reduce_all", x, axes=axes, keepdims=bool(keepdim))
    return c.op("reduce_max" if largest else "reduce_min", x, axes=axes, keepdims=bool(keepdim))


@aten_op("max", "min")
def max_or_min(c: AtenCall, x: Value, dim: Any = None, keepdim: bool = False) -> Any:
    """Of all elements, or along a dimension with the index; of two tensors element by element."""
    largest = c.name_of_op == "max"
    if isinstance(dim, Value):
        a, b = c.cast(x, c.dtype), c.cast(dim, c.dtype)
        if c.dtype == "bool":
            return c.op("logical_or" if largest else "logical_and", a, b)
        return c.op("maximum" if largest else "minimum", a, b)
    if dim is None:
        return extreme(c, x, tuple(range(x.ndim)), False, largest)
    if x.ndim == 0:
        return x, filled_index(c)
    axis = axis_of(dim, x.ndim)
    return extreme(c, x, (axis,), keepdim, largest), c.op(
        "argmax" if largest else "argmin", ordered(c, x), axis=axis, keepdims=bool(keepdim), last=False
    )


def filled_index(c: AtenCall) -> Value:
    return c.const(0, "int64")


def ordered(c: AtenCall, x: Value) -> Value:
    """bool as numbers, which have an order."""
    return c.cast(x, "uint8") if x.dtype == "bool" else x


@aten_op("aminmax")
def aminmax(c: AtenCall, x: Value, dim: Any = None, keepdim: bool = False) -> Any:
    axes = axes_of(x, dim)
    if dim is None and keepdim:
        axes = tuple(range(x.ndim))
    return tuple(extreme(c, x, axes, keepdim, largest) for largest in (False, True))


@aten_op("argmax", "argmin")
def arg(c: AtenCall, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    x = ordered(c, x)
    if dim is None or x.ndim == 0:
        x = c.reshape(x, (x.type.size,))
        return c.reshape(c.op(c.name_of_op, x, axis=0, keepdims=False, last=False), c.shape)
    return c.op(c.name_of_op, x, axis=axis_of(dim, x.ndim), keepdims=bool(keepdim), last=False)


@aten_op("any", "all")
def any_or_all(c: AtenCall, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    axes = axes_of(x, dim)
    return c.cast(c.op(f"reduce_{c.name_of_op}", truth(c, x), axes=axes, keepdims=bool(keepdim)), c.dtype)


@aten_op("count_nonzero")
def count_nonzero(c: AtenCall, x: Value, dim: Any = None) -> Value:
    return c.op("reduce_sum", c.cast(truth(c, x), "int64"), axes=axes_of(x, dim), keepdims=False)


@aten_op("logsumexp")
def logsumexp(c: AtenCall, x: Value, dim: Any, keepdim: bool = False) -> Value:
    x = c.cast(x, c.dtype)
    return c.reshape(log_sum_exp(c, x, axes_of(x, dim), bool(keepdim)), c.shape)


@aten_op("var", "std", "var_mean", "std_mean")
def variance(
    c: AtenCall, x: Value, dim: Any = None, unbiased: Any = True, keepdim: bool = False, correction: Any = None
) -> Any:
    if c.overload in ("", "default"):  # (x, unbiased)
        dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    less = (
        (1 if unbiased else 0)
        if correction is None and c.overload not in ("correction", "correction_names")
        else correction
    )
    less = 1 if less is None else less
    axes = axes_of(x, dim)
    count = math.prod(x.shape[a] for a in axes)
    x = widened(c, x)  # squares of what float16 holds may be more than it does
    mean = c.op("reduce_mean", x, axes=axes, keepdims=True)
    total = c.op("reduce_sum", c.op("square", c.op("subtract", x, mean)), axes=axes, keepdims=bool(keepdim))
    if is_symbolic(count):
        rest = c.op("subtract", c.value(count, x.dtype), c.const(less, x.dtype))
        y = c.op("divide", total, c.op("maximum", rest, c.const(0, x.dtype)))
    else:
        rest = max(count - less, 0)
        y = c.op("divide", total, c.like(rest, total))
    if c.name_of_op.startswith("std"):
        y = c.op("sqrt", y)
    y, mean = c.cast(y, c.dtype), c.cast(mean, c.dtype)
    return (y, c.reshape(mean, c.shape)) if c.name_of_op.endswith("_mean") else y


@aten_op("norm", "linalg_vector_norm")
def vector_norm(c: AtenCall, x: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Value:
    p = 2.0 if ord is None else float(ord)
    x = c.cast(x, c.dtype)
    attrs: dict[str, Any] = {"axes": axes_of(x, dim), "keepdims": bool(keepdim)}
    if math.isinf(p):
        return c.op("reduce_max" if p > 0 else "reduce_min", c.op("abs", x), **attrs)
    if p == 0:
        return c.op("reduce_sum", c.cast(truth(c, x), c.dtype), **attrs)
    return p_norm(c, x, p, **attrs)


@aten_op("dist")
def dist(c: AtenCall, a: Value, b: Value, p: float = 2) -> Value:
    gap = c.op("subtract", c.cast(a, c.dtype), c.cast(b, c.dtype))
    return vector_norm(c, gap, p)


@aten_op("cumsum", "cumprod")
def cumulate(c: AtenCall, x: Value, dim: int) -> Value:
    x = c.cast(x, c.dtype)
    if x.ndim == 0:
        return x
    return c.op(c.name_of_op, x, axis=axis_of(dim, x.ndim), exclusive=False, reverse=False)


@aten_op("topk")
def topk(c: AtenCall, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return best(c, x, k, dim, largest)


@aten_op("kthvalue")
def kthvalue(c: AtenCall, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The last of the k smallest."""
    if is_symbolic(k):
        raise ImportModelError("kthvalue of an open number", hint=FIX_THE_SIZE)
    if x.ndim == 0:
        return x, filled_index(c)
    axis = axis_of(dim, x.ndim)
    last = [c.slice(v, axis, k - 1, 1) for v in best(c, x, k, dim, False)]
    return tuple(last if keepdim else [c.squeeze(v, axis) for v in last])


@aten_op("sort.default")
def sort(c: AtenCall, x: Value, dim: int = -1, descending: bool = False) -> Any:
    """topk of all, of equals the first first."""
    return best(c, x, x.shape[dim] if x.ndim else 1, dim, bool(descending))


@aten_op("sort.stable")
def stable_sort(c: AtenCall, x: Value, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return sort(c, x, dim, descending)


@aten_op("msort")
def msort(c: AtenCall, x: Value) -> Value:
    values: Value = sort(c, x, 0)[0]
    return values


def best(c: AtenCall, x: Value, k: Size, dim: int, largest: bool) -> Any:
    if x.ndim == 0:
        return x, filled_index(c)
    values, index = c.ops("topk", ordered(c, x), k=k, axis=axis_of(dim, x.ndim), largest=bool(largest))
    return c.cast(values, x.dtype), index


@aten_op("median", "nanmedian")
def median(c: AtenCall, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower one of both in the middle. Among sorted elements NaN comes last: it is the median where there is one, or does not count."""
    if dim is None:
        return chosen(c, c.reshape(x, (x.type.size,)), 0, False, in_the_middle)[0]
    return chosen(c, x, dim, bool(keepdim), in_the_middle)


def in_the_middle(c: AtenCall, values: Value, axis: int) -> Value:
    n = values.shape[axis]
    if values.dtype not in FLOATS:
        shape = tuple(1 if k == axis else size for k, size in enumerate(values.shape))
        return c.broadcast(c.const((n - 1) // 2, "int64"), shape)
    numbers = c.cast(c.op("logical_not", c.op("isnan", values)), "int64")
    count = c.op("reduce_sum", numbers, axes=(axis,), keepdims=True)
    if c.name_of_op == "median":
        return c.op("where", c.op("equal", count, c.const(n, "int64")), c.const((n - 1) // 2, "int64"), count)
    less = c.op("maximum", c.op("subtract", count, c.const(1, "int64")), c.const(0, "int64"))
    return c.op("shift_right", less, c.const(1, "int64"))


@aten_op("mode")
def mode(c: AtenCall, x: Value, dim: int = -1, keepdim: bool = False) -> Any:
    """The element that comes most often, the least of several, at its last place."""
    return chosen(c, x, dim, bool(keepdim), most_often)


def most_often(c: AtenCall, values: Value, axis: int) -> Value:
    """Of sorted values the end of the first of the longest runs, whose elements are counted pair by pair."""
    last = values.ndim
    lined = c.transpose(values, (*(k for k in range(last) if k != axis), axis))
    same = c.op("equal", c.unsqueeze(lined, last), c.unsqueeze(lined, last - 1))
    count = c.op("reduce_sum", c.cast(same, "int32"), axes=(last,), keepdims=False)
    first = c.op("argmax", count, axis=last - 1, keepdims=True, last=False)
    run = c.op("gather_elements", count, first, axis=last - 1)
    end = c.op("subtract", c.op("add", first, c.cast(run, "int64")), c.const(1, "int64"))
    return c.transpose(end, (*range(axis), last - 1, *range(axis, last - 1)))


def chosen(c: AtenCall, x: Value, dim: int, keepdim: bool, place: Callable[[AtenCall, Value, int], Value]) -> Any:
    """Along a dimension the element at a `place` among the sorted ones, and where it stood."""
    if x.ndim == 0:
        return x, filled_index(c)
    axis = axis_of(dim, x.ndim)
    values, index = best(c, x, known_length(c, x, axis), axis, False)
    at = place(c, ordered(c, values), axis)
    found = [c.op("gather_elements", v, at, axis=axis) for v in (values, index)]
    return tuple(found if keepdim else [c.squeeze(v, axis) for v in found])


@aten_op("cummax", "cummin")
def running_extremum(c: AtenCall, x: Value, dim: int) -> Any:
    """The largest or least so far, and its place, the last of equals: the running maximum of words of an element's order above its place."""
    if x.ndim == 0:
        return x, filled_index(c)
    axis = axis_of(dim, x.ndim)
    n = x.shape[axis]
    order = order_of(c, ordered(c, x), c.name_of_op == "cummin")
    at = c.broadcast(c.reshape(c.iota(n), tuple(n if k == axis else 1 for k in range(x.ndim))), x.shape)
    if order is None:
        known_length(c, x, axis)
        return _extremum_by_steps(c, x, at, axis)
    word = c.op("bitwise_or", c.op("shift_left", c.cast(order, "int64"), c.const(32, "int64")), at)
    word = c.op("cummax", word, axis=axis, exclusive=False, reverse=False)
    place = c.op("bitwise_and", word, c.const((1 << 31) - 1, "int64"))
    return c.op("gather_elements", x, place, axis=axis), place


def order_of(c: AtenCall, x: Value, least: bool) -> Value | None:
    """Numbers of 32 bits in the order of elements, or the other way round; NaN is above all numbers both times. None for elements of more bits."""
    if x.dtype in ("int64", "uint64", "uint32", "float64"):
        return None
    if x.dtype not in FLOATS:
        order = c.cast(x, "int32")
        return c.op("bitwise_xor", order, c.const(-1, "int32")) if least else order
    x = c.cast(x, "float32")
    zero = c.like(0, x)
    bits = c.op("bitcast", c.op("neg", x) if least else x, dtype="int32")
    low = c.op("bitwise_and", c.op("shift_right", bits, c.const(31, "int32")), c.const((1 << 31) - 1, "int32"))
    order = c.op("where", c.op("equal", x, zero), c.const(0, "int32"), c.op("bitwise_xor", bits, low))
    return c.op("where", c.op("isnan", x), c.const((1 << 31) - 1, "int32"), order)


def _extremum_by_steps(c: AtenCall, x: Value, place: Value, axis: int) -> Any:
    ahead = "greater" if c.name_of_op == "cummax" else "less"

    def later(before: list[Value], here: list[Value]) -> list[Value]:
        wins = c.op(ahead, before[0], here[0])
        if here[0].dtype in FLOATS:  # NaN goes before all, but for a later one
            wins = c.op("logical_or", wins, c.op("isnan", before[0]))
            wins = c.op("logical_and", wins, c.op("logical_not", c.op("isnan", here[0])))
        return [c.op("where", wins, a, b) for a, b in zip(before, here)]

    values, place = running(c, [x, place], axis, later)
    return values, place


@aten_op("logcumsumexp")
def log_running_sum(c: AtenCall, x: Value, dim: int) -> Value:
    x = c.cast(x, c.dtype)
    if x.ndim == 0:
        return x
    axis = axis_of(dim, x.ndim)
    known_length(c, x, axis)
    return running(c, [x], axis, lambda before, here: [c.op("logaddexp", before[0], here[0])])[0]


def known_length(c: AtenCall, x: Value, axis: int) -> int:
    if is_symbolic(x.shape[axis]):
        raise ImportModelError(f"{c.name_of_op} of an open size", hint=FIX_THE_SIZE)
    return int(x.shape[axis])


def running(
    c: AtenCall, values: list[Value], axis: int, join: Callable[[list[Value], list[Value]], list[Value]]
) -> list[Value]:
    """What `join` makes of all elements up to each: by steps of 1, 2, 4, ... back, each of which doubles how far an element has looked (Hillis and Steele)."""
    n, back = int(values[0].shape[axis]), 1
    while back < n:
        before = [c.slice(v, axis, 0, n - back) for v in values]
        here = [c.slice(v, axis, back, n - back) for v in values]
        first = [c.slice(v, axis, 0, back) for v in values]
        values = [c.concat([a, b], axis) for a, b in zip(first, join(before, here))]
        back *= 2
    return values


@aten_op("argsort")
def argsort(c: AtenCall, x: Value, dim: int = -1, descending: bool = False, stable: Any = None) -> Value:
    found: Value = sort(c, x, dim, descending)[1]
    return found


# ---- counts


@aten_op("histc")
def histc(c: AtenCall, x: Value, bins: int = 100, min: Any = 0, max: Any = 0) -> Value:
    """How many elements lie in each of `bins` intervals of equal width; the last holds its upper end too, and what lies outside is not counted."""
    x = c.reshape(x, (x.type.size,))
    whole = x.dtype.startswith(("int", "uint"))
    y = c.cast(x, "float32") if x.dtype in ("float16", "bfloat16") or whole else x
    if min == max:  # by the least and the largest element, or one more on either side
        low, high = (c.op(f"reduce_{k}", y, axes=(0,), keepdims=False) for k in ("min", "max"))
        same = c.op("equal", low, high)
        low, high = (c.op("where", same, c.op(f, v, c.like(1, v)), v) for f, v in (("subtract", low), ("add", high)))
    else:
        low, high = c.value(min, y.dtype), c.value(max, y.dtype)
    inside = c.op("logical_and", c.op("greater_equal", y, low), c.op("less_equal", y, high))
    share = c.op("divide", c.op("subtract", y, low), c.op("subtract", high, low))
    place = c.op("clip", c.op("floor", c.op("multiply", share, c.like(bins, y))), low=0, high=bins - 1)
    return counted(c, c.cast(place, "int32"), inside, bins, c.dtype)


@aten_op("bincount")
def bincount(c: AtenCall, x: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    if is_symbolic(c.shape):
        raise ImportModelError(
            "bincount, whose size values decide", hint=f"F.one_hot(x, classes).sum(0) has a known size; {LEFT_TO_TORCH}"
        )
    return counted(c, x, None, int(c.shape[0]), c.dtype, weights)


def counted(
    c: AtenCall, places: Value, inside: Value | None, bins: int, dtype: str, weights: Value | None = None
) -> Value:
    """How often each of 0 .. bins - 1 comes among the places where `inside` holds; the sum of their weights where there are some."""
    hit = c.op(
        "equal", c.reshape(places, (1, places.type.size)), c.reshape(c.iota(bins, dtype=places.dtype), (bins, 1))
    )
    if inside is not None:
        hit = c.op("logical_and", hit, c.reshape(inside, (1, places.type.size)))
    one = c.cast(hit, "int32") if weights is None else c.op("multiply", c.cast(hit, dtype), c.cast(weights, dtype))
    return c.cast(c.op("reduce_sum", one, axes=(1,), keepdims=False), dtype)
