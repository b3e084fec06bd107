"""Streams, events and graphs: what is in order, what waits for what, what a graph does again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .abi import run
from .findings import Finding
from .gpu import Gpu, code_object, kernels

SECTION = "streams, events, graphs"
N = 1 << 16  # elements, 256 work-groups: enough for kernels of different streams to run at once
# `steps` rounds of a recurrence for each element, so that work takes a while: y = x, then y = 5 y + 1 (modulo 2^32).
_WORK = """define amdgpu_kernel void @work(ptr addrspace(1) %p, ptr addrspace(1) %o, i32 %steps) #0 {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = shl i32 %g, 8
  %i = or i32 %b, %t
  %q = getelementptr i32, ptr addrspace(1) %p, i32 %i
  %x = load i32, ptr addrspace(1) %q
  br label %loop
loop:
  %k = phi i32 [ 0, %entry ], [ %k1, %loop ]
  %y = phi i32 [ %x, %entry ], [ %y2, %loop ]
  %y1 = mul i32 %y, 5
  %y2 = add i32 %y1, 1
  %k1 = add i32 %k, 1
  %c = icmp ult i32 %k1, %steps
  br i1 %c, label %loop, label %done
done:
  %r = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %y2, ptr addrspace(1) %r
  ret void
}"""


def _steps(x: np.ndarray, steps: int) -> np.ndarray:
    factor, added = 1, 0
    for _ in range(steps):
        factor, added = factor * 5 % 2**32, (added * 5 + 1) % 2**32
    return x * np.uint32(factor) + np.uint32(added)


class Setup:
    """Two streams, a kernel, and an array x of `n` numbers."""

    def __init__(self, gpu: Gpu):
        n = self.n = N >> 6 if gpu.quick else N
        self.long = 1 if gpu.quick else 20  # times as many steps, so that another stream could overtake
        self.gpu, self.driver, self.ordinal = gpu, gpu.driver, gpu.ordinal
        declared = [f"declare i32 @llvm.amdgcn.{what}.id.x()" for what in ("workitem", "workgroup")]
        self.work = gpu.function(code_object(gpu.chip, kernels([_WORK], declared), "work"), "work")
        self.x = np.arange(n, dtype=np.uint32) * np.uint32(2654435761)
        self.streams = [self.driver.stream_create(self.ordinal) for _ in range(2)]

    def close(self) -> None:
        for s in self.streams:
            self.driver.stream_destroy(self.ordinal, s)

    def run(self, source: int, target: int, steps: int, stream: Any) -> None:
        self.gpu.launch(self.work, self.n // 256, 256, "QQI", source, target, steps, stream=stream)


def _wrong(got: np.ndarray, want: np.ndarray, turn: int) -> str:
    wrong = int((got != want).sum())
    return f"round {turn}: {wrong} of {want.size} values are wrong" if wrong else ""


def _one_stream(s: Setup) -> str:
    """A fill, a kernel that reads it and a copy, in one stream."""
    a, b, c = (s.gpu.empty(4 * s.n) for _ in range(3))
    for turn in range(8):
        stream, out = s.streams[turn % 2], np.zeros(s.n, np.uint32)
        s.driver.memset(s.ordinal, a, turn + 1, 4 * s.n, stream)
        s.run(a, b, 10 * s.long + turn, stream)
        s.driver.copy_on_device(s.ordinal, c, b, 4 * s.n, stream)
        s.driver.copy_from_device(s.ordinal, out.ctypes.data, c, out.nbytes, stream)
        s.driver.stream_synchronize(s.ordinal, stream)
        want = _steps(np.full(s.n, 0x01010101 * (turn + 1), np.uint32), 10 * s.long + turn)
        if why := _wrong(out, want, turn):
            return why
    return ""


def _across(s: Setup) -> str:
    """A stream waits for an event of the other one, whose kernel is long."""
    a, b, c = s.gpu.array(s.x), s.gpu.empty(4 * s.n), s.gpu.empty(4 * s.n)
    event = s.driver.event_create(s.ordinal)
    wait: Callable[..., None] = s.driver.stream_wait_event  # type: ignore[attr-defined]
    try:
        for turn in range(8):
            first, second = s.streams[turn % 2], s.streams[1 - turn % 2]
            s.driver.memset(s.ordinal, b, 0, 4 * s.n, first)
            s.run(a, b, 250 * s.long + turn, first)
            s.driver.event_record(s.ordinal, event, first)
            wait(s.ordinal, second, event)
            s.run(b, c, 3, second)
            s.driver.stream_synchronize(s.ordinal, second)
            if why := _wrong(s.gpu.read(c, s.x), _steps(s.x, 250 * s.long + 3 + turn), turn):
                return why
    finally:
        s.driver.event_destroy(s.ordinal, event)
    return ""


def _times(s: Setup) -> str:
    """Times between events are not negative, and longer work takes longer."""
    a, b = s.gpu.array(s.x), s.gpu.empty(4 * s.n)
    none = s.gpu.microseconds(lambda: None, 3)
    short = s.gpu.microseconds(lambda: s.run(a, b, 100 * s.long, None), 3)
    long = s.gpu.microseconds(lambda: s.run(a, b, 2000 * s.long, None), 3)
    if none < 0 or short <= 0:
        return f"nothing takes {none:.1f} us, {100 * s.long} steps {short:.1f}"
    if not 3 * short < long:
        return f"{100 * s.long} steps take {short:.1f} us, 20 times as many take {long:.1f}"
    return ""


def _queries(s: Setup) -> str:
    """A stream that has been waited for is done."""
    done = getattr(s.driver, "stream_done", None)
    a, b = s.gpu.array(s.x), s.gpu.empty(4 * s.n)
    s.run(a, b, 1000, s.streams[0])
    s.driver.stream_synchronize(s.ordinal, s.streams[0])
    return "" if done is None or done(s.ordinal, s.streams[0]) else "a stream that was waited for is not done"


def _graph(s: Setup) -> str:
    """What is captured does not run; each launch of the graph does all of it once, in order."""
    d: Any = s.driver
    a, b = s.gpu.array(s.x), s.gpu.array(np.zeros(s.n, np.uint32))
    stream = d.capture_stream(s.ordinal) if hasattr(d, "capture_stream") else s.streams[0]
    d.capture_begin(s.ordinal, stream)
    s.run(a, b, 7, stream)
    s.run(b, a, 4, stream)
    graph = d.capture_end(s.ordinal, stream)
    try:
        s.gpu.synchronize()
        if why := _wrong(s.gpu.read(a, s.x), s.x, 0):
            return f"before the graph was launched, {why}"
        for turn in range(1, 6):
            d.graph_launch(s.ordinal, graph, s.streams[0])
            d.stream_synchronize(s.ordinal, s.streams[0])
            if why := _wrong(s.gpu.read(a, s.x), _steps(s.x, 11 * turn), turn):
                return why
    finally:
        d.graph_destroy(s.ordinal, graph)
    return ""


CHECKS: tuple[tuple[str, Callable[[Setup], str]], ...] = (
    ("order within a stream", _one_stream),
    ("a stream waits for another one's event", _across),
    ("times between events", _times),
    ("a stream that is done says so", _queries),
    ("a graph", _graph),
)


def _with(setup: Setup, call: Callable[[Setup], str]) -> Callable[[Gpu], str]:
    return lambda _: call(setup)


def check(gpu: Gpu) -> Iterator[Finding]:
    setup = Setup(gpu)
    try:
        yield from run(gpu, SECTION, tuple((name, _with(setup, call)) for name, call in CHECKS))
    finally:
        setup.close()
