"""Attention over a cache of keys and values as decoders of ONNX Runtime keep it (domain com.microsoft).

GroupQueryAttention: heads in groups, a cache that grows, that is a buffer, or that holds a window; quantized caches; sinks.
SparseAttention: the same over a buffer, where a table of blocks says what a token sees. DecoderMaskedMultiHeadAttention: one token
a text, beams that read each other's rows.
Sources: the operators' definitions in ONNX Runtime's documentation of its contrib operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders.attention import dequantize_cache, join_heads, quantize_cache, rotary, split_heads, write_cache
from tec.graph.builders.norm import rms_norm
from tec.graph.fold_sizes import sizes_in
from tec.ops.dims import Dim, require
from tec.ops.registry import unfit
from tec.records import dataclass

from .importer import Call, Outputs, onnx_op
from .ops_attention import MS, counted, heads_of

_ORDER = {"q_order": (0, 2, 1, 3), "out_order": (0, 2, 1, 3)}  # queries and results lie as (batch, steps, heads, size)


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
    from the heads: SizesMeet."""
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
                f"GroupQueryAttention with {name}_quant_type {kind!r} and without past_{['key', 'value'][which]} or {name}_scale",
                hint=f"a quantized cache needs past_{['key', 'value'][which]}, empty at first, and {name}_scale",
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
        raise ImportModelError(
            f"GroupQueryAttention with a cache of {past.dtype} and {name}_quant_type 'NONE'",
            hint=f"a cache of {c[0].dtype}, the query's type, or {name}_quant_type PER_TENSOR or PER_CHANNEL with its scale",
        )
    width = (size + 1) // 2 if bits == 4 else size
    if past is not None and past.shape[3] != width:
        what = f"GroupQueryAttention with heads of {size} features and a cache of {past.type}"
        raise unfit(
            what, (past.shape[3], width), hint=f"caches have {width} bytes a head in their last dimension" if bits == 4 else f"caches have {width} features a head in their last dimension"
        )  # fmt: skip
    return _Cache(past, scale, bits, size)


def _refuse_unknown(c: Call) -> None:
    """What GroupQueryAttention may have and tec has not, by name and value."""
    if c.attr("qk_output", 0) or c.wants(3):
        raise ImportModelError(
            "GroupQueryAttention with its scores as an output (output_qk)",
            hint="export the model without the output of scores (qk_output 0)",
        )
    for name, other, at in (("query_seqlens", "input", 16), ("sliding_window_cache", "attribute", None)):
        said = c.has(at) if at is not None else bool(c.attr(name, 0))
        if said and (not c.has(3) or isinstance(c[3].shape[2], Dim)):
            raise ImportModelError(
                f"GroupQueryAttention with the {other} {name} and a cache whose length is not a number",
                hint="bind the length of past_key and past_value: shapes={name: length}",
            )
    window, causal = int(c.attr("local_window_size", -1)), c.attr("causal", 1)
    if c.attr("sliding_window_cache", 0) and not 0 < window <= c[3].shape[2]:
        raise ImportModelError(
            f"GroupQueryAttention with a window of {window} in a cache of {c[3].shape[2]}",
            hint="sliding_window_cache needs a local_window_size above 0 that the cache has room for",
        )
    if not causal and (window > 0 or c.attr("sliding_window_cache", 0) or c.has(16)):
        raise ImportModelError(
            "GroupQueryAttention with causal = 0 and a window or query_seqlens",
            hint="leave causal at 1, or drop local_window_size, sliding_window_cache and query_seqlens",
        )


