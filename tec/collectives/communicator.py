"""A rank's face of a group: checks of arguments, results, and the calls themselves.

Semantics are those of NCCL and MPI: all ranks of a group make the same calls in the same order, with equal types and sizes.
Source: the NCCL user guide, "Collective Operations"; MPI 4.1, chapter 6.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..runtime.arrays.ndarray import NDArray, empty, from_dlpack, from_numpy
from ..runtime.devices.device import Device
from .transport import REDUCTIONS, Call, Doing, Transport

_MOST_READY = 1024  # layouts that are remembered: more than a network's, and some 300 KB at most


class Communicator:
    """One rank of a group of `size` ranks, on `device`.

    Arrays are `tec.nd` arrays on the device, NumPy arrays where the device is the CPU, or any that speak DLPack there. They are compact. On GPUs calls go to the current
    stream and return at once; `sync` waits, with a time limit, and raises DeviceError where a rank does not come.

    >>> with tec.collectives.local(["cpu"] * 3) as group:
    ...     parts = group.run(lambda comm: comm.all_gather(np.array([comm.rank])).numpy().ravel().tolist())
    >>> parts[0]
    [0, 1, 2]
    """

    def __init__(self, transport: Transport, device: Device, timeout_s: float):
        self.device, self.timeout_s = device, timeout_s
        self._transport: Transport | None = transport
        self.rank, self.size = transport.rank, transport.size
        self._ready: dict[tuple[str, str, Any, Any], Doing] = {}

    def __repr__(self) -> str:
        return f"<Communicator rank {self.rank} of {self.size} on {self.device}>"

    # ---- calls

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None) -> NDArray:
        """The elementwise sum (prod, max, min, avg) of all ranks' `x`, of any shape; all ranks get the same bits. `out` may be `x`."""
        if (run := self._known("all_reduce", op, x, out)) is None:
            x = self._summed(x, "all_reduce")
            out = self._out(out, x.shape, x.dtype, "all_reduce")
            run = self._keep(op, x, out, Call("all_reduce", x.dtype, x.size, _reduction(op)))
        run(x, out)
        return out  # type: ignore[no-any-return]

    def reduce_scatter(self, x: Any, op: str = "sum", out: Any = None) -> NDArray:
        """This rank's part of the reduction of all ranks' `x` [size * n, ...]: an array [n, ...]. Raises ArgumentError where the first extent is no multiple of the number of ranks."""
        if (run := self._known("reduce_scatter", op, x, out)) is None:
            x = self._summed(x, "reduce_scatter")
            out = self._out(out, self._part(x, "reduce_scatter"), x.dtype, "reduce_scatter")
            run = self._keep(op, x, out, Call("reduce_scatter", x.dtype, out.size, _reduction(op)))
        run(x, out)
        return out  # type: ignore[no-any-return]

    def all_gather(self, x: Any, out: Any = None) -> NDArray:
        """All ranks' `x` [n, ...] one behind the other: [size * n, ...]. A scalar becomes a row of them."""
        if (run := self._known("all_gather", "", x, out)) is None:
            x = self._array(x, "all_gather")
            shape = (self.size * x.shape[0], *x.shape[1:]) if x.shape else (self.size,)
            out = self._out(out, shape, x.dtype, "all_gather")
            run = self._keep("", x, out, Call("all_gather", x.dtype, x.size))
        run(x, out)
        return out  # type: ignore[no-any-return]

    def all_to_all(self, x: Any, out: Any = None) -> NDArray:
        """Part r of `x` [size * n, ...] goes to rank r; the result has the parts that all ranks sent here, in the order of ranks."""
        if (run := self._known("all_to_all", "", x, out)) is None:
            x = self._array(x, "all_to_all")
            self._part(x, "all_to_all")
            out = self._out(out, x.shape, x.dtype, "all_to_all")
            run = self._keep("", x, out, Call("all_to_all", x.dtype, x.size // self.size))
        if x.size and out.address == x.address:
            raise ArgumentError(
                "all_to_all cannot write over its operand", hint="leave `out` away, or give another array"
            )
        run(x, out)
        return out  # type: ignore[no-any-return]

    def broadcast(self, x: Any, root: int = 0) -> NDArray:
        """`x` of rank `root` into every rank's `x`, in place."""
        a = self._array(x, "broadcast", writes=self.rank != root)
        self._peer(root, "root", may_be_own=True)
        self._live.broadcast(Call("broadcast", a.dtype, a.size, root=root), a)
        return a

    def send(self, x: Any, to: int) -> None:
        """`x` to rank `to`, which must `receive` it."""
        a = self._array(x, "send")
        self._live.send(Call("send", a.dtype, a.size), a, self._peer(to, "to"))

    def receive(self, out: Any, source: int) -> NDArray:
        """What rank `source` sends, into `out`."""
        a = self._array(out, "receive", writes=True)
        self._live.receive(Call("send", a.dtype, a.size), a, self._peer(source, "source"))
        return a

    def together(self) -> AbstractContextManager[None]:
        """Within a block, calls that do not read what another of them writes: where the library can, they begin together at the block's end, as one launch
        (`ncclGroupStart`). All ranks make the same calls in such a block."""
        return self._live.together()

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        one = empty((1,), "int32", self.device)
        one.copyfrom(np.ones(1, "int32"))
        self.all_reduce(one, out=one)
        self.sync()

    def sync(self, timeout_s: float | None = None) -> None:
        """Wait for all calls that were made. Raises DeviceError after `timeout_s` seconds (the communicator's limit by default); the communicator is then of no more use."""
        self._live.finish(self.timeout_s if timeout_s is None else timeout_s)

    def limited(self) -> AbstractContextManager[None]:
        """A block that waits for the device, such as for a run with collectives in it. DeviceError where it takes longer than the communicator's limit, since a rank does not
        come; the communicator is then of no more use."""
        return self._live.limited()

    # ---- its end

    def abort(self, why: str = "it was aborted") -> None:
        """End all calls that are under way, on this rank and, where they can be reached, on the others."""
        if self._transport is not None:
            self._transport.abort(why)

    def close(self) -> None:
        """Give the communicator back. Further calls raise DeviceError."""
        held, self._transport = self._transport, None
        self._ready.clear()
        if held is not None:
            held.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            self.abort(f"rank {self.rank} raised {type(error).__name__}: {error}")
        self.close()

    # ---- arguments

    def _known(self, name: str, op: str, x: Any, out: Any) -> Doing | None:
        """What calls of such layouts do; None for a first one, what is no NDArray, or a reduction that is no name."""
        try:
            return self._ready[name, op, x.layout, out.layout]
        except (KeyError, AttributeError, TypeError):
            return None

    def _keep(self, op: str, x: NDArray, out: NDArray, call: Call) -> Doing:
        """What calls of such layouts do from now on: a layout says all that the checks ask."""
        run = self._live.ready(call)
        if len(self._ready) >= _MOST_READY:
            self._ready.clear()
        self._ready[call.name, op, x.layout, out.layout] = run
        return run

    @property
    def _live(self) -> Transport:
        if self._transport is None:
            raise DeviceError(
                f"rank {self.rank} of {self.size} is closed",
                hint="make a new group: one that was closed or has failed takes no calls",
            )
        return self._transport

    def _array(self, x: Any, what: str, writes: bool = False) -> NDArray:
        a = _as_array(x)
        if a is None:
            raise ArgumentError(
                f"{what} takes an array, not {type(x).__name__}", hint="an array of tec.nd or NumPy, or one with DLPack"
            )
        if a.device is not self.device:
            raise ArgumentError(
                f"{what}: the array is on {a.device}, this rank on {self.device}", hint=f"x.to({self.device})"
            )
        if not a.is_contiguous:
            raise ArgumentError(
                f"{what} takes a compact array, not strides {a.strides} of {a.shape}",
                hint="copy it first: tec.nd.array(x, device)",
            )
        if writes and not a.writable:
            raise ArgumentError(
                f"{what} cannot write to this array: it is read-only", hint="a copy of it, or another out="
            )
        return a

    def _summed(self, x: Any, what: str) -> NDArray:
        a = self._array(x, what)
        if a.dtype == "bool" or a.dtype.startswith("float8"):
            raise ArgumentError(f"{what} does not reduce {a.dtype}", hint='x.astype("float16" or "int32") first')
        return a

    def _out(self, out: Any, shape: tuple[int, ...], dtype: str, what: str) -> NDArray:
        if out is None:
            return empty(shape, dtype, self.device)
        a = self._array(out, what, writes=True)
        if (a.shape, a.dtype) != (shape, dtype):
            raise ArgumentError(
                f"{what}: the result is {dtype} {shape}, `out` is {a.dtype} {a.shape}",
                hint=f"tec.nd.empty({tuple(shape)}, {dtype!r}, comm.device), or leave out= out",
            )
        return a

    def _part(self, a: NDArray, what: str) -> tuple[int, ...]:
        if not a.shape or a.shape[0] % self.size:
            rows = a.shape[0] if a.shape else "no"
            raise ArgumentError(
                f"{what}: {rows} rows cannot be divided among {self.size} ranks",
                hint="pad the first dimension to a multiple",
            )
        return (a.shape[0] // self.size, *a.shape[1:])

    def _peer(self, rank: int, what: str, may_be_own: bool = False) -> int:
        if not isinstance(rank, int) or not 0 <= rank < self.size:
            raise ArgumentError(
                f"{what}={rank!r}: ranks are 0 to {self.size - 1}",
                hint="comm.rank is this one, comm.size says how many there are",
            )
        if rank == self.rank and not may_be_own:
            raise ArgumentError(
                f"{what}={rank}: a rank does not send to itself",
                hint="another rank; a copy stays on the device: x.copyto(y)",
            )
        return rank


def _as_array(x: Any) -> NDArray | None:
    if isinstance(x, NDArray):
        return x
    if isinstance(x, np.ndarray):
        return from_numpy(x)
    return from_dlpack(x) if hasattr(x, "__dlpack__") else None


def _reduction(op: str) -> str:
    if op not in REDUCTIONS:
        raise ArgumentError(f"no reduction {op!r}", hint="there are: " + ", ".join(REDUCTIONS))
    return op
