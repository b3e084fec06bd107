"""NVPTX: the deltas of the emitter for sm_70 to sm_121.

No libdevice: math that PTX has no instruction for was expanded before. Shared memory beyond the 48 KB that a kernel may
have by itself becomes one dynamic array, which the launch asks for.
Source: LLVM's "User Guide for NVPTX Back-end".
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import expr as E
from ...ir import stmt as S
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info, with_lanes
from ...ir.effects import is_call
from ...ir.func import Func
from ...ir.passes.pipeline.tensor_maps import MAP_ALIGN, MAP_BYTES
from ...ir.passes.pipeline.tensor_maps import SCOPE as PARAM_SCOPE
from ...ir.shared_layout import boundary_of, shared_layout
from ...ir.visit import any_stmt
from ...target import Target
from ..emit.calls import in_order
from ..emit.emitter import Emitter, Parts
from ..emit.float_formats import FORMATS
from ..emit.gpu import SHARED_SPACE, GpuFrame, GpuMemory, GpuStatements
from ..emit.guards import is_constant
from ..emit.small_floats import SmallFloats
from ..emit.writer import Pointer, quote
from . import hopper
from .calls import CALLS, HALVES
from .ptx import number


def _without_constant(e: E.Expr, multiples: bool) -> tuple[E.Expr | None, int]:
    """A sum as what is no constant in it (None: nothing), and its constants' sum; with the constants of `multiples` of sums."""
    if isinstance(e, E.IntImm):
        return None, e.value
    if multiples and isinstance(e, E.Mul) and isinstance(e.b, E.IntImm):
        a, x = _without_constant(e.a, True)
        return (E.Mul(a, e.b), x * e.b.value) if x and a is not None else (e, 0)
    if not isinstance(e, E.Add) or dtype_info(e.dtype).lanes > 1:
        return e, 0
    (a, x), (b, y) = _without_constant(e.a, multiples), _without_constant(e.b, multiples)
    if not x and not y:
        return e, 0
    return (b if a is None else a if b is None else E.Add(a, b)), x + y


class NvptxFrame(GpuFrame):
    """A kernel, which may begin before the one ahead of it has ended."""

    em: NvptxEmitter
    index_intrinsics = {
        **{f"threadIdx.{c}": f"llvm.nvvm.read.ptx.sreg.tid.{c}" for c in "xyz"},
        **{f"blockIdx.{c}": f"llvm.nvvm.read.ptx.sreg.ctaid.{c}" for c in "xyz"},
    }

    def kernel_convention(self) -> str:
        return "ptx_kernel "

    def begin_body(self, f: Func) -> None:
        """Let the next kernel's work-groups come as soon as there is room for them, fetch the maps of bulk copies, and wait for all that the kernel before
        did, unless the body says where (`early_wait`)."""
        self.starts_early = bool(f.attrs.get("early_start"))
        if self.starts_early:
            self.intrinsic("llvm.nvvm.griddepcontrol.launch.dependents", "void", [])
        hopper.prefetch_maps(self.em, [p for p in f.params if isinstance(p, Buffer) and p.scope == PARAM_SCOPE])
        if self.starts_early and not any_stmt(f.body, lambda s: is_call(s, "early_wait")):
            hopper.wait_for_kernel_ahead(self.em)

    def param_attributes(self, f: Func, b: Buffer, read_only: bool) -> str:
        if b.scope != PARAM_SCOPE:
            words = super().param_attributes(f, b, read_only)
            # Not read-only memory before the kernel ahead has ended: LLVM may move loads of such over anything. Aliases it knows by scopes, too.
            return words.replace("noalias ", "").replace("readonly ", "") if f.attrs.get("early_start") else words
        return f'byval([{MAP_BYTES} x i8]) align {MAP_ALIGN} "nvvm.grid_constant" '

    def address_space(self, scope: str) -> int:
        return 0 if scope == PARAM_SCOPE else super().address_space(scope)

    def function_attributes(self, f: Func) -> str:
        x, y, z = self.block_shape
        words = ["nounwind", "mustprogress", f'"nvvm.reqntid"="{x},{y},{z}"']
        blocks = f.attrs.get("min_blocks")
        if blocks:
            words.append(f'"nvvm.minctasm"="{blocks}"')
        return " ".join(words)


_WIDEST_LOAD = 16  # bytes


class _Access(NamedTuple):
    """A load under a predicate: the letter of its registers in a statement of assembly, LLVM's type, and how many there are."""

    letter: str
    kind: str
    words: int = 1


