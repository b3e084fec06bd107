"""Float modes, registers by index, arguments that arrive in registers: what other compilers' kernels use."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest

from tec.emulator.errors import EmulationError
from tests.thinned import thinned

from .harness import LANES, download, function, upload
from .rows import Bench
from .test_valu import F32, U32

CHIPS = ["gfx942", "gfx1100"]
TINY = np.array([0x00000001, 0x807FFFFF, 0x00800000, 0x3F800000, 0x80000001, 0x00400000, 0x7F800000, 0], U32)


def _setreg(offset: int, width: int, value: int) -> str:
    return f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, {offset}, {width}), {value}"


def _flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(F32).tiny, np.copysign(F32(0), x), x)


@thinned(1, ("chip", CHIPS), ("mode", range(4)))
def test_f32_denormals(chip: str, mode: int) -> None:
    """Bit 0 keeps those read, bit 1 those written; moves and selects change nothing."""
    bench = Bench(chip, {"a": 1, "b": 1}, masked=False)
    a, b = bench.reg("a"), bench.reg("b")
    at = bench.case(
        [_setreg(4, 2, mode), f"v_add_f32 v2, {a}, {b}", f"v_mul_f32 v3, 0.5, {a}", f"v_mov_b32 v4, {a}", _setreg(4, 2, 3),
         f"v_mul_f32 v5, 0.5, {a}"], dwords=4,
    )  # fmt: skip
    a_bits = np.resize(TINY, bench.lanes)
    b_bits = np.resize(np.repeat(TINY, 8), bench.lanes)
    out = bench.launch()({"a": a_bits, "b": b_bits})
    x, y = a_bits.view(F32), b_bits.view(F32)
    read = (lambda v: v) if mode & 1 else _flush
    written = (lambda v: v) if mode & 2 else _flush
    np.testing.assert_array_equal(out[at], written(read(x) + read(y)).view(U32))
    np.testing.assert_array_equal(out[at + 1], written(F32(0.5) * read(x)).view(U32))
    np.testing.assert_array_equal(out[at + 2], a_bits)
    np.testing.assert_array_equal(out[at + 3], (F32(0.5) * x).view(U32))


@pytest.mark.parametrize("chip", CHIPS)
def test_a_mode_holds_across_branches(chip: str) -> None:
    """What was set stays set behind labels and branches; FP16_OVFL too, set after one."""
    bench = Bench(chip, {"a": 1}, masked=False)
    a = bench.reg("a")
    at = bench.case(
        ["s_branch .Lq", ".Lq:", _setreg(4, 2, 0), _setreg(23, 1, 1), "s_branch .Lp", ".Lp:", f"v_mul_f32 v2, 0.5, {a}", "v_mov_b32 v4, 0x7bff",
         "v_add_f16 v3, v4, v4", _setreg(4, 2, 3), _setreg(23, 1, 0)]
    )  # fmt: skip
    bits = np.resize(TINY, bench.lanes)
    out = bench.launch()({"a": bits})
    np.testing.assert_array_equal(out[at], _flush(F32(0.5) * _flush(bits.view(F32))).view(U32))
    np.testing.assert_array_equal(out[at + 1] & 0xFFFF, 0x7BFF)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_mode_that_differs_is_refused_where_it_matters(chip: str) -> None:
    """Two paths set it differently: moves do not mind, an addition does."""
    lines = ["s_cmp_eq_u32 s98, 0", "s_cbranch_scc1 .Lp", _setreg(0, 2, 1), ".Lp:", "v_mov_b32 v2, 0"]
    bench = Bench(chip, {"a": 1}, masked=False)
    bench.case(["s_mov_b32 s98, 0", *lines])
    bench.launch()({"a": np.zeros(bench.lanes, U32)})
    bench = Bench(chip, {"a": 1}, masked=False)
    bench.case(["s_mov_b32 s98, 0", *lines, f"v_add_f32 v2, {bench.reg('a')}, v0"])
    with pytest.raises(EmulationError, match="a float mode that is not the same on all paths"):
        bench.launch()({"a": np.zeros(bench.lanes, U32)})


def _directed(exact: list[Fraction | None], dtype: np.dtype, mode: int) -> np.ndarray:
    """Exact values rounded to a format in a mode (0 to nearest, 1 up, 2 down, 3 toward zero), by search among its neighbours."""
    info = np.finfo(dtype)
    top = Fraction(float(info.max))
    out = []
    for value in exact:
        assert value is not None
        with np.errstate(over="ignore"):
            near = dtype.type(float(value)) if abs(value) <= top else dtype.type(np.inf if value > 0 else -np.inf)
        up = mode == 1 or (mode == 3 and value < 0)
        around = [near, np.nextafter(near, dtype.type(np.inf)), np.nextafter(near, dtype.type(-np.inf))]

        def number(x: np.floating) -> Fraction | float:
            return Fraction(float(x)) if np.isfinite(x) else float(x)

        if up:
            best = min((x for x in around if number(x) >= value), key=number)
        else:
            best = max((x for x in around if number(x) <= value), key=number)
        out.append(best)
    return np.array(out, dtype)


@thinned(1, ("chip", CHIPS), ("mode", [1, 2, 3]))
def test_rounding_modes_of_f32(chip: str, mode: int) -> None:
    """Sums, products, fma and conversions against exact fractions: carries, ties, denormals, overflow."""
    bench = Bench(chip, {"a": 1, "b": 1, "c": 1}, masked=False)
    a, b, c = (bench.reg(n) for n in "abc")
    lines = [
        f"v_add_f32 v2, {a}, {b}",
        f"v_mul_f32 v3, {a}, {b}",
        f"v_fma_f32 v4, {a}, {b}, {c}",
        f"v_sub_f32 v5, {a}, {b}",
        f"v_cvt_f32_i32 v6, {c}",
    ]
    at = bench.case([_setreg(0, 2, mode), *lines, _setreg(0, 2, 0), f"v_add_f32 v7, {a}, {b}"], dwords=6)
    rng = np.random.default_rng(mode)
    x, y = (rng.integers(0, 1 << 32, bench.lanes, dtype=np.uint64).astype(U32).view(F32) for _ in "ab")
    special = np.array([1, 1 + 2**-23, 3.4e38, -3.4e38, 1e-38, -1e-38, 2**-149, 0.1, 16777216, 1e30], F32)
    x = np.where(np.isfinite(x), x, F32(1.5))
    y = np.where(np.isfinite(y), y, F32(-2.5))
    x[:10], y[:10] = special, special[::-1]
    x[10:20], y[10:20] = special, special * F32(0.37)
    z = rng.integers(-(2**31), 2**31, bench.lanes).astype(np.int32)
    z[z.view(F32) != z.view(F32)] = 7
    z[~np.isfinite(z.view(F32))] = 7
    out = bench.launch()({"a": x.view(U32), "b": y.view(U32), "c": z.view(U32)})
    fx, fy, fz = ([Fraction(float(v)) for v in p] for p in (x, y, z.view(F32)))
    for plane, exact in (
        (0, [p + q for p, q in zip(fx, fy)]), (1, [p * q for p, q in zip(fx, fy)]), (2, [p * q + r for p, q, r in zip(fx, fy, fz)]),
        (3, [p - q for p, q in zip(fx, fy)]), (4, [Fraction(int(v)) for v in z]),
    ):  # fmt: skip
        np.testing.assert_array_equal(
            out[at + plane].view(F32), _directed(exact, np.dtype(F32), mode), err_msg=str(plane)
        )
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out[at + 5].view(F32), x + y)


@thinned(1, ("chip", CHIPS), ("mode", [1, 2, 3]))
def test_rounding_modes_of_f16_and_f64(chip: str, mode: int) -> None:
    """Their own field of MODE; f32 beside them stays to nearest."""
    bench = Bench(chip, {"a": 1, "b": 1, "p": 2, "q": 2}, masked=False)
    a, b, p, q = (bench.reg(n) for n in "abpq")
    lines = [f"v_add_f16 v2, {a}, {b}", f"v_fma_f16 v3, {a}, {b}, {b}", f"v_cvt_f16_f32 v4, {bench.reg('p', 1)}", f"v_add_f32 v5, {a}, {b}",
             f"v_add_f64 v[6:7], {p}, {q}", f"v_fma_f64 v[8:9], {p}, {q}, {q}"]  # fmt: skip
    at = bench.case([_setreg(2, 2, mode), *lines, _setreg(2, 2, 0)], dwords=8)
    rng = np.random.default_rng(mode)
    n = bench.lanes
    F16 = np.float16
    x, y = (rng.integers(0, 0x7B00, n).astype(np.uint16) | rng.integers(0, 2, n).astype(np.uint16) << 15 for _ in "ab")
    x[:4], y[:4] = [0x7BFF, 1, 0x3C00, 0x8001], [0x7BFF, 1, 0x1000, 0x1400]
    r, s = (np.ldexp(rng.standard_normal(n), rng.integers(-300, 300, n)) for _ in "pq")
    r[:3], s[:3] = [1.0, 1.7e308, 3e-308], [2**-60, 1.7e308, -2.9e-308]
    r = (r.view(np.uint64) & ~np.uint64(0xB8000000)).view(np.float64)  # the lower half is an f32 for v_cvt_f16_f32
    planes = {"a": x.astype(U32), "b": y.astype(U32), "p": r, "q": s}
    low = r.view(np.uint64).astype(U32).view(F32)
    out = bench.launch()(planes)
    fx, fy = ([Fraction(float(v)) for v in w.view(F16)] for w in (x, y))
    fr, fs = ([Fraction(float(v)) for v in w] for w in (r, s))
    single = [Fraction(float(v)) for v in low]
    for plane, exact in ((0, [u + v for u, v in zip(fx, fy)]), (1, [u * v + v for u, v in zip(fx, fy)]), (2, single)):
        got = (out[at + plane] & 0xFFFF).astype(np.uint16).view(F16)
        np.testing.assert_array_equal(got, _directed(exact, np.dtype(F16), mode), err_msg=str(plane))
    np.testing.assert_array_equal(out[at + 3].view(F32), x.astype(U32).view(F32) + y.astype(U32).view(F32))
    for plane, exact in ((4, [u + v for u, v in zip(fr, fs)]), (6, [u * v + v for u, v in zip(fr, fs)])):
        got = (out[at + plane].astype(np.uint64) | out[at + plane + 1].astype(np.uint64) << 32).view(np.float64)
        np.testing.assert_array_equal(got, _directed(exact, np.dtype(np.float64), mode), err_msg=str(plane))


def test_packed_opcodes_follow_the_mode() -> None:
    """v_pk_mul_f32 flushes (as with -fgpu-flush-denormals-to-zero) and rounds, v_pk_add_f16 flushes, rounds and overflows to the largest number."""
    bench = Bench("gfx942", {"a": 2, "h": 1, "g": 1}, masked=False)
    a, h, g = bench.reg("a"), bench.reg("h"), bench.reg("g")
    at = bench.case(
        [_setreg(4, 2, 0), f"v_pk_mul_f32 v[2:3], {a}, {a}", _setreg(4, 2, 3), _setreg(0, 2, 1), f"v_pk_add_f32 v[4:5], {a}, {a} op_sel:[0,1]", _setreg(0, 2, 0),
         _setreg(23, 1, 1), f"v_pk_add_f16 v6, {h}, {g}", _setreg(23, 1, 0), _setreg(6, 2, 0), f"v_pk_mul_f16 v7, {h}, {g}", _setreg(6, 2, 3)], dwords=6,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    x = np.ldexp(rng.standard_normal((64, 2)), rng.integers(-80, 20, (64, 2))).astype(F32)
    halves = [np.ldexp(rng.standard_normal((64, 2)), rng.integers(-20, 15, (64, 2))).astype(np.float16) for _ in "hg"]
    halves = [np.where(np.isfinite(v), v, np.float16(3)) for v in halves]
    u, v = halves
    u[:2], v[:2] = 60000, 50000
    out = bench.launch()({"a": x.view(U32), "h": u.view(U32), "g": v.view(U32)})
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(out[at : at + 2].view(F32).T, _flush(_flush(x) * _flush(x)))
        sums = [
            [Fraction(float(p)) + Fraction(float(q)) for p, q in zip(x[:, 0], other)] for other in (x[:, 1], x[:, 1])
        ]
        np.testing.assert_array_equal(out[at + 2].view(F32), _directed(sums[0], np.dtype(F32), 1))
        total = u + v
        total = np.where(np.isinf(total), np.copysign(np.float16(65504), total), total)
        np.testing.assert_array_equal(out[at + 4][:, None].view(np.float16), total)

        def flushed(t: np.ndarray) -> np.ndarray:
            return np.where(np.abs(t) < np.finfo(np.float16).tiny, np.copysign(np.float16(0), t), t)

        np.testing.assert_array_equal(out[at + 5][:, None].view(np.float16), flushed(flushed(u) * flushed(v)))


@pytest.mark.parametrize("chip", CHIPS)
def test_a_mode_kept_in_a_register(chip: str) -> None:
    """s_getreg, another mode, s_setreg of what was kept; f16 and f64 denormals flushed in between."""
    bench = Bench(chip, {"a": 1}, masked=False)
    a = bench.reg("a")
    at = bench.case(
        ["s_getreg_b32 s40, hwreg(HW_REG_MODE, 0, 8)", _setreg(6, 2, 0), f"v_mul_f16 v2, 2.0, {a}", "s_mov_b32 s41, s40",
         "s_setreg_b32 hwreg(HW_REG_MODE, 0, 8), s41", f"v_mul_f16 v3, 2.0, {a}", "v_mov_b32 v4, s40"], dwords=3,
    )  # fmt: skip
    x = np.resize(np.array([1, 0x83FF, 0x3C00, 0x0400, 0x0200], np.uint16), bench.lanes)
    out = bench.launch()({"a": x.astype(U32)})
    half = x.view(np.float16)
    flushed = np.where(np.abs(half) < np.finfo(np.float16).tiny, np.copysign(np.float16(0), half), half)
    np.testing.assert_array_equal(
        (out[at] & 0xFFFF).astype(np.uint16), (2 * flushed).astype(np.float16).view(np.uint16)
    )
    np.testing.assert_array_equal(
        (out[at + 1] & 0xFFFF).astype(np.uint16), (2 * half).astype(np.float16).view(np.uint16)
    )
    np.testing.assert_array_equal(out[at + 2], 0xF0)


@pytest.mark.parametrize("chip", CHIPS)
def test_f16_overflow(chip: str) -> None:
    """FP16_OVFL: the largest finite number in place of an infinity that no operand is."""
    bench = Bench(chip, {"a": 1}, masked=False)
    a = bench.reg("a")
    at = bench.case([_setreg(23, 1, 1), f"v_cvt_f16_f32 v2, {a}", "v_add_f16 v3, v2, v2", _setreg(23, 1, 0)])
    x = np.resize(np.array([1e6, -1e6, np.inf, -np.inf, 60000, 2.5, np.nan, 0], F32), bench.lanes)
    out = bench.launch()({"a": x.view(U32)})
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
        first = np.where(np.isinf(want) & np.isfinite(x), np.copysign(np.float16(65504), want), want)
        twice = first + first
        second = np.where(np.isinf(twice) & np.isfinite(first), np.copysign(np.float16(65504), twice), twice)
    np.testing.assert_array_equal(out[at].astype(np.uint16).view(np.float16), first)
    np.testing.assert_array_equal(out[at + 1].astype(np.uint16).view(np.float16), second)


def _over(chip: str, lines: list[str], planes: dict[str, np.ndarray], dwords: int, on: int = 1) -> np.ndarray:
    """What v2 and those behind it hold after `lines` under FP16_OVFL; {a} in them names the register of plane a."""
    bench = Bench(chip, dict.fromkeys(planes, 1), masked=False)
    texts = [x.format(**{k: bench.reg(k) for k in planes}) for x in lines]
    mode = "HW_REG_WAVE_MODE" if chip.startswith("gfx12") else "HW_REG_MODE"
    at = bench.case([f"s_setreg_imm32_b32 hwreg({mode}, 23, 1), {on}", *texts], ["v_mov_b32 v2, 0"], dwords=dwords)
    got = bench.launch()({k: np.resize(x, bench.lanes) for k, x in planes.items()})
    return np.stack([got[at + i] for i in range(dwords)])


_FLOATS = np.array([1e6, -1e6, np.inf, -np.inf, 65504, 65519, 65521, np.nan, 2.5, 3e38], F32)


@pytest.mark.parametrize("on", [0, 1])
@pytest.mark.parametrize(
    "chip, line",
    [
        ("gfx950", "v_cvt_pk_f16_f32 v2, {a}, -{a}"),
        ("gfx1250", "v_cvt_pk_f16_f32 v2, {a}, -{a}"),
        ("gfx950", "v_cvt_sr_f16_f32 v2, {a}, 0"),
        ("gfx1250", "v_cvt_sr_pk_f16_f32 v2, {a}, -{a}, 0"),
        ("gfx1250", "v_cvt_f16_f32 v2, {a}"),
    ],
)
def test_overflow_of_conversions_to_f16(chip: str, line: str, on: int) -> None:
    """Packed ones and those with random bits (0 cuts off) saturate too; an infinity stays one."""
    got = _over(chip, [line], {"a": _FLOATS.view(U32)}, 1, on)[0][: len(_FLOATS)]
    with np.errstate(over="ignore"):
        want = _FLOATS.astype(np.float16)
    if "_sr_" in line:
        want = np.where(np.isclose(_FLOATS, 65521, atol=0.5), np.float16(65504), want)
    if on:
        want = np.where(np.isinf(want) & np.isfinite(_FLOATS), np.copysign(np.float16(65504), want), want)
    halves = [got & 0xFFFF, got >> 16] if "_pk_" in line else [got & 0xFFFF]
    for half, sign in zip(halves, (1, -1)):
        np.testing.assert_array_equal(half.astype(np.uint16).view(np.float16), np.float16(sign) * want)


@pytest.mark.parametrize("on", [0, 1])
@pytest.mark.parametrize("scale", [1e6, 1e38, 1.0])
def test_overflow_by_a_scale(scale: float, on: int) -> None:
    """v_cvt_scalef32 and v_cvt_scale to f16: what the scale makes too large saturates (past f32's end too), what was infinite stays."""
    code = 0x77 | 0x7C << 8 | 0xFB << 16 | 0xFC << 24  # of bf8: 28672, inf, -57344, -inf
    power = 2.0 ** np.floor(np.log2(scale))
    values = np.array([28672, np.inf, -57344, -np.inf]) * power
    with np.errstate(over="ignore"):
        want = values.astype(np.float16)
    if on:
        want = np.where(np.isinf(want) & np.isfinite(values), np.copysign(np.float16(65504), want), want)
    planes = {"c": np.array([code], U32), "s": np.array([scale], F32).view(U32)}
    two = _over("gfx950", ["v_cvt_scalef32_pk_f16_bf8 v2, {c}, {s}", "v_cvt_scalef32_pk_f16_bf8 v3, {c}, {s} op_sel:[1,0]"], planes, 2, on)  # fmt: skip
    np.testing.assert_array_equal(np.ascontiguousarray(two[:, 0]).view(np.float16), want)
    one = _over("gfx950", ["v_cvt_scalef32_f16_bf8 v2, {c}, {s}"], planes, 1, on)
    assert int(one[0, 0]) & 0xFFFF == int(want[:1].view(np.uint16)[0])
    planes["s"] = np.array([int(np.log2(power)) + 127], U32)
    lines = ["v_mov_b32 v6, {c}", "v_mov_b32 v7, {c}", "v_cvt_scale_pk8_f16_bf8 v[2:5], v[6:7], {s}"]
    eight = _over("gfx1250", lines, planes, 4, on)
    np.testing.assert_array_equal(np.ascontiguousarray(eight[:, 0]).view(np.float16), np.tile(want, 2))


@pytest.mark.parametrize("on", [0, 1])
@pytest.mark.parametrize(
    "op", ["s_add_f16 s3, s2, s2", "s_mul_f16 s3, s2, s2", "s_cvt_f16_f32 s3, 0x49742400", "s_fmac_f16 s3, s2, s2"]
)
def test_overflow_of_scalar_f16(op: str, on: int) -> None:
    got = _over("gfx1250", ["s_mov_b32 s2, 0x7bff", "s_mov_b32 s3, 0x7bff", op, "v_mov_b32 v2, s3"], {}, 1, on)
    assert int(got[0, 0]) & 0xFFFF == (0x7BFF if on else 0x7C00)


def test_registers_by_index() -> None:
    """v_movrels and v_movreld, under a mask, and v_nop."""
    bench = Bench("gfx1100", {"a": 1, "b": 1, "c": 1})
    first = bench.place["a"]
    before = [f"v_mov_b32 v2, {bench.reg('a')}", "v_mov_b32 v3, 7", "v_mov_b32 v4, 8", "s_mov_b32 m0, 2"]
    at = bench.case([f"v_movrels_b32 v2, v{first}", "v_nop", f"v_movreld_b32 v2, {bench.reg('b')}"], before, dwords=3)
    both = bench.case([f"v_movrelsd_b32 v2, v{first}"], before, dwords=3)
    planes = {p: np.arange(32, dtype=U32) + U32(1000 * k) for k, p in enumerate("abc", 1)}
    mask = 0x8001_F00F
    out = bench.launch()(planes, mask)
    on = np.array([mask >> i & 1 for i in range(32)], bool)
    np.testing.assert_array_equal(out[at], np.where(on, planes["c"], planes["a"]))
    np.testing.assert_array_equal(out[at + 1], np.full(32, 7, U32))
    np.testing.assert_array_equal(out[both : both + 2], [planes["a"], np.full(32, 7, U32)])
    np.testing.assert_array_equal(out[both + 2], np.where(on, planes["c"], U32(8)))
    np.testing.assert_array_equal(out[at + 2], np.where(on, planes["b"], U32(8)))


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942"])
def test_the_index_mode(chip: str) -> None:
    """s_set_gpr_idx: moves from and to VGPRs by M0, under a mask; M0 keeps its other bits."""
    bench = Bench(chip, {"a": 1, "b": 1, "c": 1})
    a, b = bench.reg("a"), bench.reg("b")
    before = ["v_mov_b32 v2, 5", "v_mov_b32 v3, 7", "v_mov_b32 v4, 8", "s_mov_b32 s40, 0x102", "s_mov_b32 m0, 0x70000"]
    lines = [
        "s_set_gpr_idx_on s40, gpr_idx(SRC0)", f"v_mov_b32 v2, {a}", "s_mov_b32 s41, 1", "s_set_gpr_idx_idx s41",
        f"v_mov_b32 v3, {a}", "s_set_gpr_idx_idx s40", "s_set_gpr_idx_mode gpr_idx(DST)", f"v_mov_b32 v2, {b}",
        "s_set_gpr_idx_off", "v_mov_b32 v5, m0", "v_mov_b32 v6, v4",
    ]  # fmt: skip
    at = bench.case(lines, [*before, "v_mov_b32 v5, 0", "v_mov_b32 v6, 0"], dwords=5)
    both = ["s_set_gpr_idx_on s40, gpr_idx(SRC0,DST)", f"v_mov_b32 v2, {a}", "s_set_gpr_idx_off"]
    last = bench.case(both, before, dwords=3)
    planes = {p: np.arange(64, dtype=U32) + U32(1000 * k) for k, p in enumerate("abc", 1)}
    mask = 0x5A5A_1234_8001_F00F
    out = bench.launch()(planes, mask)
    on = np.array([mask >> i & 1 for i in range(64)], bool)
    for plane, value, old in (
        (at, planes["c"], 5), (at + 1, planes["b"], 7), (at + 2, planes["b"], 8), (at + 3, U32(0x78002), 0),
        (at + 4, planes["b"], 0), (last, U32(5), 5), (last + 1, U32(7), 7), (last + 2, planes["c"], 8),
    ):  # fmt: skip
        np.testing.assert_array_equal(out[plane], np.where(on, value, U32(old)))


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942"])
def test_the_index_mode_of_arithmetic(chip: str) -> None:
    """Assembly by hand converts and multiplies sums by index: the first source is M0 further on, pairs too; other sources are what they say."""
    bench = Bench(chip, {"a": 2, "b": 2, "c": 2}, masked=False)
    a, b = bench.reg("a"), bench.reg("b")
    first = a.split(":")[0].replace("v[", "v")
    lines = [
        "s_mov_b32 s40, 4", "s_set_gpr_idx_on s40, gpr_idx(SRC0)", f"v_pk_add_f32 v[2:3], {a}, {b}", f"v_cvt_f32_i32 v4, {first}",
        f"v_add_u32 v5, 7, {first}", "s_set_gpr_idx_off", f"v_cvt_f32_i32 v6, {first}",
    ]  # fmt: skip
    at = bench.case(lines, dwords=5)
    planes = {p: np.arange(128, dtype=np.float32).reshape(64, 2) * k + k for k, p in enumerate("abc", 1)}
    out = bench.launch()(planes)
    for k in range(2):
        np.testing.assert_array_equal(out[at + k].view(np.float32), planes["c"][:, k] + planes["b"][:, k])
    words = {p: v.view(np.int32)[:, 0] for p, v in planes.items()}
    np.testing.assert_array_equal(out[at + 2].view(np.float32), words["c"].astype(np.float32))
    np.testing.assert_array_equal(out[at + 3].view(np.int32), words["a"] + 7)
    np.testing.assert_array_equal(out[at + 4].view(np.float32), words["a"].astype(np.float32))


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942"])
def test_results_by_index(chip: str) -> None:
    """Assembly by hand writes one lane, or a sum, into a register by index, under a mask and with the first source by index as well; what the mask leaves out stays."""
    bench = Bench(chip, {"a": 1, "b": 1, "c": 1})
    a, b = bench.reg("a"), bench.reg("b")
    before = [f"v_mov_b32 v{k}, {k}" for k in range(2, 9)] + ["s_mov_b32 s40, 2", "s_mov_b32 s41, 77"]
    lines = [
        "s_set_gpr_idx_on s40, gpr_idx(DST)", "v_writelane_b32 v2, s41, 5", f"v_add_u32 v3, {a}, {b}",
        "s_set_gpr_idx_off", "s_mov_b32 s40, 1", "s_set_gpr_idx_on s40, gpr_idx(SRC0,DST)", f"v_add_u32 v5, {a}, {a}",
        "s_set_gpr_idx_off", "s_set_gpr_idx_on s40, gpr_idx(SRC0)", "v_add_u32 v8, v6, v6", "s_set_gpr_idx_off",
    ]  # fmt: skip
    at = bench.case(lines, before, dwords=7)
    planes = {p: np.arange(64, dtype=U32) + U32(1000 * k) for k, p in enumerate("abc", 1)}
    mask = 0x5A5A_1234_8001_F00F
    out = bench.launch()(planes, mask)
    on = np.array([mask >> i & 1 for i in range(64)], bool)
    want = [np.full(64, k, U32) for k in range(2, 9)]
    want[2][5] = 77  # v4, whatever the mask
    want[3] = np.where(on, planes["a"] + planes["b"], U32(5))
    want[4] = np.where(on, planes["b"] + planes["a"], U32(6))
    want[6] = np.where(on, U32(7) + want[4], U32(8))  # v7 by index and v6: one of two operands that are written alike
    for k, values in enumerate(want):
        np.testing.assert_array_equal(out[at + k], values, err_msg=f"v{2 + k}")


def test_loads_into_lds_beyond_64_kilobytes() -> None:
    """gfx950 has 160 KB: M0 says where in more than 16 bits."""
    bench = Bench("gfx950", {"a": 1}, masked=False)
    lines = ["s_mov_b32 m0, 0x12400", "global_load_lds_dword v1, s[30:31]", "v_add_u32 v3, 0x12400, v1", "s_waitcnt vmcnt(0)",
             "ds_read_b32 v2, v3", "s_waitcnt lgkmcnt(0)"]  # fmt: skip
    at = bench.case(lines, dwords=1)
    a = np.arange(64, dtype=U32) * U32(7)
    np.testing.assert_array_equal(bench.launch(lds=0x14000)({"a": a})[at], a)


def test_a_buffer_whose_resource_has_a_stride() -> None:
    """A stride counts for accesses by index, of which there are none; unless the lane's number is one (ADD_TID_ENABLE), which is refused."""
    resource = [
        "s_mov_b32 s44, s30",
        "s_and_b32 s45, s31, 0xffff",
        "s_or_b32 s45, s45, 0x40000",
        "s_mov_b32 s46, 0x80000000",
    ]
    for word, fine in (("0x20000", True), ("0x820000", False)):
        bench = Bench("gfx942", {"a": 1})
        at = bench.case(
            ["buffer_load_dword v2, v1, s[44:47], 0 offen", "s_waitcnt vmcnt(0)"],
            [*resource, f"s_mov_b32 s47, {word}"],
            dwords=1,
        )
        run, values = bench.launch(), {"a": np.arange(64, dtype=U32) * U32(3)}
        if fine:
            np.testing.assert_array_equal(run(values)[at], values["a"])
        else:
            with pytest.raises(EmulationError, match="stride"):
                run(values)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950"])
def test_preloaded_arguments(chip: str) -> None:
    """Arguments in SGPRs, as Triton and IREE ask for them: pointers and scalars, some loaded beside them."""
    ir = """define amdgpu_kernel void @k(ptr addrspace(1) inreg %p, i32 inreg %n, i32 inreg %m, ptr addrspace(1) inreg %q, i32 %r) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %a = getelementptr i32, ptr addrspace(1) %p, i32 %t
  %x = load i32, ptr addrspace(1) %a
  %y = mul i32 %x, %n
  %z = add i32 %y, %m
  %w = xor i32 %z, %r
  %b = getelementptr i32, ptr addrspace(1) %q, i32 %t
  store i32 %w, ptr addrspace(1) %b
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" }"""
    driver, kernel = function(ir, chip)
    assert kernel.info.kernarg_preload_dwords >= 4
    first = [i.op for i in kernel.text.insts[:4]]
    assert "s_branch" not in first and first.count("s_load_dword") <= 1, (
        "begun behind the loads for firmware that cannot preload"
    )
    lanes = LANES[chip]
    x = np.arange(lanes, dtype=U32)
    p, q = upload(driver, x), upload(driver, np.zeros_like(x))
    driver.launch(kernel, (1, 1, 1), (lanes, 1, 1), 0, struct.pack("<QiiQi", p, 3, 5, q, 9))
    np.testing.assert_array_equal(download(driver, q, x), (x * 3 + 5) ^ 9)


@thinned(1, ("chip", CHIPS), ("denormals", [0, 1, 2, 4, 8, 15]))
def test_mixed_floats_follow_the_mode(chip: str, denormals: int) -> None:
    """v_fma_mix: an operand's denormals by the field of its own type, the result's by its type's; FP16_OVFL for results in f16."""
    bench = Bench(chip, {"h": 1, "f": 1, "big": 1}, masked=False)
    h, f, big = (bench.reg(n) for n in ("h", "f", "big"))
    lines = [
        f"v_fma_mix_f32 v2, {h}, 1.0, 0 op_sel_hi:[1,0,0]",  # f16's denormals are normal as f32
        f"v_fma_mix_f32 v3, {f}, 1.0, 0",
        f"v_fma_mixlo_f16 v4, {h}, 1.0, 0 op_sel_hi:[1,0,0]",
        f"v_fma_mixlo_f16 v5, {big}, 1.0, 0",
    ]
    clear = [f"v_mov_b32 v{k}, 0" for k in (4, 5)]
    at = bench.case([_setreg(4, 4, denormals), _setreg(23, 1, 1), *clear, *lines, _setreg(23, 1, 0), _setreg(4, 4, 15), "v_mov_b32 v6, 0", lines[3].replace("v5", "v6")], dwords=5)  # fmt: skip
    halves = np.resize(np.array([0x0001, 0x83FF, 0x3C00, 0x0400], np.uint16), bench.lanes)
    singles = np.resize(TINY[np.array([0, 1, 2, 3, 4, 5])], bench.lanes)
    wide = np.resize(np.array([1e6, -1e6, np.inf, 1.0], F32), bench.lanes)
    out = bench.launch()({"h": halves.astype(U32), "f": singles, "big": wide.view(U32)})
    x = halves.view(np.float16)

    def f16(v: np.ndarray, keeps: int) -> np.ndarray:
        return (
            v
            if denormals & keeps
            else np.where(np.abs(v) < 2.0**-14, np.copysign(np.float16(0), v), v).astype(np.float16)
        )

    def f32(v: np.ndarray, keeps: int) -> np.ndarray:
        return v if denormals & keeps else _flush(v)

    with np.errstate(over="ignore"):
        plus = np.float32(0)  # a sum with +0 makes it of -0
        np.testing.assert_array_equal(out[at].view(F32), f16(x, 4).astype(F32) + plus)
        np.testing.assert_array_equal(out[at + 1].view(F32), f32(f32(singles.view(F32), 1) + plus, 2))
        want = f16(f16(x, 4) + np.float16(0), 8)
        np.testing.assert_array_equal(out[at + 2], want.view(np.uint16).astype(U32))
        near = wide.astype(np.float16)
        clamped = np.where(np.isinf(near) & np.isfinite(wide), np.copysign(np.float16(65504), near), near)
        np.testing.assert_array_equal(out[at + 3], clamped.view(np.uint16).astype(U32))
        np.testing.assert_array_equal(out[at + 4], near.view(np.uint16).astype(U32))


@pytest.mark.parametrize("chip", CHIPS)
def test_dot_products_take_denormals_of_f32_for_zero(chip: str) -> None:
    """v_dot2_f32_f16 in any mode; f16's denormals by theirs, bf16's sum by f32's."""
    bench = Bench(chip, {"h": 1, "c": 1}, masked=False)
    h, c = bench.reg("h"), bench.reg("c")
    text = f"{{}} v{{}}, {h}, {h}, {c}"
    at = bench.case(
        [text.format("v_dot2_f32_f16", 2), text.format("v_dot2_f32_bf16", 3), _setreg(4, 4, 0), text.format("v_dot2_f32_f16", 4), text.format("v_dot2_f32_bf16", 5), _setreg(4, 4, 15)],
        dwords=4,
    )  # fmt: skip
    halves = np.resize(np.array([0x0000, 0x00010001, 0x3C003C00], U32), bench.lanes)
    sums = np.resize(np.array([0x00000005, 0x00000005, 0x3F800000], U32), bench.lanes)
    out = bench.launch()({"h": halves, "c": sums})
    x, y = (halves & U32(0xFFFF)).astype(np.uint16).view(np.float16).astype(F32), sums.view(F32)
    flushed = np.where(np.abs(x) < 2.0**-14, F32(0), x)
    np.testing.assert_array_equal(out[at].view(F32), 2 * x * x + _flush(y))
    np.testing.assert_array_equal(out[at + 2].view(F32), 2 * flushed * flushed + _flush(y))
    b = (halves << U32(16)).view(F32)
    np.testing.assert_array_equal(out[at + 1].view(F32), 2 * b * b + y)
    np.testing.assert_array_equal(out[at + 3].view(F32), _flush(2 * b * b + _flush(y)))


def test_sdwa_of_two_results() -> None:
    """Two 8-bit floats of either half to f32, as AMD's paged attention spells it: as in the form of 64 bits."""
    bench = Bench("gfx942", {"a": 1}, masked=False)
    a = bench.reg("a")
    tail = "dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel"
    lines = [f"v_cvt_pk_f32_fp8_sdwa v[2:3], {a} {tail}:WORD_0", f"v_cvt_pk_f32_fp8_sdwa v[4:5], {a} {tail}:WORD_1"]
    both = [f"v_cvt_pk_f32_fp8_e64 v[6:7], {a}", f"v_cvt_pk_f32_fp8_e64 v[8:9], {a} op_sel:[1,0]"]
    at = bench.case([*lines, *both], dwords=8)
    out = bench.launch()({"a": np.arange(64, dtype=np.uint32) * np.uint32(0x04030201) + np.uint32(0x11223344)})
    for k in range(4):
        np.testing.assert_array_equal(out[at + k], out[at + 4 + k])
    assert len(set(out[at].tolist())) > 8 and (out[at] != out[at + 2]).any()
