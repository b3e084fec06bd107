"""Streams, events and captured graphs. Work runs where it is given, on one device whose clock the time model moves."""

from __future__ import annotations

import ctypes

from .base import Base, Event, Graph, Stream, need, pointer, put_int
from .entry import CAPTURE_UNSUPPORTED, ILLEGAL_STATE, INVALID_HANDLE, HipError, entry

_DISABLE_TIMING = 2  # hipEventDisableTiming
_CAPTURING = 1  # hipStreamCaptureStatusActive


class Streams(Base):
    """hipStream*, hipEvent*, and graphs of what a stream was given between hipStreamBeginCapture and hipStreamEndCapture."""

    @entry("p")
    def hipStreamCreate(self, out: int) -> None:
        pointer(out).value = self.handle(Stream())

    @entry("pu")
    def hipStreamCreateWithFlags(self, out: int, flags: int) -> None:
        pointer(out).value = self.handle(Stream(flags))

    @entry("pui")
    def hipStreamCreateWithPriority(self, out: int, flags: int, priority: int) -> None:
        pointer(out).value = self.handle(Stream(flags))

    @entry("pp")
    def hipDeviceGetStreamPriorityRange(self, least: int, greatest: int) -> None:
        put_int(least, 0)
        put_int(greatest, 0)

    @entry("p")
    def hipStreamDestroy(self, stream: int) -> None:
        self.drop(stream, Stream)

    @entry("p", "hipStreamSynchronize", "hipStreamQuery")
    def hipStreamSynchronize(self, stream: int) -> int:
        if self.stream(stream).captured is not None:
            raise HipError(CAPTURE_UNSUPPORTED, "a stream that is being captured cannot be waited for")
        return self.wait()

    @entry("ppu")
    def hipStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        self.stream(stream)
        self.held(event, Event)

    @entry("pp")
    def hipStreamGetFlags(self, stream: int, out: int) -> None:
        put_int(out, self.stream(stream).flags)

    @entry("pp", "hipStreamGetPriority", "hipStreamGetDevice")
    def hipStreamGetPriority(self, stream: int, out: int) -> None:
        put_int(out, 0)

    @entry("pppu")
    def hipStreamAddCallback(self, stream: int, function: int, data: int, flags: int) -> None:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(need(function, "the callback"))
        self.submit(stream, lambda: call(stream or None, 0, data or None))

    @entry("ppp")
    def hipLaunchHostFunc(self, stream: int, function: int, data: int) -> None:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(need(function, "the function"))
        self.submit(stream, lambda: call(data or None))

    # ---- events

    @entry("p")
    def hipEventCreate(self, out: int) -> None:
        pointer(out).value = self.handle(Event())

    @entry("pu")
    def hipEventCreateWithFlags(self, out: int, flags: int) -> None:
        pointer(out).value = self.handle(Event(not flags & _DISABLE_TIMING))

    @entry("p")
    def hipEventDestroy(self, event: int) -> None:
        self.timers.discard(self.drop(event, Event))

    @entry("pp")
    def hipEventRecord(self, event: int, stream: int) -> None:
        e = self.held(event, Event)

        def record() -> None:
            e.at_us = self.clock_us
            if e.timing:
                self.timers.add(e)

        self.submit(stream, record)

    @entry("ppu")
    def hipEventRecordWithFlags(self, event: int, stream: int, flags: int) -> None:
        self.hipEventRecord(event, stream)

    @entry("p", "hipEventSynchronize", "hipEventQuery")
    def hipEventSynchronize(self, event: int) -> int:
        self.held(event, Event)
        return self.wait()

    @entry("ppp")
    def hipEventElapsedTime(self, out: int, start: int, stop: int) -> None:
        """Milliseconds on the modelled chip. Launches are modelled from an event's record until its time is asked for."""
        a, b = self.held(start, Event), self.held(stop, Event)
        if not a.timing or not b.timing:
            raise HipError(INVALID_HANDLE, "an event that was made without timing")
        if a.at_us is None or b.at_us is None:
            raise HipError(INVALID_HANDLE, "an event that was not recorded")
        self.timers -= {a, b}
        ctypes.c_float.from_address(need(out)).value = (b.at_us - a.at_us) / 1e3

    # ---- graphs

    @entry("pi")
    def hipStreamBeginCapture(self, stream: int, mode: int) -> None:
        s = self.stream(stream)
        if s is self.default:
            raise HipError(CAPTURE_UNSUPPORTED, "the default stream cannot be captured")
        if s.captured is not None:
            raise HipError(ILLEGAL_STATE, "the stream is being captured")
        s.captured = []

    @entry("pp")
    def hipStreamEndCapture(self, stream: int, out: int) -> None:
        s = self.stream(stream)
        if s.captured is None:
            raise HipError(ILLEGAL_STATE, "the stream is not being captured")
        work, s.captured = s.captured, None
        pointer(out).value = self.handle(Graph(work))

    @entry("pp")
    def hipStreamIsCapturing(self, stream: int, out: int) -> None:
        put_int(out, _CAPTURING if self.stream(stream).captured is not None else 0)

    @entry("pppsz")
    def hipGraphInstantiate(self, out: int, graph: int, node: int, log: bytes, size: int) -> None:
        pointer(out).value = self.handle(Graph(list(self.held(graph, Graph).work)))

    @entry("ppz")
    def hipGraphInstantiateWithFlags(self, out: int, graph: int, flags: int) -> None:
        pointer(out).value = self.handle(Graph(list(self.held(graph, Graph).work)))

    @entry("pp")
    def hipGraphLaunch(self, graph: int, stream: int) -> None:
        for work in self.held(graph, Graph).work:
            self.submit(stream, work)

    @entry("pp")
    def hipGraphUpload(self, graph: int, stream: int) -> None:
        self.held(graph, Graph)

    @entry("p", "hipGraphDestroy", "hipGraphExecDestroy")
    def hipGraphDestroy(self, graph: int) -> None:
        self.drop(graph, Graph)
