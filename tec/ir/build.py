"""Builders: expressions from Python values, with conversion, type promotion and constant folding.

What the operators of `ExprOps` call. Type promotion: a Python number takes the other side's type; otherwise the wider
of the two floats, the float over the integer, the wider integer; signed and unsigned give the signed type that holds
both (as NumPy); float16 with bfloat16 gives float32.
"""
# ruff: noqa: I001  (the names of `convert` are passed on: one import for all of them)

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ExprError
from . import expr as E
from . import expr_ops
from .convert import (
    cast as cast,
    const as const,
    literal as literal,
    const_value as const_value,
    convert as convert,
    match as match,
    promote as promote,
    round_float as round_float,
    wrap_int as wrap_int,
)
from .dtype import dtype_info, int_range, with_lanes
from .intrin import INTRINS, result_dtype

# ---- arithmetic


def _folder(
    int_op: Callable[[int, int], int] | None, float_op: Callable[[float, float], float] | None
) -> Callable[[E.Expr, E.Expr], E.Expr | None]:
    def fold(a: E.Expr, b: E.Expr) -> E.Expr | None:
        if type(a) is not type(b):
            return None
        if isinstance(a, E.IntImm) and isinstance(b, E.IntImm) and int_op is not None and a.dtype != "bool":
            value = int_op(a.value, b.value)
            low, high = int_range(a.dtype)
            return E.IntImm(value if low <= value <= high else wrap_int(value, a.dtype), a.dtype)
        if isinstance(a, E.FloatImm) and isinstance(b, E.FloatImm) and float_op is not None:
            try:
                return E.FloatImm(round_float(float_op(a.value, b.value), a.dtype), a.dtype)
            except (OverflowError, ZeroDivisionError):
                return None
        return None

    return fold


