"""Speculative decoding: guesses at the next tokens, which one run of the model checks (Leviathan and others, arXiv 2211.17192; prompt lookup, A. Saxena 2023).

    text so far -> guess (n-grams of the text, or a smaller model) -> logits behind the last token and behind each guess, in one run -> tokens as they are
    chosen without guesses, as far as they are those that were guessed -> the caches forget the rest

`Speculative` stands between a `LanguageModel` and a `Generation`. What draws tokens gets the model's logits one after another as if there were no guesses, so
that a text does not depend on them, whatever the temperature: up to ties, since float sums of some rows may be rounded differently from those of one. Where
products round activations to bytes, a run has only as many rows as are computed as one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import ArgumentError
from .kept import key_of
from .recipes import Recipe, placed
from .starting import code_of

if TYPE_CHECKING:
    from .model import LanguageModel

# Guesses of a run at first, and the most. Rows beside the first cost little as long as weights take longer to read than to multiply.
FIRST_GUESSES, MOST_GUESSES = 4, 8
# Queries of heads that share keys which a CPU's attention takes together in the order of one query (`choices.families.attention.few`). Sums of more are rounded
# differently in the last bit, and where products round activations to bytes, a bit becomes a byte: logits of SmolLM2 in Q4_0 then differ by 0.6 in place of 0.
_ALIKE = 8
_LONGEST, _SHORTEST = 4, 2  # tokens of the n-grams that are looked up: one token alone was followed by anything


class Guesser(Protocol):
    """What guesses the tokens behind a text, `count` at the most, or none."""

    def guess(self, ids: Sequence[int], count: int) -> list[int]: ...


class Ngrams:
    """Guesses that a text goes on as it did behind the last place that ends in the same tokens: code, quotations, tables."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._behind: dict[tuple[int, ...], int] = {}  # the place behind an n-gram's last occurrence

    def guess(self, ids: Sequence[int], count: int) -> list[int]:
        """See `Guesser`."""
        if list(ids[: len(self._ids)]) != self._ids:
            self._ids, self._behind = [], {}
        # N-grams that end ahead of token `end`: something stands behind them.
        for end in range(len(self._ids), len(ids)):
            for n in range(_SHORTEST, min(_LONGEST, end) + 1):
                self._behind[tuple(ids[end - n : end])] = end
        self._ids = list(ids)
        for n in range(min(_LONGEST, len(ids)), _SHORTEST - 1, -1):
            at = self._behind.get(tuple(ids[-n:]))
            if at is not None:
                return list(ids[at : at + count])
        return []


class Draft:
    """Guesses the likeliest tokens of a smaller model of the same vocabulary."""

    def __init__(self, model: LanguageModel):
        self.model = model

    def guess(self, ids: Sequence[int], count: int) -> list[int]:
        """See `Guesser`."""
        found: list[int] = []
        count = min(count, self.model.context - len(ids))
        with self.model.turn:
            while len(found) < count:
                logits = self.model.next(found[-1]) if found else self.model.begin(ids)
                found.append(int(np.argmax(logits)))
        return found


class Verifier:
    """A model's network that gives the logits of all tokens of a run: of the same weights and caches."""

    def __init__(self, lm: LanguageModel, weights: Any, recipes: Sequence[Recipe], cache: bool):
        form = lm.form(all_logits=True)
        made = code_of(lm.checkpoint, form, key_of(lm.checkpoint, form) if cache else None)
        known = [r.to_json() for r in recipes]
        own = {n: weights[n] for r in made.recipes if r.to_json() in known for n in r.params.values()}
        others = [r for r in made.recipes if r.to_json() not in known]
        if others:  # a product of several rows may want its weights in another order: the vocabulary's
            from .filling import fill

            more = placed({n: made.missing[n] for r in others for n in r.params.values()})
            fill(others, lm.checkpoint.tensors, more, 2)
            own |= more
        self.network = network = made.network(own)
        network.share(lm.network)
        whole = lm.executor
        self.executor = network.executor(whole.device, capacity=max(1, len(lm.ids)), stream=whole.stream)

    def logits(self, lm: LanguageModel, tokens: Sequence[int]) -> Any:
        """[tokens, vocabulary]: the text goes on with these tokens."""
        if lm.executor is not self.executor:
            lm.hold(False)
            self.executor.go_on_from(lm.executor)
            lm.executor = self.executor
        found = self.executor.run(lm.inputs(tokens, len(lm.ids), self.executor))[0]
        lm.ids += tokens
        lm.length = len(lm.ids)
        return found.numpy()


