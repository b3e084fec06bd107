"""The checks that the software GPU offers: the one list of their names. Imports nothing heavy, since options of commands and plugins read it."""

from __future__ import annotations

from collections.abc import Iterable

from tec.errors import ArgumentError, DeviceError

# In the order that help shows them.
NAMES = ("bounds", "race", "init", "wait", "registers", "hazards", "barrier", "progress", "align", "arrays")
# What "all" asks of alignment: global memory is loaded and stored from anywhere, as LLVM has it for amdhsa of rows that no vector divides. "align" asks it there too.
ALIGN_BUT_GLOBAL = "align but global"
ALIGNMENT = frozenset(("align", ALIGN_BUT_GLOBAL))
HELP = f"{', '.join(NAMES)}, or all"


def parse_checks(check: str | Iterable[str]) -> frozenset[str]:
    """ "bounds,race" or a set of names; "all" is every one, "align" but for global memory. Bounds are always checked."""
    if not isinstance(check, (str, Iterable)):
        raise ArgumentError(f"the checks of a GPU in software are {check!r}", hint=f"one or more of: {HELP}")
    names = set(check.replace(" ", "").split(",")) if isinstance(check, str) else set(check)
    own = names & {ALIGN_BUT_GLOBAL}
    if "all" in names:
        own = {ALIGN_BUT_GLOBAL}
        names = (names - {"all"}) | (set(NAMES) - {"align"})
    unknown = names - set(NAMES) - own - {""}
    if unknown:
        raise DeviceError(f"no emulator check called {min(unknown, key=str)!r}", hint=f"one or more of: {HELP}")
    return frozenset(names & set(NAMES)) | {"bounds"} | own
