"""Products by warpgroups (wgmma): begun together, and in a pipelined loop waited for a turn later.

A turn of a loop whose products read what its pipeline brings:

    wait for this turn's tiles, meet
    begin the first product                      it reads shared memory while the threads go on
    wait for what was begun before it            for itself too, unless its sums are only handed on to the next turn
    meet, start the copies of a later turn       into the slot of the turn before, which nobody reads any more
    the rest; a last product may stay in flight

A product stays in flight over the end of a turn if its sums are carried, nothing else of the turn reads them, and its operands lie in slots or registers.

Source: PTX ISA, "wgmma.wait_group"; Triton's WGMMAPipeline, from the PTX that it emits.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.buffer import LOCAL, Buffer
from ..ir.dtype import dtype_info
from ..ir.matrix import WARPGROUP
from ..records import dataclass
from .boxes import LINE_BYTES
from .grammar import Block, Op, Value
from .operands import Place, Unit, is_zero
from .state import ZERO, Held, Point
from .units import Units


@dataclass(slots=True)
class Flight:
    """Products of a loop's body: the first one, and where the sums of those are that a turn may leave in flight, by the product."""

    first: Op
    late: dict[int, tuple[Unit, Held]]


class Warpgroups(Units):
    """Products by warpgroups."""

    flights: list[Flight | None]  # of the loops around, the innermost last

    # ---- what stays in flight

    def take_off(self, block: Block, args: Sequence[Value], slots: dict[int, Buffer | Held]) -> Flight | None:
        """The products of a pipelined loop's body, or None where its first one is no warpgroup product."""
        products = [
            x for x in block.ops if x.name == "dot" and (u := self.unit(x)) is not None and u.instr.unit == "wgmma"
        ]
        if not products:
            return None
        out = Flight(products[0], {})
        for k, slot in slots.items():
            made = block.yields[k]
            x = made.of
            if x in products and isinstance(slot, Held) and self._hands_on(x, args[k], products[0], block):
                unit = self.unit(x)
                if unit is not None and slot.layout == unit.layout and slot.buffer.dtype == made.ty.dtype.tec:
                    out.late[id(x)] = unit, slot
                    self._settle(slot)
        return out

    def _settle(self, held: Held) -> None:
        """Compute the sums that a loop begins with ahead of it. Where the loop may take no step, LLVM sets constants on the way around it instead, and ptxas takes
        them for writes into sums of the next loop under way and waits after each product (C7515)."""

        def settled(p: Point) -> S.Stmt:
            at = [a.register for a in p]
            value = E.BufferLoad(held.buffer, tuple(at))
            return self.store(held.buffer, at, E.Call("computed", (value,), value.dtype))

        if held.buffer.dtype in ("float32", "int32"):
            self.visit(held.layout, settled)

    def _hands_on(self, x: Op, arg: Value, first: Op, block: Block) -> bool:
        """Whether a product's sums go on from what the loop carries to the next turn, and nowhere else."""
        if self.uses.get(id(x.results[0])) != 1 or self.found(x.operands[1]) is None:
            return False
        if self.found(x.operands[0]) is None and not self._feeds(x):
            return False
        v = x.operands[2]
        while v is not arg:  # sums that fade: read behind the first product's wait
            if v.of is None or v.of not in block.ops or not v.of.elementwise or x is first or self.uses.get(id(v)) != 1:
                return False
            if block.ops.index(v.of) < block.ops.index(first):
                return False
            tiles = [y for y in v.of.operands if self.reads(y, [arg]) or y is arg]
            if len(tiles) != 1:
                return False
            v = tiles[0]
        return self.uses.get(id(arg)) == 1

    def land(self, flight: Flight | None) -> None:
        """Behind the loop, which waits at its end: what its last turn left in flight is there."""
        for unit, held in flight.late.values() if flight is not None else ():
            self.emit(self._landed(unit, held))

    def _landed(self, unit: Unit, held: Held) -> S.Stmt:
        """The sums in `held` behind a wait for all products."""
        whole = self._whole(unit, held)
        parts = (self._loaded(whole, unit, held), self._waits(whole, unit, True), self._unpacked(whole, unit, held))
        return S.Alloc(whole, S.seq(*[s for part in parts for s in part]))

    # ---- sums as the instruction has them

    def _whole(self, unit: Unit, held: Held) -> Buffer:
        """Storage of a thread's sums, a vector for each tile of the unit."""
        size = [n.size // (side * w) for n, side, w in zip(unit.layout, (unit.instr.m, unit.instr.n), unit.waves)]
        shape = tuple(E.IntImm(n) for n in (*size, unit.instr.acc_elems))
        return Buffer("products", held.buffer.dtype, shape, scope=LOCAL, loc=self.loc)

    def _at(self, i: int, j: int, unit: Unit) -> tuple[E.Expr, ...]:
        return E.IntImm(i), E.IntImm(j), E.Ramp(ZERO, E.IntImm(1), unit.instr.acc_elems)

    def _tiles(self, whole: Buffer) -> list[tuple[int, int]]:
        rows, columns = (n.value for n in whole.shape[:2] if isinstance(n, E.IntImm))
        return [(i, j) for i in range(rows) for j in range(columns)]

    def _loaded(self, whole: Buffer, unit: Unit, held: Held) -> list[S.Stmt]:
        return [
            S.BufferStore(whole, self.vector_of(held.buffer, unit.instr, i, j), self._at(i, j, unit), None, self.loc)
            for i, j in self._tiles(whole)
        ]

    def _waits(self, whole: Buffer, unit: Unit, again: bool = False) -> list[S.Stmt]:
        """Wait for all products, and say that these sums are there; `again`: a statement before has waited."""
        out: list[S.Stmt] = []
        for i, j in self._tiles(whole):
            at = self._at(i, j, unit)
            done = E.BufferLoad(whole, at)
            attrs = {"n": 0, **({"again": True} if again or out else {})}
            out.append(S.BufferStore(whole, E.Call("wgmma_wait", (done,), done.dtype, attrs), at, None, self.loc))
        return out

    def _unpacked(self, whole: Buffer, unit: Unit, held: Held) -> list[S.Stmt]:
        return [
            self.store(
                held.buffer,
                self.registers_of(unit.instr, e, i, j),
                E.BufferLoad(whole, (E.IntImm(i), E.IntImm(j), E.IntImm(e))),
            )
            for i, j in self._tiles(whole)
            for e in range(unit.instr.acc_elems)
        ]

    # ---- a product

    def by_warpgroups(self, op: Op, unit: Unit) -> None:
        """Products that read shared memory by themselves, begun together; waited for here unless they stay in flight."""
        a, b, acc = op.operands
        v, zero = op.results[0], is_zero(acc)
        start = None if zero else self.reader(acc, unit.layout)
        held = self.in_registers(a, unit)
        left, fresh = (None, False) if held is not None else self.operand(a, unit, "a")
        right, also = self.operand(b, unit, "b")
        flight = self.flights[-1]
        late = None if flight is None else flight.late.get(id(op))
        if late is not None and flight is not None and (fresh or also):
            late = None
            del flight.late[id(op)]
        dtype = v.ty.dtype.tec
        if start is None:
            made = Held(self.array("sum", dtype, [d.held for d in unit.layout]), unit.layout)
        elif late is not None and acc.of is None:
            made = late[1]
        else:
            made = self.stored(start, unit.layout, dtype, "sum")
        whole = self._whole(unit, made)
        run = [self._product(whole, unit, t, left, right, held, zero) for t in self._tiles(whole)]
        fence, commit = (S.Evaluate(E.Call(w, (), "int32"), self.loc) for w in ("wgmma_fence", "wgmma_commit"))
        begun = [] if zero else self._loaded(whole, unit, made)
        out = late[1] if late is not None else made
        after = self._ended(op, late is not None, whole, unit)
        self.emit(S.Alloc(whole, S.seq(*begun, fence, *run, commit, *after, *self._unpacked(whole, unit, out))))
        if flight is not None and op is flight.first and late is None:
            for k, (other, sums) in flight.late.items():
                if k != id(op):
                    self.emit(self._landed(other, sums))
        if fresh or also:
            self.barrier()
        self.held[id(v)] = out

    def _ended(self, op: Op, late: bool, whole: Buffer, unit: Unit) -> list[S.Stmt]:
        """What a turn waits for behind a product."""
        if not late:
            return self._waits(whole, unit)
        flight = self.flights[-1]
        if flight is None or op is not flight.first:
            return []
        return [S.Evaluate(E.Call("wgmma_wait", (), "int32", {"n": 1}), self.loc)]

    def _product(
        self,
        whole: Buffer,
        unit: Unit,
        tile: tuple[int, int],
        left: Place | None,
        right: Place,
        held: Held | None,
        zero: bool,
    ) -> S.Stmt:
        """One of the unit's tiles."""
        (i, j), instr = tile, unit.instr
        row, column = self.wave_of(unit, WARPGROUP)
        at = self._at(i, j, unit)
        before: E.Expr = E.BufferLoad(whole, at)
        if zero:
            before = E.Broadcast(B.cast(whole.dtype, B.const(0, "int32")), instr.acc_elems)
        attrs = {**instr.attrs(), "b_major": "k" if right.along == 0 else "mn", "b_box": right.box}
        across = B.add(B.mul(column, instr.n), j * instr.n * unit.waves[1])
        second = E.BufferLoad(right.buffer, (_start(right, ZERO, across),))
        if held is not None:
            first = self.from_registers(held, i, 0, instr.m * instr.k // WARPGROUP)
            call = E.Call("wgmma_registers", (first, second, before), before.dtype, attrs)
        else:
            assert left is not None
            attrs |= {"a_major": "k" if left.along == 1 else "mn", "a_box": left.box}
            down = B.add(B.mul(row, instr.m), i * instr.m * unit.waves[0])
            source = E.BufferLoad(left.buffer, (_start(left, down, ZERO),))
            call = E.Call("wgmma", (source, second, before), before.dtype, attrs)
        return S.BufferStore(whole, call, at, None, self.loc)


def _start(place: Place, row: E.Expr, column: E.Expr) -> E.Expr:
    """The first element of a warpgroup's operand: its box and line; inside of a line the unit exchanges pieces by itself."""
    width = LINE_BYTES // dtype_info(place.buffer.dtype).bytes
    line, far = (row, column) if place.along else (column, row)
    return B.add(B.mul(B.floordiv(far, width), place.box), B.add(B.mul(line, width), B.floormod(far, width)))


__all__ = ["Flight", "Warpgroups"]
