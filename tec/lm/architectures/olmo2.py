"""OLMo 2: norms behind attention and network, and over all of queries and of keys. Source: arXiv 2501.00656; transformers' modeling_olmo2.py."""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers


def olmo2(m: Layers) -> Value:
    """Norms of queries and keys go over all heads together."""
    x = m.embeddings()
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(x)
        q, k = (m.rotary(_normed(m, h, m.name(f"self_attn.{n}_norm")), m.angles()) for h, n in ((q, "q"), (k, "k")))
        attended = m.out(m.attend(q, k, v))
        x = m.add(x, m.rms_norm(attended, m.name("post_attention_layernorm")))
        x = m.add(x, m.rms_norm(m.gated(x), m.name("post_feedforward_layernorm")))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def _normed(m: Layers, h: Value, name: str) -> Value:
    flat = m.b.reshape(h, (m.tokens, h.shape[2] * h.shape[3]))
    return m.b.reshape(m.rms_norm(flat, name), h.shape)
