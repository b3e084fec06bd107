"""Decoders whose tokens have no positions: scores fall with the distance between two tokens, in each head by a slope of its own (BLOOM, MPT).

Source: arXiv 2108.12409; transformers' modeling_bloom.py, modeling_mpt.py. MPT's largest slope and the limits of queries, keys and values are as its file says.
"""

from __future__ import annotations

from ...errors import ImportModelError
from ...graph import Value
from ..layers import Layers
from ..remedies import ANOTHER_MODEL

USUAL_MOST = 8.0  # the exponent of the smallest slope of a power of two heads: 2^-8


def slopes(heads: int, most: float = USUAL_MOST) -> list[float]:
    """A slope for each head: powers of 2^(-most / heads) from the first on. Heads that are no power of two have those of the power below, and behind them every second
    one of the power above."""
    power = 1 << (heads.bit_length() - 1)
    own = [2.0 ** (-most * k / power) for k in range(1, power + 1)]
    between = [2.0 ** (-most * k / (2 * power)) for k in range(1, 2 * power, 2)]
    return [*own, *between][:heads]


def bloom(m: Layers) -> Value:
    """A norm behind the embeddings. Queries, keys and values of each head lie beside each other; all queries first in GGUF files (`qkv_proj`)."""
    m.prefix, c = "transformer.h", m.c
    x = m.layer_norm(m.embeddings(), "transformer.word_embeddings_layernorm")
    falling, after = slopes(c.heads), c.get("apply_residual_connection_post_layernorm")
    for _ in m.each_layer():
        h = m.layer_norm(x, m.name("input_layernorm"))
        if m.w.has(m.name("self_attention.qkv_proj.weight")):
            q, k, v = m.queries_keys_values(h, "self_attention")
        else:
            joined = m.linear(h, m.name("self_attention.query_key_value"), sizes=[3 * c.hidden])[0]
            q, k, v = m.b.split(m.heads(joined, c.heads), 3, [c.head_size] * 3)
        x = m.add(h if after else x, m.out(m.attend(q, k, v, slopes=falling), "self_attention.dense"))
        h = m.layer_norm(x, m.name("post_attention_layernorm"))
        inner = m.network(h, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", c.size("intermediate_size", 4 * c.hidden))
        x = m.add(h if after else x, inner)
    return m.logits(m.layer_norm(m.last(x), "transformer.ln_f"), tied="transformer.word_embeddings")


def mpt(m: Layers) -> Value:
    """Norms and products have no biases in most files."""
    m.prefix, c = "transformer.blocks", m.c
    for key, read in (("alibi", True), ("prefix_lm", False), ("qk_ln", False)):
        if bool(c.get(key, read)) != read:
            raise ImportModelError(f"{key} = {c.get(key)!r} of {c.architecture} is not read", hint=ANOTHER_MODEL)
    x = m.embeddings()
    falling = slopes(c.heads, c.number("alibi_bias_max", USUAL_MOST))
    sizes = [n * c.head_size for n in (c.heads, c.kv_heads, c.kv_heads)]
    for _ in m.each_layer():
        joined = m.linear(m.layer_norm(x, m.name("norm_1")), m.name("attn.Wqkv"), sizes=[sum(sizes)])[0]
        parts = m.b.split(m.clamped(joined), 1, sizes)
        q, k, v = (m.heads(y, n) for y, n in zip(parts, (c.heads, c.kv_heads, c.kv_heads)))
        y = m.attend(q, k, v, scale=c.number("softmax_scale", c.head_size**-0.5), slopes=falling)
        x = m.add(x, m.out(y, "attn.out_proj"))
        inner = c.size("intermediate_size", 4 * c.hidden)
        x = m.add(x, m.network(m.layer_norm(x, m.name("norm_2")), "ffn.up_proj", "ffn.down_proj", inner))
    x = m.layer_norm(m.last(x), "transformer.norm_f")
    return m.logits(x, tied="transformer.wte")
