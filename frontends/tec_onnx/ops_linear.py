"""Layers whose state is of one size however long the text: linear attention, causal convolutions with a state, and their gates (com.microsoft).

onnxruntime-genai writes them for Qwen3-Next, Qwen3.5 and Mamba. Source: the definitions in ONNX Runtime's documentation of its contrib operators.
"""

from __future__ import annotations

import numpy as np

from tec import ImportModelError
from tec.graph import Value

from .importer import Call, Outputs, onnx_op

MS = "com.microsoft"
RULES = ("linear", "gated", "delta", "gated_delta")


@onnx_op("LinearAttention", domain=MS)
def linear_attention(c: Call) -> Outputs:
    """q [batch, tokens, heads * size], k and v by their own heads, the state [batch, heads, size, width]: see `tec.ops.linear_recurrence`.

    All heads of a batch entry are heads of one recurrence. Of queries and states, the ones that are fewer are repeated.
    """
    rule, n, own = c.attr("update_rule", "gated_delta"), int(c.attr("q_num_heads", 0)), int(c.attr("kv_num_heads", 0))
    q, k, v = (c.cast(x, "float32") for x in (c[0], c[1], c[2]))
    if rule not in RULES or c.attr("state_window", 0) or n < 1 or own < 1 or max(n, own) % min(n, own):
        raise ImportModelError(f"LinearAttention with update_rule {rule!r}, {n} and {own} heads, state_window {c.attr('state_window', 0)}", hint=f"update_rule is one of {', '.join(sorted(RULES))}, state_window 0, and of q_num_heads and kv_num_heads one divides the other")  # fmt: skip
    batch, tokens, _ = q.shape
    size, width, heads = q.shape[2] // n, v.shape[2] // own, max(n, own)
    if k.shape[2] != own * size:
        raise ImportModelError(
            f"LinearAttention of keys {k.type} with {own} heads of {size}",
            hint=f"the last dimension of the keys is kv_num_heads * {size} = {own * size}: check q_num_heads and kv_num_heads",
        )
    scale = float(c.attr("scale", 0.0)) or size**-0.5
    queries = c.op("multiply", _heads(c, q, n, heads), c.like(scale, q))
    decay = _gate(c, 4, own, heads) if "gated" in rule else _zeros(c, tokens, batch * heads)
    beta = [_gate(c, 5, own, heads)] if "delta" in rule else []
    state_type = c[3].dtype if c.has(3) else q.dtype
    state = c.cast(c[3], "float32") if c.has(3) else c.const(np.zeros((batch, own, size, width), np.float32))
    state = c.reshape(_repeated(c, state, 1, heads), (batch * heads, size, width))
    y, end = c.ops(
        "linear_recurrence",
        queries,
        _heads(c, k, own, heads),
        _heads(c, v, own, heads),
        decay,
        state,
        *beta,
        tiled=False,
    )
    y = c.transpose(c.reshape(y, (tokens, batch, heads, width)), (1, 0, 2, 3))
    end = c.slice(c.reshape(end, (batch, heads, size, width)), 1, 0, own, heads // own)
    return Outputs([c.cast(c.reshape(y, (batch, tokens, heads * width)), c[0].dtype), c.cast(end, state_type)])


def _repeated(c: Call, x: Value, axis: int, count: int) -> Value:
    """Each of an axis' parts so often that there are `count`."""
    times = count // x.shape[axis]
    if times == 1:
        return x
    shape = (*x.shape[:axis], x.shape[axis], times, *x.shape[axis + 1 :])
    wide = c.op("broadcast_to", c.unsqueeze(x, axis + 1), shape=shape)
    return c.reshape(wide, (*x.shape[:axis], count, *x.shape[axis + 1 :]))


def _heads(c: Call, x: Value, own: int, heads: int) -> Value:
    """[batch, tokens, own * size] as [tokens, batch * heads, size]."""
    batch, tokens, wide = x.shape
    split = c.transpose(c.reshape(x, (batch, tokens, own, wide // own)), (1, 0, 2, 3))
    return c.reshape(_repeated(c, split, 2, heads), (tokens, batch * heads, wide // own))


def _gate(c: Call, k: int, own: int, heads: int) -> Value:
    """Input k, [batch, tokens, heads or 1], as [tokens, batch * heads]."""
    x = c.cast(c[k], "float32")
    batch, tokens, wide = x.shape
    if wide not in (own, 1):
        raise ImportModelError(
            f"LinearAttention with a gate {x.type} for {own} heads; gates of each feature are not supported",
            hint=f"a gate for each head: (batch, steps, {own}) or (batch, steps, 1)",
        )
    return c.reshape(_heads(c, x, wide, heads), (tokens, batch * heads))


def _zeros(c: Call, tokens: int, heads: int) -> Value:
    return c.op("broadcast_to", c.const(np.zeros((1, 1), np.float32)), shape=(tokens, heads))


@onnx_op("LinearAttentionGate", domain=MS)
def linear_attention_gate(c: Call) -> Outputs:
    """How much of a state is kept, scale * softplus(a + bias), and how much is learned, sigmoid(b); in float32."""
    total = c.op("add", c.cast(c[0], "float32"), c.cast(c[1], "float32"))
    decay = c.op("multiply", c.op("softplus", total), c.cast(c[2], "float32"))
    beta = c.cast(c.op("sigmoid", c.cast(c[3], "float32")), c[0].dtype) if c.has(3) else None
    return Outputs([c.cast(decay, c[0].dtype), beta])


@onnx_op("CausalConvWithState", domain=MS)
def causal_conv(c: Call) -> Outputs:
    """Each channel with its own last inputs, by weights [channels, 1, taps]; the inputs that a later call needs are the state [batch, channels, (taps - 1) * dilation]."""
    x, w = c[0], c[1]
    kind, dilation, last = c.attr("activation", "none"), int(c.attr("dilation", 1)), bool(c.attr("channels_last", 0))
    extended = ("state_window", "state_update_capacity", "state_length", "input_channel_offset", "input_channels")
    if (
        x.ndim != 3
        or int(c.attr("ndim", 1)) != 1
        or any(c.attr(a, 0) for a in extended)
        or c.attr("state_channels_last", -1) != -1
    ):
        raise ImportModelError(
            f"CausalConvWithState of {x.type}, or with one of {', '.join(extended)}",
            hint="an input of (batch, channels, steps), without these attributes",
        )
    if kind not in ("none", "silu", "swish") or dilation < 1 or w.ndim != 3 or w.shape[1] != 1:
        raise ImportModelError(
            f"CausalConvWithState by {w.type} with activation {kind!r} and dilation {dilation}",
            hint="weights of (channels, 1, width), dilation 1 or more, and activation none, silu or swish",
        )
    axis = 1 if last else 2
    tokens, taps, channels = x.shape[axis], w.shape[2], w.shape[0]
    history = (taps - 1) * dilation
    shape = [x.shape[0], channels, channels]
    shape[axis] = history
    before = c[3] if c.has(3) else c.op("broadcast_to", c.reshape(c.like(0, x), (1, 1, 1)), shape=tuple(shape))
    whole = c.op("concat", before, x, axis=axis)
    beside = (1, 1, channels) if last else (1, channels, 1)
    y = c.reshape(c[2], beside) if c.has(2) else None
    for k in range(taps):
        part = c.op("multiply", c.slice(whole, axis, k * dilation, tokens), c.reshape(c.slice(w, 2, k, 1), beside))
        y = part if y is None else c.op("add", y, part)
    assert y is not None
    if kind != "none":
        y = c.op("silu", y, alpha=1.0)
    return Outputs([y, c.slice(whole, axis, tokens, history)])
