"""Functions on values: arithmetic, comparisons by choice, math functions, bit operations, calls of outside code.

Each takes expressions or Python numbers and gives an expression. Math functions work in the type of their argument; an
integer argument is refused (ExprError: cast it first), but for those that are exact on integers (abs, floor, ceil, round, sign).

They are expanded into the same arithmetic on every target, so a GPU gives the CPU's numbers. Errors in units of the last place, float32:
at most 2 for exp, log, tanh, sigmoid and erf, 4 for the others; sqrt, fma and the roundings are exact. float16 and bfloat16 compute in
float32 and round once. float64: at most 4 (sin, cos and tan call the C library on a CPU).
"""

from __future__ import annotations

import builtins
import math as _math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..errors import ExprError
from ..ir import build
from ..ir.buffer import Buffer
from ..ir.build import floordiv, floormod, reinterpret, truncdiv, truncmod
from ..ir.dtype import dtype_info, normalize_dtype, with_lanes
from ..ir.expr import Call, Expr, FloatImm, StringImm
from ..ir.intrin import INTRINS
from ..runtime.modules.callbacks import Argument, symbol
from .complexes import ComplexValue, if_then_else, magnitude, select
from .like import DTypeLike, ExprLike
from .tensor import Tensor

F = TypeVar("F", bound=Callable[..., Expr])


def _float(name: str, x: Any) -> Expr:
    e = build.const(float(x)) if isinstance(x, int) and not isinstance(x, bool) else build.convert(x)
    if not dtype_info(e.dtype).is_float:
        raise ExprError(
            f"tec.{name} of a value of type {e.dtype}: {e}", hint=f"cast it: tec.{name}(x.astype('float32'))"
        )
    return e


def _floats(name: str, x: Any, y: Any) -> tuple[Expr, Expr]:
    a, b = build.match(x, y)
    return _float(name, a), _float(name, b)


def _unary(name: str, doc: str) -> Callable[[Any], Expr]:
    def function(x: ExprLike) -> Expr:
        e = _float(name, x)
        return Call(name, (e,), e.dtype)

    return _named(function, name, doc)


def _half_away(x: float) -> int:
    whole = _math.trunc(x)
    return whole + (1 if x > 0 else -1) * (_math.fabs(x - whole) >= 0.5)


_ROUND: dict[str, Callable[[float], int]] = {
    "floor": _math.floor, "ceil": _math.ceil, "trunc": _math.trunc, "round": _half_away, "nearbyint": builtins.round,
}  # fmt: skip


def _rounding(name: str, doc: str) -> Callable[[Any], Expr]:
    def function(x: ExprLike) -> Expr:
        e = build.convert(x)
        if isinstance(e, FloatImm) and _math.isfinite(e.value):
            return build.const(_math.copysign(_ROUND[name](e.value), e.value), e.dtype)
        return Call(name, (e,), e.dtype) if dtype_info(e.dtype).is_float else e

    return _named(function, name, doc + " Integers stay as they are.")


def _binary(name: str, doc: str) -> Callable[[Any, Any], Expr]:
    def function(x: ExprLike, y: ExprLike) -> Expr:
        a, b = _floats(name, x, y)
        return Call(name, (a, b), a.dtype)

    return _named(function, name, doc)


def _bits(name: str, doc: str) -> Callable[[Any], Expr]:
    def function(x: ExprLike) -> Expr:
        e = build.convert(x)
        if not dtype_info(e.dtype).is_int:
            raise ExprError(f"tec.{name} of a value of type {e.dtype}: {e}", hint="it takes integers")
        return Call(name, (e,), e.dtype)

    return _named(function, name, doc)


def _named(function: F, name: str, doc: str) -> F:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


# ---- float functions

_exp = _unary("exp", "e to the power x.")


def exp(x: ExprLike) -> Any:
    """e to the power x; complex numbers too."""
    if not isinstance(x, ComplexValue):
        return _exp(x)
    size = _exp(x.real)
    return ComplexValue(size * cos(x.imag), size * sin(x.imag))


