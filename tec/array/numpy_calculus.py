"""NumPy's differences, integrals, covariances and polynomials (`numpy_names`), written in functions of the standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import creation, dtypes, elementwise, linalg, manipulation, products, searching, statistical
from .array import Array
from .errors import ArrayTypeError, ArrayValueError
from .host import on_host
from .numpy_elementwise import _floating
from .numpy_padding import pad
from .numpy_shapes import _beside, convolve, ravel


def matvec(x1: Array, x2: Array) -> Array:
    """Matrices, the last two dimensions, times vectors, the last one."""
    return products.matmul(x1, manipulation.expand_dims(x2, -1))[..., 0]


def vecmat(x1: Array, x2: Array) -> Array:
    """Vectors, the last dimension, conjugated, times matrices, the last two."""
    return products.matmul(manipulation.expand_dims(elementwise.conj(x1), -2), x2)[..., 0, :]


def gradient(x: Array, *spacing: Any, axis: int | Sequence[int] | None = None, edge_order: int = 1) -> Any:
    """Central differences in the interior and one-sided ones at the ends, along `axis` (all where it is left out).

    spacing: nothing (1), one number, or for each axis a number or the vector of its coordinates. edge_order: 1 or 2, the order
    of accuracy at the ends. Returns an array, or a list of one for each axis. Raises ArrayValueError for an axis of fewer than
    edge_order + 1 elements.
    """
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    if edge_order not in (1, 2):
        raise ArrayValueError(f"gradient(edge_order={edge_order!r})", hint="1 or 2")
    if len(spacing) > 1 and len(spacing) != len(axes):
        raise ArrayTypeError(
            f"gradient along {len(axes)} axes with {len(spacing)} spacings", hint="one for all, or one for each"
        )
    steps = spacing * len(axes) if len(spacing) == 1 else spacing or (1.0,) * len(axes)
    values = _floating(x)
    made = [_gradient(values, manipulation.axis_of(k, x.ndim), h, edge_order) for k, h in zip(axes, steps)]
    return made[0] if len(made) == 1 and not (axis is None and x.ndim != 1) else made


def _gradient(x: Array, k: int, spacing: Any, order: int) -> Array:
    """The derivative along axis `k` by differences: central ones inside, one-sided ones of `order` at both ends. spacing: a distance, or the coordinates of
    all elements."""
    n = x.shape[k]
    if n < order + 1:
        raise ArrayValueError(f"gradient along {n} elements", hint=f"at least {order + 1}")
    lead = (slice(None),) * k

    def at(*where: int | None) -> Array:
        return x[(*lead, slice(*where))]

    if isinstance(spacing, Array) and not spacing.ndim:
        return _gradient(x, k, float(spacing), order)
    if np.ndim(spacing) == 0 and not isinstance(spacing, Array):
        h = float(spacing)
        inner = (at(2, None) - at(0, n - 2)) / (2 * h)
        ends = [(at(1, 2) - at(0, 1)) / h, (at(n - 1, n) - at(n - 2, n - 1)) / h]
        if order == 2:
            ends = [
                (at(0, 1) * -1.5 + at(1, 2) * 2.0 - at(2, 3) * 0.5) / h,
                (at(n - 3, n - 2) * 0.5 - at(n - 2, n - 1) * 2.0 + at(n - 1, n) * 1.5) / h,
            ]
        return manipulation.concat([ends[0], inner, ends[1]], axis=k)
    where = _beside(spacing, x)
    if where.shape != (n,):
        raise ArrayValueError(
            f"gradient along {n} elements with coordinates of shape {where.shape}",
            hint="one coordinate for each element along the axis, or one step",
        )
    gap = manipulation.reshape(_floating(where[1:] - where[:-1]), tuple(n - 1 if d == k else 1 for d in range(x.ndim)))

    def of(first: int, stop: int) -> Array:
        return gap[(*lead, slice(first, stop))]

    slope = (at(1, None) - at(0, n - 1)) / gap
    before, after = of(0, n - 2), of(1, n - 1)
    # The parabola through three points: each side's slope weighted by the other side's gap.
    inner = (slope[(*lead, slice(0, n - 2))] * after + slope[(*lead, slice(1, None))] * before) / (before + after)
    first, last = slope[(*lead, slice(0, 1))], slope[(*lead, slice(n - 2, n - 1))]
    if order == 2:
        a, b, y, z = of(0, 1), of(1, 2), of(n - 3, n - 2), of(n - 2, n - 1)
        first, last = (
            first + (first - slope[(*lead, slice(1, 2))]) * a / (a + b),
            last + (last - slope[(*lead, slice(n - 3, n - 2))]) * z / (y + z),
        )
    return manipulation.concat([first, inner, last], axis=k)


def trapezoid(y: Array, x: Any = None, dx: float = 1.0, axis: int = -1) -> Array:
    """The integral along `axis` by the trapezoidal rule, of samples `dx` apart or at the coordinates `x`."""
    k = manipulation.axis_of(axis, y.ndim)
    lead = (slice(None),) * k
    values = _floating(y)
    pairs = values[(*lead, slice(1, None))] + values[(*lead, slice(0, -1))]
    if x is None:
        return statistical.sum(pairs, axis=k) * (0.5 * dx)
    where = _beside(x, y)
    if where.ndim == 1:
        where = manipulation.reshape(where, tuple(-1 if d == k else 1 for d in range(y.ndim)))
    return statistical.sum(pairs * statistical.diff(where, axis=k) * 0.5, axis=k)


def ediff1d(x: Array) -> Array:
    """The differences of neighbours, of all elements in order."""
    return statistical.diff(ravel(x))


# ---- covariances


def cov(
    m: Array,
    y: Array | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: float | None = None,
) -> Array:
    """The covariance matrix of variables, one a row (one a column for `rowvar` False); those of `y` behind those of `m`.

    bias: divide by the number of observations and not by one less; `ddof` says what to subtract from it.
    """

    def rows(v: Array) -> Array:
        if v.ndim > 2:
            raise ArrayValueError(f"cov of an array of {v.ndim} dimensions", hint="vectors and matrices")
        wide = manipulation.reshape(v, (1, -1)) if v.ndim < 2 else v if rowvar else v.T
        return _floating(wide)

    held = rows(m) if y is None else manipulation.concat([rows(m), rows(y)], axis=0)
    left = held.shape[1] - (ddof if ddof is not None else 0 if bias else 1)
    centred = held - statistical.mean(held, axis=1, keepdims=True)
    made = products.matmul(centred, elementwise.conj(centred).T) / float(max(left, 0))
    return manipulation.squeeze(made)


def corrcoef(x: Array, y: Array | None = None, rowvar: bool = True) -> Array:
    """The correlation coefficients of variables, one a row (one a column for `rowvar` False), from -1 to 1."""
    c = cov(x, y, rowvar)
    if not c.ndim:
        return c / c
    spread = elementwise.sqrt(elementwise.real(linalg.diagonal(c)))
    made = c / spread[:, None] / spread[None, :]
    return made if dtypes.is_complex(made.dtype) else elementwise.clip(made, -1.0, 1.0)


def correlate(a: Array, v: Array, mode: str = "valid") -> Array:
    """The sums of products of a vector with a shifted one: "valid", "same" or "full"."""
    if v.shape[0] > a.shape[0]:  # the middle of an even number of sums is another one backwards
        return manipulation.flip(elementwise.conj(correlate(v, a, mode)))
    return convolve(a, elementwise.conj(manipulation.flip(v)), mode)


# ---- polynomials


def polyval(p: Any, x: Any) -> Array:
    """The polynomial with coefficients `p`, the highest power first, at `x`."""
    if not isinstance(x, Array):
        x = creation.asarray(x, device=p.device if isinstance(p, Array) else None)
    coefficients = [p[k] for k in range(len(p))]
    made = creation.zeros_like(x) if not coefficients else x * 0 + coefficients[0]
    for c in coefficients[1:]:
        made = made * x + c
    return made


def vander(x: Array, N: int | None = None, increasing: bool = False) -> Array:
    """The matrix of a vector's powers, the highest first."""
    if x.ndim != 1:
        raise ArrayValueError(f"vander of an array of {x.ndim} dimensions", hint="a vector")
    n = len(x) if N is None else N
    powers = [creation.ones_like(x)]
    while len(powers) < n:
        powers.append(powers[-1] * x)
    ordered = powers[:n] if increasing else powers[:n][::-1]
    return manipulation.stack(ordered, axis=1) if n else creation.zeros((len(x), 0), dtype=x.dtype, device=x.device)


