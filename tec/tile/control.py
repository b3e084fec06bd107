"""Loops and branches of a tile program in loop IR: what they change lives in arrays of each thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import Open, close
from ..ir.buffer import LOCAL, Buffer
from .grammar import Block, Op, Value
from .layouts import Layout
from .memory import FREE
from .over_axis import OverAxis
from .reading import VIEWS, agree
from .state import ZERO, Held, Read


class Control(OverAxis):
    """Structured control flow."""

    def ops(self, block: Block) -> None:
        raise NotImplementedError

    # ---- storage of what changes

    def slot(self, v: Value) -> Buffer | Held:
        """Storage for a value that is set again: one element for a scalar, registers for a tile."""
        name = "carried"
        if not v.ty.shape:
            return self.array(name, "int64" if v.ty.dtype.is_ptr() else v.ty.dtype.tec, [1])
        layout = self.natural(v)
        dtype = "int64" if v.ty.dtype.is_ptr() else v.ty.dtype.tec
        return Held(self.array(name, dtype, [d.held for d in layout]), layout)

    def write(self, slot: Buffer | Held, v: Value, like: Value) -> None:
        """Set a slot to a value, as one of `like`: pointers into several arrays are told from one place."""
        is_pointer = like.ty.dtype.is_ptr()
        if isinstance(slot, Buffer):
            e = self.scalar(v)
            self.emit(self.store(slot, [ZERO], self.side(v, e, like) if is_pointer else e))
            return
        if self.held.get(id(v)) is not None and self.held[id(v)].buffer is slot.buffer:
            return
        read = self.reader(v, slot.layout)
        told = (lambda p: self.side(v, read(p), like)) if is_pointer else read
        self.visit(slot.layout, lambda p: self.store(slot.buffer, [a.register for a in p], told(p)))

    def bind(self, v: Value, slot: Buffer | Held) -> None:
        """Let a value stand for what its slot holds now."""
        if isinstance(slot, Held):
            self.held[id(v)] = slot
            return
        e = self.let("carried", E.BufferLoad(slot, (ZERO,)))
        self.scalars[id(v)] = e

    def reads(self, v: Value, args: Sequence[Value], seen: set[int] | None = None) -> set[int]:
        """Which of a block's arguments a value is read from when it is written out."""
        seen = set() if seen is None else seen
        wanted = {id(a) for a in args}
        if id(v) in wanted:
            return {id(v)}
        if id(v) in seen or id(v) in self.held or (not v.ty.shape and id(v) in self.scalars):
            held = self.held.get(id(v))
            if held is not None:
                return {k for k in wanted if k in self.held and self.held[k].buffer is held.buffer}
            return set()
        seen.add(id(v))
        out: set[int] = set()
        if v.of is not None:
            for x in v.of.operands:
                out |= self.reads(x, args, seen)
        return out

    def assign_all(self, slots: Sequence[Buffer | Held], args: Sequence[Value], values: Sequence[Value]) -> None:
        """Set all slots at once: a value is kept first where a slot that is written before it is one that it reads."""
        slots, args, values = list(slots), list(args), list(values)
        pending: list[tuple[Buffer | Held, Value, Value]] = []
        for k, (slot, v) in enumerate(zip(slots, values)):
            if v is args[k]:
                continue
            earlier = {id(a) for j, a in enumerate(args) if j != k and values[j] is not a}
            if self.reads(v, args) & earlier or self._crosses(v, args[k]):
                if v.ty.shape:
                    if id(v) in {id(a) for a in args} or id(v) in self.held:
                        v = self._copy(v)
                    else:
                        self.hold(v, slot.layout if isinstance(slot, Held) else None)
                else:
                    v = self._scalar_copy(v)
            elif not v.ty.shape:
                v = self._scalar_copy(v)
            pending.append((slot, v, args[k]))
        for slot, v, arg in pending:
            self.write(slot, v, arg)

    def _crosses(self, v: Value, arg: Value) -> bool:
        """Whether a value reads its own argument at other places, or in another layout."""
        if not v.ty.shape or id(v) in self.held:
            return False
        stack, seen = [v], set()
        while stack:
            x = stack.pop()
            if id(x) in seen or x.of is None or id(x) in self.held:
                continue
            seen.add(id(x))
            if not x.of.elementwise and arg in x.of.operands:
                return True
            if not x.of.elementwise and x.of.name != "splat" and id(arg) in self.reads(x, [arg]):
                return True
            stack += x.of.operands
        return False

    def _copy(self, v: Value) -> Value:
        fresh = Value(v.ty)
        held = self.held[id(v)]
        made = self.stored(self.reader(v, held.layout), held.layout, held.buffer.dtype, "kept")
        self.held[id(fresh)] = made
        self._alive = [*getattr(self, "_alive", []), fresh]
        if id(v) in self.pointers:
            self.pointers[id(fresh)] = self.pointers[id(v)]
        return fresh

    def _scalar_copy(self, v: Value) -> Value:
        fresh = Value(v.ty)
        e = self.scalar(v)
        if v.ty.dtype.is_ptr():
            self.pointers[id(fresh)] = self.base(v)
        var = E.Var("next", e.dtype)
        loc = self.loc
        self.emit(Open(lambda body: S.LetStmt(var, e, body, loc)))
        self.scalars[id(fresh)] = var
        self._alive = [*getattr(self, "_alive", []), fresh]
        return fresh

    # ---- for

    def do_for(self, op: Op) -> None:
        """A `for` of a program: values that go around it are slots, those that move by a constant follow from the turn's number."""
        low, high, step = (self.scalar(x) for x in op.operands[:3])
        inits, block = op.operands[3:], op.blocks[0]
        args = block.args[1:]
        count = self.let("turns", self._count_turns(low, high, step))
        moving = {k: by for k, a in enumerate(args) if (by := self._induction(a, block.yields[k], block)) is not None}
        slots: dict[int, Buffer | Held] = {}
        for k, (a, init) in enumerate(zip(args, inits)):
            if k in moving:
                self._prepare(init)
                continue
            slots[k] = self.slot(a)
            self.write(slots[k], init, a)
        turn = E.Var("turn", "int32", True)
        kept = dict(self.kept)
        planned = self.planned(op, block, {id(block.args[0]), *(id(args[k]) for k in moving)})

        def start() -> None:
            """What a turn's values are."""
            i = B.add(low, B.mul(B.cast(low.dtype, turn), step))
            self.scalars[id(block.args[0])] = self.let("i", i)
            for k, by in moving.items():
                self._moving(args[k], inits[k], by, turn)

        fills = [self.fill(p, block, start) for p in planned]
        slots_of_tiles = self.stages(op, planned, fills)
        ring = self.ring(planned, slots_of_tiles)
        self.nested += 1
        flight = self.take_off(block, args, slots) if slots_of_tiles > 1 else None
        with self.block() as items:
            start()
            for k, slot in slots.items():
                self.bind(args[k], slot)
            self.flights.append(flight)
            self.ops(block)
            self.flights.pop()
            self.loc = op.loc
            some = list(slots)
            self.assign_all([slots[k] for k in some], [args[k] for k in some], [block.yields[k] for k in some])
        body = close(items)
        self.nested -= 1
        self.left(op, ring)
        self.emit(self.loop(slots_of_tiles, S.For(turn, ZERO, count, body), planned, fills, flight))
        self.kept = kept
        self.land(flight)
        self._forget(block)
        for k, r in enumerate(op.results):
            if k in moving:
                self._moving(r, inits[k], moving[k], count)
            else:
                self.bind(r, slots[k])

    def planned(self, op: Op, block: Block, moving: set[int]) -> list[Any]:
        """The loads of a loop that go to shared memory by themselves."""
        raise NotImplementedError

    def fill(self, planned: Any, block: Block, start: Callable[[], None]) -> S.Stmt:
        raise NotImplementedError

    def stages(self, op: Op, planned: list[Any], fills: list[S.Stmt]) -> int:
        """Slots of the tiles that a loop fills; 1 where they come through registers."""
        raise NotImplementedError

    nested: int = 0  # loops and branches around

    def ring(self, planned: list[Any], stages: int) -> int:
        """Bytes of the slots that a loop fills, in use from here on."""
        raise NotImplementedError

    def left(self, loop: Op, ring: int) -> None:
        """Behind a loop."""
        raise NotImplementedError

    def loop(self, stages: int, loop: S.For, planned: list[Any], fills: list[S.Stmt], flight: Any) -> S.Stmt:
        raise NotImplementedError

    flights: list[Any]

    def take_off(self, block: Block, args: Sequence[Value], slots: dict[int, Buffer | Held]) -> Any:
        """Products that a turn may leave in flight."""
        raise NotImplementedError

    def land(self, flight: Any) -> None:
        raise NotImplementedError

    def _count_turns(self, low: E.Expr, high: E.Expr, step: E.Expr) -> E.Expr:
        if isinstance(step, E.IntImm) and step.value == 0:
            raise self.error("a loop with the step 0", hint="give a step that is not 0")
        if isinstance(step, E.IntImm) and step.value < 0:
            n = B.floordiv(B.sub(B.sub(low, high), B.add(step, 1)), B.neg(step))
        elif isinstance(step, E.IntImm):
            n = B.floordiv(B.add(B.sub(high, low), step.value - 1), step)
        else:
            up = B.floordiv(B.add(B.sub(high, low), B.sub(step, 1)), B.maximum(step, 1))
            down = B.floordiv(B.sub(B.sub(low, high), B.add(step, 1)), B.maximum(B.neg(step), 1))
            n = B.select(B.compare("gt", step, 0), up, down)
        return B.cast("int32", B.maximum(n, 0))

    # ---- what moves by the same each turn

    def _induction(self, arg: Value, new: Value, block: Block) -> Value | None:
        """By what an integer or pointer moves each turn, where that is the same each time."""
        if arg.ty.dtype.is_floating() or new.of is None:
            return None
        op = new.of
        fn = "add" if op.name == "addptr" else op.attrs.get("fn") if op.name == "binary" else None
        if fn == "add":
            for a, b in (op.operands, op.operands[::-1]):
                if a is arg and self._invariant(b, block):
                    return b
        return None

    def _invariant(self, v: Value, block: Block) -> bool:
        """Whether a value is the same in each turn of a loop, and cheap to write out."""
        if v.of is None:
            return v not in block.args and not self._inside(v, block)
        if v.of not in block.ops and not self._inside(v, block):
            return True
        if v.of.elementwise or v.of.name in ("splat", "expand_dims", "broadcast", "arange"):
            return all(self._invariant(x, block) for x in v.of.operands)
        return False

    def _inside(self, v: Value, block: Block) -> bool:
        depth = self.depth.get(id(v), 0)
        mine = self.depth[id(block.args[0])] if block.args else 0
        return depth >= mine and not self._defined(v)

    def _defined(self, v: Value) -> bool:
        return id(v) in self.scalars or id(v) in self.held or id(v) in self.lazy

    def _is_kept_ahead(self, v: Value) -> bool:
        """Whether a row of numbers that was loaded or computed, such as the rows of a gather, can be moved once, ahead of a loop, to where its addresses are made."""
        return len(v.ty.shape) == 1 and id(v) in self.held

    def divide_ahead(self, v: Value, layout: Layout, loop: Op) -> None:
        """Keep what is the same in each turn of a loop, of what a load's addresses are made of: quotients and remainders (LLVM moves no division out of a loop
        whose divisor may be 0, and in the loop it lies between the products), and rows of numbers that other threads hold."""
        if not v.ty.shape or (id(v), layout) in self.kept:
            return
        if v.of is None:
            found, k = self.owner.get(id(v), (None, 0))
            if found is loop:
                self.divide_ahead(loop.operands[k + 3], layout, loop)
            return
        if v.of.name in FREE and v.of.name != "addptr":
            for x, inner, _ in self.view_of(v.of, layout) if v.of.name in VIEWS and v.of.name != "splat" else ():
                self.divide_ahead(x, inner, loop)
            return
        if self._is_kept_ahead(v) and self._invariant(v, loop.blocks[0]):
            if not agree(self.held[id(v)].layout, layout):
                self.kept[id(v), layout] = self.stored(self.reader(v, layout), layout, v.ty.dtype.tec, "ahead")
            return
        if v.of.attrs.get("fn") in ("idiv", "imod"):
            facts = [self.axes.of(v, d) for d, dim in enumerate(layout) if dim.low_run() > 1]
            # Along a vector the index itself shows that neighbours lie side by side, unless the author promises it.
            if self._invariant(v, loop.blocks[0]) and all(f.contiguity == 1 or f.promised for f in facts):
                self.kept[id(v), layout] = self.stored(self.reader(v, layout), layout, v.ty.dtype.tec, "quotient")
                return
        for x in v.of.operands if v.of.elementwise or v.of.name == "addptr" else ():
            self.divide_ahead(x, layout, loop)

    def _prepare(self, v: Value) -> None:
        if not v.ty.shape:
            self.scalars[id(v)] = self.let("start", self.scalar(v))

    def _moving(self, v: Value, init: Value, by: Value, turns: E.Expr) -> None:
        """v = init + turns * by."""
        if v.ty.dtype.is_ptr():
            self.pointers[id(v)] = self.base(init)
        if not v.ty.shape:
            step = self.scalar(by)
            self.scalars[id(v)] = self.let("moved", _plus(self.scalar(init), step, turns, v.ty.dtype.is_ptr()))
            return

        def lazily(layout: Layout) -> Read:
            start, step = self.reader(init, layout), self.reader(by, layout)
            return lambda p: _plus(start(p), step(p), turns, v.ty.dtype.is_ptr())

        self.lazy[id(v)] = lazily

    # ---- while, if

    def do_while(self, op: Op) -> None:
        """A loop whose test and body share slots for the values that go round."""
        test, body = op.blocks
        slots = []
        self.nested += 1
        for b, init in zip(body.args, op.operands):
            slot = self.slot(b)
            self.write(slot, init, b)
            slots.append(slot)
        flag = self.array("goes", "bool", [1])

        def ask() -> S.Stmt:
            with self.block() as items:
                for a, slot in zip(test.args, slots):
                    self.bind(a, slot)
                self.ops(test)
                self.emit(self.store(flag, [ZERO], self.scalar(test.yields[0])))
            self._forget(test)
            return close(items)

        self.emit(ask())
        with self.block() as items:
            for b, slot in zip(body.args, slots):
                self.bind(b, slot)
            self.ops(body)
            self.loc = op.loc
            self.assign_all(slots, body.args, body.yields)
            self.emit(ask())
        self.nested -= 1
        self.emit(S.While(E.BufferLoad(flag, (ZERO,)), close(items), op.loc))
        for k, r in enumerate(op.results):
            self.bind(r, slots[k])

    def _forget(self, block: Block) -> None:
        """Values of a block that is written out twice."""
        for op in block.ops:
            for r in op.results:
                self.scalars.pop(id(r), None)
                self.held.pop(id(r), None)
            for b in op.blocks:
                self._forget(b)
        for a in block.args:
            self.scalars.pop(id(a), None)
            self.held.pop(id(a), None)

    def do_if(self, op: Op) -> None:
        cond = self.scalar(op.operands[0])
        slots = [self.slot(r) for r in op.results]
        sides = []
        self.nested += 1
        for block in op.blocks:
            with self.block() as items:
                self.ops(block)
                self.loc = op.loc
                for slot, v, r in zip(slots, block.yields, op.results):
                    self.write(slot, v, r)
            sides.append(close(items))
        self.nested -= 1
        empty = [isinstance(s, S.Evaluate) and isinstance(s.value, E.IntImm) for s in sides]
        if not all(empty):
            if empty[0]:
                self.emit(S.IfThenElse(B.logical_not(cond), sides[1], None, op.loc))
            else:
                self.emit(S.IfThenElse(cond, sides[0], None if empty[1] else sides[1], op.loc))
        for r, slot in zip(op.results, slots):
            self.bind(r, slot)


def _plus(start: E.Expr, step: E.Expr, turns: E.Expr, wide: bool) -> E.Expr:
    if wide:
        start, step, turns = (B.cast("int64", x) for x in (start, step, turns))
    return B.add(start, B.mul(step, B.cast(step.dtype, turns)))


__all__ = ["LOCAL", "Control"]
