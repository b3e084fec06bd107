"""Instructions of whole vector registers of CPUs: dot products (vpdpbusd, vdpbf16ps, sdot, udot, bfdot) and near reciprocals (vrcp14ps).

A core's instruction takes a whole register; longer vectors are cut into registers, what a core has no instruction for is done in
plain arithmetic. `vdpbf16ps` flushes denormals and rounds each product's sum to nearest even, as its manual page says; bytes are exact.
"""

from __future__ import annotations

from ...ir import expr as E
from ...ir.dtype import dtype_info, with_lanes
from ..emit.emitter import Emitter

# Which instruction: (x86?, first operand, second operand) -> intrinsic without its width.
_X86 = {("uint8", "int8"): "llvm.x86.avx512.vpdpbusd", ("bfloat16", "bfloat16"): "llvm.x86.avx512bf16.dpbf16ps"}
_ARM = {
    ("int8", "int8"): "llvm.aarch64.neon.sdot.v4i32.v16i8",
    ("uint8", "uint8"): "llvm.aarch64.neon.udot.v4i32.v16i8",
    ("bfloat16", "bfloat16"): "llvm.aarch64.neon.bfdot.v4f32.v8bf16",
}


class CpuDots(Emitter):
    """`dot` for CPUs; `wide` is the width of a register in bytes, `is_x86` the family."""

    wide: int
    is_x86: bool

    def dot(self, e: E.Call) -> str:
        a, b, c = (dtype_info(x.dtype) for x in e.args)
        name = (_X86 if self.is_x86 else _ARM).get((a.element, b.element))
        has = a.element in self.target.core.dots or (a.element == "uint8" and b.element == "uint8" and not self.is_x86)
        lanes = min(c.lanes, self.wide // 4)
        if name is None or not has or lanes < 4 or c.lanes % lanes or lanes & (lanes - 1):
            return super().dot(e)
        if self.is_x86:
            name += f".{32 * lanes}"
        group = a.lanes // c.lanes
        values = [self.expr(x) for x in e.args]
        parts = [
            self._register(name, values, e, lanes, group, k) for k in range(0, c.lanes, lanes)
        ]  # registers of the result
        return self._joined(parts, with_lanes(e.dtype, lanes), c.lanes)

    def reciprocal(self, e: E.Call) -> str:
        """`rcp_fast`: vrcp14ps of registers of 64 bytes, also for fewer lanes, since AVX-512 alone has no shorter form."""
        value, n, r = self.expr(e.args[0]), dtype_info(e.dtype).lanes, "<16 x float>"
        if n == 1:
            value, dtype = self.op(f"insertelement {r} poison, float {value}, i64 0"), "float32x16"
        elif n <= 16 or (n & (n - 1)) == 0:
            dtype = e.dtype
        else:
            return self.op(f"fdiv {self.reg(e.dtype)} {self.float_const(1.0, e.dtype)}, {value}")
        rest = [(r, "zeroinitializer"), ("i16", "-1")]  # what masked lanes get, and the mask
        parts = [
            self.intrinsic("llvm.x86.avx512.rcp14.ps.512", r, [(r, self._part(value, dtype, k, 16)), *rest])
            for k in range(0, n, 16)
        ]
        if n == 1:
            return self.op(f"extractelement {r} {parts[0]}, i64 0")
        return self._joined(parts, "float32x16", n) if n >= 16 else self._part(parts[0], "float32x16", 0, n)

    def _register(self, name: str, values: list[str], e: E.Call, lanes: int, group: int, first: int) -> str:
        """One register of the result, from lane `first` on."""
        x, y, c = (
            self._part(v, arg.dtype, first * n, lanes * n) for v, arg, n in zip(values, e.args, (group, group, 1))
        )
        kind = f"<{lanes * group} x {'bfloat' if group == 2 else 'i8'}>"
        if group == 2:
            x, y = (self.op(f"bitcast <{lanes * group} x i16> {v} to {kind}") for v in (x, y))
        r = self.reg(with_lanes(e.dtype, lanes))
        return self.intrinsic(name, r, [(r, c), (kind, x), (kind, y)])

    def _part(self, value: str, dtype: str, first: int, count: int) -> str:
        n = dtype_info(dtype).lanes
        if n == count:
            return value
        picks = ", ".join(f"i32 {first + k}" if first + k < n else "i32 poison" for k in range(count))
        return self.op(f"shufflevector {self.reg(dtype)} {value}, {self.reg(dtype)} poison, <{count} x i32> <{picks}>")

    def _joined(self, parts: list[str], dtype: str, lanes: int) -> str:
        """Registers of `dtype` one behind the other."""
        n = dtype_info(dtype).lanes
        while len(parts) > 1:
            picks = ", ".join(f"i32 {k}" for k in range(2 * n))
            r = self.reg(with_lanes(dtype, n))
            parts = [
                self.op(f"shufflevector {r} {x}, {r} {y}, <{2 * n} x i32> <{picks}>")
                for x, y in zip(parts[::2], parts[1::2])
            ]
            n *= 2
        return parts[0]
