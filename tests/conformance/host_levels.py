"""The levels of host processors that code is compiled for (`-mcpu=`), and which of them this machine can run.

What is right on one host was wrong on another before: LLVM chooses other instructions for each. A level is run where this processor has
the features that LLVM takes it to have (those that code generation uses, by LLVM's names).
"""

from __future__ import annotations

import os
import platform
from functools import lru_cache

_V2 = frozenset("cx16 popcnt sse3 ssse3 sse4.1 sse4.2".split())
_V3 = _V2 | set("avx avx2 bmi bmi2 f16c fma lzcnt movbe".split())
_V4 = _V3 | set("avx512f avx512bw avx512cd avx512dq avx512vl".split())
_ICELAKE = _V4 | set(
    "avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq gfni vaes vpclmulqdq".split()
)
# As LLVM's X86.td has them.
LEVELS: dict[str, frozenset[str]] = {
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "icelake-server": _ICELAKE,
    "znver4": _ICELAKE | {"avx512bf16"},
    "znver5": _ICELAKE | {"avx512bf16", "avxvnni", "avx512vp2intersect"},
    "sapphirerapids": _ICELAKE | set("avx512bf16 avx512fp16 avxvnni amx-tile amx-int8 amx-bf16".split()),
}


@lru_cache(maxsize=1)
def host_has() -> frozenset[str]:
    """The features of this processor."""
    from llvmlite import binding

    return frozenset(name for name, there in binding.get_host_cpu_features().items() if there)


def missing(level: str) -> list[str]:
    """What this machine lacks to run a level; empty where it can."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ["x86-64"]
    return sorted(LEVELS[level] - host_has())


def runnable() -> list[str]:
    return [level for level in LEVELS if not missing(level)]


def all_of_them() -> bool:
    """Whether the whole table is asked for, at each level."""
    return bool(os.environ.get("TEC_ALL_LEVELS"))


def summary() -> list[str]:
    """A line on what was run here, and one on each level that could not be."""
    part = "whole table" if all_of_them() else "a sample"
    lines = [f"host levels, {part} each: {', '.join(runnable()) or 'none'}"]
    return lines + [
        f"  {level} not run: this processor has no {', '.join(missing(level))}" for level in LEVELS if missing(level)
    ]
