"""Part the work of a kernel among warpgroups: one fetches tiles by bulk copies, the others multiply them.

In, stage "loops", after unify_threads: a kernel with one loop under `Attr(WarpSpecialize(n))` whose body fills shared
buffers by `bulk_load` and works on them (a warpgroup product, wgmma). threadIdx.x has the 128 threads of a warpgroup, threadIdx.y
counts the warpgroups that work. Out, for n stages, with one more warpgroup along threadIdx.y:

    shared buffers of n slots; full[n], empty[n]: barriers in memory
    if this is the last warpgroup:              its first thread fetches, through all the loops around
        for k: wait until empty[slot]; announce the bytes to full[slot]; bulk_load into the slot
    else:                                       the kernel as it was, but for the loop
        for k: wait until full[slot]; work; let empty[slot before] go once its products are through
        results that go out by bulk_store wait for all threads' parts, and are read before the buffer is written again and before the kernel ends, which
    itself is what makes them visible

A slot's phase flips each time the ring comes round; the fetching warpgroup starts one phase behind, so its first waits pass. It needs
few registers, and hands the rest of its share to the others. Loops around the pipelined one (tiles of a work-group that stays) go
into both parts: the next tile's fetches run while this tile's results go out.

Where the note says `turns`, the kernel is written for one warpgroup, and two take the passes of the loop around (tiles) in turn, each with results
of its own in shared memory:

    for each tile: if it is this warpgroup's turn:  wait until the other's last step has begun; the loop; hand the turn on; wait for the products; results
                   else:                            go past the tile's steps in the ring

So one warpgroup's epilogue runs beside the other's products. The turns are no mere preference: a barrier's phase tells apart only neighbouring rounds
of the ring, and a warpgroup that waited for a slot before the other is through with the round ahead would take that for its own.

A kernel that is not one loop names its whole body instead, and says by itself when a tile may be filled again: see `specialize_region`.

Source: PTX ISA, "mbarrier", "cp.async.bulk.tensor", "wgmma", "setmaxnreg"; CUTLASS's persistent warp-specialised kernels describe
the same plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from ....errors import LoweringError
from ....target import Target
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...effects import is_call
from ...func import Func
from ...matrix import WARPGROUP
from ...notes import MinBlocks, WarpSpecialize
from ...visit import any_stmt, map_stmt, map_stmts, visit
from ..rewrite_util import SHARED_SCOPES, clone, const_int, is_launch_loop, launch_nest, redirected
from .bulk import effect
from .commit_products import settle
from .hold_epilogue import hold_operands
from .roles import Roles, Slots, shared_buffers
from .slots import with_slots
from .specialize_region import Region

_TAKERS = 2  # warpgroups in turn
_OTHER_REGISTERS = 36  # of a working thread's: addresses, counters, what an epilogue has under way


def _is_marked(s: S.Stmt) -> TypeGuard[S.Attr]:
    return isinstance(s, S.Attr) and isinstance(s.note, WarpSpecialize)


def specialize_warps(func: Func, target: Target) -> Func:
    """Lower the loops that the pragma names; the function itself where there is none. Raises LoweringError."""
    if not any_stmt(func.body, _is_marked):
        return func

    def host(s: S.Stmt) -> S.Stmt:
        if is_launch_loop(s):
            return _kernel(s, func.name)
        return map_stmts(s, host)

    return func.with_body(host(func.body))


def _kernel(root: S.Stmt, name: str) -> S.Stmt:
    """A kernel that asks for it, divided among warpgroups: one that fetches, others that work. Raises LoweringError where its threads are no warpgroups."""
    nest, body = launch_nest(root)
    if not any_stmt(body, _is_marked):
        return root
    body = _looped(body)
    by_tag = {f.thread: f for f in nest}
    x, y = by_tag.get("threadIdx.x"), by_tag.get("threadIdx.y")
    if x is None or const_int(x.extent) != WARPGROUP or "threadIdx.z" in by_tag:
        raise LoweringError(
            f"warp_specialize needs threadIdx.x of {WARPGROUP} and no threadIdx.z (function {name!r})",
            hint="leave threadIdx.x to the warpgroup intrinsics, bind threadIdx.y to warpgroups",
        )
    workers = 1 if y is None else const_int(y.extent) or 0
    turns = any_stmt(body, lambda s: _is_marked(s) and s.note.turns)  # type: ignore[attr-defined]
    if turns and workers != 1:
        raise LoweringError(
            f"warp_specialize with turns is for a kernel of one warpgroup, not {workers} (function {name!r})",
            hint="leave threadIdx.y unbound: each warpgroup takes whole passes of the loop around",
        )
    group = y.var if y is not None else E.Var("threadIdx_y")
    kind = _Loop if any_stmt(body, lambda s: _is_marked(s) and isinstance(s.body, S.For)) else Region
    if turns:
        kind, workers = _Turns, _TAKERS
    out = kind(name, x.var, group, workers).kernel(body)
    if y is None:
        nest.append(S.For(group, B.const(0), B.const(1), S.NOP, S.ForKind.THREAD, "threadIdx.y"))
    for f in reversed(nest):
        extent = B.const(workers + 1) if f.var is group else f.extent
        out = f.with_range(f.min, extent, out)
    return out


def _looped(s: S.Stmt) -> S.Stmt:
    """The marked loop of one pass, which is none any more, as a loop again. A kernel that says by itself when a tile may be filled again is no loop."""
    if _is_marked(s) and not isinstance(s.body, S.For) and not any_stmt(s.body, lambda x: is_call(x, "bulk_release")):
        return S.Attr(s.note, S.For(E.Var("step", "int32"), B.const(0), B.const(1), s.body, S.ForKind.SERIAL))
    return map_stmts(s, _looped)


class _Loop(Roles):
    def __init__(self, name: str, thread: E.Var, group: E.Var, workers: int):
        super().__init__(name, thread, group, workers)
        self.loop = S.For(E.Var("step"), B.const(0), B.const(0), S.NOP)  # the marked one, found in `find`
        self.tile_work: list[S.Stmt] = []
        self.ring = Slots("", 0)  # of all filled buffers together

    # ---- the whole

    def kernel(self, body: S.Stmt) -> S.Stmt:
        body = self.held(body)
        self.find(body)
        fetch = self.fetch(clone(self.bare(body), {}))
        assert fetch is not None
        return self.parts(fetch, self.worker(body))

    def held(self, body: S.Stmt) -> S.Stmt:
        """Operands of the epilogue loaded ahead of the loop, where there are registers for them beside the sums."""
        sums = 0

        def count(s: S.Stmt) -> None:
            nonlocal sums
            if isinstance(s, S.Attr) and isinstance(s.note, MinBlocks):
                self.resident = max(self.resident, s.note.blocks)
            if isinstance(s, S.BufferStore) and isinstance(s.value, E.Call) and s.value.op == "wgmma":
                sums = 1
                for d in s.buffer.shape:
                    sums *= const_int(d) or 0

        visit(body, None, count)
        return hold_operands(body, _is_marked, self.available() - sums - _OTHER_REGISTERS)

    def find(self, body: S.Stmt) -> None:
        """Take the marked loop apart."""
        marked: list[S.Attr] = []

        def look(s: S.Stmt) -> None:
            if _is_marked(s):
                marked.append(s)

        visit(body, None, look)
        if len(marked) != 1 or not isinstance(marked[0].body, S.For):
            raise self.error("warp_specialize names one serial loop of a kernel")
        self.loop = marked[0].body
        assert isinstance(marked[0].note, WarpSpecialize)
        self.ring = Slots("", marked[0].note.stages)
        loads, self.tile_work = _apart(self.loop.body)
        if not loads or not self.tile_work:
            raise self.error(
                "warp_specialize needs a loop that fills shared memory by bulk copies and works on it",
                's[stage].compute_at(product, k_outer); s[stage].pragma(first_axis, "bulk_copy")',
            )
        for b in shared_buffers(self.loop.body):
            self.in_ring(b, self.ring)

    # ---- the part that fetches

    def fetch(self, s: S.Stmt) -> S.Stmt | None:
        """The loops and conditions around the marked loop, and in it the copies of a step."""
        if _is_marked(s):
            assert isinstance(s.body, S.For)
            return super().fetch_loop(s.body, self.fill(_apart(s.body.body)[0], self.ring))
        if isinstance(s, S.Seq):
            return self.fetch(next(x for x in s.stmts if any_stmt(x, _is_marked)))
        return super().fetch(s) if any_stmt(s, _is_marked) else None

    def fetch_loop(self, s: S.For, body: S.Stmt) -> S.Stmt:
        return s.with_body(body)

    # ---- the part that works

    def worker(self, body: S.Stmt) -> S.Stmt:
        return S.seq(self.consume(body), self.lead(effect("bulk_wait", n=0, read=True)))

    def lead(self, *stmts: S.Stmt) -> S.Stmt:
        """By one thread of all that work."""
        first = B.all_of(B.compare("eq", self.thread, 0), B.compare("eq", self.group, 0))
        return S.IfThenElse(first, S.seq(*stmts))

    def meet(self) -> S.Stmt:
        """A barrier of the threads that work."""
        return effect("barrier", scope="shared", id=1, threads=self.workers * WARPGROUP)

    def consume(self, s: S.Stmt) -> S.Stmt:
        if _is_marked(s):
            return self.main_loop()
        if isinstance(s, S.Alloc) and s.buffer.scope in SHARED_SCOPES:
            return S.Alloc(s.buffer, self.staged(s.body, s.buffer), replace(s.notes, ordered=True))
        return map_stmts(s, lambda x: self.consume(x))

    def staged(self, body: S.Stmt, buffer: Buffer) -> S.Stmt:
        """A shared buffer of results: written by threads, sent out by bulk stores."""
        parts = list(body.stmts) if isinstance(body, S.Seq) else [body]
        out: list[S.Stmt] = []
        writing = True
        for x in parts:
            if any_stmt(x, lambda y: is_call(y, "bulk_store")):
                if writing:
                    out += [effect("proxy_fence"), self.meet()]
                out.append(self.lead(_synchronised(self.consume(x))))
                writing = False
                continue
            out.append(self.consume(x))
        if writing:
            raise self.error(
                f"{buffer.name} is shared memory that no bulk copy sends out",
                's[result].pragma(first_axis, "bulk_copy") on the stage that copies it to global memory',
            )
        out.append(self.lead(effect("bulk_commit")))
        return self.wait_before_writes(S.seq(*out), buffer)

    def wait_before_writes(self, s: S.Stmt, buffer: Buffer) -> S.Stmt:
        """Let the copies of the tile before have been read before the first statement that writes the buffer."""
        if isinstance(s, S.Seq):
            out: list[S.Stmt] = []
            done = False
            for x in s.stmts:
                if not done and _writes(x, buffer):
                    x = self.wait_before_writes(x, buffer)
                    done = True
                out.append(x)
            return S.seq(*out)
        if isinstance(s, S.Alloc):
            return S.Alloc(s.buffer, self.wait_before_writes(s.body, buffer), s.notes)
        return S.seq(self.lead(effect("bulk_wait", n=0, read=True)), self.meet(), s)

    def main_loop(self) -> S.Stmt:
        loop, ring = self.loop, self.ring.used
        full = E.BufferLoad(self.ring.full, (ring.at(),))
        before = Buffer("slot_before", "int32", (B.const(1),), (), 0, "local")
        release = S.IfThenElse(
            B.compare("eq", self.thread, 0),
            effect("mbarrier_arrive", E.BufferLoad(self.ring.empty, (E.BufferLoad(before, (B.const(0),)),))),
        )
        work = self.in_slot(clone(S.seq(*self.tile_work), {}), ring.at(), group=True)
        step = S.seq(
            effect("mbarrier_wait", full, ring.parity()),
            effect("wgmma_fence"),
            work,
            effect("wgmma_commit"),
            effect("wgmma_wait", n=1),
            S.IfThenElse(B.compare("gt", loop.var, loop.min), release),
            S.BufferStore(before, ring.at(), (B.const(0),)),
            ring.advance(),
        )
        main = S.For(loop.var, loop.min, loop.extent, step, S.ForKind.SERIAL, "", unroll=1)
        return S.Alloc(before, S.seq(*self.before_steps(), main, *self.after_steps(), *settle(work), release))

    def before_steps(self) -> list[S.Stmt]:
        """What stands ahead of the loop, and behind it once all of its products have begun."""
        return []

    def after_steps(self) -> list[S.Stmt]:
        return []


def _apart(s: S.Stmt) -> tuple[list[S.Stmt], list[S.Stmt]]:
    """The loads of a step, and its work."""
    if isinstance(s, S.Alloc) and s.buffer.scope in SHARED_SCOPES:
        return _apart(s.body)
    if isinstance(s, S.Seq):
        both = [_apart(x) for x in s.stmts]
        return [x for loads, _ in both for x in loads], [x for _, work in both for x in work]
    return ([s], []) if any_stmt(s, lambda x: is_call(x, "bulk_load")) else ([], [s])


class _Turns(_Loop):
    """The same where warpgroups take the passes of the loop around in turn; see the module."""

    def held(self, body: S.Stmt) -> S.Stmt:
        return body  # an epilogue's loads go beside the other's products anyway

    def __init__(self, name: str, thread: E.Var, group: E.Var, workers: int):
        super().__init__(name, thread, group, workers)
        self.releases = 1
        self.turn = Buffer("turn", "int32", (B.const(1),), (), 0, "local")  # whose pass comes next

    def lead(self, *stmts: S.Stmt) -> S.Stmt:
        return S.IfThenElse(B.compare("eq", self.thread, 0), S.seq(*stmts))

    def meet(self) -> S.Stmt:
        return effect("turn_meet", self.uniform)

    def before_steps(self) -> list[S.Stmt]:
        return [effect("turn_take", self.uniform)]

    def after_steps(self) -> list[S.Stmt]:
        return [effect("turn_give", self.uniform)]

    def parts(self, fetch: S.Stmt, work: S.Stmt, state: tuple[Buffer, ...] = ()) -> S.Stmt:
        return super().parts(fetch, work, (*state, self.turn))

    def my_turn(self) -> E.Expr:
        return B.compare("eq", E.BufferLoad(self.turn, (B.const(0),)), self.uniform)

    def worker(self, body: S.Stmt) -> S.Stmt:
        zero = (B.const(0),)
        begin = S.BufferStore(self.turn, B.const(0), zero)
        # The second begins by handing the first its turn; at the end the turn that nobody needs is taken, so that no barrier is left half full.
        first = S.IfThenElse(B.compare("eq", self.uniform, self.workers - 1), effect("turn_give", self.uniform))
        last = S.IfThenElse(self.my_turn(), effect("turn_take", self.uniform))
        return S.seq(begin, first, self.passes(body), last, self.lead(effect("bulk_wait", n=0, read=True)))

    def passes(self, s: S.Stmt) -> S.Stmt:
        """The loops around the passes, and each pass by the warpgroup whose turn it is."""
        if isinstance(s, S.For) and s.kind == S.ForKind.SERIAL:
            if any_stmt(s.body, lambda x: isinstance(x, S.For) and x is not self.loop and any_stmt(x, _is_marked)):
                return s.with_body(self.passes(s.body))
            mine = self.consume(s.body)
            steps = E.Cast("int32", self.loop.extent) if self.loop.extent.dtype != "int32" else self.loop.extent
            shared = S.IfThenElse(self.my_turn(), mine, self.ring.used.skip(steps))
            other = B.sub(B.const(self.workers - 1), E.BufferLoad(self.turn, (B.const(0),)))
            body = S.seq(shared, S.BufferStore(self.turn, other, (B.const(0),)))
            return replace(s, body=body, unroll=s.unroll or 1)
        if isinstance(s, S.LetStmt):
            return S.LetStmt(s.var, s.value, self.passes(s.body))
        if isinstance(s, S.Attr):
            return S.Attr(s.note, self.passes(s.body))
        raise self.error(
            f"warp_specialize with turns is for a loop within a loop of tiles, and here {type(s).__name__} stands around it",
            "split the tiles, so that a work-group stays for several",
        )

    def consume(self, s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.IfThenElse) and any_stmt(s, _is_marked):
            raise self.error("warp_specialize with turns: the loop stands under a condition")
        if isinstance(s, S.Alloc) and s.buffer.scope in SHARED_SCOPES:
            b = s.buffer
            own = with_slots(b, self.workers)
            body = redirected(self.staged(s.body, b), {id(b): own}, self.uniform)
            return S.Alloc(own, body, replace(s.notes, ordered=True))
        return super().consume(s)


def _synchronised(s: S.Stmt) -> S.Stmt:
    """Bulk stores marked as ordered after what threads wrote: tensor_maps refuses others."""

    def fe(e: E.Expr) -> E.Expr:
        if type(e) is E.Call and e.op == "bulk_store":
            return E.Call(e.op, e.args, e.dtype, {**(e.attrs or {}), "ordered": True})
        return e

    return map_stmt(s, _synchronised, fe)


def _writes(s: S.Stmt, buffer: Buffer) -> bool:
    return any_stmt(s, lambda x: isinstance(x, S.BufferStore) and x.buffer is buffer)
