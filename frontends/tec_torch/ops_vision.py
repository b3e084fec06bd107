"""torchvision's own operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tec.graph import Value
from tec.graph.builders import regions_of_interest as roi

from .importer import AtenCall, custom_op
from .ops_grad import any_of_shape, through
from .ops_nn import add_bias


@custom_op("torchvision::roi_align")
def roi_align(
    c: AtenCall, x: Value, boxes: Value, scale: float, rows: int, columns: int, ratio: int, aligned: bool
) -> Value:
    """Means of `ratio` x `ratio` bilinear samples in each cell of each box (its picture, then two corners)."""
    picture, corners = split_boxes(c, boxes)
    if ratio <= 0:
        return roi.mean_of_samples(c, x, corners, picture, (rows, columns), float(scale), bool(aligned))
    return c.op(
        "roi_align", x, corners, picture, height=rows, width=columns, ratio_h=ratio, ratio_w=ratio, scale=float(scale), half=bool(aligned),
        mode="avg",
    )  # fmt: skip


def split_boxes(c: AtenCall, boxes: Value) -> tuple[Value, Value]:
    """The boxes' pictures, and x and y of their corners."""
    return c.cast(c.take(boxes, 1, 0), "int64"), c.slice(boxes, 1, 1, 4)


@custom_op("torchvision::roi_pool")
def roi_pool(c: AtenCall, x: Value, boxes: Value, scale: float, rows: int, columns: int) -> tuple[Value, None]:
    """The largest of each cell. Which element that was, is what only a gradient reads."""
    picture, corners = split_boxes(c, boxes)
    return roi.largest(c, x, corners, picture, (rows, columns), float(scale)), None


@custom_op("torchvision::ps_roi_align")
def ps_roi_align(
    c: AtenCall, x: Value, boxes: Value, scale: float, rows: int, columns: int, ratio: int
) -> tuple[Value, Value]:
    """`roi_align` in which each cell has channels of its own: of all channels' cells those on the diagonal."""
    forward: Any = roi_align
    y = forward(c, x, boxes, scale, rows, columns, ratio, True)
    n, channels, own = boxes.shape[0], x.shape[1], rows * columns
    cells = c.reshape(y, (n, channels // own, own, own))
    diagonal = c.op("where", c.const(np.eye(own, dtype=bool)), cells, c.like(0, cells))
    y = c.reshape(c.op("reduce_sum", diagonal, axes=(3,), keepdims=False), (n, channels // own, rows, columns))
    mapping = np.arange(channels, dtype="int32").reshape(1, channels // own, rows, columns)
    return y, c.broadcast(c.const(mapping), y.shape)


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


@custom_op("torchvision::_ps_roi_align_backward")
def ps_roi_align_backward(
    c: AtenCall, g: Value, boxes: Value, mapping: Value, scale: float, rows: int, columns: int, ratio: int, n: int, channels: int,
    h: int, w: int,
) -> Value | None:  # fmt: skip
    forward, args = torch.ops.torchvision.ps_roi_align.default, (scale, rows, columns, ratio)
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
