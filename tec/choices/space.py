"""Spaces: what a template can do with one group on one machine.

A template looks at a group and says whether it fits: `match(group, target) -> Space | None`. A space has parameters, each a name with its
options, and predicates that say which combinations are legal; it says what a choice asks of the machine, and applies one to a schedule. A choice is plain data,
{"template": name, parameter: value, ...}, so that it can be kept, compared and sent elsewhere.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, TypeAlias

from ..errors import ScheduleError
from ..locks import cached_property
from ..ops.typical import supposed_sizes
from ..records import dataclass
from ..schedule import Schedule
from ..target import Target
from ..te import Tensor
from . import rules
from .cost import Cost as Cost
from .cost import Footprint, price, unfit
from .group import Group
from .rules import bugs, figures
from .rules.figures import Figures

Value: TypeAlias = int | bool | str  # of a parameter
Choice = dict[str, Any]  # parameter -> int, bool or text
_MOST_LISTED = 8  # options of a parameter that a message names
_DRAWS = 4  # of values for one or two parameters, before they stay what they are


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A choice applied: the schedule, and the tensors that stand for the group's outputs in it (other ones where the template has
    another form of the computation)."""

    schedule: Schedule
    outputs: list[Tensor]
    choice: Choice
    given: Sequence[Tensor] = ()  # what `outputs` stand for, where a caller is to name them
    # What serves sizes that the schedule's splits are not for (`Split.long`); None: plain stages.
    otherwise: Scheduled | None = None

    def __tec_schedule__(self, args: Sequence[Any], target: Target) -> tuple[Schedule, list[Any]]:
        """The schedule and its parameters, for `tec.build`: tensors of `given` are those of `outputs`."""
        stand_in = {id(t): o for t, o in zip(self.given, self.outputs)}
        return self.schedule, [stand_in.get(id(a), a) for a in args]


@dataclass(slots=True)
class _Known:
    """What a space found while sizes were supposed to be `sizes` (`ops.typical`). The block is known by identity: who asks within it has its names noted there
    by the first answer."""

    sizes: object
    costs: dict[tuple[Any, ...], Cost]
    defaults: dict[Any, Choice]
    all: _Replayed | None = None


class _Replayed:
    """Choices that an iterator gives, each found once however often they are gone through, and none before it is asked for."""

    def __init__(self, source: Iterator[Choice]):
        self._source, self._seen = source, list[Choice]()

    def __iter__(self) -> Iterator[Choice]:
        k = 0
        while True:
            if k == len(self._seen):
                found = next(self._source, None)
                if found is None:
                    return
                self._seen.append(found)
            yield dict(self._seen[k])
            k += 1


def _once_a_choice(cost: Callable[[Any, Choice], Cost]) -> Callable[[Any, Choice], Cost]:
    """A template's price, made once for each choice in a block of sizes."""

    @functools.wraps(cost)
    def known(self: Space, choice: Choice) -> Cost:
        costs, key = self._known.costs, (cost, *choice.items())
        found = costs.get(key)
        if found is None:
            found = costs[key] = cost(self, choice)
        return found

    return known


def _once(default: Callable[[Any], Choice]) -> Callable[[Any], Choice]:
    """A template's default, made once in a block of sizes."""

    @functools.wraps(default)
    def known(self: Space) -> Choice:
        defaults = self._known.defaults
        found = defaults.get(default)
        if found is None:
            found = defaults[default] = default(self)
        return dict(found)

    return known


