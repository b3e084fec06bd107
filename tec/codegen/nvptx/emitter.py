"""NVPTX: the deltas of the emitter for sm_70 to sm_121; PTX text is what comes out.

No libdevice: math that PTX has no instruction for was expanded before. Shared memory beyond the 48 KB that a kernel may
have by itself becomes one dynamic array, which the launch asks for. Matrix products are mma.sync, fed by ldmatrix;
copies in the background are cp.async (sm_80 on).
Sources: LLVM's "User Guide for NVPTX Back-end"; NVIDIA's "PTX ISA" 8.x (shfl.sync, mma, ldmatrix, cp.async).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from ...errors import TargetError
from ...ir import expr as E
from ...ir import stmt as S
from ...ir.buffer import Buffer
from ...ir.dtype import dtype_info, with_lanes
from ...ir.effects import is_call
from ...ir.func import Func
from ...ir.matrix import MatrixInstr, instr_of, native_k
from ...ir.passes.tensor_maps import MAP_ALIGN, MAP_BYTES
from ...ir.passes.tensor_maps import SCOPE as PARAM_SCOPE
from ...ir.shared_layout import boundary_of, shared_layout
from ...ir.visit import any_stmt
from ...target import Target
from ..emit.calls import CallHandler
from ..emit.gpu import SHARED_SPACE, GpuEmitter
from ..emit.writer import Pointer, quote
from ..llvm_util import Machine
from . import hopper, remainder

TRIPLE = "nvptx64-nvidia-cuda"
ALL_LANES = "-1"
# The lowest PTX version that knows a chip: it loads on the oldest drivers.
_PTX_OF = {70: 63, 72: 63, 75: 63, 80: 70, 86: 71, 87: 74, 89: 78, 90: 78, 100: 86, 101: 86, 103: 88, 120: 87, 121: 88}
_PTX_OF_WARPGROUPS = 80  # wgmma, bulk tensor copies, setmaxnreg
_SHUFFLES = {"shuffle_xor": "bfly", "shuffle_up": "up", "shuffle_down": "down", "shuffle_idx": "idx"}


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


class NvptxEmitter(GpuEmitter):
    """LLVM IR of CUDA kernels."""

    intrinsic_prefixes: ClassVar[tuple[str, ...]] = ("llvm.nvvm.",)
    shared_initial: ClassVar[str] = "undef"
    index_intrinsics: ClassVar[dict[str, str]] = {
        **{f"threadIdx.{c}": f"llvm.nvvm.read.ptx.sreg.tid.{c}" for c in "xyz"},
        **{f"blockIdx.{c}": f"llvm.nvvm.read.ptx.sreg.ctaid.{c}" for c in "xyz"},
    }

    def __init__(self, target: Target):
        super().__init__(target)
        self.dynamic_align = 0  # of the dynamic array; 0 where no kernel has one
        self.sm = _number(target)
        self.starts_early = False  # the kernel at hand

    # ---- kernels

    def kernel_convention(self) -> str:
        return "ptx_kernel "

    def function(self, f: Func) -> None:
        # Where each buffer lies in the dynamic array; None where they are static.
        dynamic = f.attrs.get("lds_bytes", 0) > self.target.static_lds_bytes
        self.shared_offsets: dict[int, int] | None = shared_layout(f.body)[0] if dynamic else None
        super().function(f)

    def begin_body(self, f: Func) -> None:
        """Let the next kernel's work-groups come as soon as there is room for them, fetch the maps of bulk copies, and wait for all that the kernel before
        did, unless the body says where (`early_wait`)."""
        self.starts_early = bool(f.attrs.get("early_start"))
        if self.starts_early:
            self.intrinsic("llvm.nvvm.griddepcontrol.launch.dependents", "void", [])
        hopper.prefetch_maps(self, [p for p in f.params if isinstance(p, Buffer) and p.scope == PARAM_SCOPE])
        if self.starts_early and not any_stmt(f.body, lambda s: is_call(s, "early_wait")):
            self.intrinsic("llvm.nvvm.griddepcontrol.wait", "void", [])

    def param_attributes(self, f: Func, b: Buffer, read_only: bool) -> str:
        if b.scope != PARAM_SCOPE:
            return super().param_attributes(f, b, read_only)
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
        self.keep.append(rest)  # the memo goes by identity: the node must stay
        mem = self.type_of(buffer.dtype).element
        type_, offset = self.offset(p, buffer, rest)
        first = self.op(f"getelementptr {mem}, {p.type} {p.value}, {type_} {offset}")
        return self.op(f"getelementptr {mem}, {p.type} {first}, {'i32' if in_shared else 'i64'} {constant}"), p

    def alloc_shared(self, s: S.Alloc) -> None:
        offset = None if self.shared_offsets is None else self.shared_offsets.get(id(s.buffer))
        if offset is None or self.elements(s.buffer) is None:
            super().alloc_shared(s)
            return
        array, boundary = quote("tec_dynamic_shared"), boundary_of(s.buffer)
        self.dynamic_align = max(self.dynamic_align, boundary)
        place = array
        if offset:
            place = self.op(f"getelementptr inbounds i8, ptr addrspace({SHARED_SPACE}) {array}, i32 {offset}")
        self.bind_buffer(s.buffer, place, SHARED_SPACE, boundary)
        self.stmt(s.body)

    def finish(self, text: str) -> str:
        """The dynamic array with the alignment that the strictest of the kernels' buffers asks for."""
        if not self.dynamic_align:
            return text
        declared = f"{quote('tec_dynamic_shared')} = external addrspace({SHARED_SPACE}) global [0 x i8], align "
        old = f"{declared}{self.max_shared_align}\n"
        text = text.replace(old, "", 1)
        head, sep, rest = text.partition("target triple")
        line, newline, body = (sep + rest).partition("\n")
        return f"{head}{line}{newline}{declared}{self.dynamic_align}\n{body}"

    def narrow(self, value: str, dtype: str) -> str:
        """float32 to bfloat16 is one instruction (two values at once) from sm_80 on."""
        info = dtype_info(dtype)
        if info.kind != "bfloat" or self.sm < 80:
            return super().narrow(value, dtype)
        own = "bfloat" if info.lanes == 1 else f"<{info.lanes} x bfloat>"
        rounded = self.op(f"fptrunc {self.reg(with_lanes('float32', info.lanes))} {value} to {own}")
        return self.op(f"bitcast {own} {rounded} to {self.reg(dtype)}")

    # ---- work-groups and warps

    def barrier(self, e: E.Call) -> str:
        attrs = e.attrs or {}
        if "threads" in attrs:  # of some warps of the work-group
            args = [("i32", str(attrs["id"])), ("i32", str(attrs["threads"]))]
            self.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.count", "void", args)
        elif attrs.get("scope", "shared") == "wave":
            self.intrinsic("llvm.nvvm.bar.warp.sync", "void", [("i32", ALL_LANES)])
        else:
            self.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [("i32", "0")])
        return "0"

    def lane(self) -> str:
        return self.intrinsic("llvm.nvvm.read.ptx.sreg.laneid", "i32", [], "range(i32 0, 32) ")

    def active(self) -> str:
        return self.intrinsic("llvm.nvvm.activemask", "i32", [])

    def wave_lane(self, e: E.Call) -> str:
        return self.convert(self.lane(), "int32", e.dtype)

    def ballot(self, e: E.Call) -> str:
        args = [("i32", self.active()), ("i1", self.expr(e.args[0]))]
        return self.convert(self.intrinsic("llvm.nvvm.vote.ballot.sync", "i32", args), "uint32", e.dtype)

    def readfirstlane(self, e: E.Call) -> str:
        mask = self.active()
        first = self.intrinsic("llvm.cttz.i32", "i32", [("i32", mask), ("i1", "true")])
        return self.in_words(self.expr(e.args[0]), e.dtype, lambda w: self._shuffle("idx", w, first, "31", mask))

    def _shuffle(self, how: str, word: str, lane: str, clamp: str, mask: str = ALL_LANES) -> str:
        args = [("i32", mask), ("i32", word), ("i32", lane), ("i32", clamp)]
        return self.intrinsic(f"llvm.nvvm.shfl.sync.{how}.i32", "i32", args)

    def shuffle(self, e: E.Call) -> str:
        width = self.shuffle_width(e)
        value = self.expr(e.args[0])
        lane = self.convert(self.expr(e.args[1]), e.args[1].dtype, "int32")
        if e.op == "shuffle_xor" and isinstance(e.args[1], E.IntImm) and not 0 <= e.args[1].value < width:
            raise self.error(f"shuffle_xor with mask {e.args[1].value} over {width} lanes")
        # Bits 8 to 12 hold the lanes that name a segment, bits 0 to 4 its last lane (first for `up`).
        clamp = str((32 - width) << 8 | (0 if e.op == "shuffle_up" else 31))
        return self.in_words(value, e.dtype, lambda w: self._shuffle(_SHUFFLES[e.op], w, lane, clamp))

    # ---- atomics, math

    atomic_scope = 'syncscope("device") '

    def scope_of_atomic(self, scope: str) -> str:
        return 'syncscope("block") ' if scope.startswith("shared") else self.atomic_scope

    def native_math(self, op: str, dtype: str) -> str | None:
        return "llvm.ldexp" if op == "ldexp" and dtype != "float16" else super().native_math(op, dtype)

    # ---- dot products and matrix units

    def dot(self, e: E.Call) -> str:
        a, b = (dtype_info(x.dtype) for x in e.args[:2])
        if e.op != "dot4" or not a.lanes == b.lanes == 4 or {a.bits, b.bits} != {8}:
            return super().dot(e)
        name = "llvm.nvvm.idp4a." + ".".join("s" if x.is_signed else "u" for x in (a, b))
        args = [("i32", self.op(f"bitcast <4 x i8> {self.expr(x)} to i32")) for x in e.args[:2]]
        return self.intrinsic(name, "i32", [*args, ("i32", self.expr(e.args[2]))])

    def mma(self, e: E.Call) -> str:
        instr = instr_of(e.attrs or {})
        if native_k(instr, self.target) != instr.k:
            raise self.error(
                f"mma.sync has no {instr.name} on {self.target.mcpu}",
                hint="tec.te.intrin.shapes(target) lists what it has",
            )
        a, b, c = (self.expr(x) for x in e.args)
        shape = f"llvm.nvvm.mma.m{instr.m}n{instr.n}k{instr.k}.row.col"
        name = {"float16": ".f32.f32", "bfloat16": ".bf16", "tf32": ".tf32", "int8": ".s8", "uint8": ".u8"}[
            instr.in_dtype
        ]
        word = "<2 x half>" if instr.in_dtype == "float16" else "i32"
        one = "float" if instr.acc_dtype == "float32" else "i32"
        args = [(word, w) for role, v in (("a", a), ("b", b)) for w in self._words(v, instr, role, word)]
        args += [(one, x) for x in self.lanes_of(c, e.dtype)]
        out = self.intrinsic(shape + name, f"{{ {', '.join([one] * 4)} }}", args)
        return self.vector_of(
            [self.op(f"extractvalue {{ {', '.join([one] * 4)} }} {out}, {k}") for k in range(4)], e.dtype
        )

    def _words(self, value: str, instr: MatrixInstr, role: str, word: str) -> list[str]:
        """An operand's vector as 32-bit registers."""
        dtype = instr.dtype(role)
        info = dtype_info(dtype)
        n = info.bits * info.lanes // 32
        if info.bits == 32:
            return [self.op(f"bitcast float {x} to i32") for x in self.lanes_of(value, dtype)]
        many = (
            self.op(f"bitcast {self.reg(dtype)} {value} to <{n} x i32>")
            if n > 1
            else self.op(f"bitcast {self.reg(dtype)} {value} to i32")
        )
        words = [self.op(f"extractelement <{n} x i32> {many}, i64 {k}") for k in range(n)] if n > 1 else [many]
        return words if word == "i32" else [self.op(f"bitcast i32 {w} to {word}") for w in words]

    def fast_math_unit(self, e: E.Call) -> str:
        """ex2.approx and rcp.approx."""
        name = {"exp2_fast": "llvm.nvvm.ex2.approx.ftz.f32", "rcp_fast": "llvm.nvvm.rcp.approx.ftz.f"}[e.op]
        out = [self.intrinsic(name, "float", [("float", x)]) for x in self.lanes_of(self.expr(e.args[0]), e.dtype)]
        return self.vector_of(out, e.dtype)

    def ldmatrix(self, e: E.Call) -> str:
        """(element of shared memory, this lane's row): 8x8 tiles of 16-bit elements; attrs num (1, 2, 4) and trans."""
        attrs = e.attrs or {}
        num, info = int(attrs.get("num", 4)), dtype_info(e.dtype)
        if num not in (1, 2, 4) or info.bits * info.lanes != 32 * num:
            raise self.error(
                f"ldmatrix of {num} tiles as {e.dtype}", hint="1, 2 or 4 tiles give 2, 4 or 8 elements of 16 bits"
            )
        pointer, type_ = self.element_pointer(self.load_of(e.args[0], e.op))
        if type_ != f"ptr addrspace({SHARED_SPACE})":
            raise self.error("ldmatrix reads shared memory alone")
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{num}{'.trans' if attrs.get('trans') else ''}.b16.p3"
        result = "i32" if num == 1 else f"{{ {', '.join(['i32'] * num)} }}"
        out = self.intrinsic(name, result, [(type_, pointer)])
        words = [out] if num == 1 else [self.op(f"extractvalue {result} {out}, {k}") for k in range(num)]
        whole = self.vector_of(words, with_lanes("int32", num))
        return self.op(f"bitcast {'i32' if num == 1 else f'<{num} x i32>'} {whole} to {self.reg(e.dtype)}")

    # ---- copies in the background

    def async_copy(self, e: E.Call) -> str:
        """cp.async where it is aligned to its size, of 4, 8 or 16 bytes; a load and a store else."""
        dst, src = self.load_of(e.args[0], e.op), self.load_of(e.args[1], e.op)
        n = e.args[2] if len(e.args) > 2 else E.IntImm(1)
        info = dtype_info(src.buffer.dtype)
        size = n.value * info.bytes * info.lanes if isinstance(n, E.IntImm) else 0
        (to, to_p), (start, start_p) = self._at(dst), self._at(src)
        spaces = (to_p.type, start_p.type) == ("ptr addrspace(3)", "ptr addrspace(1)")
        aligned = (
            size in (4, 8, 16) and self._align(to_p, dst, size) >= size and self._align(start_p, src, size) >= size
        )
        if not (self.target.chip.async_lds and spaces and aligned):
            return self.copy_now(e)
        how = "cg" if size == 16 else "ca"
        self.intrinsic(
            f"llvm.nvvm.cp.async.{how}.shared.global.{size}", "void", [(to_p.type, to), (start_p.type, start)]
        )
        return "0"

    def async_commit(self, e: E.Call) -> str:
        if self.target.chip.async_lds:
            self.intrinsic("llvm.nvvm.cp.async.commit.group", "void", [])
        return "0"

    def async_wait(self, e: E.Call) -> str:
        if self.target.chip.async_lds:
            self.intrinsic("llvm.nvvm.cp.async.wait.group", "void", [("i32", str(int((e.attrs or {}).get("n", 0))))])
        return "0"

    calls: ClassVar[dict[str, CallHandler]] = {
        **GpuEmitter.calls,
        "barrier": barrier, "wave_lane": wave_lane, "ballot": ballot, "readfirstlane": readfirstlane,
        **dict.fromkeys(_SHUFFLES, shuffle), **dict.fromkeys(("dot4", "dot2"), dot), "mma": mma, "ldmatrix": ldmatrix, "exp2_fast": fast_math_unit, "rcp_fast": fast_math_unit,
        "fmod": remainder.fmod,
        **hopper.CALLS, "async_copy": async_copy, "async_commit": async_commit, "async_wait": async_wait,
        **dict.fromkeys(("call_llvm_intrin", "call_llvm_pure_intrin"), GpuEmitter.llvm_intrinsic),
    }  # fmt: skip


