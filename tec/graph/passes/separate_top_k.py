"""The largest elements of few long lines in two steps on GPUs: those of parts of a line, all parts at once, and those of what is left.

    topk(x[1, 32000], k=40)  ->  topk(topk(x[1, 25, 1280], k=40), k=40)
    argmax(x[1, 32000])      ->  argmax(x[1, 125, 256]), and of the elements that stand there the argmax again; the largest one of a topk likewise

At once, a line is one work-group's, and most of the GPU has nothing to do. Parts stand in the line's order, and each gives its elements in theirs, so that of equals the first comes first
in two steps as it does in one.
"""

from __future__ import annotations

import math
from typing import Any

from ...choices.operator_price import MARGIN, operator_seconds
from ...ops.dims import Size
from ...ops.registry import TensorType, normalize_axis
from ...ops.typical import typical
from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

# Elements of a line from which on it is long: the largest work-group has 1,024 threads, and up to 16 elements of each are searched before a second launch begins.
_LEAST = 16384
_LEFT = 4  # of a line's elements no more than this part are left for the second step


def separate_top_k(graph: Graph, target: Target) -> Graph:
    """The graph with such lines in two steps where these should take less time than one."""
    if not target.is_gpu:
        return graph
    found = {n: parts for n in graph.nodes if (parts := _parts(n, target))}
    return rebuild(graph, lambda b, n: n in found and _in_two(b, n, found[n])) if found else graph


def _asked(node: Node) -> tuple[int, bool] | None:
    """(how many are looked for, whether they are the largest); None of an operator that looks for none in this way."""
    if node.op == "topk":
        return node.attrs["k"], bool(node.attrs.get("largest", True))
    # The first of the largest, NaN above all. An argmin takes NaN too, which is above the smallest here.
    return (1, True) if node.op == "argmax" and not node.attrs.get("last", False) else None


def _parts(node: Node, target: Target) -> int:
    """In how many parts a line is taken; 0 where it stays as it is. Lines may be of any number."""
    asked = _asked(node)
    x = node.inputs[0] if node.inputs else None
    if asked is None or x is None or not x.dtype.startswith(("float", "bfloat")):
        return 0
    (k, largest), axis, n = asked, normalize_axis(node.attrs["axis"], x.ndim), x.shape[-1]
    lines = math.prod(map(typical, x.shape[:-1]))
    if axis != x.ndim - 1 or not isinstance(n, int) or n < _LEAST or not k or not lines:
        return 0

    def seconds(op: str, rows: int, length: int) -> float:
        attrs: dict[str, Any] = {"k": k, "largest": largest} if op == "topk" else {"keepdims": True}
        return operator_seconds(op, [TensorType(x.dtype, (rows, length))], {"axis": 1, **attrs}, target)

    one = (k, largest) == (1, True)
    # Kernels beside the two: one picks the places; of a topk's another adds where the parts begin, which no clock has judged.
    step, beside = ("argmax", 1) if one else ("topk", 2 * target.machine.priced_by_model)
    between = beside * target.machine.launch_seconds
    most = min(target.machine.units // lines, n // (_LEFT * k))
    prices = {
        p: seconds(step, lines * p, n // p) + between + seconds(step, lines, p * k)
        for p in range(2, most + 1)
        if n % p == 0
    }
    best = min(prices, key=lambda p: prices[p], default=0)
    return best if best and prices[best] < MARGIN * seconds(node.op, lines, n) else 0


def _in_two(b: Rebuild, node: Node, parts: int) -> bool:
    asked = _asked(node)
    assert asked is not None
    x, name, origin = node.inputs[0], node.outputs[0].name, node.origin
    (k, largest), n, lines = asked, x.shape[-1], math.prod(x.shape[:-1])
    assert isinstance(n, int)

    def add(op: str, inputs: list[Value], **attrs: object) -> list[Value]:
        return b.new.add(op, inputs, attrs, name, origin)

    def shaped(v: Value, *shape: Size) -> Value:
        return add("reshape", [v], shape=shape)[0]

    def best(v: Value) -> list[Value]:
        """Of each line of v the elements, and their places."""
        if (k, largest) != (1, True):
            return add("topk", [v], axis=1, k=k, largest=largest)
        (at,) = add("argmax", [v], axis=1, keepdims=True)
        return [*add("gather_elements", [v, at], axis=1), at]

    values, places = best(shaped(b.value(x), lines * parts, n // parts))
    (starts,) = add("iota", [], size=parts, start=0, step=n // parts, dtype="int64")
    (places,) = add("add", [shaped(places, lines, parts, k), shaped(starts, 1, parts, 1)])
    values, at = best(shaped(values, lines, parts * k))
    (places,) = add("gather_elements", [shaped(places, lines, parts * k), at], axis=1)
    made = [values, places] if node.op == "topk" else [places]
    for out, v in zip(node.outputs, made):
        b.map[out] = shaped(v, *out.shape)
    return True
