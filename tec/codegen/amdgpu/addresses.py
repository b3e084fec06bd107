"""Addresses in two parts: what is the same for all lanes in scalar registers, the lanes' own part in 32 bits.

An index is taken apart into terms. Terms of block indices, parameters and loop variables are uniform: added to the base
they stay a scalar pointer. What depends on threadIdx is the lanes' part; where it is provably not negative and below 2 GiB
it becomes a 32-bit byte offset, which AMDGPU's global loads and stores take beside a scalar base (saddr form). Whether a
value is uniform is only a guess at what pays: LLVM decides, and a wrong guess costs speed, not results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.arith.intervals import Interval, interval_of
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info
from ...ir.func import Func
from ..emit.gpu import GpuMemory
from ..emit.values import Values
from ..emit.writer import Pointer

if TYPE_CHECKING:
    from .emitter import AmdgpuEmitter

_MAX_OFFSET_BYTES = 1 << 31
_SMALL_BYTES = 2048  # what every chip takes as an immediate offset


class LaneValues(Values):
    """Values, and which of them lanes may disagree on, with their ranges."""

    def begin(self, f: Func) -> None:
        super().begin(f)
        self.varying: set[int] = set()
        self.ranges: dict[int, Interval] = {}
        for tag, (var, extent) in f.attrs.get("threads", {}).items():
            if isinstance(extent, E.IntImm):
                self.ranges[id(var)] = (0, extent.value - 1)
            if tag.startswith("threadIdx"):
                self.varying.add(id(var))

    def bind(self, var: E.Var, value: str, source: E.Expr | None = None) -> None:
        super().bind(var, value, source)
        if source is None or (id(var) in self.ranges and id(var) in self.varying):
            return
        if self.is_varying(source):
            self.varying.add(id(var))
        known = interval_of(source, self.ranges)
        if known is not None:
            self.ranges[id(var)] = known

    def begin_loop(self, s: S.For) -> None:
        """What is known of a loop's variable within it."""
        low, n = interval_of(s.min, self.ranges), interval_of(s.extent, self.ranges)
        if low is not None and n is not None:
            self.ranges[id(s.var)] = (low[0], max(low[0], low[1] + n[1] - 1))
        if self.is_varying(s.min) or self.is_varying(s.extent):
            self.varying.add(id(s.var))

    def is_varying(self, e: E.Expr) -> bool:
        """Whether lanes may disagree on an expression."""
        t = type(e)
        if t is E.Var:
            return id(e) in self.varying
        if t is E.IntImm:
            return False
        if isinstance(e, (E.BinaryExpr, E.CmpExpr)):
            return self.is_varying(e.a) or self.is_varying(e.b)
        if isinstance(e, E.Cast):
            return self.is_varying(e.value)
        return True


def terms(e: E.Expr) -> list[tuple[E.Expr, int]]:
    """An index as a sum of (expression, factor). What it is widened from is a sum too, since indices do not wrap."""
    out: list[tuple[E.Expr, int]] = []
    _collect(e, 1, out)
    return out


def _collect(e: E.Expr, scale: int, out: list[tuple[E.Expr, int]]) -> None:
    if isinstance(e, E.Add):
        _collect(e.a, scale, out)
        _collect(e.b, scale, out)
    elif isinstance(e, E.Sub):
        _collect(e.a, scale, out)
        _collect(e.b, -scale, out)
    elif isinstance(e, E.Mul) and isinstance(e.b, E.IntImm):
        _collect(e.a, scale * e.b.value, out)
    elif isinstance(e, E.Cast) and _is_widened(e):
        out += [(E.Cast(e.dtype, x), scale * k) for x, k in terms(e.value)]
    else:
        out.append((e, scale))


def _is_widened(e: E.Cast) -> bool:
    """Whether a signed integer of more bits holds a sum's value."""
    to, of = dtype_info(e.dtype), dtype_info(e.value.dtype)
    return isinstance(e.value, (E.Add, E.Sub, E.Mul)) and to.kind == of.kind == "int" and to.bits > of.bits


class UniformAddresses(GpuMemory):
    """Memory with addresses split into a uniform base and a 32-bit offset of the lane."""

    em: AmdgpuEmitter

    def address(self, buffer: Buffer, index: E.Expr) -> tuple[str, Pointer]:
        p = self.pointer(buffer)
        if p.type == "ptr addrspace(1)" and dtype_info(index.dtype).kind == "int":
            split = self._split(buffer, index, p)
            if split is not None:
                return split, p
        return super().address(buffer, index)

    def _split(self, buffer: Buffer, index: E.Expr, p: Pointer) -> str | None:
        """The address as a uniform base in scalar registers and an offset of the lane's own; None where all or nothing of the index varies, or the lane's
        part may not fit an offset."""
        parts = terms(index)
        info = dtype_info(buffer.dtype)
        size = info.bytes * info.lanes
        own = [(e, k) for e, k in parts if self.em.values.is_varying(e)]
        same = [(e, k) for e, k in parts if not self.em.values.is_varying(e) and not isinstance(e, E.IntImm)]
        constant = sum(e.value * k for e, k in parts if isinstance(e, E.IntImm))
        if not own or not same:
            return None
        low = reach = 0
        for e, k in own:
            known = interval_of(e, self.em.values.ranges)
            if known is None:
                return None
            low += min(known[0] * k, known[1] * k)
            reach += max(abs(known[0] * k), abs(known[1] * k))  # of every partial sum
        if low < 0 or reach * size >= _MAX_OFFSET_BYTES:
            return None
        fits = abs(constant) * size < _SMALL_BYTES
        if constant and not fits:
            same.append((E.IntImm(constant, index.dtype), 1))
        pointer = self._moved(p, buffer, self._sum(same, index.dtype))
        lanes = self._sum(own, index.dtype)
        offset = self.index(lanes)
        if dtype_info(lanes.dtype).bits > 32:
            offset = self.op(f"trunc i64 {offset} to i32")
        if size > 1:
            offset = self.op(f"mul nuw nsw i32 {offset}, {size}")
        wide = self.op(f"zext nneg i32 {offset} to i64")
        pointer = self.op(f"getelementptr i8, {p.type} {pointer}, i64 {wide}")
        if constant and fits:
            pointer = self.op(f"getelementptr i8, {p.type} {pointer}, i64 {constant * size}")
        return pointer

    def _moved(self, p: Pointer, buffer: Buffer, elements: E.Expr) -> str:
        """A buffer's pointer, so many elements on."""
        value, bits = self.index(elements), dtype_info(elements.dtype).bits
        if bits < 64:
            value = self.op(f"{'zext nneg' if self.is_nonneg(elements) else 'sext'} i{bits} {value} to i64")
        return self.op(f"getelementptr {self.type_of(buffer.dtype).element}, {p.type} {p.value}, i64 {value}")

    def _sum(self, parts: list[tuple[E.Expr, int]], dtype: str) -> E.Expr:
        out: E.Expr | None = None
        for e, k in parts:
            part = e if k == 1 else E.Mul(e, E.IntImm(k, dtype))
            out = part if out is None else E.Add(out, part)
        assert out is not None
        self.em.keep.append(out)  # the memo goes by identity: the node must stay
        return out
