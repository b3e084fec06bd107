"""A compiled expression: a small graph through the graph compiler, and the calls that run it.

    entries -> Graph -> passes, fusion, templates (tec.graph) -> module -> ExpressionCode
    ExpressionCode, sizes -> Bound: the calls with their numbers, the shapes of what they make
    Bound.run(arrays) -> arrays

Values between kernels are taken from the device's allocator and given back after their last use.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ..graph.compiler import Lowered, lower_graph
from ..graph.graph import Graph, Value
from ..graph.parts import Run
from ..locks import cached_property
from ..ops.dims import Dim, evaluate
from ..runtime.arrays.dtypes import itemsize
from ..runtime.arrays.ndarray import NDArray, Storage, array
from ..runtime.devices.device import Device
from ..runtime.modules import exprs
from ..target import Target
from ..te.numpy_dtype import np_dtype
from .trace import Entry, is_leaf

_Step = tuple[Any, ...]  # what, and its numbers: see Bound.run


class NeedsSizes(Exception):
    """Internal: the expression cannot be compiled or run with names for sizes."""


def graph_of(entries: Sequence[Entry], roots: Sequence[int], names: Mapping[str, Dim]) -> tuple[Graph, list[str]]:
    """The graph, and the inputs that begin anywhere. `names`: the sizes that have names."""
    graph = Graph("array")
    loose: list[str] = []
    values: list[Value] = []

    def known(sizes: Any) -> Any:
        if isinstance(sizes, tuple):
            return tuple(map(known, sizes))
        return names[sizes] if isinstance(sizes, str) else sizes

    for k, e in enumerate(entries):
        if is_leaf(e):
            values.append(graph.input(f"x{k}", e[0], known(e[1])))
            if not e[2]:
                loose.append(values[-1].name)
        else:
            op, attrs, ints, inputs, _, out = e
            given = {**dict(attrs), **{a: known(v) for a, v in ints}}
            values.append(graph.add(op, [values[i] for i in inputs], given)[out])
    graph.set_outputs([values[r] for r in roots], [f"out{k}" for k in range(len(roots))])
    return graph, loose


class ExpressionCode:
    """An expression's code. `sizes`: the names that it leaves open."""

    def __init__(self, entries: Sequence[Entry], roots: Sequence[int], sizes: Sequence[str], target: Target):
        names = {n: Dim(n) for n in sizes}
        graph, loose = graph_of(entries, roots, names)
        self.inputs = [v.name for v in graph.inputs]
        self.lowered: Lowered = lower_graph(graph, target, loose=loose)
        self._consts: dict[tuple[Device, Value], NDArray] = {}

    @property
    def module(self) -> Any:
        return self.lowered.module

    def bind(self, env: Mapping[str, int], device: Device) -> Bound:
        """The calls for given sizes. Raises NeedsSizes where a condition that the code was compiled under does not hold."""
        for g in self.lowered.graph.guards:
            if evaluate(g.size, env) < 0:
                raise NeedsSizes(g.what)
        return _Binder(self, env, device).bound()

    def const(self, v: Value, device: Device) -> NDArray:
        """A constant that a pass has made, on the device."""
        found = self._consts.get((device, v))
        if found is None:
            found = self._consts[device, v] = array(np.asarray(v.data, np_dtype(v.dtype), order="C"), device, v.dtype)
        return found


