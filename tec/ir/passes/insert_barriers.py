"""Put barriers where a thread may touch what another thread of its work-group wrote, and nowhere else.

In: kernels as launch nests, without barriers (but for those a user wrote). Out: `Evaluate(barrier)` between a shared
write and a read of the same element by another thread, between a read and the write that replaces it, also from one
iteration of a loop to the next. One upward walk gives, for each statement, the accesses before its first barrier (head)
and after its last (tail); neighbours are compared tail against head (see `thread_conflicts`). Global buffers that one
kernel both writes and reads are ordered within a work-group in the same way.

A barrier is reached by all threads: under a condition that differs between threads the condition moves inward past the
barrier, and where it cannot, LoweringError names the place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace

from ...errors import LoweringError
from ...records import dataclass
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..effects import Access, effects, is_call
from ..func import Func
from ..intrin import INTRINS
from ..visit import any_expr, map_stmts, substitute, visit
from .rewrite_util import (
    SHARED_SCOPES,
    THREAD_TAGS,
    const_int,
    is_launch_loop,
    launch_nest,
    same_expr,
    sunk,
)
from .thread_conflicts import Conflicts, Meeting, SharedAccess


def insert_barriers(func: Func, target: Target) -> Func:
    """Barriers where threads share memory; see the module."""

    def host(s: S.Stmt) -> S.Stmt:
        if is_launch_loop(s):
            return _kernel(s, target.wavefront_size if target.kind == "rocm" else 0)
        return map_stmts(s, host)

    if not target.is_gpu or func.attrs.get("simt"):  # threads of a kernel meet where its author says
        return func
    return func.with_body(host(func.body))


def barrier(scope: str = "shared") -> S.Stmt:
    """The statement at which all threads of the work-group meet."""
    return S.Evaluate(E.Call("barrier", (), "int32", {"scope": scope}))


def _kernel(root: S.Stmt, wave: int) -> S.Stmt:
    nest, body = launch_nest(root)
    threads = [(f.var, const_int(f.extent) or 0) for f in nest if f.thread in THREAD_TAGS]
    if not threads or any(n < 1 for _, n in threads):
        return root  # one thread a work-group; or split_host_device says what is wrong
    watched = _watched(body)
    if not watched:
        return root
    tags = [f.thread for f in nest if f.thread in THREAD_TAGS]
    if tags != sorted(tags) or threads[0][1] % max(1, wave) or math.prod(n for _, n in threads) <= wave:
        wave = 0  # lanes are not neighbours, or the work-group's barrier is as good
    new = _Walk(threads, watched, wave).walk(body).stmt
    for f in reversed(nest):
        new = f.with_body(new)
    return new


def _watched(body: S.Stmt) -> set[int]:
    """Buffers whose accesses may need order: shared ones, and global ones both written and read here; not those whose order another
    pass has seen to."""
    does = effects(body)
    scopes = {id(a.buffer): a.buffer.scope for a in does.accesses}
    both = does.writes & does.reads
    ordered: set[int] = set()

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, S.Alloc) and s.notes.ordered:
            ordered.add(id(s.buffer))

    visit(body, None, on_stmt)
    return {
        k
        for k, scope in scopes.items()
        if k not in ordered and (scope in SHARED_SCOPES or (scope == "global" and k in both))
    }


@dataclass(slots=True)
class _Summary:
    stmt: S.Stmt
    head: list[SharedAccess] = field(default_factory=list)
    tail: list[SharedAccess] = field(default_factory=list)
    barrier: bool = False  # whether every path through it meets a barrier


class _ByBuffer:
    """Accesses by their storage: code that is unrolled has thousands, of which few can meet."""

    __slots__ = ("any", "writes")

    def __init__(self, accesses: Iterable[SharedAccess] = ()):
        self.any: dict[int, list[SharedAccess]] = {}
        self.writes: dict[int, list[SharedAccess]] = {}
        self.extend(accesses)

    def extend(self, accesses: Iterable[SharedAccess]) -> None:
        for a in accesses:
            self.any.setdefault(id(a.buffer.data), []).append(a)
            if a.is_write:
                self.writes.setdefault(id(a.buffer.data), []).append(a)


_Why = tuple[SharedAccess | None, Meeting]
_NOTHING: _Why = (None, Meeting.NOWHERE)


class _DivergentError(Exception):
    """Internal: a barrier is needed where not all threads come by."""

    def __init__(self, access: SharedAccess):
        self.access = access


class _Walk:
    def __init__(self, threads: list[tuple[E.Var, int]], watched: set[int], wave: int):
        self.conflicts = Conflicts(threads, wave)
        self.watched = watched
        self.varying = {id(v) for v, n in threads if n > 1}
        self.lets: dict[E.Var, E.Expr] = {}
        self.divergent = False
        self.conds: list[E.Expr] = []  # of the branches around

    # ---- helpers

    def accesses(self, exprs: list[E.Expr | None]) -> list[SharedAccess]:
        found: list[SharedAccess] = []
        for e in exprs:
            if e is not None:
                found.extend(self.shared(a) for a in effects(e).accesses if id(a.buffer) in self.watched)
        return found

    def shared(self, a: Access) -> SharedAccess:
        index = a.indices[0] if len(a.indices) == 1 else None
        if index is not None and self.lets:
            index = substitute(index, self.lets)
        conds = list(self.conds)
        return SharedAccess(a.buffer, index, a.is_write, a.loc, [], conds, a.atomic, collective=a.collective)

    def meet(self, tail: Iterable[SharedAccess] | _ByBuffer, head: list[SharedAccess]) -> _Why:
        """The access of `head` that must wait for one of `tail`, and for whom; of global memory if there is one, as its barrier orders all."""
        if not head:
            return _NOTHING
        before = tail if isinstance(tail, _ByBuffer) else _ByBuffer(tail)
        why = _NOTHING
        for b in head:
            if why[1] == Meeting.ANYWHERE and b.buffer.scope != "global":
                continue
            # Two reads never wait: a read looks at the writes before it alone.
            for a in (before.any if b.is_write else before.writes).get(id(b.buffer.data), ()):
                met = self._ordered(a, b)
                if b.buffer.scope == "global" and self.divergent:
                    continue  # threads that part have their own elements there, or meet by atomics
                if met > why[1] or (met and b.buffer.scope == "global"):
                    why = (b, met)
                    if b.buffer.scope == "global" and not self.divergent:
                        return why
                    if met == Meeting.ANYWHERE:
                        break
        return why

    def _ordered(self, a: SharedAccess, b: SharedAccess) -> Meeting:
        if a.buffer.scope != "global":
            met = self.conflicts.meet(a, b)
            return Meeting.NOWHERE if met == Meeting.WITHIN and a.within else met
        # Sizes that are not constant keep enumeration from seeing that each thread stays with its own element.
        same = a.index is not None and b.index is not None and same_expr(a.index, b.index)
        # A wavefront's loads may be ahead of its stores there.
        return Meeting.ANYWHERE if self.conflicts.meet(a, b, unknown=not same) else Meeting.NOWHERE

    def is_varying(self, e: E.Expr) -> bool:
        """Whether `e` may differ between the threads of a work-group."""
        return any_expr(
            e,
            lambda x: (
                id(x) in self.varying
                or (type(x) is E.BufferLoad and x.buffer.scope not in ("global", *SHARED_SCOPES))
                or (type(x) is E.Call and INTRINS[x.op].varying)
            ),
        )

    def sync(self, why: SharedAccess) -> S.Stmt:
        if self.divergent:
            raise _DivergentError(why)
        return barrier("shared" if why.buffer.scope in SHARED_SCOPES else "global")

    # ---- statements

    def walk(self, s: S.Stmt) -> _Summary:
        """A statement with the barriers that it needs inside, and the accesses of shared memory that none of them orders at its beginning and its end."""
        match s:
            case S.Seq():
                return self.sequence(list(s.stmts))
            case S.For():
                return self.loop(s)
            case S.While():
                return self.while_loop(s)
            case S.IfThenElse():
                return self.branch(s)
            case S.LetStmt():
                return self.let(s)
            case S.Alloc():
                inner = self.walk(s.body)
                inner.stmt = s if inner.stmt is s.body else S.Alloc(s.buffer, inner.stmt, s.notes)
                return inner
            case S.Attr():
                inner = self.walk(s.body)
                inner.stmt = s if inner.stmt is s.body else S.Attr(s.note, inner.stmt)
                return inner
            case S.Evaluate(value=E.Call(op="barrier") as call):
                # One of scope "wave" orders the lanes of a wavefront, not the work-group.
                return _Summary(s, barrier=(call.attrs or {}).get("scope") != "wave")
            case S.BufferStore():
                found = self.accesses([s.value, *s.indices, s.predicate])
                if id(s.buffer) in self.watched:
                    found.append(self.shared(Access(s.buffer, s.indices, True, s.loc)))
                return _Summary(s, found, list(found))
            case S.AllReduce():
                found = self.accesses([*s.values, s.predicate])
                return _Summary(s, found, list(found))
            case S.Evaluate():
                found = self.accesses([s.value])
                return _Summary(s, found, list(found))
            case S.Assert():
                found = self.accesses([s.cond])
                return _Summary(s, found, list(found))
        raise TypeError(f"not a statement: {type(s).__name__}")

    def sequence(self, stmts: list[S.Stmt]) -> _Summary:
        """Statements in turn, with barriers before those that meet accesses of earlier ones."""
        out: list[S.Stmt] = []
        total = _Summary(S.NOP)
        before = _ByBuffer()  # total.tail
        for x in stmts:
            part = self.walk(x)
            why, met = self.meet(before, part.head)
            if why is not None and (met == Meeting.ANYWHERE or self.divergent):
                out.append(self.sync(why))
                total.tail, before = [], _ByBuffer()
                total.barrier = True
            elif why is not None:
                out.append(barrier("wave"))
                total.tail = [replace(a, within=True) for a in total.tail]
                before = _ByBuffer(total.tail)
            if not total.barrier:
                total.head.extend(part.head)
            if part.barrier:
                total.tail, before = [], _ByBuffer()
            elif is_call(part.stmt, "barrier"):  # of the wavefront
                total.tail = [replace(a, within=True) for a in total.tail]
                before = _ByBuffer(total.tail)
            total.tail.extend(part.tail)
            before.extend(part.tail)
            total.barrier = total.barrier or part.barrier
            out.append(part.stmt)
        total.stmt = S.seq(*out)
        return total

    @contextmanager
    def inside(self, varying: bool) -> Iterator[None]:
        """A loop's body. varying: whether threads differ about how often it runs, so that no barrier may stand in it."""
        outer = self.divergent
        self.divergent = outer or varying
        try:
            yield
        except _DivergentError as e:
            if outer:
                raise
            raise self.error(e) from None
        finally:
            self.divergent = outer

    def loop(self, s: S.For) -> _Summary:
        """See `walk`: an iteration meets what the ones before it left."""
        bounds = self.accesses([s.min, s.extent])
        varying = self.is_varying(s.min) or self.is_varying(s.extent)
        with self.inside(varying):
            body = self.walk(s.body)
            # From one iteration to a later one: the next where a barrier stands between, any where none does.
            if body.barrier:
                tail, later = body.tail, [a.substituted({s.var: B.add(s.var, 1)}) for a in body.head]
            else:
                tail = [a.with_loop(s.var, s.min, s.extent) for a in body.tail]
                later = [_in_loop(a, s) for a in body.head]
            why, met = self.meet(tail, later)
            # Of two iterations one is later: what threads do in the same one, no barrier here orders.
            if why is not None and not body.barrier:
                why, met = self.meet(body.tail, [_later(a, s) for a in body.head])
            stmt = body.stmt
            if why is not None and (met == Meeting.ANYWHERE or self.divergent):
                stmt = S.seq(self.sync(why), stmt)
                body.head = []
                body.barrier = True
            elif why is not None:
                stmt = S.seq(barrier("wave"), stmt)
        new = s if stmt is s.body else s.with_body(stmt)
        head = bounds + [a.with_loop(s.var, s.min, s.extent) for a in body.head]
        tail = [a.with_loop(s.var, s.min, s.extent) for a in body.tail]
        extent = const_int(s.extent)
        sure = body.barrier and extent is not None and extent > 0
        return _Summary(new, head, tail if sure else bounds + tail, sure)

    def while_loop(self, s: S.While) -> _Summary:
        cond = self.accesses([s.cond])
        with self.inside(self.is_varying(s.cond)):
            body = self.walk(s.body)
            stmt = body.stmt
            why, _ = self.meet(body.tail, cond + body.head)
            if why is not None:
                # The condition is read again after the body: the barrier stands at the body's end.
                stmt = S.seq(stmt, self.sync(why))
                body.tail = []
        unknown = [SharedAccess(a.buffer, None, a.is_write, a.loc) for a in (*body.head, *body.tail)]
        return _Summary(S.While(s.cond, stmt), cond + unknown, cond + unknown)

    def branch(self, s: S.IfThenElse) -> _Summary:
        """Both sides of a branch. Where threads differ about its condition no barrier may stand in it: the condition is moved inward then (`sink`)."""
        conds = self.accesses([s.cond])
        outer = self.divergent
        self.divergent = outer or self.is_varying(s.cond)
        plain = substitute(s.cond, self.lets) if self.lets else s.cond
        depth = len(self.conds)
        try:
            self.conds.append(plain)
            then = self.walk(s.then)
            self.conds[-1] = B.logical_not(plain)
            orelse = self.walk(s.orelse) if s.orelse is not None else _Summary(S.NOP)
        except _DivergentError as e:
            if outer:
                raise
            self.divergent = outer
            del self.conds[depth:]
            return self.sink(s, e)
        finally:
            self.divergent = outer
            del self.conds[depth:]
        head = conds + then.head + orelse.head
        tail = conds + then.tail + orelse.tail
        stmt: S.Stmt = s
        if then.stmt is not s.then or (s.orelse is not None and orelse.stmt is not s.orelse):
            stmt = S.IfThenElse(s.cond, then.stmt, orelse.stmt if s.orelse is not None else None)
        return _Summary(stmt, head, tail, then.barrier and orelse.barrier)

    def sink(self, s: S.IfThenElse, why: _DivergentError) -> _Summary:
        """`s` with its condition moved inward, so that barriers stand outside of it."""
        moved = sunk(s)
        if moved is None:
            raise self.error(why)
        return self.walk(moved)

    def let(self, s: S.LetStmt) -> _Summary:
        own = self.accesses([s.value])
        if self.is_varying(s.value):
            self.varying.add(id(s.var))
        reads_memory = bool(effects(s.value).accesses)
        if not reads_memory:
            self.lets[s.var] = substitute(s.value, self.lets) if self.lets else s.value
        inner = self.walk(s.body)
        self.lets.pop(s.var, None)
        if reads_memory:  # an index that uses the variable is then unknown
            inner.head = [_forget(a, s.var) for a in inner.head]
            inner.tail = [_forget(a, s.var) for a in inner.tail]
        why, _ = self.meet(own, inner.head)
        new = s if inner.stmt is s.body else S.LetStmt(s.var, s.value, inner.stmt)
        if why is not None:
            new = S.LetStmt(s.var, s.value, S.seq(self.sync(why), inner.stmt))
            return _Summary(new, own, inner.tail, True)
        return _Summary(new, own + inner.head, inner.tail if inner.barrier else own + inner.tail, inner.barrier)

    def error(self, why: _DivergentError) -> LoweringError:
        a = why.access
        return LoweringError(
            f"the accesses of {a.buffer.name} need a barrier inside of a condition or a loop that differs between threads",
            where=a.loc or a.buffer.loc,
            hint="a barrier is reached by all threads or none: move the shared-memory stage out of the condition (compute_at an outer axis), or make the extents divide",
            locate=False,
        )


def _forget(a: SharedAccess, var: E.Var) -> SharedAccess:
    if a.index is None:
        return a
    used = False

    def on_expr(e: E.Expr) -> None:
        nonlocal used
        used = used or e is var

    visit(a.index, on_expr)
    return SharedAccess(a.buffer, None, a.is_write, a.loc, atomic=a.atomic) if used else a


def _later(a: SharedAccess, s: S.For) -> SharedAccess:
    """The access in an iteration behind the one that the loop variable names."""
    ahead = E.Var(s.var.name, s.var.dtype)
    return a.substituted({s.var: B.add(s.var, ahead)}).with_loop(ahead, E.IntImm(1), B.sub(s.extent, 1))


def _in_loop(a: SharedAccess, s: S.For) -> SharedAccess:
    """The access in an iteration of its own: its loop variable is another one."""
    var = E.Var(s.var.name, s.var.dtype)
    return a.substituted({s.var: var}).with_loop(var, s.min, s.extent)
