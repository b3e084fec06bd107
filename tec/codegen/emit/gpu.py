"""What AMDGPU and NVPTX code have in common: launch indices with their ranges, shared memory, lanes in 32-bit parts.

Sources: LLVM's "User Guide for AMDGPU Backend" and "User Guide for NVPTX Back-end" (address spaces, intrinsics).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info
from ...ir.func import Func
from ...ir.shared_layout import boundary_of
from ..llvm_util import Machine
from .emitter import Emitter, quote
from .statements import _clean
from .writer import Pointer

SHARED_SPACE = 3
_MAX_BYTES_OF_32_BIT_OFFSET = 1 << 32


class GpuEmitter(Emitter):
    """The common deltas of GPU targets. A target adds its intrinsics' names."""

    index_intrinsics: ClassVar[dict[str, str]] = {}  # launch tag -> LLVM intrinsic
    max_shared_align: ClassVar[int] = 16
    grid_limits: ClassVar[tuple[int, int, int]] = (2**31 - 1, 65535, 65535)
    machine: Machine
    user_intrinsics = False  # whether the code names intrinsics that the user chose

    def function(self, f: Func) -> None:
        self.block_shape = tuple(self._extent(f, f"threadIdx.{c}") or 1 for c in "xyz")
        self.shared_count = 0
        super().function(f)

    @staticmethod
    def _extent(f: Func, tag: str) -> int | None:
        entry = f.attrs.get("threads", {}).get(tag)
        if entry is None:
            return 1
        extent = entry[1]
        return extent.value if isinstance(extent, E.IntImm) else None

    @property
    def block_threads(self) -> int:
        """Threads of a work-group."""
        x, y, z = self.block_shape
        return x * y * z

    def thread_index(self, tag: str, extent: E.Expr) -> str:
        name = self.index_intrinsics.get(tag)
        if name is None:
            raise self.error(f"there is no launch index {tag!r}", hint="blockIdx.x, .y, .z and threadIdx.x, .y, .z")
        known = extent.value if isinstance(extent, E.IntImm) else None
        if known == 1:
            return "0"
        limit = known or self.grid_limits["xyz".index(tag[-1])]
        return self.intrinsic(name, "i32", [], f"range(i32 0, {limit}) ")

    # ---- addresses

    def address_space(self, scope: str) -> int:
        if scope == "global":
            return 1
        return SHARED_SPACE if scope.startswith("shared") else self.alloca_space

    def offset(self, p: Pointer, buffer: Buffer, index: E.Expr) -> tuple[str, str]:
        """An offset known not to be negative is zero-extended, which addressing modes take in (base in scalar registers,
        32-bit offset in a vector register); shared and private pointers have 32 bits themselves."""
        dtype = index.dtype
        info = dtype_info(dtype)
        if info.bits == 32 and info.lanes == 1 and p.type == "ptr addrspace(1)" and self.is_nonneg(index):
            value = self.index(index)
            if value[0] != "%":
                return "i64", value
            return "i64", self.op(f"zext nneg i32 {value} to i64")
        return super().offset(p, buffer, index)

    # ---- shared memory

    def alloc_shared(self, s: S.Alloc) -> None:
        """A global of address space 3: of its own size, or of size 0 for memory that the launch provides."""
        count = self.elements(s.buffer)
        t = self.type_of(s.buffer.dtype)
        if count is None:
            if s.buffer.scope != "shared.dyn":
                raise self.error(
                    f"shared buffer {s.buffer.name!r} has no constant size",
                    hint='split by constant factors, or give it scope "shared.dyn"',
                )
            name = quote("tec_dynamic_shared")
            line = f"{name} = external addrspace({SHARED_SPACE}) global [0 x i8], align {self.max_shared_align}"
            if line not in self.globals:
                self.globals.append(line)
        else:
            self.shared_count += 1
            name = quote(f"{self.func_name}.{_clean(s.buffer.name)}.{self.shared_count}")
            align = max(self.max_shared_align, boundary_of(s.buffer))
            self.globals.append(
                f"{name} = internal unnamed_addr addrspace({SHARED_SPACE}) global [{max(count, 1)} x {t.element}] "
                f"{self.shared_initial}, align {align}"
            )
            self.bind_buffer(s.buffer, name, SHARED_SPACE, align)
            self.stmt(s.body)
            return
        self.bind_buffer(s.buffer, name, SHARED_SPACE, self.max_shared_align)
        self.stmt(s.body)

    shared_initial: ClassVar[str] = "poison"

    # ---- lanes

    def in_words(self, value: str, dtype: str, f: Callable[[str], str]) -> str:
        """Apply `f` to each 32-bit word of a scalar value and put the results together."""
        t = self.type_of(dtype)
        if t.info.lanes != 1:
            raise self.error(f"a value of {dtype} moves between lanes", hint="move the elements one by one")
        if t.kind == "handle":
            raise self.error("a pointer moves between lanes")
        bits = 1 if t.kind == "bool" else t.info.bits
        whole = t.reg if t.reg.startswith("i") else f"i{bits}"
        if whole != t.reg:
            value = self.op(f"bitcast {t.reg} {value} to {whole}")
        if bits == 64:
            pair = self.op(f"bitcast i64 {value} to <2 x i32>")
            out = "poison"
            for k in range(2):
                word = f(self.op(f"extractelement <2 x i32> {pair}, i64 {k}"))
                out = self.op(f"insertelement <2 x i32> {out}, i32 {word}, i64 {k}")
            value = self.op(f"bitcast <2 x i32> {out} to i64")
        elif bits == 32:
            value = f(value)
        else:
            value = self.op(f"trunc i32 {f(self.op(f'zext {whole} {value} to i32'))} to {whole}")
        return self.op(f"bitcast {whole} {value} to {t.reg}") if whole != t.reg else value

    def shuffle_width(self, e: E.Call) -> int:
        """The third argument of a shuffle: a constant power of two within the wavefront."""
        width, wave = e.args[2], self.target.wavefront_size
        if not isinstance(width, E.IntImm) or width.value & (width.value - 1) or not 1 <= width.value <= wave:
            raise self.error(f"{e.op} over {width} lanes", hint=f"the width is a power of two up to {wave}")
        return width.value

    def wave_lane(self, e: E.Call) -> str:
        raise NotImplementedError

    def copy_now(self, e: E.Call) -> str:
        """async_copy(dst element, src element, n elements) as a load and a store."""
        dst, src = self.load_of(e.args[0], e.op), self.load_of(e.args[1], e.op)
        n = e.args[2] if len(e.args) > 2 else E.IntImm(1)
        if not isinstance(n, E.IntImm) or n.value < 1:
            raise self.error(f"async_copy of {n} elements", hint="the count is a positive constant")
        t = self.type_of(src.buffer.dtype)
        mem = f"<{n.value * t.info.lanes} x {self.type_of(t.info.element).mem}>" if n.value > 1 else t.mem
        bytes_ = n.value * t.info.bytes * t.info.lanes
        (to, to_p), (start, start_p) = self._at(dst), self._at(src)
        value = self.op(
            f"load {mem}, {start_p.type} {start}, align {self._align(start_p, src, bytes_)}{start_p.load_suffix}"
        )
        self.line(f"store {mem} {value}, {to_p.type} {to}, align {self._align(to_p, dst, bytes_)}{to_p.suffix}")
        return "0"

    def _at(self, load: E.BufferLoad) -> tuple[str, Pointer]:
        return self.address(load.buffer, self.only_index(load))

    def _align(self, p: Pointer, load: E.BufferLoad, bytes_: int) -> int:
        return self.alignment(p, load.buffer, self.only_index(load), bytes_)

    def nothing(self, e: E.Call) -> str:
        """async_commit, async_wait where copies are done at once."""
        return "0"

    def llvm_intrinsic(self, e: E.Call) -> str:
        self.user_intrinsics = True
        return super().llvm_intrinsic(e)
