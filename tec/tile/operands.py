"""Operands of matrix products in shared memory: how they lie there, who fills them, and which loads go there by themselves.

    rows      rows of neighbours, padded so that as many rows as there are banks begin in different ones; read by lanes, or by ldmatrix
    turned    rows along k of what lies along the other dimension in memory: 16-byte pieces exchanged by the row's number and by that of its eight rows, so that
              neither lanes that read eight rows nor lanes that write every eighth meet in a bank; threads turn blocks in their registers on the way
    boxes     lines of 128 bytes whose 16-byte pieces are exchanged by the line's number: what a warpgroup product reads (PTX ISA, "Matrix descriptor")

An operand lies as it does in memory where the unit can read it so, and along k elsewhere. A load whose tile goes to one product alone is never held in
registers: its loop fills shared memory, as many turns ahead as `num_stages` says (`ir.passes.pipeline`). The work of a turn then begins at one barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import Open, close
from ..ir.buffer import SHARED, Buffer
from ..ir.dtype import dtype_info
from ..ir.matrix import MatrixInstr
from ..ir.notes import SoftwarePipeline
from ..ir.passes.pipeline.background_copies import as_copies
from ..ir.passes.pipeline.bulk import effect
from ..ir.passes.rewrite_util import clone
from ..records import dataclass
from .boxes import LINE_BYTES, LINES, Tensor
from .grammar import Block, Op, TileType, Value, walk
from .layouts import Dim, Layout, bits, turning
from .places import ACCESS_BYTES, At, boxes_at, operand_stride, rows_at, turned_at
from .room import bytes_of
from .state import ZERO, Axis, Point, begin, lane_of
from .streams import Streams

# Of shared memory, for the operands of loops: the rest is for what moves between layouts; the next where that does not fit.
ROOM = (7 / 8, 3 / 4, 1 / 2)
SECOND_BYTES = 1024  # that a multiprocessor of NVIDIA keeps of shared memory for itself, a program
_FEW_ROWS = 16  # of an instruction of mma.sync
_FEW_WARPS = 4  # of a program, two of which have registers at 255 a thread
TURN_BYTES = 512  # of a thread, for what is on its way in registers (`passes.pipeline.slots`)
PURE = ("splat", "arange", "expand_dims", "broadcast", "permute", "reshape", "program_id", "num_programs", "arg")


@dataclass(frozen=True, slots=True)
class Unit:
    """How a product goes to a matrix unit: the instruction, waves (or warpgroups) along rows and columns, the layout of the sums."""

    instr: MatrixInstr
    waves: tuple[int, int]
    layout: Layout


@dataclass(frozen=True, slots=True)
class Place:
    """An operand in shared memory: where the element at (row, column) stands, the dimension along which neighbours lie, and the elements of a box (0: rows)."""

    buffer: Buffer
    at: At
    along: int
    box: int = 0
    is_stream: bool = False  # see `streams`

    def turned(self) -> Place:
        """The place of the transpose."""
        return Place(self.buffer, lambda row, column: self.at(column, row), 1 - self.along, self.box)


@dataclass(slots=True)
class Planned:
    """A load of a loop that fills shared memory: the ops that its addresses are made of, and where it goes."""

    load: Op
    of: set[int]
    place: Place
    tensor: Tensor | None = None  # where the copy engine brings it


class Operands(Streams):
    """Places of operands, and loops that fill them."""

    places: dict[int, Place]
    loop_room: float = ROOM[0]
    # Of shared memory for what a product's operands bring there at a time; None: all of them.
    piece_bytes: int | None = None

    def unit(self, op: Op) -> Unit | None:
        raise NotImplementedError

    # ---- how an operand lies

    def along(self, v: Value, k_axis: int) -> int:
        """The dimension along which an operand's neighbours come from memory; that of k where it comes from elsewhere."""
        if v.of is not None and v.of.name == "permute" and len(v.ty.shape) == 2:
            return 1 - self.along(v.of.operands[0], 1 - k_axis)
        return self.fastest(v.of.operands[0]) if v.of is not None and v.of.name == "load" else k_axis

    def lying(self, v: Value, unit: Unit, role: str) -> tuple[int, int]:
        """(dimension of neighbours, elements that the tile takes) of an operand in shared memory."""
        k_axis = 1 if role == "a" else 0
        size = dtype_info(v.ty.dtype.tec).bytes
        as_it_is = unit.instr.unit in ("wgmma", "mma.sync") and size == 2  # operands of 8 bits lie along k
        along = self.along(v, k_axis) if as_it_is else k_axis
        rows, columns = v.ty.shape[1 - along], v.ty.shape[along]
        if unit.instr.unit == "wgmma":
            width = LINE_BYTES // size
            return along, rows * -(-columns // width) * width
        if self.is_turned(v, unit, role):
            return along, rows * columns
        return along, rows * operand_stride(columns, v.ty.dtype.tec)

    def is_turned(self, v: Value, unit: Unit, role: str) -> bool:
        """Whether an operand's rows along k lie across what lies side by side in memory."""
        k_axis = 1 if role == "a" else 0
        size = dtype_info(v.ty.dtype.tec).bytes
        if unit.instr.unit in ("wgmma", "mma.sync") or self.along(v, k_axis) == k_axis:
            return False
        return size == 2 and v.ty.shape[k_axis] * size >= 2 * ACCESS_BYTES and v.ty.shape[1 - k_axis] >= LINES

    def place(self, v: Value, unit: Unit, role: str, buffer: Buffer) -> Place:
        """An operand's place in a buffer that has room for it."""
        along, _ = self.lying(v, unit, role)
        rows, columns = v.ty.shape[1 - along], v.ty.shape[along]
        size = dtype_info(buffer.dtype).bytes
        if unit.instr.unit == "wgmma":
            return Place(buffer, boxes_at(rows, along, size), along, rows * LINE_BYTES // size)
        if self.is_turned(v, unit, role):
            return Place(buffer, turned_at(columns, along, size), along)
        return Place(buffer, rows_at(operand_stride(columns, buffer.dtype), along), along)

    def room(self, v: Value, unit: Unit, role: str) -> Buffer:
        """A buffer of shared memory for an operand alone."""
        size = self.lying(v, unit, role)[1]
        align = LINES * LINE_BYTES if unit.instr.unit == "wgmma" else 0
        return Buffer(f"operand_{role}", v.ty.dtype.tec, (E.IntImm(size),), (), 0, SHARED, align, loc=self.loc)

    def found(self, v: Value) -> Place | None:
        """Where an operand lies already."""
        if id(v) in self.places:
            return self.places[id(v)]
        if v.of is not None and v.of.name == "permute" and len(v.ty.shape) == 2:
            inner = self.found(v.of.operands[0])
            return None if inner is None else inner.turned()
        return None

    def staged_operand(self, v: Value, unit: Unit, role: str, alone: bool = False) -> Place:
        """An operand in shared memory, from registers; in a buffer of its own where it stays there."""
        if alone:
            buffer = self.room(v, unit, role)
            self.emit(Open(lambda body: S.Alloc(buffer, body)))
            self.kept_bytes[id(v)] = bytes_of(buffer), self.uses[id(v)]
            self.take(bytes_of(buffer))
        else:
            tag = f"{role}_boxes" if unit.instr.unit == "wgmma" else role
            buffer = self.arena(v.ty.dtype.tec, self.lying(v, unit, role)[1], tag)
            if unit.instr.unit == "wgmma":
                buffer.align_bytes = LINES * LINE_BYTES
        place = self.place(v, unit, role, buffer)
        layout = self.natural(v)
        read, owner = self.reader(v, layout), self.leader(layout)
        if not alone:
            self.barrier()

        def put(p: Point) -> S.Stmt:
            s = self.put_at(place, p, read(p))
            return self.guarded(s, owner)

        lanes = min(layout[place.along].low_run(), ACCESS_BYTES // dtype_info(buffer.dtype).bytes)
        self.visit(layout, put, lanes, place.along)
        if unit.instr.unit == "wgmma":
            self.emit(S.Evaluate(E.Call("proxy_fence", (), "int32"), self.loc))
        self.barrier()
        return place

    def piece(self, v: Value, unit: Unit, role: str, start: int, count: int) -> Place:
        """`count` of an operand's k, from `start` on, in shared memory; where it lies there already, all of it."""
        found = self.found(v)
        if found is not None:
            return found
        axis = 1 if role == "a" else 0
        shape = tuple(count if d == axis else n for d, n in enumerate(v.ty.shape))
        part = Value(TileType(shape, v.ty.dtype), v.of)
        buffer = self.arena(v.ty.dtype.tec, self.lying(part, unit, role)[1], role)
        place = self.place(part, unit, role, buffer)
        self.hold(v)
        layout = self.natural(v)
        read, owner = self.reader(v, layout), self.leader(layout)
        self.barrier()

        def put(p: Point) -> S.Stmt:
            first, lane = begin(p), lane_of(p)
            along = B.sub(first[axis].at, start)
            at = place.at(*[along if d == axis else first[d].at for d in (0, 1)])
            s = self.store(place.buffer, [at if lane is None else B.add(at, lane)], read(p))
            inside = B.all_of(B.compare("ge", along, E.IntImm(0)), B.compare("lt", along, E.IntImm(count)))
            return self.guarded(s, owner, inside)

        lanes = min(layout[place.along].low_run(), ACCESS_BYTES // dtype_info(buffer.dtype).bytes)
        self.visit(layout, put, min(lanes, count) if place.along == axis else lanes, place.along)
        self.barrier()
        return place

    def put_at(self, place: Place, p: Point, value: E.Expr) -> S.Stmt:
        first, lane = begin(p), lane_of(p)
        at = place.at(first[0].at, first[1].at)
        return self.store(place.buffer, [at if lane is None else B.add(at, lane)], value)

    # ---- loads that fill shared memory

    def planned(self, op: Op, block: Block, moving: set[int]) -> list[Any]:
        """Plan a loop: what its products need of tiles from before it comes to shared memory now, and what it loads for them has its place."""
        planned = self.plan(op, block, moving)
        for p in planned:
            if p.place.is_stream:
                self.streams[id(p.load.results[0])] = p.place.buffer
            else:
                self.places[id(p.load.results[0])] = p.place
            for v in p.load.operands[:2]:
                self.divide_ahead(v, self.memory_layout(p.load.operands[0], p.load.results[0]), op)
        inside = {id(x) for x in walk(block)}
        for x in block.ops:
            unit = self.unit(x) if x.name == "dot" and self.gpu else None
            if unit is None:
                continue
            for v, role in zip(x.operands[:2], "ab"):
                if v.of is not None and id(v.of) not in inside and self.found(v) is None:
                    self.places[id(v)] = self.staged_operand(v, unit, role, alone=True)
        return planned

    def plan(self, op: Op, block: Block, moving: set[int]) -> list[Planned]:
        """The loads of a loop's body that go to shared memory by themselves. `moving`: arguments of the block that are known in each turn."""
        if not self.gpu or (op.attrs.get("stages") or 1) < 2 or self.may_alias:
            return []
        inside = list(walk(block))
        if any(x.name in ("atomic", "atomic_cas", "barrier") for x in inside):
            return []
        written = {id(self.base(x.operands[0])) for x in inside if x.name == "store"}
        out: dict[int, Planned] = {}
        for x in block.ops:
            if x.name != "dot" or (unit := self.unit(x)) is None:
                continue
            for v, role in zip(x.operands[:2], "ab"):
                load = self._load_of(v, block)
                if load is None or id(load) in out or id(self.base(load.operands[0])) in written:
                    continue
                if not self._plain(load) or not self._is_for_products(load.results[0], block, unit):
                    continue
                along, _ = self.lying(v, unit, role)
                if along != self.along(v, 1 if role == "a" else 0) and not self.is_turned(v, unit, role):
                    continue  # it is turned on its way, element by element
                needed = self._slice(load, block, moving, written)
                if needed is not None:
                    place = self.place(v, unit, role, self.room(v, unit, role))
                    turns = 0
                    while v is not load.results[0]:
                        assert v.of is not None
                        v, turns = v.of.operands[0], turns + 1
                    out[id(load)] = Planned(load, needed, place.turned() if turns % 2 else place)
        planned = list(out.values())
        if not planned:
            room = int(self.target.lds_bytes * self.loop_room) - self.loop_bytes
            ahead = self.streamed(op, block, room, lambda x: self._slice_of(x, block, moving, written))
            return [Planned(x, needed, Place(slot, _nowhere, 0, 0, True)) for x, needed, slot in ahead]
        tensors = [self.tensor_of(p.load, p.place) for p in planned]
        if None not in tensors:  # all or none: a turn waits in one way
            for p, tensor in zip(planned, tensors):
                p.tensor = tensor
        return planned if self._fits(planned) else []

    def _slice_of(self, load: Op, block: Block, moving: set[int], written: set[int]) -> set[int] | None:
        """As `_slice`, for a load of an array that the loop does not write."""
        return None if id(self.base(load.operands[0])) in written else self._slice(load, block, moving, written)

    def _load_of(self, v: Value, block: Block) -> Op | None:
        """The load of the block that a product's operand is."""
        while v.of is not None and v.of.name == "permute":
            v = v.of.operands[0]
        return v.of if v.of is not None and v.of.name == "load" and len(v.ty.shape) == 2 and v.of in block.ops else None

    def _is_for_products(self, v: Value, block: Block, unit: Unit) -> bool:
        """Whether a tile goes to one product of the block alone, or to several that read it as it lies in memory."""
        uses: list[tuple[Op, Value]] = []
        stack = [v]
        while stack:
            x = stack.pop()
            users = self.users.get(id(x), [])
            if len(users) != self.uses.get(id(x), 0) or len(users) != len({id(u) for u in users}):
                return False
            for user in users:
                if user.name == "permute":
                    stack += user.results
                elif user.name == "dot" and user in block.ops and x is not user.operands[2]:
                    uses.append((user, x))
                else:
                    return False
        if len(uses) == 1:
            return True
        kind = unit.instr.unit
        found = [self.unit(op) for op, _ in uses]
        alike = all(u is not None and u.instr.unit == kind for u in found)
        return alike and kind in ("wgmma", "mma.sync") and dtype_info(v.ty.dtype.tec).bytes == 2

    def _plain(self, load: Op) -> bool:
        """Whether what is loaded is what is stored: of one type, with 0 where the mask is false."""
        if self.base(load.operands[0]).dtype != load.results[0].ty.dtype.tec:
            return False
        return len(load.operands) < 3 or is_zero(load.operands[2])

    def _slice(self, load: Op, block: Block, moving: set[int], written: set[int]) -> set[int] | None:
        """The ops of the block that a load's addresses and mask are made of; None where they are not all arithmetic, on rows of numbers from before the loop and from arrays
        that it does not write (`written`) too."""
        inside, out, stack = set(map(id, block.ops)), set[int](), list(load.operands)
        while stack:
            v = stack.pop()
            if v.of is None and v in block.args and id(v) not in moving:
                return None
            if v.of is None or (id(v.of) not in inside and not v.ty.shape) or id(v.of) in out:
                continue
            if not (v.of.elementwise or v.of.name in PURE):
                if id(v.of) not in inside and self._is_kept_ahead(v):
                    continue
                if id(v.of) not in inside or not self._is_table(v, written):
                    return None
            out.add(id(v.of))
            stack += v.of.operands
        return out

    def _is_table(self, v: Value, written: set[int]) -> bool:
        """Whether a value is a number, or a row of them, loaded from an array that its loop does not write: each thread then loads those that its addresses need."""
        if v.of is None or v.of.name != "load" or not v.ty.dtype.is_int():
            return False
        return v.ty.size == max(v.ty.shape, default=1) and id(self.base(v.of.operands[0])) not in written

    def _fits(self, planned: list[Planned]) -> bool:
        total = sum(bytes_of(p.place.buffer) for p in planned)
        return bool(planned) and total <= self.target.lds_bytes * self.loop_room - self.loop_bytes

    @contextmanager
    def written_out(self) -> Iterator[None]:
        """Within, everything is written out where it is used, and nothing of it stays."""
        kept = self.scalars, self.held, self.lazy, self.pointers
        self.scalars, self.held, self.lazy, self.pointers = (dict(x) for x in kept)
        self.inlined = True
        try:
            yield
        finally:
            self.inlined = False
            self.scalars, self.held, self.lazy, self.pointers = kept

    def fill(self, planned: Planned, block: Block, start: Callable[[], None]) -> S.Stmt:
        """The nest that brings a turn's tile. `start` says what the turn's values are."""
        if planned.tensor is not None:
            return self.fill_boxes(planned, block, start)
        if planned.place.is_stream:
            return self.fill_stream(planned.load, planned.of, planned.place.buffer, block, start)
        load, place = planned.load, planned.place
        with self.written_out(), self.block() as items:
            start()
            for op in block.ops:
                if id(op) in planned.of:
                    self.op(op)
            v = load.results[0]
            self.loc = load.loc or self.loc
            layout = self.memory_layout(load.operands[0], v)
            lanes, along = self.vectors(load, layout)
            if place.along != along:
                self._turned(load, place, along, lanes)
                return close(items)
            read = self.access(load, layout, along)
            owner = self.leader(layout)

            def put(p: Point) -> S.Stmt:
                s = self.put_at(place, p, read(p))
                return self.guarded(s, owner)

            self.visit(layout, put, lanes, along)
        return close(items)

    def _turned(self, load: Op, place: Place, along: int, lanes: int) -> None:
        """Blocks of a thread: loaded along one dimension, stored along the other."""
        shape, size = load.results[0].ty.shape, dtype_info(place.buffer.dtype).bytes
        each = max(1, shape[0] * shape[1] // self.threads)
        vector = min(lanes, each)
        run = min(each // vector, ACCESS_BYTES // 2 // size, shape[1 - along])
        layout = turning((shape[0], shape[1]), along, vector, run, self.threads)
        read, owner = self.access(load, layout, along), self.leader(layout)
        u, w = E.Var("u", "int32", True), E.Var("w", "int32", True)
        axes: list[Axis] = [Axis(ZERO, ZERO)] * 2
        loops: list[tuple[E.Var, int]] = []
        for d, inner, count in ((along, u, vector), (1 - along, w, run)):
            outer: E.Expr = ZERO
            if layout[d].held > count:
                var = E.Var(f"r{d}", "int32", True)
                loops.append((var, layout[d].held // count))
                outer = var
            rest = Dim(layout[d].size, layout[d].registers[bits(count) :], layout[d].threads)
            first = Axis(B.convert(rest.coordinate(outer, self.thread)), B.mul(outer, count))
            axes[d] = Axis(B.add(first.at, inner), B.add(first.register, inner), first, inner, count)
        begins = begin(tuple(axes))
        # Across its vectors a load's place is that of the row; along them so many on from its first.
        point = tuple(a if d == along else Axis(a.at, a.register) for d, a in enumerate(axes))
        at = [begins[0].at, begins[1].at]
        at[along] = axes[along].at
        body: S.Stmt = self.store(place.buffer, [B.add(place.at(at[0], at[1]), w)], read(point))
        body = self.guarded(body, owner)
        body = S.For(w, ZERO, E.IntImm(run), body, S.ForKind.VECTORIZED)
        body = S.For(u, ZERO, E.IntImm(vector), body, S.ForKind.UNROLLED)
        for var, count in loops:
            body = S.For(var, ZERO, E.IntImm(count), body, S.ForKind.UNROLLED)
        self.emit(body)

    def op(self, op: Op) -> None:
        raise NotImplementedError

    def stages(self, op: Op, planned: list[Any], fills: list[S.Stmt]) -> int:
        """Slots of the tiles that a loop fills by copies in the background; 1 where they come through registers."""
        stages = int(op.attrs.get("stages") or 1)
        total = sum(bytes_of(p.place.buffer) for p in planned)
        while stages > 1 and total * stages > self.target.lds_bytes * self.loop_room - self.loop_bytes:
            stages -= 1
        # Beside operands that stay there, a second program on a multiprocessor is worth more than further steps ahead.
        beside = self.target.lds_bytes // 2 - SECOND_BYTES - self.loop_bytes
        if self.kept_bytes and self.warps <= _FEW_WARPS and total and 2 <= beside // total < stages:
            stages = beside // total
        is_cuda = self.target.kind == "cuda" and self.target.chip.async_lds
        background = is_cuda and (all(p.tensor for p in planned) or all(as_copies(f) for f in fills))
        if background and self._is_of_few_rows(op) and not any(p.tensor for p in planned):
            stages = max(stages - 1, 1)
        return stages if background and planned else 1

    def _is_of_few_rows(self, loop: Op) -> bool:
        """Whether a loop's products have no more rows than one instruction of mma.sync, as those of queries that are decoded: it waits for memory, and programs that meet on a
        multiprocessor bring more of it than further slots of each (paged attention of 64 sequences on an H200: 341 us with two slots, 258 of Triton's with one)."""
        found = [x for x in loop.blocks[0].ops if x.name == "dot"]
        return bool(found) and all(x.results[0].ty.shape[0] <= _FEW_ROWS for x in found)

    def loop(self, stages: int, loop: S.For, planned: list[Any], fills: list[S.Stmt], flight: Any) -> S.Stmt:
        """The loop around fills and work, as a software pipeline: by copies in the background a slot for each stage, through registers one."""
        if not planned:
            return loop
        meet = S.Evaluate(E.Call("barrier", (), "int32", {"scope": "global"}), self.loc)
        copies = (
            [as_copies(f) for f in fills] if self.target.kind == "cuda" and not any(p.tensor for p in planned) else []
        )
        if stages == 1 and copies and None not in copies and self.target.chip.async_lds:
            body = self._in_one_slot(loop, [c for c in copies if c is not None], meet)
            for p in planned:
                body = S.Alloc(p.place.buffer, body)
            return body
        body = loop.body if stages > 1 else S.seq(meet, loop.body, meet)
        body = S.seq(*fills, body)
        for p in planned:
            body = S.Alloc(p.place.buffer, body)
        note = (
            SoftwarePipeline(stages)
            if flight is None
            else SoftwarePipeline(stages, copies="behind", in_flight=bool(flight.late))
        )
        return S.seq(S.Attr(note, loop.with_body(body)), meet)

    def _in_one_slot(self, loop: S.For, copies: list[S.Stmt], meet: S.Stmt) -> S.Stmt:
        """The loop around copies to one slot of each tile: the next turn's begin when all threads have done with this one's, and other programs work meanwhile."""
        commit = effect("async_commit")

        def begun(turn: E.Expr) -> S.Stmt:
            guard = B.compare("lt", turn, loop.extent)
            return S.seq(S.IfThenElse(guard, S.seq(*[clone(c, {loop.var: turn}) for c in copies])), commit)

        turn = S.seq(effect("async_wait", n=0), meet, loop.body, meet, begun(B.add(loop.var, 1)))
        return S.seq(begun(ZERO), loop.with_body(turn), effect("async_wait", n=0))


def _nowhere(row: E.Expr, column: E.Expr) -> E.Expr:
    raise AssertionError("a stream has no rows and columns")


def is_zero(v: Value) -> bool:
    """Whether a value is the constant 0 in every element."""
    while v.of is not None and v.of.name in ("splat", "broadcast", "cast"):
        v = v.of.operands[0]
    return v.of is not None and v.of.name == "const" and v.of.attrs["value"] == 0


__all__ = [
    "ACCESS_BYTES",
    "Operands",
    "Place",
    "Planned",
    "Unit",
    "boxes_at",
    "bytes_of",
    "is_zero",
    "operand_stride",
    "rows_at",
]
