"""Attention as ONNX Runtime's optimizer and model builder write it (domain com.microsoft), and what stands around it.

Attention, QAttention, MultiHeadAttention, GroupQueryAttention, RotaryEmbedding, the simplified (root mean square) normalizations.
Sources: the operators' definitions in ONNX Runtime's documentation of its contrib operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders.attention import (
    additive_mask,
    attend,
    causal_mask,
    dequantize_cache,
    join_heads,
    quantize_cache,
    rotary,
    split_heads,
    sum_masks,
    write_cache,
)
from tec.graph.builders.matmul import matmul
from tec.graph.builders.norm import rms_norm
from tec.graph.builders.quantize import integer_matmul
from tec.graph.fold_sizes import sizes_in
from tec.ops.dims import Dim, require

from .importer import Call, Outputs, SizeFollows, onnx_op

MS = "com.microsoft"


def padding_mask(c: Call, mask: Value, batch: int, steps: int, total: int, value: float) -> Value:
    """`mask_index` in its forms: lengths, ends and starts, keys to keep (batch, total), or (batch, steps, total)."""
    if mask.ndim == 1:
        position = c.const(np.arange(total)[None], mask.dtype)
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
        raise ImportModelError(f"a mask of {mask.ndim} dimensions")
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
        raise ImportModelError("Attention with rotary embedding, or with a past of its own length")
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
    n = int(c.attr("num_heads"))
    query, key = c[0], c.get(1)
    if query.ndim == 5:  # q, k and v packed by head
        parts = [c.transpose(c.take(query, 3, j), (0, 2, 1, 3)) for j in range(3)]
    else:
        parts = [split_heads(c, query, n)]
        if key is None:
            raise ImportModelError("MultiHeadAttention without keys")
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
        raise ImportModelError("RotaryEmbedding of three dimensions without num_heads")
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
        raise ImportModelError(f"{count} heads of {x.type}")
    return c.reshape(x, (n, s, count, h // count))


def counted(c: Call, steps: Any, start: Any) -> Value:
    """The places of `steps` tokens from `start` on, (1, steps)."""
    return c.reshape(c.op("iota", size=steps, start=start, step=1, dtype="int64"), (1, steps))


@dataclass(frozen=True)
class _Cache:
    """How GroupQueryAttention's cache keeps keys or values: as they are, or quantized with a scale for all or one a channel."""

    value: Value | None  # what is there before; None without
    scale: Value | None
    bits: int
    size: int  # of a head

    def rows(self, c: Call, x: Value) -> Value:
        """New rows (batch, heads, steps, size) as the cache keeps them."""
        if self.scale is None or self.value is None:
            return x
        return quantize_cache(c, x, self.scale, self.value.dtype, self.bits)

    def numbers(self, c: Call, x: Value, dtype: str) -> Value:
        """What rows of the cache stand for."""
        return x if self.scale is None else dequantize_cache(c, x, self.scale, self.size, self.bits, dtype)


_QUANTIZED = {"int8": 8, "uint8": 4, "float8_e4m3": 8}  # the types of quantized caches, and their bits


