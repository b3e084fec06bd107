"""Loops in which each thread of a block strides over shared work, in the order of the memory: of kernels whose threads run as loops.

    for t in range(T):                                       for i in range(m):             # that all threads take
        for i in range((n - t) // d): f(i * d + t)    ->         for t in range(T): f(i * d + t)
                                                             if m < the most that a thread takes:
                                                                 for t in range(T):
                                                                     for i in range(m, (n - t) // d): f(i * d + t)

What the threads read side by side is asked for two steps ahead (`prefetch`): it lies a grid's width away.

Threads of a block depend on each other at meetings alone, so their steps may alternate. On the left one thread after the other walks
through all of the memory; on the right the threads read side by side, which are vectors and whole cache lines. In such a block
atomic operations on the block's own memory are plain ones (`own_atomics`), as one processor runs all of its threads.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..dtype import dtype_info
from ..effects import effects
from ..visit import map_stmts, substitute, visit
from .rewrite_util import clone, const_int, uses_var

# Bytes of a processor's line; the most lines that are asked for at once, of the 12 to 24 that today's wait for at a time; and the steps from the question to the use:
# measured on a Zen 3 (2^20 counts in 256, 16 blocks), none is 1.36 of one block's time, one 1.27, two and four 1.11.
LINE, MOST_LINES, AHEAD = 64, 16, 2
_BITS = {"atomic_and": B.bitwise_and, "atomic_or": B.bitwise_or, "atomic_xor": B.bitwise_xor}


def is_strided(s: S.Stmt | None, var: E.Var) -> bool:
    """Whether a loop's steps are (a constant times the thread `var`, beside what is the same for all) // (what is the same for all)."""
    if not isinstance(s, S.For) or s.kind != S.ForKind.SERIAL or s.unroll or s.pipelined or const_int(s.min) != 0:
        return False
    if not uses_var(s.extent, var) or not isinstance(s.extent, E.FloorDiv) or not effects(s.extent).is_constant:
        return False
    terms = Analyzer().detect_linear(s.extent.a, [var])
    return terms is not None and const_int(terms[0]) is not None and not uses_var(s.extent.b, var)


def in_steps(s: S.Stmt, var: E.Var, threads: int, each: Callable[[S.Stmt], S.Stmt]) -> S.Stmt:
    """The loop over the threads (`each` makes it of a body), with strided loops of the body outside of it; see the module."""
    items = list(s.stmts) if isinstance(s, S.Seq) else [s]
    at = next((k for k, x in enumerate(items) if is_strided(x, var)), None)
    if at is None:
        return each(s)
    loop = items[at]
    assert isinstance(loop, S.For)
    # Steps of this form rise or fall with the thread, so the first or the last thread takes the fewest.
    ends = [substitute(loop.extent, {var: B.const(k, var.dtype)}) for k in (0, threads - 1)]
    least = B.maximum(B.minimum(*ends), B.const(0, loop.extent.dtype))
    step = E.Var(loop.var.name, loop.var.dtype, True)
    body = clone(loop.body, {loop.var: step})
    common = S.For(step, loop.min, least, S.seq(*_asked_ahead(body, step, var, threads), each(body)))
    own = E.Var(loop.var.name, loop.var.dtype, True)
    more = S.For(own, least, B.sub(loop.extent, least), clone(loop.body, {loop.var: own}))
    # In all blocks but one or two, no thread takes more steps than another: not one of them then divides to find that out.
    some = S.IfThenElse(B.compare("gt", B.maximum(*ends), least), each(more))
    before = [each(S.seq(*items[:at]))] if at else []
    behind = [in_steps(S.seq(*items[at + 1 :]), var, threads, each)] if items[at + 1 :] else []
    return S.seq(*before, common, some, *behind)


def _asked_ahead(s: S.Stmt, step: E.Var, thread: E.Var, threads: int) -> list[S.Stmt]:
    """Prefetches of what the threads read side by side `AHEAD` steps later: it lies a grid's width away, where the processor does not look by itself."""
    found: dict[str, S.Stmt] = {}
    reads: list[E.Expr] = []
    visit(s, expr=reads.append)
    for e in reads:
        if not isinstance(e, E.BufferLoad) or len(e.indices) != 1 or e.buffer.scope != "global":
            continue
        each = LINE // dtype_info(e.dtype).bytes
        along = Analyzer().detect_linear(e.indices[0], [thread, step])
        if (
            along is None
            or const_int(along[0]) != 1
            or const_int(along[1]) is not None
            or threads % each
            or threads > each * MOST_LINES
        ):
            continue
        line = E.Var("line", thread.dtype, True)
        next_ = substitute(e.indices[0], {thread: B.mul(line, B.const(each, thread.dtype)), step: B.add(step, AHEAD)})
        call = E.Call("prefetch", (E.BufferLoad(e.buffer, (next_,)),), "int32", {"rw": "r", "locality": 3})
        found.setdefault(
            repr((e.buffer.name, e.indices[0])),
            S.For(line, B.const(0, thread.dtype), B.const(threads // each, thread.dtype), S.Evaluate(call)),
        )
    return list(found.values())


def own_atomics(s: S.Stmt) -> S.Stmt:
    """Atomic operations on memory of the block as reads and writes, where their values are those of plain arithmetic."""
    if isinstance(s, S.Evaluate) and isinstance(s.value, E.Call) and (made := _plain(s.value)) is not None:
        return made
    if isinstance(s, S.LetStmt) and isinstance(s.value, E.Call) and (made := _plain(s.value)) is not None:
        load = s.value.args[0]
        return S.LetStmt(s.var, load, S.seq(made, own_atomics(s.body)), s.loc)
    return map_stmts(s, own_atomics)


def _plain(call: E.Call) -> S.Stmt | None:
    """The write of an atomic operation on memory of the block, None where it has to stay."""
    if not call.op.startswith("atomic_") or len(call.args) != 2:
        return None
    load, value = call.args
    if not isinstance(load, E.BufferLoad) or load.buffer.scope != "shared" or effects(value).is_kept:
        return None
    kind = dtype_info(load.dtype)
    if call.op == "atomic_exch":
        made: E.Expr = value
    elif call.op in _BITS and kind.is_int:
        made = _BITS[call.op](load, value)
    elif call.op == "atomic_add" and kind.is_int:  # wraps around, as no signed addition of the IR does
        wide = f"uint{kind.bits}"
        made = B.cast(load.dtype, B.add(B.cast(wide, load), B.cast(wide, value)))
    elif call.op == "atomic_add" and load.dtype in ("float32", "float64"):
        made = B.add(load, value)
    elif call.op in ("atomic_min", "atomic_max") and kind.is_int:
        made = (B.minimum if call.op == "atomic_min" else B.maximum)(load, value)
    else:
        return None
    return S.BufferStore(load.buffer, made, load.indices)
