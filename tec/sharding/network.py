"""A network over the ranks of a mesh: `shard` splits and compiles it, `ShardedNetwork` runs it.

graph, mesh, rules -> a graph a rank (`splitter`, once for each mesh axis) -> networks that share one module -> executors with communicators
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..choices.store import database, records
from ..errors import ArgumentError, InternalError
from ..graph import Graph
from ..graph.compiler import as_graph, compile_graphs
from ..graph.precision import check_names, precision_of
from ..graph.progress import default_progress
from ..ops.registry import TensorType
from ..runtime.devices import device as devices
from ..runtime.devices.device import Device, as_device
from ..runtime.networks.network import Network
from ..runtime.networks.network import load as load_network
from ..target import Target, as_target
from .bursts import in_bursts
from .executor import TIMEOUT_SECONDS, RankExecutor, ShardedExecutor
from .mesh import Mesh, Placement, Shard
from .parts import Ends, described
from .rules import Rules
from .splitter import Line, Notes, broken_rule, split, why_not
from .step_time import StepTime, step_time


def shard(
    model: Any,
    mesh: Mesh,
    rules: Mapping[str, Any],
    target: str | Target | None = None,
    shapes: Mapping[str, Any] | None = None,
    dtype: str | Mapping[str, str] | None = None,
    freeze: Mapping[str, Any] | None = None,
    state: Mapping[str, str] | bool = True,
    args: Any = None,
    tuned: bool | str | os.PathLike[str] = True,
    progress: Any = None,
) -> ShardedNetwork:
    """Compile a whole network for the ranks of a mesh.

    mesh: a `Mesh`. rules: {pattern of names: PartitionSpec, or {mesh axis: Shard(dim)}} for inputs, weights, outputs and values of nodes (see
    `tec.sharding.rules`); the rest follows. model, target, shapes, dtype, freeze, state, args, tuned, progress: as of `tec.compile`. A size that is open may be
    split too: it is then a rank's.

    Raises ArgumentError for a rule that cannot be followed, which names the value and the mesh axis; else what `tec.compile` raises.
    """
    if not isinstance(mesh, Mesh):
        raise ArgumentError(f"a mesh is needed, not {type(mesh).__name__}", hint='tec.Mesh({"tensor": 2})')
    tgt = as_target(target)
    held = Rules(rules, mesh)
    precision = precision_of(dtype)
    graph = as_graph(model, shapes, freeze, state, args)
    check_names(precision, graph)
    if state is not True:
        graph = copy.copy(graph)  # it may be the caller's
        graph.state = dict(state) if isinstance(state, Mapping) else {}
    graphs, notes, ends = rank_graphs(graph, mesh, held)
    with records.using(database.tuned(tuned, tgt)):
        networks = compile_graphs(
            graphs, tgt, precision.text or None, progress or default_progress(), state=graph.state
        )
    _check_calls(networks)
    return ShardedNetwork(mesh, networks, ends, notes)


def rank_graphs(graph: Graph, mesh: Mesh, rules: Rules) -> tuple[list[Graph], dict[str, Notes], Ends]:
    """A graph for each rank, what is told of each mesh axis, and how inputs, outputs and weights lie along the axes."""
    graphs, notes, ends = list[Graph](), dict[str, Notes](), Ends()
    check_rules(graph, mesh, rules)
    for rank in range(mesh.size):
        own, at = graph, mesh.coordinates(rank)
        for k, (axis, size) in enumerate(mesh.axes.items()):
            named = rules.names(own, all_used=k == 0)
            if size == 1:
                continue
            wanted: dict[Any, tuple[str, Placement]] = {v: (p, rules.placement(p, axis)) for v, p in named.items()}
            own, told, placed = split(own, Line(axis, size, at[axis], k > 0), wanted)
            if rank == 0:
                notes[axis] = told
                ends.add(axis, placed)
        graphs.append(in_bursts(own))
    return graphs, notes, ends


def check_rules(graph: Graph, mesh: Mesh, rules: Rules) -> None:
    """ArgumentError where a rule cannot be followed on whole values: all its mesh axes together."""
    for v, pattern in rules.names(graph).items():
        shape = list(v.shape)
        for axis, size in mesh.axes.items():
            p = rules.placement(pattern, axis)
            if not isinstance(p, Shard) or size == 1:
                continue
            t = TensorType(v.dtype, tuple(shape))
            why = why_not(t, p, size)
            if why:
                raise broken_rule(pattern, v.name, t, axis, why)
            if isinstance(shape[p.dim], int):
                shape[p.dim] //= size // p.copies


def _check_calls(networks: Sequence[Network]) -> None:
    """All ranks make the same calls: a pass that reads weights might have made another program of one."""
    first = [(e.kind, e.axis, e.size, e.reduction) for e in networks[0].plan.exchanges]
    for r, net in enumerate(networks):
        if [(e.kind, e.axis, e.size, e.reduction) for e in net.plan.exchanges] != first:
            raise InternalError(f"ranks 0 and {r} of a sharded network do not make the same collectives")


class ShardedNetwork:
    """A network over a mesh. Made by `tec.shard`, or read back by `tec.sharding.load`.

    `run(inputs)` takes and gives whole arrays; `executor(devices)` keeps memory and states on the ranks' devices; `rank_executor` is one rank of several
    processes. `networks`: the ranks' compiled networks, which share one module. `sharding()`, `report()`, `save(folder)`.
    """

    def __init__(self, mesh: Mesh, networks: Sequence[Network | None], ends: Ends, notes: Mapping[str, Notes]):
        self.mesh, self.networks, self.ends, self.notes = mesh, list(networks), ends, dict(notes)
        self._executor: ShardedExecutor | None = None

    def __repr__(self) -> str:
        return f"<tec.ShardedNetwork over {self.mesh}: {self.network()!r}>"

    def network(self, rank: int | None = None) -> Network:
        """A rank's compiled network; the first one at hand without a number. ArgumentError where a package was read for other ranks."""
        at = next(k for k, n in enumerate(self.networks) if n is not None) if rank is None else rank
        found = self.networks[at] if 0 <= at < len(self.networks) else None
        if found is None:
            raise ArgumentError(
                f"rank {at} of {self.mesh.size} is not here",
                hint="load(folder, ranks=...) reads those that are asked for",
            )
        return found

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """{"name", "dtype", "shape"} of each input as a whole, in order."""
        return [self.ends.whole(i, i["name"], self.mesh) for i in self.network().inputs]

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """{"name", "dtype", "shape"} of each output as a whole, in order."""
        return [self.ends.whole(o, f"output {o['name']}", self.mesh) for o in self.network().outputs]

    # ---- running

    def run(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """The network's outputs for whole arrays, as whole NumPy arrays. All states are among them, as of `Network.run`."""
        if self._executor is None:
            self._executor = self.executor()
        return self._executor.run_stateless(inputs)

    __call__ = run

    def devices(self, given: Sequence[Any] | None = None) -> list[Device]:
        """The ranks' devices: those that are given, the mesh's, or the target's first ones."""
        found = given if given is not None else self.mesh.devices
        if found is None:
            kind = self.network().module.device_kind
            return (
                [devices.cpu(0)] * self.mesh.size
                if kind == "cpu"
                else [as_device(f"{kind}:{r}") for r in range(self.mesh.size)]
            )
        if len(found) != self.mesh.size:
            raise ArgumentError(
                f"{len(found)} devices for the {self.mesh.size} ranks of {self.mesh}",
                hint="as many devices as the mesh has ranks",
            )
        return [as_device(d) for d in found]

    def executor(
        self, devices: Sequence[Any] | None = None, capacity: int | None = None, timeout_s: float = TIMEOUT_SECONDS
    ) -> ShardedExecutor:
        """What runs all ranks in this process, a thread each, with memory and states of their own on the devices. timeout_s: that a rank waits for another."""
        return ShardedExecutor(self, self.devices(devices), capacity, timeout_s)

    def rank_executor(
        self,
        rank: int,
        address: str,
        device: Any = None,
        capacity: int | None = None,
        timeout_s: float = TIMEOUT_SECONDS,
        key: str | None = None,
    ) -> RankExecutor:
        """This process as one rank of several, which meet at `address` ("127.0.0.1:29500"; groups of more than one mesh axis take the ports behind it)."""
        return RankExecutor.connected(self, rank, address, device, capacity, timeout_s, key)

    # ---- what is told

    def sharding(self) -> str:
        """How inputs, weights and outputs lie along each mesh axis, which collectives a run makes, and which operators run whole on every rank, and why."""
        return described(self.mesh, self.notes)

    def report(self, links: str | None = None, **sizes: int) -> StepTime:
        """The modelled time of one run: of each rank's functions by the machine's figures, and of its collectives by published rates of links. links: a row of
        `tec.target.links`; that of the target's machine by default. sizes: of open sizes, 1 by default."""
        return step_time(self.network(), links, sizes)

    # ---- files

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a package a rank into a folder, and what they have in common."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for r in range(self.mesh.size):
            self.network(r).save(place / f"rank{r}.tec")
        self.ends.write(place / "sharding.json", self.mesh, self.notes)


def load(
    folder: str | os.PathLike[str], ranks: Sequence[int] | None = None, devices: Sequence[Any] | None = None
) -> ShardedNetwork:
    """A network that `save` wrote. ranks: those that are read; all by default. Raises PackageError for a file that is none of it."""
    place = Path(folder)
    axes, ends, notes = Ends.read(place / "sharding.json")
    mesh = Mesh(axes, devices)
    wanted = set(range(mesh.size)) if ranks is None else set(ranks)
    return ShardedNetwork(
        mesh, [load_network(place / f"rank{r}.tec") if r in wanted else None for r in range(mesh.size)], ends, notes
    )
