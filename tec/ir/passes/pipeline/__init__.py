"""Overlap the filling of shared memory with the work on it (double buffering and deeper software pipelines).

In: a serial loop whose body allocates shared buffers with the annotation `double_buffer`, fills them and uses them; or a
loop with the pragma `software_pipeline` n. Out, for n stages (2 for double_buffer):

    fill slot 0 .. n-2                                  prologue
    for k in range(extent - (n-1)):
        registers = what step k+n-1 will need           the loads are under way while we compute
        compute step k from slot k % n
        slot (k+n-1) % n = registers
    compute the last n-1 steps                          epilogue

The fill goes through registers where it is a nest of loops around stores; otherwise it writes its slot directly, before
the compute. One barrier a step is left for insert_barriers to place. On a CPU the annotations are dropped.

`software_pipeline` 1 keeps one slot: the next step waits in registers while the slot is worked on, for two barriers a step
and no more shared memory than without. Fills that registers cannot take are then left as they are. With `ahead` of d the loads of d steps are on their
way at a time, each step's in registers of its own: LLVM unrolls the loop by d. What little a step works then hides d times as much of memory's latency.
`software_pipeline` 2 with `ahead`, where nothing copies in the background, has the same with two slots: one barrier a step, before its last sums, behind which the next
step's first registers are filled (`interleave.carried`).

Where the target copies to shared memory in the background and every fill is a plain copy, the pipeline runs on async copies,
one group a step, with one barrier a step:

    start the copies of slots 0 .. n-2
    for k in range(extent):
        wait for step k's copies; barrier
        start the copies of step k+n-1 into slot (k+n-1) % n, if there is such a step
        compute step k from slot k % n
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....target import Target
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...arith import Analyzer
from ...buffer import Buffer
from ...effects import effects, is_call
from ...func import Func
from ...notes import FragmentsAhead, SoftwarePipeline, SoftwarePipelineOrder
from ...visit import any_stmt, map_stmt
from ..rewrite_util import SHARED_SCOPES, THREAD_TAGS, clone, const_int, named_buffers, redirected
from .background_copies import as_copies, copies_by_lanes
from .bulk_pipeline import bulk_pipeline, is_bulk_fill
from .far_pipeline import far_pipeline
from .fragment_pipeline import wants_fragments_ahead
from .interleave import first_half_first, interleaved, pieces_of, turning
from .order import ordered_pipeline
from .slots import (
    MAX_REGISTER_BYTES,
    has_branches,
    has_conditions,
    held_until,
    is_turned,
    through_registers,
    with_slots,
)


def pipeline(func: Func, target: Target) -> Func:
    """Loops over double-buffered shared memory as software pipelines; see the module."""

    threads: list[E.Var] = []
    nest: list[S.For] = []
    waves: list[S.For] = []  # the loop over threadIdx.z around

    def fs(s: S.Stmt, note: SoftwarePipeline | None) -> S.Stmt:
        if isinstance(s, S.For) and s.kind == S.ForKind.THREAD:
            if s.thread in THREAD_TAGS:
                threads.append(s.var)
                nest.append(s)
            if s.thread == "threadIdx.z":
                waves[:] = [s]
            out = map_stmt(s, lambda x: fs(x, None), _keep)
            if s.thread in THREAD_TAGS:
                threads.pop()
                nest.pop()
            return out
        if isinstance(s, S.Attr) and isinstance(s.note, SoftwarePipeline):
            return fs(_as_loop(s.body), s.note)
        if isinstance(s, S.Attr) and isinstance(s.note, SoftwarePipelineOrder):
            return in_given_order(fs(s.body, None), s.note)
        if isinstance(s, S.For) and s.kind in (S.ForKind.SERIAL, S.ForKind.UNROLLED):
            body = fs(s.body, None)
            s = s if body is s.body else s.with_body(body)
            stages = note.stages if note is not None else 0
            found = _find(s, stages) if target.is_gpu else None
            if found is None:
                return s
            slots = 1 if stages == 1 else max(2, stages)
            if all(is_bulk_fill(f) for f in found.fills):
                slots = min(slots, const_int(s.extent) or slots)  # a slot that no step fills is memory alone
            made = _Pipeline(s, found, max(2, stages), slots)
            slotted = stages == 2 and not _copies_in_background(target)
            far = None
            if note is not None and note.ahead > 1 and not note.direct and (stages == 1 or slotted):
                far = far_pipeline(made, note.ahead)
            if note is not None and note.direct and stages > 1:
                direct = made.build_direct(nest) if target.chip.loads_lds_by_16 else None
                # What is computed on its way goes through registers, and one slot is enough.
                made = _Pipeline(s, found, 2, 1)
                built = direct or made.build(target, threads)
            else:
                built = far or made.build(target, threads)
            if built is not None and note is not None and note.uneven and waves and target.kind == "rocm":
                built = S.seq(first_half_first(waves[0]), built)
            return built or s
        return map_stmt(s, lambda x: fs(x, note if isinstance(s, S.Attr) else None), _keep)

    return func.with_body(_drop_notes(fs(func.body, None)))


def _keep(e: E.Expr) -> E.Expr:
    return e


def _as_loop(s: S.Stmt) -> S.Stmt:
    """What a pipeline is asked of: its loop, or where that has one step and was taken away, one around bulk copies again: somebody has to wait for them."""
    inner = s
    while isinstance(inner, S.Attr):
        inner = inner.body
    if isinstance(inner, S.For) or not any_stmt(inner, lambda x: is_call(x, "bulk_load")):
        return s
    return S.For(E.Var("step"), B.const(0), B.const(1), s)


def in_given_order(s: S.Stmt, note: SoftwarePipelineOrder) -> S.Stmt:
    """The loop below a note in the note's order; where it had one step and is none any more, that step as it is."""
    if isinstance(s, S.Attr):
        return S.Attr(s.note, in_given_order(s.body, note))
    return ordered_pipeline(s, note) if isinstance(s, S.For) else s


