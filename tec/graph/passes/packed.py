"""Constant operands of matrix products as the CPU reads them best, put in order once here.

B of a large product comes in panels (columns / block, k, block): the panel of a register tile is then one stream of memory, where
a row-major B has a page of its own for every k (one row times 256 x 1024 takes a third of the time). B of a small one is
[k, n], whose rows are contiguous.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_LEAST = 1 << 14  # elements of B from which on packing pays


def pack_weights(graph: Graph, target: Target) -> Graph:
    """The graph with constant second operands of its float32 products in the CPU's order."""
    lanes = max(4, target.vector_bytes // 4)
    made: dict[tuple[Value, bool, int], Value] = {}

    def constant(b: Rebuild, w: Value, transposed: bool, block: int) -> Value:
        key = (w, transposed, block)
        if key not in made:
            data = np.asarray(w.data)
            data = data.swapaxes(-1, -2) if transposed else data
            if block:
                k, n = data.shape
                full = np.pad(data, ((0, 0), (0, -n % block)))
                data = full.reshape(k, -1, block).transpose(1, 0, 2)
            made[key] = b.new.constant(np.ascontiguousarray(data), w.name, w.dtype)
        return made[key]

    def handle(b: Rebuild, node: Node) -> bool:
        if node.op != "matmul" or not node.inputs[1].is_const:
            return False
        w, attrs = node.inputs[1], dict(node.attrs)
        transposed = bool(attrs.pop("transpose_b", False))
        block = _block(node, lanes)
        if not block and not transposed:
            return False
        operands = [b.value(node.inputs[0]), constant(b, w, transposed, block)]
        extra: dict[str, Any] = {"columns": node.outputs[0].shape[-1]} if block else {}
        op = "matmul_packed" if block else "matmul"
        b.map[node.outputs[0]] = b.new.add(op, operands, {**attrs, **extra}, node.outputs[0].name, node.origin)[0]
        return True

    return rebuild(graph, handle)


def _block(node: Node, lanes: int) -> int:
    """Columns of a panel; 0 where the product is better off without."""
    (x, w), out = node.inputs, node.outputs[0]
    n = out.shape[-1]
    if x.dtype != "float32" or w.ndim != 2 or w.type.size < _LEAST or node.attrs.get("transpose_a") or n < lanes:
        return 0
    return 2 * lanes if n % (2 * lanes) == 0 else lanes
