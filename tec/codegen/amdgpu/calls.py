"""Calls on AMDGPU: barriers, lanes, math units, dot products and matrix units.

A barrier orders shared memory (and global memory where asked); shuffles take the cheapest means that a chip has for the
pattern: DPP, ds_swizzle, permlane, else ds_bpermute. Intrinsics are used only where the chip has them, since LLVM ends
the process on one that it cannot select.
Sources: LLVM's "User Guide for AMDGPU Backend"; AMD's ISA manuals "Vega", "CDNA3", "RDNA2" to "RDNA4" (DPP, LDS).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...ir import expr as E
from ...ir.dtype import dtype_info, with_lanes
from ...ir.matrix import MatrixInstr, instr_of, native_k
from ...ir.scaled_matrix import CODES, scaled_of
from ..emit import calls
from ..emit.calls import CallHandler
from ..emit.gpu import in_words, nothing, shuffle_width
from .buffers import async_wait, direct_copy

if TYPE_CHECKING:
    from .emitter import AmdgpuEmitter

_DPP_ROW_MIRROR, _DPP_ROW_HALF_MIRROR, _DPP_ROW_XMASK = 0x140, 0x141, 0x160
_SWIZZLE_XOR = 0x1F  # and mask of ds_swizzle's bit mode: keep the lane, or nothing, xor in bits 10 to 14
_ROW_BYTE_SWAP = ("0x76543210", "0xFEDCBA98")  # permlanex16: every lane takes its own place in the other row


# ---- work-groups and wavefronts


def barrier(em: AmdgpuEmitter, e: E.Call) -> str:
    scope = (e.attrs or {}).get("scope", "shared")
    if scope == "wave":
        em.line('fence syncscope("wavefront") acq_rel')
        em.intrinsic("llvm.amdgcn.wave.barrier", "void", [])
        return "0"
    # Fences on shared memory alone let global loads stay in flight across the barrier.
    local = "" if scope == "global" else ", !mmra " + em.meta('!{!"amdgpu-synchronize-as", !"local"}')
    em.line(f'fence syncscope("workgroup") release{local}')
    _await_shared(em)
    em.intrinsic("llvm.amdgcn.s.barrier", "void", [])
    em.line(f'fence syncscope("workgroup") acquire{local}')
    return "0"


def fence(em: AmdgpuEmitter, e: E.Call) -> str:
    return calls.fence(em, e, {"group": "workgroup", "device": "agent"})


def _await_shared(em: AmdgpuEmitter) -> None:
    """Wait for this wavefront's stores to shared memory. The release fence asks for it too, but LLVM 22 drops a fence's wait at the head of a loop where nothing is under way when the
    loop is entered, and does not put it back for what the loop's end leaves under way."""
    if em.family == "rdna4" or em.family == "cdna5":
        em.intrinsic("llvm.amdgcn.s.wait.dscnt", "void", [("i16", "0")])
    else:
        # s_waitcnt lgkmcnt(0): the other counters at the most they can count (ISA manuals, s_waitcnt's fields).
        em.intrinsic("llvm.amdgcn.s.waitcnt", "void", [("i32", str(0xFC07 if em.family == "rdna3" else 0xC07F))])


def keep_order(em: AmdgpuEmitter, e: E.Call) -> str:
    """Nothing is scheduled across. On CDNA LLVM sinks loads to where their values are used, with any class let through; RDNA's stay."""
    if em.family.startswith("cdna"):
        if (e.attrs or {}).get("memory"):
            em.line('call void asm sideeffect "", "~{memory}"() nounwind')
        em.intrinsic("llvm.amdgcn.sched.barrier", "void", [("i32", "0")])
    return "0"


def as_it_is(em: AmdgpuEmitter, e: E.Call) -> str:
    """The value through an empty statement that keeps its place."""
    type_ = em.reg(e.dtype)
    return em.op(f'call {type_} asm sideeffect "", "=v,0"({type_} {em.expr(e.args[0])}) nounwind')


