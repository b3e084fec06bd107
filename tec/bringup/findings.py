"""What the checks of an AMD GPU found, as data: one `Finding` a check, a `Report` of all, to and from JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ArgumentError

VERSION = 1  # of the JSON
AGREES, DIFFERS, FAILED, NOTE = "agrees", "differs", "failed", "note"


@dataclass(slots=True)
class Finding:
    """One check. `state`: the chip "agrees" with what was expected, "differs" from it, the check "failed" (it could not be done), or a "note" that judges nothing.

    `expected` and `measured` are numbers in `unit` where the check compares numbers. `corrects` names the datum of the machine table that the check is of ("L2 latency_ns")."""

    section: str
    name: str
    state: str
    text: str = ""
    expected: float | None = None
    measured: float | None = None
    unit: str = ""
    corrects: str = ""

    @property
    def ratio(self) -> float | None:
        """Measured over expected."""
        return self.measured / self.expected if self.measured is not None and self.expected else None


@dataclass(slots=True)
class Report:
    """All findings about one GPU."""

    chip: str
    product: str  # of the machine table, "" where the device is none that it has
    device: str  # the driver's name for it
    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # by section

    @property
    def good(self) -> bool:
        return not any(f.state in (DIFFERS, FAILED) for f in self.findings)

    def of(self, section: str) -> Iterator[Finding]:
        return (f for f in self.findings if f.section == section)

    def counts(self, section: str = "") -> Counter[str]:
        """How many findings are in each state, of one section or of all."""
        return Counter(f.state for f in self.findings if section in ("", f.section))

    @property
    def sections(self) -> list[str]:
        return list(dict.fromkeys(f.section for f in self.findings))

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)


def wanted(only: str, name: str) -> bool:
    """Whether a name contains one of the words of `only`, with bars between; "" is in all."""
    return any(word in name for word in only.split("|"))


def read_report(path: str | Path) -> Report:
    """A report that `tec doctor --amd --out` wrote. Raises ArgumentError for a file that is none, or of another version."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ArgumentError(f"{path} is no JSON: {error}", hint="a report of tec doctor --amd --out FILE") from None
    if not isinstance(data, dict) or data.pop("version", None) != VERSION:
        raise ArgumentError(
            f"{path} is no report of this version of tec ({VERSION})", hint="write it anew with tec doctor --amd"
        )
    try:
        found = [Finding(**f) for f in data.pop("findings")]
        return Report(findings=found, **data)
    except (TypeError, KeyError, AttributeError) as error:
        raise ArgumentError(f"{path} is no report of tec doctor --amd: {error}") from None
