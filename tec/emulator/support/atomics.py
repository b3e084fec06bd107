"""The support library: atomic operations on global memory and LDS, lane after lane, as LLVM IR text."""

from __future__ import annotations

from .lane_loop import over_lanes
from .memory import resolve
from .template import ir

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
    return ir("atomics.bf16_halves", name=name, value=value)


def _round_bf16(name: str, value: str) -> str:
    """%<name>: the float's bf16, to nearest even, in the upper half of an i32; a NaN stays one."""
    return ir("atomics.round_bf16", name=name, value=value)


def _rare(op: str, bits: int) -> str:
    """A loop of compare and swap around the new value."""
    t = f"i{bits}"
    return ir(
        "atomics.rare", t=t, align=bits // 8, body=RARE_ATOMICS[op].format(t=t, f="float" if bits == 32 else "double")
    )


def _checked_bytes(space: str, op: str, bits: int) -> int:
    """Bytes of an access that lie in an allocation. Compilers exchange the word around a number of 2 bytes: it is aligned and begins in an allocation, so no other one
    has a part of it, and the chip has its memory."""
    return 1 if (space, op, bits) == ("global", "cmpswap", 32) else bits // 8


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
        f"entry:\n  %abuf = alloca <{w} x i64>, align 64\n{resolve(w, space, _checked_bytes(space, op, bits), nbytes, strict=True)}"
    )
    if space == "global":
        text += f"  store <{w} x i64> %addr, ptr %abuf\n"
    else:
        text += ir("atomics.atomic", w=w)
    last = "bfdone" if op == "pk_add_bf16" or op in RARE_ATOMICS else "at_lane"
    text += over_lanes(w, "%m", "go", f"[ %at_left1, %{last} ]", "done", name="at_")
    text += ir("atomics.atomic_2")

    def read64(name: str, first: int) -> str:
        """A value of `bits` bits from dwords first, first+1 of %out."""
        t = f"  %{name}_p0 = getelementptr i8, ptr %dlo_p, i64 {4 * w * first}\n  %{name}_0 = load i32, ptr %{name}_p0\n"
        if n == 1:
            return t + f"  %{name} = add i32 %{name}_0, 0\n"
        return t + ir("atomics.read64", name=name, second_at=4 * w * (first + 1))

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
        text += ir(
            "atomics.pk_add_bf16",
            halves_bd=_bf16_halves("bd", "%d"),
            halves_bo=_bf16_halves("bo", "%old"),
            round_bfx=_round_bf16("bfx", "%bfl"),
            round_bfy=_round_bf16("bfy", "%bfh"),
        )
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
        text += ir("atomics.atomic_3", row_bytes=4 * w)
    return text + "  br label %at_next\ndone:\n  ret i32 0\n}\n"
