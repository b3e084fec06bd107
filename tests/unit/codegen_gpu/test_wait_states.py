"""What reads a matrix instruction's result on CDNA comes late enough on every way there, branches between or not."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

import tec
from tec.emulator.analyses.calls import parse_kernel
from tec.emulator.checks.hazards import check_hazards
from tec.emulator.chips import CHIPS
from tec.emulator.isa import opcodes


def attention(heads: int, places: int, size: int, dtype: int) -> onnx.ModelProto:
    shape = (1, heads, places, size)
    values = [helper.make_tensor_value_info(name, dtype, shape) for name in ("q", "k", "v", "y")]
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1)
    graph = helper.make_graph([node], "g", values[:3], values[3:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])


@pytest.mark.parametrize(
    "chip,dtype,heads,size",
    [("gfx90a", "FLOAT16", 1, 80), ("gfx942", "FLOAT16", 4, 128), ("gfx942", "FLOAT", 12, 128)],
)
def test_scores_behind_the_mask_that_some_blocks_need(chip: str, dtype: str, heads: int, size: int) -> None:
    """LLVM counts the wait states behind the branch by the way through the mask, and leaves some out on the way past it."""
    opcodes.load()
    kind = getattr(onnx.TensorProto, dtype)
    net = tec.compile(attention(heads, 333, size, kind), f"rocm -mcpu={chip}", cache=False, progress=lambda *a: None)
    asm = net.get_source("asm")
    assert "v_mfma" in asm
    for kernel in [line.split()[-1] for line in asm.splitlines() if ".amdhsa_kernel" in line]:
        check_hazards(parse_kernel(asm, kernel), CHIPS[chip])
