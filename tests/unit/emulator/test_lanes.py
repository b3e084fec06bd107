"""Data between lanes: DPP, SDWA, swizzle, permute, permlane, readlane; with lanes off."""

from __future__ import annotations

import numpy as np
import pytest

from tests import seeds

from .harness import LANES, Job, ask, asked, run_instruction  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("asked")
U32 = np.uint32
JUNK = 0xDEADBEEF


def data(lanes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, lanes, dtype=U32)


def masks(lanes: int) -> list[int]:
    return [(1 << lanes) - 1, 0x0F0F_F731_8001_6C35 & ((1 << lanes) - 1)]


def expect(
    chip: str, text: str, sources: list[np.ndarray], want: list[int], mask: int | None = None, scalar: str = ""
) -> None:
    """Ask that an instruction over registers of junk gives `want`, a value a lane; it runs at the test's end, with the others."""

    def verify(got: np.ndarray) -> None:
        bad = np.flatnonzero(got != np.array(want, U32))
        assert not len(bad), (chip, text, hex(mask or 0), f"lane {bad[0]}", hex(got[bad[0]]), hex(want[bad[0]]))

    ask(chip, Job(text, sources, np.full(LANES[chip], JUNK, U32), mask, scalar), verify)


def dpp_source(kind: str, lanes: int) -> list[int | None]:
    name, _, value = kind.partition(":")
    out: list[int | None] = []
    for l in range(lanes):
        row, i = l & ~15, l & 15
        if name == "quad_perm":
            out.append(l & ~3 | eval(value)[l & 3])
        elif name == "row_shl":
            out.append(row | (i + int(value)) if i + int(value) < 16 else None)
        elif name == "row_shr":
            out.append(row | (i - int(value)) if i >= int(value) else None)
        elif name == "row_ror":
            out.append(row | (i - int(value)) % 16)
        elif name == "row_mirror":
            out.append(row | 15 - i)
        elif name == "row_half_mirror":
            out.append(l & ~7 | 7 - (l & 7))
        elif name == "row_bcast":
            out.append((row - 1 if l >= 16 else None) if value == "15" else (31 if l >= 32 else None))
        elif name == "row_share":
            out.append(row | int(value))
        elif name == "row_xmask":
            out.append(row | i ^ int(value))
        else:
            raise ValueError(kind)
    return out