@onnx_op("GroupQueryAttention", domain=MS)
def group_query_attention(c: Call) -> Outputs:
    """Attention with a cache of keys and values, rotary positions inside.

    A cache of open length grows: new rows stand behind it, and every batch entry is as long as the others (checked when the network runs). One whose
    length is a number is a buffer: new rows go to each entry's own place, later places are not seen; or, with sliding_window_cache, it holds the last
    rows of each entry from place 0 on. A quantized cache takes rows rounded, and attention sees what they stand for, those of this step too.
    """
    _refuse_unknown(c)
    n, nk = int(c.attr("num_heads")), int(c.attr("kv_num_heads"))
    q, k, v = _heads(c, n, nk)
    b, s, _, size = q.shape
    caches = [_cache(c, j, size) for j in (0, 1)]
    past = c[3].shape[2] if c.has(3) else 0
    window, causal = int(c.attr("local_window_size", -1)), bool(c.attr("causal", 1))
    attrs = {
        "scale": float(c.attr("scale", 0.0)) or size**-0.5, "softcap": float(c.attr("softcap", 0.0)), "right": 0 if causal else None,
        "left": window - 1 if window > 0 else None, **_ORDER,
    }  # fmt: skip
    q, k = _normalized(c, q, k)
    ends = c.cast(c.reshape(c[5], (b,)), "int64")
    extras: dict[str, Value] = {}
    grows = not c.has(3) or isinstance(past, Dim)
    total = _total(c, grows)
    if grows:
        q = _as_long_as_the_others(c, q, ends, past, s, total)
        place = counted(c, s, past)
        attrs["offset"] = past
    else:
        count = c.graph.sizes(total) if total is not None else c.cast(c.reshape(c[6], ()), "int64")
        place = _own_places(c, ends, s, count, c.get(16))
    if c.attr("do_rotary", 0):
        turn = bool(c.attr("rotary_interleaved", 0))
        ids = c.cast(c[9], "int64") if c.has(9) else place
        q, k = (rotary(c, x, ids, c[7], c[8], turn) for x in (q, k))
    rows = [cache.rows(c, c.transpose(x, (0, 2, 1, 3))) for cache, x in zip(caches, (k, v))]
    bias = c[10] if c.has(10) else None
    if grows:
        kept = seen = [x if m.value is None else c.op("concat", m.value, x, axis=2) for m, x in zip(caches, rows)]
    elif c.attr("sliding_window_cache", 0):
        held = _Window(c, past, window, _first(c, place), ends)
        seen = [held.with_rows(m.value, x) for m, x in zip(caches, rows)]
        kept = [held.after(x) for x in seen]
        extras["start"] = held.before
        bias = None if bias is None else held.columns(bias, seen[0].shape[2])
    else:
        if isinstance(total, Dim):
            require(total, "<=", past, "the cache of GroupQueryAttention has no room for more")
        room = max(past, total) if isinstance(total, int) and not c.has(16) else past
        kept = seen = [write_cache(c, m.value, x, c.broadcast(place, (b, s)), room) for m, x in zip(caches, rows)]
        extras["start" if causal else "length"] = _first(c, place) if causal else _plus(c, ends, 1)
    k, v = (cache.numbers(c, x, q.dtype) for cache, x in zip(caches, seen))
    if bias is not None:
        extras["bias"] = _as_wide(c, bias, k.shape[2])
    if c.has(11):
        extras["sink"] = c.reshape(c[11], (1, n, 1, 1))
    elif c.attr("smooth_softmax", 0) > 0:  # a score of 0 beside those of the keys
        extras["sink"] = c.const(np.zeros((1, 1, 1, 1)), q.dtype)
    y = c.op("attention", q, k, v, *extras.values(), extras=tuple(extras), **attrs)
    return Outputs([c.reshape(y, (b, s, n * v.shape[3])), *kept])


def _total(c: Call, grows: bool) -> Any:
    """The number of tokens in the end, an int or a Dim; None where it is known when the network runs, and nothing depends on it before."""
    known = sizes_in(c[6])
    if known is None and not grows and not c.has(16) and not c.attr("sliding_window_cache", 0):
        known = np.asarray(c.array(6)).astype(object)  # how long a buffer becomes
    return None if known is None else known.reshape(-1)[0]


