"""Convolutions whose channels are the last dimension or lie in blocks, and operators that move pixels: as transposes of what `nn` has, or a compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from . import nn
from .operators import compute, tensor
from .tag import INJECTIVE
from .transform import layout_transform, reshape, transpose

__all__ = [
    "conv1d_nwc", "conv2d_NCHWc", "conv2d_hwcn", "conv2d_nhwc", "conv3d_ndhwc", "depth_to_space", "depthwise_conv2d_NCHWc", "depthwise_conv2d_nhwc",
    "group_conv1d_nwc", "group_conv2d_nhwc", "mirror_pad", "space_to_depth", "upsampling",
]  # fmt: skip


def conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Any, dilation: Any, out_dtype: str | None = None
) -> Tensor:
    """`conv2d_nchw` of (batch, height, width, channels) with (y, x, channels, out).

    >>> x, w = te.placeholder((1, 8, 8, 3), name="x"), te.placeholder((3, 3, 3, 4), name="w")
    >>> topi.nn.conv2d_nhwc(x, w, 1, 1, 1).shape
    (1, 8, 8, 4)
    """
    x, w = transpose(Input, (0, 3, 1, 2)), transpose(Filter, (3, 2, 0, 1))
    return transpose(nn.conv2d_nchw(x, w, stride, padding, dilation, out_dtype), (0, 2, 3, 1))


def conv2d_hwcn(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Any, dilation: Any, out_dtype: str | None = None
) -> Tensor:
    """`conv2d_nchw` of (height, width, channels, batch) with (y, x, channels, out)."""
    x, w = transpose(Input, (3, 2, 0, 1)), transpose(Filter, (3, 2, 0, 1))
    return transpose(nn.conv2d_nchw(x, w, stride, padding, dilation, out_dtype), (2, 3, 1, 0))


def conv1d_nwc(
    data: Tensor, kernel: Tensor, strides: Any = 1, padding: Any = 0, dilation: Any = 1, out_dtype: str | None = None
) -> Tensor:
    """`conv1d_ncw` of (batch, width, channels) with (x, channels, out)."""
    x, w = transpose(data, (0, 2, 1)), transpose(kernel, (2, 1, 0))
    return transpose(nn.conv1d_ncw(x, w, strides, padding, dilation, out_dtype), (0, 2, 1))


def group_conv1d_nwc(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """`group_conv1d_ncw` of (batch, width, channels) with (x, channels / groups, out)."""
    x, w = transpose(data, (0, 2, 1)), transpose(kernel, (2, 1, 0))
    return transpose(nn.group_conv1d_ncw(x, w, strides, padding, dilation, groups, out_dtype), (0, 2, 1))


def group_conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, out_dtype: str | None = None
) -> Tensor:
    """`group_conv2d_nchw` of (batch, height, width, channels) with (y, x, channels / groups, out)."""
    x, w = transpose(Input, (0, 3, 1, 2)), transpose(Filter, (3, 2, 0, 1))
    return transpose(nn.group_conv2d_nchw(x, w, stride, padding, dilation, groups, out_dtype), (0, 2, 3, 1))


def conv3d_ndhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv3d_ncdhw` of (batch, depth, height, width, channels) with (z, y, x, channels / groups, out)."""
    x, w = transpose(Input, (0, 4, 1, 2, 3)), transpose(Filter, (4, 3, 0, 1, 2))
    return transpose(nn.conv3d_ncdhw(x, w, stride, padding, dilation, groups, out_dtype), (0, 2, 3, 4, 1))


def _whole(x: Tensor) -> Tensor:
    """(batch, channels / c, height, width, c) as (batch, channels, height, width)."""
    n, outer, h, w, inner = x.shape
    return reshape(transpose(x, (0, 1, 4, 2, 3)), (n, outer * inner, h, w))


def _in_blocks(x: Tensor, layout: str, what: str) -> Tensor:
    if not (layout.startswith("NCHW") and layout.endswith("c") and layout[4:-1].isdigit()):
        raise ExprError(f"{what}: the result in layout {layout!r}", hint="NCHW8c, and other sizes of its blocks")
    return layout_transform(x, "NCHW", layout)


