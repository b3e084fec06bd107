"""torch's fused calls of attention and of a transformer encoder's layer, which nn.TransformerEncoder makes where nobody learns, as the calls that they stand for.

What they compute, masks as bool among it, is what PyTorch 2.14 computes (aten/native/transformers).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

_OF_KEYS = 1  # the kind of masks of [batch, keys]; 0 are of [queries, keys], 2 of [batch, heads, queries, keys]


def _seen(mask: torch.Tensor | None, kind: int | None, batch: int) -> torch.Tensor | None:
    """Which keys a query looks at, [batch, heads or 1, queries or 1, keys]: a mask of another type than bool hides what is not zero, whatever it is."""
    if mask is None:
        return None
    seen = ~mask.to(torch.bool)
    if kind == _OF_KEYS and seen.dim() == 2:
        return seen.reshape(batch, 1, 1, seen.shape[-1])
    return seen.reshape(1, 1, *seen.shape) if seen.dim() == 2 else seen


def _heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def multi_head_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, embed_dim: int, num_head: int, qkv_weight: torch.Tensor, qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor, proj_bias: torch.Tensor, mask: torch.Tensor | None = None, need_weights: bool = True, average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """aten._native_multi_head_attention."""
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3))
    q, k, v = (_heads(F.linear(x, w, b), num_head) for x, w, b in parts)
    seen = _seen(mask, mask_type, query.shape[0])
    weights = None
    if need_weights:
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-2, -1))
        if seen is not None:
            scores = scores.masked_fill(~seen, float("-inf"))
        weights = torch.softmax(scores, -1)
        out = torch.matmul(weights, v)
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return F.linear(out.transpose(1, 2).reshape(*query.shape[:2], embed_dim), proj_weight, proj_bias), weights


def encoder_layer(
    src: torch.Tensor, embed_dim: int, num_heads: int, qkv_weight: torch.Tensor, qkv_bias: torch.Tensor, proj_weight: torch.Tensor, proj_bias: torch.Tensor,
    use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: torch.Tensor, norm_bias_1: torch.Tensor, norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor, ffn_weight_1: torch.Tensor, ffn_bias_1: torch.Tensor, ffn_weight_2: torch.Tensor, ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None, mask_type: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """aten._transformer_encoder_layer_fwd."""

    def normed(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    def attended(x: torch.Tensor) -> torch.Tensor:
        out, _ = multi_head_attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )
        return out

    def mapped(x: torch.Tensor) -> torch.Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attended(normed(src, norm_weight_1, norm_bias_1))
        return x + mapped(normed(x, norm_weight_2, norm_bias_2))
    x = normed(src + attended(src), norm_weight_1, norm_bias_1)
    return normed(x + mapped(x), norm_weight_2, norm_bias_2)


def add_to(table: Any) -> None:
    """Put both into a table of decompositions."""
    aten = torch.ops.aten
    table[aten._native_multi_head_attention.default] = multi_head_attention
    table[aten._transformer_encoder_layer_fwd.default] = encoder_layer
