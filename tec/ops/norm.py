"""Normalizations that take several passes over a row: softmax, layer norm, root-mean-square norm; local response norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import te
from ..ir.dtype import wide
from ..te import Tensor
from .forms import Form, carry
from .reduce import reduction
from .registry import (
    ALONG_AXES,
    FOLLOWS_16,
    OPAQUE,
    ROW,
    Attrs,
    TensorType,
    fail,
    normalize_axis,
    number,
    register,
    same_type,
    static_shape,
)
from .size_exprs import inverse as one_over
from .size_exprs import share


def _softmax_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    for a in attrs["axes"]:
        normalize_axis(a, types[0].ndim)
    return [types[0]]


def _softmax_parts(x: Tensor, axes: Sequence[int]) -> tuple[Any, Any, Any, Any]:
    """(largest, exp of what is below it, their sum, index of a row) over `axes`, in float32 at least. The powers are a stage of their own, which a template may keep."""
    acc = wide(x.dtype)
    shape = static_shape(x)
    kept = tuple(n for k, n in enumerate(shape) if k not in axes)

    def row(i: Any) -> Any:
        return [v for k, v in enumerate(i) if k not in axes]

    # The largest number: where there is a NaN, the sum is NaN without it (a maximum that keeps NaN is three instructions an element on most AMD GPUs).
    top = reduction(x, kept, axes, False, te.max, None, "softmax_max")

    def weight(*i: Any) -> Any:
        return _power(x(*i).astype(acc) - top(*row(i)).astype(acc), x.dtype)

    powers = te.compute(shape, weight, name="softmax_powers")
    return top, powers, reduction(powers, kept, axes, False, te.sum, None, "softmax_sum"), row


def _power(e: Any, dtype: str) -> Any:
    """e^`e`, of numbers up to 0, for results of `dtype`: those of 16 bits by the unit's power of two, which is right to 2e-6 where they are not 0."""
    if dtype not in ("float16", "bfloat16"):
        return te.exp(e)
    return te.call_intrin("float32", "exp2_fast", e * te.const(math.log2(math.e), "float32"))


