"""Runs a compiled graph on torch tensors, and sees to it that its constants are still what torch has.

Weights are constants of a network: packed, folded, laid out anew. They stay torch's too, and may be changed there: every call asks whether each is the
same memory at the same version as when the network was made. Those that are not become inputs, and the network is compiled anew: once for each weight, so
that training does not compile at every step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch

from tec.ops.dims import Dim, evaluate
from tec.runtime.arrays.ndarray import NDArray, from_dlpack
from tec.runtime.networks.network import Network

from .hosted import HostCalls
from .importer import Conversion, Given
from .placed import PlacedCalls, resolved

_place, _version = torch.Tensor.data_ptr, attrgetter("_version")
# What a graph is compiled to, with these placeholders as inputs beside the user's.
Make = Callable[[frozenset[str]], tuple[Network, Conversion]]


@dataclass(frozen=True)
class _Compiled:
    """A network, and how its inputs and outputs are a call's. Not changed once made: calls in other threads go on with theirs."""

    network: Network
    made: Conversion
    # Places of the network's inputs among the values; of a complex one, which part.
    live: tuple[tuple[int, int | None], ...]
    held: tuple[int, ...]  # of its constants
    marks: tuple[list[int], list[int]]  # of these, as they were
    is_plain: bool  # the network's outputs in order are the graph's
    sizes: dict[str, tuple[int, int]]  # (place, dimension) that give a size
    placed: PlacedCalls | HostCalls


class Runner:
    """`runner(values)`: the graph's outputs for a value for each placeholder, in order."""

    def __init__(
        self,
        placeholders: Sequence[str],
        make: Make,
        held: Mapping[str, torch.Tensor],
        first: tuple[Network, Conversion] | None = None,
    ):
        self._place = {n: k for k, n in enumerate(placeholders)}
        self._make = make
        self._lock = threading.Lock()
        self._live: frozenset[str] = frozenset()
        self._compiled = self._with(first or make(self._live), held)

    @property
    def network(self) -> Network:
        """The network that the next call runs, where no weight is changed before."""
        return self._compiled.network

    def _with(self, made: tuple[Network, Conversion], held: Mapping[str, torch.Tensor]) -> _Compiled:
        network, conversion = made
        names = [n for n in held if n not in self._live]
        sizes = {}
        for name, v in zip(conversion.inputs, conversion.graph.inputs):
            for d, n in enumerate(v.shape):
                if isinstance(n, Dim):
                    sizes.setdefault(str(n), (self._place[name], d))
        places = tuple(self._place[n] for n in names)
        return _Compiled(
            network,
            conversion,
            tuple((self._place[n], conversion.parts.get(k)) for k, n in enumerate(conversion.inputs)),
            places,
            marks([held[n] for n in names]),
            conversion.outputs == [("output", k) for k in range(len(network.plan.outputs))],
            sizes,
            HostCalls(network) if network.takes_numpy else PlacedCalls(network),
        )

    def changed(self, values: Sequence[Any]) -> list[str]:
        """The placeholders of constants that are no longer what they were."""
        c = self._compiled
        names, now = list(self._place), marks([values[k] for k in c.held])
        return [names[k] for n, k in enumerate(c.held) if any(a[n] != b[n] for a, b in zip(now, c.marks))]

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        return self._run(values, False)

    def checked(self, values: Sequence[Any]) -> list[Any]:
        """The same for values whose shapes, types and device TorchDynamo's guards have looked at."""
        return self._run(values, True)

    def _run(self, values: Sequence[Any], is_checked: bool) -> list[Any]:
        c = self._compiled
        if marks([values[k] for k in c.held]) != c.marks:
            c = self._renewed(values)
        given = [values[k] if p is None else part(values[k], p) for k, p in c.live]
        tensors = c.placed.checked(given) if is_checked else c.placed(given)
        if tensors is None:
            arrays = [as_array(t) for t in given]
            tensors = [torch.from_dlpack(r) for r in c.network.run_arrays(arrays)]
            c.placed.learn(given, arrays)
        if c.is_plain:
            return tensors
        return [self._output(o, tensors, values, c) for o in c.made.outputs]

    def _renewed(self, values: Sequence[Any]) -> _Compiled:
        with self._lock:
            names = list(self._place)
            changed = self.changed(values)
            if changed:
                self._live |= frozenset(changed)
                held = {names[k]: values[k] for k in self._compiled.held}
                self._compiled = self._with(self._make(self._live), held)
            return self._compiled

    def _output(self, o: Any, tensors: Sequence[torch.Tensor], values: Sequence[Any], c: _Compiled) -> Any:
        if isinstance(o, tuple):
            if o[0] == "output":
                return tensors[o[1]]
            real = tensors[o[1]]
            return torch.complex(real, torch.zeros_like(real) if o[2] is None else tensors[o[2]])
        if isinstance(o, Given):
            return values[self._place[o.name]]
        if isinstance(o, Dim):
            return int(evaluate(o, {n: values[k].shape[d] for n, (k, d) in c.sizes.items()}))
        return o


def marks(tensors: Sequence[torch.Tensor]) -> tuple[list[int], list[int]]:
    """What changes when the elements of tensors may have: where each lies, and how often it was written."""
    places = list(map(_place, tensors))
    try:
        return places, list(map(_version, tensors))
    except RuntimeError:  # one made in inference mode: nobody counts its writes
        return places, [0 if t.is_inference() else t._version for t in tensors]


def part(t: torch.Tensor, k: int) -> torch.Tensor:
    """The real (0) or imaginary part of a complex tensor, one element after another."""
    t = resolved(t.detach())
    return (t.real, t.imag)[k].contiguous()


def as_array(t: torch.Tensor) -> NDArray:
    """A tensor's memory as tec's."""
    if t.requires_grad:
        t = t.detach()
    return from_dlpack(resolved(t))
