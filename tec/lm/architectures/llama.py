"""Llama 2 and 3, SmolLM2, Qwen2 (biases of queries, keys and values), Mistral (a sliding window), SmolLM3 (layers without positions), Phi-3 and
Phi-4-mini (matrices in one; `rope_scaling` is longrope in models for long texts), Qwen3 (a norm for each head of queries and keys).

Sources: arXiv 2302.13971, 2310.06825, 2404.14219, 2407.10671, 2505.09388; transformers' modeling_llama.py, modeling_mistral.py, modeling_ministral3.py,
modeling_qwen2.py, modeling_smollm3.py, modeling_phi3.py, modeling_qwen3.py.
"""

from __future__ import annotations

from collections.abc import Callable

from ...graph import Value
from ..layers import Layers
from ..rope import trained_length


def llama(m: Layers) -> Value:
    """Norm, attention, norm, gated network; sums around both. Layers see a window of keys where the configuration says so."""
    return decoder(m)


def qwen3(m: Layers) -> Value:
    """Heads are normed before they are turned."""
    return decoder(m, heads_normed=True)


def ministral3(m: Layers) -> Value:
    """Scores of queries far from the beginning are larger, by `llama_4_scaling_beta`."""
    return decoder(m, sharpened=True)


def smollm3(m: Layers) -> Value:
    """As Llama; `no_rope_layers` has 0 for layers whose heads are not turned."""
    turned = m.c.get("no_rope_layers") or [
        (k + 1) % int(m.c.get("no_rope_layer_interval", 4)) != 0 for k in range(m.c.layers)
    ]
    return decoder(m, turned=[bool(t) for t in turned])


def decoder(
    m: Layers, network: Callable[[Layers, Value], Value] = Layers.gated, *, heads_normed: bool = False, heads_normed_behind: bool = False, whole_normed: bool = False,
    interleaved: bool = False, turned: list[bool] | None = None, pattern: int = 0, sharpened: bool = False,
) -> Value:  # fmt: skip
    """network: of a layer, behind its norm. heads_normed, heads_normed_behind: before and behind their turn; whole_normed: over all heads together.
    turned: the layers with positions, where not all have some."""
    x, kinds = m.embeddings(), m.c.layer_kinds(pattern)
    factor = _far(m) if sharpened else None
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(m.rms_norm(x, m.name("input_layernorm")))
        if heads_normed:
            q, k = (m.rms_norm(h, m.name(f"self_attn.{n}_norm")) for h, n in ((q, "q"), (k, "k")))
        if whole_normed:
            q, k = (m.rms_norm_of_heads(h, m.name(f"self_attn.{n}_norm")) for h, n in ((q, "q"), (k, "k")))
        if turned is None or turned[m.layer]:
            q, k = (m.rotary(h, m.angles(), interleaved) for h in (q, k))
        if heads_normed_behind:
            q, k = (m.rms_norm(h, m.name(f"self_attn.{n}_layernorm")) for h, n in ((q, "query"), (k, "key")))
        q = q if factor is None else m.b.op("multiply", q, factor)
        window = m.c.window if kinds[m.layer] == "sliding_attention" else None
        x = m.add(x, m.out(m.attend(q, k, v, window=window)))
        x = m.add(x, network(m, m.rms_norm(x, m.name("post_attention_layernorm"))))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def _far(m: Layers) -> Value | None:
    """1 + beta * log(1 + floor(place / trained)), [1, tokens, 1, 1]: of places within the trained length 1."""
    own = m.c.get("rope_parameters") or m.c.get("rope_scaling") or {}
    beta, b = own.get("llama_4_scaling_beta"), m.b
    if not beta:
        return None
    trained = trained_length(own, m.c)
    times = b.op("floor", m.scaled(m.places(), 1 / float(trained)))
    logs = m.scaled(b.op("log", m.add(times, b.like(1.0, times))), float(beta))
    return b.cast(b.reshape(m.add(logs, b.like(1.0, logs)), (1, m.tokens, 1, 1)), m.dtype)


def exaone4(m: Layers) -> Value:
    """Norms behind attention and network, heads normed; of layers with windows and without, those with windows alone have positions."""
    x, kinds = m.embeddings(), m.c.layer_kinds(pattern=4)
    for _ in m.each_layer():
        q, k, v = m.queries_keys_values(x)
        q, k = (m.rms_norm(h, m.name(f"self_attn.{n}_norm")) for h, n in ((q, "q"), (k, "k")))
        near = kinds[m.layer] == "sliding_attention"
        if near or m.c.window is None:
            q, k = (m.rotary(h, m.angles()) for h in (q, k))
        y = m.out(m.attend(q, k, v, window=m.c.window if near else None))
        x = m.add(x, m.rms_norm(y, m.name("post_attention_layernorm")))
        x = m.add(x, m.rms_norm(m.gated(x), m.name("post_feedforward_layernorm")))
    return m.logits(m.rms_norm(m.last(x), "model.norm"))


def neighbours(m: Layers) -> Value:
    """ERNIE 4.5 and Helium: Llama whose neighbours turn."""
    return decoder(m, interleaved=True)


def arcee(m: Layers) -> Value:
    """A network without a gate."""
    return decoder(m, lambda m, h: m.network(h, "mlp.up_proj", "mlp.down_proj"))


def hunyuan(m: Layers) -> Value:
    """Heads are normed behind their turn."""
    return decoder(m, heads_normed_behind=True)
