"""Templates of one's own: a function that makes a schedule with holes, each a choice that a search fills.

    @tec.template
    def matmul(c, n, m, k):
        ...
        yo, yi = s[C].split(y, c.tile("y", n, max=64))
        c.require(yi_size * xi_size <= 256, "the sums fit the registers")
        return s, [A, B, C]

`c.tile`, `c.choose` and `c.require` are all there is. Which holes there are is found by running the function; one that stands behind an `if` is a hole
where that is taken.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from ..choices import Choice, Cost, Group, Made, Scheduled, Space, is_strict, schedule
from ..choices.mistakes import words_of
from ..choices.proof import MOST_STATEMENTS, prove
from ..choices.space import text
from ..choices.store import database as db
from ..errors import ArgumentError, ScheduleError, TecError, TecWarning
from ..schedule import Schedule, to_loops
from ..target import Target, as_target
from .tasks import Task, key_of

_USUAL_TILE = 16  # the default of a tile: two vectors of AVX2, a wavefront's side; measured times move from there
_TRIES = 500  # random fillings, where the first options are not legal
_FILLINGS = 8  # that are lowered where the default does not lower, each within the bound of a draft


class _NotLegal(Exception):
    """A requirement that does not hold."""


class Holes:
    """What a template asks: each hole by name, filled from a choice, the first option where that says nothing."""

    def __init__(self, given: dict[str, Any] | None = None):
        self._given = given or {}
        self.options: dict[str, tuple[Any, ...]] = {}
        self.filled: dict[str, Any] = {}

    def tile(self, name: str, extent: Any, max: int | None = None) -> int:
        """A factor to split a loop of `extent` by, at most `max`: its divisors and the powers of two, or these alone where the extent is symbolic."""
        size = extent if isinstance(extent, int) else getattr(extent, "value", None)
        if isinstance(extent, bool) or (isinstance(size, int) and size < 1) or (max is not None and max < 1):
            raise ArgumentError(
                f"tile {name!r}: an extent and a maximum of at least 1 are wanted, not {extent!r}, {max!r}",
                hint='c.tile("rows", n, max=64)',
            )
        most = min(n for n in (size if isinstance(size, int) else None, max, 1 << 16) if n is not None)
        found = {1 << k for k in range(most.bit_length()) if 1 << k <= most}
        if isinstance(size, int):
            found |= {d for d in range(1, most + 1) if size % d == 0}
        exact = [d for d in found if d <= _USUAL_TILE and (not isinstance(size, int) or size % d == 0)]
        usual = sorted(exact)[-1]
        return int(self.choose(name, [usual, *sorted(found - {usual})]))

    def choose(self, name: str, options: Sequence[Any]) -> Any:
        """One of some numbers, flags or words; the first is the default."""
        listed = tuple(options)
        if not isinstance(name, str) or not listed:
            raise ArgumentError(
                f"choose({name!r}): a name and at least one option are wanted", hint='choose("order", ["ij", "ji"])'
            )
        bad = next((o for o in listed if not isinstance(o, (int, float, str, bool))), None)
        if bad is not None:
            raise ArgumentError(
                f"choose({name!r}): an option is {bad!r}", hint="options are numbers, flags or words: they are kept in records"
            )  # fmt: skip
        if name in self.filled and self.options[name] != listed:
            raise ArgumentError(
                f"choose({name!r}): the name was used before, with other options", hint="another name for other options"
            )
        value = self._given.get(name, listed[0])
        if not any(value == o and type(value) is type(o) for o in listed):
            raise _NotLegal(f"{name} cannot be {value!r}")
        self.options[name] = listed
        self.filled[name] = value
        return value

    def require(self, condition: Any, why: str = "a requirement of the template does not hold") -> None:
        """Give up this filling where `condition` does not hold; nothing behind it runs."""
        if not condition:
            raise _NotLegal(why)


class Template:
    """A function made a template by `tec.template`. `tec.tune(template, args)` searches, `tec.build(template, args)` takes the best that is known."""

    def __init__(self, function: Callable[..., Any]):
        if not callable(function):
            raise ArgumentError(
                f"template: a function is wanted, not {function!r}",
                hint="@tec.template above def f(holes, n): its name and its arguments name the task",
            )
        self.function = function
        self.name = getattr(function, "__name__", "template")
        self.__doc__ = function.__doc__
        try:
            source = inspect.getsource(function)
        except (OSError, TypeError):  # typed at a prompt
            source = function.__code__.co_code.hex() + repr(function.__code__.co_consts)
        self.version = hashlib.sha256(source.encode()).hexdigest()[:12]

    def __repr__(self) -> str:
        return f"<tec.template {self.name}>"

    def __call__(self, holes: Holes, *args: Any) -> Any:
        """The function itself."""
        return self.function(holes, *args)

    def space(self, args: Sequence[Any], target: Target | str | None = None) -> TemplateSpace:
        """What can be chosen for some arguments. Raises ScheduleError where nothing is legal, ArgumentError for other numbers of arguments."""
        try:
            inspect.signature(self.function).bind(None, *args)
        except TypeError as error:
            names = ", ".join(list(inspect.signature(self.function).parameters)[1:])
            raise ArgumentError(f"template {self.name}: {error}", hint=f"its arguments: ({names})") from None
        return TemplateSpace(self, tuple(args), as_target(target))

    def task(self, args: Sequence[Any], target: Target) -> Task:
        """A task for the search."""
        space = self.space(args, target)
        return Task(
            f"{self.name}{tuple(args)}", key_of(self.signature(args), target, self.version), target, [space], space.loops
        )  # fmt: skip

    def signature(self, args: Sequence[Any]) -> str:
        """Names the computation in records: the function's name and the arguments."""
        where = f"{getattr(self.function, '__qualname__', self.name)} {tuple(args)!r}"
        return hashlib.sha256(where.encode()).hexdigest()[:24]

    def __tec_schedule__(self, args: Sequence[Any], target: Target) -> tuple[Schedule, list[Any]]:
        """For `tec.build` and `tec.lower`: a schedule and the parameters of the first that lowers: the recorded choice, the default, other
        fillings, and tec's own schedule of the template's tensors. Raises the default's error where none does."""
        space = self.space(args, target)
        known = db.tuned(True, target, self.version)
        choice = known(self.signature(args), target, target.machine) if known is not None else None
        if choice is not None:
            try:
                found = _proved(space, space.check(choice))
            except ScheduleError as error:
                found = error
            if not isinstance(found, Exception):
                return found
            warnings.warn(f"the choice recorded for {self.name} does not fit, and the default stands in: {words_of(found)}", stacklevel=4)  # fmt: skip
        found = _proved(space, space.default)
        return found if not isinstance(found, Exception) else self._instead(space, found)

    def _instead(self, space: TemplateSpace, error: Exception) -> tuple[Schedule, list[Any]]:
        """What serves where the default does not lower, with a warning that says so. Raises `error` where nothing does, and under strictness."""
        if is_strict():
            raise error
        served, found = "", None
        for choice in space.fillings(_FILLINGS):
            other = _proved(space, choice, MOST_STATEMENTS)
            if not isinstance(other, Exception):
                served, found = f"the filling {text(choice)}", other
                break
        if found is None:
            try:
                made = schedule(space.group.outputs, space.target, keep_form=True)
            except TecError:
                raise error from None
            served, found = f"tec's own schedule ({made.choice['template']})", (made.schedule, space.params)
        warnings.warn(
            f"template {self.name}: its default does not lower, and {served} serves: {words_of(error)}", TecWarning, stacklevel=5
        )  # fmt: skip
        return found


