"""Make one launch index out of the nested and consecutive thread loops of a kernel.

In: stage "loops", where each stage binds its own loops: loops over one tag may nest or follow each other.
Out: each kernel region is a nest of one loop a tag (blockIdx.* outside threadIdx.*) around a body without launch loops.
A loop whose extent is below the launch's runs under a guard. A store that stands outside of the loops over some tag
happens once, so the other threads of that tag are masked off.
"""

from __future__ import annotations

from ...errors import LoweringError
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..dtype import int_range
from ..effects import effects
from ..func import Func
from ..visit import free_vars, map_stmt, map_stmts, substituter
from .rewrite_util import (
    LAUNCH_TAGS,
    SHARED_SCOPES,
    THREAD_TAGS,
    const_int,
    guarded,
    is_launch_loop,
    same_expr,
)
from .thread_storage import in_thread_loops

_MOST_GROUPS = int_range("int32")[1]  # along an axis of a grid, whose numbers are int32


def unify_threads(func: Func, target: Target) -> Func:
    """One loop for each launch index of each kernel; see the module."""

    def host(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.For) and s.kind == S.ForKind.THREAD:
            return _unify_kernel(s)
        return map_stmts(s, host)

    return func.with_body(host(in_thread_loops(func.body) if target.is_gpu else func.body))


def _launch_extent(loop: S.For, bound: set[int]) -> E.Expr:
    """The extent of a loop of threads. Raises LoweringError for an unknown tag, and for an extent that stands on what is bound within the kernel (`bound`, by id)."""
    if loop.thread not in LAUNCH_TAGS:
        raise LoweringError(f"unknown thread tag {loop.thread!r}", hint=f"tags: {', '.join(LAUNCH_TAGS)}, vthread")
    if any(id(v) in bound for v in free_vars(loop.extent)):
        raise LoweringError(
            f"the extent of {loop.thread}, {loop.extent}, changes inside the kernel",
            hint="a launch index needs an extent known before the kernel starts; split with a constant factor, then bind",
        )
    if isinstance(loop.extent, E.IntImm) and loop.extent.value > _MOST_GROUPS:
        raise LoweringError(
            f"{loop.extent.value:,} steps of {loop.thread}: a launch has {_MOST_GROUPS:,} at most",
            hint="split the loop, and bind its parts to blockIdx and threadIdx, or to blockIdx.x and blockIdx.y",
        )
    return B.cast("int32", loop.extent)


def _launch_extents(root: S.For) -> dict[str, E.Expr]:
    """The launch extent of each tag: the largest of its loops' extents."""
    extents: dict[str, E.Expr] = {}
    bound: set[int] = set()

    def go(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.For):
            bound.add(id(s.var))
            if is_launch_loop(s):
                extent, old = _launch_extent(s, bound), extents.get(s.thread)
                if old is None:
                    extents[s.thread] = extent
                elif not same_expr(old, extent):
                    extents[s.thread] = B.maximum(old, extent)
        elif isinstance(s, S.LetStmt):
            bound.add(id(s.var))
        map_stmts(s, go)
        return s

    go(root)
    return extents


def _unify_kernel(root: S.For) -> S.Stmt:
    """A kernel with one loop for each launch index, as long as the longest of those in it; parts that had shorter ones stand under conditions."""
    extents = _launch_extents(root)
    if not extents:
        return root
    launch = {tag: E.Var(tag.replace(".", "_")) for tag in LAUNCH_TAGS if tag in extents}
    many = {tag for tag in launch if const_int(extents[tag]) != 1}
    values: dict[E.Var, E.Expr] = {}
    sub = substituter(values)

    def bind(s: S.For) -> None:
        nonlocal sub
        new = B.add(B.cast(s.var.dtype, launch[s.thread]), sub(s.min))
        if values.get(s.var) is not new:
            values[s.var] = new
            sub = substituter(values)

    def once(s: S.Stmt, active: frozenset[str], tags: set[str]) -> S.Stmt:
        """`s` for the first thread along the tags that no loop around it covers."""
        missing = [t for t in launch if t in tags and t in many and t not in active]
        if not missing:
            return s
        return S.IfThenElse(B.all_of(*[B.compare("eq", launch[t], 0) for t in missing]), s)

    tags_below: dict[int, frozenset[str]] = {}
    _note_tags(root, tags_below)

    def rewrite(s: S.Stmt, active: frozenset[str], pending: dict[str, E.Expr]) -> S.Stmt:
        """`pending`: the guards of loops around, by tag. A loop over the same tag inside has its own, so a guard goes
        around what has no such loop."""
        if pending and not tags_below[id(s)] & pending.keys():
            conds = [pending[t] for t in launch if t in pending]
            return guarded(B.all_of(*conds), rewrite(s, active, {}))
        if isinstance(s, S.For) and is_launch_loop(s):
            bind(s)
            extent = B.cast("int32", sub(s.extent))
            rest = {t: c for t, c in pending.items() if t != s.thread}
            if not same_expr(extents[s.thread], extent):
                rest[s.thread] = B.compare("lt", launch[s.thread], extent)
            return rewrite(s.body, active | {s.thread}, rest)
        if isinstance(s, S.AllReduce):
            out = map_stmt(s, _no_stmt, sub)
            assert isinstance(out, S.AllReduce)
            threads = tuple([_launch_var(values.get(v, v)) for v in s.threads])
            return S.AllReduce(s.combiner, out.values, out.predicate, s.dests, threads, s.loc)
        out = map_stmt(s, lambda x: rewrite(x, active, pending), lambda e: sub(e))
        if isinstance(out, S.BufferStore):
            if out.buffer.scope == "global":
                return once(out, active, set(launch))
            if out.buffer.scope in SHARED_SCOPES:
                return once(out, active, set(THREAD_TAGS))
        elif isinstance(out, S.Evaluate) and _is_store_like(out.value):
            return once(out, active, set(launch))
        return out

    body = rewrite(root, frozenset(), {})
    for tag in reversed(list(launch)):
        body = S.For(launch[tag], E.IntImm(0), extents[tag], body, S.ForKind.THREAD, tag)
    return body


def _note_tags(s: S.Stmt, tags: dict[int, frozenset[str]]) -> frozenset[str]:
    """The launch tags that have loops in `s`, for it and every statement below."""
    found: set[str] = {s.thread} if isinstance(s, S.For) and is_launch_loop(s) else set()

    def child(x: S.Stmt) -> S.Stmt:
        found.update(_note_tags(x, tags))
        return x

    map_stmts(s, child)
    tags[id(s)] = frozenset(found)
    return tags[id(s)]


def _is_store_like(e: E.Expr) -> bool:
    """Whether an expression's effect is on memory (an atomic), not on its lanes together."""
    found = effects(e)
    return bool(found.writes) and not found.collective


def _launch_var(e: E.Expr) -> E.Var:
    while not isinstance(e, E.Var):
        if isinstance(e, E.Cast):
            e = e.value
        elif isinstance(e, E.Add) and isinstance(e.b, E.IntImm):
            e = e.a
        else:
            raise LoweringError(
                f"a reduction runs over {e}, which is no thread index", hint="bind the reduction axis to a thread index"
            )
    return e


def _no_stmt(s: S.Stmt) -> S.Stmt:
    return s
