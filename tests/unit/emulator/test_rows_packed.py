"""Every packed and mixed-precision opcode of the table against NumPy, with its selectors and signs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tec.emulator.isa import opcodes
from tec.emulator.isa.table import ROWS

from .row_reference import bf16_bits, bits, maximum, minimum, s
from .rows import Bench
from .test_mixed_floats import table
from .test_valu import F16, F32, F64, U32, U64, exact_fma, fmax, fmin, same, values

opcodes.load()
Fn = Callable[..., Any]


# name -> (element type, sources, function of arrays, saturating form under clamp)
def to_bf16(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a*b + c of bf16 numbers, exactly rounded once to bf16, as f32."""

    def one(x: float, y: float, z: float) -> float:
        if not all(map(np.isfinite, (x, y, z))):
            return float(F64(x) * F64(y) + F64(z))
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        if not exact:
            return float(F32(x) * F32(y) + F32(z))
        _, e = np.frexp(float(exact)) if abs(exact) < Fraction(2) ** 1000 else (0, 1000)
        unit = Fraction(2) ** max(int(e) - 8, -133)
        return (
            float(np.float64(round(exact / unit) * unit))
            if abs(exact) < Fraction(2) ** 128
            else float(np.copysign(np.inf, exact.numerator))
        )

    return np.array([one(*v) for v in zip(a, b, c)], F64).astype(F32)


PACKED16: dict[str, tuple[str, int, Fn, Fn | None]] = {}


def pref(names: str, t: str, n: int, fn: Fn, sat: Fn | None = None) -> None:
    for name in names.split():
        PACKED16[name] = (t, n, fn, sat)


pref("v_pk_add_f16 v_pk_add_bf16", "f16", 2, lambda a, b: a + b)
pref("v_pk_mul_f16 v_pk_mul_bf16", "f16", 2, lambda a, b: a * b)
pref("v_pk_fma_f16", "f16", 3, exact_fma(F16))
pref("v_pk_min_f16 v_pk_min_num_f16", "f16", 2, fmin)
pref("v_pk_max_f16 v_pk_max_num_f16", "f16", 2, fmax)
pref("v_pk_min_num_bf16", "f16", 2, fmin)
pref("v_pk_max_num_bf16", "f16", 2, fmax)
pref("v_pk_min3_num_f16", "f16", 3, lambda a, b, c: fmin(fmin(a, b), c))
pref("v_pk_max3_num_f16", "f16", 3, lambda a, b, c: fmax(fmax(a, b), c))
pref("v_pk_fma_bf16", "f16", 3, lambda a, b, c: to_bf16(a, b, c))
pref("v_pk_minimum_f16", "f16", 2, minimum)
pref("v_pk_maximum_f16", "f16", 2, maximum)
pref("v_pk_minimum3_f16", "f16", 3, lambda a, b, c: minimum(minimum(a, b), c))
pref("v_pk_maximum3_f16", "f16", 3, lambda a, b, c: maximum(maximum(a, b), c))


def clip(fn: Callable[[int, int], int], signed: bool) -> Fn:
    lo, hi = (-(2**15), 2**15 - 1) if signed else (0, 2**16 - 1)
    sg = (lambda x: s(x, 16)) if signed else (lambda x: x)
    return bits(16, lambda a, b: max(lo, min(hi, fn(sg(a), sg(b)))))


for _t, _g in (("i16", True), ("u16", False)):
    pref(f"v_pk_add_{_t}", "i16", 2, lambda a, b: a + b, clip(lambda a, b: a + b, _g))
    pref(f"v_pk_sub_{_t}", "i16", 2, lambda a, b: a - b, clip(lambda a, b: a - b, _g))
    pref(f"v_pk_min_{_t}", "i16", 2, clip(min, _g))
    pref(f"v_pk_max_{_t}", "i16", 2, clip(max, _g))
    pref(f"v_pk_mad_{_t}", "i16", 3, lambda a, b, c: a * b + c)
    for _n, _f in (("min", min), ("max", max)):
        _sg = (lambda x: s(x, 16)) if _g else (lambda x: x)
        pref(f"v_pk_{_n}3_{_t}", "i16", 3, bits(16, lambda a, b, c, f=_f, g=_sg: f(g(a), g(b), g(c))))
        _wrap = bits(16, lambda a, b, c, f=_f, g=_sg: f(g(a + b & 0xFFFF), g(c)))
        _ends = (-(2**15), 2**15 - 1) if _g else (0, 2**16 - 1)
        _sat = bits(16, lambda a, b, c, f=_f, g=_sg, e=_ends: f(max(e[0], min(e[1], g(a) + g(b))), g(c)))
        pref(f"v_pk_add_{_n}_{_t}", "i16", 3, _wrap, _sat)