def own_lane(em: AmdgpuEmitter) -> str:
    low = em.intrinsic("llvm.amdgcn.mbcnt.lo", "i32", [("i32", "-1"), ("i32", "0")], "range(i32 0, 33) ")
    if em.wave == 32:
        return low
    return em.intrinsic("llvm.amdgcn.mbcnt.hi", "i32", [("i32", "-1"), ("i32", low)], "range(i32 0, 65) ")


def wave_lane(em: AmdgpuEmitter, e: E.Call) -> str:
    return em.arithmetic.convert(own_lane(em), "int32", e.dtype)


def ballot(em: AmdgpuEmitter, e: E.Call) -> str:
    mask = em.intrinsic(f"llvm.amdgcn.ballot.i{em.wave}", f"i{em.wave}", [("i1", em.expr(e.args[0]))])
    return em.arithmetic.convert(mask, f"uint{em.wave}", e.dtype)


def readfirstlane(em: AmdgpuEmitter, e: E.Call) -> str:
    name = "llvm.amdgcn.readfirstlane.i32"
    return in_words(em, em.expr(e.args[0]), e.dtype, lambda w: em.intrinsic(name, "i32", [("i32", w)]))


def shuffle_xor(em: AmdgpuEmitter, e: E.Call) -> str:
    width, mask = shuffle_width(em, e), e.args[1]
    value = em.expr(e.args[0])
    if isinstance(mask, E.IntImm):
        if not 0 <= mask.value < width:
            raise em.error(f"shuffle_xor with mask {mask.value} over {width} lanes")
        return in_words(em, value, e.dtype, lambda w: _xor_word(em, w, mask.value))
    target = em.op(f"xor i32 {own_lane(em)}, {em.arithmetic.convert(em.expr(mask), mask.dtype, 'int32')}")
    return in_words(em, value, e.dtype, lambda w: _from_lane(em, w, target))


def _xor_word(em: AmdgpuEmitter, w: str, mask: int) -> str:
    """The word of lane `lane ^ mask`."""
    if mask == 0:
        return w
    if mask < 4:
        return _dpp(em, w, sum((i ^ mask) << (2 * i) for i in range(4)))
    if mask in (7, 15):
        return _dpp(em, w, _DPP_ROW_HALF_MIRROR if mask == 7 else _DPP_ROW_MIRROR)
    if em.is_rdna and mask < 16:
        return _dpp(em, w, _DPP_ROW_XMASK + mask)
    if em.is_rdna and mask == 16:
        args = [
            ("i32", w),
            ("i32", w),
            *(("i32", str(int(s, 16) - (1 << 32) if int(s, 16) >> 31 else int(s, 16))) for s in _ROW_BYTE_SWAP),
        ]
        return em.intrinsic("llvm.amdgcn.permlanex16.i32", "i32", [*args, ("i1", "false"), ("i1", "false")])
    if mask < 32:
        return em.intrinsic("llvm.amdgcn.ds.swizzle", "i32", [("i32", w), ("i32", str(mask << 10 | _SWIZZLE_XOR))])
    if mask == 32 and em.is_rdna and em.family != "rdna2":
        return em.intrinsic("llvm.amdgcn.permlane64.i32", "i32", [("i32", w)])
    return _from_lane(em, w, em.op(f"xor i32 {own_lane(em)}, {mask}"))


def _dpp(em: AmdgpuEmitter, w: str, control: int) -> str:
    args = [("i32", w), ("i32", w), ("i32", str(control)), ("i32", "15"), ("i32", "15"), ("i1", "true")]
    return em.intrinsic("llvm.amdgcn.update.dpp.i32", "i32", args)


