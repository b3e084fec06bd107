"""The CPU back end: `int32 f(void** buffers, int64_t* scalars)` for each function, in one position-independent ELF object.

Buffer parameters need only their element's natural alignment, so that any array of the caller can be taken without a
copy. `parallel` loops become a function of their own, `body(closure, begin, end)`, that `tec_parallel_work` runs; storage
that is large or has no constant size comes from `tec_alloc`. float64 transcendental functions go to libm; bfloat16 is
16 bits of integer, since the hardware's conversions flush denormals.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from ...errors import CodegenError
from ...ir import expr as E
from ...ir import stmt as S
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info, with_lanes
from ...ir.effects import written_params
from ...ir.func import Func
from ...ir.visit import free_vars, visit
from ...target import Target
from .. import cache, llvm_util
from ..emit.calls import CALLS, CallHandler
from ..emit.emitter import alias_groups
from ..emit.writer import quote
from . import work
from .tiles import OPS, CpuTiles

_LIBM = frozenset(
    "exp exp2 exp10 log log2 log10 log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow atan2 hypot".split()
)
_WITHOUT_F16C = frozenset(
    "x86-64 x86-64-v2 core2 penryn nehalem westmere sandybridge silvermont btver1 k8 amdfam10 barcelona".split()
)
_WITH_HALF_ARITHMETIC = frozenset("sapphirerapids emeraldrapids graniterapids graniterapids-d diamondrapids".split())
DEFAULT_SPEED = 2  # -O3 takes twice as long, and neither matmul, nor math, nor a ResNet-50 ran faster with it
_OUT_OF_MEMORY = -1
_ALLOC = ("tec_alloc", "declare noalias ptr @tec_alloc(i64) nounwind")
_FREE = ("tec_free", "declare void @tec_free(ptr) nounwind")
_PARALLEL = ("tec_parallel_work", "declare i32 @tec_parallel_work(ptr, ptr, i64, i64) nounwind")


@dataclass
class HostCode:
    """CPU code: the object, the LLVM IR it came from, and the messages of each function's assertions in order.

    `asm` (a property) makes the assembly when it is asked for.
    """

    object: bytes
    llvm: str
    machine: llvm_util.Machine
    messages: dict[str, list[str]] = field(default_factory=dict)
    speed: int = DEFAULT_SPEED
    what: str = "a module"
    _asm: str | None = None

    @property
    def asm(self) -> str:
        """Assembly of the same module, from a fresh parse."""
        if self._asm is None:
            self._asm = llvm_util.assembly(self.llvm, self.machine, self.speed, self.what)
        return self._asm


class CpuEmitter(CpuTiles):
    """The deltas of a CPU: the function frame, heap storage, parallel loops, libm."""

    calls: ClassVar[dict[str, CallHandler]] = {
        **CALLS,
        **dict.fromkeys(("dot4", "dot2"), CpuTiles.dot),
        **dict.fromkeys(OPS, CpuTiles.tile),
        "rcp_fast": CpuTiles.reciprocal,
    }
    exact_half_from_double: ClassVar[bool] = False
    saturates_half: ClassVar[bool] = False

    def __init__(self, target: Target, machine: llvm_util.Machine):
        super().__init__(target)
        self.machine = machine
        self.is_x86 = machine.triple.startswith(("x86_64", "i686"))
        self.intrinsic_prefixes = ("llvm.x86.",) if self.is_x86 else ("llvm.aarch64.",)  # type: ignore[misc]
        old = machine.cpu in _WITHOUT_F16C and "+f16c" not in machine.features
        self.native_half = not (self.is_x86 and (old or "-f16c" in machine.features))
        with_half = "+avx512fp16" in machine.features or machine.cpu in _WITH_HALF_ARITHMETIC
        self.widens_half = self.is_x86 and self.native_half and not with_half
        self.wide = target.vector_bytes if self.is_x86 else 16
        self.gather_bits = (32, 64) if self.wide == 64 else ()  # type: ignore[misc]
        self.messages: dict[str, list[str]] = {}
        self.cleanups: list[str] = []
        self.in_parallel = False
        self.stack_bytes = 0

    # ---- functions

    def function(self, f: Func) -> None:
        if f.attrs.get("threads"):
            raise self.error("a kernel with launch indices cannot run on a CPU", hint="build it for a GPU target")
        self.begin_frame()
        self.messages[f.name] = []
        self.cleanups, self.in_parallel, self.stack_bytes = [], False, 0
        writes = written_params(f)
        self.begin_aliases(alias_groups(f))
        k = n_scalars = 0
        for p in f.params:
            if isinstance(p, Buffer):
                self._buffer_param(p, k, id(p.data) not in writes)
                k += 1
        for v in (*[p for p in f.params if not isinstance(p, Buffer)], *f.implicit_vars()):
            self._scalar_slot(v, n_scalars)
            n_scalars += 1
        self.begin_tiles(f.body, into_parallel=False)
        self.stmt(f.body)
        self.end_tiles()
        self.line("ret i32 0")
        args = "ptr noalias readonly captures(none) %buffers, ptr noalias readonly captures(none) %scalars"
        self._close(f"define i32 {quote(f.name)}({args})")

    def _close(self, head: str) -> None:
        self.functions += [
            f"{head} {self.attributes(self._cpu_attributes())} {{",
            "entry:",
            *self.allocas,
            *self.out,
            "}",
            "",
        ]

    def _cpu_attributes(self) -> str:
        words = ["nounwind", '"no-trapping-math"="true"']
        if self.wide == 64:
            words.append('"prefer-vector-width"="512"')
        if self.machine.cpu:
            words.append(f'"target-cpu"="{self.machine.cpu}"')
        if self.machine.features:
            words.append(f'"target-features"="{self.machine.features}"')
        return " ".join(words)

    def _buffer_param(self, b: Buffer, k: int, read_only: bool) -> None:
        element = dtype_info(b.dtype)
        align = element.bytes  # of the caller's arrays no more is asked
        slot = self.op(f"getelementptr inbounds ptr, ptr %buffers, i64 {k}") if k else "%buffers"
        notes = f", !align {self.int_meta(align)}"
        count = self.elements(b)
        if count and not b.strides:
            notes += f", !dereferenceable {self.int_meta(count * element.bytes * element.lanes)}"
        pointer = self.op(f"load ptr, ptr {slot}, align 8, !invariant.load {self.meta('!{}')}{notes}")
        self.bind_buffer(b, pointer, 0, align, read_only)

    def _scalar_slot(self, v: E.Var, k: int) -> None:
        t = self.type_of(v.dtype)
        slot = self.op(f"getelementptr inbounds i64, ptr %scalars, i64 {k}") if k else "%scalars"
        word = self.op(f"load i64, ptr {slot}, align 8, !invariant.load {self.meta('!{}')}")
        if t.kind == "handle":
            value = self.op(f"inttoptr i64 {word} to ptr")
        elif t.kind == "bool":
            value = self.op(f"icmp ne i64 {word}, 0")
        elif t.info.is_float and not self.is_soft(v.dtype):
            bits = word if t.info.bits == 64 else self.op(f"trunc i64 {word} to i{t.info.bits}")
            value = self.op(f"bitcast i{t.info.bits} {bits} to {t.reg}")
        else:
            value = word if t.info.bits == 64 else self.op(f"trunc i64 {word} to {t.reg}")
        self.bind(v, value)

    # ---- failures

    def _leave(self, code: str) -> None:
        for pointer in reversed(self.cleanups):
            self.line(f"call void @tec_free(ptr {pointer})")
        self.end_tiles()
        self.line(f"ret i32 {code}")

    def assert_failed(self, s: S.Assert) -> None:
        messages = self.messages[self.func_name]
        messages.append(s.message)
        self._leave(str(len(messages)))

    # ---- storage

    def alloc_local(self, s: S.Alloc) -> None:
        count = self.elements(s.buffer)
        info = dtype_info(s.buffer.dtype)
        size = (count or 0) * info.bytes * info.lanes
        if count is None or size > self.stack_limit_bytes or self.stack_bytes + size > 4 * self.stack_limit_bytes:
            self._alloc_heap(s)
            return
        self.stack_bytes += size
        super().alloc_local(s)

    def alloc_shared(self, s: S.Alloc) -> None:
        """Memory of a block whose threads run as loops."""
        self.alloc_local(s)

    def alloc_global(self, s: S.Alloc) -> None:
        count = self.elements(s.buffer)
        info = dtype_info(s.buffer.dtype)
        if count is not None and count * info.bytes * info.lanes <= 4096:
            self.alloc_local(s)
        else:
            self._alloc_heap(s)

    def _alloc_heap(self, s: S.Alloc) -> None:
        self.memo_clear()
        info = dtype_info(s.buffer.dtype)
        total = str(info.bytes * info.lanes)
        for d in s.buffer.shape:
            n = self.convert(self.index(d), d.dtype, "int64")
            total = self.op(f"mul nuw nsw i64 {total}, {n}")
        self.declarations.setdefault(*_ALLOC)
        self.declarations.setdefault(*_FREE)
        pointer = self.op(f"call noalias align 64 ptr @tec_alloc(i64 {total})")
        failed, ok = self.label("nomemory"), self.label("allocated")
        self.branch_if(self.op(f"icmp eq ptr {pointer}, null"), failed, ok, self.expected(False))
        self.place(failed)
        self._leave(str(_OUT_OF_MEMORY))
        self.place(ok)
        self.bind_buffer(s.buffer, pointer, 0, 64)
        self.cleanups.append(pointer)
        self.stmt(s.body)
        self.cleanups.pop()
        self.line(f"call void @tec_free(ptr {pointer})")

    # ---- parallel loops

    def parallel(self, s: S.For) -> None:
        """Outline the body; nested parallel loops run in their thread."""
        one = isinstance(s.extent, E.IntImm) and s.extent.value <= 1
        if self.in_parallel or one:
            self.serial(s)
            return
        self.memo_clear()
        low = self.index(s.min)
        n = self.convert(self.index(s.extent), s.extent.dtype, "int64")
        each = self.index(work.clocks(s.body, lambda v: id(v) in self.vars, self.target.vector_bytes))
        clocks = self.op(f"mul nsw i64 {n}, {each}")
        variables, buffers = self._captured(s)
        slots: list[tuple[str, str, int]] = []  # type, value, byte offset
        size = 0
        for type_, value, bytes_ in [("ptr", self.pointers[b].value, 8) for b in buffers] + [
            (self.reg(v.dtype), self.vars[id(v)], _slot_bytes(v.dtype)) for v in variables
        ] + [(self.reg(s.var.dtype), low, 8)]:  # fmt: skip
            size = -(-size // bytes_) * bytes_
            slots.append((type_, value, size))
            size += bytes_
        self.counter += 1
        closure = f"%closure.{self.counter}"
        self.allocas.append(f"  {closure} = alloca [{size} x i8], align 64")
        for type_, value, at in slots:
            self.line(f"store {type_} {value}, ptr {self._slot(closure, at)}, align {min(8, at & -at) if at else 8}")
        name = f"{self.func_name}.parallel{self.counter}"
        self._outline(s, name, variables, buffers, slots)
        self.declarations.setdefault(*_PARALLEL)
        rc = self.op(f"call i32 @tec_parallel_work(ptr {quote(name)}, ptr {closure}, i64 {n}, i64 {clocks})")
        failed, ok = self.label("failed"), self.label("ok")
        self.branch_if(self.op(f"icmp ne i32 {rc}, 0"), failed, ok, self.expected(False))
        self.place(failed)
        self._leave(rc)
        self.place(ok)

    def _slot(self, closure: str, at: int) -> str:
        return self.op(f"getelementptr inbounds i8, ptr {closure}, i64 {at}") if at else closure

    def _captured(self, s: S.For) -> tuple[list[E.Var], list[int]]:
        """Variables and buffers (by id of their data) from around the loop that its body uses."""
        buffers: dict[int, None] = {}
        variables = {id(v): v for v in free_vars(s.body)}

        def expr(e: E.Expr) -> None:
            if type(e) is E.BufferLoad and id(e.buffer.data) in self.pointers:
                buffers[id(e.buffer.data)] = None

        def stmt(x: S.Stmt) -> None:
            if isinstance(x, S.BufferStore) and id(x.buffer.data) in self.pointers:
                buffers[id(x.buffer.data)] = None
            elif isinstance(x, S.Alloc):
                for d in x.buffer.shape:
                    variables.update((id(v), v) for v in free_vars(d))

        visit(s.body, expr, stmt)
        used = [v for v in variables.values() if v is not s.var and self.vars.get(id(v), "")[:1] == "%"]
        return used, list(buffers)

    def _outline(
        self, s: S.For, name: str, variables: list[E.Var], buffers: list[int], slots: list[tuple[str, str, int]]
    ) -> None:
        saved = (
            self.out,
            self.allocas,
            self.block,
            dict(self.vars),
            dict(self.pointers),
            self.cleanups,
            self.stack_bytes,
            self.uses_tiles,
        )
        self.out, self.allocas, self.block, self.cleanups, self.stack_bytes = [], [], "entry", [], 0
        self.in_parallel = True
        self.memo_clear()
        values = [
            self.op(
                f"load {t}, ptr {self._slot('%closure', at)}, align {min(8, at & -at) if at else 8}, !invariant.load {self.meta('!{}')}"
            )
            for t, _, at in slots
        ]
        for b, value in zip(buffers, values):
            self.pointers[b] = self.pointers[b]._replace(value=value)
        for v, value in zip(variables, values[len(buffers) :]):
            self.vars[id(v)] = value
        t = self.reg(s.var.dtype)
        begin, end = "%begin", "%end"
        if t != "i64":
            begin, end = (self.op(f"trunc nsw i64 {x} to {t}") for x in (begin, end))
        if not (isinstance(s.min, E.IntImm) and s.min.value == 0):
            begin, end = (self.op(f"add nsw {t} {x}, {values[-1]}") for x in (begin, end))
        self.begin_tiles(s.body, into_parallel=True)
        self.counted_loop(s.var, begin, end, s.body, True, self.loop_metadata(s), self.is_nonneg(s.min))
        self.end_tiles()
        self.line("ret i32 0")
        self._close(f"define internal i32 {quote(name)}(ptr noalias readonly %closure, i64 %begin, i64 %end)")
        (
            self.out,
            self.allocas,
            self.block,
            self.vars,
            self.pointers,
            self.cleanups,
            self.stack_bytes,
            self.uses_tiles,
        ) = saved
        self.in_parallel = False
        self.memo_clear()

    def store_contiguous(self, buffer: Buffer, base: E.Expr, value: str, dtype: str, mask: str) -> None:
        """LLVM 22's AArch64 back end fails on storing three bytes truncated from 64 bits: three stores then."""
        t = self.type_of(dtype)
        if self.is_x86 or t.info.lanes != 3 or t.info.bytes != 1 or mask:
            super().store_contiguous(buffer, base, value, dtype, mask)
            return
        address, p = self.address(buffer, base)
        for i in range(3):
            x = self.op(f"extractelement {t.mem} {value}, i64 {i}")
            at = self.op(f"getelementptr inbounds i8, ptr {address}, i64 {i}")
            self.line(f"store i8 {x}, ptr {at}, align 1{p.suffix}")

    # ---- math

    def native_math(self, op: str, dtype: str) -> str | None:
        exact = super().native_math(op, dtype)
        if exact is not None:
            return exact
        return op + ("f" if dtype == "float32" else "") if op in _LIBM and dtype in ("float32", "float64") else None

    def float_extremum(self, name: str, a: str, b: str, dtype: str) -> str:
        """Of vectors of float16 in float32 where there is no arithmetic for them: LLVM would go lane by lane. The result is one of the operands."""
        info = dtype_info(dtype)
        if not (self.widens_half and info.element == "float16" and info.lanes > 1):
            return super().float_extremum(name, a, b, dtype)
        wide = with_lanes("float32", info.lanes)
        x, y = (self.convert(v, dtype, wide) for v in (a, b))
        return self.convert(super().float_extremum(name, x, y, wide), wide, dtype)

    def saturated(self, value: str, src: str, dst: str) -> str:
        """Vectors of float32 by comparisons and one conversion: LLVM's saturating one goes lane by lane on x86."""
        s, d = self.type_of(src), self.type_of(dst)
        if (
            not self.is_x86
            or s.info.element != "float32"
            or s.info.lanes < 4
            or d.info.bits > 32
            or dst.startswith("uint32")
        ):
            return super().saturated(value, src, dst)
        wide, mask = with_lanes("int32", s.info.lanes), self.reg(with_lanes("bool", s.info.lanes))
        signed = d.kind == "int"
        low, high = (-(1 << (d.info.bits - 1)), (1 << (d.info.bits - 1)) - 1) if signed else (0, (1 << d.info.bits) - 1)
        top = high if d.info.bits < 32 else (1 << 31) - 128  # the largest float32 below 2**31

        def replaced(x: str, how: str, limit: float, by: float) -> str:
            bad = self.op(f"fcmp {how} {s.reg} {x}, {self.float_const(limit, src)}")
            return self.op(f"select {mask} {bad}, {s.reg} {self.float_const(by, src)}, {s.reg} {x}")

        x = replaced(value, "uno", 0.0, 0.0)
        x = replaced(replaced(x, "olt", float(low), float(low)), "ogt", float(top), float(top))
        out = self.op(f"fptosi {s.reg} {x} to {self.reg(wide)}")
        if d.info.bits == 32:
            big = self.op(f"fcmp oge {s.reg} {value}, {self.float_const(2.0**31, src)}")
            return self.op(f"select {mask} {big}, {d.reg} {self.int_const(high, dst)}, {d.reg} {out}")
        return self.op(f"trunc {self.reg(wide)} {out} to {d.reg}")

    def math(self, e: E.Call) -> str:
        """float16 goes through float32 where libm is called."""
        info = dtype_info(e.dtype)
        if (
            info.kind == "float"
            and info.bits == 16
            and self.native_half
            and super().native_math(e.op, info.element) is None
        ):
            wide = with_lanes("float32", info.lanes)
            args = [self.convert(self.expr(a), a.dtype, wide) for a in e.args]
            name = self.native_math(e.op, "float32")
            if name is not None:
                return self.convert(self.math_values(name, args, [self.reg(wide)] * len(args), wide), wide, e.dtype)
        return super().math(e)


