"""complex64 and complex128 in te: a value is a pair of real expressions, a tensor one of reals with a last dimension of 2, as NumPy has it in memory.

    A = te.placeholder((n, m), "complex64", name="A")
    C = te.compute((n,), lambda i: te.sum(A[i, k] * te.conj(B[k]), axis=k))

Loop IR has real numbers alone. The compute's operation has one axis more than its shape, the last, of the two parts: `C.op.axis` is (i, part).
Schedules treat it as any other; `C.axis` leaves it out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..errors import ExprError
from ..ir import build, expr_ops
from ..ir.dtype import dtype_info
from ..ir.expr import Expr, Var
from ..ir.expr_ops import Apart
from .tensor import Tensor

PART = {"complex64": "float32", "complex128": "float64"}
WHOLE = {part: whole for whole, part in PART.items()}


class Complex:
    """What a compute's function may give for an element of a complex tensor."""

    dtype: str

    def body(self, part: Var) -> Expr:
        """The real number at `part`, 0 or 1."""
        raise NotImplementedError


class ComplexValue(Complex, Apart):
    """A complex number: `real` and `imag` are expressions of one float type."""

    __slots__ = ("imag", "real")
    __array_ufunc__ = None  # NumPy's numbers leave operators to this class
    __hash__ = object.__hash__

    def __init__(self, real: Any, imag: Any):
        a, b = build.match(_floating(real), _floating(imag))
        if a.dtype not in WHOLE:
            raise ExprError(f"a complex number of parts of type {a.dtype}", hint="float32 or float64; cast them")
        self.real, self.imag = a, b

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """ "complex64" or "complex128"."""
        return WHOLE[self.real.dtype]

    def body(self, part: Var) -> Expr:
        return build.select(build.compare("eq", part, 0), self.real, self.imag)

    def astype(self, dtype: str) -> ComplexValue:
        """The number in another complex type."""
        if dtype not in PART:
            raise ExprError(f"a complex number as {dtype}", hint="take x.real, x.imag or te.abs(x), and cast that")
        return ComplexValue(*(build.cast(PART[dtype], x) for x in (self.real, self.imag)))

    def conj(self) -> ComplexValue:
        """The conjugate."""
        return ComplexValue(self.real, -self.imag)

    conjugate = conj

    def asexpr(self) -> NoReturn:
        """Where a real value is wanted. Raises ExprError."""
        raise ExprError(
            f"a {self.dtype} number where a real one is wanted",
            hint="x.real, x.imag or te.abs(x); +, -, *, /, ==, te.conj, te.exp, te.select and te.sum take complex numbers",
        )

    def __repr__(self) -> str:
        return f"({self.real}, {self.imag}j)"

    def __bool__(self) -> NoReturn:
        self.asexpr()

    def __neg__(self) -> ComplexValue:
        return ComplexValue(-self.real, -self.imag)

    def __pos__(self) -> ComplexValue:
        return self

    def __abs__(self) -> Expr:
        return magnitude(self)

    def __add__(self, other: Any) -> ComplexValue:
        o = like(other, self)
        return ComplexValue(self.real + o.real, self.imag + o.imag)

    __radd__ = __add__

    def __sub__(self, other: Any) -> ComplexValue:
        return self + -like(other, self)

    def __rsub__(self, other: Any) -> ComplexValue:
        return like(other, self) + -self

    def __mul__(self, other: Any) -> ComplexValue:
        if not _is_complex(other):
            return ComplexValue(self.real * other, self.imag * other)
        o = like(other, self)
        return ComplexValue(self.real * o.real - self.imag * o.imag, self.real * o.imag + self.imag * o.real)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> ComplexValue:
        if not _is_complex(other):
            return ComplexValue(self.real / other, self.imag / other)
        return _quotient(self, like(other, self))

    def __rtruediv__(self, other: Any) -> ComplexValue:
        return _quotient(like(other, self), self)

    def __pow__(self, n: Any) -> ComplexValue:
        if not isinstance(n, int) or isinstance(n, bool) or not 0 < n <= 64:
            raise ExprError(f"a complex number to the power {n!r}", hint="a whole power from 1 to 64 is products")
        half = self ** (n // 2) if n > 1 else self
        return self if n == 1 else half * half * self if n % 2 else half * half

    def __eq__(self, other: Any) -> Any:
        o = like(other, self)
        return build.all_of(build.compare("eq", self.real, o.real), build.compare("eq", self.imag, o.imag))

    def __ne__(self, other: Any) -> Any:
        return build.logical_not(self == other)

    def _no_order(self, other: Any) -> NoReturn:
        raise ExprError("complex numbers have no order", hint="compare te.abs(x), x.real or x.imag")

    __lt__ = __le__ = __gt__ = __ge__ = _no_order


class ComplexSum(Complex):
    """A sum of complex numbers over reduction axes: the outermost expression of a compute."""

    def __init__(self, value: ComplexValue, add: Callable[..., Expr], options: dict[str, Any]):
        self.value, self.add, self.options = value, add, options
        self.dtype = value.dtype

    def body(self, part: Var) -> Expr:
        options = dict(self.options)
        if options.get("init") is not None:
            options["init"] = like(options["init"], self.value).body(part)
        return self.add(self.value.body(part), **options)

    def asexpr(self) -> NoReturn:
        """Where it is part of another expression. Raises ExprError."""
        raise ExprError(
            "a complex sum within an expression: a reduction must be the outermost expression of a compute",
            hint="make it a tensor of its own and read that: S = te.compute(shape, lambda i: te.sum(..., axis=k))",
        )

    def _within(self, other: Any = None) -> NoReturn:
        self.asexpr()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = __abs__ = (
        _within
    )


def reduced(reducer: Any, value: ComplexValue, **options: Any) -> ComplexSum:
    """What a reducer makes of a complex value over axes; only `te.sum` has a meaning."""
    if reducer.name != "sum":
        raise ExprError(
            f"te.{reducer.name} of complex numbers",
            hint="te.sum adds them; te.comm_reducer over the tuple (x.real, x.imag) combines them in another way",
        )
    return ComplexSum(value, reducer, options)


class ComplexTensor:
    """A tensor of complex numbers. reals: the tensor of its parts, (..., 2).

    >>> Z = te.placeholder((4,), "complex64", name="Z")
    >>> Z.shape, Z.dtype, Z.reals.shape
    ((4,), 'complex64', (4, 2))
    >>> te.compute((4,), lambda i: Z[i] * Z[i], name="squares")
    Tensor(shape=[4], dtype=complex64, op=squares)
    """

    __slots__ = ("__weakref__", "reals")

    def __init__(self, reals: Tensor):
        self.reals = reals

    @property
    def op(self) -> Any:
        """The operation. Its last axis is that of the two parts."""
        return self.reals.op

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The shape of the complex numbers, without the dimension of their two parts."""
        return self.reals.shape[:-1]

    @property
    def dtype(self) -> str:
        """ "complex64" or "complex128"."""
        return WHOLE[self.reals.dtype]

    @property
    def axis(self) -> Any:
        """The axes of its shape, without that of the parts."""
        return self.reals.op.axis[: self.ndim]

    @property
    def name(self) -> str:
        return self.reals.name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.reals.ndim - 1

    def __getitem__(self, indices: Any) -> Any:
        return self(*(indices if isinstance(indices, tuple) else (indices,)))

    def __call__(self, *indices: Any) -> ComplexValue:
        if len(indices) == 1 and isinstance(indices[0], (tuple, list)):
            indices = tuple(indices[0])
        if len(indices) != self.ndim:
            raise ExprError(
                f"tensor {self.name} has {self.ndim} dimensions, indexed with {len(indices)}",
                hint="a complex tensor takes all indices at once: A[i, j]",
            )
        return ComplexValue(self.reals(*indices, 0), self.reals(*indices, 1))

    def _whole(self, other: Any = None) -> NoReturn:
        raise ExprError(
            f"an operator of the whole complex tensor {self.name}",
            hint=f"te.compute({self.name}.shape, lambda *i: {self.name}(*i) ...)",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = __abs__ = (
        _whole
    )

    def __repr__(self) -> str:
        return f"Tensor(shape=[{', '.join(map(str, self.shape))}], dtype={self.dtype}, op={self.op.name})"


def reals(x: Any) -> Any:
    """The tensor of parts of a complex tensor, also within a list; anything else as it is."""
    if isinstance(x, (list, tuple)):
        return [reals(y) for y in x]
    return x.reals if isinstance(x, ComplexTensor) else x


def is_complex_op(op: Any) -> bool:
    """Whether an operation's tensor holds complex numbers."""
    return bool(op.attrs.get("complex"))


# ---- functions


def complex_(real: Any, imag: Any) -> ComplexValue:
    """The complex number of two real values.

    >>> a = te.placeholder((4,), name="a")
    >>> te.compute((4,), lambda i: te.complex(a[i], 1.0), name="z").dtype
    'complex64'
    """
    return ComplexValue(real, imag)


def real(x: Any) -> Expr:
    """The real part; a real value is its own.

    >>> Z = te.placeholder((4,), "complex64", name="Z")
    >>> te.compute((4,), lambda i: te.real(Z[i]), name="x").dtype
    'float32'
    """
    return build.convert(x.real if isinstance(x, (ComplexValue, complex)) else x)


def imag(x: Any) -> Expr:
    """The imaginary part; 0 of a real value.

    >>> te.imag(te.complex(1.0, 2.0)), te.imag(3.0)
    (2.0, 0.0)
    """
    return build.convert(x.imag) if isinstance(x, (ComplexValue, complex)) else build.const(0, build.convert(x).dtype)


def conj(x: Any) -> Any:
    """The conjugate; a real value is its own.

    >>> te.imag(te.conj(te.complex(te.var("a", "float32"), te.var("b", "float32"))))
    -0.0 - b
    """
    return x.conj() if isinstance(x, ComplexValue) else build.convert(x)


def magnitude(x: ComplexValue) -> Expr:
    """The absolute value, without overflow on the way: the larger part times sqrt(1 + ratio^2)."""
    a, b = build.absolute(x.real), build.absolute(x.imag)
    large, small = build.maximum(a, b), build.minimum(a, b)
    zero = build.const(0, a.dtype)
    ratio = small / build.select(large > zero, large, build.const(1, a.dtype))
    scaled = large * build.call("sqrt", ratio * ratio + build.const(1, a.dtype), dtype=a.dtype)
    return build.select(build.compare("eq", large, build.const(float("inf"), a.dtype)), large, scaled)


def chosen(pick: Callable[..., Expr], cond: Any, a: Any, b: Any) -> Any:
    """`pick` (select or if_then_else) of two values, of which one may be complex."""
    if not (_is_complex(a) or _is_complex(b)):
        return pick(cond, a, b)
    # A number of Python's takes the type of what it stands beside.
    typed = next((v for v in (a, b) if isinstance(v, (ComplexValue, Expr))), None)
    beside = None if typed is None else like(typed, None)
    x, y = (like(v, beside) for v in (a, b))
    return ComplexValue(pick(cond, x.real, y.real), pick(cond, x.imag, y.imag))


def _quotient(x: ComplexValue, y: ComplexValue) -> ComplexValue:
    """x / y by Smith's algorithm, whose steps overflow only where the result does (CACM 5, 1962, algorithm 116)."""
    c, d = y.real, y.imag
    swap = build.absolute(c) < build.absolute(d)
    large, small = build.select(swap, d, c), build.select(swap, c, d)
    ratio = small / large
    below = large + small * ratio
    a, b = build.select(swap, x.imag, x.real), build.select(swap, x.real, x.imag)
    sign = build.select(swap, build.const(-1, c.dtype), build.const(1, c.dtype))
    return ComplexValue((a + b * ratio) / below, sign * (b - a * ratio) / below)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
}  # fmt: skip


