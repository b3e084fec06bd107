"""Attention as ONNX Runtime's optimizer and model builder write it (domain com.microsoft), and what stands around it.

Attention, QAttention, MultiHeadAttention, RotaryEmbedding, the simplified (root mean square) normalizations.
Sources: the operators' definitions in ONNX Runtime's documentation of its contrib operators.
"""

from __future__ import annotations

from typing import Any

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders.attention import (
    additive_mask,
    attend,
    causal_mask,
    join_heads,
    rotary,
    split_heads,
    sum_masks,
)
from tec.graph.builders.matmul import matmul
from tec.graph.builders.norm import rms_norm
from tec.graph.builders.quantize import integer_matmul

from .call import UNFUSED
from .importer import Call, Outputs, onnx_op

MS = "com.microsoft"


def padding_mask(c: Call, mask: Value, batch: int, steps: int, total: int, value: float) -> Value:
    """`mask_index` in its forms: lengths, ends and starts, keys to keep (batch, total), or (batch, steps, total)."""
    if mask.ndim == 1:
        position = c.reshape(c.count(total, dtype=mask.dtype), (1, total))
        keep = c.op("less", position, c.reshape(c.slice(mask, 0, 0, batch), (batch, 1)))
        if mask.shape[0] == 2 * batch:
            begin = c.reshape(c.slice(mask, 0, batch, batch), (batch, 1))
            keep = c.op("logical_and", keep, c.op("greater_equal", position, begin))
        keep = c.reshape(keep, (batch, 1, 1, total))
    elif mask.ndim == 2:
        keep = c.op("greater", c.reshape(mask, (mask.shape[0], 1, 1, total)), c.like(0, mask))
    elif mask.ndim == 3:
        keep = c.op("greater", c.reshape(mask, (mask.shape[0], 1, steps, total)), c.like(0, mask))
    else:
        raise ImportModelError(
            f"a mask of {mask.ndim} dimensions",
            hint="masks are lengths (batch,), keys to keep (batch, keys), or (batch, queries, keys)",
        )
    return additive_mask(c, keep, value)


