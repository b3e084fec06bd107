"""Simplification of comparisons, logic and choices.

Integers compare by the sign of a difference of linear forms; what remains undecided is written with negative terms left,
positive ones and the constant right, common factors taken out. Each side of an `and`, `or` or choice is simplified under what
the other one says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import expr as E
from ..build import wrap_int
from ..dtype import dtype_info
from ..visit import map_expr, walk_exprs
from .bounds import INDEX_DTYPES
from .linear import Lin

if TYPE_CHECKING:
    from .simplifier import Simplifier


_FAR = 1 << 62  # bounds beyond are infinities


def compare(f: Simplifier, e: Any) -> E.Expr:
    """A comparison: decided where bounds do, else in a normal form."""
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
    return f.fold_or_rules(t, a, b)


def _order(f: Simplifier, form: Lin, t: Any, a: E.Expr, b: E.Expr) -> E.Expr:
    """`form >= 0` as a comparison: negative terms left, positive ones and the constant right, common factors out."""
    form = _coarse(f, form)
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


def _coarse(f: Simplifier, form: Lin) -> Lin:
    """`form >= 0` without the terms that cannot decide it: g*q + r >= 0 is q + r//g >= 0, and r//g may be one number. So a place within
    a tile leaves the question whether a whole tile is inside, which loops over the tile need not ask."""
    for g in sorted({abs(c) for _, c in form.terms.values() if abs(c) > 1}, reverse=True):
        even, rest = form.split(g)
        if even.terms and rest.terms:
            lo, hi = f.bound_lin(rest)
            if lo > -_FAR and hi < _FAR and lo // g == hi // g:
                return even.divided(g).shifted(int(lo // g))
    return form


def _equal(f: Simplifier, t: Any, a: E.Expr, b: E.Expr, la: Lin, lb: Lin) -> E.Expr:
    """a == b or a != b: decided by bounds, factors and remainders, else in a normal form."""
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


def logic(f: Simplifier, e: Any) -> E.Expr:
    """A chain of `and` (or of `or`) as one: each part once, and none that the others decide.

    Testing part by part keeps the work at n scopes of n facts; taking a chain as nested pairs, each side under the other, doubles it with
    every part, and the guards of a padded, tiled read are chains of four to six."""
    t = type(e)
    parts: list[E.Expr] = []
    for part in _chain(t, e):
        s = f.simp(part)
        if type(s) is E.IntImm:
            if bool(s.value) != (t is E.And):
                return s
            continue
        parts += [x for x in _chain(t, s) if all(x is not y for y in parts)]
    if e.dtype == "bool" and len(parts) > 1:
        decided = _undecided(f, t, parts)
        if decided is None:
            return f.truth(t is E.Or)
        parts = decided
    out = _nested(f, t, e, {id(x) for x in parts})
    if out is None:
        return f.truth(t is E.And)
    if type(out) is t and [id(x) for x in _chain(t, out)] == [id(x) for x in parts]:
        f._done[id(out)] = out
    return out


def _chain(t: Any, e: Any) -> list[E.Expr]:
    """The parts of nested nodes of one kind, in the order in which they are asked."""
    return [*_chain(t, e.a), *_chain(t, e.b)] if type(e) is t else [e]


def _nested(f: Simplifier, t: Any, e: Any, left: set[int]) -> E.Expr | None:
    """What is `left` of a chain, nested as it was; each part once."""
    if type(e) is t:
        a, b = _nested(f, t, e.a, left), _nested(f, t, e.b, left)
        if a is None or b is None:
            return b if a is None else a
        return f.fold_or_rules(t, a, b)
    s = f.simp(e)
    if type(s) is t:
        return _nested(f, t, s, left)
    if id(s) not in left:
        return None
    left.remove(id(s))
    return s


def _undecided(f: Simplifier, t: Any, parts: list[E.Expr]) -> list[E.Expr] | None:
    """The parts that the others do not imply; None where they contradict each other. What comes later decides a part only where it may be
    asked without it: `i < n and a[i] > 0 and i < n - 1` keeps its first."""
    held = [x if t is E.And else f.simp(f.make(E.Not, x)) for x in parts]
    last_fault = max((i for i, x in enumerate(parts) if _may_fault(x)), default=-1)
    kept = list(range(len(parts)))
    for i in range(len(parts)):
        others = [held[k] for k in kept if k < i or (k > i and last_fault <= i)]
        if others:
            s = f.under(others, parts[i])
            if type(s) is E.IntImm:
                if bool(s.value) != (t is E.And):
                    return None
                kept.remove(i)
    return [parts[i] for i in kept]


def negate(f: Simplifier, e: E.Not) -> E.Expr:
    a = f.simp(e.a)
    if type(a) is E.Broadcast:
        return f.intern(E.Broadcast(f.simp(f.make(E.Not, a.value)), a.lanes))
    node = f.make(E.Not, a)
    return f.apply_rules(node) if type(node) is E.Not else node


def select(f: Simplifier, e: E.Select) -> E.Expr:
    c = f.simp(e.cond)
    if type(c) is E.Broadcast:
        c = c.value
    if type(c) is E.IntImm:
        return f.simp(e.a if c.value else e.b)
    # Both sides are evaluated whatever the condition says: what it knows must not loosen an index or a divisor.
    if c.dtype == "bool":
        a = f.simp(e.a) if _may_fault(e.a) else f.under((c,), e.a)
        b = f.simp(e.b) if _may_fault(e.b) else f.under_not(c, e.b)
    else:
        a, b = f.simp(e.a), f.simp(e.b)
    return done(f, f.intern(E.Select(c, a, b)))


def done(f: Simplifier, e: E.Expr) -> E.Expr:
    """A choice of simplified parts after the rules. Where none fits, it need not be taken apart and put together under its condition again."""
    out = f.apply_rules(e)
    if out is e:
        f._done[id(e)] = e
    return out


def _may_fault(e: E.Expr) -> bool:
    """Whether evaluating `e` touches memory or divides integers by what is no constant."""
    for x in walk_exprs(e):
        t = type(x)
        if t is E.BufferLoad or t is E.TensorRead:
            return True
        if t in (E.Div, E.Mod, E.FloorDiv, E.FloorMod) and type(x.b) is not E.IntImm:  # type: ignore[attr-defined]
            return True
    return False


def call(f: Simplifier, e: E.Call) -> E.Expr:
    if e.op == "if_then_else" and len(e.args) == 3:
        c = f.simp(e.args[0])
        if type(c) is E.IntImm:
            return f.simp(e.args[1] if c.value else e.args[2])
        a, b = f.under((c,), e.args[1]), f.under_not(c, e.args[2])
        if c is e.args[0] and a is e.args[1] and b is e.args[2]:
            return f.apply_rules(e)
        return done(f, f.intern(E.Call(e.op, (c, a, b), e.dtype, e.attrs)))
    out: Any = f.intern(map_expr(e, f.simp))
    args = out.args
    if args and all(type(x) is E.IntImm for x in args) and e.op in _BIT_FOLD:
        return f.imm(wrap_int(_BIT_FOLD[e.op](*[x.value for x in args]), e.dtype), e.dtype)
    return f.apply_rules(out)


_BIT_FOLD: dict[str, Callable[..., int]] = {
    "bitand": lambda a, b: a & b, "bitor": lambda a, b: a | b, "bitxor": lambda a, b: a ^ b, "bitnot": lambda a: ~a,
    "shl": lambda a, b: a << b if 0 <= b < 64 else 0, "shr": lambda a, b: a >> (b if 0 <= b < 64 else 64), "abs": abs,
}  # fmt: skip
