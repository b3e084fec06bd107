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
    f.__module__, f.__doc__ = __name__, doc
    return f


def _with_example(doc: str, name: str, arguments: str, value: str, dtype: str) -> str:
    """The docstring of a function that is made: its words, and a session that tests/docs runs. arguments: the elements of the first, and behind " | " the second."""
    first, _, rest = arguments.partition(" | ")
    call = f"xp.{name}(xp.asarray([{first}]){rest and ', '}{rest})"
    return f"{doc}\n\n    >>> {call}\n    Array([{value}], dtype={dtype})\n    "


def _math(name: str, doc: str, arguments: str, value: str) -> Callable[[Array], Array]:
    """A function of floats."""

    def function(x: Array, /) -> Array:
        return Array(build.unary(name, _floating(node_of(x))))

    return _named(
        function,
        name,
        _with_example(f"{doc} Integers become the default float.", name, arguments, value, "float32"),
        of_one,
    )


def _arithmetic(name: str, doc: str, arguments: str, value: str, of_bools: str = "") -> Callable[[Any, Any], Array]:
    """`of_bools`: what NumPy does with two bools, where it gives a bool."""

    def function(x1: Any, x2: Any, /) -> Array:
        a, b = pair(x1, x2)
        if a.dtype == "bool" and of_bools:
            return Array(build.binary(of_bools, a, b))
        if a.dtype == "bool":
            raise _refuse(name, a.dtype, "numbers")
        return Array(build.binary(name, a, b))

    return _named(function, name, _with_example(doc, name, arguments, value, "int64"))


def _float_pair(name: str, doc: str, arguments: str, value: str) -> Callable[[Any, Any], Array]:
    def function(x1: Any, x2: Any, /) -> Array:
        a, b = pair(x1, x2)
        return Array(build.binary(name, _floating(a), _floating(b)))

    return _named(function, name, _with_example(doc, name, arguments, value, "float32"))


def _compare(name: str, doc: str, arguments: str, value: str, order: bool) -> Callable[[Any, Any], Array]:
    def function(x1: Any, x2: Any, /) -> Array:
        a, b = pair(x1, x2)
        if order and a.dtype == "bool":
            a, b = build.cast(a, dtypes.uint8), build.cast(b, dtypes.uint8)
        return Array(build.binary(name, a, b, dtypes.bool))

    return _named(function, name, _with_example(doc, name, arguments, value, "bool"))


def _logical(name: str, doc: str, arguments: str, value: str) -> Callable[[Any, Any], Array]:
    def function(x1: Any, x2: Any, /) -> Array:
        a, b = pair(x1, x2)
        return Array(build.binary(name, build.cast(a, dtypes.bool), build.cast(b, dtypes.bool)))

    return _named(function, name, _with_example(doc, name, arguments, value, "bool"))


def _bits(name: str, doc: str, arguments: str, value: str, op: str, logic: str = "") -> Callable[[Any, Any], Array]:
    """On integers; on bools, where `logic` names it, too."""

    def function(x1: Any, x2: Any, /) -> Array:
        a, b = pair(x1, x2)
        if a.dtype == "bool" and logic:
            return Array(build.binary(logic, a, b))
        if not dtypes.is_int(a.dtype):
            raise _refuse(name, a.dtype, "integers or bools" if logic else "integers")
        return Array(build.binary(op, a, b))

    return _named(function, name, _with_example(doc, name, arguments, value, "int64"))


def _classify(name: str, doc: str, arguments: str, value: str, of_int: bool) -> Callable[[Array], Array]:
    def function(x: Array, /) -> Array:
        n = node_of(x)
        if dtypes.is_int(n.dtype) or n.dtype == "bool":
            return Array(build.full(of_int, n.shape, dtypes.bool, n.device))
        return Array(build.unary(name, n, dtypes.bool))

    return _named(function, name, _with_example(doc, name, arguments, value, "bool"), of_one)


