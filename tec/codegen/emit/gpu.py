"""What AMDGPU and NVPTX code have in common: launch indices with their ranges, shared memory, lanes in 32-bit parts.

Sources: LLVM's "User Guide for AMDGPU Backend" and "User Guide for NVPTX Back-end" (address spaces, intrinsics).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info
from ...ir.func import Func
from ...ir.shared_layout import boundary_of
from .frame import Frame
from .guards import bytes_of
from .memory import Memory
from .statements import Statements, clean_name
from .writer import Pointer, quote

if TYPE_CHECKING:
    from .emitter import Emitter

SHARED_SPACE = 3


class GpuFrame(Frame):
    """A kernel with launch indices. A target adds its intrinsics' names."""

    index_intrinsics: ClassVar[dict[str, str]] = {}  # launch tag -> LLVM intrinsic
    grid_limits: ClassVar[tuple[int, int, int]] = (2**31 - 1, 65535, 65535)

    def begin(self, f: Func) -> None:
        self.block_shape = tuple(self._extent(f, f"threadIdx.{c}") or 1 for c in "xyz")

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

    def address_space(self, scope: str) -> int:
        if scope == "global":
            return 1
        return SHARED_SPACE if scope.startswith("shared") else self.em.alloca_space


class GpuMemory(Memory):
    """Offsets of 32 bits; which parameters are only read."""

    def begin(self, f: Func) -> None:
        super().begin(f)
        self.read_only: set[int] = set()

    def bind_buffer(self, buffer: Buffer, value: str, space: int = 0, align: int = 0, read_only: bool = False) -> None:
        super().bind_buffer(buffer, value, space, align, read_only)
        if read_only:
            self.read_only.add(id(buffer.data))

    def known_place(self, load: E.BufferLoad) -> tuple[Pointer, int, E.Expr] | None:
        """Of a load of neighbours from a parameter that is only read and whose size is known, which can be made without a branch: the pointer, the buffer's bytes,
        and the first element; None for another load."""
        found, size = self.first_of(load), bytes_of(load.buffer)
        return None if found is None or size is None else (found[0], size, found[1])

    def first_of(self, load: E.BufferLoad) -> tuple[Pointer, E.Expr] | None:
        """Of a load of neighbours from a parameter that is only read, at an index that reads no memory: the pointer and the first element; None for another load."""
        p, index, info = self.pointer(load.buffer), self.only_index(load), dtype_info(load.dtype)
        is_global = p.type == "ptr addrspace(1)" and id(load.buffer.data) in self.read_only
        if load.predicate is not None or not is_global or info.kind == "bool":
            return None
        form = self.lane_form(index) if dtype_info(index.dtype).lanes > 1 else (index, 1)
        if form is None or form[1] != 1 or not self.is_pure(form[0]):
            return None
        return p, form[0]

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


