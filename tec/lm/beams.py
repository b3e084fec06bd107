"""Beam search: of all texts that begin so, the likeliest few that were found, in place of the one whose every token is the likeliest.

In each step all beams are rows of one run (`joint`). Their keys and values lie in blocks: beams share the full blocks of what they have in common, and a beam that is
continued in two ways gets a copy of its last block. Scores, and when a search ends, are those of `transformers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np

from ..errors import ArgumentError
from .branches import Branches, paged
from .joint import Piece
from .model import LanguageModel, Prompt
from .sampling import no_numbers


@dataclass(frozen=True)
class Beam:
    """A text that was found. ids: its tokens behind the prompt, without the one that ended it. text: of these. logprob: the logarithm of its probability, the ending
    token's with it. score: `logprob` divided by the number of tokens to the power of `length_penalty`. reason: "end", or "length" where `max_tokens` or the context cut it
    off.

    >>> [(len(beam.ids), beam.reason) for beam in tec.lm.load(checkpoint).beams("Once", 2, max_tokens=3)]
    [(3, 'length'), (3, 'length')]
    """

    ids: tuple[int, ...]
    text: str
    logprob: float
    score: float
    reason: str


@dataclass
class _Path:
    """A text under way."""

    written: list[int]
    logprob: float
    blocks: list[int]


class Forks(Protocol):
    """Texts that fork: see `Branches`."""

    def read(self, prompt: Sequence[int]) -> tuple[list[int], Any]: ...

    def room(self, blocks: list[int], tokens: int) -> None: ...

    def copied(self, blocks: Sequence[int], tokens: int) -> list[int]: ...

    def let_go(self, blocks: Sequence[int]) -> None: ...


class BeamSearch:
    """`count` texts side by side. `found` are the finished ones, the best first. forks, step: of the texts, and their logits [rows, vocabulary]. rule: makes tokens impossible, in the
    logarithms of a row's probabilities, that may not stand behind tokens of a text."""

    def __init__(
        self, forks: Forks, step: Callable[[Sequence[Piece]], Any], count: int, ends: Collection[int], length_penalty: float = 1.0,
        rule: Callable[[Any, Sequence[int]], None] | None = None,
    ):  # fmt: skip
        self._branches, self._step, self._rule = forks, step, rule
        self._count, self._ends, self._penalty = count, ends, length_penalty
        self.found: list[tuple[float, float, list[int], str]] = []  # score, logprob, tokens, reason

    def run(self, prompt: Sequence[int], most: int) -> None:
        """Search for texts of at most `most` tokens behind a prompt."""
        blocks, logits = self._branches.read(prompt)
        paths = self._continued([_Path([], 0.0, blocks)], logits[None], len(prompt))
        while paths and len(paths[0].written) < most and not self._is_settled(paths):
            for p in paths:
                self._branches.room(p.blocks, len(prompt) + len(p.written))
            pieces = [Piece(p.written[-1:], len(prompt) + len(p.written) - 1, p.blocks) for p in paths]
            paths = self._continued(paths, self._step(pieces), len(prompt) + len(paths[0].written))
        for p in paths:
            self._finish(p.written, p.logprob, "length")

    def _continued(self, paths: Sequence[_Path], logits: Any, tokens: int) -> list[_Path]:
        """The likeliest continuations of all paths, whose blocks hold so many tokens; those that end are found."""
        x = np.asarray(logits, np.float64)
        if np.isnan(x).any():
            raise no_numbers()
        x = x - x.max(axis=1, keepdims=True)
        x -= np.log(np.exp(x).sum(axis=1, keepdims=True))
        for row, path in zip(x, paths):
            if self._rule is not None:
                self._rule(row, path.written)
        sums = (x + [[p.logprob] for p in paths]).reshape(-1)
        # Each end that there is may take a place: as many go on all the same.
        wanted = min(len(sums), self._count * (1 + max(1, len(self._ends))))
        some = np.argpartition(-sums, wanted - 1)[:wanted]
        order = some[np.lexsort((some, -sums[some]))]
        chosen: list[tuple[int, int, float]] = []
        for rank, place in enumerate(order.tolist()):
            parent, token = divmod(place, x.shape[1])
            if token in self._ends:
                if rank < self._count:  # an end that is no better than what goes on is none
                    self._finish([*paths[parent].written, token], float(sums[place]), "end")
            elif len(chosen) < self._count and np.isfinite(sums[place]):
                chosen.append((parent, token, float(sums[place])))
        return self._forked(paths, chosen, tokens)

    def _forked(self, paths: Sequence[_Path], chosen: Sequence[tuple[int, int, float]], tokens: int) -> list[_Path]:
        parents = [parent for parent, _, _ in chosen]
        for k, p in enumerate(paths):
            if k not in parents:
                self._branches.let_go(p.blocks)
        made, inherited = [], set[int]()
        for parent, token, logprob in chosen:
            blocks = paths[parent].blocks
            if parent in inherited:
                blocks = self._branches.copied(blocks, tokens)
            inherited.add(parent)
            made.append(_Path([*paths[parent].written, token], logprob, blocks))
        return made

    def _finish(self, written: list[int], logprob: float, reason: str) -> None:
        self.found.append((logprob / len(written) ** self._penalty, logprob, written, reason))
        self.found.sort(key=lambda f: -f[0])
        del self.found[self._count :]

    def _is_settled(self, paths: Sequence[_Path]) -> bool:
        """Whether what is under way is worse than all that was found, at its present length."""
        best = max(p.logprob for p in paths) / len(paths[0].written) ** self._penalty
        return len(self.found) == self._count and self.found[-1][0] >= best


def search(lm: LanguageModel, prompt: Prompt, count: int, max_tokens: int, length_penalty: float) -> list[Beam]:
    """See `LanguageModel.beams`."""
    for name, value, what in (("count", count, "beams"), ("max_tokens", max_tokens, "tokens")):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ArgumentError(f"{name} is {value!r}", hint=f"a number of {what}, 1 at least")
    if isinstance(length_penalty, bool) or not isinstance(length_penalty, Real) or not abs(length_penalty) < 1e3:
        raise ArgumentError(f"length_penalty is {length_penalty!r}", hint="1.0 for the mean of a text's tokens")
    ids = lm.encode(prompt)
    lm.check_room(len(ids))
    most = min(max_tokens, lm.context - len(ids) + 1)
    with lm.branching:
        model = paged(lm, len(ids), most, count)
        found = BeamSearch(Branches(model, count), model.step, count, lm.ends, float(length_penalty))
        found.run(ids, most)
    tokenizer, made = lm.checkpoint.tokenizer, []
    for score, logprob, written, reason in found.found:
        own = written[:-1] if reason == "end" else written
        text = "" if tokenizer is None else tokenizer.decode(own)
        made.append(Beam(tuple(own), text, logprob, score, reason))
    return made