def _cache(c: Call, which: int, size: int) -> _Cache:
    """The cache of keys (which = 0) or values (1). A last dimension that the model leaves open, since exports for plain and packed caches share it, follows
    from the heads: SizeFollows."""
    name, past = "kv"[which], c.get(3 + which)
    kind = c.attr(f"{name}_quant_type", "NONE")
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if kind not in ("NONE", "PER_TENSOR", "PER_CHANNEL"):
        raise ImportModelError(
            f"GroupQueryAttention with {name}_quant_type {kind!r}", hint="NONE, PER_TENSOR and PER_CHANNEL are known"
        )
    scale, bits = None, 0
    if kind != "NONE":
        if past is None or not c.has(12 + which):
            raise ImportModelError(
                f"GroupQueryAttention with {name}_quant_type {kind!r} and without past_{['key', 'value'][which]} or {name}_scale"
            )
        bits = _QUANTIZED.get(past.dtype, 0)
        said = int(c.attr("kv_cache_bit_width", 0) or bits)
        if said != bits:
            raise ImportModelError(
                f"GroupQueryAttention with kv_cache_bit_width {said} and a cache of {past.dtype}",
                hint="8 bits lie in int8 or float8_e4m3, 4 bits in uint8",
            )
        scale = c.cast(c[12 + which], "float32")
        scale = c.reshape(scale, (*[1] * (4 - scale.ndim), *scale.shape))
    elif past is not None and past.dtype != c[0].dtype:
        raise ImportModelError(f"GroupQueryAttention with a cache of {past.dtype} and {name}_quant_type 'NONE'")
    width = (size + 1) // 2 if bits == 4 else size
    if past is not None and past.shape[3] != width:
        if (
            isinstance(past.shape[3], Dim)
            and len(past.shape[3].names()) == 1
            and str(past.shape[3]) in past.shape[3].names()
        ):
            raise SizeFollows(str(past.shape[3]), width, f"heads of {size} features")
        raise ImportModelError(f"GroupQueryAttention with heads of {size} features and a cache of {past.type}")
    return _Cache(past, scale, bits, size)


_UNKNOWN = (("smooth_softmax", (0, -1)), ("qk_output", (0,)), ("sliding_window_cache", (0,)), ("causal", (1,)))


def _refuse_unknown(c: Call) -> None:
    """What GroupQueryAttention may have and tec has not, by name and value."""
    for name, known in _UNKNOWN:
        value = c.attr(name, known[0])
        if value not in known:
            raise ImportModelError(f"GroupQueryAttention with {name} = {value}", hint=f"{name} = {known[0]} is known")
    for k, what in ((11, "head_sink"), (16, "query_seqlens")):
        if c.has(k):
            raise ImportModelError(f"GroupQueryAttention with the input {what}")
    if c.wants(3):
        raise ImportModelError("GroupQueryAttention with its scores as an output (output_qk)")


@onnx_op("GroupQueryAttention", domain=MS)
def group_query_attention(c: Call) -> Outputs:
    """Attention with a cache of keys and values, rotary positions inside.

    A cache of open length grows: new rows stand behind it, and every batch entry is as long as the others (checked when the network runs). One whose
    length is a number is a buffer: new rows go to each entry's own place, later places are not seen. A quantized cache takes rows rounded, and attention
    sees what they stand for, those of this step too.
    """
    _refuse_unknown(c)
    n, nk = int(c.attr("num_heads")), int(c.attr("kv_num_heads"))
    if c.has(1):
        q, k, v = heads_of(c, c[0], n), heads_of(c, c[1], nk), heads_of(c, c[2], nk)
    else:
        size = c[0].shape[2] // (n + 2 * nk)
        packed = c.split(c[0], 2, [n * size, nk * size, nk * size])
        q, k, v = (heads_of(c, x, h) for x, h in zip(packed, (n, nk, nk)))
    b, s, _, size = q.shape
    caches = [_cache(c, j, size) for j in (0, 1)]
    past = c[3].shape[2] if c.has(3) else 0
    window = int(c.attr("local_window_size", -1))
    attrs = {
        "scale": float(c.attr("scale", 0.0)) or size**-0.5, "softcap": float(c.attr("softcap", 0.0)), "right": 0,
        "left": window - 1 if window > 0 else None, "q_order": (0, 2, 1, 3), "out_order": (0, 2, 1, 3),
    }  # fmt: skip
    q, k = _normalized(c, q, k)
    ends = c.cast(c.reshape(c[5], (b,)), "int64")
    extras: list[tuple[str, Value]] = []
    grows = not c.has(3) or isinstance(past, Dim)
    known = sizes_in(c[6])
    total = known.reshape(-1)[0] if known is not None else None if grows else int(np.ravel(c.array(6))[0])
    if grows:
        q = _as_long_as_the_others(c, q, ends, past, s, total)
        place = counted(c, s, past)
        attrs["offset"] = past
    else:
        place = _own_places(c, ends, s, c.graph.sizes(total))
        extras.append(("start", c.reshape(c.slice(place, 1, 0, 1), (b,))))
    if c.attr("do_rotary", 0):
        turn = bool(c.attr("rotary_interleaved", 0))
        ids = c.cast(c[9], "int64") if c.has(9) else place
        q, k = (rotary(c, x, ids, c[7], c[8], turn) for x in (q, k))
    rows = [cache.rows(c, c.transpose(x, (0, 2, 1, 3))) for cache, x in zip(caches, (k, v))]
    if grows:
        kept = [x if m.value is None else c.op("concat", m.value, x, axis=2) for m, x in zip(caches, rows)]
    else:
        if isinstance(total, Dim):
            require(total, "<=", past, "the cache of GroupQueryAttention has no room for more")
        room = max(past, total) if isinstance(total, int) else past
        kept = [write_cache(c, m.value, x, c.broadcast(place, (b, s)), room) for m, x in zip(caches, rows)]
    k, v = (cache.numbers(c, x, q.dtype) for cache, x in zip(caches, kept))
    if c.has(10):
        extras.append(("bias", c[10]))
    y = c.op("attention", q, k, v, *(x for _, x in extras), extras=tuple(name for name, _ in extras), **attrs)
    return Outputs([c.reshape(y, (b, s, n * size)), *kept])


