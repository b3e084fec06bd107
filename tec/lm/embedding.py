"""Embeddings of texts: an encoder, or a decoder whose last features are taken, and a rule that makes one vector of a text's tokens.

model = tec.lm.embedder("bge-small")        # a folder or a GGUF file
vector = model.embed("a text")              # float32 [hidden], of length 1
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, ImportModelError, one_line
from ..runtime.arrays.dtypes import numpy_dtype
from ..target import Target
from .asked import target_of
from .checkpoint import Checkpoint
from .config import Config
from .kept import Form, key_of
from .lookup import Lookup
from .opening import open as open_checkpoint
from .remedies import FETCH_AGAIN
from .starting import loaded

POOLINGS = ("mean", "first", "last")
ENCODERS = ("bert", "roberta", "xlm-roberta")
# By PyTorch's names: of layers behind the pooling.
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "Identity": lambda x: x, "Tanh": np.tanh, "ReLU": lambda x: np.maximum(x, 0), "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
_GGUF_POOLINGS = {1: "mean", 2: "first", 3: "last"}  # llama.cpp's enum of pooling types


def embedder(
    path: str | os.PathLike[str] | Checkpoint, *, target: str | Target | None = None, device: Any = None, dtype: str = "float32", pooling: str | None = None,
    normalize: bool = True, cache: bool = True,
) -> Embedder:  # fmt: skip
    """A model that makes vectors of texts.

    path: a GGUF file, a Hugging Face folder, or an opened checkpoint. pooling: "mean" of all tokens' features, those of the "first" or of the "last"; by default as the
    files say, else the mean for encoders and the last for decoders. normalize: whether vectors have length 1. Raises ImportModelError and ArgumentError.
    """
    return Embedder(
        path if isinstance(path, Checkpoint) else open_checkpoint(path),
        target,
        device,
        dtype,
        pooling,
        normalize,
        cache,
    )


class Embedder:
    """See `embedder`."""

    def __init__(
        self, checkpoint: Checkpoint, target: str | Target | None, device: Any, dtype: str, pooling: str | None, normalize: bool, cache: bool
    ):  # fmt: skip
        self.checkpoint, self.config = checkpoint, Config(checkpoint.config, checkpoint.architecture)
        self.pooling, self.normalize = pooling or usual_pooling(checkpoint), normalize
        if self.pooling not in POOLINGS:
            raise ArgumentError(f"pooling is {self.pooling!r}", hint=", ".join(POOLINGS))
        form = Form(target_of(target, device), dtype, features=True)
        key = key_of(checkpoint, form) if cache else None
        made, weights = loaded(checkpoint, form, key)
        self.network = made.network(weights)
        self.executor = self.network.executor(device)
        # RoBERTa counts places from behind that of padding.
        offset = self.config.size("pad_token_id", 1) + 1 if "roberta" in checkpoint.architecture else 0
        self._lookup, self._kind, self._lock = Lookup(checkpoint.tensors, offset), numpy_dtype(dtype), threading.Lock()
        self.context = self.config.context - offset
        self._dense = dense_of(checkpoint)

    def features(self, tokens: Sequence[int], more: Any = None) -> Any:
        """The last features of tokens, float32 [tokens, hidden]. more: numbers of that shape that are added to the rows of the embedding table. Raises ArgumentError for none, for more than the context has, and for tokens that are none."""
        tokens = [int(t) for t in tokens]
        if not tokens or len(tokens) > self.context:
            raise ArgumentError(
                f"a text of {len(tokens)} tokens, and the model reads 1 to {self.context}",
                hint="cut the text, or embed its parts",
            )
        wrong = next((t for t in tokens if not 0 <= t < self.config.vocabulary), None)
        if wrong is not None:
            raise ArgumentError(
                f"token {wrong} is none of the model's {self.config.vocabulary}",
                hint="tokens of this model: encode gives those of a text",
            )
        with self._lock:
            if self.network.plan.states:
                self.executor.reset()
            inputs = {n: rows.astype(self._kind, copy=False) for n, rows in self._lookup(tokens).items()}
            if more is not None:
                inputs["embeddings"] = (inputs["embeddings"] + more).astype(self._kind, copy=False)
            if "text_length" in self.network.plan.inputs:
                inputs["text_length"] = np.full((1, 1), len(tokens), np.float32)
            return np.array(self.executor.run(inputs)[0].numpy(), np.float32)

    def embed(self, text: str | Sequence[int]) -> Any:
        """The vector of a text, or of tokens: float32 [hidden], or as many as the last layer behind the pooling has."""
        if isinstance(text, str):
            if self.checkpoint.tokenizer is None:
                raise ArgumentError("the model's files have no tokenizer", hint="give tokens in place of a text")
            text = self.checkpoint.tokenizer.encode(text, special=False)
        rows = self.features(text)
        vector = rows.mean(0) if self.pooling == "mean" else rows[0 if self.pooling == "first" else -1]
        for weight, bias, activation in self._dense:
            vector = activation(weight @ vector + bias)
        return vector / max(float(np.linalg.norm(vector)), 1e-12) if self.normalize else vector


def dense_of(checkpoint: Checkpoint) -> list[tuple[Any, Any, Callable[[Any], Any]]]:
    """The layers behind the pooling, in their order: float32 [out, in], a bias, and an activation. Raises ImportModelError."""
    said, width = checkpoint.config.get("dense_activations") or (), checkpoint.config.get("hidden_size")
    found: list[tuple[Any, Any, Callable[[Any], Any]]] = []
    while (t := checkpoint.tensors.get(f"dense_{len(found) + 2}.weight")) is not None:
        name = str(said[len(found)]) if len(found) < len(said) else "Identity"
        bias = checkpoint.tensors.get(f"dense_{len(found) + 2}.bias")
        fits = len(t.shape) == 2 and t.shape[1] == width and (bias is None or bias.shape == t.shape[:1])
        if name not in _ACTIVATIONS or not fits:
            raise ImportModelError(
                f"the layer {t.name} behind the pooling is {list(t.shape)} of {width} features with {one_line(name)[:80]}",
                hint=f"matrices that fit each other, with {', '.join(_ACTIVATIONS)}",
            )
        width = t.shape[0]
        found.append((t.dequantize(), 0.0 if bias is None else bias.dequantize(), _ACTIVATIONS[name]))
    if len(found) < len(said):
        raise ImportModelError(f"the layer dense_{len(found) + 2} behind the pooling has no weight", hint=FETCH_AGAIN)
    return found


def usual_pooling(checkpoint: Checkpoint) -> str:
    """What the files say, or what is usual."""
    said = checkpoint.config.get("pooling_type")
    if isinstance(said, int):
        said = _GGUF_POOLINGS.get(said)
    if said is not None:
        return str(said)
    return (
        "mean"
        if checkpoint.architecture in ENCODERS or checkpoint.config.get("use_bidirectional_attention")
        else "last"
    )


def makes_embeddings(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is a model for embeddings: an encoder, or one whose files say how its features are pooled."""
    return checkpoint.architecture in ENCODERS or checkpoint.config.get("pooling_type") not in (None, 0)
