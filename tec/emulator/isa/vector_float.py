"""Vector float opcodes: f16, f32, f64 arithmetic, conversions, compares, division steps, transcendentals.

Source: AMD ISA manuals, "Vector ALU operations"; denormals are kept in every type, as amdhsa's default mode has it, but
for the f32 transcendentals (v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin, v_cos), which the manuals describe as flushing.
v_exp_f32, v_log_f32, v_sin_f32 and v_cos_f32 are computed to better than 1 ulp in f64; v_rcp, v_rsq and v_sqrt are
correctly rounded; hardware may differ by 1 ulp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..decode.inst import Inst
from ..translate.ops import BITS, Ops
from ..translate.wave import Wave
from .division import rounded_once
from .packed import join16
from .salu import f32_to_int, rtz16
from .table import compare, custom, valu

_ARITH = {"add": "fadd", "sub": "fsub", "mul": "fmul"}
for _t in ("f16", "f32", "f64"):
    _b, _u, _3 = f"{_t} = {_t} {_t}", f"{_t} = {_t}", f"{_t} = {_t} {_t} {_t}"
    for _n, _op in _ARITH.items():
        _more = f" v_dual_{_n}_f32" if _t == "f32" else ""
        valu(f"v_{_n}_{_t}{_more}", _b, lambda o, a, b, op=_op, t=_t: o.bin(op, t, a, b))
    _more = " v_dual_subrev_f32" if _t == "f32" else ""
    valu(f"v_subrev_{_t}{_more}", _b, lambda o, a, b, t=_t: o.bin("fsub", t, b, a))
    valu(f"v_fma_{_t}", _3, lambda o, a, b, c, t=_t: o.fma(t, a, b, c), keep_high=_t == "f16")
    _more = " v_dual_fmac_f32" if _t == "f32" else ""
    valu(f"v_fmac_{_t}{_more}", f"{_t} = {_t} {_t} +{_t}", lambda o, a, b, d, t=_t: o.fma(t, a, b, d))
    _more = " v_dual_fmaak_f32" if _t == "f32" else ""
    valu(f"v_fmaak_{_t}{_more}", _3, lambda o, a, b, k, t=_t: o.fma(t, a, b, k))
    _more = " v_dual_fmamk_f32" if _t == "f32" else ""
    valu(f"v_fmamk_{_t}{_more}", _3, lambda o, a, k, b, t=_t: o.fma(t, a, k, b))
    for _n in ("min", "max"):
        _more = f" v_dual_{_n}_f32 v_dual_{_n}_num_f32" if _t == "f32" else ""
        valu(f"v_{_n}_{_t} v_{_n}_num_{_t}{_more}", _b, lambda o, a, b, m=_n == "max", t=_t: o.minmax_f(t, m, a, b))
        if _t != "f64":
            valu(f"v_{_n}3_{_t} v_{_n}3_num_{_t}", _3, lambda o, a, b, c, m=_n == "max", t=_t: o.minmax_f(t, m, o.minmax_f(t, m, a, b), c), keep_high=True)  # fmt: skip
    if _t != "f64":
        valu(f"v_maxmin_{_t} v_maxmin_num_{_t}", _3, lambda o, a, b, c, t=_t: o.minmax_f(t, False, o.minmax_f(t, True, a, b), c))  # fmt: skip
        valu(f"v_minmax_{_t} v_minmax_num_{_t}", _3, lambda o, a, b, c, t=_t: o.minmax_f(t, True, o.minmax_f(t, False, a, b), c))  # fmt: skip
    for _n in ("minimum", "maximum"):
        valu(f"v_{_n}_{_t}", _b, lambda o, a, b, i=_n, t=_t: o.call(i, t, a, b))
        if _t != "f64":
            valu(f"v_{_n}3_{_t}", _3, lambda o, a, b, c, i=_n, t=_t: o.call(i, t, o.call(i, t, a, b), c))
            _o = "maximum" if _n == "minimum" else "minimum"
            valu(f"v_{_n}{_o}_{_t}", _3, lambda o, a, b, c, i=_n, j=_o, t=_t: o.call(j, t, o.call(i, t, a, b), c))
    for _n, _i in (("trunc", "trunc"), ("ceil", "ceil"), ("floor", "floor"), ("rndne", "roundeven")):
        valu(f"v_{_n}_{_t}", _u, lambda o, a, i=_i, t=_t: o.call(i, t, a))
valu("v_mul_legacy_f32 v_mul_dx9_zero_f32 v_dual_mul_dx9_zero_f32", "f32 = f32 f32", lambda o, a, b: mul_zero(o, a, b))


def mul_zero(o: Ops, a: str, b: str) -> str:
    """0 times anything is +0."""
    zero = o.const("f32", 0.0)
    any_zero = o.or_(o.fcmp("oeq", "f32", a, zero), o.fcmp("oeq", "f32", b, zero), "i1")
    return o.select(any_zero, "f32", zero, o.bin("fmul", "f32", a, b))


def _med3(o: Ops, t: str, a: str, b: str, c: str) -> str:
    """The median; with a NaN among them, the minimum of the three."""
    lo, hi = o.minmax_f(t, False, a, b), o.minmax_f(t, True, a, b)
    median = o.minmax_f(t, True, lo, o.minmax_f(t, False, hi, c))
    nan = o.or_(o.or_(o.fcmp("uno", t, a, b), o.fcmp("uno", t, c, c), "i1"), o.const("i1", 0), "i1")
    return o.select(nan, t, o.minmax_f(t, False, lo, c), median)


for _t in ("f16", "f32"):
    valu(f"v_med3_{_t} v_med3_num_{_t}", f"{_t} = {_t} {_t} {_t}", lambda o, a, b, c, t=_t: _med3(o, t, a, b, c), keep_high=True)  # fmt: skip


def _fract(o: Ops, t: str, a: str) -> str:
    """a - floor(a), below 1; infinities give NaN."""
    below_one = {"f16": 1 - 2.0**-11, "f32": 1 - 2.0**-24, "f64": 1 - 2.0**-53}[t]
    value = o.bin("fsub", t, a, o.call("floor", t, a))
    return o.select(o.fcmp("ogt", t, value, o.const(t, below_one)), t, o.const(t, below_one), value)


for _t in ("f16", "f32", "f64"):
    valu(f"v_fract_{_t}", f"{_t} = {_t}", lambda o, a, t=_t: _fract(o, t, a))


def flush_f32(o: Ops, a: str) -> str:
    """A denormal becomes the zero of its sign."""
    bits = o.bitcast("f32", "i32", a)
    small = o.icmp("eq", "i32", o.and_(bits, o.const("i32", 0x7F800000)), o.const("i32", 0))
    return o.bitcast("i32", "f32", o.select(small, "i32", o.and_(bits, o.const("i32", -(2**31))), bits))


def _mad(o: Ops, a: str, b: str, c: str) -> str:
    """a*b + c with two roundings and denormals flushed (v_mad_f32 and v_mac_f32 of gfx9)."""
    a, b, c = (flush_f32(o, x) for x in (a, b, c))
    return flush_f32(o, o.bin("fadd", "f32", flush_f32(o, o.bin("fmul", "f32", a, b)), c))


valu("v_mad_f32 v_madak_f32", "f32 = f32 f32 f32", _mad)
valu("v_madmk_f32", "f32 = f32 f32 f32", lambda o, a, k, b: _mad(o, a, k, b))
valu("v_mac_f32", "f32 = f32 f32 +f32", _mad)


def _through_f64(o: Ops, name: str, a: str) -> str:
    return o.helper(name, "f32", ("f32", a))


def _rcp(o: Ops, t: str, a: str) -> str:
    return o.bin("fdiv", t, o.const(t, 1.0), a)


def _rsq32(o: Ops, a: str) -> str:
    wide = o.fpext("f32", "f64", a)
    return o.fptrunc("f64", "f32", o.bin("fdiv", "f64", o.const("f64", 1.0), o.call("sqrt", "f64", wide)))


def _f16_by_f32(o: Ops, fn, a: str) -> str:  # type: ignore[no-untyped-def]
    return o.fptrunc("f32", "f16", fn(o, o.fpext("f16", "f32", a)))


TRANS = {
    "exp": lambda o, a: flush_f32(o, _through_f64(o, "exp2", flush_f32(o, a))),
    "log": lambda o, a: _through_f64(o, "log2", flush_f32(o, a)),
    "rcp": lambda o, a: flush_f32(o, _rcp(o, "f32", flush_f32(o, a))),
    "rsq": lambda o, a: _rsq32(o, flush_f32(o, a)),
    "sqrt": lambda o, a: o.call("sqrt", "f32", flush_f32(o, a)),
    "sin": lambda o, a: _through_f64(o, "sin2pi", a),
    "cos": lambda o, a: _through_f64(o, "cos2pi", a),
}
TRANS_KEEP = {"rcp": lambda o, a: _rcp(o, "f32", a), "rsq": _rsq32, "sqrt": lambda o, a: o.call("sqrt", "f32", a),
               "exp": lambda o, a: _through_f64(o, "exp2", a), "log": lambda o, a: _through_f64(o, "log2", a),
               "sin": TRANS["sin"], "cos": TRANS["cos"]}  # fmt: skip
for _n in TRANS:
    _alias = " v_rcp_iflag_f32" if _n == "rcp" else ""
    valu(f"v_{_n}_f32{_alias}", "f32 = f32", TRANS[_n], kind="trans")
    valu(f"v_{_n}_f16", "f16 = f16", lambda o, a, f=TRANS_KEEP[_n]: _f16_by_f32(o, f, a), kind="trans")


def _half(fn: Callable[[Ops, str], str]) -> Callable[[Ops, str], str]:
    return lambda o, a: _f16_by_f32(o, fn, a)


def _on_sgprs(name: str, t: str, fn: Callable[[Ops, str], str]) -> None:
    """gfx12's transcendentals from SGPR to SGPR; a 16-bit result has zeros above it."""

    def handler(w: Wave, inst: Inst) -> None:
        dst, src = inst.operands
        if any(inst.mods):
            raise w.fail("a modifier on a scalar transcendental")
        w.write_scalar(dst, fn(w.s, w.scalar(src, t)), t)

    custom(name, "trans", (12,))(handler)


