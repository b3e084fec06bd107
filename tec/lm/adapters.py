"""Low-rank adapters (LoRA): what a file adds to a model's weights, W + scale * B A.

adapter = tec.lm.open_adapter("folder")                     # PEFT's, or a GGUF file
adapter.deltas["model.layers.0.self_attn.q_proj.weight"].scale
merged = adapter.fitted(checkpoint).merged(checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from ..errors import ImportModelError, one_line
from ..records import dataclass
from .checkpoint import Checkpoint, PackedTensor
from .formats import Format

# The tables of embeddings, of which one may be the vocabulary's product too.
_TABLES = (
    "model.embed_tokens.weight", "transformer.wte.weight", "transformer.word_embeddings.weight", "gpt_neox.embed_in.weight", "backbone.embeddings.weight",
)  # fmt: skip
_HEAD = "lm_head.weight"


@dataclass(frozen=True)
class LowRank:
    """What an adapter adds to one weight [out, in]: scale * b @ a, with a [rank, in] and b [out, rank]. magnitude: of DoRA (arXiv 2402.09353), the length
    [out] that each row of the sum gets."""

    a: PackedTensor
    b: PackedTensor
    scale: float
    magnitude: PackedTensor | None = None

    @property
    def rank(self) -> int:
        return self.a.shape[0]

    def shapes(self, of: Sequence[int]) -> list[tuple[int, ...]]:
        """What the weight's shape must be. of: what it is."""
        return [(self.b.shape[0], self.a.shape[1])]

    def dense(self) -> Any:
        """The term scale * b @ a as float32 [out, in], with rows in the order of halves, like
        `PackedTensor.dequantize`.
        """
        return np.float32(self.scale) * (self.b.dequantize() @ self.a.dequantize())

    def added_to(self, values: Any) -> Any:
        """A weight, float32 [out, in], with this."""
        whole = values + self.dense()
        if self.magnitude is not None:
            lengths = np.linalg.norm(whole, axis=1)
            whole *= (self.magnitude.dequantize().reshape(-1) / np.where(lengths > 0, lengths, 1))[:, None]
        return whole


@dataclass(frozen=True)
class Experts:
    """What an adapter adds to experts, by their numbers, that are one weight [experts, out, in]."""

    parts: Mapping[int, LowRank]

    def shapes(self, of: Sequence[int]) -> list[tuple[int, ...]]:
        """What the weight's shape must be, for each part. of: what it is, which has as many experts at least."""
        most = max(self.parts) + 1
        return [(max(most, of[0] if of else 0), p.b.shape[0], p.a.shape[1]) for p in self.parts.values()]

    def added_to(self, values: Any) -> Any:
        """A weight, float32 [experts, out, in], with these."""
        whole = np.array(values, np.float32)
        for k, part in self.parts.items():
            whole[k] = part.added_to(whole[k])
        return whole