@register("softmax", OPAQUE, _softmax_type, traits=[ROW, FOLLOWS_16, ALONG_AXES], takes=1)
def _softmax(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """exp(x) over its sum along `axes`, with the row's maximum taken off first."""
    x = inputs[0]
    axes = sorted(normalize_axis(a, x.ndim) for a in attrs["axes"])
    acc = wide(x.dtype)
    _, powers, total, row = _softmax_parts(x, axes)

    def body(*i: Any) -> Any:
        # One division a row, which lies from 1 to the row's length: a rounding more than a division an element, which takes a dozen instructions on AMD.
        whole = te.const(1, acc) / total(*row(i))
        return (powers(*i) * whole).astype(x.dtype)

    made = [te.compute(x.shape, body, name="softmax")]
    if axes != [x.ndim - 1] or x.dtype != "float32":
        return made
    return carry(Form("softmax", (x,), tuple(outputs)), made)


@register("log_softmax", OPAQUE, _softmax_type, traits=[ROW, ALONG_AXES], takes=1)
def _log_softmax(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """log(softmax(x)) along `axes`."""
    x = inputs[0]
    axes = sorted(normalize_axis(a, x.ndim) for a in attrs["axes"])
    acc = wide(x.dtype)
    top, _, total, row = _softmax_parts(x, axes)

    def body(*i: Any) -> Any:
        return (x(*i).astype(acc) - top(*row(i)).astype(acc) - te.log(total(*row(i)))).astype(x.dtype)

    return [te.compute(x.shape, body, name="log_softmax")]


def _layer_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x = types[0]
    axis, until = _layer_axes(attrs, x.ndim)
    row = TensorType(attrs.get("stash_dtype", "float32"), (*x.shape[:axis], *[1] * (until - axis), *x.shape[until:]))
    return [x, row, row]


def _layer_axes(attrs: Attrs, ndim: int) -> tuple[int, int]:
    """The first dimension that is normalized, and the first behind those."""
    return normalize_axis(attrs["axis"], ndim), attrs.get("until", ndim)


@register("layer_norm", OPAQUE, _layer_type, traits=[ROW, FOLLOWS_16], takes=1)
def _layer_norm(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """(x - mean) / sqrt(variance + `epsilon`) over the dimensions from `axis` on, or as far as `until`; also mean and 1 / deviation of each row.

    Two passes: the variance is the mean of squared differences, which does not cancel.
    """
    x = inputs[0]
    shape = static_shape(x)
    axis, until = _layer_axes(attrs, x.ndim)
    acc = "float64" if x.dtype == "float64" else "float32"
    axes = list(range(axis, until))
    count = math.prod(shape[axis:until])
    scale = one_over(count, acc)
    kept = (*shape[:axis], *shape[until:])
    total = reduction(x, kept, axes, False, te.sum, lambda e, i: e.astype(acc), "layer_sum")

    def row(i: Any) -> Any:
        return (*i[:axis], *i[until:])

    def middle(i: Any) -> Any:
        return share(total(*row(i)), count)

    def centred(e: Any, i: Any) -> Any:
        d = e.astype(acc) - middle(i)
        return d * d

    square = reduction(x, kept, axes, False, te.sum, centred, "layer_square")
    eps = te.const(attrs["epsilon"], acc)

    def inverse(i: Any) -> Any:
        return te.const(1, acc) / te.sqrt(square(*row(i)) * scale + eps)

    y = te.compute(
        x.shape,
        lambda *i: ((x(*i).astype(acc) - middle(i)) * inverse(i)).astype(x.dtype),
        name="layer_norm",
    )
    mean = te.compute(outputs[1].shape, lambda *i: middle(i).astype(outputs[1].dtype), name="layer_mean")
    inv = te.compute(outputs[2].shape, lambda *i: inverse(i).astype(outputs[2].dtype), name="layer_inverse")
    return [y, mean, inv]


@register("rms_norm", OPAQUE, same_type, traits=[ROW, FOLLOWS_16], takes=1)
def _rms_norm(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """x / sqrt(mean of squares + `epsilon`) over the dimensions from `axis` on; in float32 at least (Zhang and Sennrich, arXiv 1910.07467)."""
    x = inputs[0]
    shape = static_shape(x)
    axis = normalize_axis(attrs["axis"], x.ndim)
    acc = "float64" if x.dtype == "float64" else "float32"
    scale, eps = one_over(math.prod(shape[axis:]), acc), te.const(attrs["epsilon"], acc)
    axes = list(range(axis, x.ndim))
    total = reduction(x, shape[:axis], axes, False, te.sum, lambda e, i: e.astype(acc) * e.astype(acc), "rms_square")

    def body(*i: Any) -> Any:
        return (x(*i).astype(acc) * (te.const(1, acc) / te.sqrt(total(*i[:axis]) * scale + eps))).astype(x.dtype)

    return [te.compute(x.shape, body, name="rms_norm")]


@register("max_norm", OPAQUE, same_type, traits=[ROW], takes=1)
def _max_norm(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """x over `factor` times the largest magnitude of its row, the dimensions from `axis` on, or over `least` where that is more."""
    x = inputs[0]
    axis = normalize_axis(attrs["axis"], x.ndim)
    axes, kept = list(range(axis, x.ndim)), static_shape(x)[:axis]
    top = reduction(x, kept, axes, False, te.max, lambda e, i: te.abs(e), "largest")
    factor, least = (te.const(attrs[n], x.dtype) for n in ("factor", "least"))

    def body(*i: Any) -> Any:
        return x(*i) / te.max(top(*i[:axis]) * factor, least)

    return [te.compute(x.shape, body, name="max_norm")]


def _row_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x = types[0]
    axis = normalize_axis(attrs["axis"], x.ndim)
    return [TensorType(x.dtype, (*x.shape[:axis], *[1] * (x.ndim - axis)))]


@register("log_sum_exp", OPAQUE, _row_type, traits=[ROW], takes=1)
def _log_sum_exp(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """log of the sum of exp(x) over the dimensions from `axis` on, which stay with extent 1; the largest is taken off first where it is finite."""
    x = inputs[0]
    axis = normalize_axis(attrs["axis"], x.ndim)
    axes, kept = list(range(axis, x.ndim)), static_shape(x)[:axis]
    acc = wide(x.dtype)
    # NaN: the sum has it without the largest number.
    top = reduction(x, kept, axes, False, te.max, None, "largest")

    def safe(i: Any) -> Any:
        found = top(*i[:axis]).astype(acc)
        return te.select(te.abs(found) < te.const(math.inf, acc), found, te.const(0, acc))

    def power(e: Any, i: Any) -> Any:
        return _power(e.astype(acc) - safe(i), x.dtype)

    total = reduction(x, kept, axes, False, te.sum, power, "sum_of_powers")
    return [
        te.compute(
            outputs[0].shape, lambda *i: (te.log(total(*i[:axis])) + safe(i)).astype(x.dtype), name="log_sum_exp"
        )
    ]


@register("log_softmax_of", OPAQUE, lambda types, attrs: [types[1]], traits=[ROW], takes=2)
def _log_softmax_of(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """What log_softmax over the dimensions from `axis` on makes of some elements of each row, the second input."""
    x, some = inputs
    axis = normalize_axis(attrs["axis"], x.ndim)
    acc = wide(x.dtype)
    top, _, total, _ = _softmax_parts(x, list(range(axis, x.ndim)))

    def body(*i: Any) -> Any:
        row = i[:axis]
        return (some(*i).astype(acc) - top(*row).astype(acc) - te.log(total(*row))).astype(x.dtype)

    return [te.compute(outputs[0].shape, body, name="log_softmax_of")]


@register("lrn", OPAQUE, same_type, takes=1)
def _lrn(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """x / (bias + alpha / size * sum of squares of `size` neighbouring channels) ** beta."""
    x = inputs[0]
    if x.ndim < 2:
        raise fail(
            "local response normalization of fewer than two dimensions", hint="the input is (batch, channels, ...)"
        )
    size, channels = attrs["size"], static_shape(x)[1]
    before = (size - 1) // 2
    k = te.reduce_axis((0, size), "k")

    def squares(*i: Any) -> Any:
        c = i[1] + k - before
        e = x(i[0], c, *i[2:])
        return te.sum(te.if_then_else(te.all(c >= 0, c < channels), e * e, te.const(0, x.dtype)), axis=k)

    total = te.compute(x.shape, squares, name="lrn_sum")
    alpha, bias, beta = (number(attrs[n], x.dtype) for n in ("alpha", "bias", "beta"))
    return [te.compute(x.shape, lambda *i: x(*i) / te.pow(bias + total(*i) * (alpha / size), beta), name="lrn")]
