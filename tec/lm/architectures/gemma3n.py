"""Gemma 3n: four streams of features of which layers compute one and guess the others (AltUp), a low-rank path beside attention (LAuReL), networks of which few gates
are on, an embedding for each layer, and layers that read the keys of earlier ones.

Norms multiply by their weights alone. Source: transformers' modeling_gemma3n.py.
"""

from __future__ import annotations

from statistics import NormalDist

from ...errors import ImportModelError
from ...graph import Value
from ..layers import Layers
from ..remedies import FETCH_AGAIN
from .gemma import Kept, by_own_embedding, kept_of, per_layer_inputs


def gemma3n(m: Layers) -> Value:
    """The last `num_kv_shared_layers` layers have queries alone."""
    c, kinds = m.c, m.c.layer_kinds(pattern=5)
    x = m.scaled(m.embeddings(), c.hidden**0.5)
    own, kept = per_layer_inputs(m, x), Kept()
    if own is None:
        raise ImportModelError(f"{c.architecture} without hidden_size_per_layer_input", hint=FETCH_AGAIN)
    count, alone = c.size("altup_num_inputs", 4), c.layers - int(c.get("num_kv_shared_layers", 0))
    streams = [x, *(_as_large(m, m.linear(x, f"model.altup_projections.{k}", sizes=[c.hidden])[0], x) for k in range(count - 1))]  # fmt: skip
    for _ in m.each_layer():
        guessed = _guessed(m, streams)
        active = guessed[_active(m)]
        h = m.rms_norm(active, m.name("input_layernorm"))
        y = m.add(active, m.rms_norm(_attention(m, h, kinds[m.layer], kept, m.layer >= alone), m.name("post_attention_layernorm")))  # fmt: skip
        y = m.scaled(m.add(y, _low_rank(m, h)), 2.0**-0.5)
        network = _network(m, m.rms_norm(y, m.name("pre_feedforward_layernorm")))
        y = m.add(y, m.rms_norm(network, m.name("post_feedforward_layernorm")))
        streams = _with_own(m, _corrected(m, guessed, y), own)
    whole = streams[0]
    for k, stream in enumerate(streams[1:]):
        y = m.linear(stream, f"model.altup_unembed_projections.{k}", sizes=[c.hidden])[0]
        whole = m.add(whole, _as_large(m, y, streams[0]))
    x = m.rms_norm(m.last(m.scaled(whole, 1 / count)), "model.norm")
    return m.logits(x, softcap=c.number("final_logit_softcapping", 0.0))


def _active(m: Layers) -> int:
    """The number of the stream that layers compute."""
    number, count = int(m.c.get("altup_active_idx", 0)), m.c.size("altup_num_inputs", 4)
    if not 0 <= number < count:
        raise ImportModelError(
            f"altup_active_idx = {number} of {count} streams in {m.c.architecture}", hint=FETCH_AGAIN
        )
    return number


def _as_large(m: Layers, y: Value, x: Value) -> Value:
    """y with the root mean square of x, token by token."""
    b = m.b
    size, own = (b.op("reduce_mean", b.op("multiply", v, v), axes=(1,), keepdims=True) for v in (x, y))
    by = b.op("multiply", b.op("sqrt", size), b.op("rsqrt", b.op("maximum", own, b.like(1e-5, own))))
    return b.op("multiply", y, by)


def _modalities(m: Layers, x: Value, count: int) -> Value:
    """What the coefficients of streams are made of, [tokens, streams]."""
    x = m.scaled(m.rms_norm(x, m.name("altup.router_norm")), 1 / m.c.hidden)
    return m.b.op("tanh", m.linear(x, m.name("altup.modality_router"), sizes=[count])[0])


def _guessed(m: Layers, streams: list[Value]) -> list[Value]:
    """Each stream, plus a sum of all by the token's coefficients."""
    b, count = m.b, len(streams)
    seen = _modalities(m, streams[_active(m)], count)
    by = b.split(m.linear(seen, m.name("altup.prediction_coefs"), sizes=[count * count])[0], 1, [1] * count * count)
    made = []
    for k, total in enumerate(streams):
        for x, coefficient in zip(streams, by[k * count : (k + 1) * count]):
            total = m.add(total, b.op("multiply", x, coefficient))
        made.append(total)
    return made


