"""Texts that have a beginning in common and go on in several ways: their keys and values lie in blocks (`block_pool`), and full blocks are shared.

Beams (`beams`) fork in each step, samples (`samples`) once, behind the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..errors import ArgumentError, ImportModelError
from .block_pool import BlockPool
from .joint import BLOCK, PagedModel, Piece
from .model import LanguageModel

_PIECE = 512  # tokens of a prompt that are read in one run, as `model` has it


class PagedDecoder(Protocol):
    """What gives logits of several texts, whose keys and values lie in blocks."""

    block: int  # tokens of a block
    blocks: int

    def step(self, pieces: Sequence[Piece]) -> Any:
        """Logits [rows that are wanted, vocabulary]."""

    def copy(self, source: int, target: int) -> None:
        """A block becomes what another one is."""


class Branches:
    """The blocks of up to `count` texts."""

    def __init__(self, model: PagedDecoder, count: int):
        self._model, self._count = model, count
        self._pool = BlockPool(model.blocks, model.block)

    def read(self, prompt: Sequence[int]) -> tuple[list[int], Any]:
        """The blocks of a prompt, and the logits [vocabulary] behind it."""
        blocks: list[int] = []
        logits = None
        self.room(blocks, len(prompt))
        for first in range(0, len(prompt), _PIECE):
            logits = self._model.step([Piece(prompt[first : first + _PIECE], first, blocks)])[0]
        return blocks, logits

    def room(self, blocks: list[int], tokens: int) -> None:
        """As many blocks as so many tokens take."""
        while len(blocks) < self._pool.blocks_for(tokens):
            blocks.append(self._taken())

    def copied(self, blocks: Sequence[int], tokens: int) -> list[int]:
        """Blocks that hold the same tokens: the full ones are shared, since nobody writes them again."""
        full = tokens // self._pool.size
        self._pool.hold(blocks[:full])
        own = [self._taken() for _ in blocks[full : self._pool.blocks_for(tokens)]]
        for source, target in zip(blocks[full:], own):
            self._model.copy(source, target)
        return [*blocks[:full], *own]

    def let_go(self, blocks: Sequence[int]) -> None:
        """A text goes on no more."""
        self._pool.let_go(blocks)

    def _taken(self) -> int:
        block = self._pool.take()
        if block is None:
            raise ArgumentError(
                f"{self._count} texts need more than {self._pool.count} blocks of {self._pool.size} tokens",
                hint="fewer of them, or a smaller max_tokens",
            )
        return block


def paged(lm: LanguageModel, prompt: int, most: int, count: int) -> PagedModel:
    """A model for several texts at once, with blocks for so many tokens of a prompt that they share and of each text behind it. Raises ArgumentError for a model whose
    states are not rows of keys and values."""
    # What a text has for itself begins within a block, and a fork is copied before the text that it came from is let go.
    own = -(-most // BLOCK) + 1
    blocks = max(-(-lm.context // BLOCK), -(-prompt // BLOCK) + 2 * count * own)
    if lm.paged is None or lm.paged.blocks < blocks:
        try:
            lm.paged = PagedModel(lm, lm.executor.device, blocks=blocks, cache=lm.cached)
        except ImportModelError as error:
            raise ArgumentError(f"several texts at once: {error}", hint="generate writes one text") from None
    return lm.paged