def _slot_bytes(dtype: str) -> int:
    info = dtype_info(dtype)
    return max(8, 1 << (info.bytes * info.lanes - 1).bit_length())


# ---- building


@lru_cache(maxsize=64)
def machine_of(target: Target) -> llvm_util.Machine:
    """The LLVM machine of a CPU target: the host by default, always ELF."""
    if target.kind != "llvm":
        raise CodegenError(f"{target} is not a CPU target", locate=False)
    triple = target.mtriple or _host_triple()
    cpu, features = target.mcpu, target.mattr
    if not target.mtriple and cpu in ("", "native", "host"):
        cpu, host = llvm_util.host_cpu()
        features = ",".join(x for x in (host, features) if x)
    arch = triple.split("-")[0]
    if arch not in ("x86_64", "aarch64", "arm64"):
        raise CodegenError(
            f"no CPU code is made for {triple!r}",
            hint="-mtriple is an x86_64 or aarch64 one, such as aarch64-unknown-linux-gnu",
            locate=False,
        )
    if not cpu:
        cpu = "x86-64" if arch == "x86_64" else "generic"
    if features:
        features = ",".join(f if f[0] in "+-" else "+" + f for f in features.split(",") if f)
    return llvm_util.Machine(triple, cpu, features)


def _host_triple() -> str:
    """An ELF triple of the host: the loader is tec's own on every system."""
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    return f"{arch}-pc-windows-elf" if sys.platform == "win32" else f"{arch}-unknown-linux-gnu"


