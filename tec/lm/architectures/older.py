"""Decoders with norms by mean and variance and networks without gates: Phi 1 and 2, StableLM, StarCoder 1 and 2, Nemotron, GPT-NeoX (Pythia), GPT-2, GPT-J, Falcon.

Source: transformers' modeling_phi.py, modeling_stablelm.py, modeling_starcoder2.py, modeling_nemotron.py, modeling_gpt_neox.py, modeling_gpt2.py,
modeling_gpt_bigcode.py, modeling_gptj.py, modeling_falcon.py.
"""

from __future__ import annotations

from math import frexp, ldexp

from ...errors import ImportModelError
from ...graph import Value
from ..layers import Layers
from ..remedies import ANOTHER_MODEL
from .alibi import slopes


def phi(m: Layers) -> Value:
    """Attention and network side by side, behind one norm."""
    x = m.embeddings()
    for _ in m.each_layer():
        h = m.layer_norm(x, m.name("input_layernorm"))
        q, k, v = m.queries_keys_values(h)
        if m.c.get("qk_layernorm"):
            q, k = (m.layer_norm(y, m.name(f"self_attn.{n}_layernorm")) for y, n in ((q, "q"), (k, "k")))
        q, k = (m.rotary(y, m.angles()) for y in (q, k))
        x = m.add(m.add(x, m.out(m.attend(q, k, v), "self_attn.dense")), m.network(h, "mlp.fc1", "mlp.fc2"))
    return m.logits(m.layer_norm(m.last(x), "model.final_layernorm"))


def stablelm(m: Layers) -> Value:
    """Gated networks; side by side where `use_parallel_residual`."""
    if m.c.get("qk_layernorm"):
        raise ImportModelError(
            f"qk_layernorm = {m.c.get('qk_layernorm')!r} of {m.c.architecture} is not read", hint=ANOTHER_MODEL
        )
    x = m.embeddings()
    for _ in m.each_layer():
        h = m.layer_norm(x, m.name("input_layernorm"))
        q, k, v = m.queries_keys_values(h)
        q, k = (m.rotary(y, m.angles()) for y in (q, k))
        x, before = m.add(x, m.out(m.attend(q, k, v))), h
        if not m.c.get("use_parallel_residual"):
            before = m.layer_norm(x, m.name("post_attention_layernorm"))
        x = m.add(x, m.gated(before))
    return m.logits(m.layer_norm(m.last(x), "model.norm"))


def starcoder2(m: Layers) -> Value:
    """A window of keys in all layers, where there is one."""
    x, kinds = m.embeddings(), m.c.layer_kinds()
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.layer_norm(x, m.name("input_layernorm")))
        q, k = (m.rotary(y, m.angles()) for y in (q, k))
        window = m.c.window if kinds[m.layer] == "sliding_attention" else None
        x = m.add(x, m.out(m.attend(q, k, v, window=window)))
        x = m.add(x, m.network(m.layer_norm(x, m.name("post_attention_layernorm")), "mlp.c_fc", "mlp.c_proj"))
    return m.logits(m.layer_norm(m.last(x), "model.norm"))


def nemotron(m: Layers) -> Value:
    """Norms multiply by 1 + weight; relu squared."""
    x, shift = m.embeddings(), m.c.number("rms_norm_offset", 1.0)
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.layer_norm(x, m.name("input_layernorm"), shift=shift))
        q, k = (m.rotary(y, m.angles()) for y in (q, k))
        x = m.add(x, m.out(m.attend(q, k, v)))
        h = m.layer_norm(x, m.name("post_attention_layernorm"), shift=shift)
        x = m.add(x, m.network(h, "mlp.up_proj", "mlp.down_proj"))
    return m.logits(m.layer_norm(m.last(x), "model.norm", shift=shift))


def gpt_neox(m: Layers) -> Value:
    """Queries, keys and values of each head lie beside each other; all queries first in GGUF files (`qkv_proj`)."""
    m.prefix, x, size = "gpt_neox.layers", m.embeddings(), m.c.head_size
    for _ in m.each_layer():
        h = m.layer_norm(x, m.name("input_layernorm"))
        if m.w.has(m.name("attention.qkv_proj.weight")):
            q, k, v = m.queries_keys_values(h, "attention")
        else:
            joined = m.linear(h, m.name("attention.query_key_value"), sizes=[3 * m.c.hidden])[0]
            q, k, v = m.b.split(m.heads(joined, m.c.heads), 3, [size] * 3)
        q, k = (m.rotary(y, m.angles()) for y in (q, k))
        y = m.out(m.attend(q, k, v), "attention.dense")
        before = x if m.c.get("use_parallel_residual", True) else m.add(x, y)
        inner = m.network(
            m.layer_norm(before, m.name("post_attention_layernorm")), "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"
        )
        x = m.add(m.add(x, y), inner)
    x = m.layer_norm(m.last(x), "gpt_neox.final_layer_norm")
    return m.logits(x, tied="gpt_neox.embed_in")