class GpuStatements(Statements):
    """Shared memory: globals of address space 3."""

    max_shared_align: ClassVar[int] = 16
    shared_initial: ClassVar[str] = "poison"

    def begin(self, f: Func) -> None:
        self.shared_count = 0

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
            if line not in self.em.globals:
                self.em.globals.append(line)
        else:
            self.shared_count += 1
            name = quote(f"{self.em.func_name}.{clean_name(s.buffer.name)}.{self.shared_count}")
            align = max(self.max_shared_align, boundary_of(s.buffer))
            # Whole words: an atomic operation on 8 or 16 bits is one on the word around them.
            each = max(4 // max(t.info.bytes, 1), 1)
            count = -(-max(count, 1) // each) * each
            self.em.globals.append(
                f"{name} = internal unnamed_addr addrspace({SHARED_SPACE}) global [{count} x {t.element}] "
                f"{self.shared_initial}, align {align}"
            )
            self.em.memory.bind_buffer(s.buffer, name, SHARED_SPACE, align)
            self.stmt(s.body)
            return
        self.em.memory.bind_buffer(s.buffer, name, SHARED_SPACE, self.max_shared_align)
        self.stmt(s.body)


# ---- lanes


def in_words(em: Emitter, value: str, dtype: str, f: Callable[[str], str]) -> str:
    """Apply `f` to each 32-bit word of a scalar value and put the results together."""
    t = em.type_of(dtype)
    if t.info.lanes != 1:
        raise em.error(f"a value of {dtype} moves between lanes", hint="move the elements one by one")
    if t.kind == "handle":
        raise em.error("a pointer moves between lanes")
    bits = 1 if t.kind == "bool" else t.info.bits
    whole = t.reg if t.reg.startswith("i") else f"i{bits}"
    if whole != t.reg:
        value = em.op(f"bitcast {t.reg} {value} to {whole}")
    if bits == 64:
        pair = em.op(f"bitcast i64 {value} to <2 x i32>")
        out = "poison"
        for k in range(2):
            word = f(em.op(f"extractelement <2 x i32> {pair}, i64 {k}"))
            out = em.op(f"insertelement <2 x i32> {out}, i32 {word}, i64 {k}")
        value = em.op(f"bitcast <2 x i32> {out} to i64")
    elif bits == 32:
        value = f(value)
    else:
        value = em.op(f"trunc i32 {f(em.op(f'zext {whole} {value} to i32'))} to {whole}")
    return em.op(f"bitcast {whole} {value} to {t.reg}") if whole != t.reg else value


def shuffle_width(em: Emitter, e: E.Call) -> int:
    """The third argument of a shuffle: a constant power of two within the wavefront."""
    width, wave = e.args[2], em.target.wavefront_size
    if not isinstance(width, E.IntImm) or width.value & (width.value - 1) or not 1 <= width.value <= wave:
        raise em.error(f"{e.op} over {width} lanes", hint=f"the width is a power of two up to {wave}")
    return width.value


# ---- copies


def copy_now(em: Emitter, e: E.Call) -> str:
    """async_copy(dst element, src element, n elements) as a load and a store."""
    dst, src = em.memory.load_of(e.args[0], e.op), em.memory.load_of(e.args[1], e.op)
    n = e.args[2] if len(e.args) > 2 else E.IntImm(1)
    if not isinstance(n, E.IntImm) or n.value < 1:
        raise em.error(f"async_copy of {n} elements", hint="the count is a positive constant")
    t = em.type_of(src.buffer.dtype)
    mem = f"<{n.value * t.info.lanes} x {em.type_of(t.info.element).mem}>" if n.value > 1 else t.mem
    bytes_ = n.value * t.info.bytes * t.info.lanes
    (to, to_p), (start, start_p) = element_at(em, dst), element_at(em, src)
    load = f"load {mem}, {start_p.type} {start}, align {align_of(em, start_p, src, bytes_)}{start_p.load_suffix}"
    if (e.attrs or {}).get("masked"):
        cond = em.expr(e.args[3])
        before, inside, join = em.block, em.label("copy"), em.label("join")
        em.branch_if(cond, inside, join)
        em.place(inside)
        loaded = em.op(load)
        em.branch(join)
        em.place(join)
        value = em.phi(mem, (loaded, inside), ("zeroinitializer", before))
    else:
        value = em.op(load)
    em.line(f"store {mem} {value}, {to_p.type} {to}, align {align_of(em, to_p, dst, bytes_)}{to_p.suffix}")
    return "0"


def element_at(em: Emitter, load: E.BufferLoad) -> tuple[str, Pointer]:
    return em.memory.address(load.buffer, em.memory.only_index(load))


def align_of(em: Emitter, p: Pointer, load: E.BufferLoad, bytes_: int) -> int:
    return em.memory.alignment(p, load.buffer, em.memory.only_index(load), bytes_)


def nothing(em: Emitter, e: E.Call) -> str:
    """async_commit, async_wait where copies are done at once."""
    return "0"
