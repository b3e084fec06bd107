"""`s_setvskip` on the software GPU: a stretch of vector instructions that a bit of a scalar register skips."""

from __future__ import annotations

import numpy as np
import pytest

from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.analyses.skipped import BRANCH
from tec.emulator.errors import UnsupportedInstruction

from .harness import run_instruction

HEAD = "k:\n"
TAIL = "\ts_endpgm\n.Lfunc_end0:\n"


def text(*lines: str) -> str:
    return HEAD + "".join(f"\t{x}\n" for x in lines) + TAIL


def test_a_guarded_store_becomes_a_branch_over_it() -> None:
    kernel = parse_kernel(text("s_setvskip s20, 3", "global_store_dword v0, v1, s[8:9]", "s_setvskip 0, 0"), "k")
    branch = kernel.insts[0]
    assert branch.op == BRANCH
    assert kernel.labels[branch.operands[0].text] == 2
    assert (branch.operands[1].index, branch.operands[2].value) == (20, 3)


@pytest.mark.parametrize("between", ["s_add_u32 s0, s0, 1", "s_barrier", "s_setvskip s21, 0"])
def test_what_is_no_stretch_of_vector_instructions_is_refused(between: str) -> None:
    with pytest.raises(UnsupportedInstruction, match="s_setvskip over more"):
        parse_kernel(text("s_setvskip s20, 3", "v_mov_b32 v0, 0", between, "s_setvskip 0, 0"), "k")


def test_a_stretch_without_an_end_is_refused() -> None:
    with pytest.raises(UnsupportedInstruction, match="s_setvskip over more"):
        parse_kernel(text("s_setvskip s20, 3", "v_mov_b32 v0, 0"), "k")


@pytest.mark.parametrize("bits, want", [(0b1000, 7), (0b0111, 5)])
def test_a_set_bit_skips_the_instructions(bits: int, want: int) -> None:
    code = "s_setvskip $1, 3\n v_mov_b32 $0, 5\n s_setvskip 0, 0"
    old = np.full(64, 7, np.uint32)
    got = run_instruction("gfx942", code, [np.full(64, bits, np.uint32)], old, scalar="1")
    assert (got == want).all()
