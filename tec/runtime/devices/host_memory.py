"""The host's memory: how much there is, and what live CPU arrays hold of it."""

from __future__ import annotations

import os
from collections import deque

from ...locks import fork_safe_lock
from .allocator import MemoryStats

_MOST_NOTES = 512  # that are kept unadded


def host_memory() -> tuple[int, int]:
    """(available, total) bytes of the machine's memory; zeros where the system does not say."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
    except (AttributeError, ValueError, OSError):
        return 0, 0


class CpuCount:
    """Bytes and blocks that live CPU arrays hold. Arrays come and go on any thread, and in the midst of garbage collections: each leaves a note in one
    step (`add`), and notes are added up, in their order, when there are many or somebody asks."""

    lock = fork_safe_lock()
    notes: deque[tuple[int, int]] = deque()
    used = peak = blocks = allocs = 0

    @classmethod
    def add(cls, nbytes: int, blocks: int) -> None:
        notes = cls.notes
        notes.append((nbytes, blocks))
        if len(notes) > _MOST_NOTES:
            cls.settle()

    @classmethod
    def settle(cls) -> None:
        """Add up what has been noted."""
        with cls.lock:
            for _ in range(len(cls.notes)):
                nbytes, blocks = cls.notes.popleft()
                cls.used += nbytes
                cls.blocks += blocks
                if blocks > 0:
                    cls.allocs += 1
                    cls.peak = max(cls.peak, cls.used)


def cpu_memory() -> MemoryStats:
    """What arrays hold of the host's memory."""
    CpuCount.settle()
    free, total = host_memory()
    return MemoryStats(CpuCount.used, 0, CpuCount.peak, CpuCount.blocks, CpuCount.allocs, 0, free, total)