class TemplateSpace(Space):
    """The holes of a template for some arguments. There is no cost model: the search learns from trials alone."""

    template: ClassVar[str] = "template"
    is_open = True  # which holes there are is found by trying; never listed in full

    def __init__(self, template: Template, args: tuple[Any, ...], target: Target):
        self.function, self.args = template, args
        self.template = f"template {template.name}"  # type: ignore[misc]  # each template is one
        self._default = self._first_legal(target)
        schedule, self.params = self._made
        super().__init__(Group.of([t for t in self.params if hasattr(t, "op") and t.op in _outputs(schedule)]), target)
        self.parameters = dict(self._found)

    def _first_legal(self, target: Target) -> Choice:
        """A legal filling: the first options, else one by chance; options are collected on the way."""
        self._found: dict[str, tuple[Any, ...]] = {}
        rng = random.Random(0)
        why = ""
        for k in range(_TRIES):
            given = {n: rng.choice(o) for n, o in self._found.items()} if k else {}
            holes = Holes(given)
            try:
                with target:
                    self._made = self._call(holes)
                self._found.update(holes.options)
                return self.choice(**holes.filled)
            except _NotLegal as error:
                why = str(error)
                self._found.update(holes.options)
        raise ScheduleError(
            f"{self.function.name}{self.args}: no filling of its holes is legal: {why}",
            locate=False,
            hint="tiles that divide the extents, or wider choices",
        )

    def _call(self, holes: Holes) -> tuple[Schedule, list[Any]]:
        made = self.function.function(holes, *self.args)
        if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Schedule)):
            raise ArgumentError(
                f"template {self.function.name} gives {made!r}", hint="return s, [A, B, C]: a schedule, and the parameters"
            )  # fmt: skip
        return made[0], list(made[1])

    @property
    def default(self) -> Choice:
        return dict(self._default)

    def why_not(self, choice: Choice) -> str | None:
        try:
            self.make(choice)
        except _NotLegal as error:
            return str(error)
        except ScheduleError as error:
            return error.message
        return None

    def check(self, choice: Any) -> Choice:
        """As for any space; holes that the choice's own path does not ask for may be missing."""
        given = {k: v for k, v in dict(choice).items() if k != "template"}
        holes = Holes(given)
        try:
            with self.target:
                self._call(holes)
        except _NotLegal as error:
            raise ScheduleError(f"{self.template}: {text(choice)} is not legal: {error}", locate=False) from None
        return self.choice(**holes.filled)

    def cost(self, choice: Choice) -> Cost:
        raise NotImplementedError

    def drafts(self) -> Any:
        return itertools.islice(iter([self.default]), 1)

    def fillings(self, most: int) -> Iterator[Choice]:
        """At most so many legal choices besides the default, drawn with a fixed seed."""
        return itertools.islice(self.drawn(random.Random(0)), most)

    def drawn(self, rng: random.Random) -> Iterator[Choice]:
        """Legal choices besides the default, each once, of some hundred fillings by chance: whether one is legal takes a run of the function."""
        seen = [self.default]
        for _ in range(_TRIES):
            try:
                choice = self.check({name: rng.choice(options) for name, options in self._found.items()})
            except TecError:
                continue
            if choice not in seen:
                seen.append(choice)
                yield choice

    def make(self, choice: Choice) -> tuple[Schedule, list[Any]]:
        """The schedule and the parameters of a choice."""
        with self.target:
            return self._call(Holes({k: v for k, v in choice.items() if k != "template"}))

    def build(self, choice: Choice) -> Scheduled:
        schedule, params = self.make(choice)
        return Scheduled(schedule, params, choice)

    def loops(self, scheduled: Scheduled) -> Any:
        """The function of a choice: its parameters are the template's."""
        return to_loops(scheduled.schedule, scheduled.outputs, name=self.function.name)


def _proved(space: TemplateSpace, choice: Choice, most: int | None = None) -> tuple[Schedule, list[Any]] | Exception:
    """The schedule and the parameters of a choice that lowers, else why it does not. Under strictness it is not lowered: `build` will say."""
    if is_strict():
        return space.make(choice)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # building it will say them
        found = prove(space, choice, space.loops, most=most)
    return (found.scheduled.schedule, found.scheduled.outputs) if isinstance(found, Made) else found[1]


def _outputs(schedule: Schedule) -> list[Any]:
    return list(schedule.outputs)


def template(function: Callable[..., Any]) -> Template:
    """Make a function of (holes, *args) that returns (schedule, parameters) a template."""
    return Template(function)
