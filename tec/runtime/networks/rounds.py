"""Runs of several networks on a GPU that follow one another again and again, with nothing for the host to do between them.

What one of them writes, the next one reads where it lies (`Executor.settle`), the first one what the last one wrote in the round before. A round is one captured
graph where the device has graphs, and else its launches. The host may queue rounds ahead, and waits for one by its number.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..devices.device import Device
from ..devices.stream import Event, GraphCapture, Stream
from .device_engine import Settled

_MARKS = 16  # rounds that are told apart: nobody queues more ahead of the one that is waited for


class Rounds:
    """See the module. parts: in their order, all of one stream."""

    def __init__(self, device: Device, stream: Stream, parts: Sequence[Settled]):
        self.device, self.stream, self.parts = device, stream, list(parts)
        self.queued = 0
        self._marks = [Event(device) for _ in range(_MARKS)]
        self._graph: GraphCapture | None = None
        self._captures = device.kind == "cuda" and hasattr(device.driver, "capture_begin")

    def queue(self) -> int:
        """Queue a round; its number. The first one is no graph: it loads code."""
        if self._captures and self.queued and self._graph is None and self.device.profile is None:
            self.stream.sync()
            graph = GraphCapture(self.device)
            with graph:
                self._launch()
            self._graph = graph
        if self._graph is not None and self.device.profile is None:
            self._graph.launch(self.stream)
        else:
            with self.stream:
                self._launch()
        number, self.queued = self.queued, self.queued + 1
        self._marks[number % _MARKS].record(self.stream)
        return number

    def _launch(self) -> None:
        for part in self.parts:
            part.queue()

    def wait(self, number: int) -> None:
        """Until a round is done."""
        self._marks[number % _MARKS].sync()