for _n in ("exp", "log", "rcp", "rsq", "sqrt"):
    _on_sgprs(f"v_s_{_n}_f32", "f32", TRANS[_n])
    _on_sgprs(f"v_s_{_n}_f16", "f16", _half(TRANS_KEEP[_n]))
valu("v_rcp_f64", "f64 = f64", lambda o, a: _rcp(o, "f64", a), kind="trans")
valu("v_sqrt_f64", "f64 = f64", lambda o, a: o.call("sqrt", "f64", a), kind="trans")
valu("v_rsq_f64", "f64 = f64", lambda o, a: o.bin("fdiv", "f64", o.const("f64", 1.0), o.call("sqrt", "f64", a)), kind="trans")  # fmt: skip

# Exponents.


def _pow2(o: Ops, e: str) -> str:
    """2**e as f64, for e (i32) in the normal range."""
    bits = o.shl(o.sext("i32", "i64", o.add(e, o.const("i32", 1023))), o.const("i64", 52), "i64")
    return o.bitcast("i64", "f64", bits)


def _clamp_i32(o: Ops, a: str, lo: int, hi: int) -> str:
    return o.call("smax", "i32", o.call("smin", "i32", a, o.const("i32", hi)), o.const("i32", lo))


def ldexp32(o: Ops, a: str, e: str) -> str:
    """Exact in f64 (|e| is clamped to where the result is 0 or infinite anyway), then rounded once."""
    e = _clamp_i32(o, e, -400, 400)
    return o.fptrunc("f64", "f32", o.bin("fmul", "f64", o.fpext("f32", "f64", a), _pow2(o, e)))


