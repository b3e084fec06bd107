"""A whole kernel parted among warpgroups: one fetches what the others work on, in the order in which the kernel says.

In: a kernel under `Attr(WarpSpecialize(n))` whose body fills shared buffers by `bulk_load`, anywhere and at several places, works on them, and says
`bulk_release(buffer)` where a buffer may be filled again. As it stands, each thread would do all of it in order (and the interpreter does). Out:

    each filled buffer: n slots where loops within loops fill it, else one; full[n], empty[n] of its own
    the last warpgroup's first thread:   the loops and conditions around the loads, and for each load
                                             wait until empty[slot]; announce the bytes to full[slot]; bulk_load into the slot
    the others: the kernel, but for      a load: wait until full[slot]
                                         a release: one thread of each warpgroup lets empty[slot] go

So fetching runs ahead of the work by as many tiles as there are slots, each buffer by itself, over the ends of all loops.
"""

from __future__ import annotations

from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...effects import is_call
from ...notes import MinBlocks, WarpSpecialize
from ...visit import any_stmt, free_vars, map_stmt, visit
from ..rewrite_util import SHARED_SCOPES, clone
from .bulk import effect, is_bulk_fill, loaded_bytes, reporting
from .warp_roles import Ring, Roles


class _Barriers:
    """A filled buffer's barriers, and where each part of the kernel stands in its ring."""

    def __init__(self, name: str, slots: int):
        shape = (B.const(slots),)
        self.full, self.empty = (Buffer(f"{name}_{n}", "uint64", shape, (), 0, "shared") for n in ("full", "empty"))
        self.slots = slots
        self.fetched, self.used = Ring(slots), Ring(slots)


