"""Mixtures of experts of the domain com.microsoft: MoE, and QMoE with weights of a few bits.

Every expert is computed for every token: experts / k times the work. Source: the definitions in ONNX Runtime's documentation of its contrib operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders.matmul import matmul
from tec.graph.builders.packed import packed_constant

from .importer import Call, onnx_op
from .ops_microsoft import n_bits

MS = "com.microsoft"
ACTIVATIONS = ("relu", "gelu", "silu", "identity", "swiglu")


@onnx_op("MoE", domain=MS)
def mixture_of_experts(c: Call) -> Value:
    """Each token's sum over the `k` experts that its router rates highest. All experts are computed for all tokens: experts / k times the work."""
    x, logits, experts = c[0], c[1], c[2].shape[0]
    kind, k = _activation_of(c, (1,)), int(c.attr("k", 1))
    if c.has(6) or c.has(7):
        raise ImportModelError(
            "MoE with fc3_experts",
            hint="interleave the rows of fc1 and fc3 in one fc1: activation_type swiglu, swiglu_fusion 1",
        )
    tokens = c.reshape(x, (1, logits.shape[0], x.shape[-1]))
    h = matmul(c, tokens, c[2], transpose_b=True)
    h = c.op("add", h, c.unsqueeze(c[3], 1)) if c.has(3) else h
    h = _expert_activation(c, h, kind)
    y = matmul(c, h, c[4], transpose_b=True)
    y = c.op("add", y, c.unsqueeze(c[5], 1)) if c.has(5) else y
    share = _shares(c, c.cast(logits, "float32"), k, experts)
    share = c.unsqueeze(c.cast(c.transpose(share, (1, 0)), y.dtype), 2)
    return c.reshape(c.op("reduce_sum", c.op("multiply", y, share), axes=(0,), keepdims=False), x.shape)


@onnx_op("QMoE", domain=MS)
def quantized_mixture_of_experts(c: Call) -> Value:
    """MoE with weights of integers, which stay packed. All experts are one wide layer: the features of each are multiplied by what it counts for the token,
    and the second product sums over the features of all. What the chosen experts count adds up to 1, as in ONNX Runtime's CPU kernel, whatever
    normalize_routing_weights says; where router_weights gives counts of their own, that attribute decides.

    Weights [experts, out, in * bits / 8], scales [experts, out] or, in blocks of `block_size` along the sum, [experts, out, in / block_size].
    """
    x, logits = c[0], c[1]
    kind, k, block = _activation_of(c, (1, 2)), int(c.attr("k", 1)), int(c.attr("block_size", 0))
    if c.attr("quant_type", "int") != "int" or any(c.has(j) for j in (8, 9, 10, 13)):
        raise ImportModelError(
            f"QMoE of {c.attr('quant_type', 'int')} weights, or with fc3_experts",
            hint="quantize to integers (quant_type int), with fc1 and fc3 in one fc1 (activation_type swiglu)",
        )
    tokens, hidden = logits.shape[0], x.shape[-1]
    scales1, scales2 = np.asarray(c.array(3)), np.asarray(c.array(6))
    experts, wide = scales1.shape[:2]
    codes1, zeros1 = _codes(c, 2, 11, (experts, wide, hidden), "fc1", scales1)
    rows = c.reshape(x, (tokens, hidden))
    w = _packed(c, codes1, scales1, zeros1, "fc1", block or hidden, x.dtype)
    h = c.reshape(matmul(c, rows, w, transpose_b=True), (tokens, experts, wide))
    h = _expert_activation(c, c.op("add", h, c[4]) if c.has(4) else h, kind)
    inner = h.shape[2]
    codes2, zeros2 = _codes(c, 5, 12, (experts, hidden, inner), "fc2", scales2)
    # The experts' features one behind the other, along the sum: a scale a block, or one an expert.
    along = [a if a is None else a.reshape(experts, hidden, -1).transpose(1, 0, 2) for a in (codes2, scales2, zeros2)]
    w = _packed(c, *along, "fc2", block or inner, x.dtype)
    weights = c[14] if c.has(14) else None
    share = c.cast(_shares(c, c.cast(logits, "float32"), k, experts, weights, normal=weights is None), x.dtype)
    h = c.reshape(c.op("multiply", h, c.unsqueeze(share, 2)), (tokens, experts * inner))
    y = matmul(c, h, w, transpose_b=True)
    y = c.op("add", y, matmul(c, share, c[7])) if c.has(7) else y
    return c.reshape(y, x.shape)


def _bits(c: Call, what: str) -> int:
    bits = int(c.attr(f"{what}_expert_weight_bits") or c.attr("expert_weight_bits", 4))
    if bits not in (2, 4, 8):
        raise ImportModelError(
            f"{c.op_type} with {what} weights of {bits} bits", hint="expert_weight_bits is 2, 4 or 8"
        )
    return bits