def conv2d_NCHWc(
    data: Tensor,
    kernel: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    out_layout: str,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv2d_nchw` of channels in blocks: (batch, channels / c, height, width, c) with (out / o, channels / c, y, x, c, o), as `out_layout` ("NCHW8c")."""
    outer, chunks, y, x, inner, block = kernel.shape
    w = reshape(transpose(kernel, (0, 5, 1, 4, 2, 3)), (outer * block, chunks * inner, y, x))
    made = nn.conv2d_nchw(_whole(data), w, stride, padding, dilation, out_dtype)
    return _in_blocks(made, out_layout, "conv2d_NCHWc")


def depthwise_conv2d_NCHWc(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    out_layout: str,
    out_dtype: str | None = None,
) -> Tensor:
    """`depthwise_conv2d_nchw` of channels in blocks, with (channels * multiplier / o, 1, y, x, 1, o), as `out_layout` ("NCHW8c")."""
    data = _whole(Input)
    outer, _, y, x, _, block = Filter.shape
    channels = data.shape[1]
    w = reshape(transpose(Filter, (0, 5, 1, 4, 2, 3)), (channels, te.floordiv(outer * block, channels), y, x))
    made = nn.depthwise_conv2d_nchw(data, w, stride, padding, dilation, out_dtype)
    return _in_blocks(made, out_layout, "depthwise_conv2d_NCHWc")


def depthwise_conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Any, dilation: Any, out_dtype: str | None = None
) -> Tensor:
    """`depthwise_conv2d_nchw` of (batch, height, width, channels) with (y, x, channels, multiplier)."""
    x, w = transpose(Input, (0, 3, 1, 2)), transpose(Filter, (2, 3, 0, 1))
    return transpose(nn.depthwise_conv2d_nchw(x, w, stride, padding, dilation, out_dtype), (0, 2, 3, 1))


def mirror_pad(
    data: Tensor, pad_before: Sequence[int], pad_after: Sequence[int] | None = None, mode: str = "SYMMETRIC"
) -> Tensor:
    """Beyond the borders the elements inside, mirrored: with the border itself ("SYMMETRIC") or without it ("REFLECT")."""
    x, after = tensor(data, "mirror_pad"), pad_before if pad_after is None else pad_after
    if mode not in ("SYMMETRIC", "REFLECT") or not len(pad_before) == len(after) == x.ndim:
        raise ExprError(
            f"mirror_pad by {pad_before}, {after} in mode {mode!r}",
            hint='a number for each dimension; "SYMMETRIC" or "REFLECT"',
        )
    skip = mode == "REFLECT"

    def at(*i: Any) -> Any:
        places = []
        for place, low, n in zip(i, pad_before, x.shape):
            k = place - low
            k = te.if_then_else(k < 0, -k - (0 if skip else 1), k)
            places.append(te.if_then_else(k >= n, 2 * n - k - (2 if skip else 1), k))
        return x(*places)

    return compute(tuple(n + a + b for n, a, b in zip(x.shape, pad_before, after)), at, "mirror_pad", INJECTIVE)


def _in_nchw(x: Tensor, layout: str, what: str) -> tuple[Tensor, bool]:
    if layout not in ("NCHW", "NHWC"):
        raise ExprError(f"{what} in layout {layout!r}", hint="NCHW or NHWC")
    last = layout == "NHWC"
    return (transpose(x, (0, 3, 1, 2)) if last else tensor(x, what)), last


def depth_to_space(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Tensor:
    """Channels as blocks of pixels. mode: "DCR" where a block's pixels lie over all channels, "CRD", which TVM calls "CDR", where they lie side by side."""
    if mode not in ("DCR", "CRD", "CDR"):
        raise ExprError(f"depth_to_space in mode {mode!r}", hint="DCR or CRD")
    x, last = _in_nchw(data, layout, "depth_to_space")
    b, (n, c, h, w) = block_size, x.shape
    depth = c // (b * b)

    def at(i: Any, k: Any, y: Any, z: Any) -> Any:
        pixel = te.floormod(y, b) * b + te.floormod(z, b)
        channel = pixel * depth + k if mode == "DCR" else k * (b * b) + pixel
        return x[i, channel, te.floordiv(y, b), te.floordiv(z, b)]

    made = compute((n, depth, h * b, w * b), at, "depth_to_space", INJECTIVE)
    return transpose(made, (0, 2, 3, 1)) if last else made


def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Tensor:
    """Blocks of pixels as channels, a block's pixels over all channels."""
    x, last = _in_nchw(data, layout, "space_to_depth")
    b, (n, c, h, w) = block_size, x.shape

    def at(i: Any, k: Any, y: Any, z: Any) -> Any:
        pixel = te.floordiv(k, c)
        return x[i, te.floormod(k, c), y * b + te.floordiv(pixel, b), z * b + te.floormod(pixel, b)]

    made = compute((n, c * b * b, h // b, w // b), at, "space_to_depth", INJECTIVE)
    return transpose(made, (0, 2, 3, 1)) if last else made


def upsampling(
    data: Tensor, scale_h: int, scale_w: int, layout: str = "NCHW", method: str = "nearest_neighbor"
) -> Tensor:
    """Each pixel `scale_h` times down and `scale_w` times across. Raises ExprError for another method: networks have them (`Resize`)."""
    if method != "nearest_neighbor" or any(s != int(s) for s in (scale_h, scale_w)):
        raise ExprError(
            f"upsampling by {scale_h} x {scale_w}, {method}",
            hint="whole numbers and nearest_neighbor; the operator resample of tec.ops has more",
        )
    x, last = _in_nchw(data, layout, "upsampling")
    n, c, h, w = x.shape
    p, q = int(scale_h), int(scale_w)
    made = compute(
        (n, c, h * p, w * q), lambda i, k, y, z: x[i, k, te.floordiv(y, p), te.floordiv(z, q)], "upsampling", INJECTIVE
    )
    return transpose(made, (0, 2, 3, 1)) if last else made
