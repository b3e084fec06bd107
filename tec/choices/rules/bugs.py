"""What only compilers' mistakes teach: choices that are right and come out wrong, as rows of `bugs.jsonl`.

    tool, versions   whose mistake it is, where it was seen, and where not any more
    template         whose choices it meets
    when             a condition on the choice and the group (`conditions`)
    what             what goes wrong, in the words of a refusal
    reproducer       what shows it

Which version will read the code is not known when it is made (a driver has its own ptxas), so that such a choice is legal nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ...records import dataclass
from . import BUGS, FOLDER, condition, rows
from .conditions import Condition, Features

_NAMES = {"tool": str, "versions": str, "template": str, "when": str, "what": str, "reproducer": str}


@dataclass(frozen=True)
class Bug:
    """A row."""

    tool: str
    versions: str
    template: str
    when: Condition
    what: str
    reproducer: str

    def __str__(self) -> str:
        return f"{self.what} ({self.tool} {self.versions})"


def read(text: str, file: str) -> Iterator[Bug]:
    """The rows of a file's text. Raises TecError, which names file and row, for a row that is none."""
    for place, row in rows(text, file, _NAMES, {}):
        yield Bug(**{**row, "when": condition(row["when"], place)})


@cache
def shipped() -> tuple[Bug, ...]:
    """All that are known."""
    return tuple(read((FOLDER / BUGS).read_text("utf-8"), f"rules/{BUGS}"))


def why_not(template: str, features: Features) -> str | None:
    """The first mistake that a choice of a template meets, in words; None for none."""
    return next((str(b) for b in shipped() if b.template == template and b.when.holds(features)), None)