def _from_lane(em: AmdgpuEmitter, w: str, lane: str) -> str:
    """The word that `lane` (an i32 value, its own in each lane) holds."""
    address = em.op(f"shl i32 {lane}, 2")
    own = em.intrinsic("llvm.amdgcn.ds.bpermute", "i32", [("i32", address), ("i32", w)])
    if not (em.is_rdna and em.wave == 64):
        return own
    # RDNA permutes within each half of a wave64.
    if em.family == "rdna2":
        raise em.error(
            "moving values across the halves of a wavefront of 64 lanes",
            hint="this chip does it in wavefronts of 32: -wavefrontsize=32",
        )
    other = em.intrinsic("llvm.amdgcn.permlane64.i32", "i32", [("i32", w)])
    crossed = em.intrinsic("llvm.amdgcn.ds.bpermute", "i32", [("i32", address), ("i32", other)])
    differ = em.op(f"and i32 {em.op(f'xor i32 {lane}, {own_lane(em)}')}, 32")
    return em.op(f"select i1 {em.op(f'icmp ne i32 {differ}, 0')}, i32 {crossed}, i32 {own}")


def shuffle_lane(em: AmdgpuEmitter, e: E.Call) -> str:
    """shuffle_up, shuffle_down, shuffle_idx: a lane without a partner keeps its own value."""
    width = shuffle_width(em, e)
    value, n = em.expr(e.args[0]), em.arithmetic.convert(em.expr(e.args[1]), e.args[1].dtype, "int32")
    lane = own_lane(em)
    within = em.op(f"and i32 {lane}, {width - 1}")
    if e.op == "shuffle_idx":
        base = em.op(f"sub i32 {lane}, {within}")
        target = em.op(f"or i32 {base}, {em.op(f'and i32 {n}, {width - 1}')}")
    elif e.op == "shuffle_up":
        far = em.op(f"icmp sge i32 {within}, {n}")
        target = em.op(f"select i1 {far}, i32 {em.op(f'sub i32 {lane}, {n}')}, i32 {lane}")
    else:
        near = em.op(f"icmp slt i32 {em.op(f'add i32 {within}, {n}')}, {width}")
        target = em.op(f"select i1 {near}, i32 {em.op(f'add i32 {lane}, {n}')}, i32 {lane}")
    return in_words(em, value, e.dtype, lambda w: _from_lane(em, w, target))


# ---- math


def fast_math_unit(em: AmdgpuEmitter, e: E.Call) -> str:
    """v_exp_f32 as it is, where LLVM's exp2 adds four instructions for results below the normal numbers; v_rcp_f32, where a division is ten."""
    name = {"exp2_fast": "llvm.amdgcn.exp2.f32", "rcp_fast": "llvm.amdgcn.rcp.f32"}[e.op]
    out = [em.intrinsic(name, "float", [("float", x)]) for x in em.lanes_of(em.expr(e.args[0]), e.dtype)]
    return em.vector_of(out, e.dtype)


def nan_extremum(em: AmdgpuEmitter, e: E.Call) -> str:
    """Without the instruction, and against a number (a clamp, relu), one comparison does: of NaN it is false, so NaN stays."""
    a, b = e.args
    if _is_number(a):
        a, b = b, a
    if em.family in ("cdna4", "rdna4") or not _is_number(b):
        return calls.nan_extremum(em, e)
    x, y, r = em.expr(a), em.expr(b), em.reg(e.dtype)
    beyond = em.arithmetic.compare_values(E.GT if e.op == "min_nan" else E.LT, x, y, e.dtype)
    return em.op(f"select {em.reg(with_lanes('bool', dtype_info(e.dtype).lanes))} {beyond}, {r} {y}, {r} {x}")


# ---- dot products and matrix units


