"""Variables, and what is known of an index: whether it is made of loop variables and sizes alone, not negative, a multiple of a power of two."""

from __future__ import annotations

import math
from typing import Any

from ...ir import expr as E
from ...ir.dtype import dtype_info
from ...ir.func import Func
from .part import Part

_UNKNOWN_MULTIPLE = 1
MAX_MULTIPLE = 1 << 20  # an expression that is always 0 is a multiple of anything: this much is enough to know


class Values(Part):
    """Binds variables to their values (`Writer.vars`), and answers what is provable of an index."""

    def begin(self, f: Func) -> None:
        self.data_vars: set[int] = set()  # variables whose values come from memory: they may be anything
        self.nonneg_vars: set[int] = set()
        self.multiples: dict[int, int] = {}
        self._pure: dict[int, bool] = {}

    def bind(self, var: E.Var, value: str, source: E.Expr | None = None) -> None:
        """Give a variable its value, and what is known of it as an index."""
        key = id(var)
        self.em.vars[key] = value
        self.nonneg_vars.discard(key)
        self.multiples.pop(key, None)
        self.data_vars.discard(key)
        if source is not None and not self.is_pure(source):
            self.data_vars.add(key)
        if source is not None and dtype_info(var.dtype).is_int:
            if self.is_nonneg(source):
                self.nonneg_vars.add(key)
            self.multiples[key] = self.multiple_of(source)

    def is_pure(self, e: Any) -> bool:
        """Whether an expression is made of loop variables, sizes and constants alone: what is loaded may wrap around or be 0."""
        t = type(e)
        if t is E.Var:
            return id(e) not in self.data_vars
        if t is E.IntImm:
            return True
        known = self._pure.get(id(e))
        if known is None:
            if isinstance(e, (E.BinaryExpr, E.CmpExpr)):
                known = self.is_pure(e.a) and self.is_pure(e.b)
            elif t is E.Ramp:
                known = self.is_pure(e.base) and self.is_pure(e.stride)
            elif t is E.Broadcast or t is E.Cast:
                known = dtype_info(e.value.dtype).kind in ("int", "uint", "bool") and self.is_pure(e.value)
            elif t is E.Select:
                known = self.is_pure(e.cond) and self.is_pure(e.a) and self.is_pure(e.b)
            else:
                known = t is E.Call and e.op == "likely" and self.is_pure(e.args[0])
            self._pure[id(e)] = known
        return known

    # ---- facts about indices

    def is_nonneg(self, e: Any) -> bool:
        """Whether an index expression is provably not negative (given that it does not overflow)."""
        t = type(e)
        if t is E.Var:
            return bool(e.is_size) or id(e) in self.nonneg_vars
        if t is E.IntImm:
            return bool(e.value >= 0)
        if t in (E.Add, E.Mul, E.Div, E.FloorDiv, E.Min, E.Mod):
            if t is E.Mod:
                return self.is_nonneg(e.a)
            return self.is_nonneg(e.a) and self.is_nonneg(e.b)
        if t is E.Max:
            return self.is_nonneg(e.a) or self.is_nonneg(e.b)
        if t is E.FloorMod:
            return self.is_nonneg(e.b)
        if t is E.Cast:
            src, dst = dtype_info(e.value.dtype), dtype_info(e.dtype)
            return (src.kind in ("uint", "bool") and dst.bits > src.bits) or (
                src.kind == "int" and dst.bits >= src.bits and self.is_nonneg(e.value)
            )
        if t is E.Select:
            return self.is_nonneg(e.b) and (self.is_nonneg(e.a) or _is_rest(e))
        if t is E.Ramp or t is E.Broadcast:
            return all(self.is_nonneg(c) for c in ((e.base, e.stride) if t is E.Ramp else (e.value,)))
        return dtype_info(e.dtype).kind == "uint"

    def multiple_of(self, e: Any) -> int:
        """A power of two that provably divides an index expression."""
        t = type(e)
        if t is E.Var:
            return self.multiples.get(id(e), _UNKNOWN_MULTIPLE)
        if t is E.IntImm:
            value: int = e.value
            return min(value & -value, MAX_MULTIPLE) or MAX_MULTIPLE
        if t is E.Add or t is E.Sub or t is E.Min or t is E.Max:
            return math.gcd(self.multiple_of(e.a), self.multiple_of(e.b))
        if t is E.Mul:
            return min(self.multiple_of(e.a) * self.multiple_of(e.b), MAX_MULTIPLE)
        if t is E.Select:
            return math.gcd(self.multiple_of(e.a), self.multiple_of(e.b))
        if t is E.FloorMod or t is E.Mod:
            return math.gcd(self.multiple_of(e.a), self.multiple_of(e.b))
        if (t is E.FloorDiv or t is E.Div) and type(e.b) is E.IntImm:
            m, d = self.multiple_of(e.a), abs(e.b.value)
            return m // d if d and m % d == 0 else 1
        if t is E.Cast and dtype_info(e.value.dtype).is_int:
            return self.multiple_of(e.value)
        return _UNKNOWN_MULTIPLE


def _is_rest(e: E.Select) -> bool:
    """Whether `x >= c` chooses `x - c`, as a rest of lanes that cross a multiple of c (`ir.passes.crossings`)."""
    x, c, a = getattr(e.cond, "a", None), getattr(e.cond, "b", None), e.a
    if not (type(e.cond) is E.GE and type(x) is E.Ramp and type(a) is E.Ramp and type(c) is E.Broadcast):
        return False
    size, less = c.value, a.base
    if type(size) is not E.IntImm or (a.stride is not x.stride and str(a.stride) != str(x.stride)):
        return False
    if type(less) is E.Sub:
        return less.a is x.base and type(less.b) is E.IntImm and bool(less.b.value == size.value)
    return type(less) is E.Add and less.a is x.base and type(less.b) is E.IntImm and bool(less.b.value == -size.value)