def _drop_notes(s: S.Stmt) -> S.Stmt:
    if isinstance(s, S.Attr) and isinstance(s.note, FragmentsAhead):
        return _drop_notes(s.body)  # no pipeline around it
    out = map_stmt(s, _drop_notes, _keep)
    if isinstance(out, S.Alloc) and out.notes.double_buffer:
        return S.Alloc(out.buffer, out.body, replace(out.notes, double_buffer=False))
    return out


@dataclass
class _Body:
    """A loop body taken apart: wrappers around it, the pipelined buffers, the fills and the rest in order."""

    wrappers: list[S.Stmt] = field(default_factory=list)
    buffers: list[tuple[Buffer, S.StorageNotes]] = field(default_factory=list)
    fills: list[S.Stmt] = field(default_factory=list)
    rest: list[S.Stmt] = field(default_factory=list)


def _find(loop: S.For, stages: int) -> _Body | None:
    """The parts of a loop that can be pipelined, or None."""
    out = _Body()
    parts: list[S.Stmt] = []
    body: S.Stmt | None = loop.body
    while (
        body is not None
    ):  # Alloc(a, Seq(fill a, Alloc(b, Seq(fill b, work)))): one list of statements, and the wrappers
        if isinstance(body, S.Alloc):
            pipelined = body.buffer.scope in SHARED_SCOPES and (stages or body.notes.double_buffer)
            if pipelined:
                out.buffers.append((body.buffer, body.notes))
            else:
                out.wrappers.append(body)
            body = body.body
        elif isinstance(body, S.Attr) and not isinstance(body.note, FragmentsAhead):
            out.wrappers.append(body)
            body = body.body
        elif isinstance(body, S.Seq):
            parts.extend(body.stmts[:-1])
            body = body.stmts[-1]
        else:
            parts.append(body)
            body = None
    if not out.buffers:
        return None
    mine = {id(b) for b, _ in out.buffers}
    fill_reads: set[int] = set()
    made: set[int] = set()
    used = False
    opaque = [False, False]  # calls with an order of their own, in the fills and in the rest
    for s in parts:
        does = effects(s)
        reads, writes = does.reads, does.writes
        if writes & mine:
            # A fill must stand by itself, and before every use.
            if used or not writes <= mine or reads & mine:
                return None
            fill_reads |= reads
            opaque[0] |= does.is_opaque
            out.fills.append(s)
        else:
            used = used or bool(reads & mine)
            made |= writes
            opaque[1] |= does.is_opaque
            out.rest.append(s)
    # Bulk copies have barriers of their own, and somebody has to wait for them where there is one step.
    bulk = all(is_bulk_fill(f) for f in out.fills)
    if const_int(loop.extent) in (0, 1) and not bulk:
        return None
    ordered = all(opaque) and not bulk
    if fill_reads & made or ordered:  # a step's fill needs what the step before computes, or their calls have an order
        return None
    return out if out.fills and out.rest else None


