"""Convolutions whose windows read where offsets say: `topi.nn.deformable_conv2d_nchw` and `deformable_conv2d_nhwc`."""

from __future__ import annotations

from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from .nn import _list, _padding
from .operators import compute, tensor, type_of
from .transform import transpose

__all__ = ["deformable_conv2d_nchw", "deformable_conv2d_nhwc"]


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
    before, _ = _padding(padding, (high, wide), spread, what)
    size, each = moved.shape[2:], channels // deformable_groups

    def pixel(b: Any, c: Any, y: Any, z: Any) -> Any:
        """The picture at a place between pixels; beyond the last row and column these are repeated."""
        top, left = te.floor(y), te.floor(z)
        below, right = y - top, z - left

        def at(r: Any, k: Any) -> Any:
            return x(b, c, te.max(te.min(r, rows - 1), 0), te.max(te.min(k, columns - 1), 0))

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