def _rounding(name: str, doc: str, arguments: str, value: str, op: str = "") -> Callable[[Array], Array]:
    def function(x: Array, /) -> Array:
        n = _numeric(name, node_of(x))
        return Array(build.unary("identity" if dtypes.is_int(n.dtype) else op or name, n))

    return _named(
        function, name, _with_example(f"{doc} Integers stay as they are.", name, arguments, value, "float32"), of_one
    )


# ---- functions

acos = _math("acos", "The arc cosine, in radians; NaN outside of [-1, 1].", "1.0, 0.0", "0.       , 1.5707964")
acosh = _math("acosh", "The inverse hyperbolic cosine; NaN below 1.", "1.0, 2.0", "0.      , 1.316958")
asin = _math("asin", "The arc sine, in radians; NaN outside of [-1, 1].", "0.0, 1.0", "0.       , 1.5707964")
asinh = _math("asinh", "The inverse hyperbolic sine.", "0.0, 1.0", "0.       , 0.8813736")
atan = _math("atan", "The arc tangent, in radians.", "0.0, 1.0", "0.       , 0.7853982")
atanh = _math("atanh", "The inverse hyperbolic tangent; NaN outside of [-1, 1].", "0.0, 0.5", "0.        , 0.54930615")
cos = _math("cos", "The cosine of radians.", "0.0, 1.0", "1.       , 0.5403023")
cosh = _math("cosh", "The hyperbolic cosine.", "0.0, 1.0", "1.       , 1.5430807")
exp = _math("exp", "e to the power of each element.", "0.0, 1.0", "1.       , 2.7182817")
expm1 = _math("expm1", "exp(x) - 1, accurate near 0.", "0.0, 1e-6", "0.0000000e+00, 1.0000005e-06")
log = _math("log", "The natural logarithm; NaN below 0, -inf at 0.", "1.0, 10.0", "0.       , 2.3025851")
log1p = _math("log1p", "log(1 + x), accurate near 0.", "0.0, 1e-6", "0.000000e+00, 9.999995e-07")
log2 = _math("log2", "The logarithm to base 2.", "1.0, 8.0", "0., 3.")
log10 = _math("log10", "The logarithm to base 10.", "1.0, 1000.0", "0., 3.")
sin = _math("sin", "The sine of radians.", "0.0, 1.0", "0.        , 0.84147096")
sinh = _math("sinh", "The hyperbolic sine.", "0.0, 1.0", "0.       , 1.1752012")
sqrt = _math("sqrt", "The square root; NaN below 0.", "4.0, 2.0", "2.       , 1.4142135")
tan = _math("tan", "The tangent of radians.", "0.0, 1.0", "0.       , 1.5574077")
tanh = _math("tanh", "The hyperbolic tangent.", "0.0, 1.0", "0.       , 0.7615942")
reciprocal = _math("reciprocal", "1 / x.", "4.0, 0.5", "0.25, 2.  ")

add = _arithmetic("add", "x1 + x2; of bools whether one holds.", "1, 2 | 10", "11, 12", "logical_or")
subtract = _arithmetic("subtract", "x1 - x2.", "1, 2 | 10", "-9, -8")
multiply = _arithmetic("multiply", "x1 * x2; of bools whether both hold.", "1, 2 | 10", "10, 20", "logical_and")
floor_divide = _arithmetic(
    "floor_divide", "x1 / x2, rounded down. An integer divided by 0 gives 0.", "7, -7 | 2", " 3, -4"
)
remainder = _arithmetic(
    "remainder", "The remainder of x1 / x2, with the sign of x2. An integer's by 0 is 0.", "7, -7 | 3", "1, 2"
)
maximum = _arithmetic("maximum", "The larger of two; NaN where one is NaN.", "1, 5 | 3", "3, 5", "logical_or")
minimum = _arithmetic("minimum", "The smaller of two; NaN where one is NaN.", "1, 5 | 3", "1, 3", "logical_and")

