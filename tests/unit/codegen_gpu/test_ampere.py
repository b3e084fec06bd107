"""Ampere and Ada: a product, a convolution and an attention of float16 compile for each, on the matrix unit and with copies in the background."""

from __future__ import annotations

import numpy as np

import tec
from tec.graph.compiler import compile_graph
from tec.graph.graph import Graph
from tests.thinned import thinned_rows


@thinned_rows(1, "chip", ["sm_80", "sm_86", "sm_89"])
def test_products_convolutions_and_attention(chip: str) -> None:
    g = Graph()
    x = g.input("x", "float16", (256, 256))
    (product,) = g.add("matmul", [x, g.constant(np.zeros((256, 256), np.float16))], {})
    image = g.input("image", "float16", (1, 64, 14, 14))
    window = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1}
    (conv,) = g.add("conv", [image, g.constant(np.zeros((64, 64, 3, 3), np.float16))], window)
    heads = [g.input(n, "float16", (1, 4, 128, 64)) for n in "qkv"]
    (attention,) = g.add("attention", heads, {"scale": 0.125, "extras": ()})
    g.set_outputs([product, conv, attention])
    net = compile_graph(g, tec.Target(f"cuda -arch={chip}"))
    text = net.get_source("ptx")
    assert f".target {chip}" in text and "wgmma" not in text and "cp.async.bulk" not in text
    assert text.count("mma.sync.aligned.m16n8k16") > 8 and "cp.async.cg.shared.global" in text
    templates = {c["choice"]["template"] for c in net.report.choices.values()}
    assert {"matrix product", "matrix attention"} <= templates
