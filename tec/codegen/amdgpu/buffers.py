"""Buffer loads: without a branch under a condition, since the chip checks the place; in pipelines, whose address arithmetic becomes scalar.

`if_then_else(cond, A[i], 0)` of a read-only parameter becomes one buffer load at `i`, or, where the condition does not hold, at a
place behind the buffer's end, of which a buffer load reads 0 (another constant is then chosen in its place). Where the buffer's size is not known, the part of `i` that lanes
share moves the descriptor's beginning, and the rest has to be known to stay near it. A branch around each load ends LLVM's basic
block: what follows then waits for the load, and values that go round a loop are copied. `if_then_else(cond, A[i], B[j])`, of a condition that all lanes share, is
one buffer load too, with the one buffer's descriptor or the other's.

In a loop that `pipeline` made, a load's place is the lanes' offset, which stays in a register, beside a scalar one: an addition a load and step, beside the
matrix unit. LLVM's loop passes make of a scalar base and a lane's offset three vector instructions and a wait (f16 128x128x64 on gfx942: 14 to none, llvm-mca's
cycles 371 to 352, by the time model 4096 cubed on MI300X 233 to 226 us). Copies in the background go straight into shared memory. Source: AMD's ISA manuals, "Memory buffer instructions: range checking" (raw
buffers); the descriptor's last word by generation, as Composable Kernel has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.arith.intervals import interval_of
from ...ir.buffer import Buffer
from ...ir.build import is_const
from ...ir.dtype import dtype_info
from ...ir.effects import is_call
from ...ir.func import Func
from ...ir.visit import any_stmt, substitute
from ..emit.calls import in_order
from ..emit.gpu import copy_now
from ..emit.guards import bytes_of, is_constant, lane_of
from ..emit.writer import Pointer
from .addresses import UniformAddresses, terms

if TYPE_CHECKING:
    from .emitter import AmdgpuEmitter

_REACH = 1 << 31  # bytes below which a buffer load's offset has to stay
_NOWHERE = -_REACH  # as an unsigned offset, behind every buffer's end, and no access from there wraps round
_DESCRIPTOR = {"gcn": 0x00027000, "cdna": 0x00027000, "rdna2": 0x31014000, "rdna": 0x31004000, "cdna5": 0x31004000}
# Families whose pipelines load by scalar places. RDNA's lose by it in registers what they gain (gfx1100: f16 242 for 237, 1,186 us for 1,194; f32 3,809 for 3,789).
_BY_SCALARS = ("cdna1", "cdna2", "cdna3", "cdna4")
_NO_LOADS = 0xF70  # s_waitcnt's word for vmcnt(0) alone
_WORDS = {1: "i8", 2: "i16", 4: "i32", 8: "<2 x i32>", 16: "<4 x i32>"}
_MANGLED = {1: "i8", 2: "i16", 4: "i32", 8: "v2i32", 16: "v4i32"}


class _Bounds(NamedTuple):
    """A buffer that is read, the bytes from its descriptor's beginning on, the first element of an access from there, and the elements that lie ahead of it (None: none)."""

    buffer: Buffer
    pointer: Pointer
    size: int
    own: E.Expr
    same: E.Expr | None = None


