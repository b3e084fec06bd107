"""The support library: atomic operations on global memory and LDS, lane after lane, as LLVM IR text."""

from __future__ import annotations

from .lane_loop import over_lanes
from .memory import resolve, splat

ATOMICS = {
    "add": "add", "sub": "sub", "smin": "min", "smax": "max", "umin": "umin", "umax": "umax", "and": "and", "or": "or",
    "xor": "xor", "swap": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap",
}  # fmt: skip
# What few kernels ask for, a part of its own: the new value %new from the old %old, the data %d and the second data %c (of i<bits>).
RARE_ATOMICS = {
    "usub_sat": "  %lt = icmp ult {t} %old, %d\n  %less = sub {t} %old, %d\n  %new = select i1 %lt, {t} 0, {t} %less\n",
    "usub_cond": "  %lt = icmp ult {t} %old, %d\n  %less = sub {t} %old, %d\n  %new = select i1 %lt, {t} %old, {t} %less\n",
    "rsub": "  %new = sub {t} %d, %old\n",
    "mskor": "  %nd = xor {t} %d, -1\n  %kept = and {t} %old, %nd\n  %new = or {t} %kept, %c\n",
    "wrap": "  %ge = icmp uge {t} %old, %d\n  %less = sub {t} %old, %d\n  %more = add {t} %old, %c\n  %new = select i1 %ge, {t} %less, {t} %more\n",
    "fcmpswap": "  %fold = bitcast {t} %old to {f}\n  %fc = bitcast {t} %c to {f}\n  %same = fcmp oeq {f} %fold, %fc\n  %new = select i1 %same, {t} %d, {t} %old\n",
}
TWO_DATA = ("cmpswap", "fcmpswap", "mskor", "wrap")
FLOAT_ATOMICS = {"fadd": "fadd", "fmin": "fmin", "fmax": "fmax"}


def _bf16_halves(name: str, value: str) -> str:
    """The two bf16 of a dword as floats %<name>l and %<name>h."""
    return f"""  %{name}s = shl i32 {value}, 16
  %{name}t = and i32 {value}, -65536
  %{name}l = bitcast i32 %{name}s to float
  %{name}h = bitcast i32 %{name}t to float
"""


def _round_bf16(name: str, value: str) -> str:
    """%<name>: the float's bf16, to nearest even, in the upper half of an i32; a NaN stays one."""
    return f"""  %{name}b = bitcast float {value} to i32
  %{name}c = lshr i32 %{name}b, 16
  %{name}d = and i32 %{name}c, 1
  %{name}e = add i32 %{name}d, 32767
  %{name}f = add i32 %{name}b, %{name}e
  %{name}q = or i32 %{name}b, 4194304
  %{name}n = fcmp uno float {value}, {value}
  %{name}g = select i1 %{name}n, i32 %{name}q, i32 %{name}f
  %{name} = and i32 %{name}g, -65536
"""


# The host has no bf16 addition: a loop of compare and swap around one in f32.
_PK_ADD_BF16 = f"""  %bf0 = load atomic i32, ptr %p monotonic, align 4
{_bf16_halves("bd", "%d")}  br label %bfloop
bfloop:
  %old = phi i32 [ %bf0, %at_lane ], [ %bfnew, %bfloop ]
{_bf16_halves("bo", "%old")}  %bfl = fadd float %bol, %bdl
  %bfh = fadd float %boh, %bdh
{_round_bf16("bfx", "%bfl")}{_round_bf16("bfy", "%bfh")}  %bfz = lshr i32 %bfx, 16
  %bfw = or i32 %bfz, %bfy
  %bfc = cmpxchg ptr %p, i32 %old, i32 %bfw monotonic monotonic
  %bfnew = extractvalue {{i32, i1}} %bfc, 0
  %bfok = extractvalue {{i32, i1}} %bfc, 1
  br i1 %bfok, label %bfdone, label %bfloop
bfdone:
"""


def _rare(op: str, bits: int) -> str:
    """A loop of compare and swap around the new value."""
    t = f"i{bits}"
    return f"""  %rare0 = load atomic {t}, ptr %p monotonic, align {bits // 8}
  br label %rareloop
rareloop:
  %old = phi {t} [ %rare0, %at_lane ], [ %raresaw, %rareloop ]
{RARE_ATOMICS[op].format(t=t, f="float" if bits == 32 else "double")}  %rarex = cmpxchg ptr %p, {t} %old, {t} %new monotonic monotonic
  %raresaw = extractvalue {{{t}, i1}} %rarex, 0
  %rareok = extractvalue {{{t}, i1}} %rarex, 1
  br i1 %rareok, label %bfdone, label %rareloop
bfdone:
"""


