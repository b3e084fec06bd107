"""What symbolic sizes are thought to be where a number is needed: for tiles, and for prices.

`typical(size)` is asked by templates; `typically(values)` says for a block of code what the names stand for, as a class of a size does (`tec.graph.size_classes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

from .dims import Dim, Size, names_of


def typical(x: Size, value: int | None = None) -> int:
    """A number to choose tiles by where a size is symbolic: every name as `value`, else as `typically` says."""
    if not isinstance(x, Dim):
        number: int = x
        return number
    if value is not None:
        values = _Typical({}, value)
    else:
        likely = _LIKELY.get()
        if likely is not None:
            likely.asked.update(names_of([x]))
        values = _Typical({} if likely is None else likely.values, TYPICAL)
    return int(x.evaluate(values))


def typical_of(name: str) -> int:
    """What a symbolic size of this name stands for where a number is needed."""
    likely = _LIKELY.get()
    return TYPICAL if likely is None else likely.values.get(name, likely.otherwise)


def supposed_sizes() -> object:
    """What stands for the sizes that are supposed here: the same object throughout one block of `typically` or `supposing`, another one in every other."""
    return _LIKELY.get()


def is_unbounded(sizes: Any) -> bool:
    """Whether there is a symbolic size in a nest of tuples and lists that may be of any number: `typically` says no last one for it."""
    likely, names = _LIKELY.get(), names_of([sizes])
    if likely is None:
        return bool(names)
    likely.asked.update(names)
    return not names <= likely.ends.keys()


def most(x: Size) -> int | None:
    """The largest number that a size stands for: itself, or of a name the last one that `typically` says; None where neither is known."""
    if not isinstance(x, Dim):
        return int(x)
    likely, names = _LIKELY.get(), x.names()
    if likely is None:
        return None
    likely.asked.update(names)
    (name, *others) = names
    return likely.ends.get(name) if not others and x == Dim(name) else None


TYPICAL = 32  # what a name stands for where nothing is said of it


class _Likely(NamedTuple):
    """What symbolic sizes are thought to be, by their names; the largest that they may be; the names that were asked for; what the same code should serve well
    besides; and what prices take for names of which nothing was said."""

    values: Mapping[str, int]
    ends: Mapping[str, int]
    asked: set[str]
    others: tuple[Mapping[str, int], ...] = ()
    otherwise: int = TYPICAL


_LIKELY: ContextVar[_Likely | None] = ContextVar("tec_likely_sizes", default=None)


@contextmanager
def typically(
    values: Mapping[str, int],
    ends: Mapping[str, int | None] = MappingProxyType({}),
    others: Iterable[Mapping[str, int]] = (),
) -> Iterator[set[str]]:
    """Inside of the block the names in `values` are thought to stand for these numbers, and those in `ends` for no larger ones (None: for any). others: further
    values that the same code should serve well (`each_of_others`). Gives the set that names are put in when they are asked for: what asks for none of a size
    does not depend on it."""
    known = {n: end for n, end in ends.items() if end is not None}
    likely = _Likely(values, known, set(), tuple(others))
    token = _LIKELY.set(likely)
    try:
        yield likely.asked
    finally:
        _LIKELY.reset(token)


def each_of_others() -> Iterator[AbstractContextManager[set[str]]]:
    """For each of the further values that `typically` was given, a block in which they are what sizes are thought to be."""
    likely = _LIKELY.get()
    if likely is not None:
        for values in likely.others:
            yield typically(values, likely.ends)


@contextmanager
def supposing(open_names: Set[str], other_names: Set[str], value: int) -> Iterator[None]:
    """A block in which `value` stands for those of the open names for which no largest number was said, and for names that are in neither set (a cache's room)."""
    likely = _LIKELY.get() or _Likely({}, {}, set())
    values = {
        **dict.fromkeys(other_names, TYPICAL),
        **likely.values,
        **dict.fromkeys(open_names - likely.ends.keys(), value),
    }
    token = _LIKELY.set(likely._replace(values=values, otherwise=value))
    try:
        yield
    finally:
        _LIKELY.reset(token)


class _Typical(dict[str, int]):
    def __init__(self, values: Mapping[str, int], otherwise: int):
        super().__init__(values)
        self.otherwise = otherwise

    def get(self, name: str, default: Any = None) -> int:
        return super().get(name, self.otherwise)
