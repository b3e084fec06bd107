"""tl.dot in loop IR: on matrix units where the chip has one that fits (`units`), by multiply-adds elsewhere; on a CPU in blocks of sums in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import close
from ..ir.buffer import Buffer
from ..ir.dtype import dtype_info
from .grammar import Op, Value
from .layouts import Layout
from .places import ACCESS_BYTES
from .state import ZERO, Held, Point
from .warpgroups import Warpgroups

CPU_ROWS, CPU_COLUMNS = 4, 16  # sums in registers: 4 rows of two AVX2 vectors leave room for operands


class Products(Warpgroups):
    """Products of tiles."""

    def product_layout(self, op: Op) -> Layout:
        unit = self.unit(op)
        v = op.results[0]
        if unit is None:
            return self.default(v.ty.shape, v.ty.dtype.tec)
        return unit.layout

    def do_dot(self, op: Op) -> None:
        unit = self.unit(op)
        if unit is not None and unit.instr.unit == "wgmma":
            self.by_warpgroups(op, unit)
        elif unit is not None:
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
        at_a, at_b = (self._accessible(x, role) for x, role in ((a, "a"), (b, "b")))
        made = self.stored(start, layout, wide, "sum")
        # Steps that one access brings of a row of a.
        together = min(k, ACCESS_BYTES // dtype_info(a.ty.dtype.tec).bytes) if self.gpu else 1
        turn, within = E.Var("k", "int32", True), E.Var("step", "int32", True)
        step = B.add(B.mul(turn, together), within) if together > 1 else turn

        def add(p: Point) -> S.Stmt:
            at = [x.at for x in p]
            xa, ia = at_a([*at[:-1], step])
            xb, ib = at_b([*at[:-2], step, at[-1]])
            x, y = (B.cast(wide, E.BufferLoad(buf, (i,))) for buf, i in ((xa, ia), (xb, ib)))
            regs = [q.register for q in p]
            return self.store(made.buffer, regs, added(x, y, E.BufferLoad(made.buffer, tuple(regs))))

        with self.block() as items:
            self.visit(layout, add)
        body = close(items)
        if together > 1:
            body = S.For(within, ZERO, E.IntImm(together), body, S.ForKind.UNROLLED)
        self.emit(S.For(turn, ZERO, E.IntImm(k // together), body))
        self.barrier()
        self.held[id(v)] = Held(made.buffer, layout)

    def _accessible(self, v: Value, role: str) -> Callable[[Sequence[E.Expr]], tuple[Buffer, E.Expr]]:
        """An operand in shared memory, neighbours of a row at places that one access reaches."""
        layout, dtype = self.natural(v), v.ty.dtype.tec
        vector = ACCESS_BYTES // dtype_info(dtype).bytes if self.gpu else 1
        return self.staged(self.reader(v, layout), layout, dtype, v.ty.shape, role, vector)

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


def added(x: E.Expr, y: E.Expr, total: E.Expr) -> E.Expr:
    """total + x * y, with one rounding for floats."""
    if dtype_info(total.dtype).is_float:
        return E.Call("fma", (x, y, total), total.dtype)
    return B.add(total, B.mul(x, y))


__all__ = ["Products"]
