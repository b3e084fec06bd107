"""Casts on the host, for types that no device computes in: strings, 4-bit and scale-only floats, sub-byte integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import ImportModelError
from tec.ir.dtype import ml_dtypes_name
from tec.te.evaluation import cast_array, np_dtype


def numpy_type(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of any dtype that ONNX has, strings as objects."""
    if dtype == "string":
        return np.dtype(object)
    try:
        return np_dtype(dtype)
    except Exception:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, ml_dtypes_name(dtype)))


def cast_on_host(x: Any, dtype: str, saturate: bool = True, round_mode: str = "up") -> Any:
    """`x` as `dtype`, as ONNX's Cast: 8-bit floats saturate to their largest value or, unsaturated, to inf or NaN."""
    if dtype == "string":
        return np.array([_text(v) for v in np.asarray(x).reshape(-1)], dtype=object).reshape(np.shape(x))
    if np.asarray(x).dtype == object:
        return _parse(x, dtype)
    to = numpy_type(dtype)
    if dtype == "float8_e8m0fnu":
        return _to_exponent(np.asarray(x).astype(np.float32), saturate, round_mode).view(to)
    if dtype.startswith(("float8", "float4", "float6")):
        return _to_small_float(np.asarray(x).astype(np.float32), to, saturate)
    if dtype.startswith(("int", "uint")) and to.itemsize == 1 and dtype not in ("int8", "uint8"):
        wide = np.asarray(x)
        if wide.dtype.kind not in "iub":
            wide = np.trunc(wide.astype(np.float32)).astype(np.int64)
        return wide.astype(np.int8).astype(to)
    if np.asarray(x).dtype.kind == "V" or dtype == "bool":
        return np.asarray(x).astype(np.float32).astype(to)
    return cast_array(np.asarray(x).astype(np.float32), dtype)


def _to_small_float(x: Any, to: np.dtype[Any], saturate: bool) -> Any:
    import ml_dtypes

    info = ml_dtypes.finfo(to)
    largest = float(info.max)
    with np.errstate(all="ignore"):
        y = x.astype(to)
        if saturate:
            over = np.abs(x) > largest
            y = np.where(over & ~np.isnan(x), np.copysign(largest, x), y.astype(np.float32)).astype(to)
    return y


def _to_exponent(x: Any, saturate: bool, round_mode: str) -> Any:
    """E8M0: 2 to the power of the byte less 127, for magnitudes; 255 is NaN, infinities too. `round_mode`: up, down, nearest."""
    if round_mode not in ("up", "down", "nearest"):
        raise ImportModelError(f"round_mode {round_mode!r}", hint="the standard knows up, down and nearest")
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(np.abs(x))  # fraction from 0.5 to 1
    power = np.where(x == 0, 0, exponent.astype(np.int64) + 126)
    # Subnormal numbers have no implied bit, and round as the numbers just above them do.
    low = np.abs(x) < np.float32(2.0**-126)
    more = {"up": fraction > 0.5, "down": fraction < 0, "nearest": fraction >= 0.75}[round_mode]
    if round_mode == "up":
        more = np.where(low, x != 0, more)
        power = np.where(low, 0, power)
    power = power + more
    power = np.clip(power, 0, 254 if saturate else 255)
    return np.where(np.isfinite(x), power, 255).astype(np.uint8)


def _text(v: Any) -> str:
    if isinstance(v, str):
        return v
    number = float(v)
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "INF" if number > 0 else "-INF"
    if np.asarray(v).dtype.kind in "iu":
        return str(int(v))
    return np.format_float_positional(v, trim="-") if 1e-5 <= abs(number) < 1e8 or number == 0 else str(v)


def _parse(x: Any, dtype: str) -> Any:
    flat = np.asarray(x).reshape(-1)
    try:
        if dtype.startswith(("int", "uint")):
            values = np.array([int(s) for s in flat], dtype=numpy_type(dtype))
        else:
            values = np.array([float(s) for s in flat], dtype=np.float64)
    except ValueError as e:
        raise ImportModelError(
            f"a text that is no {dtype}: {e}",
            hint="strings are cast as Python's float() and int() read them: mend the constant, or cast to another type",
        ) from None
    with np.errstate(all="ignore"):
        return values.astype(numpy_type(dtype)).reshape(np.shape(x))