def dot(em: AmdgpuEmitter, e: E.Call) -> str:
    a, b = (dtype_info(x.dtype) for x in e.args[:2])
    chip = em.target.chip
    name, extra = "", [("i1", "false")]
    if e.op == "dot4" and chip.dot4 and a.lanes == b.lanes == 4 and {a.bits, b.bits} == {8}:
        values = [em.op(f"bitcast <4 x i8> {em.expr(x)} to i32") for x in e.args[:2]]
        args = [("i32", v) for v in values]
        if chip.dot4_mixed:
            name = "sudot4"
            args = [("i1", str(a.is_signed).lower()), args[0], ("i1", str(b.is_signed).lower()), args[1]]
        elif a.kind == b.kind:
            name = "sdot4" if a.is_signed else "udot4"
    elif e.op == "dot2" and chip.dot2 and a.lanes == 2 and a.kind == b.kind == "float":
        name, args = "fdot2", [("<2 x half>", em.expr(x)) for x in e.args[:2]]
    elif e.op == "dot2" and a.kind == b.kind == "bfloat" and a.lanes == 2 and _has_bf16_dot(em):
        name = "fdot2.f32.bf16"
        args = [("<2 x bfloat>", em.op(f"bitcast <2 x i16> {em.expr(x)} to <2 x bfloat>")) for x in e.args[:2]]
    if not name:
        return calls.dot(em, e)
    r = em.reg(e.dtype)
    return em.intrinsic("llvm.amdgcn." + name, r, [*args, (r, em.expr(e.args[2])), *extra])


def _has_bf16_dot(em: AmdgpuEmitter) -> bool:
    return em.family in ("cdna4", "rdna3", "rdna4")


def mma(em: AmdgpuEmitter, e: E.Call) -> str:
    instr = instr_of(e.attrs or {})
    k = native_k(instr, em.target)
    if k is None:
        raise em.error(f"the matrix unit has no {instr.name}", hint="tec.te.intrin.shapes(target) lists what it has")
    a, b, c = (em.expr(x) for x in e.args)
    acc = em.reg(e.dtype)
    parts = instr.k // k
    for p in range(parts):
        x, y = (_part(em, v, role, instr, p, parts) for v, role in ((a, "a"), (b, "b")))
        c = _mfma(em, instr, k, x, y, c, acc) if instr.unit == "mfma" else _wmma(em, instr, k, x, y, c, acc)
    return c


def _part(em: AmdgpuEmitter, value: str, role: str, instr: MatrixInstr, part: int, parts: int) -> tuple[str, int]:
    """The part-th piece of an operand's vector, and how many elements it has."""
    n = instr.elems(role)
    own = n // parts
    if parts == 1:
        return value, n
    r = em.reg(instr.dtype(role))
    if own == 1:
        return em.op(f"extractelement {r} {value}, i64 {part}"), 1
    picks = ", ".join(f"i32 {part * own + i}" for i in range(own))
    return em.op(f"shufflevector {r} {value}, {r} poison, <{own} x i32> <{picks}>"), own


def _words(em: AmdgpuEmitter, value: str, n: int, type_: str) -> str:
    """Elements of a byte as the words that an instruction takes."""
    return em.op(f"bitcast <{n} x i8> {value} to {type_}")


def _mfma(
    em: AmdgpuEmitter, instr: MatrixInstr, k: int, a: tuple[str, int], b: tuple[str, int], c: str, acc: str
) -> str:
    n = a[1]
    blocks, out = f"{instr.m}x{instr.n}x{k}", {"float32": "f32", "float64": "f64", "int32": "i32"}[instr.acc_dtype]
    x, y = a[0], b[0]
    if instr.in_dtype.startswith("float8"):
        return _mfma_float8(em, instr, k, a, b, c, acc)
    if instr.in_dtype == "int8":
        type_ = {4: "i32", 8: "i64", 16: "<4 x i32>"}[n]
        x, y = _words(em, x, n, type_), _words(em, y, n, type_)
        name = f"{out}.{blocks}{'' if n == 4 else '.'}i8"
    elif instr.in_dtype == "bfloat16":
        type_ = f"<{n} x i16>"
        if n == 8:
            type_ = "<8 x bfloat>"
            x, y = (em.op(f"bitcast <8 x i16> {v} to {type_}") for v in (x, y))
        name = f"{out}.{blocks}" + {2: "bf16", 4: "bf16.1k", 8: ".bf16"}[n]
    elif instr.in_dtype == "float16":
        type_, name = f"<{n} x half>", f"{out}.{blocks}{'.f16' if n == 8 else 'f16'}"
    else:
        type_, name = em.reg(instr.in_dtype), f"{out}.{blocks}{out}"
    zero = [("i32", "0")] * 3
    return em.intrinsic(f"llvm.amdgcn.mfma.{name}", acc, [(type_, x), (type_, y), (acc, c), *zero])


