"""Loads of a loop that feed no product, ahead of their iterations: copies in the background to slots of shared memory, from which threads take them when their turn comes.

A loop does so whose author asks for it (`tl.range(..., num_stages=n)`), where n is at least 2. Each thread copies what it reads itself, in accesses of 4 to 16 bytes.
Where a mask is false a copy brings zeros, and what the program has there is put in their place on the way to the registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import close
from ..ir.buffer import SHARED, Buffer
from ..ir.dtype import dtype_info
from .boxes import Boxes
from .grammar import Block, Op, Value
from .reading import rows
from .state import Held, Point, begin, lane_of

_COPIED_BYTES = (4, 8, 16)  # by one copy of a thread


class Streams(Boxes):
    """Loads that go ahead of their loop."""

    streams: dict[int, Buffer]  # by the tile: its slot

    def streamed(self, loop: Op, block: Block, room: int, slice_of: Callable[[Op], set[int] | None]) -> list[Any]:
        """The loads of a loop's body that may go ahead, each with its slot and the ops that its addresses are made of. `room`: bytes that slots may take."""
        stages = int(loop.attrs.get("stages") or 1)
        if not loop.attrs.get("asked") or stages < 2 or self.target.kind != "cuda" or not self.target.chip.async_lds:
            return []
        out: list[Any] = []
        for op in block.ops:
            if op.name != "load" or not op.results[0].ty.shape or any(u.name == "dot" for u in self._readers(op)):
                continue
            v = op.results[0]
            size = dtype_info(v.ty.dtype.tec).bytes
            layout = self.natural(v)
            lanes, _ = self.vectors(op, layout)
            count = v.ty.size
            if lanes * size not in _COPIED_BYTES or self.base(op.operands[0]).dtype != v.ty.dtype.tec:
                continue
            needed = slice_of(op)
            if needed is None or count * size * 2 > room:
                continue
            room -= count * size * 2
            slot = Buffer("ahead", v.ty.dtype.tec, (E.IntImm(count),), (), 0, SHARED, 16, loc=op.loc)
            out.append((op, needed, slot))
        return out

    def _readers(self, load: Op) -> list[Op]:
        return self.users.get(id(load.results[0]), [])

    def fill_stream(self, load: Op, needed: set[int], slot: Buffer, block: Block, start: Callable[[], None]) -> S.Stmt:
        """The copies of a turn's tile into its slot. `start` says what the turn's values are."""
        with self.written_out(), self.block() as items:
            start()
            for op in block.ops:
                if id(op) in needed:
                    self.op(op)
            v = load.results[0]
            layout = self.natural(v)
            lanes, along = self.vectors(load, layout)
            zero = B.cast(v.ty.dtype.tec, B.const(0, "int32"))
            read, owner = self.access(load, layout, along, lambda p: zero), self.leader(layout)
            at = _places(v, slot)

            def put(p: Point) -> S.Stmt:
                s = self.store(slot, [at(p)], read(p))
                return self.guarded(s, owner, loc=load.loc)

            self.visit(layout, put, lanes, along)
        return close(items)

    def read_from_stream(self, op: Op) -> bool:
        """Make a load of what its loop has brought to shared memory; False for a load that no loop brings."""
        v = op.results[0]
        slot = self.streams.get(id(v))
        if slot is None:
            return False
        layout = self.natural(v)
        lanes, along = self.vectors(op, layout)
        at = _places(v, slot)
        mask = self.reader(op.operands[1], layout) if len(op.operands) > 2 else None
        other = self.other(op, layout)
        buffer = self.array("loaded", v.ty.dtype.tec, [d.held for d in layout])

        def take(p: Point) -> S.Stmt:
            value: E.Expr = E.BufferLoad(slot, (at(p),))
            value = value if mask is None else B.select(mask(p), value, other(p))
            return self.store(buffer, [a.register for a in p], value)

        self.visit(layout, take, lanes, along)
        self.held[id(v)] = Held(buffer, layout)
        return True


__all__ = ["Streams"]


def _places(v: Value, slot: Buffer) -> Callable[[Point], E.Expr]:
    """Where the elements of a point of a tile begin in its slot."""
    place, _ = rows(v.ty.shape, slot.dtype, False)

    def at(p: Point) -> E.Expr:
        first, lane = place([a.at for a in begin(p)]), lane_of(p)
        return first if lane is None else B.add(first, lane)

    return at
