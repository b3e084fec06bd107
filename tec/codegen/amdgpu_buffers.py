"""Loads under a condition without a branch: buffer loads, of which the chip checks the place.

`if_then_else(cond, A[i], 0)` of a read-only parameter whose size is known becomes one buffer load at `i`, or, where the condition does not hold, at a
place behind the buffer's end, of which a buffer load reads 0 (another constant is then chosen in its place). A branch around each load ends LLVM's basic
block: what follows then waits for the load, and values that go round a loop are copied. `if_then_else(cond, A[i], B[j])`, of a condition that all lanes share, is
one buffer load too, with the one buffer's descriptor or the other's. Source: AMD's ISA manuals, "Memory buffer instructions: range checking" (raw
buffers); the descriptor's last word by generation, as Composable Kernel has it.
"""

from __future__ import annotations

from ..ir import expr as E
from ..ir.buffer import Buffer
from ..ir.build import is_const
from ..ir.dtype import dtype_info
from ..ir.func import Func
from .emitter_call import in_order
from .gpu_address import UniformAddresses

_MOST_BYTES = 1 << 31
_NOWHERE = -(1 << 31)  # as an unsigned offset, behind every buffer's end, and no access from there wraps round
_DESCRIPTOR = {"gcn": 0x00027000, "cdna": 0x00027000, "rdna2": 0x31014000, "rdna": 0x31004000, "cdna5": 0x31004000}
_WORDS = {4: "i32", 8: "<2 x i32>", 16: "<4 x i32>"}
_MANGLED = {4: "i32", 8: "v2i32", 16: "v4i32"}


class BufferLoads(UniformAddresses):
    """`guarded_load`, for if_then_else."""

    def function(self, f: Func) -> None:
        self.read_only: set[int] = set()
        super().function(f)

    def bind_buffer(self, buffer: Buffer, value: str, space: int = 0, align: int = 0, read_only: bool = False) -> None:
        super().bind_buffer(buffer, value, space, align, read_only)
        if read_only:
            self.read_only.add(id(buffer.data))

    def guarded_load(self, e: E.Call) -> str | None:
        """A guarded load of 4, 8 or 16 bytes, or one from either of two buffers; None for what is none, or of no fit buffer."""
        cond, value, other = e.args
        if _is_constant(other):
            guard, loads = cond, self._sources(value)
        else:
            guard, loads = None, self._sources(e)
        if loads is None or dtype_info(cond.dtype).lanes != 1:
            return None
        found = [self._bounds(x) for x in loads[1]]
        if not all(found):
            return None
        holds = self.expr(in_order(guard)) if guard is not None else ""
        places = [(*x, self._byte_offset(x[2], load)) for x, load in zip(found, loads[1]) if x is not None]
        pointer, size, _, offset = places[0]
        length = str(size)
        if loads[0] is not None:
            first, (pointer_b, size_b, _, offset_b) = self.expr(in_order(loads[0])), places[1]
            space = "ptr addrspace(1)"
            pointer = self.op(f"select i1 {first}, {space} {pointer}, {space} {pointer_b}")
            length = self.op(f"select i1 {first}, i64 {size}, i64 {size_b}") if size != size_b else length
            offset = self.op(f"select i1 {first}, i32 {offset}, i32 {offset_b}")
        if holds:
            offset = self.op(f"select i1 {holds}, i32 {offset}, i32 {_NOWHERE}")
        load = loads[1][0]
        whole = dtype_info(load.dtype)
        nbytes = whole.bytes * whole.lanes
        suffix = self.pointer(load.buffer).load_suffix if loads[0] is None else self.read_only_suffix()
        got = self._buffer_load(pointer, length, offset, nbytes, suffix)
        mem = self.type_of(load.dtype).mem
        got = got if mem == _WORDS[nbytes] else self.op(f"bitcast {_WORDS[nbytes]} {got} to {mem}")
        result = self.from_memory(got, load.dtype)
        if not holds or is_const(_lane(other), 0):
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
        return None if self.is_varying(cond) else (cond, [a, b])

    def _bounds(self, load: E.BufferLoad) -> tuple[str, int, E.Expr] | None:
        """A buffer's pointer and bytes, and the first element of an access that a buffer load does; None where none does."""
        if load.predicate is not None:
            return None
        p, index = self.pointer(load.buffer), self.only_index(load)
        if p.type != "ptr addrspace(1)" or id(load.buffer.data) not in self.read_only:
            return None
        element, whole = dtype_info(load.buffer.dtype), dtype_info(load.dtype)
        extents = [s.value for s in load.buffer.shape if isinstance(s, E.IntImm)]
        size = element.bytes * element.lanes
        for n in extents:
            size *= n
        nbytes = whole.bytes * whole.lanes
        if (
            len(extents) != len(load.buffer.shape)
            or size >= _MOST_BYTES
            or nbytes not in _WORDS
            or whole.kind == "bool"
        ):
            return None
        base: E.Expr = index
        if dtype_info(index.dtype).lanes > 1:
            form = self.lane_form(index)
            if form is None or form[1] != 1:
                return None
            base = form[0]
        if not self.is_pure(base) or self.alignment(p, load.buffer, base, nbytes) < 4:
            return None
        return p.value, size, base

    def _byte_offset(self, base: E.Expr, load: E.BufferLoad) -> str:
        offset, element = self.index(base), dtype_info(load.buffer.dtype)
        if dtype_info(base.dtype).bits == 64:
            offset = self.op(f"trunc i64 {offset} to i32")
        step = element.bytes * element.lanes
        return self.op(f"mul i32 {offset}, {step}") if step > 1 else offset

    def _buffer_load(self, pointer: str, size: str, offset: str, nbytes: int, suffix: str) -> str:
        family = self.target.chip.family
        flags = _DESCRIPTOR.get(family) or _DESCRIPTOR[family.rstrip("0123456789")]
        resource = self.intrinsic(
            "llvm.amdgcn.make.buffer.rsrc.p8.p1", "ptr addrspace(8)",
            [("ptr addrspace(1)", pointer), ("i16", "0"), ("i64", size), ("i32", str(flags))],
        )  # fmt: skip
        args = [("ptr addrspace(8)", resource), ("i32", offset), ("i32", "0"), ("i32", "0")]
        name = f"llvm.amdgcn.raw.ptr.buffer.load.{_MANGLED[nbytes]}"
        self.declarations.setdefault(name, f"declare {_WORDS[nbytes]} @{name}({', '.join(t for t, _ in args)})")
        return self.op(f"call {_WORDS[nbytes]} @{name}({', '.join(f'{t} {v}' for t, v in args)}){suffix}")


def _lane(e: E.Expr) -> E.Expr:
    return e.value if isinstance(e, E.Broadcast) else e


def _is_constant(e: E.Expr) -> bool:
    return isinstance(_lane(e), (E.IntImm, E.FloatImm))


__all__ = ["BufferLoads"]
