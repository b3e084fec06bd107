"""Drop what does nothing: empty loops and branches, conditions that are constants, storage that nobody touches."""

from __future__ import annotations

from ...target import Target
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..effects import is_kept
from ..func import Func
from ..visit import any_stmt, map_stmts
from .rewrite_util import clone, const_int, named_buffers


def remove_noop(func: Func, target: Target) -> Func:
    """The function without statements that have no effect."""
    body = _stmt(func.body)
    # Of the whole, once: walking a body again for every allocation around it cost more than the rest.
    named = named_buffers(body)
    if any_stmt(body, lambda s: isinstance(s, S.Alloc) and id(s.buffer) not in named):
        body = _without(body, named)
    return func.with_body(body)


def _without(s: S.Stmt, named: set[int]) -> S.Stmt:
    """The statement without storage of buffers that are not among `named`."""
    out = map_stmts(s, lambda x: _without(x, named))
    return out.body if isinstance(out, S.Alloc) and id(out.buffer) not in named else out


def _is_noop(s: S.Stmt) -> bool:
    return isinstance(s, S.Evaluate) and not is_kept(s.value)


def _stmt(s: S.Stmt) -> S.Stmt:
    """The statement without parts that do nothing; loops of one turn as their bodies."""
    out = map_stmts(s, _stmt)
    match out:
        case S.Evaluate():
            return S.NOP if _is_noop(out) else out
        case S.Seq():
            kept = [x for x in out.stmts if not _is_noop(x)]
            return out if len(kept) == len(out.stmts) else S.seq(*kept)
        case S.For():
            extent = const_int(out.extent)
            if _is_noop(out.body) or (extent is not None and extent <= 0):
                return S.NOP
            if extent == 1 and out.kind in (S.ForKind.SERIAL, S.ForKind.UNROLLED, S.ForKind.PARALLEL):
                return clone(out.body, {out.var: out.min})
        case S.IfThenElse():
            return _branch(out)
        case S.Attr() if _is_noop(out.body):
            return S.NOP
        case S.LetStmt():
            if _is_noop(out.body):
                return S.Evaluate(out.value, out.loc) if is_kept(out.value) else S.NOP
        case S.Alloc() if _is_noop(out.body):
            return S.NOP
        case S.BufferStore():
            return S.NOP if _stores_itself(out) or _stores_no_lane(out) else out
    return out


def _branch(s: S.IfThenElse) -> S.Stmt:
    if isinstance(s.cond, E.IntImm):
        return s.then if s.cond.value else (s.orelse or S.NOP)
    orelse = None if s.orelse is not None and _is_noop(s.orelse) else s.orelse
    if _is_noop(s.then):
        if orelse is None:
            return S.Evaluate(s.cond, s.loc) if is_kept(s.cond) else S.NOP
        return S.IfThenElse(E.Not(s.cond), orelse, None, s.loc)
    return s if orelse is s.orelse else S.IfThenElse(s.cond, s.then, orelse, s.loc)


def _stores_no_lane(s: S.BufferStore) -> bool:
    """A vector of a loop that was written out, which lies outside of what is stored as a whole."""
    if s.predicate is None:
        return False
    found = Analyzer().simplify(s.predicate)
    return isinstance(found, E.Broadcast) and const_int(found.value) == 0


def _stores_itself(s: S.BufferStore) -> bool:
    """`A[i] = A[i]`."""
    v = s.value
    if (
        not isinstance(v, E.BufferLoad)
        or v.buffer is not s.buffer
        or v.predicate is not None
        or s.predicate is not None
    ):
        return False
    return all(a is b for a, b in zip(v.indices, s.indices))