def emit_cpu(
    funcs: list[Func], target: Target, places: dict[int, int] | None = None
) -> tuple[str, dict[str, list[str]]]:
    """The LLVM IR text of CPU functions, and the messages of their assertions. places: see `Printer.places`."""
    emitter = emitter_for(target)
    emitter.places = places or {}
    return llvm_util.with_imports(emitter.emit(funcs), funcs), emitter.messages


def emitter_for(target: Target) -> CpuEmitter:
    """The emitter of a CPU target's text."""
    machine = machine_of(target)
    emitter = CpuEmitter(target, machine)
    emitter.triple = machine.triple  # type: ignore[misc]
    emitter.layout = llvm_util.data_layout(machine)  # type: ignore[misc]
    return emitter


def assembly_of(llvm: str, target: Target, name: str) -> str:
    """The assembly of a CPU function's LLVM IR. Raises CodegenError."""
    return llvm_util.assembly(llvm, machine_of(target), DEFAULT_SPEED, llvm_util.named([name]))


def build_cpu(funcs: list[Func], target: Target, speed: int = DEFAULT_SPEED) -> HostCode:
    """Compile functions of stage "lowered" for a CPU target; objects come from the disk cache where they are known.

    Raises CodegenError for what cannot be expressed.
    """
    return begin_cpu(funcs, target, speed)()


def begin_cpu(
    funcs: list[Func], target: Target, speed: int = DEFAULT_SPEED, places: dict[int, int] | None = None
) -> Callable[[], HostCode]:
    """`build_cpu` in two steps: LLVM begins now, and a call of what is returned waits for the code. places: see `Printer.places`."""
    with llvm_util.timed("emit text"):
        text, messages = emit_cpu(funcs, target, places)
    machine, what = machine_of(target), llvm_util.named(funcs)
    key = cache.key_of(text, machine.triple, machine.cpu, machine.features, str(speed), llvm_util.llvm_version())
    found = cache.load(key)
    compiling = llvm_util.begin(text, machine, ("object",), speed, what) if found is None else None

    def finish() -> HostCode:
        obj = found
        if compiling is not None:
            obj = compiling.result()["object"]
            cache.store(key, obj)
        assert obj is not None
        return HostCode(obj, text, machine, messages, speed, what)

    return finish
