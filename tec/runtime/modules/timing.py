"""time_evaluator: how long a function takes, by the device's events on a GPU and by the clock on the CPU."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError
from ...notebook import bars_svg
from ...records import dataclass
from ..devices.device import Device, as_device

if TYPE_CHECKING:
    from .function import Function

_MOST_BARS = 30  # repeats that a notebook shows


@dataclass(frozen=True, slots=True)
class TimeResult:
    """Seconds a call: one result a repeat, and their statistics."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the repeats, in seconds."""
        import statistics  # for those who measure

        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        """Median of the repeats, in seconds."""
        import statistics

        return statistics.median(self.results)

    @property
    def min(self) -> float:
        """The quickest repeat, in seconds."""
        return min(self.results)

    @property
    def max(self) -> float:
        """The slowest repeat, in seconds."""
        return max(self.results)

    @property
    def std(self) -> float:
        """Standard deviation of the repeats, in seconds."""
        import statistics

        return statistics.pstdev(self.results)

    @property
    def _unit(self) -> tuple[float, str]:
        return next(((s, u) for s, u in ((1.0, "s"), (1e3, "ms")) if self.median * s >= 1), (1e6, "us"))

    def _repr_html_(self) -> str:
        scale, unit = self._unit
        bars = [(str(k + 1), t, f"{t * scale:.3f} {unit}") for k, t in enumerate(self.results[:_MOST_BARS])]
        return bars_svg(bars, str(self))

    def __str__(self) -> str:
        scale, unit = self._unit
        return (
            f"median {self.median * scale:.3f} {unit}, mean {self.mean * scale:.3f}, min {self.min * scale:.3f}, "
            f"max {self.max * scale:.3f}, std {self.std * scale:.3f} ({len(self.results)} repeats)"
        )


class TimeEvaluator:
    """Called with the function's arguments, gives a TimeResult.

    The device is synchronised around each repeat; `number` calls are queued in between, so launch cost is hidden on a GPU
    when the work is longer than it. Garbage collection waits meanwhile.
    """

    def __init__(
        self,
        function: Function,
        dev: Any = None,
        number: int = 10,
        repeat: int = 1,
        *,
        min_repeat_ms: float = 0,
        warmup: int = 1,
    ):
        for name, value, least in (("number", number, 1), ("repeat", repeat, 1), ("warmup", warmup, 0)):
            if not isinstance(value, int) or value < least:
                raise ArgumentError(
                    f"time_evaluator: {name} is {value!r}, an integer of at least {least} is wanted",
                    hint="f.time_evaluator(f.entry_name, dev, number=10, repeat=3)",
                )
        self.function = function
        self.device: Device = as_device(dev) if dev is not None else as_device(function.kind)
        if self.device.kind != function.kind:
            raise ArgumentError(
                f"time_evaluator: {function.name} runs on {function.kind}, not on {self.device}",
                hint="pass the device that the module is for",
            )
        self.number, self.repeat, self.min_repeat_ms, self.warmup = number, repeat, min_repeat_ms, warmup

    def __call__(self, *args: Any) -> TimeResult:
        for _ in range(self.warmup):
            self.function(*args)
        number = self.number
        results = []
        enabled = gc.isenabled()
        gc.disable()
        try:
            while self.min_repeat_ms:
                seconds = self._measure(args, number)
                if seconds * 1e3 >= self.min_repeat_ms:
                    break
                number = max(
                    number + 1, min(number * 8, int(number * self.min_repeat_ms / max(seconds * 1e3, 1e-3)) + 1)
                )
            for _ in range(self.repeat):
                results.append(self._measure(args, number) / number)
        finally:
            if enabled:
                gc.enable()
        return TimeResult(tuple(results))

    def _measure(self, args: tuple[Any, ...], number: int) -> float:
        """Seconds of `number` calls."""
        call = self.function._call
        device = self.device
        if device.driver is None:
            start = time.perf_counter()
            for _ in range(number):
                call(*args)
            return time.perf_counter() - start
        begin, end = device.event(), device.event()
        device.sync()
        begin.record()
        for _ in range(number):
            call(*args)
        end.record()
        end.sync()
        return begin.elapsed_ms(end) / 1e3
