"""torchvision's own operators."""

from __future__ import annotations

from typing import Any

import torch

from tec import ImportModelError
from tec.graph import Value

from .importer import AtenCall, custom_op
from .ops_grad import any_of_shape, through
from .ops_nn import add_bias


@custom_op("torchvision::roi_align")
def roi_align(
    c: AtenCall, x: Value, boxes: Value, scale: float, rows: int, columns: int, ratio: int, aligned: bool
) -> Value:
    """Means of `ratio` x `ratio` bilinear samples in each cell of each box (its picture, then two corners)."""
    if ratio <= 0:
        raise ImportModelError("roi_align whose samples depend on the size of a box", hint="sampling_ratio=2")
    picture, corners = c.cast(c.take(boxes, 1, 0), "int64"), c.slice(boxes, 1, 1, 4)
    return c.op(
        "roi_align", x, corners, picture, height=rows, width=columns, ratio_h=ratio, ratio_w=ratio, scale=float(scale), half=bool(aligned),
        mode="avg",
    )  # fmt: skip


@custom_op("torchvision::deform_conv2d")
def deform_conv(c: AtenCall, x: Value, w: Value, offset: Value, mask: Value, bias: Value, *more: Any) -> Value:
    *pairs, groups, offset_groups, use_mask = more
    strides, padding, dilations = (tuple(pairs[k : k + 2]) for k in (0, 2, 4))
    y = c.op(
        "deform_conv", x, w, offset, *([mask] if use_mask else []), strides=strides, dilations=dilations, before=padding, after=padding,
        groups=groups, offset_groups=offset_groups,
    )  # fmt: skip
    return add_bias(c, y, bias)


@custom_op("torchvision::_roi_align_backward")
def roi_align_backward(
    c: AtenCall, g: Value, boxes: Value, scale: float, rows: int, columns: int, n: int, channels: int, h: int, w: int, ratio: int,
    aligned: bool,
) -> Value | None:  # fmt: skip
    forward, args = torch.ops.torchvision.roi_align.default, (scale, rows, columns, ratio, aligned)
    return through(c, forward, g, [any_of_shape(c, g, (n, channels, h, w)), boxes], args)[0]


@custom_op("torchvision::_deform_conv2d_backward")
def deform_conv_backward(
    c: AtenCall, g: Value, x: Value, w: Value, offset: Value, mask: Value, bias: Value, *more: Any
) -> tuple[Value | None, ...]:
    """By the picture, the weights, the offsets, the mask and the bias."""
    asked = [k for k in range(4) if c.is_read(k) and (k < 3 or more[-1])]
    found = through(c, torch.ops.torchvision.deform_conv2d.default, g, [x, w, offset, mask], (bias, *more), asked)
    unused = c.broadcast(c.like(0, mask), mask.shape) if not more[-1] else found[3]
    by_bias = c.op("reduce_sum", g, axes=(0, 2, 3), keepdims=False) if c.is_read(4) else None
    return *found[:3], unused, by_bias
