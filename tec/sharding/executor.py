"""What runs the ranks of a sharded network: all of them in one process, a thread each, or one of several processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..collectives import Communicator, Group, connect, local
from ..errors import ArgumentError
from ..runtime.arrays.ndarray import NDArray
from ..runtime.devices.device import Device, as_device
from ..runtime.networks.executor import Executor

if TYPE_CHECKING:
    from .network import ShardedNetwork

TIMEOUT_SECONDS = 60.0  # that a rank waits for another, as of `tec.collectives.local`


class RankExecutor:
    """One rank: its executor, and the communicators of its mesh axes. `run(inputs)` takes whole arrays and gives the rank's parts, on its device."""

    def __init__(
        self,
        net: ShardedNetwork,
        rank: int,
        device: Device,
        communicators: Mapping[str, Communicator],
        capacity: int | None,
    ):
        self.net, self.rank, self.communicators = net, rank, dict(communicators)
        self.executor: Executor = net.network(rank).executor(device, capacity=capacity, communicators=communicators)

    @classmethod
    def connected(
        cls,
        net: ShardedNetwork,
        rank: int,
        address: str,
        device: Any,
        capacity: int | None,
        timeout_s: float,
        key: str | None,
    ) -> RankExecutor:
        """With communicators to other processes: each line of the mesh meets at a port of its own."""
        mesh = net.mesh
        place = as_device(device) if device is not None else net.network(rank)._device(None)
        if not 0 <= rank < mesh.size:
            raise ArgumentError(f"rank {rank} of {mesh.size}: ranks are 0 to size - 1")
        host, _, port = address.rpartition(":")
        if not port.isdigit():
            raise ArgumentError(f"not an address: {address!r}", hint='"host:port", such as "127.0.0.1:29500"')
        made: dict[str, Communicator] = {}
        try:
            for k, axis in enumerate(mesh.axes):
                line = mesh.line(rank, axis)
                own = f"{host}:{int(port) + k * mesh.size + line[0]}"
                made[axis] = connect(line.index(rank), len(line), own, place, timeout_s, key)
            return cls(net, rank, place, made, capacity)
        except BaseException:
            for comm in made.values():
                comm.close()
            raise

    def parts(self, inputs: Any) -> Any:
        """The rank's parts of whole arrays."""
        return _parts(self.net, inputs, self.rank)

    def run(self, inputs: Any) -> list[NDArray]:
        """The rank's parts of the outputs, for whole inputs. DeviceError where another rank does not come within the communicators' limit."""
        made: list[NDArray] = self._checked(lambda: self.executor.run(self.parts(inputs)))
        return made

    def _checked(self, work: Callable[[], Any]) -> Any:
        """What fails on one rank ends the calls of the others."""
        try:
            made = work()
        except BaseException as error:
            self.abort(f"rank {self.rank} raised {type(error).__name__}: {error}")
            raise
        return made

    def abort(self, why: str) -> None:
        """End the rank's calls that are under way."""
        for comm in self.communicators.values():
            comm.abort(why)

    def close(self) -> None:
        self.executor.drop_graphs()  # a communicator is given back when no graph has calls of it
        for comm in self.communicators.values():
            comm.close()

    def __enter__(self) -> RankExecutor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class ShardedExecutor:
    """All ranks of a network in this process. `run(inputs)` takes whole arrays and gives whole NumPy arrays; `run_parts` gives what lies on the devices. States
    stay on the devices, each rank's part. After an error of a collective it is of no more use."""

    def __init__(self, net: ShardedNetwork, devices: Sequence[Device], capacity: int | None, timeout_s: float):
        self.net, self.devices = net, list(devices)
        self._groups: list[Group] = []
        comms: list[dict[str, Communicator]] = [{} for _ in devices]
        try:
            for axis, size in net.mesh.axes.items():
                for rank in range(net.mesh.size):
                    line = net.mesh.line(rank, axis)
                    if size == 1 or line[0] != rank:
                        continue
                    group = local([self.devices[r] for r in line], timeout_s)
                    self._groups.append(group)
                    for r, comm in zip(line, group):
                        comms[r][axis] = comm
            self.ranks = [RankExecutor(net, r, d, comms[r], capacity) for r, d in enumerate(self.devices)]
        except BaseException:
            self.close()
            raise
        self._pool = ThreadPoolExecutor(len(self.ranks), "tec-rank")

    def each(self, work: Callable[[RankExecutor], Any]) -> list[Any]:
        """`work` of every rank, side by side; results in the order of ranks. The first error is raised, and ends the calls of the others."""
        futures = [self._pool.submit(self._one, r, work) for r in self.ranks]
        errors = [e for f in futures if (e := f.exception()) is not None]
        if errors:
            # Others say that the group has failed: the one that says why comes first.
            raise next((e for e in errors if "the group has failed" not in str(e)), errors[0])
        return [f.result() for f in futures]

    def _one(self, rank: RankExecutor, work: Callable[[RankExecutor], Any]) -> Any:
        """`work` of a rank. What it raises ends the calls of all: a library's communicator does not reach the others."""
        try:
            return rank._checked(lambda: work(rank))
        except BaseException as error:
            for other in self.ranks:
                other.abort(f"rank {rank.rank} raised {type(error).__name__}: {error}")
            raise

    def run(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """The outputs for `inputs`, whole arrays by name or in order; states go on from the run before and are no outputs."""
        kept = {s.output for s in self.net.network().plan.states}
        return self._joined(self.run_parts(inputs), [o["name"] for o in self.net.outputs if o["name"] not in kept])

    def run_stateless(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """`run` with all inputs, states among them, and all outputs."""
        parts = self._given(inputs)
        made = self.each(lambda r: [a.numpy() for a in r.executor.run_stateless(parts[r.rank])])
        return self._joined(made, [o["name"] for o in self.net.outputs])

    def run_parts(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[list[NDArray]]:
        """Of each rank its parts of the outputs, on its device."""
        parts = self._given(inputs)
        return self.each(lambda r: r.executor.run(parts[r.rank]))

    def _given(self, inputs: Any) -> list[Any]:
        return [_parts(self.net, inputs, r.rank) for r in self.ranks]

    def _joined(self, made: Sequence[Sequence[Any]], names: Sequence[str]) -> list[np.ndarray[Any, Any]]:
        return [
            self.net.ends.joined([_numpy(m[k]) for m in made], f"output {name}", self.net.mesh)
            for k, name in enumerate(names)
        ]

    def reset(self) -> None:
        """The states as before the first run."""
        for r in self.ranks:
            r.executor.reset()

    def close(self) -> None:
        for rank in getattr(self, "ranks", ()):
            rank.executor.drop_graphs()
        for group in self._groups:
            group.close()
        pool = getattr(self, "_pool", None)
        if pool is not None:
            pool.shutdown(wait=False)

    def __enter__(self) -> ShardedExecutor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _numpy(a: Any) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = a.numpy() if isinstance(a, NDArray) else a
    return found


def _parts(net: ShardedNetwork, inputs: Any, rank: int) -> Any:
    names = [i["name"] for i in net.network().inputs]
    if isinstance(inputs, Mapping):
        return {n: net.ends.part(x, n, net.mesh, rank) for n, x in inputs.items()}
    if not isinstance(inputs, Sequence):
        raise ArgumentError(f"inputs are {type(inputs).__name__}", hint="a mapping by name, or a sequence in order")
    return (
        [net.ends.part(x, n, net.mesh, rank) for n, x in zip(names, inputs)]
        if len(inputs) == len(names)
        else list(inputs)
    )
