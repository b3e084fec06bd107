"""Slots whose greedy texts are guessed ahead: the next tokens come from what the text repeats, or from a smaller model, and one run of the model checks them.

The engine (`slots`) writes the tokens that the model's own logits choose, so that a text is the same as without guesses; see `lm.speculative`, and its docstring for ties.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..model import LanguageModel
from ..speculative import FIRST_GUESSES, Ngrams, guesser_of, most_guesses
from .compiled_slots import CompiledSlot


class DraftSlot:
    """Guesses the likeliest tokens of a smaller model, with caches of its own (`speculative.Guesser`)."""

    def __init__(self, draft: LanguageModel, device: Any):
        self._slot, self._context = CompiledSlot(draft, device), draft.context

    def guess(self, ids: Sequence[int], count: int) -> list[int]:
        """See `speculative.Guesser`."""
        found: list[int] = []
        count = min(count, self._context - len(ids))
        same = next(
            (k for k, (a, b) in enumerate(zip(self._slot.ids, ids[:-1])) if a != b),
            min(len(self._slot.ids), len(ids) - 1),
        )
        left = list(ids[self._slot.cut(same) :])
        while len(found) < count:
            found.append(int(np.argmax(self._slot.read(left))))
            left = found[-1:]
        return found


class GuessingSlot(CompiledSlot):
    """See `slots.GuessingSlot`."""

    def __init__(self, lm: LanguageModel, device: Any, draft: LanguageModel | None):
        super().__init__(lm, device)
        self._reader = self._executor
        self._checker = lm.verifier().network.executor(device, capacity=1)
        self._guesser = Ngrams() if draft is None else DraftSlot(draft, device)
        self._most = most_guesses(lm)
        self._count = min(FIRST_GUESSES, self._most)

    def _hold(self, wanted: Any) -> None:
        if self._executor is not wanted:
            wanted.go_on_from(self._executor)
            self._executor = wanted

    def read(self, tokens: Sequence[int]) -> Any:
        """See `Slot.read`."""
        self._hold(self._reader)
        return super().read(tokens)

    def guess(self, ids: Sequence[int], room: int) -> list[int]:
        """See `slots.GuessingSlot`."""
        return self._guesser.guess(ids, min(self._count, room)) if room > 0 else []

    def check(self, tokens: Sequence[int]) -> Any:
        """See `slots.GuessingSlot`."""
        self._hold(self._checker)
        found = self._checker.run(self._lm.inputs(tokens, len(self.ids), self._checker))[0].numpy()
        self.ids += tokens
        return found

    def learn(self, right: bool) -> None:
        """See `slots.GuessingSlot`."""
        self._count = min(self._most, self._count + 1) if right else max(1, self._count // 2)


class GuessingModel:
    """See `slots.Model`. draft: a smaller model of the same vocabulary; None for n-grams of the text. Raises ArgumentError for a model that cannot take tokens back, and for a
    draft of another vocabulary."""

    def __init__(self, lm: LanguageModel, device: Any = None, draft: LanguageModel | None = None):
        guesser_of(lm, draft is None, draft)  # whether the two fit
        lm.verifier()
        self._lm, self._device, self._draft = lm, device, draft
        self.context, self.ends = lm.context, lm.ends

    context: int
    ends: Collection[int]

    def slot(self) -> GuessingSlot:
        """See `Model.slot`."""
        return GuessingSlot(self._lm, self._device, self._draft)