divide = _float_pair("divide", "x1 / x2. Integers become the default float.", "1, 2 | 4", "0.25, 0.5 ")
atan2 = _float_pair(
    "atan2", "The angle of the point (x2, x1), in radians from -pi to pi.", "0.0, 1.0 | -1.0", "3.1415927, 2.3561945"
)
copysign = _float_pair("copysign", "The magnitude of x1 with the sign of x2.", "1.0, 2.0 | -0.0", "-1., -2.")
hypot = _float_pair(
    "hypot", "`sqrt(x1*x1 + x2*x2)`, without overflow in between.", "3.0, 5.0 | 4.0", "5.       , 6.4031243"
)
logaddexp = _float_pair(
    "logaddexp", "log(exp(x1) + exp(x2)), without overflow in between.", "0.0, 1.0 | 0.0", "0.6931472, 1.3132617"
)
nextafter = _float_pair(
    "nextafter", "The next float after x1 towards x2.", "0.0, 1.0 | 2.0", "1.4012985e-45, 1.0000001e+00"
)

equal = _compare("equal", "x1 == x2, element by element.", "1, 2 | 2", "False,  True", False)
not_equal = _compare("not_equal", "x1 != x2, element by element.", "1, 2 | 2", " True, False", False)
less = _compare("less", "x1 < x2.", "1, 2 | 2", " True, False", True)
less_equal = _compare("less_equal", "x1 <= x2.", "1, 2 | 2", " True,  True", True)
greater = _compare("greater", "x1 > x2.", "2, 3 | 2", "False,  True", True)
greater_equal = _compare("greater_equal", "x1 >= x2.", "1, 2 | 2", "False,  True", True)

logical_and = _logical("logical_and", "Both hold (are not 0).", "0, 2 | 1", "False,  True")
logical_or = _logical("logical_or", "One or both hold (are not 0).", "0, 2 | 0", "False,  True")
logical_xor = _logical("logical_xor", "Just one holds (is not 0).", "0, 2 | 1", " True, False")

bitwise_and = _bits("bitwise_and", "The bits that both have.", "12, 5 | 6", "4, 4", "bitwise_and", "logical_and")
bitwise_or = _bits("bitwise_or", "The bits that one or both have.", "12, 5 | 6", "14,  7", "bitwise_or", "logical_or")
bitwise_xor = _bits("bitwise_xor", "The bits that just one has.", "12, 5 | 6", "10,  3", "bitwise_xor", "logical_xor")
bitwise_left_shift = _bits(
    "bitwise_left_shift",
    "x1 * 2**x2, without the bits that leave; 0 for a count as large as the type.",
    "1, 3 | 4",
    "16, 48",
    "left_shift",
)
bitwise_right_shift = _bits("bitwise_right_shift", "x1 / 2**x2, rounded down.", "16, -5 | 2", " 4, -2", "right_shift")

isfinite = _classify("isfinite", "Whether x is neither infinite nor NaN.", "1.0, float('inf')", " True, False", True)
isinf = _classify("isinf", "Whether x is plus or minus infinity.", "1.0, float('-inf')", "False,  True", False)
isnan = _classify("isnan", "Whether x is NaN.", "1.0, float('nan')", "False,  True", False)

ceil = _rounding("ceil", "The smallest whole number not below x.", "-1.5, 1.5", "-1.,  2.")
floor = _rounding("floor", "The largest whole number not above x.", "-1.5, 1.5", "-2.,  1.")
trunc = _rounding("trunc", "x without its fraction.", "-1.5, 1.5", "-1.,  1.")


_round_even = _rounding("round", "The nearest whole number, halves to even.", "0.5, 1.5", "0., 2.", "round_even")


@of_numbers
def round(x: Array, /, decimals: int = 0) -> Array:
    """The nearest number of so many decimals (hundreds for -2), halves to even. Integers stay integers.

    >>> xp.round(xp.asarray([0.5, 1.26]), 1)
    Array([0.5, 1.3], dtype=float32)
    """
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
    """The absolute value.

    >>> xp.abs(xp.asarray([-1, 2]))
    Array([1, 2], dtype=int64)
    """
    n = node_of(x)
    return Array(
        build.unary("identity" if n.dtype == "bool" or n.dtype in dtypes.KINDS["unsigned integer"] else "abs", n)
    )


@of_numbers
def negative(x: Array, /) -> Array:
    """-x.

    >>> xp.negative(xp.asarray([1, -2]))
    Array([-1,  2], dtype=int64)
    """
    return Array(build.unary("neg", _numeric("negative", node_of(x))))


