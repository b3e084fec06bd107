"""Mixtures of experts: a router gives each token a weight for some of the feed-forward networks, and 0 for the others.

All experts together are one wide gated network whose inner features are multiplied by their expert's weight: gates and ups one below the other, downs one beside
the other. Weights stay packed, and products are those of every network; experts whose weight is 0 are computed too, so that a step reads all of them.
"""

from __future__ import annotations

import numpy as np

from ..graph import Value
from .layers import Layers


def mixture(m: Layers, x: Value, *, router: str = "mlp.gate", normed: bool) -> Value:
    """x [tokens, hidden] through the layer's experts, `mlp.experts`. normed: the weights of a token's experts add up to 1."""
    c, b = m.c, m.b
    count, size = experts_of(m), c.size("moe_intermediate_size", c.get("intermediate_size"))
    weights = routing(m, x, m.name(router), count, normed)
    prefix = m.name("mlp.experts")
    gate, up = m.linear(x, f"{prefix}.gate_proj", f"{prefix}.up_proj", sizes=[count * size] * 2, bias=False)
    y = b.reshape(b.op("multiply", m.activation(gate), up), (m.tokens, count, size))
    y = b.op("multiply", y, b.cast(b.reshape(weights, (m.tokens, count, 1)), y.dtype))
    y = b.reshape(y, (m.tokens, count * size))
    return m.linear(y, f"{prefix}.down_proj", sizes=[c.hidden], bias=False, beside=True)[0]


def experts_of(m: Layers) -> int:
    """Experts of a layer, by the names that configurations have for their number."""
    return m.c.size("num_experts", m.c.get("num_local_experts"))


def routing(m: Layers, x: Value, router: str, count: int, normed: bool) -> Value:
    """The weights of the experts, float32 [tokens, experts]: the largest of the router's softmax, 0 for the others."""
    b, chosen = m.b, m.c.size("num_experts_per_tok")
    scores = b.op("softmax", b.cast(m.linear(x, router, sizes=[count])[0], "float32"), axes=(1,))
    values, places = b.ops("topk", scores, k=chosen, axis=1)
    if normed:
        values = b.op("divide", values, b.op("reduce_sum", values, axes=(1,), keepdims=True))
    numbers = b.const(np.arange(count).reshape(1, 1, count), places.dtype)
    places, values = (b.reshape(v, (m.tokens, chosen, 1)) for v in (places, values))
    own = b.op("where", b.op("equal", places, numbers), values, b.like(0, values))
    return b.op("reduce_sum", own, axes=(1,), keepdims=False)
