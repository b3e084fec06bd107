"""Constant operands of matrix products, and of recurrent layers, as the target's templates read them best (`tec.choices.layouts`), put in order once here."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...choices import layouts as preferred
from ...choices.families.recurrent import preferred_panel
from ...choices.operator_price import is_better_turned
from ...ops.layouts import Layout
from ...ops.recurrent import Recurrence, packed
from ...ops.registry import TensorType
from ...target import Target
from ..graph import Graph, Node, Value
from ..regions import is_region
from .rewrite import Rebuild, rebuild


def order_weights(graph: Graph, target: Target) -> Graph:
    """The graph with constant operands of `matmul` in the layouts that the target's templates like."""
    made: dict[tuple[Value, bool, Layout], Value] = {}
    turned = _better_turned(graph, target)

    def stored(b: Rebuild, v: Value, is_turned: bool, layout: Layout) -> Value:
        key = (v, is_turned, layout)
        if key not in made:
            data: Any = np.asarray(v.data)
            if layout.blocks:
                data = layout.store(data, "NK" if is_turned else "KN")
            else:
                data = np.ascontiguousarray(data.swapaxes(-1, -2))
            made[key] = b.new.constant(data, v.name, v.dtype)
        return made[key]

    def handle(b: Rebuild, node: Node) -> bool:
        if node.op == "recurrence":
            return _panels(b, node, target)
        if node.op != "matmul" or not any(v.is_known for v in node.inputs):
            return False
        x, y = node.inputs
        attrs, operands = dict(node.attrs), [b.value(x), b.value(y)]
        wanted = preferred.product(target, x.type, y.type, node.outputs[0].type, attrs)
        wanted_b = wanted.b or (Layout("KN") if y in turned else None)
        for k, (v, layout, side, along) in enumerate(((x, wanted.a, "a", "KM"), (y, wanted_b, "b", "NK"))):
            is_turned = bool(attrs.get(f"transpose_{side}"))
            if layout is None or not v.is_known or attrs.get(f"view_{side}"):
                continue
            if layout.blocks or (layout.name == along) != is_turned:
                operands[k] = stored(b, v, is_turned, layout)
                attrs.pop(f"transpose_{side}", None)
                if layout.name == along:
                    attrs[f"transpose_{side}"] = True
                if layout.blocks:
                    attrs |= {f"layout_{side}": layout, "columns": node.outputs[0].shape[-1]}
        if attrs == node.attrs:
            return False
        b.map[node.outputs[0]] = b.new.add("matmul", operands, attrs, node.outputs[0].name, node.origin)[0]
        return True

    return rebuild(graph, handle)


def _better_turned(graph: Graph, target: Target) -> set[Value]:
    """Constants that a GPU's products read more quickly the other way round, by their prices, and that nothing reads as they are: no weight is held twice."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes if target.is_gpu else ():
        for v in node.inputs:
            if v.is_known:
                readers.setdefault(v, []).append(node)

    @functools.cache
    def is_better(x: TensorType, y: TensorType, out: TensorType, attrs: tuple[tuple[str, Any], ...]) -> bool:
        if preferred.product(target, x, y, out, dict(attrs)).b is not None:
            return False
        return is_better_turned(target, x, y, dict(attrs))

    def gains(node: Node, v: Value) -> bool:
        if node.op != "matmul" or node.inputs[1] is not v or node.inputs[0] is v or not node.attrs.get("transpose_b"):
            return False
        return is_better(node.inputs[0].type, v.type, node.outputs[0].type, tuple(sorted(node.attrs.items())))

    kept = {v for v in graph.outputs if v.is_known} | {v for n in graph.nodes if is_region(n) for v in n.inputs}
    return {v for v, nodes in readers.items() if v not in kept and all(gains(n, v) for n in nodes)}


def _panels(b: Rebuild, node: Node, target: Target) -> bool:
    """A recurrent layer's constant weights in the panels that its loops read."""
    r, weights = Recurrence.of(node.attrs), node.inputs[1]
    panel = preferred_panel(r, weights.dtype, target)
    if r.panel or not panel or not weights.is_known:
        return False
    stored = b.new.constant(packed(r, np.asarray(weights.data), panel), weights.name, weights.dtype)
    operands = [b.value(node.inputs[0]), stored, *map(b.value, node.inputs[2:])]
    outs = b.new.add(node.op, operands, {**node.attrs, "panel": panel}, node.outputs[0].name, node.origin)
    b.map.update(zip(node.outputs, outs))
    return True
