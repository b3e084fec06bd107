"""Data types as the runtime sees them: a name, its NumPy dtype, its DLPack code, and how a scalar of it is packed.

The runtime stands without the compiler, so it keeps this small table of its own. bfloat16 and the 8-bit floats are held
with ml_dtypes where that is installed, else as unsigned integers of the same width.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from ...errors import ArgumentError

# name: (bytes, DLPack type code, struct code of a scalar argument)
_TABLE: dict[str, tuple[int, int, str]] = {
    "bool": (1, 6, "?"),
    "int8": (1, 0, "b"), "int16": (2, 0, "h"), "int32": (4, 0, "i"), "int64": (8, 0, "q"),
    "uint8": (1, 1, "B"), "uint16": (2, 1, "H"), "uint32": (4, 1, "I"), "uint64": (8, 1, "Q"),
    "float16": (2, 2, "e"), "float32": (4, 2, "f"), "float64": (8, 2, "d"),
    "bfloat16": (2, 4, "H"), "float8_e4m3": (1, 10, "B"), "float8_e4m3fnuz": (1, 11, "B"), "float8_e5m2": (1, 12, "B"),
    "float8_e5m2fnuz": (1, 13, "B"),
    "complex64": (8, 5, ""), "complex128": (16, 5, ""),  # in memory alone: compiled code takes no such tensors or numbers
    "handle": (8, 3, "Q"),
}  # fmt: skip
_ML_DTYPES = {
    "bfloat16": "bfloat16", "float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2", "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
_FROM_ML = {v: k for k, v in _ML_DTYPES.items()}
_UINT = {1: "uint8", 2: "uint16"}


NUMPY_NAMES: dict[Any, str] = {}  # of the types of NumPy arrays that were met


def itemsize(dtype: str) -> int:
    """Bytes of one element."""
    try:
        return _TABLE[dtype][0]
    except (KeyError, TypeError):
        element, count = lanes(dtype)
        return _TABLE[element][0] * count


@cache
def lanes(dtype: str) -> tuple[str, int]:
    """The element of a dtype and how many there are: ("float32", 4) for "float32x4", 1 for a scalar's. ArgumentError for what is neither."""
    if isinstance(dtype, str):
        element, _, count = dtype.rpartition("x")
        if dtype in _TABLE:
            return dtype, 1
        if element in _TABLE and count.isdecimal() and int(count) > 1:
            return element, int(count)
    raise unknown(dtype)


def unknown(dtype: Any) -> ArgumentError:
    return ArgumentError(f"the runtime holds no dtype {dtype!r}", hint="dtypes: " + ", ".join(_TABLE))


@cache
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype that holds `dtype`, of a vector that of its elements."""
    dtype, _ = lanes(dtype)
    if dtype in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            return np.dtype(_UINT[_TABLE[dtype][0]])
        small: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))
        return small
    if dtype == "handle":
        return np.dtype(np.uint64)
    held: np.dtype[Any] = np.dtype(dtype)
    return held


@cache
def _name_of(dtype: Any) -> str:
    name: str = np.dtype(dtype).name
    return _FROM_ML.get(name, name)


DTypeLike: TypeAlias = str | type | np.dtype[Any]  # "float32", float, np.float32
ShapeLike: TypeAlias = int | Sequence[int]


def dtype_name(dtype: Any) -> str:
    """The tec name of a dtype given as text, NumPy dtype or NumPy type; ArgumentError where the runtime holds none."""
    if isinstance(dtype, str) and (dtype in _TABLE or (dtype[-1:].isdecimal() and "x" in dtype and lanes(dtype))):
        return dtype
    try:
        name = _name_of(dtype)
    except TypeError:
        name = str(dtype)
    if name not in _TABLE:
        raise unknown(dtype)
    if isinstance(dtype, np.dtype) and not dtype.isnative:
        raise ArgumentError(
            f"dtype {dtype!r} is not in the machine's byte order", hint="x.astype(x.dtype.newbyteorder('='))"
        )
    return name


def dlpack_type(dtype: str) -> tuple[int, int]:
    """(type code, bits) of DLPack's DLDataType."""
    return _TABLE[dtype][1], _TABLE[dtype][0] * 8


_FROM_DLPACK = {(code, size * 8): name for name, (size, code, _) in reversed(_TABLE.items())}


def from_dlpack_type(code: int, bits: int, lanes: int) -> str:
    """The dtype of a DLDataType; BufferError where the runtime holds none."""
    name = _FROM_DLPACK.get((code, bits)) if lanes == 1 else None
    if name is None:
        raise BufferError(f"no tec dtype for DLPack type code {code}, {bits} bits, {lanes} lanes")
    return name


def lost(value: Any, dtype: str) -> str | None:
    """Why a number cannot be one of `dtype`: a fraction, NaN or a number out of range as an integer, an imaginary part as a real number. None where it
    can; a float beyond the largest of a narrower type is infinity there, and any number is a bool."""
    if (type(value) is int and 0 <= value < 128) or (type(value) is float and is_float(lanes(dtype)[0])):
        return None
    kind = numpy_dtype(lanes(dtype)[0])
    if type(value) is int and value.bit_length() > 63:  # NumPy has no type for most of these
        return _too_long(value, dtype, kind)
    v = np.asarray(value)
    if v.ndim == 0 and v.dtype.kind in "USO":
        return f"{value!r} is no number"
    if v.ndim or v.dtype.kind not in "iufc":
        return None
    if v.dtype.kind == "c" and kind.kind not in "bc" and v.imag:
        return f"{value} is no real number"
    if kind.kind not in "iu":
        return None
    if not np.isfinite(v) or v.real != np.trunc(v.real):
        return f"{value} is no whole number"
    info = np.iinfo(kind)
    if not info.min <= int(v.real) <= info.max:
        return f"{value} is outside of {dtype}, which holds {info.min} to {info.max}"
    return None


