"""GELU as networks write it, as the one operator that it is:

    x * 0.5 * (1 + erf(x * sqrt(0.5)))                                  ->   gelu(x)
    x * 0.5 * (1 - erf(-x * sqrt(0.5)))                                 ->   gelu(x), as TensorFlow and JAX write it by erfc
    x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))     ->   gelu_tanh(x)

in any order of factors, divisions by constants among them. In 16 bits its parts would be rounded one by one, where the operator works in float32 inside and
rounds once; in float32 the exporters' spellings become one kernel.
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
    made = {node: found for node in graph.nodes if (found := _gelu(node, users, outputs)) is not None}

    def handle(b: Rebuild, node: Node) -> bool:
        if node not in made:
            return False
        (out,) = node.outputs
        op, x = made[node]
        b.map[out] = b.new.add(op, [b.value(x)], {}, out.name, node.origin)[0]
        return True

    return rebuild(graph, handle) if made else graph


def _gelu(node: Node, users: dict[Value, list[Node]], outputs: set[Value]) -> tuple[str, Value] | None:
    """The operator and x, where a node's result is gelu(x) and nothing else reads what it is made of."""
    if node.op not in ("multiply", "divide") or node.outputs[0].dtype != "float32":
        return None

    def own(v: Value) -> bool:
        return len(users.get(v, ())) == 1 and v not in outputs

    weight, parts = _factors(node.outputs[0], own, True)
    if len(parts) != 2 or abs(weight - 0.5) > 0.5 * _CLOSE:
        return None
    for x, total in (parts, parts[::-1]):
        if x.shape != node.outputs[0].shape:
            continue
        for sign, combined in ((1, "add"), (-1, "subtract")):
            inside = _one_and(total, "erf", own, combined)
            if inside is not None:
                scale, of = _factors(inside, own, False)
                if of == [x] and abs(sign * scale - math.sqrt(0.5)) < _CLOSE:
                    return "gelu", x
        inside = _one_and(total, "tanh", own)
        if inside is not None and _is_bend(inside, x, own):
            return "gelu_tanh", x
    return None


def _is_bend(v: Value, x: Value, own: Callable[[Value], bool]) -> bool:
    """Whether v is sqrt(2 / pi) * (x + 0.044715 * x cubed)."""
    scale, sums = _factors(v, own, True)
    if len(sums) != 1 or abs(scale - math.sqrt(2 / math.pi)) > _CLOSE:
        return False
    total = sums[0].node
    if total is None or total.op != "add" or not own(sums[0]) or x not in total.inputs:
        return False
    cubic = total.inputs[1] if total.inputs[0] is x else total.inputs[0]
    weight, parts = _factors(cubic, own, False)
    flat = [p for part in parts for p in _powers(part, own)]
    return abs(weight - 0.044715) < 0.044715 * _CLOSE and flat == [x] * 3


def _powers(v: Value, own: Callable[[Value], bool]) -> list[Value]:
    """x three times for the third power of x, twice for its square."""
    node = v.node
    if node is not None and own(v):
        if node.op == "power" and _number(node.inputs[1]) == 3.0:
            return [node.inputs[0]] * 3
        if node.op == "square":
            return [node.inputs[0]] * 2
    return [v]


def _number(v: Value) -> float | None:
    """A constant's one value."""
    return float(np.asarray(v.data).reshape(-1)[0]) if v.is_known and v.data is not None and v.data.size == 1 else None


def _factors(v: Value, own: Callable[[Value], bool], is_root: bool) -> tuple[float, list[Value]]:
    """A value as a constant times other values, through products that only it reads."""
    number = _number(v)
    if number is not None:
        return number, []
    node = v.node
    if node is not None and node.op == "neg" and own(v):
        a, left = _factors(node.inputs[0], own, False)
        return -a, left
    if node is None or node.op not in ("multiply", "divide") or not (is_root or own(v)):
        return 1.0, [v]
    a, left = _factors(node.inputs[0], own, False)
    b, right = _factors(node.inputs[1], own, False)
    if node.op == "divide":
        return (a / b, left) if b and not right else (1.0, [v])
    return a * b, left + right


def _one_and(v: Value, op: str, own: Callable[[Value], bool], combined: str = "add") -> Value | None:
    """What is y where `v` is 1 + op(y), or 1 - op(y), read by nobody else."""
    if v.node is None or v.node.op != combined or not own(v):
        return None
    for one, made in (v.node.inputs, v.node.inputs[::-1])[: 1 if combined == "subtract" else 2]:
        if _number(one) == 1.0 and made.node is not None and made.node.op == op and own(made):
            return made.node.inputs[0]
    return None
