"""Instructions of whole vector registers of CPUs: dot products (vpdpbusd, vpmaddwd, vdpbf16ps, sdot, udot, bfdot) and near reciprocals (vrcp14ps).

A core's instruction takes a whole register; longer vectors are cut into registers, what a core has no instruction for is done in
plain arithmetic. `vdpbf16ps` flushes denormals and rounds each product's sum to nearest even, as its manual page says; bytes are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import expr as E
from ...ir.dtype import dtype_info, with_lanes
from ..emit import calls

if TYPE_CHECKING:
    from .emitter import CpuEmitter

# Which instruction: (x86?, first operand, second operand) -> intrinsic without its width.
_X86 = {
    ("uint8", "int8"): "llvm.x86.avx512.vpdpbusd", ("int16", "int16"): "", ("bfloat16", "bfloat16"): "llvm.x86.avx512bf16.dpbf16ps",
}  # fmt: skip
# vpmaddwd, of registers of so many sums: it multiplies pairs of 16 bits and adds the two products, and an addition of its own adds them to the sums.
_X86_PAIRS = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
_ARM = {
    ("int8", "int8"): "llvm.aarch64.neon.sdot.v4i32.v16i8",
    ("uint8", "uint8"): "llvm.aarch64.neon.udot.v4i32.v16i8",
    ("bfloat16", "bfloat16"): "llvm.aarch64.neon.bfdot.v4f32.v8bf16",
}


def dot(em: CpuEmitter, e: E.Call) -> str:
    a, b, c = (dtype_info(x.dtype) for x in e.args)
    name = (_X86 if em.is_x86 else _ARM).get((a.element, b.element))
    has = a.element in em.target.core.dots or (a.element == "uint8" and b.element == "uint8" and not em.is_x86)
    lanes = min(c.lanes, em.wide // 4)
    if name is None or not has or lanes < 4 or c.lanes % lanes or lanes & (lanes - 1):
        return calls.dot(em, e)
    if em.is_x86:
        name = f"{name}.{32 * lanes}" if name else _X86_PAIRS[lanes]
    group = a.lanes // c.lanes
    values = [em.expr(x) for x in e.args]
    # Registers of the result.
    parts = [_register(em, name, values, e, lanes, group, k) for k in range(0, c.lanes, lanes)]
    return joined(em, parts, with_lanes(e.dtype, lanes))


def narrow(em: CpuEmitter, e: E.Call) -> str:
    """`dot4_narrow`: the core's dot product, or pairs of bytes to 16 bits and those to 32 (vpmaddubsw, vpmaddwd), which multiplies unsigned bytes by signed
    ones: of two signed operands the first one's signs go to the second."""
    a, c = dtype_info(e.args[0].dtype), dtype_info(e.dtype)
    lanes = 8
    if not em.is_x86 or em.wide != 32 or a.element in em.target.core.dots or c.lanes % lanes:
        return dot(em, e)
    values = [em.expr(x) for x in e.args]
    words, halves, bytes_ = f"<{lanes} x i32>", f"<{2 * lanes} x i16>", f"<{4 * lanes} x i8>"
    parts = []
    for first in range(0, c.lanes, lanes):
        x, y, total = (_part(em, v, arg.dtype, first * n, lanes * n) for v, arg, n in zip(values, e.args, (4, 4, 1)))
        if a.element == "int8":
            y = em.intrinsic("llvm.x86.avx2.psign.b", bytes_, [(bytes_, y), (bytes_, x)])
            x = em.intrinsic(f"llvm.abs.v{4 * lanes}i8", bytes_, [(bytes_, x), ("i1", "false")])
        pairs = em.intrinsic("llvm.x86.avx2.pmadd.ub.sw", halves, [(bytes_, x), (bytes_, y)])
        ones = ", ".join(["i16 1"] * (2 * lanes))
        sums = em.intrinsic("llvm.x86.avx2.pmadd.wd", words, [(halves, pairs), (halves, f"<{ones}>")])
        parts.append(em.op(f"add {words} {total}, {sums}"))
    return joined(em, parts, with_lanes(e.dtype, lanes))


def reciprocal(em: CpuEmitter, e: E.Call) -> str:
    """`rcp_fast`: vrcp14ps of registers of 64 bytes, also for fewer lanes, since AVX-512 alone has no shorter form."""
    value, n, r = em.expr(e.args[0]), dtype_info(e.dtype).lanes, "<16 x float>"
    if n == 1:
        value, dtype = em.op(f"insertelement {r} poison, float {value}, i64 0"), "float32x16"
    elif n <= 16 or (n & (n - 1)) == 0:
        dtype = e.dtype
    else:
        return em.op(f"fdiv {em.reg(e.dtype)} {em.float_const(1.0, e.dtype)}, {value}")
    rest = [(r, "zeroinitializer"), ("i16", "-1")]  # what masked lanes get, and the mask
    parts = [
        em.intrinsic("llvm.x86.avx512.rcp14.ps.512", r, [(r, _part(em, value, dtype, k, 16)), *rest])
        for k in range(0, n, 16)
    ]
    if n == 1:
        return em.op(f"extractelement {r} {parts[0]}, i64 0")
    return joined(em, parts, "float32x16") if n >= 16 else _part(em, parts[0], "float32x16", 0, n)


def _register(em: CpuEmitter, name: str, values: list[str], e: E.Call, lanes: int, group: int, first: int) -> str:
    """One register of the result, from lane `first` on."""
    x, y, c = (_part(em, v, arg.dtype, first * n, lanes * n) for v, arg, n in zip(values, e.args, (group, group, 1)))
    element = dtype_info(e.args[0].dtype).element
    kind = f"<{lanes * group} x {'bfloat' if element == 'bfloat16' else 'i8' if group == 4 else 'i16'}>"
    if element == "bfloat16":
        x, y = (em.op(f"bitcast <{lanes * group} x i16> {v} to {kind}") for v in (x, y))
    r = em.reg(with_lanes(e.dtype, lanes))
    if element == "int16":
        return em.op(f"add {r} {c}, {em.intrinsic(name, r, [(kind, x), (kind, y)])}")
    return em.intrinsic(name, r, [(r, c), (kind, x), (kind, y)])


def _part(em: CpuEmitter, value: str, dtype: str, first: int, count: int) -> str:
    n = dtype_info(dtype).lanes
    if n == count:
        return value
    picks = ", ".join(f"i32 {first + k}" if first + k < n else "i32 poison" for k in range(count))
    return em.op(f"shufflevector {em.reg(dtype)} {value}, {em.reg(dtype)} poison, <{count} x i32> <{picks}>")


def joined(em: CpuEmitter, parts: list[str], dtype: str) -> str:
    """Registers of `dtype` one behind the other."""
    n = dtype_info(dtype).lanes
    lanes = n * len(parts)
    while len(parts) > 1:
        parts += ["poison"] * (len(parts) % 2)
        picks = ", ".join(f"i32 {k}" for k in range(2 * n))
        r = em.reg(with_lanes(dtype, n))
        parts = [
            em.op(f"shufflevector {r} {x}, {r} {y}, <{2 * n} x i32> <{picks}>") for x, y in zip(parts[::2], parts[1::2])
        ]
        n *= 2
    return _part(em, parts[0], with_lanes(dtype, n), 0, lanes)
