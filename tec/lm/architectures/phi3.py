"""Phi-3 and Phi-4-mini: Llama with queries, keys and values in one matrix, gate and up in another. Source: arXiv 2404.14219; transformers' modeling_phi3.py."""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers


def phi3(m: Layers) -> Value:
    """`rope_scaling` is longrope in models for long texts."""
    x, kinds = m.embeddings(), m.c.layer_kinds()
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("input_layernorm")))
        q, k = (m.rotary(h, m.angles()) for h in (q, k))
        window = m.c.window if kinds[m.layer] == "sliding_attention" else None
        x = m.add(x, m.out(m.attend(q, k, v, window=window)))
        x = m.add(x, m.gated(m.rms_norm(x, m.name("post_attention_layernorm"))))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))
