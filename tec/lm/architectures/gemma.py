"""Gemma 1 to 3: norms by 1 + weight, before and behind attention and network; scores and logits capped (2), heads normed and two rotary bases (3).

Sources: arXiv 2408.00118, 2503.19786; transformers' modeling_gemma2.py, modeling_gemma3.py.
"""

from __future__ import annotations

from ...errors import ImportModelError
from ...graph import Value
from ..caches import Rows
from ..layers import Layers
from ..remedies import FETCH_AGAIN


def gemma(m: Layers) -> Value:
    """Llama with such norms."""
    x = _begin(m)
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(_norm(m, x, "input_layernorm"))
        q, k = (m.rotary(h, m.angles()) for h in (q, k))
        x = m.add(x, m.out(m.attend(q, k, v)))
        x = m.add(x, m.gated(_norm(m, x, "post_attention_layernorm")))
    return m.logits(m.rms_norm(m.last(x), "model.norm", shift=_shift(m)))


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
    local = m.angles_of("sliding_attention") or m.angles(
        m.c.number("rope_local_base_freq", 10000.0), {"rope_type": "default"}
    )
    whole = m.angles_of("full_attention") or m.angles()
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


Kept = dict[str, tuple[Rows, Rows]]  # keys and values by kind of layer, which layers without some of their own read


def by_own_embedding(m: Layers, x: Value, own: Value) -> Value:
    """The layer's own embedding, `own` [tokens, layers, size], gated by x and normed: what is added to features [tokens, hidden]."""
    gate = m.linear(x, m.name("per_layer_input_gate"), sizes=[own.shape[2]])[0]
    y = m.b.op("multiply", m.activation(gate), m.b.reshape(m.b.slice(own, 1, m.layer, 1), gate.shape))
    y = m.linear(y, m.name("per_layer_projection"), sizes=[m.c.hidden])[0]
    return m.rms_norm(y, m.name("post_per_layer_input_norm"))


def kept_of(m: Layers, kept: Kept, kind: str) -> tuple[Rows, Rows]:
    """Of a kind of layer. ImportModelError where no layer before this one has some."""
    if kind not in kept:
        raise ImportModelError(
            f"num_kv_shared_layers = {m.c.get('num_kv_shared_layers')} of {m.c.architecture} leaves no keys for layer {m.layer}, a {kind}",
            hint=FETCH_AGAIN,
        )
    return kept[kind]


def per_layer_inputs(m: Layers, x: Value) -> Value | None:
    """What each layer gets beside its input, [tokens, layers, features], of models that have it: an embedding of the token for the layer, and a projection of the
    token's usual embedding x."""
    if not m.c.get("hidden_size_per_layer_input"):
        return None
    size, count = m.c.size("hidden_size_per_layer_input"), m.c.layers
    shape = (m.tokens, count, size)
    own = m.b.reshape(m.graph.input("layer_embeddings", m.dtype, (m.tokens, count * size)), shape)
    seen = m.scaled(m.linear(x, "model.per_layer_model_projection", sizes=[count * size])[0], m.c.hidden**-0.5)
    seen = m.rms_norm(m.b.reshape(seen, shape), "model.per_layer_projection_norm")
    return m.scaled(m.add(seen, m.scaled(own, size**0.5)), 2.0**-0.5)
