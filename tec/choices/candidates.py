"""The chain of candidates of a group: what is tried, in order, until one is made.

    recorded        what a search or the user put in the default's place
    cheaper         a rival of the default that lowers to less by the price of its loops, where a clock has judged that price (`Machine.judged`)
    default         the first space's
    draft           the second-best choices of the first space, by their cost; behind the alternatives those of the next spaces
    alternative     the defaults of the other spaces, in order
    stages          plain loops, one nest a stage: they take every group but one that only a template computes

Candidates are made when they are asked for: where the first serves, no other is priced. The chain keeps what was refused (`Chain.refused`), for the report;
a refused default is a fault of tec, and where `is_strict` it ends the compilation, so that tests see it.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from ..errors import LoweringError, TecWarning
from ..ops.typical import each_of_others
from . import footprint
from .cost import price
from .group import size_of
from .mistakes import is_strict, tell, told
from .proof import MOST_STATEMENTS, Loops, Made, Refused, prove
from .rules import figures
from .space import Choice, Space
from .store import records

DRAFTED_SPACES = 3  # spaces that give drafts
DRAFTS = 2  # of each of them
# Drafts of a space that are looked at for the best of them: more than all but the largest spaces have.
_MOST_PRICED = 4096
_CHAIN = "chain"  # whose figures are asked
STAGES = ("cpu stages", "gpu stages")
# The default, and the last resort, may be as large as they must.
BOUNDED = ("recorded", "alternative", "draft")
MUCH_SLOWER = 1.5  # times, from which on a user is told


class Candidate(NamedTuple):
    """What to try. choice: None for the space's default, which is made when it is asked for: a template may fail there too."""

    rank: str
    space: Space
    choice: Choice | None


def in_order(found: Sequence[Space]) -> Iterator[Candidate]:
    """The candidates of a group with these spaces, made one by one."""
    recorded = records.recorded(found)
    if recorded is not None:
        yield Candidate("recorded", *recorded)
    others = [s for k, s in enumerate(found) if k == 0 or s.template not in STAGES]
    for k, space in enumerate(others):
        yield Candidate("alternative" if k else "default", space, None)
        # Of the template that is thought the best the next cheapest may well be made, and is better than what another makes.
        yield from () if k else (Candidate("draft", space, draft) for draft in _drafts(space))
    for space in others[1:DRAFTED_SPACES]:
        yield from (Candidate("draft", space, draft) for draft in _drafts(space))
    for space in found[1:]:
        if space.template in STAGES:
            yield Candidate("stages", space, None)
            for draft in _drafts(space):
                yield Candidate("stages", space, draft)


def _drafts(space: Space) -> list[Choice]:
    """The cheapest drafts of a space besides its default; none where it fails at that."""
    with told(space.template, "drafts"):
        default = space.default
        some = [c for c in itertools.islice(space.drafts(), _MOST_PRICED) if c != default]
        return heapq.nsmallest(DRAFTS, some, key=lambda c: space.cost(c).seconds)
    return []


def _rivals(found: Sequence[Space], default: Choice, loops_seconds: float) -> list[tuple[Space, Choice]]:
    """What may be cheaper than the default by what its sketch says: the cheapest of each template, and of the default's more drafts of other outlines where figures say so.
    Where the default's loops cost many times its sketch, that sketch misleads: then all that is well below the loops' price."""
    known = figures.of(_CHAIN, found[0].target)
    sketch = found[0].cost(default).seconds
    is_misled = loops_seconds > known["misled"] * sketch
    cheapest: list[tuple[float, int, Space, Choice]] = []
    # Of an open size the price is a guess, and plain stages lose most where it is wrong: a softmax over a long past, say, in one work-group.
    is_open = any(size_of(t.shape) is None for op in found[0].group.ops for t in op.outputs)
    others = sorted(found[1:], key=lambda s: s.template in STAGES)
    for k, space in enumerate([found[0], *others][:DRAFTED_SPACES]):
        if (k and is_open and space.template in STAGES) or (not k and space.is_ranked):
            continue
        # Of most templates the sketch says which draft is best; where loops say it better, figures have how many are looked at.
        has_several = not k and "own_rivals" in space.figures
        # What stands behind by what was measured must be far better.
        below = known["far_below"] if k and space.is_second else known["well_below"] if k or has_several else 1.0
        bound = below * (loops_seconds if k and is_misled else sketch)
        count = space.figures.count("own_rivals") if has_several else 1
        with told(space.template, "drafts"):  # a template that fails is no rival
            some = (*([space.default] if k else []), *itertools.islice(space.drafts(), _MOST_PRICED))
            priced = ((space.cost(c).seconds, c) for c in some if k or c != default)
            best = _apart(space, [p for p in priced if p[0] < bound], count, default)
            cheapest += [(seconds, len(cheapest) + n, space, choice) for n, (seconds, choice) in enumerate(best)]
    cheapest.sort(key=lambda c: c[:2])
    return [(space, choice) for *_, space, choice in cheapest[: None if is_misled else known.count("rivals")]]


