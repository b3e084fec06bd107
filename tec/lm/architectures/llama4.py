"""Llama 4: neighbours turn and are normed in most layers, whose tokens see those of their own chunk alone; every fourth layer sees all, has no positions, and sharpens
far queries. Experts take what is multiplied by their weights.

Source: transformers' modeling_llama4.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from ..mixture import choose, mixture


def llama4(m: Layers) -> Value:
    """Layers with a router have experts and one that all tokens share."""
    c, x = m.c, m.embeddings()
    turned = c.get("no_rope_layers") or [
        (k + 1) % int(c.get("no_rope_layer_interval", 4)) != 0 for k in range(c.layers)
    ]
    far = _far(m) if c.get("attn_temperature_tuning", True) else None
    chunk = int(c.get("attention_chunk_size", 0))
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("input_layernorm")))
        if turned[m.layer]:
            q, k = (m.rotary(h, m.angles(), interleaved=True) for h in (q, k))
            if c.get("use_qk_norm", True):
                q, k = m.unit(q), m.unit(k)
        elif far is not None:
            q = m.b.op("multiply", q, far)
        # A text within one chunk sees all of it.
        near = turned[m.layer] and 0 < chunk < c.context
        x = m.add(x, m.out(m.attend(q, k, v, chunk=chunk if near else 0)))
        h = m.rms_norm(x, m.name("post_attention_layernorm"))
        x = m.add(x, _experts(m, h) if m.w.has(m.name("feed_forward.router.weight")) else _network(m, h))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def _network(m: Layers, h: Value) -> Value:
    return m.gated(h, "feed_forward", m.c.size("intermediate_size_mlp", m.c.get("intermediate_size")))


def _experts(m: Layers, h: Value) -> Value:
    chosen = choose(m, h, "feed_forward.router", normed=False, scoring="sigmoid")
    size = m.c.size("intermediate_size")
    y = mixture(m, h, chosen, prefix="feed_forward.experts", size=size, weighs_inputs=True)
    return m.add(y, m.gated(h, "feed_forward.shared_expert", size))


def _far(m: Layers) -> Value:
    """1 + scale * log(1 + floor((place + 1) / floor_scale)), [1, tokens, 1, 1]."""
    b, c = m.b, m.c
    places = m.places()
    times = b.op("floor", m.scaled(m.add(places, b.like(1.0, places)), 1 / c.number("floor_scale", 8192.0)))
    logs = m.scaled(b.op("log", m.add(times, b.like(1.0, times))), c.number("attn_scale", 0.1))
    return b.cast(b.reshape(m.add(logs, b.like(1.0, logs)), (1, m.tokens, 1, 1)), m.dtype)
