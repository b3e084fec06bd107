"""A compiled language model as an engine's: slots that share its weights and code, each with caches of its own."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from ...errors import ArgumentError, CodegenError, ImportModelError, LoweringError
from ..embedding import Embedder, makes_embeddings
from ..model import LanguageModel
from ..text.template import template_of
from .batches import BatchEngine
from .compiled_slots import CompiledSlot
from .guessing import GuessingModel
from .joint import BLOCK, PagedModel
from .served import Limits, Served
from .slots import SlotEngine

_LOG = logging.getLogger("tec.serve")


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
    blocks: int | None = None, cache: bool = True, ngrams: bool = False, draft: LanguageModel | None = None,
) -> Served:  # fmt: skip
    """A model, ready for `application`. slots: texts under way at once; block, blocks: tokens of a block of the cache, and blocks; 0 for `block`: texts go on in turn, each
    with caches of its own. cache: keep compiled code on the disk. ngrams, draft: guess greedy texts ahead (`guessing`), which go on in turn then. Raises ArgumentError where its files have no tokenizer."""
    tokenizer = _tokenizer_of(lm)
    embed = None
    if makes_embeddings(lm.checkpoint):
        embed = Embedder(lm.checkpoint, lm.target, device, "float32", None, True, True).embed
    engine: BatchEngine | SlotEngine
    if ngrams or draft is not None:
        if ngrams and draft is not None:
            raise ArgumentError("guesses come from n-grams or from a draft model", hint="one of the two")
        engine = SlotEngine(
            GuessingModel(lm, device, draft), tokenizer.token_bytes, slots=slots, queue=queue, embed=embed
        )
    else:
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
