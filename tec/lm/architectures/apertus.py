"""Apertus: Llama with normed heads, and a network without a gate whose activation, xIELU, has two trained numbers in each layer.

Source: arXiv 2411.13010; transformers' modeling_apertus.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers


def apertus(m: Layers) -> Value:
    """Heads are normed before they are turned."""
    x = m.embeddings()
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("attention_layernorm")))
        q, k = (m.rms_norm(h, m.name(f"self_attn.{n}_norm")) for h, n in ((q, "q"), (k, "k")))
        q, k = (m.rotary(h, m.angles()) for h in (q, k))
        x = m.add(x, m.out(m.attend(q, k, v)))
        h = m.rms_norm(x, m.name("feedforward_layernorm"))
        inner = m.linear(h, m.name("mlp.up_proj"), sizes=[m.c.size("intermediate_size")])[0]
        x = m.add(x, m.linear(_activated(m, inner), m.name("mlp.down_proj"), sizes=[m.c.hidden])[0])
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def _activated(m: Layers, x: Value) -> Value:
    """xIELU where the configuration asks for it: p * x^2 + beta * x above 0, n * (exp(min(x, eps)) - 1 - x) + beta * x below."""
    if m.c.get("hidden_act", "xielu") != "xielu":
        return m.activation(x)
    b, own = m.b, m.name("mlp.act_fn")

    def number(name: str, default: float) -> Value:
        stored = m.w.has(f"{own}.{name}")
        return m.w.vector(f"{own}.{name}", (1, 1)) if stored else b.like(default, z)

    z = b.cast(x, "float32")
    beta, eps = number("beta", 0.5), number("eps", -1e-6)
    p = b.op("softplus", m.w.vector(f"{own}.alpha_p", (1, 1)))
    n = m.add(b.op("softplus", m.w.vector(f"{own}.alpha_n", (1, 1))), beta)
    above = b.op("multiply", b.op("multiply", z, z), p)
    below = b.op("multiply", b.op("subtract", b.op("expm1", b.op("minimum", z, eps)), z), n)
    y = b.op("where", b.op("greater", z, b.like(0.0, z)), above, below)
    return b.cast(m.add(y, b.op("multiply", z, beta)), m.dtype)
