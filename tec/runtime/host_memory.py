"""The host's memory: how much there is, and what live CPU arrays hold of it."""

from __future__ import annotations

import os

from ..locks import fork_safe_lock
from .allocator import MemoryStats


def host_memory() -> tuple[int, int]:
    """(available, total) bytes of the machine's memory; zeros where the system does not say."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
    except (AttributeError, ValueError, OSError):
        return 0, 0


class CpuCount:
    """Bytes and blocks that live CPU arrays hold."""

    lock = fork_safe_lock()  # a garbage collection inside may free another array
    used = peak = blocks = allocs = 0

    @classmethod
    def add(cls, nbytes: int, blocks: int) -> None:
        with cls.lock:
            cls.used += nbytes
            cls.blocks += blocks
            if blocks > 0:
                cls.allocs += 1
                cls.peak = max(cls.peak, cls.used)


def cpu_memory() -> MemoryStats:
    """What arrays hold of the host's memory."""
    free, total = host_memory()
    return MemoryStats(CpuCount.used, 0, CpuCount.peak, CpuCount.blocks, CpuCount.allocs, 0, free, total)
