"""Numbers without a sign that stand for elements in their order, and back: what a selection of the largest compares."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import Expr
from ...ir.dtype import dtype_info
from ...te.like import Index


def key(v: Expr, largest: bool) -> Expr:
    """An element's number, 32 bits without a sign, in the order of elements; the other way round for the smallest."""
    info = dtype_info(v.dtype)
    if info.is_float:
        made = float_key(v.astype("float32") + te.const(0, "float32"))  # both zeros are one
    elif info.is_signed:
        made = te.bitwise_xor(v.astype("int32"), te.const(-(1 << 31), "int32")).astype("uint32")
    else:
        made = v.astype("uint32")
    return made if largest else te.bitwise_xor(made, te.const((1 << 32) - 1, "uint32"))


def float_key(v: Expr) -> Expr:
    """The number of a float32: that of NaN is the largest, and -0 comes before 0."""
    bits = te.call_intrin("int32", "reinterpret", v)
    flip = te.bitwise_or(bits >> 31, te.const(-(1 << 31), "int32"))
    made = te.bitwise_xor(bits, flip).astype("uint32")
    chosen: Expr = te.select(v != v, te.const((1 << 32) - 1, "uint32"), made)
    return chosen


def short_key(v: Expr, largest: bool) -> Expr:
    """The same of a type of 16 bits or fewer, in the low 16 bits."""
    info = dtype_info(v.dtype)
    if info.is_float:
        v = v + te.const(0, v.dtype)
        bits = te.call_intrin("int16", "reinterpret", v).astype("int32")
        made = te.bitwise_xor(bits, te.bitwise_or(bits >> 31, te.const(-(1 << 15), "int32")))
        made = te.select(v != v, te.const(-1, "int32"), made)
    else:
        made = v.astype("int32") + te.const(1 << 15 if info.is_signed else 0, "int32")
    made = te.bitwise_and(made, te.const((1 << 16) - 1, "int32")).astype("uint32")
    return made if largest else te.bitwise_xor(made, te.const((1 << 16) - 1, "uint32"))


def own_type(dtype: str) -> str:
    """The type that elements are compared in: of 32 bits, or float16."""
    info = dtype_info(dtype)
    if dtype == "float16":  # half the registers, and no conversions
        return dtype
    return "float32" if info.is_float else "int32" if info.is_signed else "uint32"


def unkeyed(k: Index, dtype: str, largest: bool) -> Any:
    """The element that has the key, in the type that elements are compared in; of the lowest key a NaN, or the lowest number. A key between two numbers of float16
    becomes one of them: what reaches the upper one reaches the key, and the lower one lets more through."""
    if dtype == "float16":
        return unkeyed(k, "float32", largest).astype(dtype)
    k = k if largest else te.bitwise_xor(k, te.const((1 << 32) - 1, "uint32"))
    if dtype == "uint32":
        return k
    flipped = te.bitwise_xor(k, te.const(1 << 31, "uint32"))
    if dtype == "float32":
        flipped = te.select(
            k >= te.const(1 << 31, "uint32"), flipped, te.bitwise_xor(k, te.const((1 << 32) - 1, "uint32"))
        )
    return te.call_intrin(dtype, "reinterpret", flipped)