def _ldexp16(o: Ops, a: str, e: str) -> str:
    wide = _clamp_i32(o, o.sext("i16", "i32", e), -100, 100)
    product = o.bin("fmul", "f64", o.fpext("f16", "f64", a), _pow2(o, wide))
    return o.fptrunc("f64", "f16", product)


def ldexp64(o: Ops, a: str, e: str) -> str:
    """The mantissa in [1, 2) times two powers of two: the first product is exact, so only the second rounds."""
    mantissa = o.bin("fmul", "f64", _frexp(o, "f64", a, True), o.const("f64", 2.0))
    total = o.add(o.sub(_frexp(o, "f64", a, False), o.const("i32", 1)), _clamp_i32(o, e, -5000, 5000))
    first = _clamp_i32(o, total, -1022, 1023)
    rest = _clamp_i32(o, o.sub(total, first), -1022, 1023)
    scaled = o.bin("fmul", "f64", o.bin("fmul", "f64", mantissa, _pow2(o, first)), _pow2(o, rest))
    unchanged = o.fcmp("ueq", "f64", a, o.bin("fmul", "f64", a, o.const("f64", 2.0)))  # 0, infinities, NaN
    return o.select(unchanged, "f64", a, scaled)


valu("v_ldexp_f32", "f32 = f32 i32", ldexp32)
valu("v_ldexp_f16", "f16 = f16 i16", _ldexp16)
valu("v_ldexp_f64", "f64 = f64 i32", ldexp64)


