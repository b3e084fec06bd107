"""Groups of ranks: of the devices of this process (`local`), and of processes (`connect`)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from ..errors import ArgumentError, DeviceError
from ..runtime.devices.device import Device, DeviceLike, as_device
from . import nccl
from .communicator import Communicator
from .mailboxes import Box, Boxes
from .rings import RingTransport
from .sockets import Sockets
from .transport import Transport

T = TypeVar("T")
# That a rank waits for another by default: a network compiles meanwhile, and a hang is still told.
TIMEOUT_SECONDS = 60.0


class Group:
    """The ranks of one process: `group[r]` is a `Communicator`; `run` calls a function for each, in a thread of its own."""

    def __init__(self, ranks: Sequence[Communicator], together: Callable[[], Any] | None = None):
        self.ranks = tuple(ranks)
        self._together = together

    def __len__(self) -> int:
        return len(self.ranks)

    def __getitem__(self, rank: int) -> Communicator:
        return self.ranks[rank]

    def __iter__(self) -> Iterator[Communicator]:
        return iter(self.ranks)

    def run(self, work: Callable[[Communicator], T]) -> list[T]:
        """`work(comm)` of every rank, each in a thread; their results in the order of ranks. The first error of a rank ends the calls of the others and is raised."""
        results: list[Any] = [None] * len(self.ranks)
        errors: list[tuple[int, BaseException]] = []
        lock = threading.Lock()

        def one(k: int, comm: Communicator) -> None:
            try:
                results[k] = work(comm)
            except BaseException as error:
                with lock:
                    errors.append((comm.rank, error))
                for other in (comm, *self.ranks):  # a library's rank does not reach the others
                    other.abort(f"rank {comm.rank} raised {type(error).__name__}: {error}")

        threads = [threading.Thread(target=one, args=(k, c), name=f"rank {c.rank}") for k, c in enumerate(self.ranks)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if errors:
            raise errors[0][1]
        return results

    @contextmanager
    def together(self) -> Iterator[None]:
        """Calls of several ranks that one thread makes: they begin at the end of the block. On GPUs alone: ranks in memory wait for each other in each call, and take `run`."""
        if self._together is None:
            raise DeviceError("ranks of this group run in threads", hint="group.run(lambda comm: ...)")
        with self._together():
            yield

    def close(self) -> None:
        for comm in self.ranks:
            comm.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def local(devices: Sequence[DeviceLike], timeout_s: float = TIMEOUT_SECONDS) -> Group:
    """A group of this process with a rank for each device, all of one kind. CPUs and GPUs in software may stand in it several times. Raises ArgumentError for none or
    mixed kinds, DeviceError where the library of a GPU's collectives is missing.

    >>> with tec.collectives.local(["cpu", "cpu"]) as group:
    ...     sums = group.run(lambda comm: comm.all_reduce(np.full(2, comm.rank + 1.0)))
    >>> [x.numpy().tolist() for x in sums]
    [[3.0, 3.0], [3.0, 3.0]]
    """
    found = [as_device(d) for d in devices]
    if not found:
        raise ArgumentError("a group needs a device", hint='local(["cpu", "cpu"]), or a list of GPUs')
    if len({(d.kind, d.is_emulated) for d in found}) > 1:
        raise ArgumentError(
            "devices of several kinds: " + ", ".join(map(str, found)), hint="a group has GPUs of one kind, or CPUs"
        )
    size = len(found)
    if not _has_library(found[0]):
        boxes = Boxes(size, timeout_s)
        return Group([Communicator(RingTransport(Box(boxes, r)), d, timeout_s) for r, d in enumerate(found)])
    if len(set(found)) < size:
        raise ArgumentError(
            "a GPU stands twice in a group: " + ", ".join(map(str, found)),
            hint="each GPU once; CPUs and software GPUs may stand in a group several times",
        )
    lib = nccl.library(found[0].kind)
    transports = nccl.connected(found, range(size), size, lib.unique_id(), timeout_s)
    return Group([Communicator(t, d, timeout_s) for t, d in zip(transports, found)], lib.together)


def connect(
    rank: int,
    size: int,
    address: str,
    device: DeviceLike = None,
    timeout_s: float = TIMEOUT_SECONDS,
    key: str | None = None,
) -> Communicator:
    """This process as a rank of a group of `size` processes. Rank 0 listens at `address` ("127.0.0.1:29500"); the others come there, in any order.

    key: a word that all ranks share (TEC_COLLECTIVES_KEY by default); give one where others may reach the address. Raises DeviceError where the ranks have not met
    within `timeout_s` seconds.
    """
    if size < 1 or not 0 <= rank < size:
        raise ArgumentError(
            f"rank {rank} of {size}: ranks are 0 to size - 1",
            hint="the same size on all processes, and a rank of its own on each",
        )
    place = as_device(device)
    secret = (key if key is not None else os.environ.get("TEC_COLLECTIVES_KEY", "tec")).encode()
    if not _has_library(place):
        return Communicator(RingTransport(Sockets(rank, size, address, secret, timeout_s)), place, timeout_s)
    message = nccl.library(place.kind).unique_id() if rank == 0 else ""
    met = Sockets(rank, size, address, secret, timeout_s, message)
    try:
        transport: Transport = nccl.NcclTransport(place, rank, size, met.message, timeout_s)
    finally:
        met.close()
    return Communicator(transport, place, timeout_s)


def _has_library(device: Device) -> bool:
    """Whether a GPU's own library does the calls."""
    return device.driver is not None and not device.is_emulated
