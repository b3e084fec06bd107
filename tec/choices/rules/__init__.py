"""Rules: what was found best on a machine for some sizes, as rows of data with their source, where an estimate does not say so by itself.

A row of `rules/*.jsonl`:

    machine    the product ("H200") or chip ("gfx942") that it was found on
    family     families of chips that it holds for as well, by the beginning of their names ("cdna", "sm", "cpu"); without it, that machine's alone
    template   whose choice it is
    when       a condition on the group and the machine (`conditions`)
    prefer     values of the choice's parameters, or what else the template asks its rules for
    seconds    what the group of the source then takes; or ratio, over what it would take otherwise
    source     what was measured, and how

A row of another machine does not apply: there the default is what costs least. Of the rows that hold the first whose preference is legal counts. A search is
bound by none of them. What only compilers' mistakes teach is a row of `bugs.jsonl` (`bugs`), what a price or a bound takes from a measurement one of
`figures.jsonl` (`figures`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ...errors import TecError
from ...records import dataclass
from ...target import CHIPS, MACHINES, Target
from ...target.cpus import CORES
from .conditions import Condition, Features

FOLDER = Path(__file__).parent
BUGS, FIGURES = "bugs.jsonl", "figures.jsonl"
FAMILIES = frozenset({"cpu", *(c.family for c in CHIPS.values())})
_PRODUCTS = {m.name for m in MACHINES.values()}
_REQUIRED = {"machine": str, "template": str, "source": str}
_OPTIONAL = {"family": list, "seconds": (int, float), "ratio": (int, float)}


@dataclass(frozen=True)
class Row:
    """What was found on a machine, for a template; `place` is its file and line."""

    machine: str
    family: tuple[str, ...]
    template: str
    source: str
    place: str

    def is_of(self, target: Target) -> bool:
        """Whether it was found on the target's very machine or chip."""
        return self.machine in (target.machine.name, target.machine.chip, target.chip.name)

    def serves(self, target: Target) -> bool:
        """Whether it holds on a target: of its machine, its chip, or a family of chips."""
        return self.is_of(target) or any(target.chip.family.startswith(f) for f in self.family)


@dataclass(frozen=True)
class Rule(Row):
    """What is preferred where a condition holds."""

    when: Condition
    prefer: Mapping[str, Any]

    def holds(self, features: Features) -> bool:
        """Whether its condition is known to be true. Raises TecError with file and row where the template has no such feature."""
        try:
            return self.when.holds(features)
        except KeyError as error:
            known = ", ".join(sorted(features))
            raise _error(self.place, f"{self.template} has no feature {error.args[0]!r}", f"it has {known}") from None
        except (TypeError, ZeroDivisionError) as error:
            raise _error(self.place, f"{self.when.text!r} cannot be reckoned: {error}") from None


def _error(place: str, what: str, hint: str | None = None) -> TecError:
    return TecError(f"{place}: {what}", hint=hint, locate=False)


def read(text: str, file: str) -> Iterator[Rule]:
    """The rules of a file's text. Raises TecError, which names file and row, for a row that is none."""
    for head, row in machine_rows(text, file, {"when": str, "prefer": dict}):
        if not row["prefer"]:
            raise _error(head.place, "it prefers nothing")
        if "seconds" not in row and "ratio" not in row:
            raise _error(head.place, "no time", _TIMES)
        yield Rule(**vars(head), when=condition(row["when"], head.place), prefer=row["prefer"])


_TIMES = '"seconds", or "ratio" to what it would be otherwise: positive numbers'


def machine_rows(text: str, file: str, more: Mapping[str, Any]) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Each line of a file of what was found on machines, with what it says beside: `more` has that part's names and types. Raises TecError for a row that is none, of
    a machine or family that there is not, or with a time that is none."""
    for place, row in rows(text, file, {**_REQUIRED, **more}, _OPTIONAL):
        family = row.get("family", [])
        if row["machine"] not in _PRODUCTS and row["machine"] not in CHIPS and row["machine"] not in CORES:
            raise _error(place, f"no machine {row['machine']!r}", "a product or chip of tec/target")
        for name in family:
            if not isinstance(name, str) or not name or not any(f.startswith(name) for f in FAMILIES):
                raise _error(place, f"no family of chips {name!r}", "there are " + ", ".join(sorted(FAMILIES)))
        if any(isinstance(row.get(k), bool) or not 0 < row.get(k, 1) < 1e3 for k in ("seconds", "ratio")):
            raise _error(place, "no time", _TIMES)
        yield Row(row["machine"], tuple(family), row["template"], row["source"], place), row


def rows(
    text: str, file: str, required: Mapping[str, Any], optional: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each line of a file. Raises TecError where one is no JSON object of these names and types; texts are not empty."""
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{file}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _error(place, f"no JSON: {error}") from None
        if not isinstance(row, dict):
            raise _error(place, "no JSON object")
        for name, kind in {**required, **{k: v for k, v in optional.items() if k in row}}.items():
            if not isinstance(row.get(name), kind) or row[name] == "":
                raise _error(place, f"{name!r} is {row.get(name)!r}", "see tec/choices/rules/__init__.py")
        if unknown := row.keys() - required.keys() - optional.keys():
            raise _error(place, f"unknown: {', '.join(sorted(unknown))}", "known: " + ", ".join([*required, *optional]))
        yield place, row


def condition(text: str, place: str) -> Condition:
    """A row's condition. Raises TecError with its place."""
    try:
        return Condition(text)
    except ValueError as error:
        raise _error(place, str(error)) from None


@cache
def shipped() -> tuple[Rule, ...]:
    """All rules that come with tec."""
    files = [p for p in sorted(FOLDER.glob("*.jsonl")) if p.name not in (BUGS, FIGURES)]
    return tuple(r for p in files for r in read(p.read_text("utf-8"), f"rules/{p.name}"))


@lru_cache(maxsize=512)
def _of(template: str, target: Target) -> tuple[Rule, ...]:
    return tuple(r for r in shipped() if r.template == template and r.serves(target))


def machine_features(target: Target) -> dict[str, Any]:
    """What conditions may ask of the machine."""
    m = target.machine
    told: dict[str, Any] = {
        "units": m.units,
        "dies": m.dies,
        "wave": target.wavefront_size,
        "max_threads": target.max_threads,
    }
    told["cached"] = m.levels[-2].size_bytes if len(m.levels) > 1 else None  # by the last cache
    if not target.is_gpu:
        told |= {"registers": target.core.registers, "fma": target.core.fma}
    return told


def preferred(template: str, target: Target, features: Features) -> Iterator[Mapping[str, Any]]:
    """What the rules of a template prefer for a group of such features, in their order."""
    found = _of(template, target)
    if not found:
        return
    told = {**machine_features(target), **features}
    for rule in found:
        if rule.holds(told):
            yield rule.prefer
