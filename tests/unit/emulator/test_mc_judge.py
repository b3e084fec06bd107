"""The tool that holds the decoder and the translator against LLVM's tests reads them right."""

from __future__ import annotations

from pathlib import Path

from tools.mc_judge import judged, lines

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
