"""Make tiles of TVM's wmma calls tiles of the target's matrix instruction.

In, stage "loops": `Attr(Fragment(role, "wmma TYPE SUMS MxNxK"), loops)` as `te.wmma` makes them; "*" is a type that is not told there and comes from the
product of the same shape. Out: the same statement once for each tile of the instruction, under its name. A 16x16x16 product of
float16 is one MFMA or WMMA on AMD, and two mma.sync of 8 columns on NVIDIA.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import LoweringError
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import matrix
from .. import stmt as S
from ..func import Func
from ..matrix import MatrixInstr, instr_to_text
from ..notes import Fragment
from ..visit import any_stmt, map_stmts, substitute_stmt, visit


def split_wmma(func: Func, target: Target) -> Func:
    """The function with tiles of the target's instructions; the function itself where it has no wmma tiles. Raises LoweringError."""
    if not any_stmt(func.body, _is_wmma):
        return func
    products: list[tuple[str, str, str]] = []

    def note(s: S.Stmt) -> None:
        if _is_wmma(s) and s.note.role == "mma":  # type: ignore[attr-defined]
            products.append(_words(s))

    visit(func.body, None, note)
    return func.with_body(_Splitter(func, target, products).stmt(func.body))


def _is_wmma(s: S.Stmt) -> bool:
    return isinstance(s, S.Attr) and isinstance(s.note, Fragment) and s.note.instruction.startswith("wmma ") and len(s.note.instruction.split()) == 4  # fmt: skip


def _words(s: S.Stmt) -> tuple[str, str, str]:
    """(type of the operands, type of the sums, shape)."""
    assert isinstance(s, S.Attr) and isinstance(s.note, Fragment)
    _, operand, sums, shape = s.note.instruction.split()
    return operand, sums, shape


class _Splitter:
    def __init__(self, func: Func, target: Target, products: Sequence[tuple[str, str, str]]):
        self.func, self.target, self.products = func, target, products

    def stmt(self, s: S.Stmt) -> S.Stmt:
        if not _is_wmma(s):
            return map_stmts(s, self.stmt)
        assert isinstance(s, S.Attr) and isinstance(s.note, Fragment)
        instr = self._instr(*_words(s))
        role = s.note.role
        tile = (instr.m, instr.n, instr.k) if role == "mma" else instr.shape(role)
        variables, body = [], s.body
        for _ in tile:
            assert isinstance(body, S.For)
            variables.append(body)
            body = body.body
        return self._pieces(s, instr, variables, tile, body)

    def _pieces(
        self, s: S.Attr, instr: MatrixInstr, loops: Sequence[S.For], tile: Sequence[int], body: S.Stmt
    ) -> S.Stmt:
        """The loops over whole instructions around the loops of one."""
        pieces: list[tuple[E.Var, int]] = []
        inner = [E.Var(loop.var.name) for loop in loops]
        places: dict[E.Var, E.Expr] = {}
        for loop, var, size in zip(loops, inner, tile):
            extent = loop.extent
            assert isinstance(extent, E.IntImm)
            if extent.value == size:
                places[loop.var] = var
                continue
            piece = E.Var(f"{loop.var.name}_piece")
            pieces.append((piece, extent.value // size))
            places[loop.var] = B.add(B.mul(piece, size), var)
        made = substitute_stmt(body, places)
        for var, size in zip(reversed(inner), reversed(tile)):
            made = S.For(var, B.const(0), B.const(size), made)
        assert isinstance(s.note, Fragment)
        made = S.Attr(Fragment(s.note.role, instr_to_text(instr)), made)
        for piece, count in reversed(pieces):
            made = S.For(piece, B.const(0), B.const(count), made)
        return made

    def _instr(self, operand: str, sums: str, shape: str) -> MatrixInstr:
        """The instruction whose tiles fill the shape: the largest there is."""
        for o, a, other in self.products:
            if other == shape and operand in ("*", o) and sums in ("*", a):
                operand, sums = o, a
                break
        m, n, k = map(int, shape.split("x"))
        fits = [
            i
            for i in matrix.instructions(self.target)
            if i.blocks == 1 and i.in_dtype == operand and i.acc_dtype == sums and not (m % i.m or n % i.n or k % i.k)
        ]
        if fits:
            return max(fits, key=lambda i: i.m * i.n * i.k)
        known = ", ".join(i.name for i in matrix.instructions(self.target) if i.blocks == 1) or "none"
        raise LoweringError(
            f"{self.target} has no matrix instruction for wmma tiles of {shape}, {operand} to {sums} (function {self.func.name!r})",
            hint=f"a tile is made of whole instructions: {known}", locate=False,
        )  # fmt: skip
