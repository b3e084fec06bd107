"""OLMo 1, 2 and 3, and OLMoE. OLMo 2 and 3 have norms behind attention and network, and over all of queries and of keys.

Sources: arXiv 2402.00838, 2501.00656, 2409.02060; transformers' modeling_olmo.py, modeling_olmo2.py, modeling_olmo3.py, modeling_olmoe.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from ..mixture import choose, mixture


def olmo(m: Layers) -> Value:
    """Norms have no weights; queries, keys and values may be clamped."""
    x = m.embeddings()
    for _ in m.each_layer():
        q, k, v = (m.clamped(y) for y in m.queries_keys_values(_plain(m, x)))
        q, k = (m.rotary(h, m.angles()) for h in (q, k))
        x = m.add(x, m.out(m.attend(q, k, v)))
        x = m.add(x, m.gated(_plain(m, x)))
    return m.logits(_plain(m, m.last(x)))


def olmo2(m: Layers) -> Value:
    """Norms of queries and keys go over all heads together."""
    return _decoder(m, ["full_attention"] * m.c.layers)


def olmo3(m: Layers) -> Value:
    """Three of four layers see a window, whose positions are not stretched."""
    return _decoder(m, m.c.layer_kinds(pattern=4))


def olmoe(m: Layers) -> Value:
    """Norms before, and experts in each layer."""
    x = m.embeddings()
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("input_layernorm")))
        q, k = (m.rms_norm_of_heads(h, m.name(f"self_attn.{n}_norm")) for h, n in ((q, "q"), (k, "k")))
        q, k, v = (m.clamped(y) for y in (q, k, v))
        q, k = (m.rotary(h, m.angles()) for h in (q, k))
        x = m.add(x, m.out(m.attend(q, k, v)))
        h = m.rms_norm(x, m.name("post_attention_layernorm"))
        x = m.add(x, mixture(m, h, choose(m, h, normed=bool(m.c.get("norm_topk_prob", False)))))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def _decoder(m: Layers, kinds: list[str]) -> Value:
    x = m.embeddings()
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(x)
        near = kinds[m.layer] == "sliding_attention"
        # A base within `rope_scaling` is that of the layers which it stretches.
        base = None if near else (m.c.get("rope_scaling") or {}).get("rope_theta")
        usual = {"rope_type": "default"} if near else None
        angles = m.angles_of(kinds[m.layer]) or m.angles(None if base is None else float(base), usual)
        q, k = (
            m.rotary(m.rms_norm_of_heads(h, m.name(f"self_attn.{n}_norm")), angles) for h, n in ((q, "q"), (k, "k"))
        )
        attended = m.out(m.attend(q, k, v, window=m.c.window if near else None))
        x = m.add(x, m.rms_norm(attended, m.name("post_attention_layernorm")))
        x = m.add(x, m.rms_norm(m.gated(x), m.name("post_feedforward_layernorm")))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def _plain(m: Layers, x: Value) -> Value:
    return m.spread_free(x, 1e-5)
