"""ONNX operators on pictures: Resize and Upsample, GridSample, AffineGrid, RoiAlign, CenterCropPad."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of, resize
from tec.graph.builders.resample import comes_equally_often, pick, places, repeat, taps, whole_factor
from tec.graph.fold_sizes import scaled
from tec.ops.dims import Dim, UndecidedSize, bind_hint, is_symbolic

from .importer import Call, onnx_op


def resize_axes(
    c: Call, x: Value, sizes: dict[int, int], scales: dict[int, float], roi: dict[int, tuple[float, float]]
) -> Value:
    """`x` with some of its axes resized to `sizes`, as the node's attributes map coordinates; scales and roi: by axis."""
    mode = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(
        c.attr("mode", "nearest"), c.attr("mode", "nearest")
    )
    if mode not in ("nearest", "linear", "cubic"):
        raise ImportModelError(
            f"mode {mode!r} of {c.op_type}",
            hint="nearest, linear and cubic, or bilinear and bicubic for GridSample and the older names",
        )
    old = c.op_type == "Upsample" or c.opset < 11
    transform = c.attr("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    nearest = c.attr("nearest_mode", "floor" if old else "round_prefer_floor")
    a = float(c.attr("cubic_coeff_a", -0.75))
    exclude, antialias = bool(c.attr("exclude_outside", 0)), bool(c.attr("antialias", 0))
    # A scale that does not divide evenly leaves a fraction of an output place, which counts for the corners.
    crops = transform == "tf_crop_and_resize"
    # A symbolic batch stays as it is.
    sizes = {a: n for a, n in sizes.items() if crops or n != x.shape[a] or scales[a] != 1}
    whole = {a: scales[a] * x.shape[a] for a in sizes if not is_symbolic([x.shape[a]])} if not c.has(3) else {}
    outside: list[tuple[int, Any]] = []
    picked: dict[int, Any] = {}
    repeated: dict[int, int] = {}
    y = x
    for axis, out in _in_order(x, sizes):
        n, scale = x.shape[axis], scales[axis]
        if is_symbolic([out, n]):
            if antialias:
                raise UndecidedSize(f"Resize with antialias of {x.type}", hint=bind_hint(out, n))
            times = whole_factor(n, out)
            if mode == "nearest" and times == scale and comes_equally_often(transform, nearest, times):
                repeated[axis] = times
                continue
            how = resize.Resize(mode, transform, nearest, a, exclude)
            y = resize.resize_axis(c, y, axis, out, how, scale)
            continue
        place = places(transform, out, n, scale, whole.get(axis, out), roi.get(axis, (0.0, 1.0)), scale * n)
        if crops:
            outside.append((axis, (place < 0) | (place > n - 1)))
        index, weight = taps(mode, place, n, scale, a, exclude, antialias, nearest)
        if mode == "nearest":
            picked[axis] = index[0]
        else:
            picks = c.const(index, "int32")
            weights = c.const(weight, "float64" if x.dtype == "float64" else "float32")
            y = c.op("resample", y, picks, weights, axis=axis, nearest=False)
    y = pick(c, repeat(c, y, repeated) if repeated else y, picked)
    if any(mask.any() for _, mask in outside):
        total = np.zeros(y.shape, bool)
        for axis, mask in outside:
            total |= mask.reshape([-1 if k == axis else 1 for k in range(y.ndim)])
        y = c.op("where", c.const(total), c.like(float(c.attr("extrapolation_value", 0.0)), y), y)
    return y


def _in_order(x: Value, sizes: dict[int, int]) -> list[tuple[int, int]]:
    """Axes and their new sizes in the order in which least is computed: those that shrink from the first on, then those that grow from the last on, whose elements lie side by
    side and are picked one by one. Whole numbers are rounded behind each axis, and keep the order of the axes."""
    if is_symbolic([*x.shape, *sizes.values()]) or not x.dtype.startswith(("float", "bfloat")):
        return list(sizes.items())
    shrink = [(a, n) for a, n in sizes.items() if n < x.shape[a]]
    return [*shrink, *((a, n) for a, n in reversed(sizes.items()) if n >= x.shape[a])]


def _scaled(n: Any, scale: float) -> Any:
    """A dimension times a scale; an open one where the scale is a simple fraction."""
    return n if scale == 1 else scaled(n, scale) if isinstance(n, Dim) else math.floor(n * scale)


def _factor(out: Any, n: Any) -> Any:
    """The scale that sizes come to; None where it is known when the network runs."""
    return 1.0 if out == n else None if is_symbolic([out, n]) else out / n


@onnx_op("Resize")
def resize_op(c: Call) -> Value:
    """Resize of any opset, with scales or sizes."""
    x = c[0]
    if c.opset < 11:
        scales, sizes, roi = [float(s) for s in np.asarray(c.array(1))], None, None
    else:
        roi = np.asarray(c.array(1)).reshape(-1) if c.has(1) and c[1].type.size else None
        scales = [float(s) for s in np.asarray(c.array(2)).reshape(-1)] if c.has(2) and c[2].type.size else None
        sizes = c.ints(3) if c.has(3) and c[3].type.size else None
    axes = [axis_of(a, x.ndim) for a in c.attr("axes", range(x.ndim))]
    policy = c.attr("keep_aspect_ratio_policy", "stretch")
    if sizes is not None:
        factor = [_factor(s, x.shape[a]) for s, a in zip(sizes, axes)]
        if policy != "stretch" and None in factor:
            raise UndecidedSize(f"Resize that keeps the aspect ratio of {x.type}", hint=bind_hint(*x.shape))
        if policy != "stretch":
            one = min(factor) if policy == "not_larger" else max(factor)
            factor = [one] * len(axes)
            sizes = [x.shape[a] if one == 1 else math.floor(one * x.shape[a] + 0.5) for a in axes]
        scales = factor
    elif scales is not None:
        sizes = [_scaled(x.shape[a], s) for s, a in zip(scales, axes)]
    else:
        raise ImportModelError(
            "Resize needs scales or sizes", hint="give input 2 (scales) or input 3 (sizes) a value for each axis"
        )
    half = len(axes)
    spans = {a: (float(roi[k]), float(roi[k + half])) for k, a in enumerate(axes)} if roi is not None else {}
    return resize_axes(c, x, dict(zip(axes, sizes)), dict(zip(axes, scales)), spans)


@onnx_op("Upsample")
def upsample(c: Call) -> Value:
    x = c[0]
    scales = c.attr("scales") if c.opset < 9 else [float(s) for s in np.asarray(c.array(1))]
    sizes = [_scaled(n, s) for n, s in zip(x.shape, scales)]
    return resize_axes(c, x, dict(enumerate(sizes)), dict(enumerate(scales)), {})


@onnx_op("GridSample")
def grid_sample(c: Call) -> Value:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(c.attr("mode", "linear"), c.attr("mode", "linear"))
    return c.op(
        "grid_sample",
        c[0],
        c[1],
        mode=mode,
        padding=c.attr("padding_mode", "zeros"),
        align=bool(c.attr("align_corners", 0)),
    )


@onnx_op("AffineGrid")
def affine_grid(c: Call) -> Value:
    """Where each element of a picture of the given size comes from: its own place, from -1 to 1, times the batch entry's matrix."""
    theta, size = c[0], [int(n) for n in np.asarray(c.array(1)).reshape(-1)]
    places = []
    for n in size[2:]:
        k = np.arange(n, dtype=np.float64)
        # The ends are the middles of the outermost elements, or their edges; a single element is the first.
        places.append(2 * k / max(n - 1, 1) - 1 if c.attr("align_corners", 0) else (2 * k + 1) / n - 1)
    mesh = np.meshgrid(*places, indexing="ij")
    # x is the last dimension of a picture.
    points = np.stack([*reversed(mesh), np.ones_like(mesh[0])], -1).reshape(-1, len(size) - 1)
    y = c.op("matmul", c.const(points, theta.dtype), c.op("transpose", theta, perm=(0, 2, 1)))
    return c.reshape(y, (theta.shape[0], *size[2:], len(size) - 2))


def _of_corners(c: Call) -> str:
    """RoiAlign's mode: its maxima are of the samples' weighted pixels, not of the samples."""
    mode = str(c.attr("mode", "avg"))
    return "max of corners" if mode == "max" else mode


@onnx_op("RoiAlign")
def roi_align(c: Call) -> Value:
    half = (
        c.attr("coordinate_transformation_mode", "half_pixel" if c.opset >= 16 else "output_half_pixel") == "half_pixel"
    )
    ratio = int(c.attr("sampling_ratio", 0))
    pictures = c.within(c.cast(c[2], "int64"), c[0].shape[0] - 1, "a picture of a box")
    if ratio == 0:
        # The number of samples depends on the boxes: as many as the largest box takes, found when they are known.
        boxes = np.asarray(c.array(1))
        scale, h, w = (
            float(c.attr("spatial_scale", 1.0)),
            int(c.attr("output_height", 1)),
            int(c.attr("output_width", 1)),
        )
        return _adaptive_roi(c, boxes, pictures, scale, h, w, half)
    return c.op(
        "roi_align", c[0], c.cast(c[1], c[0].dtype), pictures, mode=_of_corners(c), height=int(c.attr("output_height", 1)),
        width=int(c.attr("output_width", 1)), ratio_h=ratio, ratio_w=ratio, scale=float(c.attr("spatial_scale", 1.0)), half=half,
    )  # fmt: skip


def _adaptive_roi(c: Call, boxes: Any, pictures: Value, scale: float, h: int, w: int, half: bool) -> Value:
    rows = []
    for k, (x1, y1, x2, y2) in enumerate(boxes * scale):
        rh, rw = y2 - y1, x2 - x1
        if not half:
            rh, rw = max(rh, 1.0), max(rw, 1.0)
        rows.append(
            c.op(
                "roi_align", c[0], c.slice(c[1], 0, k, 1), c.slice(pictures, 0, k, 1), mode=_of_corners(c), height=h,
                width=w, ratio_h=max(math.ceil(rh / h), 1), ratio_w=max(math.ceil(rw / w), 1), scale=scale, half=half,
            )
        )  # fmt: skip
    return rows[0] if len(rows) == 1 else c.op("concat", *rows, axis=0)


@onnx_op("MaxRoiPool")
def max_roi_pool(c: Call) -> Value:
    """The greatest element of each cell of each box. Columns and rows of a cell are independent, so one comes after the other."""
    x, boxes = c[0], c[1]
    height, width = c.attr("pooled_shape")
    count = boxes.shape[0]
    # Corners in whole elements; a half away from 0, as ONNX Runtime rounds.
    scaled = c.op("multiply", boxes, c.like(float(c.attr("spatial_scale", 1.0)), boxes))
    corners = c.op("floor", c.op("add", c.op("abs", scaled), c.like(0.5, boxes)))
    corners = c.op("multiply", corners, c.op("sign", scaled))

    def cells(first: int, number: int, extent: int) -> Value:
        """(box, cell, element): whether the element lies in the cell."""
        begin, end = (c.slice(corners, 1, k, 1) for k in (first, first + 2))
        size = c.op("maximum", c.op("add", c.op("subtract", end, begin), c.like(1.0, boxes)), c.like(1.0, boxes))
        step = c.op("divide", size, c.like(float(number), boxes))
        cell, place = (c.const(np.arange(n), boxes.dtype) for n in (number, extent))
        low = c.op("add", c.op("floor", c.op("multiply", step, cell)), begin)
        high = c.op("add", c.op("ceil", c.op("multiply", step, c.op("add", cell, c.like(1.0, boxes)))), begin)
        low, high = (c.reshape(v, (count, number, 1)) for v in (low, high))
        return c.op("logical_and", c.op("less_equal", low, place), c.op("less", place, high))

    rows, columns = cells(2, height, x.shape[2]), cells(1, width, x.shape[3])
    least = c.like(-np.inf, x)
    batch = c.reshape(c.cast(c.slice(boxes, 1, 0, 1), "int64"), (count,))
    y = c.reshape(c.op("gather", x, batch, axis=0), (count, x.shape[1], x.shape[2], 1, x.shape[3]))
    y = c.op("where", c.reshape(columns, (count, 1, 1, width, x.shape[3])), y, least)
    y = c.op("reduce_max", y, axes=(4,), keepdims=False)  # (box, channel, row, cell)
    y = c.reshape(y, (count, x.shape[1], 1, x.shape[2], width))
    y = c.op("where", c.reshape(rows, (count, 1, height, x.shape[2], 1)), y, least)
    y = c.op("reduce_max", y, axes=(3,), keepdims=False)
    return c.op("where", c.op("greater", y, least), y, c.like(0.0, x))  # a cell without elements
