"""Frames have room: a walk that goes deep again and again asks the system for no memory each time."""

from __future__ import annotations

import sys
import threading

import pytest

from tec.errors import LoweringError
from tec.ir.frames import with_room
from tec.ir.visit import deep_recursion

resource = pytest.importorskip("resource")


def walk(n: int) -> int:
    return 0 if n == 0 else walk(n - 1) + 1


def faults(depth: int) -> int:
    """Page faults of 50 walks, after a first one."""
    walk(depth)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(50):
        assert walk(depth) == depth
    return int(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)


def in_a_thread(f, *args):
    """What a call in a thread of its own gives: this one's frames may have room."""
    out = []
    thread = threading.Thread(target=lambda: out.append(f(*args)))
    thread.start()
    thread.join()
    return out[0]


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="faults of a thread are Linux's")
@pytest.mark.parametrize("depth", [300, 900])
def test_walks_map_no_memory(depth: int) -> None:
    within = deep_recursion()(faults)
    assert in_a_thread(within, depth) < 50
    assert in_a_thread(with_room, faults, depth) < 50
    assert in_a_thread(with_room, with_room, faults, depth) < 50
    if sys.implementation.name == "cpython" and sys.version_info[:2] == (3, 11):
        assert in_a_thread(faults, depth) >= 50  # what this is for; else it may go


def test_room_is_there_again_after_an_error() -> None:
    def refused() -> None:
        raise ValueError("no")

    def twice() -> int:
        with pytest.raises(ValueError, match="no"):
            with_room(refused)
        return with_room(faults, 900)

    assert in_a_thread(twice) < 50


def test_a_program_that_is_nested_too_deeply() -> None:
    def endless(n: int) -> int:
        return endless(n + 1) + 1

    @deep_recursion()
    def lowered() -> int:
        """Its words."""
        return endless(0)

    limit = sys.getrecursionlimit()
    with pytest.raises(LoweringError, match="nested too deeply") as found:
        lowered()
    assert found.value.__cause__ is None and found.value.__suppress_context__
    assert sys.getrecursionlimit() == limit and lowered.__doc__ == "Its words."
