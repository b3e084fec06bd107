"""Profiles of emulated launches: a table, and a Chrome trace.

    with emulator_profile(driver) as p:
        ...launches...
    print(p)
    p.save_chrome_trace("trace.json")

`tec.profile(dev)` shows the same counts for an emulated device, through `EmuDriver.set_counting`.

While it is on, kernels run with counters (a separate translation, some times slower).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import one_line
from ..notebook import bars_svg, table
from ..runtime.devices.surface import Dim3
from ..runtime.outputs import write_output
from .chips import product_chip
from .time.counters import KernelCounts, summarize
from .time.model import Estimate

if TYPE_CHECKING:
    from .driver import EmuDriver
    from .modules import Compiled, EmuFunction


@dataclass(slots=True)
class LaunchRecord:
    """One launch: what it was, what it did, what the model says."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    counts: KernelCounts
    estimate: Estimate
    started_s: float
    host_seconds: float
    lds_bytes: int
    vgprs: int


@dataclass(slots=True)
class EmulatorProfile:
    """All launches of a profiled stretch, in order."""

    chip: str
    launches: list[LaunchRecord] = field(default_factory=list)

    def __str__(self) -> str:
        head = f"{'kernel':24} {'grid':>12} {'est. us':>9} {'limit':14} {'VALU':>10} {'MATRIX':>8} {'VMEM':>9} {'LDS':>9} {'lanes':>6} {'MB':>8} {'coalesced':>9} {'conflicts':>9}"  # fmt: skip
        lines = [f"{self.chip} (emulated)", head]
        for r in self.launches:
            i, c = r.counts.instructions, r.counts
            share = c.global_bytes / c.global_line_bytes if c.global_line_bytes else 0.0
            conflicts = c.bank_conflict_clocks / c.lds_clocks if c.lds_clocks else 0.0
            lines.append(
                f"{one_line(r.kernel)[:24]:24} {'x'.join(map(str, r.grid)):>12} {r.estimate.microseconds:9.1f} {r.estimate.limit:14} "
                f"{i.get('VALU', 0):10} {i.get('MATRIX', 0):8} {i.get('VMEM', 0):9} {i.get('LDS', 0):9} "
                f"{c.active_lanes:6.0%} {c.global_bytes / 1e6:8.2f} {share:9.0%} {conflicts:9.0%}"
            )
        assumed = dict.fromkeys(r.estimate.assumed for r in self.launches if r.estimate.assumed)
        return "\n".join([*lines, *(f"times rest on assumptions: {a}" for a in assumed)])

    def _repr_html_(self) -> str:
        classes = list(dict.fromkeys(k for r in self.launches for k in r.counts.instructions))
        rows = [
            (
                r.kernel, "x".join(map(str, r.grid)), "x".join(map(str, r.block)), f"{r.estimate.microseconds:.2f}", r.estimate.limit,
                *(f"{r.counts.instructions.get(c, 0):,}" for c in classes), f"{r.counts.global_line_bytes / 1e6:.2f}",
            )
            for r in self.launches
        ]  # fmt: skip
        times = [
            (r.kernel, r.estimate.microseconds, f"{r.estimate.microseconds:.1f} us, {r.estimate.limit}")
            for r in self.launches[:30]
        ]
        head = ("kernel", "grid", "block", "est. us", "limit", *classes, "MB of lines")
        picture = bars_svg(times, f"time by the model of the {self.chip}") if times else ""
        return f'<div style="overflow:auto">{picture}{table(head, rows)}</div>'

    def chrome_trace(self) -> dict[str, Any]:
        """Events on the modelled time line, one a launch, with the counts as arguments."""
        events, at = [], 0.0
        for r in self.launches:
            events.append({
                "name": r.kernel, "ph": "X", "ts": at, "dur": r.estimate.microseconds, "pid": self.chip, "tid": "stream 0",
                "args": {"grid": r.grid, "block": r.block, "limit": r.estimate.limit, **r.counts.instructions,
                         "global_bytes": r.counts.global_bytes, "host_seconds": r.host_seconds},
            })  # fmt: skip
            at += r.estimate.microseconds
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def save_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write `chrome_trace()` to a file. Raises ArgumentError where it cannot be written."""
        write_output(path, json.dumps(self.chrome_trace()))


def record(
    function: EmuFunction, compiled: Compiled | None, grid: Dim3, block: Dim3, guess: Estimate, counters: Any,
    began: float, ended: float,
) -> LaunchRecord:  # fmt: skip
    """What an observer is told of a launch, summed up. Of one that was not run `compiled` is None."""
    if compiled is None:
        counts = KernelCounts() if guess.counts is None else guess.counts
    else:
        counts = summarize(compiled.translation.rows, counters, compiled.lanes)
    info = function.info
    return LaunchRecord(info.name, grid, block, counts, guess, began, ended - began, info.lds_bytes, info.vgprs)


def counters_of(r: LaunchRecord) -> dict[str, Any]:
    """A launch as the counters that `tec.profile` shows: numbers that add up over launches, shares that do not
    (names in `_share`), the limiting resource, and `time_ns`, the estimate."""
    c = r.counts
    out: dict[str, Any] = {"time_ns": r.estimate.microseconds * 1e3, "limit": r.estimate.limit}
    out |= {name: n for name, n in c.instructions.items() if n}
    out["active_lanes_share"] = c.active_lanes
    if c.global_line_bytes:
        out |= {"global_bytes": c.global_bytes, "cache_line_bytes": c.global_line_bytes}
        out["coalescing_share"] = c.global_bytes / c.global_line_bytes
    if c.lds_clocks:
        out |= {"lds_clocks": c.lds_clocks, "bank_conflict_clocks": c.bank_conflict_clocks}
    return out | {f"{name.replace(' ', '_')}_us": us for name, us in r.estimate.parts.items() if us}


@contextmanager
def emulator_profile(
    driver: EmuDriver, run: bool = True, product: str = "", warm: bool = False
) -> Iterator[EmulatorProfile]:
    """Count every launch on `driver` within the block, and model its time.

    run: False to model launches without running them: times of large shapes in a moment, while results stay as they were (counts are then
    those of sampled work-groups, scaled). product: model this product of the chip ("MI325X"), and not the one that its name stands for.
    warm: operands lie in the last cache where it holds them (see `model.model_launch`).
    """
    chip = driver.chip if not product else product_chip(driver.chip.name, product)
    result = EmulatorProfile(f"{chip.name}, {chip.product}" if product else chip.name)
    origin = time.perf_counter()

    before = driver.profile, driver.observer, driver.runs, driver.warm, driver.chip

    def observe(*launch: Any) -> None:
        result.launches.append(record(*launch))
        result.launches[-1].started_s -= origin
        if before[1] is not None:
            before[1](*launch)

    driver.profile, driver.observer, driver.runs, driver.warm, driver.chip = True, observe, run, warm, chip
    try:
        yield result
    finally:
        driver.profile, driver.observer, driver.runs, driver.warm, driver.chip = before
