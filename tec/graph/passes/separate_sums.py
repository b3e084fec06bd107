"""Sums over axes around others that stay, the last of them short, one after another on GPUs whose prices tell that it pays:

    sum(x[46, 7809, 3], axes 0 and 2)  ->  sum(sum(x, axis 0), axis 2)

At once, the threads that share a sum read runs of a few elements a whole row apart, each of which is a part of a line that comes whole. The first of two steps reads rows as they lie, and
leaves little for the second, which is a launch more.
"""

from __future__ import annotations

import math

from ...choices.operator_price import operator_seconds, separate_sums_known
from ...ir.dtype import dtype_info
from ...ops.matmul import accumulator
from ...ops.registry import TensorType, get_op
from ...target import Target
from ..graph import Graph, Node
from .rewrite import Rebuild, rebuild

Axes = tuple[int, ...]
_LINE_BYTES = 128


def separate_sums(graph: Graph, target: Target) -> Graph:
    """The graph with such sums in two steps where these should take less time than one."""
    known = separate_sums_known(target)
    if known is None:
        return graph
    margin, least_runs = known
    splits = {n: split for n in graph.nodes if (split := _split(n, least_runs)) is not None}
    found = {n: split for n, split in splits.items() if _pays(n, *split, target, margin)}
    return rebuild(graph, lambda b, n: n in found and _in_two(b, n, *found[n])) if found else graph


def _split(node: Node, least_runs: float) -> tuple[Axes, Axes] | None:
    """The axes of the first step and of the second; None where there are no others between them, or a line has fewer runs of the second's elements."""
    if not get_op(node.op).of_parts:
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
    is_short = 1 < run and least_runs * run * dtype_info(x.dtype).bytes <= _LINE_BYTES
    return (first, second) if is_short and stays > 1 and length > 1 else None


def _pays(node: Node, first: Axes, second: Axes, target: Target, margin: float) -> bool:
    x = node.inputs[0].type
    left = TensorType(accumulator(x.dtype), tuple(1 if a in first else n for a, n in enumerate(x.shape)))
    whole = operator_seconds(node.op, [x], {"axes": node.attrs["axes"], "keepdims": True}, target)
    least = margin * whole - target.machine.launch_seconds  # of the first step: the second is a launch at least
    if (seconds := operator_seconds(node.op, [x], {"axes": first, "keepdims": True}, target)) >= least:
        return False
    then = operator_seconds(get_op(node.op).of_parts, [left], {"axes": second, "keepdims": True}, target)
    return seconds + then < margin * whole


def _in_two(b: Rebuild, node: Node, first: Axes, second: Axes) -> bool:
    x, out = node.inputs[0], node.outputs[0]
    made = b.cast(b.value(x), accumulator(x.dtype), out.name, node.origin)
    for op, axes in ((node.op, first), (get_op(node.op).of_parts, second)):
        (made,) = b.new.add(op, [made], {"axes": axes, "keepdims": True}, out.name, node.origin)
    made = b.cast(made, out.dtype, out.name, node.origin)
    if made.shape != out.shape:
        (made,) = b.new.add("reshape", [made], {"shape": out.shape}, out.name, node.origin)
    b.map[out] = made
    return True
