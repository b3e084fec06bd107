"""Convolutions of few output channels as products by one pixel, whose results are added up over the window:

    conv(x, w)  ->  tap_sum(conv(x, w's taps as channels))

A window is gathered as often as it has places, of all input channels, for few sums each; the products read each pixel once, and leave only taps times outputs to be read again. On
machines whose prices tell both (`choices.operator_price`), where they say that it pays.
"""

from __future__ import annotations

import math

import numpy as np

from ...choices.operator_price import operator_seconds, taps_margin
from ...ir.dtype import dtype_info
from ...ops.matmul import accumulator
from ...ops.registry import Attrs
from ...target import Target
from ...te.numpy_dtype import np_dtype
from ..graph import Graph, Node
from .lone_convolutions import GATHERS, alone, least_seconds
from .rewrite import Rebuild, rebuild, where_priced

_ONCE = {"strides": 1, "dilations": 1, "before": 0, "after": 0}


@where_priced
def few_outputs(graph: Graph, target: Target) -> Graph:
    """The graph with convolutions of few output channels in two steps."""
    is_alone = alone(graph) is not None
    found = {n for n in graph.nodes if _may_gain(n) and _pays(n, target, is_alone)}
    return rebuild(graph, lambda b, n: n in found and _in_two(b, n)) if found else graph


def _may_gain(node: Node) -> bool:
    """Whether a convolution's products, written and read in float32, are no more bytes than its windows."""
    if node.op != "conv" or not node.inputs[1].is_known or "layouts" in node.attrs or node.attrs.get("fill"):
        return False
    x, w = node.inputs
    if x.type.is_symbolic or x.dtype != w.dtype or not x.dtype.startswith(("float", "bfloat")):
        return False
    moved = 2 * w.shape[0] * dtype_info(accumulator(x.dtype)).bytes
    return math.prod(w.shape[2:]) > 1 and moved <= x.shape[1] * dtype_info(x.dtype).bytes


def _attrs(node: Node) -> tuple[Attrs, Attrs]:
    """Of the products and of their sums."""
    own = {k: tuple(node.attrs[k]) for k in _ONCE}
    rank, groups = len(own["strides"]), node.attrs["groups"]
    once = {k: (n,) * rank for k, n in _ONCE.items()}
    sums = {**own, "kernel": tuple(node.inputs[1].shape[2:]), "groups": groups, "out_dtype": node.outputs[0].dtype}
    return {**once, "groups": groups, "out_dtype": accumulator(node.inputs[0].dtype)}, sums


def _in_two(b: Rebuild, node: Node) -> bool:
    x, w = node.inputs
    out, groups = node.outputs[0], node.attrs["groups"]
    each, sums = _attrs(node)
    outs, ins, *window = w.shape
    taps = np.moveaxis(np.asarray(w.data).reshape(groups, outs // groups, ins, math.prod(window)), 3, 1)
    weights = b.new.constant(np.ascontiguousarray(taps).reshape(-1, ins, *(1,) * len(window)), w.name, w.dtype)
    (made,) = b.new.add("conv", [b.value(x), weights], each, out.name, node.origin)
    (b.map[out],) = b.new.add("tap_sum", [made], sums, out.name, node.origin)
    return True


def _pays(node: Node, target: Target, is_alone: bool) -> bool:
    """Whether both steps together should take less time; beside other convolutions images lie as these want them."""
    x, w = node.inputs
    each, sums = _attrs(node)
    g = Graph()
    taps = g.constant(
        np.zeros((w.shape[0] * math.prod(w.shape[2:]), w.shape[1], *(1,) * (w.ndim - 2)), np_dtype(w.dtype))
    )
    (made,) = g.add("conv", [g.input("x", x.dtype, x.shape), taps], each)
    after = least_seconds(g.nodes[0], target, is_alone) + operator_seconds("tap_sum", [made.type], sums, target)
    is_gathered = math.isinf(least_seconds(node, target, is_alone, GATHERS))
    return after < taps_margin(target, is_gathered) * least_seconds(node, target, is_alone)
