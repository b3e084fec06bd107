"""Default tiles of blocked convolutions: what each kind of core gets, and that its registers hold it."""

from __future__ import annotations

import re

import pytest

import tec
from tec.choices import spaces
from tests.thinned import thinned

from .test_spaces import WINDOW, lies, program


def convolution(width: int, blocks: int, lanes: int = 16):
    block = f"{lanes}"
    attrs = WINDOW | lies(f"NCHW{block}c", f"OIHW{block}i{block}o")
    return program("conv", attrs, ("float32", (1, 2, 6, width, lanes)), ("float32", (blocks, 2, 3, 3, lanes, lanes)))


@pytest.mark.parametrize("cpu,lanes,want", [
    ("sapphirerapids", 16, {7: (7, 2), 14: (7, 2), 13: (7, 2), 55: (8, 2), 3: (3, 2)}),  # two multiply-adds a clock
    ("znver4", 16, {7: (7, 1), 14: (14, 1), 28: (28, 1), 3: (3, 1)}),  # one
    ("haswell", 8, {7: (4, 2), 14: (5, 2), 3: (3, 2)}),  # sixteen registers
])  # fmt: skip
def test_columns_by_blocks(cpu: str, lanes: int, want: dict[int, tuple[int, int]]) -> None:
    for width, tile in want.items():
        default = spaces(convolution(width, 4, lanes)[1], f"llvm -mcpu={cpu}")[0].default
        assert (default["columns"], default["blocks"]) == tile, width
    odd = spaces(convolution(14, 3, lanes)[1], f"llvm -mcpu={cpu}")[0].default
    assert odd["blocks"] == 1


@thinned(1, ("cpu,lanes", [("sapphirerapids", 16), ("znver4", 16), ("haswell", 8)]), ("width", [7, 13, 27, 55, 56]))
def test_sums_stay_in_registers(cpu: str, lanes: int, width: int) -> None:
    xs, outs = convolution(width, 4, lanes)
    made = spaces(outs, f"llvm -mcpu={cpu}")[0].apply()
    asm = tec.build(made.schedule, [*xs, *made.outputs], f"llvm -mcpu={cpu}", name="f").get_source("asm")
    assert "vfmadd" in asm and not re.findall(r"vmov[au]ps\s+%[yz]mm\d+, [-\d]*\(%r[sb]p\)", asm)
