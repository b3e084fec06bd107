"""GLM-4: neighbours of half of each head turn; later ones have norms behind attention and network too, or experts of which one is shared.

Source: transformers' modeling_glm.py, modeling_glm4.py, modeling_glm4_moe.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from .deepseek import balanced, shared_mixture


def glm(m: Layers) -> Value:
    """Norms before attention and network."""
    return _decoder(m, behind=False)


def glm4(m: Layers) -> Value:
    """Norms before and behind."""
    return _decoder(m, behind=True)


def glm4_moe(m: Layers) -> Value:
    """Halves turn; heads may be normed; experts as DeepSeek V3 has them."""
    x, dense = m.embeddings(), int(m.c.get("first_k_dense_replace", 0))
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("input_layernorm")))
        if m.c.get("use_qk_norm"):
            q, k = (m.rms_norm(h, m.name(f"self_attn.{n}_norm")) for h, n in ((q, "q"), (k, "k")))
        q, k = (m.rotary(h, m.angles()) for h in (q, k))
        x = m.add(x, m.out(m.attend(q, k, v)))
        h = m.rms_norm(x, m.name("post_attention_layernorm"))
        x = m.add(x, m.gated(h) if m.layer < dense else shared_mixture(m, h, balanced(m, h)))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def _decoder(m: Layers, behind: bool) -> Value:
    x = m.embeddings()
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("input_layernorm")))
        q, k = (m.rotary(h, m.angles(), interleaved=True) for h in (q, k))
        y = m.out(m.attend(q, k, v))
        x = m.add(x, m.rms_norm(y, m.name("post_self_attn_layernorm")) if behind else y)
        y = m.gated(m.rms_norm(x, m.name("post_attention_layernorm")))
        x = m.add(x, m.rms_norm(y, m.name("post_mlp_layernorm")) if behind else y)
    return m.logits(m.rms_norm(m.last(x), "model.norm"))
