"""The simplifier: one upward walk over canonical nodes.

Index arithmetic goes through linear forms (`facts.py`, `divmod.py`), comparisons through the sign of a difference,
everything else through the rule table (`rules.py`). Results are canonical nodes; `Analyzer.simplify` gives the user's
own object back where nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .. import build
from .. import expr as E
from ..build import FOLD, cast, const, logical_and, logical_not, logical_or, wrap_int
from ..dtype import dtype_info
from ..effects import is_kept
from ..visit import free_vars, map_expr
from . import divmod as D
from .bounds import INDEX_DTYPES
from .conditions import call, compare, logic, negate, select
from .linear import Lin
from .matcher import RuleFn, compile_rules
from .rules import RULES
from .scope import Scope
from .vectors import ramp, shuffle, vector


@lru_cache(maxsize=1)
def rule_functions() -> dict[Any, RuleFn]:
    return compile_rules(RULES)


_CMP_NAME = {E.EQ: "eq", E.NE: "ne", E.LT: "lt", E.LE: "le", E.GT: "gt", E.GE: "ge"}


class Simplifier(Scope):
    """Facts, and the walk that uses them."""

    def __init__(self) -> None:
        super().__init__()
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
                    return self.intern(build.compare(_CMP_NAME[cls], a, b))
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
        k = id(e)
        hit = self._done.get(k)
        if hit is not None:
            return hit
        if self._outer is not None and (hit := self.found_outside(e)) is not None:
            self._done[k] = hit
            return hit
        t = type(e)
        if t is E.Var:
            out = self._var(e)
        elif t is E.IntImm or t is E.FloatImm or t is E.StringImm:
            out = e
        else:
            if k in self._active:
                return e  # a rewrite that came back to where it began
            self._active.add(k)
            out = _HANDLERS.get(t, _generic)(self, e)
            if out is not e:
                out = self.simp(out)
            self._active.discard(k)
            if self._true and out.dtype == "bool":
                known = self._true.get(id(out))
                if known is not None:
                    out = self.truth(known)
        self._done[k] = out
        if out is not e:
            self._done[id(out)] = out
        if self._outer is not None:
            self.keep_outside(e, out)
        return out

    def is_plain(self, e: Any) -> bool:
        """Whether nothing of `e` can be simplified, as a glance tells: arithmetic of floats on what is read at constant places, of which a loop written out is full."""
        t = type(e)
        if t is E.BufferLoad:
            return e.predicate is None and all(map(_is_place, e.indices))
        if t in _PLAIN:
            a, b = type(e.a), type(e.b)
            asked = a is E.FloatImm or b is E.FloatImm or a is b is E.Broadcast  # by rules, folding and vectors
            return not asked and self.is_plain(e.a) and self.is_plain(e.b) and dtype_info(e.dtype).is_float
        return t is E.IntImm or t is E.FloatImm or t is E.StringImm or (t is E.Broadcast and self.is_plain(e.value))

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

    def fold_or_rules(self, t: Any, a: E.Expr, b: E.Expr) -> E.Expr:
        """A binary node of simplified operands: lifted from vectors, folded, or after a rule."""
        lifted = vector(self, t, a, b)
        if lifted is not None:
            return lifted
        node = self.make(t, a, b)
        return self.apply_rules(node) if type(node) is t else node

    def negation(self, e: E.Expr) -> E.Expr:
        return self.apply_rules(self.make(E.Not, e))

    def from_lin(self, form: Lin, dtype: str) -> E.Expr:
        """The expression of a simplified linear form; a constant where the bounds meet."""
        if len(form.terms) > 1:
            for atom, _ in form.terms.values():
                if type(atom) in _MAY_HOLD_REMAINDER:
                    form = D.recombine(self, form, dtype)
                    break
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


# What a term with a remainder in it can be at its top: itself, a product, a widened one.
_MAY_HOLD_REMAINDER = (E.FloorMod, E.Mul, E.Cast)


_PLAIN = (E.Add, E.Sub, E.Mul)  # see `is_plain`


def _is_place(e: Any) -> bool:
    """Whether an index is a number, or so many in a row."""
    t = type(e)
    return t is E.IntImm or (
        t is E.Ramp and type(e.base) is E.IntImm and type(e.stride) is E.IntImm and e.stride.value != 0 and e.lanes > 1
    )


def _has_nan(*es: E.Expr) -> bool:
    return any(type(e) is E.FloatImm and e.value != e.value for e in es)


# ---- handlers: children first, then what is known of the node


def _generic(f: Simplifier, e: E.Expr) -> E.Expr:
    return f.apply_rules(f.intern(map_expr(e, f.simp)))


def _arith(f: Simplifier, e: Any) -> E.Expr:
    t = type(e)
    if e.dtype not in INDEX_DTYPES:
        return f.fold_or_rules(t, f.simp(e.a), f.simp(e.b))
    form = f.lin(f.mk(E.Mul, f.simp(e.a), f.simp(e.b))) if t is E.Mul else _summed(f, e)
    out = f.from_lin(form, e.dtype)
    if (
        out is not e
        and out is f.rebuild(form, e.dtype)
        and all(f._done.get(k) is x for k, (x, _) in form.terms.items())
    ):
        f._done[id(out)] = out  # a sum of simplified terms as they are: there is nothing to do again
    return out


def _summed(f: Simplifier, e: Any) -> Lin:
    """The linear form of all simplified terms of a sum. Its parts are not simplified by themselves: each would cost what the whole does."""
    out = Lin()
    left: list[tuple[Any, int]] = [(e.b, 1 if type(e) is E.Add else -1), (e.a, 1)]
    while left:
        x, k = left.pop()
        t = type(x)
        if (t is E.Add or t is E.Sub) and id(x) not in f._done:
            left.append((x.b, k if t is E.Add else -k))
            left.append((x.a, k))
        elif t is E.IntImm:
            out = out.shifted(k * x.value)
        else:
            out = out.plus(f.lin(f.simp(x)), k)
    return out


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
        elif type(b) is E.IntImm:
            lo, hi = f.bound(f.mk(t, a, b))
            if lo == hi:
                return f.imm(lo, dtype)
    return f.fold_or_rules(t, a, b)


def _floor_index(f: Simplifier, t: Any, a: E.Expr, b: Any, dtype: str) -> E.Expr | None:
    """a // b or a % b of index arithmetic by the linear forms of both; None where those say nothing."""
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
    return f.fold_or_rules(t, a, b)


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


