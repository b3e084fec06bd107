"""Choices from outside: what a search found, or what a user asks for, in place of the defaults.

A lookup is `lookup(signature, target, machine) -> Choice | None`. Signatures are `Group.signature`: the same computation (shapes, dtypes,
layouts) has the same one in every process. A choice that no longer fits its group is left aside with a warning: records outlive the code that they
were made with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ...errors import ScheduleError, TecError, TecWarning, one_line
from ...target import Machine, Target
from ..space import Choice, Space

Lookup = Callable[[str, Target, Machine], "Choice | None"]

_LOOKUP: ContextVar[Lookup | None] = ContextVar("tec_choices", default=None)


def as_lookup(choices: Lookup | Mapping[str, Choice] | None) -> Lookup | None:
    """A lookup from a callable or from {signature: choice}."""
    if choices is None or callable(choices):
        return choices
    if not isinstance(choices, Mapping):
        raise ScheduleError(
            f"choices are a dict of signatures to choices, or a function of (signature, target, machine), not {choices!r}",
            locate=False,
        )
    table = dict(choices)
    return lambda signature, target, machine: table.get(signature)


def first_of(*sources: Lookup | Mapping[str, Choice] | None) -> Lookup | None:
    """A lookup that asks each in turn."""
    lookups = [found for found in map(as_lookup, sources) if found is not None]
    if len(lookups) < 2:
        return lookups[0] if lookups else None

    def ask(signature: str, target: Target, machine: Machine) -> Choice | None:
        return next((c for c in (f(signature, target, machine) for f in lookups) if c is not None), None)

    return ask


@contextmanager
def using(choices: Lookup | Mapping[str, Choice] | None) -> Iterator[None]:
    """Groups scheduled inside of the block take their choices from here first; None keeps what is in force."""
    lookup = as_lookup(choices)
    token = _LOOKUP.set(lookup if lookup is not None else _LOOKUP.get())
    try:
        yield
    finally:
        _LOOKUP.reset(token)


def lookup(signature: str, target: Target, machine: Machine) -> Choice | None:
    """The choice recorded for a group; None without one."""
    found = _LOOKUP.get()
    return found(signature, target, machine) if found is not None else None


def recorded(spaces: Sequence[Space]) -> tuple[Space, Choice] | None:
    """The choice recorded for a group in full, with its space. None without one that fits: then a warning says why. Whether it lowers is not asked."""
    if _LOOKUP.get() is None or not spaces:
        return None
    group, target = spaces[0].group, spaces[0].target
    choice: Any = lookup(group.signature, target, target.machine)
    if choice is None:
        return None
    named = choice.get("template", spaces[0].template) if isinstance(choice, Mapping) else spaces[0].template
    space = next((s for s in spaces if s.template == named), None)
    if space is None and named == "library product":  # a record of a search with libraries, where none are asked for
        return None
    try:
        if space is None:
            raise ScheduleError(
                f"no template {named!r} for it; there are {', '.join(s.template for s in spaces)}", locate=False
            )
        return space, space.check(choice)
    except Exception as error:
        warn_of_refused(group.name, error.message if isinstance(error, TecError) else repr(error))
        return None


def warn_of_refused(name: str, reason: str) -> None:
    """Say that the choice recorded for a group is left aside."""
    warnings.warn(
        f"the choice recorded for {one_line(name)} does not fit, and the default stands in: {one_line(reason)}",
        TecWarning,
        stacklevel=3,
    )
