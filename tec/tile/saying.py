"""What a tile program prints and asserts: records of `tec.kernels.output`, one for each element, written by the thread that holds it."""

from __future__ import annotations

from typing import Any

from ..errors import Loc
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import Open, close
from ..ir.dtype import dtype_info
from ..kernels.output import Output, Piece, Place, words_of
from .control import Control
from .grammar import Op, Program
from .state import ZERO, Point


class Saying(Control):
    """print and assert."""

    output: Output

    def __init__(self, program: Program, *args: Any):
        super().__init__(program, *args)
        self.output = Output()

    def _record(self, kind: str, pieces: list[Piece], values: list[E.Expr], loc: Loc, end: str) -> S.Stmt:
        """Statements that write one record."""
        self.output.places.append(Place(kind, loc, tuple(pieces), end))
        with self.block() as items:
            words: list[E.Expr] = [E.IntImm(len(self.output.places) - 1), self._program(), B.convert(self.thread)]
            for v in values:
                words += words_of(self, v)
            at, call = E.Var("at", "int32"), self.output.room_for(words)
            self.emit(Open(lambda body: S.LetStmt(at, call, body, loc)))
            self.emit(self.output.written(words, at, loc))
        return close(items)

    def _program(self) -> E.Expr:
        total: E.Expr = ZERO
        for var, extent in reversed(list(zip(self.grid, self.extents))):
            total = B.add(B.mul(total, extent), var)
        return total

    def do_print(self, op: Op) -> None:
        loc = op.loc or self.program.loc
        prefix = op.attrs["prefix"]
        if not op.operands:
            self._once(self._record("print", [Piece(prefix)], [], loc, "\n"))
        for x in op.operands:
            self._each(op, x, lambda at, e: self._said(prefix, at, e, loc, bool(op.attrs["hex"])))

    def _said(self, prefix: str, at: list[E.Expr], e: E.Expr, loc: Loc, hexed: bool) -> S.Stmt:
        pieces, values = [Piece("(")], []
        for k, i in enumerate(at):
            pieces += [Piece(", ")] * (k > 0) + [Piece("", "int32")]
            values.append(i)
        e = B.cast("int32", e) if e.dtype == "bool" else e
        if e.dtype in ("float16", "bfloat16") or dtype_info(e.dtype).is_float8:
            e = B.cast("float32", e)
        pieces += [Piece(")" + prefix), Piece("", e.dtype, "x" if hexed and not e.dtype.startswith("float") else "")]
        return self._record("print", pieces, [*values, e], loc, "\n")

    def do_assert(self, op: Op) -> None:
        loc = op.loc or self.program.loc
        message = op.attrs["message"] or "an assertion does not hold"
        self._each(
            op,
            op.operands[0],
            lambda at, e: S.IfThenElse(
                B.logical_not(e), self._record("assert", [Piece(message)], [], loc, ""), None, loc
            ),
        )

    def _once(self, s: S.Stmt) -> None:
        self.emit(self.guarded(s, self.leader()))

    def _each(self, op: Op, x: Any, say: Any) -> None:
        """`say(coordinates, element)` for each element."""
        if not x.ty.shape:
            self._once(say([], self.scalar(x)))
            return
        layout = self.natural(x)
        read = self.reader(x, layout)
        owner = self.leader(layout)

        def each(p: Point) -> S.Stmt:
            name = E.Var("element", read(p).dtype)
            s = S.LetStmt(name, read(p), say([a.at for a in p], name), self.loc)
            return self.guarded(s, owner)

        self.visit(layout, each, 1)
