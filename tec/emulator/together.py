"""The host's threads of a launch, and work-groups that wait for each other.

Where one work-group polls what a later one writes, the later one must have begun. A chip holds as many at once as its units have room for, and promises no more.
Here work-groups begin on a few threads of the host; where none ends for a while and others have not begun, more threads begin
them, up to what the chip holds. Where all that it holds run on and none ends, they wait for one that cannot begin: on the chip
the launch would hang, and ends with an error here.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from .chips import Chip, places
from .context import CROWDED, CTX, PARAMS
from .errors import EmulationError

try:
    import resource
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from .launch import Thread

_LOOK = 0.02  # seconds between two looks at whether work-groups end
_PATIENCE = 32  # of a budget's parts, those in which one of a full chip's work-groups should have ended: 1


# Of a thread's stack an instruction of the kernel: LLVM's quick code keeps the values of all lanes there. Of 34,937 instructions with the checks of races 10 MB
# were enough, with those of undefined values 12 were not.
_FRAME_BYTES = 2048
_STACKS = (64 << 20, 512 << 20, 4 << 30)  # address space: what is not touched takes no memory
_LEAST_USUAL = 512 << 10  # of any system's threads but the first


def stack_bytes(instructions: int) -> int:
    """The stack of threads that run a kernel of so many instructions; 0 where threads' usual one is enough."""
    needed = instructions * _FRAME_BYTES
    return 0 if needed <= _usual_stack() else next((n for n in _STACKS if needed <= n), _STACKS[-1])


@cache
def _usual_stack() -> int:
    """Of a thread that nobody asks more for. Where the first thread's has no limit, glibc gives others 2 MB."""
    if resource is None:
        return _LEAST_USUAL
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return 2 << 20 if soft == resource.RLIM_INFINITY else max(soft, _LEAST_USUAL)


@contextmanager
def stacks_of(nbytes: int) -> Iterator[None]:
    """Threads that begin meanwhile, in whatever part of the process, have such stacks; 0 leaves all as it is."""
    before = threading.stack_size(nbytes) if nbytes else 0
    try:
        yield
    finally:
        if nbytes:
            threading.stack_size(before)


def groups_at_once(chip: Chip, vgprs: int, lds_bytes: int, waves: int, lanes: int) -> int:
    """Work-groups that the chip holds at once."""
    return places(chip, vgprs, lds_bytes, waves, lanes) * chip.machine.units


@dataclass(frozen=True, slots=True)
class Held:
    """A launch whose work-groups may wait for each other."""

    total: int  # work-groups
    most: int  # of them at once
    params: int  # the address of the launch's parameters
    budget: int  # instructions of a work-group
    kernel: str

    def word(self, name: str) -> int:
        return ctypes.c_int64.from_address(self.params + PARAMS[name]).value


def run_all(
    work: Callable[[Thread], int], threads: list[Thread], stop: np.ndarray, pool: ThreadPoolExecutor, own: bool
) -> None:
    """Run work-groups on every thread until none is left; `stop` is set by the first fault, and by Ctrl-C. own: the pool is for this launch alone."""
    try:
        _finish([pool.submit(work, t) for t in threads], stop)
    finally:
        if own:
            pool.shutdown()


def _finish(futures: list[Future[int]], stop: np.ndarray) -> None:
    try:
        while wait(futures, timeout=0.1).not_done:
            pass
    except BaseException:
        stop[0] = 1
        wait(futures)
        raise
    for future in futures:
        future.result()


def run_together(
    work: Callable[[Thread], int], threads: list[Thread], more: Callable[[int], list[Thread]], held: Held, stop: np.ndarray
) -> None:  # fmt: skip
    """As `run_all`, with further threads while no work-group ends; they are put to `threads`.

    Raises: EmulationError where all that the chip holds wait for one that has not begun.
    """
    pool = ThreadPoolExecutor(held.most, "together")
    stop[CROWDED // 4] = len(threads) > (os.cpu_count() or 1)
    futures = [pool.submit(work, t) for t in threads]
    stuck = False
    try:
        done, marks, look = -1, [0], _LOOK
        while wait(futures, timeout=look).not_done and not stop[0]:
            before, done = done, held.word("groups_done")
            if done != before or held.word("next") >= held.total:
                marks, look = _left(threads), _LOOK
                continue
            if len(threads) < held.most:
                added = more(min(len(threads), held.most - len(threads)))
                stop[CROWDED // 4] = 1
                threads += added
                futures += [pool.submit(work, t) for t in added]
                marks, look = _left(threads), min(2 * look, 1.0)  # long work-groups look the same: few threads for them
            elif all(mark - left > held.budget // _PATIENCE for mark, left in zip(marks, _left(threads))):
                stuck = True
                break
    finally:
        begun = held.word("next")
        if stuck:
            stop[0] = 1
        try:
            _finish(futures, stop)
        finally:
            pool.shutdown()
    spent = any(t.get("status") == 6 for t in threads) and held.most <= begun < held.total
    if spent or (stuck and all(t.get("status") in (0, 7) for t in threads)):
        raise EmulationError(
            f"a deadlock: {held.total:,} work-groups, of which the chip holds {held.most:,} at once; those that it holds poll memory, and "
            f"{'one' if spent else 'none'} has {'run' if spent else 'ended'} for {held.budget if spent else held.budget // _PATIENCE:,} "
            f"instructions, while {held.total - begun:,} have not begun",
            kernel=held.kernel,
            hint="launch no more work-groups than the chip holds, or take their numbers from a counter in memory in the order in which they begin; raise "
            "TEC_EMULATOR_BUDGET if the kernel is just long",
        )


def _left(threads: list[Thread]) -> list[int]:
    """What each thread's work-group has of its budget: a thread that waits to begin one has all of it, as the work-group before left it."""
    return [ctypes.c_int64.from_address(t.ctx + CTX["budget"]).value for t in threads]