def _number(target: Target) -> int:
    """The chip's number: 90 of sm_90 and sm_90a."""
    return int(target.mcpu.removeprefix("sm_").removesuffix("a"))


@lru_cache(maxsize=64)
def machine_of(target: Target) -> Machine:
    """The LLVM target machine; `-ptx=78` chooses a PTX version, by default the lowest that knows the chip."""
    least = max(_PTX_OF[_number(target)], _PTX_OF_WARPGROUPS if target.chip.warpgroup else 0)
    asked = target.options.get("ptx", "")
    if asked:
        digits = asked.replace(".", "")
        if not digits.isdigit() or int(digits) < least:
            raise TargetError(
                f"PTX version {asked!r}", hint=f"{target.mcpu} needs {least // 10}.{least % 10} or later: -ptx={least}"
            )
        least = int(digits)
    return Machine(TRIPLE, target.mcpu, f"+ptx{least}", 3, "small")


def ordered_loads(ptx: str) -> str:
    """The text of kernels that begin early (`early_start`) with loads that stay behind their wait. What a kernel only reads, LLVM loads by ld.global.nc:
    memory that nothing writes while the kernel is there, which is not true of one that begins beside the kernel ahead of it, and ptxas might load before
    the wait."""
    return ptx.replace("ld.global.nc.", "ld.global.") if "griddepcontrol.wait" in ptx else ptx


