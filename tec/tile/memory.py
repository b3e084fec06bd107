"""Loads, stores and atomics of a tile program in loop IR."""

from __future__ import annotations

from typing import Any

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.buffer import GLOBAL, Buffer
from ..ir.dtype import dtype_info
from ..records import dataclass
from .axes import Axes
from .exchange import WORD_BYTES, Exchange, steps
from .grammar import Op, Value, walk
from .layouts import Layout
from .reading import Reading
from .state import GPU_VECTOR_BYTES, ZERO, Axis, Held, Point, Read, begin, lane_of

# Written out where they are used.
FREE = ("splat", "arange", "expand_dims", "broadcast", "permute", "reshape", "addptr")
# Neighbours of a thread where a tile has 8-byte numbers: fewer would make narrow accesses of the others.
LEAST_SHARED = 4


@dataclass(slots=True)
class Address:
    """Where a pointer points: an array, and elements from its start."""

    base: Buffer
    offset: Read


class Memory(Reading, Exchange):
    """Pointers and what goes through them."""

    axes: Axes
    neighbours: dict[tuple[tuple[int, ...], int], int]  # see `_most_neighbours`
    places: dict[int, Any]  # see `operands`
    exchanges: set[Layout]  # layouts of sums that lanes have exchanged

    # ---- pointers

    def base(self, v: Value) -> Buffer:
        """The array that a pointer is into. Raises LoweringError where that is known at run time alone."""
        if id(v) in self.pointers:
            found: Buffer = self.pointers[id(v)]
            return found
        self.pointers[id(v)] = made = self._base(v)
        return made

    def _base(self, v: Value) -> Buffer:
        """The buffer that a pointer goes into; where it may be one of several, all of memory."""
        op = v.of
        if (op is None or op.name in ("for", "while", "if", "select")) and len(self._roots(v, set())) > 1:
            return self.world(v)
        if op is None:
            loop, k = self.owner[id(v)]
            return self.base(loop.operands[k + (3 if loop.name == "for" else 0)])
        if op.name == "for":
            return self.base(op.operands[op.results.index(v) + 3])
        if op.name == "while":
            return self.base(op.operands[op.results.index(v)])
        if op.name == "if":
            return self.base(op.blocks[0].yields[op.results.index(v)])
        if op.name == "select":
            return self.base(op.operands[1])
        if op.name in ("addptr", "splat", "expand_dims", "broadcast", "permute", "reshape", "hold"):
            return self.base(op.operands[0])
        if op.name == "cast" and op.operands[0].ty.dtype.is_ptr():
            return self._retyped(self.base(op.operands[0]), v)
        if op.name == "cast":
            return self.world(v)
        if op.name == "load":
            raise self.error(
                "a pointer to pointers",
                hint="keep addresses as int64, and convert: p.to(tl.pointer_type(tl.float16))",
                loc=op.loc,
            )
        raise self.error(f"a pointer that {op.name} makes", loc=op.loc)

    def _roots(self, v: Value, seen: set[int]) -> set[int]:
        """The numbers of the parameters that a pointer may be into, whatever way loops and branches go; -1: an address."""
        if id(v) in seen:
            return set()
        seen.add(id(v))
        op = v.of
        if op is None:
            loop, k = self.owner[id(v)]
            sides = [loop.operands[k + (3 if loop.name == "for" else 0)], loop.blocks[-1].yields[k]]
        elif op.name in ("for", "while"):
            k = op.results.index(v)
            sides = [op.blocks[-1].args[k + (1 if op.name == "for" else 0)]]
        elif op.name in ("if", "select"):
            sides = [b.yields[op.results.index(v)] for b in op.blocks] or list(op.operands[1:])
        elif op.name == "arg":
            return {int(op.attrs["index"])}
        elif op.name in (*FREE, "hold", "cast") and op.operands[0].ty.dtype.is_ptr():
            sides = [op.operands[0]]
        else:
            return {-1}
        return set().union(*[self._roots(x, seen) for x in sides])

    def world(self, v: Value) -> Buffer:
        """What a pointer that is made of an address is into: all memory, told from the place of a parameter that the launch adds, an
        array of its own: of such the address is a multiple of the widest access."""
        dtype = v.ty.dtype.element_ty.tec  # type: ignore[attr-defined]
        found = self.worlds.get(dtype)
        if found is None:
            size = E.Var(f"memory_{dtype}_size", "int64", True)
            found = self.worlds[dtype] = Buffer(f"memory_{dtype}", dtype, (size,), (), 0, GLOBAL, GPU_VECTOR_BYTES)
        return found

    def _placed(self, address: E.Expr, v: Value) -> E.Expr:
        """An address as elements from that parameter's first."""
        base = self.world(v)
        return B.floordiv(B.sub(B.cast("int64", address), _first(base)), dtype_info(base.dtype).bytes)

    def _retyped(self, buffer: Buffer, v: Value) -> Buffer:
        want = v.ty.dtype.element_ty.tec  # type: ignore[attr-defined]
        if (
            want == buffer.dtype
            or (want == "bool" and buffer.dtype in ("int8", "uint8"))
            or {want, buffer.dtype} <= {"bool", "int8", "uint8"}
        ):
            return buffer
        if dtype_info(want).bytes == dtype_info(buffer.dtype).bytes:
            return buffer
        return self.world(v)

    def side(self, x: Value, at: E.Expr, v: Value) -> E.Expr:
        """An offset of a pointer that `v` is made of, as one of `v`: by its address where the two are told from different places."""
        have, want = self.base(x), self.base(v)
        if have is want:
            return at
        return self._placed(_address(have, at), v)

    def offset(self, v: Value) -> E.Expr:
        """A scalar pointer's elements from the start of its array."""
        found = self.scalars.get(id(v))
        if found is None:
            found = self.scalars[id(v)] = self._scalar_offset(v)
        return found

    def _scalar_offset(self, v: Value) -> E.Expr:
        op = v.of
        assert op is not None
        if op.name == "arg":
            return ZERO
        if op.name == "addptr":
            return self.let("at", _further(self.offset(op.operands[0]), self.scalar(op.operands[1])))
        if op.name == "cast" and not op.operands[0].ty.dtype.is_ptr():
            return self.let("at", self._placed(self.scalar(op.operands[0]), v))
        if op.name == "select":
            a, b = (self.side(x, self.offset(x), v) for x in op.operands[1:])
            return B.select(self.scalar(op.operands[0]), a, b)
        if op.name == "cast":
            return self.side(op.operands[0], self.offset(op.operands[0]), v)
        return self.offset(op.operands[0])

    def scalar(self, v: Value) -> E.Expr:
        return self.offset(v) if v.ty.dtype.is_ptr() else super().scalar(v)

    def _scalar_of(self, op: Op) -> E.Expr:
        if _is_address(op):
            return self._address(op, self.offset(op.operands[0]))
        return super()._scalar_of(op)

    def _address(self, op: Op, at: E.Expr) -> E.Expr:
        """A pointer's offset as the number that its address is."""
        return B.cast(op.results[0].ty.dtype.tec, _address(self.base(op.operands[0]), at))

    def _lazy_reader(self, op: Op, v: Value, layout: Layout) -> Read:
        if op.name == "addptr":
            p, by = self.reader(op.operands[0], layout), self.reader(op.operands[1], layout)
            return lambda at: _further(p(at), by(at))
        if op.name == "cast" and v.ty.dtype.is_ptr():
            read = self.reader(op.operands[0], layout)
            if not op.operands[0].ty.dtype.is_ptr():
                return lambda at: self._placed(read(at), v)
            return lambda at: self.side(op.operands[0], read(at), v)
        if op.name == "select" and v.ty.dtype.is_ptr():
            cond, a, b = (self.reader(x, layout) for x in op.operands)
            x, y = op.operands[1:]
            return lambda at: B.select(cond(at), self.side(x, a(at), v), self.side(y, b(at), v))
        return super()._lazy_reader(op, v, layout)

    def _elementwise(self, op: Op, layout: Layout) -> Read:
        """An address is a number. A truth of neighbours that agree is that of the first of them: a mask over rows of a multiple of 16 elements is then one condition of a vector."""
        if _is_address(op):
            at = self.reader(op.operands[0], layout)
            return lambda p: self._address(op, at(p))
        read = super()._elementwise(op, layout)
        v = op.results[0]
        if v.ty.dtype.tec != "bool":
            return read
        alike = [min(self.axes.of(v, d).constancy, dim.low_run()) for d, dim in enumerate(layout)]
        if max(alike, default=1) == 1:
            return read
        return lambda p: read(tuple(self._first_of(a, n) for a, n in zip(p, alike)))

    def _first_of(self, a: Axis, alike: int) -> Axis:
        """The first of the neighbours of a place that are alike."""
        if a.first is not None and a.lanes <= alike:
            a = a.first
        if alike == 1 or not self.gpu:
            return a
        at, register = (B.mul(B.floordiv(x, alike), alike) for x in (a.at, a.register))
        return Axis(at, register)

    # ---- which dimension is contiguous

    def memory_layout(self, pointer: Value, v: Value) -> Layout:
        known = self.anchor(pointer)
        if known is not None:
            return known
        dtype = pointer.ty.dtype.element_ty.tec  # type: ignore[attr-defined]
        fastest = self.fastest(pointer)
        return self.default(pointer.ty.shape, dtype, fastest, self._most_neighbours(pointer.ty.shape, fastest))

    def _most_neighbours(self, shape: tuple[int, ...], fastest: int) -> int:
        """How many neighbours a thread takes of tiles of one shape, whose accesses share a layout so that they meet in registers.

        Where no access is proved to be wider, one: lanes then read next to each other. Types of several sizes go by the widest, of which a thread has 16 bytes.
        """
        if not self.gpu or not shape:
            return GPU_VECTOR_BYTES
        found = self.neighbours.get((shape, fastest))
        if found is None:
            widest, most = 1, 1
            for op in walk(self.program.body):
                if op.name not in ("load", "store", "atomic") or op.operands[0].ty.shape != shape:
                    continue
                pointer = op.operands[0]
                if self.fastest(pointer) != fastest:
                    continue
                most = max(most, self._proved(op, fastest))
                if op.name != "atomic":
                    widest = max(widest, pointer.ty.dtype.element_ty.primitive_bitwidth // 8)  # type: ignore[attr-defined]
            found = self.neighbours[shape, fastest] = min(most, max(GPU_VECTOR_BYTES // widest, LEAST_SHARED))
        return found

    def _proved(self, op: Op, d: int, aligned: bool = False) -> int:
        """Neighbours along a dimension that one access may take together: side by side, from a multiple of their number on, under one condition. `aligned`: if
        they began at one."""
        pointer, rest = op.operands[0], op.operands[1 if op.name == "load" else 2 :]
        facts = self.axes.of(pointer, d)
        asks = self.target.kind == "cuda" and not aligned
        n = min(facts.contiguity, facts.divisibility) if asks else facts.contiguity
        return max(1, min(n, self.axes.of(rest[0], d).constancy) if rest else n)

    def fastest(self, pointer: Value) -> int:
        """The dimension along which a tile of pointers goes from element to element; the last where none does."""
        rank = len(pointer.ty.shape)
        if rank < 2:
            return rank - 1
        runs = [self.axes.of(pointer, d).contiguity for d in range(rank)]
        return max(reversed(range(rank)), key=lambda d: runs[d]) if max(runs) > 1 else rank - 1

    # ---- accesses

    def read_where_used(self, op: Op) -> bool:
        raise NotImplementedError

    def read_from_stream(self, op: Op) -> bool:
        raise NotImplementedError

    def do_load(self, op: Op) -> None:
        p, v = op.operands[0], op.results[0]
        base = self.base(p)
        if not v.ty.shape:
            at = self.offset(p)
            value: E.Expr = self.as_value(E.BufferLoad(base, (at,)), op)
            if len(op.operands) > 1:
                value = B.if_then_else(self.scalar(op.operands[1]), value, self.other(op)(()))
            self.scalars[id(v)] = self.let("loaded", value)
            return
        if id(v) in self.places:
            return  # its loop fills shared memory
        if self.inlined:
            self.lazy[id(v)] = lambda layout: self.access(op, layout, self.fastest(p))
            return
        if self.read_where_used(op) or self.read_from_stream(op):
            return
        layout = self.natural(v)
        lanes, along = self.vectors(op, layout)
        read = self.access(op, layout, along)
        buffer = self.array("loaded", v.ty.dtype.tec, [d.held for d in layout])
        self.visit(layout, lambda q: self.store(buffer, [a.register for a in q], read(q)), lanes, along)
        self.held[id(v)] = Held(buffer, layout)

    def other(self, op: Op, layout: Layout = ()) -> Read:
        if len(op.operands) > 2:
            return self.reader(op.operands[2], layout)
        zero = B.cast(op.results[0].ty.dtype.tec, B.const(0, "int32"))
        return lambda p: zero

    def as_value(self, load: E.Expr, op: Op) -> E.Expr:
        """What was loaded, as the pointer's type says."""
        want = op.results[0].ty.dtype.tec
        return load if load.dtype == want else B.compare("ne", load, 0) if want == "bool" else B.reinterpret(want, load)

    def access(self, op: Op, layout: Layout, along: int, other: Read | None = None) -> Read:
        """A load of each element of a tile of pointers; `other`: what is there where the mask is false, by default what the program says."""
        base = self.base(op.operands[0])
        offset = self.placed(op.operands[0], layout, along)
        if len(op.operands) == 1:
            return lambda p: self.as_value(E.BufferLoad(base, (offset(p),)), op)
        mask, beside = self.reader(op.operands[1], layout), other or self.other(op, layout)
        alike = self.axes.of(op.operands[1], along).constancy

        def masked(p: Point) -> E.Expr:
            allowed = mask(begin(p) if _lanes(p) <= alike else p)
            return B.if_then_else(allowed, self.as_value(E.BufferLoad(base, (offset(p),)), op), beside(p))

        return masked

    def placed(self, pointer: Value, layout: Layout, along: int) -> Read:
        """Offsets of a tile of pointers: within a vector of neighbours, so many on from its first."""
        offset, facts = self.reader(pointer, layout), self.axes.of(pointer, along)

        def at(p: Point) -> E.Expr:
            n = _lanes(p)
            lane = lane_of(p)
            if lane is None or n > facts.contiguity:
                return offset(p)
            first = offset(begin(p))
            if facts.promised and facts.begins(n) >= n:  # what is proved of the index does not show it
                first = B.mul(B.floordiv(first, n), n)
            return _further(first, lane)

        return at

    def vectors(self, op: Op, layout: Layout, aligned: bool = False) -> tuple[int, int]:
        """(lanes, dimension) of one access of a thread: neighbours that a thread holds, of 16 bytes at most, and that `_proved` lets it take together."""
        pointer = op.operands[0]
        d = self.fastest(pointer)
        if not self.gpu:
            return 0, d
        bytes_ = max(1, pointer.ty.dtype.element_ty.primitive_bitwidth // 8)  # type: ignore[attr-defined]
        return min(layout[d].low_run(), GPU_VECTOR_BYTES // bytes_, self._proved(op, d, aligned)), d

    def do_store(self, op: Op) -> None:
        p, v = op.operands[0], op.operands[1]
        base = self.base(p)
        if not p.ty.shape:
            s: S.Stmt = S.BufferStore(base, self.as_stored(self.scalar(v), base), (self.offset(p),), None, op.loc)
            allowed = self.scalar(op.operands[2]) if len(op.operands) > 2 else None
            self.emit(self.guarded(s, self.leader(), allowed, loc=op.loc))
            return
        layout = self.anchor(v) or self.memory_layout(p, v)
        value, layout = self._side_by_side(op, layout)
        lanes, along = self.vectors(op, layout)
        wide = self.vectors(op, layout, True)[0] if layout in self.exchanges else lanes
        offset = self.placed(p, layout, along)
        mask = self.reader(op.operands[2], layout) if len(op.operands) > 2 else None
        alike = self.axes.of(op.operands[2], along).constancy if mask is not None else 1
        owner = self.leader(layout)
        if self.target.kind == "cuda" and mask is not None and wide == lanes and dtype_info(base.dtype).bytes > 1:
            value = self._ahead(value, layout, base, lanes, along)

        def put(q: Point) -> S.Stmt:
            s: S.Stmt = S.BufferStore(base, self.as_stored(value(q), base), (offset(q),), None, op.loc)
            if wide > lanes and (lane := lane_of(q)) is not None:
                # Nothing says where rows begin: looked at now, since most begin where a wide access may.
                first = offset(begin(q))
                there = _further(B.mul(B.floordiv(first, wide), wide), lane)
                fits = S.BufferStore(base, self.as_stored(value(q), base), (there,), None, op.loc)
                s = S.IfThenElse(B.compare("eq", B.floormod(first, wide), 0), fits, s, op.loc)
            allowed = None if mask is None else mask(begin(q) if _lanes(q) <= alike else q)
            return self.guarded(s, owner, allowed, loc=op.loc)

        self.visit(layout, put, wide, along)

    def _ahead(self, value: Read, layout: Layout, base: Buffer, lanes: int, along: int) -> Read:
        """A tile to be stored under conditions, computed in front of them: a store alone is predicated, arithmetic behind a condition is a branch for each store, and nothing
        of one overlaps with the next one's."""

        def computed(q: Point) -> E.Expr:
            e = self.as_stored(value(q), base)
            return E.Call("computed", (e,), e.dtype)

        made = self.array("stored", base.dtype, [d.held for d in layout])
        self.visit(layout, lambda q: self.store(made, [a.register for a in q], computed(q)), lanes, along)
        return lambda q: E.BufferLoad(made, tuple(a.register for a in q) or (ZERO,))

    def _side_by_side(self, op: Op, layout: Layout) -> tuple[Read, Layout]:
        """How the stored value is read, and its layout: sums of a matrix unit of NVIDIA after exchanges between lanes, where a thread then writes more bytes at once."""
        v = op.operands[1]
        dtype = v.ty.dtype.tec
        d, size = self.fastest(op.operands[0]), dtype_info(dtype).bytes
        if self.target.kind != "cuda" or layout not in self.sums or dtype == "bool" or d != len(layout) - 1:
            return self.reader(v, layout), layout
        todo, wide = steps(layout, d, GPU_VECTOR_BYTES // size, self.wave)
        run = self.vectors(op, wide, True)[0]
        todo, wide = steps(layout, d, run, self.wave)
        free = all(self.is_free(x) for x in (op.operands[0], *op.operands[2:]))
        if not todo or not free or size > WORD_BYTES or layout[d].low_run() * size < WORD_BYTES:
            return self.reader(v, layout), layout
        held = self.held.get(id(v)) or self.stored(self.reader(v, layout), layout, dtype, "stored")
        made = self.exchanged(held, d, todo, wide)
        self.exchanges.add(wide)
        return lambda p: E.BufferLoad(made.buffer, tuple(a.register for a in p)), wide

    def is_free(self, v: Value) -> bool:
        """Whether a tile is written out in any layout, with no registers of its own but those of rows."""
        if not v.ty.shape:
            return True
        if id(v) in self.held:
            return len(v.ty.shape) == 1  # rows of a gather, which move once
        if v.of is None:
            return id(v) in self.lazy
        return (v.of.elementwise or v.of.name in FREE) and all(map(self.is_free, v.of.operands))

    def as_stored(self, value: E.Expr, base: Buffer) -> E.Expr:
        if value.dtype == base.dtype:
            return value
        return B.cast(base.dtype, value) if value.dtype == "bool" else B.reinterpret(base.dtype, value)


def _lanes(p: Point) -> int:
    """Elements of the vector that a point is in."""
    return next((a.lanes for a in p if a.lane is not None), 1)


def _further(at: E.Expr, by: E.Expr) -> E.Expr:
    """An offset so many elements on: each part is a number of its own, and their sum has 64 bits."""
    if isinstance(at, E.IntImm) and at.value == 0:
        return by
    return B.add(B.cast("int64", at), B.cast("int64", by))


def _is_address(op: Op) -> bool:
    """Whether a number is made of a pointer."""
    return op.name == "cast" and op.operands[0].ty.dtype.is_ptr() and not op.results[0].ty.dtype.is_ptr()


def _first(b: Buffer) -> E.Expr:
    return E.Cast("int64", E.Call("address_of", (E.BufferLoad(b, (ZERO,)),), "handle"))


def _address(b: Buffer, at: E.Expr) -> E.Expr:
    """The number of bytes at which an element lies."""
    return B.add(_first(b), B.mul(B.cast("int64", at), dtype_info(b.dtype).bytes))