class Region(Roles):
    """See the module."""

    def kernel(self, body: S.Stmt) -> S.Stmt:
        """The kernel's body in its parts. Raises LoweringError."""
        self.rings: dict[int, _Barriers] = {}
        self.find(body)
        body = self.bare(body)
        fetch = self.fetch(clone(body, {}))
        if fetch is None:
            raise self.error("warp_specialize: nothing is filled by bulk copies")
        work = self.work(body)
        for ring in self.rings.values():
            fetch, work = ring.fetched.start(fetch), ring.used.start(work)
        init = S.seq(*[self.ready(r.full, r.empty, r.slots) for r in self.rings.values()])
        barriers = [b for r in self.rings.values() for b in (r.full, r.empty)]
        return self.parts(init, fetch, work, [*self.slots.values(), *barriers])

    def find(self, body: S.Stmt) -> None:
        """The filled buffers, and how many slots each gets."""
        depth: dict[int, int] = {}
        buffers: dict[int, Buffer] = {}
        stages = 0

        def walk(s: S.Stmt, loops: int) -> None:
            nonlocal stages
            if isinstance(s, S.Attr) and isinstance(s.note, WarpSpecialize):
                stages = s.note.stages
            elif isinstance(s, S.Attr) and isinstance(s.note, MinBlocks):
                self.resident = max(self.resident, s.note.blocks)
            if is_call(s, "bulk_load"):
                b = _filled(s)
                buffers[id(b)] = b
                depth[id(b)] = max(depth.get(id(b), 0), loops)
            more = loops + isinstance(s, (S.For, S.While))

            def inside(x: S.Stmt) -> S.Stmt:
                walk(x, more)
                return x

            map_stmt(s, inside, lambda e: e)

        walk(body, 0)
        deepest = max(depth.values(), default=0)
        for k, b in buffers.items():
            n = stages if depth[k] == deepest else 1
            self.rings[k] = _Barriers(b.name, n)
            self.slots[k] = Buffer(b.name, b.dtype, (B.const(n), *b.shape), (), 0, b.scope, b.align_bytes, loc=b.loc)

    def bare(self, s: S.Stmt) -> S.Stmt:
        """Without the note and the filled buffers' allocations."""
        if isinstance(s, S.Attr) and isinstance(s.note, WarpSpecialize):
            return self.bare(s.body)
        if isinstance(s, S.Alloc) and s.buffer.scope in SHARED_SCOPES:
            if id(s.buffer) not in self.rings:
                raise self.error(f"warp_specialize: {s.buffer.name} is shared memory that no bulk copy fills")
            return self.bare(s.body)
        return map_stmt(s, self.bare, lambda e: e)

    # ---- the part that fetches

    def fetch(self, s: S.Stmt) -> S.Stmt | None:
        """What is left of a statement for the thread that fetches."""
        if isinstance(s, S.Seq) or is_bulk_fill(s):
            kept = [self.fill(x) if isinstance(x, list) else self.fetch(x) for x in _runs(s)]
            left = [x for x in kept if x is not None]
            return S.seq(*left) if left else None
        if isinstance(s, S.For):
            body = self.fetch(s.body)
            if body is None:
                return None
            self.plain(s.min, s.extent)
            return S.For(s.var, s.min, s.extent, body, S.ForKind.SERIAL, "", unroll=1)
        if isinstance(s, S.IfThenElse):
            then, orelse = self.fetch(s.then), None if s.orelse is None else self.fetch(s.orelse)
            if then is None and orelse is None:
                return None
            self.plain(s.cond)
            return S.IfThenElse(s.cond, then or S.NOP, orelse)
        if isinstance(s, S.LetStmt):
            body = self.fetch(s.body)
            if body is None or not any(v is s.var for v in free_vars(body)):
                return body
            self.plain(s.value)
            return S.LetStmt(s.var, s.value, body)
        if isinstance(s, (S.Alloc, S.Attr)):
            return self.fetch(s.body)
        if any_stmt(s, lambda x: is_call(x, "bulk_load")):
            raise self.error(f"warp_specialize: {type(s).__name__} stands around a bulk copy")
        return None

    def fill(self, loads: list[S.Stmt]) -> S.Stmt:
        ring = self.rings[id(_filled(loads[0]))]
        at = ring.fetched.at()
        full, empty = (E.BufferLoad(b, (at,)) for b in (ring.full, ring.empty))
        return S.seq(
            effect("mbarrier_wait", empty, B.bitwise_xor(ring.fetched.parity(), B.const(1))),
            effect("mbarrier_expect", full, loaded_bytes(loads)),
            *[self.in_slot(reporting(x, full), at) for x in loads],
            ring.fetched.advance(),
        )

    def plain(self, *exprs: E.Expr) -> None:
        """Refuse loops and conditions around a copy that read what the other warpgroups compute."""

        def on_expr(e: E.Expr) -> None:
            if type(e) is E.BufferLoad and e.buffer.scope != "global":
                raise self.error(f"warp_specialize: a bulk copy depends on {e.buffer.name}, which threads compute")

        for e in exprs:
            visit(S.Evaluate(e), on_expr, None)

    # ---- the part that works

    def work(self, s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Seq) or is_bulk_fill(s):
            return S.seq(*[self.arrived(x) if isinstance(x, list) else self.work(x) for x in _runs(s)])
        if isinstance(s, S.Evaluate) and isinstance(s.value, E.Call) and s.value.op == "bulk_release":
            ring = self.rings[id(_operand(s.value))]
            arrive = effect("mbarrier_arrive", E.BufferLoad(ring.empty, (ring.used.at(),)))
            return S.seq(S.IfThenElse(B.compare("eq", self.thread, 0), arrive), ring.used.advance())
        return map_stmt(s, self.work, self.in_its_slot)

    def arrived(self, loads: list[S.Stmt]) -> S.Stmt:
        ring = self.rings[id(_filled(loads[0]))]
        return effect("mbarrier_wait", E.BufferLoad(ring.full, (ring.used.at(),)), ring.used.parity())

    def in_its_slot(self, e: E.Expr) -> E.Expr:
        """An expression with each filled buffer in the slot where the work stands."""
        return self.expr_in_slot(e, lambda b: self.rings[id(b)].used.at(), group=True)


def _operand(call: E.Call) -> Buffer:
    load = call.args[0]
    assert isinstance(load, E.BufferLoad)
    return load.buffer


def _filled(s: S.Stmt) -> Buffer:
    """The buffer that a fill's first load fills."""
    if isinstance(s, S.Seq):
        return _filled(s.stmts[0])
    if isinstance(s, S.IfThenElse):
        return _filled(s.then)
    assert isinstance(s, S.Evaluate) and isinstance(s.value, E.Call)
    return _operand(s.value)


def _runs(s: S.Stmt) -> list[S.Stmt | list[S.Stmt]]:
    """The statements of a sequence, with neighbours that fill one buffer together: the boxes of a tile."""
    out: list[S.Stmt | list[S.Stmt]] = []
    for x in s.stmts if isinstance(s, S.Seq) else (s,):
        last = out[-1] if out else None
        if not is_bulk_fill(x):
            out.append(x)
        elif isinstance(last, list) and _filled(last[0]) is _filled(x):
            last.append(x)
        else:
            out.append([x])
    return out


__all__ = ["Region"]
