"""Data types: plain strings ("float32", "int8x4") so that users can hand them to NumPy; facts about them are cached here.

A dtype string is a kind, a bit width and, for vectors, `x` lanes: float16/32/64, bfloat16, int8..64, uint8..64, bool,
handle (a pointer). `float8_e4m3` and `float8_e5m2` are the 8-bit floats of the OCP; with `fnuz` behind it (finite, no negative zero; half as large
each) those of AMD's CDNA3.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import cache
from typing import Any

import numpy as np

from ..errors import ExprError
from ..records import dataclass

_SCALARS = {
    "bool": ("bool", 1), "handle": ("handle", 64), "bfloat16": ("bfloat", 16),
    **{f"float8_{f}": (f"float8_{f}", 8) for f in ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")},
    **{f"float{b}": ("float", b) for b in (16, 32, 64)},
    **{f"{s}int{b}": (s + "int", b) for s in ("", "u") for b in (4, 8, 16, 32, 64)},
}  # fmt: skip
# The largest finite number of each float type, by its element.
FLOAT_MAX = {
    "float64": float(np.finfo(np.float64).max), "float32": float(np.finfo(np.float32).max), "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38, "float8_e4m3": 448.0, "float8_e5m2": 57344.0, "float8_e4m3fnuz": 240.0,
    "float8_e5m2fnuz": 57344.0,
}  # fmt: skip
_VECTOR = re.compile(r"(bool|handle|bfloat16|float8_e[45]m[32](?:fnuz)?|u?int\d+|float\d+?)(?:x(\d+))?$")


@dataclass(frozen=True, slots=True)
class DTypeInfo:
    """What a dtype string means. `bits` is of one lane; bool is 1 bit wide and stored as one byte."""

    name: str
    kind: str  # "int", "uint", "float", "bfloat", "bool", "handle", "float8_*"
    bits: int
    lanes: int

    bytes: int = field(init=False, compare=False)  # storage of one lane
    element: str = field(init=False, compare=False)  # the dtype of one lane
    is_float: bool = field(init=False, compare=False)
    is_int: bool = field(init=False, compare=False)  # signed or unsigned integer; not bool
    is_float8: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        set_once = object.__setattr__
        set_once(self, "bytes", max(1, (self.bits + 7) // 8))
        set_once(self, "element", self.name.partition("x")[0] if self.lanes > 1 else self.name)
        set_once(self, "is_float8", self.kind.startswith("float8"))
        set_once(self, "is_float", self.kind in ("float", "bfloat") or self.is_float8)
        set_once(self, "is_int", self.kind in ("int", "uint"))

    @property
    def is_signed(self) -> bool:
        return self.kind == "int" or self.is_float


@cache
def dtype_info(dtype: str) -> DTypeInfo:
    """Parse a dtype string; raises ExprError on an unknown one."""
    match = _VECTOR.match(dtype) if isinstance(dtype, str) else None
    if match is None or match[1] not in _SCALARS:
        raise ExprError(
            f"unknown dtype {dtype!r}",
            hint="use float32, float16, bfloat16, float64, int8..int64, uint8..uint64, bool, or a vector such as float32x4",
        )
    kind, bits = _SCALARS[match[1]]
    lanes = int(match[2]) if match[2] else 1
    return DTypeInfo(dtype, kind, bits, lanes)


def ml_dtypes_name(dtype: str) -> str:
    """What ml_dtypes calls a dtype that NumPy has not: its float8_e4m3 has infinities, float8_e4m3fn is the OCP's."""
    return {"float8_e4m3": "float8_e4m3fn"}.get(dtype, dtype)


def from_ml_dtypes_name(name: str) -> str:
    """The other way."""
    return {"float8_e4m3fn": "float8_e4m3"}.get(name, name)


@cache
def with_lanes(dtype: str, lanes: int) -> str:
    """The same element type with another number of lanes."""
    element = dtype_info(dtype).element
    return element if lanes == 1 else f"{element}x{lanes}"


def wide(dtype: str) -> str:
    """The type that numbers of `dtype` are summed up in: float32 for 16-bit floats."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


_ALIASES = {"float": "float32", "int": "int32", "double": "float64", "half": "float16", "uint1": "bool"}


@cache
def named_dtype(dtype: str) -> DTypeInfo:
    """What a string from a user means, with the names that C and Python use; raises ExprError on an unknown one."""
    return dtype_info(_ALIASES.get(dtype, dtype))


def normalize_dtype(dtype: Any) -> str:
    """A dtype string from what a user may give: a string, a NumPy dtype or type, or None (float32)."""
    if dtype is None:
        return "float32"
    if isinstance(dtype, str):
        return named_dtype(dtype).name
    if dtype is float:
        return "float32"
    if dtype is int:
        return "int32"
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    return dtype_info(name).name


@cache
def int_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer (or bool) dtype."""
    info = dtype_info(dtype)
    if info.kind == "int":
        return -(1 << (info.bits - 1)), (1 << (info.bits - 1)) - 1
    return 0, (1 << info.bits) - 1