def _mfma_float8(
    em: AmdgpuEmitter, instr: MatrixInstr, k: int, a: tuple[str, int], b: tuple[str, int], c: str, acc: str
) -> str:
    """8-bit floats: words of eight, or of 32 whose format is a field of the instruction (0 fp8, 1 bf8), not scaled."""
    n, shape = a[1], f"f32.{instr.m}x{instr.n}x{k}"
    type_ = {8: "i64", 32: "<8 x i32>"}[n]
    args = [(type_, _words(em, x, n, type_)) for x in (a[0], b[0])]
    is_bf8 = "e5m2" in instr.in_dtype
    if n == 8:
        kind = "bf8" if is_bf8 else "fp8"
        return em.intrinsic(f"llvm.amdgcn.mfma.{shape}.{kind}.{kind}", acc, [*args, (acc, c), *[("i32", "0")] * 3])
    formats, no_scale = [("i32", str(int(is_bf8)))] * 2, [("i32", "0")] * 4
    name = f"llvm.amdgcn.mfma.scale.{shape}.f8f6f4.v8i32.v8i32"
    return em.intrinsic(name, acc, [*args, (acc, c), *formats, *no_scale])


def mma_scaled(em: AmdgpuEmitter, e: E.Call) -> str:
    s = scaled_of(e.attrs or {})
    if (s.m, s.n, s.k) not in em.target.chip.scaled_matrix:
        raise em.error(f"{em.target} has no scaled matrix instruction {s.m}x{s.n}x{s.k}", hint="gfx950 has them")
    a, b, c, scale_a, scale_b = (em.expr(x) for x in e.args)
    types = [f"<{s.bytes(role) // 4} x i32>" for role in "ab"]
    args = [(t, _words(em, x, s.bytes(r), t)) for t, x, r in zip(types, (a, b), "ab")]
    formats = [("i32", str(CODES.index(f.name))) for f in s.formats]
    scales = [("i32", x) for pair in (("0", scale_a), ("0", scale_b)) for x in pair]  # a register's byte 0
    mangled = "".join(f".v{s.bytes(role) // 4}i32" for role in "ab")
    name = f"llvm.amdgcn.mfma.scale.f32.{s.m}x{s.n}x{s.k}.f8f6f4{mangled}"
    acc = em.reg(e.dtype)
    return em.intrinsic(name, acc, [*args, (acc, c), *formats, *scales])


def _wmma(
    em: AmdgpuEmitter, instr: MatrixInstr, k: int, a: tuple[str, int], b: tuple[str, int], c: str, acc: str
) -> str:
    if em.family == "cdna5":
        return _wmma_cdna5(em, instr, k, a, b, c, acc)
    n, shape = a[1], f"{instr.m}x{instr.n}x{instr.k}"
    out = f"v{instr.acc_elems}{'i32' if instr.acc_dtype == 'int32' else 'f32'}"
    if instr.in_dtype == "int8":
        type_ = f"<{n // 4} x i32>"
        x, y = (_words(em, v, n, type_) for v, _ in (a, b))
        args = [("i1", "true"), (type_, x), ("i1", "true"), (type_, y), (acc, c), ("i1", "false")]
        return em.intrinsic(f"llvm.amdgcn.wmma.i32.{shape}.iu8.{out}.v{n // 4}i32", acc, args)
    if instr.in_dtype.startswith("float8"):
        kind, type_ = "bf8" if "e5m2" in instr.in_dtype else "fp8", f"<{n // 4} x i32>"
        words = [(type_, _words(em, v, n, type_)) for v, _ in (a, b)]
        return em.intrinsic(f"llvm.amdgcn.wmma.f32.{shape}.{kind}.{kind}.{out}.v{n // 4}i32", acc, [*words, (acc, c)])
    kind, element = ("f16", "half") if instr.in_dtype == "float16" else ("bf16", "i16")
    type_ = f"<{n} x {element}>"
    mangled = f"v{n}{'f16' if kind == 'f16' else 'i16'}"
    return em.intrinsic(
        f"llvm.amdgcn.wmma.f32.{shape}.{kind}.{out}.{mangled}", acc, [(type_, a[0]), (type_, b[0]), (acc, c)]
    )


