"""Granite: Llama with multipliers for embeddings, scores, sums and logits; some sizes have experts, with or without one that all tokens share.

Source: transformers' modeling_granite.py, modeling_granitemoe.py, modeling_granitemoeshared.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from ..mixture import choose, mixture


def granite(m: Layers) -> Value:
    """`residual_multiplier` is of what is added to the sum."""
    c = m.c
    x, by = m.scaled(m.embeddings(), c.number("embedding_multiplier", 1.0)), c.number("residual_multiplier", 1.0)
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("input_layernorm")))
        if c.get("position_embedding_type", "rope") == "rope":
            q, k = (m.rotary(h, m.angles()) for h in (q, k))
        y = m.out(m.attend(q, k, v, scale=c.number("attention_multiplier", c.head_size**-0.5)))
        x = m.add(x, m.scaled(y, by))
        x = m.add(x, m.scaled(_network(m, m.rms_norm(x, m.name("post_attention_layernorm"))), by))
    return m.logits(m.rms_norm(m.last(x), "model.norm"), scale=1 / c.number("logits_scaling", 1.0))


def _network(m: Layers, h: Value) -> Value:
    router = "mlp.router"
    if not m.w.has(m.name(f"{router}.weight")):
        return m.gated(h)
    chosen = choose(m, h, router, normed=False, scoring="softmax of chosen")
    y = mixture(m, h, chosen, size=m.c.size("intermediate_size"))
    size = m.c.get("shared_intermediate_size")
    return m.add(y, m.gated(h, "shared_mlp", int(size))) if size else y
