"""Software pipelines in the order that a schedule gives: for each statement of a loop's body its stage, and its place in a turn.

    with software_pipeline_order((0, 0, 1), (1, 2, 0)):
        for k in range(16):
            a = A[k]                      stage 0, second in a turn
            b = B[k]                      stage 0, third
            C[0] += a * b                 stage 1, first

A statement of stage s works on step k of the loop in turn k + s. So here each turn sums what the turn before has loaded, and then loads for the next. Storage
that the body allocates gets as many slots as it has steps alive at a time (1 + the stages between a value's first write and its last read, one less where that read comes earlier
in a turn than the write). An order is refused where it would change what the loop computes: `check` compares every two statements that touch one buffer.

Source: TVM's `software_pipeline_stage` and `software_pipeline_order` (InjectSoftwarePipeline); Triton's PipelineExpander.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from ....errors import LoweringError
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...effects import Effects, effects
from ...notes import SoftwarePipelineOrder
from ...visit import visit
from ..rewrite_util import first_place, redirected
from .body import Body
from .expand import Item, Turn, expand, in_order
from .slots import with_slots

MOST_REGISTER_SLOTS = 8  # turns of a trip, written out so that each slot of local storage is a register of its own
_WITHIN, _ACROSS = "within a step", "from one step to the next"


def ordered_pipeline(loop: S.For, note: SoftwarePipelineOrder) -> S.Stmt:
    """The loop in the order of the note; one stage alone changes nothing, as one statement has nothing to overlap with. Raises LoweringError, at the user's line, for an order of another number of statements, and for one that changes what is computed."""
    body = Body.of(loop.body)
    if loop.kind not in (S.ForKind.SERIAL, S.ForKind.UNROLLED):
        raise _refused(loop, f"its loop is {loop.kind}", "pipeline a serial loop: its steps follow each other")
    if len(note.stage) == 1:
        return loop  # where the loop had one step and was taken away, it may be another one
    if len(note.stage) != len(body.parts):
        listed = "".join(f"\n    {n}: {_told(s)}" for n, s in enumerate(body.parts))
        what = f"it has {len(note.stage)} stages, and the loop's body {len(body.parts)} statements:{listed}"
        raise _refused(loop, what, "one stage (and one place) for each statement, in the order of the body")
    row = _Row(loop, body.parts, note)
    own = {id(a.buffer): row.slots(a.buffer) for a in body.allocs}
    shared = [a for a in body.allocs if row.is_shared(a.buffer)]
    slotted = {id(a.buffer): with_slots(a.buffer, own[id(a.buffer)]) for a in shared if own[id(a.buffer)] > 1}
    row.check_slotted({id(a.buffer.data): a.buffer for a in shared if id(a.buffer) in slotted})
    last = max(note.stage)
    counts = {k: int(n) for k, n in own.items() if k in slotted}

    def item(n: int) -> Item:
        ahead = last - note.stage[n]

        def make(t: Turn) -> S.Stmt:
            step = t.step(ahead)
            s = body.in_step(loop, [body.parts[n]], step, {}, step, [a.buffer for a in shared])
            return t.guard(ahead, _in_slots(s, slotted, counts, B.sub(step, loop.min)))

        return Item(make, ahead)

    turn = in_order([item(n) for n in note.places])
    registers = [counts[id(a.buffer)] for a in shared if id(a.buffer) in counts and a.buffer.scope == "local"]
    together = max(registers, default=1)
    if together > MOST_REGISTER_SLOTS or any(together % n for n in registers):
        together = 1
    out = expand(replace(loop, unroll=loop.unroll or 1, pipelined=last > 0), last, turn, together).stmt
    for a in reversed(shared):
        if id(a.buffer) in slotted:
            out = S.Alloc(slotted[id(a.buffer)], out, replace(a.notes.below_new_axis(), double_buffer=False))
        else:
            out = S.Alloc(a.buffer, out, replace(a.notes, double_buffer=False))
    return out


def _in_slots(s: S.Stmt, slotted: dict[int, Buffer], counts: dict[int, int], step: E.Expr) -> S.Stmt:
    """A statement's storage in the slots of its step, counted from 0."""
    for n in sorted(set(counts.values())):
        mine = {k: b for k, b in slotted.items() if counts[k] == n}
        s = redirected(s, mine, B.floormod(step, n))
    return s


