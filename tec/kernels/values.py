"""What an expression of a kernel may be while it is translated, and which types combine.

A value is an `Expr` of loop IR; a Python object known at compile time (a number, a tuple of values, a function, a module, a dtype);
an `Array`; or a `Weak` number. Types:

- Python numbers, written in the kernel or taken from closures and globals, take the type of what they meet, as in NumPy 2; alone an
  int is int32 (int64 where it needs it), a float float32. An argument that is a Python float does the same at run time (`Weak`), so
  no digits of it are lost next to float64.
- Otherwise the wider of two floats, the float over the integer, the wider integer; signed and unsigned give the signed type that
  holds both (`tec.ir.convert.promote`).
- A variable that is assigned again in a branch or a loop has one type: `merge` of all that is assigned to it, which only widens where
  no value is lost. Assigned again in a straight line it simply is a new value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ..errors import ExprError, kind_of
from ..ir import build as B
from ..ir import expr as E
from ..ir.buffer import Buffer
from ..ir.dtype import dtype_info, normalize_dtype
from ..records import dataclass

WEAK_INT, WEAK_FLOAT = "int", "float"  # the types of Python numbers, among dtypes
WHOLE = {"float32": "complex64", "float64": "complex128"}  # the type of a part, and of the number
PART = {whole: part for part, whole in WHOLE.items()}


@dataclass(slots=True, eq=False)
class Weak:
    """A float64 expression whose type gives way to that of what it meets: a Python float that is an argument."""

    expr: E.Expr


@dataclass(slots=True, eq=False)
class Complex:
    """A complex number: two real ones, which are kept as floats."""

    real: Any
    imag: Any


@dataclass(slots=True, eq=False)
class Span:
    """The places of a dimension that a slice takes: `extent` of them from `start` on, `step` apart."""

    start: E.Expr
    extent: E.Expr
    step: int

    def at(self, i: E.Expr | Span) -> E.Expr | Span:
        """The place of the i-th, or of a slice of them."""
        if isinstance(i, Span):
            return Span(self._place(i.start), i.extent, self.step * i.step)
        return self._place(i)

    def _place(self, i: E.Expr) -> E.Expr:
        return B.add(self.start, i if self.step == 1 else B.mul(i, self.step))


@dataclass(slots=True, eq=False)
class Array:
    """An array: a parameter, or shared or local storage; or a part of one. `taken`: of a part, the place in each of the first dimensions of the buffer:
    an index, or a span that an index of the part runs over. `is_complex`: the last dimension of the buffer is the two parts of a number."""

    buffer: Buffer
    taken: tuple[E.Expr | Span, ...] = ()
    is_complex: bool = False

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def shape(self) -> tuple[E.Expr, ...]:
        """The extents of the indices that are still to be given."""
        rest = self.buffer.shape[len(self.taken) :]
        rest = rest[:-1] if self.is_complex else rest
        return (*[t.extent for t in self.taken if isinstance(t, Span)], *rest)

    def at(self, index: Sequence[E.Expr | Span]) -> tuple[Any, ...]:
        """The place in the buffer of an index of the array; of an index of fewer dimensions, the part's."""
        left = list(index)
        first = [(t.at(left.pop(0)) if left else t) if isinstance(t, Span) else t for t in self.taken]
        return (*first, *left)

    @property
    def adjacent(self) -> bool:
        """Whether neighbours along the last dimension are neighbours along the buffer's."""
        last = self.taken[-1] if self.taken and len(self.taken) == len(self.buffer.shape) else None
        return last is None or (isinstance(last, Span) and last.step == 1)

    @property
    def dtype(self) -> str:
        return WHOLE[self.buffer.dtype] if self.is_complex else self.buffer.dtype


@dataclass(slots=True, eq=False)
class Records:
    """An array of structs: an array for each field, of the same leading dimensions."""

    name: str
    fields: dict[str, Any]  # Array or Records
    ndim: int  # dimensions of the array, without those of fields

    @property
    def shape(self) -> tuple[E.Expr, ...]:
        first: Any = next(iter(self.fields.values()))
        return tuple(first.shape[: self.ndim])


