"""What a search chooses among: the spaces of a group as one, with drafts by cost, random choices, neighbours and children of good ones."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..choices import Choice, Space
from ..choices.store.database import key_text
from ..errors import TecError

_MOST_PRICED = 8192  # choices of a space that are listed in full; of a larger one, so many by chance
_DRAWN = 512  # by chance, of a space that is not listed in full; what is drawn is legal


@dataclass(frozen=True, slots=True)
class Candidate:
    """A legal choice, its text, and what the cost model says of it (seconds; None where there is no model)."""

    choice: Choice
    key: str
    cost: float | None


class Candidates:
    """The choices of some spaces, the default's space first. Deterministic: what comes by chance comes of `rng`."""

    def __init__(self, spaces: Sequence[Space], rng: random.Random):
        self.spaces = {s.template: s for s in spaces}
        self.rng = rng
        self.known: dict[str, Candidate] = {}
        self.default = self.add(spaces[0].default)
        self.is_listed = True  # all that is legal is known
        for space in spaces:
            options = math.prod(len(o) for o in space.parameters.values())
            if options <= _MOST_PRICED and not getattr(space, "is_open", False):
                found: Iterator[Choice] = space.all
            else:
                self.is_listed = False
                found = itertools.chain(
                    itertools.islice(space.drafts(), 64), itertools.islice(space.drawn(rng), _DRAWN)
                )
            for choice in found:
                self.add(choice)

    def __len__(self) -> int:
        return len(self.known)

    def add(self, choice: Choice) -> Candidate:
        """Make a legal choice known."""
        key = key_text(choice)
        found = self.known.get(key)
        if found is None:
            cost: float | None = None
            try:
                cost = self.spaces[choice["template"]].cost(choice).seconds
            except NotImplementedError:
                pass  # a template of a user's has no model
            found = self.known[key] = Candidate(choice, key, cost)
        return found

    @staticmethod
    def _is_legal(space: Space, choice: Choice) -> bool:
        try:
            return space.refusal(choice) is None
        except TecError:
            return False

    def grow(self, parents: Sequence[Candidate], n: int) -> None:
        """Make children of good choices known: one option changed to a neighbour or to any, or options of two parents. Nothing to do where all is known."""
        if self.is_listed or not parents:
            return
        made = 0
        for _ in range(n * 4):
            choice = self._child(parents)
            space = self.spaces[choice["template"]]
            if key_text(choice) not in self.known and self._is_legal(space, choice):
                self.add(choice)
                made += 1
                if made == n:
                    return

    def _child(self, parents: Sequence[Candidate]) -> Choice:
        rng = self.rng
        first = rng.choice(parents).choice
        space = self.spaces[first["template"]]
        child = dict(first)
        others = [p.choice for p in parents if p.choice["template"] == first["template"] and p.choice is not first]
        if others and rng.random() < 0.5:
            second = rng.choice(others)
            for name in space.parameters:
                if name in second and rng.random() < 0.5:
                    child[name] = second[name]
        for name in rng.sample(list(space.parameters), min(len(space.parameters), rng.choice((1, 1, 2)))):
            options = sorted_options(space.parameters[name])
            if child.get(name) in options and rng.random() < 0.7:
                at = options.index(child[name]) + rng.choice((-1, 1))
                child[name] = options[max(0, min(at, len(options) - 1))]
            else:
                child[name] = rng.choice(options)
        return child


def sorted_options(options: Sequence[Any]) -> list[Any]:
    """Options so that neighbours are alike: numbers by size, others as they come."""
    if all(isinstance(o, (int, float)) and not isinstance(o, bool) for o in options):
        return sorted(options)
    return list(options)