def _with_complex(name: str, a: Any, b: Any) -> ComplexValue:
    """A real expression and a complex number of Python's, by the operator's builder."""
    found = _OPERATORS.get(name)
    if found is None:
        raise ExprError(f"{name} of a complex number", hint="+, -, * and / take complex numbers")
    value = _floating(b if isinstance(a, complex) else a)
    beside = ComplexValue(value, build.const(0, value.dtype))
    result: ComplexValue = found(*(like(x, beside) if isinstance(x, complex) else beside for x in (a, b)))
    return result


expr_ops.with_complex = _with_complex


def _is_complex(x: Any) -> bool:
    return isinstance(x, (ComplexValue, complex, np.complexfloating))


def like(x: Any, beside: ComplexValue | None) -> ComplexValue:
    """A number next to another: Python's takes its type. Raises ExprError for what is no number."""
    if isinstance(x, ComplexValue):
        return x
    if isinstance(x, Complex):
        x.asexpr()  # type: ignore[attr-defined]
    part = "float32" if beside is None else beside.real.dtype
    if isinstance(x, np.complexfloating):
        part = {"complex64": "float32", "complex128": "float64"}[x.dtype.name]
    if isinstance(x, (complex, np.complexfloating)):
        return ComplexValue(build.literal(float(x.real), part), build.literal(float(x.imag), part))
    if isinstance(x, (bool, int, float)):
        return ComplexValue(build.literal(float(x), part), build.const(0, part))
    value = _floating(x)
    return ComplexValue(value, build.const(0, value.dtype))


def _floating(x: Any) -> Expr:
    e = build.convert(x)
    info = dtype_info(e.dtype)
    if info.lanes > 1:
        raise ExprError(
            f"a complex number of vectors: {e.dtype}",
            hint="vectorize the loop over the elements instead: s[C].vectorize",
        )
    return e if info.is_float and e.dtype in WHOLE else build.cast("float32", e)


def select(cond: Any, a: Any, b: Any) -> Any:
    """`a` where `cond` holds, else `b`. Both are computed, so neither may read outside of a tensor. Takes complex numbers too.

    >>> A = tec.placeholder((8,), name="A")
    >>> relu = tec.compute((8,), lambda i: tec.select(A[i] > 0.0, A[i], 0.0))
    """
    return chosen(build.select, cond, a, b)


def if_then_else(cond: Any, a: Any, b: Any) -> Any:
    """`a` where `cond` holds, else `b`. The other is not computed, so it may read where the tensor has no element.

    >>> A = tec.placeholder((8,), name="A")
    >>> padded = tec.compute((10,), lambda i: tec.if_then_else(tec.all(i >= 1, i < 9), A[i - 1], 0.0))
    """
    return chosen(build.if_then_else, cond, a, b)
