"""Pictures of another size: `topi.image.resize1d`, `resize2d`, `resize3d`, `crop_and_resize`; and morphological dilation, `dilation2d_nchw`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor, compute
from .operators import tensor, type_of
from .tag import INJECTIVE

__all__ = ["crop_and_resize", "dilation2d_nchw", "dilation2d_nhwc", "resize1d", "resize2d", "resize3d"]

_METHODS = {
    "nearest_neighbor": "nearest", "nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "cubic": "cubic", "bicubic": "cubic",
}  # fmt: skip
_EPSILON = 1e-5  # by which a place beside a whole number is taken for that number, for floors and ceilings

Tap = tuple[Any, Any]  # an index that lies inside, and the share of the element there; None: all of it


def _f(x: Any) -> Any:
    return te.cast("float32", x)


def _source(mode: str, o: Any, n: int, out: int, roi: tuple[Any, Any]) -> Any:
    """The place, in elements of the input, that element `o` of the output stands for."""
    x = _f(o)
    if mode == "align_corners":
        return x * ((n - 1) / (out - 1)) if out > 1 else te.const(0.0, "float32")
    if mode == "asymmetric":
        return x * (n / out)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        if mode == "pytorch_half_pixel" and out == 1:
            return te.const(0.0, "float32")
        return (x + 0.5) * (n / out) - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) * (n / out)
    if mode == "tf_crop_and_resize":
        first, last = roi
        if out > 1:
            return first * (n - 1.0) + x * (last - first) * ((n - 1) / (out - 1))
        return (first + last) * (0.5 * (n - 1))
    raise ExprError(
        f"a resize by coordinates {mode!r}",
        hint="half_pixel, align_corners, asymmetric, pytorch_half_pixel, tf_half_pixel_for_nn, tf_crop_and_resize",
    )


_ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "round": te.round, "round_prefer_floor": lambda x: te.ceil(x - 0.5), "round_prefer_ceil": lambda x: te.floor(x + 0.5),
    "floor": lambda x: te.floor(x + _EPSILON), "ceil": lambda x: te.ceil(x - _EPSILON),
}  # fmt: skip


def _taps(method: str, x: Any, n: int, rounding: str, alpha: float, exclude: bool) -> list[Tap]:
    """What a place along one axis reads; beyond the ends the last element."""

    def inside(i: Any) -> Any:
        return te.max(te.min(i, n - 1), 0)

    if method == "nearest":
        if rounding not in _ROUNDINGS:
            raise ExprError(f"a resize with rounding_method {rounding!r}", hint=", ".join(_ROUNDINGS))
        return [(inside(te.cast("int32", _ROUNDINGS[rounding](x))), None)]
    low = te.floor(x)
    first, t = te.cast("int32", low), x - low
    if method == "linear":
        return [(inside(first), 1.0 - t), (inside(first + 1), t)]
    # R. Keys, "Cubic convolution interpolation for digital image processing", 1981, with the slope `alpha` at the neighbours.

    def far(d: Any) -> Any:
        return (((d - 5.0) * d + 8.0) * d - 4.0) * alpha

    def near(d: Any) -> Any:
        return ((alpha + 2.0) * d - (alpha + 3.0)) * d * d + 1.0

    shares = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
    places = [first + k for k in (-1, 0, 1, 2)]
    if exclude:
        shares = [te.select(te.all(i >= 0, i < n), s, te.const(0.0, "float32")) for i, s in zip(places, shares)]
        total = shares[0] + shares[1] + shares[2] + shares[3]
        shares = [s / total for s in shares]
    return [(inside(i), s) for i, s in zip(places, shares)]


def _mixed(read: Callable[..., Any], taps: Sequence[list[Tap]]) -> Any:
    """The sum over all taps of all axes."""
    total: Any = None
    for chosen in itertools.product(*taps):
        value = read(*[i for i, _ in chosen])
        shares = [s for _, s in chosen if s is not None]
        if shares:
            value = _f(value)
        for s in shares:
            value = value * s
        total = value if total is None else total + value
    return total


def _extents(x: Tensor, axes: Sequence[int], what: str) -> list[int]:
    shape = type_of(x).shape
    if not all(isinstance(shape[a], int) for a in axes):
        raise ExprError(f"{what} of {x.name}, whose picture has open sizes", hint="give the placeholder numbers")
    return [shape[a] for a in axes]


def _resized(
    what: str, data: Any, roi: Any, size: Any, layout: str, method: str, mode: str, rounding: str, alpha: float, exclude: Any, outside: Any, out_dtype: Any,
) -> Tensor:  # fmt: skip
    x, d = tensor(data, what), int(what[-2])
    letters = "DHW"[3 - d :]
    axes = {f"NC{letters}": list(range(2, 2 + d)), f"N{letters}C": list(range(1, 1 + d))}.get(layout)
    if axes is None or x.ndim != d + 2:
        raise ExprError(
            f"{what} of {x.ndim} dimensions in layout {layout}",
            hint=f"NC{letters} or N{letters}C; topi.layout_transform(x, layout, 'NC{letters}')",
        )
    if method.lower() not in _METHODS:
        raise ExprError(f"{what}(method={method!r})", hint=", ".join(_METHODS))
    kind, space = _METHODS[method.lower()], _extents(x, axes, what)
    wanted = [int(n) for n in (size if isinstance(size, (list, tuple)) else [size])]
    if len(wanted) != d or min(wanted) < 1:
        raise ExprError(f"{what} to {size}", hint=f"{d} sizes of at least 1")
    region = list(roi) if roi is not None else [0.0] * (2 * d)
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    shape: list[Any] = list(x.shape)
    for a, n in zip(axes, wanted):
        shape[a] = n

    def element(*at: Any) -> Any:
        places = [
            _source(mode, at[a], n, o, (region[k], region[k + d]))
            for k, (a, n, o) in enumerate(zip(axes, space, wanted))
        ]
        taps = [_taps(kind, p, n, rounding, alpha, bool(exclude)) for p, n in zip(places, space)]

        def read(*inner: Any) -> Any:
            there = list(at)
            for a, i in zip(axes, inner):
                there[a] = i
            return x(*there)

        value = _mixed(read, taps)
        if mode == "tf_crop_and_resize":
            seen = te.all(*[te.all(p >= 0.0, p <= float(n - 1)) for p, n in zip(places, space)])
            value = te.select(seen, value, te.cast(value.dtype, outside))
        return te.cast(out_dtype or x.dtype, value)

    made: Tensor = compute(tuple(shape), element, what, INJECTIVE)
    return made


def _resize(d: int, layout: str) -> Callable[..., Tensor]:
    what = f"resize{d}d"

    def function(
        data: Tensor,
        roi: Any,
        size: Any,
        layout: str = layout,
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        bicubic_alpha: float = -0.5,
        bicubic_exclude: Any = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
        output_shape: Any = None,
    ) -> Tensor:
        return _resized(
            what, data, roi, size, layout, method, coordinate_transformation_mode, rounding_method, bicubic_alpha, bicubic_exclude, extrapolation_value,
            out_dtype,
        )  # fmt: skip

    function.__name__ = function.__qualname__ = what
    function.__doc__ = f"""Pictures of {d} dimension{"s" * (d > 1)} in `size`, by method "nearest_neighbor", "linear" or "cubic".

    roi: begins and ends along the axes, for coordinates "tf_crop_and_resize". rounding_method: round, round_prefer_floor, round_prefer_ceil, floor, ceil.
    Sizes are numbers. Raises ExprError for other methods, coordinates and layouts.

    >>> x = te.placeholder((1, 3{", 8" * d}), name="x")
    >>> topi.image.{what}(x, None, [{", ".join(["5"] * d)}]).shape
    (1, 3{", 5" * d})
    """
    return function


resize1d, resize2d, resize3d = _resize(1, "NCW"), _resize(2, "NCHW"), _resize(3, "NCDHW")


def crop_and_resize(
    data: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    crop_size: Any,
    layout: str = "NCHW",
    method: str = "bilinear",
    extrapolation_value: float | None = None,
    out_dtype: str | None = None,
) -> Tensor:
    """Parts of pictures in `crop_size`: box k is (y1, x1, y2, x2) of picture `box_indices[k]`, 1 the last row or column.

    method: "bilinear" or "nearest_neighbor". What lies outside is `extrapolation_value`, 0 where it is left out. Raises ExprError for other layouts and methods.

    >>> x, b, i = te.placeholder((2, 3, 8, 8), name="x"), te.placeholder((5, 4), name="b"), te.placeholder((5,), "int32", "i")
    >>> topi.image.crop_and_resize(x, b, i, (4, 6)).shape
    (5, 3, 4, 6)
    """
    x, rows = tensor(data, "crop_and_resize"), int(crop_size[0])
    columns, kind = int(crop_size[1]), _METHODS.get(method.lower())
    if layout not in ("NCHW", "NHWC") or kind not in ("linear", "nearest"):
        raise ExprError(
            f"crop_and_resize of layout {layout} by {method}", hint="NCHW or NHWC, bilinear or nearest_neighbor"
        )
    axes = (2, 3) if layout == "NCHW" else (1, 2)
    height, width = _extents(x, axes, "crop_and_resize")
    shape = [box_indices.shape[0], *x.shape[1:]]
    shape[axes[0]], shape[axes[1]] = rows, columns
    outside = 0.0 if extrapolation_value is None else extrapolation_value

    def element(k: Any, *at: Any) -> Any:
        whole = (k, *at)
        y = _source("tf_crop_and_resize", whole[axes[0]], height, rows, (boxes(k, 0), boxes(k, 2)))
        z = _source("tf_crop_and_resize", whole[axes[1]], width, columns, (boxes(k, 1), boxes(k, 3)))
        taps = [_taps(kind, p, n, "round", 0.0, False) for p, n in ((y, height), (z, width))]

        def read(i: Any, j: Any) -> Any:
            there = [box_indices(k), *at]
            there[axes[0]], there[axes[1]] = i, j
            return x(*there)

        value = _mixed(read, taps)
        seen = te.all(y >= 0.0, y <= float(height - 1), z >= 0.0, z <= float(width - 1))
        return te.cast(out_dtype or x.dtype, te.select(seen, value, te.cast(value.dtype, outside)))

    made: Tensor = compute(tuple(shape), element, "crop_and_resize", INJECTIVE)
    return made


def _pair(v: Any) -> tuple[int, int]:
    return (int(v[0]), int(v[1])) if isinstance(v, (list, tuple)) else (int(v), int(v))


def _dilation(last: bool) -> Callable[..., Tensor]:
    what = f"dilation2d_{'nhwc' if last else 'nchw'}"

    def function(
        input: Tensor, filter: Tensor, stride: Any, padding: Any, dilations: Any, out_dtype: str | None = None
    ) -> Tensor:
        x, f = tensor(input, what), tensor(filter, what)
        steps, holes = _pair(stride), _pair(dilations)
        axes, of_filter = ((1, 2), (0, 1)) if last else ((2, 3), (1, 2))
        height, width = _extents(x, axes, what)
        kernel = _extents(f, of_filter, what)
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, holes)]
        if isinstance(padding, str):
            total = [
                max(0, (-(-n // s) - 1) * s + r - n) if padding.upper() == "SAME" else 0
                for n, s, r in zip((height, width), steps, reach)
            ]
            around = [total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2]
        else:
            given = [int(p) for p in padding] if isinstance(padding, (list, tuple)) else [int(padding)] * 2
            around = given if len(given) == 4 else [*given, *given]
        out = [(n + a + b - r) // s + 1 for n, a, b, r, s in zip((height, width), around[:2], around[2:], reach, steps)]
        shape: list[Any] = list(x.shape)
        shape[axes[0]], shape[axes[1]] = out
        ry, rx = te.reduce_axis((0, kernel[0]), "ry"), te.reduce_axis((0, kernel[1]), "rx")
        dtype = out_dtype or x.dtype

        def element(*at: Any) -> Any:
            i = at[axes[0]] * steps[0] + ry * holes[0] - around[0]
            j = at[axes[1]] * steps[1] + rx * holes[1] - around[1]
            there = list(at)
            there[axes[0]], there[axes[1]] = i, j
            inside = te.all(i >= 0, i < height, j >= 0, j < width)
            by = f(ry, rx, at[3]) if last else f(at[1], ry, rx)
            value = te.if_then_else(inside, te.cast(dtype, x(*there)) + te.cast(dtype, by), te.min_value(dtype))
            return te.max(value, axis=[ry, rx])

        made: Tensor = te.compute(
            tuple(shape), element, name=f"T_{what}", tag="dilation2d_" + ("nhwc" if last else "nchw")
        )
        return made

    function.__name__ = function.__qualname__ = what
    shapes = (
        "(batch, height, width, channels) and (y, x, channels)"
        if last
        else "(batch, channels, height, width) and (channels, y, x)"
    )
    x, f = ("(1, 8, 8, 3)", "(3, 3, 3)") if last else ("(1, 3, 8, 8)", "(3, 3, 3)")
    function.__doc__ = f"""The largest sum of an element of a window and the filter's there, of {shapes}; `dilations` of 1 are windows without holes.

    >>> x, f = te.placeholder({x}, name="x"), te.placeholder({f}, name="f")
    >>> topi.image.{what}(x, f, 1, 0, 1).shape
    {"(1, 6, 6, 3)" if last else "(1, 3, 6, 6)"}
    """
    return function


dilation2d_nchw, dilation2d_nhwc = _dilation(False), _dilation(True)