class Space:
    """One template's choices for one group. Subclasses set `template`, fill `parameters`, and write `sketch` and `build`."""

    template: ClassVar[str]
    is_second = False  # legal, but another template's default is better
    makes_all_rows = False  # of a class of sizes its last one, however few rows there are
    # Measured figures rank its choices, so that none of them is a rival of its default.
    is_ranked = False
    # Of templates whose tiles a user may state (`outline`): values of what such a choice leaves out, for the default's are for its own tiles.
    neutral: ClassVar[Mapping[str, Value]] = {}
    outline: ClassVar[frozenset[str]] = frozenset()
    # Values of parameters, the most demanding parameter first, that are legal wherever any other value is beside the same rest: what is not legal with them is left out whole
    # where legal choices are listed.
    easiest: ClassVar[Mapping[str, Value]] = {}
    # What parameters and their values were called in records of before: {name: name of today, or "" where it is gone}, {(name of today, value): value of today}.
    former: ClassVar[Mapping[str | tuple[str, str], str]] = {}

    def __init_subclass__(cls) -> None:
        """Let what a template says of a choice, and its default, be made once (`_Known`): match, rivals and drafts ask again, thousands of times a group."""
        super().__init_subclass__()
        own = cls.__dict__
        if "cost" in own:
            cls.cost = _once_a_choice(own["cost"])  # type: ignore[method-assign]
        if isinstance(made := own.get("default"), property) and made.fget is not None:
            cls.default = property(_once(made.fget))  # type: ignore[assignment,method-assign]

    def __init__(self, group: Group, target: Target):
        self.group, self.target = group, target
        self.parameters: dict[str, tuple[Any, ...]] = {}
        self._told: _Known | None = None

    @property
    def _known(self) -> _Known:
        """What was found before in this block of sizes."""
        sizes = supposed_sizes()
        if self._told is None or self._told.sizes is not sizes:
            self._told = _Known(sizes, {}, {})
        return self._told

    # ---- what a template says

    def why_not(self, choice: Choice) -> str | None:
        """Why a combination of known options is not legal, in words; None where it is."""
        return None

    def sketch(self, choice: Choice) -> Footprint | None:
        """What a choice asks of the machine, in closed form (`cost.Footprint`): what `footprint.read` would find, roughly. None where the template has a price of its
        own (`cost`) instead."""
        return None

    @_once_a_choice
    def cost(self, choice: Choice) -> Cost:
        """The time that a legal choice should take on the target's machine."""
        found = self.sketch(choice)
        if found is None:
            raise NotImplementedError
        return price(found, self.target)

    def drafts(self) -> Iterator[Choice]:
        """Legal choices worth pricing for the default, the one that wins a tie first."""
        return self.all

    def build(self, choice: Choice) -> Scheduled:
        """Apply a legal choice."""
        raise NotImplementedError

    # ---- what follows from it

    def refusal(self, choice: Choice) -> str | None:
        """Why a combination of known options is not legal: as the template says (`why_not`), or as the machine has no room for its sketch."""
        return self.why_not(choice) or self._unfit(choice)

    def _unfit(self, choice: Choice) -> str | None:
        found = self.sketch(choice)
        return None if found is None else unfit(found, self.target)

    def supposed(self) -> AbstractContextManager[object]:
        """A block in which symbolic sizes of which nothing was said are what the template supposes. Loops are priced in the default's."""
        return nullcontext()

    @property
    @_once
    def default(self) -> Choice:
        """The cheapest of the drafts."""
        return min(self.drafts(), key=lambda c: self.cost(c).seconds)

    @property
    def seconds(self) -> float:
        """What the default should take."""
        return self.cost(self.default).seconds

    @property
    def all(self) -> Iterator[Choice]:
        """Every legal choice."""
        found = self._known.all
        if found is None:
            found = self._known.all = _Replayed(self.legal(self.parameters))
        return iter(found)

    def drawn(self, rng: random.Random) -> Iterator[Choice]:
        """Legal choices by chance, without end: a walk from the default, that never leaves what is legal. A step draws each parameter again, alone or with another one, and
        takes the first value that is legal beside the rest (Gibbs sampling). Drawing all parameters at once would find few of the legal ones: of some million combinations of
        a product's tiles a few thousand are."""
        at, names = self.default, [n for n, options in self.parameters.items() if len(options) > 1]
        while self.refusal(at) is None:
            rng.shuffle(names)
            left = iter(names)
            for name in left:
                block = (name, *itertools.islice(left, rng.randrange(2)))
                for _ in range(_DRAWS):
                    values = {n: rng.choice(self.parameters[n]) for n in block}
                    if all(at[n] == v for n, v in values.items()) or self.refusal(moved := {**at, **values}) is None:
                        at = moved if any(at[n] != v for n, v in values.items()) else at
                        break
            yield at

    def ruled(self, **features: Any) -> Iterator[Mapping[str, Any]]:
        """What the rules of this template and machine prefer for a group of such features, in their order (`rules`)."""
        return rules.preferred(self.template, self.target, features)

    def rule(self, name: str, otherwise: Any, **features: Any) -> Any:
        """What the first rule that says something of `name` prefers."""
        return next((told[name] for told in self.ruled(**features) if name in told), otherwise)

    @cached_property
    def figures(self) -> Figures:
        """What was measured for this template on the target's machine (`rules.figures`)."""
        return figures.of(self.template, self.target)

    def bug(self, choice: Choice, **features: Any) -> str | None:
        """Which compiler's mistake a choice meets (`rules.bugs`); None for none."""
        return bugs.why_not(self.template, {**choice, **features})

    def legal(self, options: Mapping[str, Sequence[Any]]) -> Iterator[Choice]:
        """The legal choices of some of the parameters' values."""
        is_sketched = self.target.is_gpu and type(self).sketch is not Space.sketch  # thousands of choices are asked for
        rest = [(n, v) for n, v in self.easiest.items() if len(options.get(n, ())) > 1]
        easy = {n: v if v in options[n] else options[n][0] for n, v in rest}
        first = {n: v for n, v in options.items() if n not in easy}

        def grown(choice: Choice, k: int) -> Iterator[Choice]:
            """The legal choices that have the same values as this one, which is legal, but for the easiest parameters from number k on."""
            if k == len(rest):
                yield choice
                return
            name, _ = rest[k]
            for value in options[name]:
                other = {**choice, name: value}
                if value == easy[name] or is_room(other):
                    yield from grown(other, k + 1)

        def is_room(choice: Choice) -> bool:
            return self.why_not(choice) is None and not (is_sketched and self._unfit(choice) is not None)

        for values in itertools.product(*first.values()):
            base = self.choice(**dict(zip(first, values)), **easy)
            if is_room(base):
                yield from grown(base, 0)

    def threads_up_to_limit(self, *options: int, each: int = 1) -> tuple[int, ...]:
        """Those of some numbers of threads (or of what has `each` of them, wavefronts) that a work-group may have: a sketch need not say it, nor a refusal."""
        return tuple(n for n in options if n * each <= self.target.max_threads)

    def choice(self, **values: Any) -> Choice:
        """Values as a choice of this template."""
        return {"template": self.template, **values}

    def current(self, choice: Mapping[str, Any]) -> Choice:
        """A choice by the names of today."""
        named = {name: v for k, v in choice.items() if (name := self.former.get(k, k))}
        return {k: self.former.get((k, v), v) if isinstance(v, str) else v for k, v in named.items()}

    def filled(self, choice: Mapping[str, Any]) -> Choice:
        """A choice that was full when it was made, by the names of today, with the neutral values of parameters that came since."""
        choice = self.current(choice)
        return {**choice, **{k: v for k, v in self.neutral.items() if k in self.parameters and k not in choice}}

    def is_legal(self, choice: Mapping[str, Any]) -> bool:
        """Whether a choice is full, of known options, and legal."""
        known = choice.keys() - {"template"} == self.parameters.keys() and all(
            choice[k] in o for k, o in self.parameters.items()
        )
        return known and self.refusal(dict(choice)) is None

    def check(self, choice: Mapping[str, Any]) -> Choice:
        """The choice in full: what it leaves out is the default's, or neutral (`neutral`). Raises ScheduleError, which lists what is legal."""
        if not isinstance(choice, Mapping):
            raise ScheduleError(
                f"a choice is a dict of names to values, not {choice!r}",
                locate=False,
                hint='{"template": name, parameter: value}',
            )
        choice = self.current(choice)
        said = self.filled(choice) if self.outline & choice.keys() else choice
        given = {k: v for k, v in said.items() if k != "template"}
        if choice.get("template", self.template) != self.template:
            raise ScheduleError(
                f"a choice of template {choice['template']!r} for a group that {self.template!r} serves",
                locate=False,
                hint="tec.tune records choices by group: use those of this one",
            )
        for name, value in given.items():
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise ScheduleError(
                    f"{self.template} has no parameter {name!r}", hint=f"its parameters: {known}", locate=False
                )
            options = self.parameters[name]
            if not any(value == o and type(value) is type(o) for o in options):
                raise ScheduleError(
                    f"{self.template}: {name} cannot be {value!r}",
                    hint=f"it is one of {_listed(options)}",
                    locate=False,
                )
        full = {**self.default, **given} if len(given) < len(self.parameters) else self.choice(**given)
        why = self.refusal(full)
        if why is not None:
            near = itertools.islice(self.all, 3)
            raise ScheduleError(
                f"{self.template}: {text(full)} is not legal: {why}",
                hint="legal are, for one, " + "; ".join(map(text, near)),
                locate=False,
            )
        return full

    def apply(self, choice: Mapping[str, Any] | None = None) -> Scheduled:
        """The schedule of a choice, the default's without one. Raises ScheduleError where it is not legal."""
        return self.build(self.default if choice is None else self.check(choice))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}: {_listed(v)}' for k, v in self.parameters.items())})"


def text(choice: Mapping[str, Any]) -> str:
    """A choice in a line: "rows 8, columns 32"."""
    return ", ".join(f"{k} {v}" for k, v in choice.items() if k != "template")


def _listed(options: tuple[Any, ...]) -> str:
    shown = ", ".join(map(repr, options[:_MOST_LISTED]))
    return shown + (f", ... ({len(options)} in all)" if len(options) > _MOST_LISTED else "")
