"""What a launch did, counted: instructions by class, lanes, memory traffic and its efficiency, LDS clocks, divergence.

The translated code counts executions of basic blocks and, for each memory instruction, bytes, cache lines and bank clocks;
this module sums the rows up. A cache line is 128 bytes; an LDS clock serves 32 banks of 4 bytes (64 on gfx950).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..translate.translation import Row

LINE_BYTES = 128
# Table class -> the class that a report shows.
SHOWN = {
    "valu": "VALU", "trans": "VALU", "packed": "VALU", "lane": "VALU", "salu": "SALU", "smem": "SMEM", "vmem": "VMEM",
    "lds": "LDS", "matrix": "MATRIX", "branch": "BRANCH", "wait": "WAIT", "barrier": "BARRIER", "other": "OTHER",
}  # fmt: skip


@dataclass(slots=True)
class MemoryCount:
    """One direction of one memory. `lines` for global memory, `clocks` and `extra_clocks` (bank conflicts) for LDS."""

    instructions: int = 0
    bytes: int = 0
    lines: int = 0
    clocks: int = 0
    extra_clocks: int = 0

    @property
    def efficiency(self) -> float:
        """Bytes asked for over bytes of the lines touched; above 1 where lanes share bytes."""
        return self.bytes / (self.lines * LINE_BYTES) if self.lines else 0.0


@dataclass(slots=True)
class HotSpot:
    """One memory instruction, with its own counts."""

    line: int
    text: str
    kind: str
    count: MemoryCount


@dataclass(slots=True)
class KernelCounts:
    """All counts of one launch. Instructions are those of waves (one for all lanes)."""

    instructions: dict[str, int] = field(default_factory=dict)  # by shown class
    detail: dict[str, int] = field(default_factory=dict)  # by table class
    active_lanes: float = 0.0  # mean share of lanes that were on, by instruction
    memory: dict[str, MemoryCount] = field(default_factory=dict)  # global_load, lds_store, ...
    spots: list[HotSpot] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.instructions.values())

    @property
    def global_bytes(self) -> int:
        return sum(m.bytes for k, m in self.memory.items() if k.startswith("global"))

    @property
    def global_line_bytes(self) -> int:
        return sum(m.lines for k, m in self.memory.items() if k.startswith("global")) * LINE_BYTES

    @property
    def lds_clocks(self) -> int:
        return sum(m.clocks for k, m in self.memory.items() if k.startswith("lds"))

    @property
    def bank_conflict_clocks(self) -> int:
        return sum(m.extra_clocks for k, m in self.memory.items() if k.startswith("lds"))


def summarize(rows: list[Row], counters: np.ndarray, lanes: int) -> KernelCounts:
    """Counter rows (one of four numbers for each of `rows`) to counts."""
    out = KernelCounts()
    weighted = 0.0
    for row, values in zip(rows, counters.tolist()):
        if row.kind == "block":
            executions, active = int(values[0]), int(values[1])
            size = sum(row.classes.values())
            weighted += active * size
            for name, n in row.classes.items():
                out.detail[name] = out.detail.get(name, 0) + n * executions
                shown = SHOWN[name]
                out.instructions[shown] = out.instructions.get(shown, 0) + n * executions
            continue
        count = MemoryCount(instructions=int(values[0]), bytes=int(values[1]))
        if row.kind.startswith("global"):
            count.lines = int(values[2])
        else:
            count.clocks, count.extra_clocks = int(values[2]), int(values[3])
        if not count.instructions:
            continue
        out.spots.append(HotSpot(row.line, row.text, row.kind, count))
        total = out.memory.setdefault(row.kind, MemoryCount())
        for name in ("instructions", "bytes", "lines", "clocks", "extra_clocks"):
            setattr(total, name, getattr(total, name) + getattr(count, name))
    if out.total:
        out.active_lanes = weighted / (out.total * lanes)
    return out
