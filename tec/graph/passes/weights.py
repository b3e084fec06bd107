"""Constant operands of matrix products, and of recurrent layers, as the target's templates read them best (`tec.choices.layouts`), put in order once here."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...choices import layouts as preferred
from ...choices.families.recurrent import preferred_panel
from ...ops.layouts import Layout
from ...ops.recurrent import Recurrence, packed
from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild


def order_weights(graph: Graph, target: Target) -> Graph:
    """The graph with constant operands of `matmul` in the layouts that the target's templates like."""
    made: dict[tuple[Value, bool, Layout], Value] = {}

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
        for k, (v, layout, side, turned) in enumerate(((x, wanted.a, "a", "KM"), (y, wanted.b, "b", "NK"))):
            is_turned = bool(attrs.get(f"transpose_{side}"))
            if layout is None or not v.is_known or attrs.get(f"view_{side}"):
                continue
            if layout.blocks or (layout.name == turned) != is_turned:
                operands[k] = stored(b, v, is_turned, layout)
                attrs[f"transpose_{side}"] = layout.name == turned
                if layout.blocks:
                    attrs |= {f"layout_{side}": layout, "columns": node.outputs[0].shape[-1]}
        if attrs == node.attrs:
            return False
        b.map[node.outputs[0]] = b.new.add("matmul", operands, attrs, node.outputs[0].name, node.origin)[0]
        return True

    return rebuild(graph, handle)


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
