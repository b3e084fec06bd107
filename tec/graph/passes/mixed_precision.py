"""Mixed precision: contractions and what follows them in 16 bits, with float32 where the range or the sum needs it.

`SUMS`: contractions (they accumulate in float32 whatever they are given). `FOLLOWS_16`: operators that lose little, done in 16
bits where all their computed inputs already are; the normalizations among them work in float32 inside. Everything else
(exponentials, powers, sums over many elements, divisions) stays in float32. Inputs and outputs of the network keep their types.
A node that is named computes as is asked (`graph/precision.py`), unless a constant of it would overflow.
"""

from __future__ import annotations

import numpy as np

from ...ir.dtype import FLOAT_MAX
from ...ops.registry import FOLLOWS_16, SUMS
from ...te.numpy_dtype import np_dtype
from ..graph import Graph, Node, Value
from ..precision import precision_of
from .rewrite import Rebuild


def mixed_precision(graph: Graph, dtype: str = "float16") -> Graph:
    """The graph with 16-bit arithmetic where that is safe. `dtype`: "float16" or "bfloat16" ("float32" changes nothing), or types by node,
    see `graph/precision.py`."""
    precision = precision_of(dtype)
    if precision.default in ("", "float32") and all(t == "float32" for _, t in precision.nodes):
        return graph
    casts: dict[tuple[Value, str], Value] = {}

    def cast(b: Rebuild, v: Value, to: str) -> Value:
        """`v` (of the new graph) as `to`; constants are converted, others get one cast each."""
        if v.dtype == to:
            return v
        hit = casts.get((v, to))
        if hit is None:
            if v.is_known:
                hit = b.new.constant(np.asarray(v.data).astype(np_dtype(to)), v.name, to)
            else:
                hit = b.cast(v, to)
            casts[v, to] = hit
        return hit

    def in_16(b: Rebuild, node: Node, dtype: str, named: bool) -> bool:
        floats = [v for v in node.inputs if v.dtype == "float32"]
        if dtype in ("", "float32") or not floats or node.outputs[0].dtype != "float32":
            return False
        if any(v.is_known and not _fits(v, dtype) for v in floats):
            return False
        if named or SUMS in node.definition.traits:
            return True
        computed = [b.value(v) for v in floats if not v.is_const]
        # What another reader has already had converted counts as 16 bits: the sum of a residual, say.
        follows = FOLLOWS_16 in node.definition.traits
        return follows and bool(computed) and all(v.dtype == dtype or (v, dtype) in casts for v in computed)

    def handle(b: Rebuild, node: Node) -> None:
        named = precision.named(node.origin)
        wanted = precision.default if named is None else named
        to = wanted if in_16(b, node, wanted, named is not None) else "float32"
        inputs = []
        for v in node.inputs:
            new = b.value(v)
            inputs.append(cast(b, new, to) if v.dtype == "float32" else new)
        outs = b.new.add(node.op, inputs, node.attrs, node.outputs[0].name, node.origin)
        b.map.update(zip(node.outputs, outs))

    b = Rebuild(graph)
    for node in graph.nodes:
        handle(b, node)
    for v in graph.outputs:
        if not v.is_const:
            b.map[v] = cast(b, b.map[v], v.dtype)
    return b.finish()


def _fits(v: Value, dtype: str) -> bool:
    """Whether a constant survives in 16 bits: nothing overflows, and what underflows is nothing beside its largest value."""
    data = np.asarray(v.data)
    size = np.abs(data[np.isfinite(data)])
    if not size.size or dtype == "bfloat16":
        return True
    largest = size.max()
    lost = (size > 0) & (size < 6e-8) & (size > largest * 2.0**-11)
    return bool(largest < FLOAT_MAX["float16"] and not np.any(lost))
