"""NumPy's statistics, histograms, comparisons and powers that the standard leaves out (`numpy_names`), written in functions of the standard."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import creation, dtypes, elementwise, manipulation, searching, sets, sorting, statistical
from .array import Array
from .errors import ArrayTypeError, ArrayValueError
from .numpy_shapes import ravel

# ---- statistics


def amax(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """`max`."""
    return statistical.max(x, axis=axis, keepdims=keepdims)


def amin(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """`min`."""
    return statistical.min(x, axis=axis, keepdims=keepdims)


def ptp(x: Array, axis: Any = None) -> Array:
    """The greatest less the least."""
    return amax(x, axis) - amin(x, axis)


def cumsum(x: Array, axis: int | None = None, dtype: Any = None) -> Array:
    """Running sums along `axis`, by default of all elements in order."""
    return statistical.cumulative_sum(ravel(x) if axis is None else x, axis=0 if axis is None else axis, dtype=dtype)


def cumprod(x: Array, axis: int | None = None, dtype: Any = None) -> Array:
    """Running products along `axis`, by default of all elements in order."""
    return statistical.cumulative_prod(ravel(x) if axis is None else x, axis=0 if axis is None else axis, dtype=dtype)


def average(x: Array, axis: int | None = None, weights: Array | None = None) -> Array:
    """The mean, where `weights` of the same shape are given the weighted one."""
    if weights is None:
        return statistical.mean(x, axis=axis)
    return statistical.sum(x * weights, axis=axis) / statistical.sum(weights, axis=axis)


def quantile(x: Array, q: float, axis: int | None = None) -> Array:
    """The value below which the part `q` lies, interpolated between neighbours."""
    if not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise ArrayValueError(f"quantile {q!r}", hint="a number from 0 to 1")
    k = 0 if axis is None else manipulation.axis_of(axis, x.ndim)
    ordered = sorting.sort(ravel(x) if axis is None else x, axis=k)
    if not dtypes.is_float(ordered.dtype):
        ordered = manipulation.astype(ordered, dtypes.DEFAULT_FLOAT)
    lead, at = (slice(None),) * k, q * (ordered.shape[k] - 1)
    below, above = (ordered[(*lead, f(at))] for f in (math.floor, math.ceil))
    return below + (above - below) * (at - math.floor(at))


def percentile(x: Array, q: float, axis: int | None = None) -> Array:
    """`quantile` of q / 100."""
    return quantile(x, q / 100, axis)


def median(x: Array, axis: int | None = None) -> Array:
    """The middle value, or the mean of the two in the middle."""
    return quantile(x, 0.5, axis)


def nan_to_num(x: Array, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Array:
    """Numbers in place of NaN and infinities."""
    if not dtypes.is_float(x.dtype):
        return x
    most = float(dtypes.finfo(x.dtype).max)
    out = searching.where(elementwise.isnan(x), nan, x)
    out = searching.where(out == math.inf, most if posinf is None else posinf, out)
    return searching.where(out == -math.inf, -most if neginf is None else neginf, out)


def nansum(x: Array, axis: Any = None) -> Array:
    """The sum of what is not NaN."""
    return statistical.sum(searching.where(elementwise.isnan(x), 0.0, x), axis=axis)


def nanmean(x: Array, axis: Any = None) -> Array:
    """The mean of what is not NaN."""
    held = manipulation.astype(elementwise.logical_not(elementwise.isnan(x)), x.dtype)
    return nansum(x, axis) / statistical.sum(held, axis=axis)


def nanmax(x: Array, axis: Any = None) -> Array:
    """The greatest of what is not NaN."""
    return statistical.max(searching.where(elementwise.isnan(x), -math.inf, x), axis=axis)


def nanmin(x: Array, axis: Any = None) -> Array:
    """The least of what is not NaN."""
    return statistical.min(searching.where(elementwise.isnan(x), math.inf, x), axis=axis)


def bincount(x: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    """How often each number from 0 stands in a vector of integers, or the sum of its weights. Computes the greatest of them."""
    if not dtypes.is_int(x.dtype) or x.ndim != 1:
        raise ArrayTypeError(f"bincount of {x.dtype} and shape {x.shape}", hint="it takes a vector of integers")
    if not len(x):
        return creation.zeros((minlength,), dtype=dtypes.int64 if weights is None else weights.dtype, device=x.device)
    ends = np.asarray([int(statistical.min(x)), int(statistical.max(x))])
    if ends[0] < 0:
        raise ArrayValueError(f"bincount of {ends[0]}", hint="its numbers are at least 0")
    n = max(int(ends[1]) + 1, minlength)
    order = sorting.argsort(x)
    edges = searching.searchsorted(
        manipulation.take(x, order, axis=0), creation.arange(n + 1, dtype=x.dtype, device=x.device)
    )
    if weights is None:
        return edges[1:] - edges[:-1]
    running = statistical.cumulative_sum(manipulation.take(weights, order, axis=0), include_initial=True)
    return manipulation.take(running, edges[1:], axis=0) - manipulation.take(running, edges[:-1], axis=0)


def histogram(x: Array, bins: Any = 10, range: tuple[float, float] | None = None) -> tuple[Array, Array]:
    """(counts, edges) of `bins` bins of equal width over `range`, by default from the least to the greatest; or between given edges."""
    flat = ravel(x)
    if not dtypes.is_float(flat.dtype):
        flat = manipulation.astype(flat, dtypes.DEFAULT_FLOAT)
    if isinstance(bins, int):
        low, high = (float(statistical.min(flat)), float(statistical.max(flat))) if range is None else range
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        edges = creation.linspace(low, high, bins + 1, dtype=flat.dtype, device=x.device)
    else:
        edges = bins
    ordered = sorting.sort(flat)
    places = searching.searchsorted(ordered, edges[:-1])
    last = searching.searchsorted(ordered, edges[-1:], side="right")  # the last bin has both of its ends
    ends = manipulation.concat([places, last])
    return ends[1:] - ends[:-1], edges


def digitize(x: Array, bins: Array, right: bool = False) -> Array:
    """The bin of each element, between ascending edges."""
    return searching.searchsorted(bins, x, side="left" if right else "right")


def interp(x: Array, xp: Array, fp: Array) -> Array:
    """The straight lines through the points (xp, fp), xp ascending, at x; beyond them the last values."""
    n = len(xp)
    flat = ravel(x)
    k = elementwise.clip(searching.searchsorted(xp, flat, side="right"), 1, n - 1)
    x0, x1, y0, y1 = (manipulation.take(v, i, axis=0) for v in (xp, fp) for i in (k - 1, k))
    part = elementwise.clip((flat - x0) / (x1 - x0), 0.0, 1.0)
    return manipulation.reshape(y0 + (y1 - y0) * part, x.shape)


def unique(x: Array, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The distinct elements in order, and with them what is asked for."""
    if not (return_index or return_inverse or return_counts):
        return sets.unique_values(x)
    found = sets.unique_all(x)
    asked = ((return_index, found[1]), (return_inverse, found[2]), (return_counts, found[3]))
    return (found[0], *[v for wanted, v in asked if wanted])


