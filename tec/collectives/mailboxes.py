"""Channels between the ranks of one process, each of which has a thread: boxes in memory.

All boxes have one lock, so a rank that waits knows who else waits: where every rank that is left waits for a message that nobody can send any more, that is a deadlock, and told at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from ..errors import DeviceError


class Boxes:
    """The messages of a group. timeout_s: the longest that a rank waits for one."""

    def __init__(self, size: int, timeout_s: float):
        self.size, self.timeout_s = size, timeout_s
        self.changed = threading.Condition()
        self.held: dict[tuple[int, int], deque[tuple[bytes, bytes]]] = {
            (a, b): deque() for a in range(size) for b in range(size)
        }
        self.waiting: dict[int, tuple[int, str]] = {}  # rank -> for whom, doing what
        self.ended: set[int] = set()
        self.failed: str | None = None

    def deadlock(self) -> str | None:
        """Why no rank that is left can go on; None where one can, or may still come. Call it with the lock."""
        if len(self.waiting) + len(self.ended) < self.size or any(
            self.held[source, rank] for rank, (source, _) in self.waiting.items()
        ):
            return None
        each = [
            f"rank {rank} waits for rank {source} in {doing}" for rank, (source, doing) in sorted(self.waiting.items())
        ]
        return "all ranks wait: " + "; ".join(each + [f"rank {r} has ended" for r in sorted(self.ended)])


class Box:
    """One rank's `Channel`."""

    def __init__(self, boxes: Boxes, rank: int):
        self.boxes, self.rank, self.size = boxes, rank, boxes.size

    def put(self, to: int, head: bytes, data: bytes) -> None:
        with self.boxes.changed:
            self._check()
            self.boxes.held[self.rank, to].append((head, data))
            self.boxes.changed.notify_all()

    def take(self, source: int, doing: str) -> tuple[bytes, bytes]:
        b = self.boxes
        end = time.monotonic() + b.timeout_s
        with b.changed:
            held = b.held[source, self.rank]
            b.waiting[self.rank] = source, doing
            try:
                while not held:
                    self._check()
                    why = b.deadlock()
                    if why is None and source in b.ended:
                        why = f"rank {source} has ended, and rank {self.rank} waits for it in {doing}"
                    left = end - time.monotonic()
                    if why is None and left <= 0:
                        why = f"rank {source} did not come within {b.timeout_s:g} s, and rank {self.rank} waits for it in {doing}"
                    if why is not None:
                        self._fail(why)
                        raise DeviceError(
                            why, hint="the same calls in the same order on all ranks, or a longer timeout_s="
                        )
                    b.changed.wait(left)
                return held.popleft()
            finally:
                b.waiting.pop(self.rank, None)

    def fail(self, why: str) -> None:
        with self.boxes.changed:
            self._fail(why)

    def close(self) -> None:
        with self.boxes.changed:
            self.boxes.ended.add(self.rank)
            self.boxes.changed.notify_all()

    def _fail(self, why: str) -> None:
        if self.boxes.failed is None:
            self.boxes.failed = why
        self.boxes.changed.notify_all()

    def _check(self) -> None:
        if self.boxes.failed is not None:
            raise DeviceError(
                f"the group has failed: {self.boxes.failed}",
                hint="make a new group: one that was closed or has failed takes no calls",
            )