class Speculative:
    """A decoder (`generation.Decoder`) that runs several guessed tokens at once. `runs`, `guessed`, `accepted`: how often the model ran behind the prompt, how many
    tokens were guessed, and how many of them the text has."""

    def __init__(self, lm: LanguageModel, guesser: Guesser):
        with lm.turn:
            lm.verifier()  # made now, or refused: not in the middle of a text
        self.lm, self.guesser = lm, guesser
        self.runs = self.guessed = self.accepted = 0
        self._ids: list[int] = []  # the text
        self._known: list[tuple[int, Any]] = []  # guesses that the caches hold behind it, with the logits behind each
        self._most = most_guesses(lm)
        self._count = min(FIRST_GUESSES, self._most)

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """See `LanguageModel.turn`."""
        return self.lm.turn

    @property
    def begun(self) -> int:
        """Texts that the model has begun."""
        return self.lm.begun

    @property
    def room(self) -> int:
        """See `Decoder.room`."""
        return self.lm.context - len(self._ids)

    def begin(self, prompt: Sequence[int]) -> Any:
        """See `Decoder.begin`."""
        self._ids, self._known = list(prompt), []
        return self.lm.begin(prompt)

    def next(self, *tokens: int) -> Any:
        """See `Decoder.next`."""
        logits = None
        for token in tokens:
            logits = self._next(token)
        return logits

    def _next(self, token: int) -> Any:
        known, self._known = self._known, []
        self._ids.append(token)
        if known and known[0][0] == token:
            self.accepted += 1
            self._known = known[1:]
            return known[0][1]
        if known:  # guessed wrong: fewer next time
            self._count = max(1, self._count // 2)
        guesses = self.guesser.guess(self._ids, min(self._count, self.room))
        found = self.lm.checked(self._ids, guesses)
        self.runs += 1
        self.guessed += len(guesses)
        if not known:  # all of the last ones were right
            self._count = min(self._most, self._count + 1)
        self._known = list(zip(guesses, found[1:]))
        return found[0]


def most_guesses(lm: LanguageModel) -> int:
    """Guesses of a run at the most."""
    rounds = any("round_blocks" in op for ops in lm.network.report.functions.values() for op in ops)
    if lm.target.is_gpu or not rounds:
        return MOST_GUESSES
    return max(1, _ALIKE // (lm.config.heads // lm.config.kv_heads) - 1)


def guesser_of(lm: LanguageModel, ngrams: bool, draft: LanguageModel | None) -> Guesser | None:
    """What guesses for a model; None for nothing. Raises ArgumentError for a draft of another vocabulary."""
    if draft is None:
        return Ngrams() if ngrams else None
    if ngrams:
        raise ArgumentError("guesses come from n-grams or from a draft model", hint="one of the two")
    if draft is lm:
        raise ArgumentError("a model is its own draft", hint="a smaller one, loaded beside it")
    if draft.config.vocabulary != lm.config.vocabulary or _spelling(draft) != _spelling(lm):
        raise ArgumentError("the draft model has other tokens", hint="a smaller model of the same family")
    return Draft(draft)


def _spelling(lm: LanguageModel) -> list[int] | None:
    tokenizer = lm.checkpoint.tokenizer
    return None if tokenizer is None else tokenizer.encode("The 12 quick_foxes (über) jump: 3.5\n", add_special=False)