# ---- comparing


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Array:
    """Where |a - b| <= atol + rtol |b|, or both are the same infinity."""
    near = elementwise.abs(a - b) <= atol + rtol * (elementwise.abs(b) if isinstance(b, Array) else abs(b))
    return elementwise.logical_or(near, a == b)


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Whether `isclose` holds everywhere. Computes."""
    return bool(statistical.all(isclose(a, b, rtol, atol)))


def array_equal(a: Array, b: Array) -> bool:
    """Whether shapes and elements are the same. Computes."""
    return a.shape == b.shape and bool(statistical.all(elementwise.equal(a, b)))


def logaddexp2(a: Array, b: Array) -> Array:
    """log2(2**a + 2**b)."""
    return elementwise.logaddexp(a * math.log(2), b * math.log(2)) * (1 / math.log(2))


def fmod(a: Any, b: Any) -> Array:
    """The rest of the division, with the sign of `a`."""
    rest = elementwise.remainder(
        elementwise.abs(a) if isinstance(a, Array) else abs(a), elementwise.abs(b) if isinstance(b, Array) else abs(b)
    )
    return searching.where(a < 0, -rest, rest)


def deg2rad(x: Array) -> Array:
    """Degrees in radians."""
    return x * (math.pi / 180)


def rad2deg(x: Array) -> Array:
    """Radians in degrees."""
    return x * (180 / math.pi)


def exp2(x: Array) -> Array:
    """2**x."""
    return elementwise.pow(creation.full((), 2.0, dtype=x.dtype, device=x.device), x)


def cbrt(x: Array) -> Array:
    """The cube root."""
    return elementwise.copysign(elementwise.pow(elementwise.abs(x), 1 / 3), x)