# By bytes. Of several words for narrow numbers alone: of wide ones ptxas predicates few branches itself, and puts them where the numbers are needed (a norm's weights:
# 64 registers for 69).
_ACCESSES = {
    1: _Access("h", "i16"),
    2: _Access("h", "i16"),
    4: _Access("r", "i32"),
    8: _Access("r", "i32", 2),
    16: _Access("r", "i32", 4),
}


class NvptxMemory(GpuMemory):
    """Addresses whose constant part comes last; guarded loads without a branch."""

    em: NvptxEmitter

    def guarded_load(self, e: E.Call) -> str | None:
        """`if_then_else(cond, A[i], constant)` of a parameter that is only read: a load at `i`, or, where the condition does not hold, of the buffer's first
        elements, and the constant in their place; a load under a predicate where the buffer's size is not known. None where a branch must do.

        A branch around each load ends LLVM's basic block, and the sums that it feeds sink below the last of them: all loads of an unrolled window then come
        first, in registers that ptxas does not have (7 x 7 windows over 8 pixels of 4 channels: 32 registers and 8 KB of spills, four times cuDNN's time)."""
        cond, value, other = e.args
        if not isinstance(value, E.BufferLoad) or not is_constant(other) or dtype_info(cond.dtype).lanes != 1:
            return None
        found, info = self.known_place(value), dtype_info(value.dtype)
        nbytes = info.bytes * info.lanes
        if found is None:
            return self._predicated(cond, value, other)
        if nbytes > min(found[1], _WIDEST_LOAD):
            return None
        p, _, base = found
        holds, (address, _) = self.expr(in_order(cond)), self.address(value.buffer, base)
        align = self.alignment(p, value.buffer, base, nbytes)
        kind, memory = self.reg(value.dtype), self.type_of(value.dtype).mem
        address = self.op(f"select i1 {holds}, {p.type} {address}, {p.type} {p.value}")
        loaded = self.from_memory(
            self.op(f"load {memory}, {p.type} {address}, align {align}{p.load_suffix}"), value.dtype
        )
        return self.op(f"select i1 {holds}, {kind} {loaded}, {kind} {self.expr(other)}")

    def _predicated(self, cond: E.Expr, load: E.BufferLoad, other: E.Expr) -> str | None:
        """One instruction under a predicate, whose registers hold the constant before it. LLVM has none: of a branch it moves what is done with the number into it, and the
        seven predicates of a thread are then too few for ptxas to start all loads before the first is waited for (a loss over a vocabulary: 1.46 times Triton's time)."""
        found, info = self.first_of(load), dtype_info(load.dtype)
        nbytes = info.bytes * info.lanes
        access = _ACCESSES.get(nbytes)
        if found is None or access is None or (access.words > 1 and info.bytes >= 4) or self.em.frame.starts_early:
            return None
        p, base = found
        if self.alignment(p, load.buffer, base, nbytes) < nbytes:
            return None
        holds, (address, _) = self.expr(in_order(cond)), self.address(load.buffer, base)
        own, whole, kind = self.reg(load.dtype), f"i{8 * nbytes}", access.kind
        before = self.expr(other)
        if access.words > 1:
            return self._words(access, f"{p.type} {address}, i1 {holds}", before, own)
        before = before if own == whole else self.op(f"bitcast {own} {before} to {whole}")
        before = before if whole == kind else self.op(f"zext {whole} {before} to {kind}")
        text = f"@$2 ld.global.nc.b{8 * nbytes} $0, [$1];"
        args = f"{p.type} {address}, i1 {holds}, {kind} {before}"
        got = self.op(f'call {kind} asm "{text}", "={access.letter},l,b,0"({args}) nounwind memory(none)')
        got = got if whole == kind else self.op(f"trunc {kind} {got} to {whole}")
        return got if own == whole else self.op(f"bitcast {whole} {got} to {own}")

    def _words(self, access: _Access, where: str, before: str, own: str) -> str:
        """Narrow numbers by one load of some words: in the block of a branch LLVM would take them apart, where each load is then waited for before the next begins."""
        n = access.words
        words, results = f"<{n} x i32>", ", ".join(["i32"] * n)
        start = self.op(f"bitcast {own} {before} to {words}")
        given = [self.op(f"extractelement {words} {start}, i32 {k}") for k in range(n)]
        registers = ", ".join(f"${k}" for k in range(n))
        text = f"@${n + 1} ld.global.nc.v{n}.b32 {{{registers}}}, [${n}];"
        constraints = ",".join(["=r"] * n + ["l", "b"] + [str(k) for k in range(n)])
        args = ", ".join([where, *(f"i32 {v}" for v in given)])
        got = self.op(f'call {{ {results} }} asm "{text}", "{constraints}"({args}) nounwind memory(none)')
        made = "undef"
        for k in range(n):
            word = self.op(f"extractvalue {{ {results} }} {got}, {k}")
            made = self.op(f"insertelement {words} {made}, i32 {word}, i32 {k}")
        return self.op(f"bitcast {words} {made} to {own}")

    def address(self, buffer: Buffer, index: E.Expr) -> tuple[str, Pointer]:
        """The constant part of an index comes last: accesses that differ by it alone have one register, and an immediate offset each. Of shared memory LLVM
        makes sums of some of them, and bitwise ors of others; of global memory it sees neighbours, and what was loaded before, only so: (x + 128) * 2 and
        x * 2 + 257 are two roots to it."""
        p = self.pointer(buffer)
        in_shared = p.type == f"ptr addrspace({SHARED_SPACE})"
        rest, constant = _without_constant(index, not in_shared)
        is_known = in_shared or (p.type == "ptr addrspace(1)" and dtype_info(index.dtype).kind == "int")
        if constant == 0 or rest is None or not is_known:
            return super().address(buffer, index)
        self.em.keep.append(rest)  # the memo goes by identity: the node must stay
        mem = self.type_of(buffer.dtype).element
        type_, offset = self.offset(p, buffer, rest)
        first = self.op(f"getelementptr {mem}, {p.type} {p.value}, {type_} {offset}")
        return self.op(f"getelementptr {mem}, {p.type} {first}, {'i32' if in_shared else 'i64'} {constant}"), p


