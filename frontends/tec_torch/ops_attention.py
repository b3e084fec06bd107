"""Conversions of attention, as torch writes it and as it traces it for a device."""

from __future__ import annotations

import math
from typing import Any

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders.attention import repeat_heads
from tec.graph.builders.slices import fitted
from tec.ops.dims import is_symbolic

from .importer import AtenCall, aten_op


@aten_op("scaled_dot_product_attention")
def attention(
    c: AtenCall, q: Value, k: Value, v: Value, mask: Value | None = None, dropout: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if dropout:
        raise ImportModelError("attention with dropout", hint="module.eval()")
    if q.ndim == 4 and k.shape[1] != q.shape[1] and (enable_gqa or k.shape[1] == 1):
        if k.shape[1] != 1:
            k, v = (repeat_heads(c, t, q.shape[1] // t.shape[1]) for t in (k, v))
    v = fitted(c, v, (*v.shape[:-2], k.shape[-2], v.shape[-1]))
    scores = c.op("matmul", q, k, transpose_b=True)
    if scale is None and is_symbolic(q.shape[-1]):
        scores = c.op("divide", scores, c.cast(c.op("sqrt", c.value(q.shape[-1], "float32")), scores.dtype))
    else:
        factor = float(scale) if scale is not None else 1 / math.sqrt(q.shape[-1])
        scores = c.op("multiply", scores, c.like(factor, scores))
    masks = [] if mask is None else [mask]
    if is_causal:
        rows, cols = c.iota(q.shape[-2], dtype="int32"), c.iota(k.shape[-2], dtype="int32")
        masks.append(c.op("less_equal", cols, c.reshape(rows, (q.shape[-2], 1))))
    for m in masks:
        if m.dtype == "bool":
            scores = c.op("where", m, scores, c.like(-math.inf, scores))
        else:
            scores = c.op("add", scores, c.cast(m, scores.dtype))
    return c.op("matmul", c.op("softmax", scores, axes=(scores.ndim - 1,)), v)


@aten_op("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention_for_cpu(
    c: AtenCall, q: Value, k: Value, v: Value, dropout: float = 0.0, is_causal: bool = False, attn_mask: Value | None = None,
    scale: float | None = None,
) -> Any:  # fmt: skip
    return attention(c, q, k, v, attn_mask, dropout, is_causal, scale, True), None


# torch chooses one of these while it traces, by the GPU, the types and the sizes. What they give besides is for their backward calls, and for a look at the dropout.


@aten_op("_scaled_dot_product_flash_attention")
def flash_attention(
    c: AtenCall, q: Value, k: Value, v: Value, dropout: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False,
    scale: float | None = None,
) -> Any:  # fmt: skip
    return attention(c, q, k, v, None, dropout, is_causal, scale, True), *[None] * 8


@aten_op("_scaled_dot_product_efficient_attention")
def efficient_attention(
    c: AtenCall, q: Value, k: Value, v: Value, bias: Value | None, compute_log_sumexp: bool, dropout: float = 0.0,
    is_causal: bool = False, scale: float | None = None,
) -> Any:  # fmt: skip
    return attention(c, q, k, v, bias, dropout, is_causal, scale, True), *[None] * 3


@aten_op("_scaled_dot_product_cudnn_attention")
def cudnn_attention(
    c: AtenCall, q: Value, k: Value, v: Value, bias: Value | None, compute_log_sumexp: bool, dropout: float = 0.0,
    is_causal: bool = False, return_debug_mask: bool = False, scale: float | None = None,
) -> Any:  # fmt: skip
    return attention(c, q, k, v, bias, dropout, is_causal, scale, True), *[None] * 8
