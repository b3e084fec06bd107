"""Sums in matrix instructions to the bit: the published rules in exact arithmetic, and the probes of hardware that its authors print.

The reference here computes with fractions, from the description in MMA-Sim (arXiv 2511.10909); the probes of an MI300's fp8 instruction and what it
answered stand in that project's notebook (tests/probe/probe_amd_cdna3.ipynb).
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from tec.emulator import get_driver
from tec.emulator.isa.matrix import Mfma, parse_mfma
from tec.errors import DeviceError
from tests.thinned import thinned

from .harness import compile_ir, download, upload
from .test_matrix import _IR, number, registers, spread_inputs, spread_result

LEAST = {"f16": -14, "bf16": -126, "xf32": -126, "fp8": -7, "bf8": -15, "f32": -126}


def exponent(x: float, least: int) -> int:
    return max(math.frexp(x)[1] - 1, least) if x else least


def cut(x: Fraction, place: int, down: bool = False) -> Fraction:
    """To a multiple of 2**place, toward zero or downward."""
    scaled = x / Fraction(2) ** place
    return (Fraction(math.floor(scaled)) if down else Fraction(math.trunc(scaled))) * Fraction(2) ** place


def nearest(x: Fraction) -> float:
    """f32, ties to even, denormals kept."""
    if x == 0:
        return 0.0
    near = math.frexp(float(x))[1]
    unit = Fraction(2) ** max(near - 24, -149)
    value = round(x / unit) * unit  # Python rounds halves to even
    return float(value) if abs(value) < 2**128 else math.copysign(math.inf, value)


def truncated(a: list[float], b: list[float], kinds: tuple[str, str]) -> tuple[Fraction, int]:
    terms = [
        (Fraction(x) * Fraction(y), exponent(x, LEAST[kinds[0]]) + exponent(y, LEAST[kinds[1]]) if x * y else -126)
        for x, y in zip(a, b)
    ]
    top = max(e for _, e in terms)
    return sum((cut(p, top - 24) for p, _ in terms), Fraction(0)), top


def joined(total: Fraction, top: int, c: float, far: bool) -> float:
    own = exponent(c, -126)
    most = max(top, own)
    kept = Fraction(0) if far and own < most - 25 else cut(Fraction(c), most - 24, True)
    both = Fraction(float(cut(total, most - 52, True) + kept))
    if both == 0:
        return 0.0
    return nearest(cut(both, math.frexp(float(both))[1] - 1 - 31, True))


def aligned(a: list[float], b: list[float], c: float, kinds: tuple[str, str], group: int) -> float:
    for k in range(0, len(a), group):
        products = [x * y for x, y in zip(a[k : k + group], b[k : k + group])]
        odd = [p if abs(p) < 2.0**128 else math.copysign(math.inf, p) if p == p else p for p in products]
        if not all(map(math.isfinite, [*odd, c])):
            c = sum(odd) + c
            continue
        c = joined(*truncated(a[k : k + group], b[k : k + group], kinds), c, False)
    return c


def in_bytes(a: list[float], b: list[float], c: float, kinds: tuple[str, str], group: int = 16) -> float:
    for k in range(0, len(a), group):
        parts = [truncated(a[k + i : k + group : 2], b[k + i : k + group : 2], kinds) for i in (0, 1)]
        top = max(e for _, e in parts)
        c = joined(sum((cut(s, top - 24, True) for s, _ in parts), Fraction(0)), top, c, True)
    return c


def flushed(x: np.float32) -> np.float32:
    return np.float32(math.copysign(0.0, x)) if abs(x) < 2.0**-126 else x


def in_pairs(a: list[float], b: list[float], c: float, least: int, group: int) -> float:
    def zeroed(x: float, e: int) -> float:
        return 0.0 if abs(x) < 2.0**e else x

    total = np.float32(zeroed(c, -126))
    p = [flushed(np.float32(zeroed(x, least) * zeroed(y, least))) for x, y in zip(a, b)]
    for k in range(0, len(p), group):
        level = p[k : k + group]
        while len(level) > 1:
            level = [flushed(np.float32(x + y)) for x, y in zip(level[::2], level[1::2])]
        total = flushed(np.float32(total + level[0]))
    return float(total)


compiled = cache(compile_ir)


def run(chip: str, op: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, numerics: str = "chip") -> np.ndarray:
    """a, b, c: one row a lane, as registers."""
    shapes = {"A": registers(a.view(np.uint32).shape[1]), "C": registers(c.view(np.uint32).shape[1])}
    asm, image = compiled(_IR.format(text=f"{op} $0, $1, $2, $3", lanes=64, wave64="", **shapes), chip)
    driver = get_driver(chip, numerics=numerics)
    k = driver.get_function(driver.load_module(0, image, asm), "k")
    pa, pb, pc = upload(driver, a), upload(driver, b), upload(driver, c)
    driver.launch(k, (1, 1, 1), (64, 1, 1), 0, struct.pack("<QQQ", pa, pb, pc))
    return download(driver, pc, c)


def encode(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype({"f16": np.float16, "xf32": np.float32}[kind])


def decode(bits: np.ndarray, kind: str) -> np.ndarray:
    if kind == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == "xf32":
        return (bits.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64)
    return bits.astype(np.float64)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], spread: int, kind: str) -> np.ndarray:
    """Values over 2 * `spread` powers of two, some zeros and some denormals."""
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    x[rng.random(shape) < 0.1] = 0
    x = np.where(rng.random(shape) < 0.1, rng.integers(-9, 9, shape) * 2.0 ** (LEAST[kind] - 4), x)
    return x.astype(np.float32).astype(np.float64)


RULED = [
    ("gfx942", "v_mfma_f32_16x16x16_f16", 8), ("gfx942", "v_mfma_f32_32x32x8_bf16", 8), ("gfx942", "v_mfma_f32_4x4x4_16b_f16", 4),
    ("gfx942", "v_mfma_f32_16x16x8_xf32", 4), ("gfx942", "v_mfma_f32_16x16x4_4b_bf16", 4),
    ("gfx90a", "v_mfma_f32_16x16x16f16", 4), ("gfx90a", "v_mfma_f32_16x16x8bf16", 2), ("gfx90a", "v_mfma_f32_16x16x16bf16_1k", 4),
    ("gfx90a", "v_mfma_f32_4x4x4f16", 4),
]  # fmt: skip


def product(s: Mfma, A: np.ndarray, B: np.ndarray, C: np.ndarray, rule) -> np.ndarray:  # type: ignore[no-untyped-def]
    out = np.empty(C.shape, np.float32)
    for block, i, j in np.ndindex(C.shape):
        out[block, i, j] = rule(A[block, i].tolist(), B[block, :, j].tolist(), float(C[block, i, j]))
    return out


@thinned(1, ("chip, op, group", RULED), ("spread", [1, 6, 40]))
def test_sums_to_the_bit(chip: str, op: str, group: int, spread: int) -> None:
    s = parse_mfma(op)
    assert s is not None
    kind = s.source
    if kind == "f16":
        spread = min(spread, 12)
    rng = np.random.default_rng(spread)
    A, B = (
        encode(numbers(rng, (s.blocks, s.m, s.k), spread, kind), kind),
        encode(numbers(rng, (s.blocks, s.k, s.n), spread, kind), kind),
    )
    C = (
        rng.standard_normal((s.blocks, s.m, s.n)) * 2.0 ** rng.integers(-spread, spread + 1, (s.blocks, s.m, s.n))
    ).astype(np.float32)
    C[:, 0] = 0
    C[:, 1] = np.float32(2.0**-130)
    got = run(chip, op, *spread_inputs(s, A, B), spread_result(s, C))

    def rule(a: list[float], b: list[float], c: float) -> float:
        if chip == "gfx90a":
            return in_pairs(a, b, c, LEAST[kind], group)
        return aligned(a, b, c, (kind, kind), group)

    want = spread_result(s, product(s, decode(A, kind), decode(B, kind), C, rule))
    assert np.array_equal(got, want), np.argwhere(got != want)[:4]
    fma = run(chip, op, *spread_inputs(s, A, B), spread_result(s, C), numerics="fma")
    assert not np.array_equal(got, fma)  # the rule shows
    np.testing.assert_allclose(got, fma, rtol=1e-4, atol=1e-4 * float(np.abs(fma).max()))


@pytest.mark.parametrize("seed", range(3))
def test_large_accumulators_near_ties(seed: int) -> None:
    """Powers of two, whose sums often lie halfway between two results, or little beside: what the rule cuts off decides."""
    s = parse_mfma("v_mfma_f32_16x16x16_f16")
    assert s is not None
    rng = np.random.default_rng(seed)

    def powers(shape: tuple[int, ...], least: int, most: int) -> np.ndarray:
        return rng.choice([-1.0, 1.0], shape) * 2.0 ** rng.integers(least, most, shape)

    A, B = (encode(powers(shape, -12, 1), "f16") for shape in ((1, 16, 16), (1, 16, 16)))
    C = (powers((1, 16, 16), 3, 20) * (1 + rng.integers(0, 4, (1, 16, 16)) * 2.0**-23)).astype(np.float32)
    A[0, 5], C[0, 5, ::2] = 0, -0.0
    got = run("gfx942", s.name, *spread_inputs(s, A, B), spread_result(s, C))
    want = spread_result(
        s, product(s, decode(A, "f16"), decode(B, "f16"), C, lambda a, b, c: aligned(a, b, c, ("f16",) * 2, 8))
    )
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("op", ["v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x16_bf16"])
def test_infinities_and_nan(op: str) -> None:
    s = parse_mfma(op)
    assert s is not None
    A, B, C = np.ones((1, 16, 16)), np.ones((1, 16, 16)), np.zeros((1, 16, 16), np.float32)
    A[0, 0, 0], A[0, 1, 3], A[0, 2, 2], A[0, 2, 9] = np.inf, np.nan, np.inf, -np.inf
    C[0, 3], C[0, 4] = np.inf, np.nan
    big = 2.0**15 if s.source == "f16" else 2.0**64
    A[0, 5, 1], B[0, 1, :] = big, big
    got = run("gfx942", op, *spread_inputs(s, encode(A, s.source), encode(B, s.source)), spread_result(s, C))
    with np.errstate(invalid="ignore", over="ignore"):
        want = spread_result(s, (np.float64(C) + A @ B).astype(np.float32))
    assert np.array_equal(got, want, equal_nan=True)


@pytest.mark.parametrize("start", [-(2.0**-149), -(2.0**-100), 2.0**-149, -(2.0**36), 2.0**70])
def test_accumulators_of_any_size_beside_products(start: float) -> None:
    """Of those that are no 32-bit integer in the products' unit, and those that vanish when they are scaled to it, whose sign still counts."""
    s = parse_mfma("v_mfma_f32_16x16x16_bf16")
    assert s is not None
    rng = np.random.default_rng(3)
    A, B = (rng.integers(1, 9, (1, 16, 16)) * 2.0**20 for _ in "ab")
    # Of half of the rows the products are in pairs that leave nothing.
    A[:, :8, 1::2], B[:, 1::2] = (-A[:, :8, ::2], B[:, ::2])
    A, B = encode(A, "bf16"), encode(B, "bf16")
    C = np.full((1, 16, 16), start, np.float32)
    got = run("gfx942", s.name, *spread_inputs(s, A, B), spread_result(s, C))
    want = product(s, decode(A, "bf16"), decode(B, "bf16"), C, lambda a, b, c: aligned(a, b, c, ("bf16", "bf16"), 8))
    assert np.array_equal(got, spread_result(s, want))


