"""Element by element: arithmetic, comparisons, logic, math functions. Each gives an expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import build, dtypes
from .array import Array, node_of, number, of_one, of_two, pair
from .dtypes import DType
from .errors import ArrayTypeError, ArrayValueError
from .foreign import no_array
from .node import Node
from .numbers import NUMBERS, of_numbers

# ---- what each takes


def _refuse(name: str, dtype: DType, takes: str) -> ArrayTypeError:
    return ArrayTypeError(f"{name} of {dtype}: it takes {takes}", hint="tec.array.astype(x, dtype) converts")


def _numeric(name: str, n: Node) -> Node:
    if n.dtype == "bool":
        raise _refuse(name, n.dtype, "numbers")
    return n


def _floating(n: Node) -> Node:
    """Integers and bools become the default float."""
    return n if dtypes.is_float(n.dtype) or dtypes.is_complex(n.dtype) else build.cast(n, dtypes.DEFAULT_FLOAT)


def _named(f: Callable[..., Array], name: str, doc: str, of: Callable[..., Any] = of_two) -> Callable[..., Array]:
    f = of(f)
    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    return f


def _math(name: str, doc: str) -> Callable[[Array], Array]:
    """A function of floats."""

    def function(x: Array, /) -> Array:
        return Array(build.unary(name, _floating(node_of(x))))

    return _named(function, name, doc + " Integers become the default float.", of_one)


def _arithmetic(name: str, doc: str, of_bools: str = "") -> Callable[[Any, Any], Array]:
    """`of_bools`: what NumPy does with two bools, where it gives a bool."""

    def function(x1: Any, x2: Any, /) -> Array:
        a, b = pair(x1, x2)
        if a.dtype == "bool" and of_bools:
            return Array(build.binary(of_bools, a, b))
        if a.dtype == "bool":
            raise _refuse(name, a.dtype, "numbers")
        return Array(build.binary(name, a, b))

    return _named(function, name, doc)


def _float_pair(name: str, doc: str) -> Callable[[Any, Any], Array]:
    def function(x1: Any, x2: Any, /) -> Array:
        a, b = pair(x1, x2)
        return Array(build.binary(name, _floating(a), _floating(b)))

    return _named(function, name, doc)


def _compare(name: str, doc: str, order: bool) -> Callable[[Any, Any], Array]:
    def function(x1: Any, x2: Any, /) -> Array:
        a, b = pair(x1, x2)
        if order and a.dtype == "bool":
            a, b = build.cast(a, dtypes.uint8), build.cast(b, dtypes.uint8)
        return Array(build.binary(name, a, b, dtypes.bool))

    return _named(function, name, doc)


def _logical(name: str, doc: str) -> Callable[[Any, Any], Array]:
    def function(x1: Any, x2: Any, /) -> Array:
        a, b = pair(x1, x2)
        return Array(build.binary(name, build.cast(a, dtypes.bool), build.cast(b, dtypes.bool)))

    return _named(function, name, doc)


def _bits(name: str, doc: str, op: str, logic: str = "") -> Callable[[Any, Any], Array]:
    """On integers; on bools, where `logic` names it, too."""

    def function(x1: Any, x2: Any, /) -> Array:
        a, b = pair(x1, x2)
        if a.dtype == "bool" and logic:
            return Array(build.binary(logic, a, b))
        if not dtypes.is_int(a.dtype):
            raise _refuse(name, a.dtype, "integers or bools" if logic else "integers")
        return Array(build.binary(op, a, b))

    return _named(function, name, doc)


def _classify(name: str, doc: str, of_int: bool) -> Callable[[Array], Array]:
    def function(x: Array, /) -> Array:
        n = node_of(x)
        if dtypes.is_int(n.dtype) or n.dtype == "bool":
            return Array(build.full(of_int, n.shape, dtypes.bool, n.device))
        return Array(build.unary(name, n, dtypes.bool))

    return _named(function, name, doc, of_one)


def _rounding(name: str, doc: str, op: str = "") -> Callable[[Array], Array]:
    def function(x: Array, /) -> Array:
        n = _numeric(name, node_of(x))
        return Array(build.unary("identity" if dtypes.is_int(n.dtype) else op or name, n))

    return _named(function, name, doc + " Integers stay as they are.", of_one)


# ---- functions

acos = _math("acos", "The arc cosine, in radians; NaN outside of [-1, 1].")
acosh = _math("acosh", "The inverse hyperbolic cosine; NaN below 1.")
asin = _math("asin", "The arc sine, in radians; NaN outside of [-1, 1].")
asinh = _math("asinh", "The inverse hyperbolic sine.")
atan = _math("atan", "The arc tangent, in radians.")
atanh = _math("atanh", "The inverse hyperbolic tangent; NaN outside of [-1, 1].")
cos = _math("cos", "The cosine of radians.")
cosh = _math("cosh", "The hyperbolic cosine.")
exp = _math("exp", "e to the power of each element.")
expm1 = _math("expm1", "exp(x) - 1, accurate near 0.")
log = _math("log", "The natural logarithm; NaN below 0, -inf at 0.")
log1p = _math("log1p", "log(1 + x), accurate near 0.")
log2 = _math("log2", "The logarithm to base 2.")
log10 = _math("log10", "The logarithm to base 10.")
sin = _math("sin", "The sine of radians.")
sinh = _math("sinh", "The hyperbolic sine.")
sqrt = _math("sqrt", "The square root; NaN below 0.")
tan = _math("tan", "The tangent of radians.")
tanh = _math("tanh", "The hyperbolic tangent.")
reciprocal = _math("reciprocal", "1 / x.")

add = _arithmetic("add", "x1 + x2; of bools whether one holds.", "logical_or")
subtract = _arithmetic("subtract", "x1 - x2.")
multiply = _arithmetic("multiply", "x1 * x2; of bools whether both hold.", "logical_and")
floor_divide = _arithmetic("floor_divide", "x1 / x2, rounded down. An integer divided by 0 gives 0.")
remainder = _arithmetic("remainder", "The remainder of x1 / x2, with the sign of x2. An integer's by 0 is 0.")
maximum = _arithmetic("maximum", "The larger of two; NaN where one is NaN.", "logical_or")
minimum = _arithmetic("minimum", "The smaller of two; NaN where one is NaN.", "logical_and")

divide = _float_pair("divide", "x1 / x2. Integers become the default float.")
atan2 = _float_pair("atan2", "The angle of the point (x2, x1), in radians from -pi to pi.")
copysign = _float_pair("copysign", "The magnitude of x1 with the sign of x2.")
hypot = _float_pair("hypot", "`sqrt(x1*x1 + x2*x2)`, without overflow in between.")
logaddexp = _float_pair("logaddexp", "log(exp(x1) + exp(x2)), without overflow in between.")
nextafter = _float_pair("nextafter", "The next float after x1 towards x2.")

equal = _compare("equal", "x1 == x2, element by element.", False)
not_equal = _compare("not_equal", "x1 != x2, element by element.", False)
less = _compare("less", "x1 < x2.", True)
less_equal = _compare("less_equal", "x1 <= x2.", True)
greater = _compare("greater", "x1 > x2.", True)
greater_equal = _compare("greater_equal", "x1 >= x2.", True)

logical_and = _logical("logical_and", "Both hold (are not 0).")
logical_or = _logical("logical_or", "One or both hold (are not 0).")
logical_xor = _logical("logical_xor", "Just one holds (is not 0).")

bitwise_and = _bits("bitwise_and", "The bits that both have.", "bitwise_and", "logical_and")
bitwise_or = _bits("bitwise_or", "The bits that one or both have.", "bitwise_or", "logical_or")
bitwise_xor = _bits("bitwise_xor", "The bits that just one has.", "bitwise_xor", "logical_xor")
bitwise_left_shift = _bits(
    "bitwise_left_shift", "x1 * 2**x2, without the bits that leave; 0 for a count as large as the type.", "left_shift"
)
bitwise_right_shift = _bits("bitwise_right_shift", "x1 / 2**x2, rounded down.", "right_shift")

isfinite = _classify("isfinite", "Whether x is neither infinite nor NaN.", True)
isinf = _classify("isinf", "Whether x is plus or minus infinity.", False)
isnan = _classify("isnan", "Whether x is NaN.", False)

ceil = _rounding("ceil", "The smallest whole number not below x.")
floor = _rounding("floor", "The largest whole number not above x.")
trunc = _rounding("trunc", "x without its fraction.")


_round_even = _rounding("round", "The nearest whole number, halves to even.", "round_even")


@of_numbers
def round(x: Array, /, decimals: int = 0) -> Array:
    """The nearest number of so many decimals (hundreds for -2), halves to even. Integers stay integers."""
    if not decimals or (decimals > 0 and dtypes.is_int(node_of(x).dtype)):
        return _round_even(x)
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    if decimals > 0:
        return divide(_round_even(multiply(x, scale)), scale)
    n = node_of(x)
    wide = Array(build.cast(n, dtypes.float64)) if dtypes.is_int(n.dtype) else x
    return Array(build.cast(multiply(_round_even(divide(wide, scale)), scale)._node, n.dtype))


@of_numbers
def abs(x: Array, /) -> Array:
    """The absolute value."""
    n = node_of(x)
    return Array(
        build.unary("identity" if n.dtype == "bool" or n.dtype in dtypes.KINDS["unsigned integer"] else "abs", n)
    )


@of_numbers
def negative(x: Array, /) -> Array:
    """-x."""
    return Array(build.unary("neg", _numeric("negative", node_of(x))))


@of_numbers
def positive(x: Array, /) -> Array:
    """x."""
    return Array(build.unary("identity", _numeric("positive", node_of(x))))


@of_numbers
def square(x: Array, /) -> Array:
    """x * x."""
    return Array(build.unary("square", _numeric("square", node_of(x))))


@of_numbers
def sign(x: Array, /) -> Array:
    """-1, 0 or 1; NaN for NaN."""
    n = _numeric("sign", node_of(x))
    return Array(build.unary("signum", n))


@of_numbers
def signbit(x: Array, /) -> Array:
    """Whether the sign is minus, that of a zero or NaN too."""
    n = node_of(x)
    if not dtypes.is_float(n.dtype):
        raise _refuse("signbit", n.dtype, "floats")
    return Array(build.unary("signbit", n, dtypes.bool))


@of_numbers
def logical_not(x: Array, /) -> Array:
    """The opposite of each bool; of numbers whether they are 0."""
    return Array(build.unary("logical_not", build.cast(node_of(x), dtypes.bool)))


@of_numbers
def bitwise_invert(x: Array, /) -> Array:
    """All bits turned over; the opposite of bools."""
    n = node_of(x)
    if n.dtype == "bool":
        return Array(build.unary("logical_not", n))
    if not dtypes.is_int(n.dtype):
        raise _refuse("bitwise_invert", n.dtype, "integers or bools")
    return Array(build.unary("bitwise_not", n))


# Exponents that are a shorter computation than a power.
_POWERS = {2.0: "square", 1.0: "identity", 0.5: "sqrt", -1.0: "reciprocal"}


@of_numbers
def pow(x1: Any, x2: Any, /) -> Array:
    """x1 to the power x2. Integers to a negative power are 0, but for 1 and -1: the quotient toward 0. Raises ArrayValueError where the exponent of integers is
    a negative number."""
    a, b = pair(x1, x2)
    _numeric("pow", a)
    if dtypes.is_int(a.dtype):
        if type(x2) is int and x2 < 0:
            raise ArrayValueError(
                f"pow: integers ({a.dtype}) to the power {x2}", hint="as floats: x.astype(xp.float32) ** -1"
            )
        if x2 is not None and type(x2) is int and x2 == 2:
            return Array(build.unary("square", a))
        return Array(build.binary("int_power", a, b))
    if type(x2) in (int, float) and x2 in _POWERS and not (x2 == 0.5):
        return Array(build.unary(_POWERS[x2], a))
    return Array(build.binary("power", a, b))


@of_numbers
def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """x, but not below `min` and not above `max`: numbers or arrays that broadcast, of the type of x; None for no bound."""
    n = _numeric("clip", node_of(x))
    for bound, op in ((min, "maximum"), (max, "minimum")):
        if bound is None:
            continue
        b = bound._node if type(bound) is Array else _limit(bound, n)
        if b is None:
            continue
        kind = dtypes.promote(n.dtype, b.dtype)
        n = (
            build.binary(op, n, build.cast(b, kind))
            if kind == n.dtype
            else build.binary(op, build.cast(n, kind), build.cast(b, kind))
        )
    return Array(n) if n is not x._node else Array(build.unary("identity", n))


def _limit(bound: Any, n: Node) -> Node | None:
    """A number as a bound. One beyond an integer type is no bound, or its end."""
    if type(bound) is int and dtypes.is_int(n.dtype):
        low, high = dtypes.int_limits(n.dtype)
        bound = low if bound < low else high if bound > high else bound
    return number(bound, n)


@of_numbers
def real(x: Array, /) -> Array:
    """The real part; of a real array x itself."""
    n = node_of(x)
    return Array(build.unary("identity", build.parts(n)[0])) if dtypes.is_complex(n.dtype) else positive(x)


@of_numbers
def conj(x: Array, /) -> Array:
    """The complex conjugate; of a real array x itself."""
    n = node_of(x)
    return Array(build.unary("conj", n)) if dtypes.is_complex(n.dtype) else positive(x)


@of_numbers
def imag(x: Array, /) -> Array:
    """The imaginary part; of a real array zeros."""
    n = _numeric("imag", node_of(x))
    if dtypes.is_complex(n.dtype):
        return Array(build.unary("identity", build.parts(n)[1]))
    return Array(build.full(0, n.shape, n.dtype, n.device))


# ---- operators


def _operator(function: Callable[[Any, Any], Array], swapped: bool = False) -> Any:
    def method(self: Array, other: Any, /) -> Any:
        if type(other) is Array or isinstance(other, NUMBERS):
            return function(other, self) if swapped else function(self, other)
        if type(other).__module__.partition(".")[0] == "numpy" or hasattr(other, "__dlpack__"):
            raise no_array(other)
        return NotImplemented

    return method


def _in_place(function: Callable[[Any, Any], Array]) -> Any:
    def method(self: Array, other: Any, /) -> Any:
        if type(other) is not Array and not isinstance(other, NUMBERS):
            raise no_array(other)
        made = function(self, other)._node
        if made.dtype != self.dtype or made.shape != self.shape:
            raise ArrayTypeError(
                f"an array of {self.dtype} and shape {self.shape} cannot become {made.dtype} of shape {made.shape} in place",
                hint="x = x + y makes another array",
            )
        self._become(made)
        return self

    return method


_OPERATORS: dict[str, Callable[[Any, Any], Array]] = {
    "add": add, "sub": subtract, "mul": multiply, "truediv": divide, "floordiv": floor_divide, "mod": remainder, "pow": pow,
    "and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor, "lshift": bitwise_left_shift, "rshift": bitwise_right_shift,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[Any, Any], Array]] = {
    "eq": equal, "ne": not_equal, "lt": less, "le": less_equal, "gt": greater, "ge": greater_equal,
}  # fmt: skip


def _unary_method(function: Callable[[Array], Array]) -> Any:
    return lambda self: function(self)


def _give_operators() -> None:
    """Array's operators are the functions of this module."""
    for name, f in _OPERATORS.items():
        for word, method in ((name, _operator(f)), (f"r{name}", _operator(f, True)), (f"i{name}", _in_place(f))):
            method.__name__ = f"__{word}__"
            setattr(Array, f"__{word}__", method)
    for name, f in _COMPARISONS.items():
        method = _operator(f)
        method.__name__ = f"__{name}__"
        setattr(Array, f"__{name}__", method)
    for name, g in (("abs", abs), ("neg", negative), ("pos", positive), ("invert", bitwise_invert)):
        setattr(Array, f"__{name}__", _unary_method(g))


_give_operators()
