"""Texts that go on side by side, each with an executor of its own: what `branches` is for models whose texts' keys lie in no blocks.

A text that forks is copied. In place of blocks, a text has the number of its executor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .joint import Piece


class Voices:
    """make: an executor. read: logits [vocabulary] behind tokens that go on at a place, by an executor."""

    def __init__(self, make: Callable[[], Any], read: Callable[[Any, Sequence[int], int], Any]):
        self._make, self._read_by = make, read
        self._all: list[Any] = []
        self._free: list[int] = []

    def read(self, prompt: Sequence[int]) -> tuple[list[int], Any]:
        """See `Branches.read`."""
        own = self._taken()
        self._all[own].reset()
        return [own], self._read_by(self._all[own], prompt, 0)

    def room(self, blocks: list[int], tokens: int) -> None:
        """See `Branches.room`: executors have it."""

    def copied(self, blocks: Sequence[int], tokens: int) -> list[int]:
        """See `Branches.copied`."""
        own = self._taken()
        self._all[own].begin_with(self._all[blocks[0]].state)
        return [own]

    def let_go(self, blocks: Sequence[int]) -> None:
        """See `Branches.let_go`."""
        self._free += blocks

    def let_all_go(self) -> None:
        """No text goes on."""
        self._free = list(range(len(self._all)))

    def step(self, pieces: Sequence[Piece]) -> Any:
        """See `PagedDecoder.step`."""
        return np.stack([self._read_by(self._all[p.blocks[0]], p.tokens, p.first) for p in pieces])

    def _taken(self) -> int:
        if not self._free:
            self._all.append(self._make())
            return len(self._all) - 1
        return self._free.pop()
