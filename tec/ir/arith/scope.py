"""The scope: what binds and conditions say, and proofs from it.

A proof shows that a linear form is never negative: from its bounds, or by eliminating an atom with a form that is known
not to be negative (a symbolic range, a condition, what a quotient or a minimum is known to satisfy).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import expr as E
from ..visit import CHILDREN
from .bounds import INDEX_DTYPES, INF
from .facts import Facts, factors, is_data
from .linear import Lin

_PROOF_DEPTH = 4
Outer = tuple[dict[int, E.Expr], int, Any]  # results outside, marks, and the scope outside of that one
State = tuple[Any, ...]  # of a scope, as `save` gives it and `restore` takes it
LEAVES = (E.IntImm, E.FloatImm, E.Var)
COMPARISONS = (E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE)


def _key(form: Lin) -> Any:
    return form.const, frozenset((k, c) for k, (_, c) in form.terms.items())


class Scope(Facts):
    """Facts with a scope that grows, is left again, and answers whether something follows from it."""

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[int, E.Expr] = {}
        self._active: set[int] = set()
        self._subst: dict[int, E.Expr] = {}
        self._proofs: dict[Any, bool] = {}
        self._known_about: dict[tuple[int, bool], list[Lin]] = {}
        self._inner: dict[tuple[int, ...], State] = {}  # this scope with conditions assumed, by the conditions
        # Of a scope that conditions were assumed in for one expression: what was found outside of it, and the marks of all that the conditions can bear on.
        self._outer: Outer | None = None
        self._marks: dict[int, int] = {}
        self._bits: dict[int, int] = {}

    def simp(self, e: E.Expr) -> E.Expr:
        """The simplified canonical form of a canonical node."""
        raise NotImplementedError

    def negation(self, e: E.Expr) -> E.Expr:
        """The canonical opposite of a simplified condition."""
        raise NotImplementedError

    # ---- proofs

    def prove_nonneg(self, form: Lin) -> bool:
        """Whether `form >= 0` follows from bounds, or from eliminating atoms with what is known of them."""
        if self.bound_lin(form)[0] >= 0:
            return True
        key = _key(form)
        found = self._proofs.get(key)
        if found is None:
            found = self._proofs[key] = self._eliminate(form, _PROOF_DEPTH, {})
        return found

    def _eliminate(self, form: Lin, depth: int, failed: dict[Any, int]) -> bool:
        """`failed`: how deep a form was followed in vain; atoms eliminated in another order give the same forms again."""
        lo, hi = self.bound_lin(form)
        if lo >= 0:
            return True
        if hi < 0 or depth == 0 or not form.terms:  # what follows is never more than a multiple of it: below 0 it stays
            return False
        key = _key(form)
        if failed.get(key, 0) >= depth:
            return False
        failed[key] = depth
        for atom, c in form.terms.values():
            for known in self._about(atom, c):
                b = known.coeff(atom)
                # A whole number is 0 or more where its multiple by k is above -k.
                multiple = form.scaled(abs(b)).shifted(abs(b) - 1)
                if b * c > 0 and self._eliminate(multiple.plus(known, -abs(c)), depth - 1, failed):
                    return True
        return False

    def _about(self, atom: Any, c: int) -> list[Lin]:
        """Forms that are >= 0 and hold `atom` with the sign of c."""
        key = (id(atom), c > 0)
        found = self._known_about.get(key)
        if found is None:
            found = self._known_about[key] = self._find_about(atom, c)
        return found

    def _find_about(self, atom: Any, c: int) -> list[Lin]:
        out = [k for k, subject in self._nonneg if k.coeff(atom) * c > 0 and subject in (None, id(atom))]
        t = type(atom)
        one = Lin.of(atom)
        if t is E.FloorDiv and type(atom.b) is E.IntImm and atom.b.value > 0:
            d, x = atom.b.value, self.trusted_lin(atom.a)
            out.append(x.plus(one, -d) if c < 0 else one.scaled(d).plus(x, -1).shifted(d - 1))
        elif t is E.Min and c < 0:
            out += [self.trusted_lin(x).plus(one, -1) for x in (atom.a, atom.b)]
        elif t is E.Max and c > 0:
            out += [one.plus(self.trusted_lin(x), -1) for x in (atom.a, atom.b)]
        elif t is E.FloorMod and c < 0 and type(atom.b) is not E.IntImm:
            if self.bound(atom.b)[0] >= 0:  # a divisor is not 0
                out.append(self.trusted_lin(atom.b).plus(one, -1).shifted(-1))
        elif t is E.Mul:
            out += self._about_product(atom, c)
        return out

    def _about_product(self, atom: E.Expr, c: int) -> list[Lin]:
        """Known forms times a factor that is not negative: i <= n - 1 gives i*m <= n*m - m."""
        parts = factors(atom)
        out: list[Lin] = []
        for i, v in enumerate(parts):
            others = parts[:i] + parts[i + 1 :]
            if not others or any(self.bound(o)[0] < 0 for o in others):
                continue
            lo, hi = self.bound(v)
            rest = Lin.of(self.monomial(others))
            if c < 0 and hi < INF:
                out.append(rest.scaled(hi).plus(Lin.of(atom), -1))
            elif c > 0 and -INF < lo:
                out.append(Lin.of(atom).plus(rest, -lo))
            for k, subject in self._nonneg:
                if k.coeff(v) * c > 0 and subject in (None, id(v)):
                    form = Lin(0)
                    for x, a in k.terms.values():
                        form = form.plus(Lin.of(self.monomial((*factors(x), *others))), a)
                    if k.const:
                        form = form.plus(Lin.of(self.monomial(others)), k.const)
                    out.append(form)
        return out

    def sign(self, form: Lin) -> tuple[bool, bool]:
        """(form >= 0 is certain, form < 0 is certain)."""
        lo, hi = self.bound_lin(form)
        if lo >= 0 or hi < 0 or (lo <= -INF and hi >= INF and not self._provable(form)):
            return lo >= 0, hi < 0
        if not self._provable(form):
            return False, False
        if self.prove_nonneg(form):
            return True, False
        return False, self.prove_nonneg(form.scaled(-1).shifted(-1))

    def _provable(self, form: Lin) -> bool:
        """Whether elimination has anything to work with."""
        return bool(self._nonneg) or any(
            type(a) in (E.FloorDiv, E.Min, E.Max, E.FloorMod) for a, _ in form.terms.values()
        )

    def _fits(self, left: Lin, right: Lin, dtype: str) -> bool:
        """Whether both sides of a rearranged comparison are the machine's values."""
        top = 1 << (31 if dtype == "int32" else 63)
        return all(-top <= x.const < top and self.trusted(x, dtype) for x in (left, right))

    # ---- conditions for a while

    def under(self, conditions: Sequence[E.Expr], e: E.Expr) -> E.Expr:
        """`e` simplified where all `conditions` (simplified) hold. What has nothing in common with them is simplified outside, once for all conditions."""
        if type(e) in LEAVES:
            return self.simp(e)
        reach = self._reach(conditions)
        if not self.marks(e) & reach:
            return self.simp(e)
        key = tuple(map(id, conditions))
        inner = self._inner.get(key)
        if inner is None:
            outer = self._done, reach, self._outer
            saved = self.save()
            for cond in conditions:
                self.assume(cond)
            self._outer = outer
        else:
            saved = self._state()
            self.restore(inner)
        out = self.simp(e)
        inner = self._state()
        self.restore(saved)
        self._inner[key] = inner
        return out

    def marks(self, e: E.Expr) -> int:
        """The variables, loads and calls below a canonical expression, a bit each: facts of others do not bear on it."""
        k = id(e)
        found = self._marks.get(k)
        if found is None:
            t = type(e)
            found = 0
            if t is E.Let:
                found = -1  # it binds: all bear on it
            elif t is E.Var:
                value = self._subst.get(k)
                found = self._bit(k) | (self.marks(value) if value is not None else 0)
            elif t not in LEAVES:
                if is_data(e) or t is E.Call:
                    found = self._bit(k)
                for c in CHILDREN[t](e):
                    found |= self.marks(c)
            self._marks[k] = found
        return found

    def _bit(self, k: int) -> int:
        return self._bits.setdefault(k, 1 << len(self._bits))

    def _reach(self, conditions: Sequence[E.Expr]) -> int:
        """The marks of conditions, and of all that known forms join with them: a proof goes from one to the other."""
        reach, before = 0, -1
        for cond in conditions:
            reach |= self.marks(cond)
        known = [self._form_marks(form) for form, _ in self._nonneg]
        while reach != before:
            before = reach
            for joined in known:
                if joined & reach:
                    reach |= joined
        return reach

    def _form_marks(self, form: Lin) -> int:
        found = 0
        for atom, _ in form.terms.values():
            found |= self.marks(atom)
        return found

    def found_outside(self, e: E.Expr) -> E.Expr | None:
        """What `e` was simplified to outside of the conditions that hold here, where they do not bear on it."""
        outer, mine = self._outer, self.marks(e)
        while outer is not None and not mine & outer[1]:
            out = outer[0].get(id(e))
            if out is not None:
                return out
            outer = outer[2]
        return None

    def keep_outside(self, e: E.Expr, out: E.Expr) -> None:
        """`e` simplified to `out`: in the outermost scope whose conditions do not bear on it, too."""
        outer, mine, there = self._outer, self.marks(e), None
        while outer is not None and not mine & outer[1]:
            there, outer = outer[0], outer[2]
        if there is not None:
            there[id(e)] = out

    def under_not(self, cond: E.Expr, e: E.Expr) -> E.Expr:
        """`e` simplified where `cond` (simplified) does not hold; the opposite of a chain of conditions is not made for a constant's sake."""
        return self.simp(e) if type(e) in LEAVES else self.under((self.simp(self.negation(cond)),), e)

    def _state(self) -> State:
        """What the scope consists of, and what was derived from it."""
        return (
            self._active,
            self._done,
            self._bounds,
            self._mods,
            self._proofs,
            self._known_about,
            self._inner,
            self._var_bounds,
            self._var_mods,
            self._known,
            self._nonneg,
            self._true,
            self._subst,
            self._outer,
        )

    def save(self, keep: bool = False) -> State:
        """The scope, to be restored. keep: what was derived from it goes on to hold, until something is assumed."""
        state = self._state()
        self._var_bounds, self._var_mods, self._known = dict(self._var_bounds), dict(self._var_mods), dict(self._known)
        self._nonneg, self._true, self._subst = list(self._nonneg), dict(self._true), dict(self._subst)
        self._active = set()
        if keep:
            self._done, self._bounds, self._mods = dict(self._done), dict(self._bounds), dict(self._mods)
            self._proofs, self._known_about = dict(self._proofs), dict(self._known_about)
            self._inner = {}  # a variable that is bound here is not bound there
            self._outer = None
        else:
            self.forget()
        return state

    def restore(self, state: State) -> None:
        (
            self._active,
            self._done,
            self._bounds,
            self._mods,
            self._proofs,
            self._known_about,
            self._inner,
            self._var_bounds,
            self._var_mods,
            self._known,
            self._nonneg,
            self._true,
            self._subst,
            self._outer,
        ) = state

    def forget(self) -> None:
        """Drop what was derived from the scope."""
        self._done, self._bounds, self._mods = {}, {}, {}
        self._proofs, self._known_about, self._inner = {}, {}, {}
        self._outer = None

    def assume(self, cond: E.Expr) -> None:
        """Let a canonical simplified condition hold from here on."""
        t = type(cond)
        c: Any = cond
        if t is E.And:  # its opposite follows from its parts'
            self.assume(c.a)
            self.assume(c.b)
            self._true[id(cond)] = True
            return
        if t is E.Not and type(c.a) is E.Or:
            self.assume(self.simp(self.negation(c.a.a)))
            self.assume(self.simp(self.negation(c.a.b)))
        elif t is E.Call and c.op == "likely":
            self.assume(c.args[0])
        elif t in COMPARISONS and c.a.dtype in INDEX_DTYPES:
            la, lb = self.trusted_lin(c.a), self.trusted_lin(c.b)
            if t is E.LT or t is E.LE:
                self.assume_nonneg(lb.plus(la, -1).shifted(-1 if t is E.LT else 0))
            elif t is E.GT or t is E.GE:
                self.assume_nonneg(la.plus(lb, -1).shifted(-1 if t is E.GT else 0))
            elif t is E.EQ:
                self._assume_equal(c, la.plus(lb, -1))
            if t is not E.NE:  # bounds decide its opposite
                self.forget()
                self._true[id(cond)] = True
                return
        if t is not E.IntImm:
            self._true[id(cond)] = True
            self._true[id(self.negation(cond))] = False
        self.forget()

    def _assume_equal(self, c: Any, form: Lin) -> None:
        self.assume_nonneg(form)
        self.assume_nonneg(form.scaled(-1))
        if type(c.a) is E.FloorMod and type(c.a.b) is E.IntImm and type(c.b) is E.IntImm and type(c.a.a) is E.Var:
            if 0 <= c.b.value < c.a.b.value:
                self._var_mods[id(c.a.a)] = (c.a.b.value, c.b.value)

    def assume_nonneg(self, form: Lin, subject: E.Expr | None = None) -> None:
        """Let `form >= 0` hold from here on. With a subject (a variable and its range) nothing follows for other atoms alone: that
        a loop over 0 <= i < n has an iteration says nothing of n outside of it."""
        if not form.terms:
            return
        bounds = self._var_bounds
        for atom, c in form.terms.values():
            if subject is not None and atom is not subject:
                continue
            lo, hi = self.bound(atom)
            rest_hi = self.bound_lin(form.without(atom))[1]
            if rest_hi >= INF:
                continue
            if c > 0:  # atom >= -rest / c
                lo = max(lo, -(rest_hi // c))
            else:
                hi = min(hi, rest_hi // -c)
            if len(form.terms) == 1 or type(atom) is E.Var:
                bounds[id(atom)] = (lo, hi)
        if len(form.terms) > 1:
            key, scale = self.normalized(form)
            lo, hi = self._known.get(key, (-INF, INF))
            if scale > 0:
                lo = max(lo, -(form.const // scale))
            else:
                hi = min(hi, form.const // -scale)
            self._known[key] = (lo, hi)
            self._known_atoms.add(frozenset(i for i, _ in key))
            self._nonneg.append((form, None if subject is None else id(subject)))
        self._held.extend(a for a, _ in form.terms.values())
        if subject is None:
            self.forget()
        else:
            self._bounds.pop(id(subject), None)
