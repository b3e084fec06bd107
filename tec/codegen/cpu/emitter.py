"""The CPU back end: `int32 f(void** buffers, int64_t* scalars)` for each function, in one position-independent ELF object.

Buffer parameters need only their element's natural alignment, so that any array of the caller can be taken without a
copy. `parallel` loops become a function of their own, `body(closure, begin, end)`, that `tec_parallel_work` runs; storage
that is large or has no constant size comes from `tec_alloc`. float64 transcendental functions go to libm; bfloat16 is
16 bits of integer, since the hardware's conversions flush denormals.
"""

from __future__ import annotations

from typing import ClassVar

from ...ir import expr as E
from ...ir import stmt as S
from ...ir import work
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info, with_lanes
from ...ir.effects import written_params
from ...ir.func import Func
from ...ir.visit import any_expr, free_vars, visit
from ...target import Target
from .. import llvm_util
from ..emit import calls
from ..emit.arithmetic import Arithmetic
from ..emit.calls import CallHandler
from ..emit.emitter import Emitter, Parts
from ..emit.frame import Frame, alias_groups
from ..emit.statements import Statements
from ..emit.writer import quote
from . import dots
from .memory import CpuMemory
from .tiles import OPS, Tiles, tile

_LIBM = frozenset(
    "exp exp2 exp10 log log2 log10 log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow atan2 hypot".split()
)
_WITHOUT_F16C = frozenset(
    "x86-64 x86-64-v2 core2 penryn nehalem westmere sandybridge silvermont btver1 k8 amdfam10 barcelona".split()
)
_WITH_HALF_ARITHMETIC = frozenset("sapphirerapids emeraldrapids graniterapids graniterapids-d diamondrapids".split())
_OUT_OF_MEMORY = -1
_ALLOC = ("tec_alloc", "declare noalias ptr @tec_alloc(i64) nounwind")
_FREE = ("tec_free", "declare void @tec_free(ptr) nounwind")
_PARALLEL = ("tec_parallel_work", "declare i32 @tec_parallel_work(ptr, ptr, i64, i64) nounwind")
# LLVM rounds to bfloat by this function of compiler-rt where the CPU has no instruction: to nearest, half to even.
_TO_BFLOAT = """define weak hidden bfloat @__truncsfbf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %nan = fcmp uno float %x, 0.0
  %upper = lshr i32 %bits, 16
  %odd = and i32 %upper, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %bits, %half
  %high = lshr i32 %sum, 16
  %kept = select i1 %nan, i32 32704, i32 %high
  %short = trunc i32 %kept to i16
  %made = bitcast i16 %short to bfloat
  ret bfloat %made
}"""


class CpuFrame(Frame):
    """`int32 f(void** buffers, int64_t* scalars)`."""

    em: CpuEmitter

    def function(self, f: Func) -> None:
        if f.attrs.get("threads"):
            raise self.error("a kernel with launch indices cannot run on a CPU", hint="build it for a GPU target")
        writes = written_params(f)
        self.em.memory.begin_aliases(alias_groups(f))
        k = n_scalars = 0
        for p in f.params:
            if isinstance(p, Buffer):
                self._buffer_param(p, k, id(p.data) not in writes)
                k += 1
        for v in (*[p for p in f.params if not isinstance(p, Buffer)], *f.implicit_vars()):
            self._scalar_slot(v, n_scalars)
            n_scalars += 1
        self.em.tiles.begin_tiles(f.body, into_parallel=False)
        self.em.statements.stmt(f.body)
        self.em.tiles.end_tiles()
        self.line("ret i32 0")
        args = "ptr noalias readonly captures(none) %buffers, ptr noalias readonly captures(none) %scalars"
        self.close(f"define i32 {quote(f.name)}({args})")

    def close(self, head: str) -> None:
        self.em.functions += [
            f"{head} {self.em.attributes(self._cpu_attributes())} {{",
            "entry:",
            *self.em.allocas,
            *self.em.out,
            "}",
            "",
        ]

    def _cpu_attributes(self) -> str:
        words = ["nounwind", '"no-trapping-math"="true"']
        if self.em.wide == 64:
            words.append('"prefer-vector-width"="512"')
        if self.em.machine.cpu:
            words.append(f'"target-cpu"="{self.em.machine.cpu}"')
        if self.em.machine.features:
            words.append(f'"target-features"="{self.em.machine.features}"')
        return " ".join(words)

    def _buffer_param(self, b: Buffer, k: int, read_only: bool) -> None:
        element = dtype_info(b.dtype)
        align = element.bytes  # of the caller's arrays no more is asked
        slot = self.op(f"getelementptr inbounds ptr, ptr %buffers, i64 {k}") if k else "%buffers"
        notes = f", !align {self.int_meta(align)}"
        count = self.em.statements.elements(b)
        if count and not b.strides:
            notes += f", !dereferenceable {self.int_meta(count * element.bytes * element.lanes)}"
        pointer = self.op(f"load ptr, ptr {slot}, align 8, !invariant.load {self.meta('!{}')}{notes}")
        self.em.memory.bind_buffer(b, pointer, 0, align, read_only)

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
        self.em.values.bind(v, value)


