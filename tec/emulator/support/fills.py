"""Loads straight into LDS and the reads of what they bring (`checks.fills`): LLVM IR of both."""

from __future__ import annotations

from .lane_loop import over_lanes
from .template import ir


def fill_functions(w: int) -> str:
    fill = over_lanes(w, "%m", "entry", "[ %left1, %dword ]", "done")
    read = over_lanes(w, "%m", "entry", "[ %left1, %on ]", "done")
    return ir("fills.fill", w=w, lanes=fill) + ir("fills.filled", w=w, lanes=read)


def names(w: int) -> list[str]:
    return [f"tec_fill_{w}", f"tec_filled_{w}"]
