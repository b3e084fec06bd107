"""Low-rank adapters (LoRA): what a file adds to a model's weights, W + scale * B A.

adapter = tec.lm.open_adapter("folder")                     # PEFT's, or a GGUF file
adapter.deltas["model.layers.0.self_attn.q_proj.weight"].scale
merged = adapter.fitted(checkpoint).merged(checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import ImportModelError, one_line
from .checkpoint import Checkpoint, PackedTensor
from .formats import Format


@dataclass(frozen=True)
class LowRank:
    """What is added to one weight [out, in]: scale * b @ a, with a [rank, in] and b [out, rank]."""

    a: PackedTensor
    b: PackedTensor
    scale: float

    @property
    def rank(self) -> int:
        return self.a.shape[0]

    def dense(self) -> Any:
        """The sum's second part as float32 [out, in]; rows in the order of halves, as `PackedTensor.dequantize` gives them."""
        return np.float32(self.scale) * (self.b.dequantize() @ self.a.dequantize())


@dataclass
class Adapter:
    """An adapter's parts by the names of the weights they belong to, as checkpoints call them."""

    deltas: Mapping[str, LowRank]
    path: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def fitted(self, checkpoint: Checkpoint) -> Adapter:
        """The adapter for a model: rows of q and k, where the file has them permuted ("permuted" in its settings), are marked with the model's number of heads,
        so that `LowRank.dense` puts them back. Raises ImportModelError where the adapter is of another model: weights that are not there, or have other shapes."""
        for name, delta in self.deltas.items():
            weight = checkpoint.tensors.get(name)
            if weight is None:
                raise ImportModelError(
                    f"the adapter {self.path} changes {one_line(name)}, which {checkpoint.path} does not have",
                    hint="it is of another model",
                )
            shape = (delta.b.shape[0], delta.a.shape[1])
            if weight.shape != shape:
                raise ImportModelError(
                    f"the adapter {self.path} adds {list(shape)} to {one_line(name)}, which is {list(weight.shape)}",
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
                    f"the adapter {self.path} has {delta.b.shape[0]} rows for {count} heads of {one_line(name)}"
                )
            fitted[name] = replace(delta, b=replace(delta.b, rotary_heads=count))
        return Adapter(fitted, self.path, {**self.settings, "permuted": False})

    def merged(self, weight: PackedTensor) -> PackedTensor:
        """A weight with what the adapter adds, as float32; the weight itself where it adds nothing."""
        delta = self.deltas.get(weight.name)
        if delta is None:
            return weight
        values = np.ascontiguousarray(weight.dequantize() + delta.dense(), np.float32)
        return PackedTensor(weight.name, weight.shape, Format.F32, values.reshape(-1).view(np.uint8))


def applied(checkpoint: Checkpoint, adapters: Sequence[Adapter]) -> Checkpoint:
    """The checkpoint with what adapters add to its weights, all of them added up. The weights that change become float32, when they are read.
    Raises ImportModelError where an adapter is of another model."""
    tensors = dict(checkpoint.tensors)
    for adapter in adapters:
        fitted = adapter.fitted(checkpoint)
        for name in fitted.deltas:
            tensors[name] = _merged_later(fitted, tensors[name])
    return replace(checkpoint, tensors=tensors, files=()) if adapters else checkpoint


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
        raise ImportModelError(f"the adapter's scale of {one_line(name)} is {scale}")
    return LowRank(a, b, scale)