class NvptxStatements(GpuStatements):
    """Shared memory beyond the static limit is one dynamic array."""

    em: NvptxEmitter
    shared_initial = "undef"

    def begin(self, f: Func) -> None:
        super().begin(f)
        # Where each buffer lies in the dynamic array; None where they are static.
        dynamic = f.attrs.get("lds_bytes", 0) > self.em.target.static_lds_bytes
        self.shared_offsets: dict[int, int] | None = shared_layout(f.body)[0] if dynamic else None

    def alloc_shared(self, s: S.Alloc) -> None:
        offset = None if self.shared_offsets is None else self.shared_offsets.get(id(s.buffer))
        if offset is None or self.elements(s.buffer) is None:
            super().alloc_shared(s)
            return
        array, boundary = quote("tec_dynamic_shared"), boundary_of(s.buffer)
        self.em.dynamic_align = max(self.em.dynamic_align, boundary)
        place = array
        if offset:
            place = self.op(f"getelementptr inbounds i8, ptr addrspace({SHARED_SPACE}) {array}, i32 {offset}")
        self.em.memory.bind_buffer(s.buffer, place, SHARED_SPACE, boundary)
        self.stmt(s.body)


_FIRST_FP8 = 89  # the first chip that converts the formats of OCP FP8 (PTX ISA, "cvt")
_FP8 = {"float8_e4m3": "e4m3x2", "float8_e5m2": "e5m2x2"}


