"""Packed f16, i16 and f32, mixed precision and dot products, with their selectors and signs."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import LANES, Job, ask, asked, run_instruction  # noqa: F401  (a fixture)
from .test_valu import F16, F32, U32, U64, fmax, same, values

pytestmark = pytest.mark.usefixtures("asked")
CHIPS = ("gfx90a", "gfx942", "gfx1100")


def halves(seed: int, lanes: int, kind: type = F16) -> np.ndarray:
    return values(kind, 2 * lanes, seed).reshape(lanes, 2)


def registers(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a).view(U32).reshape(-1)


def check(chip: str, text: str, want: np.ndarray, sources: list[np.ndarray]) -> None:
    """Ask that a packed instruction gives `want`, a pair a lane; it runs at the test's end, with the others."""

    def verify(got: np.ndarray) -> None:
        for half in (0, 1):
            bits = (got >> np.uint32(16 * half)) & np.uint32(0xFFFF)
            w = want[:, half]
            good = same(bits, w) if w.dtype == F16 else bits == w.view(np.uint16)
            bad = np.flatnonzero(~good)
            assert not len(bad), (chip, text, half, [s[bad[0]] for s in sources], w[bad[0]], hex(bits[bad[0]]))

    ask(chip, Job(text, [registers(s) for s in sources], np.zeros(len(want), U32)), verify)


@pytest.mark.parametrize("chip", CHIPS)
def test_packed_16_bit(chip: str) -> None:
    lanes = LANES[chip]
    a, b = halves(1, lanes), halves(2, lanes)
    i, j = halves(3, lanes, np.int16), halves(4, lanes, np.int16)
    with np.errstate(all="ignore"):
        check(chip, "v_pk_add_f16 $0, $1, $2", a + b, [a, b])
        check(chip, "v_pk_mul_f16 $0, $1, $2", a * b, [a, b])
        check(chip, "v_pk_max_f16 $0, $1, $2", fmax(a, b).astype(F16), [a, b])
        check(chip, "v_pk_add_f16 $0, $1, $2 op_sel:[1,0] op_sel_hi:[0,1]", a[:, ::-1] + b, [a, b])
        check(
            chip,
            "v_pk_add_f16 $0, $1, $2 neg_lo:[0,1] neg_hi:[1,0]",
            np.stack([a[:, 0] - b[:, 0], b[:, 1] - a[:, 1]], 1),
            [a, b],
        )
        check(chip, "v_pk_add_f16 $0, $1, 1.0 op_sel_hi:[1,0]", a + F16(1), [a])
        check(chip, "v_pk_add_u16 $0, $1, $2", i + j, [i, j])
        check(chip, "v_pk_sub_i16 $0, $1, $2", i - j, [i, j])
        check(chip, "v_pk_mul_lo_u16 $0, $1, $2", i * j, [i, j])
        check(chip, "v_pk_max_i16 $0, $1, $2", np.maximum(i, j), [i, j])
        check(chip, "v_pk_mad_u16 $0, $1, $2, $1", i * j + i, [i, j])
        wide = np.clip(i.astype(np.int32) + j, -32768, 32767).astype(np.int16)
        check(chip, "v_pk_add_i16 $0, $1, $2 clamp", wide, [i, j])
        check(chip, "v_pk_lshlrev_b16 $0, 3, $1 op_sel_hi:[0,1]", i << np.int16(3), [i])
        # Integer opcodes take a float constant as a word of float32: its high half is a number that LLVM asks for.
        check(chip, "v_pk_add_u16 $0, $1, 0.5 op_sel:[0,1]", i + np.int16(0x3F00), [i])
        check(chip, "v_pk_add_u16 $0, $1, -4.0 op_sel_hi:[1,0]", i, [i])
        check(chip, "v_pk_sub_i16 $0, $1, 0.15915494", i - np.array([0xF983, 0x3E22], np.uint16).view(np.int16), [i])


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942"])
def test_packed_f32(chip: str) -> None:
    lanes = LANES[chip]
    a, b = values(F32, 2 * lanes, 5).reshape(lanes, 2), values(F32, 2 * lanes, 6).reshape(lanes, 2)
    with np.errstate(all="ignore"):
        for text, want in (
            ("v_pk_add_f32 $0, $1, $2", a + b),
            ("v_pk_mul_f32 $0, $1, $2", a * b),
            ("v_pk_mul_f32 $0, $1, $2 op_sel:[1,0] op_sel_hi:[0,1]", a[:, ::-1] * b),
            ("v_pk_add_f32 $0, $1, $2 neg_lo:[1,0] neg_hi:[1,0]", b - a),
            ("v_pk_mov_b32 $0, $1, $2 op_sel:[1,0]", np.stack([a[:, 1], b[:, 0]], 1)),
        ):
            sources = [np.ascontiguousarray(x).view(U64).reshape(-1) for x in (a, b)]
            got = run_instruction(chip, text, sources, np.zeros(lanes, U64)).view(F32).reshape(lanes, 2)
            assert same(got.view(U32), want.astype(F32)).all(), text


@pytest.mark.parametrize("chip", CHIPS)
def test_mixed_precision(chip: str) -> None:
    lanes = LANES[chip]
    rng = np.random.default_rng(8)
    a, b = (rng.standard_normal((lanes, 2)).astype(F16) for _ in range(2))
    c = rng.standard_normal(lanes).astype(F32)
    zero = np.zeros(lanes, U32)
    sources = [registers(a), registers(b), c.view(U32)]
    got = run_instruction(chip, "v_fma_mix_f32 $0, $1, -$2, $3 op_sel:[1,0,0] op_sel_hi:[1,1,0]", sources, zero).view(
        F32
    )
    want = a[:, 1].astype(np.float64) * -b[:, 0].astype(np.float64) + c
    assert np.abs(got - want).max() < 1e-6
    got = run_instruction(chip, "v_fma_mixlo_f16 $0, $1, $2, |$3| op_sel_hi:[1,1,0]", sources, zero)
    want = (a[:, 0].astype(np.float64) * b[:, 0] + np.abs(c)).astype(F16)
    assert np.abs((got & 0xFFFF).astype(np.uint16).view(F16).astype(F32) - want).max() < 2e-3 and (got >> 16 == 0).all()
    got = run_instruction(chip, "v_dot2_f32_f16 $0, $1, $2, $3", sources, zero).view(F32)
    want = (a.astype(np.float64) * b).sum(1) + c
    assert np.abs(got - want).max() < 1e-5
