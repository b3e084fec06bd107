"""Kernels that have nothing to do with each other become one, whose last work-groups are the last one's.

    for b in blockIdx.x: 0 to 40          for b in blockIdx.x: 0 to 42
      f(b)                           ->     if b < 40: f(b)
    for c in blockIdx.x: 0 to 2             else: g(b - 40)
      g(c)

In: a function of stage "lowered" whose attribute "side_by_side" says how many of its last kernels are independent. Out: the same with one kernel in their place,
where all have work-groups along blockIdx.x alone, and shared memory has room for both; a kernel whose threads meet has as many as the other, or more. A launch takes some microseconds on an AMD GPU and one or two in a CUDA graph,
which is as long as a short kernel takes.
"""

from __future__ import annotations

from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..effects import effects
from ..func import Func
from ..shared_layout import shared_layout
from ..visit import substitute_stmt
from .rewrite_util import BLOCK_TAGS, THREAD_TAGS, const_int, launch_nest


def join_launches(func: Func, target: Target) -> Func:
    """The function with its last kernels as one, or as few as may be; see the module."""
    count = func.attrs.get("side_by_side", 0)
    if not count or not isinstance(func.body, S.Seq):
        return func
    stmts = [*func.body.stmts]
    apart = stmts[-count:]
    made = apart[:1]
    for s in apart[1:]:
        joined = _joined(made[-1], s, target)
        made[-1:] = [made[-1], s] if joined is None else [joined]
    if len(made) == len(apart):
        return func
    before = stmts[:-count]
    return func.with_body(S.Seq((*before, *made)) if len(before) + len(made) > 1 else made[0])


def _joined(first: S.Stmt, second: S.Stmt, target: Target) -> S.Stmt | None:
    """One nest of launch loops for two; None where they are launched apart."""
    loops, body = launch_nest(first)
    others, other_body = launch_nest(second)
    of, other_of = {s.thread: s for s in loops}, {s.thread: s for s in others}
    if len(of) < len(loops) or len(other_of) < len(others):
        return None
    if any(t in found for t in BLOCK_TAGS[1:] for found in (of, other_of)):
        return None
    if any((tag in of) != (tag in other_of) for tag in THREAD_TAGS):
        return None
    if any(const_int(s.min) != 0 or s.var.dtype != "int32" for s in (*loops, *others)):
        return None
    if shared_layout(S.Seq((body, other_body)))[1] > target.static_lds_bytes:
        return None
    x = BLOCK_TAGS[0]
    block = of[x].var if x in of else E.Var("blockIdx_x", "int32")
    count, other_count = (found[x].extent if x in found else E.IntImm(1) for found in (of, other_of))
    theirs: dict[E.Var, E.Expr] = {s.var: of[tag].var for tag, s in other_of.items() if tag != x}
    if x in other_of:
        theirs[other_of[x].var] = B.sub(block, count)
    other_body = substitute_stmt(other_body, theirs)
    threads: dict[str, E.Expr] = {}
    for tag in of.keys() - {x}:
        own, other, index = const_int(of[tag].extent), const_int(other_of[tag].extent), of[tag].var
        if own is None or other is None:
            return None
        threads[tag] = E.IntImm(max(own, other))
        if (own < other and effects(body).collective) or (other < own and effects(other_body).collective):
            return None  # threads that are not the kernel's would be waited for
        body = S.IfThenElse(E.LT(index, E.IntImm(own)), body) if own < other else body
        other_body = S.IfThenElse(E.LT(index, E.IntImm(other)), other_body) if other < own else other_body
    nest: S.Stmt = S.IfThenElse(E.LT(block, count), body, other_body)
    for s in reversed(loops):
        nest = nest if s.thread == x else s.with_range(s.min, threads[s.thread], nest)
    return S.For(block, E.IntImm(0), B.add(count, other_count), nest, S.ForKind.THREAD, x)
