"""Collectives over messages between ranks: rings, for memory of the host.

    reduce_scatter    size - 1 steps round the ring; a part is added to on its way, and ends with the rank whose part it is
    all_gather        size - 1 steps; each rank passes on what came
    all_reduce        both: each part is reduced by one rank, so all ranks get the same bits

Each message begins with what its sender is calling; a rank that calls something else says so (`DeviceError`), and so do all others. Source: the ring algorithm as in
Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009). Sums of float16 and bfloat16 are rounded in each step, as NCCL's are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..errors import DeviceError
from ..runtime.arrays.ndarray import NDArray
from .transport import Call, Doing

Bits = np.ndarray[Any, Any]


class Channel(Protocol):
    """Messages between this rank and the others, in order. `put` never waits for the other side. `take` raises DeviceError where nothing comes in time, or its sender has ended."""

    rank: int
    size: int

    def put(self, to: int, head: bytes, data: bytes) -> None: ...
    def take(self, source: int, doing: str) -> tuple[bytes, bytes]: ...
    def fail(self, why: str) -> None: ...
    def close(self) -> None: ...


class RingTransport:
    """`Transport` over a channel, for a CPU's arrays and, through copies, those of GPUs in software."""

    def __init__(self, channel: Channel):
        self.channel, self.rank, self.size = channel, channel.rank, channel.size
        self._calls = 0
        self._sent: dict[int, int] = {}  # messages of `send`, by the other rank
        self._came: dict[int, int] = {}

    # ---- calls

    def together(self) -> AbstractContextManager[None]:
        """Calls are made one behind the other all the same."""
        return nullcontext()

    def ready(self, call: Call) -> Doing:
        return partial(getattr(self, call.name), call)

    def all_reduce(self, call: Call, x: NDArray, out: NDArray) -> None:
        number = self._begin()
        values = _host(x).reshape(-1).copy()
        parts = np.array_split(values, self.size)  # views: what is reduced in them is in `values`
        self._reduce(number, call, parts)
        self._gather(number, call, parts)
        out.copyfrom(_mean(values, call, self.size).reshape(x.shape))

    def reduce_scatter(self, call: Call, x: NDArray, out: NDArray) -> None:
        number = self._begin()
        parts = np.split(_host(x).reshape(-1).copy(), self.size)
        self._reduce(number, call, parts)
        out.copyfrom(_mean(parts[self.rank], call, self.size).reshape(out.shape))

    def all_gather(self, call: Call, x: NDArray, out: NDArray) -> None:
        number = self._begin()
        own = _host(x).reshape(-1)
        values = np.empty(self.size * own.size, own.dtype)
        parts = np.split(values, self.size)
        parts[self.rank][...] = own
        self._gather(number, call, parts)
        out.copyfrom(values.reshape(out.shape))

    def all_to_all(self, call: Call, x: NDArray, out: NDArray) -> None:
        number = self._begin()
        parts = np.split(_host(x).reshape(-1), self.size)
        values = np.empty(x.size, parts[0].dtype)
        into = np.split(values, self.size)
        into[self.rank][...] = parts[self.rank]
        for step in range(1, self.size):
            to = (self.rank + step) % self.size
            self._put(number, call, to, parts[to])
        for step in range(1, self.size):
            source = (self.rank - step) % self.size
            into[source][...] = self._take(number, call, source, into[source])
        out.copyfrom(values.reshape(out.shape))

    def broadcast(self, call: Call, x: NDArray) -> None:
        number = self._begin()
        values = _host(x).reshape(-1)
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        if self.rank != call.root:
            values = self._take(number, call, before, values)
        if after != call.root:
            self._put(number, call, after, values)
        if self.rank != call.root:
            x.copyfrom(values.reshape(x.shape))

    def send(self, call: Call, x: NDArray, to: int) -> None:
        number = self._sent[to] = self._sent.get(to, 0) + 1
        self._put(number, call, to, _host(x).reshape(-1))

    def receive(self, call: Call, out: NDArray, source: int) -> None:
        number = self._came[source] = self._came.get(source, 0) + 1
        out.copyfrom(self._take(number, call, source, _host(out).reshape(-1)).reshape(out.shape))

    def finish(self, timeout_s: float) -> None:
        """Nothing is under way when a call has returned."""

    def limited(self) -> AbstractContextManager[None]:
        """What waits for the device waits for no other rank."""
        return nullcontext()

    def abort(self, why: str) -> None:
        self.channel.fail(why)

    def close(self) -> None:
        self.channel.close()

    # ---- rings

    def _reduce(self, number: int, call: Call, parts: list[Bits]) -> None:
        """Part p goes round from rank p + 1 to rank p, and every rank adds its own."""
        add = _ADDED[call.reduction]
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for step in range(1, self.size):
            self._put(number, call, after, parts[(self.rank - step) % self.size])
            mine = parts[(self.rank - step - 1) % self.size]
            came = self._take(number, call, before, mine)
            mine[...] = add(came, mine, call.dtype)

    def _gather(self, number: int, call: Call, parts: list[Bits]) -> None:
        """Part p goes round from rank p."""
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for step in range(self.size - 1):
            self._put(number, call, after, parts[(self.rank - step) % self.size])
            into = parts[(self.rank - step - 1) % self.size]
            into[...] = self._take(number, call, before, into)

    # ---- messages

    def _begin(self) -> int:
        self._calls += 1
        return self._calls

    def _put(self, number: int, call: Call, to: int, values: Bits) -> None:
        self.channel.put(to, f"{number}|{call}".encode(), np.ascontiguousarray(values).tobytes())

    def _take(self, number: int, call: Call, source: int, like: Bits) -> Bits:
        head, data = self.channel.take(source, str(call))
        theirs = head.decode()
        if theirs != f"{number}|{call}":
            their_number, _, their_call = theirs.partition("|")
            why = f"rank {self.rank} calls {call} (call {number}), and rank {source} {their_call} (call {their_number})"
            self.channel.fail(why)
            raise DeviceError(
                f"ranks do not make the same calls: {why}",
                hint="all ranks of a group make the same calls in the same order, with equal types and sizes",
            )
        return np.frombuffer(data, like.dtype)


