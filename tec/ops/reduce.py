"""Reductions over dimensions: sum, max, min, prod, any, all, argmax, argmin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..ir.expr import CommReducer
from ..te import Tensor
from .dims import Dim
from .registry import ALONG_AXES, FOLLOWS_16, REDUCTION, Attrs, TensorType, fail, normalize_axis, register, static_shape

_WIDE = {"float16": "float32", "bfloat16": "float32"}


def _axes(attrs: Attrs, ndim: int) -> tuple[int, ...]:
    axes = tuple(sorted(normalize_axis(a, ndim) for a in attrs["axes"]))
    if len(set(axes)) != len(axes):
        raise fail(f"an axis twice in {tuple(attrs['axes'])}", hint="each axis once; negative ones count from the end")
    return axes


def _reduced(types: Sequence[TensorType], attrs: Attrs) -> tuple[int, ...]:
    axes = _axes(attrs, types[0].ndim)
    kept = enumerate(types[0].shape)
    return tuple(1 if k in axes else n for k, n in kept if attrs.get("keepdims", True) or k not in axes)


def _reduce_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    return [TensorType(types[0].dtype, _reduced(types, attrs))]


def _work(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return types[0].size


def reduction(
    x: Tensor,
    out_shape: Sequence[int],
    axes: Sequence[int],
    keepdims: bool,
    reducer: Any,
    value: Any = None,
    name: str = "reduce",
) -> Any:
    """`reducer` over `axes` of `value(x[...])`; value also gets the full index, as in `value(element, index)`."""
    shape = static_shape(x)
    rs = [te.reduce_axis((0, shape[a]), f"k{a}") for a in axes]

    def body(*i: Any) -> Any:
        data = iter(v for d, v in enumerate(i) if not keepdims or d not in axes)
        index = [rs[axes.index(d)] if d in axes else next(data) for d in range(len(shape))]
        e = x(*index)
        return reducer(value(e, index) if value else e, axis=rs)

    return te.compute(tuple(out_shape), body, name=name)


def _reducer(name: str, reducer: Any, value: Any = None, of_parts: str | None = None) -> None:
    def compute(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
        x, out = inputs[0], outputs[0]
        axes = _axes(attrs, x.ndim)
        f = (lambda e, i: value(e)) if value else None
        if not axes:
            return [te.compute(x.shape, lambda *i: value(x(*i)) if value else x(*i), name=name)]
        if x.dtype in _WIDE and name in ("sum", "prod", "sum_square", "sum_abs", "mean"):
            wide = _WIDE[x.dtype]
            g = lambda e, i: value(e.astype(wide)) if value else e.astype(wide)  # noqa: E731
            r = reduction(x, out.shape, axes, attrs.get("keepdims", True), reducer, g, name)
            return [te.compute(out.shape, lambda *i: r(*i).astype(x.dtype), name=f"{name}_cast")]
        return [reduction(x, out.shape, axes, attrs.get("keepdims", True), reducer, f, name)]

    compute.__doc__ = f"The {name} over `axes`; `keepdims` keeps them with extent 1."
    traits = [ALONG_AXES, FOLLOWS_16] if name in ("max", "min") else [ALONG_AXES]
    of_parts = f"reduce_{name}" if of_parts is None else of_parts
    register(f"reduce_{name}", REDUCTION, _reduce_type, flops=_work, traits=traits, takes=1, of_parts=of_parts)(compute)


_reducer("sum", te.sum)
_reducer("prod", te.prod, of_parts="")  # a part's product may be beyond the type where the whole is not
_reducer("max", te.maximum)
_reducer("min", te.minimum)
_reducer("any", te.any)
_reducer("all", te.all)
_reducer("sum_square", te.sum, lambda e: e * e, of_parts="reduce_sum")
_reducer("sum_abs", te.sum, te.abs, of_parts="reduce_sum")


def _parts_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    if types[0].ndim != 1 or not 1 <= attrs["length"] <= types[0].shape[0]:
        raise fail(f"parts of {attrs['length']} elements of {types[0].ndim} dimensions")
    return [TensorType("bool", (-(-types[0].shape[0] // attrs["length"]),))]


@register("all_in_parts", REDUCTION, _parts_type, flops=_work, takes=1)
def _all_in_parts(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Of each part of `length` elements whether all are true, or of numbers inside `low` to `high`; the last part begins within the one before where it would have fewer."""
    (x,), length = inputs, attrs["length"]
    (n,) = static_shape(x)
    k = te.reduce_axis((0, length), "k")

    def body(i: Any) -> Any:
        start = i * length
        found = x((start if n % length == 0 else te.min(start, n - length)) + k)
        if x.dtype != "bool":
            low, high = (te.const(attrs[name], x.dtype) for name in ("low", "high"))
            found = te.all(found >= low, found <= high)
        return te.all(found, axis=k)

    return [te.compute(outputs[0].shape, body, name="reduce_all")]


