"""Qwen3-Next and Qwen3.5: three of four layers have linear attention by the gated delta rule, the others attention whose result is gated; networks or experts.

Norms multiply by 1 + weight, but for those within linear attention. Sources: arXiv 2412.06464; transformers' modeling_qwen3_next.py, modeling_qwen3_5.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from ..mixture import choose, mixture


def qwen3_5(m: Layers) -> Value:
    """A gated network in each layer, or experts and one that all tokens share."""
    x, kinds = m.embeddings(), m.c.layer_kinds()
    for _ in m.each_layer():
        h = _norm(m, x, m.name("input_layernorm"))
        x = m.add(x, _linear_attention(m, h) if kinds[m.layer] == "linear_attention" else _attention(m, h))
        h = _norm(m, x, m.name("post_attention_layernorm"))
        x = m.add(x, _experts(m, h) if m.w.has(m.name("mlp.gate.weight")) else m.gated(h))
    return m.logits(_norm(m, m.last(x), "model.norm"))


def _norm(m: Layers, x: Value, name: str) -> Value:
    return m.rms_norm(x, name, shift=m.c.number("rms_norm_offset", 1.0))


def _attention(m: Layers, h: Value) -> Value:
    """Each head's query has its gate behind it."""
    c, b, at, size = m.c, m.b, m.name("self_attn"), m.c.head_size
    sizes = [2 * c.heads * size, c.kv_heads * size, c.kv_heads * size]
    both, k, v = m.linear(h, *(f"{at}.{n}_proj" for n in "qkv"), sizes=sizes)
    q, gate = b.split(m.heads(both, c.heads), 3, [size, size])
    q, k = (m.rotary(_norm(m, y, f"{at}.{n}_norm"), m.angles()) for n, y in (("q", q), ("k", m.heads(k, c.kv_heads))))
    y = m.attend(q, k, m.heads(v, c.kv_heads))
    return m.out(b.op("multiply", y, b.op("sigmoid", b.reshape(gate, (m.tokens, c.heads * size)))))


def _linear_attention(m: Layers, h: Value) -> Value:
    """See `tec.ops.linear_recurrence`: keys and queries of length 1, values, and for each head how much is kept and how much learned."""
    c, b, at = m.c, m.b, m.name("linear_attn")
    groups, heads = c.size("linear_num_key_heads"), c.size("linear_num_value_heads")
    size, width = c.size("linear_key_head_dim"), c.size("linear_value_head_dim")
    joined = [groups * size, groups * size, heads * width]
    mixed, gate, rate, step = _inputs(m, h, groups, heads, size, width)
    mixed = m.activation(m.short_conv(mixed, "linear_attn.conv1d", c.size("linear_conv_kernel_dim", 4)))
    q, k, v = b.split(mixed, 1, joined)
    q, k = (_unit(m, b.reshape(y, (m.tokens, groups, size))) for y in (q, k))
    rate, step = (b.cast(y, "float32") for y in (rate, step))
    bias = next(n for n in (f"{at}.dt_bias", f"{at}.dt_proj.bias") if m.w.has(n) or n.endswith("proj.bias"))
    step = b.op("softplus", m.add(step, m.w.vector(bias, (heads,))))
    decay = b.op("multiply", step, negative_rates(m, at, heads))
    v = b.reshape(v, (m.tokens, heads, width))
    state = m.state("state", (heads, size, width))
    inputs = [m.scaled(q, size**-0.5), k, v, decay, state, b.op("sigmoid", rate)]
    y, end = b.ops("linear_recurrence", *inputs, tiled=bool(c.get("linear_value_heads_tiled", False)))
    m.keep("state", end)
    y = m.rms_norm(b.reshape(y, (m.tokens, heads, width)), f"{at}.norm")
    gate = b.cast(b.reshape(gate, y.shape), "float32")
    y = b.op("multiply", y, b.cast(b.op("silu", gate), y.dtype))
    return m.out(b.reshape(y, (m.tokens, heads * width)), "linear_attn.out_proj")


def negative_rates(m: Layers, at: str, heads: int) -> Value:
    """-exp(A_log), float32 [heads]; GGUF files have the result."""
    if m.w.has(f"{at}.A"):
        return m.w.vector(f"{at}.A", (heads,))
    return m.b.op("neg", m.b.op("exp", m.w.vector(f"{at}.A_log", (heads,))))


def _inputs(m: Layers, h: Value, groups: int, heads: int, size: int, width: int) -> list[Value]:
    """Queries, keys and values beside each other; gates; rates; steps. Qwen3-Next has them group by group in two matrices."""
    b, at, per = m.b, m.name("linear_attn"), heads // groups
    if not m.w.has(f"{at}.in_proj_qkvz.weight"):
        if m.w.has(f"{at}.in_proj_ba.weight"):
            mixed, gate, both = m.linear(
                h, *(f"{at}.in_proj_{n}" for n in ("qkv", "z", "ba")), sizes=[2 * groups * size + heads * width, heads * width, 2 * heads]
            )  # fmt: skip
            rate, step = b.split(b.reshape(both, (m.tokens, groups, 2 * per)), 2, [per, per])
            return [mixed, gate, *(b.reshape(y, (m.tokens, heads)) for y in (rate, step))]
        names = [f"{at}.in_proj_{n}" for n in ("qkv", "z", "b", "a")]
        return m.linear(h, *names, sizes=[2 * groups * size + heads * width, heads * width, heads, heads])
    wide, narrow = m.linear(
        h, f"{at}.in_proj_qkvz", f"{at}.in_proj_ba", sizes=[2 * (groups * size + heads * width), 2 * heads]
    )
    wide = b.reshape(wide, (m.tokens, groups, 2 * (size + per * width)))
    q, k, v, gate = (
        b.reshape(y, (m.tokens, y.shape[1] * y.shape[2]))
        for y in b.split(wide, 2, [size, size, per * width, per * width])
    )
    rate, step = (
        b.reshape(y, (m.tokens, heads)) for y in b.split(b.reshape(narrow, (m.tokens, groups, 2 * per)), 2, [per, per])
    )
    return [b.concat([q, k, v], 1), gate, rate, step]


def _unit(m: Layers, x: Value) -> Value:
    """x over its length along the last axis."""
    b, wide = m.b, m.b.cast(x, "float32")
    length = b.op("reduce_sum", b.op("multiply", wide, wide), axes=(2,), keepdims=True)
    one = b.op("rsqrt", b.op("add", length, b.like(1e-6, length)))
    return b.cast(b.op("multiply", wide, one), x.dtype)


def _experts(m: Layers, h: Value) -> Value:
    y = mixture(m, h, choose(m, h, normed=bool(m.c.get("norm_topk_prob", True))))
    size = m.c.size(
        "shared_expert_intermediate_size", m.w.tensor(m.name("mlp.shared_expert.gate_proj.weight")).shape[0]
    )
    gate = m.linear(h, m.name("mlp.shared_expert_gate"), sizes=[1])[0]
    return m.add(y, m.b.op("multiply", m.gated(h, "mlp.shared_expert", size), m.b.op("sigmoid", gate)))
