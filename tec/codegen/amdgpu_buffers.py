"""Loads under a condition without a branch: buffer loads, of which the chip checks the place.

`if_then_else(cond, A[i], 0)` of a read-only parameter whose size is known becomes one buffer load at `i`, or, where the condition does not hold, at a
place behind the buffer's end, of which a buffer load reads 0 (another constant is then chosen in its place). A branch around each load ends LLVM's basic
block: what follows then waits for the load, and values that go round a loop are copied. Source: AMD's ISA manuals, "Memory buffer instructions: range checking" (raw
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
        """A guarded load of 4, 8 or 16 bytes; None for what is none, or of no fit buffer."""
        cond, load, other = e.args
        if not isinstance(load, E.BufferLoad) or load.predicate is not None or not _is_constant(other):
            return None
        p, index = self.pointer(load.buffer), self.only_index(load)
        if (
            p.type != "ptr addrspace(1)"
            or id(load.buffer.data) not in self.read_only
            or dtype_info(cond.dtype).lanes != 1
        ):
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
        holds, offset = self.expr(in_order(cond)), self.index(base)
        if dtype_info(base.dtype).bits == 64:
            offset = self.op(f"trunc i64 {offset} to i32")
        step = element.bytes * element.lanes
        if step > 1:
            offset = self.op(f"mul i32 {offset}, {step}")
        offset = self.op(f"select i1 {holds}, i32 {offset}, i32 {_NOWHERE}")
        value = self._buffer_load(p.value, size, offset, nbytes, p.load_suffix)
        mem = self.type_of(load.dtype).mem
        value = value if mem == _WORDS[nbytes] else self.op(f"bitcast {_WORDS[nbytes]} {value} to {mem}")
        found = self.from_memory(value, load.dtype)
        if is_const(_lane(other), 0):
            return found
        kind = self.type_of(load.dtype).reg
        return self.op(f"select i1 {holds}, {kind} {found}, {kind} {self.expr(other)}")

    def _buffer_load(self, pointer: str, size: int, offset: str, nbytes: int, suffix: str) -> str:
        family = self.target.chip.family
        flags = _DESCRIPTOR.get(family) or _DESCRIPTOR[family.rstrip("0123456789")]
        resource = self.intrinsic(
            "llvm.amdgcn.make.buffer.rsrc.p8.p1", "ptr addrspace(8)",
            [("ptr addrspace(1)", pointer), ("i16", "0"), ("i64", str(size)), ("i32", str(flags))],
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
