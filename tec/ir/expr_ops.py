"""The Python operators of everything that stands for a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import ExprError
from .spelling import Spelled

_build: Any = None  # tec.ir.build, put here by it: the operators need the builders, which need the classes
elementwise: Any = None  # put here by tec.te: the operators of whole tensors, which make a tensor

with_complex: Any = None  # put here by tec.te: the operators where one side is a complex number of Python


class Whole:
    """What may stand for a tensor as a whole: one with dimensions is computed with element by element."""

    __slots__ = ()
    shape: tuple[Any, ...]


class Apart:
    """A value with operators of its own, which those of expressions leave to it: a complex number."""

    __slots__ = ()


def _one(f: Callable[[Any], Any], a: Any) -> Any:
    return elementwise(f, a) if isinstance(a, Whole) and a.shape else f(a)


def _two(f: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if isinstance(b, Apart):
        return NotImplemented
    if isinstance(a, complex) or isinstance(b, complex):
        return with_complex(f.__name__, a, b)
    if (isinstance(a, Whole) and a.shape) or (isinstance(b, Whole) and b.shape):
        return elementwise(f, a, b)
    return f(a, b)


def _compare(how: str, a: Any, b: Any) -> Any:
    if isinstance(b, Apart):
        return NotImplemented
    if (isinstance(a, Whole) and a.shape) or (isinstance(b, Whole) and b.shape):
        return elementwise(lambda x, y: _build.compare(how, x, y), a, b, name=how)
    return _build.compare(how, a, b)


_Method = Callable[[Any, Any], Any]


def _operators(name: str) -> tuple[_Method, _Method]:
    """An operator of two values by its builder, as a method of the left and of the right one."""

    def of_left(self: Any, other: Any) -> Any:
        return _two(getattr(_build, name), self, other)

    def of_right(self: Any, other: Any) -> Any:
        return _two(getattr(_build, name), other, self)

    return of_left, of_right


def _comparison(how: str) -> _Method:
    return lambda self, other: _compare(how, self, other)


class SymbolicValueError(ExprError, TypeError):
    """A number asked of what is a value of the program being built."""


_OPERATORS = {
    "add": "__add__", "subtract": "__sub__", "multiply": "__mul__", "divide": "__truediv__", "true_divide": "__truediv__",
    "floor_divide": "__floordiv__", "remainder": "__mod__", "power": "__pow__", "left_shift": "__lshift__", "right_shift": "__rshift__",
    "bitwise_and": "__and__", "bitwise_or": "__or__", "bitwise_xor": "__xor__", "negative": "__neg__", "positive": "__pos__",
    "absolute": "__abs__", "invert": "__invert__", "less": "__lt__", "less_equal": "__le__", "greater": "__gt__",
    "greater_equal": "__ge__", "equal": "__eq__", "not_equal": "__ne__",
}  # fmt: skip
_MIRRORED = {
    "__lt__": "__gt__", "__le__": "__ge__", "__gt__": "__lt__", "__ge__": "__le__", "__eq__": "__eq__", "__ne__": "__ne__",
}  # fmt: skip
# NumPy's names of functions that tec has under another.
_NAMES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "fabs": "abs",
    "fmax": "max", "fmin": "min", "rint": "nearbyint", "mod": "floormod", "float_power": "power",
    "logical_and": "all", "logical_or": "any",
}  # fmt: skip
# What to write for functions of NumPy that tec has not; None: nothing short.
_WRITTEN = {
    "square": "a * a", "reciprocal": "1 / a", "signbit": "a < 0", "heaviside": "tec.select(a == 0, b, (a > 0).astype(a.dtype))",
    "logical_not": "a == 0", "logical_xor": "(a != 0) != (b != 0)", "deg2rad": "a * (math.pi / 180)", "radians": "a * (math.pi / 180)",
    "rad2deg": "a * (180 / math.pi)", "degrees": "a * (180 / math.pi)", "divmod": "a // b and a % b", "modf": "tec.trunc(a) and a - tec.trunc(a)",
    "cbrt": "tec.sign(a) * tec.power(tec.abs(a), 1 / 3)", "logaddexp": "tec.maximum(a, b) + tec.log1p(tec.exp(-tec.abs(a - b)))",
    "matmul": "tec.sum(A[i, k] * B[k, j], axis=k)", "matvec": "tec.sum(A[i, k] * B[k], axis=k)", "vecmat": "tec.sum(A[k] * B[k, j], axis=k)",
    "vecdot": "tec.sum(A[k] * B[k], axis=k)",
    **dict.fromkeys(("bitwise_count", "conj", "conjugate", "frexp", "gcd", "isnat", "lcm", "logaddexp2", "spacing")),
}  # fmt: skip


class ExprOps(Spelled):
    """The Python operators, for everything that stands for a value: Expr, IterVar, Tensor, TensorSlice.

    Each goes through `tec.ir.build`, which converts operands, promotes types and folds constants. Where an operand is a tensor with dimensions
    (`A + B`, `2 * A`), the result is a tensor, computed element by element under NumPy's rule of broadcasting.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("sub")
    __mul__, __rmul__ = _operators("mul")
    __truediv__, __rtruediv__ = _operators("truediv")
    __floordiv__, __rfloordiv__ = _operators("floordiv")
    __mod__, __rmod__ = _operators("floormod")
    __pow__, __rpow__ = _operators("power")

    def __neg__(self) -> Any:
        return _one(_build.neg, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _one(_build.absolute, self)

    __lshift__, __rlshift__ = _operators("left_shift")
    __rshift__, __rrshift__ = _operators("right_shift")
    __and__, __rand__ = _operators("bitwise_and")
    __or__, __ror__ = _operators("bitwise_or")
    __xor__, __rxor__ = _operators("bitwise_xor")

    def __invert__(self) -> Any:
        return _one(_build.bitwise_not, self)

    __lt__ = _comparison("lt")
    __le__ = _comparison("le")
    __gt__ = _comparison("gt")
    __ge__ = _comparison("ge")

    def __eq__(self, other: Any) -> Any:
        if other is None:
            return False
        return _build.compare("eq", self, other)

    def __ne__(self, other: Any) -> Any:
        if other is None:
            return True
        return _build.compare("ne", self, other)

    def equal(self, other: Any) -> Any:
        """The EQ node; the same as `self == other`."""
        return _build.compare("eq", self, other)

    def same_as(self, other: Any) -> bool:
        """Whether `other` is this very object."""
        return self is other

    def astype(self, dtype: Any) -> Any:
        """This value converted to `dtype`."""
        return _one(lambda x: _build.cast(dtype, x), self)

    def __float__(self) -> float:
        raise SymbolicValueError(
            f"a symbolic {type(self).__name__} has no number yet, as math's functions would need",
            hint="tec has them under the same names: tec.exp(x)",
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's operators, of its numbers and arrays of values; its functions are refused, with tec's name."""
        operator = _OPERATORS.get(ufunc.__name__)
        if operator is None or method != "__call__" or options:
            name = _NAMES.get(ufunc.__name__, ufunc.__name__)
            written = _WRITTEN.get(ufunc.__name__, f"tec.{name}({', '.join('abc'[: ufunc.nin])})")
            raise SymbolicValueError(
                f"np.{ufunc.__name__} of a symbolic {type(self).__name__}",
                hint=f"{written} computes it later"
                if written
                else "tec has no such function: write what it computes with those of tec",
            )

        def apply(*x: Any) -> Any:
            first = isinstance(x[0], ExprOps)
            return (
                getattr(x[0], operator)(*x[1:])
                if first
                else getattr(x[1], _MIRRORED.get(operator, f"__r{operator[2:]}"))(x[0])
            )

        if not any(isinstance(x, np.ndarray) for x in inputs):
            return apply(*inputs)
        boxes = [np.empty((), object) if isinstance(x, ExprOps) else np.asarray(x) for x in inputs]
        for box, x in zip(boxes, inputs):
            if isinstance(x, ExprOps):
                box[()] = x
        return np.frompyfunc(apply, len(inputs), 1)(*boxes)

    def __iter__(self) -> Iterator[Any]:
        raise SymbolicValueError(
            f"a symbolic {type(self).__name__} is one value and cannot be iterated over",
            hint="tec.sum(x, axis=k), tec.max and tec.min reduce over an axis k = tec.reduce_axis((0, n)), in place of Python's sum, max and min",
        )

    def __bool__(self) -> bool:
        raise ExprError(
            f"the truth value of a symbolic {type(self).__name__} is not known while the program is being built",
            hint="use tec.all(...), tec.any(...), tec.if_then_else(cond, a, b) or tec.select in place of and, or, not, if and chained comparisons, and tec.max or tec.min in place of Python's",
        )
