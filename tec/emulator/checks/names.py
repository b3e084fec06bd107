"""The checks that the software GPU offers: the one list of their names. Imports nothing heavy, since options of commands and plugins read it."""

from __future__ import annotations

from collections.abc import Iterable

from tec.errors import ArgumentError, DeviceError

# In the order that help shows them.
NAMES = ("bounds", "race", "init", "wait", "registers", "hazards", "barrier", "progress", "align", "arrays")
# What "all" leaves out: the kernel driver sets SH_MEM_CONFIG.alignment_mode to unaligned (update_qpd_v9 of amdkfd and its successors),
# which serves global memory, scratch and LDS from anywhere, and LLVM joins accesses by it. Only atomics must be aligned, and are always asked.
NOT_IN_ALL = frozenset(("align",))
HELP = f"{', '.join(NAMES)}, or all"


def parse_checks(check: str | Iterable[str]) -> frozenset[str]:
    """ "bounds,race" or a set of names; "all" is every one but "align". Bounds are always checked."""
    if not isinstance(check, (str, Iterable)):
        raise ArgumentError(f"the checks of a GPU in software are {check!r}", hint=f"one or more of: {HELP}")
    names = set(check.replace(" ", "").split(",")) if isinstance(check, str) else set(check)
    if "all" in names:
        names = (names - {"all"}) | (set(NAMES) - NOT_IN_ALL)
    unknown = names - set(NAMES) - {""}
    if unknown:
        raise DeviceError(f"no emulator check called {min(unknown, key=str)!r}", hint=f"one or more of: {HELP}")
    return frozenset(names & set(NAMES)) | {"bounds"}