class BufferLoads(UniformAddresses):
    """`guarded_load`, for if_then_else; loads of pipelines."""

    def begin(self, f: Func) -> None:
        super().begin(f)
        self.in_pipeline = False
        self.copies = self.em.target.chip.loads_lds_by_16 and any_stmt(f.body, lambda s: is_call(s, "async_copy"))

    def loads_by_scalars(self, s: S.For) -> bool:
        """Whether the loads of a loop are by scalar places."""
        return self.in_pipeline or bool(s.pipelined and self.em.target.chip.family in _BY_SCALARS)

    def begin_aliases(self, groups: Iterable[tuple[Buffer, ...]]) -> None:
        """Copies in the background are apart from every access: a barrier is between them and what they may meet. LLVM else waits for all of them before
        each read of shared memory."""
        super().begin_aliases([*groups, ()] if self.copies else groups)
        self.copies_suffix = self.last_suffix

    def guarded_load(self, e: E.Call) -> str | None:
        """A guarded load of 1, 2, 4, 8 or 16 bytes, or one from either of two buffers; None for what is none, or of no fit buffer."""
        cond, value, other = e.args
        if is_constant(other):
            guard, loads = cond, self._sources(value)
        else:
            guard, loads = None, self._sources(e)
        if loads is None or dtype_info(cond.dtype).lanes != 1:
            return None
        found = [b for b in map(self._bounds, loads[1]) if b is not None]
        if len(found) < len(loads[1]):
            return None
        holds = self.expr(in_order(guard)) if guard is not None else ""
        places = [(self._start(b), b.size, self._byte_offset(b.own, b.buffer)) for b in found]
        pointer, size, offset = places[0]
        length = str(size)
        if loads[0] is not None:
            first, (pointer_b, size_b, offset_b) = self.expr(in_order(loads[0])), places[1]
            space = "ptr addrspace(1)"
            pointer = self.op(f"select i1 {first}, {space} {pointer}, {space} {pointer_b}")
            length = self.op(f"select i1 {first}, i64 {size}, i64 {size_b}") if size != size_b else length
            offset = self.op(f"select i1 {first}, i32 {offset}, i32 {offset_b}")
        if holds:
            offset = self.op(f"select i1 {holds}, i32 {offset}, i32 {_NOWHERE}")
        load = loads[1][0]
        suffix = self.pointer(load.buffer).load_suffix if loads[0] is None else self.read_only_suffix()
        result = self._buffer_load(self._resource(pointer, length), offset, "0", load.dtype, suffix)
        if not holds or is_const(lane_of(other), 0):
            return result
        kind = self.type_of(load.dtype).reg
        return self.op(f"select i1 {holds}, {kind} {result}, {kind} {self.expr(other)}")

    def _sources(self, e: E.Expr) -> tuple[E.Expr | None, list[E.BufferLoad]] | None:
        """A load; or two, and the condition for the first, which all lanes agree on: a descriptor is in scalar registers."""
        if isinstance(e, E.BufferLoad):
            return None, [e]
        if not isinstance(e, E.Call) or e.op != "if_then_else" or dtype_info(e.args[0].dtype).lanes != 1:
            return None
        cond, a, b = e.args
        if not isinstance(a, E.BufferLoad) or not isinstance(b, E.BufferLoad) or a.dtype != b.dtype:
            return None
        return None if self.em.values.is_varying(cond) else (cond, [a, b])

    def _bounds(self, load: E.BufferLoad) -> _Bounds | None:
        """What a buffer load asks of an access; None where none does it. Of a buffer whose size is not known only what lanes reach from a place that they share counts."""
        found, whole = self.first_of(load), dtype_info(load.dtype)
        nbytes = whole.bytes * whole.lanes
        if found is None or nbytes not in _WORDS:
            return None
        (p, base), size = found, bytes_of(load.buffer)
        if size is not None:
            return _Bounds(load.buffer, p, size, base)
        element = dtype_info(load.buffer.dtype)
        step = element.bytes * element.lanes
        own, same, low, reach = list[tuple[E.Expr, int]](), list[tuple[E.Expr, int]](), 0, 0
        for e, k in sorted(terms(base), key=lambda t: not self.em.values.is_varying(t[0])):
            known = interval_of(e, self.em.values.ranges)
            ends = (known[0] * k, known[1] * k) if known is not None else (0, _REACH)
            if reach + max(map(abs, ends)) < _REACH // step - whole.lanes:
                own.append((e, k))
                low, reach = low + min(ends), reach + max(map(abs, ends))
            elif self.em.values.is_varying(e):
                return None
            else:
                same.append((e, k))
        if low < 0 or not own:
            return None
        shared = self._sum(same, base.dtype) if same else None
        return _Bounds(load.buffer, p, reach * step + nbytes, self._sum(own, base.dtype), shared)

    def _start(self, b: _Bounds) -> str:
        """Where a buffer load's descriptor begins."""
        return b.pointer.value if b.same is None else self._moved(b.pointer, b.buffer, b.same)

    def _byte_offset(self, base: E.Expr, buffer: Buffer) -> str:
        offset, element = self.index(base), dtype_info(buffer.dtype)
        if dtype_info(base.dtype).bits == 64:
            offset = self.op(f"trunc i64 {offset} to i32")
        step = element.bytes * element.lanes
        return self.op(f"mul i32 {offset}, {step}") if step > 1 else offset

    def _load_contiguous(
        self, buffer: Buffer, base: E.Expr, dtype: str, predicate: E.Expr | None, mask: str = ""
    ) -> str:
        if self.in_pipeline and predicate is None and not mask:
            found = self._load_by_scalars(buffer, base, dtype)
            if found is not None:
                return found
        return super()._load_contiguous(buffer, base, dtype, predicate, mask)

    def _load_by_scalars(self, buffer: Buffer, base: E.Expr, dtype: str) -> str | None:
        """A load whose place is known to be the lanes' offset and a scalar one, neither below 0; None for another."""
        p, size, whole = self.pointer(buffer), bytes_of(buffer), dtype_info(dtype)
        if p.type != "ptr addrspace(1)" or id(buffer.data) not in self.read_only or size is None:
            return None
        nbytes = whole.bytes * whole.lanes
        if nbytes not in _WORDS or whole.kind == "bool":
            return None
        places = self._places(buffer, base)
        if places is None:
            return None
        return self._buffer_load(self._resource(p.value, str(size)), *places, dtype, p.load_suffix)

    def _places(self, buffer: Buffer, base: E.Expr) -> tuple[str, str] | None:
        """An index as bytes of the lane and bytes alike for all lanes, neither below 0; None where that is not known."""
        parts = terms(base)
        for e, k in parts:
            known = interval_of(e, self.em.values.ranges)
            if known is None or min(known[0] * k, known[1] * k) < 0:
                return None
        own = [(e, k) for e, k in parts if self.em.values.is_varying(e)]
        same = [(e, k) for e, k in parts if not self.em.values.is_varying(e)]
        if not own:
            return None
        return self._bytes(own, buffer, base), self._bytes(same, buffer, base) if same else "0"

    def _bytes(self, parts: list[tuple[E.Expr, int]], buffer: Buffer, base: E.Expr) -> str:
        """A sum of terms of an index, none below 0, in bytes and 32 bits."""
        whole, element = self._sum(parts, base.dtype), dtype_info(buffer.dtype)
        offset = self.index(whole)
        if dtype_info(whole.dtype).bits > 32:
            offset = self.op(f"trunc i64 {offset} to i32")
        step = element.bytes * element.lanes
        return self.op(f"mul nuw nsw i32 {offset}, {step}") if step > 1 else offset

    def _buffer_load(self, resource: str, offset: str, scalar: str, dtype: str, suffix: str) -> str:
        """The value at a lane's offset and a scalar one, in bytes."""
        whole = dtype_info(dtype)
        nbytes, mem = whole.bytes * whole.lanes, self.type_of(dtype).mem
        args = [("ptr addrspace(8)", resource), ("i32", offset), ("i32", scalar), ("i32", "0")]
        name = f"llvm.amdgcn.raw.ptr.buffer.load.{_MANGLED[nbytes]}"
        self.em.declarations.setdefault(name, f"declare {_WORDS[nbytes]} @{name}({', '.join(t for t, _ in args)})")
        value = self.op(f"call {_WORDS[nbytes]} @{name}({', '.join(f'{t} {v}' for t, v in args)}){suffix}")
        value = value if mem == _WORDS[nbytes] else self.op(f"bitcast {_WORDS[nbytes]} {value} to {mem}")
        return self.from_memory(value, dtype)

    def _resource(self, pointer: str, size: str) -> str:
        """The descriptor of a buffer of so many bytes."""
        family = self.em.target.chip.family
        flags = _DESCRIPTOR.get(family) or _DESCRIPTOR[family.rstrip("0123456789")]
        return self.intrinsic(
            "llvm.amdgcn.make.buffer.rsrc.p8.p1", "ptr addrspace(8)",
            [("ptr addrspace(1)", pointer), ("i16", "0"), ("i64", size), ("i32", str(flags))],
        )  # fmt: skip


