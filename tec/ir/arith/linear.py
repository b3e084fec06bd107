"""Linear forms: an integer expression as a constant plus a sum of coefficient * atom.

An atom is an interned expression (see `facts.py`) that the form does not look into: a variable, a quotient, a minimum,
a product of several atoms (a monomial). Atoms are keyed by identity, which is equality among interned nodes.
"""

from __future__ import annotations

from math import gcd

from .. import expr as E


class Lin:
    """`const + sum(coeff * atom)`; immutable by convention. `terms`: id of the atom -> (atom, coefficient, never 0)."""

    __slots__ = ("const", "terms")

    def __init__(self, const: int = 0, terms: dict[int, tuple[E.Expr, int]] | None = None):
        self.const = const
        self.terms = terms if terms is not None else {}

    def plus(self, other: Lin, scale: int = 1) -> Lin:
        """`self + scale * other`."""
        if scale == 0:
            return self
        if not other.terms:
            return self.shifted(scale * other.const)
        if scale == 1 and not self.terms:
            return other.shifted(self.const)
        terms = dict(self.terms)
        for key, (atom, c) in other.terms.items():
            old = terms.get(key)
            total = c * scale + (old[1] if old is not None else 0)
            if total:
                terms[key] = (atom, total)
            else:
                terms.pop(key, None)
        return Lin(self.const + scale * other.const, terms)

    def shifted(self, k: int) -> Lin:
        return Lin(self.const + k, self.terms) if k else self

    def scaled(self, k: int) -> Lin:
        if k == 1:
            return self
        if k == 0:
            return Lin()
        return Lin(self.const * k, {key: (a, c * k) for key, (a, c) in self.terms.items()})

    def divided(self, k: int) -> Lin:
        """All coefficients (and the constant, rounded down) over k, which divides the coefficients."""
        return Lin(self.const // k, {key: (a, c // k) for key, (a, c) in self.terms.items()})

    def coeff(self, atom: E.Expr) -> int:
        t = self.terms.get(id(atom))
        return t[1] if t is not None else 0

    def without(self, atom: E.Expr) -> Lin:
        terms = dict(self.terms)
        terms.pop(id(atom), None)
        return Lin(self.const, terms)

    def split(self, k: int) -> tuple[Lin, Lin]:
        """(terms whose coefficients k divides, the other terms and the constant)."""
        even: dict[int, tuple[E.Expr, int]] = {}
        rest: dict[int, tuple[E.Expr, int]] = {}
        for key, t in self.terms.items():
            (even if t[1] % k == 0 else rest)[key] = t
        return Lin(0, even), Lin(self.const, rest)

    def factor(self) -> int:
        """The greatest common divisor of the coefficients (0 where there are no terms)."""
        g = 0
        for _, c in self.terms.values():
            g = gcd(g, c)
        return g

    def same_terms(self, other: Lin) -> bool:
        if len(self.terms) != len(other.terms):
            return False
        return all(k in other.terms and other.terms[k][1] == t[1] for k, t in self.terms.items())

    @staticmethod
    def of(atom: E.Expr, coeff: int = 1) -> Lin:
        return Lin(0, {id(atom): (atom, coeff)})
