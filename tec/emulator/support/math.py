"""The transcendental opcodes: 2**x, log2(x), sin(2 pi x), cos(2 pi x), tanh(x) of f32, in f64 arithmetic, rounded once.

Series with enough terms for an error below 2**-40 before the rounding, so results are correctly rounded but for ties that
close: better than the 1 ulp that the ISA manuals promise. Sources: Taylor and atanh series; range reduction by floor.
"""

from __future__ import annotations

import math
from functools import partial

from ..translate.ops import Ops, Out


def math_functions(lanes: int) -> str:
    """The functions for vectors of `lanes` (0: scalars)."""
    parts = []
    for name, body in (("exp2", _exp2), ("log2", _log2), ("sin2pi", _sin), ("cos2pi", _cos), ("tanh", _tanh)):
        out = Out()
        o = Ops(out, lanes)
        result = body(o, "%x")
        ty = o.type("f32")
        parts.append(
            f"\ndefine {ty} @tec_{name}_{lanes or 1}({ty} %x) {{\n"
            + "\n".join(out.lines)
            + f"\n  ret {ty} {result}\n}}\n"
        )
        parts += [d + "\n" for d in sorted(out.declares)]
    seen: set[str] = set()
    return "".join(p for p in parts if not (p.startswith("declare") and (p in seen or seen.add(p))))  # type: ignore[func-returns-value]


def _poly(o: Ops, x: str, coefficients: list[float]) -> str:
    """Horner, lowest coefficient first."""
    acc = o.const("f64", coefficients[-1])
    for c in reversed(coefficients[:-1]):
        acc = o.call("fma", "f64", acc, x, o.const("f64", c))
    return acc


def _power(o: Ops, e: str) -> str:
    """2**e for an i32 e in the f64 normal range."""
    bits = o.shl(o.sext("i32", "i64", o.add(e, o.const("i32", 1023))), o.const("i64", 52), "i64")
    return o.bitcast("i64", "f64", bits)


def _exp2(o: Ops, x: str) -> str:
    wide = o.fpext("f32", "f64", x)
    low = o.select(o.fcmp("olt", "f64", wide, o.const("f64", -200.0)), "f64", o.const("f64", -200.0), wide)
    clamped = o.select(o.fcmp("ogt", "f64", low, o.const("f64", 200.0)), "f64", o.const("f64", 200.0), low)
    nan = o.fcmp("uno", "f64", wide, wide)
    safe = o.select(nan, "f64", o.const("f64", 0.0), clamped)
    value = o.fptrunc("f64", "f32", _exp2_f64(o, safe))
    return o.select(o.fcmp("uno", "f32", x, x), "f32", o.bin("fadd", "f32", x, x), value)


def _exp2_f64(o: Ops, x: str) -> str:
    """2**x of an f64 in [-1000, 1000]."""
    whole = o.call("roundeven", "f64", x)
    frac = o.bin("fsub", "f64", x, whole)
    ln2 = math.log(2.0)
    series = _poly(o, frac, [ln2**k / math.factorial(k) for k in range(13)])
    return o.bin("fmul", "f64", series, _power(o, o.cast("fptosi", "f64", "i32", whole)))


def _tanh(o: Ops, x: str) -> str:
    """1 - 2 / (e**2x + 1) of |x|; near 0 three terms of the series, whose next one is below 2**-60 of the value."""
    size = o.call("fabs", "f64", o.fpext("f32", "f64", x))
    nan = o.fcmp("uno", "f32", x, x)
    safe = o.select(o.fcmp("olt", "f64", size, o.const("f64", 20.0)), "f64", size, o.const("f64", 20.0))
    one = o.const("f64", 1.0)
    power = _exp2_f64(o, o.bin("fmul", "f64", safe, o.const("f64", 2.0 / math.log(2.0))))
    far = o.bin("fsub", "f64", one, o.bin("fdiv", "f64", o.const("f64", 2.0), o.bin("fadd", "f64", power, one)))
    near = o.bin("fmul", "f64", safe, _poly(o, o.bin("fmul", "f64", safe, safe), [1.0, -1 / 3, 2 / 15]))
    value = o.select(o.fcmp("olt", "f64", safe, o.const("f64", 2.0**-10)), "f64", near, far)
    value = o.call("copysign", "f32", o.fptrunc("f64", "f32", value), x)
    return o.select(nan, "f32", o.bin("fadd", "f32", x, x), value)


