"""Command R and Command A: one norm, by mean and variance, before attention and network side by side; neighbours turn.

Source: transformers' modeling_cohere.py, modeling_cohere2.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers


def cohere(m: Layers) -> Value:
    """All layers see everything; heads may be normed, each with weights of its own."""
    return _decoder(m, ["full_attention"] * m.c.layers, turn_all=True, normed=bool(m.c.get("use_qk_norm")))


def cohere2(m: Layers) -> Value:
    """Layers that see everything have no positions. Heads are never normed, whatever a file says."""
    return _decoder(m, m.c.layer_kinds(pattern=4), turn_all=False, normed=False)


def _decoder(m: Layers, kinds: list[str], turn_all: bool, normed: bool) -> Value:
    x = m.embeddings()
    for _ in m.each_layer():
        h = m.layer_norm(x, m.name("input_layernorm"))
        q, k, v = m.queries_keys_values(h)
        if normed:
            q, k = (_normed(m, y, m.name(f"self_attn.{n}_norm")) for y, n in ((q, "q"), (k, "k")))
        near = kinds[m.layer] == "sliding_attention"
        if turn_all or near:
            q, k = (m.rotary(y, m.angles(), interleaved=True) for y in (q, k))
        x = m.add(m.add(x, m.out(m.attend(q, k, v, window=m.c.window if near else None))), m.gated(h))
    return m.logits(m.layer_norm(m.last(x), "model.norm"), scale=m.c.number("logit_scale", 1.0))


def _normed(m: Layers, x: Value, name: str) -> Value:
    """Heads less their means over their spreads, times weights [heads, size]."""
    one = m.spread_free(x)
    return m.b.op("multiply", one, m.w.vector(f"{name}.weight", (1, 1, x.shape[2], x.shape[3]), m.dtype))
