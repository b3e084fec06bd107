"""What the IR's element-wise operations mean, on NumPy arrays.

Every value is an array of one of the holding types below: bfloat16, the 8-bit floats and tf32-like types are held as
float32 and rounded after each operation, 4-bit integers as 8-bit ones, everything else as itself. Math functions are
computed in float64 and rounded once, so that they are a reference for every back end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..errors import ExprError
from . import expr as E
from .dtype import dtype_info, int_range, ml_dtypes_name

Array = np.ndarray[Any, Any]

_FLOAT8 = ("float8_e4m3", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_HELD = {"bfloat16": "float32", **dict.fromkeys(_FLOAT8, "float32"), "int4": "int8", "uint4": "uint8", "handle": "uint64"}  # fmt: skip


@cache
def held(dtype: str) -> np.dtype[Any]:
    """The NumPy type that holds one lane of a dtype."""
    element = dtype_info(dtype).element
    return np.dtype(_HELD.get(element, element))


# ---- rounding to types that NumPy lacks


def odd_float32(x: Array) -> Array:
    """Numbers as float32, rounded to odd where they do not fit, so that rounding once more to fewer bits is right.

    Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
    """
    if x.dtype.kind not in "iuf" or x.dtype.itemsize <= 2 or x.dtype == np.float32:
        return np.asarray(x, np.float32)
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        low = x & x.dtype.type(0x7FF)  # what float64 may not hold: one bit above says that it is there
        x = np.where(
            (x > 1 << 53) | (x < -(1 << 53) if x.dtype.kind == "i" else False),
            (x - low) | ((low != 0).astype(x.dtype) << x.dtype.type(11)),
            x,
        )
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        near = wide.astype(np.float32)
    back = near.astype(np.float64)
    inexact = (back != wide) & ~np.isnan(wide)
    bits = near.view(np.int32) - (np.abs(back) > np.abs(wide))
    odd: Array = (bits | inexact).astype(np.int32).view(np.float32)
    return odd


def round_bfloat16(x: Array) -> Array:
    """Floats or integers rounded to the nearest bfloat16, once, ties to even."""
    x = odd_float32(x)
    bits = x.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)).view(
        np.float32
    )
    return np.where(np.isnan(x), x, rounded)


def _round_float8(name: str) -> Callable[[Array], Array]:
    def go(x: Array) -> Array:
        import ml_dtypes

        result: Array = odd_float32(x).astype(getattr(ml_dtypes, name)).astype(np.float32)
        return result

    return go


def _wrap_int4(x: Array) -> Array:
    return ((x.astype(np.int8) & 15) ^ 8) - np.int8(8)


_FIX: dict[str, Callable[[Array], Array]] = {
    "bfloat16": round_bfloat16,
    **{name: _round_float8(ml_dtypes_name(name)) for name in _FLOAT8},
    "int4": _wrap_int4,
    "uint4": lambda x: x.astype(np.uint8) & np.uint8(15),
}


def fix(x: Array, dtype: str) -> Array:
    """`x` in the holding type of `dtype`, rounded or wrapped to it."""
    element = dtype_info(dtype).element
    f = _FIX.get(element)
    if f is not None:
        return f(x).astype(held(dtype), copy=False)
    return x.astype(held(dtype), copy=False)


# ---- host arrays


def to_held(a: Array, dtype: str) -> Array:
    """A host array's values in the holding type (bfloat16 may come as ml_dtypes.bfloat16, as uint16 bits or as float32)."""
    if dtype_info(dtype).element == "bfloat16" and a.dtype == np.uint16:
        return (a.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return fix(np.asarray(a), dtype)


def from_held(values: Array, like: Array, dtype: str) -> Array:
    """The reverse of `to_held`, for writing back into `like`."""
    if dtype_info(dtype).element == "bfloat16" and like.dtype == np.uint16:
        return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return values.astype(like.dtype)


# ---- conversion


def cast(x: Array, src: str, dst: str) -> Array:
    """Cast as the IR says: to integers truncating and saturating (NaN to 0), between integers wrapping, to bool != 0."""
    s, d = dtype_info(src), dtype_info(dst)
    if d.kind == "bool":
        nonzero: Array = x != 0
        return nonzero
    return to_integer(x, dst) if s.is_float and d.is_int else fix(x, dst)


def to_integer(x: Array, dst: str) -> Array:
    """Floats truncated to integers of a type; what lies beyond becomes the nearest that there is, NaN 0."""
    d = dtype_info(dst)
    low, high = int_range(d.element)
    f = x.astype(np.float64)
    f = np.where(np.isnan(f), 0.0, np.trunc(f))
    inside = (f > float(low)) & (f < float(high))
    out = np.where(inside, f, 0.0).astype(np.uint64 if d.kind == "uint" and d.bits == 64 else np.int64)
    out = np.where(inside, out, np.where(f > 0, np.array(high, out.dtype), np.array(low, out.dtype)))
    return out.astype(held(dst))


def to_bits(x: Array, dtype: str) -> Array:
    """Unsigned integers with the bits of each lane."""
    info = dtype_info(dtype)
    if info.element == "bfloat16":
        return (np.ascontiguousarray(x, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if info.is_float8:
        import ml_dtypes

        result: Array = x.astype(getattr(ml_dtypes, ml_dtypes_name(info.element))).view(np.uint8)
        return result
    if info.bits < 8:
        return x.astype(np.uint8) & np.uint8((1 << info.bits) - 1)
    return np.ascontiguousarray(x).view(f"uint{info.bits}")


def from_bits(bits: Array, dtype: str) -> Array:
    """The values whose bits these unsigned integers are."""
    info = dtype_info(dtype)
    if info.element == "bfloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if info.is_float8:
        import ml_dtypes

        kind = getattr(ml_dtypes, ml_dtypes_name(info.element))
        values: Array = np.ascontiguousarray(bits, np.uint8).view(kind).astype(np.float32)
        return values
    if info.kind == "bool":
        nonzero: Array = bits != 0
        return nonzero
    if info.bits < 8:
        return fix(bits, dtype)
    return np.ascontiguousarray(bits, f"uint{info.bits}").view(held(dtype))


def reinterpret(x: Array, src: str, dst: str) -> Array:
    """The same bits as another dtype; lanes may be regrouped."""
    s, d = dtype_info(src), dtype_info(dst)
    if s.bits * s.lanes != d.bits * d.lanes or min(s.bits, d.bits) < 8:
        if s.bits != d.bits:
            raise ExprError(
                f"cannot reinterpret {src} as {dst}: {s.bits * s.lanes} and {d.bits * d.lanes} bits",
                hint="a type of as many bits, or a conversion of values: cast",
            )
    bits = to_bits(x.reshape(len(x), -1), src)
    if s.bits != d.bits:
        bits = np.ascontiguousarray(bits).view(np.uint8).reshape(len(x), -1).view(f"uint{d.bits}")
    out = from_bits(bits, dst)
    return out.reshape(len(x)) if d.lanes == 1 else out


# ---- arithmetic


def _is_float(x: Array) -> bool:
    return x.dtype.kind not in "iub"  # ml_dtypes' types are of no kind that NumPy has


def _is_one_divisor(b: Array) -> bool:
    """Whether all lanes divide by one number that is not 0, as most divisions of indices do: nothing to look for then."""
    return b.size == 1 and bool(b.item())


def _nonzero(b: Array) -> Array:
    return np.where(b == 0, np.ones_like(b), b)


def trunc_div(a: Array, b: Array) -> Array:
    """Integer division toward zero; 0 where b is 0, as NumPy has it and compiled code does."""
    if _is_one_divisor(b):
        q = np.floor_divide(a, b)
        return np.where((q < 0) & (q * b != a), q + np.ones_like(q), q) if a.dtype.kind == "i" else q
    by = _nonzero(b)
    q = np.floor_divide(a, by)
    q = np.where((q < 0) & (q * by != a), q + np.ones_like(q), q) if a.dtype.kind == "i" else q
    return np.where(b == 0, np.zeros_like(q), q)


def _div(a: Array, b: Array) -> Array:
    return np.divide(a, b) if _is_float(a) else trunc_div(a, b)


def _mod(a: Array, b: Array) -> Array:
    if _is_float(a):
        return np.fmod(a, b)
    by = _nonzero(b)
    return np.asarray(a - by * trunc_div(a, by))


def _floor_div(a: Array, b: Array) -> Array:
    if _is_float(a):
        return np.floor_divide(a, b)
    if _is_one_divisor(b):
        return np.asarray(np.floor_divide(a, b))
    return np.where(b == 0, np.zeros_like(a), np.floor_divide(a, _nonzero(b)))


def _floor_mod(a: Array, b: Array) -> Array:
    return np.asarray(np.mod(a, b if _is_float(a) or _is_one_divisor(b) else _nonzero(b)))


def _min(a: Array, b: Array) -> Array:
    return np.fmin(a, b) if _is_float(a) else np.minimum(a, b)


def _max(a: Array, b: Array) -> Array:
    return np.fmax(a, b) if _is_float(a) else np.maximum(a, b)


BINARY: dict[type, Callable[[Array, Array], Array]] = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.Div: _div, E.Mod: _mod, E.FloorDiv: _floor_div,
    E.FloorMod: _floor_mod, E.Min: _min, E.Max: _max, E.EQ: np.equal, E.NE: np.not_equal, E.LT: np.less,
    E.LE: np.less_equal, E.GT: np.greater, E.GE: np.greater_equal, E.Or: np.logical_or,
}  # fmt: skip


# ---- functions


def _erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x.ravel().tolist()], np.float64).reshape(x.shape)