def _apart(space: Space, priced: list[tuple[float, Choice]], count: int, default: Choice) -> list[tuple[float, Choice]]:
    """The `count` cheapest choices, no two of one outline: what differs in little else lowers to much the same loops."""
    names = sorted(space.outline & space.parameters.keys())
    seen = {tuple(default.get(n) for n in names)} if names and count > 1 else set()
    kept: list[tuple[float, Choice]] = []
    for seconds, choice in sorted(priced, key=lambda p: p[0]):
        lies = tuple(choice[n] for n in names)
        if len(kept) < count and not (names and lies in seen):
            seen.add(lies)
            kept.append((seconds, choice))
    return kept


def _seconds(made: Made, of: Space) -> tuple[float, ...]:
    """The price of the loops of what is made, by the sizes that are likely and by each of the others that it serves, and by what `of` supposes of the rest; none
    where a count in them is a guess."""
    found = []
    blocks: list[AbstractContextManager[object]] = [contextlib.nullcontext(), *each_of_others()]
    for sizes in blocks:
        with sizes, of.supposed():
            asked = footprint.read(made)
            if any(k.guessed for k in asked.kernels):
                return ()
            found.append(price(asked, made.space.target).seconds)
    return tuple(found)


# ---- the chain


class Chain:
    """The candidates of a group, tried until one is made.

    loops: makes the function of a schedule. checked: whether CPU code asks its accesses. failed: what families' `match` raised, by the family's name.
    """

    def __init__(
        self, found: Sequence[Space], loops: Loops, checked: bool = False, failed: Sequence[tuple[str, Exception]] = ()
    ):
        self.refused: list[Refused] = []
        self.made: Made | None = None
        self._loops, self._checked = loops, checked
        self._rest: Iterator[Candidate] = in_order(found)
        self._tried: list[tuple[str, Choice]] = []
        self._found = found
        self._spaces = {s.template: s for s in found}
        self._rank = ""  # of what is made
        self._error: Exception | None = None  # what is raised where all are refused
        self._is_records = False
        for family, error in failed:
            self._refuse("default", family, None, "match", error)

    def first(self, accept: Callable[[Made], None] = lambda made: None) -> Made:
        """The next candidate that lowers, and that `accept` takes: what it raises is a refusal too, at stage "code". Raises the default's error
        where none is left."""
        for rank, space, given in self._rest:
            template = space.template
            try:
                choice = space.default if given is None else given
            except Exception as error:
                self._refuse(rank, template, None, "choice", error)
                continue
            if (template, choice) in self._tried:
                continue
            self._tried.append((template, choice))
            found = prove(space, choice, self._loops, self._checked, MOST_STATEMENTS if rank in BOUNDED else None)
            if not isinstance(found, Made):
                self._refuse(rank, template, choice, *found)
                continue
            cheaper = self._cheaper(found) if rank == "default" else None
            for serving, made in (("cheaper", cheaper), (rank, found)):
                if made is None:
                    continue
                try:
                    accept(made)
                except Exception as error:
                    self._refuse(serving, made.space.template, made.choice, "code", error)
                    continue
                self.made, self._rank = made, serving
                return made
        raise self._error or LoweringError(f"no template computes {self._name}", locate=False)

    def _cheaper(self, default: Made) -> Made | None:
        """A rival that is cheaper than the default by the price of its loops; None where there is none, or where no clock has judged that price."""
        if not default.space.target.machine.judged:
            return None
        known, best = figures.of(_CHAIN, default.space.target), None
        cheaper, is_borne_out = known["cheaper"], False
        try:
            bound = _seconds(default, default.space)
            for space, choice in _rivals(self._found, default.choice, bound[0]) if bound else ():
                if is_borne_out and space is default.space:
                    continue
                made = prove(space, choice, self._loops, self._checked, MOST_STATEMENTS)
                if not isinstance(made, Made):
                    tell(space.template, *made)
                elif seconds := _seconds(made, default.space):
                    if all(own < cheaper * other for own, other in zip(seconds, bound)):
                        best, bound, cheaper = made, seconds, 1.0
                    elif space is default.space and best is None:
                        # Loops that order two drafts as the sketch does say that it ranks this group's drafts.
                        sketched = space.cost(choice).seconds / space.cost(default.choice).seconds
                        is_borne_out = seconds[0] > known["borne_out"] * sketched * bound[0]
        except Exception as error:  # what cannot be priced is no reason to end a compilation
            if is_strict():
                raise
            tell(default.space.template, "cost", error)
        return best

    def again(self, error: Exception) -> Made:
        """What serves in place of what was made, which has no code: `error` says why. Raises as `first` does."""
        assert self.made is not None
        self._refuse(self._rank, self.made.space.template, self.made.choice, "code", error)
        return self.first()

    def _refuse(self, rank: str, template: str, choice: Choice | None, stage: str, error: Exception) -> None:
        """Keep a refusal. Raises the error where choices are strict and it is a default's, or a mistake."""
        if rank == "default" and is_strict():
            raise error
        tell(template, stage, error)
        refused = Refused.of(template, choice, stage, error, rank)
        self.refused.append(refused)
        if rank == "recorded":
            records.warn_of_refused(self._name, refused.reason)
        # All may be refused: then the default's error is raised, or the record's where the two are one.
        if self._error is None or (rank != "recorded" and self._is_records):
            self._error, self._is_records = error, rank == "recorded"

    @property
    def _name(self) -> str:
        return next((s.group.name for s in self._spaces.values()), "a group")

    def close(self) -> list[Refused]:
        """What was refused, each with how much slower what serves should be; the candidates that are left are let go."""
        self._rest, self._error = iter(()), None
        self.refused = [r.than(self._slower(r)) for r in self.refused]
        return self.refused

    def _slower(self, refused: Refused) -> float | None:
        """How many times longer what is made should take than what was refused; None where one of them has no price."""
        space = self._spaces.get(refused.template)
        if space is None or refused.choice is None or self.made is None:
            return None
        try:
            return self.made.space.cost(self.made.choice).seconds / space.cost(refused.choice).seconds
        except Exception as error:  # a template without a price
            tell(space.template, "cost", error)
            return None


# ---- what a user is told


def warn_of_slower(chains: Mapping[str, Sequence[Refused]]) -> None:
    """One warning where functions are served by what is much slower than their default, or by what has no price; {function: refusals}."""
    told = {}
    for name, refused in chains.items():
        factor = max(((r.slower or math.inf) for r in refused if r.rank == "default"), default=0.0)
        if factor >= MUCH_SLOWER:
            told[name] = factor
    if not told:
        return
    worst = max(told, key=lambda name: told[name])
    why = next(r for r in chains[worst] if r.rank == "default")
    reason = next(iter(why.reason.splitlines()), "")
    others = f" and {len(told) - 1} more" if len(told) > 1 else ""
    longer = f"{told[worst]:.1f} times as long" if math.isfinite(told[worst]) else "longer, by how much is not known"
    warnings.warn(
        f"{worst}{others}: the default schedule cannot be made, and another one serves, which should take {longer} "
        f"({why.template}, refused at {why.stage}: {reason}). Results are the same; `Network.report.refused` has the details. "
        "Please report it.",
        TecWarning,
        stacklevel=4,
    )
