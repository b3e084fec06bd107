"""The layers that language models are made of, on a graph of one text: rows are tokens, [tokens, features].

`Layers` holds what they share: the configuration, the weights (`WeightBuilder`), where the text stands, and the caches. An architecture
(`tec.lm.architectures`) is a function of it that returns the logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import ImportModelError
from ..graph import Graph, Value
from ..graph.builders import Builder
from ..graph.builders.norm import layer_norm, rms_norm
from ..ops.dim_bounds import Empty
from ..ops.dims import Dim
from .config import Config
from .rope import frequencies
from .weights import WeightBuilder

_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "relu": "relu",
}  # fmt: skip


class Layers:
    """Builders for one graph. dtype: of activations and caches. all_logits: logits of every token, not of the last one alone. context: the most tokens of a
    text, where the frequencies of rotary positions depend on it."""

    def __init__(
        self, config: Config, tensors: Any, target: Any, dtype: str, all_logits: bool = False, context: int = 0
    ):  # fmt: skip
        self.c, self.dtype, self.all_logits, self.context = config, dtype, all_logits, context
        self.graph = Graph("lm")
        self.b = Builder(self.graph)
        self.w = WeightBuilder(self.b, tensors, target)
        self.tokens: Any = Dim("tokens")
        self.past: Any = Dim(Empty("past"))
        self.layer = 0
        self._caches: list[tuple[str, Value]] = []
        self._angles: dict[Any, tuple[Value, Value]] = {}

    # ---- where layers stand

    def each_layer(self) -> Iterator[int]:
        """Numbers of the layers, while each is built: `name` then gives names of its tensors."""
        for k in range(self.c.layers):
            self.layer = k
            yield k

    def name(self, suffix: str) -> str:
        """The name of a tensor of the layer that is being built."""
        return f"model.layers.{self.layer}.{suffix}"

    def embeddings(self) -> Value:
        """The tokens' rows of the embedding table, [tokens, hidden], which the caller looks up."""
        return self.graph.input("embeddings", self.dtype, (self.tokens, self.c.hidden))

    # ---- products and norms

    def linear(
        self, x: Value, *names: str, sizes: Sequence[int], bias: bool = True, beside: bool = False
    ) -> list[Value]:
        """x times each matrix `name`.weight [size, features] transposed, plus `name`.bias where there is one. beside: of experts (`WeightBuilder.products`)."""
        out = self.w.products(x, [f"{n}.weight" for n in names], sizes, beside)
        for k, (name, n) in enumerate(zip(names, sizes)):
            if bias and self.w.has(f"{name}.bias"):
                out[k] = self.b.op("add", out[k], self.w.vector(f"{name}.bias", (n,), self.dtype))
        return out

    def rms_norm(self, x: Value, name: str, shift: float = 0.0, epsilon: float | None = None) -> Value:
        """x over its root mean square along the last axis, times `name`.weight + shift."""
        scale = self.w.vector(f"{name}.weight", (x.shape[-1],), "float32", shift)
        return rms_norm(self.b, x, scale, -1, self.c.epsilon if epsilon is None else epsilon)[0]

    def layer_norm(self, x: Value, name: str, epsilon: float) -> Value:
        """x less its mean over its spread, times `name`.weight plus `name`.bias."""
        n = (x.shape[-1],)
        bias = self.w.vector(f"{name}.bias", n, self.dtype) if self.w.has(f"{name}.bias") else None
        return layer_norm(self.b, x, self.w.vector(f"{name}.weight", n, self.dtype), bias, -1, epsilon)[0]

    def scaled(self, x: Value, by: float) -> Value:
        return x if by == 1 else self.b.op("multiply", x, self.b.like(by, x))

    def add(self, x: Value, y: Value) -> Value:
        return self.b.op("add", x, y)

    # ---- feed-forward networks

    def activation(self, x: Value, name: str | None = None) -> Value:
        found = _ACTIVATIONS.get(name or self.c.activation)
        if found is None:
            raise ImportModelError(
                f"activation {name or self.c.activation!r} of {self.c.architecture}",
                hint=f"known: {', '.join(_ACTIVATIONS)}",
            )
        return self.b.op(found, x)

    def gated(self, x: Value, prefix: str = "mlp", size: int = 0) -> Value:
        """down(activation(gate(x)) * up(x)); gate and up may lie in one matrix, `gate_up_proj`."""
        size = size or self.c.size("intermediate_size")
        prefix = self.name(prefix)
        if self.w.has(f"{prefix}.gate_up_proj.weight"):
            both = self.linear(x, f"{prefix}.gate_up_proj", sizes=[2 * size])[0]
            gate, up = self.b.split(both, 1, [size, size])
        else:
            gate, up = self.linear(x, f"{prefix}.gate_proj", f"{prefix}.up_proj", sizes=[size, size])
        y = self.b.op("multiply", self.activation(gate), up)
        return self.linear(y, f"{prefix}.down_proj", sizes=[self.c.hidden])[0]

    # ---- attention

    def heads(self, x: Value, count: int) -> Value:
        """[tokens, count * size] as [1, tokens, count, size]."""
        return self.b.reshape(x, (1, self.tokens, count, x.shape[1] // count))

    def queries_keys_values(self, x: Value, prefix: str = "self_attn") -> tuple[Value, Value, Value]:
        """Of x [tokens, hidden], by heads; the three may lie in one matrix, `qkv_proj`."""
        c, prefix = self.c, self.name(prefix)
        sizes = [n * c.head_size for n in (c.heads, c.kv_heads, c.kv_heads)]
        if self.w.has(f"{prefix}.qkv_proj.weight"):
            parts = self.b.split(self.linear(x, f"{prefix}.qkv_proj", sizes=[sum(sizes)])[0], 1, sizes)
        else:
            parts = self.linear(x, *(f"{prefix}.{n}_proj" for n in "qkv"), sizes=sizes)
        q, k, v = (self.heads(y, n) for y, n in zip(parts, (c.heads, c.kv_heads, c.kv_heads)))
        return q, k, v

    def places(self) -> Value:
        """The places of the tokens in the text, float32 [tokens]."""
        places = self.b.op("iota", size=self.tokens, start=self.past, step=1, dtype="int64")
        return self.b.cast(places, "float32")

    def angles(self, base: float | None = None, scaling: Any = None) -> tuple[Value, Value]:
        """Cosines and sines of the tokens' places, [1, tokens, 1, pairs]."""
        key = base, repr(scaling)
        if key not in self._angles:
            inverse, factor = frequencies(self.c, base, scaling, self.context)
            turns = self.b.op(
                "multiply", self.b.reshape(self.places(), (self.tokens, 1)), self.b.const(inverse.reshape(1, -1))
            )
            made = [self.scaled(self.b.op(f, turns), factor) for f in ("cos", "sin")]
            cos, sin = (self.b.reshape(t, (1, self.tokens, 1, len(inverse))) for t in made)
            self._angles[key] = cos, sin
        return self._angles[key]

    def rotary(self, x: Value, angles: tuple[Value, Value], interleaved: bool = False) -> Value:
        """x [1, tokens, heads, size] turned by its places."""
        return self.b.op(
            "rotary",
            x,
            *(self.b.cast(a, x.dtype) if x.dtype == "float64" else a for a in angles),
            interleaved=interleaved,
        )

    def attend(
        self, q: Value, k: Value, v: Value, *, scale: float | None = None, window: int | None = None, softcap: float = 0.0
    ) -> Value:  # fmt: skip
        """Causal attention of the tokens to themselves and all before them, [tokens, heads * size]; keys and values join the layer's cache. window: keys
        that a token sees, itself among them."""
        kept = [self.cached(x, what) for x, what in ((k, "key"), (v, "value"))]
        y = self.b.op(
            "attention", q, *kept, scale=q.shape[3] ** -0.5 if scale is None else scale, softcap=softcap, right=0,
            left=None if window is None else window - 1, q_order=(0, 2, 1, 3), out_order=(0, 2, 1, 3), offset=self.past,
        )  # fmt: skip
        return self.b.reshape(y, (self.tokens, y.shape[2] * y.shape[3]))

    def cached(self, x: Value, what: str) -> Value:
        """x [1, tokens, heads, size] behind the layer's cache: [1, heads, past + tokens, size]."""
        name = f"past.{self.layer}.{what}"
        cache = self.graph.input(name, x.dtype, (1, x.shape[2], self.past, x.shape[3]))
        whole = self.b.op("concat", cache, self.b.transpose(x, (0, 2, 1, 3)), axis=2)
        self._caches.append((name, whole))
        return whole

    def state(self, what: str, shape: Sequence[int], dtype: str = "float32") -> Value:
        """A state of the layer with a fixed shape, zeros before the first token; `keep` says what it becomes."""
        return self.graph.input(f"past.{self.layer}.{what}", dtype, tuple(shape))

    def keep(self, what: str, value: Value) -> None:
        self._caches.append((f"past.{self.layer}.{what}", value))

    def out(self, y: Value, prefix: str = "self_attn.o_proj") -> Value:
        return self.linear(y, self.name(prefix), sizes=[self.c.hidden])[0]

    # ---- the end

    def last(self, x: Value) -> Value:
        """The last token's row, unless all are wanted."""
        return x if self.all_logits else self.b.slice(x, 0, self.tokens - 1, 1)

    def logits(self, x: Value, *, softcap: float = 0.0, scale: float = 1.0) -> Value:
        """x [rows, hidden] times the vocabulary, or the embedding table where the model has one for both."""
        head = "lm_head" if self.w.has("lm_head.weight") else "model.embed_tokens"
        y = self.scaled(self.linear(x, head, sizes=[self.c.vocabulary])[0], scale)
        y = self.b.cast(y, "float32")
        if softcap:
            y = self.scaled(self.b.op("tanh", self.scaled(y, 1 / softcap)), softcap)
        return y

    def finish(self, logits: Value) -> Graph:
        """The graph, whose outputs are the logits and what the caches become."""
        names = [name.replace("past.", "present.", 1) for name, _ in self._caches]
        self.graph.set_outputs([logits, *(v for _, v in self._caches)], ["logits", *names])
        self.graph.state = {name: made for (name, _), made in zip(self._caches, names)}
        return self.graph


def constant(layers: Layers, array: Any) -> Value:
    """A small constant of the layers' type."""
    return layers.b.const(np.asarray(array, np.float32), layers.dtype)
