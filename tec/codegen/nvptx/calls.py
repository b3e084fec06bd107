"""Calls on NVPTX: barriers, lanes, dot products, matrix units, copies in the background. What sm_90a adds stands in `hopper`.

Matrix products are mma.sync, fed by ldmatrix; copies in the background are cp.async (sm_80 on).
Source: NVIDIA's "PTX ISA" 8.x (shfl.sync, mma, ldmatrix, cp.async).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import expr as E
from ...ir.assembly import packed, registers_of
from ...ir.dtype import dtype_info, with_lanes
from ...ir.matrix import MatrixInstr, instr_of, native_k
from ..emit import calls
from ..emit.calls import CallHandler
from ..emit.gpu import SHARED_SPACE, align_of, copy_now, element_at, in_words, shuffle_width
from . import remainder

if TYPE_CHECKING:
    from .emitter import NvptxEmitter

ALL_LANES = "-1"
_SHUFFLES = {"shuffle_xor": "bfly", "shuffle_up": "up", "shuffle_down": "down", "shuffle_idx": "idx"}


# ---- work-groups and warps


def barrier(em: NvptxEmitter, e: E.Call) -> str:
    attrs = e.attrs or {}
    if "threads" in attrs:  # of some warps of the work-group
        args = [("i32", str(attrs["id"])), ("i32", str(attrs["threads"]))]
        em.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.count", "void", args)
    elif attrs.get("scope", "shared") == "wave":
        em.intrinsic("llvm.nvvm.bar.warp.sync", "void", [("i32", ALL_LANES)])
    else:
        em.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [("i32", "0")])
    return "0"


def fence(em: NvptxEmitter, e: E.Call) -> str:
    return calls.fence(em, e, {"group": "block", "device": "device"})


def own_lane(em: NvptxEmitter) -> str:
    return em.intrinsic("llvm.nvvm.read.ptx.sreg.laneid", "i32", [], "range(i32 0, 32) ")


def active(em: NvptxEmitter) -> str:
    return em.intrinsic("llvm.nvvm.activemask", "i32", [])


def wave_lane(em: NvptxEmitter, e: E.Call) -> str:
    return em.arithmetic.convert(own_lane(em), "int32", e.dtype)


def ballot(em: NvptxEmitter, e: E.Call) -> str:
    args = [("i32", active(em)), ("i1", em.expr(e.args[0]))]
    return em.arithmetic.convert(em.intrinsic("llvm.nvvm.vote.ballot.sync", "i32", args), "uint32", e.dtype)


def readfirstlane(em: NvptxEmitter, e: E.Call) -> str:
    mask = active(em)
    first = em.intrinsic("llvm.cttz.i32", "i32", [("i32", mask), ("i1", "true")])
    return in_words(em, em.expr(e.args[0]), e.dtype, lambda w: _shuffle(em, "idx", w, first, "31", mask))


def _shuffle(em: NvptxEmitter, how: str, word: str, lane: str, clamp: str, mask: str = ALL_LANES) -> str:
    args = [("i32", mask), ("i32", word), ("i32", lane), ("i32", clamp)]
    return em.intrinsic(f"llvm.nvvm.shfl.sync.{how}.i32", "i32", args)


def shuffle(em: NvptxEmitter, e: E.Call) -> str:
    width = shuffle_width(em, e)
    value = em.expr(e.args[0])
    lane = em.arithmetic.convert(em.expr(e.args[1]), e.args[1].dtype, "int32")
    if e.op == "shuffle_xor" and isinstance(e.args[1], E.IntImm) and not 0 <= e.args[1].value < width:
        raise em.error(f"shuffle_xor with mask {e.args[1].value} over {width} lanes")
    # Bits 8 to 12 hold the lanes that name a segment, bits 0 to 4 its last lane (first for `up`).
    clamp = str((32 - width) << 8 | (0 if e.op == "shuffle_up" else 31))
    return in_words(em, value, e.dtype, lambda w: _shuffle(em, _SHUFFLES[e.op], w, lane, clamp))


# ---- dot products and matrix units


def dot(em: NvptxEmitter, e: E.Call) -> str:
    a, b = (dtype_info(x.dtype) for x in e.args[:2])
    if e.op != "dot4" or not a.lanes == b.lanes == 4 or {a.bits, b.bits} != {8}:
        return calls.dot(em, e)
    name = "llvm.nvvm.idp4a." + ".".join("s" if x.is_signed else "u" for x in (a, b))
    args = [("i32", em.op(f"bitcast <4 x i8> {em.expr(x)} to i32")) for x in e.args[:2]]
    return em.intrinsic(name, "i32", [*args, ("i32", em.expr(e.args[2]))])


def mma(em: NvptxEmitter, e: E.Call) -> str:
    instr = instr_of(e.attrs or {})
    if native_k(instr, em.target) != instr.k:
        raise em.error(
            f"mma.sync has no {instr.name} on {em.target.mcpu}",
            hint="tec.te.intrin.shapes(target) lists what it has",
        )
    a, b, c = (em.expr(x) for x in e.args)
    shape = f"llvm.nvvm.mma.m{instr.m}n{instr.n}k{instr.k}.row.col"
    name = {"float16": ".f32.f32", "bfloat16": ".bf16", "tf32": ".tf32", "int8": ".s8", "uint8": ".u8"}[instr.in_dtype]
    word = "<2 x half>" if instr.in_dtype == "float16" else "i32"
    one = "float" if instr.acc_dtype == "float32" else "i32"
    args = [(word, w) for role, v in (("a", a), ("b", b)) for w in _words(em, v, instr, role, word)]
    args += [(one, x) for x in em.lanes_of(c, e.dtype)]
    out = em.intrinsic(shape + name, f"{{ {', '.join([one] * 4)} }}", args)
    return em.vector_of([em.op(f"extractvalue {{ {', '.join([one] * 4)} }} {out}, {k}") for k in range(4)], e.dtype)


def _words(em: NvptxEmitter, value: str, instr: MatrixInstr, role: str, word: str) -> list[str]:
    """An operand's vector as 32-bit registers."""
    dtype = instr.dtype(role)
    info = dtype_info(dtype)
    n = info.bits * info.lanes // 32
    if info.bits == 32:
        return [em.op(f"bitcast float {x} to i32") for x in em.lanes_of(value, dtype)]
    many = (
        em.op(f"bitcast {em.reg(dtype)} {value} to <{n} x i32>")
        if n > 1
        else em.op(f"bitcast {em.reg(dtype)} {value} to i32")
    )
    words = [em.op(f"extractelement <{n} x i32> {many}, i64 {k}") for k in range(n)] if n > 1 else [many]
    return words if word == "i32" else [em.op(f"bitcast i32 {w} to {word}") for w in words]


