"""A float32 graph in 64 bits: what a network would say without rounding, to see whose sums are nearer."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec.graph import Graph, Value


def in_float64(graph: Graph) -> Graph:
    """The same operators on float64: inputs, weights and casts that were float32."""
    out = Graph(graph.name)
    known: dict[Value, Value] = {}

    def wide(dtype: str) -> str:
        return "float64" if dtype == "float32" else dtype

    for v in graph.inputs:
        known[v] = out.input(v.name, wide(v.dtype), v.shape)

    def value(v: Value) -> Value:
        if v not in known:
            assert v.is_const
            array: Any = np.asarray(v.data)
            known[v] = out.constant(array.astype(np.float64) if v.dtype == "float32" else array, v.name)
        return known[v]

    for n in graph.nodes:
        attrs = {k: wide(a) if k in ("dtype", "out_dtype") else a for k, a in n.attrs.items()}
        results = out.add(n.op, [value(v) for v in n.inputs], attrs, name=n.outputs[0].name)
        for old, new in zip(n.outputs, results):
            assert new.dtype == wide(old.dtype)
            known[old] = new
    out.set_outputs([value(v) for v in graph.outputs], list(graph.output_names))
    return out
