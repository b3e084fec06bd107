"""Qwen3: Llama with a norm for each head of queries and keys. Source: arXiv 2505.09388; transformers' modeling_qwen3.py."""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers


def qwen3(m: Layers) -> Value:
    """Heads are normed before they are turned."""
    x, kinds = m.embeddings(), m.c.layer_kinds()
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("input_layernorm")))
        q, k = (m.rotary(m.rms_norm(h, m.name(f"self_attn.{n}_norm")), m.angles()) for h, n in ((q, "q"), (k, "k")))
        window = m.c.window if kinds[m.layer] == "sliding_attention" else None
        x = m.add(x, m.out(m.attend(q, k, v, window=window)))
        x = m.add(x, m.gated(m.rms_norm(x, m.name("post_attention_layernorm"))))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))
