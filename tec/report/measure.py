"""Times of a network's kernels on a device: real ones from its events or the clock, the time model's on the software GPU."""

from __future__ import annotations

import gc
import time
from dataclasses import field
from pathlib import Path
from typing import Any

from ..errors import DeviceError
from ..records import dataclass

_RUNS = 5  # a kernel that was interrupted by other work is not the kernel's time


@dataclass
class KernelTime:
    """One kernel: calls and microseconds in one run; where the software GPU counted, `limit` and `counters`, and by its time model the
    microseconds that each resource is busy (`parts`), the bytes that each level of memory gives (`traffic`), shares of the waves' time that
    they wait, by what for (`waits`: of the longest call) and at which of the kernel's instructions (`held`)."""

    name: str
    calls: int
    us: float
    limit: str = ""
    counters: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    traffic: dict[str, float] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    held: dict[int, float] = field(default_factory=dict)

    def made_of(self) -> str:
        """What the time is made of: the busiest resources and the longest waits, as text."""
        busy = sorted(((v / self.us, n) for n, v in self.parts.items()), reverse=True)
        some = [f"{n} {v:.0%}" for v, n in busy if v >= 0.05]
        waits = [f"{n} {v:.0%}" for n, v in list(self.waits.items())[:3] if v >= 0.05]
        return ", ".join(some) + (f"; waves: {', '.join(waits)}" if waits else "")


def device_of(net: Any, device: Any = None) -> Any:
    """The device to time a network on: the one that is given, the target's first, or the AMD GPU in software. Raises DeviceError."""
    import tec

    from ..target import Target

    kind = net.module.device_kind
    if device is not None:
        dev = tec.device(device) if isinstance(device, str) else device
        if dev.kind != kind:
            raise DeviceError(
                f"the network is for {kind}, and {dev} is no device for it",
                hint="a device of the network's target: tec.cpu(), tec.rocm_emu(chip), tec.cuda(0)",
            )
        return dev
    try:
        return tec.device(kind)
    except DeviceError:
        if kind != "rocm":
            raise
        return tec.rocm_emu(Target(net.module.target).mcpu)


def random_array(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An array for an input that nothing is known of: normal numbers, booleans, small integers."""
    from ..runtime.arrays.dtypes import numpy_dtype

    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return rng.integers(0, 10, shape).astype(numpy_dtype(dtype))
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


def kernel_times(net: Any, inputs: dict[str, Any], dev: Any, run: bool = True, product: str = "") -> list[KernelTime]:
    """One run of the network, kernel by kernel, the longest first: each kernel's best of some runs on a real device.

    run: False to model the kernels on a software GPU without running them; product: as this product of its chip."""
    if dev.is_emulated:
        return _emulated(net, inputs, dev, run, product)
    import tec

    best: dict[str, KernelTime] = {}
    for _ in range(_RUNS):
        with tec.profile(dev) as p:
            net.run(inputs, device=dev)
        out: dict[str, KernelTime] = {}
        for row in p.by_kernel():
            t = out.setdefault(row["name"], KernelTime(row["name"], 0, 0.0))
            t.calls += row["calls"]
            t.us += row["total_ns"] / 1e3
        for name, t in out.items():
            if name not in best or t.us < best[name].us:
                best[name] = t
    out = best
    return sorted(out.values(), key=lambda t: -t.us)


def trace(net: Any, inputs: dict[str, Any], dev: Any, path: Path) -> None:
    """Write a Chrome trace of one run of the network."""
    import tec

    with tec.profile(dev) as p:
        net.run(inputs, device=dev)
    p.save_trace(str(path))


def _emulated(net: Any, inputs: dict[str, Any], dev: Any, run: bool, product: str) -> list[KernelTime]:
    from ..emulator import emulator_profile

    with emulator_profile(dev.driver, run, product) as p:
        net.run(inputs, device=dev)
    out: dict[str, KernelTime] = {}
    longest: dict[str, float] = {}
    for r in p.launches:
        t = out.setdefault(r.kernel, KernelTime(r.kernel, 0, 0.0))
        t.calls += 1
        t.us += r.estimate.microseconds
        if r.estimate.microseconds > longest.get(r.kernel, 0.0):
            longest[r.kernel] = r.estimate.microseconds
            t.limit, t.waits, t.held = r.estimate.limit, r.estimate.waits, r.estimate.held
        for mine, its in ((t.parts, r.estimate.parts), (t.traffic, r.estimate.traffic)):
            for key, x in its.items():
                mine[key] = mine.get(key, 0.0) + x
        c = r.counts
        for key, n in {
            **c.instructions, "global_bytes": c.global_bytes, "line_bytes": c.global_line_bytes,
            "lds_clocks": c.lds_clocks, "conflict_clocks": c.bank_conflict_clocks,
        }.items():  # fmt: skip
            t.counters[key] = t.counters.get(key, 0) + n
    return sorted(out.values(), key=lambda t: -t.us)


def run_times(net: Any, inputs: dict[str, Any], dev: Any, runs: int, warmup: int) -> list[float]:
    """Seconds of whole runs, copies in and out included."""
    for _ in range(warmup):
        net.run(inputs, device=dev)
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        out = []
        for _ in range(runs):
            start = time.perf_counter()
            net.run(inputs, device=dev)
            out.append(time.perf_counter() - start)
        return out
    finally:
        if enabled:
            gc.enable()


def percentile(sorted_values: list[float], p: float) -> float:
    """The p-th percentile, interpolated between neighbours."""
    at = (len(sorted_values) - 1) * p / 100
    low = int(at)
    high = min(low + 1, len(sorted_values) - 1)
    return sorted_values[low] + (sorted_values[high] - sorted_values[low]) * (at - low)