class CpuStatements(Statements):
    """Failures that leave the function, heap storage, parallel loops."""

    em: CpuEmitter

    def begin(self, f: Func) -> None:
        self.em.messages[f.name] = []
        self.cleanups: list[str] = []
        self.in_parallel = False
        self.stack_bytes = 0

    # ---- failures

    def _leave(self, code: str) -> None:
        for pointer in reversed(self.cleanups):
            self.line(f"call void @tec_free(ptr {pointer})")
        self.em.tiles.end_tiles()
        self.line(f"ret i32 {code}")

    def assert_failed(self, s: S.Assert) -> None:
        messages = self.em.messages[self.em.func_name]
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
            n = self.em.arithmetic.convert(self.index(d), d.dtype, "int64")
            total = self.op(f"mul nuw nsw i64 {total}, {n}")
        self.em.declarations.setdefault(*_ALLOC)
        self.em.declarations.setdefault(*_FREE)
        pointer = self.op(f"call noalias align 64 ptr @tec_alloc(i64 {total})")
        failed, ok = self.label("nomemory"), self.label("allocated")
        self.branch_if(self.op(f"icmp eq ptr {pointer}, null"), failed, ok, self.expected(False))
        self.place(failed)
        self._leave(str(_OUT_OF_MEMORY))
        self.place(ok)
        self.em.memory.bind_buffer(s.buffer, pointer, 0, 64)
        self.cleanups.append(pointer)
        self.stmt(s.body)
        self.cleanups.pop()
        self.line(f"call void @tec_free(ptr {pointer})")

    def loop_metadata(self, s: S.For) -> str:
        """LLVM repeats no loop of vectors whose trips are counted at run time: schedules unroll where that pays, and copies with a loop for their rest took a sixth
        of LLVM's time for a language model, whose tokens came no sooner."""
        asked = super().loop_metadata(s)
        if asked or isinstance(s.extent, E.IntImm) or not any_expr(s.body, lambda e: type(e) is E.Ramp):
            return asked
        hint = self.meta('!{!"llvm.loop.unroll.runtime.disable"}')
        return f", !llvm.loop {self.meta_distinct(hint)}"

    # ---- parallel loops

    def parallel(self, s: S.For) -> None:
        """Outline the body; nested parallel loops run in their thread."""
        one = isinstance(s.extent, E.IntImm) and s.extent.value <= 1
        if self.in_parallel or one:
            self.serial(s)
            return
        self.memo_clear()
        low = self.index(s.min)
        n = self.em.arithmetic.convert(self.index(s.extent), s.extent.dtype, "int64")
        # No index: it asks conditions of the body whatever stands before them, so that a divisor may be 0.
        each = self.expr(work.clocks(s.body, lambda v: id(v) in self.em.vars, self.em.target.vector_bytes))
        clocks = self.op(f"mul nsw i64 {n}, {each}")
        variables, buffers = self._captured(s)
        slots: list[tuple[str, str, int]] = []  # type, value, byte offset
        size = 0
        for type_, value, bytes_ in [("ptr", self.em.memory.pointers[b].value, 8) for b in buffers] + [
            (self.reg(v.dtype), self.em.vars[id(v)], _slot_bytes(v.dtype)) for v in variables
        ] + [(self.reg(s.var.dtype), low, 8)]:  # fmt: skip
            size = -(-size // bytes_) * bytes_
            slots.append((type_, value, size))
            size += bytes_
        self.em.counter += 1
        closure = f"%closure.{self.em.counter}"
        self.em.allocas.append(f"  {closure} = alloca [{size} x i8], align 64")
        for type_, value, at in slots:
            self.line(f"store {type_} {value}, ptr {self._slot(closure, at)}, align {min(8, at & -at) if at else 8}")
        name = f"{self.em.func_name}.parallel{self.em.counter}"
        self._outline(s, name, variables, buffers, slots)
        self.em.declarations.setdefault(*_PARALLEL)
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
            if type(e) is E.BufferLoad and id(e.buffer.data) in self.em.memory.pointers:
                buffers[id(e.buffer.data)] = None

        def stmt(x: S.Stmt) -> None:
            if isinstance(x, S.BufferStore) and id(x.buffer.data) in self.em.memory.pointers:
                buffers[id(x.buffer.data)] = None
            elif isinstance(x, S.Alloc):
                for d in x.buffer.shape:
                    variables.update((id(v), v) for v in free_vars(d))

        visit(s.body, expr, stmt)
        used = [v for v in variables.values() if v is not s.var and self.em.vars.get(id(v), "")[:1] == "%"]
        return used, list(buffers)

    def _outline(
        self, s: S.For, name: str, variables: list[E.Var], buffers: list[int], slots: list[tuple[str, str, int]]
    ) -> None:
        """The body of a parallel loop as a function of its own, which finds `variables` and `buffers` in a closure; slots: type, value and place of each there."""
        saved = (
            self.em.out,
            self.em.allocas,
            self.em.block,
            dict(self.em.vars),
            dict(self.em.memory.pointers),
            self.cleanups,
            self.stack_bytes,
            self.em.tiles.uses_tiles,
        )
        self.em.out, self.em.allocas, self.em.block, self.cleanups, self.stack_bytes = [], [], "entry", [], 0
        self.in_parallel = True
        self.memo_clear()
        values = [
            self.op(
                f"load {t}, ptr {self._slot('%closure', at)}, align {min(8, at & -at) if at else 8}, !invariant.load {self.meta('!{}')}"
            )
            for t, _, at in slots
        ]
        for b, value in zip(buffers, values):
            self.em.memory.pointers[b] = self.em.memory.pointers[b]._replace(value=value)
        for v, value in zip(variables, values[len(buffers) :]):
            self.em.vars[id(v)] = value
        t = self.reg(s.var.dtype)
        begin, end = "%begin", "%end"
        if t != "i64":
            begin, end = (self.op(f"trunc nsw i64 {x} to {t}") for x in (begin, end))
        if not (isinstance(s.min, E.IntImm) and s.min.value == 0):
            begin, end = (self.op(f"add nsw {t} {x}, {values[-1]}") for x in (begin, end))
        self.em.tiles.begin_tiles(s.body, into_parallel=True)
        self.counted_loop(s.var, begin, end, s.body, True, self.loop_metadata(s), self.em.values.is_nonneg(s.min))
        self.em.tiles.end_tiles()
        self.line("ret i32 0")
        self.em.frame.close(f"define internal i32 {quote(name)}(ptr noalias readonly %closure, i64 %begin, i64 %end)")
        (
            self.em.out,
            self.em.allocas,
            self.em.block,
            self.em.vars,
            self.em.memory.pointers,
            self.cleanups,
            self.stack_bytes,
            self.em.tiles.uses_tiles,
        ) = saved
        self.in_parallel = False
        self.memo_clear()


class CpuArithmetic(Arithmetic):
    """Conversions and extrema that LLVM would take apart lane by lane."""

    em: CpuEmitter

    def float_extremum(self, name: str, a: str, b: str, dtype: str) -> str:
        """Of vectors of float16 in float32 where there is no arithmetic for them: LLVM would go lane by lane. The result is one of the operands. x86 asks the first operand whether
        it is NaN: of a running extremum the new element, so that no step waits for the answer about the one before."""
        if name in ("minimum", "maximum"):
            a, b = b, a
        info = dtype_info(dtype)
        if not (self.em.widens_half and info.element == "float16" and info.lanes > 1):
            return super().float_extremum(name, a, b, dtype)
        wide = with_lanes("float32", info.lanes)
        x, y = (self.convert(v, dtype, wide) for v in (a, b))
        return self.convert(super().float_extremum(name, x, y, wide), wide, dtype)

    def saturated(self, value: str, src: str, dst: str) -> str:
        """Vectors of float32 by comparisons and one conversion: LLVM's saturating one goes lane by lane on x86."""
        s, d = self.type_of(src), self.type_of(dst)
        if (
            not self.em.is_x86
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


class CpuEmitter(Emitter):
    """The deltas of a CPU: the function frame, heap storage, parallel loops, libm."""

    parts = Parts(arithmetic=CpuArithmetic, memory=CpuMemory, statements=CpuStatements, frame=CpuFrame)
    calls: ClassVar[dict[str, CallHandler]] = {
        **calls.CALLS,
        **dict.fromkeys(("dot4", "dot2"), dots.dot),
        "dot4_narrow": dots.narrow,
        **dict.fromkeys(OPS, tile),
        "rcp_fast": dots.reciprocal,
    }
    memory: CpuMemory
    statements: CpuStatements
    frame: CpuFrame
    exact_half_from_double: ClassVar[bool] = False
    saturates_half: ClassVar[bool] = False
    clamps_narrow: ClassVar[bool] = True

    def needs_rounding_to(self, float_type: str) -> None:
        if float_type == "bfloat":
            self.declarations.setdefault("__truncsfbf2", _TO_BFLOAT)

    def __init__(self, target: Target, machine: llvm_util.LLVMMachine):
        self.machine = machine
        self.is_x86 = machine.triple.startswith(("x86_64", "i686"))
        self.intrinsic_prefixes = ("llvm.x86.",) if self.is_x86 else ("llvm.aarch64.",)  # type: ignore[misc]
        old = machine.cpu in _WITHOUT_F16C and "+f16c" not in machine.features
        self.native_half = not (self.is_x86 and (old or "-f16c" in machine.features))
        with_half = "+avx512fp16" in machine.features or machine.cpu in _WITH_HALF_ARITHMETIC
        self.widens_half = self.is_x86 and self.native_half and not with_half
        self.wide = target.vector_bytes if self.is_x86 else 16
        self.messages: dict[str, list[str]] = {}
        self.tiles = Tiles(self)
        super().__init__(target)

    # ---- math

    def native_math(self, op: str, dtype: str) -> str | None:
        exact = super().native_math(op, dtype)
        if exact is not None:
            return exact
        return op + ("f" if dtype == "float32" else "") if op in _LIBM and dtype in ("float32", "float64") else None

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
            args = [self.arithmetic.convert(self.expr(a), a.dtype, wide) for a in e.args]
            name = self.native_math(e.op, "float32")
            if name is not None:
                return self.arithmetic.convert(
                    calls.math_values(self, name, args, [self.reg(wide)] * len(args), wide), wide, e.dtype
                )
        return super().math(e)


def _slot_bytes(dtype: str) -> int:
    info = dtype_info(dtype)
    return max(8, 1 << (info.bytes * info.lanes - 1).bit_length())