def fast_math_unit(em: NvptxEmitter, e: E.Call) -> str:
    """ex2.approx, rcp.approx and rsqrt.approx."""
    name = {
        "exp2_fast": "llvm.nvvm.ex2.approx.ftz.f32", "rcp_fast": "llvm.nvvm.rcp.approx.ftz.f", "rsqrt": "llvm.nvvm.rsqrt.approx.f",
    }[e.op]  # fmt: skip
    out = [em.intrinsic(name, "float", [("float", x)]) for x in em.lanes_of(em.expr(e.args[0]), e.dtype)]
    return em.vector_of(out, e.dtype)


def nan_extremum(em: NvptxEmitter, e: E.Call) -> str:
    """min_nan and max_nan; a number held between another and its negative is noted, for conversions that hold it there themselves."""
    out = calls.nan_extremum(em, e)
    inner, high = e.args
    if e.op == "min_nan" and isinstance(inner, E.Call) and inner.op == "max_nan":
        low = inner.args[1]
        top, bottom = (x.value if isinstance(x, E.Broadcast) else x for x in (high, low))
        if isinstance(top, E.FloatImm) and isinstance(bottom, E.FloatImm) and bottom.value == -top.value:
            em.floats.held_within[out] = em.expr(inner.args[0]), top.value
    return out


def reciprocal_root(em: NvptxEmitter, e: E.Call) -> str:
    """rsqrt.approx of float32, within 2**-22.9 of its value (PTX ISA, "rsqrt"), where sqrt.rn and rcp.rn are some 40 instructions and two branches."""
    return fast_math_unit(em, e) if dtype_info(e.dtype).element == "float32" else calls.rsqrt(em, e)


def division(em: NvptxEmitter, e: E.Call) -> str:
    """div.full, where div.rn is ten instructions and a branch."""
    pairs = zip(*(em.lanes_of(em.expr(x), e.dtype) for x in e.args))
    out = [em.intrinsic("llvm.nvvm.div.full", "float", [("float", a), ("float", b)]) for a, b in pairs]
    return em.vector_of(out, e.dtype)


