"""Maxima of windows on CPUs as maxima along one axis after another:

    max_pool(x, 5 x 5 x 5)  ->  max_pool(max_pool(max_pool(x, 5 x 1 x 1), 1 x 5 x 1), 1 x 1 x 5)

The largest of a window is the largest of its rows' largest, to the bit: 15 comparisons in place of 125, beside two images more that are stored and loaded. The last axis comes last, when
strides have left the fewest rows. Its neighbours are those of a vector.
"""

from __future__ import annotations

import math
from typing import Any

from ...ops.dims import is_symbolic
from ...target import Target
from ..graph import Graph, Node
from .rewrite import Rebuild, rebuild

_PASS = 2  # comparisons that storing an image and loading it again take
_LEAST_GAIN = 1.5  # times fewer comparisons that are worth further kernels
_LISTS = ("kernel", "strides", "dilations", "before", "after", "out_space")
_ALONE = (1, 1, 1, 0, 0)  # of an axis along which there is nothing to do


def separate_pools(graph: Graph, target: Target) -> Graph:
    """The graph with maxima of large windows along one axis after another."""
    if target.is_gpu or not any(_steps(n) for n in graph.nodes):
        return graph

    def handle(b: Rebuild, node: Node) -> bool:
        steps = _steps(node)
        if not steps:
            return False
        out, value = node.outputs[0], b.value(node.inputs[0])
        for step in steps:
            (value,) = b.new.add("max_pool", [value], {**node.attrs, **step}, out.name, node.origin)
        b.map[out] = value
        return True

    return rebuild(graph, handle)


def _steps(node: Node) -> list[dict[str, Any]]:
    """Lists of the maxima along each axis of a node; empty for what stays."""
    if node.op != "max_pool" or node.attrs.get("indices") or node.attrs.get("layouts"):
        return []
    lists = [node.attrs[k] for k in _LISTS]
    x, out = node.inputs[0].shape, node.outputs[0].shape
    axes = [k for k, own in enumerate(zip(*lists)) if own[:5] != _ALONE]
    if is_symbolic((x, out, lists)) or len(axes) < 2:
        return []
    steps, space, taken = [], list(x[2:]), 0
    for axis in axes:
        space[axis] = out[2 + axis]
        alone = {
            name: tuple(own[k] if k == axis else _ALONE[i] if i < 5 else space[k] for k in range(len(space)))
            for i, (name, own) in enumerate(zip(_LISTS, lists))
        }
        steps.append(alone)
        taken += math.prod(space) * (lists[0][axis] + _PASS)
    return steps if taken * _LEAST_GAIN < math.prod(out[2:]) * math.prod(lists[0]) else []
