"""ATen operators that resize images and take samples of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders.resample import pick, places, repeat, taps, whole_factor
from tec.graph.builders.resize import Resize, resize_axis
from tec.ops.dims import is_symbolic

from .importer import AtenCall, aten_op
from .remedies import FIX_THE_SIZE


@aten_op(
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    *[f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)],
)
def upsample_nearest(c: AtenCall, x: Value, size: Any, *scales: Any) -> Value:
    exact = "exact" in c.name_of_op
    factors = _factors(x, scales)
    picked: dict[int, Any] = {}
    for d, factor in enumerate(factors):
        axis, n, out = 2 + d, x.shape[2 + d], c.shape[2 + d]
        if n == out and factor in (None, 1.0):
            continue
        if is_symbolic([n, out]):
            whole = whole_factor(n, out)
            if whole is not None:  # each place as often: a copy, whatever the size is
                x = repeat(c, x, {axis: whole})
                continue
            how = Resize("nearest", "half_pixel" if exact else "asymmetric", "round_prefer_ceil" if exact else "floor")
            x = resize_axis(c, x, axis, out, how, factor)
            continue
        step = np.float32(1 / factor) if factor else np.float32(n) / np.float32(out)  # torch counts in float32
        place = np.floor((np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)) * step).astype(np.int32)
        picked[axis] = np.minimum(place, n - 1)
    return pick(c, x, picked)


def _factors(x: Value, scales: Sequence[Any]) -> list[float | None]:
    """The factor of each spatial dimension where the call gives it."""
    n = x.ndim - 2
    flat = [s for v in scales for s in (v if isinstance(v, (list, tuple)) else [v])]
    return [float(s) if s is not None else None for s in flat] if len(flat) == n else [None] * n


@aten_op(
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)
def upsample(c: AtenCall, x: Value, size: Any, align: bool, *scales: Any) -> Value:
    name = c.name_of_op
    mode, antialias = "cubic" if "cubic" in name else "linear", name.endswith("_aa")
    if antialias and align:
        raise ImportModelError("antialias with aligned corners", hint="align_corners=False, or antialias=False")
    transform = "align_corners" if align else "half_pixel"
    a = -0.5 if antialias else -0.75  # of the cubic kernel: Pillow's with antialiasing
    acc = "float64" if x.dtype == "float64" else "float32"
    for d, factor in enumerate(_factors(x, scales)):
        axis, n, out = 2 + d, x.shape[2 + d], c.shape[2 + d]
        if n == out and factor in (None, 1.0):
            continue
        if is_symbolic([n, out]):
            if antialias:
                raise ImportModelError("antialias of an open size", hint=FIX_THE_SIZE)
            x = resize_axis(c, x, axis, out, Resize(mode, transform, "floor", a), factor)
            continue
        scale = factor or out / n
        place = places(transform, out, n, scale, out)
        index, weight = taps(mode, place, n, scale, a, antialias, antialias, "floor")
        x = c.op("resample", x, c.const(index, "int32"), c.const(weight, acc), axis=axis, nearest=False)
    return x


@aten_op("grid_sampler_2d", "grid_sampler", "grid_sampler_3d")
def grid_sampler(c: AtenCall, x: Value, grid: Value, mode: int, padding: int, align: bool) -> Value:
    return c.op(
        "grid_sample", x, grid, mode=("linear", "nearest", "cubic")[mode], padding=("zeros", "border", "reflection")[padding],
        align=bool(align),
    )  # fmt: skip
