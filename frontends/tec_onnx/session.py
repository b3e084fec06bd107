"""Running a model whatever decides on its shapes: networks are made as values come.

A session takes the model in again for each new set of input shapes. Where the import needs a value that is only known
now (a shape that is an input, a condition, a trip count), the part of the graph that gives it is run, and the import goes
on with it. What came of it is kept: a run with the same shapes and the same such values uses the finished network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tec import ImportModelError
from tec.graph import Graph, Value, run_graph
from tec.graph.graph import dtype_of
from tec.graph.subgraph import subgraph

from . import reader
from .importer import import_model
from .inputs import input_info
from .maps import Maps
from .ops_math import host_dtype

Runner = Callable[[Graph], Callable[[Mapping[str, Any]], list[Any]]]


def reference_runner(graph: Graph) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Runs a graph by the meaning of its operators, in NumPy."""
    return lambda feeds: run_graph(graph, dict(feeds))


class Session:
    """A model that runs. `runner` makes a function of a graph: a compiled network, or the reference."""

    def __init__(self, model: Any, runner: Runner = reference_runner):
        self.model: onnx.ModelProto = reader.load_model(model)
        self.runner = runner
        self.info = input_info(self.model)
        self.output_names = [o.name for o in self.model.graph.output]
        self._finished: dict[Any, list[_Finished]] = {}

    def run(self, feeds: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
        """The outputs: arrays, lists for sequences, None for empty optionals. Raises ImportModelError."""
        named = self._named(feeds)
        tensors = {k: v for k, v in named.items() if self._is_tensor(k, v)}
        fixed = {k: v for k, v in named.items() if k not in tensors}
        key = tuple((k, v.shape, str(v.dtype)) for k, v in sorted(tensors.items()))
        if not fixed:
            for done in self._finished.get(key, []):
                if done.fits(tensors):
                    return done.run(tensors)
        done = self._make(tensors, fixed)
        if not fixed:
            self._finished.setdefault(key, []).append(done)
        return done.run(tensors)

    def _named(self, feeds: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        named = dict(feeds) if isinstance(feeds, Mapping) else dict(zip(self.info, feeds))
        if not isinstance(feeds, Mapping) and len(feeds) > len(self.info):
            raise ImportModelError(
                f"{len(feeds)} inputs given, the model has {len(self.info)}: {', '.join(self.info)}",
                hint="one array for each input, or a dict by name",
            )
        for name in self.info:
            if name not in named:
                raise ImportModelError(f"input {name!r} is missing", hint=f"inputs: {', '.join(self.info)}")
        out = {}
        for name, value in named.items():
            if name not in self.info:
                raise ImportModelError(f"the model has no input {name!r}", hint=f"inputs: {', '.join(self.info)}")
            out[name] = np.asarray(value) if value is not None and not isinstance(value, (list, tuple)) else value
            entry = self.info[name]
            if entry is not None and isinstance(out[name], np.ndarray):
                _check(name, out[name], entry)
        return out

    def _is_tensor(self, name: str, value: Any) -> bool:
        return (
            self.info[name] is not None
            and isinstance(value, np.ndarray)
            and value.dtype.kind not in "OUS"
            and not host_only(value)
        )

    def _make(self, tensors: dict[str, Any], fixed: dict[str, Any]) -> _Finished:
        """Imports the model for these inputs, running parts of it where a value is needed."""
        guards: list[tuple[Any, Any]] = []

        def resolve(graph: Graph, value: Value) -> Any:
            if value in graph.inputs:
                array = tensors[value.name]
                guards.append((value.name, array))
                return array
            part = subgraph(graph, [value])
            run = self.runner(part)
            array = run({v.name: tensors[v.name] for v in part.inputs})[0]
            guards.append((_Part(run, [v.name for v in part.inputs]), array))
            return array

        shapes = {k: v.shape for k, v in tensors.items()}
        graph, outputs = import_model(self.model, shapes, fixed, resolve)
        return _Finished(self, graph, outputs, guards)


class _Part:
    """A part of a network whose value decided on the rest."""

    def __init__(self, run: Callable[[Mapping[str, Any]], list[Any]], inputs: list[str]):
        self.run = run
        self.inputs = inputs


class _Finished:
    """A whole network for given shapes, good as long as the values that it was made with are the same."""

    def __init__(self, session: Session, graph: Graph, outputs: list[Any], guards: list[tuple[Any, Any]]):
        self.guards = guards
        self.outputs = outputs
        flat: list[Value] = []
        _flatten(outputs, flat)
        self.flat = list(dict.fromkeys(v for v in flat if not v.is_const))
        self.part = subgraph(graph, self.flat)
        self.inputs = [v.name for v in self.part.inputs]
        self.function = session.runner(self.part) if self.flat else None

    def fits(self, tensors: Mapping[str, Any]) -> bool:
        for what, array in self.guards:
            now = tensors[what] if isinstance(what, str) else what.run({k: tensors[k] for k in what.inputs})[0]
            if now.shape != array.shape or not np.array_equal(now, array):
                return False
        return True

    def run(self, tensors: Mapping[str, Any]) -> list[Any]:
        got: dict[Value, Any] = {}
        if self.function is not None:
            got = dict(zip(self.flat, self.function({k: tensors[k] for k in self.inputs})))

        def pick(v: Any) -> Any:
            if isinstance(v, list):
                return [pick(x) for x in v]
            if v is None:
                return None
            if isinstance(v, Maps):
                return v.rows(pick(v.scores))
            return np.asarray(v.data) if v.is_const else got[v]

        return [pick(v) for v in self.outputs]


def _flatten(values: Any, out: list[Value]) -> None:
    for v in values:
        if isinstance(v, list):
            _flatten(v, out)
        elif isinstance(v, Maps):
            out.append(v.scores)
        elif v is not None:
            out.append(v)


def host_only(array: Any) -> bool:
    """Whether the array has a type that only the host handles."""
    return host_dtype(dtype_of(array))


def _check(name: str, array: Any, entry: tuple[str, list[int | str | None]]) -> None:
    dtype, dims = entry
    if dtype != "string" and dtype_of(array) != dtype:
        raise ImportModelError(
            f"input {name!r} is {dtype_of(array)}, the model takes {dtype}", hint=f"x.astype({dtype!r})"
        )
    fits = len(dims) == array.ndim and all(not isinstance(d, int) or d == n for d, n in zip(dims, array.shape))
    if dims and not fits:
        raise ImportModelError(
            f"input {name!r} has shape {array.shape}, the model takes {dims}",
            hint="reshape it, or export the model with a named dimension there, which takes any size",
        )
