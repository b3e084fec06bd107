"""Figures: what a template's price, bounds and tiles take from a measurement and no table of machines says, as rows of `figures.jsonl`.

    machine    the product or chip that it was measured on
    family     families of chips that it holds for as well, as in a rule
    template   whose figures they are
    figures    {name: number}, or {name: [[x, number], ...]} for what goes by a size
    seconds    what the group of the source then takes; ratio, over what it would take otherwise: where the source says it
    source     what was measured, and how

A row of the machine itself counts before rows of its family; of these the first counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from ...errors import TecError
from ...records import dataclass
from ...target import Target
from . import FIGURES, FOLDER, Row, machine_rows

Value = float | tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Measured(Row):
    """What was measured, by name."""

    figures: Mapping[str, Value]


class Figures(dict[str, float]):
    """The figures of one template on one machine: numbers by name, a dictionary's since prices ask for them tens of thousands of times a network. Asking for one
    that is missing raises TecError."""

    def __init__(self, template: str, machine: str, found: Mapping[str, Value]):
        super().__init__({name: value for name, value in found.items() if not isinstance(value, tuple)})
        self.template, self.machine = template, machine
        self._curves = {name: value for name, value in found.items() if isinstance(value, tuple)}

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._curves

    def __missing__(self, name: str) -> float:
        assert name not in self._curves, f"{name} goes by a size"
        raise self._unknown(name)

    def _unknown(self, name: str) -> TecError:
        return TecError(f"no row of rules/{FIGURES} gives {name!r} of {self.template} on {self.machine}", locate=False)

    def count(self, name: str) -> int:
        """A number that counts something."""
        return int(self[name])

    def along(self, name: str, x: float) -> float:
        """A figure that goes by a size: as measured, in proportion between, and beyond both ends as there."""
        if name not in self._curves:
            assert not super().__contains__(name), f"{name} is one number"
            raise self._unknown(name)
        value = self._curves[name]
        below = [p for p in value if p[0] <= x] or [value[0]]
        above = [p for p in value if p[0] >= x] or [value[-1]]
        (x0, y0), (x1, y1) = below[-1], above[0]
        return y0 + (x - x0) / (x1 - x0) * (y1 - y0) if x1 != x0 else y0


def _checked(value: object, place: str) -> Value:
    """A row's figure. Raises TecError where it is neither a number nor pairs by rising size."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if isinstance(value, list) and value and all(isinstance(p, list) and len(p) == 2 for p in value):
        if all(isinstance(n, (int, float)) and not isinstance(n, bool) for p in value for n in p):
            if all(a[0] < b[0] for a, b in itertools.pairwise(value)):
                return tuple((x, y) for x, y in value)
    raise TecError(f"{place}: no figure: {value!r}", hint="a number, or [[size, number], ...] by rising size", locate=False)  # fmt: skip


def read(text: str, file: str) -> Iterator[Measured]:
    """The rows of a file's text. Raises TecError, which names file and row, for a row that is none."""
    for head, row in machine_rows(text, file, {"figures": dict}):
        if not row["figures"]:
            raise TecError(f"{head.place}: it has no figure", locate=False)
        found = {name: _checked(value, head.place) for name, value in row["figures"].items()}
        yield Measured(**vars(head), figures=found)


@cache
def shipped() -> tuple[Measured, ...]:
    """All rows that come with tec."""
    return tuple(read((FOLDER / FIGURES).read_text("utf-8"), f"rules/{FIGURES}"))


@lru_cache(maxsize=512)
def of(template: str, target: Target) -> Figures:
    """The figures of a template on a target's machine."""
    own = [r for r in shipped() if r.template == template and r.serves(target)]
    own.sort(key=lambda r: not r.is_of(target))
    return Figures(template, target.machine.name, {name: value for r in reversed(own) for name, value in r.figures.items()})  # fmt: skip