def _frexp(o: Ops, t: str, a: str, mantissa: bool) -> str:
    """Mantissa in [0.5, 1) with its sign, or the exponent; infinities and NaN give themselves and 0; zero gives zero."""
    i, bits = f"i{BITS[t]}", BITS[t]
    frac, bias, scale = {"f16": (10, 15, 10), "f32": (23, 127, 24), "f64": (52, 1023, 54)}[t]
    raw = o.bitcast(t, i, a)
    exp_mask = ((1 << (bits - 1 - frac)) - 1) << frac
    c = partial(o.const, i)
    denormal = o.icmp("eq", i, o.and_(raw, c(exp_mask), i), c(0))
    scaled = o.bitcast(t, i, o.bin("fmul", t, a, o.const(t, 2.0**scale)))
    raw2 = o.select(denormal, i, scaled, raw)
    special = o.icmp("eq", i, o.and_(raw, c(exp_mask), i), c(exp_mask))
    zero = o.icmp("eq", i, o.and_(raw, c((1 << (bits - 1)) - 1), i), c(0))
    keep = o.or_(special, zero, "i1")
    if mantissa:
        m = o.or_(o.and_(raw2, c(~exp_mask), i), c((bias - 1) << frac), i)
        return o.bitcast(i, t, o.select(keep, i, raw, m))
    e = o.lshr(o.and_(raw2, c(exp_mask), i), c(frac), i)
    e = o.sub(e, o.select(denormal, i, c(bias - 1 + scale), c(bias - 1)), i)
    e = o.select(keep, i, c(0), e)
    if t == "f64":
        return o.trunc("i64", "i32", e)
    return e


for _t, _e in (("f16", "i16"), ("f32", "i32"), ("f64", "i32")):
    valu(f"v_frexp_mant_{_t}", f"{_t} = {_t}", lambda o, a, t=_t: _frexp(o, t, a, True))
    valu(
        f"v_frexp_exp_{'i16' if _t == 'f16' else 'i32'}_{_t}", f"{_e} = {_t}", lambda o, a, t=_t: _frexp(o, t, a, False)
    )