def ldmatrix(em: NvptxEmitter, e: E.Call) -> str:
    """(element of shared memory, this lane's row): 8x8 tiles of 16-bit elements; attrs num (1, 2, 4) and trans."""
    attrs = e.attrs or {}
    num, info = int(attrs.get("num", 4)), dtype_info(e.dtype)
    if num not in (1, 2, 4) or info.bits * info.lanes != 32 * num:
        raise em.error(
            f"ldmatrix of {num} tiles as {e.dtype}", hint="1, 2 or 4 tiles give 2, 4 or 8 elements of 16 bits"
        )
    pointer, type_ = em.memory.element_pointer(em.memory.load_of(e.args[0], e.op))
    if type_ != f"ptr addrspace({SHARED_SPACE})":
        raise em.error("ldmatrix reads shared memory alone")
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{num}{'.trans' if attrs.get('trans') else ''}.b16.p3"
    result = "i32" if num == 1 else f"{{ {', '.join(['i32'] * num)} }}"
    out = em.intrinsic(name, result, [(type_, pointer)])
    words = [out] if num == 1 else [em.op(f"extractvalue {result} {out}, {k}") for k in range(num)]
    whole = em.vector_of(words, with_lanes("int32", num))
    return em.op(f"bitcast {'i32' if num == 1 else f'<{num} x i32>'} {whole} to {em.reg(e.dtype)}")


# ---- copies in the background


def async_copy(em: NvptxEmitter, e: E.Call) -> str:
    """cp.async where it is aligned to its size, of 4, 8 or 16 bytes; a load and a store else."""
    dst, src = em.memory.load_of(e.args[0], e.op), em.memory.load_of(e.args[1], e.op)
    n = e.args[2] if len(e.args) > 2 else E.IntImm(1)
    info = dtype_info(src.buffer.dtype)
    size = n.value * info.bytes * info.lanes if isinstance(n, E.IntImm) else 0
    (to, to_p), (start, start_p) = element_at(em, dst), element_at(em, src)
    spaces = (to_p.type, start_p.type) == ("ptr addrspace(3)", "ptr addrspace(1)")
    aligned = size in (4, 8, 16) and align_of(em, to_p, dst, size) >= size and align_of(em, start_p, src, size) >= size
    if not (em.target.chip.async_lds and spaces and aligned):
        return copy_now(em, e)
    how = "cg" if size == 16 else "ca"
    if (e.attrs or {}).get("masked"):
        # By a predicate, as the machine takes it: a size of 0 or all is made of predicates, and read back, an instruction for each condition.
        address, ignored = em.op(f"ptrtoint {to_p.type} {to} to i32"), em.op(f"xor i1 {em.expr(e.args[3])}, true")
        text = f"{{ .reg .pred p; mov.pred p, $2; cp.async.{how}.shared.global [$0], [$1], {size}, p; }}"
        operands = f"(i32 {address}, {start_p.type} {start}, i1 {ignored})"
        em.line(f'call void asm sideeffect "{text}", "r,l,b,~{{memory}}"{operands} nounwind')
        return "0"
    em.intrinsic(f"llvm.nvvm.cp.async.{how}.shared.global.{size}", "void", [(to_p.type, to), (start_p.type, start)])
    return "0"


def async_commit(em: NvptxEmitter, e: E.Call) -> str:
    if em.target.chip.async_lds:
        em.intrinsic("llvm.nvvm.cp.async.commit.group", "void", [])
    return "0"


def async_wait(em: NvptxEmitter, e: E.Call) -> str:
    if em.target.chip.async_lds:
        em.intrinsic("llvm.nvvm.cp.async.wait.group", "void", [("i32", str(int((e.attrs or {}).get("n", 0))))])
    return "0"


def bitor(em: NvptxEmitter, e: E.Call) -> str:
    """(x & mask) | bits of 32 bits, both numbers, as the one instruction that it is: ptxas makes two of it, since each has a number of its own."""
    masked, bits = e.args
    if not isinstance(masked, E.Call) or masked.op != "bitand" or not isinstance(bits, E.IntImm) or e.dtype != "uint32":
        return calls.bits(em, e)
    x, mask = masked.args
    if not isinstance(mask, E.IntImm) or bits.value & mask.value:
        return calls.bits(em, e)
    text = f"lop3.b32 $0, $1, {mask.value}, {bits.value}, 0xEA;"
    return em.op(f'call i32 asm "{text}", "=r,r"(i32 {em.expr(x)})')


