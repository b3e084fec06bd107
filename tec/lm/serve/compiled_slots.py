"""A slot of a compiled language model: the model's weights and code, and caches of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model import LanguageModel

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
        logits = self._executor.run(self._lm.inputs(tokens, len(self.ids), self._executor))[0]
        self.ids += tokens
        return logits.numpy()[-1]

    def cut(self, rows: int) -> int:
        """See `Slot.cut`: all is forgotten of a model with states that have no rows, and where a window has let go what the next token sees."""
        if rows >= len(self.ids):
            return len(self.ids)
        if rows >= max(1, self._executor.least) and self._lm.has_rows_alone:
            self._executor.truncate(rows)
        else:
            self._executor.reset()
            rows = 0
        del self.ids[rows:]
        return rows
