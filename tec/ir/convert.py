"""Constants from Python values, conversion between dtypes, and type promotion: the beginning of `tec.ir.build`.

A Python number takes the other side's type; otherwise the wider of the two floats, the float over the integer, the wider integer;
signed and unsigned give the signed type that holds both (as NumPy); float16 with bfloat16 gives float32.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ExprError
from . import expr as E
from .dtype import dtype_info, int_range, named_dtype, normalize_dtype, with_lanes


def round_float(value: float, dtype: str) -> float:
    """`value` rounded to a float dtype (nearest even; overflow gives infinity)."""
    if dtype == "float64":
        return value
    if dtype == "float32":
        with np.errstate(all="ignore"):
            return float(np.float32(value))
    if dtype == "float16":
        with np.errstate(all="ignore"):
            return float(np.float16(value))
    if dtype == "bfloat16":
        if math.isnan(value) or math.isinf(value):
            return value
        with np.errstate(all="ignore"):
            bits = struct.unpack("<I", struct.pack("<f", float(np.float32(value))))[0]
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    return value


def wrap_int(value: int, dtype: str) -> int:
    """`value` reduced into an integer dtype, two's complement."""
    info = dtype_info(dtype)
    value &= (1 << info.bits) - 1
    return value - (1 << info.bits) if info.kind == "int" and value >> (info.bits - 1) else value


def const(value: Any, dtype: Any = None) -> E.Expr:
    """A constant. Without `dtype`: bool, int32 (int64 where it does not fit) or float32. A vector dtype broadcasts."""
    if type(value) is int and (dtype is None or dtype == "int32") and -(2**31) <= value < 2**31:  # most of all
        return E.IntImm(value, "int32")
    if isinstance(value, np.generic):
        dtype = dtype or normalize_dtype(value.dtype)
        value = value.item()
    if dtype is None:
        if isinstance(value, bool):
            dtype = "bool"
        elif isinstance(value, int):
            dtype = "int32" if -(2**31) <= value < 2**31 else "int64"
        elif isinstance(value, float):
            dtype = "float32"
        else:
            raise ExprError(
                f"cannot make a constant of {value!r} ({type(value).__name__})",
                hint="a bool, int, float or NumPy number",
            )
    info = named_dtype(dtype) if isinstance(dtype, str) else dtype_info(normalize_dtype(dtype))
    if info.lanes > 1:
        return E.Broadcast(const(value, info.element), info.lanes)
    if info.kind == "bool":
        return E.IntImm(int(bool(value)), "bool")
    if info.is_float:
        return E.FloatImm(round_float(float(value), info.name), info.name)
    if info.is_int:
        if isinstance(value, float) and not value.is_integer():
            raise ExprError(f"{value} is not a value of {info.name}", hint="cast, or use a float tensor")
        low, high = int_range(info.name)
        number = int(value)
        if not low <= number <= high:
            wider = (
                "uint32 or int64" if 0 <= number < 1 << 32 else "int64" if -(1 << 63) <= number < 1 << 63 else "uint64"
            )
            raise ExprError(
                f"{number} does not fit {info.name} ({low} to {high})",
                hint=f"a number takes the type of what it meets: convert that first, to {wider}",
            )
        return E.IntImm(number, info.name)
    raise ExprError(
        f"no constants of type {info.name}", hint="integers, floats and bool have constants; cast one to the type"
    )


def literal(value: Any, dtype: Any = None) -> E.Expr:
    """As `const`, of a number that a user wrote, or of a constant. Raises ExprError where a finite number is beyond the type: it would be infinity."""
    if isinstance(value, (E.IntImm, E.FloatImm)):
        dtype, value = dtype or value.dtype, value.value
    made = const(value, dtype)
    number = made.value if isinstance(made, E.Broadcast) else made
    if isinstance(number, E.FloatImm) and math.isinf(number.value) and not math.isinf(value):
        raise ExprError(
            f"{value} is beyond {number.dtype}",
            hint=f'tec.max_value("{number.dtype}") is its largest number, tec.infinity("{number.dtype}") what is above all',
        )
    return made


def convert(value: Any, like: str | None = None) -> E.Expr:
    """An Expr from an Expr, a Python or NumPy number, an IterVar or anything with `asexpr()`.

    A Python number becomes a constant of `like`'s element type where it can hold it.
    """
    if isinstance(value, E.Expr):
        return value
    if type(value) is int and (like is None or dtype_info(like).is_int):
        return const(value, like and dtype_info(like).element)
    as_expr = getattr(value, "asexpr", None)
    if as_expr is not None:
        result: E.Expr = as_expr()
        return result
    if isinstance(value, (bool, np.bool_)):
        return const(bool(value), "bool")
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        if like is not None:
            info = dtype_info(like)
            if info.is_float or (info.is_int and isinstance(value, int)):
                return literal(value, info.element)
        return literal(value)
    if isinstance(value, np.generic):
        return const(value)
    if isinstance(value, str):
        return E.StringImm(value)
    raise ExprError(
        f"{value!r} ({type(value).__name__}) cannot be part of a tensor expression",
        hint="index a tensor to get a value of it: A[i, j]",
    )


