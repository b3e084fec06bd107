"""Whether this machine's processor can run code that was made for another one. Without the question such code ends the process."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

# LLVM's names -> Linux's, where more than signs differ: of x86, then of AArch64.
_LINUX = {
    "lzcnt": "abm", "bmi": "bmi1", "sse3": "pni", "avxvnniint8": "avx_vnni_int8", "avxvnniint16": "avx_vnni_int16",
    "lse": "atomics", "crc": "crc32", "rdm": "asimdrdm", "rcpc": "lrcpc", "rcpc-immo": "ilrcpc", "fullfp16": "asimdhp", "fp16fml": "asimdfhm",
    "dotprod": "asimddp", "jsconv": "jscvt", "complxnum": "fcma", "fptoint": "frint",
}  # fmt: skip


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
                if key.strip() in ("flags", "Features"):  # of x86, of AArch64
                    return frozenset(_plain(name) for name in value.split())
    except OSError:
        pass
    return frozenset()
