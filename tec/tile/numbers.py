"""What the elementwise ops of a tile program are in loop IR: one expression of the operands' elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir import build as B
from ..ir import expr as E
from ..ir.dtype import FLOAT_MAX, dtype_info
from .grammar import Op

# What an op costs, against one addition: what costs more is kept rather than computed again.
COSTS = {"idiv": 8, "imod": 8, "div": 4, "fmod": 8, "mulhi": 2}
MATH_COST = 8
_MATH = {"round": "round", "nearbyint": "nearbyint"}
_COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")


def cost(op: Op) -> int:
    """About how many additions an op is."""
    fn = op.attrs.get("fn", "")
    if op.name == "unary":
        return 1 if fn in ("neg", "not", "abs") else MATH_COST
    if op.name == "assembly":
        return MATH_COST
    return COSTS.get(fn, 1)


def element(op: Op, args: Sequence[E.Expr], fast: bool = False) -> E.Expr:
    """The op's result of its operands' elements. `fast`: powers and quotients of float32 by a GPU's own instructions, within 2 units in the last place, as
    Triton has them, where the author does not ask for more (`div_rn`, the math library)."""
    t = op.results[0].ty.dtype
    if op.name == "const":
        return B.const(op.attrs["value"], t.tec)
    if op.name == "hold":
        return args[0]
    if op.name == "cast":
        return _cast(op, args[0])
    if op.name == "select":
        return B.select(*args)
    if op.name == "fma":
        return E.Call("fma", tuple(args), args[0].dtype)
    if op.name == "assembly":
        attrs = {k: op.attrs[k] for k in ("text", "constraints", "pack", "outs", "which")}
        return E.Call("assembly" if op.attrs["pure"] else "assembly_once", tuple(args), t.tec, attrs)
    fn = op.attrs["fn"]
    if fast and args[0].dtype == "float32" and not op.attrs.get("precise"):
        if fn in ("exp", "exp2"):
            x = args[0] if fn == "exp2" else B.mul(args[0], B.const(math.log2(math.e), "float32"))
            return E.Call("exp2_fast", (x,), "float32")
        if fn == "div":
            return E.Call("div_fast", tuple(args), "float32")
    return _unary(fn, args[0]) if op.name == "unary" else _binary(fn, *args)


def _cast(op: Op, x: E.Expr) -> E.Expr:
    to, have = op.results[0].ty.dtype, op.operands[0].ty.dtype
    if op.attrs.get("bitcast") and to.tec != have.tec:
        return B.reinterpret(to.tec, x)
    if to.tec == have.tec:
        return x
    if dtype_info(to.tec).is_float8 and have.is_floating():  # saturates, as Triton's casts do
        x = _within(B.cast("float32", x) if dtype_info(have.tec).is_float8 else x, FLOAT_MAX[to.tec])
    return B.cast(to.tec, x)


def _within(x: E.Expr, largest: float) -> E.Expr:
    """A float between -largest and largest; NaN stays."""
    if isinstance(x, E.FloatImm) and abs(x.value) <= largest:
        return x
    low, high = (B.const(v, x.dtype) for v in (-largest, largest))
    return E.Call("min_nan", (E.Call("max_nan", (x, low), x.dtype), high), x.dtype)


def _unary(fn: str, x: E.Expr) -> E.Expr:
    if fn == "neg":
        return B.neg(x)
    if fn == "not":
        return B.bitwise_not(x)
    if fn == "abs":
        return B.absolute(x)
    if fn in ("isnan", "isinf", "isfinite"):
        return E.Call(fn, (x,), "bool")
    return E.Call(fn, (x,), x.dtype)


def _binary(fn: str, a: E.Expr, b: E.Expr) -> E.Expr:
    """An operation on two numbers of one type, by Triton's name for it; bools are compared as integers, and combined logically."""
    info = dtype_info(a.dtype)
    if fn in _COMPARE:
        if a.dtype == "bool":
            a, b = B.cast("int32", a), B.cast("int32", b)
        return B.compare(fn, a, b)
    if fn in ("add", "sub", "mul"):
        return {"add": B.add, "sub": B.sub, "mul": B.mul}[fn](a, b)
    if fn in ("min", "max"):
        if a.dtype == "bool":
            return B.logical_and(a, b) if fn == "min" else B.logical_or(a, b)
        return (B.minimum if fn == "min" else B.maximum)(a, b)
    if fn in ("min_nan", "max_nan"):
        return E.Call(fn, (a, b), a.dtype)
    if fn == "div":
        return B.truediv(a, b)
    if fn in ("fmod", "pow", "atan2", "hypot"):
        return E.Call(fn, (a, b), a.dtype)
    if fn in ("idiv", "imod"):
        if isinstance(b, E.IntImm) and b.value == 0:
            return B.const(0, a.dtype)
        if info.kind == "uint":
            return (B.floordiv if fn == "idiv" else B.floormod)(a, b)
        return (B.truncdiv if fn == "idiv" else B.truncmod)(a, b)
    if fn == "and":
        return B.bitwise_and(a, b)
    if fn == "or":
        return B.bitwise_or(a, b)
    if fn == "xor":
        return B.bitwise_xor(a, b)
    if fn in ("shl", "shr"):
        if isinstance(b, E.IntImm) and not 0 <= b.value < info.bits:
            return (
                B.const(0, a.dtype)
                if fn == "shl" or info.kind == "uint"
                else E.Call(fn, (a, B.const(info.bits - 1, a.dtype)), a.dtype)
            )
        return (B.left_shift if fn == "shl" else B.right_shift)(a, b)
    if fn == "mulhi":
        return _mulhi(a, b, info.bits)
    raise ValueError(fn)


def _mulhi(a: E.Expr, b: E.Expr, width: int) -> E.Expr:
    unsigned = f"uint{width}"
    x, y = (B.cast(unsigned, v) for v in (a, b))
    if width == 32:  # one wide product: what every chip has
        wide = B.mul(B.cast("uint64", x), B.cast("uint64", y))
        return B.cast(a.dtype, B.cast("uint32", B.right_shift(wide, B.const(32, "uint64"))))
    return B.cast(a.dtype, E.Call("mulhi", (x, y), unsigned))
