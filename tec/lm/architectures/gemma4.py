"""Gemma 4: layers that see a window and layers that see all, with heads of their own sizes; layers that read the keys of earlier ones; an embedding for each layer.

Norms multiply by their weights alone. Sources: transformers' modeling_gemma4.py; llama.cpp's gemma4.cpp.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from ..mixture import choose, mixture
from .gemma import Kept, by_own_embedding, kept_of, per_layer_inputs


def gemma4(m: Layers) -> Value:
    """The last `num_kv_shared_layers` layers have queries alone."""
    c, kinds = m.c, m.c.layer_kinds(pattern=6)
    x = m.scaled(m.embeddings(), c.hidden**0.5)
    own, kept = per_layer_inputs(m, x), Kept()
    alone = c.layers - int(c.get("num_kv_shared_layers", 0))
    for _ in m.each_layer():
        h = m.rms_norm(x, m.name("input_layernorm"))
        attended = _attention(m, h, kinds[m.layer], kept, m.layer >= alone)
        x = m.add(x, m.rms_norm(attended, m.name("post_attention_layernorm")))
        x = m.add(x, m.rms_norm(_network(m, x), m.name("post_feedforward_layernorm")))
        if own is not None:
            x = m.add(x, by_own_embedding(m, x, own))
        scale = next((n for n in ("layer_scalar", "layer_scalar.weight") if m.w.has(m.name(n))), None)
        if scale is not None:
            x = m.b.op("multiply", x, m.b.reshape(m.w.vector(m.name(scale), (1,), m.dtype), (1, 1)))
    return m.logits(m.rms_norm(m.last(x), "model.norm"), softcap=c.number("final_logit_softcapping", 0.0))


def _attention(m: Layers, h: Value, kind: str, kept: Kept, alone: bool) -> Value:
    c, at = m.c, m.name("self_attn")
    size = m.w.tensor(f"{at}.q_norm.weight").shape[0]
    angles = _positions(m, kind, size)
    q = m.heads(m.linear(h, f"{at}.q_proj", sizes=[c.heads * size])[0], c.heads)
    q = m.rotary(m.rms_norm(q, f"{at}.q_norm"), angles)
    window = c.window if kind == "sliding_attention" else None
    if not alone:
        rows = m.w.tensor(f"{at}.k_proj.weight").shape[0]
        k = v = m.linear(h, f"{at}.k_proj", sizes=[rows])[0]
        if m.w.has(f"{at}.v_proj.weight"):
            v = m.linear(h, f"{at}.v_proj", sizes=[rows])[0]
        k, v = m.heads(k, rows // size), m.heads(v, rows // size)
        k = m.rotary(m.rms_norm(k, f"{at}.k_norm"), angles)
        kept[kind] = m.cached(k, m.unit(v), window)
    return m.out(m.attend_to(q, *kept_of(m, kept, kind), scale=1.0, window=window))


def _positions(m: Layers, kind: str, size: int) -> tuple[Value, Value]:
    """Of a kind of layer."""
    if (own := m.angles_of(kind, size)) is not None:
        return own
    if kind == "sliding_attention":
        return m.angles(m.c.number("rope_local_base_freq", 10000.0), {"rope_type": "default"}, size)
    return m.angles(m.c.number("rope_theta", 1e6), m.c.get("rope_scaling") or {"rope_type": "default"}, size)


def _network(m: Layers, x: Value) -> Value:
    size = m.w.tensor(m.name("mlp.gate_proj.weight")).shape[0]  # twice as wide in some layers
    y = m.gated(m.rms_norm(x, m.name("pre_feedforward_layernorm")), size=size)
    if not m.w.has(m.name("router.proj.weight")):
        return y
    b = m.b
    plain = m.unit(x)
    seen = m.scaled(
        b.op("multiply", plain, m.w.vector(m.name("router.scale"), (m.c.hidden,), m.dtype)), m.c.hidden**-0.5
    )
    chosen = choose(m, seen, "router.proj", normed=True, scale_of_each="router.per_expert_scale")
    experts = mixture(m, m.rms_norm(x, m.name("pre_feedforward_layernorm_2")), chosen, prefix="experts")
    y = m.rms_norm(y, m.name("post_feedforward_layernorm_1"))
    return m.add(y, m.rms_norm(experts, m.name("post_feedforward_layernorm_2")))