def atomic_function(w: int, space: str, op: str, bits: int) -> str:
    """Lane by lane in order; `out` takes the old values and brings the data (and the compare value after it)."""
    at = "i64" if space == "global" else "i32"
    nbytes = bits // 8
    is_float = op in FLOAT_ATOMICS
    packed = op.startswith("pk_")
    ty = f"i{bits}"
    fty = {32: "float", 64: "double"}[bits]
    if packed:
        fty = "<2 x half>"
    n = bits // 32
    text = (
        f"\ndefine i32 @tec_atomic_{space}_{op}_{bits}_{w}(ptr %out, <{w} x {at}> %addr, i{w} %m, ptr %ctx, i32 %site) {{\n"
        f"entry:\n  %abuf = alloca <{w} x i64>, align 64\n{resolve(w, space, nbytes, nbytes, strict=True)}"
    )
    if space == "global":
        text += f"  store <{w} x i64> %addr, ptr %abuf\n"
    else:
        text += f"""  %az = zext <{w} x i32> %addr to <{w} x i64>
  %bi = ptrtoint ptr %base to i64
{splat("bv", w, "i64", "%bi")}  %aa = add <{w} x i64> %az, %bv
  store <{w} x i64> %aa, ptr %abuf
"""
    last = "bfdone" if op == "pk_add_bf16" or op in RARE_ATOMICS else "at_lane"
    text += over_lanes(w, "%m", "go", f"[ %at_left1, %{last} ]", "done", name="at_")
    text += """  %pp = getelementptr i64, ptr %abuf, i64 %at_li
  %pi = load i64, ptr %pp
  %p = inttoptr i64 %pi to ptr
  %dlo_p = getelementptr i32, ptr %out, i64 %at_li
  %dlo = load i32, ptr %dlo_p
"""

    def read64(name: str, first: int) -> str:
        """A value of `bits` bits from dwords first, first+1 of %out."""
        t = f"  %{name}_p0 = getelementptr i8, ptr %dlo_p, i64 {4 * w * first}\n  %{name}_0 = load i32, ptr %{name}_p0\n"
        if n == 1:
            return t + f"  %{name} = add i32 %{name}_0, 0\n"
        return (
            t
            + f"""  %{name}_p1 = getelementptr i8, ptr %dlo_p, i64 {4 * w * (first + 1)}
  %{name}_1 = load i32, ptr %{name}_p1
  %{name}_z0 = zext i32 %{name}_0 to i64
  %{name}_z1 = zext i32 %{name}_1 to i64
  %{name}_s = shl i64 %{name}_z1, 32
  %{name} = or i64 %{name}_z0, %{name}_s
"""
        )

    text += read64("d", 0)
    if op in TWO_DATA:
        text += read64("c", n)
    if op in RARE_ATOMICS:
        text += _rare(op, bits)
    elif op == "cmpswap":
        text += (
            f"  %xc = cmpxchg ptr %p, {ty} %c, {ty} %d monotonic monotonic\n  %old = extractvalue {{{ty}, i1}} %xc, 0\n"
        )
    elif op == "pk_add_bf16":
        text += _PK_ADD_BF16
    elif is_float or packed:
        verb = "fadd" if packed else FLOAT_ATOMICS[op]
        text += (
            f"  %fd = bitcast {ty} %d to {fty}\n  %fo = atomicrmw {verb} ptr %p, {fty} %fd monotonic, align {nbytes}\n"
            f"  %old = bitcast {fty} %fo to {ty}\n"
        )
    else:
        text += f"  %old = atomicrmw {ATOMICS[op]} ptr %p, {ty} %d monotonic\n"
    if n == 1:
        text += "  store i32 %old, ptr %dlo_p\n"
    else:
        text += f"""  %o0 = trunc i64 %old to i32
  %os = lshr i64 %old, 32
  %o1 = trunc i64 %os to i32
  store i32 %o0, ptr %dlo_p
  %dhi_p = getelementptr i8, ptr %dlo_p, i64 {4 * w}
  store i32 %o1, ptr %dhi_p
"""
    return text + "  br label %at_next\ndone:\n  ret i32 0\n}\n"
