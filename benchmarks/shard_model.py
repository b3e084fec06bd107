"""The model of benchmarks/shard.py: a Llama of 4 layers whose weights are deferred, for one device or split by heads, columns and rows; the same in PyTorch.

Matrices that read the same rows are one (queries, keys and values; gate and up), each rank's rows one behind the other, so that a split matrix is one product on
every rank. Weights come by name and are drawn on the GPU: code is compiled for sizes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tec.graph import Graph, Value
from tec.lm.architectures import find
from tec.lm.config import Config
from tec.lm.layers import Layers
from tec.lm.recipes import Recipe
from tec.lm.weights import WeightBuilder
from tec.sharding import Shard

HIDDEN, FEED, HEADS, KV_HEADS, SIZE, VOCABULARY, LAYERS = 2048, 8192, 32, 8, 64, 32000, 4
TEXTS, TOKENS, PAST = 8, 1024, 1024  # of the prefill; of the decode step
CONFIG = {
    "hidden_size": HIDDEN, "intermediate_size": FEED, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": SIZE, "vocab_size": VOCABULARY,
    "num_hidden_layers": LAYERS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 4096, "hidden_act": "silu",
}  # fmt: skip
RULES = {
    "*.qkv_proj.weight": {"t": Shard(0)}, "*.[qkv]_proj.weight": {"t": Shard(0)}, "*.gate_up_proj.weight": {"t": Shard(0)}, "*.o_proj.weight": {"t": Shard(1)},
    "*.down_proj.weight": {"t": Shard(1)}, "lm_head.weight": {"t": Shard(0)}, "past.*": {"t": Shard(1)},
}  # fmt: skip


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every weight's name and shape, [outputs, inputs]."""
    for k in range(LAYERS):
        at = f"model.layers.{k}"
        yield f"{at}.input_layernorm.weight", (HIDDEN,)
        yield f"{at}.post_attention_layernorm.weight", (HIDDEN,)
        yield f"{at}.self_attn.q_proj.weight", (HEADS * SIZE, HIDDEN)
        yield f"{at}.self_attn.k_proj.weight", (KV_HEADS * SIZE, HIDDEN)
        yield f"{at}.self_attn.v_proj.weight", (KV_HEADS * SIZE, HIDDEN)
        yield f"{at}.self_attn.o_proj.weight", (HIDDEN, HEADS * SIZE)
        yield f"{at}.mlp.gate_proj.weight", (FEED, HIDDEN)
        yield f"{at}.mlp.up_proj.weight", (FEED, HIDDEN)
        yield f"{at}.mlp.down_proj.weight", (HIDDEN, FEED)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


_FEW = 32  # rows up to which products are joined, as `tec.lm` does always: keys and values alone have too few columns for all multiprocessors
_JOINED = {"q_proj": "qkv_proj", "gate_proj": "gate_up_proj"}


