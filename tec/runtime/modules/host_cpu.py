"""Whether this machine's processor can run code that was made for another one. Without the question such code ends the process."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

# LLVM's names -> Linux's, where more than signs differ.
_LINUX = {"lzcnt": "abm", "bmi": "bmi1"}


def lacks(features: Iterable[str]) -> list[str]:
    """Those of the features, by LLVM's names, that this processor has not; none where the system does not say what it has."""
    has = _flags()
    return [f for f in features if has and _plain(_LINUX.get(f, f)) not in has]


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(".", "")


@lru_cache(maxsize=1)
def _flags() -> frozenset[str]:
    """Of the first processor, without the signs in names; empty where there is no /proc/cpuinfo, or it names none."""
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                key, _, value = line.partition(":")
                if key.strip() == "flags":
                    return frozenset(_plain(name) for name in value.split())
    except OSError:
        pass
    return frozenset()
