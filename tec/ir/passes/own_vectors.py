"""Masked stores to vectors of a function's own as choices, so that they stay in registers.

    store(part[0 : 16], load(part[0 : 16], mask) + x[..], mask)    ->    part[0 : 16] = select(mask, part[0 : 16] + x[..], part[0 : 16])

In: flat buffers of a CPU, behind `vectorize`. Changed are stores side by side at a place that is a number, within a small buffer that the function allocates: all of its lanes
may be read. A masked store is a call on memory to LLVM, which keeps what it writes to there, and a sum's last, partial step went out and back for each row.
"""

from __future__ import annotations

from ...target import Target
from .. import expr as E
from .. import stmt as S
from ..buffer import Buffer
from ..func import Func
from ..visit import map_expr, map_stmts
from .lane_forms import neighbours
from .rewrite_util import const_int, same_expr

_MOST = 256  # elements of a buffer: more are no registers


def own_vectors(func: Func, target: Target) -> Func:
    """The function with such stores; see the module."""
    if target.is_gpu:
        return func
    return func.with_body(_stmt(func.body, ()))


def _stmt(s: S.Stmt, own: tuple[Buffer, ...]) -> S.Stmt:
    if isinstance(s, S.Alloc):
        size = const_int(s.buffer.shape[0]) if len(s.buffer.shape) == 1 else None
        return S.Alloc(
            s.buffer, _stmt(s.body, (*own, s.buffer) if size is not None and size <= _MOST else own), s.notes
        )
    if isinstance(s, S.BufferStore) and s.predicate is not None and _is_inside(s, own):
        value = _whole(s.value, s, s.predicate)
        kept = E.BufferLoad(s.buffer, s.indices)
        return S.BufferStore(s.buffer, E.Select(s.predicate, value, kept), s.indices, None, s.loc)
    return map_stmts(s, lambda x: _stmt(x, own))


def _is_inside(s: S.BufferStore, own: tuple[Buffer, ...]) -> bool:
    """Whether all lanes of a store are elements of a buffer of the function's own."""
    return any(b is s.buffer for b in own) and isinstance(s.indices[0], E.Ramp) and neighbours(s) is not None


def _whole(e: E.Expr, s: S.BufferStore, mask: E.Expr) -> E.Expr:
    """A value whose loads of the place itself are of all lanes."""
    if isinstance(e, E.BufferLoad):
        is_own = e.buffer is s.buffer and all(map(same_expr, e.indices, s.indices))
        is_masked = e.predicate is not None and (e.predicate is mask or same_expr(e.predicate, mask))
        return E.BufferLoad(e.buffer, e.indices) if is_own and is_masked else e
    return map_expr(e, lambda x: _whole(x, s, mask))
