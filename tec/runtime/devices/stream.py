"""Streams, events and captured graphs of a device.

`with dev.stream() as s:` sends this thread's copies and launches to `s`; without one, work goes to the device's default
stream. On the CPU work is done when a call returns, so streams there do nothing and events read the clock.
`with dev.capture() as graph:` records a launch sequence (CUDA graphs); `graph.launch()` replays it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...errors import DeviceError

if TYPE_CHECKING:
    from .device import Device


class Stream:
    """An ordered queue of work. `with stream:` makes it current; `sync()` waits for it.

    >>> dev = tec.cpu()
    >>> with dev.stream() as stream:
    ...     a = tec.nd.array(np.ones(4), dev)
    >>> stream.sync()
    """

    def __init__(self, device: Device, create: Any = None):
        self.device = device
        self.handle: Any = None
        self._outer: list[Any] = []
        if device.driver is not None:
            self.handle = (create or device.driver.stream_create)(device.index)
            if device.allocator is not None:
                device.allocator.multi_stream = True

    def __enter__(self) -> Stream:
        self._outer.append(self.device.local.stream)
        self.device.local.stream = self.handle
        return self

    def __exit__(self, *exc: Any) -> None:
        self.device.local.stream = self._outer.pop()

    def sync(self) -> None:
        """Wait until all work in the stream is done."""
        if self.device.driver is not None:
            self.device.driver.stream_synchronize(self.device.index, self.handle)

    synchronize = sync

    def wait(self, event: Event) -> None:
        """Work that is queued from now on waits for `event`."""
        driver = self.device.driver
        if driver is None:
            return
        wait = getattr(driver, "stream_wait_event", None)
        if wait is not None:
            wait(self.device.index, self.handle, event.handle)
        else:
            event.sync()

    def __del__(self) -> None:
        handle, self.handle = getattr(self, "handle", None), None
        if handle is not None:
            try:
                self.device.driver.stream_destroy(self.device.index, handle)  # type: ignore[union-attr]
            except Exception:
                return  # at interpreter exit the driver may be gone already


class Event:
    """A mark in a stream, with the time at which it was passed.

    >>> dev = tec.cpu()
    >>> start, stop = dev.event().record(), dev.event().record()
    >>> start.elapsed_ms(stop) >= 0.0
    True
    """

    def __init__(self, device: Device):
        self.device = device
        self.handle: Any = None
        self._time_ns: int | None = None
        if device.driver is not None:
            self.handle = device.driver.event_create(device.index)

    def record(self, stream: Stream | None = None) -> Event:
        """Put the mark behind the work that is queued now, in `stream` or in the current one."""
        device = self.device
        self._time_ns = time.perf_counter_ns()
        if device.driver is not None:
            handle = device.local.stream if stream is None else stream.handle
            device.driver.event_record(device.index, self.handle, handle)
        return self

    def sync(self) -> None:
        """Wait until the mark was passed."""
        self._check()
        if self.device.driver is not None:
            self.device.driver.event_synchronize(self.device.index, self.handle)

    synchronize = sync

    def elapsed_ms(self, stop: Event) -> float:
        """Milliseconds from this mark to `stop`; waits for `stop`."""
        if stop.device is not self.device:
            raise DeviceError(
                f"events of two devices: {self.device} and {stop.device}", hint="record both on one device"
            )
        self._check()
        stop._check()
        if self.device.driver is None:
            return (stop._time_ns - self._time_ns) / 1e6  # type: ignore[operator]
        stop.sync()
        return self.device.driver.event_elapsed_ms(self.device.index, self.handle, stop.handle)

    elapsed_time = elapsed_ms

    def _check(self) -> None:
        if self._time_ns is None:
            raise DeviceError("the event was never recorded", hint="event.record() marks the place in the stream")

    def __del__(self) -> None:
        handle, self.handle = getattr(self, "handle", None), None
        if handle is not None:
            try:
                self.device.driver.event_destroy(self.device.index, handle)  # type: ignore[union-attr]
            except Exception:
                return


class GraphCapture:
    """A launch sequence recorded once and replayed with one call.

    The arrays of the calls made in the block are kept alive and are read and written again by each `launch()`; so are
    the scratch buffers. Copies to and from the host and `sync()` are not allowed in the block.
    """

    def __init__(self, device: Device):
        self.device = device
        self.keep: list[Any] = []
        self._driver: Any = device.driver
        if self._driver is None or not hasattr(self._driver, "capture_begin"):
            raise DeviceError(
                f"{device} has no graph capture",
                hint="GPUs have graphs, the software GPU too; on a CPU call the functions again",
            )
        self._graph: Any = None
        self._scratch: list[int] = []
        self._stream: Stream | None = None

    def __enter__(self) -> GraphCapture:
        if self._graph is not None or self.device.capturing is not None:
            raise DeviceError(
                "a graph is captured once, and one at a time by a thread", hint="dev.capture() makes a new one"
            )
        assert self.device.allocator is not None
        self._stream = Stream(self.device, getattr(self._driver, "capture_stream", None))
        self.device.allocator.begin_capture()
        try:
            self._driver.capture_begin(self.device.index, self._stream.handle)
        except BaseException:
            self._scratch = self.device.allocator.end_capture()
            raise
        self.device.local.capturing = self
        self._stream.__enter__()
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        assert self._stream is not None and self.device.allocator is not None
        self._stream.__exit__()
        self.device.local.capturing = None
        try:
            self._graph = self._driver.capture_end(self.device.index, self._stream.handle)
        except DeviceError:
            if kind is None:
                raise
        finally:
            self._scratch = self.device.allocator.end_capture()

    def launch(self, stream: Stream | None = None) -> None:
        """Run the recorded sequence, asynchronously, in `stream` or the current one."""
        if self._graph is None:
            raise DeviceError("nothing was captured", hint="with dev.capture() as graph: f(a, b)")
        handle = self.device.local.stream if stream is None else stream.handle
        self._driver.graph_launch(self.device.index, self._graph, handle)

    def __del__(self) -> None:
        graph, self._graph = getattr(self, "_graph", None), None
        try:
            if graph is not None:
                self._driver.graph_destroy(self.device.index, graph)
            for address in getattr(self, "_scratch", ()):
                self.device.allocator.free(address)  # type: ignore[union-attr]
        except Exception:
            return