@pytest.mark.parametrize("large", [1.0, 2.0**41, 2.0**44, 2.0**90])
def test_zeros_beside_factors_of_any_size(large: float) -> None:
    """Of zeros only, whichever signs they and the accumulator have, the sum is +0; beside a tiny accumulator they leave it as it is."""
    s = parse_mfma("v_mfma_f32_16x16x16_bf16")
    assert s is not None
    A, B = np.zeros((1, 16, 16)), np.full((1, 16, 16), -1.0 / large)
    A[0, 1, 3], A[0, 2] = large, -0.0
    A, B = encode(A, "bf16"), encode(B, "bf16")
    C = np.where(np.arange(16) % 2, -0.0, np.float32(-3 * 2.0**-149)) * np.ones((1, 16, 1), np.float32)
    C = C.astype(np.float32)
    got = run("gfx942", s.name, *spread_inputs(s, A, B), spread_result(s, C))
    want = product(s, decode(A, "bf16"), decode(B, "bf16"), C, lambda a, b, c: aligned(a, b, c, ("bf16", "bf16"), 8))
    np.testing.assert_array_equal(got.view(np.uint32), spread_result(s, want).view(np.uint32))


CODES = {number(x, "fp8", True): x for x in range(256) if x != 0x80}


def dot(a: dict[int, float], b: dict[int, float], c: float, full: float | None = None) -> float:
    """Result (0, 0) of gfx942's 16x16x32 fp8 instruction; factors not given are 0, or `full` and 2**-9."""
    s = parse_mfma("v_mfma_f32_16x16x32_fp8_fp8")
    assert s is not None
    A, B, C = np.zeros((1, 16, 32), np.uint8), np.zeros((1, 32, 16), np.uint8), np.zeros((1, 16, 16), np.float32)
    for k in range(32):
        A[0, 0, k], B[0, k, 0] = CODES[a.get(k, full or 0.0)], CODES[b.get(k, full or 0.0)]
    C[0, 0, 0] = c
    got = run("gfx942", s.name, *spread_inputs(s, A, B), spread_result(s, C))
    assert s.place(0, 0) == (0, 0, 0)
    return float(got[0, 0])


