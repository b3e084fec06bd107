"""Resizing along one axis while its size is open: the places and weights that `resample` takes are worked out when the network runs.

The coordinate transformations and the kernels are ONNX's (Resize); sizes that are numbers have their places as constants, see the frontend.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ImportModelError
from ...ops.dims import Size, UndecidedSize, bind_hint
from ...records import dataclass
from ..graph import Value
from .builder import Builder

_WIDE = "float64"  # of places: a quotient that is a whole number is one


@dataclass(frozen=True)
class Resize:
    """transform, nearest: as ONNX names them; mode "nearest", "linear" or "cubic"; a: of the cubic kernel; exclude: weights outside are 0."""

    mode: str
    transform: str
    nearest: str
    a: float = -0.75
    exclude: bool = False


def resize_axis(b: Builder, x: Value, axis: int, out: Size, how: Resize, scale: float | None = None) -> Value:
    """x with `out` places along an axis. scale: the factor, where it is given as such; else `out` by the axis' size."""
    n = x.shape[axis]
    size, count = _number(b, n), _number(b, out)
    factor = b.const(scale, _WIDE) if scale is not None else b.op("divide", count, size)
    whole = b.op("multiply", factor, size) if scale is not None else count
    index = b.op("iota", size=out, start=0, step=1, dtype="int32")
    place = _place(b, how.transform, b.cast(index, _WIDE), size, count, factor, whole, (n, out))
    last = b.graph.sizes(n - 1, "last", "int32")

    def inside(k: Value) -> Value:
        return b.op("minimum", b.op("maximum", b.cast(k, "int32"), b.const(np.int32(0))), last)

    if how.mode == "nearest":
        return b.op("resample", x, b.unsqueeze(inside(_nearest(b, place, how.nearest)), 0), axis=axis, nearest=True)
    reach = 1 if how.mode == "linear" else 2
    first = b.op("add", b.op("floor", b.op("subtract", place, b.const(float(reach), _WIDE))), b.const(1.0, _WIDE))
    taps = [b.op("add", first, b.const(float(k), _WIDE)) for k in range(2 * reach)]
    weights = [_weight(b, how, b.op("subtract", k, place)) for k in taps]
    if how.exclude:
        zero = b.const(0.0, _WIDE)
        held = [b.op("logical_and", b.op("greater_equal", k, zero), b.op("less", k, size)) for k in taps]
        weights = [b.op("where", h, w, zero) for h, w in zip(held, weights)]
        total = _sum(b, weights)
        weights = [b.op("divide", w, total) for w in weights]
    acc = "float64" if x.dtype == "float64" else "float32"
    return b.op(
        "resample", x, b.stack([inside(k) for k in taps]), b.cast(b.stack(weights), acc), axis=axis, nearest=False
    )


def _number(b: Builder, n: Size) -> Value:
    return b.cast(b.graph.sizes(n, "size"), _WIDE)


def _sum(b: Builder, values: Sequence[Value]) -> Value:
    total = values[0]
    for v in values[1:]:
        total = b.op("add", total, v)
    return total


def _place(
    b: Builder, mode: str, x: Value, size: Value, count: Value, factor: Value, whole: Value, sizes: tuple[Size, Size]
) -> Value:
    """The input place of each output place."""
    one, half = b.const(1.0, _WIDE), b.const(0.5, _WIDE)

    def centred() -> Value:
        return b.op("divide", b.op("add", x, half), factor)

    def unless_single(place: Value) -> Value:
        return b.op("where", b.op("greater", whole, one), place, b.const(0.0, _WIDE))

    if mode == "asymmetric":
        return b.op("divide", x, factor)
    if mode == "tf_half_pixel_for_nn":
        return centred()
    if mode == "half_pixel":
        return b.op("subtract", centred(), half)
    if mode == "pytorch_half_pixel":
        return unless_single(b.op("subtract", centred(), half))
    if mode == "align_corners":
        steps = b.op("maximum", b.op("subtract", whole, one), b.const(1e-30, _WIDE))
        return unless_single(b.op("divide", b.op("multiply", x, b.op("subtract", size, one)), steps))
    if mode == "half_pixel_symmetric":
        odd = b.op("subtract", one, b.op("divide", count, b.op("multiply", factor, size)))
        centre = b.op("multiply", b.op("multiply", size, half), odd)
        return b.op("add", centre, b.op("subtract", centred(), half))
    if mode == "tf_crop_and_resize":
        raise UndecidedSize(f"{mode} of a size that is open", hint=bind_hint(*sizes))
    raise ImportModelError(
        f"coordinate_transformation_mode {mode!r}",
        hint="a mode of ONNX's Resize: half_pixel, align_corners, asymmetric, ...",
    )


def _nearest(b: Builder, x: Value, how: str) -> Value:
    half = b.const(0.5, _WIDE)
    if how in ("floor", "ceil"):
        return b.op(how, x)
    if how == "round_prefer_ceil":
        return b.op("floor", b.op("add", x, half))
    return b.op("ceil", b.op("subtract", x, half))  # round_prefer_floor


def _weight(b: Builder, how: Resize, t: Value) -> Value:
    """The kernel at a distance."""
    t, one = b.op("abs", t), b.const(1.0, _WIDE)
    if how.mode == "linear":
        return b.op("maximum", b.op("subtract", one, t), b.const(0.0, _WIDE))

    def polynomial(*factors: float) -> Value:
        value = b.const(factors[0], _WIDE)
        for f in factors[1:]:
            value = b.op("add", b.op("multiply", value, t), b.const(f, _WIDE))
        return value

    a = how.a
    near, far = polynomial(a + 2, -(a + 3), 0.0, 1.0), polynomial(a, -5 * a, 8 * a, -4 * a)
    beyond = b.op("where", b.op("less", t, b.const(2.0, _WIDE)), far, b.const(0.0, _WIDE))
    return b.op("where", b.op("less_equal", t, one), near, beyond)