def _too_long(value: int, dtype: str, kind: np.dtype[Any]) -> str | None:
    """`lost` of an integer that may be longer than any of NumPy's."""
    text = str(value) if value.bit_length() < 256 else f"an integer of {value.bit_length()} bits"
    if kind.kind in "iu":
        info = np.iinfo(kind)
        inside = info.min <= value <= info.max
        return None if inside else f"{text} is outside of {dtype}, which holds {info.min} to {info.max}"
    try:
        float(value)
    except OverflowError:
        return f"{text} is outside of {dtype}"
    return None


def as_numpy_takes(value: Any) -> Any:
    """A number of which `lost` says nothing, for NumPy: types beside its own take no integers of more than 64 bits."""
    return float(value) if type(value) is int and value.bit_length() > 64 else value


def check_number(value: Any, dtype: str, what: str) -> Any:
    """The number, as NumPy takes it. Raises ArgumentError for one that cannot be of `dtype`. what: what is done with it."""
    why = lost(value, dtype)
    if why is not None:
        raise ArgumentError(f"{why}: {what}", hint="convert the number, or give the array another type")
    return as_numpy_takes(value)


def check_fits(x: np.ndarray[Any, Any], name: str) -> None:
    """Raise ArgumentError where whole numbers that a user wrote are beyond an integer type: NumPy's arrays are cast, numbers are not."""
    held = numpy_dtype(name)
    if x.dtype.kind not in "iu" or held.kind not in "iu" or not x.size:
        return
    ends, low, high = np.iinfo(held), int(x.min()), int(x.max())
    if low < ends.min or high > ends.max:
        raise ArgumentError(
            f"{low if low < ends.min else high} does not fit {name} ({ends.min} to {ends.max})",
            hint=f"x.clip({ends.min}, {ends.max}) brings the values into the range, or take a wider type",
        )


def is_float(dtype: str) -> bool:
    return _TABLE[dtype][1] in (2, 4, 10, 12)


def struct_code(dtype: str) -> str:
    """The `struct` format of one scalar of `dtype`."""
    return _TABLE[dtype][2]


def to_bfloat16(value: float) -> int:
    """bfloat16 bits, rounded to nearest even; a NaN stays a NaN."""
    if value != value:
        return 0x7FC0
    try:
        bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0x7F80 if value > 0 else 0xFF80
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


def _ml_bits(dtype: str) -> Callable[[float], int]:
    def convert(value: float) -> int:
        held = numpy_dtype(dtype)
        if held.kind == "u":
            raise ArgumentError(f"a {dtype} scalar needs ml_dtypes", hint="pip install ml_dtypes")
        return int(np.array(value, held).view(np.uint8))

    return convert


def _to_float(limit: float) -> Callable[[float], float]:
    """Python floats are doubles: what does not fit the narrower type becomes an infinity, as a cast does."""

    def convert(value: float) -> float:
        value = float(value)
        if value != value or -limit < value < limit:
            return value
        return float("inf") if value > 0 else float("-inf")

    return convert


_F32_LIMIT = float.fromhex("0x1.ffffffp127")  # half way to 2**128: this and more round to infinity
_F16_LIMIT = 65520.0


@cache
def scalar_packer(dtype: str) -> Callable[[Any], Any]:
    """A function from a Python or NumPy scalar to what `struct.pack(struct_code(dtype), ...)` takes.

    Raises ArgumentError for a value out of the integer range, TypeError/ValueError for what is no number.
    """
    size, code, _ = _TABLE[dtype] if dtype in _TABLE else (itemsize(dtype), 0, "")
    if dtype == "bfloat16":
        return lambda v: to_bfloat16(float(v))
    if code in (10, 12):
        return _ml_bits(dtype)
    if dtype == "float32":
        return _to_float(_F32_LIMIT)
    if dtype == "float16":
        return _to_float(_F16_LIMIT)
    if dtype == "float64":
        return float
    if code == 5:
        raise ArgumentError(
            f"a number of {dtype} is no argument of compiled code", hint="its real and imaginary part are"
        )
    if dtype == "bool":
        return bool
    lo, hi = (-(1 << (size * 8 - 1)), (1 << (size * 8 - 1)) - 1) if code == 0 else (0, (1 << (size * 8)) - 1)

    def convert(value: Any) -> int:
        if isinstance(value, (float, np.floating)) and not float(value).is_integer():
            raise TypeError(f"{value!r} is no integer")
        number = int(value)
        if not lo <= number <= hi:
            raise ArgumentError(
                f"{number} is out of the range of {dtype} ({lo} to {hi})",
                hint="declare the argument with a wider type, such as int64, or pass a number in the range",
            )
        return number

    return convert