class NvptxFloats(SmallFloats):
    """Small floats with the chip's conversions."""

    em: NvptxEmitter

    def __init__(self, em: NvptxEmitter):
        super().__init__(em)
        # A float32 register that was held between a number and its negative, to what it was before, and the number.
        self.held_within: dict[str, tuple[str, float]] = {}

    def begin(self, f: Func) -> None:
        super().begin(f)
        self.held_within.clear()

    def widen(self, value: str, dtype: str) -> tuple[str, str]:
        """Two numbers of OCP FP8 at once, by way of float16, which holds them all."""
        info = dtype_info(dtype)
        if info.element not in _FP8 or self.em.sm < _FIRST_FP8:
            return super().widen(value, dtype)
        name, out = f"llvm.nvvm.{_FP8[info.element]}.to.f16x2.rn", []
        pairs = (info.lanes + 1) // 2
        if info.lanes == 1:
            packed = [self.op(f"zext i8 {value} to i16")]
        else:
            if info.lanes % 2:
                lanes = ", ".join(f"i32 {min(k, info.lanes - 1)}" for k in range(2 * pairs))
                kind = self.reg(dtype)
                value = self.op(f"shufflevector {kind} {value}, {kind} poison, <{2 * pairs} x i32> <{lanes}>")
            many = self.op(f"bitcast <{2 * pairs} x i8> {value} to <{pairs} x i16>")
            packed = [self.op(f"extractelement <{pairs} x i16> {many}, i64 {k}") for k in range(pairs)]
        for p in packed:
            halves = self.em.intrinsic(name, "<2 x half>", [("i16", p)])
            wide = self.op(f"fpext <2 x half> {halves} to <2 x float>")
            out += [self.op(f"extractelement <2 x float> {wide}, i64 {k}") for k in range(2)]
        many_floats = with_lanes("float32", info.lanes)
        return self.em.vector_of(out[: info.lanes], many_floats), many_floats

    def _to_fp8(self, value: str, dtype: str) -> str:
        """Two numbers at once. The instruction gives the largest number for all that is larger, where a cast gives NaN or infinity: needless where what is cast was
        held within the largest number just before."""
        info, f = dtype_info(dtype), FORMATS[dtype_info(dtype).element]
        floats, name = with_lanes("float32", info.lanes), f"llvm.nvvm.ff.to.{_FP8[info.element]}.rn"
        before, bound = self.held_within.get(value, (value, 0.0))
        given = self.em.lanes_of(before if bound == f.largest else value, floats)
        given += given[-1:] * (len(given) % 2)
        pairs = len(given) // 2
        out = "poison"
        for k in range(pairs):
            both = self.em.intrinsic(name, "i16", [("float", given[2 * k + 1]), ("float", given[2 * k])])
            out = self.op(f"insertelement <{pairs} x i16> {out}, i16 {both}, i64 {k}")
        out = self.op(f"bitcast <{pairs} x i16> {out} to <{2 * pairs} x i8>")
        if info.lanes == 1:
            out = self.op(f"extractelement <2 x i8> {out}, i64 0")
        elif info.lanes % 2:
            lanes = ", ".join(f"i32 {k}" for k in range(info.lanes))
            kind = f"<{2 * pairs} x i8>"
            out = self.op(f"shufflevector {kind} {out}, {kind} poison, <{info.lanes} x i32> <{lanes}>")
        if bound == f.largest:
            return out
        r, t, b = self.reg(floats), self.reg(dtype), self.reg(with_lanes("bool", info.lanes))
        i8 = with_lanes("uint8", info.lanes)
        positive = self.em.intrinsic(f"llvm.fabs.{self.em.mangle(floats)}", r, [(r, value)])
        beyond = self.op(f"fcmp oge {r} {positive}, {self.float_const(f.overflow, floats)}")
        sign = self.op(f"and {t} {out}, {self.int_const(f.sign, i8)}")
        infinity = self.op(f"or {t} {sign}, {self.int_const(f.infinity, i8)}")
        return self.op(f"select {b} {beyond}, {t} {infinity}, {t} {out}")

    def narrow(self, value: str, dtype: str) -> str:
        """float32 to bfloat16 is one instruction (two values at once) from sm_80 on, to the formats of OCP FP8 from sm_89 on."""
        info = dtype_info(dtype)
        if info.element in _FP8 and self.em.sm >= _FIRST_FP8:
            return self._to_fp8(value, dtype)
        if info.kind != "bfloat" or self.em.sm < 80:
            return super().narrow(value, dtype)
        own = "bfloat" if info.lanes == 1 else f"<{info.lanes} x bfloat>"
        rounded = self.op(f"fptrunc {self.reg(with_lanes('float32', info.lanes))} {value} to {own}")
        return self.op(f"bitcast {own} {rounded} to {self.reg(dtype)}")


class NvptxEmitter(Emitter):
    """LLVM IR of CUDA kernels."""

    parts = Parts(floats=NvptxFloats, memory=NvptxMemory, statements=NvptxStatements, frame=NvptxFrame)
    calls = {**CALLS, **hopper.CALLS}
    floats: NvptxFloats
    memory: NvptxMemory
    statements: NvptxStatements
    frame: NvptxFrame
    intrinsic_prefixes = ("llvm.nvvm.",)
    atomic_scope = 'syncscope("device") '
    smallest_atomic = 32

    def atomic_by_words(self, how: str, dtype: str) -> bool:
        if how == "fadd" and dtype in HALVES and self.sm >= HALVES[dtype][1]:
            return False
        return super().atomic_by_words(how, dtype)

    def scope_of_atomic(self, scope: str) -> str:
        return 'syncscope("block") ' if scope.startswith("shared") else self.atomic_scope

    def native_math(self, op: str, dtype: str) -> str | None:
        return "llvm.ldexp" if op == "ldexp" and dtype != "float16" else super().native_math(op, dtype)

    def __init__(self, target: Target):
        super().__init__(target)
        self.dynamic_align = 0  # of the dynamic array; 0 where no kernel has one
        self.sm = number(target)

    def finish(self, text: str) -> str:
        """The dynamic array with the alignment that the strictest of the kernels' buffers asks for."""
        if not self.dynamic_align:
            return text
        declared = f"{quote('tec_dynamic_shared')} = external addrspace({SHARED_SPACE}) global [0 x i8], align "
        old = f"{declared}{self.statements.max_shared_align}\n"
        text = text.replace(old, "", 1)
        head, sep, rest = text.partition("target triple")
        line, newline, body = (sep + rest).partition("\n")
        return f"{head}{line}{newline}{declared}{self.dynamic_align}\n{body}"
