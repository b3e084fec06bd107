"""Ops over an axis in loop IR: reductions, scans, sorts, gathers, histograms.

A reduction goes through a thread's registers, then through lanes by shuffles, then through waves by shared memory. The others bring the tile to
shared memory (on a CPU an array), where any thread reads any element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import close
from ..ir.buffer import Buffer
from .grammar import Block, Op
from .layouts import ONE, Dim, Layout, bits
from .reading import rows
from .rows import Rows
from .state import CPU_LANES, FIRST, ZERO, Axis, Held, Point, Read

Place = Callable[[Sequence[E.Expr]], E.Expr]  # of coordinates: where an element stands in shared memory
CHAINS = 4  # vectors of partial results of a CPU's reduction: an addition takes 4 clocks on Zen 4 and on Intel's cores since Skylake, and one begins each clock


def _at_first(read: Read, k: int) -> Read:
    return lambda p: read((*p[:k], FIRST, *p[k:]))


class OverAxis(Rows):
    """Reductions and what needs all of a row."""

    def do_reduce(self, op: Op) -> None:
        k, block = op.attrs["axis"], op.blocks[0]
        first = op.operands[0]
        layout = self.natural(first)
        if first.ty.shape[k] == 1:
            self._reduced_nothing(op, layout, k)
            return
        dtypes = [v.ty.dtype.tec for v in op.operands]
        reads = [self.reader(v, layout) for v in op.operands]
        out = layout[:k] + layout[k + 1 :]
        parts = self._registers(reads, layout, k, block, dtypes)
        if self.threads > 1:
            parts = self._lanes(parts, out, layout[k], block, dtypes)
            parts = self._waves(parts, out, layout[k], block, dtypes)
        for v, buffer in zip(op.results, parts):
            if v.ty.shape:
                self.held[id(v)] = Held(buffer, out)
            else:
                self.scalars[id(v)] = self.let("reduced", E.BufferLoad(buffer, (ZERO,)))

    def _reduced_nothing(self, op: Op, layout: Layout, k: int) -> None:
        """An axis of one element."""
        for v, x in zip(op.results, op.operands):
            read = self.reader(x, layout[:k] + (ONE,) + layout[k + 1 :])
            out = layout[:k] + layout[k + 1 :]
            made = self.stored(_at_first(read, k), out, v.ty.dtype.tec, "reduced")
            if v.ty.shape:
                self.held[id(v)] = made
            else:
                self.scalars[id(v)] = self.let("reduced", E.BufferLoad(made.buffer, (ZERO,)))

    def combine_into(
        self, block: Block, left: Sequence[tuple[Buffer, Sequence[E.Expr]]], right: Sequence[E.Expr]
    ) -> S.Stmt:
        """left = combine(left, right), for all operands at once."""
        loads = [E.BufferLoad(b, tuple(at) or (ZERO,)) for b, at in left]
        made = self.combined(block, loads, right)
        if len(made) == 1:
            return self.store(left[0][0], left[0][1], made[0])
        names = [E.Var("both", m.dtype) for m in made]
        body: S.Stmt = S.seq(*[self.store(b, at, n) for (b, at), n in zip(left, names)])
        for n, m in reversed(list(zip(names, made))):
            body = S.LetStmt(n, m, body, self.loc)
        return body

    def _registers(self, reads: list[Read], layout: Layout, k: int, block: Block, dtypes: list[str]) -> list[Buffer]:
        """Sums of a thread's own registers along the axis: arrays of the other dimensions."""
        dim = layout[k]
        out = layout[:k] + layout[k + 1 :]
        last = k == len(layout) - 1
        lanes = min(CPU_LANES, dim.held) if not self.gpu and last else 1
        turns = dim.held // lanes
        chains = min(CHAINS, turns) if lanes > 1 else 1
        size = [lanes * chains] if lanes > 1 else []
        parts = [self.array("part", t, [d.held for d in out] + size) for t in dtypes]
        if lanes > 1:
            self._in_vectors(reads, out, block, parts, lanes, chains, turns // chains)
            return self._folded(parts, out, block, dtypes, lanes, chains)

        def begin(p: Point) -> S.Stmt:
            q = self._with(p, k, dim, ZERO)
            return S.seq(*[self.store(b, [a.register for a in p], r(q)) for b, r in zip(parts, reads)])

        self.visit(out, begin)
        if turns > 1:
            turn = E.Var(f"r{k}", "int32", True)

            def more(p: Point) -> S.Stmt:
                at = B.add(turn, 1)
                q = self._with(p, k, dim, at)
                return self.combine_into(block, [(b, [a.register for a in p]) for b in parts], [r(q) for r in reads])

            with self.block() as items:
                self.visit(out, more)
            self.emit(
                S.For(
                    turn, ZERO, E.IntImm(turns - 1), close(items), S.ForKind.UNROLLED if self.gpu else S.ForKind.SERIAL
                )
            )
        return parts

    def _with(self, p: Point, k: int, dim: Dim, register: E.Expr) -> Point:
        return (*p[:k], Axis(B.convert(dim.coordinate(register, self.thread)), register), *p[k:])

    def _in_vectors(
        self, reads: list[Read], out: Layout, block: Block, parts: list[Buffer], lanes: int, chains: int, turns: int
    ) -> None:
        """On a CPU, along the last dimension: vectors of partial sums, `chains` of them, so that none waits for the one before."""

        def each(p: Point) -> S.Stmt:
            at = [a.register for a in p]
            begun: list[S.Stmt] = []
            more: list[S.Stmt] = []
            turn = E.Var("turn", "int32", True)
            for first in range(0, lanes * chains, lanes):
                v, w = E.Var("v", "int32", True), E.Var("v", "int32", True)
                here = B.add(v, first)
                place = self._in_vector(E.IntImm(first), v, lanes)
                start = S.seq(*[self.store(b, [*at, here], r((*p, place))) for b, r in zip(parts, reads)])
                begun.append(S.For(v, ZERO, E.IntImm(lanes), start, S.ForKind.VECTORIZED))
                if turns > 1:
                    place = self._in_vector(B.add(B.mul(B.add(turn, 1), lanes * chains), first), w, lanes)
                    left = [(b, [*at, B.add(w, first)]) for b in parts]
                    body = self.combine_into(block, left, [r((*p, place)) for r in reads])
                    more.append(S.For(w, ZERO, E.IntImm(lanes), body, S.ForKind.VECTORIZED))
            loop = [S.For(turn, ZERO, E.IntImm(turns - 1), S.seq(*more))] if more else []
            return S.seq(*begun, *loop)

        self.visit(out, each, 1)

    def _in_vector(self, first: E.Expr, lane: E.Var, lanes: int) -> Axis:
        here = B.add(first, lane)
        return Axis(here, here, Axis(first, first), lane, lanes)

    def _folded(
        self, parts: list[Buffer], out: Layout, block: Block, dtypes: list[str], lanes: int, chains: int
    ) -> list[Buffer]:
        """Vectors of partial sums, halved until one element is left."""
        made = [self.array("part", t, [d.held for d in out]) for t in dtypes]

        def each(p: Point) -> S.Stmt:
            at = [a.register for a in p]
            steps: list[S.Stmt] = []
            n = lanes * chains // 2
            while n:
                for first in range(0, n, lanes):
                    v = E.Var("v", "int32", True)
                    here: E.Expr = B.add(v, first) if n > 1 else ZERO
                    right = [E.BufferLoad(b, (*at, B.add(here, n))) for b in parts]
                    body = self.combine_into(block, [(b, [*at, here]) for b in parts], right)
                    count = E.IntImm(min(n, lanes))
                    steps.append(S.For(v, ZERO, count, body, S.ForKind.VECTORIZED) if n > 1 else body)
                n //= 2
            return S.seq(*steps, *[self.store(m, at, E.BufferLoad(b, (*at, ZERO))) for m, b in zip(made, parts)])

        self.visit(out, each, 1)
        return made

    def _lanes(self, parts: list[Buffer], out: Layout, dim: Dim, block: Block, dtypes: list[str]) -> list[Buffer]:
        for bit, _ in dim.threads:
            if bit >= bits(self.wave):
                continue

            def step(p: Point, bit: int = bit) -> S.Stmt:
                at = tuple(a.register for a in p) or (ZERO,)
                names, lets = [], []
                for b in parts:
                    moved, name = self.shuffled(E.BufferLoad(b, at), 1 << bit)
                    names.append(name)
                    lets.append((name, moved))
                body = self.combine_into(
                    block,
                    [(b, at) for b in parts],
                    [B.cast(t, n) if n.dtype != t else n for n, t in zip(names, dtypes)],
                )
                for n, m in reversed(lets):
                    body = S.LetStmt(n, m, body, self.loc)
                return body

            self.visit(out, step)
        return parts

    def shuffled(self, value: E.Expr, mask: int) -> tuple[E.Expr, E.Var]:
        """A value of the lane whose number differs in one bit."""
        if value.dtype == "bool":
            value = B.cast("int32", value)
        return E.Call("shuffle_xor", (value, E.IntImm(mask), E.IntImm(self.wave)), value.dtype), E.Var(
            "other", value.dtype
        )

    def _waves(self, parts: list[Buffer], out: Layout, dim: Dim, block: Block, dtypes: list[str]) -> list[Buffer]:
        """Parts that wavefronts hold of one reduction meet in shared memory: one element for each wavefront, which all of them read back and fold."""
        high = [b for b, _ in dim.threads if b >= bits(self.wave)]
        if not high:
            return parts
        count = 1 << len(high)
        which: E.Expr = ZERO
        for k, b in enumerate(high):
            which = B.add(which, B.mul(B.floormod(B.floordiv(self.thread, 1 << b), 2), 1 << k))
        shape = (*[d.size for d in out], count)
        owner = self.leader((*out, Dim(count, (), tuple((b, 1 << k) for k, b in enumerate(high)))))
        for index, (buffer, t) in enumerate(zip(parts, dtypes)):
            place, size = rows(shape, t)
            where = self.arena(t, size * len(parts))
            offset = index * size
            if index == 0:
                self.barrier()

            def put(
                p: Point, buffer: Buffer = buffer, where: Buffer = where, offset: int = offset, place: Place = place
            ) -> S.Stmt:
                value = E.BufferLoad(buffer, tuple(a.register for a in p) or (ZERO,))
                s = self.store(where, [B.add(place([*[a.at for a in p], which]), offset)], value)
                return s if owner is None else S.IfThenElse(owner, s, None, self.loc)

            self.visit(out, put)
        self.barrier()

        def gather(p: Point) -> S.Stmt:
            at = [a.register for a in p]
            steps = []
            for w in range(count):
                found = []
                for index, t in enumerate(dtypes):
                    place, size = rows(shape, t)
                    found.append(
                        E.BufferLoad(self.arena(t, 1), (B.add(place([*[a.at for a in p], E.IntImm(w)]), index * size),))
                    )
                if w == 0:
                    steps += [self.store(b, at, f) for b, f in zip(parts, found)]
                else:
                    steps.append(self.combine_into(block, [(b, at) for b in parts], found))
            return S.seq(*steps)

        self.visit(out, gather)
        return parts

    # ---- scans and sorts: in an array that all threads see

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
                right = [E.BufferLoad(m.buffer, tuple(here)) for m in made]
                results = self.combined(block, left, right)
                names = [E.Var("next", r.dtype) for r in results]
                body: S.Stmt = S.seq(*[self.store(m.buffer, here, x) for m, x in zip(made, names)])
                for x, r in reversed(list(zip(names, results))):
                    body = S.LetStmt(x, r, body, self.loc)
                return body

            with self.block() as items:
                self.visit(out, each)
            self.emit(S.For(turn, ZERO, E.IntImm(n - 1), close(items)))
        for v, m in zip(op.results, made):
            self.held[id(v)] = m

    def _scan_by_threads(self, op: Op, layout: Layout) -> None:
        """Doubling steps: after each, an element holds its sum with twice as many before it (Hillis and Steele, 1986)."""
        k, block, reverse = op.attrs["axis"], op.blocks[0], op.attrs["reverse"]
        shape = op.operands[0].ty.shape
        dtypes = [v.ty.dtype.tec for v in op.operands]
        made = [self.stored(self.reader(v, layout), layout, t, "scanned") for v, t in zip(op.operands, dtypes)]
        step = 1
        while step < shape[k]:
            wheres = self.exchange(made, layout, dtypes, shape)

            def each(p: Point, step: int = step, wheres: list[tuple[Buffer, Place, int]] = wheres) -> S.Stmt:
                at, regs = [a.at for a in p], [a.register for a in p]
                past = B.add(at[k], step) if reverse else B.sub(at[k], step)
                there = B.compare("lt", past, shape[k]) if reverse else B.compare("ge", past, 0)
                left = [E.BufferLoad(w, (B.add(place([*at[:k], past, *at[k + 1 :]]), o),)) for w, place, o in wheres]
                return S.IfThenElse(there, self._before(block, made, regs, left), None, self.loc)

            self.visit(layout, each, 1)
            step *= 2
        for v, m in zip(op.results, made):
            self.held[id(v)] = m

    def _before(self, block: Block, made: list[Held], regs: list[E.Expr], left: Sequence[E.Expr]) -> S.Stmt:
        right = [E.BufferLoad(m.buffer, tuple(regs)) for m in made]
        results = self.combined(block, left, right)
        names = [E.Var("next", r.dtype) for r in results]
        body: S.Stmt = S.seq(*[self.store(m.buffer, regs, x) for m, x in zip(made, names)])
        for x, r in reversed(list(zip(names, results))):
            body = S.LetStmt(x, r, body, self.loc)
        return body

    def exchange(
        self, tiles: Sequence[Held], layout: Layout, dtypes: Sequence[str], shape: Sequence[int]
    ) -> list[tuple[Buffer, Place, int]]:
        """Tiles of one layout in shared memory: for each (array, place of coordinates, offset)."""
        wheres: list[tuple[Buffer, Place, int]] = []
        offset_of: dict[str, int] = {}
        owner = self.leader(layout)
        self.barrier()
        for held, t in zip(tiles, dtypes):
            place, size = rows(shape, t)
            offset = offset_of.get(t, 0)
            offset_of[t] = offset + size
            where = self.arena(t, offset + size)
            wheres.append((where, place, offset))

            def put(
                p: Point, held: Held = held, where: Buffer = where, place: Place = place, offset: int = offset
            ) -> S.Stmt:
                value = E.BufferLoad(held.buffer, tuple(a.register for a in p) or (ZERO,))
                s = self.store(where, [B.add(place([a.at for a in p]), offset)], value)
                return s if owner is None else S.IfThenElse(owner, s, None, self.loc)

            self.visit(layout, put)
        self.barrier()
        return wheres

    def do_sort(self, op: Op) -> None:
        """Bitonic: every step compares elements whose numbers differ in one bit (Batcher, 1968)."""
        v = op.operands[0]
        shape, t = v.ty.shape, v.ty.dtype.tec
        layout = self.natural(v)
        held = self.stored(self.reader(v, layout), layout, t, "sorted")
        n, last = shape[-1], len(shape) - 1
        size = 2
        while size <= n:
            step = size // 2
            while step:
                where, place, offset = self.exchange([held], layout, [t], shape)[0]

                def each(
                    p: Point,
                    size: int = size,
                    step: int = step,
                    where: Buffer = where,
                    place: Place = place,
                    offset: int = offset,
                ) -> S.Stmt:
                    at, regs = [a.at for a in p], [a.register for a in p]
                    other = B.bitwise_xor(at[last], step)
                    mine = E.BufferLoad(held.buffer, tuple(regs))
                    theirs = E.BufferLoad(where, (B.add(place([*at[:last], other]), offset),))
                    low = B.compare("eq", B.bitwise_and(at[last], step), 0)
                    up = B.compare("eq", B.bitwise_and(at[last], size), 0) if size < n else B.const(True)
                    if op.attrs["descending"]:
                        up = B.logical_not(up)
                    least = B.compare("eq", B.cast("int32", low), B.cast("int32", up))
                    a, b = E.Var("a", t), E.Var("b", t)
                    takes = B.logical_or(
                        B.logical_and(least, B.compare("lt", b, a)),
                        B.logical_and(B.logical_not(least), B.compare("gt", b, a)),
                    )
                    body: S.Stmt = S.IfThenElse(takes, self.store(held.buffer, regs, b), None, self.loc)
                    return S.LetStmt(a, mine, S.LetStmt(b, theirs, body, self.loc), self.loc)

                self.visit(layout, each, 1)
                step //= 2
            size *= 2
        self.held[id(op.results[0])] = held

    def do_gather(self, op: Op) -> None:
        src, index, k = op.operands[0], op.operands[1], op.attrs["axis"]
        at = self.staged(self.reader(src, self.natural(src)), self.natural(src), src.ty.dtype.tec, src.ty.shape)
        v = op.results[0]
        layout = self.natural(index)
        read = self.reader(index, layout)

        def element(p: Point) -> E.Expr:
            where = [a.at for a in p]
            where[k] = B.cast("int32", read(p))
            buffer, place = at(where)
            return E.BufferLoad(buffer, (place,))

        self.held[id(v)] = self.stored_plain(element, layout, v.ty.dtype.tec, "gathered")

    def stored_plain(self, read: Read, layout: Layout, dtype: str, name: str) -> Held:
        """As `stored`, element by element."""
        buffer = self.array(name, dtype, [d.held for d in layout])
        self.visit(layout, lambda p: self.store(buffer, [a.register for a in p], read(p)), 1)
        return Held(buffer, layout)

    def do_histogram(self, op: Op) -> None:
        """Counts in shared memory, by atomic additions where there are several threads."""
        v, x = op.results[0], op.operands[0]
        n = v.ty.shape[0]
        layout = self.natural(x)
        read = self.reader(x, layout)
        mask = self.reader(op.operands[1], layout) if len(op.operands) > 1 else None
        out = self.default(v.ty.shape, "int32")
        where = self.arena("int32", n)
        self.barrier()
        owner = self.leader(out)

        def clear(p: Point) -> S.Stmt:
            s = self.store(where, [p[0].at], ZERO)
            return s if owner is None else S.IfThenElse(owner, s, None, self.loc)

        self.visit(out, clear)
        self.barrier()
        counts = self.leader(layout)

        def count(p: Point) -> S.Stmt:
            at = B.cast("int32", read(p))
            if self.threads > 1:
                add: S.Stmt = S.Evaluate(
                    E.Call("atomic_add", (E.BufferLoad(where, (at,)), E.IntImm(1)), "int32"), self.loc
                )
            else:
                add = self.store(where, [at], B.add(E.BufferLoad(where, (at,)), 1))
            conds = (
                [B.compare("ge", at, 0), B.compare("lt", at, n)]
                + ([mask(p)] if mask is not None else [])
                + ([counts] if counts is not None else [])
            )
            return S.IfThenElse(B.all_of(*conds), add, None, self.loc)

        self.visit(layout, count, 1)
        self.barrier()
        self.held[id(v)] = self.stored(lambda p: E.BufferLoad(where, (p[0].at,)), out, "int32", "histogram")
