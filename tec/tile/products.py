"""tl.dot in loop IR: on matrix units where the chip has one that fits, by multiply-adds elsewhere. Operands go through shared memory.

On a matrix unit the sums stay in the layout that the unit leaves them in. Each wave has its share of the unit's tiles; the operands lie in shared
memory with k along the rows of both, so that a lane reads its elements side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import close
from ..ir.buffer import Buffer
from ..ir.dtype import dtype_info
from ..ir.matrix import MatrixInstr, instructions, run_of
from .control import Control
from .grammar import Op, Value
from .layouts import Layout, accumulators, bits, padded
from .state import ZERO, Held, Point

_ACCESS_BYTES = 16  # what a lane reads of shared memory at once
CPU_ROWS, CPU_COLUMNS = 4, 16  # sums in registers: 4 rows of two AVX2 vectors leave room for operands


@dataclass(frozen=True, slots=True)
class Unit:
    """How a product goes to a matrix unit: the instruction, waves along rows and columns, the layout of the sums."""

    instr: MatrixInstr
    waves: tuple[int, int]
    layout: Layout


class Products(Control):
    """Products of tiles."""

    def product_layout(self, op: Op) -> Layout:
        unit = self.unit(op)
        v = op.results[0]
        if unit is None:
            return self.default(v.ty.shape, v.ty.dtype.tec)
        if unit.layout not in self.sums:
            self.sums.append(unit.layout)
        return unit.layout

    def unit(self, op: Op) -> Unit | None:
        """The matrix unit that a product goes to; None where it is summed by multiply-adds."""
        a, v = op.operands[0], op.results[0]
        if not self.gpu or len(v.ty.shape) != 2:
            return None
        (m, n), k = v.ty.shape, a.ty.shape[1]
        in_dtype = a.ty.dtype.tec
        if in_dtype == "float32" and self.target.kind == "cuda" and op.attrs["precision"] != "ieee":
            in_dtype = "tf32"
        fits = [
            i
            for i in instructions(self.target)
            if i.in_dtype == in_dtype
            and i.acc_dtype == v.ty.dtype.tec
            and i.blocks == 1
            and m % i.m == 0
            and n % i.n == 0
            and k % i.k == 0
        ]
        if not fits:
            return None
        enough = [i for i in fits if (m // i.m) * (n // i.n) >= self.warps] or [min(fits, key=lambda i: i.m * i.n)]
        instr = max(enough, key=lambda i: (i.m * i.n, i.k))
        instr = widened(instr, k)
        waves = shared_out(self.warps, m // instr.m, n // instr.n)
        return Unit(instr, waves, accumulators(instr, (m, n), waves))

    def do_dot(self, op: Op) -> None:
        unit = self.unit(op)
        if unit is not None:
            self.by_unit(op, unit)
        elif not self.gpu and len(op.results[0].ty.shape) == 2 and op.results[0].ty.dtype.is_floating():
            self.in_blocks(op)
        else:
            self.by_adding(op)

    # ---- multiply-adds

    def by_adding(self, op: Op) -> None:
        """Sums in registers, a step of k after the other."""
        a, b, acc = op.operands
        v = op.results[0]
        layout = self.natural(v)
        wide = v.ty.dtype.tec
        k = a.ty.shape[-1]
        start = self.reader(acc, layout)
        at_a = self.staged(self.reader(a, self.natural(a)), self.natural(a), a.ty.dtype.tec, a.ty.shape, "a")
        at_b = self.staged(self.reader(b, self.natural(b)), self.natural(b), b.ty.dtype.tec, b.ty.shape, "b")
        made = self.stored(start, layout, wide, "sum")
        step = E.Var("k", "int32", True)

        def add(p: Point) -> S.Stmt:
            at = [x.at for x in p]
            xa, ia = at_a([*at[:-1], step])
            xb, ib = at_b([*at[:-2], step, at[-1]])
            x, y = (B.cast(wide, E.BufferLoad(buf, (i,))) for buf, i in ((xa, ia), (xb, ib)))
            regs = [q.register for q in p]
            return self.store(made.buffer, regs, added(x, y, E.BufferLoad(made.buffer, tuple(regs))))

        with self.block() as items:
            self.visit(layout, add)
        self.emit(S.For(step, ZERO, E.IntImm(k), close(items)))
        self.barrier()
        self.held[id(v)] = Held(made.buffer, layout)

    def in_blocks(self, op: Op) -> None:
        """On a CPU: a block of sums in registers at a time, with a row of b as vectors and elements of a spread over them."""
        a, b, acc = op.operands
        v = op.results[0]
        (m, n), k, wide = v.ty.shape, a.ty.shape[1], v.ty.dtype.tec
        layout = self.natural(v)
        x, y = (self._wide(t, wide) for t in (a, b))
        made = self._in_place(op, acc, layout, wide)
        rows, columns = min(CPU_ROWS, m), min(CPU_COLUMNS, n)
        block = Buffer("block", wide, (E.IntImm(rows), E.IntImm(columns)), scope="local", loc=self.loc)
        i, j, step, r, c = (E.Var(name, "int32", True) for name in ("i", "j", "k", "r", "c"))
        at = (B.add(B.mul(i, rows), r), B.add(B.mul(j, columns), c))

        def each(s: S.Stmt) -> S.Stmt:
            return S.For(
                r, ZERO, E.IntImm(rows), S.For(c, ZERO, E.IntImm(columns), s, S.ForKind.VECTORIZED), S.ForKind.UNROLLED
            )

        old = E.BufferLoad(block, (r, c))
        product = added(E.BufferLoad(x, (at[0], step)), E.BufferLoad(y, (step, at[1])), old)
        body = S.seq(
            each(S.BufferStore(block, E.BufferLoad(made, at), (r, c), None, self.loc)),
            S.For(step, ZERO, E.IntImm(k), each(S.BufferStore(block, product, (r, c), None, self.loc))),
            each(S.BufferStore(made, E.BufferLoad(block, (r, c)), at, None, self.loc)),
        )
        self.emit(S.For(i, ZERO, E.IntImm(m // rows), S.For(j, ZERO, E.IntImm(n // columns), S.Alloc(block, body))))
        self.held[id(v)] = Held(made, layout)

    def _wide(self, v: Value, dtype: str) -> Buffer:
        """An operand as an array of the sums' type."""
        held = self.held.get(id(v))
        if held is not None and held.buffer.dtype == dtype:
            return held.buffer
        read = self.reader(v, self.natural(v))
        return self.stored(lambda p: B.cast(dtype, read(p)), self.natural(v), dtype, "operand").buffer

    def _in_place(self, op: Op, acc: Value, layout: Layout, dtype: str) -> Buffer:
        """The array of the sums: that of what they begin with, where a loop carries it and nothing else reads it."""
        held = self.held.get(id(acc))
        if held is not None and acc.of is None and self.uses.get(id(acc)) == 1 and held.buffer.dtype == dtype:
            loop, k = self.owner.get(id(acc), (None, 0))
            if loop is not None and loop.blocks[-1].yields[k] is op.results[0]:
                return held.buffer
        return self.stored(self.reader(acc, layout), layout, dtype, "sum").buffer

    # ---- matrix units

    def by_unit(self, op: Op, unit: Unit) -> None:
        """Products of the unit's tiles, each wave its share."""
        a, b, acc = op.operands
        v, instr = op.results[0], unit.instr
        start = self.reader(acc, unit.layout)
        rows_a = self.rows_along_k(a, "a", False)
        rows_b = self.rows_along_k(b, "b", True)
        made = self.stored(start, unit.layout, v.ty.dtype.tec, "sum")
        lane = self.let("lane", B.floormod(self.thread, self.wave))
        wave_row, wave_column = self._wave(unit)
        k_steps = a.ty.shape[1] // instr.k
        tiles = tuple(n // (side * w) for n, side, w in zip(v.ty.shape, (instr.m, instr.n), unit.waves))
        first = [self.let("row", B.mul(wave_row, instr.m)), self.let("column", B.mul(wave_column, instr.n))]
        sums = {
            (i, j): self.let("sums", self._vector(made.buffer, instr, i, j))
            for i in range(tiles[0])
            for j in range(tiles[1])
        }
        for step in range(k_steps):
            left = [
                self._operand(rows_a, instr, "a", lane, B.add(first[0], i * instr.m * unit.waves[0]), step)
                for i in range(tiles[0])
            ]
            right = [
                self._operand(rows_b, instr, "b", lane, B.add(first[1], j * instr.n * unit.waves[1]), step)
                for j in range(tiles[1])
            ]
            for i, j in sums:
                sums[i, j] = self.let("sums", instr.call(left[i], right[j], sums[i, j]))
        for (i, j), vector in sums.items():
            for e in range(instr.acc_elems):
                element = E.Shuffle((vector,), (e,)) if instr.acc_elems > 1 else vector
                self.emit(self.store(made.buffer, self._registers_of(instr, e, i, j), element))
        self.barrier()
        self.held[id(v)] = Held(made.buffer, unit.layout)

    def _wave(self, unit: Unit) -> tuple[E.Expr, E.Expr]:
        wave = B.floordiv(self.thread, self.wave) if self.warps > 1 else ZERO
        rows, columns = unit.waves
        column = B.floormod(wave, columns) if columns > 1 else ZERO
        row = B.floormod(B.floordiv(wave, columns), rows) if rows > 1 else ZERO
        return self.let("wave_row", row), self.let("wave_column", column)

    def rows_along_k(self, v: Value, tag: str, transposed: bool) -> Callable[[E.Expr, E.Expr], tuple[Buffer, E.Expr]]:
        """An operand in shared memory with k along its rows: a function of (row or column, k) to the place."""
        dtype = v.ty.dtype.tec
        layout = self.natural(v)
        k = v.ty.shape[0] if transposed else v.ty.shape[1]
        stride = operand_stride(k, dtype)
        outer = v.ty.shape[1] if transposed else v.ty.shape[0]
        where = self.arena(dtype, outer * stride, tag)
        read, owner = self.reader(v, layout), self.leader(layout)
        self.barrier()

        def put(p: Point) -> S.Stmt:
            row, at = (p[1].at, p[0].at) if transposed else (p[0].at, p[1].at)
            s = self.store(where, [B.add(B.mul(row, stride), at)], read(p))
            return s if owner is None else S.IfThenElse(owner, s, None, self.loc)

        along = 0 if transposed else 1
        self.visit(layout, put, min(layout[along].low_run(), _ACCESS_BYTES // dtype_info(dtype).bytes), along)
        self.barrier()
        return lambda row, at: (where, B.add(B.mul(row, stride), at))

    def _operand(
        self,
        place: Callable[[E.Expr, E.Expr], tuple[Buffer, E.Expr]],
        instr: MatrixInstr,
        role: str,
        lane: E.Expr,
        first: E.Expr,
        step: int,
    ) -> E.Expr:
        """A lane's vector of an operand's tile, in as few reads as its elements lie side by side."""
        run = lane_run(instr, role)
        parts: list[E.Expr] = []
        for e in range(0, instr.elems(role), run):
            _, row, column = instr.coords(role, lane, E.IntImm(e))
            outer, k = (row, column) if role == "a" else (column, row)
            buffer, at = place(B.add(first, outer), B.add(k, step * instr.k))
            parts.append(E.BufferLoad(buffer, (E.Ramp(at, E.IntImm(1), run) if run > 1 else at,)))
        made = parts[0] if len(parts) == 1 else E.Shuffle(tuple(parts), tuple(range(instr.elems(role))))
        return self.let(role, made)

    def _registers_of(self, instr: MatrixInstr, e: int, i: int, j: int) -> list[E.Expr]:
        """The registers of element `e` of a lane's sums, in the unit's tile (i, j) of its wave."""
        out = []
        for d, tile in ((0, i), (1, j)):
            moving = [k for k in range(bits(instr.acc_elems)) if instr.coords("acc", 0, 1 << k)[1 + d]]
            at = sum((e >> k & 1) << n for n, k in enumerate(moving))
            out.append(E.IntImm(at + (tile << len(moving))))
        return out  # type: ignore[return-value]

    def _vector(self, buffer: Buffer, instr: MatrixInstr, i: int, j: int) -> E.Expr:
        loads = tuple(E.BufferLoad(buffer, tuple(self._registers_of(instr, e, i, j))) for e in range(instr.acc_elems))
        return loads[0] if len(loads) == 1 else E.Shuffle(loads, tuple(range(len(loads))))


def widened(instr: MatrixInstr, k: int) -> MatrixInstr:
    """The instruction for a tile of `k`: on CDNA several of the unit's own steps of k at once, so that a lane reads 16 bytes of an operand's row."""
    if instr.unit != "mfma":
        return instr
    wide = _ACCESS_BYTES // dtype_info(instr.storage_dtype).bytes * instr.wave // instr.m
    while wide > instr.k and (k % wide or wide % instr.k):
        wide //= 2
    return replace(instr, k=max(instr.k, wide))


def operand_stride(k: int, dtype: str) -> int:
    """Elements from row to row of an operand in shared memory, k along its rows: rows begin at multiples of 16 bytes, and in different banks."""
    size = dtype_info(dtype).bytes
    return padded(k, size, _ACCESS_BYTES // size)


def lane_run(instr: MatrixInstr, role: str) -> int:
    """Elements of an operand's row that a lane reads from shared memory at once."""
    along, run = run_of(instr, role)
    if along != (1 if role == "a" else 0):
        return 1
    return min(run, _ACCESS_BYTES // dtype_info(instr.storage_dtype).bytes)


def added(x: E.Expr, y: E.Expr, total: E.Expr) -> E.Expr:
    """total + x * y, with one rounding for floats."""
    if dtype_info(total.dtype).is_float:
        return E.Call("fma", (x, y, total), total.dtype)
    return B.add(total, B.mul(x, y))


def shared_out(waves: int, rows: int, columns: int) -> tuple[int, int]:
    """Waves along rows and columns of a unit's tiles: shares as square as they go, and no wave without a tile where there are enough."""
    best: tuple[float, tuple[int, int]] | None = None
    w = 1
    while w <= waves:
        down, across = min(w, rows), min(waves // w, columns)
        used = down * across
        share = (rows / down, columns / across)
        price = (share[0] + share[1]) + 1000 * (waves - used)
        if best is None or price < best[0]:
            best = (price, (down, across))
        w *= 2
    assert best is not None
    return best[1]


__all__ = ["Products", "Sequence"]
