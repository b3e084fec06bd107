"""Scans and sorts over an axis in loop IR.

A scan goes through the neighbours that a thread holds, then through lanes and waves, each of which hands on its total, then through the blocks that a thread's
further registers are of. A sort compares elements whose numbers differ in one bit: in a thread's registers, between lanes by a shuffle, between waves through shared
memory. On a CPU both work in an array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import close
from ..ir.buffer import Buffer
from ..records import dataclass
from .grammar import Op
from .layouts import Dim, Layout, bits
from .reading import rows
from .rows import Rows
from .state import ZERO, Held, Point

Place = Callable[[Sequence[E.Expr]], E.Expr]  # of coordinates: where an element stands in shared memory


@dataclass(frozen=True, slots=True)
class Way:
    """How a scan goes along an axis of a layout whose coordinate is (high registers, waves, lanes, low registers), from the most significant bits on."""

    low: int  # neighbours in a thread
    first_lane: int  # the first bit of the lanes' numbers
    lanes: int
    first_wave: int  # the first bit of the threads' numbers that tells waves apart along the axis
    waves: int
    high: int  # blocks of all threads

    @staticmethod
    def of(dim: Dim, wave_bits: int) -> Way | None:
        """None where the axis lies otherwise."""
        low = bits(dim.low_run())
        in_lanes = [t for t in dim.threads if t[0] < wave_bits]
        in_waves = [t for t in dim.threads if t[0] >= wave_bits]
        order = [1 << k for k in range(bits(dim.size))]
        found = [*dim.registers[:low], *[w for _, w in (*in_lanes, *in_waves)], *dim.registers[low:]]
        straight = all(t[0] == ts[0][0] + k for ts in (in_lanes, in_waves) for k, t in enumerate(ts))
        if found != order or not straight:
            return None
        first_lane, first_wave = (ts[0][0] if ts else 0 for ts in (in_lanes, in_waves))
        high = len(dim.registers) - low
        return Way(1 << low, first_lane, 1 << len(in_lanes), first_wave, 1 << len(in_waves), 1 << high)


class Scans(Rows):
    """What goes along all of an axis and keeps its length."""

    def shuffled(self, value: E.Expr, mask: int) -> tuple[E.Expr, E.Var]:
        """A value of the lane whose number differs in one bit."""
        if value.dtype == "bool":
            value = B.cast("int32", value)
        return E.Call("shuffle_xor", (value, E.IntImm(mask), E.IntImm(self.wave)), value.dtype), E.Var(
            "other", value.dtype
        )

    def do_scan(self, op: Op) -> None:
        """Running results along an axis: in a thread's own loop, or over the threads."""
        k, block, reverse = op.attrs["axis"], op.blocks[0], op.attrs["reverse"]
        shape = op.operands[0].ty.shape
        layout = self.natural(op.operands[0])
        dtypes = [v.ty.dtype.tec for v in op.operands]
        if self.threads > 1:
            self._scan_by_threads(op, layout)
            return
        made = [self.stored(self.reader(v, layout), layout, t, "scanned") for v, t in zip(op.operands, dtypes)]
        n = shape[k]
        if n > 1:
            out = layout[:k] + layout[k + 1 :]
            turn = E.Var("turn", "int32", True)

            def each(p: Point) -> S.Stmt:
                now = B.sub(n - 2, turn) if reverse else B.add(turn, 1)
                past = B.sub(n - 1, turn) if reverse else turn
                at = [a.register for a in p]
                here, before = [*at[:k], now, *at[k:]], [*at[:k], past, *at[k:]]
                left = [E.BufferLoad(m.buffer, tuple(before)) for m in made]
                return self.combine_after(block, left, [(m.buffer, here) for m in made])

            with self.block() as items:
                self.visit(out, each)
            self.emit(S.For(turn, ZERO, E.IntImm(n - 1), close(items)))
        for v, m in zip(op.results, made):
            self.held[id(v)] = m

    def _scan_by_threads(self, op: Op, layout: Layout) -> None:
        k = op.attrs["axis"]
        way = Way.of(layout[k], bits(self.wave))
        dtypes = [v.ty.dtype.tec for v in op.operands]
        made = [self.stored(self.reader(v, layout), layout, t, "scanned") for v, t in zip(op.operands, dtypes)]
        if way is None or "bool" in dtypes:
            self._scan_by_doubling(op, layout, made)
        else:
            _Scan(self, op, layout, way, made).run()
        for v, m in zip(op.results, made):
            self.held[id(v)] = m

    def _scan_by_doubling(self, op: Op, layout: Layout, made: list[Held]) -> None:
        """Doubling steps through shared memory: after each, an element holds its sum with twice as many before it (Hillis and Steele, 1986)."""
        k, block, reverse = op.attrs["axis"], op.blocks[0], op.attrs["reverse"]
        shape = op.operands[0].ty.shape
        dtypes = [v.ty.dtype.tec for v in op.operands]
        step = 1
        while step < shape[k]:
            wheres = self.exchange(made, layout, dtypes, shape)

            def each(p: Point, step: int = step, wheres: list[tuple[Buffer, Place, int]] = wheres) -> S.Stmt:
                at, regs = [a.at for a in p], [a.register for a in p]
                past = B.add(at[k], step) if reverse else B.sub(at[k], step)
                there = B.compare("lt", past, shape[k]) if reverse else B.compare("ge", past, 0)
                left = [E.BufferLoad(w, (B.add(place([*at[:k], past, *at[k + 1 :]]), o),)) for w, place, o in wheres]
                return self.guarded(self.combine_after(block, left, [(m.buffer, regs) for m in made]), there)

            self.visit(layout, each, 1)
            step *= 2

    def shared_places(self, dtypes: Sequence[str], shape: Sequence[int]) -> list[tuple[Buffer, Place, int]]:
        """Shared memory for several tiles of one shape at a time: for each (array, place of coordinates, offset)."""
        wheres: list[tuple[Buffer, Place, int]] = []
        taken: dict[str, int] = {}
        for t in dtypes:
            place, size = rows(shape, t)
            offset = taken.get(t, 0)
            taken[t] = offset + size
            wheres.append((self.arena(t, offset + size), place, offset))
        return wheres

    def exchange(
        self, tiles: Sequence[Held], layout: Layout, dtypes: Sequence[str], shape: Sequence[int]
    ) -> list[tuple[Buffer, Place, int]]:
        """Tiles of one layout in shared memory: where they are, as of `shared_places`."""
        wheres = self.shared_places(dtypes, shape)
        owner = self.leader(layout)
        self.barrier()
        for held, (where, place, offset) in zip(tiles, wheres):

            def put(
                p: Point, held: Held = held, where: Buffer = where, place: Place = place, offset: int = offset
            ) -> S.Stmt:
                value = E.BufferLoad(held.buffer, tuple(a.register for a in p) or (ZERO,))
                s = self.store(where, [B.add(place([a.at for a in p]), offset)], value)
                return self.guarded(s, owner)

            self.visit(layout, put)
        self.barrier()
        return wheres

    def do_sort(self, op: Op) -> None:
        """Bitonic: every step compares elements whose numbers differ in one bit (Batcher, 1968)."""
        v = op.operands[0]
        shape, t = v.ty.shape, v.ty.dtype.tec
        layout = self.natural(v)
        held = self.stored(self.reader(v, layout), layout, t, "sorted")
        dim, last = layout[-1], len(shape) - 1
        size = 2
        while size <= shape[-1]:
            step = size // 2
            while step:
                lane = next((b for b, weight in dim.threads if weight == step), None)
                if self.gpu and step in dim.registers:
                    self._sort_in_thread(op, held, dim.registers.index(step), size)
                elif self.gpu and lane is not None and lane < bits(self.wave) and t != "bool":

                    def beside(p: Point, lane: int = lane) -> E.Expr:
                        return self.shuffled(E.BufferLoad(held.buffer, tuple(a.register for a in p)), 1 << lane)[0]

                    self._sort_between(op, held, step, size, beside)
                else:
                    where, place, offset = self.exchange([held], layout, [t], shape)[0]

                    def theirs(
                        p: Point, step: int = step, where: Buffer = where, place: Place = place, offset: int = offset
                    ) -> E.Expr:
                        at = [a.at for a in p]
                        other = B.bitwise_xor(at[last], step)
                        return E.BufferLoad(where, (B.add(place([*at[:last], other]), offset),))

                    self._sort_between(op, held, step, size, theirs)
                step //= 2
            size *= 2
        self.held[id(op.results[0])] = held

    def _goes_up(self, op: Op, at: E.Expr, size: int) -> E.Expr:
        """Whether the run of `size` that an element is in comes out in ascending order."""
        whole = size == op.operands[0].ty.shape[-1]
        up = B.const(True) if whole else B.compare("eq", B.bitwise_and(at, size), 0)
        return B.logical_not(up) if op.attrs["descending"] else up

    def _sort_between(self, op: Op, held: Held, step: int, size: int, theirs: Callable[[Point], E.Expr]) -> None:
        """Each element beside that of another thread, of which one keeps the smaller and one the larger."""
        dtype = held.buffer.dtype

        def each(p: Point) -> S.Stmt:
            regs, at = [a.register for a in p], p[-1].at
            low, up = B.compare("eq", B.bitwise_and(at, step), 0), self._goes_up(op, at, size)
            least = B.compare("eq", B.cast("int32", low), B.cast("int32", up))
            a, b = E.Var("a", dtype), E.Var("b", dtype)
            body: S.Stmt = self.store(held.buffer, regs, B.select(_in_wrong_order(a, b, least), b, a))
            mine = E.BufferLoad(held.buffer, tuple(regs))
            return S.LetStmt(a, mine, S.LetStmt(b, theirs(p), body, self.loc), self.loc)

        self.visit(held.layout, each, 1)

    def _sort_in_thread(self, op: Op, held: Held, bit: int, size: int) -> None:
        """Pairs of a thread's own registers, whose numbers differ in one bit."""
        dim, dtype = held.layout[-1], held.buffer.dtype
        rest = Dim(dim.size, dim.registers[:bit] + dim.registers[bit + 1 :], dim.threads)

        def each(p: Point) -> S.Stmt:
            regs, at = [a.register for a in p], p[-1].at
            first = B.add(B.mul(B.floordiv(regs[-1], 1 << bit), 2 << bit), B.floormod(regs[-1], 1 << bit))
            here, there = [*regs[:-1], first], [*regs[:-1], B.add(first, 1 << bit)]
            a, b = E.Var("a", dtype), E.Var("b", dtype)
            wrong = _in_wrong_order(a, b, self._goes_up(op, at, size))
            turn = E.Var("wrong", "bool")
            body: S.Stmt = S.seq(
                self.store(held.buffer, here, B.select(turn, b, a)),
                self.store(held.buffer, there, B.select(turn, a, b)),
            )
            body = S.LetStmt(turn, wrong, body, self.loc)
            body = S.LetStmt(b, E.BufferLoad(held.buffer, tuple(there)), body, self.loc)
            return S.LetStmt(a, E.BufferLoad(held.buffer, tuple(here)), body, self.loc)

        self.visit((*held.layout[:-1], rest), each, 1)