def _wmma_cdna5(
    em: AmdgpuEmitter, instr: MatrixInstr, k: int, a: tuple[str, int], b: tuple[str, int], c: str, acc: str
) -> str:
    """gfx1250's: signs and what C's are, and whether operands stay for the next one, are arguments."""
    n, shape, off = a[1], f"{instr.m}x{instr.n}x{k}", ("i1", "false")
    out, plain = f"v{instr.acc_elems}{'i32' if instr.acc_dtype == 'int32' else 'f32'}", ("i16", "0")
    x, y = a[0], b[0]
    if dtype_info(instr.in_dtype).bits == 8:
        words, type_ = n // 4, f"<{n // 4} x i32>"
        x, y = _words(em, x, n, type_), _words(em, y, n, type_)
        if instr.in_dtype == "int8":
            args = [("i1", "true"), (type_, x), ("i1", "true"), (type_, y), (acc, c), off, off]
            return em.intrinsic(f"llvm.amdgcn.wmma.i32.{shape}.iu8.{out}.v{words}i32", acc, args)
        kind = "bf8" if "e5m2" in instr.in_dtype else "fp8"
        args = [(type_, x), (type_, y), plain, (acc, c), off, off]
        return em.intrinsic(f"llvm.amdgcn.wmma.f32.{shape}.{kind}.{kind}.{out}.v{words}i32", acc, args)
    kind, element = {"float32": ("f32", "float"), "float16": ("f16", "half"), "bfloat16": ("bf16", "bfloat")}[
        instr.in_dtype
    ]
    type_ = f"<{n} x {element}>"
    if kind == "bf16":
        x, y = (em.op(f"bitcast <{n} x i16> {v} to {type_}") for v in (x, y))
    args = [off, (type_, x), off, (type_, y), plain, (acc, c), off, off]
    return em.intrinsic(f"llvm.amdgcn.wmma.f32.{shape}.{kind}.{out}.v{n}{kind}", acc, args)


def _is_number(e: E.Expr) -> bool:
    """Whether a float is a constant other than NaN."""
    value = e.value if isinstance(e, E.Broadcast) else e
    return isinstance(value, E.FloatImm) and not math.isnan(value.value)


CALLS: dict[str, CallHandler] = {
    **calls.CALLS,
    "barrier": barrier, "fence": fence, "keep_order": keep_order, "wave_lane": wave_lane, "ballot": ballot, "readfirstlane": readfirstlane,
    "shuffle_xor": shuffle_xor, "exp2_fast": fast_math_unit, "rcp_fast": fast_math_unit,
    **dict.fromkeys(("shuffle_up", "shuffle_down", "shuffle_idx"), shuffle_lane),
    **dict.fromkeys(("dot4", "dot2"), dot), "mma": mma, "mma_scaled": mma_scaled,
    **dict.fromkeys(("min_nan", "max_nan"), nan_extremum),
    "computed": as_it_is, "async_copy": direct_copy, "async_commit": nothing, "async_wait": async_wait,
}  # fmt: skip
