"""The memory that a model takes: how much there is, and pages of mapped files that are not needed any more."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from typing import Any

import numpy as np


def available_bytes() -> int | None:
    """Memory that a process may take without swapping; None where the system does not say."""
    try:
        with open("/proc/meminfo") as f:
            facts = dict(line.split(":", 1) for line in f)
        free = int(facts["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError, IndexError):
        return None
    limit = _group_limit()
    return free if limit is None else min(free, limit)


def _group_limit() -> int | None:
    """What the process's control group leaves; None without a limit."""
    try:
        with open("/sys/fs/cgroup/memory.max") as f:
            most = f.read().strip()
        with open("/sys/fs/cgroup/memory.current") as f:
            used = int(f.read())
        return max(0, int(most) - used) if most != "max" else None
    except (OSError, ValueError):
        return None


def drop_pages(arrays: Iterable[Any]) -> None:
    """Pages of mapped files that these arrays view, whole ones, are given back; who reads them again gets them from the file."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    for a in arrays:
        mapping = _mapping(a)
        if mapping is None or not a.nbytes or not a.flags.c_contiguous:
            continue
        begin = a.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
        first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (begin + a.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if first < last:
            mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


def _mapping(a: Any) -> mmap.mmap | None:
    """The mapped file that an array views, if it does."""
    while isinstance(a, np.ndarray):
        a = a.base
    if isinstance(a, memoryview):
        a = a.obj
    return a if isinstance(a, mmap.mmap) else None