pref("v_pk_mul_lo_u16", "i16", 2, lambda a, b: a * b)
pref("v_pk_lshlrev_b16", "i16", 2, bits(16, lambda n, a: a << (n & 15)))
pref("v_pk_lshrrev_b16", "i16", 2, bits(16, lambda n, a: a >> (n & 15)))
pref("v_pk_ashrrev_i16", "i16", 2, bits(16, lambda n, a: s(a, 16) >> (n & 15)))
PACKED32: dict[str, tuple[int, Fn]] = {
    "v_pk_add_f32": (2, lambda a, b: a + b),
    "v_pk_mul_f32": (2, lambda a, b: a * b),
    "v_pk_fma_f32": (3, exact_fma(F32)),
}
MIX = {
    "v_fma_mix_f32": "f32", "v_fma_mixlo_f16": "lo", "v_fma_mixhi_f16": "hi",
    "v_fma_mix_f32_bf16": "f32", "v_fma_mixlo_bf16": "lo", "v_fma_mixhi_bf16": "hi",
}  # fmt: skip
DOT = {
    f"{stem}_f32_{t}": (t, acc)
    for t in ("f16", "bf16")
    for stem, acc in (("v_dot2", False), ("v_dot2c", True), ("v_dot2acc", True), ("v_dual_dot2acc", True))
}
DOT_HALF = {"v_dot2_f16_f16": "f16", "v_dot2_bf16_bf16": "bf16"}
DOT_SMALL = {f"v_dot4_f32_{a}_{b}": (a, b) for a in ("fp8", "bf8") for b in ("fp8", "bf8")}
SPECIAL = ("v_pk_mov_b32", "v_pk_fmac_f16")
MASK = 0x5A5A_1234_8001_F00F
OLD = 0xDEADBEEF


def halves(raw: np.ndarray, t: str, high: int) -> np.ndarray:
    part = (raw >> U32(16 if high else 0)).astype(np.uint16)
    if t == "bf16":
        return (part.astype(U32) << U32(16)).view(F32)
    return part.view(F16 if t == "f16" else np.uint16)


def pair(kind: type, lanes: int, seed: int) -> np.ndarray:
    return values(kind, 2 * lanes, seed).view(np.uint16).reshape(lanes, 2).copy().view(U32).reshape(-1)


def widths(name: str) -> str:
    return "bf16" if name.endswith("bf16") else PACKED16[name][0]


FORMS16 = ("", "sel", "neg", "clamp")


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_packed_rows(chip: str) -> None:
    planes = {f"{t}{k}": 1 for t in ("f16", "i16", "bf16") for k in range(3)}
    bench = Bench(chip, planes)
    cases = []
    for name, (_, n, _, sat) in PACKED16.items():
        t = widths(name)
        for form in FORMS16:
            if (form == "neg" and t == "i16") or (form == "clamp" and t == "i16" and sat is None):
                continue
            lo, hi = [1, 0, 1][:n], [0, 1, 0][:n]
            tail = {
                "": "", "sel": f" op_sel:{lo} op_sel_hi:{hi}", "neg": f" neg_lo:{[1, 0, 1][:n]} neg_hi:{[0, 1, 1][:n]}",
                "clamp": " clamp",
            }[form].replace(", ", ",")  # fmt: skip
            texts = ", ".join(bench.reg(f"{t}{k}") for k in range(n))
            at = bench.case([f"{name} v2, {texts}{tail}"], [f"v_mov_b32 v2, {OLD:#x}"], dwords=1)
            cases.append((name, form, at))
    fmac = bench.case([f"v_pk_fmac_f16 v2, {bench.reg('f160')}, {bench.reg('f161')}"], [f"v_mov_b32 v2, {bench.reg('f162')}"], dwords=1)  # fmt: skip
    lanes = bench.lanes
    raw = {}
    for i, (t, kind) in enumerate((("f16", F16), ("i16", np.uint16))):
        for k in range(3):
            raw[f"{t}{k}"] = pair(kind, lanes, 40 + 3 * i + k)
    for k in range(3):
        wide = values(F32, 2 * lanes, 60 + k).view(U32) & U32(0xFFFF0000)
        raw[f"bf16{k}"] = wide[:lanes] >> U32(16) | wide[lanes:]
    run = bench.launch()
    for bits_ in (-1, MASK):
        out = run(raw, bits_)
        on = np.array([bits_ >> l & 1 for l in range(lanes)], bool)
        for name, form, at in cases:
            _, n, fn, sat = PACKED16[name]
            t = widths(name)
            assert (out[at][~on] == OLD).all(), name
            for high in (0, 1):
                with np.errstate(all="ignore"):
                    pick = [(1, 0, 1), (0, 1, 0)][high] if form == "sel" else (high,) * 3
                    args = [halves(raw[f"{t}{k}"], t, pick[k]) for k in range(n)]
                    if form == "neg":
                        args = [-a if ((1, 0, 1), (0, 1, 1))[high][k] else a for k, a in enumerate(args)]
                    want = (sat if form == "clamp" and t == "i16" else fn)(*args)
                    if form == "clamp" and t != "i16":
                        want = np.where(want > 0, np.where(want < 1, want, 1), 0)
                got = out[at] >> U32(16 * high) & U32(0xFFFF)
                if t == "i16":
                    good = got == want
                elif t == "f16":
                    good = same(got, want.astype(F16))
                else:
                    good = (got == bf16_bits(want)) | np.isnan(want) & (got & U32(0x7FFF) > 0x7F80)
                bad = np.flatnonzero(on & ~good)
                assert not len(bad), (name, form, high, [hex(raw[f"{t}{k}"][bad[0]]) for k in range(n)], hex(got[bad[0]]), want[bad[0]])  # fmt: skip
        for high in (0, 1):
            with np.errstate(all="ignore"):
                want = exact_fma(F16)(*(halves(raw[f"f16{k}"], "f16", high) for k in range(3)))
            got = out[fmac] >> U32(16 * high) & U32(0xFFFF)
            assert (same(got, want) | ~on).all()


