"""Scalar opcodes and SCC against Python integers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from .harness import LANES, Job, ask, asked  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("asked")

M32, M64 = 2**32 - 1, 2**64 - 1
CHIPS = ("gfx942", "gfx1100")
WORDS = [0, 1, 5, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678, 0x00100004, 0x0008001C, 0x00200000]
QUADS = [0, 1, 63, 0x8000000000000000, M64, 0x123456789ABCDEF0, 0xFFFFFFFF, 0x100000000]


def s32(x: int) -> int:
    x &= M32
    return x - 2**32 if x >> 31 else x


def s64(x: int) -> int:
    x &= M64
    return x - 2**64 if x >> 63 else x


def expect(chip: str, text: str, sources: list[int], wide_sources: tuple[bool, ...], wide: bool, want: int) -> None:
    """Ask that an instruction's result is `want`; it runs at the test's end, with the others."""
    lanes = LANES[chip]
    arrays = [np.full(lanes, v, np.uint64 if w else np.uint32) for v, w in zip(sources, wide_sources)]
    out = np.full(lanes, 0, np.uint64 if wide else np.uint32)
    scalar = "o" + "".join(str(i + 1) for i in range(len(sources)))

    def verify(got: np.ndarray) -> None:
        assert int(got[0]) == want, (chip, text, [hex(x) for x in sources], hex(int(got[0])), hex(want))

    ask(chip, Job(text, arrays, out, scalar=scalar), verify)


def bfe(a: int, b: int, signed: bool, bits: int) -> int:
    offset, width = b & (bits - 1), b >> 16 & 127
    width = min(width, bits - offset)
    if width <= 0:
        return 0
    field = a >> offset & ((1 << width) - 1)
    if signed and field >> (width - 1):
        field -= 1 << width
    return field & ((1 << bits) - 1)


# name -> (value, scc) of two words; scc None where SCC is kept
TWO = {
    "s_add_u32": lambda a, b: (a + b, a + b > M32),
    "s_sub_u32": lambda a, b: (a - b, a < b),
    "s_add_i32": lambda a, b: (a + b, not -(2**31) <= s32(a) + s32(b) < 2**31),
    "s_sub_i32": lambda a, b: (a - b, not -(2**31) <= s32(a) - s32(b) < 2**31),
    "s_and_b32": lambda a, b: (a & b, a & b != 0),
    "s_or_b32": lambda a, b: (a | b, a | b != 0),
    "s_xor_b32": lambda a, b: (a ^ b, a ^ b != 0),
    "s_nand_b32": lambda a, b: (~(a & b), ~(a & b) & M32 != 0),
    "s_lshl_b32": lambda a, b: (a << (b & 31), a << (b & 31) & M32 != 0),
    "s_lshr_b32": lambda a, b: (a >> (b & 31), a >> (b & 31) != 0),
    "s_ashr_i32": lambda a, b: (s32(a) >> (b & 31), s32(a) >> (b & 31) & M32 != 0),
    "s_mul_i32": lambda a, b: (a * b, None),
    "s_mul_hi_u32": lambda a, b: (a * b >> 32, None),
    "s_mul_hi_i32": lambda a, b: (s32(a) * s32(b) >> 32, None),
    "s_min_i32": lambda a, b: (min(s32(a), s32(b)), s32(a) < s32(b)),
    "s_max_u32": lambda a, b: (max(a, b), a > b),
    "s_bfm_b32": lambda a, b: (((1 << (a & 31)) - 1) << (b & 31), None),
    "s_bfe_u32": lambda a, b: (bfe(a, b, False, 32), bfe(a, b, False, 32) != 0),
    "s_bfe_i32": lambda a, b: (bfe(a, b, True, 32), bfe(a, b, True, 32) != 0),
    "s_absdiff_i32": lambda a, b: (abs(s32(s32(a) - s32(b))), abs(s32(s32(a) - s32(b))) & M32 != 0),
    "s_lshl2_add_u32": lambda a, b: ((a << 2) + b, (a << 2) + b > M32),
    "s_pack_ll_b32_b16": lambda a, b: (a & 0xFFFF | b << 16, None),
    "s_pack_hh_b32_b16": lambda a, b: (a >> 16 | b & 0xFFFF0000, None),
}


@pytest.mark.parametrize("chip", CHIPS)
def test_two_words(chip: str) -> None:
    rng = np.random.default_rng(1)
    pairs = list(itertools.product(WORDS, WORDS))
    for name, reference in TWO.items():
        for i in rng.permutation(len(pairs))[:12]:
            a, b = pairs[i]
            value, scc = reference(a, b)
            before = int(rng.integers(0, 2))
            text = f"s_cmp_eq_u32 {before}, 1\\0A{name} s20, $1, $2\\0As_cselect_b32 s21, 1, 0\\0As_lshl_b32 s21, s21, 31\\0As_xor_b32 $0, s20, s21"
            want = (value ^ (int(before if scc is None else scc) << 31)) & M32
            expect(chip, text, [a, b], (False, False), False, want)


WIDE = {
    "s_lshl_b64": lambda a, b: a << (b & 63),
    "s_lshr_b64": lambda a, b: a >> (b & 63),
    "s_ashr_i64": lambda a, b: s64(a) >> (b & 63),
    "s_bfe_u64": lambda a, b: bfe(a, b, False, 64),
    "s_bfe_i64": lambda a, b: bfe(a, b, True, 64),
}


@pytest.mark.parametrize("chip", CHIPS)
def test_wide(chip: str) -> None:
    for name, reference in WIDE.items():
        for a, b in itertools.product(QUADS[2:6], WORDS[1::3]):
            expect(chip, f"{name} $0, $1, $2", [a, b], (True, False), True, reference(a, b) & M64)
    for name, reference in {
        "s_and_b64": lambda a, b: a & b,
        "s_orn2_b64" if chip == "gfx942" else "s_or_not1_b64": lambda a, b: a | ~b,
        "s_xnor_b64": lambda a, b: ~(a ^ b),
    }.items():
        for a, b in itertools.product(QUADS[3:6], QUADS[2:5]):
            expect(chip, f"{name} $0, $1, $2", [a, b], (True, True), True, reference(a, b) & M64)


@pytest.mark.parametrize("chip", CHIPS)
def test_one_source(chip: str) -> None:
    old = chip == "gfx942"
    ones = lambda a: bin(a).count("1")  # noqa: E731
    low = lambda a: (a & -a).bit_length() - 1 if a else -1  # noqa: E731
    for name, wide, reference in (
        ("s_not_b32", False, lambda a: ~a),
        ("s_brev_b32", False, lambda a: int(f"{a:032b}"[::-1], 2)),
        ("s_bcnt1_i32_b32", False, ones),
        ("s_bcnt1_i32_b64", True, ones),
        ("s_bcnt0_i32_b64", True, lambda a: 64 - ones(a)),
        ("s_ff1_i32_b32" if old else "s_ctz_i32_b32", False, low),
        ("s_ff1_i32_b64" if old else "s_ctz_i32_b64", True, low),
        ("s_flbit_i32_b32" if old else "s_clz_i32_u32", False, lambda a: 32 - a.bit_length() if a else -1),
        (
            "s_flbit_i32" if old else "s_cls_i32",
            False,
            lambda a: -1 if a in (0, M32) else 32 - (a ^ (M32 if a >> 31 else 0)).bit_length(),
        ),
        ("s_sext_i32_i8", False, lambda a: (a & 127) - (a & 128)),
        ("s_sext_i32_i16", False, lambda a: (a & 0x7FFF) - (a & 0x8000)),
        ("s_abs_i32", False, lambda a: abs(s32(a))),
    ):
        for a in QUADS if wide else WORDS:
            expect(chip, f"{name} $0, $1", [a], (wide,), False, reference(a) & M32)


@pytest.mark.parametrize("chip", CHIPS)
def test_carry_chain_compares_and_bits(chip: str) -> None:
    for a, b in itertools.product(QUADS, QUADS[2:6]):
        lo = [a & M32, b & M32, a >> 32, b >> 32]
        text = "s_add_u32 s20, $1, $2\\0As_addc_u32 $0, $3, $4"
        expect(chip, text, lo, (False,) * 4, False, (a + b) >> 32 & M32)
        text = "s_sub_u32 s20, $1, $2\\0As_subb_u32 $0, $3, $4"
        expect(chip, text, lo, (False,) * 4, False, (a - b) >> 32 & M32)
    cases = {"eq": int.__eq__, "lg": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__}
    for a, b in itertools.product(WORDS[::3], WORDS[::4]):
        for name, fn in cases.items():
            text = f"s_cmp_{name}_u32 $1, $2\\0As_cselect_b32 s20, 2, 0\\0As_cmp_{name}_i32 $1, $2\\0As_addc_u32 $0, s20, 0"
            expect(chip, text, [a, b], (False, False), False, 2 * fn(a, b) + fn(s32(a), s32(b)))
        text = "s_bitcmp1_b32 $1, $2\\0As_cselect_b32 $0, 1, 0"
        expect(chip, text, [a, b], (False, False), False, a >> (b & 31) & 1)


def test_immediates() -> None:
    chip = "gfx942"
    for text, want in (
        ("s_movk_i32 $0, 0x8000", 0xFFFF8000),
        ("s_mov_b32 $0, 1.0", 0x3F800000),
        ("s_mov_b32 $0, -4.0", 0xC0800000),
        ("s_mov_b32 $0, 0.15915494", 0x3E22F983),
        ("s_mov_b32 $0, -16", M32 - 15),
        ("s_mov_b32 $0, 0xdeadbeef", 0xDEADBEEF),
        ("s_mov_b32 $0, 7\\0As_addk_i32 $0, 0xfffe", 5),
        ("s_mov_b32 $0, 7\\0As_mulk_i32 $0, 0xfffe", M32 - 13),
    ):
        expect(chip, text, [], (), False, want)
    for text, want in (("s_mov_b64 $0, 1.0", 0x3FF0000000000000), ("s_mov_b64 $0, -1", M64), ("s_mov_b64 $0, 5", 5)):
        expect(chip, text, [], (), True, want)
