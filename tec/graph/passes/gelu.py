"""GELU as networks write it, as the one operator that it is:

    x * 0.5 * (1 + erf(x * sqrt(0.5)))    in any order of factors, divisions by constants among them    ->   gelu(x)

In 16 bits its parts would be rounded one by one, where the operator works in float32 inside and rounds once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_CLOSE = 1e-3  # of the constants, which exporters write in float16 too


def find_gelu(graph: Graph) -> Graph:
    """The graph with GELUs as operators."""
    users = graph.users()
    outputs = set(graph.outputs)
    made = {node: x for node in graph.nodes if (x := _gelu(node, users, outputs)) is not None}

    def handle(b: Rebuild, node: Node) -> bool:
        if node not in made:
            return False
        (out,) = node.outputs
        b.map[out] = b.new.add("gelu", [b.value(made[node])], {}, out.name, node.origin)[0]
        return True

    return rebuild(graph, handle) if made else graph


def _gelu(node: Node, users: dict[Value, list[Node]], outputs: set[Value]) -> Value | None:
    """x, where a node's result is gelu(x) and nothing else reads what it is made of."""
    if node.op not in ("multiply", "divide") or node.outputs[0].dtype != "float32":
        return None

    def own(v: Value) -> bool:
        return len(users.get(v, ())) == 1 and v not in outputs

    weight, parts = _factors(node.outputs[0], own, True)
    if len(parts) != 2 or abs(weight - 0.5) > 0.5 * _CLOSE:
        return None
    for x, total in (parts, parts[::-1]):
        inside = _erf_of(total, own)
        if inside is None or x.shape != node.outputs[0].shape:
            continue
        scale, of = _factors(inside, own, False)
        if of == [x] and abs(scale - math.sqrt(0.5)) < _CLOSE:
            return x
    return None


def _number(v: Value) -> float | None:
    """A constant's one value."""
    return float(np.asarray(v.data).reshape(-1)[0]) if v.is_known and v.data is not None and v.data.size == 1 else None


def _factors(v: Value, own: Callable[[Value], bool], is_root: bool) -> tuple[float, list[Value]]:
    """A value as a constant times other values, through products that only it reads."""
    number = _number(v)
    if number is not None:
        return number, []
    node = v.node
    if node is None or node.op not in ("multiply", "divide") or not (is_root or own(v)):
        return 1.0, [v]
    a, left = _factors(node.inputs[0], own, False)
    b, right = _factors(node.inputs[1], own, False)
    if node.op == "divide":
        return (a / b, left) if b and not right else (1.0, [v])
    return a * b, left + right


def _erf_of(v: Value, own: Callable[[Value], bool]) -> Value | None:
    """What is y where `v` is 1 + erf(y), read by nobody else."""
    if v.node is None or v.node.op != "add" or not own(v):
        return None
    for one, erf in (v.node.inputs, v.node.inputs[::-1]):
        if _number(one) == 1.0 and erf.node is not None and erf.node.op == "erf" and own(erf):
            return erf.node.inputs[0]
    return None


__all__ = ["find_gelu"]
