"""Matrix instructions and branches: what LLVM must be told of each.

A matrix instruction takes its operands from all lanes of the wavefront, so all must be on. LLVM knows this of MFMA; WMMA it moves
down under a guard of the results (MachineSink), where the lanes beyond the tensor's edge are off, and the others compute with what
they happened to hold. So where statements that only read an accumulator follow those that computed it, an empty instruction that
uses the accumulator's registers stands between them.

CDNA does not hold back an instruction that reads an MFMA's result too soon: LLVM counts the wait states between and puts in what
is missing. Where ways meet it counts too many (GCNHazardRecognizer::getWaitStatesSince): of a block that ends in two jumps it
counts both on either way, and a block that it has reached by a long way it does not look at again by a short one. So the wait
states stand ahead of the branch, if a result is read behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info
from ...ir.func import Func
from ...ir.matrix import instr_of
from ...ir.scaled_matrix import scaled_of
from ...ir.visit import any_expr, any_stmt, visit
from ...target import Target
from ..emit.gpu import GpuStatements

if TYPE_CHECKING:
    from .emitter import AmdgpuEmitter

_PRODUCTS = ("mma", "mma_scaled")
_FEWEST_PASSES = 2  # of an MFMA
_LONGEST_NOP = 16  # wait states of an s_nop


class AmdgpuStatements(GpuStatements):
    """Statements of kernels with matrix instructions; loops whose loads are by scalar places."""

    em: AmdgpuEmitter

    def begin(self, f: Func) -> None:
        super().begin(f)
        self.pinned: list[E.Expr] = []  # kept: the memo goes by identity, which a later node would get
        self.computed: dict[int, tuple[Buffer, int]] = {}  # accumulators that nothing has read yet, elements of a tile
        self.under_way: dict[int, int] = {}  # accumulators of MFMA that no branch has waited for, wait states
        self.results_read: dict[int, frozenset[int]] = {}  # of a statement of the function
        self.behind: list[Sequence[S.Stmt]] = []  # what follows in the sequences around, up to the loop around

    def serial(self, s: S.For) -> None:
        memory = self.em.memory
        around, memory.in_pipeline = memory.in_pipeline, memory.loads_by_scalars(s)
        behind, self.behind = self.behind, []
        self.em.values.begin_loop(s)
        super().serial(s)
        memory.in_pipeline, self.behind = around, behind

    def buffer_store(self, s: S.BufferStore) -> None:
        super().buffer_store(s)
        if _is_wmma(s.value):
            self.computed[id(s.buffer)] = s.buffer, dtype_info(s.value.dtype).lanes
        elif isinstance(s.value, E.Call) and s.value.op in _PRODUCTS and not self.em.is_rdna:
            self.under_way[id(s.buffer)] = _wait_states(s.value, self.em.target)

    def sequence(self, s: S.Seq) -> None:
        for at, child in enumerate(s.stmts):
            if self.computed:
                read = _reads(child)
                for key in [k for k in self.computed if k in read]:  # in the order of the stores, not of addresses
                    self._pin(*self.computed.pop(key))
            self.behind.append(s.stmts[at:])
            if self.under_way and _may_branch(child):
                self._await_results()
            self.stmt(child)
            self.behind.pop()

    def _await_results(self) -> None:
        """Wait states until the accumulators may be read that something behind reads, other than a matrix instruction."""
        read = set[int]().union(*(self._read_of(x) for rest in self.behind for x in rest))
        states = max((n for key, n in self.under_way.items() if key in read), default=0)
        if not states:
            return
        self.under_way.clear()
        states -= 1  # the branch is one
        self.em.intrinsic("llvm.amdgcn.sched.barrier", "void", [("i32", "0")])
        while states > 0:
            here = min(states, _LONGEST_NOP)
            self.em.intrinsic("llvm.amdgcn.s.nop", "void", [("i16", str(here - 1))])
            states -= here

    def _read_of(self, s: S.Stmt) -> frozenset[int]:
        found = self.results_read.get(id(s))
        if found is None:
            found = self.results_read[id(s)] = _results_read(s)
        return found

    def _pin(self, tiles: Buffer, elems: int) -> None:
        (size,) = tiles.shape
        self.memo_clear()
        for start in range(0, size.value if isinstance(size, E.IntImm) else 0, elems):
            load = E.BufferLoad(tiles, (E.Ramp(E.IntImm(start), E.IntImm(1), elems),))
            self.pinned.append(load)
            self.line(f'call void asm sideeffect "", "v"({self.reg(load.dtype)} {self.expr(load)})')


def _is_wmma(e: E.Expr) -> bool:
    return isinstance(e, E.Call) and e.op == "mma" and (e.attrs or {}).get("unit") == "wmma"


def _wait_states(product: E.Call, target: Target) -> int:
    """Wait states from an MFMA to whatever reads its result (CDNA 2 and 3 ISA manuals, 4.5): three more than its passes of four clocks; 18 of float64, which memory instructions may read."""
    if product.dtype.startswith("float64"):
        return 18
    if product.op == "mma":
        instr = instr_of(product.attrs or {})
        macs, dtype = instr.m * instr.n * instr.k * instr.blocks, instr.in_dtype
    else:
        scaled = scaled_of(product.attrs or {})
        macs, dtype = scaled.m * scaled.n * scaled.k, "float8"
    return max(_FEWEST_PASSES, macs // target.machine.macs(dtype)) + 3


def _may_branch(s: S.Stmt) -> bool:
    return any_stmt(s, lambda x: isinstance(x, S.IfThenElse | S.While)) or any_expr(
        s, lambda e: isinstance(e, E.Call) and e.op == "if_then_else"
    )


def _results_read(s: S.Stmt) -> frozenset[int]:
    """Buffers that a statement reads, but for those that matrix instructions alone read."""
    by_units: set[int] = set()
    found: dict[int, int] = {}

    def on_expr(e: E.Expr) -> None:
        if isinstance(e, E.BufferLoad):
            found[id(e)] = id(e.buffer)
        elif isinstance(e, E.Call) and e.op in _PRODUCTS:
            by_units.update(map(id, e.args))

    visit(s, on_expr, None)
    return frozenset(buffer for load, buffer in found.items() if load not in by_units)


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
