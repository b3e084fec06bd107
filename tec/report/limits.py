"""What limits a kernel, and where it stands between the machine's ceilings.

The two agree by how they are made: a kernel's dot stands over the bytes of the level that limits it, where that is known, so that it is below that
level's roof by as much as the level is idle; `share` says by how much it is not.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

import tec

from ..target import Target, level_gbps
from .host_peak import fma_gflops

_BUSY = 0.5  # a resource limits where it is busy for half of the time, as in the time model


def ceilings(net: Any) -> dict[str, Any]:
    """{"gbps", "peaks": {name: GFLOP/s}, "levels": {cache: GB/s}, "source"} of the target's chip; empty where it is not known."""
    target = Target(net.module.target)
    if target.is_gpu:
        m = target.machine
        peaks = {"vector f32": 1e3 * m.peak_tflops("float32", matrix=False)}
        used = {v.dtype for v in net.plan.values.values()}
        for kind, dtype in (("f32", "float32"), ("f16", "float16"), ("bf16", "bfloat16"), ("i8", "int8")):
            if dtype in m.matrix_macs and (dtype == "float32" or dtype in used):
                peaks[f"matrix {kind}"] = 1e3 * m.peak_tflops(dtype)
        caches = [x for x in m.levels if x.name in ("L1", "L2", "MALL")]
        levels = {
            x.name: gbps for x in caches if (gbps := level_gbps(m, x.name) if m.chip.startswith("gfx") else x.gbps)
        }
        reached = level_gbps(m, "memory")
        known = "as the best stream reaches it" if reached < m.memory_gbps else "and its peak"
        source = f"{m.name}: arithmetic by its data sheet, memory {known}"
        return {"gbps": reached, "peaks": peaks, "levels": levels, "source": source}
    if target.is_host:
        return _host_ceilings()
    return {}


def _host_ceilings() -> dict[str, Any]:
    """What the cores reach in FMAs (`host_peak`) and a copy in NumPy in memory: measured here."""
    source = np.ones(1 << 24, np.float32)
    target = np.empty_like(source)
    best = math.inf
    for _ in range(8):
        start = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - start)
    cores = tec.cpu().compute_units
    return {
        "gbps": 2 * source.nbytes / best / 1e9,
        "peaks": {"vector f32": cores * fma_gflops()},
        "levels": {},
        "source": f"measured: FMAs in registers on one core, times {cores}; memory by a copy in NumPy",
    }


def limit_of(row: dict[str, Any], roofs: dict[str, Any], parts: dict[str, float]) -> tuple[str, float | None]:
    """What limits a kernel of the page, and for what share of its time that is busy.

    The time model's word where it has one. Of a measured time: memory, by the bytes of the arguments, or arithmetic, where one is busy for half of
    it; "caches" where the arguments came faster than memory gives them; else "neither".
    """
    us = row["us"]
    if not us:
        return "", None
    if row["limit"]:
        busy = parts.get(row["limit"])
        return row["limit"], None if busy is None else min(1.0, busy / us)
    if not roofs:
        return "", None
    moved = row["bytes"] / (roofs["gbps"] * 1e3) / us
    done = row["flops"] / (max(roofs["peaks"].values()) * 1e3) / us
    if max(moved, done) < _BUSY:
        return "neither", max(moved, done)
    if moved > 1.0 and moved > done:
        return "caches", None
    return ("memory", moved) if moved >= done else ("arithmetic", min(1.0, done))


def dots(row: dict[str, Any], limit: str) -> dict[str, Any] | None:
    """{"arguments", "level", "traffic"}: FLOP a byte of its arguments, and of the bytes that the level which limits it (memory else) gave;
    None for a kernel without arithmetic."""
    if not row["flops"] or not row["bytes"]:
        return None
    level = limit if limit in row["traffic"] else "memory"
    moved = row["traffic"].get(level)
    return {
        "arguments": row["flops"] / row["bytes"],
        "level": level if moved else "",
        "traffic": row["flops"] / moved if moved else None,
    }
