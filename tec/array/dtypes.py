"""Data types of arrays: one object each, how they promote, and their limits.

A dtype is equal to the text that tec calls it by (`tec.array.float32 == "float32"`). Promotion is the standard's table;
what the table leaves open is decided here: an integer array with a float array gives the float's type (as PyTorch and JAX do), bool with numbers gives the
numbers' type, int with uint64 is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from ..errors import TecError
from ..runtime.arrays.dtypes import dtype_name, itemsize
from .errors import ArrayTypeError

_BOOL = bool


class DType:
    """A data type, equal to its name: `x.dtype == "float32"`.

    >>> xp.int32, xp.int32 == "int32"
    (tec.array.int32, True)
    """

    __slots__ = ("_hash", "name")

    def __init__(self, name: str):
        self.name = name
        self._hash = hash(name)

    def __eq__(self, other: object) -> Any:
        return self is other or (isinstance(other, str) and other == self.name)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"tec.array.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return as_dtype, (self.name,)


DTypeLike: TypeAlias = DType | str | type | np.dtype[Any]  # tec.array.float32, "float32", float, np.float32


bool = DType("bool")
int8, int16, int32, int64 = map(DType, ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = map(DType, ("uint8", "uint16", "uint32", "uint64"))
float16, bfloat16, float32, float64 = map(DType, ("float16", "bfloat16", "float32", "float64"))
complex64, complex128 = map(DType, ("complex64", "complex128"))

ALL: dict[str, DType] = {
    d.name: d
    for d in (
        bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64, complex64,
        complex128,
    )
}  # fmt: skip
# float16 and bfloat16 are beyond the standard.
STANDARD = tuple(d for d in ALL.values() if d not in ("float16", "bfloat16"))
KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (bool,),
    "signed integer": (int8, int16, int32, int64),
    "unsigned integer": (uint8, uint16, uint32, uint64),
    "integral": (int8, int16, int32, int64, uint8, uint16, uint32, uint64),
    "real floating": (float16, bfloat16, float32, float64),
    "complex floating": (complex64, complex128),
}
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"] + KINDS["complex floating"]
_FLOATS, _INTS = frozenset(KINDS["real floating"]), frozenset(KINDS["integral"])
_COMPLEX = frozenset(KINDS["complex floating"])
PART = {"complex64": float32, "complex128": float64}  # the type of a complex number's parts, and back
WHOLE = {"float32": complex64, "float64": complex128}
_SIGNED, _UNSIGNED = frozenset(KINDS["signed integer"]), frozenset(KINDS["unsigned integer"])
DEFAULT_FLOAT, DEFAULT_INT, DEFAULT_COMPLEX = float32, int64, complex64


def as_dtype(value: Any) -> DType:
    """The dtype that a dtype, its name, a NumPy type or Python's bool, int, float stands for. ArrayTypeError where there is none."""
    if type(value) is DType:
        return value
    builtin: dict[Any, DType] = {_BOOL: bool, int: DEFAULT_INT, float: DEFAULT_FLOAT, complex: DEFAULT_COMPLEX}
    try:
        found = builtin.get(value) or ALL.get(dtype_name(value))
    except (TypeError, ValueError, TecError):
        found = None
    if found is None:
        raise ArrayTypeError(f"arrays of dtype {value!r} are not there", hint=f"dtypes: {', '.join(ALL)}")
    return found


def is_float(d: DType) -> Any:
    return d in _FLOATS


def is_complex(d: DType) -> Any:
    return d in _COMPLEX


def is_int(d: DType) -> Any:
    return d in _INTS


def kind_rank(d: DType) -> int:
    """Bools, integers, floats and complex numbers as 0 to 3: what a value of the next kind does not fit into."""
    return 3 if is_complex(d) else 2 if is_float(d) else 1 if is_int(d) else 0


def is_signed(d: DType) -> Any:
    return d in _SIGNED


def bits(d: DType) -> int:
    return itemsize(d.name) * 8


@cache
def promote(a: DType, b: DType) -> DType:
    """The type that holds values of both. Raises ArrayTypeError where the two do not mix."""
    if a == b:
        return a
    if a in _FLOATS and b in _FLOATS:
        if bits(a) == bits(b):
            return float32  # float16 and bfloat16
        return a if bits(a) > bits(b) else b
    if "bool" in (a, b):
        return b if a == "bool" else a
    if a in _COMPLEX or b in _COMPLEX:
        doubles = [d for d in (a, b) if d in ("complex128", "float64")]
        return complex128 if doubles else complex64
    if a in _FLOATS or b in _FLOATS:
        return a if a in _FLOATS else b
    if (a in _SIGNED) == (b in _SIGNED):
        return a if bits(a) > bits(b) else b
    signed, unsigned = (a, b) if a in _SIGNED else (b, a)
    wide = max(bits(signed), 2 * bits(unsigned))
    if wide > 64:
        raise ArrayTypeError(
            f"no integer type holds {signed} and {unsigned}", hint="convert one of them with tec.array.astype"
        )
    return ALL[f"int{wide}"]