def test_packed_f32_rows() -> None:
    bench = Bench("gfx942", {f"f{k}": 2 for k in range(3)})
    cases = []
    for name, (n, _) in PACKED32.items():
        for form in ("", "sel", "neg", "clamp"):
            lo, hi = [1, 0, 1][:n], [0, 1, 0][:n]
            tail = {
                "": "",
                "sel": f" op_sel:{lo} op_sel_hi:{hi}",
                "neg": f" neg_lo:{lo} neg_hi:{hi}",
                "clamp": " clamp",
            }[form]
            text = f"{name} v[2:3], {', '.join(bench.reg(f'f{k}') for k in range(n))}{tail.replace(', ', ',')}"
            cases.append((name, form, bench.case([text])))
    moved = bench.case([f"v_pk_mov_b32 v[2:3], {bench.reg('f0')}, {bench.reg('f1')} op_sel:[1,0]"])
    raw = {f"f{k}": values(F32, 128, 80 + k).reshape(64, 2) for k in range(3)}
    out = bench.launch()(raw, MASK)
    on = np.array([MASK >> l & 1 for l in range(64)], bool)
    for name, form, at in cases:
        n, fn = PACKED32[name]
        for high in (0, 1):
            pick = [(1, 0, 1), (0, 1, 0)][high] if form == "sel" else (high,) * 3
            args = [raw[f"f{k}"][:, pick[k]] for k in range(n)]
            if form == "neg":
                args = [-a if ((1, 0, 1), (0, 1, 0))[high][k] else a for k, a in enumerate(args)]
            with np.errstate(all="ignore"):
                want = fn(*args)
                if form == "clamp":
                    want = np.where(want > 0, np.where(want < 1, want, 1), 0)
            assert (same(out[at + high], want.astype(F32)) | ~on).all(), (name, form, high)
    assert (out[moved][on] == raw["f0"][:, 1].view(U32)[on]).all()
    assert (out[moved + 1][on] == raw["f1"][:, 0].view(U32)[on]).all()


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_mixed_rows(chip: str) -> None:
    """Which source is a half, which half, its sign and magnitude; where the result goes."""
    bench = Bench(chip, {"a": 1, "b": 1, "c": 1})
    forms = [((1, 0, 0), (1, 1, 0), (0, 0, 0), (0, 0, 0)), ((0, 1, 1), (0, 1, 1), (0, 1, 0), (1, 0, 0)),
             ((0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 1, 1)), ((1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0))]  # fmt: skip
    cases = []
    for name, result in MIX.items():
        for form in forms:
            sel, hi, neg, mag = (str(list(x)).replace(" ", "") for x in form)
            tail = f" op_sel:{sel} op_sel_hi:{hi} neg_lo:{neg} neg_hi:{mag}"
            text = f"{name} v2, {bench.reg('a')}, {bench.reg('b')}, {bench.reg('c')}{tail}"
            cases.append((name, result, form, bench.case([text], [f"v_mov_b32 v2, {OLD:#x}"], dwords=1)))
    lanes = bench.lanes
    raw = {k: pair(F16, lanes, 90 + i) for i, k in enumerate("abc")}
    run = bench.launch()
    for mask in (-1, MASK):
        out = run(raw, mask)
        on = np.array([mask >> l & 1 for l in range(lanes)], bool)
        for name, result, (sel, hi, neg, mag), at in cases:
            args = []
            kind = "bf16" if "bf16" in name else "f16"
            for k, key in enumerate("abc"):
                x = halves(raw[key], kind, sel[k]).astype(F32) if hi[k] else raw[key].view(F32)
                x = np.abs(x) if mag[k] else x
                args.append(-x if neg[k] else x)
            with np.errstate(all="ignore"):
                want = exact_fma(F32)(*args)
                if result != "f32":
                    want = want.astype(F16) if kind == "f16" else bf16_bits(want)
            got = out[at]
            assert (got[~on] == OLD).all()
            if result == "f32":
                good = same(got, want)
            else:
                shift = U32(16 if result == "hi" else 0)
                half = got >> shift & U32(0xFFFF)
                if kind == "f16":
                    good = same(half, want)
                else:
                    good = (half == want) | (half & U32(0x7FFF) > 0x7F80) & (want & 0x7FFF > 0x7F80)
                assert ((got ^ U32(OLD)) >> (U32(16) - shift) & U32(0xFFFF) == 0)[on].all(), (name, "other half")
            bad = np.flatnonzero(on & ~good)
            assert not len(bad), (name, sel, hi, [hex(raw[k][bad[0]]) for k in "abc"], hex(got[bad[0]]), want[bad[0]])


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_dot_rows(chip: str) -> None:
    bench = Bench(chip, {**{f"{t}{k}": 1 for t in ("f16", "bf16") for k in (0, 1)}, "c": 1})
    cases = []
    for name, (t, acc) in DOT.items():
        dual = name.startswith("v_dual_")
        if dual and chip != "gfx1100":
            continue
        a, b, c = bench.reg(t + "0"), bench.reg(t + "1"), bench.reg("c")
        for tail in ("",) if acc else ("", " neg_lo:[1,0,0] neg_hi:[1,0,0]", " clamp"):
            text = f"{name} v2, {a}, {b}" + ("" if acc else f", {c}") + (" :: v_dual_mov_b32 v5, v0" if dual else tail)
            cases.append((name, t, tail, bench.case([text], [f"v_mov_b32 v2, {c}"], dwords=1)))
    lanes, rng = bench.lanes, np.random.default_rng(4)
    raw: dict[str, np.ndarray] = {"c": rng.standard_normal(lanes).astype(F32)}
    for k in (0, 1):
        raw[f"f16{k}"] = rng.standard_normal((lanes, 2)).astype(F16).view(U32).reshape(-1)
        wide = rng.standard_normal((2, lanes)).astype(F32).view(U32) & U32(0xFFFF0000)
        raw[f"bf16{k}"] = wide[0] >> U32(16) | wide[1]
    out = bench.launch()(raw)
    for name, t, tail, at in cases:
        total = raw["c"].astype(F64)
        for high in (0, 1):
            sign = -1 if "neg" in tail else 1
            total = total + sign * halves(raw[t + "0"], t, high).astype(F64) * halves(raw[t + "1"], t, high).astype(F64)
        if "clamp" in tail:
            total = np.clip(total, 0, 1)
        assert np.abs(out[at].view(F32) - total).max() < 1e-5, (name, tail)


