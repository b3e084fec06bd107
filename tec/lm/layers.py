"""The layers that language models are made of, on a graph of one text: rows are tokens, [tokens, features].

`Layers` holds what they share: the configuration, the weights (`WeightBuilder`), where the text stands, and the caches. An architecture
(`tec.lm.architectures`) is a function of it that returns the logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ImportModelError
from ..graph import Graph, Value
from ..graph.builders import Builder
from ..graph.builders.norm import layer_norm, rms_norm
from ..ops.dim_bounds import Empty
from ..ops.dims import Dim
from .caches import Rows, scales_of, stored_as
from .config import Config
from .rope import Frequencies, frequencies
from .weights import WeightBuilder

_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "relu": "relu",
}  # fmt: skip


class Layers:
    """Builders for one graph. dtype: of activations and caches. all_logits: logits of every token, not of the last one alone."""

    def __init__(
        self, config: Config, tensors: Any, target: Any, dtype: str, all_logits: bool = False, features: bool = False
    ):  # fmt: skip
        self.c, self.dtype, self.all_logits = config, dtype, all_logits or features
        self._ends_in_features = features
        self._length: Value | None = None
        self._row: Value | None = None
        self._near_row: Value | None = None
        self.graph = Graph("lm")
        self.b = Builder(self.graph)
        self.w = WeightBuilder(self.b, tensors, target)
        self.tokens: Any = Dim("tokens")
        whole = config.get("use_bidirectional_attention") is True
        self.past: Any = 0 if whole else Dim(Empty("past"))  # tokens of the text before these
        self._near: Any = None  # those of them that caches of layers with a window hold, where these hold no others
        self.cache_type = dtype
        self.layer, self.prefix = 0, "model.layers"
        self._caches: list[tuple[str, Value]] = []
        self._angles: dict[Any, tuple[Value, Value]] = {}
        self._parts: dict[Any, Value] = {}

    @property
    def makes_features(self) -> bool:
        """Whether features are wanted in place of logits."""
        return self._ends_in_features

    def place_rows(self) -> None:
        """The tokens stand where an input says, "row", one int64: what a cache gets goes to that row of it, and those behind are not read. So sizes stay as they
        are from token to token while the caches have room. Those of layers with a window alone have a row of their own, "near_row"."""
        self._row = self.graph.input("row", "int64", (1,))
        self.graph.row_inputs["past"] = "row"
        if self._near is not None:
            self._near_row = self.graph.input("near_row", "int64", (1,))
            self.graph.row_inputs["near"] = "near_row"

    def forget_beyond_windows(self) -> None:
        """Caches of layers with a window need not hold what no token to come sees. Where the tokens stand is then an input, "row", since no cache of such a model may
        say it."""
        if self.c.window is not None and isinstance(self.past, Dim):
            self._near = Dim(Empty("near"))
            self.graph.windows["near"] = self.c.window

    # ---- where layers stand

    def each_layer(self) -> Iterator[int]:
        """Numbers of the layers, while each is built: `name` then gives names of its tensors."""
        for k in range(self.c.layers):
            self.layer = k
            yield k

    def name(self, suffix: str) -> str:
        """The name of a tensor of the layer that is being built."""
        return f"{self.prefix}.{self.layer}.{suffix}"

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

    def rms_norm_of_heads(self, x: Value, name: str) -> Value:
        """The same of x [1, tokens, heads, size] over all heads together."""
        flat = self.b.reshape(x, (self.tokens, x.shape[2] * x.shape[3]))
        return self.b.reshape(self.rms_norm(flat, name), x.shape)

    def unit(self, x: Value, epsilon: float | None = None) -> Value:
        """x over its root mean square along the last axis."""
        one = self.b.const(np.ones(x.shape[-1], np.float32))
        return rms_norm(self.b, x, one, -1, self.c.epsilon if epsilon is None else epsilon)[0]

    def spread_free(self, x: Value, epsilon: float | None = None) -> Value:
        """x less its mean over its spread, along the last axis."""
        one = self.b.const(np.ones(x.shape[-1], np.float32), self.dtype)
        return layer_norm(self.b, x, one, None, -1, self.c.epsilon if epsilon is None else epsilon)[0]

    def layer_norm(self, x: Value, name: str, epsilon: float | None = None, shift: float = 0.0) -> Value:
        """The same times `name`.weight + shift, plus `name`.bias where there is one."""
        n = (x.shape[-1],)
        weight = self.w.vector(f"{name}.weight", n, self.dtype, shift)
        bias = self.w.vector(f"{name}.bias", n, self.dtype) if self.w.has(f"{name}.bias") else None
        return layer_norm(self.b, x, weight, bias, -1, self.c.epsilon if epsilon is None else epsilon)[0]

    def scaled(self, x: Value, by: float) -> Value:
        return x if by == 1 else self.b.op("multiply", x, self.b.like(by, x))

    def clamped(self, x: Value) -> Value:
        """x within the limits that `clip_qkv` has for queries, keys and values, where it has some."""
        limit = self.c.get("clip_qkv")
        if not limit:
            return x
        x = self.b.op("minimum", x, self.b.like(float(limit), x))
        return self.b.op("maximum", x, self.b.like(-float(limit), x))

    def add(self, x: Value, y: Value) -> Value:
        return self.b.op("add", x, y)

    # ---- feed-forward networks

    def activation(self, x: Value, name: str | None = None) -> Value:
        if (name or self.c.activation) == "relu2":
            x = self.b.op("relu", x)
            return self.b.op("multiply", x, x)
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

    def network(self, x: Value, up: str, down: str, size: int = 0) -> Value:
        """down(activation(up(x)))."""
        y = self.linear(x, self.name(up), sizes=[size or self.c.size("intermediate_size")])[0]
        return self.linear(self.activation(y), self.name(down), sizes=[self.c.hidden])[0]

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
        if self._row is None and self._near is not None:
            self._row = self.graph.input("row", "int64", (1,))
        first = self.past if self._row is None else 0
        places = self.b.op("iota", size=self.tokens, start=first, step=1, dtype="int64")
        return self.b.cast(places if self._row is None else self.add(places, self._row), "float32")

    def angles(self, base: float | None = None, scaling: Any = None, size: int = 0) -> tuple[Value, Value]:
        """Cosines and sines of the tokens' places, [1, tokens, 1, pairs]. size: of the heads, where it is not the configuration's."""
        key = base, repr(scaling), size
        if key not in self._angles:
            f = frequencies(self.c, base, scaling, size)
            turns = self.b.op("multiply", self.b.reshape(self.places(), (self.tokens, 1)), self._inverse(f))
            made = [self.scaled(self.b.op(g, turns), f.factor) for g in ("cos", "sin")]
            cos, sin = (self.b.reshape(t, (1, self.tokens, 1, len(f.inverse))) for t in made)
            self._angles[key] = cos, sin
        return self._angles[key]

    def _inverse(self, f: Frequencies) -> Value:
        """Inverse frequencies, float32 [1, pairs], by the length of the text where they depend on it: the input "text_length"."""
        b = self.b
        plain = b.const(np.asarray(f.inverse, np.float32).reshape(1, -1))
        if f.long is None and f.growth is None:
            return plain
        if self._length is None:
            self._length = self.graph.input("text_length", "float32", (1, 1))
        if f.long is not None:
            long = b.const(np.asarray(f.long, np.float32).reshape(1, -1))
            return b.op("where", b.op("greater", self._length, b.like(f.beyond, self._length)), long, plain)
        # 1 + stretch * (length / beyond - 1), of texts that are not longer 1.
        more = b.op("maximum", self.scaled(self._length, f.stretch / f.beyond), b.like(f.stretch, self._length))
        grown = b.op("log", b.op("add", more, b.like(1 - f.stretch, more)))
        by = b.op("exp", b.op("multiply", grown, b.const(np.asarray(f.growth, np.float32).reshape(1, -1))))
        return b.op("multiply", plain, by)

    def angles_of(self, kind: str, size: int = 0) -> tuple[Value, Value] | None:
        """The angles that `rope_parameters` has for a kind of layer ("full_attention", ...); None where it has none."""
        own = (self.c.get("rope_parameters") or {}).get(kind)
        if not isinstance(own, Mapping):
            return None
        return self.angles(float(own["rope_theta"]) if own.get("rope_theta") is not None else None, own, size)

    def rotary(self, x: Value, angles: tuple[Value, Value], interleaved: bool = False) -> Value:
        """x [1, tokens, heads, size] turned by its places."""
        return self.b.op(
            "rotary",
            x,
            *(self.b.cast(a, x.dtype) if x.dtype == "float64" else a for a in angles),
            interleaved=interleaved,
        )

    def attend(
        self, q: Value, k: Value, v: Value, *, scale: float | None = None, window: int | None = None, softcap: float = 0.0, sink: Value | None = None,
        chunk: int = 0, slopes: Sequence[float] = (),
    ) -> Value:  # fmt: skip
        """Causal attention of the tokens to themselves and all before them, [tokens, heads * size]; keys and values join the layer's cache. window: keys
        that a token sees, itself among them. sink: a score [heads] beside those of keys, which has no value. chunk: tokens of a part of the text, beyond whose
        beginning none of it sees; 0 where the text has no parts. slopes: of each head, what a score gains by a place that the key stands further on."""
        if self.c.get("use_bidirectional_attention") is True:
            return self.attend_all(q, k, v, scale=scale, window=window, softcap=softcap)
        keys, values = self.cached(k, v, window)
        return self.attend_to(
            q, keys, values, scale=scale, window=window, softcap=softcap, sink=sink, chunk=chunk, slopes=slopes
        )

    def attend_to(
        self, q: Value, keys: Rows, values: Rows, *, scale: float | None = None, window: int | None = None, softcap: float = 0.0, sink: Value | None = None,
        chunk: int = 0, slopes: Sequence[float] = (),
    ) -> Value:  # fmt: skip
        """The same with keys and values [1, heads, past + tokens, size] that are cached already."""
        extras = {**self._of_heads(sink, slopes, q.shape[2]), **scales_of(keys, values)}
        if chunk:
            extras["bias"] = self._same_chunk(keys.codes.shape[2], chunk)
        near = window is not None and self._near is not None
        row, past = (self._near_row, self._near) if near else (self._row, self.past)
        if self.graph.row_inputs and row is not None:
            extras["start"] = row
        y = self.b.op(
            "attention", q, keys.codes, values.codes, *extras.values(), scale=q.shape[3] ** -0.5 if scale is None else scale, softcap=softcap, right=0,
            left=None if window is None else window - 1, q_order=(0, 2, 1, 3), out_order=(0, 2, 1, 3), offset=None if self.graph.row_inputs else past, extras=tuple(extras),
        )  # fmt: skip
        return self.b.reshape(y, (self.tokens, y.shape[2] * y.shape[3]))

    def _of_heads(self, sink: Value | None, slopes: Sequence[float], heads: int) -> dict[str, Value]:
        """What an attention takes for each head."""
        found = {} if sink is None else {"sink": self.b.reshape(sink, (1, heads, 1, 1))}
        if slopes:
            found["slopes"] = self.b.const(np.array(slopes, np.float32).reshape(1, heads, 1, 1))
        return found

    def _same_chunk(self, keys: Any, chunk: int) -> Value:
        """Whether a key stands in a token's own part of the text, bool [1, 1, tokens, keys]."""
        key = keys, chunk
        if key not in self._parts:
            b = self.b
            there = b.cast(b.op("iota", size=keys, start=0, step=1, dtype="int64"), "float32")
            own, theirs = (b.op("floor", self.scaled(x, 1 / chunk)) for x in (self.places(), there))
            self._parts[key] = b.op("equal", b.reshape(own, (1, 1, self.tokens, 1)), b.reshape(theirs, (1, 1, 1, keys)))
        return self._parts[key]

    def attend_all(
        self,
        q: Value,
        k: Value,
        v: Value,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float = 0.0,
    ) -> Value:
        """Attention of the tokens of a whole text to each other; nothing is cached. window: keys that a token sees, half of them on each side."""
        side = None if window is None else window // 2
        order = (0, 2, 1, 3)
        y = self.b.op(
            "attention", q, k, v, scale=q.shape[3] ** -0.5 if scale is None else scale, softcap=softcap, right=side, left=side,
            q_order=order, k_order=order, v_order=order, out_order=order,
        )  # fmt: skip
        return self.b.reshape(y, (self.tokens, y.shape[2] * y.shape[3]))

    def short_conv(self, x: Value, name: str, kernel: int, bias: bool = True) -> Value:
        """Each feature of x [tokens, features] with those of the `kernel` - 1 tokens before, by the layer's `name`.weight [features, 1, kernel]; the last ones
        are a state."""
        b, features = self.b, x.shape[1]
        w = self.w.vector(f"{self.name(name)}.weight", (features, kernel), self.dtype)
        before = self.state("conv", (kernel - 1, features), self.dtype)
        whole = b.op("concat", before, x, axis=0)
        self.keep("conv", b.slice(whole, 0, self.tokens, kernel - 1))
        y = None
        for k in range(kernel):
            part = b.op("multiply", b.slice(whole, 0, k, self.tokens), b.reshape(b.slice(w, 1, k, 1), (1, features)))
            y = part if y is None else self.add(y, part)
        assert y is not None
        if bias and self.w.has(f"{self.name(name)}.bias"):
            y = self.add(y, self.w.vector(f"{self.name(name)}.bias", (features,), self.dtype))
        return y

    def cached(self, keys: Value, values: Value, window: int | None = None) -> tuple[Rows, Rows]:
        """Keys and values [1, tokens, heads, size] behind the layer's caches: [1, heads, past + tokens, size]. window: of all that attend to them."""

        def behind(rows: Rows, what: str) -> Rows:
            parts = zip(("", ".scale"), rows)
            return Rows(*(self._behind(x, f"past.{self.layer}.{what}{n}", window) for n, x in parts if x is not None))

        stored = stored_as(self.b, keys, values, self.cache_type)
        return behind(stored[0], "key"), behind(stored[1], "value")

    def _behind(self, x: Value, name: str, window: int | None) -> Value:
        past = self.past if window is None or self._near is None else self._near
        cache = self.graph.input(name, x.dtype, (1, x.shape[2], past, x.shape[3]))
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

    def logits(self, x: Value, *, softcap: float = 0.0, scale: float = 1.0, tied: str = "model.embed_tokens") -> Value:
        """x [rows, hidden] times the vocabulary, or the embedding table `tied` where the model has one for both."""
        if self._ends_in_features:
            return self.features(x)
        head = "lm_head" if self.w.has("lm_head.weight") else tied
        if head == tied and self.c.get("tie_word_embeddings") is False:
            raise ImportModelError(
                f"the checkpoint of {self.c.architecture} has no lm_head.weight, and its configuration says tie_word_embeddings = False",
                hint='all files of the checkpoint; or "tie_word_embeddings": true in config.json, if the table is shared',
            )
        y = self.linear(x, head, sizes=[self.c.vocabulary])[0]
        if head == tied and self.w.has("lm_head.bias"):  # the table is shared, the bias is not
            y = self.add(y, self.w.vector("lm_head.bias", (self.c.vocabulary,), self.dtype))
        y = self.scaled(y, scale)
        y = self.b.cast(y, "float32")
        if softcap:
            y = self.scaled(self.b.op("tanh", self.scaled(y, 1 / softcap)), softcap)
        return y

    def features(self, x: Value) -> Value:
        """Features as a result, in float32."""
        return self.b.cast(x, "float32")

    def finish(self, logits: Value, **more: Value) -> Graph:
        """The graph, whose outputs are the logits, what the caches become, and `more` by its names. ImportModelError where the checkpoint has layers that the configuration has
        not."""
        self._check_layers()
        names = [name.replace("past.", "present.", 1) for name, _ in self._caches]
        self.graph.set_outputs([logits, *(v for _, v in self._caches), *more.values()], ["logits", *names, *more])
        self.graph.state = {name: made for (name, _), made in zip(self._caches, names)}
        return self.graph

    def _check_layers(self) -> None:
        """A layer that is left out changes what the model says. Those that predict more tokens (`num_nextn_predict_layers`) stand behind the others."""
        known = self.c.layers + int(self.c.get("num_nextn_predict_layers", 0))
        start = self.prefix + "."
        numbers = {n[len(start) :].partition(".")[0] for n in self.w.tensors if n.startswith(start)}
        last = max((int(n) for n in numbers if n.isdecimal()), default=0)
        if last >= known:
            raise ImportModelError(
                f"the checkpoint of {self.c.architecture} has a layer {last}, and its configuration says num_hidden_layers = {self.c.layers}",
                hint="the configuration is another model's",
            )


def constant(layers: Layers, array: Any) -> Value:
    """A small constant of the layers' type."""
    return layers.b.const(np.asarray(array, np.float32), layers.dtype)
