"""Whisper: an encoder of sound, and a decoder that attends to it. Of one checkpoint come two networks: features of a run mean the encoder.

    encoder: log-mel frames -> two convolutions over time -> layers -> for each layer of the decoder the keys and values that it attends to
    decoder: tokens, and those keys and values, which stay as they are while a text is written -> logits
    of all tokens: a decoder whose result is how it attends to the sound, [heads, tokens, positions] of `alignment_heads`, by which words get their times (`words`)

Source: arXiv 2212.04356; transformers' modeling_whisper.py.
"""

from __future__ import annotations

import numpy as np

from ...errors import ImportModelError
from ...graph import Value
from ..config import Config
from ..layers import Layers

_TAPS = 3  # of both convolutions
_EPSILON = 1e-5  # of torch's LayerNorm, which no configuration states
_BY_HEADS = (0, 2, 1, 3)


def whisper(m: Layers) -> Value:
    """The decoder's logits; where features are asked for, what the encoder hands it."""
    if m.makes_features:
        return _encoder(m)
    return _weights(m) if m.all_logits else _decoder(m)


def _encoder(m: Layers) -> Value:
    """From "features" [frames, bins] to [2 * layers of the decoder, 1, heads, positions, size]: keys and values of each."""
    c, b = m.c, m.b
    m.prefix, m.tokens = "model.encoder.layers", c.size("max_source_positions")
    x = m.graph.input("features", m.dtype, (2 * m.tokens, c.size("num_mel_bins")))
    for k, step in ((1, 1), (2, 2)):
        taps = _taps(m, x, step)
        x = m.activation(m.linear(taps, f"model.encoder.conv{k}", sizes=[c.hidden])[0])
    x = m.add(x, m.w.vector("model.encoder.embed_positions.weight", (m.tokens, c.hidden), m.dtype))
    heads = c.size("encoder_attention_heads")
    for m.layer in range(c.size("encoder_layers")):
        h = m.layer_norm(x, m.name("self_attn_layer_norm"), _EPSILON)
        q, k_, v = (m.heads(y, heads) for y in _projected(m, h, "self_attn"))
        x = m.add(x, m.out(m.attend_all(q, k_, v), "self_attn.out_proj"))
        x = _network(m, x, "encoder_ffn_dim")
    x = m.layer_norm(x, "model.encoder.layer_norm", _EPSILON)
    m.prefix, made = "model.decoder.layers", []
    for m.layer in range(c.layers):
        for y in m.linear(x, *(m.name(f"encoder_attn.{n}_proj") for n in "kv"), sizes=[c.hidden] * 2):
            made.append(b.transpose(m.heads(y, c.heads), _BY_HEADS))
    return b.stack(made)


def _taps(m: Layers, x: Value, step: int) -> Value:
    """The neighbours of every `step`-th row of x [rows, features], zeros beyond its ends: [rows / step, features * taps], as weights of a convolution lie."""
    rows, features = x.shape
    edge = m.b.const(np.zeros((_TAPS // 2, features)), m.dtype)
    x = m.b.concat([edge, x, edge], 0)
    near = [m.b.slice(x, 0, t, rows // step, step) for t in range(_TAPS)]
    return m.b.reshape(m.b.stack(near, 2), (rows // step, features * _TAPS))


def _projected(m: Layers, x: Value, at: str) -> list[Value]:
    return m.linear(x, *(m.name(f"{at}.{n}_proj") for n in "qkv"), sizes=[m.c.hidden] * 3)


def _network(m: Layers, x: Value, size: str) -> Value:
    h = m.layer_norm(x, m.name("final_layer_norm"), _EPSILON)
    return m.add(x, m.network(h, "fc1", "fc2", m.c.size(size)))


def _decoder(m: Layers) -> Value:
    x = m.layer_norm(m.last(_written(m)), "model.decoder.layer_norm", _EPSILON)
    return m.logits(x, tied="model.decoder.embed_tokens")


def _weights(m: Layers) -> Value:
    """How the heads that follow the sound attend to it, float32 [heads, tokens, positions]."""
    found: dict[tuple[int, int], Value] = {}
    _written(m, found)
    return m.b.cast(m.b.stack([found[at] for at in followers(m.c)]), "float32")


def followers(c: Config) -> list[tuple[int, int]]:
    """The layers and heads of the decoder that follow the sound: those that the model's files name, else all heads of the later half of the layers, as OpenAI has it. Raises
    ImportModelError."""
    said = c.get("alignment_heads")
    if said is None:
        return [(k, h) for k in range(c.layers // 2, c.layers) for h in range(c.heads)]
    fits = isinstance(said, list) and bool(said) and all(isinstance(p, list) and len(p) == 2 for p in said)
    if not fits or not all(type(k) is type(h) is int and 0 <= k < c.layers and 0 <= h < c.heads for k, h in said):
        raise ImportModelError(
            f"alignment_heads of {c.architecture} is {said!r:.80}", hint=f"pairs of a layer below {c.layers} and a head below {c.heads}"
        )  # fmt: skip
    return [(k, h) for k, h in said]


def _written(m: Layers, weights: dict[tuple[int, int], Value] | None = None) -> Value:
    """The tokens' features behind all layers. weights: gets how heads attend to the sound."""
    c = m.c
    m.prefix = "model.decoder.layers"
    x = m.add(m.embeddings(), m.graph.input("position_embeddings", m.dtype, (m.tokens, c.hidden)))
    for _ in m.each_layer():
        h = m.layer_norm(x, m.name("self_attn_layer_norm"), _EPSILON)
        q, k, v = (m.heads(y, c.heads) for y in _projected(m, h, "self_attn"))
        x = m.add(x, m.out(m.attend(q, k, v), "self_attn.out_proj"))
        h = m.layer_norm(x, m.name("encoder_attn_layer_norm"), _EPSILON)
        heard = _listen(m, h, weights)
        if weights is not None and len(weights) == len(set(followers(c))):
            return x  # layers behind the last head that follows the sound are not wanted
        x = m.add(x, m.out(heard, "encoder_attn.out_proj"))
        x = _network(m, x, "decoder_ffn_dim")
    return x


def _listen(m: Layers, x: Value, weights: dict[tuple[int, int], Value] | None) -> Value:
    """Attention of the tokens to all of the sound, [tokens, hidden]."""
    c, b = m.c, m.b
    q = m.heads(m.linear(x, m.name("encoder_attn.q_proj"), sizes=[c.hidden])[0], c.heads)
    shape = (1, c.heads, c.size("max_source_positions"), c.head_size)
    keys, values = (m.graph.input(f"sound.{m.layer}.{n}", m.dtype, shape) for n in ("key", "value"))
    if weights is not None:
        for layer, head in followers(c):
            if layer == m.layer:
                own = b.reshape(b.slice(q, 2, head, 1), (m.tokens, c.head_size))
                theirs = b.reshape(b.slice(keys, 1, head, 1), (shape[2], c.head_size))
                scores = m.scaled(b.op("matmul", own, theirs, transpose_b=True), c.head_size**-0.5)
                weights[layer, head] = b.op("softmax", scores, axes=(1,))
    y = b.op("attention", q, keys, values, scale=c.head_size**-0.5, q_order=_BY_HEADS, out_order=_BY_HEADS)
    return b.reshape(y, (m.tokens, c.hidden))