def of_scalar(value: Any, beside: DType | None) -> DType:
    """The type of a Python number next to an array of type `beside`, or alone. Raises ArrayTypeError for 300 next to int8."""
    kind = type(value)
    if isinstance(value, np.generic):
        return as_dtype(value.dtype)
    if kind is _BOOL:
        return bool if beside is None else beside
    if kind is int:
        if beside is None or beside == "bool":
            return DEFAULT_INT
        if beside in _INTS:
            low, high = int_limits(beside)
            if not low <= value <= high:
                raise ArrayTypeError(
                    f"{value} is outside of {beside}, which holds {low} to {high}",
                    hint="x.astype(dtype) makes the array of a type that holds it",
                )
        return beside
    if kind is float:
        return DEFAULT_FLOAT if beside is None or beside == "bool" or beside in _INTS else beside
    if kind is complex:
        return DEFAULT_COMPLEX if beside is None else promote(beside, DEFAULT_COMPLEX)
    raise ArrayTypeError(
        f"a {kind.__name__} is neither an array nor a number: {value!r}",
        hint="tec.array.asarray(x) makes an array of numbers, lists and NumPy arrays",
    )


@cache
def int_limits(d: DType) -> tuple[int, int]:
    n = bits(d)
    return (-(1 << n - 1), (1 << n - 1) - 1) if d in _SIGNED else (0, (1 << n) - 1)


# ---- the standard's functions


@dataclass(frozen=True)
class FInfo:
    """Limits of a floating-point type, as Python floats."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IInfo:
    """Limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: DType


# Fraction bits, largest exponent.
_FLOAT_FORMS: dict[str, tuple[int, int]] = {
    "float16": (10, 15),
    "bfloat16": (7, 127),
    "float32": (23, 127),
    "float64": (52, 1023),
}


def _of(x: Any) -> DType:
    return as_dtype(x.dtype if hasattr(x, "dtype") and not isinstance(x, type) else x)


def finfo(type: Any, /) -> FInfo:
    """Limits of a float type, or of an array's. ArrayTypeError for other types.

    >>> xp.finfo(xp.float32).bits, xp.finfo(xp.float16).max
    (32, 65504.0)
    """
    d = _of(type)
    d = PART.get(d.name, d)
    if d not in _FLOATS:
        raise ArrayTypeError(f"finfo({d}): no float type", hint="iinfo knows integers")
    fraction, top = _FLOAT_FORMS[d.name]
    largest = (2.0 - 2.0**-fraction) * 2.0**top
    return FInfo(bits(d), 2.0**-fraction, largest, -largest, 2.0 ** (1 - top), d)


def iinfo(type: Any, /) -> IInfo:
    """Limits of an integer type, or of an array's. ArrayTypeError for other types.

    >>> xp.iinfo(xp.int8).min, xp.iinfo(xp.int8).max
    (-128, 127)
    """
    d = _of(type)
    if d not in _INTS:
        raise ArrayTypeError(f"iinfo({d}): no integer type", hint="finfo knows floats")
    low, high = int_limits(d)
    return IInfo(bits(d), high, low, d)


def isdtype(dtype: Any, kind: Any) -> Any:
    """Whether a dtype is of a kind: another dtype, "bool", "signed integer", "unsigned integer", "integral", "real floating",
    "complex floating", "numeric", or a tuple of them.

    >>> xp.isdtype(xp.float32, "real floating"), xp.isdtype(xp.int8, ("bool", "integral"))
    (True, True)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in KINDS:
        return dtype in KINDS[kind]
    if isinstance(kind, str) and kind not in ALL:
        raise ArrayTypeError(f"no kind of dtypes: {kind!r}", hint=f"kinds: {', '.join(KINDS)}")
    return dtype == as_dtype(kind)


def can_cast(from_: Any, to: Any, /) -> Any:
    """Whether promotion with `to` gives `to`.

    >>> xp.can_cast(xp.int32, xp.int64), xp.can_cast(xp.int64, xp.int32)
    (True, False)
    """
    try:
        return promote(_of(from_), as_dtype(to)) == to
    except ArrayTypeError:
        return False


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The type that operations on all of these have. Arrays, dtypes and Python numbers, at least one of them no number.

    >>> xp.result_type(xp.int8, xp.uint8), xp.result_type(xp.int32, xp.float16)
    (tec.array.int16, tec.array.float16)
    """
    scalars = [x for x in arrays_and_dtypes if type(x) in (_BOOL, int, float, complex)]
    typed = [_of(x) for x in arrays_and_dtypes if type(x) not in (_BOOL, int, float, complex)]
    if not typed:
        raise ArrayTypeError(
            "result_type() of numbers alone, or of nothing", hint="give an array or a dtype among them"
        )
    found = typed[0]
    for d in typed[1:]:
        found = promote(found, d)
    for x in scalars:
        found = promote(found, of_scalar(x, found))
    return found
