"""What schedules ask about index arithmetic: a thin face on `tec.ir.arith`.

In: integer expressions over loop variables with constant ranges. Out: simpler expressions, constant bounds, proofs.
"""

from __future__ import annotations

from ..ir import build as B
from ..ir import expr as E
from ..ir.arith import Analyzer
from ..ir.dtype import dtype_info
from ..ir.visit import walk_exprs

Bound = int | None  # None: unbounded
_FAR = 1 << 62  # bounds beyond say nothing about an index


class IndexArith:
    """Variables' ranges, and what follows from them."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()

    def bind(self, var: E.Var, lo: Bound, hi: Bound) -> None:
        """Let `lo <= var <= hi`; None is open."""
        for end in (lo, hi):
            if end is not None:
                B.const(end, var.dtype)  # refuses what the type does not hold
        self.analyzer.bind_between(var, lo, hi)

    def assume(self, condition: E.Expr) -> None:
        """Let `condition` hold from here on."""
        self.analyzer.add_constraint(condition)

    def simplify(self, e: E.Expr) -> E.Expr:
        """An equal expression in canonical form."""
        if type(e) is E.IntImm or type(e) is E.Var:
            return e
        out: E.Expr = self.analyzer.simplify(e)
        return out

    def bounds(self, e: E.Expr) -> tuple[Bound, Bound]:
        """Constants (lo, hi) with lo <= e <= hi; None where open."""
        if not dtype_info(e.dtype).is_int:
            return None, None
        lo, hi = self.analyzer.const_int_bound(e)
        lo, hi = (None if lo is None or lo < -_FAR else lo), (None if hi is None or hi > _FAR else hi)
        if (lo is None or hi is None) and isinstance(e, (E.Add, E.Sub)):
            a, b = self._paired_quotients(e)
            lo, hi = (a if lo is None else lo), (b if hi is None else hi)
        return lo, hi

    def constant(self, e: E.Expr) -> Bound:
        """The value of `e` where it is always the same integer."""
        if type(e) is E.IntImm:
            return e.value
        lo, hi = self.bounds(e)
        return lo if lo is not None and lo == hi else None

    def reads(self, e: E.Expr) -> bool:
        """Whether the value of `e` comes from memory."""
        if type(e) is E.IntImm or type(e) is E.Var or not self.analyzer.has_data(self.analyzer.intern(e)):
            return False
        return any(type(x) is E.TensorRead for x in walk_exprs(e))

    def le(self, a: E.Expr, b: E.Expr) -> bool:
        """Whether a <= b is certain."""
        return a is b or self._holds("le", a, b)

    def lt(self, a: E.Expr, b: E.Expr) -> bool:
        """Whether a < b is certain."""
        return self._holds("lt", a, b)

    def _holds(self, how: str, a: E.Expr, b: E.Expr) -> bool:
        return self.analyzer.can_prove(B.compare(how, a, b))

    def equal(self, a: E.Expr, b: E.Expr) -> bool:
        """Whether a == b is certain."""
        return a is b or self.analyzer.can_prove_equal(*B.match(a, b))

    def _paired_quotients(self, e: E.Expr) -> tuple[Bound, Bound]:
        """Bounds of a sum with floor((x + c) / d) - floor(x / d), which lies between floor(c/d) and ceil(c/d).

        The size of a region that is read by i // d, whatever the loop around it.
        """
        ana = self.analyzer
        form = ana.lin(ana.simp(ana.intern(e)))
        lo = hi = form.const
        terms = list(form.terms.values())
        while terms:
            atom, coeff = terms.pop()
            low, high = (None, None) if coeff == 0 else self._far(ana.bound(atom))
            if (low is None or high is None) and type(atom) is E.FloorDiv:
                for k, (other, c) in enumerate(terms):
                    if type(other) is not E.FloorDiv or c != -coeff or other.b is not atom.b:
                        continue
                    if not isinstance(atom.b, E.IntImm) or atom.b.value <= 0:
                        continue
                    plus, minus = (atom, other) if coeff > 0 else (other, atom)
                    gap = ana.lin(plus.a).plus(ana.lin(minus.a), -1)
                    if gap.terms:
                        continue
                    d = atom.b.value
                    lo += abs(coeff) * (gap.const // d)
                    hi += abs(coeff) * -((-gap.const) // d)
                    del terms[k]
                    break
                else:
                    return None, None
                continue
            if low is None or high is None:
                return None, None
            lo += coeff * (low if coeff > 0 else high)
            hi += coeff * (high if coeff > 0 else low)
        return lo, hi

    @staticmethod
    def _far(bound: tuple[float, float]) -> tuple[Bound, Bound]:
        lo, hi = bound
        return (None if lo < -_FAR else int(lo)), (None if hi > _FAR else int(hi))