def const_value(e: Any) -> int | float | None:
    """The Python number an expression is, or None."""
    if isinstance(e, (E.IntImm, E.FloatImm)):
        return e.value
    if isinstance(e, (int, float)):
        return e
    return None


@lru_cache(maxsize=4096)
def promote(a: str, b: str) -> str:
    """The common element-wise type of two dtypes (see the module's rules); raises ExprError where there is none."""
    if a == b:
        return a
    x, y = dtype_info(a), dtype_info(b)
    lanes = max(x.lanes, y.lanes)
    if x.lanes != y.lanes and min(x.lanes, y.lanes) != 1:
        raise ExprError(
            f"vectors of {x.lanes} and {y.lanes} lanes do not combine",
            hint="vectors of as many lanes, or a number, which is repeated in each lane",
        )
    return with_lanes(_promote_elements(x.element, y.element), lanes)


def _promote_elements(a: str, b: str) -> str:
    if a == b:
        return a
    x, y = dtype_info(a), dtype_info(b)
    if "handle" in (a, b):
        raise ExprError(
            f"a pointer does not combine with {b if a == 'handle' else a}",
            hint="load what is there, and compute with that",
        )
    if x.is_float and y.is_float:
        if x.bits != y.bits:
            return a if x.bits > y.bits else b
        return "float32"
    if x.is_float or y.is_float:
        return a if x.is_float else b
    if x.kind == "bool" or y.kind == "bool":
        return b if x.kind == "bool" else a
    if x.kind == y.kind:
        return a if x.bits > y.bits else b
    signed, unsigned = (x, y) if x.kind == "int" else (y, x)
    bits = signed.bits if signed.bits > unsigned.bits else 2 * unsigned.bits
    if bits > 64:
        raise ExprError("int64 and uint64 have no common integer type", hint="cast one side: x.astype('int64')")
    return f"int{bits}"


def cast(dtype: Any, value: Any) -> E.Expr:
    """`value` as `dtype`; constants are folded, a scalar given a vector dtype is broadcast."""
    e = value if isinstance(value, E.Expr) else convert(value)
    if e.dtype == dtype:
        return e
    dtype = normalize_dtype(dtype)
    if e.dtype == dtype:
        return e
    src, dst = dtype_info(e.dtype), dtype_info(dtype)
    # An address is a number.
    if "handle" in (e.dtype, dtype) and not (e.dtype == "handle" and dtype in ("int64", "uint64")):
        raise ExprError(
            f"Can't cast a handle to other types: {e} is {e.dtype}, {dtype} is wanted",
            hint="a handle is a pointer or a text",
        )
    if src.lanes == 1 and dst.lanes > 1:
        return E.Broadcast(cast(dst.element, e), dst.lanes)
    if src.lanes != dst.lanes:
        raise ExprError(f"cannot cast {e.dtype} to {dtype}: lanes differ", hint="a type of as many lanes")
    if isinstance(e, E.Broadcast):
        return E.Broadcast(cast(dst.element, e.value), dst.lanes)
    if isinstance(e, E.IntImm):
        if dst.is_int:
            return E.IntImm(wrap_int(e.value, dtype), dtype)
        if dst.is_float or dst.kind == "bool":
            return const(e.value, dtype)
    if isinstance(e, E.FloatImm):
        if dst.is_float:
            return const(e.value, dtype)
        if dst.is_int and math.isfinite(e.value):
            low, high = int_range(dtype)
            return E.IntImm(min(max(int(e.value), low), high), dtype)
        if dst.kind == "bool":
            return const(e.value != 0, "bool")
    return E.Cast(dtype, e)


def match(a: Any, b: Any) -> tuple[E.Expr, E.Expr]:
    """Both operands as Exprs of one dtype."""
    if isinstance(a, E.Expr) and isinstance(b, E.Expr):
        x, y = a, b
    else:
        like = getattr(a, "dtype", None) or getattr(b, "dtype", None)
        like = like if isinstance(like, str) else None
        x = a if isinstance(a, E.Expr) else convert(a, like)
        y = b if isinstance(b, E.Expr) else convert(b, like)
    if x.dtype == y.dtype:
        return x, y
    common = promote(x.dtype, y.dtype)
    return cast(common, x), cast(common, y)
