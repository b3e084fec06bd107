"""Regions of pictures pooled to cells of one number, where how much a cell takes in depends on its box.

Means of bilinear samples and largest elements are taken along one axis of the picture after the other: what an axis adds is a matrix of weights, or a mask,
for each box and cell.

Sources: K. He et al., "Mask R-CNN", 2017; R. Girshick, "Fast R-CNN", 2015; the definitions are torchvision's.
"""

from __future__ import annotations

import numpy as np

from ..graph import Value
from .builder import Builder

# Samples of a cell lie more than half an element apart where there are several: so many can be within one of an element.
_NEAR = 6


def mean_of_samples(
    b: Builder, x: Value, boxes: Value, picture: Value, cells: tuple[int, int], scale: float, half: bool
) -> Value:
    """`roi_align` with as many samples in each cell as it has elements, rounded up. boxes: (n, 4), x and y of two corners; picture: (n,)."""
    corners = b.op("subtract", b.op("multiply", boxes, b.like(scale, boxes)), b.like(0.5 if half else 0.0, boxes))
    down, across = (
        _weights(b, b.take(corners, 1, axis), b.take(corners, 1, axis + 2), x.shape[3 - axis], cells[1 - axis], half)
        for axis in (1, 0)
    )
    own = b.op("gather", x, picture, axis=0)
    rows = b.op("matmul", b.unsqueeze(b.cast(down, x.dtype), 1), own)
    return b.op("matmul", rows, b.unsqueeze(b.transpose(b.cast(across, x.dtype), (0, 2, 1)), 1))


def _weights(b: Builder, begin: Value, end: Value, size: int, cells: int, half: bool) -> Value:
    """(n, cells, size): how much of each element a cell's mean takes in along an axis."""

    def number(v: float) -> Value:
        return b.like(v, begin)

    begin, end = (b.unsqueeze(b.unsqueeze(v, 1), 2) for v in (begin, end))
    extent = b.op("subtract", end, begin)
    extent = extent if half else b.op("maximum", extent, number(1))
    cell = b.op("divide", extent, number(cells))
    samples = b.op("ceil", cell)
    some = b.op("maximum", samples, number(1))
    step = b.op("divide", cell, some)
    place = b.const(np.arange(cells, dtype="float64")[:, None], begin.dtype)
    first = b.op("add", begin, b.op("add", b.op("multiply", place, cell), b.op("multiply", step, number(0.5))))
    # The first sample that may be within one of an element, and those after it.
    element = b.const(np.arange(size, dtype="float64"), begin.dtype)
    back = b.op("subtract", b.op("subtract", element, number(1)), first)
    thin = b.op("less_equal", step, number(0))
    number_of = b.op("ceil", b.op("divide", back, b.op("where", thin, number(1), step)))
    number_of = b.op("maximum", number_of, number(0))
    count = b.op("add", b.unsqueeze(number_of, 3), b.const(np.arange(_NEAR, dtype="float64"), begin.dtype))
    at = b.op("add", b.unsqueeze(first, 3), b.op("multiply", count, b.unsqueeze(step, 3)))
    counts = b.op("less", count, b.unsqueeze(samples, 3))
    inside = b.op("logical_and", b.op("greater_equal", at, number(-1)), b.op("less_equal", at, number(size)))
    gap = b.op("abs", b.op("subtract", b.op("clip", at, low=0, high=size - 1), b.unsqueeze(element, 1)))
    weight = b.op("maximum", b.op("subtract", number(1), gap), number(0))
    weight = b.op("where", b.op("logical_and", counts, inside), weight, number(0))
    return b.op("divide", b.op("reduce_sum", weight, axes=(3,), keepdims=False), some)


def largest(b: Builder, x: Value, boxes: Value, picture: Value, cells: tuple[int, int], scale: float) -> Value:
    """`roi_pool`: the largest element of each cell, whose edges are rounded outwards; 0 where it has none."""
    own = b.op("gather", x, picture, axis=0)
    scaled = b.op("multiply", boxes, b.like(scale, boxes))
    away = b.op("copysign", b.like(0.5, boxes), scaled)
    corners = b.op("trunc", b.op("add", scaled, away))
    none = b.like(-np.inf, x)
    for axis in (1, 0):
        size, count = x.shape[3 - axis], cells[1 - axis]
        begin, end = (b.unsqueeze(b.unsqueeze(b.take(corners, 1, k), 1), 2) for k in (axis, axis + 2))
        one = b.like(1, begin)
        cell = b.op(
            "divide", b.op("maximum", b.op("add", b.op("subtract", end, begin), one), one), b.like(count, begin)
        )
        place = b.const(np.arange(count, dtype="float64")[:, None], begin.dtype)
        low = b.op("add", b.op("floor", b.op("multiply", place, cell)), begin)
        high = b.op("add", b.op("ceil", b.op("multiply", b.op("add", place, one), cell)), begin)
        element = b.const(np.arange(size, dtype="float64"), begin.dtype)
        within = b.op("logical_and", b.op("greater_equal", element, low), b.op("less", element, high))
        if axis:  # (n, 1, cells, height, 1) of (n, channels, 1, height, width)
            mask, lined, along = b.unsqueeze(b.unsqueeze(within, 1), 4), b.unsqueeze(own, 2), 3
        else:  # (n, 1, 1, cells, width) of (n, channels, rows of cells, 1, width)
            mask, lined, along = b.unsqueeze(b.unsqueeze(within, 1), 1), b.unsqueeze(own, 3), 4
        own = b.op("reduce_max", b.op("where", mask, lined, none), axes=(along,), keepdims=False)
    return b.op("where", b.op("equal", own, none), b.like(0, own), own)
