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


def _with_example(doc: str, name: str, arguments: str, value: str, dtype: str = "float32") -> str:
    """The docstring of a function that is made: its words, and a session that tests/docs runs."""
    kind = f", dtype={dtype}" if dtype != "bool" else ""  # as NumPy writes an array
    return f"""{doc}

    >>> tec.evaluate([tec.compute((1,), lambda i: tec.{name}({arguments}))], {{}})[0]
    array([{value}]{kind})
    """


def _unary(name: str, doc: str, arguments: str, value: str) -> Callable[[Any], Expr]:
    def function(x: ExprLike) -> Expr:
        e = _float(name, x)
        return Call(name, (e,), e.dtype)

    return _named(function, name, _with_example(doc, name, arguments, value))


def _half_away(x: float) -> int:
    whole = _math.trunc(x)
    return whole + (1 if x > 0 else -1) * (_math.fabs(x - whole) >= 0.5)


_ROUND: dict[str, Callable[[float], int]] = {
    "floor": _math.floor, "ceil": _math.ceil, "trunc": _math.trunc, "round": _half_away, "nearbyint": builtins.round,
}  # fmt: skip


def _rounding(name: str, doc: str, arguments: str, value: str) -> Callable[[Any], Expr]:
    def function(x: ExprLike) -> Expr:
        e = build.convert(x)
        if isinstance(e, FloatImm) and _math.isfinite(e.value):
            return build.const(_math.copysign(_ROUND[name](e.value), e.value), e.dtype)
        return Call(name, (e,), e.dtype) if dtype_info(e.dtype).is_float else e

    return _named(function, name, _with_example(f"{doc} Integers stay as they are.", name, arguments, value))


def _binary(name: str, doc: str, arguments: str, value: str) -> Callable[[Any, Any], Expr]:
    def function(x: ExprLike, y: ExprLike) -> Expr:
        a, b = _floats(name, x, y)
        return Call(name, (a, b), a.dtype)

    return _named(function, name, _with_example(doc, name, arguments, value))


def _bits(name: str, doc: str, arguments: str, value: str) -> Callable[[Any], Expr]:
    def function(x: ExprLike) -> Expr:
        e = build.convert(x)
        if not dtype_info(e.dtype).is_int:
            raise ExprError(f"tec.{name} of a value of type {e.dtype}: {e}", hint="it takes integers")
        return Call(name, (e,), e.dtype)

    return _named(function, name, _with_example(doc, name, arguments, value, "int32"))


def _named(function: F, name: str, doc: str) -> F:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


# ---- float functions

_exp = _unary("exp", "e to the power x.", "1.0", "2.7182817")


def exp(x: ExprLike) -> Any:
    """e to the power x; complex numbers too.

    >>> te.evaluate([te.compute((1,), lambda i: te.exp(1.0))], {})[0]
    array([2.7182817], dtype=float32)
    """
    if not isinstance(x, ComplexValue):
        return _exp(x)
    size = _exp(x.real)
    return ComplexValue(size * cos(x.imag), size * sin(x.imag))


exp2 = _unary("exp2", "2 to the power x.", "3.0", "8.")
exp10 = _unary("exp10", "10 to the power x.", "2.0", "100.")
expm1 = _unary("expm1", "exp(x) - 1, accurate near 0.", "1e-6", "1.0000005e-06")
log = _unary("log", "Natural logarithm; NaN below 0, -inf at 0.", "10.0", "2.3025851")
log2 = _unary("log2", "Logarithm to base 2.", "8.0", "3.")
log10 = _unary("log10", "Logarithm to base 10.", "1000.0", "3.")
log1p = _unary("log1p", "log(1 + x), accurate near 0.", "1e-6", "9.999995e-07")
sqrt = _unary("sqrt", "Square root, correctly rounded; NaN below 0.", "2.0", "1.4142135")
rsqrt = _unary("rsqrt", "1 / sqrt(x).", "4.0", "0.5")
sin = _unary("sin", "Sine of x in radians, with range reduction for large x.", "1.0", "0.84147096")
cos = _unary("cos", "Cosine of x in radians, with range reduction for large x.", "1.0", "0.5403023")
tan = _unary("tan", "Tangent of x in radians.", "1.0", "1.5574077")
asin = _unary("asin", "Arc sine, in radians; NaN outside of [-1, 1].", "1.0", "1.5707964")
acos = _unary("acos", "Arc cosine, in radians; NaN outside of [-1, 1].", "-1.0", "3.1415927")
atan = _unary("atan", "Arc tangent, in radians.", "1.0", "0.7853982")
sinh = _unary("sinh", "Hyperbolic sine.", "1.0", "1.1752012")
cosh = _unary("cosh", "Hyperbolic cosine.", "1.0", "1.5430807")
tanh = _unary("tanh", "Hyperbolic tangent.", "1.0", "0.7615942")
asinh = _unary("asinh", "Inverse hyperbolic sine.", "1.0", "0.8813736")
acosh = _unary("acosh", "Inverse hyperbolic cosine; NaN below 1.", "2.0", "1.316958")
atanh = _unary("atanh", "Inverse hyperbolic tangent; NaN outside of [-1, 1].", "0.5", "0.54930615")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).", "0.0", "0.5")
erf = _unary("erf", "The error function.", "0.5", "0.5204999")