COMMON = [
    "quad_perm:[1,0,3,2]",
    "quad_perm:[2,2,0,1]",
    "row_shl:1",
    "row_shr:3",
    "row_ror:5",
    "row_mirror",
    "row_half_mirror",
]


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100", *(["gfx90a"] if seeds.number() else [])])  # as gfx942
def test_dpp(chip: str) -> None:
    lanes = LANES[chip]
    kinds = COMMON + (["row_share:3", "row_xmask:6"] if chip == "gfx1100" else ["row_bcast:15", "row_bcast:31"])
    for kind in kinds:
        source = dpp_source(kind, lanes)
        for mask in masks(lanes):
            for bound in ("", " bound_ctrl:1"):
                for row_mask, bank_mask in ((15, 15), (10, 15), (15, 5)):
                    a, b = data(lanes, 1), data(lanes, 2)
                    text = f"v_add_{'nc_' if chip == 'gfx1100' else ''}u32_dpp $0, $1, $2 {kind} row_mask:{row_mask:#x} bank_mask:{bank_mask:#x}{bound}"
                    want = [JUNK] * lanes
                    for l in range(lanes):
                        on = mask >> l & 1 and row_mask >> (l // 16 % 4) & 1 and bank_mask >> (l // 4 % 4) & 1
                        s = source[l]
                        valid = s is not None and mask >> s & 1
                        if on and (valid or bound):
                            want[l] = (int(a[s]) if valid else 0) + int(b[l]) & 0xFFFFFFFF
                    expect(chip, text, [a, b], want, mask)


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1200"])
def test_a_compare_through_dpp(chip: str) -> None:
    """A lane that DPP turns off has a 0, as one that is off in EXEC; v_cmpx leaves it off."""
    lanes = LANES[chip]
    for kind in ("quad_perm:[2,0,3,1]", "row_shr:3", "row_xmask:6"):
        source = dpp_source(kind, lanes)
        for mask in masks(lanes):
            for bound in ("", " bound_ctrl:1"):
                for row_mask, bank_mask in ((15, 15), (2, 15), (15, 5)):
                    a, b = data(lanes, 1), data(lanes, 2)
                    mods = f"{kind} row_mask:{row_mask:#x} bank_mask:{bank_mask:#x}{bound}"
                    on = [mask >> l & row_mask >> (l // 16 % 4) & bank_mask >> (l // 4 % 4) & 1 for l in range(lanes)]
                    for l, s in enumerate(source):
                        valid = s is not None and mask >> s & 1
                        value = int(a[s]) if valid else 0  # type: ignore[index]
                        on[l] = on[l] and bool(valid or bound) and value > int(b[l])
                    shown = "v_cndmask_b32_e64 $0, 0, 1, vcc_lo"
                    want = [int(x) if mask >> l & 1 else JUNK for l, x in enumerate(on)]
                    expect(chip, f"v_cmp_gt_u32_e64_dpp vcc_lo, $1, $2 {mods}\\0A{shown}", [a, b], want, mask)
                    want = [int(b[l]) if x else JUNK for l, x in enumerate(on)]
                    if mask + 1 == 1 << lanes:  # EXEC is saved around an instruction of a smaller mask alone
                        text = f"s_mov_b32 s21, exec_lo\\0Av_cmpx_gt_u32_e64_dpp $1, $2 {mods}\\0Av_mov_b32 $0, $2\\0As_mov_b32 exec_lo, s21"
                        expect(chip, text, [a, b], want)


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1200"])
def test_dpp_of_high_halves(chip: str) -> None:
    """The whole register moves between lanes, then its half is taken."""
    lanes = LANES[chip]
    a, b = data(lanes, 1), data(lanes, 2)
    source = dpp_source("row_ror:5", lanes)
    for x, y, up, down in ((".h", ".l", 16, 0), (".l", ".h", 0, 16), (".h", ".h", 16, 16)):
        moved = [int(a[s]) >> up & 0xFFFF for s in source]  # type: ignore[index]
        sums = [m + (int(v) >> down) & 0xFFFF for m, v in zip(moved, b)]
        mods = "row_ror:5 row_mask:0xf bank_mask:0xf"
        for half, want in (
            (".h", [JUNK & 0xFFFF | s << 16 for s in sums]),
            (".l", [JUNK & 0xFFFF0000 | s for s in sums]),
        ):
            expect(chip, f"v_add_nc_u16_e64_dpp $0{half}, $1{x}, $2{y} {mods}", [a, b], want)


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1200"])
def test_registers_that_are_no_registers_as_any_type(chip: str) -> None:
    """null is 0 and SCC an integer, also as halves, as floats (of which SCC's 1 is the smallest), and with signs."""
    lanes = LANES[chip]
    a = np.arange(lanes, dtype=U32) * 0x00010003
    scc = "s_cmp_eq_u32 s20, s20\\0A"
    zeros, ones = [0] * lanes, [1] * lanes
    half = [int(x) & 0xFFFF | JUNK & 0xFFFF0000 for x in a]
    expect(chip, "v_max_i16 $0.l, $1.l, null", [np.zeros(lanes, U32)], [JUNK & 0xFFFF0000] * lanes)
    expect(chip, scc + "v_add_nc_u16 $0.l, $1.l, src_scc", [a - U32(1) & U32(0xFFFF)], half)
    expect(chip, scc + "v_add_nc_u32 $0, $1, src_scc", [np.zeros(lanes, U32)], ones)
    expect(chip, "v_pk_add_u16 $0, $1, null", [a], [int(x) for x in a])
    expect(chip, "v_xor_b32 $0, null, $1", [np.zeros(lanes, U32)], zeros)
    expect(
        chip, scc + "v_max3_f32 $0, -src_scc, -|src_scc|, $1", [np.full(lanes, 0xC0000000, U32)], [0x80000001] * lanes
    )


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100"])
def test_swizzle_and_permutes(chip: str) -> None:
    lanes = LANES[chip]
    a = data(lanes, 3)
    address = data(lanes, 4)
    for mask in masks(lanes):
        visible = [int(a[l]) if mask >> l & 1 else 0 for l in range(lanes)]
        on = [bool(mask >> l & 1) for l in range(lanes)]
        for offset in (0x041F, 0x401F, 0x8000 | 0x1B, 0x0C1F, 0x0018, 0x7C00 | 0x1F):
            want = [JUNK] * lanes
            for l in range(lanes):
                if offset & 0x8000:
                    s = l & ~3 | offset >> 2 * (l & 3) & 3
                else:
                    s = l & ~31 | ((l & offset & 31) | offset >> 5 & 31) ^ (offset >> 10 & 31)
                want[l] = visible[s] if on[l] else JUNK
            expect(chip, f"ds_swizzle_b32 $0, $1 offset:{offset}\\0As_waitcnt lgkmcnt(0)", [a], want, mask)
        want = [visible[(int(address[l]) >> 2) % lanes] if on[l] else JUNK for l in range(lanes)]
        expect(chip, "ds_bpermute_b32 $0, $1, $2\\0As_waitcnt lgkmcnt(0)", [address, a], want, mask)
        sent = [0] * lanes
        for l in range(lanes):
            if mask >> l & 1:
                sent[(int(address[l]) >> 2) % lanes] = int(a[l])
        want = [sent[l] if on[l] else JUNK for l in range(lanes)]
        expect(chip, "ds_permute_b32 $0, $1, $2\\0As_waitcnt lgkmcnt(0)", [address, a], want, mask)


def test_permlane() -> None:
    chip, lanes = "gfx1100", 32
    a = data(lanes, 5)
    lo, hi = 0x76543210, 0xFEDCBA98
    selectors = [(lo, hi), (0x01234567, 0x89ABCDEF), (0x33333333, 0x0F0F0F0F)]
    for cross, name in ((0, "v_permlane16_b32"), (16, "v_permlanex16_b32")):
        for s1, s2 in selectors:
            for mask in masks(lanes):
                for fi, bc in ((0, 0), (1, 0), (0, 1)):
                    mod = f" op_sel:[{fi},{bc}]" if fi or bc else ""
                    sources = [a, np.full(lanes, s1, U32), np.full(lanes, s2, U32)]
                    want = [JUNK] * lanes
                    for l in range(lanes):
                        pick = (s2 if l & 8 else s1) >> 4 * (l & 7) & 15
                        s = (l & 16 ^ cross) | pick
                        if mask >> l & 1:
                            want[l] = int(a[s]) if fi or mask >> s & 1 else 0 if bc else JUNK
                    expect(chip, f"{name} $0, $1, $2, $3{mod}", sources, want, mask, "23")


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_readlane_writelane_mbcnt(chip: str) -> None:
    lanes = LANES[chip]
    a = data(lanes, 6)
    zero = np.zeros(lanes, U32)
    for lane in (0, 5, lanes - 1):
        got = run_instruction(
            chip, "v_readlane_b32 s20, $1, $2\\0Av_mov_b32 $0, s20", [a, np.full(lanes, lane, U32)], zero, None, "2"
        )
        assert (got == a[lane]).all()
    mask = 0x0F0F_F731_8001_6C20 & ((1 << lanes) - 1)
    got = run_instruction(
        chip,
        "v_readfirstlane_b32 s21, $1\\0Av_mov_b32 $0, s21"
        if lanes == 32
        else "v_readfirstlane_b32 vcc_lo, $1\\0Av_mov_b32 $0, vcc_lo",
        [a],
        zero,
        mask,
    )
    assert all(got[l] == (a[5] if mask >> l & 1 else 0) for l in range(lanes))
    got = run_instruction(
        chip, "v_mov_b32 $0, $1\\0Av_writelane_b32 $0, $2, 3", [a, np.full(lanes, 77, U32)], zero, None, "2"
    )
    assert got[3] == 77 and (np.delete(got, 3) == np.delete(a, 3)).all()
    text = "v_mbcnt_lo_u32_b32 $0, -1, 0" + ("\\0Av_mbcnt_hi_u32_b32 $0, -1, $0" if lanes == 64 else "")
    assert (run_instruction(chip, text, [], zero) == np.arange(lanes)).all()


def test_sdwa() -> None:
    chip, lanes = "gfx90a", 64
    a, b = data(lanes, 8), data(lanes, 9)
    field = {
        "BYTE_0": (0, 8),
        "BYTE_1": (8, 8),
        "BYTE_2": (16, 8),
        "BYTE_3": (24, 8),
        "WORD_0": (0, 16),
        "WORD_1": (16, 16),
        "DWORD": (0, 32),
    }
    for sel0, sel1, dst, unused in (
        ("BYTE_0", "WORD_1", "DWORD", "UNUSED_PAD"),
        ("BYTE_3", "BYTE_2", "WORD_1", "UNUSED_PRESERVE"),
        ("WORD_0", "DWORD", "BYTE_2", "UNUSED_PAD"),
        ("WORD_1", "BYTE_1", "WORD_0", "UNUSED_SEXT"),
    ):
        text = f"v_add_u32_sdwa $0, $1, sext($2) dst_sel:{dst} dst_unused:{unused} src0_sel:{sel0} src1_sel:{sel1}"
        wanted = []
        for l in range(lanes):
            (s0, w0), (s1, w1), (sd, wd) = field[sel0], field[sel1], field[dst]
            x = int(a[l]) >> s0 & ((1 << w0) - 1)
            y = int(b[l]) >> s1 & ((1 << w1) - 1)
            y -= (y >> (w1 - 1)) << w1
            value = (x + y) & ((1 << wd) - 1)
            want = value << sd
            if unused == "UNUSED_PRESERVE":
                want |= JUNK & ~(((1 << wd) - 1) << sd)
            elif unused == "UNUSED_SEXT" and value >> (wd - 1):
                want |= -1 << (sd + wd)
            wanted.append(want & 0xFFFFFFFF)
        expect(chip, text, [a, b], wanted)
