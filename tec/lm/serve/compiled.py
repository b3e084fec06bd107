"""A compiled language model as an engine's: slots that share its weights and code, each with caches of its own."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

from ...errors import ArgumentError, CodegenError, ImportModelError, LoweringError
from ..embedding import Embedder, makes_embeddings
from ..model import LanguageModel
from ..text.template import template_of
from .batches import BatchEngine
from .joint import BLOCK, PagedModel
from .served import Limits, Served
from .slots import SlotEngine

_LOG = logging.getLogger("tec.serve")
_ROWS = 256  # that a slot's caches have room for at first; they grow


class CompiledSlot:
    """See `Slot`."""

    def __init__(self, lm: LanguageModel, device: Any):
        self._lm = lm
        self._executor = lm.network.executor(device, capacity=min(lm.context, _ROWS))
        self.ids: list[int] = []
        self._length = 0  # of the text when it was read last

    def read(self, tokens: Sequence[int]) -> Any:
        """See `Slot.read`."""
        if self.ids and self._lm.is_stale(self._length, len(self.ids) + len(tokens)):
            tokens = [*self.ids, *tokens]
            self.cut(0)
        self._length = len(self.ids) + len(tokens)
        logits = self._executor.run(self._lm.inputs(tokens, len(self.ids)))[0]
        self.ids += tokens
        return logits.numpy()[-1]

    def cut(self, rows: int) -> int:
        """See `Slot.cut`: of a model with states that have no rows, all is forgotten."""
        if rows >= len(self.ids):
            return len(self.ids)
        if rows and all(s.axis is not None for s in self._lm.network.plan.states):
            self._executor.truncate(rows)
        else:
            self._executor.reset()
            rows = 0
        del self.ids[rows:]
        return rows


class CompiledModel:
    """See `Model`. device: as of executors."""

    def __init__(self, lm: LanguageModel, device: Any = None):
        self._lm, self._device = lm, device
        self.context = lm.context
        self.ends: Collection[int] = lm.ends

    def slot(self) -> CompiledSlot:
        """See `Model.slot`."""
        return CompiledSlot(self._lm, self._device)


def served_of(
    lm: LanguageModel, name: str, *, device: Any = None, slots: int = 4, queue: int = 64, limits: Limits | None = None, block: int = BLOCK,
    blocks: int | None = None, cache: bool = True,
) -> Served:  # fmt: skip
    """A model, ready for `application`. slots: texts under way at once; block, blocks: tokens of a block of the cache, and blocks; 0 for `block`: texts go on in turn, each
    with caches of its own. cache: keep compiled code on the disk. Raises ArgumentError where its files have no tokenizer."""
    tokenizer = _tokenizer_of(lm)
    embed = None
    if makes_embeddings(lm.checkpoint):
        embed = Embedder(lm.checkpoint, lm.target, device, "float32", None, True, True).embed
    engine = engine_of(lm, device, slots=slots, queue=queue, embed=embed, block=block, blocks=blocks, cache=cache)
    return Served(name, engine, tokenizer, template_of(lm.checkpoint), lm.checkpoint.generation, limits or Limits())


def _tokenizer_of(lm: LanguageModel) -> Any:
    if lm.checkpoint.tokenizer is None:
        raise ArgumentError("the model's files have no tokenizer", hint="a server reads and writes texts")
    return lm.checkpoint.tokenizer


def engine_of(
    lm: LanguageModel, device: Any = None, *, slots: int = 4, queue: int = 64, embed: Any = None, block: int = BLOCK, blocks: int | None = None,
    cache: bool = True,
) -> BatchEngine | SlotEngine:  # fmt: skip
    """What serves a model's texts: together where its states are rows of keys and values, else in turn, which the log says."""
    bytes_of = _tokenizer_of(lm).token_bytes
    if block:
        try:
            model = PagedModel(lm, device, block=block, blocks=blocks, slots=slots, cache=cache)
            return BatchEngine(model, bytes_of, slots=slots, queue=queue, embed=embed)
        except (ImportModelError, LoweringError, CodegenError) as error:
            _LOG.warning("texts go on in turn, not together: %s", error)
    return SlotEngine(CompiledModel(lm, device), bytes_of, slots=slots, queue=queue, embed=embed)


class _NoModel:
    """Of a server that makes embeddings alone."""

    ends: Collection[int] = ()

    def __init__(self, context: int):
        self.context = context

    def slot(self) -> CompiledSlot:
        """See `Model.slot`."""
        raise ArgumentError("this model writes no texts", hint="it makes embeddings: POST /v1/embeddings")


def served_embedder(model: Embedder, name: str, *, queue: int = 64, limits: Limits | None = None) -> Served:
    """A model for embeddings alone, ready for `application`. Raises ArgumentError where its files have no tokenizer."""
    tokenizer = model.checkpoint.tokenizer
    if tokenizer is None:
        raise ArgumentError("the model's files have no tokenizer", hint="a server reads texts")
    engine = SlotEngine(_NoModel(model.context), tokenizer.token_bytes, slots=1, queue=queue, embed=model.embed)
    return Served(name, engine, tokenizer, None, model.checkpoint.generation, limits or Limits())
