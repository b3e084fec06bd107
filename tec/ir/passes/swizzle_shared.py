"""Spread the rows of shared tiles over the banks without padding: element (x, y) goes to piece (y / P) xor (x / L mod R) of
its row.

In, stage "loops": `Attr(Swizzle())` around the stores that fill a shared buffer. P is the number of elements in
16 bytes, R the power of two up to 8 that divides the pieces of a row, L the rows that make up 128 bytes (1 for longer
ones). Out: every access of that buffer goes to the swizzled place, the attribute is gone. Lanes that read 16-byte pieces
of 8 neighbouring rows then touch all 32 banks once, as with padding, and the tile stays as large as its data. Where threads store several
rows each (`Swizzle.rows`, N > 1), the piece is (y / P) xor ((x / L) xor (x / L / N)) mod R: lanes that store to rows N apart
touch other banks as well, and neighbouring rows still do.
"""

from __future__ import annotations

from ...errors import LoweringError
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..buffer import Buffer
from ..dtype import dtype_info
from ..func import Func
from ..notes import Swizzle
from ..visit import map_expr, map_stmt, visit
from .rewrite_util import SHARED_SCOPES, const_int

_PIECE_BYTES = 16
_BANKS_BYTES = 128


def swizzle_shared(func: Func, target: Target) -> Func:
    """Swizzle the buffers that the pragma names; the function itself where there is none. Raises LoweringError."""
    shapes: dict[int, tuple[int, int, int, int]] = {}

    def collect(s: S.Stmt) -> None:
        if isinstance(s, S.Attr) and isinstance(s.note, Swizzle):
            for b in _stored(s.body):
                shapes[id(b)] = (*_shape(b, func.name), s.note.rows)

    visit(func.body, None, collect)
    if not shapes:
        return func
    return func.with_body(_Swizzle(shapes).stmt(func.body))


def _stored(body: S.Stmt) -> list[Buffer]:
    found: list[Buffer] = []

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, S.BufferStore) and s.buffer.scope in SHARED_SCOPES:
            found.append(s.buffer)

    visit(body, None, on_stmt)
    return found


def _shape(b: Buffer, func: str) -> tuple[int, int, int]:
    """P, L and R of the module's formula."""
    piece = _PIECE_BYTES // max(1, dtype_info(b.dtype).bytes)
    row = const_int(b.shape[-1]) if len(b.shape) > 1 else None
    if row is None or row % piece:
        raise LoweringError(
            f"shared buffer {b.name} has rows of {b.shape[-1]} elements, swizzling moves pieces of {piece} (function {func!r})",
            hint="use a tile whose rows are a multiple of 16 bytes, or storage_align",
        )
    pieces = row // piece
    return piece, max(1, _BANKS_BYTES // (pieces * _PIECE_BYTES)), min(8, pieces & -pieces)


class _Swizzle:
    def __init__(self, shapes: dict[int, tuple[int, int, int, int]]):
        self.shapes = shapes
        self.ana = Analyzer()

    def indices(self, buffer: Buffer, at: tuple[E.Expr, ...]) -> tuple[E.Expr, ...]:
        piece, line, turns, rows = self.shapes[id(buffer)]
        *lead, x, y = at
        if turns == 1:
            return at
        dtype = y.dtype
        place = self.ana.simplify(B.floordiv(y, piece))
        turn = self.ana.simplify(B.cast(dtype, B.floormod(B.floordiv(x, line), turns)))
        if rows > 1:
            far = self.ana.simplify(B.cast(dtype, B.floormod(B.floordiv(x, line * rows), turns)))
            turn = B.bitwise_xor(turn, far)
        within = self.ana.simplify(B.floormod(y, piece))
        return (*lead, x, B.add(B.mul(B.bitwise_xor(place, turn), piece), within))

    def expr(self, e: E.Expr) -> E.Expr:
        out = map_expr(e, self.expr)
        if type(out) is E.BufferLoad and id(out.buffer) in self.shapes:
            return E.BufferLoad(out.buffer, self.indices(out.buffer, out.indices), out.predicate)
        return out

    def stmt(self, s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Attr) and isinstance(s.note, Swizzle):
            return self.stmt(s.body)
        if isinstance(s, S.For):
            with self.ana.scope():
                self.ana.bind(s.var, E.Range(s.min, s.extent))
                return map_stmt(s, self.stmt, self.expr)
        out = map_stmt(s, self.stmt, self.expr)
        if isinstance(out, S.BufferStore) and id(out.buffer) in self.shapes:
            at = self.indices(out.buffer, out.indices)
            return S.BufferStore(out.buffer, out.value, at, out.predicate, out.loc)
        return out
