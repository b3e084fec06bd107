"""Nemotron-H: each layer is one state space model, one attention without positions, one network or one mixture of experts, none of which has a gate.

Source: arXiv 2504.03624; transformers' modeling_nemotron_h.py.
"""

from __future__ import annotations

from ...errors import ImportModelError
from ...graph import Value
from ..layers import Layers
from ..mixture import mixture
from ..remedies import ANOTHER_MODEL
from .deepseek import balanced
from .mamba2 import Space, mixer


def nemotron_h(m: Layers) -> Value:
    """Norm and mixer; their sum."""
    m.prefix, x, c, kinds = "backbone.layers", m.embeddings(), m.c, m.c.layer_kinds()
    space = Space(
        c.size("mamba_num_heads"), c.size("mamba_head_dim"), c.size("n_groups", 1), c.size("ssm_state_size"), c.size("conv_kernel", 4),
        activation=str(c.get("mamba_hidden_act", "silu")),
    )  # fmt: skip
    for _ in m.each_layer():
        h, kind = m.rms_norm(x, m.name("norm")), kinds[m.layer]
        if kind in ("linear_attention", "mamba"):
            y = mixer(m, h, space)
        elif kind in ("full_attention", "attention"):
            y = m.out(m.attend(*m.queries_keys_values(h, "mixer")), "mixer.o_proj")
        elif kind == "moe":
            y = _experts(m, h)
        elif kind == "mlp":
            y = _network(m, h, "mixer", c.size("intermediate_size"))
        else:
            raise ImportModelError(f"layer_types has {kind!r} in {c.architecture}", hint=ANOTHER_MODEL)
        x = m.add(x, y)
    return m.logits(m.rms_norm(m.last(x), "backbone.norm_f"), tied="backbone.embeddings")


def _network(m: Layers, h: Value, at: str, size: int) -> Value:
    y = m.linear(h, m.name(f"{at}.up_proj"), sizes=[size])[0]
    return m.linear(m.activation(y, _activation(m)), m.name(f"{at}.down_proj"), sizes=[m.c.hidden])[0]


def _activation(m: Layers) -> str:
    return str(m.c.get("mlp_hidden_act", "relu2"))


def _experts(m: Layers, h: Value) -> Value:
    """Experts chosen as DeepSeek V3 does it, which may read and write fewer features than the layer has, and one network that every token goes through."""
    if m.c.get("moe_latent_size"):
        raise ImportModelError(
            f"moe_latent_size = {m.c.get('moe_latent_size')!r} of {m.c.architecture} is not read", hint=ANOTHER_MODEL
        )
    chosen = balanced(m, h, "mixer.gate")
    y = mixture(
        m,
        h,
        chosen,
        prefix="mixer.experts",
        parts=("up_proj", "down_proj"),
        inner=lambda up: m.activation(up, _activation(m)),
    )
    return m.add(y, _network(m, h, "mixer.shared_experts", m.c.size("moe_shared_expert_intermediate_size")))
