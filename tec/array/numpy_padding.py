"""NumPy's `pad` (`numpy_names`), written in functions of the standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import creation, dtypes, elementwise, manipulation, statistical
from .array import Array
from .errors import ArrayTypeError, ArrayValueError
from .numpy_shapes import _value

_MODES = "constant edge reflect symmetric wrap maximum minimum mean linear_ramp empty".split()
_INDEXED = ("edge", "reflect", "symmetric", "wrap")


def pad(x: Array, pad_width: Any, mode: str = "constant", **options: Any) -> Array:
    """Return the array with elements around it.

    pad_width: a number, (before, after), or such a pair for each dimension. mode: "constant" (`constant_values`, 0), "edge" (the
    outermost element), "reflect" and "symmetric" (mirrored without and with it), "wrap" (from the other end), "maximum", "minimum" and "mean"
    of the line, "linear_ramp" (to `end_values`, 0) or "empty". The values of an option have the form of `pad_width`.
    Raises ArrayValueError for another mode, ArrayTypeError for an option that the mode does not have.
    """
    if mode not in _MODES:
        raise ArrayValueError(f"pad(mode={mode!r})", hint=f"modes: {', '.join(_MODES)}")
    known = {"constant": "constant_values", "linear_ramp": "end_values"}.get(mode)
    if set(options) - {known}:
        raise ArrayTypeError(
            f"pad(mode={mode!r}) has no {', '.join(sorted(set(options) - {known}))}",
            hint=f"its option: {known}" if known else "it has no options",
        )
    widths = _pairs(pad_width, x.ndim)
    if min((n for w in widths for n in w), default=0) < 0:
        raise ArrayValueError(f"pad by {pad_width}", hint="widths are at least 0")
    values = _pairs(options.get(known or "", 0), x.ndim)
    made = x
    for k, (width, value) in enumerate(zip(widths, values)):
        if width != [0, 0]:
            made = _along(made, k, width, mode, value)
    return _value(x) if made is x else made


def _pairs(given: Any, ndim: int) -> list[list[Any]]:
    try:
        found: list[list[Any]] = np.broadcast_to(np.asarray(given), (ndim, 2)).tolist()
    except ValueError:
        raise ArrayValueError(
            f"pad of {ndim} dimensions by {given}", hint="a number, a pair, or a pair for each"
        ) from None
    return found


def _along(x: Array, k: int, width: list[int], mode: str, value: list[Any]) -> Array:
    n = x.shape[k]
    if not n and mode not in ("constant", "empty", "linear_ramp"):
        raise ArrayValueError(f"pad(mode={mode!r}) along an axis of 0 elements", hint='mode="constant" fills it')
    if mode in _INDEXED:  # NumPy's own rule, of places in the place of elements
        places = np.pad(np.arange(n), width, mode=mode)  # type: ignore[call-overload]
        return manipulation.take(x, creation.asarray(places, device=x.device), axis=k)
    lead = (slice(None),) * k
    sides = []
    for side, (m, v) in enumerate(zip(width, value)):
        shape = (*x.shape[:k], m, *x.shape[k + 1 :])
        if mode in ("constant", "empty"):
            sides.append(creation.full(shape, v, dtype=x.dtype, device=x.device))
        elif mode == "linear_ramp":
            edge = x[(*lead, slice(n - 1, n) if side else slice(0, 1))]
            sides.append(_ramp(edge, k, m, v, bool(side)))
        else:
            one = _LINES[mode](x, axis=k, keepdims=True)
            sides.append(manipulation.broadcast_to(one, shape))
    return manipulation.concat([sides[0], x, sides[1]], axis=k)


def _mean(x: Array, axis: int, keepdims: bool) -> Array:
    if dtypes.is_float(x.dtype) or dtypes.is_complex(x.dtype):
        return statistical.mean(x, axis=axis, keepdims=keepdims)
    wide = statistical.mean(manipulation.astype(x, dtypes.float64), axis=axis, keepdims=keepdims)
    return manipulation.astype(elementwise.round(wide), x.dtype)


def _ramp(edge: Array, k: int, m: int, end: Any, behind: bool) -> Array:
    """`m` slices in equal steps between an edge, which is not among them, and a number, which is."""
    parts = np.arange(m, 0, -1) / max(m, 1)  # how far from the edge each slice lies
    line = creation.asarray(parts[::-1] if behind else parts, dtype=dtypes.float64, device=edge.device)
    line = manipulation.reshape(line, tuple(m if d == k else 1 for d in range(edge.ndim)))
    wide = manipulation.astype(edge, dtypes.float64)
    made = wide + (float(end) - wide) * line
    if dtypes.is_int(edge.dtype):  # NumPy rounds down
        made = elementwise.floor(made)
    return manipulation.astype(made, edge.dtype)


_LINES: dict[str, Callable[..., Array]] = {"maximum": statistical.max, "minimum": statistical.min, "mean": _mean}