# Conversions.
valu("v_cvt_f32_i32", "f32 = i32", lambda o, a: o.cast("sitofp", "i32", "f32", a))
valu("v_cvt_f32_u32", "f32 = i32", lambda o, a: o.cast("uitofp", "i32", "f32", a))
valu("v_cvt_f64_i32", "f64 = i32", lambda o, a: o.cast("sitofp", "i32", "f64", a))
valu("v_cvt_f64_u32", "f64 = i32", lambda o, a: o.cast("uitofp", "i32", "f64", a))
valu("v_cvt_i32_f32", "i32 = f32", lambda o, a: f32_to_int(o, a, True))
valu("v_cvt_u32_f32", "i32 = f32", lambda o, a: f32_to_int(o, a, False))
valu("v_cvt_i32_f64", "i32 = f64", lambda o, a: f32_to_int(o, a, True, "f64"))
valu("v_cvt_u32_f64", "i32 = f64", lambda o, a: f32_to_int(o, a, False, "f64"))
valu("v_cvt_f32_f64", "f32 = f64", lambda o, a: o.fptrunc("f64", "f32", a))
valu("v_cvt_f64_f32", "f64 = f32", lambda o, a: o.fpext("f32", "f64", a))
valu("v_cvt_f32_f16", "f32 = f16", lambda o, a: o.fpext("f16", "f32", a))
valu("v_cvt_f16_f32", "f16 = f32", lambda o, a: o.fptrunc("f32", "f16", a))
valu("v_cvt_f32_bf16", "f32 = bf16", lambda o, a: o.fpext("bf16", "f32", a))
valu("v_cvt_bf16_f32", "bf16 = f32", lambda o, a: o.f32_to_bf16(a))
valu("v_cvt_f16_i16", "f16 = i16", lambda o, a: o.fptrunc("f32", "f16", o.cast("sitofp", "i16", "f32", a)))
valu("v_cvt_f16_u16", "f16 = i16", lambda o, a: o.fptrunc("f32", "f16", o.cast("uitofp", "i16", "f32", a)))
valu("v_cvt_i16_f16", "i16 = f16", lambda o, a: f32_to_int(o, o.fpext("f16", "f32", a), True, "f32", "i16"))
valu("v_cvt_u16_f16", "i16 = f16", lambda o, a: f32_to_int(o, o.fpext("f16", "f32", a), False, "f32", "i16"))
valu("v_cvt_rpi_i32_f32 v_cvt_nearest_i32_f32", "i32 = f32", lambda o, a: f32_to_int(o, o.call("floor", "f64", o.bin("fadd", "f64", o.fpext("f32", "f64", a), o.const("f64", 0.5))), True, "f64"))  # fmt: skip
valu("v_cvt_flr_i32_f32 v_cvt_floor_i32_f32", "i32 = f32", lambda o, a: f32_to_int(o, o.call("floor", "f32", a), True))
for _byte in range(4):
    valu(f"v_cvt_f32_ubyte{_byte}", "f32 = i32", lambda o, a, i=_byte: o.cast("uitofp", "i32", "f32", o.and_(o.lshr(a, o.const("i32", 8 * i)), o.const("i32", 255))))  # fmt: skip


valu("v_cvt_pkrtz_f16_f32 v_cvt_pk_rtz_f16_f32", "i32 = f32 f32", lambda o, a, b: join16(o, "f16", rtz16(o, a), rtz16(o, b)))  # fmt: skip
valu("v_cvt_pk_f16_f32", "i32 = f32 f32", lambda w, a, b: join16(w.v, "f16", w.to_half("f16", a), w.to_half("f16", b)), wave=True)  # fmt: skip
valu("v_cvt_pk_bf16_f32", "i32 = f32 f32", lambda o, a, b: join16(o, "bf16", o.f32_to_bf16(a), o.f32_to_bf16(b)))
valu("v_pack_b32_f16", "i32 = f16 f16", lambda o, a, b: join16(o, "f16", a, b))


