"""Attention as ONNX Runtime's optimizer and model builder write it (domain com.microsoft), and what stands around it.

Attention, QAttention, MultiHeadAttention, GroupQueryAttention, RotaryEmbedding, the simplified (root mean square) normalizations.
Sources: the operators' definitions in ONNX Runtime's documentation of its contrib operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value

from .importer import Call, Outputs, onnx_op
from .ops_nn import matmul_values
from .ops_quant import integer_matmul
from .ops_shape import axis_of

MS = "com.microsoft"


# ---- the core


def attend(c: Call, q: Value, k: Value, v: Value, mask: Value | None, scale: float, softcap: float = 0.0) -> Value:
    """softmax(q k^T scale + mask) v; q (batch, heads, steps, size), k and v may have fewer heads; mask adds."""
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = (_repeat(c, x, group) for x in (k, v))
    scores = c.op("matmul", q, k, transpose_b=True)
    scores = c.op("multiply", scores, c.like(scale, scores))
    if softcap:
        scores = c.op(
            "multiply", c.op("tanh", c.op("divide", scores, c.like(softcap, scores))), c.like(softcap, scores)
        )
    if mask is not None:
        scores = c.op("add", scores, c.cast(mask, scores.dtype))
    return c.op("matmul", c.op("softmax", scores, axes=(3,)), v)


def _repeat(c: Call, x: Value, times: int) -> Value:
    b, n, t, h = x.shape
    return c.reshape(c.broadcast(c.reshape(x, (b, n, 1, t, h)), (b, n, times, t, h)), (b, n * times, t, h))


def heads(c: Call, x: Value, count: int) -> Value:
    """(batch, steps, heads * size) as (batch, heads, steps, size)."""
    b, s, h = x.shape
    if h % count:
        raise ImportModelError(f"{count} heads of {x.type}")
    return c.transpose(c.reshape(x, (b, s, count, h // count)), (0, 2, 1, 3))


def joined(c: Call, x: Value) -> Value:
    b, n, s, h = x.shape
    return c.reshape(c.transpose(x, (0, 2, 1, 3)), (b, s, n * h))


def _where_not(c: Call, keep: Value, value: float) -> Value:
    """0 where `keep`, else `value`: a mask that adds."""
    return c.op("where", keep, c.const(np.float32(0)), c.const(np.float32(value)))


def causal(c: Call, steps: int, total: int, value: float = -1e30) -> Value:
    """The last `steps` of `total` places see what is not after them."""
    keep = np.arange(total)[None] <= np.arange(total - steps, total)[:, None]
    return c.const(np.where(keep, 0, value).astype(np.float32)[None, None])


def padding_mask(c: Call, mask: Value, batch: int, steps: int, total: int, value: float) -> Value:
    """`mask_index` in its forms: lengths, ends and starts, keys to keep (batch, total), or (batch, steps, total)."""
    if mask.ndim == 1:
        place = c.const(np.arange(total)[None], mask.dtype)
        keep = c.op("less", place, c.reshape(c.slice(mask, 0, 0, batch), (batch, 1)))
        if mask.shape[0] == 2 * batch:
            begin = c.reshape(c.slice(mask, 0, batch, batch), (batch, 1))
            keep = c.op("logical_and", keep, c.op("greater_equal", place, begin))
        keep = c.reshape(keep, (batch, 1, 1, total))
    elif mask.ndim == 2:
        keep = c.op("greater", c.reshape(mask, (mask.shape[0], 1, 1, total)), c.like(0, mask))
    elif mask.ndim == 3:
        keep = c.op("greater", c.reshape(mask, (mask.shape[0], 1, steps, total)), c.like(0, mask))
    else:
        raise ImportModelError(f"a mask of {mask.ndim} dimensions")
    return _where_not(c, keep, value)


def _sum(c: Call, masks: list[Value]) -> Value | None:
    total = None
    for m in masks:
        total = m if total is None else c.op("add", total, m)
    return total


# ---- the operators


def _attention(
    c: Call, packed: Value, sizes: list[int], mask: Value | None, past: Value | None, bias: Value | None
) -> Any:
    """From q, k and v side by side, (batch, steps, sum of sizes)."""
    n = int(c.attr("num_heads"))
    b, s, _ = packed.shape
    parts, at = [], 0
    for size in sizes:
        parts.append(heads(c, c.slice(packed, 2, at, size), n))
        at += size
    q, k, v = parts
    if past is not None:
        old = [c.squeeze(c.slice(past, 0, j, 1), 0) for j in (0, 1)]
        k, v = c.op("concat", old[0], k, axis=2), c.op("concat", old[1], v, axis=2)
    total = k.shape[2]
    value = float(c.attr("mask_filter_value", -10000.0))
    masks = [padding_mask(c, mask, b, s, total, value)] if mask is not None else []
    if c.attr("unidirectional", 0):
        masks.append(causal(c, s, total))
    if bias is not None:
        masks.append(bias)
    scale = float(c.attr("scale", 0.0)) or (sizes[0] // n) ** -0.5
    y = joined(c, attend(c, q, k, v, _sum(c, masks), scale))
    present = c.op("concat", *[c.unsqueeze(x, 0) for x in (k, v)], axis=0) if c.wants(1) else None
    return Outputs([y, present])


@onnx_op("Attention", domain=MS)
def attention(c: Call) -> Any:
    if c.attr("do_rotary", 0) or c.has(6):
        raise ImportModelError("Attention with rotary embedding, or with a past of its own length")
    packed = matmul_values(c, c[0], c[1])
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
    n = int(c.attr("num_heads"))
    query, key, value = c[0], c.get(1), c.get(2)
    if query.ndim == 5:  # q, k and v packed by head
        parts = [c.transpose(c.squeeze(c.slice(query, 3, j, 1), 3), (0, 2, 1, 3)) for j in range(3)]
    else:
        parts = [heads(c, query, n)]
        if key is None:
            raise ImportModelError("MultiHeadAttention without keys")
        if key.ndim == 5:
            parts += [c.transpose(c.squeeze(c.slice(key, 3, j, 1), 3), (0, 2, 1, 3)) for j in range(2)]
        else:
            parts += [x if x.ndim == 4 else heads(c, x, n) for x in (key, c[2])]
    del value
    q, k, v = parts
    if c.has(3):
        at = 0
        moved = []
        for x in (q, k, v):
            size = n * x.shape[3]
            own = c.slice(c[3], 0, at, size)
            moved.append(c.op("add", x, c.reshape(own, (1, n, 1, x.shape[3]))))
            at += size
        q, k, v = moved
    if c.has(6) and c.has(7):
        k, v = c.op("concat", c[6], k, axis=2), c.op("concat", c[7], v, axis=2)
    b, s, total = q.shape[0], q.shape[2], k.shape[2]
    masks = []
    if c.has(4):
        masks.append(padding_mask(c, c[4], b, s, total, float(c.attr("mask_filter_value", -10000.0))))
    if c.has(5):
        masks.append(c[5])
    if c.attr("unidirectional", 0):
        masks.append(causal(c, s, total))
    scale = float(c.attr("scale", 0.0)) or q.shape[3] ** -0.5
    y = joined(c, attend(c, q, k, v, _sum(c, masks), scale))
    return Outputs([y, k if c.wants(1) else None, v if c.wants(2) else None])


def rotated(c: Call, x: Value, place: Value, cos: Value, sin: Value, interleaved: bool, dims: int = 0) -> Value:
    """(batch, heads, steps, size) turned by the angles of `place`, (batch or 1, steps)."""
    half = cos.shape[1]
    dims = dims or 2 * half
    whole = x
    x = c.slice(x, 3, 0, dims)
    b, n, s, _ = x.shape
    rows = [c.reshape(c.op("gather", t, place, axis=0), (place.shape[0], 1, s, half)) for t in (cos, sin)]
    if interleaved:
        pairs = c.reshape(x, (b, n, s, half, 2))
        first, second = (c.reshape(c.slice(pairs, 4, j, 1), (b, n, s, half)) for j in (0, 1))
    else:
        first, second = c.slice(x, 3, 0, half), c.slice(x, 3, half, half)
    real = c.op("subtract", c.op("multiply", first, rows[0]), c.op("multiply", second, rows[1]))
    other = c.op("add", c.op("multiply", first, rows[1]), c.op("multiply", second, rows[0]))
    if interleaved:
        y = c.reshape(c.op("concat", c.unsqueeze(real, 4), c.unsqueeze(other, 4), axis=4), (b, n, s, dims))
    else:
        y = c.op("concat", real, other, axis=3)
    if dims == whole.shape[3]:
        return y
    return c.op("concat", y, c.slice(whole, 3, dims, whole.shape[3] - dims), axis=3)


@onnx_op("RotaryEmbedding", domain=MS)
def rotary_embedding(c: Call) -> Value:
    x, ids, cos, sin = c[0], c[1], c[2], c[3]
    dims = int(c.attr("rotary_embedding_dim", 0))
    flat = x.ndim == 3
    if flat:
        n = int(c.attr("num_heads", 0)) or x.shape[2] // (dims or 2 * cos.shape[1])
        x = heads(c, x, n)
    place = c.cast(ids, "int64")
    if place.type.size == 1 and place.ndim == 1:
        steps = c.const(np.arange(x.shape[2])[None], "int64")
        place = c.op("add", steps, c.reshape(place, (1, 1)))
    y = rotated(c, x, place, cos, sin, bool(c.attr("interleaved", 0)), dims)
    return joined(c, y) if flat else y


@onnx_op("GroupQueryAttention", domain=MS)
def group_query_attention(c: Call) -> Outputs:
    """Keys and values go into a cache at each batch entry's own place; later places are not seen."""
    n, nk = int(c.attr("num_heads")), int(c.attr("kv_num_heads"))
    if c.has(1):
        q, k, v = heads(c, c[0], n), heads(c, c[1], nk), heads(c, c[2], nk)
    else:
        size = c[0].shape[2] // (n + 2 * nk)
        q = heads(c, c.slice(c[0], 2, 0, n * size), n)
        k = heads(c, c.slice(c[0], 2, n * size, nk * size), nk)
        v = heads(c, c.slice(c[0], 2, (n + nk) * size, nk * size), nk)
    b, s, size = q.shape[0], q.shape[2], q.shape[3]
    past = c[3].shape[2] if c.has(3) else 0
    total = max(past, int(np.asarray(c.array(6)).reshape(-1)[0]))
    start = c.op("subtract", c.cast(c.reshape(c[5], (b, 1)), "int64"), c.const(np.int64(s - 1)))
    place = c.op("add", start, c.const(np.arange(s)[None], "int64"))  # (batch, steps)
    if c.attr("do_rotary", 0):
        turn = bool(c.attr("rotary_interleaved", 0))
        ids = c[9] if c.has(9) else place
        q, k = (rotated(c, x, ids, c[7], c[8], turn) for x in (q, k))

    def cached(old: Any, new: Value) -> Value:
        shape = (b, nk, total, size)
        if not past and total == s:
            return new
        have = old if past else c.const(np.zeros((b, nk, 0, size)), new.dtype)
        if past < total:
            have = (
                c.op("pad", have, before=(0,) * 4, after=(0, 0, total - past, 0))
                if past
                else c.const(np.zeros(shape), new.dtype)
            )
        index = c.broadcast(c.reshape(place, (b, 1, s, 1)), (b, nk, s, size))
        return c.op("scatter_elements", have, index, new, axis=2, reduction="none")

    k, v = cached(c.get(3), k), cached(c.get(4), v)
    keys = c.const(np.arange(total)[None, None], "int64")
    mine = c.reshape(place, (b, s, 1))
    keep = c.op("less_equal", keys, mine)
    window = int(c.attr("local_window_size", -1))
    if window > 0:
        keep = c.op("logical_and", keep, c.op("greater", keys, c.op("subtract", mine, c.const(np.int64(window)))))
    mask = _where_not(c, c.reshape(keep, (b, 1, s, total)), -1e30)
    if c.has(10):
        mask = c.op("add", mask, c[10])
    scale = float(c.attr("scale", 0.0)) or size**-0.5
    y = joined(c, attend(c, q, k, v, mask, scale, float(c.attr("softcap", 0.0))))
    return Outputs([y, k, v])


