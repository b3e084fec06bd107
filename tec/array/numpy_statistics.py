"""NumPy's statistics and histograms that the standard leaves out (`numpy_names`), written in functions of the standard."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import creation, dtypes, elementwise, manipulation, searching, sets, sorting, statistical
from .array import Array
from .errors import ArrayTypeError, ArrayValueError
from .node import decides
from .numpy_shapes import _beside, _value, ravel

# ---- statistics


def amax(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """`max`."""
    return statistical.max(x, axis=axis, keepdims=keepdims)


def amin(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """`min`."""
    return statistical.min(x, axis=axis, keepdims=keepdims)


def ptp(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """The greatest less the least."""
    return amax(x, axis, keepdims) - amin(x, axis, keepdims)


def cumsum(x: Array, axis: int | None = None, dtype: Any = None) -> Array:
    """Running sums along `axis`, by default of all elements in order."""
    return statistical.cumulative_sum(ravel(x) if axis is None else x, axis=0 if axis is None else axis, dtype=dtype)


def cumprod(x: Array, axis: int | None = None, dtype: Any = None) -> Array:
    """Running products along `axis`, by default of all elements in order."""
    return statistical.cumulative_prod(ravel(x) if axis is None else x, axis=0 if axis is None else axis, dtype=dtype)


def average(x: Array, axis: Any = None, weights: Array | None = None, keepdims: bool = False) -> Array:
    """The mean, or the one weighted by `weights`: of the same shape, or a vector of one weight for each place along `axis`."""
    if weights is None:
        return statistical.mean(x, axis=axis, keepdims=keepdims)
    if weights.shape != x.shape:
        if not isinstance(axis, int) or weights.shape != (x.shape[manipulation.axis_of(axis, x.ndim)],):
            raise ArrayValueError(
                f"average of shape {x.shape} along {axis} with weights of shape {weights.shape}",
                hint="weights of the same shape, or a vector along an axis that is given",
            )
        along = [1] * x.ndim
        along[axis] = -1
        weights = manipulation.broadcast_to(manipulation.reshape(weights, tuple(along)), x.shape)
    total = statistical.sum(x * weights, axis=axis, keepdims=keepdims)
    return total / statistical.sum(weights, axis=axis, keepdims=keepdims)


def _by_parts(q: Any, of_one: Callable[[float], Array]) -> Array:
    """What stands for each of several parts, along new first dimensions."""
    each = np.asarray(q.tolist() if isinstance(q, Array) else q)
    made = [of_one(float(v)) for v in each.reshape(-1)]
    return manipulation.reshape(manipulation.stack(made), (*each.shape, *made[0].shape))


def quantile(x: Array, q: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """The value below which the part `q` lies, interpolated between neighbours; NaN where an element is. Of several parts (a list
    or an array) the values along a new first dimension."""
    if isinstance(q, Array) or np.ndim(q):
        return _by_parts(q, lambda part: quantile(x, part, axis, keepdims))
    if not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise ArrayValueError(f"quantile {q!r}", hint="a number from 0 to 1")
    k = 0 if axis is None else manipulation.axis_of(axis, x.ndim)
    ordered = sorting.sort(ravel(x) if axis is None else x, axis=k)
    if not dtypes.is_float(ordered.dtype):
        ordered = manipulation.astype(ordered, dtypes.DEFAULT_FLOAT)
    lead, at = (slice(None),) * k, q * (ordered.shape[k] - 1)
    if not ordered.shape[k]:
        raise ArrayValueError(f"a quantile of no elements: shape {x.shape} along {axis}", hint="test x.size first")
    below, above, last = (ordered[(*lead, i)] for i in (math.floor(at), math.ceil(at), -1))
    between = below + (above - below) * (at - math.floor(at))
    # Infinities that are equal have no difference; NaN is sorted to the end.
    made = searching.where(elementwise.isnan(last), last, searching.where(below == above, below, between))
    if keepdims:
        made = manipulation.reshape(made, tuple(1 if axis is None or d == k else n for d, n in enumerate(x.shape)))
    return made


def percentile(x: Array, q: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """`quantile` of q / 100."""
    return quantile(x, np.asarray(q) / 100 if np.ndim(q) else q / 100, axis, keepdims)


def median(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    """The middle value, or the mean of the two in the middle; NaN where an element is."""
    return quantile(x, 0.5, axis, keepdims)


def nanquantile(x: Array, q: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """`quantile` of what is not NaN; NaN where nothing else is."""
    if isinstance(q, Array) or np.ndim(q):
        return _by_parts(q, lambda part: nanquantile(x, part, axis, keepdims))
    if not _has_nan(x):
        return quantile(x, q, axis, keepdims)
    if not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise ArrayValueError(f"nanquantile {q!r}", hint="a number from 0 to 1")
    k = 0 if axis is None else manipulation.axis_of(axis, x.ndim)
    held = ravel(x) if axis is None else x
    there = statistical.count_nonzero(elementwise.logical_not(elementwise.isnan(held)), axis=k, keepdims=True)
    ordered = sorting.sort(held, axis=k)
    at = manipulation.astype(elementwise.maximum(there - 1, 0), held.dtype) * q
    low = manipulation.astype(elementwise.floor(at), dtypes.int64)
    high = manipulation.astype(elementwise.ceil(at), dtypes.int64)
    below, above = (manipulation.take_along_axis(ordered, i, axis=k) for i in (low, high))
    part = at - elementwise.floor(at)
    made = searching.where(below == above, below, below + (above - below) * part)
    made = searching.where(there == 0, math.nan, made)
    if axis is None:
        return manipulation.reshape(made, (1,) * x.ndim if keepdims else ())
    return made if keepdims else manipulation.squeeze(made, axis=k)


def nanpercentile(x: Array, q: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """`nanquantile` of q / 100."""
    return nanquantile(x, np.asarray(q) / 100 if np.ndim(q) else q / 100, axis, keepdims)


def nanmedian(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    """The middle value of what is not NaN."""
    return nanquantile(x, 0.5, axis, keepdims)


def nan_to_num(x: Array, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Array:
    """Numbers in place of NaN and infinities."""
    if dtypes.is_complex(x.dtype):
        re, im = (nan_to_num(part, nan, posinf, neginf) for part in (elementwise.real(x), elementwise.imag(x)))
        return re + im * 1j
    if not dtypes.is_float(x.dtype):
        return _value(x)
    most = float(dtypes.finfo(x.dtype).max)
    out = searching.where(elementwise.isnan(x), nan, x)
    out = searching.where(out == math.inf, most if posinf is None else posinf, out)
    return searching.where(out == -math.inf, -most if neginf is None else neginf, out)


def _filled(x: Array, value: float) -> Array:
    """A number in the place of NaN, which integers have not."""
    return searching.where(elementwise.isnan(x), value, x) if _has_nan(x) else x


def _has_nan(x: Array) -> Any:
    return dtypes.is_float(x.dtype) or dtypes.is_complex(x.dtype)


def nansum(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """The sum of what is not NaN."""
    return statistical.sum(_filled(x, 0.0), axis=axis, keepdims=keepdims)


def nanmean(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """The mean of what is not NaN."""
    if not _has_nan(x):
        return statistical.mean(x, axis=axis, keepdims=keepdims)
    held = manipulation.astype(elementwise.logical_not(elementwise.isnan(x)), x.dtype)
    return nansum(x, axis, keepdims) / statistical.sum(held, axis=axis, keepdims=keepdims)


def nanprod(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """The product of what is not NaN."""
    return statistical.prod(_filled(x, 1.0), axis=axis, keepdims=keepdims)


def nancumsum(x: Array, axis: int | None = None) -> Array:
    """Running sums of what is not NaN."""
    return cumsum(_filled(x, 0.0), axis)


def nanvar(x: Array, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Array:
    """The variance of what is not NaN."""
    if not _has_nan(x):
        return statistical.var(x, axis=axis, correction=ddof, keepdims=keepdims)
    there = elementwise.logical_not(elementwise.isnan(x))
    apart = searching.where(there, x - nanmean(x, axis, keepdims=True), 0.0)
    left = statistical.sum(manipulation.astype(there, x.dtype), axis=axis, keepdims=keepdims) - ddof
    made = statistical.sum(elementwise.square(apart), axis=axis, keepdims=keepdims) / left
    return searching.where(left > 0, made, math.nan)


def nanstd(x: Array, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Array:
    """The standard deviation of what is not NaN."""
    return elementwise.sqrt(nanvar(x, axis, ddof, keepdims))


def _nan_extreme(x: Array, f: Any, least: float, axis: Any, keepdims: bool) -> Array:
    found: Array = f(_filled(x, least), axis=axis, keepdims=keepdims)
    if not _has_nan(x):
        return found
    none = statistical.all(elementwise.isnan(x), axis=axis, keepdims=keepdims)
    return searching.where(none, math.nan, found)


def nanmax(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """The greatest of what is not NaN; NaN where all are."""
    return _nan_extreme(x, statistical.max, -math.inf, axis, keepdims)


def nanmin(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """The least of what is not NaN; NaN where all are."""
    return _nan_extreme(x, statistical.min, math.inf, axis, keepdims)


# ---- histograms


def bincount(x: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    """Count each number from 0 on in a vector of integers, or sum its weights in float64. The largest number decides the length, so it is computed at once."""
    if not dtypes.is_int(x.dtype) or x.ndim != 1:
        raise ArrayTypeError(f"bincount of {x.dtype} and shape {x.shape}", hint="it takes a vector of integers")
    if weights is not None and weights.shape != x.shape:
        raise ArrayValueError(
            f"bincount of {len(x)} numbers with weights of shape {weights.shape}", hint="a weight for each element"
        )
    if not len(x):
        return creation.zeros((minlength,), dtype=dtypes.int64 if weights is None else dtypes.float64, device=x.device)
    decides(x._node, "the length of bincount")
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
    return _sums_between(manipulation.astype(manipulation.take(weights, order, axis=0), dtypes.float64), edges)


def _sums_between(x: Array, edges: Array) -> Array:
    """The sums of x[edges[i]:edges[i + 1]]: differences of one running sum, of what is finite; infinities and NaN are counted. Computes whether there are some."""

    def sums(v: Array) -> Array:
        running = statistical.cumulative_sum(v, include_initial=True)
        return manipulation.take(running, edges[1:], axis=0) - manipulation.take(running, edges[:-1], axis=0)

    finite = elementwise.isfinite(x)
    if bool(statistical.all(finite)):
        return sums(x)
    total = sums(searching.where(finite, x, 0.0))
    for value, there in ((math.inf, x == math.inf), (-math.inf, x == -math.inf), (math.nan, elementwise.isnan(x))):
        total = total + searching.where(sums(manipulation.astype(there, dtypes.int64)) > 0, value, _zero(total))
    return total


def _zero(beside: Array) -> Array:
    return creation.zeros((), dtype=beside.dtype, device=beside.device)


def histogram(
    x: Array,
    bins: Any = 10,
    range: tuple[float, float] | None = None,
    density: bool = False,
    weights: Array | None = None,
) -> tuple[Array, Array]:
    """(counts, edges) of `bins` bins of equal width over `range`, by default from the least to the greatest; or between given edges.

    weights: what each element counts, and the type of the counts. density: the counts over their sum and the widths of the bins.
    """
    flat, edges = _binned(x, bins, range, "histogram")
    if weights is not None and weights.shape != x.shape:
        raise ArrayValueError(
            f"histogram of shape {x.shape} with weights of shape {weights.shape}", hint="a weight for each element"
        )
    order = None if weights is None else sorting.argsort(flat)
    ordered = sorting.sort(flat) if order is None else flat[order]
    places = searching.searchsorted(ordered, edges[:-1])
    last = searching.searchsorted(ordered, edges[-1:], side="right")  # the last bin has both of its ends
    ends = manipulation.concat([places, last])
    if weights is not None:
        ends = statistical.cumulative_sum(ravel(weights)[order], include_initial=True)[ends]
    counts = ends[1:] - ends[:-1]
    if not density:
        return counts, edges
    counts = manipulation.astype(counts, edges.dtype)
    return counts / statistical.sum(counts) / (edges[1:] - edges[:-1]), edges


def histogram2d(
    x: Array, y: Array, bins: Any = 10, range: Any = None, density: bool = False, weights: Array | None = None
) -> tuple[Array, Array, Array]:
    """(counts, edges of x, edges of y) of pairs: one number or row of edges for both, or one for each."""
    both = isinstance(bins, (tuple, list)) and len(bins) == 2
    edges, places = [], []
    for k, v in enumerate((x, y)):
        v, mine = _binned(v, bins[k] if both else bins, None if range is None else range[k], "histogram2d")
        n = len(mine) - 1
        at = searching.searchsorted(mine, v, side="right") - 1
        at = searching.where(v == mine[-1], n - 1, at)  # the last bin has both of its ends
        edges.append(mine)
        places.append((at, (at >= 0) & (at < n), n))
    (i, inside, n), (j, within, m) = places
    # What lies outside is counted behind the last bin.
    at = searching.where(inside & within, i * m + j, n * m)
    made = bincount(at, None if weights is None else ravel(weights), minlength=n * m + 1)[: n * m]
    counts = manipulation.reshape(manipulation.astype(made, dtypes.float64), (n, m))
    if density:
        widths = [manipulation.astype(e[1:] - e[:-1], dtypes.float64) for e in edges]
        counts = counts / statistical.sum(counts) / manipulation.expand_dims(widths[0], 1) / widths[1]
    return counts, edges[0], edges[1]


def _binned(x: Array, bins: Any, range: tuple[float, float] | None, name: str) -> tuple[Array, Array]:
    """The elements in one row, as floats, and the edges of their bins."""
    flat = ravel(x)
    if not dtypes.is_float(flat.dtype):
        flat = manipulation.astype(flat, dtypes.DEFAULT_FLOAT)
    if isinstance(bins, (int, np.integer)):
        return flat, creation.linspace(
            *_range(flat, int(bins), range), int(bins) + 1, dtype=flat.dtype, device=x.device
        )
    edges = _beside(bins, x)
    if not _ascends(edges):
        raise ArrayValueError(f"{name} between edges that do not ascend", hint="tec.array.sort(edges)")
    return flat, edges


def _range(x: Array, bins: int, given: tuple[float, float] | None) -> tuple[float, float]:
    if bins < 1:
        raise ArrayValueError(f"histogram of {bins} bins", hint="at least one")
    if not given:
        decides(x._node, "the range of a histogram without range=")
    low, high = given or ((float(statistical.min(x)), float(statistical.max(x))) if x.size else (0.0, 1.0))
    if not low <= high or math.isinf(low) or math.isinf(high):
        raise ArrayValueError(f"histogram from {low} to {high}", hint="range=(low, high), finite and ascending")
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _ascends(edges: Array) -> bool:
    return bool(statistical.all(edges[1:] >= edges[:-1]))


def digitize(x: Array, bins: Any, right: bool = False) -> Array:
    """The bin of each element, between edges that ascend or descend. Computes which."""
    bins = _beside(bins, x)
    side = "left" if right else "right"
    if _ascends(bins):
        return searching.searchsorted(bins, x, side=side)
    backwards = manipulation.flip(bins)
    if not _ascends(backwards):
        raise ArrayValueError("digitize between edges that neither ascend nor descend", hint="tec.array.sort(edges)")
    return len(bins) - searching.searchsorted(backwards, x, side=side)


def interp(x: Array, xp: Any, fp: Any) -> Array:
    """The straight lines through the points (xp, fp), xp ascending, at x; beyond them the last values."""
    xp, fp = _beside(xp, x), _beside(fp, x)
    n = len(xp)
    flat = ravel(x)
    k = elementwise.clip(searching.searchsorted(xp, flat, side="right"), 1, n - 1)
    x0, x1, y0, y1 = (manipulation.take(v, i, axis=0) for v in (xp, fp) for i in (k - 1, k))
    part = elementwise.clip((flat - x0) / (x1 - x0), 0.0, 1.0)
    return manipulation.reshape(y0 + (y1 - y0) * part, x.shape)


def unique(
    x: Array,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    equal_nan: bool = True,
) -> Any:
    """The distinct elements in order, and with them what is asked for. NaN stands once, unless `equal_nan` is false. axis: the distinct slices along it."""
    asked = (return_index, return_inverse, return_counts)
    if axis is not None:
        return _unique_slices(x, manipulation.axis_of(axis, x.ndim), asked)
    values, index, inverse, counts = sets.unique_all(x)
    none = int(statistical.count_nonzero(elementwise.isnan(values))) if equal_nan and _has_nan(x) else 0
    if none > 1:  # they stand at the end, each for itself
        n = len(values) - none + 1
        values, index, inverse = values[:n], index[:n], elementwise.minimum(inverse, n - 1)
        counts = manipulation.concat([counts[: n - 1], creation.full((1,), none, dtype=counts.dtype, device=x.device)])
    rest = [v for wanted, v in zip(asked, (index, inverse, counts)) if wanted]
    return (values, *rest) if rest else values


def _unique_slices(x: Array, axis: int, asked: tuple[bool, bool, bool]) -> Any:
    """The distinct slices along an axis, in the order of their elements, and what is asked for."""
    moved = manipulation.moveaxis(x, axis, 0)
    count = moved.shape[0]
    rows = manipulation.reshape(moved, (count, moved.size // (count or 1)))
    order = creation.arange(count, device=x.device)
    for k in reversed(range(rows.shape[1])):  # stable sorts by the last element first
        order = order[sorting.argsort(rows[:, k][order])]
    held = rows[order]
    first = creation.ones((min(count, 1),), dtype=dtypes.bool, device=x.device)
    begins = manipulation.concat([first, statistical.any(held[1:] != held[:-1], axis=1)]) if count > 1 else first
    starts = searching.nonzero(begins)[0]
    values = manipulation.moveaxis(moved[order[starts]], 0, axis)
    number = statistical.cumulative_sum(manipulation.astype(begins, dtypes.int64)) - 1
    inverse = number[sorting.argsort(order)]
    ends = manipulation.concat(
        [starts[1:], creation.full((min(count, 1),), count, dtype=starts.dtype, device=x.device)]
    )
    rest = [v for wanted, v in zip(asked, (order[starts], inverse, ends - starts)) if wanted]
    return (values, *rest) if rest else values