def _corrected(m: Layers, guessed: list[Value], y: Value) -> list[Value]:
    """Each guessed stream, plus by how much the active one was guessed wrong, times the token's coefficients."""
    b, count = m.b, len(guessed)
    wrong = b.op("subtract", y, guessed[_active(m)])
    by = m.linear(_modalities(m, y, count), m.name("altup.correction_coefs"), sizes=[count])[0]
    each = b.split(m.add(by, b.like(1.0, by)), 1, [1] * count)
    return [m.add(x, b.op("multiply", wrong, coefficient)) for x, coefficient in zip(guessed, each)]


def _with_own(m: Layers, streams: list[Value], own: Value) -> list[Value]:
    """The layer's own embedding, gated by the active stream, added to all but the first."""
    x = streams[_active(m)]
    if m.c.get("altup_correct_scale", True):
        x = m.b.op("multiply", x, m.w.vector(m.name("altup.correct_output_scale"), (1, m.c.hidden), m.dtype))
    y = by_own_embedding(m, x, own)
    return [streams[0], *(m.add(stream, y) for stream in streams[1:])]


def _low_rank(m: Layers, h: Value) -> Value:
    low = m.linear(h, m.name("laurel.linear_left"), sizes=[m.w.tensor(m.name("laurel.linear_left.weight")).shape[0]])[0]
    y = m.linear(low, m.name("laurel.linear_right"), sizes=[m.c.hidden])[0]
    return m.add(h, m.rms_norm(y, m.name("laurel.post_laurel_norm")))


def _attention(m: Layers, h: Value, kind: str, kept: Kept, alone: bool) -> Value:
    c, at, size = m.c, m.name("self_attn"), m.c.head_size
    near = kind == "sliding_attention"
    window = c.window if near else None
    angles = m.angles_of(kind) or (
        m.angles(c.number("rope_local_base_freq", 10000.0), {"rope_type": "default"}) if near else m.angles()
    )
    q = m.heads(m.linear(h, f"{at}.q_proj", sizes=[c.heads * size])[0], c.heads)
    q = m.rotary(m.rms_norm(q, f"{at}.q_norm"), angles)
    if not alone:
        k, v = (m.heads(y, c.kv_heads) for y in m.linear(h, f"{at}.k_proj", f"{at}.v_proj", sizes=[c.kv_heads * size] * 2))  # fmt: skip
        k = m.rotary(m.rms_norm(k, f"{at}.k_norm"), angles)
        kept[kind] = m.cached(k, m.unit(v), window)
    return m.out(m.attend_to(q, *kept_of(m, kept, kind), scale=1.0, window=window))


def _network(m: Layers, h: Value) -> Value:
    """Of some layers only gates that stand far enough above their mean are on."""
    b, at = m.b, m.name("mlp")
    size = m.w.tensor(f"{at}.gate_proj.weight").shape[0]
    gate, up = m.linear(h, f"{at}.gate_proj", f"{at}.up_proj", sizes=[size, size])
    spreads = _spreads(m)
    if spreads[m.layer]:
        mean = b.op("reduce_mean", gate, axes=(1,), keepdims=True)
        less = b.op("subtract", gate, mean)
        spread = b.op("sqrt", b.op("reduce_mean", b.op("multiply", less, less), axes=(1,), keepdims=True))
        gate = b.op("relu", b.op("subtract", less, m.scaled(spread, spreads[m.layer])))
    y = b.op("multiply", m.activation(gate), up)
    return m.linear(y, f"{at}.down_proj", sizes=[m.c.hidden])[0]


def _spreads(m: Layers) -> list[float]:
    """Of each layer: how many spreads above the mean a gate must stand; 0 where all are on."""
    c = m.c
    said = c.get("activation_sparsity_scale")  # as GGUF files have it
    if said is None:
        share = c.get("activation_sparsity_pattern")
        shares = [float(s) for s in (share if isinstance(share, list) else [share or 0.0] * c.layers)]
        said = [NormalDist().inv_cdf(s) if s > 0 else 0.0 for s in shares]
    if len(said) < c.layers:
        raise ImportModelError(
            f"{len(said)} shares of activations for {c.layers} layers of {c.architecture}", hint=FETCH_AGAIN
        )
    return [float(s) for s in said]
