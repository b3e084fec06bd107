"""Mamba-2: no attention; each layer is one state space model of a decay a head, between a short convolution and a gate.

Source: arXiv 2405.21060; transformers' modeling_mamba2.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from .delta import negative_rates


def mamba2(m: Layers) -> Value:
    """Norm and mixer; their sum."""
    m.prefix, x = "backbone.layers", m.embeddings()
    for _ in m.each_layer():
        x = m.add(x, mixer(m, m.rms_norm(x, m.name("norm"))))
    return m.logits(m.rms_norm(m.last(x), "backbone.norm_f"), tied="backbone.embeddings")


def mixer(m: Layers, h: Value, at: str = "mixer") -> Value:
    """The state space model of h [tokens, hidden]."""
    c, b, name = m.c, m.b, m.name(at)
    heads, groups, size = c.size("num_heads"), c.size("n_groups", 1), c.size("state_size")
    width = c.size("head_dim")
    inner, mixed = heads * width, heads * width + 2 * groups * size
    gate, x, step = b.split(m.linear(h, f"{name}.in_proj", sizes=[inner + mixed + heads])[0], 1, [inner, mixed, heads])
    x = m.activation(m.short_conv(x, f"{at}.conv1d", c.size("conv_kernel", 4)))
    x, k, q = b.split(x, 1, [inner, groups * size, groups * size])
    bias = f"{name}.dt_bias" if m.w.has(f"{name}.dt_bias") else f"{name}.dt_proj.bias"
    step = b.op("softplus", m.add(b.cast(step, "float32"), m.w.vector(bias, (heads,))))
    low, high = c.get("time_step_limit") or (0.0, float("inf"))
    step = step if not low > 0 else b.op("maximum", step, b.like(float(low), step))
    step = step if not float(high) < float("inf") else b.op("minimum", step, b.like(float(high), step))
    x = b.reshape(x, (m.tokens, heads, width))
    fed = b.op("multiply", b.cast(x, "float32"), b.reshape(step, (m.tokens, heads, 1)))
    q, k = (b.cast(b.reshape(y, (m.tokens, groups, size)), "float32") for y in (q, k))
    decay = b.op("multiply", step, negative_rates(m, name, heads))
    y, end = b.ops("linear_recurrence", q, k, fed, decay, m.state("state", (heads, size, width)), tiled=False)
    m.keep("state", end)
    own = b.reshape(m.w.vector(f"{name}.D", (heads,)), (1, heads, 1))
    y = b.reshape(m.add(y, b.op("multiply", b.cast(x, "float32"), own)), (m.tokens, inner))
    y = b.op("multiply", y, b.op("silu", b.cast(gate, "float32")))
    y = m.unit(b.reshape(y, (m.tokens, groups, inner // groups)))
    y = b.op("multiply", b.reshape(y, (m.tokens, inner)), m.w.vector(f"{name}.norm.weight", (inner,)))
    return m.out(b.cast(y, m.dtype), f"{at}.out_proj")
