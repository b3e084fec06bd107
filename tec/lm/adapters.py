"""Low-rank adapters (LoRA): what a file adds to a model's weights, W + scale * B A.

adapter = tec.lm.open_adapter("folder")                     # PEFT's, or a GGUF file
adapter.deltas["model.layers.0.self_attn.q_proj.weight"].scale
merged = adapter.fitted(checkpoint).merged(checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass
class Adapter:
    """The parts of an adapter by the names of the weights that they belong to, as checkpoints name them. replaced: tensors that it has in place of the
    model's."""

    deltas: Mapping[str, LowRank]
    path: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    replaced: Mapping[str, PackedTensor] = field(default_factory=dict)

    def fitted(self, checkpoint: Checkpoint) -> Adapter:
        """The adapter for a model. If its rows of q and k are permuted ("permuted" in its settings), they are marked
        with the number of heads of the model, so that `LowRank.dense` restores the order. Raises ImportModelError
        if the adapter belongs to another model: weights that do not exist, or other shapes.
        """
        for name, delta in self.deltas.items():
            weight = checkpoint.tensors.get(name)
            if weight is None:
                raise ImportModelError(
                    f"the adapter {self.path} changes {one_line(name)}, which {checkpoint.path} does not have",
                    hint="adapters of experts are not read: merge it with peft's merge_and_unload"
                    if ".experts." in name
                    else "it is of another model",
                )
            shape = (delta.b.shape[0], delta.a.shape[1])
            if weight.shape != shape:
                raise ImportModelError(
                    f"the adapter {self.path} adds {list(shape)} to {one_line(name)}, which is {list(weight.shape)}",
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
            return self
        heads = {
            "q_proj": checkpoint.config.get("num_attention_heads"),
            "k_proj": checkpoint.config.get("num_key_value_heads"),
        }
        fitted = {}
        for name, delta in self.deltas.items():
            count = heads.get(name.split(".")[-2], 0)
            if not isinstance(count, int) or (count and delta.b.shape[0] % (2 * count)):
                raise ImportModelError(
                    f"the adapter {self.path} has {delta.b.shape[0]} rows for {count} heads of {one_line(name)}",
                    hint="an adapter of this model: its base_model_name_or_path names the one that it is for",
                )
            fitted[name] = replace(delta, b=replace(delta.b, rotary_heads=count))
        return Adapter(fitted, self.path, {**self.settings, "permuted": False}, self.replaced)

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
            tensors[name] = _merged_later(fitted, tensors[name])
        if _HEAD in tensors:
            config["tie_word_embeddings"] = False
        if table in fitted.replaced and table is not None:  # with rows for tokens that the adapter's text has
            config["vocab_size"] = tensors[table].shape[0]
    return replace(checkpoint, tensors=tensors, config=config, files=())


def _merged_later(adapter: Adapter, weight: PackedTensor) -> PackedTensor:
    return PackedTensor(weight.name, weight.shape, Format.F32, lambda: adapter.merged(weight).data)


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
