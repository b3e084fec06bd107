"""Quotients and remainders of linear forms by a constant (and by a symbol): the deep part of index simplification.

All division here floors. With x = g*s + r, 0 <= r < g and g | c:

    x // c == s // (c/g)            x % c == g * (s % (c/g)) + r

so a term group that provably stays below a divisor g of c falls away from a quotient and comes out of a remainder. Both
functions take and give linear forms; `facts` supplies bounds and makes the atoms.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

from .. import expr as E
from .facts import factors
from .linear import Lin

if TYPE_CHECKING:
    from .simplifier import Simplifier


def _candidates(form: Lin, c: int) -> list[int]:
    """Divisors of c worth trying as g, large ones first: those that some coefficient shares with c."""
    out = {c}
    for _, a in form.terms.values():
        g = gcd(a, c)
        if g > 1:
            out.add(g)
    return sorted(out, reverse=True)


def _small_part(f: Simplifier, form: Lin, c: int) -> tuple[int, Lin, Lin] | None:
    """(g, s, r - m*g) with form == g*s + r and m*g <= r < (m+1)*g; s has m added."""
    for g in _candidates(form, c):
        even, rest = form.split(g)
        lo, hi = f.bound_lin(rest)
        m = lo // g
        if hi // g != m:
            if not rest.terms or g == 1:
                continue
            # Where the terms have a common residue (4*x + 1 below 8), bounds alone are a little too wide.
            n, r = f.modulus_lin(rest)
            q = gcd(n, g)
            if q <= 1:
                continue
            lo2 = lo + (r - lo) % q
            hi2 = hi - (hi - r) % q
            m = lo2 // g
            if hi2 // g != m:
                continue
        return g, even.divided(g).shifted(m), rest.shifted(-m * g)
    return None


def floordiv(f: Simplifier, form: Lin, c: int, dtype: str) -> Lin:
    """The linear form of `form // c`, c > 0."""
    if c == 1:
        return form
    if not form.terms:
        return Lin(form.const // c)
    found = _small_part(f, form, c)
    if found is not None:
        g, s, _ = found
        return s if g == c else floordiv(f, s, c // g, dtype)
    even, rest = form.split(c)
    k = rest.const
    out = even.divided(c).shifted(k // c)
    rest = Lin(k % c, rest.terms)
    if len(rest.terms) == 1:
        (atom, a) = next(iter(rest.terms.values()))
        inner: Any = atom
        if a == 1 and type(atom) is E.FloorDiv and type(inner.b) is E.IntImm and inner.b.value > 0:
            # (x // b + k) // c == (x + k*b) // (b*c)
            b = inner.b.value
            return out.plus(floordiv(f, f.trusted_lin(inner.a).shifted(rest.const * b), b * c, dtype))
        if a == 1 and rest.const == 0 and type(atom) is E.FloorMod and type(inner.b) is E.IntImm:
            # (x % b) // c == (x // c) % (b // c) where c | b
            b = inner.b.value
            if b > 0 and b % c == 0:
                return out.plus(floormod(f, floordiv(f, f.trusted_lin(inner.a), c, dtype), b // c, dtype))
    return out.plus(Lin.of(f.atom(E.FloorDiv, rest, c, dtype)))


def floormod(f: Simplifier, form: Lin, c: int, dtype: str) -> Lin:
    """The linear form of `form % c`, c > 0."""
    if c == 1:
        return Lin()
    # Coefficients and inner remainders modulo c.
    reduced = Lin(form.const % c)
    for atom, a in form.terms.values():
        r = a % c if a > 0 else -(-a % c)
        inner: Any = atom
        if type(atom) is E.FloorMod and type(inner.b) is E.IntImm and inner.b.value and (a * inner.b.value) % c == 0:
            reduced = reduced.plus(f.trusted_lin(inner.a), r)
        elif r:
            reduced = reduced.plus(Lin.of(atom), r)
    if reduced.factor() and any(abs(a) >= c for _, a in reduced.terms.values()):
        return floormod(f, reduced, c, dtype)
    if not reduced.terms:
        return Lin(reduced.const % c)
    m, r = f.modulus_lin(reduced)
    if m % c == 0:
        return Lin(r % c)
    found = _small_part(f, reduced, c)
    if found is not None:
        g, s, r_form = found
        return r_form if g == c else floormod(f, s, c // g, dtype).scaled(g).plus(r_form)
    reduced = Lin(reduced.const % c, reduced.terms)
    return Lin.of(f.atom(E.FloorMod, reduced, c, dtype))


def take_out(parts: list[E.Expr], part: E.Expr) -> bool:
    """Remove one occurrence of `part` (by identity: `==` builds a node); whether there was one."""
    for i, p in enumerate(parts):
        if p is part:
            del parts[i]
            return True
    return False


def floordiv_symbol(f: Simplifier, form: Lin, d: E.Expr, dtype: str) -> tuple[Lin, Lin] | None:
    """form == q * d + r with terms that carry the factor `d` taken into q; None where none does. `d` may be a monomial."""
    want = factors(d)
    q, r = Lin(), Lin(form.const)
    for atom, a in form.terms.values():
        have = list(factors(atom))
        if not all(take_out(have, w) for w in want):
            r = r.plus(Lin.of(atom), a)
            continue
        q = q.plus(Lin.of(f.monomial(tuple(have))) if have else Lin(1), a)
    return (q, r) if q.terms or q.const else None


def recombine(f: Simplifier, form: Lin, dtype: str) -> Lin:
    """(x // c) * (a*c) + (x % c) * a -> x * a, and x*a - (x % c)*a -> (x // c) * (a*c), for every remainder in the form."""
    for _ in range(8):
        for atom, a in form.terms.values():
            inner: Any = atom
            if type(atom) is not E.FloorMod or type(inner.b) is not E.IntImm or inner.b.value <= 0:
                joined = _recombine_symbol(f, form, atom, a)
                if joined is not None:
                    form = joined
                    break
                continue
            c, x = inner.b.value, f.trusted_lin(inner.a)
            quotient = floordiv(f, x, c, dtype)
            if quotient.terms and all(form.coeff(t) == a * c * q for t, q in quotient.terms.values()):
                whole = Lin(0, quotient.terms)
                form = form.without(atom).plus(whole, -a * c).plus(x, a).shifted(-a * c * quotient.const)
                break
            higher = _higher_digit(f, form, x, c, a, dtype)
            if higher is not None:
                digit, joined = higher
                form = form.without(atom).without(digit).plus(joined, a)
                break
            if x.terms and all(form.coeff(t) == -a * q for t, q in x.terms.values()):
                form = form.without(atom).plus(Lin(0, x.terms), a).plus(quotient, -a * c).shifted(a * x.const)
                break
        else:
            return form
    return form


def _higher_digit(f: Simplifier, form: Lin, x: Lin, c: int, a: int, dtype: str) -> tuple[E.Expr, Lin] | None:
    """The atom of `form` that makes a larger number with (x % c) * a, and that number.

    (y // c) * (a*c) + (x % c) * a -> y * a             ((y // c) % m) * (a*c) + (x % c) * a -> (y % (c*m)) * a

    where y is x but for multiples of c: remainders have their coefficients reduced, and remainders within them opened (`floormod`), quotients have not.
    (8*i + j) // 7 * 7 + (i + j) % 7 is 8*i + j, and (16 * (i % 5) + j) // 40 * 40 + (16*i + j) % 40 is 16 * (i % 5) + j.
    """
    for atom, k in form.terms.values():
        quotient: Any = atom
        m = 0
        if type(quotient) is E.FloorMod and type(quotient.b) is E.IntImm:
            quotient, m = quotient.a, quotient.b.value
        if k != a * c or type(quotient) is not E.FloorDiv or type(quotient.b) is not E.IntImm or quotient.b.value != c:
            continue
        y = f.trusted_lin(quotient.a)
        apart = y.plus(x, -1)
        rest = floormod(f, apart, c, dtype) if m >= 0 else apart
        if not rest.terms and not rest.const:
            return atom, floormod(f, y, c * m, dtype) if m else y
    return None


def _recombine_symbol(f: Simplifier, form: Lin, atom: E.Expr, a: int) -> Lin | None:
    """(x // m) * m * k + (x % m) * k -> x * k for symbolic m and k, where `atom` is the remainder's term with coefficient `a`.

    It holds for every m but 0, which a program that divides by m does not have; and under a cast to a wider type, which a
    quotient and a remainder go through unchanged: int64(x // m) * int64(m) + int64(x % m) -> int64(x).
    """
    parts = list(factors(atom))
    for i, rem in enumerate(parts):
        inner: Any = rem
        wide = rem.dtype
        if type(rem) is E.Cast and wide == "int64" and rem.value.dtype == "int32":
            inner = rem.value
        if type(inner) is not E.FloorMod or (inner is rem and type(inner.b) is E.IntImm):
            continue
        rest = parts[:i] + parts[i + 1 :]
        quotient: Any
        quotient, m, x = (
            f.simp(e if e.dtype == wide else f.intern(E.Cast(wide, e)))
            for e in (f.simp(f.make(E.FloorDiv, inner.a, inner.b)), inner.b, inner.a)
        )
        whole = f.lin(_product(f, [quotient, m, *rest]))
        if whole.terms and not whole.const and all(form.coeff(t) == a * c for t, c in whole.terms.values()):
            return form.without(atom).plus(whole, -a).plus(f.lin(_product(f, [x, *rest])), a)
        if (
            type(quotient) is E.Cast
            and (apart := _beside_quotient(f, form, f.simp(quotient.value), whole.scaled(a))) is not None
        ):
            return apart.without(atom).plus(f.lin(_product(f, [x, *rest])), a)
    return None


def _beside_quotient(f: Simplifier, form: Lin, quotient: E.Expr, whole: Lin) -> Lin | None:
    """`form` without `whole`, a multiple of a widened quotient that stands in a sum which is widened as one: int64(y + x // m) * m is int64(y) * m beside that."""
    for term, k in form.terms.values():
        parts = list(factors(term))
        for i, part in enumerate(parts):
            if type(part) is not E.Cast or part.dtype != "int64" or part.value.dtype != "int32":
                continue
            total, others = f.lin(part.value), parts[:i] + parts[i + 1 :]
            if total.coeff(quotient) != 1 or not f.trusted(total, "int32"):
                continue
            own, left = (
                f.lin(_product(f, [f.simp(f.intern(E.Cast("int64", e))), *others])).scaled(k)
                for e in (quotient, f.from_lin(total.without(quotient), "int32"))
            )
            if not own.plus(whole, -1).terms and own.const == whole.const:
                return form.without(term).plus(left)
    return None


def _product(f: Simplifier, parts: list[E.Expr]) -> E.Expr:
    out = parts[0]
    for p in parts[1:]:
        out = f.simp(f.mk(E.Mul, out, p))
    return out
