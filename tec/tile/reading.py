"""How the elements of a value are read: lazily where it is cheap, from registers where it is held, through shared memory where the layout differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.buffer import Buffer
from ..ir.dtype import dtype_info
from . import numbers
from .grammar import Block, Op, Value
from .layouts import ONE, Dim, Layout, padded, register_bits, reshaped
from .state import FIRST, ZERO, Axis, Held, Point, Read, State

MOST_ASKED = 16  # elements of a row that a thread loads by itself, though others load them too
CHEAP = 6  # additions that are rather computed again than kept
VIEWS = ("splat", "expand_dims", "broadcast", "permute", "reshape", "join", "split", "cat")


class Reading(State):
    """Values: scalars, lazy tiles, held tiles."""

    # ---- scalars

    def scalar(self, v: Value) -> E.Expr:
        """A scalar's expression."""
        found = self.scalars.get(id(v))
        if found is None:
            assert v.of is not None, "a block's argument has no value yet"
            found = self.scalars[id(v)] = self._scalar_of(v.of)
        return found

    def _scalar_of(self, op: Op) -> E.Expr:
        if op.elementwise and op.name != "addptr":
            return numbers.element(op, [self.scalar(x) for x in op.operands], self.gpu)
        raise self.error(f"{op.name} has no value here")

    def pure(self, v: Value, env: dict[int, E.Expr]) -> E.Expr:
        """A value of a combiner's block in terms of its arguments."""
        found = env.get(id(v))
        if found is not None:
            return found
        if id(v) in self.scalars:
            return self.scalars[id(v)]
        op = v.of
        assert op is not None
        if op.name == "if":
            k = op.results.index(v)
            c = self.pure(op.operands[0], env)
            made = B.select(c, self.pure(op.blocks[0].yields[k], env), self.pure(op.blocks[1].yields[k], env))
        elif op.name in ("splat", "reshape", "broadcast", "expand_dims"):
            made = self.pure(op.operands[0], env)
        elif op.elementwise:
            made = numbers.element(op, [self.pure(x, env) for x in op.operands], self.gpu)
        else:
            raise self.error(
                f"a combine function with {op.name} in it", hint="it computes with its arguments alone", loc=op.loc
            )
        env[id(v)] = made
        return made

    def combined(self, block: Block, left: Sequence[E.Expr], right: Sequence[E.Expr]) -> list[E.Expr]:
        """What a combiner makes of two elements."""
        env = {id(a): e for a, e in zip(block.args, (*left, *right))}
        return [self.pure(y, env) for y in block.yields]

    def combine_into(
        self, block: Block, left: Sequence[tuple[Buffer, Sequence[E.Expr]]], right: Sequence[E.Expr]
    ) -> S.Stmt:
        """left = combine(left, right), for all operands at once."""
        return self.put_together(left, self.combined(block, [_element(*place) for place in left], right))

    def combine_after(
        self, block: Block, left: Sequence[E.Expr], right: Sequence[tuple[Buffer, Sequence[E.Expr]]]
    ) -> S.Stmt:
        """right = combine(left, right): for what comes later in the order of a scan."""
        return self.put_together(right, self.combined(block, left, [_element(*place) for place in right]))

    def put_together(self, places: Sequence[tuple[Buffer, Sequence[E.Expr]]], values: Sequence[E.Expr]) -> S.Stmt:
        """Store values that may be made of what stands at the places: each is computed before the first is stored."""
        if len(values) == 1:
            return self.store(*places[0], values[0])
        names = [E.Var("both", v.dtype) for v in values]
        body: S.Stmt = S.seq(*[self.store(*place, n) for place, n in zip(places, names)])
        for n, v in reversed(list(zip(names, values))):
            body = S.LetStmt(n, v, body, self.loc)
        return body

    # ---- reading at a layout

    def reader(self, v: Value, layout: Layout) -> Read:
        """A function from a point to the element there; what it needs first (moves between threads) is emitted now."""
        if not v.ty.shape:
            e = self.scalar(v)
            return lambda p: e
        if (id(v), layout) in self.kept:
            return self._held_reader(self.kept[id(v), layout], layout, v)
        if id(v) in self.held and not (self.inlined and self._is_written_out(v)):
            return self._held_reader(self.held[id(v)], layout, v)
        if id(v) in self.lazy:
            return self.lazy[id(v)](layout)
        assert v.of is not None, "a tile that no op made"
        return self._lazy_reader(v.of, v, layout)

    def _is_written_out(self, v: Value) -> bool:
        """Whether a tile is arithmetic on scalars and what loops move."""
        if not v.ty.shape or id(v) in self.lazy:
            return True
        if v.of is None or not (v.of.elementwise or v.of.name in (*VIEWS, "arange")):
            return False
        return all(map(self._is_written_out, v.of.operands))

    def _held_reader(self, held: Held, layout: Layout, v: Value) -> Read:
        if not agree(held.layout, layout):
            held = self.moved(held, layout, v.ty.dtype.tec)
        buffer = held.buffer
        own = held.layout
        return lambda p: E.BufferLoad(
            buffer, tuple(a.register if d.size > 1 else ZERO for a, d in zip(p, own)) or (ZERO,)
        )

    def _lazy_reader(self, op: Op, v: Value, layout: Layout) -> Read:
        name = op.name
        if name == "arange":
            start = op.attrs["start"]
            return lambda p: B.add(p[0].at, start)
        if name == "splat":
            e = self.scalar(op.operands[0])
            return lambda p: e
        if name in VIEWS:
            return self._view(op, layout)
        if op.elementwise:
            return self._elementwise(op, layout)
        raise self.error(f"{op.name} has no value here", loc=op.loc)

    def _elementwise(self, op: Op, layout: Layout) -> Read:
        reads = [self.reader(x, layout) for x in op.operands]
        return lambda p: numbers.element(op, [r(p) for r in reads], self.gpu)

    def _view(self, op: Op, layout: Layout) -> Read:
        made = self.view_of(op, layout)
        reads = [(self.reader(x, inner), point) for x, inner, point in made]
        if op.name == "join":
            (left, to), (right, _) = reads
            return lambda p: _either(p[-1].at, left(to(p)), right(to(p)))
        read, to = reads[0]
        return lambda p: read(to(p))

    def view_of(self, op: Op, layout: Layout) -> list[tuple[Value, Layout, Callable[[Point], Point]]]:
        """For each operand of a view the layout that it is read at, and its point of the result's."""
        x = op.operands[0]
        if op.name == "expand_dims":
            k = op.attrs["axis"]
            return [(x, layout[:k] + layout[k + 1 :], lambda p: p[:k] + p[k + 1 :])]
        if op.name == "broadcast":
            ones = [n == 1 for n in x.ty.shape]
            inner = tuple(ONE if one else d for one, d in zip(ones, layout))
            return [(x, inner, lambda p: tuple(FIRST if one else a for one, a in zip(ones, p)))]
        if op.name == "permute":
            order = op.attrs["order"]
            back = [order.index(d) for d in range(len(order))]
            return [(x, tuple(layout[k] for k in back), lambda p: tuple(p[k] for k in back))]
        if op.name == "join":
            return [(y, layout[:-1], lambda p: p[:-1]) for y in op.operands]
        if op.name == "split":
            half = op.attrs["half"]
            last = Dim(2, (1,))
            fixed = Axis(E.IntImm(half), E.IntImm(half))
            return [(x, (*layout, last), lambda p: (*p, fixed))]
        assert op.name == "reshape"
        renamed = reshaped(layout, x.ty.shape)
        return [(x, renamed, self._renamed(layout, renamed, op.results[0].ty.shape, x.ty.shape))]

    def _renamed(
        self, outer: Layout, inner: Layout, shape: Sequence[int], to: Sequence[int]
    ) -> Callable[[Point], Point]:
        """Points of a tile under another shape."""
        mine, theirs = register_bits(outer), register_bits(inner)

        def point(p: Point) -> Point:
            flat: E.Expr = ZERO
            for n, a in zip(shape, p):
                flat = B.add(B.mul(flat, n), a.at)
            at: list[E.Expr] = []
            for k, n in reversed(list(enumerate(to))):
                at.insert(0, flat if k == 0 else B.floormod(flat, n))
                flat = B.floordiv(flat, n)
            registers: list[E.Expr] = [ZERO] * len(to)
            for (d, k), (e, j) in zip(mine, theirs):
                bit = B.floormod(B.floordiv(p[d].register, 1 << k), 2)
                registers[e] = B.add(registers[e], B.mul(bit, 1 << j))
            if not self.gpu:
                registers = at
            return tuple(Axis(a, r) for a, r in zip(at, registers))

        return point

    # ---- layouts that values have or like

    def anchor(self, v: Value) -> Layout | None:
        """The layout that a value has, or will have; None where any does."""
        if id(v) in self.held:
            return self.held[id(v)].layout
        if id(v) in self.anchors:
            return self.anchors[id(v)]
        self.anchors[id(v)] = None  # a loop's argument that leads to itself
        made = self.anchors[id(v)] = self._anchor(v)
        return made

    def _anchor(self, v: Value) -> Layout | None:
        """The layout that a value should have, from what it is made of: that of a load or of a product, through loops and elementwise operations; None where
        nothing says so."""
        if not v.ty.shape:
            return None
        if v.of is None:
            loop, k = self.owner.get(id(v), (None, 0))
            if loop is None:
                return None
            body = loop.blocks[-1]
            return self.anchor(body.yields[k]) or self.anchor(loop.operands[k + (3 if loop.name == "for" else 0)])
        op = v.of
        if op.name == "for":
            k = op.results.index(v)
            return self.anchor(op.blocks[0].args[k + 1])
        if op.name == "while":
            return self.anchor(op.blocks[1].args[op.results.index(v)])
        if op.name == "if":
            k = op.results.index(v)
            return self.anchor(op.blocks[0].yields[k]) or self.anchor(op.blocks[1].yields[k])
        if op.name == "reduce":
            inner = self.anchor(op.operands[0]) or self.default(op.operands[0].ty.shape, op.operands[0].ty.dtype.tec)
            k = op.attrs["axis"]
            return inner[:k] + inner[k + 1 :]
        if op.name == "dot":
            return self.product_layout(op)
        if op.name == "load":
            asked = self._asked(v) or self.memory_layout(op.operands[0], v)
            return self.halved(v, asked) if any(u.name == "split" for u in self.users.get(id(v), ())) else asked
        if op.elementwise or op.name in ("addptr", "scan", "sort"):
            found = [self.anchor(x) for x in op.operands if x.ty.shape == v.ty.shape]
            known = [f for f in found if f is not None]
            sums = [f for f in known if f in self.sums]
            return sums[0] if sums else known[0] if known else None
        if op.name == "split":
            inner_layout = self.anchor(op.operands[0])
            return None if inner_layout is None or inner_layout[-1].held != 2 else inner_layout[:-1]
        if op.name == "permute":
            inner_layout = self.anchor(op.operands[0])
            return None if inner_layout is None else tuple(inner_layout[d] for d in op.attrs["order"])
        if op.name == "reshape":
            inner_layout = self.anchor(op.operands[0])
            return None if inner_layout is None else reshaped(inner_layout, v.ty.shape)
        return None

    def _asked(self, v: Value) -> Layout | None:
        """The layout that a row of numbers is read at beside a product's sums, or beside any tile where it has no more numbers than there are threads, if that is all it
        is for: each thread loads what it needs, and none waits for others."""
        if len(v.ty.shape) != 1 or not self.gpu:
            return None
        found = self._wanted(v, v.ty.shape[0] <= self.threads, set())
        if found is None or len(found) != 1:
            return None
        asked = found.pop()
        return asked if asked[0].held <= MOST_ASKED else None

    def _wanted(self, v: Value, anywhere: bool, seen: set[int]) -> set[Layout] | None:
        """The layouts of a row that the tiles beside it have; None where one is not known. `anywhere`: beside others than sums, and through arithmetic on rows."""
        found: set[Layout] = set()
        for user in self.users.get(id(v), ()):
            if id(user) in seen:
                continue
            seen.add(id(user))
            if user.name == "expand_dims":
                inner = self._beside(user.results[0], 1 - int(user.attrs["axis"]), anywhere, seen)
            elif anywhere and user.elementwise:
                inner = self._wanted(user.results[0], anywhere, seen)
            elif anywhere and user.name == "store":
                continue
            else:
                return None
            if inner is None:
                return None
            found |= inner
        return found

    def _beside(self, v: Value, d: int, anywhere: bool, seen: set[int]) -> set[Layout] | None:
        """The layouts along the dimension `d` of the tiles that one of a row alone is spread to."""
        found: set[Layout] = set()
        for user in self.users.get(id(v), ()):
            layout = self.anchor(user.results[0]) if user.elementwise else None
            if layout is not None and len(layout) == 2 and (anywhere or layout in self.sums):
                found.add((layout[d],))
            elif user.name == "broadcast" or (
                anywhere and layout is None and user.elementwise and id(user) not in seen
            ):
                seen.add(id(user))
                inner = self._beside(user.results[0], d, anywhere, seen)
                if inner is None:
                    return None
                found |= inner
            else:
                return None
        return found

    sums: list[Layout]

    def product_layout(self, op: Op) -> Layout:
        raise NotImplementedError

    def memory_layout(self, pointer: Value, v: Value) -> Layout:
        raise NotImplementedError

    def natural(self, v: Value) -> Layout:
        """The layout that a value is held in."""
        return self.anchor(v) or self.default(v.ty.shape, v.ty.dtype.tec)

    def halved(self, v: Value, layout: Layout | None) -> Layout:
        """The layout of a tile that is split: with both elements of its last dimension in one thread, so that its halves are there without a move between threads."""
        if layout is not None and (layout[-1].held == 2 or layout in self.sums):
            return layout
        return (*self.default(v.ty.shape[:-1], v.ty.dtype.tec), Dim(2, (1,)))

    # ---- holding and moving

    def hold(self, v: Value, layout: Layout | None = None) -> Held:
        """Put a value into registers."""
        if id(v) in self.held:
            return self.held[id(v)]
        layout = layout or self.natural(v)
        made = self.stored(self.reader(v, layout), layout, v.ty.dtype.tec, v.of.name if v.of is not None else "tile")
        self.held[id(v)] = made
        return made

    def stored(self, read: Read, layout: Layout, dtype: str, name: str, vector: int = 0) -> Held:
        """A tile in registers, from what is read at each point. `vector`: as of `visit`."""
        buffer = self.array(name, dtype, [d.held for d in layout])
        self.visit(layout, lambda p: self.store(buffer, [a.register for a in p], read(p)), vector)
        return Held(buffer, layout)

    def staged(
        self, read: Read, layout: Layout, dtype: str, shape: Sequence[int], tag: str = "", vector: int = 1
    ) -> Callable[[Sequence[E.Expr]], tuple[Buffer, E.Expr]]:
        """A tile in shared memory: a function from coordinates to where an element is. All threads have met. `vector`: neighbours that are accessed at once."""
        place, size = rows(shape, dtype, vector=vector)
        if self.gpu and size * dtype_info(dtype).bytes > self.target.lds_bytes // 2:  # a second one is to fit
            place, size = rows(shape, dtype, False)
        where = self.arena(dtype, size, tag)
        owner = self.leader(layout)
        self.barrier()

        def put(p: Point) -> S.Stmt:
            return self.guarded(self.store(where, [place([a.at for a in p])], read(p)), owner)

        self.visit(layout, put, min(layout[-1].low_run(), vector) if layout else 1)
        self.barrier()
        return lambda at: (where, place(at))

    def moved(self, held: Held, layout: Layout, dtype: str) -> Held:
        """A tile in another layout, through shared memory."""
        shape = [d.size for d in held.layout]
        own = held.layout

        def read(p: Point) -> E.Expr:
            return E.BufferLoad(
                held.buffer, tuple(a.register if d.size > 1 else ZERO for a, d in zip(p, own)) or (ZERO,)
            )

        at = self.staged(read, held.layout, dtype, shape)

        def back(p: Point) -> E.Expr:
            buffer, k = at([a.at for a in p])
            return E.BufferLoad(buffer, (k,))

        full = tuple(d if d.size == n else ONE for d, n in zip(layout, shape))
        return self.stored(back, full, dtype, "moved")


def _element(buffer: Buffer, at: Sequence[E.Expr]) -> E.Expr:
    return E.BufferLoad(buffer, tuple(at) or (ZERO,))


def agree(have: Layout, want: Layout) -> bool:
    """Whether elements of one layout are where another wants them."""
    return all(a == b or a.size == 1 for a, b in zip(have, want))


def rows(
    shape: Sequence[int], dtype: str, pads: bool = True, vector: int = 1
) -> tuple[Callable[[Sequence[E.Expr]], E.Expr], int]:
    """Where a tile's elements stand in shared memory, and how many elements that takes. `pads`: rows begin in different banks, at a multiple of `vector` elements."""
    stride = padded(shape[-1], dtype_info(dtype).bytes, vector) if pads and len(shape) > 1 else shape[-1]
    count = 1
    for n in shape[:-1]:
        count *= n

    def place(at: Sequence[E.Expr]) -> E.Expr:
        row: E.Expr = ZERO
        for n, a in zip(shape[:-1], at):
            row = B.add(B.mul(row, n), a)
        return B.add(B.mul(row, stride), at[-1])

    return place, count * stride


def _either(at: E.Expr, a: E.Expr, b: E.Expr) -> E.Expr:
    return B.select(B.compare("eq", at, 0), a, b)