# ---- root mean square normalization


def rms_norm(c: Call, x: Value, scale: Value, axis: int, eps: float) -> tuple[Value, Value]:
    """(x / root of the mean of squares, times scale; the inverse root)."""
    wide = c.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    axes = tuple(range(axis, x.ndim))
    mean = c.op("reduce_mean", c.op("square", wide), axes=axes, keepdims=True)
    inverse = c.op("reciprocal", c.op("sqrt", c.op("add", mean, c.like(eps, mean))))
    y = c.cast(c.op("multiply", wide, inverse), scale.dtype)
    return c.cast(c.op("multiply", y, scale), x.dtype), inverse


@onnx_op("SimplifiedLayerNormalization", domain=MS)
@onnx_op("SimplifiedLayerNormalization")
def simplified_layer_norm(c: Call) -> Outputs:
    axis = axis_of(c.attr("axis", -1), c[0].ndim)
    return Outputs(rms_norm(c, c[0], c[1], axis, float(c.attr("epsilon", 1e-5))))


@onnx_op("SkipSimplifiedLayerNormalization", domain=MS)
def skip_simplified_layer_norm(c: Call) -> Outputs:
    total = c.op("add", c[0], c[1])
    if c.has(3):
        total = c.op("add", total, c[3])
    y, inverse = rms_norm(c, total, c[2], total.ndim - 1, float(c.attr("epsilon", 1e-5)))
    return Outputs([y, None, inverse, total])