def _round(x: Array) -> Array:
    t = np.trunc(x)
    return np.where(np.abs(x - t) >= 0.5, t + np.copysign(1.0, x), t)


_MATH: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "exp_below": np.exp, "exp2": np.exp2, "exp2_fast": np.exp2, "exp10": lambda x: np.power(10.0, x), "log": np.log, "log2": np.log2,
    "rcp_fast": lambda x: 1.0 / x, "div_fast": np.divide, "log10": np.log10, "log1p": np.log1p, "expm1": np.expm1, "sqrt": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)), "erf": _erf, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": _round, "nearbyint": np.rint, "pow": np.power, "atan2": np.arctan2, "fmod": np.fmod,
    "copysign": np.copysign, "hypot": np.hypot,
}  # fmt: skip


_DIVISIONS: dict[str, Callable[..., Array]] = {"floor_divide": np.floor_divide, "floor_remainder": np.remainder}


def _fma(a: Array, b: Array, c: Array, dtype: str) -> Array:
    if dtype_info(dtype).element == "float64":
        wide = np.longdouble
        return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(np.float64)
    return fix(a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64), dtype)


def _unsigned(x: Array, bits: int) -> Array:
    return x.astype(np.int64 if x.dtype.kind == "i" else np.uint64).astype(np.uint64) & np.uint64((1 << bits) - 1)


