"""The host's memory: how much there is, and what live CPU arrays hold of it."""

from __future__ import annotations

import os
from collections import deque
from itertools import accumulate
from typing import Any

from ...locks import fork_safe_lock
from .allocator import MemoryStats

MOST_NOTES = 512  # that are kept unadded
_KEPT_PART = 32  # of the host's memory: a process that computes has many times as much in use
_FEWEST = 8  # blocks that what is kept has room for: larger ones are worth their faults


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


class KeptBlocks:
    """Blocks of the host that are kept for the next of their size, which a loop asks for again and again. Memory that the system gives anew costs a fault for each page, which
    takes longer than a kernel needs to fill it. `nbytes` is what they hold together, but for what threads lose of each other's additions; it begins anew with each emptying."""

    blocks: dict[int, list[tuple[Any, int]]] = {}
    nbytes = 0
    most: int | None = None  # that they may hold, once asked for

    @classmethod
    def take(cls, nbytes: int) -> tuple[Any, int] | None:
        """A kept block of so many whole pages."""
        try:
            block = cls.blocks[nbytes].pop()
        except (KeyError, IndexError):
            return None
        cls.nbytes -= nbytes
        return block

    @classmethod
    def keep(cls, nbytes: int, block: tuple[Any, int]) -> None:
        """Keep a block, if it is a small part of what may be kept; where they become too many, all older ones go."""
        if cls.most is None:
            cls.most = host_memory()[1] // _KEPT_PART
        if nbytes * _FEWEST > cls.most:
            return
        if cls.nbytes + nbytes > cls.most:
            cls.empty()
        cls.nbytes += nbytes
        cls.blocks.setdefault(nbytes, []).append(block)

    @classmethod
    def empty(cls) -> None:
        """Give all back."""
        cls.blocks, cls.nbytes = {}, 0


def cpu_memory() -> MemoryStats:
    """What arrays hold of the host's memory."""
    CpuCount.settle()
    free, total = host_memory()
    return MemoryStats(
        CpuCount.used, KeptBlocks.nbytes, CpuCount.peak, CpuCount.blocks, CpuCount.allocs, 0, free, total
    )
