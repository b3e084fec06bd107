"""Resizing along one axis of known size: the places and weights that `resample` takes, as arrays, and what needs none: places that come equally often.

Names are ONNX's (Resize); `resize` does the same for sizes that are open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import ImportModelError
from ...ops.dims import Size
from ..graph import Value
from .builder import Builder


def pick(b: Builder, x: Value, indices: Mapping[int, Any]) -> Value:
    """x at constant places along some axes, {axis: places}. Where each place of an axis comes equally often, in order, that is a copy with views around it, one for all
    such axes, which reads and writes side by side."""
    counts = {axis: len(index) // max(1, int(x.shape[axis])) for axis, index in indices.items()}
    times = {
        a: n for a, n in counts.items() if n > 1 and np.array_equal(indices[a], np.arange(n * int(x.shape[a])) // n)
    }
    for axis, index in indices.items():
        if axis not in times:
            x = b.op("resample", x, b.const(np.asarray(index)[None], "int32"), axis=axis, nearest=True)
    return repeat(b, x, times) if times else x


def repeat(b: Builder, x: Value, times: Mapping[int, Size]) -> Value:
    """Each place of some axes, {axis: how often}, so many times one after another."""
    narrow, wide = list[Size](), list[Size]()
    for axis, n in enumerate(x.shape):
        narrow += [n, 1] if axis in times else [n]
        wide += [n, times[axis]] if axis in times else [n]
    whole = [n * times.get(axis, 1) for axis, n in enumerate(x.shape)]
    return b.reshape(b.broadcast(b.reshape(x, narrow), wide), whole)


def whole_factor(n: Size, out: Size) -> int | None:
    """How many times as large `out` is as `n`, whatever that is; None where it is no whole number of times."""
    times = out // n
    return times if isinstance(times, int) and times * n == out else None


def comes_equally_often(transform: str, nearest: str, times: int) -> bool:
    """Whether a nearest resize to so many times an open size takes each place `times` times, one after another. By these transformations what a place comes from moves by
    one with each `times` places, so that a few say it of all."""
    if transform not in ("asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn"):
        return False
    n = 4
    place = places(transform, n * times, n, times, n * times)
    return np.array_equal(np.clip(_nearest(place, nearest), 0, n - 1), np.arange(n * times) // times)


def places(
    mode: str,
    out: int,
    n: int,
    scale: float,
    whole: float,
    roi: tuple[float, float] = (0.0, 1.0),
    odd: float = 1.0,
) -> Any:
    """The input place of each of `out` output places, by ONNX's name of the transformation. `whole`: the output's extent, which a scale may not
    divide evenly; `roi`: begin and end of a crop, as fractions; `odd`: the extent that half_pixel_symmetric counts from."""
    x = np.arange(out, dtype=np.float64)
    if mode == "asymmetric":
        return x / scale
    if mode == "align_corners":
        return x * (n - 1) / (whole - 1) if whole > 1 else np.zeros(out)
    if mode == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if whole > 1 else np.zeros(out)
    if mode == "half_pixel":
        return (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        centre = n / 2 * (1 - out / odd)
        return centre + (x + 0.5) / scale - 0.5
    if mode == "tf_crop_and_resize":
        a, b = roi
        return a * (n - 1) + x * (b - a) * (n - 1) / (whole - 1) if whole > 1 else np.full(out, 0.5 * (a + b) * (n - 1))
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    raise ImportModelError(
        f"coordinate_transformation_mode {mode!r}",
        hint="a mode of ONNX's Resize: half_pixel, align_corners, asymmetric, ...",
    )


def _cubic(t: Any, a: float) -> Any:
    t = np.abs(t)
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def _nearest(x: Any, how: str) -> Any:
    if how == "floor":
        return np.floor(x)
    if how == "ceil":
        return np.ceil(x)
    if how == "round_prefer_ceil":
        return np.floor(x + 0.5)
    return np.ceil(x - 0.5)  # round_prefer_floor


def taps(
    mode: str, place: Any, n: int, scale: float, a: float, exclude: bool, antialias: bool, nearest: str
) -> tuple[Any, Any]:
    """(index, weight), each (taps, out): what an output place takes of the input."""
    if mode == "nearest":
        k = np.clip(_nearest(place, nearest), 0, n - 1)
        return k[None].astype(np.int64), np.ones((1, len(place)))
    stretch = min(scale, 1.0) if antialias else 1.0
    reach = (1 if mode == "linear" else 2) / stretch
    first = np.floor(place - reach).astype(np.int64) + 1
    count = math.ceil(2 * reach) + (1 if antialias else 0)
    index = first[None] + np.arange(count)[:, None]
    t = (index - place[None]) * stretch
    weight = np.maximum(0.0, 1 - np.abs(t)) if mode == "linear" else _cubic(t, a)
    if exclude:
        weight = np.where((index < 0) | (index >= n), 0.0, weight)
    if exclude or antialias:
        total = weight.sum(0)
        weight = weight / np.where(total == 0, 1.0, total)
    return np.clip(index, 0, n - 1), weight