def _log2(o: Ops, x: str) -> str:
    wide = o.fpext("f32", "f64", x)  # every f32, denormals too, is a normal f64
    raw = o.bitcast("f64", "i64", wide)
    c = partial(o.const, "i64")
    # Mantissa in [sqrt(1/2), sqrt(2)): the series in s = (m-1)/(m+1), |s| < 0.172.
    shifted = o.sub(raw, c(0x3FE6A09E667F3BCD), "i64")
    e = o.ashr(shifted, c(52), "i64")
    m = o.bitcast("i64", "f64", o.sub(raw, o.shl(e, c(52), "i64"), "i64"))
    one = o.const("f64", 1.0)
    s = o.bin("fdiv", "f64", o.bin("fsub", "f64", m, one), o.bin("fadd", "f64", m, one))
    s2 = o.bin("fmul", "f64", s, s)
    k = 2.0 / math.log(2.0)
    series = o.bin("fmul", "f64", s, _poly(o, s2, [k / (2 * i + 1) for i in range(12)]))
    whole = o.cast("sitofp", "i32", "f64", o.trunc("i64", "i32", e))
    value = o.fptrunc("f64", "f32", o.bin("fadd", "f64", whole, series))
    zero = o.const("f32", 0.0)
    inf = o.bitcast("i32", "f32", o.const("i32", 0x7F800000))
    nan = o.bitcast("i32", "f32", o.const("i32", 0x7FC00000))
    minus_inf = o.bitcast("i32", "f32", o.const("i32", 0xFF800000))
    value = o.select(o.fcmp("oeq", "f32", x, inf), "f32", inf, value)
    value = o.select(o.fcmp("olt", "f32", x, zero), "f32", nan, value)
    value = o.select(o.fcmp("oeq", "f32", x, zero), "f32", minus_inf, value)
    return o.select(o.fcmp("uno", "f32", x, x), "f32", o.bin("fadd", "f32", x, x), value)


def _turn(o: Ops, x: str, quarter: float) -> str:
    """sin(2 pi (x + quarter)): reduced to [-1/4, 1/4] turns, where sin is odd and its series short. x is in turns."""
    wide = o.fpext("f32", "f64", x)
    moved = wide if quarter == 0.0 else None
    r = o.bin("fsub", "f64", wide, o.call("roundeven", "f64", wide))  # exact; in [-1/2, 1/2]
    if moved is None:
        # cos(2 pi r) = sin(2 pi (1/4 - |r|))
        a = o.call("fabs", "f64", r)
        r = o.bin("fsub", "f64", o.const("f64", 0.25), a)
    half = o.const("f64", 0.5)
    r = o.select(o.fcmp("ogt", "f64", r, o.const("f64", 0.25)), "f64", o.bin("fsub", "f64", half, r), r)
    minus = o.bin("fsub", "f64", o.const("f64", -0.5), r)
    r = o.select(o.fcmp("olt", "f64", r, o.const("f64", -0.25)), "f64", minus, r)
    t2 = o.bin("fmul", "f64", r, r)
    tau = 2 * math.pi
    series = _poly(o, t2, [(-1) ** k * tau ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(12)])
    return o.fptrunc("f64", "f32", o.bin("fmul", "f64", r, series))


def _bounded(o: Ops, x: str, value: str) -> str:
    """Infinities and NaN give NaN."""
    return o.select(o.fcmp("uno", "f32", o.bin("fsub", "f32", x, x), o.const("f32", 0.0)), "f32", o.bin("fsub", "f32", x, x), value)  # fmt: skip


def _sin(o: Ops, x: str) -> str:
    return _bounded(o, x, _turn(o, x, 0.0))


def _cos(o: Ops, x: str) -> str:
    return _bounded(o, x, _turn(o, x, 0.25))
