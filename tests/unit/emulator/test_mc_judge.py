"""The tool that holds the decoder and the translator against LLVM's tests reads them right."""

from __future__ import annotations

from pathlib import Path

from tools.mc_judge import judged, lines, same

TESTS = """// RUN: llvm-mc -triple=amdgcn -mcpu=gfx1100 -mattr=+wavefrontsize32 -show-encoding %s | FileCheck --check-prefixes=GFX11,W32 %s
// RUN: llvm-mc -triple=amdgcn -mcpu=gfx1100 -mattr=+wavefrontsize64 -show-encoding %s | FileCheck --check-prefixes=GFX11,W64 %s
// RUN: not llvm-mc -triple=amdgcn -mcpu=gfx1030 -show-encoding %s | FileCheck --check-prefix=GFX10 %s

v_add_f32 v0, v1, v2
// GFX11: v_add_f32_e32 v0, v1, v2                ; encoding: [0x01,0x05,0x00,0x06]
// GFX10: v_add_f32_e32 v0, v1, v2                ; encoding: [0x01,0x05,0x00,0x07]

v_cmp_eq_u32 vcc_lo, v1, v2
// W32: v_cmp_eq_u32_e32 vcc_lo, v1, v2           ; encoding: [0x01,0x05,0x94,0x7c]
// W64: v_cmp_eq_u32_e32 vcc, v1, v2              ; encoding: [0x01,0x05,0x94,0x7c]

v_mullit_f32 v0, v1, v2, v3
// GFX11: v_mullit_f32 v0, v1, v2, v3             ; encoding: [0x00,0x00,0x18,0xd6,0x01,0x05,0x0e,0x04]

s_branch far
// GFX11: s_branch far                            ; encoding: [A,A,0xa0,0xbf]
"""


def test_the_tests_of_a_chip(tmp_path: Path) -> None:
    for room in ("AMDGPU", "Disassembler/AMDGPU"):
        (tmp_path / room).mkdir(parents=True)
    (tmp_path / "AMDGPU" / "some.s").write_text(TESTS)
    found = lines(tmp_path, "gfx1100")
    assert [(x.lanes, x.text.split()[0]) for x in found] == [
        (32, "v_add_f32_e32"),
        (32, "v_cmp_eq_u32_e32"),
        (64, "v_cmp_eq_u32_e32"),
        (32, "v_mullit_f32"),
    ]
    verdicts = list(judged(tmp_path, "gfx1100"))
    assert [v.decoded for v in verdicts] == [True] * 4
    assert [v.executed for v in verdicts] == [True, True, True, False]
    assert "v_mullit_f32" in verdicts[-1].why
    assert not lines(tmp_path, "gfx942")


def test_halves_that_are_named_and_halves_that_are_selected() -> None:
    assert same("v_add_f16_e64 v5.l, v1.h, |v2.l| clamp", "v_add_f16_e64 v5, v1, |v2|   op_sel:[1,0,0] clamp")
    assert same("v_add_f16_e64 v5.h, v1.l, v2.l", "v_add_f16_e64 v5.h, v1.l, v2.l op_sel:[0,0,1]")
    assert same("v_cmpx_eq_u16_e64 v1.h, v2.h", "v_cmpx_eq_u16_e64 v1, v2 op_sel:[1,1]")
    assert same(
        "v_mfma_f32_16x16x4bf16_1k a[0:15], v[2:3], v[4:5], a[2:17]",
        "v_mfma_f32_16x16x4_4b_bf16 a[0:15], v[2:3], v[4:5], a[2:17]",
    )
    assert not same("v_add_f16_e64 v5.l, v1.h, v2.l", "v_add_f16_e64 v5, v1, v2 op_sel:[0,1,0]")
    assert not same("v_add_f16_e64 v5.l, v1.h, v2.l", "v_add_f16_e64 v5, v1, v2")
    assert not same("v_add_f16_e64 v5.l, v1.h, v2.l", "v_add_f16_e64 v5.l, v1.l, v2.l")
