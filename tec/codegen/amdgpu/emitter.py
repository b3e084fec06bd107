"""AMDGPU: the deltas of the emitter for gfx900 to gfx1250, and what LLVM is told about a kernel.

Kernels follow the ABI of docs/architecture.md: explicit arguments alone, so every hidden argument is declared unused.
A barrier orders shared memory (and global memory where asked); shuffles take the cheapest means that a chip has for the
pattern: DPP, ds_swizzle, permlane, else ds_bpermute. Intrinsics are used only where the chip has them, since LLVM ends
the process on one that it cannot select.
Sources: LLVM's "User Guide for AMDGPU Backend"; AMD's ISA manuals "Vega", "CDNA3", "RDNA2" to "RDNA4" (DPP, LDS).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar

from ...ir import expr as E
from ...ir.dtype import dtype_info, with_lanes
from ...ir.func import Func
from ...ir.matrix import MatrixInstr, instr_of, native_k
from ...ir.scaled_matrix import CODES, scaled_of
from ...target import Target
from ..emit.calls import CallHandler
from ..emit.gpu import GpuEmitter
from ..emit.line_info import LineInfo
from ..llvm_util import Machine
from .tiles import TileEmitter

TRIPLE = "amdgcn-amd-amdhsa"
UNSAFE_ATOMICS = "unsafe-fp-atomics"  # a pseudo feature of -mattr
_UNUSED = (
    "agpr-alloc dispatch-ptr dispatch-id queue-ptr implicitarg-ptr hostcall-ptr heap-ptr multigrid-sync-arg default-queue "
    "completion-action lds-kernel-id flat-scratch-init cluster-id-x cluster-id-y cluster-id-z"
).split()[1:]
_DPP_ROW_MIRROR, _DPP_ROW_HALF_MIRROR, _DPP_ROW_XMASK = 0x140, 0x141, 0x160
_SWIZZLE_XOR = 0x1F  # and mask of ds_swizzle's bit mode: keep the lane, or nothing, xor in bits 10 to 14
_ROW_BYTE_SWAP = ("0x76543210", "0xFEDCBA98")  # permlanex16: every lane takes its own place in the other row


class AmdgpuEmitter(TileEmitter):
    """LLVM IR of AMDGPU kernels."""

    alloca_space: ClassVar[int] = 5
    intrinsic_prefixes: ClassVar[tuple[str, ...]] = ("llvm.amdgcn.",)
    grid_limits = (2**31 - 1, 2**31 - 1, 2**31 - 1)
    index_intrinsics = {
        **{f"threadIdx.{c}": f"llvm.amdgcn.workitem.id.{c}" for c in "xyz"},
        **{f"blockIdx.{c}": f"llvm.amdgcn.workgroup.id.{c}" for c in "xyz"},
    }

    def __init__(self, target: Target):
        super().__init__(target)
        self.family = target.chip.family
        self.is_rdna = self.family.startswith("rdna") or self.family == "cdna5"  # whose instructions are RDNA 4's
        self.wave = target.wavefront_size
        self.lines = LineInfo(self.meta, self.meta_plain)

    # ---- kernels

    def kernel_convention(self) -> str:
        return "amdgpu_kernel "

    def module_flags(self) -> list[str]:
        return ['!{i32 1, !"amdhsa_code_object_version", i32 500}']

    def function(self, f: Func) -> None:
        super().function(f)
        # Metadata of the kernel goes between its attributes and its body.
        if all(self._extent(f, f"threadIdx.{c}") for c in "xyz"):
            k = max(i for i, line in enumerate(self.functions) if line.startswith("define "))
            x, y, z = self.block_shape
            node = self.meta(f"!{{i32 {x}, i32 {y}, i32 {z}}}")
            self.functions[k] = self.functions[k].removesuffix(" {") + f" !reqd_work_group_size {node} {{"

    def function_attributes(self, f: Func) -> str:
        n = self.block_threads
        words = [
            "nounwind",
            "mustprogress",
            f'"amdgpu-flat-work-group-size"="{n},{n}"',
            '"uniform-work-group-size"="true"',
        ]
        words += [f'"amdgpu-no-{name}"' for name in _UNUSED]
        threads = f.attrs.get("threads", {})
        for tag, name in (("threadIdx", "workitem-id"), ("blockIdx", "workgroup-id")):
            words += [f'"amdgpu-no-{name}-{c}"' for c in "yz" if f"{tag}.{c}" not in threads]
        waves = f.attrs.get("waves_per_eu") or self.target.options.get("waves-per-eu")
        if waves:
            words.append(f'"amdgpu-waves-per-eu"="{waves}"')
        return " ".join(words)

    # ---- work-groups and wavefronts

    def barrier(self, e: E.Call) -> str:
        scope = (e.attrs or {}).get("scope", "shared")
        if scope == "wave":
            self.line('fence syncscope("wavefront") acq_rel')
            self.intrinsic("llvm.amdgcn.wave.barrier", "void", [])
            return "0"
        # Fences on shared memory alone let global loads stay in flight across the barrier.
        local = "" if scope == "global" else ", !mmra " + self.meta('!{!"amdgpu-synchronize-as", !"local"}')
        self.line(f'fence syncscope("workgroup") release{local}')
        self.intrinsic("llvm.amdgcn.s.barrier", "void", [])
        self.line(f'fence syncscope("workgroup") acquire{local}')
        return "0"

    def keep_order(self, e: E.Call) -> str:
        """Nothing is scheduled across. On CDNA LLVM sinks loads to where their values are used, with any class let through; RDNA's stay."""
        if self.family.startswith("cdna"):
            if (e.attrs or {}).get("memory"):
                self.line('call void asm sideeffect "", "~{memory}"() nounwind')
            self.intrinsic("llvm.amdgcn.sched.barrier", "void", [("i32", "0")])
        return "0"

    def as_it_is(self, e: E.Call) -> str:
        """The value through an empty statement that keeps its place."""
        type_ = self.reg(e.dtype)
        return self.op(f'call {type_} asm sideeffect "", "=v,0"({type_} {self.expr(e.args[0])}) nounwind')

    def lane(self) -> str:
        low = self.intrinsic("llvm.amdgcn.mbcnt.lo", "i32", [("i32", "-1"), ("i32", "0")], "range(i32 0, 33) ")
        if self.wave == 32:
            return low
        return self.intrinsic("llvm.amdgcn.mbcnt.hi", "i32", [("i32", "-1"), ("i32", low)], "range(i32 0, 65) ")

    def wave_lane(self, e: E.Call) -> str:
        return self.convert(self.lane(), "int32", e.dtype)

    def ballot(self, e: E.Call) -> str:
        mask = self.intrinsic(f"llvm.amdgcn.ballot.i{self.wave}", f"i{self.wave}", [("i1", self.expr(e.args[0]))])
        return self.convert(mask, f"uint{self.wave}", e.dtype)

    def readfirstlane(self, e: E.Call) -> str:
        name = "llvm.amdgcn.readfirstlane.i32"
        return self.in_words(self.expr(e.args[0]), e.dtype, lambda w: self.intrinsic(name, "i32", [("i32", w)]))

    def shuffle_xor(self, e: E.Call) -> str:
        width, mask = self.shuffle_width(e), e.args[1]
        value = self.expr(e.args[0])
        if isinstance(mask, E.IntImm):
            if not 0 <= mask.value < width:
                raise self.error(f"shuffle_xor with mask {mask.value} over {width} lanes")
            return self.in_words(value, e.dtype, lambda w: self._xor_word(w, mask.value))
        target = self.op(f"xor i32 {self.lane()}, {self.convert(self.expr(mask), mask.dtype, 'int32')}")
        return self.in_words(value, e.dtype, lambda w: self._from_lane(w, target))

    def _xor_word(self, w: str, mask: int) -> str:
        """The word of lane `lane ^ mask`."""
        if mask == 0:
            return w
        if mask < 4:
            return self._dpp(w, sum((i ^ mask) << (2 * i) for i in range(4)))
        if mask in (7, 15):
            return self._dpp(w, _DPP_ROW_HALF_MIRROR if mask == 7 else _DPP_ROW_MIRROR)
        if self.is_rdna and mask < 16:
            return self._dpp(w, _DPP_ROW_XMASK + mask)
        if self.is_rdna and mask == 16:
            args = [
                ("i32", w),
                ("i32", w),
                *(("i32", str(int(s, 16) - (1 << 32) if int(s, 16) >> 31 else int(s, 16))) for s in _ROW_BYTE_SWAP),
            ]
            return self.intrinsic("llvm.amdgcn.permlanex16.i32", "i32", [*args, ("i1", "false"), ("i1", "false")])
        if mask < 32:
            return self.intrinsic(
                "llvm.amdgcn.ds.swizzle", "i32", [("i32", w), ("i32", str(mask << 10 | _SWIZZLE_XOR))]
            )
        if mask == 32 and self.is_rdna and self.family != "rdna2":
            return self.intrinsic("llvm.amdgcn.permlane64.i32", "i32", [("i32", w)])
        return self._from_lane(w, self.op(f"xor i32 {self.lane()}, {mask}"))

    def _dpp(self, w: str, control: int) -> str:
        args = [("i32", w), ("i32", w), ("i32", str(control)), ("i32", "15"), ("i32", "15"), ("i1", "true")]
        return self.intrinsic("llvm.amdgcn.update.dpp.i32", "i32", args)

    def _from_lane(self, w: str, lane: str) -> str:
        """The word that `lane` (an i32 value, its own in each lane) holds."""
        address = self.op(f"shl i32 {lane}, 2")
        own = self.intrinsic("llvm.amdgcn.ds.bpermute", "i32", [("i32", address), ("i32", w)])
        if not (self.is_rdna and self.wave == 64):
            return own
        # RDNA permutes within each half of a wave64.
        if self.family == "rdna2":
            raise self.error(
                "moving values across the halves of a wavefront of 64 lanes",
                hint="this chip does it in wavefronts of 32: -wavefrontsize=32",
            )
        other = self.intrinsic("llvm.amdgcn.permlane64.i32", "i32", [("i32", w)])
        crossed = self.intrinsic("llvm.amdgcn.ds.bpermute", "i32", [("i32", address), ("i32", other)])
        differ = self.op(f"and i32 {self.op(f'xor i32 {lane}, {self.lane()}')}, 32")
        return self.op(f"select i1 {self.op(f'icmp ne i32 {differ}, 0')}, i32 {crossed}, i32 {own}")

    def shuffle_lane(self, e: E.Call) -> str:
        """shuffle_up, shuffle_down, shuffle_idx: a lane without a partner keeps its own value."""
        width = self.shuffle_width(e)
        value, n = self.expr(e.args[0]), self.convert(self.expr(e.args[1]), e.args[1].dtype, "int32")
        lane = self.lane()
        within = self.op(f"and i32 {lane}, {width - 1}")
        if e.op == "shuffle_idx":
            base = self.op(f"sub i32 {lane}, {within}")
            target = self.op(f"or i32 {base}, {self.op(f'and i32 {n}, {width - 1}')}")
        elif e.op == "shuffle_up":
            far = self.op(f"icmp sge i32 {within}, {n}")
            target = self.op(f"select i1 {far}, i32 {self.op(f'sub i32 {lane}, {n}')}, i32 {lane}")
        else:
            near = self.op(f"icmp slt i32 {self.op(f'add i32 {within}, {n}')}, {width}")
            target = self.op(f"select i1 {near}, i32 {self.op(f'add i32 {lane}, {n}')}, i32 {lane}")
        return self.in_words(value, e.dtype, lambda w: self._from_lane(w, target))

    # ---- atomics

    atomic_scope = 'syncscope("agent") '

    def scope_of_atomic(self, scope: str) -> str:
        return 'syncscope("workgroup") ' if scope.startswith("shared") else self.atomic_scope

    def atomic_suffix(self, e: E.Call) -> str:
        """Float additions in global memory: the native instruction works on coarse-grained memory, which the user vouches
        for by `-mattr=+unsafe-fp-atomics`; else LLVM makes a loop of compare-and-swap."""
        load = self.load_of(e.args[0], e.op)
        if (
            load.buffer.scope == "global"
            and dtype_info(load.buffer.dtype).is_float
            and UNSAFE_ATOMICS in self.target.mattr
        ):
            empty = self.meta("!{}")
            return f", !amdgpu.no.fine.grained.memory {empty}, !amdgpu.no.remote.memory {empty}, !amdgpu.ignore.denormal.mode {empty}"
        return ""

    # ---- math

    def native_math(self, op: str, dtype: str) -> str | None:
        return "llvm.ldexp" if op == "ldexp" else super().native_math(op, dtype)

    def fast_math_unit(self, e: E.Call) -> str:
        """v_exp_f32 as it is, where LLVM's exp2 adds four instructions for results below the normal numbers; v_rcp_f32, where a division is ten."""
        name = {"exp2_fast": "llvm.amdgcn.exp2.f32", "rcp_fast": "llvm.amdgcn.rcp.f32"}[e.op]
        out = [self.intrinsic(name, "float", [("float", x)]) for x in self.lanes_of(self.expr(e.args[0]), e.dtype)]
        return self.vector_of(out, e.dtype)

    def nan_extremum(self, e: E.Call) -> str:
        """Without the instruction, and against a number (a clamp, relu), one comparison does: of NaN it is false, so NaN stays."""
        a, b = e.args
        if _is_number(a):
            a, b = b, a
        if self.family in ("cdna4", "rdna4") or not _is_number(b):
            return super().nan_extremum(e)
        x, y, r = self.expr(a), self.expr(b), self.reg(e.dtype)
        beyond = self.compare_values(E.GT if e.op == "min_nan" else E.LT, x, y, e.dtype)
        return self.op(f"select {self.reg(with_lanes('bool', dtype_info(e.dtype).lanes))} {beyond}, {r} {y}, {r} {x}")

    def if_then_else(self, e: E.Call) -> str:
        found = self.guarded_load(e)
        return super().if_then_else(e) if found is None else found

    # ---- dot products and matrix units

    def dot(self, e: E.Call) -> str:
        a, b = (dtype_info(x.dtype) for x in e.args[:2])
        chip = self.target.chip
        name, extra = "", [("i1", "false")]
        if e.op == "dot4" and chip.dot4 and a.lanes == b.lanes == 4 and {a.bits, b.bits} == {8}:
            values = [self.op(f"bitcast <4 x i8> {self.expr(x)} to i32") for x in e.args[:2]]
            args = [("i32", v) for v in values]
            if chip.dot4_mixed:
                name = "sudot4"
                args = [("i1", str(a.is_signed).lower()), args[0], ("i1", str(b.is_signed).lower()), args[1]]
            elif a.kind == b.kind:
                name = "sdot4" if a.is_signed else "udot4"
        elif e.op == "dot2" and chip.dot2 and a.lanes == 2 and a.kind == b.kind == "float":
            name, args = "fdot2", [("<2 x half>", self.expr(x)) for x in e.args[:2]]
        elif e.op == "dot2" and a.kind == b.kind == "bfloat" and a.lanes == 2 and self._has_bf16_dot():
            name = "fdot2.f32.bf16"
            args = [("<2 x bfloat>", self.op(f"bitcast <2 x i16> {self.expr(x)} to <2 x bfloat>")) for x in e.args[:2]]
        if not name:
            return super().dot(e)
        r = self.reg(e.dtype)
        return self.intrinsic("llvm.amdgcn." + name, r, [*args, (r, self.expr(e.args[2])), *extra])

    def _has_bf16_dot(self) -> bool:
        return self.family in ("cdna4", "rdna3", "rdna4")

    def mma(self, e: E.Call) -> str:
        instr = instr_of(e.attrs or {})
        k = native_k(instr, self.target)
        if k is None:
            raise self.error(
                f"the matrix unit has no {instr.name}", hint="tec.te.intrin.shapes(target) lists what it has"
            )
        a, b, c = (self.expr(x) for x in e.args)
        acc = self.reg(e.dtype)
        parts = instr.k // k
        for p in range(parts):
            x, y = (self._part(v, role, instr, p, parts) for v, role in ((a, "a"), (b, "b")))
            c = self._mfma(instr, k, x, y, c, acc) if instr.unit == "mfma" else self._wmma(instr, k, x, y, c, acc)
        return c

    def _part(self, value: str, role: str, instr: MatrixInstr, part: int, parts: int) -> tuple[str, int]:
        """The part-th piece of an operand's vector, and how many elements it has."""
        n = instr.elems(role)
        own = n // parts
        if parts == 1:
            return value, n
        r = self.reg(instr.dtype(role))
        if own == 1:
            return self.op(f"extractelement {r} {value}, i64 {part}"), 1
        picks = ", ".join(f"i32 {part * own + i}" for i in range(own))
        return self.op(f"shufflevector {r} {value}, {r} poison, <{own} x i32> <{picks}>"), own

    def _words(self, value: str, n: int, type_: str) -> str:
        """Elements of a byte as the words that an instruction takes."""
        return self.op(f"bitcast <{n} x i8> {value} to {type_}")

    def _mfma(self, instr: MatrixInstr, k: int, a: tuple[str, int], b: tuple[str, int], c: str, acc: str) -> str:
        n = a[1]
        blocks, out = f"{instr.m}x{instr.n}x{k}", {"float32": "f32", "float64": "f64", "int32": "i32"}[instr.acc_dtype]
        x, y = a[0], b[0]
        if instr.in_dtype.startswith("float8"):
            return self._mfma_float8(instr, k, a, b, c, acc)
        if instr.in_dtype == "int8":
            type_ = {4: "i32", 8: "i64", 16: "<4 x i32>"}[n]
            x, y = self._words(x, n, type_), self._words(y, n, type_)
            name = f"{out}.{blocks}{'' if n == 4 else '.'}i8"
        elif instr.in_dtype == "bfloat16":
            type_ = f"<{n} x i16>"
            if n == 8:
                type_ = "<8 x bfloat>"
                x, y = (self.op(f"bitcast <8 x i16> {v} to {type_}") for v in (x, y))
            name = f"{out}.{blocks}" + {2: "bf16", 4: "bf16.1k", 8: ".bf16"}[n]
        elif instr.in_dtype == "float16":
            type_, name = f"<{n} x half>", f"{out}.{blocks}{'.f16' if n == 8 else 'f16'}"
        else:
            type_, name = self.reg(instr.in_dtype), f"{out}.{blocks}{out}"
        zero = [("i32", "0")] * 3
        return self.intrinsic(f"llvm.amdgcn.mfma.{name}", acc, [(type_, x), (type_, y), (acc, c), *zero])

    def _mfma_float8(self, instr: MatrixInstr, k: int, a: tuple[str, int], b: tuple[str, int], c: str, acc: str) -> str:
        """8-bit floats: words of eight, or of 32 whose format is a field of the instruction (0 fp8, 1 bf8), not scaled."""
        n, shape = a[1], f"f32.{instr.m}x{instr.n}x{k}"
        type_ = {8: "i64", 32: "<8 x i32>"}[n]
        args = [(type_, self._words(x, n, type_)) for x in (a[0], b[0])]
        is_bf8 = "e5m2" in instr.in_dtype
        if n == 8:
            kind = "bf8" if is_bf8 else "fp8"
            return self.intrinsic(
                f"llvm.amdgcn.mfma.{shape}.{kind}.{kind}", acc, [*args, (acc, c), *[("i32", "0")] * 3]
            )
        formats, no_scale = [("i32", str(int(is_bf8)))] * 2, [("i32", "0")] * 4
        name = f"llvm.amdgcn.mfma.scale.{shape}.f8f6f4.v8i32.v8i32"
        return self.intrinsic(name, acc, [*args, (acc, c), *formats, *no_scale])

    def mma_scaled(self, e: E.Call) -> str:
        s = scaled_of(e.attrs or {})
        if (s.m, s.n, s.k) not in self.target.chip.scaled_matrix:
            raise self.error(
                f"{self.target} has no scaled matrix instruction {s.m}x{s.n}x{s.k}", hint="gfx950 has them"
            )
        a, b, c, scale_a, scale_b = (self.expr(x) for x in e.args)
        types = [f"<{s.bytes(role) // 4} x i32>" for role in "ab"]
        args = [(t, self._words(x, s.bytes(r), t)) for t, x, r in zip(types, (a, b), "ab")]
        formats = [("i32", str(CODES.index(f.name))) for f in s.formats]
        scales = [("i32", x) for pair in (("0", scale_a), ("0", scale_b)) for x in pair]  # a register's byte 0
        mangled = "".join(f".v{s.bytes(role) // 4}i32" for role in "ab")
        name = f"llvm.amdgcn.mfma.scale.f32.{s.m}x{s.n}x{s.k}.f8f6f4{mangled}"
        acc = self.reg(e.dtype)
        return self.intrinsic(name, acc, [*args, (acc, c), *formats, *scales])

    def _wmma(self, instr: MatrixInstr, k: int, a: tuple[str, int], b: tuple[str, int], c: str, acc: str) -> str:
        if self.family == "cdna5":
            return self._wmma_cdna5(instr, k, a, b, c, acc)
        n, shape = a[1], f"{instr.m}x{instr.n}x{instr.k}"
        out = f"v{instr.acc_elems}{'i32' if instr.acc_dtype == 'int32' else 'f32'}"
        if instr.in_dtype == "int8":
            type_ = f"<{n // 4} x i32>"
            x, y = (self._words(v, n, type_) for v, _ in (a, b))
            args = [("i1", "true"), (type_, x), ("i1", "true"), (type_, y), (acc, c), ("i1", "false")]
            return self.intrinsic(f"llvm.amdgcn.wmma.i32.{shape}.iu8.{out}.v{n // 4}i32", acc, args)
        if instr.in_dtype.startswith("float8"):
            kind, type_ = "bf8" if "e5m2" in instr.in_dtype else "fp8", f"<{n // 4} x i32>"
            words = [(type_, self._words(v, n, type_)) for v, _ in (a, b)]
            return self.intrinsic(
                f"llvm.amdgcn.wmma.f32.{shape}.{kind}.{kind}.{out}.v{n // 4}i32", acc, [*words, (acc, c)]
            )
        kind, element = ("f16", "half") if instr.in_dtype == "float16" else ("bf16", "i16")
        type_ = f"<{n} x {element}>"
        mangled = f"v{n}{'f16' if kind == 'f16' else 'i16'}"
        return self.intrinsic(
            f"llvm.amdgcn.wmma.f32.{shape}.{kind}.{out}.{mangled}", acc, [(type_, a[0]), (type_, b[0]), (acc, c)]
        )

    def _wmma_cdna5(self, instr: MatrixInstr, k: int, a: tuple[str, int], b: tuple[str, int], c: str, acc: str) -> str:
        """gfx1250's: signs and what C's are, and whether operands stay for the next one, are arguments."""
        n, shape, off = a[1], f"{instr.m}x{instr.n}x{k}", ("i1", "false")
        out, plain = f"v{instr.acc_elems}{'i32' if instr.acc_dtype == 'int32' else 'f32'}", ("i16", "0")
        x, y = a[0], b[0]
        if dtype_info(instr.in_dtype).bits == 8:
            words, type_ = n // 4, f"<{n // 4} x i32>"
            x, y = self._words(x, n, type_), self._words(y, n, type_)
            if instr.in_dtype == "int8":
                args = [("i1", "true"), (type_, x), ("i1", "true"), (type_, y), (acc, c), off, off]
                return self.intrinsic(f"llvm.amdgcn.wmma.i32.{shape}.iu8.{out}.v{words}i32", acc, args)
            kind = "bf8" if "e5m2" in instr.in_dtype else "fp8"
            args = [(type_, x), (type_, y), plain, (acc, c), off, off]
            return self.intrinsic(f"llvm.amdgcn.wmma.f32.{shape}.{kind}.{kind}.{out}.v{words}i32", acc, args)
        kind, element = {"float32": ("f32", "float"), "float16": ("f16", "half"), "bfloat16": ("bf16", "bfloat")}[
            instr.in_dtype
        ]
        type_ = f"<{n} x {element}>"
        if kind == "bf16":
            x, y = (self.op(f"bitcast <{n} x i16> {v} to {type_}") for v in (x, y))
        args = [off, (type_, x), off, (type_, y), plain, (acc, c), off, off]
        return self.intrinsic(f"llvm.amdgcn.wmma.f32.{shape}.{kind}.{out}.v{n}{kind}", acc, args)

    calls: ClassVar[dict[str, CallHandler]] = {
        **GpuEmitter.calls,
        "barrier": barrier, "keep_order": keep_order, "wave_lane": wave_lane, "ballot": ballot, "readfirstlane": readfirstlane,
        "shuffle_xor": shuffle_xor, "exp2_fast": fast_math_unit, "rcp_fast": fast_math_unit,
        **dict.fromkeys(("shuffle_up", "shuffle_down", "shuffle_idx"), shuffle_lane),
        **dict.fromkeys(("dot4", "dot2"), dot), "mma": mma, "mma_scaled": mma_scaled,
        **dict.fromkeys(("min_nan", "max_nan"), nan_extremum), "if_then_else": if_then_else,
        "computed": as_it_is, "async_copy": TileEmitter.direct_copy, "async_commit": GpuEmitter.nothing, "async_wait": TileEmitter.async_wait,
        **dict.fromkeys(("call_llvm_intrin", "call_llvm_pure_intrin"), GpuEmitter.llvm_intrinsic),
    }  # fmt: skip


def _is_number(e: E.Expr) -> bool:
    """Whether a float is a constant other than NaN."""
    value = e.value if isinstance(e, E.Broadcast) else e
    return isinstance(value, E.FloatImm) and not math.isnan(value.value)


@lru_cache(maxsize=64)
def machine_of(target: Target) -> Machine:
    """The LLVM target machine of an AMDGPU target."""
    features = [f for f in target.mattr.split(",") if f and f.lstrip("+-") != UNSAFE_ATOMICS]
    features = [f if f[0] in "+-" else "+" + f for f in features]
    if len(target.chip.wavefront_sizes) > 1:
        other = 96 - target.wavefront_size
        features += [f"+wavefrontsize{target.wavefront_size}", f"-wavefrontsize{other}"]
    return Machine(TRIPLE, target.mcpu, ",".join(features))


__all__ = ["TRIPLE", "AmdgpuEmitter", "machine_of"]
