"""Mixtures of experts on the decoder of Llama: the feed-forward networks are experts in all layers or in some.

Sources: arXiv 2505.09388, 2401.04088, 2407.10671; transformers' modeling_qwen3_moe.py, modeling_mixtral.py, modeling_qwen2_moe.py, modeling_glm4_moe.py,
modeling_dots1.py, modeling_ernie4_5_moe.py, modeling_hunyuan_v1_moe.py, modeling_exaone_moe.py, modeling_minimax_m2.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph import Value
from ..layers import Layers
from ..mixture import choose, mixture
from .deepseek import balanced, shared_mixture
from .llama import decoder

_BALANCE = ("mlp.gate.moe_statics.e_score_correction_bias", "mlp.moe_statics.e_score_correction_bias", "mlp.gate.e_score_correction.bias", "mlp.e_score_correction_bias")  # fmt: skip


def qwen3_moe(m: Layers) -> Value:
    """Heads are normed before they are turned."""
    return _decoder(m, _by_softmax(bool(m.c.get("norm_topk_prob", False))), heads_normed=True)


def mixtral(m: Layers) -> Value:
    """Weights of a token's experts always add up to 1."""
    return _decoder(m, _by_softmax(True))


def qwen2_moe(m: Layers) -> Value:
    """Beside the experts every token goes through one that all share, by a gate of its own."""
    return _decoder(m, _by_softmax(bool(m.c.get("norm_topk_prob", False)), _gated_shared))


def glm4_moe(m: Layers) -> Value:
    """Heads may be normed; experts as DeepSeek V3 has them."""
    return _decoder(m, _as_deepseek, heads_normed=bool(m.c.get("use_qk_norm")))


def dots1(m: Layers) -> Value:
    """Heads are normed; experts as DeepSeek V3 has them."""
    return _decoder(m, _as_deepseek, heads_normed=True)


def deepseek(m: Layers) -> Value:
    """DeepSeek's first mixture, and Ling: experts by softmax, and beside them those that every token goes through."""

    def mix(m: Layers, h: Value) -> Value:
        scale = m.c.number("routed_scaling_factor", 1.0)
        return shared_mixture(m, h, choose(m, h, normed=bool(m.c.get("norm_topk_prob", False)), scale=scale))

    return _decoder(m, mix)


def minimax_m2(m: Layers) -> Value:
    """Queries and keys are normed over all heads together; experts by sigmoid and a bias that balances them."""

    def mix(m: Layers, h: Value) -> Value:
        bias = next((n for n in _BALANCE if m.w.has(m.name(n))), "")
        return mixture(m, h, choose(m, h, normed=True, scoring="sigmoid", bias=bias))

    return _decoder(m, mix, whole_normed=True)


def exaone_moe(m: Layers) -> Value:
    """Of layers with windows and without, those with windows alone have positions; experts as DeepSeek V3 has them."""
    kinds = m.c.layer_kinds(pattern=4)
    turned = [k == "sliding_attention" or m.c.window is None for k in kinds]
    return _decoder(m, _as_deepseek, heads_normed=True, turned=turned, pattern=4)


def ernie4_5_moe(m: Layers) -> Value:
    """Neighbours turn; experts by softmax and a bias that balances them, and beside them those that every token goes through, which are one network."""

    def mix(m: Layers, h: Value) -> Value:
        bias = next((n for n in _BALANCE if m.w.has(m.name(n))), "")
        chosen = choose(m, h, normed=True, bias=bias)
        return shared_mixture(
            m, h, chosen, count=int(m.c.get("moe_num_shared_experts", m.c.get("n_shared_experts", 0)))
        )

    return _decoder(m, mix, interleaved=True)


def hunyuan_moe(m: Layers) -> Value:
    """Heads are normed behind their turn; every token goes through one more network beside the experts."""

    def mix(m: Layers, h: Value) -> Value:
        y = mixture(m, h, choose(m, h, normed=True), size=m.c.size("intermediate_size"))
        return m.add(y, m.gated(h, "mlp.shared_mlp"))

    return _decoder(m, mix, heads_normed_behind=True)


def _as_deepseek(m: Layers, h: Value) -> Value:
    return shared_mixture(m, h, balanced(m, h))


def _by_softmax(normed: bool, shared: Callable[[Layers, Value], Value] | None = None) -> Callable[[Layers, Value], Value]:  # fmt: skip
    def mix(m: Layers, h: Value) -> Value:
        y = mixture(m, h, choose(m, h, normed=normed))
        return y if shared is None else m.add(y, shared(m, h))

    return mix


def _decoder(m: Layers, mix: Callable[[Layers, Value], Value], **how: Any) -> Value:
    """mix: the network of layers that have experts."""

    def network(m: Layers, h: Value) -> Value:
        return mix(m, h) if m.w.has(m.name("mlp.gate.weight")) else m.gated(h)

    return decoder(m, network, **how)


def _gated_shared(m: Layers, h: Value) -> Value:
    y = m.gated(h, "mlp.shared_expert", m.c.size("shared_expert_intermediate_size"))
    gate = m.linear(h, m.name("mlp.shared_expert_gate"), sizes=[1])[0]
    return m.b.op("multiply", y, m.b.op("sigmoid", gate))
