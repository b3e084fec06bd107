"""What parting a kernel's work among warpgroups takes, whatever is parted (`specialize_warps`: one loop; `specialize_region`: a whole kernel).

Filled buffers have slots, and each ring of slots two barriers a slot in memory. One thread of one more warpgroup walks through the loops and conditions around the
loads, and for each load waits until its slot is empty, announces the bytes and starts the copies; the other warpgroups do the rest of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from ....errors import LoweringError
from ....records import dataclass
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...effects import is_call
from ...matrix import WARPGROUP
from ...visit import any_stmt, free_vars, map_expr, map_stmt, map_stmts, visit
from ..rewrite_util import SHARED_SCOPES
from .bulk import effect, is_bulk_fill, loaded_bytes, of_group, reporting
from .slots import with_slots

_FILE_REGISTERS = 1 << 16  # 32-bit registers of a multiprocessor
# Of the fetching warpgroup's threads: addresses and counters (24 made ptxas spill with many boxes).
_FETCH_REGISTERS = 40
# That setmaxnreg gives a thread so that three warpgroups still fit: 2 * 128 * 240 + 128 * 24 = 64 K.
_MOST_REGISTERS = 240
_ANY_REGISTERS = 255  # of one thread


@dataclass(slots=True)
class Ring:
    """Where a part of the kernel stands in the ring of slots: its slot and that slot's phase, in registers."""

    stages: int
    slot: Buffer = field(default_factory=lambda: Buffer("slot", "int32", (B.const(1),), (), 0, "local"))
    phase: Buffer = field(default_factory=lambda: Buffer("phase", "int32", (B.const(1),), (), 0, "local"))

    def at(self) -> E.Expr:
        return E.BufferLoad(self.slot, (B.const(0),))

    def parity(self) -> E.Expr:
        return E.BufferLoad(self.phase, (B.const(0),))

    def skip(self, steps: E.Expr) -> S.Stmt:
        """Past so many steps, which another part of the kernel works on."""
        to = E.Var("past", "int32")
        rounds = B.bitwise_and(B.floordiv(to, self.stages), B.const(1))
        turned = S.BufferStore(self.phase, B.bitwise_xor(self.parity(), rounds), (B.const(0),))
        moved = S.BufferStore(self.slot, B.floormod(to, self.stages), (B.const(0),))
        return S.LetStmt(to, B.add(self.at(), steps), S.seq(turned, moved))

    def start(self, body: S.Stmt) -> S.Stmt:
        zero = (B.const(0),)
        first = S.seq(S.BufferStore(self.slot, B.const(0), zero), S.BufferStore(self.phase, B.const(0), zero), body)
        return S.Alloc(self.slot, S.Alloc(self.phase, first))

    def advance(self) -> S.Stmt:
        last = B.compare("eq", self.at(), self.stages - 1)
        turned = S.BufferStore(
            self.phase, B.select(last, B.bitwise_xor(self.parity(), B.const(1)), self.parity()), (B.const(0),)
        )
        moved = S.BufferStore(self.slot, B.select(last, B.const(0), B.add(self.at(), 1)), (B.const(0),))
        return S.seq(turned, moved)


class Slots:
    """A ring of slots: its barriers, and where each part of the kernel stands in it."""

    def __init__(self, prefix: str, slots: int):
        shape = (B.const(slots),)
        self.full, self.empty = (Buffer(f"{prefix}{n}", "uint64", shape, (), 0, "shared") for n in ("full", "empty"))
        self.slots = slots
        self.fetched, self.used = Ring(slots), Ring(slots)


