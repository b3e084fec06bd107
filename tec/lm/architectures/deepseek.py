"""DeepSeek V2 and V3: latent attention, whose keys and values come from one small vector a token; experts of which some are shared, in all layers but the first.

Sources: arXiv 2405.04434, 2412.19437; transformers' modeling_deepseek_v2.py, modeling_deepseek_v3.py, modeling_glm4_moe_lite.py, modeling_minicpm3.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...errors import ImportModelError
from ...graph import Value
from ..layers import Layers
from ..mixture import Chosen, choose, mixture


def deepseek_v2(m: Layers) -> Value:
    """Experts by softmax, from the best groups or from all."""
    return _decoder(m, _greedy, interleaved=True)


def deepseek_v3(m: Layers) -> Value:
    """Experts by sigmoid and a bias that balances them."""
    return _decoder(m, balanced, interleaved=bool(m.c.get("rope_interleave", True)))


def glm4_moe_lite(m: Layers) -> Value:
    """GLM-4.7-Flash: as V3; `mlp_layer_types` names the layers without experts."""
    kinds = m.c.get("mlp_layer_types") or ["dense"]
    first = next((k for k, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    return _decoder(m, balanced, interleaved=bool(m.c.get("rope_interleave", True)), first=first)


def minicpm3(m: Layers) -> Value:
    """No experts; embeddings, sums and logits have factors."""
    c = m.c
    x, by = m.scaled(m.embeddings(), c.number("scale_emb", 12.0)), c.number("scale_depth", 1.4) / c.layers**0.5
    for _ in m.each_layer():
        x = m.add(x, m.scaled(latent(m, m.rms_norm(x, m.name("input_layernorm")), interleaved=False), by))
        x = m.add(x, m.scaled(m.gated(m.rms_norm(x, m.name("post_attention_layernorm"))), by))
    return m.logits(m.rms_norm(m.last(x), "model.norm"), scale=c.number("dim_model_base", float(c.hidden)) / c.hidden)


def _decoder(m: Layers, route: Callable[[Layers, Value], Chosen], interleaved: bool, first: int | None = None) -> Value:
    """first: the first layer that has experts, where it is not the configuration's."""
    x, dense = m.embeddings(), int(m.c.get("first_k_dense_replace", 0)) if first is None else first
    for _ in m.each_layer():
        x = m.add(x, latent(m, m.rms_norm(x, m.name("input_layernorm")), interleaved))
        h = m.rms_norm(x, m.name("post_attention_layernorm"))
        x = m.add(x, m.gated(h) if m.layer < dense else shared_mixture(m, h, route(m, h)))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def shared_mixture(m: Layers, h: Value, chosen: Chosen, count: int | None = None) -> Value:
    """Experts, and beside them those that every token goes through, which are one network. count: of these, where it is not the configuration's."""
    y = mixture(m, h, chosen)
    count = int(m.c.get("n_shared_experts", m.c.get("num_shared_experts", 0))) if count is None else count
    return m.add(y, m.gated(h, "mlp.shared_experts", count * m.c.size("moe_intermediate_size"))) if count else y


def _greedy(m: Layers, h: Value) -> Chosen:
    c, method = m.c, m.c.get("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy"):
        raise ImportModelError(f"topk_method {method!r} of {c.architecture}", hint="greedy or group_limited_greedy")
    grouped = method == "group_limited_greedy"
    groups, kept = (c.size("n_group"), c.size("topk_group")) if grouped else (1, 1)
    return choose(
        m,
        h,
        normed=bool(c.get("norm_topk_prob", False)),
        scale=c.number("routed_scaling_factor", 1.0),
        groups=groups,
        kept=kept,
    )


def balanced(m: Layers, h: Value, router: str = "mlp.gate") -> Chosen:
    """By sigmoid; a bias beside the scores tells which are chosen."""
    c, bias = m.c, f"{router}.e_score_correction_bias"
    bias = bias if m.w.has(m.name(bias)) else f"{router}.e_score_correction.bias"  # as GGUF files have it
    return choose(
        m, h, router, normed=bool(c.get("norm_topk_prob", True)), scoring="sigmoid", bias=bias, scale=c.number("routed_scaling_factor", 1.0),
        groups=c.size("n_group", 1), kept=c.size("topk_group", 1), best_of_group=2, epsilon=1e-20,
    )  # fmt: skip


def latent(m: Layers, x: Value, interleaved: bool) -> Value:
    """Keys and values of all heads made of a normed latent vector, and one turned part of keys that all heads share."""
    c, b, at = m.c, m.b, m.name("self_attn")
    plain, turned, width, rank = (
        c.size(n) for n in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank")
    )
    angles, heads = m.angles(size=turned), c.heads
    if c.get("q_lora_rank") is None:
        q, kv = m.linear(x, f"{at}.q_proj", f"{at}.kv_a_proj_with_mqa", sizes=[heads * (plain + turned), rank + turned])
    else:
        low, kv = m.linear(
            x, f"{at}.q_a_proj", f"{at}.kv_a_proj_with_mqa", sizes=[c.size("q_lora_rank"), rank + turned]
        )
        q = m.linear(
            m.rms_norm(low, f"{at}.q_a_layernorm", epsilon=1e-6), f"{at}.q_b_proj", sizes=[heads * (plain + turned)]
        )[0]
    low, shared = b.split(kv, 1, [rank, turned])
    both = m.linear(
        m.rms_norm(low, f"{at}.kv_a_layernorm", epsilon=1e-6), f"{at}.kv_b_proj", sizes=[heads * (plain + width)]
    )[0]
    k, v = b.split(m.heads(both, heads), 3, [plain, width])
    fixed, moving = b.split(m.heads(q, heads), 3, [plain, turned])
    q = b.concat([fixed, m.rotary(moving, angles, interleaved)], 3)
    one = b.broadcast(m.rotary(m.heads(shared, 1), angles, interleaved), (1, m.tokens, heads, turned))
    y = m.attend(q, b.concat([k, one], 3), v, scale=(plain + turned) ** -0.5 * _stretched(m) ** 2)
    return m.out(y)


def _stretched(m: Layers) -> float:
    """What scores of stretched positions are multiplied with, once for queries and once for keys."""
    own = m.c.get("rope_scaling") or {}
    by, factor = own.get("mscale_all_dim"), float(own.get("factor", 1.0))
    return 0.1 * float(by) * math.log(factor) + 1.0 if by and factor > 1 else 1.0
