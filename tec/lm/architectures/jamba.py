"""Jamba: state space models in most layers, attention without positions in the others; experts in some.

Source: arXiv 2403.19887; transformers' modeling_jamba.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from ..mixture import choose, mixture
from .mamba import Selective, rank_of, selective


def jamba(m: Layers) -> Value:
    """What a layer is its tensors tell: configurations have rules for it that files of GGUF leave out."""
    c, x = m.c, m.embeddings()
    space = Selective(
        c.size("mamba_expand", 2) * c.hidden, c.size("mamba_d_state", 16), rank_of(c.hidden, c.get("mamba_dt_rank", "auto")), c.size("mamba_d_conv", 4)
    )  # fmt: skip

    def normed(y: Value, name: str) -> Value:
        return m.rms_norm(y, m.name(f"mamba.{name}_layernorm"))

    for _ in m.each_layer():
        h = m.rms_norm(x, m.name("input_layernorm"))
        if m.w.has(m.name("mamba.in_proj.weight")):
            y = selective(m, h, space, "mamba", normed)
        else:
            y = m.out(m.attend(*m.queries_keys_values(h)))
        x = m.add(x, y)
        h = m.rms_norm(x, m.name("pre_ff_layernorm"))
        x = m.add(x, _experts(m, h) if m.w.has(m.name("feed_forward.router.weight")) else m.gated(h, "feed_forward"))
    return m.logits(m.rms_norm(m.last(x), "model.final_layernorm"))


def _experts(m: Layers, h: Value) -> Value:
    chosen = choose(m, h, "feed_forward.router", normed=False)
    return mixture(m, h, chosen, prefix="feed_forward.experts", size=m.c.size("intermediate_size"))
