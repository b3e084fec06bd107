"""Granite: Llama with multipliers for embeddings, scores, sums and logits; some sizes have experts, with or without one that all tokens share. Most layers of
Granite 4 are state space models.

Source: transformers' modeling_granite.py, modeling_granitemoe.py, modeling_granitemoeshared.py, modeling_granitemoehybrid.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from ..mixture import choose, mixture
from .mamba2 import mixer, space_of


def granite(m: Layers) -> Value:
    """`residual_multiplier` is of what is added to the sum."""
    return _decoder(m, ["attention"] * m.c.layers, m.c.get("position_embedding_type", "rope") == "rope")


def granite_hybrid(m: Layers) -> Value:
    """Layers of attention are few, and have no positions unless the configuration says so."""
    return _decoder(m, m.c.layer_kinds(), m.c.get("position_embedding_type") == "rope")


def _decoder(m: Layers, kinds: list[str], turned: bool) -> Value:
    c = m.c
    x, by = m.scaled(m.embeddings(), c.number("embedding_multiplier", 1.0)), c.number("residual_multiplier", 1.0)
    for _ in m.each_layer():
        h = m.rms_norm(x, m.name("input_layernorm"))
        if kinds[m.layer] in ("mamba", "linear_attention"):
            y = mixer(m, h, space_of(m), "mamba")
        else:
            q, k, v = m.queries_keys_values(h)
            if turned:
                q, k = (m.rotary(z, m.angles()) for z in (q, k))
            y = m.out(m.attend(q, k, v, scale=c.number("attention_multiplier", c.head_size**-0.5)))
        x = m.add(x, m.scaled(y, by))
        x = m.add(x, m.scaled(_network(m, m.rms_norm(x, m.name("post_attention_layernorm"))), by))
    return m.logits(m.rms_norm(m.last(x), "model.norm"), scale=1 / c.number("logits_scaling", 1.0))


def _network(m: Layers, h: Value) -> Value:
    router, size = "mlp.router", m.c.get("shared_intermediate_size")
    has_shared = bool(size) and any(m.w.has(m.name(f"shared_mlp.{n}.weight")) for n in ("gate_proj", "gate_up_proj"))
    if not m.w.has(m.name(f"{router}.weight")):
        return m.gated(h, "shared_mlp", int(size)) if has_shared else m.gated(h)
    chosen = choose(m, h, router, normed=False, scoring="softmax of chosen")
    y = mixture(m, h, chosen, size=m.c.size("intermediate_size"))
    return m.add(y, m.gated(h, "shared_mlp", int(size))) if has_shared else y
