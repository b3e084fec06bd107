"""A compiled module: a Network that is called as the module was."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

import tec
from tec import ArgumentError
from tec.runtime.networks.network import Network

from .export import FunctionalProgram
from .importer import Conversion
from .runner import Runner


class TorchNetwork(Network):
    """What `tec.compile` makes of a module or of an exported program.

    Called with the module's own arguments it gives what the module gives: torch tensors, of the network's memory. Parameters that were changed since it was
    compiled are noticed, and used as they are. `run` and all else is a `Network`'s, with weights as they were; it raises ArgumentError once they were changed.
    """

    def __init__(self, network: Network, program: FunctionalProgram, made: Conversion):
        super().__init__(network.module, network.plan, network.params, network.report)
        self._weights = network._weights  # on the device once for both
        self._program = program
        placeholders = [n.name for n in program.graph.nodes if n.op == "placeholder"]
        target = network.module.target

        def make(live: frozenset[str]) -> tuple[Network, Conversion]:
            again = program.convert(live)
            return tec.compile(again.graph, target), again

        self._runner = Runner(placeholders, make, program.frozen(), (network, made))
        self._held = [program.tensors.get(n) for n in placeholders]
        given = [n for n in program.given if n is not None]
        self._given = {n: placeholders.index(n) for n in given}
        calls = program.exported.call_spec  # worked out at every look
        self._in, self._out = calls.in_spec, calls.out_spec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """The module's result for the module's arguments. Raises ArgumentError for arguments of another structure, type or shape."""
        program = self._program
        values: list[Any] = list(self._held)
        for name, leaf in zip(program.given, self._leaves(args, kwargs)):
            if name is not None:
                if not isinstance(leaf, torch.Tensor):
                    raise ArgumentError(
                        f"argument {name} is {type(leaf).__name__}, the network takes a tensor",
                        hint=f'net.run({{"{name}": x}}) takes arrays of NumPy' if hasattr(leaf, "dtype") else None,
                    )
                values[self._given[name]] = leaf
        made = self._runner(values)
        for k, name in program.writes.items():
            held = program.tensors.get(name)
            target = held if held is not None else values[self._given[name]]
            with torch.no_grad():
                if target.shape != made[k].shape:  # an `out` of another shape
                    target.resize_(made[k].shape)
                target.copy_(made[k])
        results = [value if k is None else made[k] for k, value in program.results]
        return pytree.tree_unflatten(results, self._out)

    def _leaves(self, args: Any, kwargs: Any) -> list[Any]:
        spec = self._in
        names = list(spec.child(1).context) if spec.num_children == 2 else []
        if set(names) != set(kwargs):
            args, kwargs = self._named(args, kwargs, names)
        kwargs = {n: kwargs[n] for n in names if n in kwargs}
        leaves, have = pytree.tree_flatten((args, kwargs))
        if have != spec:
            takes = ", ".join(f"{i['name']}: {i['dtype']}{tuple(i['shape'])}" for i in self.inputs)
            raise ArgumentError(
                f"the network was compiled for other arguments: {len(args)} and {', '.join(kwargs) or 'no'} named ones are given",
                hint=f"it takes {takes}",
            )
        return leaves

    def _named(self, args: Any, kwargs: Any, names: list[str]) -> tuple[Any, Any]:
        """Arguments by name where the module was traced with positions, and the other way."""
        order = [n for n in self._program.given if n is not None]
        count = len(order) - len(names)
        every = dict(zip(order, args)) | kwargs
        if len(every) != len(args) + len(kwargs) or set(every) != set(order):
            return args, kwargs
        return tuple(every[n] for n in order[:count]), {n: every[n] for n in names}

    def run(self, inputs: Any, device: Any = None) -> Any:
        changed = self._runner.changed(self._held)
        if changed:
            raise ArgumentError(
                f"weights were changed since the network was compiled: {', '.join(changed[:4])}{' and more' if len(changed) > 4 else ''}",
                hint="call the network with torch tensors, or compile the module again",
            )
        return super().run(inputs, device)