exp2 = _unary("exp2", "2 to the power x.")
exp10 = _unary("exp10", "10 to the power x.")
expm1 = _unary("expm1", "exp(x) - 1, accurate near 0.")
log = _unary("log", "Natural logarithm; NaN below 0, -inf at 0.")
log2 = _unary("log2", "Logarithm to base 2.")
log10 = _unary("log10", "Logarithm to base 10.")
log1p = _unary("log1p", "log(1 + x), accurate near 0.")
sqrt = _unary("sqrt", "Square root, correctly rounded; NaN below 0.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).")
sin = _unary("sin", "Sine of x in radians, with range reduction for large x.")
cos = _unary("cos", "Cosine of x in radians, with range reduction for large x.")
tan = _unary("tan", "Tangent of x in radians.")
asin = _unary("asin", "Arc sine, in radians; NaN outside of [-1, 1].")
acos = _unary("acos", "Arc cosine, in radians; NaN outside of [-1, 1].")
atan = _unary("atan", "Arc tangent, in radians.")
sinh = _unary("sinh", "Hyperbolic sine.")
cosh = _unary("cosh", "Hyperbolic cosine.")
tanh = _unary("tanh", "Hyperbolic tangent.")
asinh = _unary("asinh", "Inverse hyperbolic sine.")
acosh = _unary("acosh", "Inverse hyperbolic cosine; NaN below 1.")
atanh = _unary("atanh", "Inverse hyperbolic tangent; NaN outside of [-1, 1].")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
erf = _unary("erf", "The error function.")

floor = _rounding("floor", "The largest whole number not above x, as a float.")
ceil = _rounding("ceil", "The smallest whole number not below x, as a float.")
trunc = _rounding("trunc", "x without its fraction.")
round = _rounding("round", "The nearest whole number, halves away from zero.")
nearbyint = _rounding("nearbyint", "The nearest whole number, halves to even.")

atan2 = _binary("atan2", "The angle of the point (y, x): atan2(y, x).")
fmod = _binary("fmod", "The remainder of x / y with the sign of x (C's fmod).")
copysign = _binary("copysign", "The magnitude of x with the sign of y.")
hypot = _binary("hypot", "`sqrt(x*x + y*y)` without overflow in between.")


def pow(x: ExprLike, y: ExprLike) -> Expr:
    """x to the power y, both floats. A negative x with a whole y has its sign; with another y it gives NaN."""
    a, b = _floats("pow", x, y)
    return build.power(a, b)


power = pow


def nextafter(x: ExprLike, y: ExprLike) -> Expr:
    """The float next to x on the way to y; y where both are equal, NaN where one is."""
    a, b = _floats("nextafter", x, y)
    info = dtype_info(a.dtype)
    whole = with_lanes(f"int{info.bits}", info.lanes)
    zero, one = build.const(0, a.dtype), build.const(1, whole)
    # Away from zero: the bits count up.
    outward = build.compare("eq", build.compare("lt", a, b), build.compare("gt", a, zero))
    moved = build.reinterpret(
        a.dtype, build.add(build.reinterpret(whole, a), build.select(outward, one, build.const(-1, whole)))
    )
    least = Call("copysign", (build.reinterpret(a.dtype, one), b), a.dtype)
    found = build.select(build.compare("eq", a, b), b, build.select(build.compare("eq", a, zero), least, moved))
    return build.select(build.logical_or(isnan(a), isnan(b)), build.add(a, b), found)


def ldexp(x: ExprLike, exponent: ExprLike) -> Expr:
    """x * 2**exponent; `exponent` is an integer."""
    a, b = _float("ldexp", x), build.convert(exponent)
    if not dtype_info(b.dtype).is_int:
        raise ExprError(f"the exponent of tec.ldexp is {b.dtype}: {b}", hint="it takes an integer")
    return Call("ldexp", (a, build.cast(with_lanes("int32", dtype_info(b.dtype).lanes), b)), a.dtype)


def fma(x: ExprLike, y: ExprLike, z: ExprLike) -> Expr:
    """x*y + z with one rounding."""
    a, b = _floats("fma", x, y)
    a, c = _floats("fma", a, z)
    return Call("fma", (a, build.cast(a.dtype, b), c), a.dtype)


def abs(x: ExprLike) -> Expr:
    """The absolute value, real for a complex number."""
    return magnitude(x) if isinstance(x, ComplexValue) else build.absolute(x)


