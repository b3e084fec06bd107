"""AFMoE (Trinity): heads normed, results of attention gated, norms before and behind; layers that see a window turn, those that see all have no positions.

Source: transformers' modeling_afmoe.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from ..mixture import choose
from .deepseek import shared_mixture


def afmoe(m: Layers) -> Value:
    """Experts by sigmoid and a bias that balances them, in layers with a router."""
    c, x = m.c, m.embeddings()
    kinds = c.layer_kinds(c.size("global_attn_every_n_layers", 4))
    x = m.scaled(x, c.hidden**0.5) if c.get("mup_enabled") else x
    for _ in m.each_layer():
        y = _attention(m, m.rms_norm(x, m.name("input_layernorm")), kinds[m.layer] == "sliding_attention")
        x = m.add(x, m.rms_norm(y, m.name("post_attention_layernorm")))
        h = m.rms_norm(x, m.name("pre_mlp_layernorm"))
        y = _experts(m, h) if m.w.has(m.name("mlp.router.gate.weight")) else m.gated(h)
        x = m.add(x, m.rms_norm(y, m.name("post_mlp_layernorm")))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def _attention(m: Layers, h: Value, near: bool) -> Value:
    q, k, v = m.queries_keys_values(h)
    q, k = (m.rms_norm(y, m.name(f"self_attn.{n}_norm")) for y, n in ((q, "q"), (k, "k")))
    if near:
        q, k = (m.rotary(y, m.angles()) for y in (q, k))
    y = m.attend(q, k, v, window=m.c.window if near else None)
    gate = m.linear(h, m.name("self_attn.gate_proj"), sizes=[m.c.heads * m.c.head_size])[0]
    return m.out(m.b.op("multiply", y, m.b.op("sigmoid", gate)))


def _experts(m: Layers, h: Value) -> Value:
    bias = "mlp.expert_bias"
    bias = bias if m.w.has(m.name(bias)) else "mlp.expert.bias"  # as GGUF files have it
    chosen = choose(
        m, h, "mlp.router.gate", normed=True, scoring="sigmoid", bias=bias, scale=m.c.number("route_scale", m.c.number("routed_scaling_factor", 1.0)), epsilon=1e-20
    )  # fmt: skip
    return shared_mixture(m, h, chosen)
