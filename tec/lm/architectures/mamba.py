"""Mamba and Falcon Mamba: no attention; each layer is one state space model, each number of whose state has a decay of its own, behind a short convolution.

Sources: arXiv 2312.00752; transformers' modeling_mamba.py, modeling_falcon_mamba.py.
"""

from __future__ import annotations

from collections.abc import Callable

from ...graph import Value
from ...records import dataclass
from ..layers import Layers

Norm = Callable[[Value, str], Value]


@dataclass(frozen=True)
class Selective:
    """Sizes of a state space model: its features, numbers of the state that each of them has, features that steps are made of, tokens of the convolution."""

    inner: int
    state: int
    rank: int
    kernel: int


def mamba(m: Layers) -> Value:
    """Norm and mixer; their sum."""
    return _decoder(m, None)


def falcon_mamba(m: Layers) -> Value:
    """Steps, inputs and outputs are normed, without weights."""
    epsilon = m.c.number("mixer_rms_eps", 1e-6)
    return _decoder(m, lambda x, _: m.unit(x, epsilon))


def _decoder(m: Layers, norm: Norm | None) -> Value:
    m.prefix, x, c = "backbone.layers", m.embeddings(), m.c
    inner = c.size("intermediate_size", int(c.number("expand", 2) * c.hidden))
    space = Selective(
        inner, c.size("state_size"), rank_of(c.hidden, c.get("time_step_rank", "auto")), c.size("conv_kernel", 4)
    )
    for _ in m.each_layer():
        x = m.add(x, selective(m, m.rms_norm(x, m.name("norm")), space, "mixer", norm))
    return m.logits(m.rms_norm(m.last(x), "backbone.norm_f"), tied="backbone.embeddings")


def rank_of(hidden: int, said: int | str) -> int:
    """Features that steps are made of: a sixteenth of the model's where the configuration says "auto"."""
    return -(-hidden // 16) if said == "auto" else int(said)


def selective(m: Layers, h: Value, s: Selective, at: str, norm: Norm | None = None) -> Value:
    """The state space model of h [tokens, hidden]. norm: of steps, inputs and outputs by the names "dt", "b" and "c"."""
    b, name = m.b, m.name(at)
    x, gate = b.split(m.linear(h, f"{name}.in_proj", sizes=[2 * s.inner])[0], 1, [s.inner, s.inner])
    x = m.activation(m.short_conv(x, f"{at}.conv1d", s.kernel))
    made = m.linear(x, f"{name}.x_proj", sizes=[s.rank + 2 * s.state])[0]
    step, k, q = b.split(made, 1, [s.rank, s.state, s.state])
    if norm is not None:
        step, k, q = (norm(y, n) for y, n in ((step, "dt"), (k, "b"), (q, "c")))
    step = b.op("softplus", b.cast(m.linear(step, f"{name}.dt_proj", sizes=[s.inner])[0], "float32"))
    wide = b.cast(x, "float32")
    # The state is one head [state, inner]: neighbours of it are features, which all tokens' vectors have as neighbours too.
    rates = b.reshape(b.transpose(_negative_rates(m, name, s), (1, 0)), (1, 1, s.state, s.inner))
    decay = b.op("multiply", b.reshape(step, (m.tokens, 1, 1, s.inner)), rates)
    fed = b.reshape(b.op("multiply", wide, step), (m.tokens, 1, s.inner))
    q, k = (b.cast(b.reshape(y, (m.tokens, 1, s.state)), "float32") for y in (q, k))
    y, end = b.ops("linear_recurrence", q, k, fed, decay, m.state("state", (1, s.state, s.inner)), tiled=False)
    m.keep("state", end)
    own = b.reshape(m.w.vector(f"{name}.D", (s.inner,)), (1, s.inner))
    y = m.add(b.reshape(y, (m.tokens, s.inner)), b.op("multiply", wide, own))
    y = b.op("multiply", y, b.op("silu", b.cast(gate, "float32")))
    return m.out(b.cast(y, m.dtype), f"{at}.out_proj")


def _negative_rates(m: Layers, at: str, s: Selective) -> Value:
    """-exp(A_log), float32 [inner, state]; GGUF files have the result."""
    shape = (s.inner, s.state)
    if m.w.has(f"{at}.A"):
        return m.w.vector(f"{at}.A", shape)
    return m.b.op("neg", m.b.op("exp", m.w.vector(f"{at}.A_log", shape)))