def _let(f: Simplifier, e: E.Let) -> E.Expr:
    v = f.simp(e.value)
    if type(v) in (E.Var, E.IntImm, E.FloatImm):
        old = f._subst.get(id(e.var))
        f._subst[id(e.var)] = v
        f._marks = {}
        f.forget()
        out = f.simp(e.body)
        if old is None:
            del f._subst[id(e.var)]
        else:
            f._subst[id(e.var)] = old
        f.forget()
        return out
    if dtype_info(v.dtype).is_int and dtype_info(v.dtype).lanes == 1:
        f._inner, f._outer = {}, None
        f._var_bounds[id(e.var)] = f.bound(v)
        if f.has_data(v):
            f._data[id(e.var)] = True
    body = f.simp(e.body)
    if all(x is not e.var for x in free_vars(body)) and not is_kept(v):
        return body
    if v is e.value and body is e.body:
        return e
    return f.intern(E.Let(e.var, v, body))


def _load(f: Simplifier, e: E.BufferLoad) -> E.Expr:
    return f.intern(map_expr(e, f.simp))


_HANDLERS: dict[type, Callable[[Simplifier, Any], E.Expr]] = {
    **dict.fromkeys((E.Add, E.Sub, E.Mul), _arith),
    **dict.fromkeys((E.FloorDiv, E.FloorMod, E.Div, E.Mod), _divide),
    **dict.fromkeys((E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE), compare),
    E.Min: _extremum, E.Max: _extremum, E.And: logic, E.Or: logic, E.Not: negate, E.Select: select, E.Call: call,
    E.Cast: _cast, E.Let: _let, E.BufferLoad: _load, E.Ramp: ramp, E.Shuffle: shuffle,
}  # fmt: skip
