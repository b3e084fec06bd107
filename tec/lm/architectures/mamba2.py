"""Mamba-2: no attention; each layer is one state space model of a decay a head, between a short convolution and a gate.

Source: arXiv 2405.21060; transformers' modeling_mamba2.py, modeling_bamba.py, modeling_falcon_h1.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...graph import Value
from ...records import dataclass
from ..layers import Layers, constant
from .delta import negative_rates


@dataclass(frozen=True)
class Space:
    """Sizes of a state space model: heads of `width` features, groups of heads that share inputs and outputs of `state` features, tokens of the convolution.
    norm: "behind" the gate, "before" it, or "" for none. by: factors of gates, values, inputs, outputs and steps. activation: behind the convolution, "" for the
    configuration's."""

    heads: int
    width: int
    groups: int
    state: int
    kernel: int
    norm: str = "behind"
    by: Sequence[float] = (1.0,) * 5
    activation: str = ""

    @property
    def inner(self) -> int:
        return self.heads * self.width


def space_of(m: Layers, norm: str = "behind", by: Sequence[float] = (1.0,) * 5) -> Space:
    """Of layers that stand among others: configurations say "mamba_" before their sizes."""
    c = m.c
    heads = c.size("mamba_n_heads")
    inner = c.size("mamba_d_ssm", c.size("mamba_expand", 2) * c.hidden)
    width = c.get("mamba_d_head", "auto")
    return Space(
        heads,
        inner // heads if width == "auto" else c.size("mamba_d_head"),
        c.size("mamba_n_groups", 1),
        c.size("mamba_d_state"),
        c.size("mamba_d_conv", 4),
        norm,
        by,
    )


def mamba2(m: Layers) -> Value:
    """Norm and mixer; their sum."""
    m.prefix, x, c = "backbone.layers", m.embeddings(), m.c
    space = Space(
        c.size("num_heads"), c.size("head_dim"), c.size("n_groups", 1), c.size("state_size"), c.size("conv_kernel", 4)
    )
    for _ in m.each_layer():
        x = m.add(x, mixer(m, m.rms_norm(x, m.name("norm")), space))
    return m.logits(m.rms_norm(m.last(x), "backbone.norm_f"), tied="backbone.embeddings")


def mixer(m: Layers, h: Value, s: Space, at: str = "mixer") -> Value:
    """The state space model of h [tokens, hidden]."""
    c, b, name = m.c, m.b, m.name(at)
    heads, width, groups, size, inner = s.heads, s.width, s.groups, s.state, s.inner
    mixed = inner + 2 * groups * size
    given = m.linear(h, f"{name}.in_proj", sizes=[inner + mixed + heads])[0]
    if any(factor != 1 for factor in s.by):
        each = np.repeat(np.asarray(s.by, np.float32), [inner, inner, groups * size, groups * size, heads])
        given = b.op("multiply", given, constant(m, each.reshape(1, -1)))
    gate, x, step = b.split(given, 1, [inner, mixed, heads])
    x = m.activation(m.short_conv(x, f"{at}.conv1d", s.kernel), s.activation)
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
    gate = b.op("silu", b.cast(gate, "float32"))
    y = y if s.norm == "before" else b.op("multiply", y, gate)
    if s.norm:
        y = m.unit(b.reshape(y, (m.tokens, groups, inner // groups)))
        y = b.op("multiply", b.reshape(y, (m.tokens, inner)), m.w.vector(f"{name}.norm.weight", (inner,)))
    y = b.op("multiply", y, gate) if s.norm == "before" else y
    return m.out(b.cast(y, m.dtype), f"{at}.out_proj")
