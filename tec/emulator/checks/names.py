"""The checks that the software GPU offers: the one list of their names. Imports nothing heavy, since options of commands and plugins read it."""

from __future__ import annotations

from collections.abc import Iterable

from tec.errors import DeviceError

# In the order that help shows them.
NAMES = ("bounds", "race", "init", "wait", "registers", "hazards", "barrier", "progress", "align", "arrays")
HELP = f"{', '.join(NAMES)}, or all"


def parse_checks(check: str | Iterable[str]) -> frozenset[str]:
    """ "bounds,race" or a set of names; "all" is every one. Bounds are always checked."""
    names = set(check.replace(" ", "").split(",")) if isinstance(check, str) else set(check)
    if "all" in names:
        names = set(NAMES)
    unknown = names - set(NAMES) - {""}
    if unknown:
        raise DeviceError(f"no emulator check called {sorted(unknown)[0]!r}", hint=f"one or more of: {HELP}")
    return frozenset(names & set(NAMES)) | {"bounds"}
