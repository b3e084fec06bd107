"""What the checks of a network's indices found in calls on a GPU, told by a later call.

A call that waited for its own checks would keep the host from queueing the next one; torch's own kernels report such an index late too. Each call copies the network's flags
into pinned memory, behind its kernels in the stream, and later calls look at what has arrived:

    late.tell()            raises for an earlier call
    late.queue(copy)       copies this call's
    synchronize()          waits for all calls, and raises

Kernels clamp an index that is outside or leave its element out, so that until then a result is wrong and no other memory is touched.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch

from tec.errors import TecError
from tec.runtime.devices.storage import ALIGN
from tec.runtime.networks.executor import failed_check
from tec.runtime.plans.plan import Output

_LOG = logging.getLogger("tec.torch")
_UNKNOWN = 2  # a flag that has not arrived: those that have are bools
_CHUNK = 1 << 16  # bytes of pinned memory that are asked for at once: each allocation takes the driver some 100 us


class _Slot:
    """Pinned memory for the flags of one call."""

    def __init__(self, memory: torch.Tensor):
        self.memory, self.place = memory, memory.data_ptr()
        self.bytes = (ctypes.c_char * memory.numel()).from_address(self.place)


class _Pool:
    """Slots by their size. They are kept for good, since a copy into one may still be under way when its network has gone."""

    def __init__(self) -> None:
        self._free: dict[int, list[_Slot]] = {}

    def take(self, nbytes: int) -> _Slot:
        free = self._free.setdefault(nbytes, [])
        if not free:
            with torch.inference_mode(False):
                count = max(1, _CHUNK // nbytes)
                chunk = torch.empty(
                    count * nbytes, dtype=torch.uint8, device="cpu", pin_memory=torch.cuda.is_available()
                )
            free += map(_Slot, chunk.split(nbytes))
        return free.pop()

    def give(self, slot: _Slot) -> None:
        self._free[slot.memory.numel()].append(slot)


_POOL = _Pool()
_LOCK = threading.Lock()
_OPEN: set[LateChecks] = set()  # with calls of which nobody has looked at the flags


class LateChecks:
    """The checks of one network: outputs of bools, of so many elements each."""

    def __init__(self, checks: Sequence[Output], counts: Sequence[int]):
        self._checks, self._counts = checks, counts
        ends = list(accumulate(-(-n // ALIGN) * ALIGN for n in counts))
        self.offsets = [0, *ends[:-1]]  # of their flags in the device's memory and the host's
        self._unknown = bytes([_UNKNOWN]) * ends[-1]
        self._waiting: deque[_Slot] = deque()
        self._captured: list[_Slot] = []  # a graph of torch's writes them whenever it is replayed

    def flags(self, device: torch.device) -> torch.Tensor:
        """Memory for the flags of calls on a GPU, which is right between them too."""
        with torch.inference_mode(False):
            return torch.ones(len(self._unknown), dtype=torch.uint8, device=device)

    def queue(self, copy: Callable[[int, int], None], is_captured: bool) -> None:
        """Copy a call's flags to the host by `copy(address, bytes)`, which waits for nothing. is_captured: into a graph of torch's."""
        with _LOCK:
            slot = _POOL.take(len(self._unknown))
            slot.bytes.raw = self._unknown
            (self._captured if is_captured else self._waiting).append(slot)
            _OPEN.add(self)
        copy(slot.place, len(self._unknown))

    def tell(self) -> None:
        """Raises ArgumentError where an earlier call's flags have arrived and say that an index was outside."""
        with _LOCK:
            for slot in self._captured:
                said = slot.bytes.raw
                if 0 in said:
                    slot.bytes.raw = self._unknown
                    self._raise(said)
            while self._waiting:
                said = self._waiting[0].bytes.raw
                if _UNKNOWN in said:
                    return
                _POOL.give(self._waiting.popleft())
                if 0 in said:
                    self._raise(said)
            if not self._captured:
                _OPEN.discard(self)

    def _raise(self, said: bytes) -> None:
        flags = zip(self._checks, self.offsets, self._counts)
        raise failed_check(next(o for o, first, count in flags if 0 in said[first : first + count]))


def synchronize() -> None:
    """Wait for the calls on GPUs that are queued, and raise ArgumentError where one was given an index that is outside. Other calls tell that of earlier ones of their
    own network as soon as it is known."""
    if torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)
    for late in list(_OPEN):
        late.tell()


@atexit.register
def _at_exit() -> None:
    while _OPEN:
        try:
            synchronize()
            return
        except TecError as error:
            _LOG.error("an earlier call: %s", error)
        except Exception:  # the driver has gone before
            return