@of_numbers
def positive(x: Array, /) -> Array:
    """x.

    >>> xp.positive(xp.asarray([1, -2]))
    Array([ 1, -2], dtype=int64)
    """
    return Array(build.unary("identity", _numeric("positive", node_of(x))))


@of_numbers
def square(x: Array, /) -> Array:
    """x * x.

    >>> xp.square(xp.asarray([3, -2]))
    Array([9, 4], dtype=int64)
    """
    return Array(build.unary("square", _numeric("square", node_of(x))))


@of_numbers
def sign(x: Array, /) -> Array:
    """-1, 0 or 1; NaN for NaN.

    >>> xp.sign(xp.asarray([-3.5, 0.0, 2.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    n = _numeric("sign", node_of(x))
    return Array(build.unary("signum", n))


@of_numbers
def signbit(x: Array, /) -> Array:
    """Whether the sign is minus, that of a zero or NaN too.

    >>> xp.signbit(xp.asarray([-0.0, 1.0]))
    Array([ True, False], dtype=bool)
    """
    n = node_of(x)
    if not dtypes.is_float(n.dtype):
        raise _refuse("signbit", n.dtype, "floats")
    return Array(build.unary("signbit", n, dtypes.bool))


@of_numbers
def logical_not(x: Array, /) -> Array:
    """The opposite of each bool; of numbers whether they are 0.

    >>> xp.logical_not(xp.asarray([0, 2]))
    Array([ True, False], dtype=bool)
    """
    return Array(build.unary("logical_not", build.cast(node_of(x), dtypes.bool)))


@of_numbers
def bitwise_invert(x: Array, /) -> Array:
    """All bits turned over; the opposite of bools.

    >>> xp.bitwise_invert(xp.asarray([0, 5]))
    Array([-1, -6], dtype=int64)
    """
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
    a negative number.

    >>> xp.pow(xp.asarray([2, 3]), 2)
    Array([4, 9], dtype=int64)
    """
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
    """x, but not below `min` and not above `max`: numbers or arrays that broadcast, of the type of x; None for no bound.

    >>> xp.clip(xp.asarray([-1, 0, 5]), 0, 3)
    Array([0, 0, 3], dtype=int64)
    """
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
    """The real part; of a real array x itself.

    >>> xp.real(xp.asarray([1 + 2j]))
    Array([1.], dtype=float32)
    """
    n = node_of(x)
    return Array(build.unary("identity", build.parts(n)[0])) if dtypes.is_complex(n.dtype) else positive(x)


@of_numbers
def conj(x: Array, /) -> Array:
    """The complex conjugate; of a real array x itself.

    >>> xp.conj(xp.asarray([1 + 2j]))
    Array([1.-2.j], dtype=complex64)
    """
    n = node_of(x)
    return Array(build.unary("conj", n)) if dtypes.is_complex(n.dtype) else positive(x)


@of_numbers
def imag(x: Array, /) -> Array:
    """The imaginary part; of a real array zeros.

    >>> xp.imag(xp.asarray([1 + 2j]))
    Array([2.], dtype=float32)
    """
    n = _numeric("imag", node_of(x))
    if dtypes.is_complex(n.dtype):
        return Array(build.unary("identity", build.parts(n)[1]))
    return Array(build.full(0, n.shape, n.dtype, n.device))


# ---- operators


def _divmod(a: Any, b: Any) -> tuple[Array, Array]:
    return floor_divide(a, b), remainder(a, b)


def _operator(function: Callable[[Any, Any], Any], swapped: bool = False) -> Any:
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
    for word, swapped in (("divmod", False), ("rdivmod", True)):
        setattr(Array, f"__{word}__", _operator(_divmod, swapped))
    for name, f in _COMPARISONS.items():
        method = _operator(f)
        method.__name__ = f"__{name}__"
        setattr(Array, f"__{name}__", method)
    for name, g in (("abs", abs), ("neg", negative), ("pos", positive), ("invert", bitwise_invert)):
        setattr(Array, f"__{name}__", _unary_method(g))


_give_operators()
