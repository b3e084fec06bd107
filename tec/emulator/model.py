"""An estimate of the time a launch would take on the chip, from its counts; and what limits it.

A bound, not a simulation: the largest of these, each as if alone, plus the launch's own latency.

- issue: a compute unit starts one vector instruction a clock on each SIMD; one of `simd_lanes` lanes takes
  lanes / simd_lanes clocks (4 for wave64 on CDNA's 16 lanes, 1 for wave32 on RDNA's 32); transcendentals take four times that.
- scalar: one scalar or branch instruction a clock a compute unit.
- matrix: multiply-adds over the chip's rate for the type (`chips`).
- LDS: the clocks counted, bank conflicts included.
- memory: bytes of the cache lines touched over the memory bandwidth: reuse in the caches is left out, so this is an upper
  bound; and, as a floor, the bytes that are distinct cannot be known from the counts alone.

Work-groups fill compute units whole: with fewer groups than units, only that many units count.
"""

from __future__ import annotations

from dataclasses import dataclass

from .chips import Chip
from .counters import KernelCounts


@dataclass(frozen=True, slots=True)
class Estimate:
    """Times in microseconds by resource; `limit` names the largest."""

    microseconds: float
    limit: str
    parts: dict[str, float]


def estimate(chip: Chip, counts: KernelCounts, lanes: int, groups: int, matrix_macs: dict[str, int]) -> Estimate:
    """`matrix_macs`: multiply-adds that matrix instructions did, by input type."""
    units = max(1, min(chip.compute_units, groups))
    clock = chip.machine.clock_mhz  # clocks a microsecond
    passes = max(1, lanes // chip.limits.simd_lanes)
    detail = counts.detail
    plain = detail.get("valu", 0) + detail.get("packed", 0) + detail.get("lane", 0)
    vector = (plain + 4 * detail.get("trans", 0)) * passes / chip.limits.simds
    scalar = sum(detail.get(k, 0) for k in ("salu", "smem", "branch", "wait"))
    rates = chip.matrix
    matrix = sum(n / rates[t] if t in rates else n for t, n in matrix_macs.items())
    parts = {
        "VALU issue": vector / units / clock,
        "scalar issue": scalar / units / clock,
        "matrix cores": matrix / units / clock,
        "LDS": counts.lds_clocks / units / clock,
        "memory": counts.global_line_bytes / (chip.machine.memory_gbps * 1e3),
    }
    limit = max(parts, key=lambda k: parts[k])
    launch = chip.machine.launch_us
    return Estimate(launch + parts[limit], "launch" if parts[limit] < launch / 10 else limit, parts)
