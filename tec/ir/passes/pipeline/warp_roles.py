"""What parting a kernel's work among warpgroups takes, whatever is parted (`specialize_warps`: one loop; `specialize_region`: a whole kernel)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ....errors import LoweringError
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...matrix import WARPGROUP
from ...visit import map_expr, map_stmt, substitute
from .bulk import effect

_FILE_REGISTERS = 1 << 16  # 32-bit registers of a multiprocessor
_FETCH_REGISTERS = (
    40  # of the fetching warpgroup's threads: addresses and counters (24 made ptxas spill with many boxes)
)
_MOST_REGISTERS = (
    240  # that setmaxnreg gives a thread so that three warpgroups still fit: 2 * 128 * 240 + 128 * 24 = 64 K
)
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


class Roles:
    """`workers` warpgroups multiply, one more fetches. `group`: the launch index that counts them, `thread` that of a warpgroup's threads."""

    def __init__(self, name: str, thread: E.Var, group: E.Var, workers: int):
        self.name = name
        self.thread, self.group, self.workers = thread, group, workers
        self.uniform = E.Var("warpgroup")  # the group's number, known to be the same in all lanes
        self.resident = 1  # work-groups that a multiprocessor is to hold
        self.releases = workers  # of a slot: by each of the warpgroups that work on it
        self.slots: dict[int, Buffer] = {}  # by the buffer that a ring stands for

    def error(self, message: str, hint: str | None = None) -> LoweringError:
        return LoweringError(f"{message} (function {self.name!r})", hint=hint)

    def parts(self, init: S.Stmt, fetch: S.Stmt, work: S.Stmt, buffers: Sequence[Buffer]) -> S.Stmt:
        """The kernel: barriers made ready by one thread, then `fetch` by one thread of the last warpgroup, `work` by all of the others."""
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

    def ready(self, full: Buffer, empty: Buffer, slots: int) -> S.Stmt:
        """The barriers of a ring begin: a slot is full by one arrival, empty by one of each warpgroup that works on it."""
        out = []
        for k in range(slots):
            for barriers, arrivals in ((full, 1), (empty, self.releases)):
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
            if group and type(e) is E.Call and e.op == "wgmma":
                a, b, acc = e.args
                uniform = [fe(substitute(x, {self.group: self.uniform})) for x in (a, b)]
                return E.Call(e.op, (*uniform, fe(acc)), e.dtype, e.attrs)
            out = map_expr(e, fe)
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


__all__ = ["Ring", "Roles"]