@dataclass
class Bound:
    """A program for given sizes on a device: `slots` are arrays, the inputs first; `steps` make the others."""

    device: Device
    inputs: list[tuple[int, ...]]  # shapes as the code takes them
    steps: list[_Step]
    outputs: list[int]
    n_slots: int
    consts: dict[int, NDArray] = field(default_factory=dict)
    elements: int = 0  # of the largest value: what decides whether sizes are worth code of their own
    runs: int = 0

    @cached_property
    def quick(self) -> Quick | None:
        """The same without a check at each call, where that can be."""
        return Quick.of(self)

    def run_one(self, given: Sequence[NDArray]) -> NDArray:
        """Queue the calls of a quick one; the one output."""
        device = self.device
        if device.profile is not None or device.capturing is not None:
            return self.run(given)[0]
        self.runs += 1
        return self.quick.run(given)  # type: ignore[union-attr]

    def run(self, given: Sequence[NDArray]) -> list[NDArray]:
        """Queue the calls; the outputs."""
        self.runs += 1
        slots: list[Any] = [None] * self.n_slots
        for k, shape in enumerate(self.inputs):
            a = given[k]
            slots[k] = a if a.shape == shape else NDArray(a.storage, a.address, shape, a.dtype)
        for k, a in self.consts.items():
            slots[k] = a
        device = self.device
        for what, at, *rest in self.steps:
            if what == "call":
                at(*[slots[k] for k in rest[0]], *rest[1])
            elif what == "new":
                nbytes, shape, dtype = rest
                storage = Storage(device, nbytes)
                slots[at] = NDArray(storage, storage.address, shape, dtype)
            elif what == "view":
                of, offset, shape, dtype = rest
                whole = slots[of]
                slots[at] = NDArray(whole.storage, whole.address + offset, shape, dtype)
            else:
                slots[at] = None
        return [slots[k] for k in self.outputs]


_NEW, _VIEW, _CALL, _DROP = range(4)


class Quick:
    """A `Bound` of one output as addresses: what its calls check was checked when it was bound, so that a run takes memory and calls machine code.

    Steps: (_NEW, slot, bytes), (_VIEW, slot, slot of the whole, offset), (_CALL, function, what it is ready with, its slots), (_DROP, slot).
    """

    def __init__(self, bound: Bound, steps: list[_Step], shape: tuple[int, ...], dtype: str):
        self.device = bound.device
        self.steps = steps
        self.output = bound.outputs[0]
        self.shape, self.dtype = shape, dtype
        self.alone = self._alone(len(bound.inputs)) if not bound.consts else None
        self.fixed = [0] * (bound.n_slots - len(bound.inputs))
        for k, a in bound.consts.items():
            self.fixed[k - len(bound.inputs)] = a.address

    def _alone(self, n_inputs: int) -> tuple[Any, ...] | None:
        """Of one call on a CPU that takes the inputs in their order and then the output: bytes of the output, and what the call is."""
        if self.device.driver is not None or [s[0] for s in self.steps] != [_NEW, _CALL]:
            return None
        (_, slot, nbytes, _), (_, function, (code, pack, scalars), slots) = self.steps
        if slot != self.output or slots != [*range(n_inputs), slot]:
            return None
        return nbytes, function, code, pack, scalars

    @staticmethod
    def of(bound: Bound) -> Quick | None:
        """None where the output is memory that was there before, or a call's launches follow from arrays."""
        if len(bound.outputs) != 1:
            return None
        device, steps = bound.device, list[_Step]()
        made: dict[int, tuple[tuple[int, ...], str]] = {}
        for what, at, *rest in bound.steps:
            if what == "call":
                slots, numbers = rest
                ready = at.machine_code(numbers) if device.driver is None else at.planned(device, tuple(numbers))
                if ready is None:
                    return None
                if device.driver is None:
                    code, scalars = ready
                    steps.append((_CALL, at, (code, struct.Struct(f"={len(slots)}Q").pack, scalars), slots))
                else:
                    steps.append((_CALL, at, (ready, numbers), slots))
            elif what == "new":
                nbytes, shape, dtype = rest
                made[at] = shape, dtype
                steps.append((_NEW, at, nbytes, None))
            elif what == "view":
                of, offset, shape, dtype = rest
                if of in made:
                    made[at] = shape, dtype
                steps.append((_VIEW, at, of, offset))
            else:
                steps.append((_DROP, at, None, None))
        found = made.get(bound.outputs[0])
        return None if found is None else Quick(bound, steps, *found)

    def run(self, given: Sequence[NDArray]) -> NDArray:
        """Queue the calls; the output."""
        device = self.device
        if self.alone is not None:
            nbytes, function, code, pack, scalars = self.alone
            made = Storage(device, nbytes)
            status = code(pack(*[a.address for a in given], made.address), scalars)
            if status:
                function.failed(status)
            return NDArray(made, made.address, self.shape, self.dtype)
        at = [a.address for a in given] + self.fixed
        held: dict[int, Storage] = {}
        on_cpu = device.driver is None
        for what, first, second, third in self.steps:
            if what == _NEW:
                held[first] = storage = Storage(device, second)
                at[first] = storage.address
            elif what == _CALL:
                addresses = [at[k] for k in third]
                if on_cpu:
                    code, pack, scalars = second
                    status = code(pack(*addresses), scalars)
                    if status:
                        first.failed(status)
                else:
                    plan, numbers = second
                    first.launch(device, plan, addresses + numbers)
            elif what == _VIEW:
                at[first] = at[second] + third
                if second in held:
                    held[first] = held[second]
            else:
                held.pop(first, None)
        k = self.output
        return NDArray(held[k], at[k], self.shape, self.dtype)