@register(
    "reduce_mean",
    REDUCTION,
    _reduce_type,
    flops=_work,
    traits=[FOLLOWS_16, ALONG_AXES],
    takes=1,
    of_parts="reduce_mean",
)
def _mean(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The mean over `axes`; `keepdims` keeps them with extent 1. Integers divide toward zero."""
    x, out = inputs[0], outputs[0]
    axes = _axes(attrs, x.ndim)
    count = 1
    for a in axes:
        count *= static_shape(x)[a]
    if not axes:
        return [te.compute(x.shape, lambda *i: x(*i), name="mean")]
    wide = _WIDE.get(x.dtype, x.dtype)
    total = reduction(x, out.shape, axes, attrs.get("keepdims", True), te.sum, lambda e, i: e.astype(wide), "mean_sum")
    if wide.startswith("float"):
        if isinstance(count, Dim):
            return [
                te.compute(
                    out.shape, lambda *i: (total(*i) / count.asexpr("int64").astype(wide)).astype(x.dtype), name="mean"
                )
            ]
        # An empty mean is NaN.
        scale = te.const(1.0 / count if count else float("nan"), wide)
        return [te.compute(out.shape, lambda *i: (total(*i) * scale).astype(x.dtype), name="mean")]
    return [te.compute(out.shape, lambda *i: te.truncdiv(total(*i), te.const(max(count, 1), wide)), name="mean")]


def _arg_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    return [TensorType("int64", _reduced(types, {**attrs, "axes": (attrs["axis"],)}))]


def arg_reducer(largest: bool, last: bool) -> Any:
    """A reducer over (index, value): the place of the largest or smallest value, the first or last of equals. NaN is beyond all."""

    def beyond(a: Any, b: Any) -> Any:
        if not a.dtype.startswith(("float", "bfloat")):
            return a > b if largest else a < b
        # Two comparisons: not at most the other, as a NaN is not, and the other no NaN.
        return te.all(te.bitwise_not(a <= b if largest else a >= b), b == b)

    def first(x: Any, y: Any) -> Any:
        # The identity's index is -1, which must lose against every other: without a sign it is the last.
        sooner = x[0] >= y[0] if last else x[0].astype("uint32") <= y[0].astype("uint32")
        return te.any(beyond(x[1], y[1]), te.all(sooner, te.bitwise_not(beyond(y[1], x[1]))))

    def combine(x: Any, y: Any) -> Any:
        keep = first(x, y)
        return te.select(keep, x[0], y[0]), te.select(keep, x[1], y[1])

    worst = te.max if largest else te.min
    return te.comm_reducer(
        combine, lambda t0, t1: (te.const(-1, t0), worst.identity(t1)), name="argmax" if largest else "argmin"
    )


# One reducer object each, so that equal operators have equal definitions.
ARG_KINDS = {(largest, last): arg_reducer(largest, last) for largest in (True, False) for last in (True, False)}


def arg_kind(combiner: CommReducer) -> tuple[bool, bool] | None:
    """(largest, last) of a reduction that is an argmax or argmin of this file; None of another."""
    return next((kind for kind, r in ARG_KINDS.items() if r.has_made(combiner)), None)


def _arg(name: str, largest: bool) -> None:
    def compute(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
        x, out = inputs[0], outputs[0]
        axis = normalize_axis(attrs["axis"], x.ndim)
        reducer = ARG_KINDS[largest, bool(attrs.get("last", False))]
        pair = reduction(
            x,
            out.shape,
            [axis],
            attrs.get("keepdims", True),
            lambda v, axis: reducer(v, axis=axis),
            lambda e, i: (i[axis].var, e),
            name,
        )
        return [te.compute(out.shape, lambda *i: pair[0](*i).astype("int64"), name=f"{name}_index")]

    compute.__doc__ = f"The index of the {'largest' if largest else 'smallest'} element along `axis`; `last` takes the last of equals."
    register(name, REDUCTION, _arg_type, flops=_work, takes=1)(compute)


_arg("argmax", True)
_arg("argmin", False)