def _attention(
    c: Call, packed: Value, sizes: list[int], mask: Value | None, past: Value | None, bias: Value | None
) -> Any:
    """From q, k and v side by side, (batch, steps, sum of sizes)."""
    n = int(c.attr("num_heads"))
    b, s, _ = packed.shape
    q, k, v = (split_heads(c, x, n) for x in c.split(packed, 2, sizes))
    if past is not None:
        old = [c.take(past, 0, j) for j in (0, 1)]
        k, v = c.op("concat", old[0], k, axis=2), c.op("concat", old[1], v, axis=2)
    total = k.shape[2]
    value = float(c.attr("mask_filter_value", -10000.0))
    masks = [padding_mask(c, mask, b, s, total, value)] if mask is not None else []
    if c.attr("unidirectional", 0):
        masks.append(causal_mask(c, s, total))
    if bias is not None:
        masks.append(bias)
    scale = float(c.attr("scale", 0.0)) or (sizes[0] // n) ** -0.5
    y = join_heads(c, attend(c, q, k, v, sum_masks(c, masks), scale))
    present = c.stack([k, v]) if c.wants(1) else None
    return Outputs([y, present])


@onnx_op("Attention", domain=MS)
def attention(c: Call) -> Any:
    if c.attr("do_rotary", 0) or c.has(6):
        raise ImportModelError("Attention with rotary embedding, or with a past of its own length", hint=UNFUSED)
    packed = matmul(c, c[0], c[1])
    if c.has(2):
        packed = c.op("add", packed, c[2])
    sizes = list(c.attr("qkv_hidden_sizes") or [packed.shape[2] // 3] * 3)
    return _attention(c, packed, sizes, c.get(3), c.get(4), c.get(5))


@onnx_op("QAttention", domain=MS)
def q_attention(c: Call) -> Any:
    zx, zw = c.get(6), c.get(7)
    packed = c.cast(integer_matmul(c, c[0], c[1], zx, zw), "float32")
    scale = c.op("multiply", c.reshape(c[3], ()), c.reshape(c[4], ()) if c[4].type.size == 1 else c[4])
    packed = c.op("add", c.op("multiply", packed, scale), c[2])
    return _attention(c, packed, [packed.shape[2] // 3] * 3, c.get(5), c.get(8), None)


@onnx_op("MultiHeadAttention", domain=MS)
def multi_head_attention(c: Call) -> Any:
    """Attention of onnxruntime's MultiHeadAttention: packed or apart, with biases, masks and keys of before."""
    n = int(c.attr("num_heads"))
    query, key = c[0], c.get(1)
    if query.ndim == 5:  # q, k and v packed by head
        parts = [c.transpose(c.take(query, 3, j), (0, 2, 1, 3)) for j in range(3)]
    else:
        parts = [split_heads(c, query, n)]
        if key is None:
            raise ImportModelError(
                "MultiHeadAttention without keys",
                hint="give key and value, or a query of five dimensions that has all three packed",
            )
        if key.ndim == 5:
            parts += [c.transpose(c.take(key, 3, j), (0, 2, 1, 3)) for j in range(2)]
        else:
            parts += [x if x.ndim == 4 else split_heads(c, x, n) for x in (key, c[2])]
    q, k, v = parts
    if c.has(3):
        biases = c.split(c[3], 0, [n * x.shape[3] for x in (q, k, v)])
        q, k, v = (c.op("add", x, c.reshape(own, (1, n, 1, x.shape[3]))) for x, own in zip((q, k, v), biases))
    if c.has(6) and c.has(7):
        k, v = c.op("concat", c[6], k, axis=2), c.op("concat", c[7], v, axis=2)
    b, s, total = q.shape[0], q.shape[2], k.shape[2]
    masks = []
    if c.has(4):
        masks.append(padding_mask(c, c[4], b, s, total, float(c.attr("mask_filter_value", -10000.0))))
    if c.has(5):
        masks.append(c[5])
    if c.attr("unidirectional", 0):
        masks.append(causal_mask(c, s, total))
    scale = float(c.attr("scale", 0.0)) or q.shape[3] ** -0.5
    y = join_heads(c, attend(c, q, k, v, sum_masks(c, masks), scale))
    return Outputs([y, k if c.wants(1) else None, v if c.wants(2) else None])


@onnx_op("RotaryEmbedding", domain=MS)
def rotary_embedding(c: Call) -> Value:
    x, ids, cos, sin = c[0], c[1], c[2], c[3]
    dims = int(c.attr("rotary_embedding_dim", 0))
    turn = bool(c.attr("interleaved", 0))
    steps = x.shape[1] if x.ndim == 3 else x.shape[2]
    place = c.cast(ids, "int64")
    if place.type.size == 1 and place.ndim == 1:
        place = c.op("add", c.reshape(place, (1, 1)), counted(c, steps, 0))
    if x.ndim == 3:
        n = int(c.attr("num_heads", 0)) or x.shape[2] // (dims or 2 * cos.shape[1])
        return c.reshape(rotary(c, heads_of(c, x, n), place, cos, sin, turn, dims), x.shape)
    y = rotary(c, c.transpose(x, (0, 2, 1, 3)), place, cos, sin, turn, dims)
    return c.transpose(y, (0, 2, 1, 3))


@onnx_op("RotaryEmbedding")
def standard_rotary_embedding(c: Call) -> Value:
    """Of opset 23: cos and sin are tables (positions, half) with position_ids, or (batch, steps, half) without."""
    x, cos, sin = c[0], c[1], c[2]
    dims, turn = int(c.attr("rotary_embedding_dim", 0)), bool(c.attr("interleaved", 0))
    n = int(c.attr("num_heads", 0))
    if x.ndim == 3 and not n:
        raise ImportModelError(
            "RotaryEmbedding of three dimensions without num_heads",
            hint="set the attribute num_heads, or reshape the input to (batch, heads, steps, size)",
        )
    own = heads_of(c, x, n) if x.ndim == 3 else c.transpose(x, (0, 2, 1, 3))
    if c.has(3):
        y = rotary(c, own, c.cast(c[3], "int64"), cos, sin, turn, dims)
    else:
        half = dims // 2 or cos.shape[-1]
        rows = [c.unsqueeze(c.slice(t, 2, 0, half), 2) for t in (cos, sin)]
        y = c.op("rotary", own, *rows, interleaved=turn)
    return c.reshape(y, x.shape) if x.ndim == 3 else c.transpose(y, (0, 2, 1, 3))


def heads_of(c: Call, x: Value, count: int) -> Value:
    """(batch, steps, heads * size) as (batch, steps, heads, size)."""
    n, s, h = x.shape
    if h % count:
        raise ImportModelError(
            f"{count} heads of {x.type}",
            hint=f"the last dimension, {h}, must be a multiple of the number of heads: correct num_heads",
        )
    return c.reshape(x, (n, s, count, h // count))


def counted(c: Call, steps: Any, start: Any) -> Value:
    """The places of `steps` tokens from `start` on, (1, steps)."""
    return c.reshape(c.op("iota", size=steps, start=start, step=1, dtype="int64"), (1, steps))


# ---- root mean square normalization


@onnx_op("SimplifiedLayerNormalization", domain=MS)
@onnx_op("SimplifiedLayerNormalization")
def simplified_layer_norm(c: Call) -> Outputs:
    return Outputs(rms_norm(c, c[0], c[1], int(c.attr("axis", -1)), float(c.attr("epsilon", 1e-5))))


@onnx_op("SkipSimplifiedLayerNormalization", domain=MS)
def skip_simplified_layer_norm(c: Call) -> Outputs:
    total = c.op("add", c[0], c[1])
    if c.has(3):
        total = c.op("add", total, c[3])
    y, inverse = rms_norm(c, total, c[2], total.ndim - 1, float(c.attr("epsilon", 1e-5)))
    return Outputs([y, None, inverse, total])