def _clz(x: Array, bits: int) -> Array:
    u = _unsigned(x, bits)
    for k in (1, 2, 4, 8, 16, 32):  # all bits below the highest
        u = u | (u >> np.uint64(k))
    return bits - np.bitwise_count(u).astype(np.int64)


def _ctz(x: Array, bits: int) -> Array:
    u = _unsigned(x, bits)
    return _popcount(~u & (u - np.uint64(1)), bits)


def _popcount(x: Array, bits: int) -> Array:
    return np.bitwise_count(_unsigned(x, bits)).astype(np.int64)


def _bitreverse(x: Array, bits: int) -> Array:
    u, n = _unsigned(x, bits), np.zeros(x.shape, np.uint64)
    for k in range(bits):
        n = n | (((u >> np.uint64(k)) & np.uint64(1)) << np.uint64(bits - 1 - k))
    return n


_BITS: dict[str, Callable[[Array, int], Array]] = {
    "clz": _clz,
    "ctz": _ctz,
    "popcount": _popcount,
    "bitreverse": _bitreverse,
}
_BITWISE: dict[str, Callable[..., Array]] = {
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "bitnot": np.bitwise_not,
    "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip


def _mulhi(a: Array, b: Array, bits: int) -> Array:
    product = a.astype(object) * b.astype(object)
    high = [(int(v) >> bits) & ((1 << bits) - 1) for v in product.ravel()]
    return np.array(high, np.uint64).reshape(product.shape)


def is_elementwise(op: str) -> bool:
    return op in _MATH or op in _BITS or op in _BITWISE or op in _OTHERS


_OTHERS = (*_DIVISIONS, "fma", "abs", "isnan", "isinf", "isfinite", "mulhi", "min_nan", "max_nan", "ldexp", "likely")


def apply(op: str, args: list[Array], dtype: str, in_dtype: str) -> Array:
    """An element-wise operation of `tec.ir.intrin` on arrays of one shape; `in_dtype` is the first argument's."""
    f = _MATH.get(op)
    if f is not None:
        if not _is_float(args[0]):
            raise ExprError(f"{op} of {in_dtype}", hint="convert the operand to a float first")
        return fix(f(*[a.astype(np.float64) for a in args]), dtype)
    f = _BITWISE.get(op)
    if f is not None:
        return fix(f(*args), dtype)
    bits = dtype_info(in_dtype).bits
    if op in _BITS:
        return _BITS[op](args[0], bits).astype(held(dtype))
    if op in _DIVISIONS:  # in the type itself: quotients that were rounded are a part of the answer
        wide = np.float64 if dtype_info(dtype).bits == 64 else np.float32
        return fix(_DIVISIONS[op](*[a.astype(wide) for a in args]), dtype)
    match op:
        case "fma":
            return _fma(args[0], args[1], args[2], dtype)
        case "abs":
            return fix(np.abs(args[0]), dtype)
        case "isnan" | "isinf" | "isfinite":
            result: Array = getattr(np, op)(args[0])
            return result
        case "min_nan":
            return np.minimum(args[0], args[1])
        case "max_nan":
            return np.maximum(args[0], args[1])
        case "ldexp":
            return fix(np.ldexp(args[0].astype(np.float64), args[1]), dtype)
        case "likely":
            return args[0]
        case "mulhi":
            return _mulhi(args[0], args[1], bits).astype(held(dtype))
    raise ExprError(f"unknown operation {op!r}", hint="interp_calls.register_meaning gives an operation its meaning")


# C and LLVM names of functions that the interpreter knows.
LIBM = {
    **{n: n for n in _MATH if n not in ("sigmoid", "rsqrt", "exp10")},
    "fabs": "abs", "fmin": "fmin", "fmax": "fmax", "rint": "nearbyint", "fma": "fma", "minnum": "fmin",
    "maxnum": "fmax", "minimum": "min_nan", "maximum": "max_nan", "ctpop": "popcount", "ctlz": "clz", "cttz": "ctz",
    "rsqrt": "rsqrt", "exp10": "exp10", "ldexp": "ldexp", "roundeven": "nearbyint", "bitreverse": "bitreverse",
}  # fmt: skip


def call_named(name: str, args: list[Array], dtype: str, in_dtype: str) -> Array | None:
    """A libm function or a math intrinsic of LLVM (`llvm.exp.f32`), or None where the name is unknown."""
    base = name.split(".")[1] if name.startswith("llvm.") and "." in name[5:] else name
    op = LIBM.get(base) or (LIBM.get(base[:-1]) if base.endswith(("f", "l")) else None)
    if op == "fmin":
        return fix(np.fmin(args[0], args[1]), dtype)
    if op == "fmax":
        return fix(np.fmax(args[0], args[1]), dtype)
    if op is None:
        return None
    arity = 2 if op in ("pow", "atan2", "fmod", "copysign", "hypot", "ldexp", "min_nan", "max_nan") else 3 if op == "fma" else 1  # fmt: skip
    return apply(op, args[:arity], dtype, in_dtype)