@dataclass
class Adapter:
    """The parts of an adapter by the names of the weights that they belong to, as checkpoints name them. replaced: tensors that it has in place of the
    model's. scale_of: the scale of a weight's pair by its name and rank, for names that only the model tells. texts: what was saved with it in place of the checkpoint's
    `make_tokenizer`, `chat_template` and `tool_template`, and before its `generation`."""

    deltas: Mapping[str, LowRank | Experts]
    path: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    replaced: Mapping[str, PackedTensor] = field(default_factory=dict)
    scale_of: Callable[[str, int], float] | None = None
    texts: Mapping[str, Any] = field(default_factory=dict)

    def fitted(self, checkpoint: Checkpoint) -> Adapter:
        """The adapter for a model. If its rows of q and k are permuted ("permuted" in its settings), they are marked
        with the number of heads of the model, so that `LowRank.dense` restores the order. Raises ImportModelError
        if the adapter belongs to another model: weights that do not exist, or other shapes.
        """
        deltas: dict[str, LowRank | Experts] = {}
        for name, delta in self.deltas.items():
            deltas |= self._of_all_experts(name, delta, checkpoint) if isinstance(delta, LowRank) else {name: delta}
        for name, delta in deltas.items():
            weight = checkpoint.tensors.get(name)
            if weight is None:
                raise ImportModelError(
                    f"the adapter {self.path} changes {one_line(name)}, which {checkpoint.path} does not have",
                    hint="it is of another model",
                )
            wrong = next((s for s in delta.shapes(weight.shape) if s != weight.shape), None)
            if wrong is not None:
                raise ImportModelError(
                    f"the adapter {self.path} adds {list(wrong)} to {one_line(name)}, which is {list(weight.shape)}",
                    hint="it is of another model",
                )
        for name, t in self.replaced.items():
            weight = checkpoint.tensors.get(name)
            if name == _HEAD and weight is None:  # of a model whose table is shared
                weight = next((checkpoint.tensors[n] for n in _TABLES if n in checkpoint.tensors), None)
            if weight is None:
                raise ImportModelError(
                    f"the adapter {self.path} has {one_line(name)}, which {checkpoint.path} does not have",
                    hint="it is of another model",
                )
            same = t.shape[1:] == weight.shape[1:] if name in (_HEAD, *_TABLES) else t.shape == weight.shape
            if not same or not t.shape:
                raise ImportModelError(
                    f"the adapter {self.path} has {one_line(name)} of {list(t.shape)}, which is {list(weight.shape)}",
                    hint="it is of another model",
                )
        if not self.settings.get("permuted"):
            return replace(self, deltas=deltas)
        heads = {
            "q_proj": checkpoint.config.get("num_attention_heads"),
            "k_proj": checkpoint.config.get("num_key_value_heads"),
        }
        fitted: dict[str, LowRank | Experts] = {}
        for name, delta in deltas.items():
            if isinstance(delta, Experts):
                fitted[name] = delta
                continue
            count = heads.get(name.split(".")[-2], 0)
            if not isinstance(count, int) or (count and delta.b.shape[0] % (2 * count)):
                raise ImportModelError(
                    f"the adapter {self.path} has {delta.b.shape[0]} rows for {count} heads of {one_line(name)}",
                    hint="an adapter of this model: its base_model_name_or_path names the one that it is for",
                )
            fitted[name] = replace(delta, b=replace(delta.b, rotary_heads=count))
        return replace(self, deltas=fitted, settings={**self.settings, "permuted": False})

    def _of_all_experts(self, name: str, delta: LowRank, checkpoint: Checkpoint) -> dict[str, LowRank | Experts]:
        """A pair that holds those of all experts, as peft's target_parameters makes them: a [experts * rank, in], and b [out, rank * experts] with the experts
        in turn. Gates and ups are one weight there. Others are given back as they are."""
        stem = name.removesuffix(".weight").removesuffix(".base_layer")
        gates, downs = (checkpoint.tensors.get(f"{stem}.{part}_proj.weight") for part in ("gate", "down"))
        if gates is None or downs is None or len(gates.shape) != 3 or delta.magnitude is not None:
            return {name: delta}
        count, rows = gates.shape[0], delta.b.shape[0]
        if (rows, delta.a.shape[1]) == (2 * gates.shape[1], gates.shape[2]):
            halves = (slice(0, rows, 2), slice(1, rows, 2)), (slice(0, rows // 2), slice(rows // 2, rows))
            parts = dict(zip(("gate", "up"), halves[checkpoint.architecture != "gpt_oss"]))
        elif (rows, delta.a.shape[1]) == downs.shape[1:]:
            parts = {"down": slice(0, rows)}
        else:
            return {name: delta}
        rank = delta.rank // count
        if rank * count != delta.rank or not rank:
            return {name: delta}
        whole = "gate_up_proj" if "gate" in parts else "down_proj"
        scale = delta.scale * count if self.scale_of is None else self.scale_of(f"{stem}.{whole}", rank)
        a = delta.a.dequantize().reshape(count, rank, -1)
        b = delta.b.dequantize().reshape(rows, rank, count)
        return {
            f"{stem}.{part}_proj.weight": Experts(
                {k: LowRank(_floats(name, a[k]), _floats(name, b[every, :, k]), scale) for k in range(count)}
            )
            for part, every in parts.items()
        }

    def merged(self, weight: PackedTensor) -> PackedTensor:
        """A weight with what the adapter adds, as float32; the weight itself if the adapter adds nothing."""
        delta = self.deltas.get(weight.name)
        if delta is None:
            return weight
        values = np.ascontiguousarray(delta.added_to(weight.dequantize()), np.float32)
        return PackedTensor(weight.name, weight.shape, Format.F32, values.reshape(-1).view(np.uint8))


def applied(checkpoint: Checkpoint, adapters: Sequence[Adapter]) -> Checkpoint:
    """A checkpoint to whose weights all `adapters` are added. The weights that change become float32 when they are
    read. Raises ImportModelError if an adapter belongs to another model.
    """
    if not adapters:
        return checkpoint
    tensors, config = dict(checkpoint.tensors), dict(checkpoint.config)
    for adapter in adapters:
        fitted = adapter.fitted(checkpoint)
        changed = {**fitted.deltas, **fitted.replaced}
        table = next((n for n in _TABLES if n in tensors), None)
        if table in changed and _HEAD not in tensors and table is not None:  # it changes as embeddings alone
            tensors[_HEAD] = replace(tensors[table], name=_HEAD)
        tensors |= fitted.replaced
        for name in fitted.deltas:
            tensors[name] = _merged_later(fitted, replace(tensors[name], name=name))  # files may call it otherwise
        if _HEAD in tensors:
            config["tie_word_embeddings"] = False
        if table in fitted.replaced and table is not None:  # with rows for tokens that the adapter's text has
            config["vocab_size"] = tensors[table].shape[0]
        checkpoint = _with_texts(checkpoint, adapter)
    return replace(checkpoint, tensors=tensors, config=config, files=())


def _with_texts(checkpoint: Checkpoint, adapter: Adapter) -> Checkpoint:
    """A checkpoint that reads and writes texts as an adapter was trained to: it may have tokens of its own, and another template."""
    changed: dict[str, Any] = dict(adapter.texts)
    if "generation" in changed:
        own, old = changed["generation"], checkpoint.generation
        ends = [*old.get("eos_token_ids", ()), *own.get("eos_token_ids", ())]
        changed["generation"] = {**old, **own, "eos_token_ids": list(dict.fromkeys(ends))}
    return replace(checkpoint, **changed)


def _merged_later(adapter: Adapter, weight: PackedTensor) -> PackedTensor:
    return PackedTensor(weight.name, weight.shape, Format.F32, lambda: adapter.merged(weight).data)


def _floats(name: str, values: Any) -> PackedTensor:
    return PackedTensor(name, values.shape, Format.F32, np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8))  # fmt: skip


def low_rank(name: str, a: PackedTensor, b: PackedTensor, scale: float) -> LowRank:
    """One part. Raises ImportModelError for shapes that do not fit each other, or a scale that is no number."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1] or not a.shape[0]:
        raise ImportModelError(
            f"the adapter's parts of {one_line(name)} are {list(a.shape)} and {list(b.shape)}",
            hint="[rank, in] and [out, rank]",
        )
    if not np.isfinite(scale):
        raise ImportModelError(
            f"the adapter's scale of {one_line(name)} is {scale}",
            hint="lora_alpha / r is a finite number: correct adapter_config.json, or fetch the adapter again",
        )
    return LowRank(a, b, scale)
