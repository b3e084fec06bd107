"""Pooling: maxima (with indices), averages and p-norms of windows, in any layout; and resampling along one dimension."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..ir.dtype import dtype_info, wide
from ..te import Tensor
from .dims import require
from .layouts import Place
from .reduce import ARG_KINDS
from .registry import (
    FOLLOWS_16,
    OPAQUE,
    REDUCTION,
    WINDOWED,
    Attrs,
    TensorType,
    fail,
    normalize_axis,
    register,
    static_shape,
)
from .windows import Windows, image_sizes, layouts_of, spatial


def _pool_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x = types[0]
    nd = len(attrs["strides"])
    lists = [attrs[k] for k in ("kernel", "strides", "dilations", "before", "after", "out_space")]
    lx, ly = layouts_of(attrs, 2)
    if nd < 1 or x.ndim != len(lx.dims) or any(len(v) != nd for v in lists) or min(attrs["strides"]) < 1:
        raise fail(
            f"pooling of {x} with {attrs}",
            hint="data is (batch, channels, size ...); window, strides and pads have a number for each spatial dimension",
        )
    if not all(require(1, "<=", n, f"windows of {attrs['kernel']} over {x}") for n in attrs["out_space"]):
        raise fail(
            f"pooling of {x}: the window is larger than the padded input",
            hint="pad the input, feed a larger one, or take a smaller window",
        )
    out = TensorType(x.dtype, ly.shape(_out_sizes(x.shape, attrs)))
    return [out, TensorType("int64", out.shape)] if attrs.get("indices") else [out]


def _out_sizes(shape: Sequence[Any], attrs: Attrs) -> dict[str, Any]:
    return {**image_sizes(layouts_of(attrs, 2)[0], shape, attrs), **dict(zip(spatial(attrs), attrs["out_space"]))}


def _work(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    n = outs[0].size
    for k in attrs["kernel"]:
        n *= k
    return n


def _over_windows(
    attrs: Attrs, x: Tensor, out: TensorType, reducer: Any, term: Callable[[Any], Any], fill: Any, name: str
) -> Tensor:
    """`term` of each element of a window, reduced; padding holds `fill`."""
    lx, ly = layouts_of(attrs, 2)
    windows = Windows(x, attrs, lx, ly.is_flat, fill)
    sizes = _out_sizes(static_shape(x), attrs)
    taps = {a: te.reduce_axis((0, n), f"r{a.lower()}") for a, n in zip(spatial(attrs), attrs["kernel"])}
    made: Tensor = te.compute(
        out.shape,
        lambda *i: reducer(term(windows.read(ly.place(i, sizes), taps)), axis=list(taps.values())),
        name=name,
        tag="pixels" if ly.is_flat else "pool",
        attrs={"strides": attrs["strides"], "dilations": attrs["dilations"]},
    )
    return made


@register("max_pool", REDUCTION, _pool_type, flops=_work, traits=[FOLLOWS_16, WINDOWED], takes=1)
def _max_pool(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The largest element of each window. `kernel`, `strides`, `dilations`, `before`, `after`, `out_space`; `layouts` of input and output where they are
    not NCHW, and `space` (see `windows`); `indices` also gives its place in the flattened input (`column_major` counts the spatial dimensions so)."""
    x = inputs[0]
    lowest = te.maximum.identity(x.dtype)
    if not attrs.get("indices"):
        return [_over_windows(attrs, x, outputs[0], te.maximum, lambda e: e, lowest, "max_pool")]
    rs = [te.reduce_axis((0, n), f"r{k}") for k, n in enumerate(attrs["kernel"])]
    shape = static_shape(x)
    space = shape[2:]

    def pair(n: Any, c: Any, *i: Any) -> Any:
        lists = (attrs[k] for k in ("strides", "dilations", "before"))
        place = [o * s + r * d - b if b else o * s + r * d for o, r, s, d, b in zip(i, rs, *lists)]
        inside = te.all(*[te.all(k >= 0, k < m) for k, m in zip(place, space)])
        order = list(zip(place, space))
        flat: Any = 0
        for k, m in reversed(order) if attrs.get("column_major") else order:
            flat = flat * m + k
        total = 1
        for m in space:
            total *= m
        flat = (n * shape[1] + c) * total + flat
        value = te.if_then_else(inside, x(n, c, *place), lowest)
        return ARG_KINDS[True, False]((te.select(inside, flat, -1), value), axis=rs)

    where, best = te.compute(outputs[0].shape, pair, name="max_pool")
    # Both are copies: the pair itself stays inside.
    value = te.compute(outputs[0].shape, lambda *i: best(*i), name="max_pool_value")
    return [value, te.compute(outputs[1].shape, lambda *i: where(*i).astype("int64"), name="max_pool_index")]