def test_dots_of_halves() -> None:
    """gfx11: a 16-bit accumulator and result, in the halves that op_sel's last two bits or the registers' names say; summed in f32."""
    bench = Bench("gfx1100", {f"{t}{k}": 1 for t in ("f16", "bf16") for k in range(3)})
    forms = [
        ("v2", "", "", 0, 0, 1),
        ("v2", "", " op_sel:[0,0,1,1]", 1, 1, 1),
        ("v2.h", ".l", "", 0, 1, 1),
        ("v2", "", " op_sel:[0,0,0,1]", 0, 1, -1),
    ]
    cases = []
    for name, t in DOT_HALF.items():
        a, b, c = (bench.reg(f"{t}{k}") for k in range(3))
        for dst, half, tail, c_half, d_half, sign in forms:
            text = f"{name} {dst}, {a}, {b}, {'-' * (sign < 0)}{c}{half}{tail}"
            cases.append((name, t, c_half, d_half, sign, bench.case([text], [f"v_mov_b32 v2, {OLD:#x}"], dwords=1)))
    rng = np.random.default_rng(6)
    raw = {}
    for k in range(3):
        raw[f"f16{k}"] = rng.standard_normal((bench.lanes, 2)).astype(F16).view(U32).reshape(-1)
        wide = rng.standard_normal((2, bench.lanes)).astype(F32).view(U32) & U32(0xFFFF0000)
        raw[f"bf16{k}"] = wide[0] >> U32(16) | wide[1]
    out = bench.launch()(raw)
    fma = exact_fma(F32)
    for name, t, c_half, d_half, sign, at in cases:
        total = (sign * halves(raw[t + "2"], t, c_half)).astype(F32)
        for high in (0, 1):
            total = fma(halves(raw[t + "0"], t, high).astype(F32), halves(raw[t + "1"], t, high).astype(F32), total)
        want = total.astype(F16).view(np.uint16) if t == "f16" else bf16_bits(total)
        assert (out[at] >> U32(16 * d_half) & U32(0xFFFF) == want).all(), name
        assert (out[at] >> U32(16 * (1 - d_half)) & U32(0xFFFF) == OLD >> 16 * (1 - d_half) & 0xFFFF).all(), name


