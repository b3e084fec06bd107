"""ONNX's ways to write attention all become the one operator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tec_onnx
from onnx import TensorProto, helper

from tec.graph.passes.attention import find_attention
from tec.graph.passes.dead_code import dead_code

MS = "com.microsoft"
B, S, H, N = 2, 5, 16, 4
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT32
THREE = {"q": (FLOAT, (B, S, H)), "k": (FLOAT, (B, S, H)), "v": (FLOAT, (B, S, H))}
FOUR = {"q": (FLOAT, (B, N, S, 4)), "k": (FLOAT, (B, 2, 7, 4)), "v": (FLOAT, (B, 2, 7, 4))}
CASES = [
    (MS, "Attention", {"x": (FLOAT, (B, S, H)), "w": (FLOAT, (H, 3 * H)), "b": (FLOAT, (3 * H,))}, {"num_heads": N}),
    (
        MS, "Attention",
        {"x": (FLOAT, (B, S, H)), "w": (FLOAT, (H, 3 * H)), "b": (FLOAT, (3 * H,)), "m": (INT, (B, S))},
        {"num_heads": N, "unidirectional": 1},
    ),
    (MS, "MultiHeadAttention", THREE, {"num_heads": N}),
    ("", "Attention", THREE, {"q_num_heads": N, "kv_num_heads": N}),
    ("", "Attention", FOUR, {}),
    ("", "Attention", FOUR, {"is_causal": 1, "softcap": 2.0}),
    ("", "Attention", {**FOUR, "mask": (FLOAT, (S, 7))}, {"scale": 0.3}),
    ("", "Attention", {**FOUR, "mask": (TensorProto.BOOL, (B, 1, S, 7))}, {}),
]  # fmt: skip


@pytest.mark.parametrize("domain,op,ins,attrs", CASES)
def test_is_one_operator(domain, op, ins, attrs):
    if domain == "":  # inlined as the installed onnx defines it: since 1.18, with the soft cap in its place since 1.22
        version = tuple(int(x) for x in onnx.__version__.split(".")[:2])
        if version < ((1, 22) if "softcap" in attrs else (1, 18)):
            pytest.skip(f"onnx {onnx.__version__} does not define this Attention")
    node = helper.make_node(op, list(ins), ["y"], domain=domain, **attrs)
    infos = [helper.make_tensor_value_info(k, kind, shape) for k, (kind, shape) in ins.items()]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
    g, _ = tec_onnx.from_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    ops = [n.op for n in dead_code(find_attention(dead_code(g))).nodes]
    assert ops.count("attention") == 1 and "softmax" not in ops
    assert np.count_nonzero([o == "matmul" for o in ops]) == (op == "Attention" and domain == MS)  # its projection
