"""Accesses of a CPU: constants of an index as steps of their own, and vectors whose elements lie some apart by whole vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import expr as E
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info, with_lanes
from ...target.cpus import loads_apart
from ..emit.memory import Memory
from ..emit.writer import Pointer
from . import dots

if TYPE_CHECKING:
    from .emitter import CpuEmitter

_TWO_REGISTERS = 64  # bytes of vectors from which on an instruction permutes the lanes of two registers into one


def _without_constant(e: E.Expr) -> tuple[E.Expr, int]:
    """A sum without its numbers, and these added up."""
    if isinstance(e, E.IntImm):
        return E.IntImm(0, e.dtype), e.value
    if type(e) is not E.Add and type(e) is not E.Sub:
        return e, 0
    (a, x), (b, y) = _without_constant(e.a), _without_constant(e.b)
    constant = x + y if type(e) is E.Add else x - y
    if a is e.a and b is e.b:
        return e, 0
    if isinstance(b, E.IntImm) and b.value == 0:
        return a, constant
    if isinstance(a, E.IntImm) and a.value == 0 and type(e) is E.Add:
        return b, constant
    return type(e)(a, b), constant


class CpuMemory(Memory):
    """Gathers where the core has wide ones."""

    em: CpuEmitter

    def __init__(self, em: CpuEmitter):
        super().__init__(em)
        self.gather_bits = (32, 64) if em.wide == 64 else ()

    def address(self, buffer: Buffer, index: E.Expr) -> tuple[str, Pointer]:
        """What varies and the constant are steps of their own: neighbours of a register tile share the first, and the second is part of the instruction. In one sum the constant is among
        32-bit terms, which LLVM orders anew for each neighbour, and extends one by one in the innermost loop."""
        rest, constant = _without_constant(index)
        if constant == 0 or isinstance(rest, E.IntImm) or dtype_info(index.dtype).kind != "int":
            return super().address(buffer, index)
        self.em.keep.append(rest)
        p, element = self.pointer(buffer), self.type_of(buffer.dtype).element
        type_, offset = self.offset(p, buffer, rest)
        # Of a smaller number the first step stays within the buffer; otherwise it may lie outside.
        gep = "getelementptr inbounds" if constant > 0 and self.is_nonneg(rest) else "getelementptr"
        first = self.op(f"{gep} {element}, {p.type} {p.value}, {type_} {offset}")
        return self.op(f"{gep} {element}, {p.type} {first}, i64 {constant}"), p

    def _load_lanes(self, e: E.BufferLoad, index: E.Expr, form: tuple[E.Expr, int] | None, lanes: int) -> str:
        """Every second element from two whole vectors, of which the second ends with the last element: all that they read lies between elements that are read anyway. LLVM keeps scalar
        loads, an insertion for each lane. Of larger strides see `_load_apart`."""
        t = self.type_of(e.dtype)
        if form is not None and self._is_apart(e, form[1], lanes):
            return self._load_apart(e, form, lanes)
        if form is None or form[1] != 2 or e.predicate is not None or t.kind == "bool":
            return super()._load_lanes(e, index, form, lanes)
        low, p = self.address(e.buffer, form[0])
        last = self.op(
            f"getelementptr inbounds {self.type_of(e.buffer.dtype).element}, {p.type} {low}, i64 {lanes - 1}"
        )
        align = dtype_info(e.buffer.dtype).bytes
        a, b = (self.op(f"load {t.mem}, {p.type} {at}, align {align}{p.load_suffix}") for at in (low, last))
        # Of 2 * lanes - 1 elements the second vector has the last ones: its odd places are even ones of all.
        picks = ", ".join(f"i32 {2 * i if 2 * i < lanes else 2 * i + 1}" for i in range(lanes))
        value = self.op(f"shufflevector {t.mem} {a}, {t.mem} {b}, <{lanes} x i32> <{picks}>")
        return self.from_memory(value, e.dtype)

    def _is_apart(self, e: E.BufferLoad, stride: int, lanes: int) -> bool:
        """Whether lanes of 32 bits come quicker by whole vectors, as many as the stride, than one by one (`loads_apart`)."""
        one = dtype_info(e.buffer.dtype)
        own = min(lanes, self.em.wide // one.bytes)
        whole = one.bits == 32 and lanes % own == 0 and e.predicate is None
        return whole and stride > 2 and loads_apart(own, stride, self.em.wide)

    def _load_apart(self, e: E.BufferLoad, form: tuple[E.Expr, int], lanes: int) -> str:
        """Every `stride`-th element, register by register. Vector k of a register begins at element k * (n - 1), so that the last one ends with the last lane: all that is read lies
        between lanes. Lane i is at place stride * i - k * (n - 1) of its vector. AVX-512 permutes two registers into one. Without it places must differ from lane to lane: blends
        bring them together, and one permutation into order."""
        base, stride = form
        one, (low, p) = dtype_info(e.buffer.dtype), self.address(e.buffer, base)
        n = min(lanes, self.em.wide // one.bytes)
        element, t = self.type_of(e.buffer.dtype).element, self.type_of(with_lanes(e.dtype, n))
        at = [min(stride - 1, stride * i // (n - 1)) for i in range(n)]  # the vector of each lane
        places = [stride * i - k * (n - 1) for i, k in enumerate(at)]
        permutes = self.em.wide == _TWO_REGISTERS

        def shuffled(a: str, b: str, picks: list[int]) -> str:
            text = ", ".join(f"i32 {x}" for x in picks)
            return self.op(f"shufflevector {t.mem} {a}, {t.mem} {b}, <{n} x i32> <{text}>")

        def register(first: int) -> str:
            made = ""
            for k in range(stride):
                address = self.op(f"getelementptr inbounds {element}, {p.type} {low}, i64 {first + k * (n - 1)}")
                vector = self.op(f"load {t.mem}, {p.type} {address}, align {one.bytes}{p.load_suffix}")
                if not made:
                    made = vector
                elif permutes:
                    kept = [place if k == 1 else i for i, place in enumerate(places)]
                    made = shuffled(made, vector, [n + places[i] if at[i] == k else kept[i] for i in range(n)])
                else:
                    own = {place for place, of in zip(places, at) if of == k}
                    made = shuffled(made, vector, [n + j if j in own else j for j in range(n)])
            return made if permutes else shuffled(made, "poison", places)

        parts = [register(first) for first in range(0, lanes * stride, n * stride)]
        return self.from_memory(dots.joined(self.em, parts, with_lanes(e.dtype, n)), e.dtype)

    def store_contiguous(self, buffer: Buffer, base: E.Expr, value: str, dtype: str, mask: str) -> None:
        """LLVM 22's AArch64 back end fails on storing three bytes truncated from 64 bits: three stores then."""
        t = self.type_of(dtype)
        if self.em.is_x86 or t.info.lanes != 3 or t.info.bytes != 1 or mask:
            super().store_contiguous(buffer, base, value, dtype, mask)
            return
        address, p = self.address(buffer, base)
        for i in range(3):
            x = self.op(f"extractelement {t.mem} {value}, i64 {i}")
            at = self.op(f"getelementptr inbounds i8, ptr {address}, i64 {i}")
            self.line(f"store i8 {x}, ptr {at}, align 1{p.suffix}")