_DYNAMIC = re.compile(r"(?m)^\.extern \.shared \.align (\d+) (\.b8 \w+\[\]);\n+")
_HEADER = re.compile(r"(?s)\A.*?^\.address_size \d+\n", re.M)


def join_ptx(texts: Sequence[str]) -> str:
    """One PTX text of several for one target: what a driver compiles as one module.

    Kernels and their shared arrays have names of their own; labels have, too, within a kernel. The dynamic array is the one thing that is
    declared by each that has it: it is declared once, with the strictest alignment. Blank lines that only LLVM's tools need are left out.
    """
    header = _HEADER.match(texts[0])
    assert header is not None, "PTX begins with its version, target and address size"
    align: dict[str, int] = {}
    for text in texts:
        for bytes_, array in _DYNAMIC.findall(text):
            align[array] = max(align.get(array, 0), int(bytes_))
    declared = "".join(f".extern .shared .align {n} {array};\n" for array, n in align.items())
    bodies = []
    for k, text in enumerate(texts):
        body = _DYNAMIC.sub("", _HEADER.sub("", text, count=1))
        bodies.append(body.replace("$L__BB0_", f"$L__BB{k}_") if k else body)
    return re.sub(r"\n{3,}", "\n\n", "\n".join([header[0], declared, *bodies]))


def dynamic_shared_bytes(f: Func, target: Target) -> int:
    """Bytes of dynamic shared memory that a launch of the kernel asks for: all of it, where it is beyond the static limit."""
    total = int(f.attrs.get("lds_bytes", 0))
    if total <= target.static_lds_bytes:
        return 0
    return shared_layout(f.body)[1]
