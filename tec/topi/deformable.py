"""Windows that read elsewhere than the pixel: `topi.nn.deformable_conv2d_nchw` and `_nhwc` where offsets say, `correlation_nchw` in another picture."""

from __future__ import annotations

from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from .operators import compute, tensor, type_of
from .tag import INJECTIVE
from .transform import transpose
from .window import numbers as _list
from .window import padding_of

__all__ = ["correlation_nchw", "deformable_conv2d_nchw", "deformable_conv2d_nhwc"]


def correlation_nchw(
    data1: Tensor, data2: Tensor, kernel_size: int, max_displacement: int, stride1: int, stride2: int, padding: Any, is_multiply: bool
) -> Tensor:  # fmt: skip
    """FlowNet's correlation of two pictures (batch, channels, height, width): for each displacement of at most `max_displacement`, in steps of `stride2`, the
    mean of products (of absolute differences without `is_multiply`) of a window of `kernel_size` with the one displaced, every `stride1` pixels.

    >>> a, b = te.placeholder((1, 3, 10, 10)), te.placeholder((1, 3, 10, 10))
    >>> topi.nn.correlation_nchw(a, b, 1, 4, 1, 1, 4, True).shape
    (1, 81, 10, 10)
    """
    what = "correlation_nchw"
    one, other = tensor(data1, what), tensor(data2, what)
    if one.ndim != 4 or type_of(one) != type_of(other) or kernel_size < 1 or kernel_size % 2 == 0:
        raise ExprError(
            f"{what} of {one.shape} and {other.shape} in windows of {kernel_size}",
            hint="two pictures alike, and an odd window",
        )
    batch, channels, high, wide = type_of(one).shape
    given = [int(p) for p in padding] if isinstance(padding, (list, tuple)) else [int(padding)] * 2
    top, left, bottom, right = given * 2 if len(given) == 2 else given
    reach, border = max_displacement // stride2, max_displacement + kernel_size // 2
    across = 2 * reach + 1
    sizes = [(n + p - 2 * border + stride1 - 1) // stride1 for n, p in ((high, top + bottom), (wide, left + right))]
    c, y, x = (te.reduce_axis((0, n), k) for n, k in ((channels, "c"), (kernel_size, "y"), (kernel_size, "x")))

    def pixel(of: Tensor, b: Any, i: Any, j: Any) -> Any:
        inside = te.all(i >= top, i < top + high, j >= left, j < left + wide)
        return te.if_then_else(inside, of[b, c, i - top, j - left], te.const(0, of.dtype))

    def mean(b: Any, q: Any, i: Any, j: Any) -> Any:
        at = (i * stride1 + max_displacement + y, j * stride1 + max_displacement + x)
        moved = (te.indexdiv(q, across) - reach) * stride2, (te.indexmod(q, across) - reach) * stride2
        first, second = pixel(one, b, *at), pixel(other, b, at[0] + moved[0], at[1] + moved[1])
        return te.sum(first * second if is_multiply else te.abs(first - second), axis=[c, y, x])

    total = compute((batch, across * across, *sizes), mean, "correlation", "")
    scale = te.const(1.0 / (kernel_size * kernel_size * channels), one.dtype)
    return compute(total.shape, lambda *i: total(*i) * scale, "correlation_mean", INJECTIVE)


def deformable_conv2d_nchw(
    data: Tensor, offset: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, deformable_groups: int, groups: int,
    out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """The convolution of (batch, channels, height, width) with (out, channels, y, x), each place of a window moved by (y, x) of `offset`
    (batch, 2 * groups of offsets * window, height, width). Pixels are interpolated between their neighbours, and are 0 outside of the
    picture. `groups` is 1.

    >>> x, w = te.placeholder((1, 4, 8, 8), name="x"), te.placeholder((6, 4, 3, 3), name="w")
    >>> topi.nn.deformable_conv2d_nchw(x, te.placeholder((1, 18, 8, 8), name="d"), w, 1, 1, 1, 1, 1).shape
    (1, 6, 8, 8)
    """  # fmt: skip
    what = "deformable_conv2d_nchw"
    x, moved, w = (tensor(v, what) for v in (data, offset, kernel))
    (batch, channels, rows, columns), (outs, _, high, wide) = type_of(x).shape, type_of(w).shape
    if groups != 1 or channels % deformable_groups or moved.ndim != 4:
        raise ExprError(
            f"{what} in {groups} groups of {channels} channels, with {deformable_groups} groups of offsets",
            hint="groups is 1, and the groups of offsets divide the channels",
        )
    steps, spread = _list(strides, 2, f"{what}: strides"), _list(dilation, 2, f"{what}: dilation")
    before, _ = padding_of(padding, (high, wide), spread, what)
    size, each = moved.shape[2:], channels // deformable_groups

    def pixel(b: Any, c: Any, y: Any, z: Any) -> Any:
        """The picture at a place between pixels, those beyond the last row and column being 0."""
        top, left = te.floor(y), te.floor(z)
        below, right = y - top, z - left

        def at(r: Any, k: Any) -> Any:
            there = x(b, c, te.max(te.min(r, rows - 1), 0), te.max(te.min(k, columns - 1), 0))
            return te.select(te.all(r < rows, k < columns), there, te.const(0, x.dtype))

        i, j = top.astype("int32"), left.astype("int32")
        upper = at(i, j) * (1 - right) + at(i, j + 1) * right
        lower = at(i + 1, j) * (1 - right) + at(i + 1, j + 1) * right
        inside = te.all(y >= 0, y < rows, z >= 0, z < columns)
        return te.if_then_else(inside, upper * (1 - below) + lower * below, te.const(0, x.dtype))

    def sample(b: Any, c: Any, r: Any, k: Any, i: Any, j: Any) -> Any:
        place = (c // each * (high * wide) + r * wide + k) * 2
        y = (i * steps[0] - before[0] + r * spread[0]).astype(x.dtype) + moved(b, place, i, j)
        z = (j * steps[1] - before[1] + k * spread[1]).astype(x.dtype) + moved(b, place + 1, i, j)
        return pixel(b, c, y, z)

    # A tensor of its own: each sample serves all outputs.
    samples = compute((batch, channels, high, wide, *size), sample, "deformed", "data_deform")
    rc, ry, rx = (te.reduce_axis((0, n), name=v) for n, v in ((channels, "rc"), (high, "ry"), (wide, "rx")))
    kind = out_dtype or x.dtype
    return compute(
        (batch, outs, *size),
        lambda b, f, i, j: te.sum(samples[b, rc, ry, rx, i, j].astype(kind) * w[f, rc, ry, rx].astype(kind), axis=[rc, ry, rx]),
        what, what,
    )  # fmt: skip


def deformable_conv2d_nhwc(
    data: Tensor, offset: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any, deformable_groups: int, groups: int,
    out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """`deformable_conv2d_nchw` of (batch, height, width, channels) and offsets in that order, with (y, x, channels, out)."""
    x, moved = (transpose(tensor(v, "deformable_conv2d_nhwc"), (0, 3, 1, 2)) for v in (data, offset))
    w = transpose(tensor(kernel, "deformable_conv2d_nhwc"), (3, 2, 0, 1))
    made = deformable_conv2d_nchw(x, moved, w, strides, padding, dilation, deformable_groups, groups, out_dtype)
    return transpose(made, (0, 2, 3, 1))