def sign(x: ExprLike) -> Expr:
    """-1, 0 or 1 in the type of x; NaN gives NaN."""
    e = build.convert(x)
    info = dtype_info(e.dtype)
    if info.kind == "bool":
        return e
    zero, one = build.const(0, e.dtype), build.const(1, e.dtype)
    below = build.select(build.compare("lt", e, zero), build.neg(one), e if info.is_float else zero)
    return build.select(build.compare("gt", e, zero), one, below)


def _classify(name: str, doc: str, of_int: bool) -> Callable[[Any], Expr]:
    def function(x: ExprLike) -> Expr:
        e = build.convert(x)
        info = dtype_info(e.dtype)
        kind = with_lanes("bool", info.lanes)
        return Call(name, (e,), kind) if info.is_float else build.const(of_int, kind)

    return _named(function, name, doc)


isnan = _classify("isnan", "Whether x is NaN.", False)
isinf = _classify("isinf", "Whether x is plus or minus infinity.", False)
isfinite = _classify("isfinite", "Whether x is neither infinite nor NaN.", True)

# ---- integers

popcount = _bits("popcount", "The number of one bits.")
clz = _bits("clz", "The number of leading zero bits; the width for 0.")
ctz = _bits("ctz", "The number of trailing zero bits; the width for 0.")
bitwise_and, bitwise_or, bitwise_xor, bitwise_not = (
    build.bitwise_and,
    build.bitwise_or,
    build.bitwise_xor,
    build.bitwise_not,
)


def indexdiv(a: ExprLike, b: ExprLike) -> Expr:
    """Division of index values, which are not negative: a // b."""
    return build.floordiv(a, b)


def indexmod(a: ExprLike, b: ExprLike) -> Expr:
    """The remainder of index values, which are not negative: a % b."""
    return build.floormod(a, b)


def ceildiv(a: ExprLike, b: ExprLike) -> Expr:
    """a / b rounded up, of integers, for b > 0."""
    return build.floordiv(build.sub(build.add(a, b), 1), b)


def div(a: ExprLike, b: ExprLike) -> Expr:
    """C's division: exact on floats, toward zero on integers."""
    return build.truncdiv(a, b)


def cast(dtype: DTypeLike, value: ExprLike) -> Expr:
    """`value` as `dtype`: float to int truncates and saturates, int to int wraps. Also takes (value, dtype).

    >>> A = tec.placeholder((8,), "float16", name="A")
    >>> tec.compute((8,), lambda i: tec.cast("float32", A[i]) * 2.0).dtype
    'float32'
    """
    if isinstance(value, str) and not isinstance(dtype, str):
        dtype, value = value, dtype
    return build.cast(normalize_dtype(dtype), value)


def likely(condition: ExprLike) -> Expr:
    """The condition, expected to hold."""
    c = build.as_bool(condition)
    return Call("likely", (c,), c.dtype)


# ---- calls of outside code


def _call(op: str, key: str, dtype: Any, name: Any, args: tuple[Any, ...]) -> Expr:
    if not isinstance(name, str) or not name:
        raise ExprError(f"{op} takes (dtype, name, *args); the name is {name!r}")
    for a in args:
        if isinstance(a, Tensor) and a.ndim:
            raise ExprError(
                f"tensor {a.name} as an argument of {name}",
                hint="pass values, or pointers inside tec.extern: buffer.access_ptr('r')",
            )
    return Call(op, tuple(build.convert(a) for a in args), normalize_dtype(dtype), {key: name})


def call_extern(dtype: DTypeLike, name: str, *args: Any) -> Expr:
    """A call of the C function `name` (CPU), which may do anything; its order with other effects is kept."""
    return _call("call_extern", "symbol", dtype, name, args)


def call_pure_extern(dtype: DTypeLike, name: str, *args: Any) -> Expr:
    """A call of the C function `name` (CPU) whose result depends on its arguments alone."""
    return _call("call_pure_extern", "symbol", dtype, name, args)


def call_with(name: str, values: Sequence[Expr]) -> Expr:
    """A call of a registered function by its symbol (`tec.runtime.modules.callbacks.symbol`) with all that it is passed."""
    return _call("call_extern", "symbol", "int32", name, tuple(values))


