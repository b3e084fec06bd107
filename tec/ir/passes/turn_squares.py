"""Read lines of a square, and turn it round in registers, where a CPU's vectors would gather its columns.

    for i in unrolled(8):                                          line0 = x[a : a + 8]; ... line7 = x[a + 7 * s : a + 7 * s + 8]
        y[.. : .. + 8] = f(x[a + i + s * (0 .. 7)])      ->        column0 ... column7 = the columns of line0 ... line7
                                                                   y[.. : .. + 8] = f(column0); ...

In: flat buffers, behind `vectorize`. A gather asks the first cache for each of its lanes, eight times for a line that is there; a square takes a load for each line and
a shuffle for each doubling of it. Loops of as many steps as a vector has lanes are changed, around one store, whose value reads a buffer in steps of one along the loop and in
steps of more than one along the lanes, under no condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..dtype import dtype_info
from ..func import Func
from ..visit import children, map_expr, map_stmts, substitute
from .rewrite_util import clone, const_int

SIDES = (4, 8, 16)  # of squares


def turn_squares(func: Func, target: Target) -> Func:
    """The function with squares in the place of gathers; see the module."""
    return func if target.is_gpu else func.with_body(_stmt(func.body))


def _stmt(s: S.Stmt) -> S.Stmt:
    is_loop = isinstance(s, S.For) and s.kind == S.ForKind.UNROLLED and const_int(s.extent) in SIDES
    if is_loop and isinstance(s.body, S.BufferStore):  # type: ignore[attr-defined]
        return _turned(s, s.body)  # type: ignore[attr-defined, arg-type]
    return map_stmts(s, _stmt)


def _turned(loop: S.For, store: S.BufferStore) -> S.Stmt:
    side, low = const_int(loop.extent), const_int(loop.min)
    assert side is not None
    loads = [e for e in _unguarded(store.value) if _is_column(e, loop)]
    written = store.buffer.data
    if low is None or store.predicate is not None or not loads or any(e.buffer.data is written for e in loads):
        return loop
    lets: list[tuple[E.Var, E.Expr]] = []

    def let(name: str, value: E.Expr) -> E.Expr:
        lets.append((E.Var(name, value.dtype), value))
        return lets[-1][0]

    columns = [_columns(e, loop.var, low, side, let) for e in loads]
    stores = []
    for k in range(side):
        known = {id(e): columns[n][k] for n, e in enumerate(loads)}
        one = S.BufferStore(store.buffer, _replaced(store.value, known), store.indices, None, store.loc)
        stores.append(clone(one, {loop.var: B.const(low + k, loop.var.dtype)}))
    out = S.seq(*stores)
    for var, value in reversed(lets):
        out = S.LetStmt(var, value, out)
    return out


def _is_column(e: E.BufferLoad, loop: S.For) -> bool:
    """Whether a load is a column of a square that the loop walks along lines of."""
    if e.predicate is not None or len(e.indices) != 1 or dtype_info(e.buffer.dtype).lanes != 1:
        return False
    (at,) = e.indices
    if not isinstance(at, E.Ramp) or at.lanes != const_int(loop.extent) or (const_int(at.stride) or 2) < 2:
        return False
    wide = E.Var(loop.var.name, "int64")
    found = Analyzer().detect_linear(_widened(at.base, loop.var, wide), [loop.var, wide])
    return found is not None and any(B.is_const(a, 1) and B.is_const(b, 0) for a, b in (found[:2], found[1::-1]))


def _widened(place: E.Expr, var: E.Var, wide: E.Var) -> E.Expr:
    """A place in which `wide` is the variable where it is widened with what is added to it: index arithmetic does not overflow."""
    if isinstance(place, E.Cast) and place.dtype == wide.dtype:
        found = Analyzer().detect_linear(place.value, [var])
        if found is not None and not B.is_const(found[0], 0):
            step, rest = (B.cast(wide.dtype, e) for e in found)
            return B.add(rest, B.mul(step, wide))
    return map_expr(place, lambda x: _widened(x, var, wide))


def _columns(e: E.BufferLoad, var: E.Var, low: int, side: int, let: Callable[[str, Any], E.Expr]) -> list[E.Expr]:
    at: Any = e.indices[0]
    first = substitute(at.base, {var: B.const(low, var.dtype)})
    one = B.const(1, first.dtype)
    lines = [
        let("line", E.BufferLoad(e.buffer, (E.Ramp(B.add(first, B.mul(at.stride, k)), one, side),)))
        for k in range(side)
    ]
    return turned(lines, let)


def turned(lines: list[Any], let: Callable[[str, Any], Any]) -> list[Any]:
    """The columns of a square matrix of vectors, a power of two of them: halves change places at every distance. let: names a value."""
    n, distance = len(lines), 1
    while distance < n:
        low = tuple(k if not k & distance else n + k - distance for k in range(n))
        high = tuple(k + distance if not k & distance else n + k for k in range(n))
        made = list(lines)
        for r in range(n):
            if not r & distance:
                pair = (lines[r], lines[r + distance])
                made[r], made[r + distance] = let("low", E.Shuffle(pair, low)), let("high", E.Shuffle(pair, high))
        lines, distance = made, 2 * distance
    return lines


def _unguarded(e: E.Expr) -> list[E.BufferLoad]:
    """Loads that are made whatever a condition says."""
    if isinstance(e, E.BufferLoad):
        return [e]

    below = e.args[:1] if type(e) is E.Call and e.op == "if_then_else" else children(e)
    return [found for x in below for found in _unguarded(x)]


def _replaced(e: E.Expr, known: dict[int, E.Expr]) -> E.Expr:
    found = known.get(id(e))
    return found if found is not None else map_expr(e, lambda x: _replaced(x, known))