def trunc_div(a: int, b: int) -> int:
    """Integer division toward zero."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def trunc_mod(a: int, b: int) -> int:
    """The remainder that goes with `trunc_div`."""
    return a - b * trunc_div(a, b)


FOLD: dict[type, Callable[[E.Expr, E.Expr], E.Expr | None]] = {
    E.Add: _folder(operator.add, operator.add),
    E.Sub: _folder(operator.sub, operator.sub),
    E.Mul: _folder(operator.mul, operator.mul),
    E.Div: _folder(trunc_div, operator.truediv),
    E.Mod: _folder(trunc_mod, None),
    E.FloorDiv: _folder(operator.floordiv, None),
    E.FloorMod: _folder(operator.mod, None),
    E.Min: _folder(min, min),
    E.Max: _folder(max, max),
}


def is_const(e: E.Expr, value: int | float) -> bool:
    """Whether `e` is the scalar constant `value` (a float zero must be +0.0)."""
    if isinstance(e, E.IntImm):
        return e.value == value
    return isinstance(e, E.FloatImm) and e.value == value and not (e.value == 0 and math.copysign(1, e.value) < 0)


def _arith(a: E.Expr, b: E.Expr) -> tuple[E.Expr, E.Expr]:
    """bools count as int32 in arithmetic, as in Python."""
    if a.dtype.startswith("bool"):
        lanes = dtype_info(a.dtype).lanes
        return cast(with_lanes("int32", lanes), a), cast(with_lanes("int32", lanes), b)
    return a, b


def add(a: Any, b: Any) -> E.Expr:
    x, y = _arith(*match(a, b))
    folded = FOLD[E.Add](x, y)
    if folded is not None:
        return folded
    if isinstance(y, E.IntImm) and y.value == 0:
        return x
    if isinstance(x, E.IntImm) and x.value == 0:
        return y
    return E.Add(x, y)


def sub(a: Any, b: Any) -> E.Expr:
    x, y = _arith(*match(a, b))
    folded = FOLD[E.Sub](x, y)
    if folded is not None:
        return folded
    if isinstance(y, E.IntImm) and y.value == 0:
        return x
    if x is y and dtype_info(x.dtype).is_int and dtype_info(x.dtype).lanes == 1:
        return E.IntImm(0, x.dtype)
    return E.Sub(x, y)


def mul(a: Any, b: Any) -> E.Expr:
    x, y = _arith(*match(a, b))
    folded = FOLD[E.Mul](x, y)
    if folded is not None:
        return folded
    for one, other in ((x, y), (y, x)):
        if is_const(one, 1):
            return other
        if isinstance(one, E.IntImm) and one.value == 0:
            return one
    return E.Mul(x, y)


def _divide(cls: type, a: Any, b: Any, what: str) -> E.Expr:
    x, y = _arith(*match(a, b))
    if is_const(y, 0) and isinstance(y, E.IntImm):
        raise ExprError(f"{what} by zero", hint="divide by another constant, or by a value that is known when it runs")
    if dtype_info(x.dtype).is_float and cls is not E.Div:
        return call("floor_divide" if cls is E.FloorDiv else "floor_remainder" if cls is E.FloorMod else "fmod", x, y)
    folded = FOLD[cls](x, y)
    if folded is not None:
        return folded
    if isinstance(y, E.IntImm) and y.value == 1:
        return E.IntImm(0, x.dtype) if cls in (E.Mod, E.FloorMod) else x
    if isinstance(x, E.IntImm) and x.value == 0:
        return x
    result: E.Expr = cls(x, y)
    return result


def truediv(a: Any, b: Any) -> E.Expr:
    x, y = match(a, b)
    if not dtype_info(x.dtype).is_float:
        raise ExprError(
            f"`/` of two integers ({x.dtype}) could mean several things",
            hint="use // (tec.floordiv), tec.truncdiv, tec.indexdiv, or cast to a float type first",
        )
    return _divide(E.Div, x, y, "division")


def floordiv(a: Any, b: Any) -> E.Expr:
    """a / b rounded down, as Python's `//`; of integers or floats of one type. Raises ExprError for a constant 0 as b.

    >>> tec.floordiv(-7, 2), tec.floordiv(tec.var("n"), 4)
    (-4, n // 4)
    """
    return _divide(E.FloorDiv, a, b, "division")


def floormod(a: Any, b: Any) -> E.Expr:
    """What `floordiv` leaves, with the sign of b, as Python's `%`.

    >>> tec.floormod(-7, 2), tec.floormod(tec.var("n"), 4)
    (1, n % 4)
    """
    return _divide(E.FloorMod, a, b, "remainder of a division")


def truncdiv(a: Any, b: Any) -> E.Expr:
    """a / b of integers without its fraction, as C's `/`.

    >>> tec.truncdiv(-7, 2)
    -3
    """
    return _divide(E.Div, a, b, "division")


def truncmod(a: Any, b: Any) -> E.Expr:
    """What `truncdiv` leaves, with the sign of a, as C's `%`.

    >>> tec.truncmod(-7, 2)
    -1
    """
    return _divide(E.Mod, a, b, "remainder of a division")


def _extremum(cls: type, a: Any, b: Any) -> E.Expr:
    x, y = match(a, b)
    folded = FOLD[cls](x, y)
    if folded is not None and not any(isinstance(v, E.FloatImm) and math.isnan(v.value) for v in (x, y)):
        return folded
    result: E.Expr = x if x is y else cls(x, y)
    return result


def minimum(a: Any, b: Any) -> E.Expr:
    return _extremum(E.Min, a, b)


def maximum(a: Any, b: Any) -> E.Expr:
    return _extremum(E.Max, a, b)


def neg(a: Any) -> E.Expr:
    x = convert(a)
    if isinstance(x, E.IntImm) and x.dtype != "bool":
        return E.IntImm(wrap_int(-x.value, x.dtype), x.dtype)
    if isinstance(x, E.FloatImm):
        return E.FloatImm(-x.value, x.dtype)
    info = dtype_info(x.dtype)
    if info.is_float:  # -0.0 - x is an exact negation, signed zeros included
        return E.Sub(const(-0.0, x.dtype), x)
    return sub(const(0, x.dtype if info.kind != "bool" else "int32"), x)


# ---- comparison and logic

_COMPARE: dict[str, tuple[type, Callable[[Any, Any], bool]]] = {
    "lt": (E.LT, operator.lt), "le": (E.LE, operator.le), "gt": (E.GT, operator.gt),
    "ge": (E.GE, operator.ge), "eq": (E.EQ, operator.eq), "ne": (E.NE, operator.ne),
}  # fmt: skip


def compare(how: str, a: Any, b: Any) -> E.Expr:
    """One of lt, le, gt, ge, eq, ne."""
    cls, op = _COMPARE[how]
    x, y = match(a, b)
    if isinstance(x, (E.IntImm, E.FloatImm)) and isinstance(y, (E.IntImm, E.FloatImm)):
        return const(op(x.value, y.value), "bool")
    if x is y and dtype_info(x.dtype).is_int and dtype_info(x.dtype).lanes == 1:
        return const(how in ("le", "ge", "eq"), "bool")
    result: E.Expr = cls(x, y)
    return result


def as_bool(a: Any) -> E.Expr:
    x = convert(a)
    return x if x.dtype.startswith("bool") else cast(with_lanes("bool", dtype_info(x.dtype).lanes), x)


def logical_and(a: Any, b: Any) -> E.Expr:
    x, y = match(as_bool(a), as_bool(b))
    for one, other in ((x, y), (y, x)):
        if isinstance(one, E.IntImm):
            return other if one.value else one
    return x if x is y else E.And(x, y)


def logical_or(a: Any, b: Any) -> E.Expr:
    x, y = match(as_bool(a), as_bool(b))
    for one, other in ((x, y), (y, x)):
        if isinstance(one, E.IntImm):
            return one if one.value else other
    return x if x is y else E.Or(x, y)


def logical_not(a: Any) -> E.Expr:
    x = as_bool(a)
    if isinstance(x, E.IntImm):
        return const(not x.value, "bool")
    return x.a if isinstance(x, E.Not) else E.Not(x)


def all_of(*conds: Any) -> E.Expr:
    """The conjunction; true for no conditions."""
    result: E.Expr = E.IntImm(1, "bool")
    for c in conds:
        result = logical_and(result, c)
    return result


def any_of(*conds: Any) -> E.Expr:
    """The disjunction; false for no conditions."""
    result: E.Expr = E.IntImm(0, "bool")
    for c in conds:
        result = logical_or(result, c)
    return result


def select(cond: Any, a: Any, b: Any) -> E.Expr:
    """Both sides are evaluated; use `if_then_else` to guard an access."""
    c = as_bool(cond)
    x, y = match(a, b)
    if isinstance(c, E.IntImm):
        return x if c.value else y
    lanes = dtype_info(c.dtype).lanes
    if lanes > 1 and dtype_info(x.dtype).lanes == 1:
        x, y = E.Broadcast(x, lanes), E.Broadcast(y, lanes)
    return E.Select(c, x, y)


def if_then_else(cond: Any, a: Any, b: Any) -> E.Expr:
    """Only the chosen side is evaluated."""
    c = as_bool(cond)
    x, y = match(a, b)
    if isinstance(c, E.IntImm):
        return x if c.value else y
    return E.Call("if_then_else", (c, x, y), x.dtype)


# ---- bit operations and calls


def _bitwise(op: str, a: Any, b: Any, fold: Callable[[int, int], int]) -> E.Expr:
    x, y = match(a, b)
    info = dtype_info(x.dtype)
    if not (info.is_int or info.kind == "bool"):
        raise ExprError(f"bit operation on {x.dtype}", hint="bit operations take integers; reinterpret the float first")
    if isinstance(x, E.IntImm) and isinstance(y, E.IntImm):
        return E.IntImm(wrap_int(fold(x.value, y.value), x.dtype), x.dtype)
    return E.Call(op, (x, y), x.dtype)


def bitwise_and(a: Any, b: Any) -> E.Expr:
    """a & b of integers; of bools whether both hold.

    >>> tec.bitwise_and(12, 10), tec.bitwise_and(tec.var("x"), 7)
    (8, bitand(x, 7))
    """
    x, y = match(a, b)
    return logical_and(x, y) if x.dtype.startswith("bool") else _bitwise("bitand", x, y, operator.and_)


def bitwise_or(a: Any, b: Any) -> E.Expr:
    """a | b of integers; of bools whether one holds.

    >>> tec.bitwise_or(12, 10)
    14
    """
    x, y = match(a, b)
    return logical_or(x, y) if x.dtype.startswith("bool") else _bitwise("bitor", x, y, operator.or_)


def bitwise_xor(a: Any, b: Any) -> E.Expr:
    """a ^ b of integers; of bools whether they differ.

    >>> tec.bitwise_xor(12, 10)
    6
    """
    x, y = match(a, b)
    return compare("ne", x, y) if x.dtype.startswith("bool") else _bitwise("bitxor", x, y, operator.xor)


def bitwise_not(a: Any) -> E.Expr:
    """~a of an integer; of a bool whether it does not hold.

    >>> tec.bitwise_not(12)
    -13
    """
    x = convert(a)
    if x.dtype.startswith("bool"):
        return logical_not(x)
    if isinstance(x, E.IntImm):
        return E.IntImm(wrap_int(~x.value, x.dtype), x.dtype)
    if not dtype_info(x.dtype).is_int:
        raise ExprError(f"bit operation on {x.dtype}", hint="bit operations take integers")
    return E.Call("bitnot", (x,), x.dtype)


def _shift(op: str, a: Any, b: Any, fold: Callable[[int, int], int]) -> E.Expr:
    x, y = _arith(*match(a, b))
    if isinstance(y, E.IntImm) and not 0 <= y.value < dtype_info(x.dtype).bits:
        raise ExprError(f"shift of {x.dtype} by {y.value}", hint=f"shift by 0 to {dtype_info(x.dtype).bits - 1}")
    return _bitwise(op, x, y, fold)


def left_shift(a: Any, b: Any) -> E.Expr:
    return _shift("shl", a, b, operator.lshift)


def right_shift(a: Any, b: Any) -> E.Expr:
    return _shift("shr", a, b, operator.rshift)


def power(a: Any, b: Any) -> E.Expr:
    x, y = match(a, b)
    if not dtype_info(x.dtype).is_float:
        raise ExprError(f"power of {x.dtype}", hint="cast to a float type first")
    return E.Call("pow", (x, y), x.dtype)


def absolute(a: Any) -> E.Expr:
    x = convert(a)
    if isinstance(x, E.IntImm):
        return E.IntImm(wrap_int(abs(x.value), x.dtype), x.dtype)
    if isinstance(x, E.FloatImm):
        return E.FloatImm(abs(x.value), x.dtype)
    return x if dtype_info(x.dtype).kind in ("uint", "bool") else E.Call("abs", (x,), x.dtype)


def call(op: str, *args: Any, dtype: str | None = None, **attrs: Any) -> E.Expr:
    """A Call of a known operation; the result has the dtype of its row in the table unless `dtype` says otherwise."""
    if op not in INTRINS:
        raise ExprError(
            f"unknown operation {op!r}",
            hint="an operation of the table tec.ir.intrin.INTRINS; intrin.register adds one",
        )
    converted = tuple(convert(a) for a in args)
    return E.Call(op, converted, dtype or result_dtype(op, converted), attrs or None)


def reinterpret(dtype: str, value: Any) -> E.Expr:
    """The bits of `value` as a `dtype` of the same width: `reinterpret("int32", x)` of a float32.

    >>> tec.evaluate([tec.compute((1,), lambda i: tec.reinterpret("int32", tec.const(1.0)))], {})[0]
    array([1065353216], dtype=int32)
    """
    x = convert(value)
    return x if x.dtype == dtype else E.Call("reinterpret", (x,), dtype)


# ---- memory


def _as_indices(indices: Any) -> tuple[E.Expr, ...]:
    items = indices if isinstance(indices, (tuple, list)) else (indices,)
    return tuple(convert(i) for i in items)


def buffer_load(buffer: Any, indices: Any, dtype: str | None = None) -> E.Expr:
    """A load; a vector `dtype` takes that many neighbours along the last axis."""
    idx = _as_indices(indices)
    if len(idx) != len(buffer.shape):
        raise ExprError(
            f"buffer {buffer.name} has {len(buffer.shape)} dimensions, indexed with {len(idx)}",
            hint="one index for each dimension; the last may be a ramp",
        )
    elements = _elements(buffer, dtype) if dtype else 1
    if elements > 1:
        idx = (*idx[:-1], E.Ramp(idx[-1], const(1, idx[-1].dtype), elements))
    load = E.BufferLoad(buffer, idx)
    if dtype and load.dtype != dtype:
        raise ExprError(
            f"buffer {buffer.name} holds {buffer.dtype}, loaded as {dtype}",
            hint="load it as it is held and convert: .astype(dtype)",
        )
    return load


def _elements(buffer: Any, dtype: str) -> int:
    """How many elements of the buffer (which may be vectors themselves) a value of `dtype` is."""
    lanes, own = dtype_info(dtype).lanes, dtype_info(buffer.dtype).lanes
    if lanes % own:
        raise ExprError(
            f"buffer {buffer.name} holds {buffer.dtype}: a value of {dtype} is no whole number of elements",
            hint="a vector whose lanes are a multiple of the buffer's",
        )
    return lanes // own


def buffer_store(buffer: Any, indices: Any, value: Any) -> Any:
    """A store of a scalar, or of a vector to neighbours along the last axis."""
    from .stmt import BufferStore

    idx = _as_indices(indices)
    if len(idx) != len(buffer.shape):
        raise ExprError(
            f"buffer {buffer.name} has {len(buffer.shape)} dimensions, indexed with {len(idx)}",
            hint="one index for each dimension; the last may be a ramp",
        )
    val = convert(value, buffer.dtype)
    own, vector = dtype_info(buffer.dtype).lanes, isinstance(idx[-1], E.Ramp) if idx else False
    if dtype_info(val.dtype).lanes == 1 and own > 1:
        val = E.Broadcast(cast(dtype_info(buffer.dtype).element, val), own)
    val = cast(with_lanes(buffer.dtype, dtype_info(val.dtype).lanes), val)
    elements = _elements(buffer, val.dtype)
    if elements > 1 and not vector:
        idx = (*idx[:-1], E.Ramp(idx[-1], const(1, idx[-1].dtype), elements))
    return BufferStore(buffer, val, idx)


def access_ptr(buffer: Any, access_mask: str | int = "rw", offset: Any = 0) -> E.Expr:
    """Call("access_ptr"): a pointer to the buffer's element [0, ..., 0] plus `offset` elements."""
    masks: dict[str | int, str | int] = {1: "r", 2: "w", 3: "rw", "wr": "rw"}
    rw = masks.get(access_mask, access_mask)
    if rw not in ("r", "w", "rw"):
        raise ExprError(f"access mask {access_mask!r}", hint='use "r", "w" or "rw"')
    return address(buffer, [const(0) for _ in buffer.shape], str(rw), offset)


def address(buffer: Any, at: Sequence[E.Expr], rw: str = "rw", offset: Any = 0) -> E.Expr:
    """Call("access_ptr"): a pointer to the buffer's element `at` plus `offset` elements."""
    first = E.BufferLoad(buffer, tuple(at) or (const(0),))
    return E.Call("access_ptr", (first, convert(offset)), "handle", {"rw": rw})


expr_ops._build = sys.modules[__name__]  # Expr's operators call these