# PTX's words of atomic operations on global memory, and the types that each has; others go LLVM's way.
_PTX_ATOMICS = {
    "atomic_add": ("add", {"int32": "u32", "uint32": "u32", "int64": "u64", "uint64": "u64", "float32": "f32", "float64": "f64"}),
    "atomic_min": ("min", {"int32": "s32", "uint32": "u32", "int64": "s64", "uint64": "u64"}),
    "atomic_max": ("max", {"int32": "s32", "uint32": "u32", "int64": "s64", "uint64": "u64"}),
    **{f"atomic_{n}": (n, {t: f"b{t[-2:]}" for t in ("int32", "uint32", "int64", "uint64")}) for n in ("and", "or", "xor")},
    "atomic_exch": ("exch", {t: f"b{t[-2:]}" for t in ("int32", "uint32", "int64", "uint64", "float32", "float64")}),
    "atomic_cas": ("cas", {t: f"b{t[-2:]}" for t in ("int32", "uint32", "int64", "uint64", "int16", "uint16")}),
}  # fmt: skip
# Of additions: the type, and from which chip on.
HALVES = {"float16": ("noftz.f16", 70), "bfloat16": ("noftz.bf16", 90)}
_ORDERS = {"monotonic": "relaxed", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
CONSTRAINTS = {16: "h", 32: "r", 64: "l"}  # the letter of a register of so many bits in a statement of assembly
# Of those that hold floats: LLVM's type, the letter.
_OF_FLOATS = {"float32": ("float", "f"), "float64": ("double", "d")}


def register_of(em: NvptxEmitter, dtype: str, as_float: bool = True) -> tuple[str, str]:
    """LLVM's type and the letter of the register that holds a number in a statement of assembly. as_float: float32 and float64 in registers of their own."""
    bits = em.type_of(dtype).info.bits
    return (_OF_FLOATS.get(dtype) if as_float else None) or (f"i{bits}", CONSTRAINTS[bits])


def in_register(em: NvptxEmitter, value: str, dtype: str, held: str) -> str:
    """A number as the type `held` of its register."""
    own = em.reg(dtype)
    return value if own == held else em.op(f"bitcast {own} {value} to {held}")


def out_of_register(em: NvptxEmitter, value: str, held: str, dtype: str) -> str:
    """A number from the type `held` of its register."""
    own = em.reg(dtype)
    return value if own == held else em.op(f"bitcast {held} {value} to {own}")


def atomic(em: NvptxEmitter, e: E.Call) -> str:
    """An atomic operation of global memory with the order that its author asks for: LLVM's own instructions have none on additions of floats."""
    load = em.memory.load_of(e.args[0], e.op)
    dtype, order = load.buffer.dtype, (e.attrs or {}).get("order")
    word, types = _PTX_ATOMICS[e.op]
    kind = types.get(dtype)
    if e.op == "atomic_add" and dtype in HALVES and em.sm >= HALVES[dtype][1]:
        kind = HALVES[dtype][0]
    if kind is None or order is None or load.buffer.scope != "global" or em.sm < _FIRST_ORDERED:
        return calls.atomic(em, e)
    pointer, type_ = em.memory.element_pointer(load)
    held, letter = register_of(em, dtype, as_float=kind in ("f32", "f64"))
    values = [em.expr(a) for a in e.args[1:]]
    values = [in_register(em, v, dtype, held) for v in values]
    operands = ", ".join(f"${k + 2}" for k in range(len(values)))
    text = f"atom.global.gpu.{_ORDERS[order]}.{word}.{kind} $0, [$1], {operands};"
    given = ", ".join([f"{type_} {pointer}", *[f"{held} {v}" for v in values]])
    clauses = ",".join([f"={letter}", "l", *[letter] * len(values), "~{memory}"])
    made = em.op(f'call {held} asm sideeffect "{text}", "{clauses}"({given}) nounwind')
    return out_of_register(em, made, held, dtype)


def atomic_run(em: NvptxEmitter, e: E.Call) -> str:
    """One reduction of neighbours (PTX ISA, "red"); of two 16-bit floats there is no vector shorter than two."""
    load = em.memory.load_of(e.args[0], e.op)
    dtype, n = load.buffer.dtype, len(e.args) - 1
    kind = "f32" if dtype == "float32" else HALVES[dtype][0]
    held, letter = register_of(em, dtype)
    pointer, type_ = em.memory.element_pointer(load)
    values = [em.expr(a) for a in e.args[1:]]
    values = [in_register(em, v, dtype, held) for v in values]
    operands = ", ".join(f"${k + 1}" for k in range(n))
    word, _, half = kind.rpartition(".")
    text = f"red.relaxed.gpu.global.add{'.' + word if word else ''}.v{n}.{half} [$0], {{{operands}}};"
    given = ", ".join([f"{type_} {pointer}", *[f"{held} {v}" for v in values]])
    em.line(f'call void asm sideeffect "{text}", "{",".join(["l", *[letter] * n, "~{memory}"])}"({given}) nounwind')
    return "0"


def assembly(em: NvptxEmitter, e: E.Call) -> str:
    """assembly, assembly_once: one statement for each element, which stands in all places of its pack; statements are elementwise, so that any place has its result. Equal
    statements that do nothing else are one to LLVM."""
    attrs = e.attrs or {}
    pack, outs, which = int(attrs["pack"]), list(attrs["outs"]), int(attrs["which"])
    kinds, results, operands = registers_of(str(attrs["constraints"]))

    def held(dtype: str, letter: str) -> tuple[str, int, int]:
        """The type of a register of elements, how many it has, and how many registers there are."""
        bits = dtype_info(dtype).bits
        each, count = packed(bits, pack)
        size = bits * each
        is_float = dtype_info(dtype).is_float and each == 1 and size >= 32
        as_float = letter.lstrip("=&") in ("f", "d") or (is_float and letter.lstrip("=&") not in ("r", "l", "h"))
        return ({32: "float", 64: "double"}[size] if as_float and size >= 32 else f"i{size}"), each, count

    made, at, place = [], 0, 0
    for k, dtype in enumerate(outs):
        place = at if k == which else place
        count = held(dtype, results[at])[2]
        made += [held(dtype, letter)[0] for letter in results[at : at + count]]
        at += count
    given, at = [], 0
    for a in e.args:
        value, bits = em.expr(a), dtype_info(a.dtype).bits
        count = held(a.dtype, operands[at])[2]
        for letter in operands[at : at + count]:
            type_, each, _ = held(a.dtype, letter)
            given.append(f"{type_} {_spread(em, value, em.reg(a.dtype), bits, each, type_)}")
        at += count
    text = "".join(c if c.isprintable() and c not in '"\\' else f"\\{ord(c):02X}" for c in str(attrs["text"]))
    result = made[0] if len(made) == 1 else "{" + ", ".join(made) + "}"
    how, after = ("sideeffect ", "") if e.op == "assembly_once" else ("", " memory(none)")
    got = em.op(f'call {result} asm {how}"{text}", "{",".join(kinds)}"({", ".join(given)}) nounwind{after}')
    if len(made) > 1:
        got = em.op(f"extractvalue {result} {got}, {place}")
    bits, own = dtype_info(e.dtype).bits, em.reg(e.dtype)
    if made[place] == own:
        return got
    size = {"float": 32, "double": 64}.get(made[place]) or int(made[place][1:])
    whole = got if made[place].startswith("i") else em.op(f"bitcast {made[place]} {got} to i{size}")
    low = whole if size == bits else em.op(f"trunc i{size} {whole} to i{bits}")
    return low if own == f"i{bits}" else em.op(f"bitcast i{bits} {low} to {own}")


def _spread(em: NvptxEmitter, value: str, own: str, bits: int, each: int, type_: str) -> str:
    """A number in all places of a register."""
    if own == type_:
        return value
    size = bits * each
    whole = value if own == f"i{bits}" else em.op(f"bitcast {own} {value} to i{bits}")
    if each > 1:
        wide = em.op(f"zext i{bits} {whole} to i{size}")
        whole = em.op(f"mul i{size} {wide}, {sum(1 << bits * k for k in range(each))}")
    return whole if type_.startswith("i") else em.op(f"bitcast i{size} {whole} to {type_}")


_FIRST_ORDERED = 70  # the first chip whose atomic operations take an order (PTX ISA, "atom")

CALLS: dict[str, CallHandler] = {
    **calls.CALLS, **dict.fromkeys(_PTX_ATOMICS, atomic), "atomic_add_run": atomic_run,
    "barrier": barrier, "fence": fence, "bitor": bitor, "wave_lane": wave_lane, "ballot": ballot, "readfirstlane": readfirstlane,
    **dict.fromkeys(("assembly", "assembly_once"), assembly),
    **dict.fromkeys(_SHUFFLES, shuffle), **dict.fromkeys(("dot4", "dot2"), dot), "mma": mma, "ldmatrix": ldmatrix, "exp2_fast": fast_math_unit, "rcp_fast": fast_math_unit, "div_fast": division, "rsqrt": reciprocal_root,
    **dict.fromkeys(("min_nan", "max_nan"), nan_extremum),
    "fmod": remainder.fmod,
    "async_copy": async_copy, "async_commit": async_commit, "async_wait": async_wait,
}  # fmt: skip
