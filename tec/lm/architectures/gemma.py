"""Gemma 2 and 3: norms by 1 + weight, before and behind attention and network; scores and logits capped (2), heads normed and two rotary bases (3).

Sources: arXiv 2408.00118, 2503.19786; transformers' modeling_gemma2.py, modeling_gemma3.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers


def gemma2(m: Layers) -> Value:
    """Every second layer sees a window of keys."""
    x, kinds = _begin(m), m.c.layer_kinds(pattern=2)
    cap = m.c.number("attn_logit_softcapping", 0.0)
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(_norm(m, x, "input_layernorm"))
        q, k = (m.rotary(h, m.angles()) for h in (q, k))
        x = _end_of_layer(m, x, _attend(m, q, k, v, kinds[m.layer], cap))
    return _end(m, x)


def gemma3(m: Layers) -> Value:
    """Five of six layers see a window of keys and turn heads by a base of their own."""
    x, kinds = _begin(m), m.c.layer_kinds(pattern=6)
    parameters = m.c.get("rope_parameters") or {}
    near = parameters.get("sliding_attention", {})
    local = m.angles(float(near.get("rope_theta", m.c.get("rope_local_base_freq", 10000.0))), {"rope_type": "default"})
    far = parameters.get("full_attention")
    whole = m.angles(float(far["rope_theta"]), far) if far and "rope_theta" in far else m.angles()
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(_norm(m, x, "input_layernorm"))
        angles = local if kinds[m.layer] == "sliding_attention" else whole
        q, k = (m.rotary(_norm(m, h, f"self_attn.{n}_norm"), angles) for h, n in ((q, "q"), (k, "k")))
        x = _end_of_layer(m, x, _attend(m, q, k, v, kinds[m.layer], 0.0))
    return _end(m, x)


def _norm(m: Layers, x: Value, name: str) -> Value:
    return m.rms_norm(x, m.name(name), shift=_shift(m))


def _shift(m: Layers) -> float:
    """What norms add to their weights: 1, unless the file has the sums."""
    return m.c.number("rms_norm_offset", 1.0)


def _begin(m: Layers) -> Value:
    return m.scaled(m.embeddings(), m.c.hidden**0.5)


def _attend(m: Layers, q: Value, k: Value, v: Value, kind: str, cap: float) -> Value:
    window = m.c.window if kind == "sliding_attention" else None
    scale = m.c.number("query_pre_attn_scalar", float(m.c.head_size)) ** -0.5
    return m.out(m.attend(q, k, v, scale=scale, window=window, softcap=cap))


def _end_of_layer(m: Layers, x: Value, attended: Value) -> Value:
    x = m.add(x, _norm(m, attended, "post_attention_layernorm"))
    return m.add(x, _norm(m, m.gated(_norm(m, x, "pre_feedforward_layernorm")), "post_feedforward_layernorm"))


def _end(m: Layers, x: Value) -> Value:
    x = m.rms_norm(m.last(x), "model.norm", shift=_shift(m))
    return m.logits(x, softcap=m.c.number("final_logit_softcapping", 0.0))
