"""Windows of pictures of which the largest element or the mean is taken: `pool1d` to `pool3d`, `global_pool`, `adaptive_pool`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from .operators import compute, output, tensor, type_of
from .tag import ELEMWISE
from .transform import layout_transform
from .window import numbers, padding_of

__all__ = ["adaptive_pool", "adaptive_pool1d", "adaptive_pool3d", "global_pool", "pool1d", "pool2d", "pool3d"]


def _pool(
    n: int,
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool,
    count_include_pad: bool,
    layout: str,
) -> Tensor:
    """Windows of `n` spatial dimensions, of which the maximum or the mean is taken. Raises ExprError for layouts, types and windows that are none."""
    what = f"pool{n}d"
    if layout and layout != _first(n):
        x = in_channels_first(data, layout, n, what)
        made = _pool(n, x, kernel, stride, dilation, padding, pool_type, ceil_mode, count_include_pad, "")
        return layout_transform(made, _first(n), layout)
    x = tensor(data, what)
    if x.ndim != n + 2:
        raise ExprError(f"{what} of {x.name} of {x.ndim} dimensions", hint=f"images are (batch, channels, {n} spatial)")
    if pool_type not in ("max", "avg"):
        raise ExprError(f"{what} of type {pool_type!r}", hint="it is 'max' or 'avg'")
    window, steps, dilations = (
        numbers(v, n, f"{what}: {name}") for v, name in ((kernel, "kernel"), (stride, "stride"), (dilation, "dilation"))
    )
    before, after = padding_of(padding, window, dilations, what)
    spans = [
        s + b + a - d * (k - 1) - 1 for s, k, d, b, a in zip(type_of(x).shape[2:], window, dilations, before, after)
    ]
    out = [(-(-v // s) if ceil_mode else v // s) + 1 for v, s in zip(spans, steps)]
    wide = tuple(a + (o - 1) * s - v for a, o, s, v in zip(after, out, steps, spans)) if ceil_mode else after
    extra: dict[str, Any] = {"include_pad": count_include_pad, "counted_after": after} if pool_type == "avg" else {}
    return output(
        f"{pool_type}_pool",
        [x],
        kernel=window,
        strides=steps,
        dilations=dilations,
        before=before,
        after=wide,
        out_space=tuple(out),
        **extra,
    )


def pool1d(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCW",
    count_include_pad: bool = True,
) -> Tensor:
    """As `pool2d`, of (batch, channels, width)."""
    return _pool(1, data, kernel, stride, dilation, padding, pool_type, ceil_mode, count_include_pad, layout)


def pool2d(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """The largest element ("max") or the mean ("avg") of each window. `padding`: a number, (y, x) or (top, left, bottom, right); `ceil_mode` keeps a
    last window that overhangs; `count_include_pad`: whether a mean counts padding as zeros. Raises ExprError."""
    return _pool(2, data, kernel, stride, dilation, padding, pool_type, ceil_mode, count_include_pad, layout)


def pool3d(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCDHW",
    count_include_pad: bool = True,
) -> Tensor:
    """As `pool2d`, of (batch, channels, depth, height, width)."""
    return _pool(3, data, kernel, stride, dilation, padding, pool_type, ceil_mode, count_include_pad, layout)


def _first(n: int) -> str:
    """The layout that has the channels in front of `n` spatial dimensions."""
    return "NC" + "DHW"[-n:]


def in_channels_first(data: Tensor, layout: str, n: int, what: str) -> Tensor:
    """Pictures of any layout whose spatial dimensions are whole as (batch, channels, spatial). Raises ExprError for another layout."""
    letters = {c for c in layout if c.isalpha()}
    if {c.upper() for c in letters} != set(_first(n)) or not set("DHW"[-n:]) <= letters or set("dhw"[-n:]) & letters:
        raise ExprError(f"{what} in layout {layout!r}", hint=f"{_first(n)}, another order of it, or blocks of channels")
    x = tensor(data, what)
    return x if layout == _first(n) else layout_transform(x, layout, _first(n))


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """The largest element or the mean of each channel's picture: height and width are 1 then."""
    x = tensor(data, "global_pool")
    if pool_type not in ("max", "avg"):
        raise ExprError(f"global_pool of type {pool_type!r}", hint="it is 'max' or 'avg'")
    if layout == "NCHW":
        axes = tuple(range(2, x.ndim))
    else:
        in_channels_first(x, layout, 2, "global_pool")
        dims = [c for c in layout if c.isalpha()]
        axes = (dims.index("H"), dims.index("W"))
    return output("reduce_max" if pool_type == "max" else "reduce_mean", [x], axes=axes, keepdims=True)


