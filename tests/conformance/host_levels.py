"""The levels of host processors that code is compiled for (`-mcpu=`), and which of them this machine can run.

What is right on one host was wrong on another before: LLVM chooses other instructions for each. A level is run where this processor has
the features that its code may use.
"""

from __future__ import annotations

import os
import platform

from tec.codegen.cpu.features import required_features
from tec.runtime.modules.host_cpu import lacks
from tec.target import Target

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "icelake-server", "znver4", "znver5", "sapphirerapids")


def missing(level: str) -> list[str]:
    """What this machine lacks to run a level; empty where it can."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ["x86-64"]
    return lacks(required_features(Target(f"llvm -mcpu={level}")))


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
