"""The simplifier: one upward walk over canonical nodes.

Index arithmetic goes through linear forms (`facts.py`, `divmod.py`), comparisons through the sign of a difference,
everything else through the rule table (`rules.py`). Results are canonical nodes; `Analyzer.simplify` gives the user's
own object back where nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .. import expr as E
from ..build import FOLD, cast, compare, const, logical_and, logical_not, logical_or, wrap_int
from ..dtype import dtype_info
from ..intrin import INTRINS
from ..visit import free_vars, map_expr, walk_exprs
from . import divmod as D
from .facts import INDEX_DTYPES, INF, Facts, factors
from .linear import Lin
from .matcher import RuleFn, compile_rules
from .rules import RULES

_PROOF_DEPTH = 4


@lru_cache(maxsize=1)
def rule_functions() -> dict[Any, RuleFn]:
    return compile_rules(RULES)


_CMP_NAME = {E.EQ: "eq", E.NE: "ne", E.LT: "lt", E.LE: "le", E.GT: "gt", E.GE: "ge"}


class Simplifier(Facts):
    """Facts, and the walk that uses them."""

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[int, E.Expr] = {}
        self._active: set[int] = set()
        self._subst: dict[int, E.Expr] = {}
        self._rules = rule_functions()

    # ---- making nodes (results are canonical)

    def atom(self, cls: Any, form: Lin, c: int, dtype: str) -> E.Expr:
        """The node `cls(form, c)`."""
        return self.mk(cls, self.rebuild(form, dtype), self.imm(c, dtype))

    def number(self, value: int, dtype: str) -> E.Expr:
        return self.intern(const(value, dtype))

    def make(self, cls: Any, *parts: E.Expr) -> E.Expr:
        """A node of canonical children, constants folded."""
        if len(parts) == 2:
            a, b = parts
            fold = FOLD.get(cls)
            if fold is not None:
                zero = type(b) is E.IntImm and b.value == 0 and cls in (E.Div, E.Mod, E.FloorDiv, E.FloorMod)
                folded = None if zero else fold(a, b)
                if folded is not None and not (cls in (E.Min, E.Max) and _has_nan(a, b)):
                    return self.intern(folded)
            elif type(a) is E.IntImm or type(b) is E.IntImm or type(a) is E.FloatImm:
                if cls is E.And:
                    return self.intern(logical_and(a, b))
                if cls is E.Or:
                    return self.intern(logical_or(a, b))
                if cls in _CMP_NAME:
                    return self.intern(compare(_CMP_NAME[cls], a, b))
            return self.mk(cls, a, b)
        if cls is E.Not:
            return self.intern(logical_not(parts[0]))
        return self.intern(cls(*parts))

    def mk_call(self, op: str, args: tuple[E.Expr, ...], dtype: str) -> E.Expr:
        return self.intern(E.Call(op, args, dtype))

    def truth(self, value: bool) -> E.Expr:
        return self.imm(int(value), "bool")

    # ---- the walk

    def simp(self, e: E.Expr) -> E.Expr:
        """The simplified canonical form of a canonical node."""
        hit = self._done.get(id(e))
        if hit is not None:
            return hit
        t = type(e)
        if t is E.Var:
            out = self._var(e)
        elif t is E.IntImm or t is E.FloatImm or t is E.StringImm:
            out = e
        else:
            if id(e) in self._active:
                return e  # a rewrite that came back to where it began
            self._active.add(id(e))
            out = _HANDLERS.get(t, _generic)(self, e)
            if out is not e:
                out = self.simp(out)
            self._active.discard(id(e))
            if self._true and out.dtype == "bool":
                known = self._true.get(id(out))
                if known is not None:
                    out = self.truth(known)
        self._done[id(e)] = out
        self._done[id(out)] = out
        return out

    def _var(self, e: E.Expr) -> E.Expr:
        value = self._subst.get(id(e))
        if value is not None:
            return self.simp(value)
        lo, hi = self.bound(e)
        if lo == hi and dtype_info(e.dtype).is_int:
            return self.imm(lo, e.dtype)
        if self._true and e.dtype == "bool" and id(e) in self._true:
            return self.truth(self._true[id(e)])
        return e

    def apply_rules(self, e: E.Expr) -> E.Expr:
        """`e` (children simplified) after the first rule that fits, simplified again; `e` where none does."""
        t = type(e)
        fn = self._rules.get(e.op if t is E.Call else t)  # type: ignore[attr-defined]
        if fn is not None:
            out = fn(self, e)
            if out is not None and out is not e:
                return self.simp(out)
        return e

    def from_lin(self, form: Lin, dtype: str) -> E.Expr:
        """The expression of a simplified linear form; a constant where the bounds meet."""
        if len(form.terms) > 1:
            if any(type(a) is E.FloorMod for a, _ in form.terms.values()):
                form = D.recombine(self, form, dtype)
            for atom, c in form.terms.values():
                if (type(atom) is E.Min or type(atom) is E.Max) and abs(c) == 1 and not self.has_data(atom):
                    pushed = self._push_extremum(form, atom, c, dtype)
                    if pushed is not None:
                        return pushed
        if form.terms:
            lo, hi = self.bound_lin(form)
            if lo == hi and self.trusted(form, dtype):
                return self.imm(wrap_int(lo, dtype), dtype)
        return self.rebuild(form, dtype)

    def _push_extremum(self, form: Lin, atom: Any, c: int, dtype: str) -> E.Expr | None:
        """min(a, b) + r -> min(a + r, b + r) where that leaves fewer terms (extents of clipped regions)."""
        rest = form.without(atom)
        la, lb = self.lin(atom.a), self.lin(atom.b)
        na, nb = rest.plus(la, c), rest.plus(lb, c)
        before = len(la.terms) + len(lb.terms) + len(rest.terms)
        if not rest.terms or len(na.terms) + len(nb.terms) >= before or self._form_has_data(form):
            return None
        cls = type(atom) if c == 1 else (E.Max if type(atom) is E.Min else E.Min)
        return self.simp(self.mk(cls, self.from_lin(na, dtype), self.from_lin(nb, dtype)))

    def _form_has_data(self, form: Lin) -> bool:
        return any(self.has_data(a) for a, _ in form.terms.values())

    # ---- proofs

    def prove_nonneg(self, form: Lin, depth: int = _PROOF_DEPTH) -> bool:
        """Whether `form >= 0` follows from bounds, or from eliminating atoms with what is known of them."""
        lo, _ = self.bound_lin(form)
        if lo >= 0:
            return True
        if depth == 0 or not form.terms:
            return False
        for atom, c in form.terms.values():
            for known in self._about(atom, c):
                b = known.coeff(atom)
                if b * c > 0 and self.prove_nonneg(form.scaled(abs(b)).plus(known, -abs(c)), depth - 1):
                    return True
        return False

    def _about(self, atom: Any, c: int) -> list[Lin]:
        """Forms that are >= 0 and hold `atom` with the sign of c."""
        out = [k for k in self._nonneg if k.coeff(atom) * c > 0]
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
            if self.bound(atom.b)[0] > 0:
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
            for k in self._nonneg:
                if k.coeff(v) * c > 0:
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

    def under(self, cond: E.Expr, e: E.Expr) -> E.Expr:
        """`e` simplified where `cond` (simplified) holds."""
        if type(e) in (E.IntImm, E.FloatImm, E.Var):
            return self.simp(e)
        saved = self.save()
        self.assume(cond)
        out = self.simp(e)
        self.restore(saved)
        return out

    def save(self) -> tuple[Any, ...]:
        """The scope, to be restored."""
        state = (
            self._active,
            self._done,
            self._bounds,
            self._mods,
            self._var_bounds,
            self._var_mods,
            self._known,
            self._nonneg,
            self._true,
            self._subst,
        )
        self._var_bounds, self._var_mods, self._known = dict(self._var_bounds), dict(self._var_mods), dict(self._known)
        self._nonneg, self._true, self._subst = list(self._nonneg), dict(self._true), dict(self._subst)
        self._active = set()
        self.forget()
        return state

    def restore(self, state: tuple[Any, ...]) -> None:
        (
            self._active,
            self._done,
            self._bounds,
            self._mods,
            self._var_bounds,
            self._var_mods,
            self._known,
            self._nonneg,
            self._true,
            self._subst,
        ) = state

    def forget(self) -> None:
        """Drop what was derived from the scope."""
        self._done, self._bounds, self._mods = {}, {}, {}

    def assume(self, cond: E.Expr) -> None:
        """Let a canonical simplified condition hold from here on."""
        t = type(cond)
        c: Any = cond
        if t is E.And:
            self.assume(c.a)
            self.assume(c.b)
        elif t is E.Not and type(c.a) is E.Or:
            self.assume(self.simp(self.make(E.Not, c.a.a)))
            self.assume(self.simp(self.make(E.Not, c.a.b)))
        elif t is E.Call and c.op == "likely":
            self.assume(c.args[0])
        elif t in _CMP_NAME and c.a.dtype in INDEX_DTYPES:
            la, lb = self.trusted_lin(c.a), self.trusted_lin(c.b)
            if t is E.LT or t is E.LE:
                self.assume_nonneg(lb.plus(la, -1).shifted(-1 if t is E.LT else 0))
            elif t is E.GT or t is E.GE:
                self.assume_nonneg(la.plus(lb, -1).shifted(-1 if t is E.GT else 0))
            elif t is E.EQ:
                self._assume_equal(c, la.plus(lb, -1))
        if t is not E.IntImm:
            self._true[id(cond)] = True
            opposite = self.apply_rules(self.make(E.Not, cond))
            self._true[id(opposite)] = False
        self.forget()

    def _assume_equal(self, c: Any, form: Lin) -> None:
        self.assume_nonneg(form)
        self.assume_nonneg(form.scaled(-1))
        if type(c.a) is E.FloorMod and type(c.a.b) is E.IntImm and type(c.b) is E.IntImm and type(c.a.a) is E.Var:
            if 0 <= c.b.value < c.a.b.value:
                self._var_mods[id(c.a.a)] = (c.a.b.value, c.b.value)

    def assume_nonneg(self, form: Lin) -> None:
        """Let `form >= 0` hold from here on."""
        if not form.terms:
            return
        bounds = self._var_bounds
        for atom, c in form.terms.values():
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
            self._nonneg.append(form)
        self._held.extend(a for a, _ in form.terms.values())
        self.forget()


def _has_nan(*es: E.Expr) -> bool:
    return any(type(e) is E.FloatImm and e.value != e.value for e in es)


# ---- handlers: children first, then what is known of the node


def _generic(f: Simplifier, e: E.Expr) -> E.Expr:
    return f.apply_rules(f.intern(map_expr(e, f.simp)))


def _arith(f: Simplifier, e: Any) -> E.Expr:
    a, b = f.simp(e.a), f.simp(e.b)
    t = type(e)
    if e.dtype in INDEX_DTYPES:
        if t is E.Add:
            form = f.lin(a).plus(f.lin(b))
        elif t is E.Sub:
            form = f.lin(a).plus(f.lin(b), -1)
        else:
            form = f.lin(f.mk(E.Mul, a, b))
        return f.from_lin(form, e.dtype)
    return _fold_or_rules(f, t, a, b)


def _fold_or_rules(f: Simplifier, t: Any, a: E.Expr, b: E.Expr) -> E.Expr:
    lifted = _vector(f, t, a, b)
    if lifted is not None:
        return lifted
    node = f.make(t, a, b)
    return f.apply_rules(node) if type(node) is t else node


def _divide(f: Simplifier, e: Any) -> E.Expr:
    a, b = f.simp(e.a), f.simp(e.b)
    t, dtype = type(e), e.dtype
    if type(b) is E.IntImm and b.value == 0:
        return f.mk(t, a, b)
    info = dtype_info(dtype)
    if info.lanes == 1 and info.is_int:
        alo, ahi = f.bound(a)
        blo, bhi = f.bound(b)
        if t is E.Div or t is E.Mod:
            if alo >= 0 and blo > 0:
                t = E.FloorDiv if t is E.Div else E.FloorMod
        if t is E.FloorDiv or t is E.FloorMod:
            if 0 <= alo and ahi < blo:
                return f.imm(0, dtype) if t is E.FloorDiv else a
            if dtype in INDEX_DTYPES:
                out = _floor_index(f, t, a, b, dtype)
                if out is not None:
                    return out
    return _fold_or_rules(f, t, a, b)


def _floor_index(f: Simplifier, t: Any, a: E.Expr, b: Any, dtype: str) -> E.Expr | None:
    form = f.trusted_lin(a)
    if type(b) is E.IntImm:
        if b.value < 0:
            return None
        out = D.floordiv(f, form, b.value, dtype) if t is E.FloorDiv else D.floormod(f, form, b.value, dtype)
        if out.terms and len(out.terms) == 1 and not out.const:
            atom, c = next(iter(out.terms.values()))
            if c == 1 and type(atom) is t and atom.a is a and atom.b is b:  # type: ignore[attr-defined]
                lo, hi = f.bound(atom)
                return f.imm(lo, dtype) if lo == hi else f.apply_rules(atom)
        return f.from_lin(out, dtype)
    if a is b:
        return f.imm(1 if t is E.FloorDiv else 0, dtype)
    if f.has_data(b) or any(f.has_data(x) for x, _ in form.terms.values()):
        return None
    divisor = f.lin(b)
    if len(divisor.terms) == 1 and divisor.const == 0:
        d, c = next(iter(divisor.terms.values()))
        parts = D.floordiv_symbol(f, form, d, dtype) if c == 1 else None
        if parts is not None:
            q, r = parts
            if not r.terms and not r.const:
                return f.from_lin(q, dtype) if t is E.FloorDiv else f.imm(0, dtype)
            if f.prove_nonneg(r) and f.prove_nonneg(divisor.plus(r, -1).shifted(-1)):
                return f.from_lin(q if t is E.FloorDiv else r, dtype)
            rest = f.mk(t, f.from_lin(r, dtype), b)
            return f.from_lin(q.plus(Lin.of(rest)), dtype) if t is E.FloorDiv else rest
    if f._nonneg and f.prove_nonneg(form) and f.prove_nonneg(divisor.plus(form, -1).shifted(-1)):
        return f.imm(0, dtype) if t is E.FloorDiv else a
    return None


def _compare(f: Simplifier, e: Any) -> E.Expr:
    a, b = f.simp(e.a), f.simp(e.b)
    t = type(e)
    if a.dtype in INDEX_DTYPES:
        la, lb = f.trusted_lin(a), f.trusted_lin(b)
        if t is E.EQ or t is E.NE:
            return _equal(f, t, a, b, la, lb)
        if t is E.GT or t is E.GE:
            a, b, la, lb = b, a, lb, la
        strict = t is E.LT or t is E.GT
        form = lb.plus(la, -1).shifted(-1 if strict else 0)  # a < b is b - a - 1 >= 0
        yes, no = f.sign(form)
        if yes or no:
            return f.truth(yes)
        return _order(f, form, E.LT if strict else E.LE, a, b)
    info = dtype_info(a.dtype)
    if info.lanes == 1 and info.is_int:
        (alo, ahi), (blo, bhi) = f.bound(a), f.bound(b)
        if ahi < blo:
            return f.truth(t in (E.LT, E.LE, E.NE))
        if bhi < alo:
            return f.truth(t in (E.GT, E.GE, E.NE))
        if ahi == blo and t in (E.LE, E.GT):
            return f.truth(t is E.LE)
        if bhi == alo and t in (E.GE, E.LT):
            return f.truth(t is E.GE)
    return _fold_or_rules(f, t, a, b)


def _order(f: Simplifier, form: Lin, t: Any, a: E.Expr, b: E.Expr) -> E.Expr:
    """`form >= 0` as a comparison: negative terms left, positive ones and the constant right, common factors out."""
    g = form.factor()
    form = Lin(form.const // g, {k: (x, c // g) for k, (x, c) in form.terms.items()})
    dtype = a.dtype
    pos = Lin(0, {k: v for k, v in form.terms.items() if v[1] > 0})
    neg = Lin(0, {k: (x, -c) for k, (x, c) in form.terms.items() if c < 0})
    k = form.const
    cls: Any
    if not neg.terms:  # pos >= -k
        left, right, cls = pos, Lin(-k), E.GE
    elif not pos.terms:  # neg <= k
        left, right, cls = neg, Lin(k + 1), E.LT
    else:
        left, right, cls = neg, pos.shifted(k + 1), E.LT
        if not f._fits(left, right, dtype) or k == -1:
            right, cls = (pos, E.LE) if k == 0 else (pos.shifted(k + 1), E.LT)
    if not f._fits(left, right, dtype):
        return f.mk(t, a, b)
    return f.mk(cls, f.rebuild(left, dtype), f.rebuild(right, dtype))


def _equal(f: Simplifier, t: Any, a: E.Expr, b: E.Expr, la: Lin, lb: Lin) -> E.Expr:
    form = la.plus(lb, -1)
    if not form.terms:
        return f.truth((form.const == 0) == (t is E.EQ))
    lo, hi = f.bound_lin(form)
    g = form.factor()
    m, r = f.modulus_lin(form)
    if lo > 0 or hi < 0 or form.const % g or (m and r % m):
        return f.truth(t is E.NE)
    if f._nonneg and (f.prove_nonneg(form.shifted(-1)) or f.prove_nonneg(form.scaled(-1).shifted(-1))):
        return f.truth(t is E.NE)
    if f._nonneg and f.prove_nonneg(form) and f.prove_nonneg(form.scaled(-1)):
        return f.truth(t is E.EQ)
    form = form.divided(g)
    dtype = a.dtype
    pos = Lin(0, {k: v for k, v in form.terms.items() if v[1] > 0})
    neg = Lin(0, {k: (x, -c) for k, (x, c) in form.terms.items() if c < 0})
    k = form.const
    if not pos.terms:
        left, right = neg, Lin(k)
    elif not neg.terms:
        left, right = pos, Lin(-k)
    else:
        left, right = pos, neg.shifted(-k)
    if not f._fits(left, right, dtype):
        return f.mk(t, a, b)
    return f.mk(t, f.rebuild(left, dtype), f.rebuild(right, dtype))


def _extremum(f: Simplifier, e: Any) -> E.Expr:
    a, b = f.simp(e.a), f.simp(e.b)
    t = type(e)
    info = dtype_info(e.dtype)
    if a is b:
        return a
    if info.lanes == 1 and info.is_int:
        (alo, ahi), (blo, bhi) = f.bound(a), f.bound(b)
        if ahi <= blo:
            return a if t is E.Min else b
        if bhi <= alo:
            return b if t is E.Min else a
        if e.dtype in INDEX_DTYPES:
            form = f.trusted_lin(b).plus(f.trusted_lin(a), -1)
            if f.sign(form)[0]:
                return a if t is E.Min else b
            if f.sign(form.scaled(-1))[0]:
                return b if t is E.Min else a
    return _fold_or_rules(f, t, a, b)


def _logic(f: Simplifier, e: Any) -> E.Expr:
    t = type(e)
    a = f.simp(e.a)
    if type(a) is E.IntImm:
        return f.simp(e.b) if bool(a.value) == (t is E.And) else a
    b = f.simp(e.b)
    if type(b) is E.IntImm:
        return a if bool(b.value) == (t is E.And) else b
    if e.dtype == "bool":
        known_a, known_b = (a, b) if t is E.And else (f.simp(f.make(E.Not, a)), f.simp(f.make(E.Not, b)))
        b2 = f.under(known_a, b)
        if type(b2) is E.IntImm:
            return a if bool(b2.value) == (t is E.And) else b2
        a2 = f.under(known_b, a)
        if type(a2) is E.IntImm:
            return b if bool(a2.value) == (t is E.And) else a2
    return _fold_or_rules(f, t, a, b)


def _not(f: Simplifier, e: E.Not) -> E.Expr:
    a = f.simp(e.a)
    if type(a) is E.Broadcast:
        return f.intern(E.Broadcast(f.simp(f.make(E.Not, a.value)), a.lanes))
    node = f.make(E.Not, a)
    return f.apply_rules(node) if type(node) is E.Not else node


def _select(f: Simplifier, e: E.Select) -> E.Expr:
    c = f.simp(e.cond)
    if type(c) is E.Broadcast:
        c = c.value
    if type(c) is E.IntImm:
        return f.simp(e.a if c.value else e.b)
    if c.dtype == "bool":
        a, b = f.under(c, e.a), f.under(f.simp(f.make(E.Not, c)), e.b)
    else:
        a, b = f.simp(e.a), f.simp(e.b)
    return f.apply_rules(f.intern(E.Select(c, a, b)))


def _call(f: Simplifier, e: E.Call) -> E.Expr:
    if e.op == "if_then_else" and len(e.args) == 3:
        c = f.simp(e.args[0])
        if type(c) is E.IntImm:
            return f.simp(e.args[1] if c.value else e.args[2])
        a, b = f.under(c, e.args[1]), f.under(f.simp(f.make(E.Not, c)), e.args[2])
        if c is e.args[0] and a is e.args[1] and b is e.args[2]:
            return f.apply_rules(e)
        return f.apply_rules(f.intern(E.Call(e.op, (c, a, b), e.dtype, e.attrs)))
    out: Any = f.intern(map_expr(e, f.simp))
    args = out.args
    if args and all(type(x) is E.IntImm for x in args) and e.op in _BIT_FOLD:
        return f.imm(wrap_int(_BIT_FOLD[e.op](*[x.value for x in args]), e.dtype), e.dtype)
    return f.apply_rules(out)


_BIT_FOLD: dict[str, Callable[..., int]] = {
    "bitand": lambda a, b: a & b, "bitor": lambda a, b: a | b, "bitxor": lambda a, b: a ^ b, "bitnot": lambda a: ~a,
    "shl": lambda a, b: a << (b & 63), "shr": lambda a, b: a >> (b & 63), "abs": abs,
}  # fmt: skip


def _cast(f: Simplifier, e: E.Cast) -> E.Expr:
    v = f.simp(e.value)
    if type(v) is E.Cast:
        inner = v.value
        src, mid, dst = dtype_info(inner.dtype), dtype_info(v.dtype), dtype_info(e.dtype)
        widening = src.is_int and mid.is_int and dst.is_int and _holds(mid, src)
        # A narrower copy of a value that the middle type held exactly; or the low bits of low bits.
        if widening or (src.is_int and mid.is_int and dst.is_int and dst.bits <= mid.bits):
            return f.simp(f.intern(cast(e.dtype, inner)))
        if src.kind == mid.kind == dst.kind == "float" and src.bits <= mid.bits:
            return f.simp(f.intern(cast(e.dtype, inner)))
    out = f.intern(cast(e.dtype, v))
    if type(out) is E.Cast and dtype_info(out.dtype).is_int and dtype_info(out.dtype).lanes == 1:
        src = dtype_info(v.dtype)
        if src.is_int or src.kind == "bool":
            lo, hi = f.bound(out)
            if lo == hi:
                return f.imm(lo, out.dtype)
    return out


def _holds(wide: Any, narrow: Any) -> bool:
    """Whether every value of an integer type is one of another."""
    if wide.kind == narrow.kind:
        return bool(wide.bits >= narrow.bits)
    return bool(narrow.kind == "uint" and wide.bits > narrow.bits)


def has_effects(e: E.Expr) -> bool:
    """Whether evaluating `e` does more than give a value."""
    return any(type(x) is E.Call and INTRINS[x.op].effect != "pure" for x in walk_exprs(e))


def _let(f: Simplifier, e: E.Let) -> E.Expr:
    v = f.simp(e.value)
    if type(v) in (E.Var, E.IntImm, E.FloatImm):
        old = f._subst.get(id(e.var))
        f._subst[id(e.var)] = v
        f.forget()
        out = f.simp(e.body)
        if old is None:
            del f._subst[id(e.var)]
        else:
            f._subst[id(e.var)] = old
        f.forget()
        return out
    if dtype_info(v.dtype).is_int and dtype_info(v.dtype).lanes == 1:
        f._var_bounds[id(e.var)] = f.bound(v)
        if f.has_data(v):
            f._data[id(e.var)] = True
    body = f.simp(e.body)
    if all(x is not e.var for x in free_vars(body)) and not has_effects(v):
        return body
    if v is e.value and body is e.body:
        return e
    return f.intern(E.Let(e.var, v, body))


def _load(f: Simplifier, e: E.BufferLoad) -> E.Expr:
    return f.intern(map_expr(e, f.simp))


# ---- vectors


def _vector(f: Simplifier, t: Any, a: Any, b: Any) -> E.Expr | None:
    """Operations on ramps and broadcasts, done on their scalars."""
    ta, tb = type(a), type(b)
    if ta is E.Broadcast and tb is E.Broadcast and a.lanes == b.lanes:
        return f.intern(E.Broadcast(f.simp(f.make(t, a.value, b.value)), a.lanes))
    if E.Ramp not in (ta, tb):
        return None
    if t is E.Add or t is E.Sub:
        base_a, step_a = (a.base, a.stride) if ta is E.Ramp else (a.value, None) if ta is E.Broadcast else (None, None)
        base_b, step_b = (b.base, b.stride) if tb is E.Ramp else (b.value, None) if tb is E.Broadcast else (None, None)
        if base_a is None or base_b is None:
            return None
        zero = f.number(0, base_a.dtype)
        base = f.simp(f.make(t, base_a, base_b))
        step = f.simp(f.make(t, step_a if step_a is not None else zero, step_b if step_b is not None else zero))
        lanes = a.lanes
        if type(step) is E.IntImm and step.value == 0:
            return f.intern(E.Broadcast(base, lanes))
        return f.intern(E.Ramp(base, step, lanes))
    if t is E.Mul and E.Broadcast in (ta, tb):
        r, s = (a, b.value) if ta is E.Ramp else (b, a.value)
        return f.intern(E.Ramp(f.simp(f.make(E.Mul, r.base, s)), f.simp(f.make(E.Mul, r.stride, s)), r.lanes))
    if (
        ta is E.Ramp
        and tb is E.Broadcast
        and type(b.value) is E.IntImm
        and type(a.stride) is E.IntImm
        and a.base.dtype in INDEX_DTYPES
    ):
        return _vector_by_constant(f, t, a, b)
    return None


def _vector_by_constant(f: Simplifier, t: Any, a: E.Ramp, b: E.Broadcast) -> E.Expr | None:
    """Ramp // c, Ramp % c and Ramp < c where all lanes agree on the quotient or the answer."""
    c, step, dtype = b.value.value, a.stride.value, a.base.dtype  # type: ignore[attr-defined]
    last = f.simp(f.make(E.Add, a.base, f.imm(step * (a.lanes - 1), dtype)))
    if t in (E.FloorDiv, E.FloorMod) and c > 0:
        first_q = f.simp(f.make(E.FloorDiv, a.base, b.value))
        if first_q is f.simp(f.make(E.FloorDiv, last, b.value)):
            if t is E.FloorDiv:
                return f.intern(E.Broadcast(first_q, a.lanes))
            return f.intern(E.Ramp(f.simp(f.make(E.FloorMod, a.base, b.value)), a.stride, a.lanes))
        if step % c == 0:
            if t is E.FloorDiv:
                return f.intern(E.Ramp(first_q, f.imm(step // c, dtype), a.lanes))
            return f.intern(E.Broadcast(f.simp(f.make(E.FloorMod, a.base, b.value)), a.lanes))
    if t in (E.LT, E.LE, E.GT, E.GE):
        x, y = f.simp(f.make(t, a.base, b.value)), f.simp(f.make(t, last, b.value))
        if x is y and type(x) is E.IntImm:
            return f.intern(E.Broadcast(x, a.lanes))
    return None


def _ramp(f: Simplifier, e: E.Ramp) -> E.Expr:
    base, step = f.simp(e.base), f.simp(e.stride)
    if type(step) is E.IntImm and step.value == 0:
        return f.intern(E.Broadcast(base, e.lanes))
    if e.lanes == 1:
        return base
    return f.intern(E.Ramp(base, step, e.lanes))


def _shuffle(f: Simplifier, e: E.Shuffle) -> E.Expr:
    out: Any = f.intern(map_expr(e, f.simp))
    if len(out.vectors) == 1 and len(out.indices) == 1:
        v, i = out.vectors[0], out.indices[0]
        if type(v) is E.Broadcast:
            return v.value
        if type(v) is E.Ramp:
            return f.simp(f.make(E.Add, v.base, f.simp(f.make(E.Mul, v.stride, f.number(i, v.stride.dtype)))))
    return out  # type: ignore[no-any-return]


_HANDLERS: dict[type, Callable[[Simplifier, Any], E.Expr]] = {
    **dict.fromkeys((E.Add, E.Sub, E.Mul), _arith),
    **dict.fromkeys((E.FloorDiv, E.FloorMod, E.Div, E.Mod), _divide),
    **dict.fromkeys((E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE), _compare),
    E.Min: _extremum, E.Max: _extremum, E.And: _logic, E.Or: _logic, E.Not: _not, E.Select: _select, E.Call: _call,
    E.Cast: _cast, E.Let: _let, E.BufferLoad: _load, E.Ramp: _ramp, E.Shuffle: _shuffle,
}  # fmt: skip
