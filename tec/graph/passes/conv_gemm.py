"""Convolutions as matrix products for GPUs: weights become a matrix once; the product reads the image through im2col tiles."""

from __future__ import annotations

import numpy as np

from ...ops import conv_gemm as _conv_gemm  # noqa: F401  (registers the operator)
from ..graph import Graph, Node
from .rewrite import Rebuild, rebuild


def conv_as_gemm(graph: Graph) -> Graph:
    """The graph with its 2-D convolutions of one group and constant weights as `conv_gemm`."""

    def handle(b: Rebuild, node: Node) -> bool:
        if node.op != "conv" or node.inputs[0].ndim != 4 or node.attrs["groups"] != 1 or not node.inputs[1].is_const:
            return False
        x, w = node.inputs
        if x.dtype != w.dtype or x.dtype not in ("float32", "float16", "bfloat16", "float64"):
            return False
        matrix = b.new.constant(np.asarray(w.data).reshape(w.shape[0], -1), w.name, w.dtype)
        attrs = {k: node.attrs[k] for k in ("strides", "dilations", "before", "after")}
        attrs["kernel"] = tuple(w.shape[2:])
        b.map[node.outputs[0]] = b.new.add("conv_gemm", [b.value(x), matrix], attrs, node.outputs[0].name, node.origin)[
            0
        ]
        return True

    return rebuild(graph, handle) if any(n.op == "conv" for n in graph.nodes) else graph
