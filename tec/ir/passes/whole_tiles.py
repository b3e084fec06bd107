"""Write the stores of a ragged tile twice: without conditions for work-groups, or lanes, whose part of the tile is whole, and with them for the others.

    if likely(c): a[0] = x[0] + y[0]         if likely(c and d): a[0] = x[0] + y[0]; a[1] = x[1] + y[1]; ...
    if likely(d): a[1] = x[1] + y[1]   ->    else: as before
    ...

In: simplified flat loops, so that equal conditions look alike. Out: the same, on NVIDIA GPUs. What the stores read of memory (a bias, say) is then under way together; under
conditions of their own one load waits for the other. (One H200, float16, tiles of 128 x 128 whose last ones are ragged, 1,416 x 4,888 x 240: 15.4 us, with a bias 25.1; where a
warpgroup's results go beside the other one's products 14.1 and 17.4.)
"""

from __future__ import annotations

from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import conjuncts
from ..effects import effects
from ..func import Func
from ..visit import any_expr, map_stmts
from .rewrite_util import clone

_STORES = 4  # of a tile, or more: of fewer LLVM makes selects
_MOST_STORES = 256  # that are written again
_DIFFERENT = 8  # conditions at most


def whole_tiles(func: Func, target: Target) -> Func:
    """The function with such stores twice; see the module."""
    if target.kind != "cuda":
        return func

    def on_stmt(s: S.Stmt) -> S.Stmt:
        out = map_stmts(s, on_stmt)
        return _twice(out) if isinstance(out, S.Seq) else out

    return func.with_body(on_stmt(func.body))


def _twice(seq: S.Seq) -> S.Stmt:
    """Runs of stores under conditions twice: without them where all hold, and as they were."""
    out: list[S.Stmt] = []
    run: list[S.Stmt] = []
    conditions: dict[str, E.Expr] = {}
    inside: list[S.Stmt] = []

    def close() -> None:
        if _STORES <= len(run) <= _MOST_STORES and len(conditions) <= _DIFFERENT and any(map(_reads_memory, inside)):
            cond = E.Call("likely", (B.all_of(*conditions.values()),), "bool")
            out.append(S.IfThenElse(cond, clone(S.Seq(tuple(inside)), {}), S.Seq(tuple(run))))
        else:
            out.extend(run)
        run.clear()
        conditions.clear()
        inside.clear()

    for s in seq.stmts:
        guards, store = _guards(s)
        if guards is None:
            close()
            out.append(s)
            continue
        run.append(s)
        inside.append(store)
        conditions |= {str(c): c for c in guards}
    close()
    return S.Seq(tuple(out)) if len(out) != len(seq.stmts) else seq


def _guards(s: S.Stmt) -> tuple[list[E.Expr] | None, S.Stmt]:
    """The likely conditions of a store, and the store; None for anything else."""
    found: list[E.Expr] = []
    while isinstance(s, S.IfThenElse) and s.orelse is None:
        for c in conjuncts(s.cond):
            if not (type(c) is E.Call and c.op == "likely" and effects(c).is_constant):
                return None, s
            found.append(c.args[0])
        s = s.then
    return (found, s) if found and isinstance(s, S.BufferStore) else (None, s)


def _reads_memory(s: S.Stmt) -> bool:
    assert isinstance(s, S.BufferStore)
    return any_expr(s.value, lambda x: isinstance(x, E.BufferLoad) and x.buffer.scope == "global")
