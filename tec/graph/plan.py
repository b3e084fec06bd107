"""The plan of a compiled graph: a name and a place for each value, and the functions in order.

In: the graph, its groups, and for each group that runs its function. Out: a `runtime.plan.Plan` and the parameters by name.
Views show a part of another value; joins are made of values that lie in them (see `aliases`). Where sizes are symbolic the places
in the arena are left open; `runtime.memory_plan` finds them when sizes are bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ops.dim_bounds import Empty
from ..ops.dims import data_of, names_of
from ..runtime import memory_plan
from ..runtime.plan import Allocation, Call, Guard, Output, Plan, Scalar, State
from ..te.evaluate import np_dtype
from .graph import Graph, Node, Value
from .passes.fuse import FusedGroup

# A group that runs, its function, which of the group's inputs are the function's, and the sizes that it is called with.
Run = tuple[FusedGroup, str, list[int], list[Any]]


def make_plan(
    graph: Graph, groups: list[FusedGroup], runs: list[Run], checks: Sequence[str] = (), states: Sequence[State] = ()
) -> tuple[Plan, dict[str, Any]]:
    """(plan, parameters). The last outputs are `checks`: hidden ones, and what to say where one is not true."""
    planner = _Planner(graph, groups)
    planner.appended(graph)
    inputs = tuple(planner.input(v) for v in graph.inputs)
    outputs = planner.outputs(graph, checks)
    planner.arena(groups)
    steps = tuple(
        Call(
            name,
            (
                *(planner.use(group.inputs[k]) for k in used),
                *(planner.made(group, v) for v in group.outputs),
                *(Scalar(e) for e in sizes),
            ),
        )
        for group, name, used, sizes in runs
    )
    planner.shown()
    guards = tuple(Guard(data_of(g.size), g.what) for g in dict.fromkeys(graph.guards))
    empty = {n for v in graph.inputs for n in names_of(v.shape) if isinstance(n, Empty)}
    plan = Plan(inputs, outputs, planner.values, steps, None, guards, tuple(sorted(map(str, empty))), tuple(states))
    if not any(v.type.is_symbolic for v in graph.inputs):
        plan = memory_plan.place(plan, {})
    return plan, planner.params


class _Planner:
    """Gives values their names and places."""

    def __init__(self, graph: Graph, groups: list[FusedGroup]):
        self.values: dict[str, Allocation] = {}
        self.params: dict[str, Any] = {}
        self.names: dict[Value, str] = {}
        self.taken = {v.name for v in graph.inputs} | set(graph.output_names)
        self.roots: dict[Value, Value] = {}  # of views
        self.starts: dict[Value, int] = {}  # of views: the first byte in their root
        self.parts: dict[Value, list[Value]] = {}  # of joins: the others are made in them
        self.rows: dict[Value, Node] = {}  # what `append` makes
        self.copies: list[tuple[Value, str]] = []  # outputs that show another value
        for g in groups:
            if not g.is_alias:
                continue
            made = g.outputs[0]
            if g.view_at is not None:
                source = g.nodes[0].inputs[0]
                self.roots[made] = self.root(source)
                self.starts[made] = self.starts.get(source, 0) + g.view_at
            elif g.join_at is not None:
                self.parts[made] = [self.root(v) for v in g.nodes[0].inputs]

    def appended(self, graph: Graph) -> None:
        """What is appended to a state is rows of it, and so is what it becomes."""
        for n in graph.nodes:
            if n.op == "append":
                self.rows[n.outputs[0]] = n

    def made(self, group: FusedGroup, v: Value) -> str:
        """The name of what a group's function writes: of a state the new rows alone."""
        node = self.rows.get(v)
        if node is None:
            return self.use(v)
        new, past, axis = node.inputs[1], node.inputs[0], node.attrs["axis"]
        name = self.fresh(Value(f"{v.name}.new", new.type))
        shape = tuple(map(data_of, new.shape))
        self.values[name] = Allocation(v.dtype, shape, "rows", of=self.use(past), offset=data_of(past.shape[axis]))
        return name

    def root(self, v: Value) -> Value:
        return self.roots.get(v, v)

    def add(self, v: Value, name: str, place: str, **more: Any) -> str:
        self.values[name] = Allocation(v.dtype, tuple(map(data_of, v.shape)), place, **more)
        return self.names.setdefault(v, name)

    def fresh(self, v: Value) -> str:
        """A name that no other value has: passes may have left two values with one."""
        name, k = v.name, 1
        while name in self.taken:
            name, k = f"{v.name}.{k}", k + 1
        self.taken.add(name)
        return name

    def input(self, v: Value) -> str:
        return self.add(v, v.name, "input")

    def outputs(self, graph: Graph, checks: Sequence[str]) -> tuple[Output, ...]:
        """Outputs get arrays of their own under the network's names for them, but for those that show another value."""
        outputs = []
        says = [None] * (len(graph.outputs) - len(checks)) + [*checks]
        shown: set[Value] = set()
        for v, name, check in zip(graph.outputs, graph.output_names, says):
            value = name
            if v.is_const or v in graph.inputs or v in self.roots or v in self.parts or v in shown:
                while value in self.values:  # an input has this name
                    value += "'"
                self.taken.add(value)
                self.copies.append((v, value))
            else:
                shown.add(v)
                node = self.rows.get(v)
                if node is None:
                    self.add(v, name, "output")
                else:
                    self.add(v, name, "rows", of=self.names[node.inputs[0]], offset=0)
            outputs.append(Output(name, value, check))
        return tuple(outputs)

    def arena(self, groups: list[FusedGroup]) -> None:
        """What steps make and no output is lies in the arena; parts come before what they are parts of."""
        for g in groups:
            for v in g.outputs:
                if v not in self.roots and v not in self.names:
                    pieces = tuple(self.names[x] for x in self.parts.get(v, ()))
                    self.add(v, self.fresh(v), "arena", parts=pieces)

    def use(self, v: Value) -> str:
        """The name of a value that a step takes."""
        if v in self.names:
            return self.names[v]
        if v.is_const:
            name = self.add(v, self.fresh(v), "param")
            self.params[name] = np.asarray(v.data, np_dtype(v.dtype), order="C")
            return name
        root = self.root(v)
        whole = self.starts.get(v, 0) == 0 and v.type.size == root.type.size
        return self.add(v, self.fresh(v), "alias", of=self.use(root), offset=None if whole else self.starts[v])

    def shown(self) -> None:
        """The outputs that show another value."""
        for v, name in self.copies:
            self.add(v, name, "alias", of=self.use(v))