def polyfit(x: Array, y: Array, deg: int) -> Array:
    """The coefficients of the polynomial of degree `deg` with the least squares of errors, the highest power first.

    Computed on the host by NumPy in float64, as the equations are badly conditioned. Raises ArrayValueError for another number of
    values than of points, and for a negative degree.
    """
    if x.ndim != 1 or not 1 <= y.ndim <= 2 or x.shape[0] != y.shape[0] or not x.shape[0]:
        raise ArrayValueError(f"polyfit of values {y.shape} at points {x.shape}", hint="as many values as points")
    if deg < 0:
        raise ArrayValueError(f"polyfit(deg={deg})", hint="at least 0")

    def fitted(a: Any, b: Any) -> Any:
        return np.polyfit(a.astype(np.float64), b.astype(np.float64), deg).astype(a.dtype)

    made: Array = on_host("polyfit", fitted, _floating(x)._node, _floating(y)._node)
    return made


def unwrap(p: Array, discont: float | None = None, axis: int = -1, *, period: float = 6.283185307179586) -> Array:
    """Angles without jumps: multiples of `period` are added so that neighbours along `axis` differ by at most half of it."""
    k = manipulation.axis_of(axis, p.ndim)
    values = _floating(p)
    steps = statistical.diff(values, axis=k)
    half = period / 2
    turned = elementwise.remainder(steps + half, period) - half
    turned = searching.where(elementwise.logical_and(turned == -half, steps > 0), half, turned)
    correct = searching.where(
        elementwise.abs(steps) < (half if discont is None else max(discont, half)), 0.0, turned - steps
    )
    widths = [(1, 0) if d == k else (0, 0) for d in range(p.ndim)]
    return values + pad(statistical.cumulative_sum(correct, axis=k), widths)
