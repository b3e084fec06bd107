"""Choices that come with tec: what searches found better than the defaults on a few machines, a file of JSON lines for each (`shipped/MACHINE.jsonl`).

A record of a user's database holds for one version of the templates and one number of cores. These hold for the commit they are part of, and a test says
when a template, a schedule or a graph pass has moved away under one of them (`tests/unit/tuning/test_shipped.py`; `python -m tools.shipped_records` searches,
times and writes them). So each says what it stands in place of, and is taken only where the default is still that.

Whether to use threads is left to the default: it depends on how many cores there are, where a tile depends on what one core has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from ...records import dataclass
from ...target import Machine, Target
from ..space import Choice, Scheduled, Space

FOLDER = Path(__file__).parent / "shipped"
THREADS = ("parallel",)  # parameters that say whether threads are used
# A tile that is right for a core leaves so many pieces of work for all of them: of cores that are many more than were measured, some might go idle.
_MOST_CORES = 4


@dataclass(frozen=True, slots=True)
class Shipped:
    """A choice in place of a default (both without `THREADS`) for the group of a signature, on a machine of `units` cores or units.

    networks: where the group was met, under `name`. how: "measured", or "model-ranked" by the software GPU's time model; gain: the default's time over the choice's,
    the smaller of one thread's and of all. against: the default that was timed, where tec's has become another one since, which by the model of what changed gains less than the choice
    does; else None. traces: digests of the schedules of default and choice, for the test that they are still those that were timed."""

    signature: str
    name: str
    networks: tuple[str, ...]
    units: int
    default: Choice
    choice: Choice
    traces: tuple[str, str]
    gain: float
    how: str
    against: Choice | None = None

    def on(self, spaces: Sequence[Space]) -> Choice | None:
        """The choice in full for a group's spaces; None where the default is another than it was, or the choice is not legal here."""
        default = spaces[0].default
        if without_threads(default) != spaces[0].filled(self.default):
            return None
        space = next((s for s in spaces if s.template == self.choice["template"]), None)
        if space is None:
            return None
        threads = {k: v for k, v in default.items() if k in THREADS and k in space.parameters}
        choice = space.filled({**self.choice, **threads})
        return choice if space.is_legal(choice) else None


def without_threads(choice: Mapping[str, Any]) -> Choice:
    return {k: v for k, v in choice.items() if k not in THREADS}


def digest(scheduled: Scheduled) -> str:
    """Names what a choice made: the steps of its schedule."""
    return hashlib.sha256(str(scheduled.schedule.trace).encode()).hexdigest()[:16]


# ---- files


@cache
def of_machine(name: str) -> tuple[Shipped, ...]:
    """The records of a machine, by its name; none where tec ships none."""
    path = FOLDER / f"{name}.jsonl"
    if not path.exists():
        return ()
    rows = map(json.loads, path.read_text().splitlines())
    return tuple(Shipped(**{**r, "networks": tuple(r["networks"]), "traces": tuple(r["traces"])}) for r in rows)


def write(name: str, found: Iterable[Shipped], folder: Path = FOLDER) -> None:
    """Replace the records of a machine."""
    folder.mkdir(exist_ok=True)
    rows = map(asdict, sorted(found, key=lambda r: (r.networks, r.name)))
    lines = (json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in rows)
    (folder / f"{name}.jsonl").write_text("".join(lines))
    of_machine.cache_clear()


class ShippedChoices:
    """The records of a target's machine, as a lookup for `records.using`."""

    def __init__(self, target: Target):
        machine = target.machine
        self.known = {r.signature: r for r in of_machine(machine.name) if machine.units <= _MOST_CORES * r.units}

    @property
    def stamp(self) -> str:
        """Names the records: other ones make other code."""
        return hashlib.sha256(repr(sorted(self.known.items())).encode()).hexdigest()

    def __call__(self, signature: str, target: Target, machine: Machine) -> Shipped | None:
        return self.known.get(signature)