@dataclass(slots=True, eq=False)
class Record:
    """An element of an array of structs; a reference, as in NumPy."""

    of: Records
    indices: tuple[E.Expr, ...]


@dataclass(slots=True, eq=False)
class Turns:
    """A `range` that a loop runs over; `kind`: of the loop in the IR."""

    start: Any
    stop: Any
    step: Any
    kind: str
    thread: str = ""  # the launch index that the loop is bound to
    of: Array | Records | Beside | None = None  # what they number the elements of, where the loop runs over these


@dataclass(slots=True, eq=False)
class Beside:
    """What `zip` and `enumerate` give for arrays and ranges: element k of each, as a tuple."""

    parts: tuple[Turns, ...]


Number = (bool, int, float, np.generic)


def is_number(v: Any) -> bool:
    """Whether a value is a number known at compile time."""
    return isinstance(v, Number)


def is_scalar(v: Any) -> bool:
    """Whether a value is a number, at compile time or at run time."""
    return isinstance(v, (E.Expr, Weak)) or is_number(v)


def settle(v: Any) -> E.Expr:
    """A number as an expression of a dtype of its own."""
    return B.cast("float32", v.expr) if isinstance(v, Weak) else B.convert(v)


def level(*values: Any) -> tuple[list[Any], bool]:
    """Operands of one operation with weak numbers in the type of the others; whether all are weak, so that the result is."""
    if not any(isinstance(v, Weak) for v in values):
        return list(values), False
    strong = [v.dtype for v in values if isinstance(v, E.Expr)]
    strong += [normalize_dtype(v.dtype) for v in values if isinstance(v, np.generic)]
    floats = [dtype_info(d).element for d in strong if dtype_info(d).is_float]
    if not strong:
        return [v.expr if isinstance(v, Weak) else v for v in values], True
    to = floats[0] if floats else "float32"
    for d in floats[1:]:
        to = B.promote(to, d)
    return [B.cast(to, v.expr) if isinstance(v, Weak) else v for v in values], False


def type_of(v: Any) -> str:
    """The type of a number: a dtype, or that of a Python number."""
    if isinstance(v, E.Expr):
        return v.dtype
    if isinstance(v, Weak):
        return WEAK_FLOAT
    if isinstance(v, (bool, np.bool_)):
        return "bool"
    if isinstance(v, np.generic):
        return normalize_dtype(v.dtype)
    return WEAK_INT if isinstance(v, int) else WEAK_FLOAT


def merge(a: str, b: str) -> str | None:
    """The type of a variable that is given values of both types; None where one cannot hold them without loss."""
    if a == b:
        return a
    if {a, b} == {WEAK_INT, WEAK_FLOAT}:
        return WEAK_FLOAT
    for weak, other in ((a, b), (b, a)):
        if weak in (WEAK_INT, WEAK_FLOAT):
            info = dtype_info(other)
            fits = info.is_float or (weak == WEAK_INT and info.is_int)
            return other if fits else None
    x, y = dtype_info(a), dtype_info(b)
    if x.lanes != y.lanes or "bool" in (x.kind, y.kind) or "handle" in (x.kind, y.kind):
        return None
    if x.is_float != y.is_float:
        whole, real = (y, x) if x.is_float else (x, y)
        digits = {"float64": 53, "float32": 24, "float16": 11}.get(real.element, 8)
        return real.name if whole.bits <= digits else None
    try:
        return B.promote(a, b)
    except ExprError:
        return None


def storage_type(t: str) -> str:
    """The dtype in which a variable of a type is kept."""
    return {WEAK_INT: "int32", WEAK_FLOAT: "float32"}.get(t, t)


@dataclass(frozen=True, slots=True, eq=False)
class InnerFunction:
    """A function that is defined within the one that is translated. frame: of that one, whose names it reads; defaults: values of its parameters."""

    source: Any
    frame: Any
    defaults: dict[str, Any]