U, V = 2.0**7, 2.0**-5


def test_probes_of_the_order() -> None:
    """A large product and its negative erase the small ones of their group of 16, and no others."""
    small = 2.0**-9
    for i, j, left in ((1, 0, 16), (9, 3, 16), (15, 14, 16), (17, 16, 0), (31, 5, 0), (20, 2, 0)):
        assert dot({i: U, j: U}, {i: U, j: -U}, small * small, small) / (small * small) == left, (i, j)
    assert dot({4: U}, {4: -U}, U * U, small) / (small * small) == 16
    assert dot({20: U}, {20: -U}, U * U, small) == 0


@pytest.mark.parametrize(("first", "second", "third", "answers"), [
    (0, 2, 4, [0, 0, 0, 0, 0, 2.0**-10, 0, -(2.0**-10)]),  # among the even: toward zero
    (1, 3, 5, [0, 0, 0, 0, 0, 2.0**-10, 0, -(2.0**-10)]),
    (0, 2, 1, [0, 0, -(2.0**-10), -(2.0**-10), 0, 2.0**-10, -(2.0**-10), -(2.0**-9)]),  # the odd to the even: downward
    (1, 3, 0, [0, 0, -(2.0**-10), -(2.0**-10), 0, 2.0**-10, -(2.0**-10), -(2.0**-9)]),
])  # fmt: skip
def test_probes_of_rounding_among_products(first: int, second: int, third: int, answers: list[float]) -> None:
    for s, answer in zip((0.25, 0.75, -0.25, -0.75, 0.5, 1.5, -0.5, -1.5), answers):
        assert dot({first: U, second: U, third: s * V}, {first: U, second: -U, third: V}, 0.0) == answer, s


