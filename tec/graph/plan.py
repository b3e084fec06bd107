"""The plan of a compiled graph: a name and a place for each value, and the functions in order.

In: the graph, its groups, and for each group that runs its function. Out: a `runtime.plans.plan.Plan` and the parameters by name.
Views show a part of another value; joins are made of values that lie in them (see `aliases`). Where sizes are symbolic the places
in the arena are left open; `runtime.plans.memory_plan` finds them when sizes are bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ops.dim_bounds import Empty
from ..ops.dims import data_of, names_of
from ..ops.registry import COLLECTIVE, REGION
from ..runtime.plans import memory_plan
from ..runtime.plans.plan import (
    Allocation,
    Call,
    Carried,
    Choose,
    Copy,
    Exchange,
    Guard,
    Output,
    Plan,
    Repeat,
    Scalar,
    State,
    Step,
)
from ..te.numpy_dtype import np_dtype
from .deferred import Deferred
from .graph import Graph, Node, Value
from .parts import Part, RegionRun, Run
from .passes.fuse import FusedGroup
from .state import written


def make_plan(part: Part, checks: Sequence[str] = (), states: Sequence[State] = ()) -> tuple[Plan, dict[str, Any]]:
    """(plan, parameters). The last outputs are `checks`: hidden ones, and what to say where one is not true."""
    graph = part.graph
    planner = _Planner(graph)
    planner.enter(part.groups)
    planner.appended(graph)
    inputs = tuple(planner.input(v) for v in graph.inputs)
    outputs = planner.outputs(graph, checks)
    planner.arena(part.groups)
    steps = tuple(planner.steps(part.runs))
    planner.shown()
    guards = tuple(Guard(data_of(g.size), g.what) for g in dict.fromkeys(graph.guards))
    empty = {n for v in graph.inputs for n in names_of(v.shape) if isinstance(n, Empty)}
    plan = Plan(inputs, outputs, planner.values, steps, None, guards, tuple(sorted(map(str, empty))), tuple(states))
    if not any(v.type.is_symbolic for v in graph.inputs):
        plan = memory_plan.place(plan, {})
    return plan, planner.params


class _Planner:
    """Gives values their names and places."""

    def __init__(self, graph: Graph):
        self.values: dict[str, Allocation] = {}
        self.params: dict[str, Any] = {}
        self.names: dict[Value, str] = {}
        self.taken = {v.name for v in graph.inputs} | set(graph.output_names)
        # By these their numbers come.
        self.kept = {v.name for v in graph.constants() if isinstance(v.data, Deferred)} - self.taken
        self.taken |= self.kept
        self.roots: dict[Value, Value] = {}  # of views
        self.starts: dict[Value, int] = {}  # of views: the first byte in their root
        self.parts: dict[Value, list[Value]] = {}  # of joins: the others are made in them
        self.rows: dict[Value, Node] = {}  # what `append` makes
        self.written: dict[Value, Value] = {}  # what lies in the memory of a state, some rows of which are new
        self.copies: list[tuple[Value, str]] = []  # outputs that show another value
        self.moved: set[str] = set()  # states of loops

    def enter(self, groups: list[FusedGroup]) -> None:
        """Take views and joins of a graph in."""
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
            elif written(n):
                self.written[n.outputs[0]] = n.inputs[0]

    def made(self, group: FusedGroup, v: Value) -> str:
        """The name of what a group's function writes: of a state the new rows alone."""
        node = self.rows.get(v)
        if node is None:
            return self.use(v)
        new, past, axis = node.inputs[1], node.inputs[0], node.attrs["axis"]
        name = self.fresh(Value(f"{v.name}.new", new.type))
        placed = len(node.inputs) > 2  # the function finds the row itself
        shape = tuple(map(data_of, v.shape if placed else new.shape))
        first = 0 if placed else data_of(past.shape[axis])
        self.values[name] = Allocation(v.dtype, shape, "rows", of=self.use(past), offset=first)
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
        given: set[str] = set()
        apart = {
            *graph.outputs,
            *graph.inputs,
            *self.rows,
            *self.written,
            *(p for parts in self.parts.values() for p in parts),
        }
        for v, name, check in zip(graph.outputs, graph.output_names, says):
            value, root = name, self.root(v)
            while value in self.values or value in given:  # an input has this name, or another output
                value += "'"
            given.add(value)
            self.taken.add(value)
            if v in self.written:
                self.add(v, value, "alias", of=self.names[self.written[v]])
            elif v in self.roots and root not in apart and root not in shown and self._is_whole(v, root):
                # What is made is the output under another shape: it is made there.
                shown |= {v, root}
                self.add(v, value, "output")
                self.add(root, self.fresh(root), "alias", of=value)
            elif v.is_const or v in graph.inputs or v in self.roots or v in self.parts or v in shown:
                self.copies.append((v, value))
            else:
                shown.add(v)
                node = self.rows.get(v)
                if node is None:
                    self.add(v, value, "output")
                else:
                    self.add(v, value, "rows", of=self.names[node.inputs[0]], offset=0)
            outputs.append(Output(name, value, check))
        return tuple(outputs)

    def _is_whole(self, v: Value, root: Value) -> bool:
        """Whether a view shows all of what some function makes."""
        if root.node is None or root in self.parts or {REGION, COLLECTIVE} & {*root.node.definition.traits}:
            return False
        return not self.starts.get(v) and v.dtype == root.dtype and bool(v.type.size == root.type.size)

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
            is_deferred = isinstance(v.data, Deferred)
            keeps = is_deferred and v.name in self.kept and v.name not in self.values
            name = self.add(v, v.name if keeps else self.fresh(v), "param")
            self.params[name] = v.data if is_deferred else np.asarray(v.data, np_dtype(v.dtype), order="C")
            return name
        root = self.root(v)
        whole = self.starts.get(v, 0) == 0 and v.type.size == root.type.size
        return self.add(v, self.fresh(v), "alias", of=self.use(root), offset=None if whole else self.starts[v])

    # ---- steps

    def steps(self, runs: Sequence[Run | RegionRun]) -> list[Step]:
        out: list[Step] = []
        for run in runs:
            if isinstance(run, RegionRun):
                out += self.held(run)
                continue
            arrays: list[str] = []
            for group, used in run.parts:
                arrays += [*(self.use(group.inputs[k]) for k in used), *(self.made(group, v) for v in group.outputs)]
            out.append(Call(run.function, (*arrays, *map(Scalar, run.sizes))))
        return out

    def held(self, run: RegionRun) -> list[Step]:
        """The steps of a loop, a branch or a collective."""
        node = run.group.nodes[0]
        if COLLECTIVE not in node.definition.traits:
            return self.loop(run) if node.op == "loop" else self.choose(run)
        a = node.attrs
        source, target = self.use(node.inputs[0]), self.use(node.outputs[0])
        return [Exchange(node.op, a["mesh_axis"], a["ranks"], source, target, a.get("reduction", ""))]

    def alone(self, like: Value, name: str) -> str:
        """A value of the arena that is no value of the graph."""
        found = self.fresh(Value(name, like.type))
        self.values[found] = Allocation(like.dtype, tuple(map(data_of, like.shape)), "arena")
        return found

    def asked(self, v: Value, before: list[Step]) -> str:
        """A value that a loop or a branch reads: one that is not moved by a loop; `before` gets what makes it so."""
        name = self.use(v)
        a = self.values[name]
        if a.place == "arena" and not a.parts and name not in self.moved:
            return name
        copy = self.alone(v, f"{v.name}.asked")
        before.append(Copy(name, copy))
        return copy

    def body(self, part: Part, inputs: Mapping[Value, str], to: Sequence[str]) -> list[Step]:
        """The steps of a body whose inputs have these names, and whose outputs go to `to`."""
        outputs = part.graph.outputs
        self.enter(part.groups)
        self.names.update(inputs)
        self.names.update({outputs[k]: to[k] for k in part.made if k < len(to)})
        self.arena(part.groups)
        steps = self.steps(part.runs)
        steps += [Copy(self.use(v), name) for k, (v, name) in enumerate(zip(outputs, to)) if k not in part.made]
        return steps

    def choose(self, run: RegionRun) -> list[Step]:
        node = run.group.nodes[0]
        before: list[Step] = []
        condition = self.asked(node.inputs[0], before)
        results = [self.use(v) for v in node.outputs]
        given = node.inputs[1:]
        lists = []
        for part in run.parts:
            own, given = given[: len(part.graph.inputs)], given[len(part.graph.inputs) :]
            names = {i: self.use(v) for i, v in zip(part.graph.inputs, own)}
            lists.append(tuple(self.body(part, names, results)))
        return [*before, Choose(condition, *lists)]

    def loop(self, run: RegionRun) -> list[Step]:
        """The steps of a loop: copies of its first states, then the repeated part."""
        node, part = run.group.nodes[0], run.parts[0]
        attrs = node.attrs
        before: list[Step] = []
        extras, states, rows = attrs.get("extras", ()), attrs["states"], attrs.get("rows", ())
        asked = {n: self.asked(v, before) for n, v in zip(extras, node.inputs)}
        given = node.inputs[len(extras) :]
        carried, names = [], {}
        for v, out, i in zip(given[:states], node.outputs, part.graph.inputs):
            c = Carried(self.use(out), self.alone(out, f"{out.name}.after"))
            before.append(Copy(self.use(v), c.now))
            self.moved |= {c.now, c.after}
            carried.append(c)
            names[i] = c.now
        items: list[tuple[str, int]] = []
        for v, i, back in zip(given[states:], part.graph.inputs[states:], rows):
            names[i] = self.item(v, i, back, items)
        names |= {i: self.use(v) for v, i in list(zip(given, part.graph.inputs))[states + len(rows) :]}
        wholes = zip(node.outputs[states:], part.graph.outputs[states:], attrs.get("made", ()))
        to = [*(c.after for c in carried), *(self.item(whole, v, back, items) for whole, v, back in wholes)]
        steps = self.body(part, names, to)
        going = self.asked(part.graph.outputs[-1], steps) if attrs.get("going") else None
        trips = attrs.get("trips")
        bound = None if trips is None else data_of(trips)
        repeat = Repeat(
            tuple(steps), bound, asked.get("count"), asked.get("start"), going, tuple(carried), tuple(items)
        )
        return [*before, repeat]

    def item(self, whole: Value, row: Value, back: bool, items: list[tuple[str, int]]) -> str:
        """A row of a value, another one at each trip."""
        name = self.fresh(Value(f"{whole.name}.row", row.type))
        self.values[name] = Allocation(row.dtype, tuple(map(data_of, row.shape)), "item", of=self.use(whole))
        items.append((name, -1 if back else 1))
        return name

    def shown(self) -> None:
        """The outputs that show another value."""
        for v, name in self.copies:
            self.add(v, name, "alias", of=self.use(v))
