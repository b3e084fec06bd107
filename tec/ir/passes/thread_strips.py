"""Blocks of short rows side by side as one wide block: what is read and written then goes on along lines of memory that are fetched ahead.

    for x in thread("blockIdx.x", n):                 for x in thread("blockIdx.x", ceil(n / 64)):
        for t in thread("threadIdx.x", 16):    ->         for t in thread("threadIdx.x", 1024):
            if inside(16 x + t): a(16 x + t)                  if 1024 x + t < 16 n and inside(1024 x + t): a(1024 x + t)

Blocks are independent, so that one may do the work of several, where their threads are told apart by the place in the whole grid alone.
"""

from __future__ import annotations

from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..visit import free_vars, map_stmt, substitute_stmt
from .rewrite_util import const_int, is_launch_loop, stmt_size
from .thread_guards import inlined, is_store, trimmed

# Threads of a wide block's row: of float32, three rows that are read and one that is written are half of a first-level cache of 32 KiB, and a row is a page of
# memory, within which hardware fetches ahead.
_WIDTH = 1024
_MOST_STATEMENTS = 100  # of a thread, for which it is worth while


def wide_rows(root: S.Stmt) -> S.Stmt:
    """In: a launch nest. Out: one of wide blocks where blocks have several short rows and a thread does one store under guards; else the same."""
    loops: dict[str, S.For] = {}
    body = root
    while is_launch_loop(body):
        assert isinstance(body, S.For)
        loops[body.thread] = body
        body = body.body
    across, row = loops.get("blockIdx.x"), loops.get("threadIdx.x")
    if (
        across is None
        or row is None
        or not any(f"{kind}.{axis}" in loops for kind in ("blockIdx", "threadIdx") for axis in "yz")
    ):
        return root
    width = const_int(row.extent)
    rows = [const_int(loops[t].extent) for t in ("threadIdx.y", "threadIdx.z") if t in loops]
    if width is None or 2 * width > _WIDTH or all(n == 1 for n in rows) or stmt_size(body) > _MOST_STATEMENTS:
        return root
    count = _WIDTH // width
    # The thread's place in the whole grid, which is all that may be left of its block and its place there.
    place = E.Var("place", "int32")
    body = _simplified(substitute_stmt(inlined(body), {row.var: B.sub(place, B.mul(across.var, width))}))
    threads = [place, *(loops[t].var for t in ("threadIdx.y", "threadIdx.z") if t in loops)]
    if across.var in free_vars(body) or not is_store(trimmed(body, threads)[0]):
        return root
    at = B.add(B.mul(across.var, count * width), row.var)
    inside = B.compare("lt", at, B.mul(across.extent, width))
    made: S.Stmt = S.IfThenElse(inside, substitute_stmt(body, {place: at}))
    for f in reversed(list(loops.values())):
        extent: E.Expr = f.extent
        if f is row:
            extent = E.IntImm(count * width)
        elif f is across:
            extent = B.floordiv(B.add(across.extent, count - 1), count)
        made = S.For(f.var, f.min, extent, made, f.kind, f.thread)
    return made


def _simplified(s: S.Stmt) -> S.Stmt:
    analyzer = Analyzer()

    def fs(x: S.Stmt) -> S.Stmt:
        return map_stmt(x, fs, analyzer.simplify)

    return fs(s)