def test_probes_of_the_accumulator() -> None:
    answers = {
        0.25: 0,
        0.75: 0,
        -0.25: 0,
        -0.75: -(2.0**-10),
        0.5: 0,
        1.5: 2.0**-10,
        -0.5: -(2.0**-10),
        -1.5: -(2.0**-9),
        -1.0: -(2.0**-10),
        -0.125: 0,
    }
    for s, answer in answers.items():
        assert dot({0: U, 2: U}, {0: U, 2: -U}, s * V * V) == answer, s
    for e in range(20, 30):
        answer = {25: "0x1.fffffep+13"}.get(e, (2.0**14 - 2.0 ** (14 - e)).hex() if e < 25 else "0x1.0p+14")
        assert dot({0: U}, {0: U}, -U * U * 2.0**-e) == float.fromhex(answer), e
        assert dot({0: U / 2, 1: U / 2}, {0: U, 1: U}, -U * U * 2.0**-e) == (
            2.0**14 - 2.0 ** (14 - e) if e < 25 else 2.0**14
        ), e


def test_probes_of_the_result() -> None:
    quarter = {0: U / 4, 2: U / 4, 4: U / 4, 6: U / 4}
    for s, answer in ((0.25, "0x1p+14"), (0.75, "0x1.000002p+14"), (0.5, "0x1p+14"), (1.5, "0x1.000004p+14")):
        assert dot(quarter, dict.fromkeys(quarter, U), s * V * 2.0**-4) == float.fromhex(answer), s
        assert dot(quarter, dict.fromkeys(quarter, -U), -s * V * 2.0**-4) == -float.fromhex(answer), -s
    for e in range(10):  # how far below the accumulator a product's bits are heeded
        b = {0: 1.0, 2: 2.0 ** -(e // 2)}
        a = {0: 1.0, 2: 2.0 ** -(e // 2) * (0.5 if e % 2 else 1.0)}
        assert dot(a, b, 2.0**24) == float.fromhex("0x1.000002p+24" if e < 8 else "0x1p+24"), e
        assert dot({0: 1.0, 1: 2.0 ** -min(e, 9)}, {0: 1.0, 1: 1.0}, float.fromhex("0x1.000008p24")) == float.fromhex("0x1.00000ap+24" if e < 8 else "0x1.000008p+24"), e  # fmt: skip
        assert dot({0: 10.0, 1: 2.0**-e}, {0: 1.0, 1: 1.0}, float.fromhex("0x1.fffff8p24")) == float.fromhex(
            "0x1.000002p+25" if e < 7 else "0x1p+25"
        ), e


@pytest.mark.parametrize("op", ["v_mfma_f32_16x16x32_fp8_fp8", "v_mfma_f32_32x32x16_bf8_fp8"])
def test_bytes_to_the_bit(op: str) -> None:
    s = parse_mfma(op)
    assert s is not None
    tables = [np.array([number(x, k, True) for x in range(256)]) for k in s.sources]
    rng = np.random.default_rng(5)
    A, B = (rng.integers(0, 256, shape).astype(np.uint8) for shape in ((1, s.m, s.k), (1, s.k, s.n)))
    A[A == 0x80], B[B == 0x80] = 0, 0
    C = (rng.standard_normal((1, s.m, s.n)) * 2.0 ** rng.integers(-12, 25, (1, s.m, s.n))).astype(np.float32)
    got = run("gfx942", op, *spread_inputs(s, A, B), spread_result(s, C))
    want = product(s, tables[0][A], tables[1][B], C, lambda a, b, c: in_bytes(a, b, c, s.sources))
    assert np.array_equal(got, spread_result(s, want))


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(DeviceError, match="no numerics called 'exact'"):
        get_driver("gfx942", numerics="exact")