def norm16(o: Ops, a: str, signed: bool) -> str:
    scale, lo = (32767.0, -1.0) if signed else (65535.0, 0.0)
    clamped = o.minmax_f("f32", True, o.minmax_f("f32", False, a, o.const("f32", 1.0)), o.const("f32", lo))
    rounded = o.call("roundeven", "f32", o.bin("fmul", "f32", clamped, o.const("f32", scale)))
    return o.trunc("i32", "i16", f32_to_int(o, rounded, True))


for _n, _s in (("i16", True), ("u16", False)):
    valu(f"v_cvt_pknorm_{_n}_f32 v_cvt_pk_norm_{_n}_f32", "i32 = f32 f32", lambda o, a, b, s=_s: join16(o, "i16", norm16(o, a, s), norm16(o, b, s)))  # fmt: skip


def _sat16(o: Ops, a: str, signed: bool) -> str:
    if signed:
        return o.trunc("i32", "i16", _clamp_i32(o, a, -(2**15), 2**15 - 1))
    return o.trunc("i32", "i16", o.call("umin", "i32", a, o.const("i32", 65535)))


for _n, _s in (("i16_i32", True), ("u16_u32", False)):
    valu(f"v_cvt_pk_{_n}", "i32 = i32 i32", lambda o, a, b, s=_s: join16(o, "i16", _sat16(o, a, s), _sat16(o, b, s)))

# Division steps (Newton-Raphson with scaling): v_div_scale, v_div_fmas, v_div_fixup.


def _exponent(o: Ops, t: str, a: str) -> str:
    i, frac = f"i{BITS[t]}", {"f16": 10, "f32": 23, "f64": 52}[t]
    mask = (1 << (BITS[t] - 1 - frac)) - 1
    return o.and_(o.lshr(o.bitcast(t, i, a), o.const(i, frac), i), o.const(i, mask), i)


def _is_denormal(o: Ops, t: str, a: str) -> str:
    i = f"i{BITS[t]}"
    return o.and_(
        o.icmp("eq", i, _exponent(o, t, a), o.const(i, 0)), o.fcmp("one", t, a, o.const(t, 0.0)), "i1"
    )  # fmt: skip


def _div_scale(t: str):  # type: ignore[no-untyped-def]
    """The function of v_div_scale for a type."""
    big, limit, tiny = {"f32": (64, 96, 23), "f64": (128, 768, 53)}[t]
    i = f"i{BITS[t]}"

    def fn(o: Ops, x: str, den: str, num: str) -> tuple[str, str]:
        """x is den or num; scaled by 2**big where the quotient would leave the range; the mask says that div_fmas
        must scale back."""
        up, down = o.const(t, 2.0**big), o.const(t, 2.0**-big)
        zero = o.const(t, 0.0)
        false = o.const("i1", 0)
        ed, en = _exponent(o, t, den), _exponent(o, t, num)
        any_zero = o.or_(o.fcmp("oeq", t, den, zero), o.fcmp("oeq", t, num, zero), "i1")
        gap = o.icmp("sge", i, o.sub(en, ed, i), o.const(i, limit))
        den_denormal = _is_denormal(o, t, den)
        rcp_denormal = _is_denormal(o, t, o.bin("fdiv", t, o.const(t, 1.0), den))
        quotient_denormal = _is_denormal(o, t, o.bin("fdiv", t, num, den))
        num_tiny = o.icmp("sle", i, en, o.const(i, tiny))

        def same(a: str, b: str) -> str:
            return o.icmp("eq", i, o.bitcast(t, i, a), o.bitcast(t, i, b))

        is_den, is_num = same(x, den), same(x, num)
        scaled_up, scaled_down = o.bin("fmul", t, x, up), o.bin("fmul", t, x, down)
        # In order of precedence, last first.
        value, vcc = x, false
        value = o.select(num_tiny, t, scaled_up, value)
        value = o.select(quotient_denormal, t, o.select(is_num, t, scaled_up, x), value)
        vcc = o.select(quotient_denormal, "i1", o.const("i1", 1), vcc)
        value = o.select(rcp_denormal, t, scaled_down, value)
        vcc = o.select(rcp_denormal, "i1", false, vcc)
        both = o.and_(rcp_denormal, quotient_denormal, "i1")
        value = o.select(both, t, o.select(is_den, t, scaled_down, x), value)
        vcc = o.select(both, "i1", o.const("i1", 1), vcc)
        value = o.select(den_denormal, t, scaled_up, value)
        vcc = o.select(den_denormal, "i1", false, vcc)
        value = o.select(gap, t, o.select(is_den, t, scaled_up, x), value)
        vcc = o.select(gap, "i1", o.const("i1", 1), vcc)
        nan = o.bitcast(i, t, o.const(i, {"f32": 0x7FC00000, "f64": 0x7FF8 << 48}[t]))
        value = o.select(any_zero, t, nan, value)
        vcc = o.select(any_zero, "i1", false, vcc)
        return value, vcc

    return fn


