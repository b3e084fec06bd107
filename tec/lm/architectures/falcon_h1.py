"""Falcon-H1: attention and a state space model side by side in each layer, behind one norm; factors of what goes into each and comes out.

Source: transformers' modeling_falcon_h1.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from .mamba2 import mixer, space_of


def falcon_h1(m: Layers) -> Value:
    """Files of GGUF hold weights that are multiplied by the factors already."""
    c = m.c
    norm = "" if not c.get("mamba_rms_norm") else "before" if c.get("mamba_norm_before_gate", True) else "behind"
    space = space_of(m, norm, [float(x) for x in c.get("ssm_multipliers") or (1.0,) * 5])
    x = m.scaled(m.embeddings(), c.number("embedding_multiplier", 1.0))
    for _ in m.each_layer():
        h = m.rms_norm(x, m.name("input_layernorm"))
        y = mixer(m, m.scaled(h, c.number("ssm_in_multiplier", 1.0)), space, "mamba")
        q, k, v = m.queries_keys_values(m.scaled(h, c.number("attention_in_multiplier", 1.0)))
        q, k = (m.rotary(z, m.angles()) for z in (q, m.scaled(k, c.number("key_multiplier", 1.0))))
        z = m.scaled(m.out(m.attend(q, k, v)), c.number("attention_out_multiplier", 1.0))
        x = m.add(x, m.add(m.scaled(y, c.number("ssm_out_multiplier", 1.0)), z))
        x = m.add(x, _network(m, m.rms_norm(x, m.name("pre_ff_layernorm"))))
    return m.logits(m.rms_norm(m.last(x), "model.final_layernorm"), scale=c.number("lm_head_multiplier", 1.0))


def _network(m: Layers, h: Value) -> Value:
    size, at = m.c.size("intermediate_size"), m.name("feed_forward")
    before, behind = (float(x) for x in m.c.get("mlp_multipliers") or (1.0, 1.0))
    gate, up = m.linear(h, f"{at}.gate_proj", f"{at}.up_proj", sizes=[size, size])
    y = m.b.op("multiply", m.activation(m.scaled(gate, before)), up)
    return m.scaled(m.linear(y, f"{at}.down_proj", sizes=[m.c.hidden])[0], behind)