floor = _rounding("floor", "The largest whole number not above x, as a float.", "-1.5", "-2.")
ceil = _rounding("ceil", "The smallest whole number not below x, as a float.", "-1.5", "-1.")
trunc = _rounding("trunc", "x without its fraction.", "-1.5", "-1.")
round = _rounding("round", "The nearest whole number, halves away from zero.", "2.5", "3.")
nearbyint = _rounding("nearbyint", "The nearest whole number, halves to even.", "2.5", "2.")

atan2 = _binary("atan2", "The angle of the point (y, x): atan2(y, x).", "1.0, -1.0", "2.3561945")
fmod = _binary("fmod", "The remainder of x / y with the sign of x (C's fmod).", "-7.0, 3.0", "-1.")
copysign = _binary("copysign", "The magnitude of x with the sign of y.", "2.0, -0.0", "-2.")
hypot = _binary("hypot", "`sqrt(x*x + y*y)` without overflow in between.", "3.0, 4.0", "5.")


def pow(x: ExprLike, y: ExprLike) -> Expr:
    """x to the power y, both floats. A negative x with a whole y has its sign; with another y it gives NaN.

    >>> te.evaluate([te.compute((1,), lambda i: te.pow(-2.0, 3.0))], {})[0]
    array([-8.], dtype=float32)
    """
    a, b = _floats("pow", x, y)
    return build.power(a, b)


power = pow


def nextafter(x: ExprLike, y: ExprLike) -> Expr:
    """The float next to x on the way to y; y where both are equal, NaN where one is.

    >>> te.evaluate([te.compute((1,), lambda i: te.nextafter(1.0, 2.0))], {})[0]
    array([1.0000001], dtype=float32)
    """
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
    """x * 2**exponent; `exponent` is an integer.

    >>> te.evaluate([te.compute((1,), lambda i: te.ldexp(1.5, 4))], {})[0]
    array([24.], dtype=float32)
    """
    a, b = _float("ldexp", x), build.convert(exponent)
    if not dtype_info(b.dtype).is_int:
        raise ExprError(f"the exponent of tec.ldexp is {b.dtype}: {b}", hint="it takes an integer")
    return Call("ldexp", (a, build.cast(with_lanes("int32", dtype_info(b.dtype).lanes), b)), a.dtype)


def fma(x: ExprLike, y: ExprLike, z: ExprLike) -> Expr:
    """x*y + z with one rounding.

    >>> te.evaluate([te.compute((1,), lambda i: te.fma(2.0, 3.0, 0.5))], {})[0]
    array([6.5], dtype=float32)
    """
    a, b = _floats("fma", x, y)
    a, c = _floats("fma", a, z)
    return Call("fma", (a, build.cast(a.dtype, b), c), a.dtype)


def abs(x: ExprLike) -> Expr:
    """The absolute value, real for a complex number.

    >>> te.evaluate([te.compute((3,), lambda i: te.abs(i - 1))], {})[0]
    array([1, 0, 1], dtype=int32)
    """
    return magnitude(x) if isinstance(x, ComplexValue) else build.absolute(x)


def sign(x: ExprLike) -> Expr:
    """-1, 0 or 1 in the type of x; NaN gives NaN.

    >>> te.evaluate([te.compute((3,), lambda i: te.sign(i - 1))], {})[0]
    array([-1,  0,  1], dtype=int32)
    """
    e = build.convert(x)
    info = dtype_info(e.dtype)
    if info.kind == "bool":
        return e
    zero, one = build.const(0, e.dtype), build.const(1, e.dtype)
    below = build.select(build.compare("lt", e, zero), build.neg(one), e if info.is_float else zero)
    return build.select(build.compare("gt", e, zero), one, below)


def _classify(name: str, doc: str, arguments: str, value: str, of_int: bool) -> Callable[[Any], Expr]:
    def function(x: ExprLike) -> Expr:
        e = build.convert(x)
        info = dtype_info(e.dtype)
        kind = with_lanes("bool", info.lanes)
        return Call(name, (e,), kind) if info.is_float else build.const(of_int, kind)

    return _named(function, name, _with_example(doc, name, arguments, value, "bool"))


isnan = _classify("isnan", "Whether x is NaN.", "float('nan')", " True", False)
isinf = _classify("isinf", "Whether x is plus or minus infinity.", "1.0", "False", False)
isfinite = _classify("isfinite", "Whether x is neither infinite nor NaN.", "1.0", " True", True)