def _host(x: NDArray) -> Bits:
    """The elements on the host; what NumPy has no type for as its bits."""
    return x.handed_over()


def _mean(values: Bits, call: Call, size: int) -> Bits:
    if call.reduction != "avg":
        return values
    if call.dtype == "bfloat16":
        mean: Bits = _narrow((_wide(values) / np.float32(size)).astype(np.float32)).view(values.dtype)
        return mean
    if np.issubdtype(values.dtype, np.integer):
        return np.asarray(values // size, values.dtype)
    return np.asarray(values / values.dtype.type(size), values.dtype)


def _wide(bits: Bits) -> Bits:
    """bfloat16 bits as float32."""
    return (bits.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _narrow(values: Bits) -> Bits:
    """float32 as bfloat16 bits, to nearest even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    found: Bits = np.where(np.isnan(values), np.uint16(0x7FC0), rounded)
    return found


def _by(function: np.ufunc) -> Callable[[Bits, Bits, str], Bits]:
    def added(a: Bits, b: Bits, dtype: str) -> Bits:
        if dtype == "bfloat16":
            rounded: Bits = _narrow(np.asarray(function(_wide(a), _wide(b)), np.float32)).view(a.dtype)
            return rounded
        with np.errstate(over="ignore"):
            out: Bits = np.asarray(function(a, b), a.dtype)
        return out

    return added


_ADDED = {
    "sum": _by(np.add),
    "avg": _by(np.add),
    "prod": _by(np.multiply),
    "max": _by(np.maximum),
    "min": _by(np.minimum),
}
