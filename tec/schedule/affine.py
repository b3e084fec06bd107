"""Index arithmetic for bound inference: sums of terms, constant bounds, proofs.

In: integer expressions over loop variables with known ranges. Out: expressions in canonical form, constant bounds, and
whether a comparison always holds. An expression becomes an affine form (a sum of integer multiples of products of
atoms); floor division and remainder by constants take the divisible part out and use the bounds of the rest, so that
an index that was split and fused comes back as the axis it came from. Sums are taken not to overflow, as everywhere in
index arithmetic; unsigned types are left alone.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from ..ir import build as B
from ..ir import expr as E
from ..ir.dtype import dtype_info
from ..ir.visit import map_expr

Key = tuple[Any, ...]
Terms = dict[Key, int]  # product of atoms (sorted ids) -> coefficient; () is the constant
Bound = int | None  # None: unbounded
_LOOSE = (None, None)


def _add(a: Bound, b: Bound) -> Bound:
    return None if a is None or b is None else a + b


class Facts:
    """Variables' constant ranges, and what follows from them.

    `bind(var, lo, hi)` says `lo <= var <= hi` (None: open). `simplify`, `bounds`, `proves` are memoised on nodes, so
    bind everything before asking.
    """

    def __init__(self) -> None:
        self._vars: dict[int, tuple[Bound, Bound]] = {}
        self._atoms: list[E.Expr] = []
        self._ids: dict[Any, int] = {}
        self._bounds: list[tuple[Bound, Bound]] = []
        self._div: dict[int, tuple[Terms, int]] = {}  # atom -> numerator and divisor of a FloorDiv
        self._mod: dict[int, tuple[Terms, int]] = {}
        self._memo: dict[int, tuple[E.Expr, Terms]] = {}
        self._simple: dict[int, tuple[E.Expr, E.Expr]] = {}
        self._keep: list[E.Expr] = []

    def bind(self, var: E.Var, lo: Bound, hi: Bound) -> None:
        self._vars[id(var)] = (lo, hi)
        self._keep.append(var)

    # ---- questions

    def simplify(self, e: E.Expr) -> E.Expr:
        """`e` in canonical form; `e` itself where it is not an integer expression that gets simpler."""
        if type(e) is E.IntImm or type(e) is E.Var:
            return e
        hit = self._simple.get(id(e))
        if hit is not None:
            return hit[1]
        if self._is_index(e):
            out = self._rebuild(self._terms(e), e.dtype)
        else:
            out = self._rewrite(e)
        self._simple[id(e)] = (e, out)
        return out

    def bounds(self, e: E.Expr) -> tuple[Bound, Bound]:
        """Constants (lo, hi) with lo <= e <= hi; None where open."""
        if not self._is_index(e):
            return _LOOSE
        return self._terms_bounds(self._terms(e))

    def constant(self, e: E.Expr) -> Bound:
        """The value of `e` where it is always the same integer."""
        if type(e) is E.IntImm:
            return e.value
        lo, hi = self.bounds(e)
        return lo if lo is not None and lo == hi else None

    def le(self, a: E.Expr, b: E.Expr) -> bool:
        """Whether a <= b is certain."""
        if a is b:
            return True
        if a.dtype != b.dtype:
            a, b = B.match(a, b)
        if not (self._is_index(a) and self._is_index(b)):
            return False
        diff = _sum(self._terms(b), self._terms(a), -1)
        lo = self._terms_bounds(diff)[0]
        if lo is not None and lo >= 0:
            return True
        return self._le_split(a, b)

    def _le_split(self, a: E.Expr, b: E.Expr) -> bool:
        """min and max on either side, taken apart."""
        a, b = self.simplify(a), self.simplify(b)
        if type(b) is E.Min:
            return self.le(a, b.a) and self.le(a, b.b)
        if type(a) is E.Max:
            return self.le(a.a, b) and self.le(a.b, b)
        if type(b) is E.Max:
            return self.le(a, b.a) or self.le(a, b.b)
        if type(a) is E.Min:
            return self.le(a.a, b) or self.le(a.b, b)
        return False

    def lt(self, a: E.Expr, b: E.Expr) -> bool:
        """Whether a < b is certain."""
        return self.le(B.add(a, 1), b)

    def equal(self, a: E.Expr, b: E.Expr) -> bool:
        """Whether a == b is certain."""
        if a is b:
            return True
        if a.dtype != b.dtype:
            a, b = B.match(a, b)
        if not (self._is_index(a) and self._is_index(b)):
            return False
        return self._terms_bounds(_sum(self._terms(b), self._terms(a), -1)) == (0, 0)

    def proves(self, cond: E.Expr) -> bool:
        """Whether a bool expression certainly holds."""
        match cond:
            case E.IntImm():
                return cond.value != 0
            case E.LT():
                return self.lt(cond.a, cond.b)
            case E.LE():
                return self.le(cond.a, cond.b)
            case E.GT():
                return self.lt(cond.b, cond.a)
            case E.GE():
                return self.le(cond.b, cond.a)
            case E.EQ():
                return self.equal(cond.a, cond.b)
            case E.And():
                return self.proves(cond.a) and self.proves(cond.b)
            case E.Or():
                return self.proves(cond.a) or self.proves(cond.b)
        return False

    # ---- terms

    @staticmethod
    def _is_index(e: E.Expr) -> bool:
        info = dtype_info(e.dtype)
        return info.kind == "int" and info.lanes == 1

    def _rewrite(self, e: E.Expr) -> E.Expr:
        """Simplified children; comparisons that are certain become constants."""
        out = map_expr(e, self.simplify)
        if isinstance(out, E.CmpExpr) and self._is_index(out.a):
            if self.proves(out):
                return B.const(True)
            flipped = _NEGATED.get(type(out))
            if flipped is not None and self.proves(flipped(out.a, out.b)):
                return B.const(False)
        elif type(out) is E.And:
            return B.logical_and(out.a, out.b)
        elif type(out) is E.Or:
            return B.logical_or(out.a, out.b)
        elif type(out) is E.Not:
            return B.logical_not(out.a)
        elif type(out) is E.Select and isinstance(out.cond, E.IntImm):
            return out.a if out.cond.value else out.b
        elif type(out) is E.Call and out.op == "if_then_else" and isinstance(out.args[0], E.IntImm):
            return out.args[1] if out.args[0].value else out.args[2]
        return out

    def _terms(self, e: E.Expr) -> Terms:
        t = type(e)
        if t is E.IntImm:
            return {(): e.value} if e.value else {}  # type: ignore[attr-defined]
        hit = self._memo.get(id(e))
        if hit is not None:
            return hit[1]
        out = self._terms_of(e, t)
        self._memo[id(e)] = (e, out)
        return out

    def _terms_of(self, e: Any, t: type) -> Terms:
        if t is E.Var:
            return {(self._var_atom(e),): 1}
        if t is E.Add:
            return _sum(self._terms(e.a), self._terms(e.b), 1)
        if t is E.Sub:
            return _sum(self._terms(e.a), self._terms(e.b), -1)
        if t is E.Mul:
            return _product(self._terms(e.a), self._terms(e.b))
        if t is E.FloorDiv or t is E.Div:
            return self._quotient(e, t)
        if t is E.FloorMod or t is E.Mod:
            return self._remainder(e, t)
        if t is E.Min or t is E.Max:
            return self._extremum(e, t)
        out = self._rewrite(e)
        if out is not e and type(out) is not t:
            return self._terms(out)
        if t is E.Cast and self._is_index(out.value):
            bounds = self.bounds(out.value)
            return {(self._atom((t, out.dtype, self._frozen(out.value)), out, bounds),): 1}
        if t is E.Select or (t is E.Call and e.op == "if_then_else"):
            a, b = (out.a, out.b) if isinstance(out, E.Select) else out.args[1:]
            (alo, ahi), (blo, bhi) = self.bounds(a), self.bounds(b)
            lo = None if alo is None or blo is None else min(alo, blo)
            hi = None if ahi is None or bhi is None else max(ahi, bhi)
            return {(self._atom(("node", id(out)), out, (lo, hi)),): 1}
        return {(self._atom(("node", id(out)), out, _LOOSE),): 1}

    def _var_atom(self, v: E.Var) -> int:
        hit = self._ids.get(id(v))
        if hit is None:
            lo, hi = self._vars.get(id(v), _LOOSE)
            if v.is_size and (lo is None or lo < 0):
                lo = 0
            hit = self._atom(id(v), v, (lo, hi))
        return hit

    def _atom(self, key: Any, e: E.Expr, bounds: tuple[Bound, Bound]) -> int:
        hit = self._ids.get(key)
        if hit is None:
            hit = self._ids[key] = len(self._atoms)
            self._atoms.append(e)
            self._bounds.append(bounds)
        return hit

    def _frozen(self, e: E.Expr) -> Any:
        return _freeze(self._terms(e))

    def _quotient(self, e: Any, t: type) -> Terms:
        top, bottom = self._terms(e.a), self._terms(e.b)
        c = bottom.get((), 0) if set(bottom) <= {()} else 0
        lo = self._terms_bounds(top)[0]
        if t is E.Div and (lo is None or lo < 0):
            c = 0  # truncation differs from the floor below zero
        if c <= 0:
            exact = _divide_exactly(top, bottom)
            if exact is not None and (t is E.FloorDiv or exact):
                return exact
            return self._opaque_binary(e, t)
        return self._floordiv(top, c, e.dtype)

    def _floordiv(self, top: Terms, c: int, dtype: str) -> Terms:
        whole = {k: v // c for k, v in top.items() if v % c == 0}
        rest = {k: v for k, v in top.items() if v % c != 0}
        if rest.get((), 0):  # the constant gives its whole part too
            q, r = divmod(rest[()], c)
            if q:
                whole = _sum(whole, {(): q}, 1)
            rest = {**{k: v for k, v in rest.items() if k}, **({(): r} if r else {})}
        if not rest:
            return whole
        lo, hi = self._terms_bounds(rest)
        if lo is not None and hi is not None and lo // c == hi // c:
            return _sum(whole, {(): lo // c} if lo // c else {}, 1)
        g = _common(rest, c)
        if g > 1:  # floor((g*x)/(g*d)) = floor(x/d); a constant below g falls away
            rest = {k: v // g for k, v in rest.items() if k or v >= g}
            return _sum(whole, self._floordiv(rest, c // g, dtype), 1)
        split = self._coarse(rest, c)
        if split is not None:
            g, coarse, _ = split
            return _sum(whole, self._floordiv({k: v // g for k, v in coarse.items()}, c // g, dtype), 1)
        if len(rest) == 1:
            (key, coef), *_ = rest.items()
            inner = self._div.get(key[0]) if coef == 1 and len(key) == 1 else None
            if inner is not None:  # (x // a) // b = x // (a*b)
                return _sum(whole, self._floordiv(inner[0], inner[1] * c, dtype), 1)
        atom = self._ids.get(("//", _freeze(rest), c))
        if atom is None:
            expr = B.floordiv(self._rebuild(rest, dtype), B.const(c, dtype))
            bounds = (None if lo is None else lo // c, None if hi is None else hi // c)
            atom = self._atom(("//", _freeze(rest), c), expr, bounds)
            self._div[atom] = (rest, c)
        return _sum(whole, {(atom,): 1}, 1)

    def _remainder(self, e: Any, t: type) -> Terms:
        top, bottom = self._terms(e.a), self._terms(e.b)
        c = bottom.get((), 0) if set(bottom) <= {()} else 0
        lo, hi = self._terms_bounds(top)
        if t is E.Mod and (lo is None or lo < 0):
            c = 0
        if c <= 0:
            if t is E.FloorMod and _divide_exactly(top, bottom) is not None:
                return {}
            return self._opaque_binary(e, t)
        rest: Terms = {}
        for k, v in top.items():
            r = v % c
            if r:
                rest[k] = r if not k or v >= 0 else v
        lo, hi = self._terms_bounds(rest)
        if lo is not None and hi is not None and lo // c == hi // c:
            return _sum(rest, {(): -(lo // c) * c} if lo // c else {}, 1)
        if len(rest) == 1:
            (key, coef), *_ = rest.items()
            inner = self._mod.get(key[0]) if coef == 1 and len(key) == 1 else None
            if inner is not None and inner[1] % c == 0:  # (x % (c*d)) % c = x % c
                return self._remainder_terms(inner[0], c, e.dtype)
        return self._mod_atom(rest, c, e.dtype)

    def _remainder_terms(self, top: Terms, c: int, dtype: str) -> Terms:
        rest = {k: v for k, v in top.items() if v % c}
        lo, hi = self._terms_bounds(rest)
        if lo is not None and hi is not None and lo // c == hi // c:
            return _sum(rest, {(): -(lo // c) * c} if lo // c else {}, 1)
        return self._mod_atom(rest, c, dtype)

    def _mod_atom(self, rest: Terms, c: int, dtype: str) -> Terms:
        g = _common(dict(rest.items()), c)
        if g > 1 and all(v % g == 0 for v in rest.values()):  # (g*x) % (g*d) = g * (x % d)
            inner = self._remainder_terms({k: v // g for k, v in rest.items()}, c // g, dtype)
            return {k: v * g for k, v in inner.items()}
        if not rest:
            return {}
        split = self._coarse(rest, c)
        if split is not None:
            g, coarse, fine = split
            inner = self._remainder_terms({k: v // g for k, v in coarse.items()}, c // g, dtype)
            return _sum({k: v * g for k, v in inner.items()}, fine, 1)
        key = ("%", _freeze(rest), c)
        atom = self._ids.get(key)
        if atom is None:
            lo, hi = self._terms_bounds(rest)
            top = c - 1 if lo is None or lo < 0 or hi is None else min(c - 1, hi)
            atom = self._atom(key, B.floormod(self._rebuild(rest, dtype), B.const(c, dtype)), (0, top))
            self._mod[atom] = (rest, c)
        return {(atom,): 1}

    def _coarse(self, rest: Terms, c: int) -> tuple[int, Terms, Terms] | None:
        """`rest` as g * coarse + fine with g a divisor of c and 0 <= fine < g: the fine part never carries over."""
        for g in sorted({gcd(v, c) for k, v in rest.items() if k}, reverse=True):
            if g <= 1:
                break
            coarse = {k: v for k, v in rest.items() if v % g == 0}
            fine = {k: v for k, v in rest.items() if v % g != 0}
            if not coarse or not fine:
                continue
            lo, hi = self._terms_bounds(fine)
            if lo is not None and hi is not None and lo >= 0 and hi < g:
                return g, coarse, fine
        return None

    def _opaque_binary(self, e: Any, t: type) -> Terms:
        a, b = self.simplify(e.a), self.simplify(e.b)
        out = e if a is e.a and b is e.b else t(a, b)
        (alo, ahi), (blo, _) = self.bounds(a), self.bounds(b)
        bounds: tuple[Bound, Bound] = _LOOSE
        if blo is not None and blo > 0 and alo is not None and alo >= 0:
            if t in (E.FloorDiv, E.Div):
                bounds = (0, None if ahi is None else ahi // blo)
            else:
                top = self.bounds(b)[1]
                bounds = (0, None if top is None else top - 1)
        key = (t, _freeze(self._terms(a)), _freeze(self._terms(b)))
        return {(self._atom(key, out, bounds),): 1}

    def _extremum(self, e: Any, t: type) -> Terms:
        a, b = self._terms(e.a), self._terms(e.b)
        lo, hi = self._terms_bounds(_sum(a, b, -1))
        if lo is not None and lo >= 0:
            return b if t is E.Min else a
        if hi is not None and hi <= 0:
            return a if t is E.Min else b
        (alo, ahi), (blo, bhi) = self._terms_bounds(a), self._terms_bounds(b)
        pick = min if t is E.Min else max
        both = (
            None if alo is None or blo is None else pick(alo, blo),
            None if ahi is None or bhi is None else pick(ahi, bhi),
        )
        if t is E.Min and both[1] is None:
            both = (both[0], ahi if bhi is None else bhi)
        if t is E.Max and both[0] is None:
            both = (alo if blo is None else blo, both[1])
        out = t(self._rebuild(a, e.dtype), self._rebuild(b, e.dtype))
        key = (t, frozenset((_freeze(a), _freeze(b))))
        return {(self._atom(key, out, both),): 1}

    # ---- bounds of sums

    def _terms_bounds(self, terms: Terms) -> tuple[Bound, Bound]:
        lo: Bound = 0
        hi: Bound = 0
        skip: set[Key] = set()
        if len(terms) > 1 and self._div:
            lo, hi, skip = self._paired_quotients(terms)
        for key, coef in terms.items():
            if key in skip:
                continue
            a, b = self._key_bounds(key)
            if coef < 0:
                a, b = b, a
            lo = _add(lo, None if a is None else a * coef)
            hi = _add(hi, None if b is None else b * coef)
            if lo is None and hi is None:
                return _LOOSE
        return lo, hi

    def _paired_quotients(self, terms: Terms) -> tuple[int, int, set[Key]]:
        """floor((x + c) / d) - floor(x / d) lies between floor(c/d) and ceil(c/d), whatever x is."""
        lo = hi = 0
        skip: set[Key] = set()
        quotients = [k for k in terms if len(k) == 1 and k[0] in self._div]
        for i, p in enumerate(quotients):
            for q in quotients[i + 1 :]:
                if p in skip or q in skip or terms[p] != -terms[q]:
                    continue
                (x, c), (y, d) = self._div[p[0]], self._div[q[0]]
                plus = p if terms[p] > 0 else q
                diff = _sum(x, y, -1) if plus is p else _sum(y, x, -1)
                if c != d or not set(diff) <= {()}:
                    continue
                k = diff.get((), 0)
                lo += terms[plus] * (k // c)
                hi += terms[plus] * -((-k) // c)
                skip |= {p, q}
        return lo, hi, skip

    def _key_bounds(self, key: Key) -> tuple[Bound, Bound]:
        if not key:
            return 1, 1
        lo, hi = self._bounds[key[0]]
        for atom in key[1:]:
            a, b = self._bounds[atom]
            corners = [None if x is None or y is None else x * y for x in (lo, hi) for y in (a, b)]
            if None not in corners:
                lo, hi = min(corners), max(corners)  # type: ignore[type-var]
            elif lo is not None and lo >= 0 and a is not None and a >= 0:
                lo, hi = lo * a, None
            else:
                return _LOOSE
        return lo, hi

    # ---- back to expressions

    def _rebuild(self, terms: Terms, dtype: str) -> E.Expr:
        terms = self._join_div_mod(terms)
        out: E.Expr | None = None
        for key, coef in sorted(terms.items(), key=lambda kv: (not kv[0], kv[1] < 0)):
            if not key:
                continue
            product: E.Expr = self._atoms[key[0]]
            for atom in key[1:]:
                product = B.mul(product, self._atoms[atom])
            size = abs(coef)
            if size != 1:
                product = B.mul(product, B.const(size, dtype))
            if out is None:
                out = product if coef > 0 else B.sub(B.const(0, dtype), product)
            else:
                out = B.add(out, product) if coef > 0 else B.sub(out, product)
        c = terms.get((), 0)
        if out is None:
            return B.const(c, dtype)
        if c:
            out = B.add(out, B.const(c, dtype)) if c > 0 else B.sub(out, B.const(-c, dtype))
        return out

    def _join_div_mod(self, terms: Terms) -> Terms:
        """(x // c) * c + x % c is x."""
        for key, coef in list(terms.items()):
            if len(key) != 1 or key[0] not in self._mod:
                continue
            rest, c = self._mod[key[0]]
            atom = self._ids.get(("//", _freeze(rest), c))
            if atom is not None and terms.get((atom,), 0) == coef * c:
                slim = {k: v for k, v in terms.items() if k != key and k != (atom,)}
                return self._join_div_mod(_sum(slim, rest, coef))
        return terms


_NEGATED: dict[type, type] = {E.LT: E.GE, E.LE: E.GT, E.GT: E.LE, E.GE: E.LT}


def _freeze(terms: Terms) -> frozenset[Any]:
    return frozenset(terms.items())


def _sum(a: Terms, b: Terms, sign: int) -> Terms:
    out = dict(a)
    for k, v in b.items():
        total = out.get(k, 0) + sign * v
        if total:
            out[k] = total
        else:
            out.pop(k, None)
    return out


def _product(a: Terms, b: Terms) -> Terms:
    out: Terms = {}
    for ka, va in a.items():
        for kb, vb in b.items():
            key = tuple(sorted(ka + kb))
            total = out.get(key, 0) + va * vb
            if total:
                out[key] = total
            else:
                out.pop(key, None)
    return out


def _divide_exactly(top: Terms, bottom: Terms) -> Terms | None:
    """top / bottom where bottom is one product that is a factor of every term of top."""
    if len(bottom) != 1:
        return None
    (key, coef), *_ = bottom.items()
    if not key:
        return None
    out: Terms = {}
    for k, v in top.items():
        left = list(k)
        for atom in key:
            if atom not in left:
                return None
            left.remove(atom)
        if v % coef:
            return None
        out[tuple(left)] = v // coef
    return out


def _common(terms: Terms, c: int) -> int:
    """The greatest common divisor of c and the coefficients, the constant left out."""
    g = c
    for k, v in terms.items():
        if k:
            g = gcd(g, v)
    return g
