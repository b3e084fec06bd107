"""Keeps WMMA out of branches: a matrix instruction takes its operands from all lanes of the wavefront, so all must be on.

LLVM knows this of MFMA; WMMA it moves down under a guard of the results (MachineSink), where the lanes beyond the tensor's edge
are off, and the others compute with what they happened to hold. So where statements that only read an accumulator follow those
that computed it, an empty instruction that uses the accumulator's registers stands between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info
from ...ir.func import Func
from ...ir.visit import visit
from ..emit.gpu import GpuStatements

if TYPE_CHECKING:
    from .emitter import AmdgpuEmitter


class AmdgpuStatements(GpuStatements):
    """Statements of kernels with WMMA; loops whose loads are by scalar places."""

    em: AmdgpuEmitter

    def begin(self, f: Func) -> None:
        super().begin(f)
        self.pinned: list[E.Expr] = []  # kept: the memo goes by identity, which a later node would get
        self.computed: dict[int, tuple[Buffer, int]] = {}  # accumulators that nothing has read yet, elements of a tile

    def serial(self, s: S.For) -> None:
        memory = self.em.memory
        around, memory.in_pipeline = memory.in_pipeline, memory.loads_by_scalars(s)
        self.em.values.begin_loop(s)
        super().serial(s)
        memory.in_pipeline = around

    def buffer_store(self, s: S.BufferStore) -> None:
        super().buffer_store(s)
        if _is_wmma(s.value):
            self.computed[id(s.buffer)] = s.buffer, dtype_info(s.value.dtype).lanes

    def sequence(self, s: S.Seq) -> None:
        for child in s.stmts:
            if self.computed:
                read = _reads(child)
                for key in [k for k in self.computed if k in read]:  # in the order of the stores, not of addresses
                    self._pin(*self.computed.pop(key))
            self.stmt(child)

    def _pin(self, tiles: Buffer, elems: int) -> None:
        (size,) = tiles.shape
        self.memo_clear()
        for start in range(0, size.value if isinstance(size, E.IntImm) else 0, elems):
            load = E.BufferLoad(tiles, (E.Ramp(E.IntImm(start), E.IntImm(1), elems),))
            self.pinned.append(load)
            self.line(f'call void asm sideeffect "", "v"({self.reg(load.dtype)} {self.expr(load)})')


def _is_wmma(e: E.Expr) -> bool:
    return isinstance(e, E.Call) and e.op == "mma" and (e.attrs or {}).get("unit") == "wmma"


def _reads(s: S.Stmt) -> set[int]:
    """Buffers that a statement reads; none where it computes tiles itself."""
    found: set[int] = set()
    computes = False

    def on_expr(e: E.Expr) -> None:
        nonlocal computes
        if isinstance(e, E.BufferLoad):
            found.add(id(e.buffer))
        elif _is_wmma(e):
            computes = True

    visit(s, on_expr, None)
    return set() if computes else found