def gpt2(m: Layers) -> Value:
    """Learned positions. Of GPT-2 matrices lie transposed. StarCoder has one head of keys, or the three of each head beside each other."""
    m.prefix, c = "transformer.h", m.c
    sizes = [n * c.head_size for n in (c.heads, c.kv_heads, c.kv_heads)]
    x = m.add(m.embeddings(), m.graph.input("position_embeddings", m.dtype, (m.tokens, c.hidden)))
    for _ in m.each_layer():
        h = m.layer_norm(x, m.name("ln_1"))
        joined = m.linear(h, m.name("attn.c_attn"), sizes=[sum(sizes)])[0]
        if c.get("multi_query") is False:
            q, k, v = m.b.split(m.heads(joined, c.heads), 3, [c.head_size] * 3)
        else:
            q, k, v = (m.heads(y, n // c.head_size) for y, n in zip(m.b.split(joined, 1, sizes), sizes))
        scale = c.head_size**-0.5 if c.get("scale_attn_weights", True) else 1.0
        if c.architecture == "gpt2" and c.get("scale_attn_by_inverse_layer_idx"):  # StarCoder passes it over
            scale /= m.layer + 1
        x = m.add(x, m.out(m.attend(q, k, v, scale=scale), "attn.c_proj"))
        x = m.add(
            x, m.network(m.layer_norm(x, m.name("ln_2")), "mlp.c_fc", "mlp.c_proj", c.size("n_inner", 4 * c.hidden))
        )
    return m.logits(m.layer_norm(m.last(x), "transformer.ln_f"), tied="transformer.wte")


def gptj(m: Layers) -> Value:
    """Attention and network side by side, behind one norm; neighbours of a part of each head turn, by the frequencies of the first such model, whatever a file says."""
    m.prefix, c, x = "transformer.h", m.c, m.embeddings()
    angles = m.angles(10000.0, {"rope_type": "default"})
    for _ in m.each_layer():
        h = m.layer_norm(x, m.name("ln_1"))
        q, k, v = m.queries_keys_values(h, "attn")
        q, k = (m.rotary(y, angles, interleaved=True) for y in (q, k))
        y = m.network(h, "mlp.fc_in", "mlp.fc_out", c.size("n_inner", 4 * c.hidden))
        x = m.add(m.add(x, m.out(m.attend(q, k, v), "attn.out_proj")), y)
    return m.logits(m.layer_norm(m.last(x), "transformer.ln_f"), tied="transformer.wte")


def _bfloat16(x: float) -> float:
    """A number as bfloat16 has it: 8 bits, the nearest."""
    mantissa, exponent = frexp(x)
    return ldexp(round(mantissa * 256), exponent - 8)


def falcon(m: Layers) -> Value:
    """Queries of a group lie beside its key and value; all queries first in GGUF files (`qkv_proj`). Attention and network have one norm, two side by side, or stand
    one behind the other. With `alibi` nothing turns; slopes are rounded and scaled as scores are."""
    m.prefix, c, x = "transformer.h", m.c, m.embeddings()
    scale = c.head_size**-0.5
    falling = [_bfloat16(s) * scale for s in slopes(c.heads)] if c.get("alibi") else ()
    size, inner = c.head_size, c.size("intermediate_size", 4 * c.hidden)
    for _ in m.each_layer():
        two = m.w.has(m.name("ln_attn.weight"))
        h = m.layer_norm(x, m.name("ln_attn" if two else "input_layernorm"))
        if m.w.has(m.name("self_attention.qkv_proj.weight")):
            q, k, v = m.queries_keys_values(h, "self_attention")
        else:
            joined = m.linear(h, m.name("self_attention.query_key_value"), sizes=[(c.heads + 2 * c.kv_heads) * size])[0]
            q, k, v = m.b.split(m.heads(joined, c.kv_heads), 3, [c.heads // c.kv_heads * size, size, size])
            q = m.b.reshape(q, (1, m.tokens, c.heads, size))
        if not falling:
            q, k = (m.rotary(y, m.angles()) for y in (q, k))
        y = m.out(m.attend(q, k, v, slopes=falling), "self_attention.dense")
        behind = m.w.has(m.name("post_attention_layernorm.weight"))
        if behind:
            x = m.add(x, y)
        if two or behind:  # GGUF files call the network's norm the input's
            names = ("ln_mlp", "input_layernorm") if two else ("post_attention_layernorm",)
            h = m.layer_norm(x, m.name(next(n for n in names if m.w.has(m.name(f"{n}.weight")) or n == names[-1])))
        z = m.network(h, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", inner)
        x = m.add(x, z) if behind else m.add(m.add(x, y), z)
    return m.logits(m.layer_norm(m.last(x), "transformer.ln_f"), tied="transformer.word_embeddings")
