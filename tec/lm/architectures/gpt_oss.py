"""gpt-oss: attention with a sink for each head, every second layer behind a window; experts with biases, whose gates and ups are clamped.

Source: OpenAI's model card (arXiv 2508.10925); transformers' modeling_gpt_oss.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from ..mixture import choose, mixture


def gpt_oss(m: Layers) -> Value:
    """A token's experts weigh by the softmax of their own scores."""
    x, kinds = m.embeddings(), m.c.layer_kinds(pattern=2)
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("input_layernorm")))
        q, k = (m.rotary(h, m.angles()) for h in (q, k))
        window = m.c.window if kinds[m.layer] == "sliding_attention" else None
        sink = m.w.vector(m.name("self_attn.sinks"), (m.c.heads,))
        x = m.add(x, m.out(m.attend(q, k, v, window=window, sink=sink)))
        h = m.rms_norm(x, m.name("post_attention_layernorm"))
        chosen = choose(m, h, "mlp.router", normed=False, scoring="softmax of chosen")
        size = m.c.size("intermediate_size")
        x = m.add(x, mixture(m, h, chosen, size=size, inner=lambda gate, up: _gated(m, gate, up), bias=True))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def _gated(m: Layers, gate: Value, up: Value) -> Value:
    """(up + 1) * gate * sigmoid(alpha * gate), both clamped."""
    b, limit = m.b, m.c.number("swiglu_limit", 7.0)
    gate = b.op("minimum", gate, b.like(limit, gate))
    up = b.op("maximum", b.op("minimum", up, b.like(limit, up)), b.like(-limit, up))
    swish = b.op("multiply", gate, b.op("sigmoid", m.scaled(gate, m.c.number("swiglu_alpha", 1.702))))
    return b.op("multiply", m.add(up, b.like(1, up)), swish)