def adaptive_pool(data: Tensor, output_size: Any, pool_type: str, layout: str = "NCHW") -> Tensor:
    """`output_size` windows along height and width, which overlap where they do not divide it evenly: window k of n holds the places
    from floor(k size / n) to ceil((k + 1) size / n).

    >>> topi.nn.adaptive_pool(te.placeholder((1, 7, 7, 8), name="x"), 3, "avg", "NHWC").shape
    (1, 3, 3, 8)
    """
    return _adaptive(2, data, output_size, pool_type, layout)


def adaptive_pool1d(data: Tensor, output_size: Any, pool_type: str, layout: str = "NCW") -> Tensor:
    """As `adaptive_pool`, of (batch, channels, width).

    >>> topi.nn.adaptive_pool1d(te.placeholder((1, 2, 8), name="x"), 4, "max").shape
    (1, 2, 4)
    """
    return _adaptive(1, data, output_size, pool_type, layout)


def adaptive_pool3d(data: Tensor, output_size: Any, pool_type: str, layout: str = "NCDHW") -> Tensor:
    """As `adaptive_pool`, of (batch, channels, depth, height, width).

    >>> topi.nn.adaptive_pool3d(te.placeholder((1, 2, 4, 6, 8), name="x"), (2, 2, 2), "avg").shape
    (1, 2, 2, 2, 2)
    """
    return _adaptive(3, data, output_size, pool_type, layout)


def _adaptive(n: int, data: Tensor, output_size: Any, pool_type: str, layout: str) -> Tensor:
    what = f"adaptive_pool{n}d"
    x = in_channels_first(data, layout, n, what)
    given = [getattr(v, "value", v) for v in output_size] if isinstance(output_size, (list, tuple)) else output_size
    space, out = type_of(x).shape[2:], numbers(given, n, f"{what}: output_size")
    if pool_type not in ("max", "avg") or len(space) != n or min(out) < 1:
        raise ExprError(f"{what} of type {pool_type!r} to {out}", hint="'max' or 'avg'; sizes of at least 1")
    if any(s % o for s, o in zip(space, out)):
        made = _uneven(x, out, pool_type)
    else:
        window = tuple(s // o for s, o in zip(space, out))
        made = _pool(n, x, window, window, 1, 0, pool_type, False, True, "")
    return made if layout == _first(n) else layout_transform(made, _first(n), layout)


def _uneven(x: Tensor, out: Sequence[int], pool_type: str) -> Tensor:
    """Windows of several sizes: loops over the largest, whose rest has no effect."""
    sizes = x.shape[2:]
    axes = [
        te.reduce_axis((0, te.floordiv(s + o - 1, o) + 1), name=f"r{d}") for d, (s, o) in enumerate(zip(sizes, out))
    ]
    least = te.const(0, x.dtype) if pool_type == "avg" else te.min_value(x.dtype)

    def ends(i: Any, s: Any, o: int) -> tuple[Any, Any]:
        return te.floordiv(i * s, o), te.floordiv((i + 1) * s + o - 1, o)

    def element(n: Any, c: Any, *i: Any) -> Any:
        spans = [ends(k, s, o) for k, s, o in zip(i, sizes, out)]
        at = [low + r for (low, _), r in zip(spans, axes)]
        inside = te.all(*(p < high for p, (_, high) in zip(at, spans)))
        value = te.if_then_else(inside, x(n, c, *at), least)
        return te.sum(value, axis=axes) if pool_type == "avg" else te.max(value, axis=axes)

    made = compute((*x.shape[:2], *out), element, "adaptive_pool", "pool")
    if pool_type == "max":
        return made

    def mean(n: Any, c: Any, *i: Any) -> Any:
        count: Any = 1
        for k, s, o in zip(i, sizes, out):
            low, high = ends(k, s, o)
            count = count * (high - low)
        return made(n, c, *i) / te.cast(x.dtype, count)

    return compute(made.shape, mean, "adaptive_mean", ELEMWISE)