def _counted(attrs: Attrs, sizes: dict[str, Any], at: Place) -> Any:
    """How many elements of an output place's window count, at least 1: those inside the input (or inside the padded input)."""
    total: Any = 1
    may_miss = False  # whether a window may lie wholly in padding, or its taps on both sides of a short input
    lists = (attrs[k] for k in ("strides", "kernel", "dilations", "before", "after"))
    for x, s, k, d, b, a in zip(spatial(attrs), *lists):
        low, high = (-b, sizes[x] + a) if attrs.get("include_pad") else (0, sizes[x])
        first = at[x] * s - b
        # Window places first + r*d for 0 <= r < k, of which those in [low, high) count.
        begin = te.max(0, te.floordiv(low - first + d - 1, d))
        end = te.min(k, te.floordiv(high - first + d - 1, d))
        total = total * te.max(end - begin, 0)
        may_miss = may_miss or d > 1 or not (isinstance(b, int) and isinstance(a, int)) or max(b, a) >= k
    return te.max(total, 1) if may_miss else total


@register("avg_pool", REDUCTION, _pool_type, flops=_work, traits=[FOLLOWS_16, WINDOWED], takes=1)
def _avg_pool(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The mean of each window, of integers rounded towards zero; `include_pad` counts padding as zeros, else it is left out. Others as max_pool.

    `counted_after`: the padding that counts, where `after` was widened for a last window that overhangs. `divisor`: by what sums are divided in place of the count.
    """
    x = inputs[0]
    acc = wide(x.dtype)
    total = _over_windows(attrs, x, outputs[0], te.sum, lambda e: e.astype(acc), 0, "avg_pool_sum")
    counted = {**attrs, "after": attrs.get("counted_after", attrs["after"])}
    lx, ly = layouts_of(attrs, 2)
    there, sizes = image_sizes(lx, static_shape(x), attrs), _out_sizes(static_shape(x), attrs)

    divide = te.truncdiv if dtype_info(acc).is_int else operator.truediv

    def mean(*i: Any) -> Any:
        count = attrs.get("divisor") or _counted(counted, there, ly.place(i, sizes))
        return divide(total(*i), te.cast(acc, count)).astype(x.dtype)

    return [te.compute(outputs[0].shape, mean, name="avg_pool")]


@register("lp_pool", REDUCTION, _pool_type, flops=_work, traits=[WINDOWED], takes=1)
def _lp_pool(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The p-norm (`p`) of each window; others as max_pool. Powers of 16-bit floats are summed in float32, for they overflow before the norm does."""
    x, p = inputs[0], attrs["p"]
    acc = wide(x.dtype)

    def value(e: Any) -> Any:
        e = e.astype(acc)
        return te.abs(e) if p == 1 else e * e if p == 2 else te.pow(te.abs(e), float(p))

    def norm(*i: Any) -> Any:
        t = total(*i)
        return (t if p == 1 else te.sqrt(t) if p == 2 else te.pow(t, 1.0 / p)).astype(x.dtype)

    total = _over_windows(attrs, x, outputs[0], te.sum, value, 0, "lp_sum")
    return [te.compute(outputs[0].shape, norm, name="lp_pool")]


def _resample_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, index = types[:2]
    axis = normalize_axis(attrs["axis"], x.ndim)
    weight = index if attrs.get("nearest") else types[2]
    if index.shape != weight.shape or index.ndim != 2 or len(types) != (2 if attrs.get("nearest") else 3):
        raise fail(f"resample of {x}: index {index}, weights {weight}")
    return [TensorType(x.dtype, (*x.shape[:axis], index.shape[1], *x.shape[axis + 1 :]))]


@register("resample", REDUCTION, _resample_type, traits=[FOLLOWS_16])
def _resample(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """out[.., o, ..] = sum over t of weight[t, o] * x[.., index[t, o], ..] along `axis`: any linear interpolation.
    `nearest` takes one element as it is, and no weights."""
    x, index = inputs[:2]
    axis = normalize_axis(attrs["axis"], x.ndim)

    def term(i: Any, t: Any) -> Any:
        return x(*i[:axis], index(t, i[axis]), *i[axis + 1 :])

    if attrs.get("nearest"):
        return [te.compute(outputs[0].shape, lambda *i: term(i, 0), name="resample")]

    weight = inputs[2]
    taps, acc = static_shape(index)[0], weight.dtype

    def body(*i: Any) -> Any:
        total = term(i, 0).astype(acc) * weight(0, i[axis])
        for t in range(1, taps):
            total = total + term(i, t).astype(acc) * weight(t, i[axis])
        if x.dtype != acc and not x.dtype.startswith(("float", "bfloat")):
            total = te.nearbyint(total)
        return total.astype(x.dtype)

    return [te.compute(outputs[0].shape, body, name="resample")]


def _resample_axes_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, *tables = types
    if len(tables) != 2 * len(attrs["axes"]):
        raise fail(f"resample_axes of {x} along {len(attrs['axes'])} axes with {len(tables)} tables")
    for axis, index, weight in zip(attrs["axes"], tables[::2], tables[1::2]):
        (x,) = _resample_type([x, index, weight], {"axis": axis})
    return [x]


@register("resample_axes", REDUCTION, _resample_axes_type, traits=[FOLLOWS_16])
def _resample_axes(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`resample` along several axes one after the other, by its (index, weight) of each, without a rounding between them."""
    x, *tables = inputs
    steps = list(zip(attrs["axes"], tables[::2], tables[1::2]))

    def total(at: tuple[Any, ...], left: int) -> Any:
        if left == 0:
            return x(*at).astype(tables[1].dtype)
        axis, index, weight = steps[left - 1]
        terms = [
            total((*at[:axis], index(t, at[axis]), *at[axis + 1 :]), left - 1) * weight(t, at[axis])
            for t in range(static_shape(index)[0])
        ]
        return functools.reduce(operator.add, terms)

    def body(*at: Any) -> Any:
        return total(at, len(steps)).astype(x.dtype)

    return [te.compute(outputs[0].shape, body, name="resample_axes")]


def _unpool_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    return [TensorType(types[0].dtype, tuple(attrs["shape"]))]


@register("max_unpool", OPAQUE, _unpool_type, takes=2)
def _max_unpool(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The inverse of max_pool with indices: each element at its place in `shape`, zeros elsewhere."""
    x, index = inputs
    shape = outputs[0].shape
    lead, space = static_shape(x)[:2], static_shape(x)[2:]
    rs = [te.reduce_axis((0, n), f"r{k}") for k, n in enumerate(space)]
    del lead

    def body(n: Any, c: Any, *i: Any) -> Any:
        flat: Any = n * shape[1] + c
        for k, m in zip(i, shape[2:]):
            flat = flat * m + k
        return te.sum(te.select(index(n, c, *rs) == flat.astype("int64"), x(n, c, *rs), te.const(0, x.dtype)), axis=rs)

    return [te.compute(shape, body, name="max_unpool")]