class JoinedWeights(WeightBuilder):
    """Deferred constants; those of one product lie in one, by ranks."""

    ranks = 1

    def has(self, name: str) -> bool:
        return not name.endswith("bias") and "qkv" not in name and "gate_up" not in name

    def vector(self, name: str, shape: Sequence[int], dtype: str = "float32", shift: float = 0.0) -> Value:
        return self.b.graph.deferred(name, dtype, shape)

    def products(self, x: Value, names: Sequence[str], sizes: Sequence[int], beside: bool = False) -> list[Value]:
        rows, total, n = x.shape[0], sum(sizes), self.ranks
        # Many rows fill the GPU with each product; attention would have slices of one copied.
        if len(set(sizes)) > 1 and rows > _FEW:
            return [self.products(x, [name], [size])[0] for name, size in zip(names, sizes)]
        name = _JOINED[names[0].split(".")[-2]] if len(names) > 1 else names[0].split(".")[-2]
        name = ".".join([*names[0].split(".")[:-2], name, "weight"])
        weight = self.b.graph.deferred(name, x.dtype, (total, x.shape[1]))
        y = self.b.graph.add("matmul", [x, weight], {"transpose_b": True}, name, name)[0]
        if len(names) == 1:
            return [y]
        parts = self.b.split(self.b.reshape(y, (rows, n, total // n)), 2, [s // n for s in sizes])
        return [self.b.reshape(p, (rows, s)) for p, s in zip(parts, sizes)]


class Prefill(Layers):
    """Several texts of one length at once, from their first tokens on, without caches."""

    def heads(self, x: Value, count: int) -> Value:
        return self.b.reshape(x, (TEXTS, TOKENS, count, x.shape[1] // count))

    def places(self) -> Value:
        return self.b.cast(self.b.op("iota", size=TOKENS, start=0, step=1, dtype="int64"), "float32")

    def angles(self, base: float | None = None, scaling: Any = None, size: int = 0) -> tuple[Value, Value]:
        rows, self.tokens = self.tokens, TOKENS
        made = super().angles(base, scaling, size)
        self.tokens = rows
        return made

    def attend(self, q: Value, k: Value, v: Value, **more: Any) -> Value:
        order = (0, 2, 1, 3)
        y = self.b.op(
            "attention",
            q,
            k,
            v,
            scale=SIZE**-0.5,
            right=0,
            q_order=order,
            k_order=order,
            v_order=order,
            out_order=order,
        )
        return self.b.reshape(y, (TEXTS * TOKENS, y.shape[2] * y.shape[3]))

    def last(self, x: Value) -> Value:
        """The last token of each text."""
        ends = self.b.slice(self.b.reshape(x, (TEXTS, TOKENS, HIDDEN)), 1, TOKENS - 1, 1)
        return self.b.reshape(ends, (TEXTS, HIDDEN))


class Texts(Layers):
    """A token of each of several texts of one length; rows are texts."""

    def heads(self, x: Value, count: int) -> Value:
        return self.b.reshape(x, (self.tokens, 1, count, x.shape[1] // count))

    def angles(self, base: float | None = None, scaling: Any = None, size: int = 0) -> tuple[Value, Value]:
        texts, self.tokens = self.tokens, 1
        made = super().angles(base, scaling, size)
        self.tokens = texts
        return made

    def _behind(self, x: Value, name: str, window: int | None) -> Value:
        cache = self.graph.input(name, x.dtype, (self.tokens, x.shape[2], self.past, x.shape[3]))
        whole = self.b.op("concat", cache, self.b.transpose(x, (0, 2, 1, 3)), axis=2)
        self._caches.append((name, whole))
        return whole

    def last(self, x: Value) -> Value:
        return x


def graph_of(
    kind: str, ranks: int, target: Any, texts: int = 1, tensors: Mapping[str, Any] | None = None
) -> tuple[Graph, list[Recipe]]:
    """The graph of "decode" (a token of each text behind a past that is open) or "prefill", whose weights are laid out for so many ranks; of `tensors`, where they
    are given, by the recipes that are returned."""
    with target:
        form = Prefill if kind == "prefill" else Texts if texts > 1 else Layers
        layers = form(Config(CONFIG, "llama"), tensors or {}, target, "float16")
        if tensors is None:
            layers.w = JoinedWeights(layers.b, {}, target)
            layers.w.ranks = ranks
        layers.tokens = TEXTS * TOKENS if kind == "prefill" else texts
        return layers.finish(find("llama")(layers)), layers.w.recipes


def local_weights(whole: dict[str, Any], rank: int, ranks: int, cat: Any) -> dict[str, Any]:
    """The constants of a rank by their names, of whole matrices (torch tensors or NumPy arrays). cat: joins arrays along the first dimension."""

    def rows(name: str) -> Any:
        w = whole[name]
        size = w.shape[0] // ranks
        return w[rank * size : (rank + 1) * size]

    def columns(name: str) -> Any:
        w = whole[name]
        size = w.shape[1] // ranks
        return w[:, rank * size : (rank + 1) * size]

    made = {n: w for n, w in whole.items() if n.endswith("norm.weight")} | {"lm_head.weight": rows("lm_head.weight")}
    for k in range(LAYERS):
        at, mlp = f"model.layers.{k}.self_attn", f"model.layers.{k}.mlp"
        made |= {f"{at}.{n}_proj.weight": rows(f"{at}.{n}_proj.weight") for n in "qkv"}
        made[f"{at}.qkv_proj.weight"] = cat([made[f"{at}.{n}_proj.weight"] for n in "qkv"])
        made[f"{at}.o_proj.weight"] = columns(f"{at}.o_proj.weight")
        made[f"{mlp}.gate_up_proj.weight"] = cat([rows(f"{mlp}.{n}_proj.weight") for n in ("gate", "up")])
        made[f"{mlp}.down_proj.weight"] = columns(f"{mlp}.down_proj.weight")
    return made


class TorchLlama:
    """The same model in PyTorch, of a rank's weights; `reduce` adds the ranks' terms in place."""

    def __init__(self, weights: dict[str, Any], ranks: int, reduce: Any):
        import torch

        self.t, self.reduce = torch, reduce
        self.w = {n: w.half() for n, w in weights.items()}
        self.heads, self.kv_heads = HEADS // ranks, KV_HEADS // ranks
        self.feed = FEED // ranks
        device = next(iter(weights.values())).device
        places = torch.arange(4096, device=device, dtype=torch.float32)
        inverse = 10000.0 ** -(torch.arange(0, SIZE, 2, device=device, dtype=torch.float32) / SIZE)
        turns = places[:, None] * inverse
        self.cos, self.sin = (torch.cat([f(turns)] * 2, 1).half() for f in (torch.cos, torch.sin))

    def norm(self, x: Any, name: str) -> Any:
        return self.t.nn.functional.rms_norm(x, (HIDDEN,), self.w[name], 1e-5)

    def turned(self, x: Any, first: int) -> Any:
        """x [texts, heads, tokens, size] by its places."""
        cos, sin = (a[first : first + x.shape[2]] for a in (self.cos, self.sin))
        low, high = x.chunk(2, -1)
        return x * cos + self.t.cat([-high, low], -1) * sin

    def run(self, x: Any, texts: int, first: int = 0, caches: list[Any] | None = None) -> Any:
        """Logits [texts, vocabulary / ranks] behind x [texts * tokens, hidden]."""
        f, tokens = self.t.nn.functional, x.shape[0] // texts
        for k in range(LAYERS):
            at = f"model.layers.{k}"
            y = self.norm(x, f"{at}.input_layernorm.weight") @ self.w[f"{at}.self_attn.qkv_proj.weight"].T
            sizes = [n * SIZE for n in (self.heads, self.kv_heads, self.kv_heads)]
            q, key, value = (
                p.view(texts, tokens, -1, SIZE).transpose(1, 2) for p in y.view(texts, tokens, -1).split(sizes, -1)
            )
            q, key = self.turned(q, first), self.turned(key, first)
            if caches is not None:
                keys, values = caches[k]
                keys[:, :, first : first + tokens] = key
                values[:, :, first : first + tokens] = value
                key, value = keys, values
            y = f.scaled_dot_product_attention(q, key, value, is_causal=caches is None, enable_gqa=True)
            y = y.transpose(1, 2).reshape(texts * tokens, -1) @ self.w[f"{at}.self_attn.o_proj.weight"].T
            self.reduce(y)
            x = x + y
            y = self.norm(x, f"{at}.post_attention_layernorm.weight") @ self.w[f"{at}.mlp.gate_up_proj.weight"].T
            gate, up = y.split(self.feed, -1)
            y = (f.silu(gate) * up) @ self.w[f"{at}.mlp.down_proj.weight"].T
            self.reduce(y)
            x = x + y
        x = self.norm(x.view(texts, tokens, HIDDEN)[:, -1], "model.norm.weight")
        return (x @ self.w["lm_head.weight"].T).float()