def _heads(c: Call, n: int, nk: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values by heads, (batch, steps, heads, size): three inputs, or side by side in the first."""
    if c.has(1):
        return heads_of(c, c[0], n), heads_of(c, c[1], nk), heads_of(c, c[2], nk)
    size = c[0].shape[2] // (n + 2 * nk)
    q, k, v = (heads_of(c, x, h) for x, h in zip(c.split(c[0], 2, [n * size, nk * size, nk * size]), (n, nk, nk)))
    return q, k, v


def _plus(c: Call, x: Value, number: int) -> Value:
    return c.op("add", x, c.like(number, x))


def _first(c: Call, place: Value) -> Value:
    """The place of each entry's first new token, (batch)."""
    return c.reshape(c.slice(place, 1, 0, 1), (place.shape[0],))


def _as_wide(c: Call, bias: Value, keys: Any) -> Value:
    """A bias (…, total) for a buffer of `keys` rows, those behind the total never seen."""
    have = bias.shape[3]
    if not isinstance(have, int) or not isinstance(keys, int) or have in (1, keys):
        return bias
    if have > keys:
        return c.slice(bias, 3, 0, keys)
    return c.op("pad", bias, before=(0,) * 4, after=(0, 0, 0, keys - have))


@dataclass(frozen=True)
class _Window:
    """A cache of `room` rows that holds the last rows of each entry from place 0 on. It lets go of `room - window + 1` rows at once, when they are all
    behind the window of the next token; so what it holds follows from the number of tokens alone."""

    c: Call
    room: int
    window: int
    first: Value  # tokens that each entry had before, (batch)
    ends: Value  # the last token's place afterwards, (batch)

    def held(self, tokens: Value) -> Value:
        """How many rows there are after so many tokens."""
        c, step = self.c, self.room - self.window + 1
        over = c.op("maximum", c.op("subtract", tokens, c.like(self.room, tokens)), c.like(0, tokens))
        times = c.op("floor_divide", _plus(c, over, step - 1), c.like(step, tokens))
        return c.op("subtract", tokens, c.op("multiply", times, c.like(step, tokens)))

    @property
    def before(self) -> Value:
        return self.held(self.first)

    def with_rows(self, cache: Value | None, new: Value) -> Value:
        """The rows that were there and, behind them, the new ones: (batch, heads, room + steps, size)."""
        c, (b, _, s, _) = self.c, new.shape
        at = c.op("add", c.reshape(self.before, (b, 1)), counted(c, s, 0))
        return write_cache(c, cache, new, at, self.room + s)

    def after(self, rows: Value) -> Value:
        """What the cache holds next, of these."""
        c, (b, heads, most, size) = self.c, rows.shape
        tokens = _plus(c, self.ends, 1)
        new = c.op("subtract", tokens, self.first)
        gone = c.op("subtract", c.op("add", self.before, new), self.held(tokens))
        at = c.op("add", c.reshape(gone, (b, 1, 1, 1)), c.const(np.arange(self.room).reshape(1, 1, -1, 1), "int64"))
        at = c.op("minimum", at, c.graph.sizes(most - 1))
        return c.op("gather_elements", rows, c.broadcast(at, (b, heads, self.room, size)), axis=2)

    def columns(self, bias: Value, keys: int) -> Value:
        """A bias by tokens' places in their text, for `keys` rows."""
        c, b, (_, heads, s, total) = self.c, self.first.shape[0], bias.shape
        shift = c.reshape(c.op("subtract", self.first, self.before), (b, 1, 1, 1))
        at = c.op("add", shift, c.const(np.arange(keys).reshape(1, 1, 1, -1), "int64"))
        at = c.op("minimum", at, c.graph.sizes(total - 1))
        whole = c.broadcast(bias, (b, heads, s, total))
        return c.op("gather_elements", whole, c.broadcast(at, (b, heads, s, keys)), axis=3)


def _normalized(c: Call, q: Value, k: Value) -> list[Value]:
    """Queries and keys (batch, steps, heads, size), each head over its root mean square where weights for that are given."""
    epsilon, out = float(c.attr("qk_norm_epsilon", 1e-6)), []
    for x, at, own in ((q, 14, "q_norm_epsilon"), (k, 15, "k_norm_epsilon")):
        if c.has(14) != c.has(15):
            raise ImportModelError(
                "GroupQueryAttention with one of q_norm_weight and k_norm_weight",
                hint="give both weights or none; a weight of ones leaves one side as it is but for the norm",
            )
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
                    f"total_sequence_length is {total} where the cache and the new tokens have {want}",
                    hint=f"feed {want}: the length of past_key and the new tokens together",
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


def _own_places(c: Call, ends: Value, steps: Any, total: Value, valid: Value | None = None) -> Value:
    """Where each batch entry's new tokens stand, (batch, steps): from 0 on for a prompt, which is all that there is, else up to its end. `valid`: how
    many of the steps are tokens, which stand in front."""
    b = ends.shape[0]
    if valid is not None:
        start = c.op("subtract", _plus(c, ends, 1), c.cast(c.reshape(valid, (b,)), "int64"))
    else:
        start = c.op("subtract", ends, c.op("subtract", c.graph.sizes(steps), c.const(np.int64(1))))
        start = c.op("where", c.op("equal", total, c.graph.sizes(steps)), c.const(np.int64(0)), start)
    return c.op("add", c.reshape(start, (b, 1)), counted(c, steps, 0))


@onnx_op("SparseAttention", domain=MS)
def sparse_attention(c: Call) -> Outputs:
    """Causal attention over a buffer, where a table of blocks, one for every few heads, says which block of keys a block of queries sees."""
    n, nk, block = (int(c.attr(a)) for a in ("num_heads", "kv_num_heads", "sparse_block_size"))
    q, k, v = _heads(c, n, nk)
    b, s, _, size = q.shape
    room = c[3].shape[2]
    ends = _plus(c, c.cast(c.reshape(c[8], (b,)), "int64"), -1)
    place = _own_places(c, ends, s, c.cast(c.reshape(c[7], ()), "int64"))
    if c.attr("do_rotary", 0):
        turn = bool(c.attr("rotary_interleaved", 0))
        q, k = (rotary(c, x, place, c[9], c[10], turn) for x in (q, k))
    kept = [
        write_cache(c, c[at], c.transpose(x, (0, 2, 1, 3)), c.broadcast(place, (b, s)), room)
        for at, x in ((3, k), (4, v))
    ]
    seen = _blocks_seen(np.asarray(c.array(5)), np.asarray(c.array(6)))
    layouts, blocks, _ = seen.shape
    if n % layouts or blocks * block < room:
        raise ImportModelError(
            f"SparseAttention with {layouts} tables of {blocks} blocks of {block}, for {n} heads and a cache of {room}",
            hint=f"the number of tables divides num_heads, and blocks of sparse_block_size cover {room} keys: check block_row_indices and max_cache_len",
        )
    line = c.op("floor_divide", place, c.like(block, place))
    line = c.op("minimum", line, c.like(blocks - 1, line))  # tokens behind an entry's end
    keep = c.op("gather", c.const(seen), line, axis=1)  # (tables, batch, steps, blocks)
    keep = c.transpose(keep, (1, 0, 2, 3))
    wide = c.broadcast(c.reshape(keep, (b, layouts, s, blocks, 1)), (b, layouts, s, blocks, block))
    keep = c.slice(c.reshape(wide, (b, layouts, s, blocks * block)), 3, 0, room)
    if layouts > 1:  # heads take the tables in turn
        turns = n // layouts
        keep = c.broadcast(c.reshape(keep, (b, 1, layouts, s, room)), (b, turns, layouts, s, room))
        keep = c.reshape(keep, (b, n, s, room))
    scale = float(c.attr("scale", 0.0)) or size**-0.5
    y = c.op("attention", q, *kept, _first(c, place), keep, extras=("start", "bias"), scale=scale, right=0, **_ORDER)
    return Outputs([c.reshape(y, (b, s, n * size)), *kept])


def _blocks_seen(rows: Any, columns: Any) -> Any:
    """Tables of blocks (tables, blocks, blocks) of bool, from their compressed rows."""
    blocks = rows.shape[1] - 1
    seen = np.zeros((len(rows), blocks, blocks), bool)
    for table, (ends, own) in enumerate(zip(rows, columns)):
        for line in range(blocks):
            seen[table, line, own[ends[line] : ends[line + 1]]] = True
    return seen


@onnx_op("DecoderMaskedMultiHeadAttention", domain=MS)
def decoder_attention(c: Call) -> Outputs:
    """One token of each text: self attention, whose cache grows or is a buffer, or attention to keys that are there already."""
    if c.attr("output_qk", 0) or c.wants(3):
        raise ImportModelError(
            "DecoderMaskedMultiHeadAttention with its scores as an output (output_qk)",
            hint="export the model without the output of scores (output_qk 0)",
        )
    n = int(c.attr("num_heads"))
    crosses = c.has(1) and c[1].ndim == 4
    query, key, value = (c[0], c.get(1), c.get(2)) if c.has(1) else (*c.split(c[0], 2, [c[0].shape[2] // 3] * 3),)
    parts = [query] if crosses else [query, key, value]
    if c.has(10):
        widths = [x.shape[2] for x in (query, *parts[1:])]
        parts = [c.op("add", x, own) for x, own in zip(parts, c.split(c[10], 0, widths))]
    q, *new = (split_heads(c, x, n) for x in parts)
    b = q.shape[0]
    mask = c.op("not_equal", c[3], c.like(0, c[3])) if c.has(3) else None
    bias = c.get(4)
    extras: dict[str, Value] = {}
    if crosses:
        kept = [key, value]
        present = [None, None]
    else:
        shared = bool(c.attr("past_present_share_buffer", 0))
        if shared and not c.has(7):
            raise ImportModelError(
                "DecoderMaskedMultiHeadAttention with a shared buffer and without its length",
                hint="give past_sequence_length, input 7, or set past_present_share_buffer to 0",
            )
        if shared:
            at = c.cast(c.reshape(c[7], (1, 1)), "int64")
            kept = [write_cache(c, c[k], x, c.broadcast(at, (b, 1)), c[k].shape[2]) for k, x in zip((5, 6), new)]
            extras["length"] = c.broadcast(c.reshape(_plus(c, at, 1), (1,)), (b,))
        else:
            kept = [c.op("concat", c[k], x, axis=2) if c.has(k) else x for k, x in zip((5, 6), new)]
        present = list(kept)
        if c.has(9):
            kept = [_of_beams(c, x, c[9], at if shared else None) for x in kept]
    k, v = kept
    if bias is not None:
        extras["bias"] = _as_wide(c, bias, k.shape[2])
    if mask is not None:
        seen = c.reshape(mask, (mask.shape[0], 1, 1, mask.shape[1]))
        extras["bias_mask"] = _as_wide(c, seen, k.shape[2])
    scale = float(c.attr("scale", 0.0)) or q.shape[3] ** -0.5
    y = c.op("attention", q, k, v, *extras.values(), extras=tuple(extras), scale=scale)
    return Outputs([join_heads(c, y), *present])


def _of_beams(c: Call, rows: Value, beams: Value, before: Value | None) -> Value:
    """Rows (batch * beams, heads, places, size) as each beam sees them: beams (batch, beams, places at least) names the beam that wrote the row of a
    place. Rows from place `before` on, the newest, are each beam's own."""
    texts, count, have = beams.shape
    n, heads, places, size = rows.shape
    if isinstance(have, int) and isinstance(places, int) and have < places:
        raise ImportModelError(
            f"cache_indirection of {have} places for a cache of {places}",
            hint=f"make cache_indirection (batch, beams, {places}), as long as the cache",
        )
    written = c.slice(c.cast(beams, "int64"), 2, 0, places)
    place = c.reshape(counted(c, places, 0), (1, 1, places))
    own = c.reshape(counted(c, count, 0), (1, count, 1))
    newest = c.op("greater_equal", place, c.graph.sizes(places - 1) if before is None else c.reshape(before, (1, 1, 1)))
    written = c.op("where", newest, own, written)
    text = c.reshape(counted(c, texts, 0), (texts, 1, 1))
    at = c.reshape(c.op("add", c.op("multiply", text, c.graph.sizes(count)), written), (n, 1, places, 1))
    return c.op("gather_elements", rows, c.broadcast(at, (n, heads, places, size)), axis=0)