# ---- integers

popcount = _bits("popcount", "The number of one bits.", "7", "3")
clz = _bits("clz", "The number of leading zero bits; the width for 0.", "1", "31")
ctz = _bits("ctz", "The number of trailing zero bits; the width for 0.", "8", "3")
bitwise_and, bitwise_or, bitwise_xor, bitwise_not = (
    build.bitwise_and,
    build.bitwise_or,
    build.bitwise_xor,
    build.bitwise_not,
)


def indexdiv(a: ExprLike, b: ExprLike) -> Expr:
    """Division of index values, which are not negative: a // b.

    >>> te.indexdiv(7, 2), te.indexdiv(te.size_var("n"), 4)
    (3, n // 4)
    """
    return build.floordiv(a, b)


def indexmod(a: ExprLike, b: ExprLike) -> Expr:
    """The remainder of index values, which are not negative: a % b.

    >>> te.indexmod(7, 2), te.indexmod(te.size_var("n"), 4)
    (1, n % 4)
    """
    return build.floormod(a, b)


def ceildiv(a: ExprLike, b: ExprLike) -> Expr:
    """a / b rounded up, of integers, for b > 0.

    >>> te.ceildiv(1000, 256)
    4
    """
    return build.floordiv(build.sub(build.add(a, b), 1), b)


def div(a: ExprLike, b: ExprLike) -> Expr:
    """C's division: exact on floats, toward zero on integers.

    >>> te.div(-7, 2), te.div(-7.0, 2.0)
    (-3, -3.5)
    """
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
    """The condition, expected to hold.

    >>> A = te.placeholder((8,), name="A")
    >>> te.compute((10,), lambda i: te.if_then_else(te.likely(i < 8), A[i], 0.0), name="padded")
    Tensor(shape=[10], dtype=float32, op=padded)
    """
    c = build.as_bool(condition)
    return Call("likely", (c,), c.dtype)


# ---- calls of outside code


def _call(op: str, key: str, dtype: Any, name: Any, args: tuple[Any, ...]) -> Expr:
    if not isinstance(name, str) or not name:
        raise ExprError(
            f"{op} takes (dtype, name, *args); the name is {name!r}", hint='tec.call_extern("float32", "cosf", x)'
        )
    for a in args:
        if isinstance(a, Tensor) and a.ndim:
            raise ExprError(
                f"tensor {a.name} as an argument of {name}",
                hint="pass values, or pointers inside tec.extern: buffer.access_ptr('r')",
            )
    return Call(op, tuple(build.convert(a) for a in args), normalize_dtype(dtype), {key: name})


def call_extern(dtype: DTypeLike, name: str, *args: Any) -> Expr:
    """A call of the C function `name` (CPU), which may do anything; its order with other effects is kept.

    >>> A = te.placeholder((8,), name="A")
    >>> te.extern((8,), [A], lambda ins, outs: te.call_extern("int32", "sort", ins[0].data, outs[0].data), dtype="float32", name="B")
    Tensor(shape=[8], dtype=float32, op=B)
    """
    return _call("call_extern", "symbol", dtype, name, args)


def call_pure_extern(dtype: DTypeLike, name: str, *args: Any) -> Expr:
    """A call of the C function `name` (CPU) whose result depends on its arguments alone.

    >>> A = te.placeholder((8,), name="A")
    >>> te.compute((8,), lambda i: te.call_pure_extern("float32", "cosf", A[i]), name="B").op.body[0]
    call_pure_extern(A[i], symbol='cosf')
    """
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
        raise ExprError(
            f"call_packed takes the name of a registered function, not {name!r}",
            hint='tec.call_packed("my.sort", ins[0], outs[0]), after tec.register_func("my.sort", f)',
        )
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
    """A call of an LLVM intrinsic by its full name, such as "llvm.amdgcn.s.sleep".

    >>> te.call_llvm_intrin("int32", "llvm.amdgcn.s.getreg", 6145)
    call_llvm_intrin(6145, name='llvm.amdgcn.s.getreg')
    """
    return _call("call_llvm_intrin", "name", dtype, name, args)


def call_llvm_pure_intrin(dtype: DTypeLike, name: str, *args: Any) -> Expr:
    """A call of an LLVM intrinsic without effects.

    >>> te.call_llvm_pure_intrin("int32", "llvm.bswap.i32", te.var("x"))
    call_llvm_pure_intrin(x, name='llvm.bswap.i32')
    """
    return _call("call_llvm_pure_intrin", "name", dtype, name, args)


def call_intrin(dtype: DTypeLike, name: str, *args: Any, **attrs: Any) -> Expr:
    """A call of an operation of tec's own table (`tec.ir.intrin`), such as "barrier" or "shuffle_xor".

    >>> te.call_intrin("float32", "shuffle_xor", te.var("x", "float32"), 1, 64)
    shuffle_xor(x, 1, 64)
    """
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
