"""Rows of embedding tables: what a model's graph takes in place of tokens.

The tables stay in the mapped file, packed as they are; the rows of a few tokens are made float32 for each step. A start that finds compiled code needs this alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, ImportModelError
from .checkpoint import PackedTensor

# Inputs of graphs, and the tensors whose rows they are, by the first name that a checkpoint has.
_TABLES = {
    "embeddings": (
        "model.embed_tokens.weight", "backbone.embeddings.weight", "embeddings.word_embeddings.weight", "transformer.wte.weight", "gpt_neox.embed_in.weight",
        "model.decoder.embed_tokens.weight", "transformer.word_embeddings.weight",
    ),
    "layer_embeddings": ("model.embed_tokens_per_layer.weight",),
}  # fmt: skip
# Rows by the tokens' places in a text.
_PLACES = {
    "position_embeddings": (
        "transformer.wpe.weight",
        "embeddings.position_embeddings.weight",
        "model.decoder.embed_positions.weight",
    )
}
# Formats that are a type of NumPy's.
_PLAIN = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class Lookup:
    """Makes a graph's inputs of tokens. `tables`: by the inputs' names. offset: the row of a text's first place. kind: NumPy's type of the rows. Raises ImportModelError where a checkpoint has no table of its tokens."""

    def __init__(self, tensors: Mapping[str, PackedTensor], offset: int = 0, kind: Any = np.float32):
        self.offset, self._kind = offset, np.dtype(kind)
        self.tables, self.places = _found(tensors, _TABLES), _found(tensors, _PLACES)
        if "embeddings" not in self.tables:
            raise ImportModelError(
                f"the checkpoint has no tensor {_TABLES['embeddings'][0]!r}",
                hint="its architecture is another one, or a part of it is missing",
            )

    @property
    def is_plain(self) -> bool:
        """Whether a token's row of one table is all that a graph takes."""
        return list(self.tables) == ["embeddings"] and not self.places

    def __call__(self, tokens: Sequence[int], first: int = 0) -> dict[str, Any]:
        """The rows of every table, [tokens, features], by the inputs' names. first: the place of the first token in the text. Raises ArgumentError where
        places are beyond those that were learned."""
        return self.at(tokens, range(first, first + len(tokens)))

    def at(self, tokens: Sequence[int], places: Sequence[int]) -> dict[str, Any]:
        """The same for tokens of several texts. places: of each in its text."""
        made = {name: rows_of(table, tokens, self._kind) for name, table in self.tables.items()}
        for name, table in self.places.items():
            last = max(places) + self.offset
            if last >= table.shape[0]:
                raise ArgumentError(
                    f"a text of {last + 1} tokens, and the model has {table.shape[0]} places",
                    hint="a shorter text, or a smaller max_tokens",
                )
            made[name] = rows_of(table, [p + self.offset for p in places], self._kind)
        return made


def _found(tensors: Mapping[str, PackedTensor], names: Mapping[str, Sequence[str]]) -> dict[str, PackedTensor]:
    first = {name: next((n for n in of if n in tensors), None) for name, of in names.items()}
    return {name: tensors[n] for name, n in first.items() if n is not None}


def rows_of(table: PackedTensor, rows: Sequence[int], kind: Any = np.float32) -> Any:
    """Some rows of a matrix, made of their own bytes. kind: the type of the result; where the table has it the bytes are the rows."""
    raw = table.data.reshape(table.shape[0], -1)[np.asarray(rows)]
    if table.values is None and _PLAIN.get(table.format.name) == np.dtype(kind).name:
        return raw.view(kind)
    part = PackedTensor(table.name, (len(rows), table.shape[1]), table.format, raw.reshape(-1))
    return part.dequantize().astype(kind, copy=False)