def _normalized(c: Call, q: Value, k: Value) -> list[Value]:
    """Queries and keys (batch, steps, heads, size), each head over its root mean square where weights for that are given."""
    epsilon, out = float(c.attr("qk_norm_epsilon", 1e-6)), []
    for x, at, own in ((q, 14, "q_norm_epsilon"), (k, 15, "k_norm_epsilon")):
        if c.has(14) != c.has(15):
            raise ImportModelError("GroupQueryAttention with one of q_norm_weight and k_norm_weight")
        out.append(rms_norm(c, x, c[at], 3, float(c.attr(own, epsilon) or epsilon))[0] if c.has(at) else x)
    return out


def _as_long_as_the_others(c: Call, q: Value, ends: Value, past: Any, steps: Any, total: Any) -> Value:
    """q, with the conditions that a cache which grows asks for. Of a prompt, rows behind an entry's end are seen by none that counts."""
    want = past + steps
    if total is not None:
        for a, b in ((total, want), (want, total)):
            if not require(
                a, "<=", b, "total_sequence_length of GroupQueryAttention is the cache's length and the new tokens'"
            ):
                raise ImportModelError(
                    f"total_sequence_length is {total} where the cache and the new tokens have {want}"
                )
    else:
        fits = c.op("equal", c.cast(c.reshape(c[6], ()), "int64"), c.graph.sizes(want))
        q = c.op("require", q, fits, text="total_sequence_length is not the cache's length and the new tokens'")
    if isinstance(past, int):
        return q
    whole = c.op("equal", ends, c.op("subtract", c.graph.sizes(want), c.const(np.int64(1))))
    first = c.op("equal", c.graph.sizes(past), c.const(np.int64(0)))
    fits = c.op("reduce_all", c.op("logical_or", whole, first), axes=(0,), keepdims=False)
    text = "seqlens_k says that some batch entry is shorter than the cache and the new tokens: entries of different lengths need a cache of fixed length"
    return c.op("require", q, fits, text=text)


def _own_places(c: Call, ends: Value, steps: Any, total: Value) -> Value:
    """Where each batch entry's new tokens stand, (batch, steps): from 0 on for a prompt, which is all that there is, else up to its end."""
    b = ends.shape[0]
    start = c.op("subtract", ends, c.op("subtract", c.graph.sizes(steps), c.const(np.int64(1))))
    start = c.op("where", c.op("equal", total, c.graph.sizes(steps)), c.const(np.int64(0)), start)
    return c.op("add", c.reshape(start, (b, 1)), counted(c, steps, 0))


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
