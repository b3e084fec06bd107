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
from ...visit import map_stmt, map_stmts
from ..rewrite_util import clone
from .bulk import effect, is_bulk_fill
from .roles import Roles, Slots, filled_by, operand, shared_buffers


class Region(Roles):
    """See the module."""

    def kernel(self, body: S.Stmt) -> S.Stmt:
        """The kernel's body in its parts. Raises LoweringError."""
        self.find(body)
        for b in shared_buffers(body):
            if id(b) not in self.rings:
                raise self.error(f"warp_specialize: {b.name} is shared memory that no bulk copy fills")
        body = self.bare(body)
        fetch = self.fetch(clone(body, {}))
        if fetch is None:
            raise self.error("warp_specialize: nothing is filled by bulk copies")
        return self.parts(fetch, self.work(body))

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
                b = filled_by(s)
                buffers[id(b)] = b
                depth[id(b)] = max(depth.get(id(b), 0), loops)
            more = loops + isinstance(s, (S.For, S.While))

            def inside(x: S.Stmt) -> S.Stmt:
                walk(x, more)
                return x

            map_stmts(s, inside)

        walk(body, 0)
        deepest = max(depth.values(), default=0)
        for k, b in buffers.items():
            self.in_ring(b, Slots(f"{b.name}_", stages if depth[k] == deepest else 1))

    # ---- the part that works

    def work(self, s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Attr) and isinstance(s.note, WarpSpecialize):
            return self.work(s.body)
        if isinstance(s, S.Seq) or is_bulk_fill(s):
            return S.seq(*[self.arrived(x) if isinstance(x, list) else self.work(x) for x in self.runs(s)])
        if isinstance(s, S.Evaluate) and isinstance(s.value, E.Call) and s.value.op == "bulk_release":
            ring = self.rings[id(operand(s.value))]
            arrive = effect("mbarrier_arrive", E.BufferLoad(ring.empty, (ring.used.at(),)))
            return S.seq(S.IfThenElse(B.compare("eq", self.thread, 0), arrive), ring.used.advance())
        return map_stmt(s, self.work, self.in_its_slot)

    def arrived(self, loads: list[S.Stmt]) -> S.Stmt:
        ring = self.rings[id(filled_by(loads[0]))]
        return effect("mbarrier_wait", E.BufferLoad(ring.full, (ring.used.at(),)), ring.used.parity())

    def in_its_slot(self, e: E.Expr) -> E.Expr:
        """An expression with each filled buffer in the slot where the work stands."""
        return self.expr_in_slot(e, lambda b: self.rings[id(b)].used.at(), group=True)