def _codes(c: Call, at: int, zeros_at: int, shape: tuple[int, int, int], what: str, scales: Any) -> tuple[Any, Any]:
    """Input `at` as a byte a weight, of that shape, and the zero points like `scales` (None for the middle of the range)."""
    bits, given = _bits(c, what), np.asarray(c.array(at))
    experts, out, size = shape
    if given.dtype != np.uint8 or given.shape != (experts, out, size * bits // 8) or scales.shape[:2] != (experts, out):
        raise ImportModelError(f"{c.op_type} with {what} weights {given.dtype}{list(given.shape)} and scales {list(scales.shape)}: [{experts}, {out}, {size * bits // 8}] bytes are needed", hint="the weights lie as uint8 [experts, rows, packed columns]: quantize the model again, or check hidden_size and expert_weight_bits")  # fmt: skip
    codes = n_bits(given, bits, experts * out, size).reshape(shape)
    if c.has(zeros_at):
        count = scales.shape[2] if scales.ndim == 3 else out
        zeros = n_bits(np.asarray(c.array(zeros_at)), bits, scales.size // count, count).reshape(scales.shape)
    else:
        zeros = np.full(scales.shape, 2, np.uint8) if bits == 2 else None
    return codes, zeros


def _packed(c: Call, codes: Any, scales: Any, zeros: Any, what: str, block: int, dtype: str) -> Value:
    """Weights [out, in] of codes whose dimensions behind, or in front, are joined."""
    bits = max(_bits(c, what), 4)  # 2 bits take 4
    rows = codes.shape[0] * codes.shape[1] if what == "fc1" else codes.shape[0]
    joined = [a if a is None else np.ascontiguousarray(a).reshape(rows, -1) for a in (codes, scales, zeros)]
    if joined[0].shape[1] != joined[1].shape[1] * block:
        raise ImportModelError(
            f"{c.op_type} with {what} scales {list(scales.shape)} for blocks of {block}",
            hint=f"each row of {joined[0].shape[1]} weights has a scale for every {block} of them: check block_size",
        )
    return packed_constant(c, joined[0], bits, joined[1], joined[2], 1, block, dtype, str(scales.dtype))


def _activation_of(c: Call, fusions: tuple[int, ...]) -> str:
    kind: str = c.attr("activation_type", "relu")
    if c.attr("use_sparse_mixer", 0) or c.attr("swiglu_limit_after_activation", 0):
        raise ImportModelError(
            f"{c.op_type} with use_sparse_mixer or swiglu_limit_after_activation",
            hint="export the model without these attributes; the plain router with normalize_routing_weights is compiled",
        )
    if kind not in ACTIVATIONS or (kind == "swiglu" and c.attr("swiglu_fusion", 0) not in fusions):
        raise ImportModelError(
            f"{c.op_type} with activation {kind!r}, swiglu_fusion {c.attr('swiglu_fusion', 0)}",
            hint=f"activations: {', '.join(sorted(ACTIVATIONS))}; swiglu with swiglu_fusion {' or '.join(map(str, fusions))}",
        )
    return kind


def _expert_activation(c: Call, h: Value, kind: str) -> Value:
    if kind == "swiglu":
        return _swiglu(c, h)
    if kind == "silu":
        return c.op("silu", h, alpha=1.0)
    if kind == "gelu":
        return c.op("gelu_tanh", h)  # as ONNX Runtime's kernel
    return c.op("relu", h) if kind == "relu" else h


def _swiglu(c: Call, h: Value) -> Value:
    """gate * sigmoid(alpha * gate) * (linear + beta). Gates at even places and what they open at odd ones (swiglu_fusion 1), or one half behind the other (2)."""
    half, limit = h.shape[-1] // 2, c.attr("swiglu_limit")
    if c.attr("swiglu_fusion", 0) == 1:
        gate, linear = (c.slice(h, -1, j, half, 2) for j in (0, 1))
    else:
        gate, linear = c.split(h, -1, [half, half])
    if limit is not None:
        gate = c.op("minimum", gate, c.like(float(limit), gate))
        linear = c.op("clip", linear, low=-float(limit), high=float(limit))
    opened = c.op("sigmoid", c.op("multiply", gate, c.like(float(c.attr("activation_alpha", 1.0)), gate)))
    linear = c.op("add", linear, c.like(float(c.attr("activation_beta", 0.0)), linear))
    return c.op("multiply", c.op("multiply", gate, opened), linear)


def _shares(c: Call, logits: Value, k: int, experts: int, weights: Value | None = None, normal: bool = False) -> Value:
    """(tokens, experts): what each expert counts for a token, zero for those that are not among the k highest. `weights` (tokens, experts): counts of their own."""
    best, which = c.ops("topk", c.op("softmax", logits, axes=(1,)), k=k, axis=1, largest=True)
    if weights is not None:
        best = c.op("gather_elements", c.cast(weights, "float32"), which, axis=1)
    if normal or c.attr("normalize_routing_weights", 0):
        best = c.op("divide", best, c.op("reduce_sum", best, axes=(1,), keepdims=True))
    picked = c.op("one_hot", which, c.const(np.array([0, 1], np.float32)), depth=experts, axis=2)
    return c.op("reduce_sum", c.op("multiply", c.unsqueeze(best, 2), picked), axes=(1,), keepdims=False)
