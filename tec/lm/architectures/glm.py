"""GLM-4: neighbours of half of each head turn; later ones have norms behind attention and network too.

Source: transformers' modeling_glm.py, modeling_glm4.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers


def glm(m: Layers) -> Value:
    """Norms before attention and network."""
    return _decoder(m, behind=False)


def glm4(m: Layers) -> Value:
    """Norms before and behind."""
    return _decoder(m, behind=True)


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
