"""Which tokens fit a form: a token is drawn as always, and only where it does not fit one is drawn of those that do."""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from ...errors import ArgumentError
from .json_schema import grammar_of
from .machine import Machine, State

MOST_KEPT = 64  # masks: those of strings, numbers and names come again and again
MOST_SCHEMAS = 32  # whose machines are kept: programs ask for a few forms again and again
Begin = Callable[[Collection[int]], "Form"]  # a text of a form. It takes the tokens that end a text


class Vocabulary:
    """The texts of tokens in their order, so that all that begin with what does not fit are passed at once. bytes_of: of a token; b"" fits nowhere."""

    def __init__(self, bytes_of: Callable[[int], bytes], size: int):
        self._bytes_of, self.size = bytes_of, size
        self._sorted: list[tuple[bytes, int]] | None = None
        self._masks: dict[tuple[State, int], Any] = {}

    def text(self, token: int) -> bytes:
        return self._bytes_of(token) if 0 <= token < self.size else b""

    def fitting(self, machine: Machine, state: State, count: int) -> Any:
        """Whether each of `count` tokens fits behind a state, bool [count], for reading. Texts of one form ask for the same."""
        key = state, count
        if key not in self._masks:
            if len(self._masks) >= MOST_KEPT:
                self._masks.clear()
            self._masks[key] = self._found(machine, state, count)
        return self._masks[key]

    def _found(self, machine: Machine, state: State, count: int) -> Any:
        if self._sorted is None:
            self._sorted = sorted((self.text(t), t) for t in range(self.size))
        mask, order, at = np.zeros(count, bool), self._sorted, 0
        before: bytes = b""
        path: list[State] = [state]  # behind each byte of `before` that fits
        while at < len(order):
            text, token = order[at]
            same = _common(before, text, len(path) - 1)
            del path[same + 1 :]
            found: State | None = path[-1]
            for k in range(same, len(text)):
                found = machine.after(path[-1], text[k])
                if found is None:
                    break
                path.append(found)
            before = text
            if found is None:  # nothing that begins so fits
                at = bisect_left(order, (_behind(text[: len(path)]), -1), at + 1)
                continue
            if text and token < count:
                mask[token] = True
            at += 1
        return mask


def _common(a: bytes, b: bytes, most: int) -> int:
    return next((k for k, (x, y) in enumerate(zip(a[:most], b[:most])) if x != y), min(len(a), len(b), most))


def _behind(prefix: bytes) -> bytes:
    """What comes first behind all that begin with a prefix."""
    short = prefix.rstrip(b"\xff")
    return short[:-1] + bytes((short[-1] + 1,)) if short else b"\xff" * 256


class Form:
    """A text under way. `fit` says which token comes where another was drawn; `take` goes on."""

    def __init__(self, machine: Machine, vocabulary: Vocabulary, ends: Collection[int]):
        self._machine, self._vocabulary, self._ends = machine, vocabulary, ends
        self._state = machine.start

    @property
    def is_over(self) -> bool:
        """Whether no byte may follow."""
        return self._state.is_last

    def fits(self, token: int) -> bool:
        if token in self._ends:
            return self._state.ends
        text = self._vocabulary.text(token)
        return bool(text) and self._machine.read(self._state, text) is not None

    def chosen(self, token: int, logits: Any, pick: Callable[[Any], int]) -> int:
        """The token that was drawn, or one that fits in its place. The text goes on with it."""
        if not self.fits(token):
            token = pick(self.masked(logits))
        self.take(token)
        return token

    def masked(self, logits: Any) -> Any:
        """Logits of which those that do not fit are -inf. Raises ArgumentError where none does."""
        x = np.asarray(logits)
        mask = self._vocabulary.fitting(self._machine, self._state, len(x)).copy()
        for end in self._ends:
            if end < len(mask):
                mask[end] = self._state.ends
        if not mask.any():
            raise ArgumentError(
                "no token of the model fits the form of the answer",
                hint="a form of characters that the vocabulary can write",
            )
        return np.where(mask, x, -np.inf)

    def take(self, token: int) -> None:
        """The text goes on with a token that fits, or ends."""
        if token not in self._ends:
            found = self._machine.read(self._state, self._vocabulary.text(token))
            assert found is not None, "a token that does not fit was taken"
            self._state = found


class Forms:
    """The forms of a tokenizer's texts."""

    def __init__(self, tokenizer: Any):
        special = set(map(tokenizer.id_of, getattr(tokenizer, "special_texts", ())))
        self._vocabulary = Vocabulary(lambda t: b"" if t in special else tokenizer.token_bytes(t), tokenizer.size)
        self._machines: dict[str, Machine] = {}
        self._lock = threading.Lock()

    def of(self, schema: Mapping[str, Any] | bool, before: str = "", behind: str = "") -> Begin:
        """Texts that are JSON of a schema, between two texts. Raises ArgumentError for a schema that is not supported."""
        key = json.dumps([schema, before, behind])
        with self._lock:
            machine = self._machines.pop(key, None) or Machine(grammar_of(schema, before, behind))
            self._machines[key] = machine  # the last that was asked for
            if len(self._machines) > MOST_SCHEMAS:
                del self._machines[next(iter(self._machines))]
        return lambda ends: Form(machine, self._vocabulary, ends)
