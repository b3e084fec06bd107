"""Sums over axes around others that stay, the last of them short, one after another on GPUs whose prices tell that it pays:

    sum(x[46, 7809, 3], axes 0 and 2)  ->  sum(sum(x, axis 0), axis 2)

At once, the threads that share a sum read runs of a few elements a whole row apart, each of which is a part of a line that comes whole. The first of two steps reads rows as they lie, and
leaves little for the second, which is a launch more.
"""

from __future__ import annotations

import math

from ...choices.operator_price import operator_seconds
from ...ir.dtype import dtype_info
from ...ops.matmul import accumulator
from ...ops.registry import TensorType
from ...target import Target
from ..graph import Graph, Node
from .rewrite import Rebuild, rebuild

# What is done behind the first step of each operator.
_SECOND = {
    "reduce_sum": "reduce_sum", "reduce_sum_square": "reduce_sum", "reduce_sum_abs": "reduce_sum", "reduce_mean": "reduce_mean",
    "reduce_max": "reduce_max", "reduce_min": "reduce_min",
}  # fmt: skip

Axes = tuple[int, ...]
_LINE_BYTES = 128
_PARTS = 8  # of a line that runs are at most: of longer ones what all lines take is no longer most of the time, and the prices of one step and of two no longer tell them apart

_MARGIN = 0.88  # of the price of one step, that both may have at most: 40 MB in two steps take a quarter more than their price on an RX 7900 XTX by the time model, and in one as long as the price says


def separate_sums(graph: Graph, target: Target) -> Graph:
    """The graph with such sums in two steps where these should take less time than one."""
    if not (target.is_gpu and target.machine.priced_by_model):
        return graph
    found = {n: split for n in graph.nodes if (split := _split(n)) is not None and _pays(n, *split, target)}
    return rebuild(graph, lambda b, n: n in found and _in_two(b, n, *found[n])) if found else graph


def _split(node: Node) -> tuple[Axes, Axes] | None:
    """The axes of the first step and of the second; None where there are no others between them."""
    if node.op not in _SECOND:
        return None
    x = node.inputs[0]
    if x.type.is_symbolic or not x.dtype.startswith(("float", "bfloat")):
        return None
    axes = {a % x.ndim for a in node.attrs["axes"]}
    begin = x.ndim  # of the last axes that are summed
    while begin and begin - 1 in axes:
        begin -= 1
    first, second = tuple(sorted(a for a in axes if a < begin)), tuple(range(begin, x.ndim))
    stays = math.prod(n for a, n in enumerate(x.shape[:begin]) if a > min(first, default=begin) and a not in axes)
    length, run = (math.prod(x.shape[a] for a in some) for some in (first, second))
    is_short = 1 < run and _PARTS * run * dtype_info(x.dtype).bytes <= _LINE_BYTES
    return (first, second) if is_short and stays > 1 and length > 1 else None


def _pays(node: Node, first: Axes, second: Axes, target: Target) -> bool:
    x = node.inputs[0].type
    left = TensorType(accumulator(x.dtype), tuple(1 if a in first else n for a, n in enumerate(x.shape)))
    whole = operator_seconds(node.op, [x], {"axes": node.attrs["axes"], "keepdims": True}, target)
    least = _MARGIN * whole - target.machine.launch_seconds  # of the first step: the second is a launch at least
    if (seconds := operator_seconds(node.op, [x], {"axes": first, "keepdims": True}, target)) >= least:
        return False
    then = operator_seconds(_SECOND[node.op], [left], {"axes": second, "keepdims": True}, target)
    return seconds + then < _MARGIN * whole


def _in_two(b: Rebuild, node: Node, first: Axes, second: Axes) -> bool:
    x, out = node.inputs[0], node.outputs[0]
    made = b.cast(b.value(x), accumulator(x.dtype), out.name, node.origin)
    for op, axes in ((node.op, first), (_SECOND[node.op], second)):
        (made,) = b.new.add(op, [made], {"axes": axes, "keepdims": True}, out.name, node.origin)
    made = b.cast(made, out.dtype, out.name, node.origin)
    if made.shape != out.shape:
        (made,) = b.new.add("reshape", [made], {"shape": out.shape}, out.name, node.origin)
    b.map[out] = made
    return True


__all__ = ["separate_sums"]
