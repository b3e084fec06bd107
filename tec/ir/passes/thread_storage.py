"""Storage of a script's threads: memory of scope shared or local that a script allocates in front of the loops that are bound to threads.

    shared = allocate((256,), "float32", "shared")
    for i in bind("threadIdx.x", 256): shared[i] = a[i]
    for i in bind("threadIdx.x", 256): c[i] = shared[255 - i]

becomes one loop over the threads, with the storage inside of it and the loops' bodies one after another.
"""

from __future__ import annotations

from .. import stmt as S
from ..buffer import LOCAL, SHARED
from ..structural import structural_equal
from ..visit import substitute_stmt


def in_thread_loops(s: S.Stmt) -> S.Stmt:
    """`s` with such storage inside of the loops of the threads that use it. What is in a thread's loop already stays as it is."""
    match s:
        case S.Seq():
            return S.seq(*map(in_thread_loops, s.stmts))
        case S.LetStmt():
            return S.LetStmt(s.var, s.value, in_thread_loops(s.body), s.loc)
        case S.Alloc():
            body = in_thread_loops(s.body)
            if s.buffer.scope in (SHARED, LOCAL):
                loop = one_loop(body)
                if loop is not None:
                    return loop.with_body(S.Alloc(s.buffer, loop.body, s.notes))
            return S.Alloc(s.buffer, body, s.notes)
    return s


def one_loop(s: S.Stmt) -> S.For | None:
    """A loop over threads, or several over the same threads as one; None where it is anything else."""
    if isinstance(s, S.For):
        return s if s.kind == S.ForKind.THREAD else None
    if not isinstance(s, S.Seq):
        return None
    first, *others = s.stmts
    if not isinstance(first, S.For) or first.kind != S.ForKind.THREAD:
        return None
    bodies = [first.body]
    for other in others:
        if not (
            isinstance(other, S.For)
            and (other.kind, other.thread) == (first.kind, first.thread)
            and structural_equal(other.min, first.min)
            and structural_equal(other.extent, first.extent)
        ):
            return None
        bodies.append(substitute_stmt(other.body, {other.var: first.var}))
    return first.with_body(S.seq(*bodies))
