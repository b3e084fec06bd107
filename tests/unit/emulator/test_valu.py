"""Vector opcodes against NumPy, over random and special values, whole and partial EXEC."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from .harness import LANES, Job, ask, asked, run_asked, run_instruction  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("asked")

CHIPS = ("gfx90a", "gfx942", "gfx1100")
U32, I32, U64, I64 = np.uint32, np.int32, np.uint64, np.int64
F16, F32, F64 = np.float16, np.float32, np.float64
RNG = np.random.default_rng(7)

_SPECIAL = {
    F32: [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-40, 3.4e38, -3.4e38, 1.17549435e-38, 0.5, 2.5, 3.5, 65504],
    F64: [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, -1e-310, 1.7e308, -1.7e308, 2.2250738585072014e-308, 0.5, 2.5],
    F16: [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 6e-8, -6e-6, 65504, -65504, 6.1e-5, 0.5, 2.5, 3.5],
    I32: [0, 1, -1, 2**31 - 1, -(2**31), 255, 256, 0x7F, -128, 31, 32, 33, 64, 0x10001],
}  # fmt: skip


def values(kind: type, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind in (F16, F32, F64):
        a = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)).astype(kind)
        s = np.array(_SPECIAL[kind], kind)
    elif kind in (I32, U32):
        a = rng.integers(-(2**31), 2**31, n).astype(I32).view(kind)
        s = np.array(_SPECIAL[I32], I32).view(kind)
    elif kind in (np.int16, np.uint16):
        a = rng.integers(-(2**15), 2**15, n).astype(np.int16).view(kind)
        s = np.array([0, 1, -1, 32767, -32768, 15, 16], np.int16).view(kind)
    else:
        a = rng.integers(-(2**63), 2**63, n).astype(I64).view(kind)
        s = np.array([0, 1, -1, 2**63 - 1, -(2**63), 63, 64], I64).view(kind)
    places = rng.permutation(n)[: min(len(s), n * 3 // 4)]
    a[places] = rng.permutation(s)[: len(places)]
    return a


def as_register(a: np.ndarray) -> np.ndarray:
    """16-bit values in the low half of a register, junk above."""
    if a.dtype.itemsize == 2:
        return a.view(np.uint16).astype(U32) | np.uint32(0xABCD0000)
    return a.view(U32 if a.dtype.itemsize == 4 else U64)


def same(got: np.ndarray, want: np.ndarray, ulps: int = 0) -> np.ndarray:
    """Equal bits, or both NaN, or floats within `ulps`."""
    kind = want.dtype
    if kind.kind != "f":
        return got == want.view(got.dtype)
    bits = got.astype(np.uint16).view(kind) if kind == F16 else got.view(kind)
    integer = {2: np.int16, 4: np.int32, 8: np.int64}[kind.itemsize]
    equal = (bits.view(integer) == want.view(integer)) | (np.isnan(bits) & np.isnan(want))
    if ulps:
        distance = np.abs(bits.view(integer).astype(object) - want.view(integer).astype(object))
        equal |= np.array([d <= ulps for d in distance]) & ~np.isnan(want)
    return equal


def check(
    chip: str, op: str, kinds: list[type], out: type, reference, text: str = "", ulps: int = 0, preserve=None
) -> None:
    """Ask that an opcode gives what the reference gives, for five sets of values and four masks of lanes."""
    lanes = LANES[chip]
    with np.errstate(all="ignore"):
        # Always a mask, so that an instruction is compiled once: the kernel writes EXEC for some in any case.
        whole = (1 << lanes) - 1
        for seed, mask in ((1, whole), (2, whole), (3, whole), (4, 0x5A5A_1234_8001_F00F & whole), (5, 0)):
            sources = [values(k, lanes, seed * 10 + i) for i, k in enumerate(kinds)]
            want = np.asarray(reference(*sources)).astype(out)
            wide = 8 if want.dtype.itemsize == 8 else 4
            old = np.full(lanes, 0xDEADBEEF, U32) if wide == 4 else np.full(lanes, 0x1122334455667788, U64)
            places = ", ".join(f"${i}" for i in range(len(kinds) + 1))
            job = Job(text or f"{op} {places}", [as_register(s) for s in sources], old, mask)
            ask(chip, job, partial(verify, chip, op, job, sources, want, ulps, preserve))


def verify(chip: str, op: str, job: Job, sources, want: np.ndarray, ulps: int, preserve, got: np.ndarray) -> None:
    mask, old = job.mask, job.old
    on = np.array([mask is None or bool(mask >> l & 1) for l in range(LANES[chip])])
    assert (got[~on] == old[~on]).all(), f"{op}: a lane that is off was written"
    value = got
    if want.dtype.itemsize == 2:
        value = (got & np.uint32(0xFFFF)).astype(U32)
        high = (got >> np.uint32(16))[on]
        keeps = chip.startswith("gfx11") or preserve
        assert (high == (0xDEAD if keeps else 0)).all(), f"{op}: upper half {high[:4]}"
        good = same(value, want, ulps) if want.dtype == F16 else value == want.view(np.uint16)
    else:
        good = same(value, want, ulps)
    bad = np.flatnonzero(on & ~good)
    assert not len(bad), (
        f"{op} on {chip}: lane {bad[0]}: sources {[s[bad[0]] for s in sources]}, want {want[bad[0]]!r}, got {value[bad[0]]:#x}"
    )


def test_a_wrong_result_is_noticed() -> None:
    check("gfx942", "v_add_u32", [U32] * 2, U32, lambda a, b: a + b)
    check("gfx942", "v_sub_u32", [U32] * 2, U32, lambda a, b: a + b)
    with pytest.raises(AssertionError, match="v_sub_u32 on gfx942: lane"):
        run_asked()


def u(a):
    return a.astype(object)


def wrap(a, bits: int = 32):
    mask = (1 << bits) - 1
    return np.array([int(x) & mask for x in a], object).astype(U64 if bits == 64 else U32)


def sgn(a, bits: int = 32):
    return np.array([int(x) - (1 << bits) if int(x) >> (bits - 1) & 1 else int(x) for x in a], object)


def clip_to(a, lo: int, hi: int):
    return wrap([max(lo, min(hi, int(x))) for x in a])


INT = {
    "v_and_b32": (2, lambda a, b: a & b),
    "v_or_b32": (2, lambda a, b: a | b),
    "v_xor_b32": (2, lambda a, b: a ^ b),
    "v_not_b32": (1, lambda a: ~a),
    "v_mov_b32": (1, lambda a: a),
    "v_xnor_b32": (2, lambda a, b: ~(a ^ b)),
    "v_lshlrev_b32": (2, lambda s, a: a << (s & np.uint32(31))),
    "v_lshrrev_b32": (2, lambda s, a: a >> (s & np.uint32(31))),
    "v_ashrrev_i32": (2, lambda s, a: (a.view(I32) >> (s & np.uint32(31)).view(I32)).view(U32)),
    "v_mul_lo_u32": (2, lambda a, b: a * b),
    "v_mul_hi_u32": (2, lambda a, b: wrap((u(a) * u(b)) >> 32)),
    "v_mul_hi_i32": (2, lambda a, b: wrap((sgn(a) * sgn(b)) >> 32)),
    "v_mul_u32_u24": (2, lambda a, b: wrap((u(a) & 0xFFFFFF) * (u(b) & 0xFFFFFF))),
    "v_mul_i32_i24": (2, lambda a, b: wrap(sgn(u(a) & 0xFFFFFF, 24) * sgn(u(b) & 0xFFFFFF, 24))),
    "v_mad_u32_u24": (3, lambda a, b, c: wrap((u(a) & 0xFFFFFF) * (u(b) & 0xFFFFFF) + u(c))),
    "v_mad_i32_i24": (3, lambda a, b, c: wrap(sgn(u(a) & 0xFFFFFF, 24) * sgn(u(b) & 0xFFFFFF, 24) + u(c))),
    "v_lshl_add_u32": (3, lambda a, s, c: (a << (s & np.uint32(31))) + c),
    "v_add_lshl_u32": (3, lambda a, b, s: (a + b) << (s & np.uint32(31))),
    "v_lshl_or_b32": (3, lambda a, s, c: (a << (s & np.uint32(31))) | c),
    "v_and_or_b32": (3, lambda a, b, c: (a & b) | c),
    "v_or3_b32": (3, lambda a, b, c: a | b | c),
    "v_xad_u32": (3, lambda a, b, c: (a ^ b) + c),
    "v_add3_u32": (3, lambda a, b, c: a + b + c),
    "v_bfi_b32": (3, lambda m, a, b: (m & a) | (~m & b)),
    "v_bfm_b32": (2, lambda w, s: wrap([((1 << (int(x) & 31)) - 1) << (int(y) & 31) for x, y in zip(w, s)])),
    "v_bfe_u32": (3, lambda a, o, w: wrap([(int(x) >> (int(y) & 31)) & ((1 << (int(z) & 31)) - 1) for x, y, z in zip(a, o, w)])),
    "v_bfe_i32": (
        3,
        lambda a, o, w: wrap([_bfe_i(int(x), int(y) & 31, int(z) & 31) for x, y, z in zip(sgn(a), o, w)]),
    ),
    "v_bfrev_b32": (1, lambda a: wrap([int(f"{int(x):032b}"[::-1], 2) for x in a])),
    "v_bcnt_u32_b32": (2, lambda a, b: wrap([bin(int(x)).count("1") + int(y) for x, y in zip(a, b)])),
    "v_min_u32": (2, np.minimum),
    "v_max_u32": (2, np.maximum),
    "v_min_i32": (2, lambda a, b: np.minimum(a.view(I32), b.view(I32)).view(U32)),
    "v_max_i32": (2, lambda a, b: np.maximum(a.view(I32), b.view(I32)).view(U32)),
    "v_min3_i32": (3, lambda a, b, c: np.minimum(np.minimum(a.view(I32), b.view(I32)), c.view(I32)).view(U32)),
    "v_max3_u32": (3, lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_med3_i32": (3, lambda a, b, c: np.sort(np.stack([x.view(I32) for x in (a, b, c)]), 0)[1].view(U32)),
    "v_med3_u32": (3, lambda a, b, c: np.sort(np.stack([a, b, c]), 0)[1]),
    "v_alignbit_b32": (3, lambda a, b, s: wrap([((int(x) << 32 | int(y)) >> (int(z) & 31)) for x, y, z in zip(a, b, s)])),
    "v_perm_b32": (3, lambda a, b, s: wrap([_perm(int(x), int(y), int(z)) for x, y, z in zip(a, b, s)])),
    "v_sad_u8": (3, lambda a, b, c: wrap([int(z) + sum(abs((int(x) >> i & 255) - (int(y) >> i & 255)) for i in (0, 8, 16, 24)) for x, y, z in zip(a, b, c)])),
    "v_cvt_pk_i16_i32": (2, lambda a, b: wrap([max(-32768, min(32767, x)) & 0xFFFF | (max(-32768, min(32767, y)) & 0xFFFF) << 16 for x, y in zip(sgn(a), sgn(b))])),
    "v_cvt_pk_u16_u32": (2, lambda a, b: np.minimum(a, 65535) | np.minimum(b, 65535) << np.uint32(16)),
}  # fmt: skip


def _bfe_i(a: int, offset: int, width: int) -> int:
    if width == 0:
        return 0
    field = (a >> offset) & ((1 << width) - 1)
    top = min(width, 32 - offset)
    field &= (1 << top) - 1
    return field - (1 << top) if field >> (top - 1) & 1 else field


def _perm(a: int, b: int, s: int) -> int:
    source = (a << 32 | b).to_bytes(8, "little")
    out = 0
    for i in range(4):
        k = s >> (8 * i) & 255
        if k < 8:
            byte = source[k]
        elif k < 12:
            byte = 255 if source[(1, 3, 5, 7)[k - 8]] >> 7 else 0
        else:
            byte = 0 if k == 12 else 255
        out |= byte << (8 * i)
    return out


@pytest.mark.parametrize("chip", CHIPS)
def test_integer_opcodes(chip: str) -> None:
    for op, (n, reference) in INT.items():
        check(chip, op, [U32] * n, U32, reference)


@pytest.mark.parametrize(
    ("chip", "op", "reference"),
    [
        ("gfx942", "v_add_u32", lambda a, b: a + b),
        ("gfx942", "v_sub_u32", lambda a, b: a - b),
        ("gfx942", "v_subrev_u32", lambda a, b: b - a),
        ("gfx1100", "v_add_nc_u32", lambda a, b: a + b),
        ("gfx1100", "v_sub_nc_u32", lambda a, b: a - b),
        ("gfx1100", "v_xor3_b32", None),
        ("gfx942", "v_ffbh_u32", lambda a: wrap([32 - int(x).bit_length() if x else -1 for x in a])),
        ("gfx1100", "v_clz_i32_u32", lambda a: wrap([32 - int(x).bit_length() if x else -1 for x in a])),
        ("gfx942", "v_ffbl_b32", lambda a: wrap([(int(x) & -int(x)).bit_length() - 1 for x in a])),
        ("gfx942", "v_dot4_i32_i8", lambda a, b, c: wrap([int(z) + sum(p * q for p, q in zip(_bytes(x), _bytes(y))) for x, y, z in zip(a, b, c)])),
    ],
)  # fmt: skip
def test_renamed_and_single_chip(chip: str, op: str, reference) -> None:
    if reference is None:
        check(chip, op, [U32] * 3, U32, lambda a, b, c: a ^ b ^ c)
    else:
        check(chip, op, [U32] * reference.__code__.co_argcount, U32, reference)


def _bytes(x) -> list[int]:
    return [v - 256 if v > 127 else v for v in int(x).to_bytes(4, "little")]


def test_clamped_integers() -> None:
    check(
        "gfx942",
        "v_add_u32 clamp",
        [U32] * 2,
        U32,
        lambda a, b: clip_to(u(a) + u(b), 0, 2**32 - 1),
        "v_add_u32 $0, $1, $2 clamp",
    )
    check("gfx942", "v_sub_i32 clamp", [U32] * 2, U32, lambda a, b: clip_to(sgn(a) - sgn(b), -(2**31), 2**31 - 1), "v_sub_i32 $0, $1, $2 clamp")  # fmt: skip


@pytest.mark.parametrize(("name", "bits", "signed"), [("v_dot4_i32_i8", 8, True), ("v_dot4_u32_u8", 8, False), ("v_dot8_i32_i4", 4, True),
    ("v_dot8_u32_u4", 4, False), ("v_dot2_i32_i16", 16, True), ("v_dot2_u32_u16", 16, False)])  # fmt: skip
def test_dots_saturate_at_either_end(name: str, bits: int, signed: bool) -> None:
    low, high = (-(2**31), 2**31 - 1) if signed else (0, 2**32 - 1)

    def field(x, i):
        v = u(x) >> bits * i & (1 << bits) - 1
        return sgn(v, bits) if signed else v

    def dot(a, b, c):
        total = (sgn(c) if signed else u(c)) + sum(field(a, i) * field(b, i) for i in range(32 // bits))
        return clip_to(total, low, high)

    check("gfx942", f"{name} clamp", [U32] * 3, U32, dot, f"{name} $0, $1, $2, $3 clamp")


@pytest.mark.parametrize("chip", CHIPS)
def test_carries(chip: str) -> None:
    add, addc = ("v_add_co_u32", "v_addc_co_u32") if chip != "gfx1100" else ("v_add_co_u32", "v_add_co_ci_u32")
    vcc = "vcc" if chip != "gfx1100" else "vcc_lo"
    text = f"{add} $0, {vcc}, $1, $2\\0A{addc} $0, {vcc}, $1, $1, {vcc}"
    check(
        chip,
        "carry chain",
        [U32] * 2,
        U32,
        lambda a, b: wrap(2 * u(a) + [int(x) + int(y) >> 32 for x, y in zip(a, b)]),
        text,
    )


WIDE = {
    "v_lshlrev_b64": ([U32, U64], lambda s, a: a << (s & np.uint32(63)).astype(U64)),
    "v_lshrrev_b64": ([U32, U64], lambda s, a: a >> (s & np.uint32(63)).astype(U64)),
    "v_ashrrev_i64": ([U32, U64], lambda s, a: (a.view(I64) >> (s & np.uint32(63)).astype(I64)).view(U64)),
}


@pytest.mark.parametrize("chip", CHIPS)
def test_wide_integers(chip: str) -> None:
    for op, (kinds, reference) in WIDE.items():
        check(chip, op, kinds, U64, reference)
    if chip == "gfx942":
        check(chip, "v_lshl_add_u64", [U64, U32, U64], U64, lambda a, s, c: (a << (s & np.uint32(3)).astype(U64)) + c,
              "v_and_b32 $2, 3, $2\\0Av_lshl_add_u64 $0, $1, $2, $3")  # fmt: skip
    mad = "v_mad_u64_u32 $0, vcc, $1, $2, $3" if chip != "gfx1100" else "v_mad_u64_u32 $0, vcc_lo, $1, $2, $3"
    check(chip, "v_mad_u64_u32", [U32, U32, U64], U64, lambda a, b, c: a.astype(U64) * b + c, mad)


def fmin(a, b):
    return np.where(
        np.isnan(a), b, np.where(np.isnan(b), a, np.where((a == b) & np.signbit(a), a, np.where(a < b, a, b)))
    )


def fmax(a, b):
    return np.where(
        np.isnan(a), b, np.where(np.isnan(b), a, np.where((a == b) & np.signbit(a), b, np.where(a > b, a, b)))
    )


def exact_fma(kind: type):
    """Through fractions: one rounding."""
    from fractions import Fraction

    def one(a, b, c):
        if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
            return kind(np.float64(a) * np.float64(b) + np.float64(c))
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        if exact == 0:
            return kind(np.float64(a) * np.float64(b) + np.float64(c)) if kind != F64 else kind(a * b + c)
        return round_fraction(exact, kind)

    return lambda a, b, c: np.array([one(x, y, z) for x, y, z in zip(a, b, c)], kind)


def round_fraction(value, kind: type):
    """To nearest even, denormals and overflow included."""
    bits, emin = {F16: (11, -14), F32: (24, -126), F64: (53, -1022)}[kind]
    sign = -1 if value < 0 else 1
    value = abs(value)
    exponent = max(emin, math.floor(math.log2(value.numerator) - math.log2(value.denominator)))
    for e in (exponent - 1, exponent, exponent + 1):
        if e >= emin and (value < 2 ** (e + 1) or e == exponent + 1):
            exponent = e
            break
    from fractions import Fraction

    unit = Fraction(2) ** (exponent - bits + 1)
    n = value / unit
    whole = n.numerator // n.denominator
    rest = n - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1):
        whole += 1
    result = whole * unit
    top = {F16: 65504, F32: float(np.finfo(F32).max), F64: float(np.finfo(F64).max)}[kind]
    if result > Fraction(top):
        return kind(sign * np.inf)
    return kind(sign * float(result))


FLOAT = {
    "v_add_{}": (2, lambda a, b: a + b),
    "v_mul_{}": (2, lambda a, b: a * b),
    "v_min_{}": (2, fmin),
    "v_max_{}": (2, fmax),
    "v_floor_{}": (1, np.floor),
    "v_ceil_{}": (1, np.ceil),
    "v_trunc_{}": (1, np.trunc),
    "v_rndne_{}": (1, np.rint),
}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", [F16, F32, F64], ids=["f16", "f32", "f64"])
def test_float_opcodes(chip: str, kind: type) -> None:
    t = {F16: "f16", F32: "f32", F64: "f64"}[kind]
    for name, (n, reference) in FLOAT.items():
        check(chip, name.format(t), [kind] * n, kind, reference)
    if kind != F64:
        check(chip, f"v_sub_{t}", [kind] * 2, kind, lambda a, b: a - b)
        check(chip, f"v_subrev_{t}", [kind] * 2, kind, lambda a, b: b - a)
    check(chip, f"v_fma_{t}", [kind] * 3, kind, exact_fma(kind), preserve=kind == F16)


@pytest.mark.parametrize("chip", CHIPS)
def test_float_modifiers(chip: str) -> None:
    check(chip, "neg, abs", [F32] * 2, F32, lambda a, b: -a + np.abs(b), "v_add_f32 $0, -$1, |$2|")
    check(chip, "-|x|", [F32] * 2, F32, lambda a, b: a * -np.abs(b), "v_mul_f32 $0, $1, -|$2|")
    clamp = lambda x: np.where(x > 0, np.where(x < 1, x, 1), 0)  # noqa: E731
    check(chip, "clamp", [F32] * 2, F32, lambda a, b: clamp(a + b), "v_add_f32 $0, $1, $2 clamp")
    check(chip, "inline constants", [F32], F32, lambda a: a * np.float32(0.15915494), "v_mul_f32 $0, 0.15915494, $1")
    check(chip, "literal", [F32], F32, lambda a: a * np.float32(3.1415927), "v_mul_f32 $0, 0x40490fdb, $1")
    check(chip, "integer inline", [U32], U32, lambda a: a & np.uint32(0xFFFFFFF0), "v_and_b32 $0, -16, $1")
    check(chip, "f64 literal", [F64], F64, lambda a: a * 100.0, "v_mul_f64 $0, 0x40590000, $1")
    check(chip, "f64 neg", [F64] * 2, F64, lambda a, b: a - b, "v_add_f64 $0, $1, -$2")


@pytest.mark.parametrize("chip", CHIPS)
def test_transcendental(chip: str) -> None:
    flush = lambda x: np.where(np.abs(x) < np.finfo(F32).tiny, np.copysign(F32(0), x), x)  # noqa: E731
    f = lambda fn: lambda a: flush(fn(flush(a).astype(F64)).astype(F32))  # noqa: E731
    check(chip, "v_exp_f32", [F32], F32, f(np.exp2), ulps=1)
    check(chip, "v_log_f32", [F32], F32, f(np.log2), ulps=1)
    check(chip, "v_rcp_f32", [F32], F32, f(lambda x: 1 / x), ulps=1)
    check(chip, "v_rsq_f32", [F32], F32, f(lambda x: 1 / np.sqrt(x)), ulps=1)
    check(chip, "v_sqrt_f32", [F32], F32, f(np.sqrt), ulps=1)
    turns = lambda fn: lambda a: fn(2 * np.pi * (a.astype(F64) - np.rint(a.astype(F64)))).astype(F32)  # noqa: E731

    def close(op: str, fn) -> None:
        lanes = LANES[chip]
        a = np.random.default_rng(3).uniform(-3, 3, lanes).astype(F32)
        got = run_instruction(chip, f"{op} $0, $1", [a.view(U32)], np.zeros(lanes, U32)).view(F32)
        assert np.abs(got - fn(a)).max() < 2e-7

    close("v_sin_f32", turns(np.sin))
    close("v_cos_f32", turns(np.cos))


def test_conversions() -> None:
    chip = "gfx942"

    def to_int(lo: int, hi: int, bits: int = 32):
        return lambda a: wrap(
            [
                0 if np.isnan(x) else max(lo, min(hi, math.trunc(x) if np.isfinite(x) else (hi if x > 0 else lo)))
                for x in a.astype(F64)
            ]
        )

    check(chip, "v_cvt_f32_i32", [U32], F32, lambda a: a.view(I32).astype(F32))
    check(chip, "v_cvt_f32_u32", [U32], F32, lambda a: a.astype(F32))
    check(chip, "v_cvt_i32_f32", [F32], U32, to_int(-(2**31), 2**31 - 1))
    check(chip, "v_cvt_u32_f32", [F32], U32, to_int(0, 2**32 - 1))
    check(chip, "v_cvt_i32_f64", [F64], U32, to_int(-(2**31), 2**31 - 1))
    check(chip, "v_cvt_f64_i32", [U32], F64, lambda a: a.view(I32).astype(F64))
    check(chip, "v_cvt_f64_u32", [U32], F64, lambda a: a.astype(F64))
    check(chip, "v_cvt_f64_f32", [F32], F64, lambda a: a.astype(F64))
    check(chip, "v_cvt_f32_f64", [F64], F32, lambda a: a.astype(F32))
    check(chip, "v_cvt_f16_f32", [F32], F16, lambda a: a.astype(F16))
    check(chip, "v_cvt_f32_f16", [F16], F32, lambda a: a.astype(F32))
    for i in range(4):
        check(
            chip,
            f"v_cvt_f32_ubyte{i}",
            [U32],
            F32,
            lambda a, i=i: ((a >> np.uint32(8 * i)) & np.uint32(255)).astype(F32),
        )

    def rtz(x: float) -> int:
        h = F16(x)
        if np.isfinite(x) and (np.isinf(h) or abs(float(h)) > abs(float(x))):
            h = np.nextafter(h, F16(0)) if np.isfinite(h) else np.copysign(F16(65504), F16(x))
        return int(h.view(np.uint16))

    def pkrtz(a, b):
        return wrap([rtz(x) | rtz(y) << 16 for x, y in zip(np.where(np.isnan(a), 0, a), np.where(np.isnan(b), 0, b))])

    check(chip, "v_cvt_pkrtz_f16_f32", [F32] * 2, U32, pkrtz,
          "v_max_f32 $1, $1, $1\\0Av_cmp_u_f32 vcc, $1, $1\\0Av_cndmask_b32 $1, $1, 0, vcc\\0A"
          "v_cmp_u_f32 vcc, $2, $2\\0Av_cndmask_b32 $2, $2, 0, vcc\\0Av_cvt_pkrtz_f16_f32 $0, $1, $2")  # fmt: skip


@pytest.mark.parametrize(("t", "kind"), [("f16", F16), ("f32", F32), ("f64", F64)])
def test_frexp_and_ldexp(t: str, kind: type) -> None:
    chip = "gfx942"
    clean = lambda a: np.where(np.isfinite(a), a, 0)  # noqa: E731

    def mantissa(a):
        return np.where(np.isfinite(a), np.frexp(clean(a))[0], a)

    check(chip, f"v_frexp_mant_{t}", [kind], kind, mantissa)
    if kind == F16:
        check(chip, "v_frexp_exp_i16_f16", [kind], np.int16, lambda a: np.frexp(clean(a))[1])
    else:
        check(chip, f"v_frexp_exp_i32_{t}", [kind], U32, lambda a: np.frexp(clean(a))[1].astype(I32).view(U32))
        check(chip, f"v_ldexp_{t}", [kind, U32], kind, lambda a, e: np.ldexp(a, np.clip(e.view(I32), -5000, 5000)))


def test_divide_by_steps() -> None:
    """The sequence that LLVM expands an f32 or f64 division to gives the correctly rounded quotient."""
    from .harness import download, function, upload

    for t, kind in (("float", F32), ("double", F64)):
        ir = f"""define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %o) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {t}, ptr addrspace(1) %a, i32 %t
  %pb = getelementptr {t}, ptr addrspace(1) %b, i32 %t
  %po = getelementptr {t}, ptr addrspace(1) %o, i32 %t
  %x = load {t}, ptr addrspace(1) %pa
  %y = load {t}, ptr addrspace(1) %pb
  %r = fdiv {t} %x, %y
  store {t} %r, ptr addrspace(1) %po
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="1,1024" "amdgpu-no-implicitarg-ptr" }}"""
        n = 1024
        rng = np.random.default_rng(5)
        bits = {F32: U32, F64: U64}[kind]
        a = rng.integers(0, 2 ** (8 * np.dtype(kind).itemsize), n, dtype=bits).view(kind)
        b = rng.integers(0, 2 ** (8 * np.dtype(kind).itemsize), n, dtype=bits).view(kind)
        a[:40], b[40:80] = (
            rng.choice(np.array(_SPECIAL[kind], kind), 40),
            rng.choice(np.array(_SPECIAL[kind], kind), 40),
        )
        a[:20], b[:20] = rng.choice(np.array(_SPECIAL[kind], kind), 20), rng.choice(np.array(_SPECIAL[kind], kind), 20)
        # Half of them with quotients that are denormal, most of them.
        scale = {F32: (-70, 60), F64: (-600, 430)}[kind]
        small, large = rng.integers(scale[0], scale[0] + 60, 512), rng.integers(scale[1], scale[1] + 60, 512)
        a[512:], b[512:] = rng.uniform(1, 2, 512) * 2.0**small, rng.uniform(1, 2, 512) * 2.0**large
        for chip in CHIPS:
            driver, kernel = function(ir, chip)
            import struct

            pa, pb, po = upload(driver, a), upload(driver, b), upload(driver, a)
            driver.launch(kernel, (1, 1, 1), (n, 1, 1), 0, struct.pack("<QQQ", pa, pb, po))
            got = download(driver, po, a)
            with np.errstate(all="ignore"):
                want = a / b
            ok = (got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))
            bad = np.flatnonzero(~ok)
            assert not len(bad), (chip, t, len(bad), a[bad[0]], b[bad[0]], got[bad[0]], want[bad[0]])


@pytest.mark.parametrize("chip", CHIPS)
def test_compares(chip: str) -> None:
    vcc = "vcc" if chip != "gfx1100" else "vcc_lo"
    sel = f"\\0Av_cndmask_b32 $0, 0, 1, {vcc}"
    ordered = {"lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
    for name, fn in ordered.items():
        for kind, t in ((F16, "f16"), (F32, "f32"), (F64, "f64")):
            check(chip, f"v_cmp_{name}_{t}", [kind] * 2, U32, fn, f"v_cmp_{name}_{t} {vcc}, $1, $2{sel}")
            negated = f"v_cmp_n{name}_{t}" if name != "eq" else f"v_cmp_neq_{t}"
            check(chip, negated, [kind] * 2, U32, lambda a, b, fn=fn: ~fn(a, b), f"{negated} {vcc}, $1, $2{sel}")
        check(chip, f"v_cmp_{name}_u32", [U32] * 2, U32, fn, f"v_cmp_{name}_u32 {vcc}, $1, $2{sel}")
        check(chip, f"v_cmp_{name}_i32", [U32] * 2, U32, lambda a, b, fn=fn: fn(a.view(I32), b.view(I32)), f"v_cmp_{name}_i32 {vcc}, $1, $2{sel}")  # fmt: skip
        check(chip, f"v_cmp_{name}_i64", [U64] * 2, U32, lambda a, b, fn=fn: fn(a.view(I64), b.view(I64)), f"v_cmp_{name}_i64 {vcc}, $1, $2{sel}")  # fmt: skip
    nan = lambda a, b: np.isnan(a) | np.isnan(b)  # noqa: E731
    check(chip, "v_cmp_u_f32", [F32] * 2, U32, nan, f"v_cmp_u_f32 {vcc}, $1, $2{sel}")
    check(chip, "v_cmp_lg_f32", [F32] * 2, U32, lambda a, b: (a != b) & ~nan(a, b), f"v_cmp_lg_f32 {vcc}, $1, $2{sel}")


def test_class() -> None:
    chip = "gfx942"

    def classes(a):
        out = []
        for x in a:
            neg = bool(np.signbit(x))
            if np.isnan(x):
                k = 1 if int(F32(x).view(U32)) >> 22 & 1 else 0
            elif np.isinf(x):
                k = 2 if neg else 9
            elif x == 0:
                k = 5 if neg else 6
            elif abs(x) < np.finfo(F32).tiny:
                k = 4 if neg else 7
            else:
                k = 3 if neg else 8
            out.append(k)
        return np.array(out)

    for k in range(10):
        check(chip, f"class {k}", [F32], U32, lambda a, k=k: classes(a) == k,
              f"v_mov_b32 $0, {1 << k}\\0Av_cmp_class_f32 vcc, $1, $0\\0Av_cndmask_b32 $0, 0, 1, vcc")  # fmt: skip
