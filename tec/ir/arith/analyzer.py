"""The Analyzer: what schedules and passes ask about expressions.

    ana = Analyzer()
    ana.bind(i, Range(0, 16)); ana.bind(j, Range(0, 4))
    ana.simplify((i * 4 + j) // 4)          # i
    ana.can_prove(i * 4 + j < 64)           # True
    ana.int_set(i * 4 + j, {j: Range(0, 4)})  # [i*4, i*4 + 3]
    with ana.constraint(i < 8): ...

Index arithmetic (int32, int64 variables) is taken not to overflow and divisors not to be 0; values from memory are
taken to be anything that their dtype holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from .. import expr as E
from ..build import convert, wrap_int
from ..dtype import dtype_info
from ..visit import children, map_expr
from .bounds import INDEX_DTYPES, INF
from .divmod import take_out
from .facts import factors
from .int_set import IntSet, SetEvaluator, as_int_set
from .linear import Lin
from .simplifier import Simplifier


class Analyzer(Simplifier):
    """Facts about variables in scope, and the simplification, proofs and intervals that follow from them."""

    # ---- the scope

    def bind(self, var: E.Var, value: Any) -> None:
        """Let `var` range over a Range or IntSet, or stand for an expression. A second bind replaces the first."""
        fresh = self._begin(var)
        if isinstance(value, E.Range):
            low = self.simp(self.intern(convert(value.min)))
            extent = self.simp(self.intern(convert(value.extent)))
            if type(extent) is E.IntImm and extent.value == 1 and low.dtype == var.dtype:
                self._subst[id(var)] = low
                self._marks = {}
            else:
                self._bind_interval(var, low, self._top(low, extent))
        elif isinstance(value, IntSet):
            low_, high_ = (None if x is None else self.simp(self.intern(x)) for x in (value.min, value.max))
            self._bind_interval(var, low_, high_)
        else:
            e = self.simp(self.intern(convert(value, var.dtype)))
            self._subst[id(var)] = e
            self._marks = {}
        self._inner, self._outer = {}, None  # they do not know of it
        if not fresh:
            self.forget()

    def bind_between(self, var: E.Var, lo: int | None, hi: int | None) -> None:
        """Let `lo <= var <= hi`; None is open. As `bind`, of numbers."""
        fresh = self._begin(var)
        self._bound_between(var, -INF if lo is None else lo, INF if hi is None else hi)
        self._inner, self._outer = {}, None
        if not fresh:
            self.forget()

    def _begin(self, var: E.Var) -> bool:
        """Drop what was said of a variable, which is bound next. Whether nothing was asked of it yet."""
        fresh = self._is_fresh(var)
        self._held.append(var)
        self.intern(var)
        if not fresh:
            self._unbind(var)
        return fresh

    def _top(self, low: E.Expr, extent: E.Expr) -> E.Expr:
        """The last value of a range."""
        if type(low) is E.IntImm and type(extent) is E.IntImm and low.dtype == extent.dtype:
            return self.imm(wrap_int(low.value + extent.value - 1, extent.dtype), extent.dtype)
        return self.simp(self.make(E.Sub, self.make(E.Add, low, extent), self.imm(1, extent.dtype)))

    def bind_value(self, var: E.Var, value: E.Expr) -> None:
        """Let `var` have `value`: stand for it where it is a constant or a variable, share its bounds otherwise."""
        e = self.simp(self.intern(value))
        if type(e) in (E.Var, E.IntImm, E.FloatImm):
            self.bind(var, e)
            return
        fresh = self._is_fresh(var)
        self._held.append(var)
        if not fresh:
            self._unbind(var)
        info = dtype_info(e.dtype)
        if info.is_int and info.lanes == 1 and var.dtype == e.dtype:
            self._var_bounds[id(var)] = self.bound(e)
            self._var_mods[id(var)] = self.modulus(e)
            if self.has_data(e):
                self._data[id(var)] = True
        self._inner, self._outer = {}, None
        if not fresh:
            self.forget()

    def _is_fresh(self, var: E.Var) -> bool:
        """Whether nothing was asked of an expression with `var` in it yet: what is known of others stays as it is when it is bound."""
        key = id(var)
        return not (key in self._canon or key in self._subst or key in self._var_bounds or key in self._var_mods)

    def bind_modulus(self, var: E.Var, coeff: int, base: int = 0) -> None:
        """Let `var` be congruent to `base` modulo `coeff`."""
        self._held.append(var)
        self._var_mods[id(var)] = (coeff, base % coeff if coeff else base)
        self.forget()

    def _unbind(self, var: E.Var) -> None:
        key = id(var)
        self._var_bounds.pop(key, None)
        self._var_mods.pop(key, None)
        self._subst.pop(key, None)
        if self._nonneg:
            self._nonneg = [k for k in self._nonneg if key not in k[0].terms]
            self._known = {k: v for k, v in self._known.items() if all(i != key for i, _ in k)}
        self.forget()

    def _bind_interval(self, var: E.Var, low: E.Expr | None, high: E.Expr | None) -> None:
        lo = self.bound(low)[0] if low is not None else -INF
        hi = self.bound(high)[1] if high is not None else INF
        self._bound_between(var, lo, hi)
        if var.dtype not in INDEX_DTYPES:
            return
        me = Lin.of(var)
        if low is not None and type(low) is not E.IntImm:
            self.assume_nonneg(me.plus(self.trusted_lin(low), -1), var)
        if high is not None and type(high) is not E.IntImm:
            self.assume_nonneg(self.trusted_lin(high).plus(me, -1), var)

    def _bound_between(self, var: E.Var, lo: int, hi: int) -> None:
        self._var_bounds[id(var)] = (max(lo, 0) if var.is_size else lo, hi)
        self._bounds.pop(id(var), None)

    @contextmanager
    def constraint(self, cond: Any) -> Iterator[None]:
        """A `with` block in which `cond` holds."""
        saved = self.save()
        c = self.simp(self.intern(convert(cond)))
        self.assume(c)
        try:
            yield
        finally:
            self.restore(saved)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A `with` block whose binds and constraints end with it."""
        saved = self.save(keep=True)
        try:
            yield
        finally:
            self.restore(saved)

    def scope_of(self, var: E.Var) -> AbstractContextManager[None]:
        """A `with` block that begins with `bind_value(var, ...)`, and in which nothing but what is bound within it is said. A variable that nothing was asked of
        needs no scope: what it stands for says nothing of expressions without it, so what is derived in the block holds behind it too, and none that is left has the variable.
        A scope would copy all that is known for each of hundreds of values that stand in one another."""
        return nullcontext() if self._is_fresh(var) else self.scope()

    def add_constraint(self, cond: Any) -> None:
        """Let `cond` hold from here on (to the end of the innermost `scope` or `constraint`)."""
        self.assume(self.simp(self.intern(convert(cond))))

    # ---- questions

    def simplify(self, e: Any) -> Any:
        """An equal expression, no larger; `e` itself where there is nothing to do. Takes numbers and IterVars too."""
        if not isinstance(e, E.Expr):
            e = convert(e)
        c = self.intern(e)
        out = self.simp(c)
        return e if out is c or self._reordered(c, out) else out

    def count_nodes(self, e: E.Expr) -> int:
        """Nodes of the tree below a canonical expression, shared ones counted each time."""
        n = self._sizes.get(id(e))
        if n is None:
            n = self._sizes[id(e)] = 1 + sum(map(self.count_nodes, children(e)))
        return n

    def _reordered(self, a: E.Expr, b: E.Expr) -> bool:
        """Whether two canonical expressions differ in the order of terms and factors alone."""
        if a is b:
            return True
        sums = (E.Add, E.Sub, E.Mul)
        if type(a) in sums and type(b) in sums and a.dtype in INDEX_DTYPES:
            la, lb = self.lin(a), self.lin(b)
            if id(a) in la.terms or id(b) in lb.terms:  # products of atoms: their factors are in order
                return False
            if la.const != lb.const or len(la.terms) != len(lb.terms) or self.count_nodes(a) != self.count_nodes(b):
                return False
            left = list(lb.terms.values())
            for atom, k in la.terms.values():
                at = next((i for i, (x, c) in enumerate(left) if c == k and self._reordered(atom, x)), None)
                if at is None:
                    return False
                del left[at]
            return True
        if type(a) is not type(b) or a.dtype != b.dtype:
            return False
        old, new = children(a), children(b)
        if not old or len(old) != len(new) or not all(self._reordered(x, y) for x, y in zip(old, new)):
            return False
        rest = iter(new)
        return self.intern(map_expr(a, lambda _: next(rest))) is b

    def can_prove(self, cond: Any) -> bool:
        """Whether `cond` follows from the scope. False says nothing."""
        out = self.simp(self.intern(convert(cond)))
        if type(out) is E.IntImm:
            return bool(out.value)
        if type(out) is E.And:
            return self.can_prove(out.a) and self.can_prove(out.b)
        if type(out) is E.Or:
            return self.can_prove(out.a) or self.can_prove(out.b)
        return False

    def can_prove_equal(self, a: Any, b: Any) -> bool:
        """Whether two integer expressions are always equal."""
        x, y = convert(a), convert(b)
        if x is y:
            return True
        if x.dtype != y.dtype and x.dtype in INDEX_DTYPES and y.dtype in INDEX_DTYPES:
            x, y = (v if v.dtype == "int64" else E.Cast("int64", v) for v in (x, y))
        cx, cy = self.simp(self.intern(x)), self.simp(self.intern(y))
        return cx is cy or (cx.dtype == cy.dtype and self.can_prove(E.EQ(cx, cy)))

    def const_int_bound(self, e: Any) -> tuple[int | None, int | None]:
        """The least and greatest value as Python ints, None where unbounded."""
        out = self.simp(self.intern(convert(e)))
        lo, hi = self.bound(out)
        return (None if lo <= -INF else lo), (None if hi >= INF else hi)

    def modular(self, e: Any) -> tuple[int, int]:
        """(coeff, base) with e == base modulo coeff; coeff 0 for the constant base, 1 where nothing is known."""
        return self.modulus(self.simp(self.intern(convert(e))))

    # ---- sets

    def int_set(self, e: Any, domain: Mapping[E.Var, Any]) -> IntSet:
        """The values of `e` while each variable of `domain` ranges over its IntSet, Range or (min, max) pair."""
        return SetEvaluator(self, domain).eval(self.simp(self.intern(convert(e))))

    def union(self, sets: Iterable[Any]) -> IntSet:
        """The smallest interval that holds all the sets."""
        ev = SetEvaluator(self, {})
        fixed = []
        for s in map(as_int_set, sets):
            low = None if s.min is None else self.simp(self.intern(s.min))
            high = low if s.min is s.max else None if s.max is None else self.simp(self.intern(s.max))
            fixed.append(IntSet(low, high))
        return ev.union(fixed)

    # ---- shapes of expressions

    def detect_linear(self, e: Any, variables: Sequence[E.Var]) -> list[E.Expr] | None:
        """[c0, c1, ..., base] with e == c0*v0 + c1*v1 + ... + base, the coefficients and base free of the variables; or None."""
        out = self.simp(self.intern(convert(e)))
        if out.dtype not in INDEX_DTYPES:
            return None
        form = self.trusted_lin(out)
        ids = {id(v): i for i, v in enumerate(variables)}
        ev = SetEvaluator(self, {v: IntSet() for v in variables})
        coeffs, base = [Lin() for _ in variables], Lin(form.const)
        for atom, c in form.terms.values():
            if not ev.varies(atom):
                base = base.plus(Lin.of(atom), c)
                continue
            parts = list(factors(atom))
            moving = [p for p in parts if ev.varies(p)]
            if len(moving) != 1 or id(moving[0]) not in ids:
                return None
            take_out(parts, moving[0])
            factor = Lin.of(self.monomial(tuple(parts))) if parts else Lin(1)
            i = ids[id(moving[0])]
            coeffs[i] = coeffs[i].plus(factor, c)
        return [self.from_lin(x, out.dtype) for x in (*coeffs, base)]

    def detect_clip_bound(self, cond: Any, variables: Sequence[E.Var]) -> list[IntSet] | None:
        """For a conjunction of comparisons, the interval of each variable in which it may hold, exactly; or None where some part
        is not a bound on one variable with coefficient 1 or -1 (or does not hold a variable at all)."""
        out = self.simp(self.intern(convert(cond)))
        sets: list[IntSet] = [IntSet() for _ in variables]
        ev = SetEvaluator(self, {v: IntSet() for v in variables})
        for part in conjuncts(out):
            p: Any = part
            if type(p) is E.Call and p.op == "likely":
                p = p.args[0]
            if type(p) not in (E.LT, E.LE, E.GT, E.GE, E.EQ) or p.a.dtype not in INDEX_DTYPES:
                return None
            a, b = (p.a, p.b) if type(p) not in (E.GT, E.GE) else (p.b, p.a)
            form = self.trusted_lin(b).plus(self.trusted_lin(a), -1).shifted(-1 if type(p) in (E.LT, E.GT) else 0)
            moving = [(x, c) for x, c in form.terms.values() if ev.varies(x)]
            if len(moving) != 1:
                return None
            atom, c = moving[0]
            at = next((i for i, v in enumerate(variables) if v is atom), None)
            if at is None:
                return None
            limit = self._solve(form.without(atom), c, a.dtype)
            if limit is None:
                return None
            s = sets[at]
            if c > 0 or type(p) is E.EQ:
                s = IntSet(limit if s.min is None else self.simp(self.make(E.Max, s.min, limit)), s.max)
            if c < 0 or type(p) is E.EQ:
                s = IntSet(s.min, limit if s.max is None else self.simp(self.make(E.Min, s.max, limit)))
            sets[at] = s
        return sets

    def _solve(self, rest: Lin, c: int, dtype: str) -> E.Expr | None:
        """The bound on x from c*x + rest >= 0: ceil(-rest / c) below for c > 0, floor(rest / -c) above for c < 0."""
        form = rest.scaled(-1).shifted(c - 1) if c > 0 else rest
        e = self.from_lin(form, dtype)
        return self.simp(self.make(E.FloorDiv, e, self.imm(abs(c), dtype)))


def conjuncts(cond: E.Expr) -> list[E.Expr]:
    """The parts of nested Ands."""
    if type(cond) is E.And:
        return [*conjuncts(cond.a), *conjuncts(cond.b)]
    return [cond]