class Roles:
    """`workers` warpgroups multiply, one more fetches. `group`: the launch index that counts them, `thread` that of a warpgroup's threads."""

    def __init__(self, name: str, thread: E.Var, group: E.Var, workers: int):
        self.name = name
        self.thread, self.group, self.workers = thread, group, workers
        self.uniform = E.Var("warpgroup")  # the group's number, known to be the same in all lanes
        self.resident = 1  # work-groups that a multiprocessor is to hold
        self.releases = workers  # of a slot: by each of the warpgroups that work on it
        self.rings: dict[int, Slots] = {}  # by the filled buffer; several may share one
        self.slots: dict[int, Buffer] = {}  # by the filled buffer: what holds all of its slots

    def error(self, message: str, hint: str | None = None) -> LoweringError:
        return LoweringError(f"{message} (function {self.name!r})", hint=hint)

    def in_ring(self, b: Buffer, ring: Slots) -> None:
        """Let a filled buffer have the slots of a ring."""
        self.rings[id(b)] = ring
        self.slots[id(b)] = with_slots(b, ring.slots)

    def parts(self, fetch: S.Stmt, work: S.Stmt, state: tuple[Buffer, ...] = ()) -> S.Stmt:
        """The kernel: barriers made ready by one thread, then `fetch` by one thread of the last warpgroup, `work` by all of the others, with registers `state`."""
        rings = list({id(r): r for r in self.rings.values()}.values())
        init = S.seq(*[self.ready(r) for r in rings])
        buffers = [*self.slots.values(), *[b for r in rings for b in (r.full, r.empty)]]
        for r in rings:
            fetch, work = r.fetched.start(fetch), r.used.start(work)
        for b in state:
            work = S.Alloc(b, work)
        fewer, more = self.registers()
        fetching = S.seq(*self.set_registers(fewer, False), S.IfThenElse(B.compare("eq", self.thread, 0), fetch))
        working = S.seq(*self.set_registers(more, True), work)
        first = B.all_of(B.compare("eq", self.thread, 0), B.compare("eq", self.group, 0))
        out = S.seq(
            S.IfThenElse(first, S.seq(init, effect("mbarrier_fence"))),
            effect("barrier", scope="shared"),
            effect("early_wait"),  # what stands above touches nothing that a kernel ahead writes
            S.LetStmt(
                self.uniform,
                E.Call("readfirstlane", (self.group,), self.group.dtype),
                S.IfThenElse(B.compare("eq", self.uniform, self.workers), fetching, working),
            ),
        )
        for b in buffers:
            out = S.Alloc(b, out, S.StorageNotes(ordered=True))
        return out

    def ready(self, ring: Slots) -> S.Stmt:
        """The barriers of a ring begin: a slot is full by one arrival, empty by one of each warpgroup that works on it."""
        out = []
        for k in range(ring.slots):
            for barriers, arrivals in ((ring.full, 1), (ring.empty, self.releases)):
                out.append(effect("mbarrier_init", E.BufferLoad(barriers, (B.const(k),)), B.const(arrivals)))
        return S.seq(*out)

    def registers(self) -> tuple[int, int]:
        """Registers a thread of the fetching and of the working warpgroups; 0 where all have what they can use anyway."""
        if self.workers * self.resident < 2:
            return 0, 0
        left = _FILE_REGISTERS // WARPGROUP // self.resident - _FETCH_REGISTERS
        return _FETCH_REGISTERS, min(_MOST_REGISTERS, left // self.workers // 8 * 8)

    def available(self) -> int:
        """Registers that a working thread may have."""
        alone = _FILE_REGISTERS // (WARPGROUP * (self.workers + 1) * self.resident)
        return self.registers()[1] or min(_ANY_REGISTERS, alone)

    def set_registers(self, n: int, more: bool) -> list[S.Stmt]:
        return [effect("set_registers", n=n, more=more)] if n else []

    def expr_in_slot(self, e: E.Expr, slot_of: Callable[[Buffer], E.Expr], group: bool = False) -> E.Expr:
        """`e` with the buffers of rings replaced by their slot; `group`: warpgroup operands named by the uniform number."""

        def fe(e: E.Expr) -> E.Expr:
            out = map_expr(of_group(e, {self.group: self.uniform}) if group else e, fe)
            if type(out) is E.BufferLoad and id(out.buffer) in self.slots:
                return E.BufferLoad(self.slots[id(out.buffer)], (slot_of(out.buffer), *out.indices), out.predicate)
            return out

        return fe(e)

    def in_slot(self, s: S.Stmt, slot: E.Expr, group: bool = False) -> S.Stmt:
        """A statement likewise, all of its buffers in one slot."""

        def fe(e: E.Expr) -> E.Expr:
            return self.expr_in_slot(e, lambda _: slot, group)

        def fs(x: S.Stmt) -> S.Stmt:
            out = map_stmt(x, fs, fe)
            if isinstance(out, S.BufferStore) and id(out.buffer) in self.slots:
                raise self.error(f"{out.buffer.name} is filled by a bulk copy and by threads")
            return out

        return fs(s)

    def bare(self, s: S.Stmt) -> S.Stmt:
        """Without the filled buffers' allocations."""
        if isinstance(s, S.Alloc) and id(s.buffer) in self.rings:
            return self.bare(s.body)
        return map_stmts(s, self.bare)

    # ---- the part that fetches

    def fetch(self, s: S.Stmt) -> S.Stmt | None:
        """What is left of a statement for the thread that fetches."""
        if isinstance(s, S.Seq) or is_bulk_fill(s):
            kept = [
                self.fill(x, self.rings[id(filled_by(x[0]))]) if isinstance(x, list) else self.fetch(x)
                for x in self.runs(s)
            ]
            left = [x for x in kept if x is not None]
            return S.seq(*left) if left else None
        if isinstance(s, S.For):
            body = self.fetch(s.body)
            if body is None:
                return None
            self.plain(s.min, s.extent)
            return self.fetch_loop(s, body)
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

    def fetch_loop(self, s: S.For, body: S.Stmt) -> S.Stmt:
        """A loop around loads."""
        return S.For(s.var, s.min, s.extent, body, S.ForKind.SERIAL, "", unroll=1)

    def fill(self, loads: list[S.Stmt], ring: Slots) -> S.Stmt:
        """Loads into the next slot of a ring, once that is empty."""
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

    def runs(self, s: S.Stmt) -> list[S.Stmt | list[S.Stmt]]:
        """The statements of a sequence, with neighbours that fill one ring together: the boxes of a tile, the tiles of a step."""
        out: list[S.Stmt | list[S.Stmt]] = []
        for x in s.stmts if isinstance(s, S.Seq) else (s,):
            last = out[-1] if out else None
            if not is_bulk_fill(x):
                out.append(x)
            elif isinstance(last, list) and self.rings[id(filled_by(last[0]))] is self.rings[id(filled_by(x))]:
                last.append(x)
            else:
                out.append([x])
        return out


def shared_buffers(s: S.Stmt) -> list[Buffer]:
    """The shared buffers that a statement allocates, outer ones first."""
    found: list[Buffer] = []

    def on_stmt(x: S.Stmt) -> None:
        if isinstance(x, S.Alloc) and x.buffer.scope in SHARED_SCOPES:
            found.append(x.buffer)

    visit(s, None, on_stmt)
    return found[::-1]


def operand(call: E.Call) -> Buffer:
    load = call.args[0]
    assert isinstance(load, E.BufferLoad)
    return load.buffer


def filled_by(s: S.Stmt) -> Buffer:
    """The buffer that a fill's first load fills."""
    if isinstance(s, S.Seq):
        return filled_by(s.stmts[0])
    if isinstance(s, S.IfThenElse):
        return filled_by(s.then)
    assert isinstance(s, S.Evaluate) and isinstance(s.value, E.Call)
    return operand(s.value)
