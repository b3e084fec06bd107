"""Phi-3.5-MoE: norms by mean and variance, and two experts a token, each weighed against those that come near it (SparseMixer).

Sources: arXiv 2409.12136; transformers' modeling_phimoe.py.
"""

from __future__ import annotations

import numpy as np

from ...errors import ImportModelError
from ...graph import Value
from ..layers import Layers
from ..mixture import Chosen, chosen_of, experts_of, mixture


def phimoe(m: Layers) -> Value:
    """All layers have experts."""
    x, size = m.embeddings(), m.c.size("intermediate_size")
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.layer_norm(x, m.name("input_layernorm")))
        q, k = (m.rotary(h, m.angles()) for h in (q, k))
        x = m.add(x, m.out(m.attend(q, k, v, window=m.c.window)))
        h = m.layer_norm(x, m.name("post_attention_layernorm"))
        x = m.add(x, mixture(m, h, _chosen(m, h), size=size))
    return m.logits(m.layer_norm(m.last(x), "model.norm"))


def _chosen(m: Layers, h: Value) -> Chosen:
    b, count = m.b, experts_of(m)
    if chosen_of(m) != 2:
        raise ImportModelError(f"num_experts_per_tok = {chosen_of(m)} of {m.c.architecture}", hint="2")
    router = next((n for n in ("mlp.router", "mlp.gate") if m.w.has(m.name(f"{n}.weight"))), "mlp.router")
    scores = b.cast(m.linear(h, m.name(router), sizes=[count])[0], "float32")
    values, places = b.ops("topk", scores, k=2, axis=1)
    numbers = b.const(np.arange(count).reshape(1, -1), places.dtype)
    first = b.op("equal", numbers, b.slice(places, 1, 0, 1))
    weights = [_share(m, scores, b.slice(values, 1, k, 1), None if k == 0 else first) for k in (0, 1)]
    return Chosen(places, b.concat(weights, 1))


def _share(m: Layers, scores: Value, best: Value, without: Value | None) -> Value:
    """The softmax at the best score, [tokens, 1], of those that are near it. without: where none counts."""
    b = m.b
    size = b.op("maximum", b.op("abs", scores), best)
    far = b.op("greater", b.op("subtract", best, scores), m.scaled(size, 2 * m.c.number("router_jitter_noise", 0.01)))
    each = b.op("exp", b.op("subtract", scores, best))
    for none in (far, without):
        each = each if none is None else b.op("where", none, b.like(0.0, each), each)
    total = b.op("reduce_sum", each, axes=(1,), keepdims=True)
    return b.op("divide", b.like(1.0, total), total)
