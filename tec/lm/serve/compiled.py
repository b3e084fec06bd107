"""A compiled language model as an engine's: slots that share its weights and code, each with caches of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from ...errors import ArgumentError, CodegenError, ImportModelError, LoweringError
from ..embedding import Embedder, makes_embeddings
from ..joint import BLOCK, PagedModel
from ..model import LanguageModel
from ..speculative import Guesser, Ngrams, guesser_of
from ..text.template import template_of
from .batches import BatchEngine
from .compiled_slots import CompiledSlot
from .guessing import DraftSlot, GuessingModel
from .jobs import PIECE
from .served import Limits, Served
from .slots import SlotEngine

_LOG = logging.getLogger("tec.serve")


class CompiledModel:
    """See `Model`. device: as of executors."""

    def __init__(self, lm: LanguageModel, device: Any = None):
        self._lm, self._device = lm, device
        self.context = lm.context
        self.ends: Collection[int] = lm.ends
        self.network = lm.network  # compiled before somebody asks

    def slot(self) -> CompiledSlot:
        """See `Model.slot`."""
        return CompiledSlot(self._lm, self._device)


def served_of(
    lm: LanguageModel, name: str, *, device: Any = None, slots: int = 4, queue: int = 64, limits: Limits | None = None, block: int = BLOCK,
    blocks: int | None = None, cache: bool = True, ngrams: bool = False, draft: LanguageModel | None = None,
) -> Served:  # fmt: skip
    """A model, ready for `application`. slots: texts under way at once; block, blocks: tokens of a block of the cache, and blocks; 0 for `block`: texts go on in turn, each
    with caches of its own. cache: keep compiled code on the disk. ngrams, draft: guess greedy texts ahead. Raises ArgumentError where its files have no tokenizer."""
    tokenizer = _tokenizer_of(lm)
    embed = None
    if makes_embeddings(lm.checkpoint):
        embed = Embedder(lm.checkpoint, lm.target, device, "float32", None, True, True).embed
    guesser_of(lm, ngrams, draft)  # whether they fit
    engine = engine_of(
        lm, device, slots=slots, queue=queue, embed=embed, block=block, blocks=blocks, cache=cache, ngrams=ngrams, draft=draft
    )  # fmt: skip
    return Served(name, engine, tokenizer, template_of(lm.checkpoint), lm.checkpoint.generation, limits or Limits())


def _tokenizer_of(lm: LanguageModel) -> Any:
    if lm.checkpoint.tokenizer is None:
        raise ArgumentError("the model's files have no tokenizer", hint="a server reads and writes texts")
    return lm.checkpoint.tokenizer


def engine_of(
    lm: LanguageModel, device: Any = None, *, slots: int = 4, queue: int = 64, embed: Any = None, block: int = BLOCK, blocks: int | None = None,
    cache: bool = True, ngrams: bool = False, draft: LanguageModel | None = None,
) -> BatchEngine | SlotEngine:  # fmt: skip
    """What serves a model's texts: together where its states are rows of keys and values, else in turn, which the log says. ngrams, draft: greedy texts are guessed ahead."""
    bytes_of = _tokenizer_of(lm).token_bytes
    guesses: Callable[[], Guesser] | None = Ngrams if ngrams else None
    if draft is not None:
        guesses = partial(DraftSlot, draft, device)
    if block:
        try:
            model = PagedModel(lm, device, block=block, blocks=blocks, slots=slots, cache=cache, piece=PIECE)
            return BatchEngine(model, bytes_of, slots=slots, queue=queue, embed=embed, guesses=guesses)
        except (ImportModelError, LoweringError, CodegenError) as error:
            _LOG.warning("texts go on in turn, not together: %s", error)
    slow = CompiledModel(lm, device) if guesses is None else GuessingModel(lm, device, draft)
    return SlotEngine(slow, bytes_of, slots=slots, queue=queue, embed=embed)


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