def _in_wrong_order(a: E.Expr, b: E.Expr, up: E.Expr) -> E.Expr:
    """Whether the second of two elements is to stand where the first does; equal ones stay."""
    return B.logical_or(
        B.logical_and(up, B.compare("lt", b, a)), B.logical_and(B.logical_not(up), B.compare("gt", b, a))
    )


class _Scan:
    """One scan by threads, along `way`."""

    def __init__(self, tile: Scans, op: Op, layout: Layout, way: Way, made: list[Held]):
        self.tile, self.block, self.way, self.made = tile, op.blocks[0], way, made
        self.k, self.reverse, self.layout = op.attrs["axis"], op.attrs["reverse"], layout
        self.outer = layout[: self.k] + layout[self.k + 1 :]
        self.dtypes = [m.buffer.dtype for m in made]

    def run(self) -> None:
        way = self.way
        self._in_threads()
        if way.lanes > 1:
            self._over_lanes()
        if way.waves > 1:
            self._over_waves()
        elif way.high > 1:
            self._over_blocks()

    # ---- where things are

    def _registers(self, p: Point, high: int, low: int) -> list[E.Expr]:
        """The registers of an element, by its place in the order of the scan."""
        if self.reverse:
            high, low = self.way.high - 1 - high, self.way.low - 1 - low
        at = [a.register for a in p]
        return [*at[: self.k], E.IntImm(high * self.way.low + low), *at[self.k :]]

    def _number(self, first: int, count: int) -> E.Expr:
        """This thread's number of `count` along the axis, in the order of the scan."""
        n = B.floormod(B.floordiv(self.tile.thread, 1 << first), count)
        return B.sub(count - 1, n) if self.reverse else n

    def _places(self, regs: Sequence[E.Expr]) -> list[tuple[Buffer, Sequence[E.Expr]]]:
        return [(m.buffer, regs) for m in self.made]

    def _values(self, regs: Sequence[E.Expr]) -> list[E.Expr]:
        return [E.BufferLoad(m.buffer, tuple(regs)) for m in self.made]

    def _after(self, p: Point, h: int, numbers: Sequence[int], left: Sequence[E.Expr]) -> S.Stmt:
        """Combine some of the elements of a block, by their place in the order of the scan, with what comes before them."""
        tile = self.tile
        return S.seq(*[tile.combine_after(self.block, left, self._places(self._registers(p, h, r))) for r in numbers])

    def _with(self, values: Sequence[E.Expr], use: Callable[[list[E.Expr]], S.Stmt]) -> S.Stmt:
        """A statement with names for values."""
        names: list[E.Expr] = [E.Var("past", v.dtype) for v in values]
        body = use(names)
        for n, v in reversed(list(zip(names, values))):
            assert isinstance(n, E.Var)
            body = S.LetStmt(n, v, body, self.tile.loc)
        return body

    def _each(self, make: Callable[[Point, int], S.Stmt]) -> None:
        """A statement for each block of each row."""
        for h in range(self.way.high):
            self.tile.visit(self.outer, lambda p, h=h: make(p, h), 1)  # type: ignore[misc]

    # ---- the steps

    def _in_threads(self) -> None:
        if self.way.low == 1:
            return

        def along(p: Point, h: int) -> S.Stmt:
            before = [self._values(self._registers(p, h, r)) for r in range(self.way.low - 1)]
            return S.seq(*[self._after(p, h, [r], left) for r, left in enumerate(before, 1)])

        self._each(along)

    def _shuffled(self, values: Sequence[E.Expr], by: int) -> list[E.Expr]:
        """Values of the lane `by` places further back along the axis; one without such keeps its own."""
        how = "shuffle_down" if self.reverse else "shuffle_up"
        lanes = E.IntImm(self.tile.wave)
        return [E.Call(how, (v, E.IntImm(by << self.way.first_lane), lanes), v.dtype) for v in values]

    def _over_lanes(self) -> None:
        """Doubling steps on the threads' totals, then each thread's other elements with the total of the lane before."""
        tile, way = self.tile, self.way
        number = self._number(way.first_lane, way.lanes)

        def step(p: Point, h: int) -> S.Stmt:
            last = self._registers(p, h, way.low - 1)
            out: list[S.Stmt] = []
            by = 1
            while by < way.lanes:
                there = B.compare("ge", number, by)
                out.append(
                    self._with(
                        self._shuffled(self._values(last), by),
                        lambda left, there=there: tile.guarded(  # type: ignore[misc]
                            tile.combine_after(self.block, left, self._places(last)), there
                        ),
                    )
                )
                by *= 2

            def rest(left: list[E.Expr]) -> S.Stmt:
                return tile.guarded(self._after(p, h, range(way.low - 1), left), B.compare("ge", number, 1))

            if way.low > 1:
                out.append(self._with(self._shuffled(self._values(last), 1), rest))
            return S.seq(*out)

        self._each(step)

    def _over_waves(self) -> None:
        """Waves leave their totals in shared memory; each thread combines those before it, and of the blocks before."""
        tile, way = self.tile, self.way
        number = self._number(way.first_wave, way.waves)
        shape = (way.high, way.waves, *[d.size for d in self.outer])  # neighbouring lanes meet neighbouring banks
        wheres = tile.shared_places(self.dtypes, shape)
        owner = tile.leader(self.layout)
        is_last = B.compare("eq", self._number(way.first_lane, way.lanes), way.lanes - 1) if way.lanes > 1 else None

        def at(p: Point, h: int, w: E.Expr) -> list[tuple[Buffer, E.Expr]]:
            where = [E.IntImm(h), w, *[a.at for a in p]]
            return [(b, B.add(place(where), offset)) for b, place, offset in wheres]

        def leave(p: Point, h: int) -> S.Stmt:
            totals = self._values(self._registers(p, h, way.low - 1))
            s = S.seq(*[tile.store(b, [x], v) for (b, x), v in zip(at(p, h, number), totals)])
            return tile.guarded(s, owner, is_last)

        tile.barrier()
        self._each(leave)
        tile.barrier()
        sums, before = (self._of_rows(n) for n in ("sums", "before"))

        def take(p: Point, h: int) -> S.Stmt:
            out, at_row = list[S.Stmt](), self._row(p)
            for w in range(way.waves):
                found = [E.BufferLoad(b, (x,)) for b, x in at(p, h, E.IntImm(w))]
                past = [E.BufferLoad(b, at_row) for b in sums]
                if w or h:
                    # Of the first wave it is what all blocks before come to; a later one's takes its place.
                    now = B.compare("eq", number, w)
                    kept = [B.select(now, x, E.BufferLoad(b, at_row)) for b, x in zip(before, past)] if w else past
                    out += [tile.store(b, at_row, x) for b, x in zip(before, kept)]
                    out.append(self._accumulated(sums, at_row, found))
                else:
                    out += [tile.store(b, at_row, x) for many in (sums, before) for b, x in zip(many, found)]
            ahead = [E.BufferLoad(b, at_row) for b in before]
            both = self._after(p, h, range(way.low), ahead)
            out.append(both if h else tile.guarded(both, B.compare("ge", number, 1)))
            return S.seq(*out)

        self._each(take)

    def _of_rows(self, name: str) -> list[Buffer]:
        """A value of each operand for each row of a thread."""
        return [self.tile.array(name, t, [d.held for d in self.outer]) for t in self.dtypes]

    def _row(self, p: Point) -> tuple[E.Expr, ...]:
        return tuple(a.register for a in p) or (ZERO,)

    def _accumulated(self, sums: list[Buffer], row: tuple[E.Expr, ...], right: Sequence[E.Expr]) -> S.Stmt:
        """sums = combine(sums, right)."""
        return self.tile.combine_into(self.block, [(b, row) for b in sums], right)

    def _over_blocks(self) -> None:
        """Blocks of one wave: the total of those before comes from the last lane."""
        tile, way = self.tile, self.way
        sums = self._of_rows("sums")
        mask = (way.lanes - 1) << way.first_lane
        lane = B.floormod(tile.thread, tile.wave)
        source = B.sub(lane, B.bitwise_and(lane, mask)) if self.reverse else B.bitwise_or(lane, mask)

        def take(p: Point, h: int) -> S.Stmt:
            at_row = self._row(p)
            totals = self._values(self._registers(p, h, way.low - 1))
            if way.lanes > 1:
                totals = [E.Call("shuffle_idx", (v, source, E.IntImm(tile.wave)), v.dtype) for v in totals]

            def use(found: list[E.Expr]) -> S.Stmt:
                if not h:
                    return S.seq(*[tile.store(b, at_row, x) for b, x in zip(sums, found)])
                ahead = [E.BufferLoad(b, at_row) for b in sums]
                put = self._after(p, h, range(way.low), ahead)
                return S.seq(put, self._accumulated(sums, at_row, found))

            return self._with(totals, use)

        self._each(take)


__all__ = ["Place", "Scans"]
