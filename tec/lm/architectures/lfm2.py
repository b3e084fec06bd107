"""LFM2: short convolutions between two gates in most layers, attention with normed heads in the others; some sizes have experts.

Source: transformers' modeling_lfm2.py, modeling_lfm2_moe.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from ..mixture import choose, mixture


def lfm2(m: Layers) -> Value:
    """Norm, convolution or attention, norm, gated network."""
    return _decoder(m, m.c.layers)


def lfm2_moe(m: Layers) -> Value:
    """Layers from `num_dense_layers` on have experts."""
    return _decoder(m, int(m.c.get("num_dense_layers", 0)))


def _decoder(m: Layers, dense: int) -> Value:
    x, kinds = m.embeddings(), m.c.layer_kinds()
    for _ in m.each_layer():
        h = m.rms_norm(x, m.name("operator_norm"))
        x = m.add(x, _convolution(m, h) if kinds[m.layer] == "conv" else _attention(m, h))
        h = m.rms_norm(x, m.name("ffn_norm"))
        x = m.add(x, _network(m, h) if m.layer < dense else _experts(m, h))
    return m.logits(m.rms_norm(m.last(x), "model.embedding_norm"))


def _attention(m: Layers, h: Value) -> Value:
    q, k, v = m.queries_keys_values(h)
    q, k = (m.rotary(m.rms_norm(y, m.name(f"self_attn.{n}_layernorm")), m.angles()) for y, n in ((q, "q"), (k, "k")))
    return m.out(m.attend(q, k, v), "self_attn.out_proj")


def _convolution(m: Layers, h: Value) -> Value:
    hidden = m.c.hidden
    before, after, x = m.b.split(m.linear(h, m.name("conv.in_proj"), sizes=[3 * hidden])[0], 1, [hidden] * 3)
    y = m.short_conv(m.b.op("multiply", before, x), "conv.conv", m.c.size("conv_L_cache", 3))
    return m.out(m.b.op("multiply", after, y), "conv.out_proj")


def _network(m: Layers, h: Value) -> Value:
    at = m.name("feed_forward")
    size = m.w.tensor(f"{at}.w1.weight").shape[0]  # configurations tell it by way of rules that files leave out
    gate, up = m.linear(h, f"{at}.w1", f"{at}.w3", sizes=[size, size])
    return m.linear(m.b.op("multiply", m.activation(gate, "silu"), up), f"{at}.w2", sizes=[m.c.hidden])[0]


def _experts(m: Layers, h: Value) -> Value:
    bias = "feed_forward.expert_bias"
    bias = bias if m.w.has(m.name(bias)) else "feed_forward.expert.bias"  # as GGUF files have it
    chosen = choose(
        m, h, "feed_forward.gate", normed=bool(m.c.get("norm_topk_prob", True)), scoring="sigmoid", epsilon=1e-6,
        bias=bias if m.c.get("use_expert_bias", True) else "", scale=m.c.number("routed_scaling_factor", 1.0),
    )  # fmt: skip
    return mixture(m, h, chosen, prefix="feed_forward.experts", activation="silu")