class _Pipeline:
    def __init__(self, loop: S.For, body: _Body, stages: int, slots: int):
        self.loop = loop
        self.body = body
        self.stages = stages
        self.n_slots = slots
        self.ana = Analyzer()
        self.slots = {id(b): with_slots(b, slots) for b, _ in body.buffers}

    def slot_of(self, step: E.Expr) -> E.Expr:
        return B.floormod(step, self.n_slots) if self.n_slots > 1 else B.const(0, step.dtype)

    def build(self, target: Target, threads: list[E.Var]) -> S.Stmt | None:
        if all(is_bulk_fill(f) for f in self.body.fills):
            return self.build_bulk(threads)
        if self.n_slots > 1 and _copies_in_background(target):
            copies = [as_copies(f) for f in self.body.fills]
            if all(c is not None for c in copies):
                return self.build_async([c for c in copies if c is not None])
        loop, n = self.loop, self.stages - 1
        extent = const_int(loop.extent)
        simplify = self.ana.simplify
        known = extent is not None and extent >= self.stages
        one = loop.var.dtype
        parts: list[S.Stmt] = []
        for j in range(n):
            fill = self.fill(B.add(loop.min, B.const(j, one)), self.slot_of(B.const(j, one)))
            parts.append(fill if known else S.IfThenElse(B.compare("gt", loop.extent, j), fill))
        main_extent = simplify(B.sub(loop.extent, n) if known else B.maximum(B.sub(loop.extent, n), 0))
        var = E.Var(loop.var.name, one)
        step = B.sub(var, loop.min)
        ahead = B.add(var, n)
        loads, stores, registers = self.staged_fill(ahead, self.slot_of(B.add(step, n)), target)
        if not registers and self.n_slots < self.stages:
            return None
        work = self.wrapped(clone(S.seq(*self.body.rest), {}), var, self.slot_of(step))
        inside = self.one_step([loads] if loads is not None else [], work, [stores])
        for r in reversed(registers):
            inside = S.Alloc(r, inside)
        # Unrolled, a short loop would have the loads of all its steps under way at once, in more registers than there are.
        main = replace(loop, var=var, extent=main_extent, body=inside, unroll=loop.unroll or 1, pipelined=True)
        parts.append(main)
        tail_min = simplify(B.add(loop.min, main_extent))
        if extent is not None and n == 1 and known:
            at = simplify(B.sub(tail_min, loop.min))
            last = self.wrapped(clone(S.seq(*self.body.rest), {}), tail_min, simplify(self.slot_of(at)))
            parts.append(self.one_step([], last, []))
        else:
            tail = E.Var(loop.var.name, one)
            tail_extent = simplify(B.sub(loop.extent, main_extent))
            slot = self.slot_of(B.sub(tail, loop.min))
            rest = self.wrapped(clone(S.seq(*self.body.rest), {}), tail, slot)
            parts.append(S.For(tail, tail_min, tail_extent, self.one_step([], rest, [])))
        return self.in_storage(S.seq(*parts))

    def loads(self, fills: list[tuple[S.Stmt, S.Stmt, Buffer, int]], step: E.Expr, slot: E.Expr) -> S.Stmt:
        """The loads of a step into a set of registers."""
        return self.wrapped(clone(S.seq(*[x[0] for x in fills]), {}), step, slot)

    def one_step(self, loads: list[S.Stmt], work: S.Stmt, stores: list[S.Stmt]) -> S.Stmt:
        """What a step starts for a later one, its work, and what it stores for the next one; between each other where the work's note asks for it."""
        # Else the loads are started where their values are stored, behind the work, and each step waits for all of their latency.
        early = [_effect("keep_order")] if loads else []
        # Loads under conditions end in blocks of their own; LLVM then puts the wait for them, with the stores, before most of the work.
        late = [_effect("keep_order")] if any(has_conditions(f) for f in self.body.fills) else []
        if not wants_fragments_ahead([work]):
            return S.seq(*loads, *early, work, *late, *stores)
        if any(has_branches(f) for f in self.body.fills):
            return S.seq(*loads, *early, interleaved(work), *late, *stores)
        return interleaved(work, loads, stores)

    def build_bulk(self, threads: list[E.Var]) -> S.Stmt:
        """The pipeline on bulk copies; see bulk_pipeline."""

        def step(stmts: Sequence[S.Stmt], k: E.Expr, slot: E.Expr) -> S.Stmt:
            return self.wrapped(clone(S.seq(*stmts), {}), k, slot)

        out = bulk_pipeline(self.loop, self.body.fills, step, self.body.rest, self.n_slots, threads)
        return self.in_storage(out, ordered=True)

    def build_direct(self, threads: list[S.For]) -> S.Stmt | None:
        """Later steps' copies straight into their slots, a barrier a step, which waits for the next one's; None where they are not in the lanes' order, or
        steps are not counted. Where leaves can be filled ahead see `interleave.turning`."""
        loop, extent, one = self.loop, const_int(self.loop.extent), self.loop.var.dtype
        found = [copies_by_lanes(f, threads) for f in self.body.fills]
        copies = [c for c in found if c is not None]
        if self.n_slots < 2 or extent is None or extent < 2 or len(copies) < len(found):
            return None
        a_step = sum(1 for c in copies for _ in pieces_of(c))

        def at(stmts: Sequence[S.Stmt], step: E.Expr) -> S.Stmt:
            slot = self.ana.simplify(self.slot_of(self.ana.simplify(B.sub(step, loop.min))))
            return self.wrapped(clone(S.seq(*stmts), {}), step, slot)

        def work(step: E.Expr) -> S.Stmt:
            return at(self.body.rest, step)

        def loads(step: E.Expr) -> S.Stmt:
            return at(copies, step)

        def meeting(under_way: int) -> S.Stmt:
            waited = _effect("async_wait", n=under_way, copies=under_way * a_step)
            return S.seq(waited, _effect("barrier", scope="shared"))

        # Of two slots each has code of its own: offsets of shared memory are then constants, and a step has no vector arithmetic.
        like = replace(loop, body=S.NOP, unroll=loop.unroll or (2 if self.n_slots == 2 else 1), pipelined=True)
        whole = turning(work, loads, meeting, like, self.n_slots) if wants_fragments_ahead(self.body.rest) else None
        if whole is None:
            var, last = E.Var(loop.var.name, one), B.const(extent - 1, one)
            inside = self.one_step([loads(B.add(var, 1))], work(var), [_effect("keep_order"), meeting(0)])
            main = replace(like, var=var, extent=last, body=inside, unroll=1)
            whole = S.seq(loads(loop.min), meeting(0), main, self.one_step([], work(B.add(loop.min, last)), []))
        # What else lies in this memory comes later.
        return self.in_storage(S.seq(whole, meeting(0)), ordered=True)

    def build_async(self, copies: list[S.Stmt]) -> S.Stmt:
        """The pipeline on copies in the background; see the module."""
        loop, n = self.loop, self.stages - 1
        one = loop.var.dtype

        def start(step: E.Expr, slot: E.Expr, cond: E.Expr) -> S.Stmt:
            issue = self.wrapped(clone(S.seq(*copies), {}), step, slot)
            if not (isinstance(cond, E.IntImm) and cond.value):
                issue = S.IfThenElse(cond, issue)
            # A group each step, empty or not, so that the count of groups under way says which step they are of.
            return S.seq(issue, _effect("async_commit"))

        def in_range(k: E.Expr) -> E.Expr:
            cond: E.Expr = self.ana.simplify(B.compare("lt", k, loop.extent))
            return cond

        parts: list[S.Stmt] = []
        for j in range(n):
            at = B.const(j, one)
            parts.append(start(B.add(loop.min, at), self.slot_of(at), in_range(at)))
        var = E.Var(loop.var.name, one)
        step = B.sub(var, loop.min)
        ahead = B.add(step, n)
        work = self.wrapped(clone(S.seq(*self.body.rest), {}), var, self.slot_of(step))
        inside = S.seq(
            _effect("async_wait", n=n - 1),
            _effect("barrier", scope="shared"),
            start(B.add(var, n), self.slot_of(ahead), in_range(ahead)),
            work,
        )
        parts.append(replace(loop, var=var, body=inside))
        parts.append(_effect("async_wait", n=0))
        return self.in_storage(S.seq(*parts))

    def in_storage(self, out: S.Stmt, ordered: bool = False) -> S.Stmt:
        """The pipeline within the storage of its slots; `ordered`: see StorageNotes."""
        for b, notes in reversed(self.body.buffers):
            out = S.Alloc(
                self.slots[id(b)],
                out,
                replace(notes.below_new_axis(), double_buffer=False, ordered=ordered or notes.ordered),
            )
        return out

    def fill(self, step: E.Expr, slot: E.Expr) -> S.Stmt:
        """The fills of one step, straight into a slot."""
        return self.wrapped(clone(S.seq(*self.body.fills), {}), step, slot)

    def wrapped(self, s: S.Stmt, step: E.Expr, slot: E.Expr) -> S.Stmt:
        """`s` for one step of the loop, its pipelined buffers replaced by their slot, inside of the body's wrappers."""
        named = named_buffers(s) if any(isinstance(w, S.Alloc) for w in self.body.wrappers) else ()
        for w in reversed(self.body.wrappers):
            if isinstance(w, S.Alloc):
                if id(w.buffer) in named:
                    s = S.Alloc(w.buffer, s, w.notes)
            elif isinstance(w, S.Attr):
                s = S.Attr(w.note, s)
        return redirected(clone(s, {self.loop.var: step}), self.slots, slot)

    # ---- through registers

    def staged_fill(self, step: E.Expr, slot: E.Expr, target: Target) -> tuple[S.Stmt | None, S.Stmt, list[Buffer]]:
        """(loads into registers, stores from them into the slot, the registers); without loads where a fill is no plain
        nest of loops or too large, and then the stores are the whole fill."""
        loads: list[S.Stmt] = []
        stores: list[S.Stmt] = []
        registers: list[Buffer] = []
        room = MAX_REGISTER_BYTES
        for f in self.body.fills:
            staged = through_registers(f, room)
            if staged is None:
                return self.fill(step, slot), S.NOP, []
            load, store, register, used = staged
            room -= used
            loads.append(load)
            stores.append(store)
            registers.append(register)
        if target.chip.family.startswith("cdna") and any(
            _turns_words(f, r) for f, r in zip(self.body.fills, registers)
        ):
            # Turned words of 32 bits are copies of registers, which LLVM else makes where the loads are, waiting for each.
            stores = [_effect("keep_order"), *map(held_until, registers), *stores]
        return (
            self.wrapped(clone(S.seq(*loads), {}), step, slot),
            self.wrapped(clone(S.seq(*stores), {}), step, slot),
            registers,
        )


def _turns_words(fill: S.Stmt, register: Buffer) -> bool:
    """Whether a fill's registers are float32 that lie otherwise in shared memory than in global."""
    return register.dtype == "float32" and is_turned(fill)


def _effect(op: str, **attrs: Any) -> S.Stmt:
    return S.Evaluate(E.Call(op, (), "int32", attrs or None))


def _copies_in_background(target: Target) -> bool:
    """Whether a thread can start copies of a few bytes from global to shared memory, each to an address of its own."""
    return target.chip.async_lds and target.chip.family == "sm"
