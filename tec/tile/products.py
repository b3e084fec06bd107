"""tl.dot in loop IR: on matrix units where the chip has one that fits, by multiply-adds elsewhere. Operands go through shared memory."""

from __future__ import annotations

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import close
from .control import Control
from .grammar import Op
from .layouts import Layout
from .state import ZERO, Axis, Held, Point


class Products(Control):
    """Products of tiles."""

    def product_layout(self, op: Op) -> Layout:
        v = op.results[0]
        return self.default(v.ty.shape, v.ty.dtype.tec)

    def do_dot(self, op: Op) -> None:
        self.by_adding(op)

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
            old = E.BufferLoad(made.buffer, tuple(regs))
            new = E.Call("fma", (x, y, old), wide) if wide.startswith("float") else B.add(old, B.mul(x, y))
            return self.store(made.buffer, regs, new)

        with self.block() as items:
            self.visit(layout, add)
        self.emit(S.For(step, ZERO, E.IntImm(k), close(items)))
        self.barrier()
        self.held[id(v)] = Held(made.buffer, layout)


__all__ = ["Axis", "Products"]
