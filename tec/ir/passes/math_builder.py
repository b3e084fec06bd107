"""Writing floating-point algorithms as expressions: one format, scalars or vectors, shared values bound by Let.

A `MathBuilder` holds the format (float32 or float64, any number of lanes), the coefficient tables for it and the lets
made so far; `finish` wraps a result in them. Everything is branch-free, so that it vectorizes; `M.fma` is a fused
multiply-add on every target (error-free transformations rely on it), `M.mad` one where the target has it in hardware.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...target import Target
from .. import expr as E
from ..dtype import dtype_info, with_lanes
from .math_tables import F32, F64


def has_fma(target: Target) -> bool:
    """Whether a fused multiply-add is one instruction."""
    if target.is_gpu or target.vector_bytes >= 32:
        return True
    text = f"{target.mtriple} {target.mattr} {target.mcpu}"
    return any(word in text for word in ("aarch64", "arm64", "+fma", "neon"))


def has_reciprocal(target: Target) -> bool:
    """Whether `rcp_fast` is one instruction: GPUs, and AVX-512's vrcp14ps (nothing else has vectors of 64 bytes). AVX2's and
    NEON's have 12 and 8 bits, which one step does not make a float."""
    return target.is_gpu or target.vector_bytes == 64


class MathBuilder:
    """Builds expressions of one float format. `bits` of significand, `bias` of the exponent."""

    def __init__(self, dtype: str, target: Target):
        info = dtype_info(dtype)
        self.dtype = dtype
        self.lanes = info.lanes
        self.is_f32 = info.bits == 32
        self.tables = F32 if self.is_f32 else F64
        self.mantissa = 23 if self.is_f32 else 52
        self.bias = 127 if self.is_f32 else 1023
        self.int_dtype = with_lanes("int32" if self.is_f32 else "int64", self.lanes)
        self.target = target
        self.fused = has_fma(target)
        self.near = self.is_f32 and has_reciprocal(target)
        self.has_exp2 = self.is_f32 and target.is_gpu
        self.has_ldexp = target.kind == "rocm"
        self.scalar_branches = target.is_gpu  # a branch around rare work pays where code is scalar
        self.lets: list[tuple[E.Var, E.Expr]] = []

    def fresh(self) -> MathBuilder:
        """A builder of the same format without lets: for one side of a branch."""
        return MathBuilder(self.dtype, self.target)

    # ---- values

    def table(self, name: str) -> tuple[float, ...]:
        return self.tables[name]

    def const(self, name: str, k: int = 0) -> E.Expr:
        return self.f(self.tables[name][k])

    def _wide(self, e: E.Expr) -> E.Expr:
        return e if self.lanes == 1 else E.Broadcast(e, self.lanes)

    def f(self, value: float) -> E.Expr:
        return self._wide(E.FloatImm(value, "float32" if self.is_f32 else "float64"))

    def i(self, value: int, dtype: str | None = None) -> E.Expr:
        return self._wide(E.IntImm(value, dtype or ("int32" if self.is_f32 else "int64")))

    def let(self, value: E.Expr, name: str = "t") -> E.Expr:
        """`value`, to be used more than once."""
        if isinstance(value, (E.Var, E.FloatImm, E.IntImm)):
            return value
        var = E.Var(name, value.dtype)
        self.lets.append((var, value))
        return var

    def finish(self, result: E.Expr) -> E.Expr:
        for var, value in reversed(self.lets):
            result = E.Let(var, value, result)
        return result

    # ---- arithmetic

    def add(self, a: E.Expr, b: E.Expr) -> E.Expr:
        return E.Add(a, b)

    def sub(self, a: E.Expr, b: E.Expr) -> E.Expr:
        return E.Sub(a, b)

    def mul(self, a: E.Expr, b: E.Expr) -> E.Expr:
        return E.Mul(a, b)

    def div(self, a: E.Expr, b: E.Expr) -> E.Expr:
        return E.Div(a, b)

    def inverse(self, a: E.Expr) -> E.Expr:
        """1/a within 2**-14, for steps that take the error back: a division costs as much as ten multiplications."""
        return self.call("rcp_fast", a) if self.near else self.div(self.f(1.0), a)

    def neg(self, a: E.Expr) -> E.Expr:
        return E.Sub(self.f(-0.0), a)

    def call(self, op: str, *args: E.Expr, dtype: str | None = None) -> E.Expr:
        return E.Call(op, args, dtype or args[0].dtype)

    def fma(self, a: E.Expr, b: E.Expr, c: E.Expr) -> E.Expr:
        """a*b + c with one rounding, on every target."""
        return self.call("fma", a, b, c)

    def mad(self, a: E.Expr, b: E.Expr, c: E.Expr) -> E.Expr:
        """a*b + c, fused where that is fast."""
        return self.fma(a, b, c) if self.fused else E.Add(E.Mul(a, b), c)

    def poly(self, coefficients: Sequence[float], x: E.Expr) -> E.Expr:
        """Horner's scheme, lowest power first."""
        result = self.f(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = self.mad(result, x, self.f(c))
        return result

    def abs(self, a: E.Expr) -> E.Expr:
        return self.call("abs", a)

    def sqrt(self, a: E.Expr) -> E.Expr:
        return self.call("sqrt", a)

    def copysign(self, a: E.Expr, sign: E.Expr) -> E.Expr:
        return self.call("copysign", a, sign)

    def nearest(self, a: E.Expr) -> E.Expr:
        return self.call("nearbyint", a)

    def clamp(self, x: E.Expr, lo: float, hi: float) -> E.Expr:
        """`x` kept within [lo, hi]; NaN stays NaN."""
        x = self.let(E.Select(E.GT(x, self.f(hi)), self.f(hi), x))
        return self.let(E.Select(E.LT(x, self.f(lo)), self.f(lo), x))

    def select(self, cond: E.Expr, a: E.Expr, b: E.Expr) -> E.Expr:
        return E.Select(cond, a, b)

    def two_sum(self, a: E.Expr, b: E.Expr) -> tuple[E.Expr, E.Expr]:
        """The sum and its rounding error, for |a| >= |b| or a = 0 (Dekker)."""
        s = self.let(E.Add(a, b), "s")
        return s, self.let(E.Add(E.Sub(a, s), b), "e")

    # ---- bits

    def to_bits(self, x: E.Expr) -> E.Expr:
        return self.call("reinterpret", x, dtype=self.int_dtype)

    def from_bits(self, x: E.Expr) -> E.Expr:
        return self.call("reinterpret", x, dtype=self.dtype)

    def shl(self, x: E.Expr, count: int) -> E.Expr:
        return self.call("shl", x, self._count(x, count))

    def shr(self, x: E.Expr, count: int) -> E.Expr:
        return self.call("shr", x, self._count(x, count))

    def _count(self, x: E.Expr, count: int) -> E.Expr:
        return self._wide(E.IntImm(count, dtype_info(x.dtype).element))

    def bit_and(self, a: E.Expr, b: E.Expr) -> E.Expr:
        return self.call("bitand", a, b)

    @property
    def magic(self) -> float:
        """Adding this to a small integral float leaves the integer in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def magic_bits(self) -> int:
        return ((self.bias + self.mantissa) << self.mantissa) | (1 << (self.mantissa - 1))

    def small_int(self, n: E.Expr) -> E.Expr:
        """An integral float of less than half the significand's bits as an integer."""
        return E.Sub(self.to_bits(E.Add(n, self.f(self.magic))), self.i(self.magic_bits))

    def small_float(self, k: E.Expr) -> E.Expr:
        """The inverse of `small_int`."""
        return E.Sub(self.from_bits(E.Add(k, self.i(self.magic_bits))), self.f(self.magic))

    def float_of(self, k: E.Expr) -> E.Expr:
        """An integer as a float, where it is small: by the conversion, where that is as quick as an addition (vectors of int32 on a CPU)."""
        return E.Cast(self.dtype, k) if self.is_f32 and not self.target.is_gpu else self.small_float(k)

    def power_of_two(self, k: E.Expr) -> E.Expr:
        """2**k for an integer k within the range of normal exponents."""
        return self.from_bits(self.shl(E.Add(k, self.i(self.bias)), self.mantissa))

    def scale(self, p: E.Expr, n: E.Expr) -> E.Expr:
        """p * 2**n for an integral float n, in two steps: the result may be subnormal (one rounding) or overflow."""
        return self.shifted(p, self.small_int(n))

    def shifted(self, p: E.Expr, exponent: E.Expr) -> E.Expr:
        """The same for an integer. Both halves of it stay within the range of normal exponents."""
        k = self.let(exponent, "k")
        half = self.let(self.shr(k, 1), "k1")
        return E.Mul(E.Mul(p, self.power_of_two(half)), self.power_of_two(E.Sub(k, half)))

    # ---- special values

    @property
    def inf(self) -> E.Expr:
        return self.f(float("inf"))

    @property
    def nan(self) -> E.Expr:
        return self.f(float("nan"))