valu("v_div_scale_f32", "f32 mask = f32 f32 f32", _div_scale("f32"))
valu("v_div_scale_f64", "f64 mask = f64 f64 f64", _div_scale("f64"))


def _div_fmas(w: Wave, t: str, a: str, b: str, c: str) -> str:
    """fma(a, b, c), scaled back by 2**64 (f32) or 2**128 (f64) in the lanes that VCC names. The scale is fused: a quotient
    that is denormal is rounded once (of float32 by way of float64)."""
    o = w.v
    value = o.fma(t, a, b, c)
    vcc = w.mask(106)
    up = {"f32": 64, "f64": 128}[t]
    half = {"f32": 127, "f64": 1023}[t]
    i = f"i{BITS[t]}"
    big = o.icmp("sgt", i, _exponent(o, t, c), o.const(i, half))
    factor = o.select(big, t, o.const(t, 2.0**up), o.const(t, 2.0**-up))
    if t == "f32":
        wide = o.fma("f64", *[o.fpext("f32", "f64", x) for x in (a, b, c)])
        scaled = o.cast("fptrunc", "f64", "f32", o.bin("fmul", "f64", wide, o.fpext("f32", "f64", factor)))
    else:
        scaled = rounded_once(o, a, b, c, o.bin("fmul", t, value, factor))
    return o.select(vcc, t, scaled, value)


valu("v_div_fmas_f32", "f32 = f32 f32 f32", lambda w, a, b, c: _div_fmas(w, "f32", a, b, c), wave=True)
valu("v_div_fmas_f64", "f64 = f64 f64 f64", lambda w, a, b, c: _div_fmas(w, "f64", a, b, c), wave=True)


