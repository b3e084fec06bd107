"""The host's memory: how much there is, and what live CPU arrays hold of it."""

from __future__ import annotations

import os
from collections import deque
from itertools import accumulate

from ...locks import fork_safe_lock
from .allocator import MemoryStats

MOST_NOTES = 512  # that are kept unadded


def host_memory() -> tuple[int, int]:
    """(available, total) bytes of the machine's memory; zeros where the system does not say."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
    except (AttributeError, ValueError, OSError):
        return 0, 0


class CpuCount:
    """Bytes and blocks that live CPU arrays hold. Arrays come and go on any thread, and in the midst of garbage collections: each leaves a note in one
    step, and notes are added up, in their order, when there are many or somebody asks. A note is one number, which takes no memory of
    its own: n for n bytes that are held from now on, ~n for n bytes that are given back."""

    lock = fork_safe_lock()
    notes: deque[int] = deque()
    used = peak = blocks = allocs = 0
    settling = False

    @classmethod
    def settle(cls) -> None:
        """Add up what has been noted."""
        with cls.lock:
            if cls.settling:  # a collection of garbage in the midst of it, on this thread
                return
            cls.settling = True
            try:
                take = cls.notes.popleft
                taken = [take() for _ in range(len(cls.notes))]
                held = list(accumulate([n if n >= 0 else n + 1 for n in taken], initial=cls.used))
                made = sum([n >= 0 for n in taken])
                cls.used, cls.peak = held[-1], max(cls.peak, *held)
                cls.blocks += 2 * made - len(taken)
                cls.allocs += made
            finally:
                cls.settling = False


def cpu_memory() -> MemoryStats:
    """What arrays hold of the host's memory."""
    CpuCount.settle()
    free, total = host_memory()
    return MemoryStats(CpuCount.used, 0, CpuCount.peak, CpuCount.blocks, CpuCount.allocs, 0, free, total)
