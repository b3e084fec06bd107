"""Ops over an axis in loop IR: reductions, scans, sorts, gathers, histograms.

A reduction goes through a thread's registers, then through lanes by shuffles, then through waves by shared memory. The others bring the tile to
shared memory (on a CPU an array), where any thread reads any element.
"""

from __future__ import annotations

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import close
from ..ir.buffer import Buffer
from .grammar import Block, Op
from .layouts import ONE, Dim, Layout, bits
from .reading import rows
from .scans import Place, Scans
from .state import CPU_LANES, FIRST, ZERO, Axis, Held, Point, Read

CHAINS = 4  # vectors of partial results of a CPU's reduction: an addition takes 4 clocks on Zen 4 and on Intel's cores since Skylake, and one begins each clock


def _at_first(read: Read, k: int) -> Read:
    return lambda p: read((*p[:k], FIRST, *p[k:]))


class OverAxis(Scans):
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
                return self.guarded(s, owner)

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

        self.held[id(v)] = self.stored(element, layout, v.ty.dtype.tec, "gathered", 1)

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
            return self.guarded(s, owner)

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
            inside = B.all_of(B.compare("ge", at, 0), B.compare("lt", at, n))
            return self.guarded(add, inside, None if mask is None else mask(p), counts)

        self.visit(layout, count, 1)
        self.barrier()
        self.held[id(v)] = self.stored(lambda p: E.BufferLoad(where, (p[0].at,)), out, "int32", "histogram")