def div_fixup(o: Ops, t: str, q: str, den: str, num: str) -> str:
    """The quotient where it is one; else what IEEE says of NaN, infinity, zero and overflow."""
    bits, i = BITS[t], f"i{BITS[t]}"
    frac, bias = {"f16": (10, 15), "f32": (23, 127), "f64": (52, 1023)}[t]
    c = partial(o.const, i)

    def raw(x: str) -> str:
        return o.bitcast(t, i, x)

    sign = o.and_(o.xor(raw(num), raw(den), i), c(1 << (bits - 1)), i)
    inf_bits = ((1 << (bits - 1 - frac)) - 1) << frac

    def mag(x: str) -> str:
        return o.and_(raw(x), c((1 << (bits - 1)) - 1), i)

    def signed(m: str) -> str:
        return o.bitcast(i, t, o.or_(m, sign, i))

    inf_d, inf_n = (o.icmp("eq", i, mag(x), c(inf_bits)) for x in (den, num))
    zero_d, zero_n = (o.icmp("eq", i, mag(x), c(0)) for x in (den, num))
    nan_d, nan_n = (o.fcmp("uno", t, x, x) for x in (den, num))

    def quiet(x: str) -> str:
        return o.bitcast(i, t, o.or_(raw(x), c(1 << (frac - 1)), i))

    nan = o.bitcast(i, t, c(inf_bits | (1 << (frac - 1)) | (1 << (bits - 1))))
    value = signed(mag(q))
    if t != "f16":
        gap = o.sub(_exponent(o, t, num), _exponent(o, t, den), i)
        under = o.icmp("slt", i, gap, c(-(bias + frac + 1)))
        value = o.select(under, t, signed(c(0)), value)
        # The steps give NaN where the scaled quotient itself overflowed.
        lost = o.and_(o.fcmp("uno", t, q, q), o.icmp("sge", i, gap, c(0)), "i1")
        value = o.select(lost, t, signed(c(inf_bits)), value)
    value = o.select(o.or_(inf_d, zero_n, "i1"), t, signed(c(0)), value)
    value = o.select(o.or_(inf_n, zero_d, "i1"), t, signed(c(inf_bits)), value)
    value = o.select(o.or_(o.and_(inf_d, inf_n, "i1"), o.and_(zero_d, zero_n, "i1"), "i1"), t, nan, value)
    value = o.select(nan_d, t, quiet(den), value)
    return o.select(nan_n, t, quiet(num), value)


for _t in ("f16", "f32", "f64"):
    valu(
        f"v_div_fixup_{_t}",
        f"{_t} = {_t} {_t} {_t}",
        lambda o, q, d, n, t=_t: div_fixup(o, t, q, d, n),
        keep_high=True,
    )

# Compares: six ordered, six negated ("nlt" is true for NaN), o and u, and class.
_FPRED = {"lt": "olt", "eq": "oeq", "le": "ole", "gt": "ogt", "lg": "one", "ge": "oge", "o": "ord", "u": "uno",
          "nge": "ult", "nlg": "ueq", "ngt": "ule", "nle": "ugt", "neq": "une", "nlt": "uge"}  # fmt: skip
for _t in ("f16", "f32", "f64"):
    for _c, _p in _FPRED.items():
        compare(f"v_cmp_{_c}_{_t}", _t, lambda o, a, b, p=_p, t=_t: o.fcmp(p, t, a, b), f"v_cmpx_{_c}_{_t}")


def fp_class(o: Ops, t: str, a: str, which: str) -> str:
    """Whether a is of one of the ten classes that the bits of `which` name."""
    i, bits = f"i{BITS[t]}", BITS[t]
    frac = {"f16": 10, "f32": 23, "f64": 52}[t]
    exp_mask = ((1 << (bits - 1 - frac)) - 1) << frac
    c = partial(o.const, i)
    raw = o.bitcast(t, i, a)
    mag = o.and_(raw, c((1 << (bits - 1)) - 1), i)
    negative = o.icmp("slt", i, raw, c(0))
    nan = o.icmp("ugt", i, mag, c(exp_mask))
    quiet = o.icmp("uge", i, mag, c(exp_mask | (1 << (frac - 1))))
    # Position of the class bit: signalling NaN 0, quiet 1, then -inf -normal -denormal -0 +0 +denormal +normal +inf.
    k = partial(o.const, "i32")
    size = o.select(o.icmp("eq", i, mag, c(0)), "i32", k(0), o.select(o.icmp("ult", i, mag, c(1 << frac)), "i32", k(1), o.select(o.icmp("ult", i, mag, c(exp_mask)), "i32", k(2), k(3))))  # fmt: skip
    place = o.select(negative, "i32", o.sub(k(5), size), o.add(k(6), size))
    place = o.select(nan, "i32", o.select(quiet, "i32", k(1), k(0)), place)
    return o.trunc("i32", "i1", o.lshr(which, place))


for _t in ("f16", "f32", "f64"):
    compare(f"v_cmp_class_{_t}", "class" + _t, lambda o, a, b, t=_t: fp_class(o, t, a, b), f"v_cmpx_class_{_t}")