class _Binder:
    """Gives values their slots, and steps their order."""

    def __init__(self, program: ExpressionCode, env: Mapping[str, int], device: Device):
        self.program, self.env, self.device = program, env, device
        self.part = program.lowered.part
        self.slots: dict[Value, int] = {}
        self.steps: list[_Step] = []
        self.consts: dict[int, NDArray] = {}
        self.roots: dict[Value, tuple[Value, int]] = {}  # views: what they show, and from which byte on
        self.parts: dict[Value, tuple[Value, int]] = {}  # values that are made inside of others
        self.elements = 1

    def shape(self, v: Value) -> tuple[int, ...]:
        return tuple(int(evaluate(n, self.env)) for n in v.shape)

    def bound(self) -> Bound:
        graph = self.program.lowered.graph
        for v in graph.inputs:
            self.slot(v)
        n_inputs = len(self.slots)
        for g in self.part.groups:
            if g.view_at is not None:
                self.roots[g.outputs[0]] = (g.nodes[0].inputs[0], g.view_at)
            elif g.join_at is not None:
                for v, at in zip(g.nodes[0].inputs, g.join_at):
                    self.parts[self.root(v)[0]] = (g.outputs[0], at)
        for run in self.part.runs:
            assert isinstance(run, Run)
            arguments = [self.use(v) for g, used in run.parts for v in (*(g.inputs[k] for k in used), *g.outputs)]
            numbers = [self.number(e) for e in run.sizes]
            self.steps.append(("call", self.program.module[run.function], arguments, numbers))
        outputs = [self.use(v) for v in graph.outputs]
        shapes = [self.shape(v) for v in graph.inputs]
        for v in self.slots:
            self.elements = max(self.elements, int(np.prod(self.shape(v), dtype=np.int64)))
        return Bound(
            self.device, shapes, self._freed(outputs, n_inputs), outputs, len(self.slots), self.consts, self.elements
        )

    def number(self, e: Any) -> int:
        c = exprs.compile_expr(e)
        return int(c(dict(self.env)) if callable(c) else c)

    def slot(self, v: Value) -> int:
        return self.slots.setdefault(v, len(self.slots))

    def root(self, v: Value) -> tuple[Value, int]:
        offset = 0
        while v in self.roots:
            v, more = self.roots[v]
            offset += more
        return v, offset

    def use(self, v: Value) -> int:
        """The slot of a value, which is made if it is not there."""
        if v in self.slots:
            return self.slots[v]
        shape = self.shape(v)
        if v.is_const:
            k = self.slot(v)
            self.consts[k] = self.program.const(v, self.device)
            return k
        whole, offset = self.root(v)
        if whole is v and v in self.parts:
            whole, offset = self.parts[v]
        if whole is not v:
            of = self.use(whole)
            k = self.slot(v)
            self.steps.append(("view", k, of, offset, shape, v.dtype))
            return k
        k = self.slot(v)
        self.steps.append(("new", k, prod(shape) * itemsize(v.dtype), shape, v.dtype))
        return k

    def _freed(self, outputs: Sequence[int], n_inputs: int) -> list[_Step]:
        """The steps, with each slot given back after its last use."""
        last: dict[int, int] = {}
        for at, step in enumerate(self.steps):
            read = step[2] if step[0] == "call" else [step[1], *([step[2]] if step[0] == "view" else [])]
            for k in read:
                last[k] = at
        kept = {*outputs, *self.consts, *range(n_inputs)}
        out: list[_Step] = []
        for at, step in enumerate(self.steps):
            out.append(step)
            if step[0] == "call" and at < len(self.steps) - 1:
                out += [("drop", k) for k in dict.fromkeys(step[2]) if last[k] == at and k not in kept]
        return out
