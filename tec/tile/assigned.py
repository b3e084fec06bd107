"""Numbers that a variable of a kernel holds. As in Triton they have a type of their own, int32 or float32 where that holds them, while a number that is written in
an expression takes the type of the tile beside it. They stay Python's numbers, so that one can be a tile's side or choose a branch.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from ctypes import c_float
from typing import Any

from .grammar import DTYPES, dtype

_LARGEST, _LEAST = 3.4028235e38, 1.1754943508222875e-38  # of float32
_INTEGERS = (("int32", -(2**31), 2**31), ("uint32", 0, 2**32), ("int64", -(2**63), 2**63), ("uint64", 0, 2**64))


class AssignedInt(int):
    """An integer with a type of its own."""


class AssignedFloat(float):
    """A float with a type of its own."""


def assigned(v: Any) -> Any:
    """What a variable holds that is given a value."""
    if type(v) is int:
        return AssignedInt(v)
    if type(v) is float:
        return AssignedFloat(in_type(v, number_type(v)))
    return tuple(map(assigned, v)) if type(v) is tuple else v


def is_assigned(v: Any) -> bool:
    """Whether a number has a type of its own."""
    return isinstance(v, (AssignedInt, AssignedFloat))


def written(v: Any) -> Any:
    """A number without a type of its own."""
    return int(v) if isinstance(v, AssignedInt) else float(v) if isinstance(v, AssignedFloat) else v


def number_type(v: bool | int | float) -> dtype | None:
    """The type of a number by itself: int1, int32 or the next that holds it, float32 or float64. None for an integer beyond 64 bits."""
    if isinstance(v, bool):
        return DTYPES["int1"]
    if isinstance(v, int):
        return next((DTYPES[t] for t, low, high in _INTEGERS if low <= v < high), None)
    beyond = math.isfinite(v) and (abs(v) > _LARGEST or 0 < abs(v) < _LEAST)
    return DTYPES["float64" if beyond else "float32"]


def in_type(v: int | float, t: dtype | None) -> int | float:
    """A number as a type holds it: integers wrap, floats are rounded. As it is without a type."""
    if t is None or not t.is_int():
        return c_float(v).value if t == DTYPES["float32"] else v
    bits = t.primitive_bitwidth
    v = int(v) & ((1 << bits) - 1)
    return v - (1 << bits) if t.kind == "int" and v >> (bits - 1) else v


def computed(op: type, f: Callable[[Any, Any], Any], a: Any, c: Any, t: dtype) -> Any:
    """What an operator, f in Python, gives of two numbers, of which a variable holds one, in their common type t."""
    if op is ast.Div and t.is_int():
        t = DTYPES["float32"]
    a, c = in_type(a, t), in_type(c, t)
    if op in (ast.FloorDiv, ast.Mod) and t.is_int() and c and (a < 0) != (c < 0):  # as in C
        quotient = -(abs(a) // abs(c))
        return assigned(quotient if op is ast.FloorDiv else a - quotient * c)
    made = math.fmod(a, c) if op is ast.Mod and not t.is_int() else f(a, c)
    return assigned(in_type(made, t))


__all__ = ["AssignedFloat", "AssignedInt", "assigned", "computed", "in_type", "is_assigned", "number_type", "written"]
