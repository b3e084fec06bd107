"""A loop that fills shared memory: its parts, and their statements for a step within the slots of the shared buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....records import dataclass
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...arith import Analyzer
from ...effects import effects, is_call
from ...visit import any_expr, map_stmts
from ..rewrite_util import SHARED_SCOPES, const_int
from .body import Body
from .bulk import effect, is_bulk_fill
from .expand import Item, Turn
from .leaves import KEPT, interleaved, wants_leaves
from .slots import has_branches, has_conditions, with_slots


@dataclass(slots=True)
class Fills:
    """A loop's body whose statements are fills of shared buffers, and the rest that works on them."""

    body: Body
    slotted: list[S.Alloc]
    fills: list[S.Stmt]
    rest: list[S.Stmt]

    @property
    def are_bulk(self) -> bool:
        return all(map(is_bulk_fill, self.fills))

    @property
    def by_warpgroups(self) -> bool:
        """Whether warpgroup products work on them, which read by another way than threads write: who writes says so (`proxy_fence`)."""
        return any(
            any_expr(s, lambda e: isinstance(e, E.Call) and e.op in ("wgmma", "wgmma_registers")) for s in self.rest
        )

    def settled(self) -> Fills:
        """The same where a step waits for all of its products: what threads store themselves may come behind them."""

        def fs(s: S.Stmt) -> S.Stmt:
            if isinstance(s, S.Evaluate) and is_call(s, "wgmma_wait"):
                return effect("wgmma_wait", n=0)
            return map_stmts(s, fs)

        return replace(self, rest=[fs(s) for s in self.rest]) if self.by_warpgroups else self

    @staticmethod
    def of(loop: S.For, all_shared: bool, of_one: bool = False) -> Fills | None:
        """The parts of a loop that can be pipelined, or None. all_shared: of shared buffers all, not those alone that ask to be double-buffered. of_one: a loop of one step
        is a pipeline as well."""
        body = Body.of(loop.body)
        slotted = [a for a in body.allocs if a.buffer.scope in SHARED_SCOPES and (all_shared or a.notes.double_buffer)]
        out = Fills(body, slotted, [], [])
        mine = {id(a.buffer) for a in slotted}
        fill_reads: set[int] = set()
        made: set[int] = set()
        used = False
        opaque = [False, False]  # calls with an order of their own, in the fills and in the rest
        for s in body.parts:
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
        if not slotted or (const_int(loop.extent) in (0, 1) and not (out.are_bulk or of_one)):
            return None
        # A step's fill needs what the step before computes, or their calls have an order.
        if fill_reads & made or (all(opaque) and not out.are_bulk):
            return None
        return out if out.fills and out.rest else None


class Pipeline:
    """`depth` is how many turns a step's fills are ahead; its buffers have `slots`."""

    def __init__(self, loop: S.For, parts: Fills, depth: int, slots: int):
        self.loop, self.parts, self.depth, self.n_slots = loop, parts, depth, slots
        self.ana = Analyzer()
        self.fence = [effect("proxy_fence")] if parts.by_warpgroups else []  # behind what threads store
        self.slots = {id(a.buffer): with_slots(a.buffer, slots) for a in parts.slotted}

    # ---- statements of a step

    def at(self, stmts: Sequence[S.Stmt], t: Turn, ahead: int = 0, slot_of: E.Expr | None = None) -> S.Stmt:
        """Statements for the step so many turns ahead, in its slot, which is that of a step counted `slot_of` too."""
        count = self.ana.simplify(t.count(ahead) if slot_of is None else slot_of)
        slot = B.floormod(count, self.n_slots) if self.n_slots > 1 else B.const(0, count.dtype)
        return self.parts.body.in_step(self.loop, stmts, t.step(ahead), self.slots, self.ana.simplify(slot))

    def filled(self, ahead: int, part: str = "") -> Item:
        """The fills of a step so many turns ahead, straight into its slot."""

        def make(t: Turn) -> S.Stmt:
            return S.seq(t.guard(ahead, self.at(self.parts.fills, t, ahead)), *self.fence)

        return Item(make, ahead, part)

    def work(self, t: Turn, ahead: int = 0) -> S.Stmt:
        return self.at(self.parts.rest, t, ahead)

    def one_step(self, loads: list[S.Stmt], work: S.Stmt, stores: list[S.Stmt]) -> S.Stmt:
        """What a step starts for a later one, its work, and what it stores for the next one; between each other where the work's note asks for it."""
        # Else the loads are started where their values are stored, behind the work, and each step waits for all of their latency.
        early = [KEPT] if loads else []
        # Loads under conditions end in blocks of their own; LLVM then puts the wait for them, with the stores, before most of the work.
        late = [KEPT] if any(map(has_conditions, self.parts.fills)) else []
        if not wants_leaves([work]):
            return S.seq(*loads, *early, work, *late, *stores)
        if any(map(has_branches, self.parts.fills)):
            return S.seq(*loads, *early, interleaved(work), *late, *stores)
        return interleaved(work, loads, stores)

    def in_storage(self, out: S.Stmt, ordered: bool = False) -> S.Stmt:
        """The pipeline within the storage of its slots; `ordered`: see StorageNotes."""
        for a in reversed(self.parts.slotted):
            notes = replace(a.notes.below_new_axis(), double_buffer=False, ordered=ordered or a.notes.ordered)
            out = S.Alloc(self.slots[id(a.buffer)], out, notes)
        return out