def test_dots_of_small_floats() -> None:
    """gfx12: four products of 8-bit floats on top of an f32."""
    bench = Bench("gfx1200", {"a": 1, "b": 1, "c": 1})
    cases = []
    for name, kinds in DOT_SMALL.items():
        for tail, sign, absolute in (
            ("", 1, False),
            (" neg_lo:[0,0,1]", -1, False),
            (" neg_lo:[0,0,1] neg_hi:[0,0,1]", -1, True),
        ):
            text = f"{name} v2, {bench.reg('a')}, {bench.reg('b')}, {bench.reg('c')}{tail}"
            cases.append((kinds, sign, absolute, bench.case([text], dwords=1)))
    rng = np.random.default_rng(7)
    # Few bits of exponent: exact sums.
    raw = {k: rng.integers(0, 2**32, bench.lanes, dtype=U32) & U32(0xB7B7B7B7) for k in "ab"}
    raw["c"] = rng.integers(-64, 64, bench.lanes).astype(F32).view(U32)
    out = bench.launch()(raw)
    for kinds, sign, absolute, at in cases:
        c = raw["c"].view(F32)
        total = (sign * (np.abs(c) if absolute else c)).astype(F32)
        for i in range(4):
            x, y = (table(kind)[raw[k] >> U32(8 * i) & U32(255)] for kind, k in zip(kinds, "ab"))
            total = exact_fma(F32)(x.astype(F32), y.astype(F32), total)
        assert same(out[at], total).all(), kinds


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_halves_of_inline_constants(chip: str) -> None:
    """A constant is 32 bits wide: an integer's upper half is its sign, a float's is zero (LLVM swaps them for <0, c>)."""
    bench = Bench(chip, {"a": 1})
    a = bench.reg("a")
    swap = "op_sel:[1,0] op_sel_hi:[0,1]"
    at = [
        bench.case([f"v_pk_lshlrev_b16 v2, 1, {a} {swap}"], dwords=1),
        bench.case([f"v_pk_add_u16 v2, -1, {a} {swap}"], dwords=1),
        bench.case([f"v_pk_max_u16 v2, -2, {a} op_sel_hi:[1,1]"], dwords=1),
        bench.case([f"v_pk_mul_f16 v2, 2.0, {a} {swap}"], dwords=1),
    ]
    raw = pair(np.uint16, bench.lanes, 31)
    raw &= U32(0x7BFF7BFF)  # finite as halves
    out = bench.launch()({"a": raw})
    low, high = raw & U32(0xFFFF), raw >> U32(16)
    with np.errstate(over="ignore"):
        doubled = (halves(raw, "f16", 1) * F16(2)).view(np.uint16).astype(U32)
    want = [low | high << U32(17), (low - U32(1)) & U32(0xFFFF) | (high - U32(1)) << U32(16),
            np.full(bench.lanes, 0xFFFFFFFE, U32) | U32(0), doubled << U32(16)]  # fmt: skip
    for place, w in zip(at, want):
        assert (out[place] == w).all(), (place, hex(out[place][0]), hex(w[0]), hex(raw[0]))


def test_no_packed_row_is_left_out() -> None:
    rows = {n for n, r in ROWS.items() if r.kind == "packed"}
    known = {*PACKED16, *PACKED32, *MIX, *DOT, *SPECIAL, *DOT_HALF, *DOT_SMALL}
    assert rows == known, rows ^ known
    assert U64
