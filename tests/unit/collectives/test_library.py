"""Transports over a library of collectives that a GPU's vendor has: how they end, over a recording fake of the library."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import tec
from tec.collectives import Communicator, Group, nccl
from tec.errors import DeviceError
from tec.runtime.devices.cuda_driver import CudaDriver
from tec.runtime.devices.device import Device, custom
from tests.unit.runtime.fake_gpu_library import FakeCuda

LIMIT_SECONDS = 0.4


class Library:
    """What of libnccl the transport takes. A communicator is given back when `graphs` says that none holds it."""

    def __init__(self) -> None:
        self.graphs = threading.Event()
        self.ended: list[str] = []
        self.functions: dict[str, Any] = {
            "ncclCommAbort": lambda comm: self._end("ncclCommAbort"),
            "ncclCommDestroy": lambda comm: self._end("ncclCommDestroy"),
            "ncclAllReduce": lambda *args: 0,
        }

    def _end(self, name: str) -> int:
        self.ended.append(name)
        self.graphs.wait(60)
        return 0

    def call(self, name: str, *args: Any) -> None:
        pass


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Library()
    monkeypatch.setattr(nccl, "library", lambda kind: found)
    monkeypatch.setattr(nccl, "_END_SECONDS", 0.05)
    yield found
    found.graphs.set()


def _ranks(n: int) -> list[Communicator]:
    driver = CudaDriver(FakeCuda(devices=n))
    devices: list[Device] = [custom(driver, "cuda", r) for r in range(n)]
    transports = nccl.connected(devices, range(n), n, "00" * 128, LIMIT_SECONDS)
    return [Communicator(t, d, LIMIT_SECONDS) for t, d in zip(transports, devices)]


@pytest.mark.parametrize("how", ["close", "abort"])
def test_an_end_does_not_wait_for_graphs_that_hold_calls(library: Library, how: str) -> None:
    (comm,) = _ranks(1)
    begin = time.monotonic()
    getattr(comm, how)()
    assert time.monotonic() - begin < 10
    assert library.ended == [{"close": "ncclCommDestroy", "abort": "ncclCommAbort"}[how]]


def test_a_wait_that_takes_too_long_ends_the_calls(library: Library) -> None:
    (comm,) = _ranks(1)
    with pytest.raises(DeviceError, match=r"did not come within 0\.4 s"), comm.limited():
        end = time.monotonic() + 30
        while not library.ended and time.monotonic() < end:  # as a stream with a call that nobody answers
            time.sleep(0.01)
    assert library.ended == ["ncclCommAbort"]
    library.graphs.set()
    (other,) = _ranks(1)
    with other.limited():
        pass
    assert library.ended == ["ncclCommAbort"]


def test_what_a_rank_raises_ends_the_calls_of_all(library: Library) -> None:
    """The library's ranks do not reach each other."""
    group = Group(_ranks(2))

    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            raise ValueError("no more")
        comm.all_reduce(tec.nd.array(np.ones(4, "float32"), comm.device))
        with comm.limited():
            end = time.monotonic() + 30
            while len(library.ended) < 2 and time.monotonic() < end:
                time.sleep(0.01)

    with pytest.raises(ValueError, match="no more"):
        group.run(work)
    assert library.ended == ["ncclCommAbort"] * 2