class _Row:
    """The statements of a body with what they touch, and when each works on a step."""

    def __init__(self, loop: S.For, parts: Sequence[S.Stmt], note: SoftwarePipelineOrder):
        self.loop, self.parts = loop, parts
        self.when = list(zip(note.stage, note.order))
        self.does = [effects(s) for s in parts]
        self.own: set[int] = set()
        self.check(Body.of(loop.body))

    def touches(self, n: int) -> dict[int, tuple[Buffer, bool]]:
        """The storage that a statement touches, by its data, and whether it writes there."""
        out: dict[int, tuple[Buffer, bool]] = {}
        for a in self.does[n].accesses:
            out[id(a.buffer.data)] = a.buffer, a.is_write or out.get(id(a.buffer.data), (a.buffer, False))[1]
        return out

    def is_shared(self, b: Buffer) -> bool:
        """Whether more than one statement touches a buffer."""
        return sum(id(b.data) in self.touches(n) for n in range(len(self.parts))) > 1

    def slots(self, b: Buffer) -> int:
        """Steps of whose values a buffer holds at a time: so many turns later a step's first access comes behind all accesses of this one."""
        users = [
            (self.when[n], t[id(b.data)][1]) for n in range(len(self.parts)) if id(b.data) in (t := self.touches(n))
        ]
        least = 1
        for (stage, place), writes in users:
            for (later, at), also in users:
                if writes or also:
                    least = max(least, stage - later + (place >= at))
        return least

    def check(self, body: Body) -> None:
        """Refuse an order that changes what is computed: of a buffer that the body allocates the accesses of one step keep their order, of any other those of all steps."""
        own = {id(a.buffer.data): a.buffer for a in body.allocs}
        for i, j in itertools.combinations(range(len(self.parts)), 2):
            first, second = self.touches(i), self.touches(j)
            met = [(first[k][0], k in own) for k in first.keys() & second.keys() if first[k][1] or second[k][1]]
            (s_i, p_i), (s_j, p_j) = self.when[i], self.when[j]
            if (met or self.both_opaque(i, j)) and (s_i, p_i) > (s_j, p_j):
                raise self.crossed(i, j, met[0][0] if met else None, _WITHIN)
            # Of all steps: what the second does for a step comes before what the first does for the next one.
            kept = [b for b, is_own in met if not is_own]
            if (kept or self.both_opaque(i, j)) and (s_j, p_j) > (s_i + 1, p_i):
                raise self.crossed(i, j, kept[0] if kept else None, _ACROSS)

    def check_slotted(self, buffers: dict[int, Buffer]) -> None:
        """Refuse slots for storage whose name stands where no slot can be said: the results of a reduction over threads, and views."""
        for n, (s, does) in enumerate(zip(self.parts, self.does)):
            reduced: list[Buffer] = []
            visit(s, None, lambda x, out=reduced: out.extend(x.dests) if isinstance(x, S.AllReduce) else None)  # type: ignore[misc]
            views = [a.buffer for a in does.accesses if a.buffer is not buffers.get(id(a.buffer.data), a.buffer)]
            for why, found in (("reduces over threads into", reduced), ("goes through a view of", views)):
                b = next((buffers[id(x.data)] for x in found if id(x.data) in buffers), None)
                if b is not None:
                    what = (
                        f"statement {n} {why} {b.name}, which would need slots for several steps:\n    {n}: {_told(s)}"
                    )
                    raise _refused(self.loop, what, f"the same stage for all statements that touch {b.name}")

    def both_opaque(self, i: int, j: int) -> bool:
        """Whether both make calls that have an order of their own."""
        return self.does[i].is_opaque and self.does[j].is_opaque

    def crossed(self, i: int, j: int, b: Buffer | None, where: str) -> LoweringError:
        both = "make calls that keep their order" if b is None else f"touch {b.name}"
        (s_i, p_i), (s_j, p_j) = self.when[i], self.when[j]
        pair = f"\n    {i} (stage {s_i}, place {p_i}): {_told(self.parts[i])}\n    {j} (stage {s_j}, place {p_j}): {_told(self.parts[j])}"
        return _refused(
            self.loop, f"statements {i} and {j} both {both}, and would change their order {where}:{pair}",
            "give the second a later stage, or the first an earlier place" if where == _WITHIN else "give both the same stage, or the second the next one and an earlier place",
        )  # fmt: skip


def _told(s: S.Stmt) -> str:
    """A statement in a line: what it writes and what it reads."""
    does: Effects = effects(s)
    writes = {a.buffer.name for a in does.accesses if a.is_write}
    reads = {a.buffer.name for a in does.accesses if not a.is_write} - writes
    of = f" from {', '.join(sorted(reads))}" if reads else ""
    return f"writes {', '.join(sorted(writes))}{of}" if writes else str(s).splitlines()[0]


def _refused(loop: S.For, why: str, hint: str) -> LoweringError:
    return LoweringError(
        f"software_pipeline of loop {loop.var.name}: {why}", where=first_place(loop.body), hint=hint, locate=False
    )
