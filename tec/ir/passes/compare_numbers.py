"""Maxima and minima beside what is never NaN, as a comparison and a choice.

    acc[0 : 8] = -inf                                   acc[0 : 8] = -inf
    for k in range(n):                           ->     for k in range(n):
        acc[0 : 8] = max(acc[0 : 8], x[..])                 acc[0 : 8] = select(x[..] > acc[0 : 8], x[..], acc[0 : 8])

In: flat buffers of a CPU. A maximum of two floats is the number where one of them is NaN, for which x86 takes a comparison, a maximum and a blend, one after the other. Its instruction
alone (MAXPS, Intel's manual, volume 2: the second operand where one is NaN) is what the choice says, and right where the second is a number. Storage of the function's
own is never NaN where all that is stored in it are such maxima and numbers.
"""

from __future__ import annotations

import math
from collections import Counter

from ...target import Target
from .. import expr as E
from .. import stmt as S
from ..dtype import dtype_info
from ..effects import effects
from ..func import Func
from ..visit import Rewriter, visit


def compare_numbers(func: Func, target: Target) -> Func:
    """The function with choices in the place of maxima and minima, where one side is a number; see the module."""
    if target.is_gpu:
        return func
    numbers = _Numbers(func)
    if not numbers.buffers:
        return func

    def extremum(e: E.Max | E.Min, rw: Rewriter) -> E.Expr:
        out = rw.expr_children(e)
        assert isinstance(out, (E.Max, E.Min))
        sides = ((out.a, out.b), (out.b, out.a))
        kept, other = next((s for s in sides if isinstance(s[0], E.BufferLoad) and numbers.holds(s[0])), (None, None))
        if kept is None or other is None:
            return out
        return E.Select((E.GT if isinstance(out, E.Max) else E.LT)(other, kept), other, kept)

    return func.with_body(Rewriter({E.Max: extremum, E.Min: extremum}, memo=True).stmt(func.body))


class _Numbers:
    """The buffers of floats that a function allocates and stores no NaN in."""

    def __init__(self, func: Func):
        own: set[int] = set()
        self._values: dict[int, list[E.Expr]] = {}

        def on_stmt(s: S.Stmt) -> None:
            if isinstance(s, S.Alloc) and dtype_info(s.buffer.dtype).is_float:
                own.add(id(s.buffer.data))
            elif isinstance(s, S.BufferStore):
                self._values.setdefault(id(s.buffer.data), []).append(s.value)

        visit(func.body, None, on_stmt)
        writes = Counter(id(a.buffer.data) for a in effects(func.body).accesses if a.is_write)
        # What calls write too is whatever they write.
        self.buffers = {k for k in own if writes[k] == len(self._values.get(k, ()))}
        changed = True
        while changed:  # what is left holds nothing but numbers, if it did before each store
            bad = {k for k in self.buffers if not all(self.holds(v) for v in self._values.get(k, ()))}
            changed, self.buffers = bool(bad), self.buffers - bad

    def holds(self, e: E.Expr) -> bool:
        """Whether a value is never NaN."""
        match e:
            case E.FloatImm():
                return not math.isnan(e.value)
            case E.Broadcast():
                return self.holds(e.value)
            case E.BufferLoad():
                return e.predicate is None and id(e.buffer.data) in self.buffers
            case E.Max() | E.Min():
                return self.holds(e.a) or self.holds(e.b)
            case E.Select():
                return self.holds(e.a) and self.holds(e.b)
        return False