def describe(v: Any) -> str:
    """A value in a message."""
    if isinstance(v, InnerFunction):
        return f"the function {v.source.name}"
    if isinstance(v, Array):
        return f"the array {v.name}"
    if isinstance(v, slice):
        return "a slice"
    if v is Ellipsis:
        return "`...`"
    if isinstance(v, E.Expr):
        return f"a value of {v.dtype}"
    if isinstance(v, Weak):
        return "a float"
    if isinstance(v, Complex):
        return "a complex number"
    if isinstance(v, (Records, Record)):
        return f"the array of structs {v.name}" if isinstance(v, Records) else f"an element of {v.of.name}, a struct"
    if isinstance(v, tuple):
        return f"a tuple of {len(v)}"
    if v is None or is_number(v) or isinstance(v, str):
        return repr(v)
    if isinstance(v, ModuleType):
        return f"the module {v.__name__.replace('tec.kernels.', 'tec.')}"
    name = getattr(v, "__qualname__", None) or getattr(v, "__name__", None)
    return f"{type(v).__name__} {name}" if name else kind_of(v)


def with_elements(v: tuple[Any, ...], elements: list[Any]) -> tuple[Any, ...]:
    """A tuple of other elements, of the same names where `v` is a named tuple."""
    make = getattr(type(v), "_make", None)
    made: tuple[Any, ...] = tuple(elements) if make is None else make(elements)
    return made


def identity(v: Any) -> Any:
    """What tells a constant from others: 1, 1.0 and True are equal to Python and give different code, and so do 0.0 and -0.0, and tuples and
    dataclasses of them. Raises TypeError for what cannot be told."""
    if isinstance(v, tuple):
        return (type(v), *map(identity, v))
    if dataclasses.is_dataclass(v) and not isinstance(v, type):
        return (type(v), *(identity(getattr(v, f.name)) for f in dataclasses.fields(v)))
    if isinstance(v, float):
        return (type(v), v.hex())
    if isinstance(v, complex):
        return (type(v), v.real.hex(), v.imag.hex())
    if hasattr(v, "__dlpack__"):
        raise TypeError("an array is no constant")
    if isinstance(v, FunctionType):  # one that is made again, as a lambda in a loop is, is the same
        held = (v.__closure__ or (), *(v.__defaults__ or ()), *(v.__kwdefaults__ or {}).items())
        return (FunctionType, v.__code__, id(v.__globals__), _held(held))
    hash(v)
    return (type(v), v)


def _held(v: Any) -> Any:
    """What a function holds, as part of what tells it from others: functions and what no key takes tell themselves."""
    if isinstance(v, tuple):
        return (type(v), *map(_held, v))
    if isinstance(v, CellType):
        try:
            return _held(v.cell_contents)
        except ValueError:  # not yet assigned
            return CellType
    try:
        return id(v) if isinstance(v, FunctionType) else identity(v)
    except TypeError:
        return id(v)


def is_storable(v: Any) -> bool:
    """Whether a variable may hold the value at run time: a number, a complex one, a tuple of such."""
    return is_scalar(v) or isinstance(v, Complex) or (isinstance(v, tuple) and all(map(is_storable, v)))


def part_dtype(v: Any) -> str | None:
    """The dtype of the parts of the complex type that a Python object names; None where it names none."""
    if v is complex:
        return WEAK_FLOAT
    name = v if isinstance(v, str) else v.name if isinstance(v, np.dtype) else getattr(v, "__name__", "")
    return (
        PART.get(name)
        if isinstance(v, (str, np.dtype)) or (isinstance(v, type) and issubclass(v, np.complexfloating))
        else None
    )


def as_dtype(v: Any) -> str | None:
    """The dtype that a Python object names; None where it is none."""
    if isinstance(v, str) or v is float or v is int or v is bool or isinstance(v, np.dtype):
        try:
            return normalize_dtype("bool" if v is bool else v)
        except ExprError:
            return None
    if isinstance(v, type) and issubclass(v, np.generic):
        try:
            return normalize_dtype(v)
        except ExprError:
            return None
    return None
