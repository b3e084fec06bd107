"""What is known of an expression: its canonical node, linear form, constant bounds, modulus, and what the scope implies.

Nodes are interned in one table an analyzer, so that equal expressions are one object here (and nowhere else in the
compiler). Facts hold for int32 and int64 index arithmetic, which is taken not to overflow; a value that comes from data
(a load, a call) may be anything its dtype holds, and a linear form with such an atom is trusted beyond ring
identities only where its bounds fit the dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from .. import expr as E
from ..build import wrap_int
from ..dtype import dtype_info, int_range
from ..intrin import INTRINS
from ..schema import EXPRS
from ..visit import CHILDREN, MAP
from .bounds import BOUND, EVERYTHING, INDEX_DTYPES, INF, Bound, clamp
from .linear import Lin

_MAX_PRODUCT_TERMS = 8


def is_data(e: E.Expr) -> bool:
    """Whether an atom's value comes from memory or from a call rather than from loops and shapes."""
    t = type(e)
    if t is E.BufferLoad or t is E.TensorRead or t is E.Reduce:
        return True
    if t is E.Call:
        return e.op not in ("likely", "if_then_else", "wave_lane")  # type: ignore[attr-defined]
    return False


class Facts:
    """Interning, linear forms, bounds and moduli; the scope's variables and constraints."""

    def __init__(self) -> None:
        self._table: dict[Any, E.Expr] = {}
        self._canon: dict[int, tuple[E.Expr, E.Expr]] = {}
        self._serial: dict[int, int] = {}
        self._lin: dict[int, Lin] = {}
        self._rebuilt: dict[tuple[Any, ...], E.Expr] = {}
        self._sizes: dict[int, int] = {}
        self._data: dict[int, bool] = {}
        self._bounds: dict[int, Bound] = {}
        self._mods: dict[int, tuple[int, int]] = {}
        # the scope
        self._var_bounds: dict[int, Bound] = {}
        self._var_mods: dict[int, tuple[int, int]] = {}
        self._known: dict[Any, Bound] = {}  # bounds of linear forms (without constants), by normalized terms
        # Of the forms that ever were in `_known`: most others need no key.
        self._known_atoms: set[frozenset[int]] = set()
        # (form known to be >= 0, the atom it may eliminate: None for any).
        self._nonneg: list[tuple[Lin, int | None]] = []
        self._true: dict[int, bool] = {}  # conditions known to hold (or not), by id of the interned node
        self._held: list[E.Expr] = []

    # ---- interning

    def intern(self, e: E.Expr) -> E.Expr:
        """The canonical node structurally equal to `e`."""
        k = id(e)
        hit = self._canon.get(k)
        if hit is not None:
            return hit[1]
        t = type(e)
        if t in _BINARY:
            # A node is made only where there is none yet: statements of a loop written out have most of theirs in common.
            a, b = self.intern(e.a), self.intern(e.b)  # type: ignore[attr-defined]
            c = self._table.get((t, id(a), id(b)))
            if c is None:
                c = self._put(e if a is e.a and b is e.b else t(a, b))  # type: ignore[attr-defined,call-arg]
        elif t is E.IntImm:
            c = self._table.get((t, e.value, e.dtype))  # type: ignore[attr-defined]
            if c is None:
                c = self._put(e)
        elif t is E.Var or t is E.FloatImm:
            c = self._put(e)
        else:
            c = self._put(MAP[t](e, self.intern))
        self._canon[k] = (e, c)
        return c

    def _put(self, e: E.Expr) -> E.Expr:
        t = type(e)
        key = (t, id(e.a), id(e.b)) if t in _BINARY else _key(e)  # type: ignore[attr-defined]
        c = self._table.get(key)
        if c is None:
            c = self._table[key] = e
            k = id(c)
            self._serial[k] = len(self._serial)
            self._canon[k] = (c, c)
        return c

    def mk(self, cls: Callable[[E.Expr, E.Expr], E.Expr], a: E.Expr, b: E.Expr) -> E.Expr:
        """The canonical binary node of canonical operands."""
        c = self._table.get((cls, id(a), id(b)))
        return c if c is not None else self._put(cls(a, b))

    def imm(self, value: int, dtype: str) -> E.Expr:
        c = self._table.get((E.IntImm, value, dtype))
        return c if c is not None else self._put(E.IntImm(value, dtype))

    # ---- linear forms

    def lin(self, e: E.Expr) -> Lin:
        """The linear form of a canonical int32/int64 expression; the expression itself as one atom where it has no other."""
        k = id(e)
        hit = self._lin.get(k)
        if hit is not None:
            return hit
        t = type(e)
        if t is E.IntImm:
            out = Lin(e.value)  # type: ignore[attr-defined]
        elif t is E.Add:
            out = self.lin(e.a).plus(self.lin(e.b))  # type: ignore[attr-defined]
        elif t is E.Sub:
            out = self.lin(e.a).plus(self.lin(e.b), -1)  # type: ignore[attr-defined]
        elif t is E.Mul:
            out = self._product(e)
        else:
            out = Lin(0, {k: (e, 1)})
        self._lin[k] = out
        return out

    def _product(self, e: Any) -> Lin:
        la, lb = self.lin(e.a), self.lin(e.b)
        if not lb.terms:
            return la.scaled(lb.const)
        if not la.terms:
            return lb.scaled(la.const)
        if (len(la.terms) + 1) * (len(lb.terms) + 1) > _MAX_PRODUCT_TERMS + 1:
            a, b = self.rebuild(la, e.dtype), self.rebuild(lb, e.dtype)
            if self._serial[id(a)] > self._serial[id(b)]:
                a, b = b, a
            return Lin.of(self.mk(E.Mul, a, b))
        out = Lin(la.const * lb.const)
        if lb.const:
            out = out.plus(Lin(0, la.terms), lb.const)
        if la.const:
            out = out.plus(Lin(0, lb.terms), la.const)
        for x, cx in la.terms.values():
            for y, cy in lb.terms.values():
                out = out.plus(Lin.of(self.monomial((*factors(x), *factors(y))), cx * cy))
        return out

    def monomial(self, parts: tuple[E.Expr, ...]) -> E.Expr:
        """The canonical product of atoms."""
        parts = tuple(sorted(parts, key=lambda p: self._serial[id(p)]))
        out = parts[0]
        for p in parts[1:]:
            out = self.mk(E.Mul, out, p)
        if len(parts) > 1:
            self._lin[id(out)] = Lin.of(out)
        return out

    def rebuild(self, form: Lin, dtype: str) -> E.Expr:
        """The canonical expression of a linear form: terms in order of first appearance, a positive one first, the constant last."""
        if not form.terms:
            return self.imm(wrap_int(form.const, dtype), dtype)
        key = (dtype, form.const, *[(k, c) for k, (_, c) in form.terms.items()])
        out = self._rebuilt.get(key)
        if out is None:
            out = self._rebuilt[key] = self._rebuild(form, dtype)
        return out

    def _rebuild(self, form: Lin, dtype: str) -> E.Expr:
        k = form.const
        serial = self._serial
        terms = list(form.terms.values())
        if len(terms) > 1:
            terms.sort(key=lambda t: serial[id(t[0])])
        low, high = int_range(dtype)
        if not -high <= k <= high or any(not -high <= c <= high for _, c in terms):  # wraps, as the machine does
            k = wrap_int(k, dtype)
            terms = [(a, w) for a, c in terms if (w := wrap_int(c, dtype))]
            if k == low or not terms or any(c == low for _, c in terms):
                return self._rebuild_wrapped(k, terms, dtype)
        first = next((i for i, t in enumerate(terms) if t[1] > 0), None)
        if first is None and k > 0:
            acc, k = self.imm(k, dtype), 0
        else:
            atom, c = terms.pop(first or 0)
            acc = atom if c == 1 else self.mk(E.Mul, atom, self.imm(c, dtype))
        for atom, c in terms:
            step = atom if abs(c) == 1 else self.mk(E.Mul, atom, self.imm(abs(c), dtype))
            acc = self.mk(E.Add if c > 0 else E.Sub, acc, step)
        if k:
            acc = self.mk(E.Add if k > 0 else E.Sub, acc, self.imm(abs(k), dtype))
        return acc

    def _rebuild_wrapped(self, k: int, terms: list[tuple[E.Expr, int]], dtype: str) -> E.Expr:
        """As `rebuild`, by additions alone: the smallest value of a dtype has no negative."""
        acc: E.Expr | None = None
        for atom, c in terms:
            step = atom if c == 1 else self.mk(E.Mul, atom, self.imm(c, dtype))
            acc = step if acc is None else self.mk(E.Add, acc, step)
        if acc is None:
            return self.imm(k, dtype)
        return self.mk(E.Add, acc, self.imm(k, dtype)) if k else acc

    # ---- overflow

    def has_data(self, e: E.Expr) -> bool:
        """Whether a value from memory or a call is anywhere below `e`."""
        hit = self._data.get(id(e))
        if hit is None:
            hit = self._data[id(e)] = is_data(e) or any(map(self.has_data, CHILDREN[type(e)](e)))
        return hit

    def trusted(self, form: Lin, dtype: str) -> bool:
        """Whether the form's mathematical value is the machine's: no data in it, or bounds that fit the dtype."""
        for k, (a, _) in form.terms.items():
            if self._data[k] if k in self._data else self.has_data(a):
                break
        else:
            return True
        lo, hi = self.bound_lin(form)
        low, high = int_range(dtype)
        return low <= lo and hi <= high

    def trusted_lin(self, e: E.Expr) -> Lin:
        """The linear form of `e` where its value is the machine's, else `e` as one atom."""
        form = self.lin(e)
        return form if self.trusted(form, e.dtype) else Lin.of(e)

    # ---- bounds

    def bound(self, e: E.Expr) -> Bound:
        """Smallest and largest value of a canonical scalar integer or bool expression (+-INF: unbounded)."""
        k = id(e)
        hit = self._bounds.get(k)
        if hit is not None:
            return hit
        t = type(e)
        if t is E.IntImm:
            v: int = e.value  # type: ignore[attr-defined]
            return (v, v)
        if t is E.Var:
            out = self._var_bounds.get(id(e), (0 if e.is_size else -INF, INF))  # type: ignore[attr-defined]
            if e.dtype not in INDEX_DTYPES:
                out = self._within_dtype(out, e.dtype)
        elif t is E.Add or t is E.Sub or t is E.Mul:
            if e.dtype in INDEX_DTYPES:
                form = self.lin(e)
                if len(form.terms) == 1 and e is next(iter(form.terms.values()))[0]:
                    out = self._bound_product(e)
                else:
                    out = self.bound_lin(form)
                if self.has_data(e):
                    low, high = int_range(e.dtype)
                    out = out if low <= out[0] and out[1] <= high else (low, high)
            else:
                out = self._dtype_bound(e)
        else:
            handler = BOUND.get(t)
            out = handler(self, e) if handler is not None else self._dtype_bound(e)
        if t is not E.Var and self._var_bounds:
            known = self._var_bounds.get(k)
            if known is not None:
                out = (max(out[0], known[0]), min(out[1], known[1]))
        self._bounds[k] = out
        return out

    def _dtype_bound(self, e: E.Expr) -> Bound:
        info = dtype_info(e.dtype)
        if info.lanes == 1 and (info.is_int or info.kind == "bool"):
            return int_range(e.dtype)
        return EVERYTHING

    def _within_dtype(self, b: Bound, dtype: str) -> Bound:
        """`b`, unless it leaves the dtype, where wrapping may give anything."""
        info = dtype_info(dtype)
        if not (info.is_int or info.kind == "bool") or info.lanes > 1:
            return EVERYTHING
        low, high = int_range(dtype)
        return b if low <= b[0] and b[1] <= high else (low, high)

    def _bound_product(self, e: Any) -> Bound:
        (a, b), (c, d) = self.bound(e.a), self.bound(e.b)
        if e.a is e.b:
            hi = max(a * a, b * b)
            return clamp(0 if a <= 0 <= b else min(a * a, b * b), hi)
        ps = (a * c, a * d, b * c, b * d)
        return clamp(min(ps), max(ps))

    def bound_lin(self, form: Lin) -> Bound:
        """Bounds of a linear form, from those of its atoms and from the scope's constraints."""
        lo = hi = form.const
        for atom, c in form.terms.values():
            a, b = self._bounds.get(id(atom)) or self.bound(atom)
            if c > 0:
                lo += c * a
                hi += c * b
            else:
                lo += c * b
                hi += c * a
        lo, hi = clamp(lo, hi)
        if self._known and len(form.terms) > 1 and frozenset(form.terms) in self._known_atoms:
            key, scale = self.normalized(form)
            known = self._known.get(key)
            if known is not None:
                a, b = known if scale > 0 else (-known[1], -known[0])
                s = abs(scale)
                a, b = clamp(a * s, b * s)
                lo, hi = max(lo, a + form.const if a > -INF else -INF), min(hi, b + form.const if b < INF else INF)
        return lo, hi

    def normalized(self, form: Lin) -> tuple[Any, int]:
        """A key of the form's terms up to a factor, and the factor: terms == factor * normalized terms."""
        g = form.factor()
        items = sorted((key, c) for key, (_, c) in form.terms.items())
        if items and items[0][1] < 0:
            g = -g
        return tuple((k, c // g) for k, c in items), g

    # ---- moduli

    def modulus(self, e: E.Expr) -> tuple[int, int]:
        """(m, r): e == r modulo m, 0 <= r < m; m is 0 where e is the constant r, 1 where nothing is known."""
        hit = self._mods.get(id(e))
        if hit is not None:
            return hit
        t = type(e)
        out = (1, 0)
        if t is E.IntImm:
            return (0, e.value)  # type: ignore[attr-defined]
        if t is E.Var:
            out = self._var_mods.get(id(e), (1, 0))
        elif t in (E.Add, E.Sub, E.Mul) and e.dtype in INDEX_DTYPES:
            form = self.lin(e)
            if len(form.terms) == 1 and e is next(iter(form.terms.values()))[0]:
                (m, r), (n, s) = self.modulus(e.a), self.modulus(e.b)  # type: ignore[attr-defined]
                out = _norm_mod(gcd(m * n, gcd(m * s, n * r)), r * s)
            else:
                out = self.modulus_lin(form)
            if self.has_data(e) and out[0] & (out[0] - 1):
                out = out if self.trusted(form, e.dtype) else (1, 0)
        elif t is E.FloorMod and type(e.b) is E.IntImm and e.b.value > 0:  # type: ignore[attr-defined]
            m, r = self.modulus(e.a)  # type: ignore[attr-defined]
            out = _norm_mod(gcd(m, e.b.value), r)  # type: ignore[attr-defined]
        elif t is E.FloorDiv and type(e.b) is E.IntImm and e.b.value > 0:  # type: ignore[attr-defined]
            m, r = self.modulus(e.a)  # type: ignore[attr-defined]
            if m and m % e.b.value == 0:  # type: ignore[attr-defined]
                out = _norm_mod(m // e.b.value, r // e.b.value)  # type: ignore[attr-defined]
        elif t in (E.Min, E.Max, E.Select):
            (m, r), (n, s) = self.modulus(e.a), self.modulus(e.b)  # type: ignore[attr-defined]
            out = _norm_mod(gcd(gcd(m, n), abs(r - s)), r)
        elif t is E.Cast and e.dtype in INDEX_DTYPES and e.value.dtype in INDEX_DTYPES:  # type: ignore[attr-defined]
            out = self.modulus(e.value)  # type: ignore[attr-defined]
        self._mods[id(e)] = out
        return out

    def modulus_lin(self, form: Lin) -> tuple[int, int]:
        m, r = 0, form.const
        for atom, c in form.terms.values():
            n, s = self.modulus(atom)
            m = gcd(m, abs(c * n))
            r += c * s
        return _norm_mod(m, r)


def _norm_mod(m: int, r: int) -> tuple[int, int]:
    return (m, r % m if m else r)


def factors(atom: E.Expr) -> tuple[E.Expr, ...]:
    """The atoms whose product a monomial is."""
    if type(atom) is E.Mul and type(atom.b) is not E.IntImm:
        return (*factors(atom.a), *factors(atom.b))
    return (atom,)


# ---- keys of nodes with canonical children


# Most nodes: what tells them apart is written where it is needed, without a call.
_BINARY = frozenset(t for t in EXPRS if t.__match_args__ == ("a", "b"))  # type: ignore[attr-defined]


def _attr_key(attrs: Any) -> Any:
    return None if not attrs else tuple(sorted((k, repr(v)) for k, v in attrs.items()))


def _key(e: Any) -> Any:
    """What equal expressions have in common, for a table of those that were seen."""
    t = type(e)
    if t is E.Var:
        return id(e)
    if t is E.IntImm:
        return (t, e.value, e.dtype)
    if t is E.BufferLoad:
        return (t, id(e.buffer), id(e.predicate) if e.predicate is not None else 0, *map(id, e.indices))
    if t is E.FloatImm:
        return (t, repr(e.value), e.dtype)
    if t is E.StringImm:
        return (t, e.value)
    if t is E.Cast:
        return (t, e.dtype, id(e.value))
    if t is E.Not:
        return (t, id(e.a))
    if t is E.Select:
        return (t, id(e.cond), id(e.a), id(e.b))
    if t is E.Call:
        known = INTRINS.get(e.op)
        if known is None or not known.is_pure or known.pointer or e.op == "undef":
            return (t, id(e))
        return (t, e.op, e.dtype, _attr_key(e.attrs), *[id(a) for a in e.args])
    if t is E.TensorRead:
        return (t, id(e.tensor), *[id(i) for i in e.indices])
    if t is E.Ramp:
        return (t, id(e.base), id(e.stride), e.lanes)
    if t is E.Broadcast:
        return (t, id(e.value), e.lanes)
    if t is E.Shuffle:
        return (t, e.indices, *[id(v) for v in e.vectors])
    if t is E.Reduce or t is E.Let:
        return (t, id(e))
    return (t, id(e.a), id(e.b))
