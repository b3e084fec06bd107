"""What a call costs, counted: the same on a quick and a slow machine, and on one that does other work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(frozen=True)
class Cost:
    """What Python did for a call."""

    instructions: int  # of bytecode, in all frames
    calls: int  # of functions of Python and of C that Python code calls by name


def cost(call: Callable[[], object]) -> Cost:
    """The least cost of three calls: the first ones may fill caches, or see a collection of garbage."""
    return min((_once(call) for _ in range(3)), key=lambda c: c.instructions)


def _once(call: Callable[[], object]) -> Cost:
    instructions = calls = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal instructions
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            instructions += 1
        return trace

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
    return Cost(instructions, calls)