def call_packed(name: str, *args: Any) -> Expr:
    """A call from CPU code of a Python function that `tec.register_func` registered under `name`. Returns its int32
    result.

    args: inside `tec.extern` or a tensor intrinsic, buffers (the function gets an NDArray of their memory), pointers
    (`buffer.data`, `buffer.access_ptr("r")`: an address), integers, floats and texts. Raises ExprError for others,
    and for a buffer with strides.

    >>> A = tec.placeholder((64,), name="A")
    >>> C = tec.extern(A.shape, [A], lambda ins, outs: tec.call_packed("my.sort", ins[0], outs[0]), dtype="float32")
    """
    if not isinstance(name, str) or not name:
        raise ExprError(f"call_packed takes the name of a registered function, not {name!r}")
    kinds: list[Argument] = []
    values: list[Expr] = []
    for a in args:
        kind, mine = _packed_argument(name, a)
        kinds.append(kind)
        values += mine
    return _call("call_extern", "symbol", "int32", symbol(name, kinds), tuple(values))


def _packed_argument(name: str, a: Any) -> tuple[Argument, list[Expr]]:
    """What a packed function gets: its form, and the values that make it up."""
    if isinstance(a, str):
        return Argument("text", text=a), []
    if isinstance(a, Buffer):
        if a.strides:
            raise ExprError(
                f"call_packed of {name!r}: buffer {a.name} has strides of its own",
                hint="pass one whose rows follow one another",
            )
        sizes = [build.cast("int64", n) for n in a.shape]
        return Argument("array", a.dtype, len(sizes)), [build.access_ptr(a, "rw"), *sizes]
    if isinstance(a, Tensor) and a.ndim:
        raise ExprError(f"tensor {a.name} as an argument of {name}", hint="pass a buffer inside tec.extern")
    e = build.convert(a)
    info = dtype_info(e.dtype)
    if e.dtype == "handle":
        return Argument("pointer"), [e]
    if info.lanes != 1:
        raise ExprError(
            f"call_packed of {name!r}: an argument of type {e.dtype}", hint="pass its elements, or a buffer"
        )
    return (
        (Argument("float"), [build.cast("float64", e)])
        if info.is_float
        else (Argument("int"), [build.cast("int64", e)])
    )


def call_llvm_intrin(dtype: DTypeLike, name: str, *args: Any) -> Expr:
    """A call of an LLVM intrinsic by its full name, such as "llvm.amdgcn.s.sleep"."""
    return _call("call_llvm_intrin", "name", dtype, name, args)


def call_llvm_pure_intrin(dtype: DTypeLike, name: str, *args: Any) -> Expr:
    """A call of an LLVM intrinsic without effects."""
    return _call("call_llvm_pure_intrin", "name", dtype, name, args)


def call_intrin(dtype: DTypeLike, name: str, *args: Any, **attrs: Any) -> Expr:
    """A call of an operation of tec's own table (`tec.ir.intrin`), such as "barrier" or "shuffle_xor"."""
    name = name.removeprefix("tir.") if isinstance(name, str) else name
    known = INTRINS.get(name)
    if known is None:
        raise ExprError(
            f"unknown operation {name!r}", hint="tec.ir.intrin lists them; tec.call_extern calls a C function"
        )
    if known.nargs not in (-1, len(args)):
        raise ExprError(
            f"{name} takes {known.nargs} argument{'s'[: known.nargs != 1]}, given {len(args)}", hint=known.doc or None
        )
    return Call(
        name,
        tuple(StringImm(a) if isinstance(a, str) else build.convert(a) for a in args),
        normalize_dtype(dtype),
        attrs or None,
    )


__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor",
    "call_extern", "call_intrin", "call_llvm_intrin", "call_llvm_pure_intrin", "call_packed", "call_pure_extern", "cast", "ceil", "ceildiv", "clz", "copysign",
    "cos", "cosh", "ctz", "div", "erf", "exp", "exp10", "exp2", "expm1", "floor", "floordiv", "floormod", "fma", "fmod", "hypot",
    "if_then_else", "indexdiv", "indexmod", "isfinite", "isinf", "isnan", "ldexp", "likely", "log", "log10", "log1p", "log2",
    "nearbyint", "popcount", "pow", "power", "reinterpret", "round", "rsqrt", "select", "sigmoid", "sign",
    "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "truncdiv", "truncmod",
]  # fmt: skip
