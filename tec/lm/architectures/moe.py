"""Mixtures of experts on the decoders of Qwen3, Mixtral and Qwen2: their feed-forward networks are experts in all layers or in some.

Sources: arXiv 2505.09388, 2401.04088, 2407.10671; transformers' modeling_qwen3_moe.py, modeling_mixtral.py, modeling_qwen2_moe.py.
"""

from __future__ import annotations

from ...graph import Value
from ..layers import Layers
from ..mixture import choose, mixture


def qwen3_moe(m: Layers) -> Value:
    """Heads are normed before they are turned."""
    return _decoder(m, heads_normed=True, normed=bool(m.c.get("norm_topk_prob", False)))


def mixtral(m: Layers) -> Value:
    """Weights of a token's experts always add up to 1."""
    return _decoder(m, heads_normed=False, normed=True)


def qwen2_moe(m: Layers) -> Value:
    """Beside the experts every token goes through one that all share, by a gate of its own."""
    return _decoder(m, heads_normed=False, normed=bool(m.c.get("norm_topk_prob", False)), shared=True)


def _decoder(m: Layers, *, heads_normed: bool, normed: bool, shared: bool = False) -> Value:
    x, kinds = m.embeddings(), m.c.layer_kinds()
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("input_layernorm")))
        if heads_normed:
            q, k = (m.rms_norm(h, m.name(f"self_attn.{n}_norm")) for h, n in ((q, "q"), (k, "k")))
        q, k = (m.rotary(h, m.angles()) for h in (q, k))
        window = m.c.window if kinds[m.layer] == "sliding_attention" else None
        x = m.add(x, m.out(m.attend(q, k, v, window=window)))
        h = m.rms_norm(x, m.name("post_attention_layernorm"))
        if not m.w.has(m.name("mlp.gate.weight")):  # a layer without experts
            x = m.add(x, m.gated(h))
            continue
        y = mixture(m, h, choose(m, h, normed=normed))
        x = m.add(x, m.add(y, _shared(m, h)) if shared else y)
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def _shared(m: Layers, h: Value) -> Value:
    y = m.gated(h, "mlp.shared_expert", m.c.size("shared_expert_intermediate_size"))
    gate = m.linear(h, m.name("mlp.shared_expert_gate"), sizes=[1])[0]
    return m.b.op("multiply", y, m.b.op("sigmoid", gate))
