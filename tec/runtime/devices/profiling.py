"""Profiles: `with tec.profile(dev) as p:` collects each launch in the block, with its time and geometry.

Times come from a pair of the device's events around each launch on a GPU, from the clock on the CPU. A driver that
counts (the software GPU) is told to (`set_counting(ordinal, on)`) and asked for its counters after each launch
(`last_counters(ordinal) -> dict`); its own estimate of the time (`"time_ns"` among them) is then shown instead. Over
launches of one kernel counters add up; those named `..._share` are averaged, texts (the limiting resource) are the last one's.
`print(p)` shows a table a kernel; `p.save_trace(path)` writes a Chrome trace (chrome://tracing, Perfetto).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...errors import DeviceError, one_line
from ...notebook import bars_svg, table
from ..modules.program import LaunchInfo
from ..outputs import write_output
from .device import Device, as_device
from .stream import Event


@dataclass(slots=True)
class Launch:
    """One launch. `start_ns` counts from the profile's begin, on the host; `time_ns` is the device's time."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    start_ns: int
    host_ns: int
    time_ns: float = 0.0
    counters: dict[str, Any] = field(default_factory=dict)


class Profile:
    """The launches of a block of code on one device. Results are there after the block.

    >>> A = tec.placeholder((4,), name="A")
    >>> B = tec.compute((4,), lambda i: A[i] * 2.0, name="B")
    >>> f = tec.build(tec.create_schedule(B.op), [A, B], "llvm", name="twice")
    >>> with tec.profile() as p:
    ...     f(np.ones(4, "float32"), np.zeros(4, "float32"))
    >>> [launch.name for launch in p.launches]
    ['twice']
    """

    def __init__(self, device: Device):
        self.device = device
        self.launches: list[Launch] = []
        self._events: list[tuple[Event, Event] | None] = []
        self._begin = 0
        self._outer: Profile | None = None
        self.wall_ns = 0

    def __enter__(self) -> Profile:
        if self.device.capturing is not None:
            raise DeviceError(
                "profile inside dev.capture()", hint="profile the calls themselves, or the graph's launch"
            )
        self.device.sync()
        self._count(True)
        self._outer, self.device.profile = self.device.profile, self
        self._begin = time.perf_counter_ns()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.device.profile = self._outer
        self._count(self._outer is not None)
        try:
            self.device.sync()
        except DeviceError:
            if exc[0] is None:
                raise
            return
        self.wall_ns = time.perf_counter_ns() - self._begin
        for launch, events in zip(self.launches, self._events):
            if events is not None:
                launch.time_ns = events[0].elapsed_ms(events[1]) * 1e6
            if "time_ns" in launch.counters:
                launch.time_ns = float(launch.counters["time_ns"])
        self._events.clear()
        if self._outer is not None:
            shift = self._begin - self._outer._begin
            for launch in self.launches:
                launch.start_ns += shift
            self._outer.launches += self.launches
            self._outer._events += [None] * len(self.launches)

    def _count(self, on: bool) -> None:
        count = getattr(self.device.driver, "set_counting", None)
        if count is not None:
            count(self.device.index, on)

    # ---- called by the runtime

    def launch(self, device: Device, info: LaunchInfo, function: Any, kernargs: bytes, stream: Any) -> None:
        """Run one launch, and note it."""
        driver = device.driver
        assert driver is not None
        start, stop = Event(device), Event(device)
        began = time.perf_counter_ns()
        start.record()
        driver.launch(function, info.grid, info.block, info.shared_bytes, kernargs, stream)
        stop.record()
        done = time.perf_counter_ns()
        counters_of = getattr(driver, "last_counters", None)
        counters = dict(counters_of(device.index) or {}) if counters_of is not None else {}
        self.launches.append(
            Launch(
                info.kernel,
                info.grid,
                info.block,
                info.shared_bytes,
                began - self._begin,
                done - began,
                counters=counters,
            )
        )
        self._events.append((start, stop))

    def call(self, device: Device, name: str, function: Callable[[], int]) -> int:
        """Run one CPU function, and note it."""
        began = time.perf_counter_ns()
        status = function()
        took = time.perf_counter_ns() - began
        self.launches.append(Launch(name, (1, 1, 1), (1, 1, 1), 0, began - self._begin, took, float(took)))
        self._events.append(None)
        return status

    # ---- results

    @property
    def total_ns(self) -> float:
        """The sum of the launches' device times."""
        return sum(x.time_ns for x in self.launches)

    def by_kernel(self) -> list[dict[str, Any]]:
        """One row a kernel and geometry, the longest first: name, calls, total_ns, mean_ns, min_ns, share, grid, block, counters."""
        groups: dict[Any, list[Launch]] = {}
        for x in self.launches:
            groups.setdefault((x.name, x.grid, x.block), []).append(x)
        total = self.total_ns or 1.0
        rows = []
        for (name, grid, block), xs in groups.items():
            times = [x.time_ns for x in xs]
            counters: dict[str, Any] = {}
            for x in xs:
                for key, value in x.counters.items():
                    if isinstance(value, str):
                        counters[key] = value
                    elif isinstance(value, (int, float)):
                        part = value / len(xs) if key.endswith("_share") else value
                        counters[key] = counters.get(key, 0) + part
            rows.append(
                {
                    "name": name, "calls": len(xs), "total_ns": sum(times), "mean_ns": sum(times) / len(xs),
                    "min_ns": min(times), "share": sum(times) / total, "grid": grid, "block": block,
                    "shared_bytes": xs[0].shared_bytes, "counters": counters,
                }
            )  # fmt: skip
        return sorted(rows, key=lambda r: -r["total_ns"])

    def __str__(self) -> str:
        rows = self.by_kernel()
        if not rows:
            return f"profile of {self.device}: no launches"
        width = max(6, *(len(one_line(r["name"])) for r in rows))
        lines = [
            f"profile of {self.device}: {len(self.launches)} launches, {self.total_ns / 1e6:.3f} ms on the device, "
            f"{self.wall_ns / 1e6:.3f} ms in all",
            f"{'kernel':<{width}}  calls    total us     mean us      min us   share  grid x block",
        ]
        for r in rows:
            geometry = f"{_dims(r['grid'])} x {_dims(r['block'])}" if self.device.driver is not None else ""
            lines.append(
                f"{one_line(r['name']):<{width}}  {r['calls']:>5}  {r['total_ns'] / 1e3:>10.2f}  {r['mean_ns'] / 1e3:>10.2f}  "
                f"{r['min_ns'] / 1e3:>10.2f}  {r['share'] * 100:>5.1f}%  {geometry}".rstrip()
            )
            counted = [f"{k} {_count(v)}" for k, v in r["counters"].items() if k != "time_ns"]
            for i in range(0, len(counted), 6):
                lines.append("    " + ", ".join(counted[i : i + 6]))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = self.by_kernel()
        counted = list(dict.fromkeys(k for r in rows for k in r["counters"] if k != "time_ns"))
        head = ("kernel", "calls", "total us", "mean us", "min us", "share", "grid x block", *counted)
        cells = [
            (
                r["name"], r["calls"], f"{r['total_ns'] / 1e3:.2f}", f"{r['mean_ns'] / 1e3:.2f}", f"{r['min_ns'] / 1e3:.2f}",
                f"{r['share'] * 100:.1f}%", f"{_dims(r['grid'])} x {_dims(r['block'])}",
                *(_count(r["counters"][k]) if k in r["counters"] else "" for k in counted),
            )
            for r in rows
        ]  # fmt: skip
        bars = [(r["name"], r["total_ns"], f"{r['total_ns'] / 1e3:.2f} us, {r['share'] * 100:.1f}%") for r in rows[:20]]
        picture = bars_svg(bars, f"time by kernel on {self.device}") if bars else ""
        return f'<div style="overflow:auto">{picture}{table(head, cells)}</div>'

    def trace(self) -> dict[str, Any]:
        """The launches as a Chrome trace: one line for the host's calls, one for the device's times end to end."""
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "tid": t, "name": "thread_name", "args": {"name": n}}
            for t, n in ((1, "host"), (2, str(self.device)))
        ]
        free_ns = 0.0
        for x in self.launches:
            args = {"grid": list(x.grid), "block": list(x.block), "shared_bytes": x.shared_bytes, **x.counters}
            start = max(free_ns, float(x.start_ns))
            free_ns = start + x.time_ns
            host = {"name": x.name, "ph": "X", "pid": 1, "tid": 1, "ts": x.start_ns / 1e3, "dur": x.host_ns / 1e3}
            there = {
                "name": x.name,
                "ph": "X",
                "pid": 1,
                "tid": 2,
                "ts": start / 1e3,
                "dur": x.time_ns / 1e3,
                "args": args,
            }
            events += [host, there]
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write `trace()` to a file. Raises ArgumentError where it cannot be written."""
        write_output(path, json.dumps(self.trace(), default=str))


def _count(v: Any) -> str:
    return f"{v:,.4g}" if isinstance(v, float) else v if isinstance(v, str) else f"{v:,}"


def _dims(d: tuple[int, int, int]) -> str:
    return ",".join(map(str, d[: 3 if d[2] > 1 else 2 if d[1] > 1 else 1]))


def profile(dev: Any = None) -> Profile:
    """A record of the launches on a device, by default the CPU, in a block: `print(p)` shows it, `p.by_kernel()` gives it as
    data, and `p.save_trace("trace.json")` writes a Chrome trace. On the software GPU times are the time model's.

        with tec.profile(dev) as p:
            f(a, b)
        print(p)

    >>> with tec.profile(tec.cpu()) as p:
    ...     pass
    >>> p.launches
    []
    """
    return Profile(as_device(dev))
