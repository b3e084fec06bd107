"""The Python operators of everything that stands for a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ExprError

_build: Any = None  # tec.ir.build, put here by it: the operators need the builders, which need the classes
elementwise: Any = None  # put here by tec.te: the operators of whole tensors, which make a tensor


class Whole:
    """What may stand for a tensor as a whole: one with dimensions is computed with element by element."""

    __slots__ = ()
    shape: tuple[Any, ...]


def _one(f: Callable[[Any], Any], a: Any) -> Any:
    return elementwise(f, a) if isinstance(a, Whole) and a.shape else f(a)


def _two(f: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if (isinstance(a, Whole) and a.shape) or (isinstance(b, Whole) and b.shape):
        return elementwise(f, a, b)
    return f(a, b)


def _compare(how: str, a: Any, b: Any) -> Any:
    if (isinstance(a, Whole) and a.shape) or (isinstance(b, Whole) and b.shape):
        return elementwise(lambda x, y: _build.compare(how, x, y), a, b, name=how)
    return _build.compare(how, a, b)


class ExprOps:
    """The Python operators, for everything that stands for a value: Expr, IterVar, Tensor, TensorSlice.

    Each goes through `tec.ir.build`, which converts operands, promotes types and folds constants. Where an operand is a tensor with dimensions
    (`A + B`, `2 * A`), the result is a tensor, computed element by element under NumPy's rule of broadcasting.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Any:
        return _two(_build.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return _two(_build.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return _two(_build.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _two(_build.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return _two(_build.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _two(_build.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return _two(_build.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _two(_build.truediv, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _two(_build.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _two(_build.floordiv, other, self)

    def __mod__(self, other: Any) -> Any:
        return _two(_build.floormod, self, other)

    def __rmod__(self, other: Any) -> Any:
        return _two(_build.floormod, other, self)

    def __pow__(self, other: Any) -> Any:
        return _two(_build.power, self, other)

    def __rpow__(self, other: Any) -> Any:
        return _two(_build.power, other, self)

    def __neg__(self) -> Any:
        return _one(_build.neg, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _one(_build.absolute, self)

    def __lshift__(self, other: Any) -> Any:
        return _two(_build.left_shift, self, other)

    def __rlshift__(self, other: Any) -> Any:
        return _two(_build.left_shift, other, self)

    def __rshift__(self, other: Any) -> Any:
        return _two(_build.right_shift, self, other)

    def __rrshift__(self, other: Any) -> Any:
        return _two(_build.right_shift, other, self)

    def __and__(self, other: Any) -> Any:
        return _two(_build.bitwise_and, self, other)

    def __rand__(self, other: Any) -> Any:
        return _two(_build.bitwise_and, other, self)

    def __or__(self, other: Any) -> Any:
        return _two(_build.bitwise_or, self, other)

    def __ror__(self, other: Any) -> Any:
        return _two(_build.bitwise_or, other, self)

    def __xor__(self, other: Any) -> Any:
        return _two(_build.bitwise_xor, self, other)

    def __rxor__(self, other: Any) -> Any:
        return _two(_build.bitwise_xor, other, self)

    def __invert__(self) -> Any:
        return _one(_build.bitwise_not, self)

    def __lt__(self, other: Any) -> Any:
        return _compare("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return _compare("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return _compare("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return _compare("ge", self, other)

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

    def __bool__(self) -> bool:
        raise ExprError(
            f"the truth value of a symbolic {type(self).__name__} is not known while the program is being built",
            hint="use tec.all(...), tec.any(...), tec.if_then_else(cond, a, b) or tec.select in place of and, or, not, if and chained comparisons",
        )
