"""Symbolic sizes: integer expressions over named dimensions, with Python's arithmetic and comparisons that are proofs.

`Dim("batch")` stands for a size that is known when a network runs, `Dim("past", least=0)` for one that may be 0. Arithmetic keeps a normal form, a polynomial over names and
over quotients, remainders, minima and maxima: two sizes are equal exactly where their forms are, and what comes out as a
number is an int again. `==` says whether sizes are proved equal. `<` and its like give a bool where the bounds prove it and raise
`UndecidedSize` otherwise; `require(a, "<=", b, what)` notes such a condition for run time instead (see `guards.recording`).

Every name stands for a number from 1 to LARGEST, an `Empty` name for one from 0. In te a size is an int32 variable (`asexpr`), in a plan plain data (`data`, see
`tec.runtime.modules.exprs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Any, NoReturn

from ..errors import ArgumentError, ImportModelError, one_line
from ..ir import Expr, build
from ..polynomials import Monomial, Polynomial, add_to, times
from .dim_bounds import Atom, Empty, bounds, order, span
from .guards import ACTIVE, Guard, recording
from .size_vars import variable

Size = Any  # int or Dim


class UndecidedSize(ImportModelError):
    """Something depends on a symbolic size in a way that only a number decides."""


def require(a: Size, relation: str, b: Size, what: str) -> bool:
    """Whether `a` <= or < `b`; noted as a condition where it is not known, False where it is known not to hold."""
    gap = b - a - (1 if relation == "<" else 0)
    if isinstance(gap, int):
        return gap >= 0
    low, high = gap.bounds()
    if low >= 0:
        return True
    if high < 0:
        return False
    guards = ACTIVE.get()
    if guards is None:
        raise _undecided(a, relation, b)
    guards.append(Guard(gap, f"{a} {relation} {b} ({what})"))
    return True


class Dim:
    """A size that is no number: see the module."""

    __slots__ = ("_hash", "_span", "_text", "terms")

    def __init__(self, name: str, least: int = 1):
        if least == 0:
            name = Empty(name)
        self.terms: tuple[tuple[Monomial, int], ...] = (((name,), 1),)
        self._hash = hash(self.terms)
        self._span: tuple[Any, tuple[int, int]] | None = None
        self._text = ""

    # ---- arithmetic

    def __add__(self, other: Any) -> Any:
        return self._combine(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combine(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._combine(other, 1)

    def __neg__(self) -> Any:
        return _make({m: -c for m, c in self.terms})

    def __pos__(self) -> Any:
        return self

    def _combine(self, other: Any, sign: int) -> Any:
        if not _is_size(other):
            return NotImplemented
        return _make(add_to(dict(self.terms), _terms(other), sign))

    def __mul__(self, other: Any) -> Any:
        if not _is_size(other):
            return NotImplemented
        return _make(times(self.terms, _terms(other), order))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return _floordiv(self, other) if _is_size(other) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return _floordiv(other, self) if _is_size(other) else NotImplemented

    def __mod__(self, other: Any) -> Any:
        return _floormod(self, other) if _is_size(other) else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        return _floormod(other, self) if _is_size(other) else NotImplemented

    # ---- comparisons

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Expr):
            return NotImplemented
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Any) -> Any:
        return _less(self, other, "<") if _is_size(other) else NotImplemented

    def __le__(self, other: Any) -> Any:
        return _less(self, other, "<=") if _is_size(other) else NotImplemented

    def __gt__(self, other: Any) -> Any:
        return _less(other, self, "<") if _is_size(other) else NotImplemented

    def __ge__(self, other: Any) -> Any:
        return _less(other, self, "<=") if _is_size(other) else NotImplemented

    def __bool__(self) -> bool:
        low, high = self.bounds()
        if low > 0 or high < 0:
            return True
        if low == 0 and ACTIVE.get() is not None:
            return require(1, "<=", self, "nothing is empty")
        raise _undecided(self, "==", 0)

    def bounds(self) -> tuple[int, int]:
        """The least and the largest value that are known."""
        known = tuple(ACTIVE.get() or ())
        if self._span is None or self._span[0] != known:  # kept: what is around it asks several times, at every level
            self._span = known, _bounds_known(self, known)
        return self._span[1]

    # ---- what it is elsewhere

    def _number(self) -> NoReturn:
        raise UndecidedSize(f"a number is needed where the size is {self}", hint=bind_hint(self))

    __int__ = __index__ = __float__ = _number

    def names(self) -> set[str]:
        """The dimensions it depends on."""
        found: set[str] = set()
        for m, _ in self.terms:
            for a in m:
                if isinstance(a, str):
                    found.add(a)
                else:
                    found |= names_of(a[1:])
        return found

    @staticmethod
    def term(m: Monomial, c: int) -> Size:
        """The size that one product of atoms is, `c` times."""
        return _make({m: c})

    @property
    def has_quotients(self) -> bool:
        """Whether there are quotients, remainders, minima or maxima in it."""
        return any(not isinstance(a, str) for m, _ in self.terms for a in m)

    @property
    def is_product(self) -> bool:
        """Whether it is a number times names, without sums and quotients."""
        return len(self.terms) == 1 and all(isinstance(a, str) for a in self.terms[0][0])

    def evaluate(self, env: Mapping[str, Size]) -> Size:
        """With names replaced by sizes; names that `env` lacks stay."""
        total: Any = 0
        for m, c in self.terms:
            product: Any = c
            for a in m:
                if isinstance(a, str):
                    product = product * env.get(a, Dim(a))
                else:
                    product = product * _OPS[a[0]](*(evaluate(x, env) for x in a[1:]))
            total = total + product
        return total

    def asexpr(self, dtype: str = "int32") -> Expr:
        """The te expression, over `variable(name)`, worked out in `dtype`."""

        def part(x: Any) -> Expr:
            return x.asexpr(dtype) if isinstance(x, Dim) else build.const(x, dtype)

        def leaf(name: str) -> Expr:
            v = variable(name)
            return v if v.dtype == dtype else build.cast(dtype, v)

        total: Expr | None = None
        for m, c in sorted(self.terms, key=lambda t: t[1] < 0):
            product: Expr | None = None
            for a in m:
                e = leaf(a) if isinstance(a, str) else _EXPRS[a[0]](*map(part, a[1:]))
                product = e if product is None else build.mul(product, e)
            size = abs(c) if total is not None else c
            if product is None:
                product = build.const(size, dtype)
            elif size != 1:
                product = build.mul(product, build.const(size, dtype))
            total = product if total is None else (build.add if c > 0 else build.sub)(total, product)
        return total if total is not None else build.const(0, dtype)

    def data(self) -> Any:
        """Plain data for a plan: an int, a name or [op, a, b]."""
        total: Any = None
        for m, c in self.terms:
            product: Any = None
            for a in m:
                e = a if isinstance(a, str) else [a[0], *(data_of(x) for x in a[1:])]
                product = e if product is None else ["mul", product, e]
            if product is None:
                product = c
            elif c != 1:
                product = ["mul", product, c]
            total = product if total is None else ["add", total, product]
        return total

    def __str__(self) -> str:
        if not self._text:  # kept: it is what atoms are ordered by
            self._text = self._written()
        return self._text

    def __repr__(self) -> str:
        text = str(self)
        return text if text.isprintable() else one_line(text)  # names in messages; `str` gives them as they are

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def _written(self) -> str:
        parts: list[str] = []
        for m, c in self.terms:
            text = "*".join(_atom_text(a) for a in m)
            sign = "-" if c < 0 else "+" if parts else ""
            number = "" if abs(c) == 1 and m else str(abs(c))
            parts.append(f"{sign}{number}{'*' if number and text else ''}{text}")
        return "".join(parts)


# ---- parts of arithmetic


def _is_size(x: Any) -> bool:
    return isinstance(x, Dim) or (hasattr(x, "__index__") and not isinstance(x, Expr))


def _terms(x: Size) -> Iterable[tuple[Monomial, int]]:
    return x.terms if isinstance(x, Dim) else (((), int(x)),)


def _make(terms: Mapping[Monomial, int]) -> Size:
    kept = {m: c for m, c in terms.items() if c}
    if not kept or (len(kept) == 1 and () in kept):
        return kept.get((), 0)
    new = Dim.__new__(Dim)
    # Names before numbers, larger products first: b*s+b+2.
    new.terms = tuple(sorted(kept.items(), key=lambda t: (-len(t[0]), [order(a) for a in t[0]])))
    new._hash, new._span, new._text = hash(new.terms), None, ""
    return new


def _atom(op: str, a: Size, b: Size) -> Size:
    return _make({((op, a, b),): 1})


def _atom_text(a: Atom) -> str:
    if isinstance(a, str):
        return a
    sign = {"floordiv": "//", "floormod": "%"}.get(a[0])
    inner = [f"({x})" if isinstance(x, Dim) and sign and len(x.terms) > 1 else str(x) for x in a[1:]]
    return f"({inner[0]}{sign}{inner[1]})" if sign else f"{a[0]}({inner[0]}, {inner[1]})"


def _quotient(a: Size, b: Size) -> Size | None:
    """a / b where b is one term and divides every term of a."""
    divisor = list(_terms(b))
    if len(divisor) != 1:
        return None
    (m, c) = divisor[0]
    out: Polynomial = {}
    for n, d in _terms(a):
        rest = list(n)
        for x in m:
            if x not in rest:
                return None
            rest.remove(x)
        if d % c:
            return None
        out[tuple(rest)] = d // c
    return _make(out)


def _floordiv(a: Size, b: Size) -> Size:
    """The quotient of two sizes, rounded down; a size of its own where it is not known what it is."""
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return a // b
    if b == 0:
        raise ZeroDivisionError("a size divided by 0")
    exact = _quotient(a, b)
    if exact is not None:
        return exact
    if isinstance(b, Dim):
        low, high = span(a)
        if low >= 0 and high < b.bounds()[0]:
            return 0
        return _atom("floordiv", a, b)
    if b < 0:
        return _floordiv(-a, -b)
    # (q * b + r) // b = q + r // b
    whole = {m: c // b * b for m, c in a.terms}
    rest = a - _make(whole)
    q = _make({m: c // b for m, c in whole.items()})
    low, high = span(rest)
    if low >= 0 and high < b:
        return q
    terms = dict(_terms(rest))
    offset = terms.pop((), 0)
    common = math.gcd(b, *terms.values())
    if common > 1:
        # (k * x + c) // (k * y) = (x + c // k) // y
        return q + _floordiv(_make({m: c // common for m, c in terms.items()}) + offset // common, b // common)
    if len(terms) == 1:
        (m, c) = next(iter(terms.items()))
        if c == 1 and len(m) == 1 and not isinstance(m[0], str) and m[0][0] == "floordiv" and isinstance(m[0][2], int):
            # (x // k + c) // b = (x + c * k) // (k * b)
            _, x, k = m[0]
            return q + _floordiv(x + offset * k, k * b)
    return q + _atom("floordiv", rest, b)


def _floormod(a: Size, b: Size) -> Size:
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return a % b
    low, high = span(a)
    if low >= 0 and _proved(a, b):
        return a
    if high < 0 and (isinstance(b, Dim) or b > 0) and (a + b if isinstance(a + b, int) else (a + b).bounds()[0]) >= 0:
        return a + b
    return a - b * _floordiv(a, b)


def _proved(a: Size, b: Size) -> bool:
    """Whether a < b is known."""
    gap = b - a
    return (gap if isinstance(gap, int) else gap.bounds()[0]) > 0


def _less(a: Size, b: Size, relation: str) -> bool:
    gap = b - a - (1 if relation == "<" else 0)
    low, high = span(gap)
    if low >= 0:
        return True
    if high < 0:
        return False
    raise _undecided(a, relation, b)


def _bounds_known(x: Dim, known: tuple[Guard, ...]) -> tuple[int, int]:
    low, high = bounds(x)
    if known and (low < 1 <= high or low < 0 <= high):
        # Of its parts nothing is asked: a condition on x // 256 would bound x by itself, without end.
        with recording([]):
            for g in known:
                low, high = max(low, span(x - g.size)[0]), min(high, span(x + g.size)[1])
    return low, high


def _undecided(a: Size, relation: str, b: Size) -> UndecidedSize:
    return UndecidedSize(f"whether {a} {relation} {b} is not known while sizes are symbolic", hint=bind_hint(a, b))


def bind_hint(*sizes: Any) -> str:
    """What to tell a user whose network needs a number for one of the names in `sizes`."""
    names = sorted(names_of(sizes))
    bound = ", ".join(f'"{one_line(n)}": ...' for n in names)
    return f"bind {'it' if len(names) == 1 else 'one of them'}: shapes={{{bound}}}"


# ---- sizes that may be numbers


def names_of(sizes: Iterable[Any]) -> set[str]:
    """The names in sizes, whatever they are nested in."""
    found: set[str] = set()
    for x in sizes:
        if isinstance(x, Dim):
            found |= x.names()
        elif isinstance(x, (tuple, list)):
            found |= names_of(x)
    return found


def is_symbolic(sizes: Any) -> bool:
    """Whether a size, or one in a nest of tuples and lists, is a Dim."""
    if isinstance(sizes, (tuple, list)):
        return any(map(is_symbolic, sizes))
    return isinstance(sizes, Dim)


def as_size(x: Any) -> Size:
    """An int or a Dim."""
    return x if isinstance(x, Dim) else int(x)


def given_shape(shape: Any, what: str) -> tuple[Size, ...]:
    """The shape that a user gives `what`, ints and Dims. Raises ArgumentError for anything else."""
    try:
        return tuple(x if isinstance(x, Dim) else index(x) for x in shape)
    except TypeError:
        raise ArgumentError(
            f"the shape of {what} is {shape!r}", hint='a tuple of ints; tec.ops.dims.Dim("batch") is a symbolic size'
        ) from None


def data_of(x: Size) -> Any:
    """Plain data for a plan."""
    return x.data() if isinstance(x, Dim) else int(x)


def evaluate(x: Any, env: Mapping[str, Size]) -> Any:
    """Sizes with names replaced, in any nest of tuples, lists and dicts."""
    if isinstance(x, Dim):
        return x.evaluate(env)
    if isinstance(x, (tuple, list)):
        made = [evaluate(y, env) for y in x]
        return type(x)(made) if type(x) in (tuple, list) else type(x)(*made)
    return {k: evaluate(y, env) for k, y in x.items()} if isinstance(x, dict) else x


def at_most(a: Size, b: Size) -> bool:
    """Whether a <= b is known."""
    gap = b - a
    return bool((gap if isinstance(gap, int) else gap.bounds()[0]) >= 0)


def is_zero(x: Size) -> bool:
    """Whether a size is 0 whatever its names are. `if x` asks more of an open one: that it is not empty, which what overhangs a window may well be."""
    return not isinstance(x, Dim) and x == 0


def divisor(x: Size) -> int:
    """A number that divides the size, whatever its names are; the largest that its form shows."""
    return math.gcd(*(c for _, c in _terms(x))) if isinstance(x, Dim) else abs(x)


def round_up(x: Size, step: int) -> Size:
    """The least multiple of `step` that is not below the size."""
    return (x + step - 1) // step * step


def minimum(a: Size, b: Size) -> Size:
    """The smaller size; a symbolic minimum where that is not known."""
    return _pick("min", a, b)


def maximum(*sizes: Size) -> Size:
    """The largest size; a symbolic maximum where that is not known."""
    best = sizes[0]
    for s in sizes[1:]:
        best = _pick("max", best, s)
    return best


def _pick(op: str, a: Size, b: Size) -> Size:
    low, high = span(b - a)
    if low >= 0:
        return a if op == "min" else b
    if high <= 0:
        return b if op == "min" else a
    return _atom(op, *sorted((a, b), key=str))


_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": _floordiv, "floormod": _floormod, "min": minimum, "max": maximum,
}  # fmt: skip
_EXPRS: dict[str, Callable[[Any, Any], Expr]] = {
    "floordiv": build.floordiv, "floormod": build.floormod, "min": build.minimum, "max": build.maximum,
}  # fmt: skip


def product(sizes: Sequence[Size]) -> Size:
    return math.prod(sizes)