def direct_copy(em: AmdgpuEmitter, e: E.Call) -> str:
    """async_copy(to, from, elements, lane) straight into shared memory, where lanes lie in order behind the first one's place; by a load and a store
    what says of no lanes, or is not known to lie within reach of a buffer load."""
    to, source, count, *lane = e.args
    assert isinstance(to, E.BufferLoad) and isinstance(source, E.BufferLoad)
    p, size = em.memory.pointer(source.buffer), bytes_of(source.buffer)
    there = lane and isinstance(lane[0], E.Var) and em.memory.copies and size is not None
    places = em.memory._places(source.buffer, em.memory.only_index(source)) if there else None
    if (
        places is None
        or size is None
        or p.type != "ptr addrspace(1)"
        or id(source.buffer.data) not in em.memory.read_only
    ):
        return copy_now(em, e)
    var, info = lane[0], dtype_info(to.buffer.dtype)
    assert isinstance(var, E.Var)
    nbytes = info.bytes * info.lanes * (count.value if isinstance(count, E.IntImm) else 0)
    index = substitute(em.memory.only_index(to), {var: E.IntImm(0, var.dtype)})
    em.keep.append(index)
    own, same = ([(x, k) for x, k in terms(index) if em.values.is_varying(x) is v] for v in (True, False))
    # The wavefront's place: of threads in wavefronts of their own, so that any lane knows it.
    parts = [em.memory._bytes(t, to.buffer, index) for t in (own, same) if t]
    if own:
        parts[0] = em.intrinsic("llvm.amdgcn.readfirstlane.i32", "i32", [("i32", parts[0])])
    offset = parts[0] if len(parts) == 1 else em.op(f"add nuw nsw i32 {parts[0]}, {parts[1]}")
    shared = em.memory.pointer(to.buffer)
    place = em.op(f"getelementptr i8, {shared.type} {shared.value}, i32 {offset}")
    args = [
        ("ptr addrspace(8)", em.memory._resource(p.value, str(size))),
        (shared.type, place),
        ("i32", str(nbytes)),
        ("i32", places[0]),
        ("i32", places[1]),
    ]
    args += [("i32", "0"), ("i32", "0")]
    name = "llvm.amdgcn.raw.ptr.buffer.load.lds"
    immediate = {2, 5, 6}
    kinds = ", ".join(t + (" immarg" if k in immediate else "") for k, (t, _) in enumerate(args))
    em.declarations.setdefault(name, f"declare void @{name}({kinds})")
    em.line(f"call void @{name}({', '.join(f'{t} {v}' for t, v in args)}){em.memory.copies_suffix}")
    return "0"


def async_wait(em: AmdgpuEmitter, e: E.Call) -> str:
    """Until all copies in the background are there. LLVM's own wait for them at a barrier is lost where they were started before the loop's end."""
    if em.memory.copies:
        n = min(63, int((e.attrs or {}).get("copies", 0)))
        em.intrinsic("llvm.amdgcn.s.waitcnt", "void", [("i32", str(_NO_LOADS | (n & 15) | (n & 48) << 10))])
    return "0"
