"""A graph as groups, with the graphs of its loops and branches as groups of their own: what is lowered, and what the plan is made of.

    Part       a graph, its groups, and of each group that is a loop or a branch the parts of its bodies
    Run        a group, its function, which of the group's inputs are the function's, the sizes that it is called with, and other groups that run in its launch
    RegionRun  a group that is a loop, a branch or a collective, and its bodies' parts

What a body makes goes to where the loop or the branch wants it: `Part.made` says which outputs its functions write there at once; others are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

from ..ops.registry import COLLECTIVE
from ..records import dataclass
from .graph import Graph, Value
from .passes.fuse import FusedGroup, fuse
from .regions import bodies, is_region
from .state import Rows, compact, strided


@dataclass(frozen=True, eq=False)
class Run:
    """See the module. used, beside_used: numbers of inputs."""

    group: FusedGroup
    function: str
    used: list[int]
    sizes: list[Any]
    beside: Sequence[FusedGroup] = ()
    beside_used: Sequence[list[int]] = ()

    @property
    def parts(self) -> list[tuple[FusedGroup, list[int]]]:
        """The groups that the function computes, each with the numbers of the inputs that it reads, in the order of its parameters."""
        return [(self.group, self.used), *zip(self.beside, self.beside_used)]


@dataclass(eq=False)
class RegionRun:
    """See the module."""

    group: FusedGroup
    parts: list[Part]


@dataclass(eq=False)
class Part:
    """See the module."""

    graph: Graph
    groups: list[FusedGroup]
    inner: dict[FusedGroup, list[Part]] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)  # of the graph's outputs, by number
    runs: list[Run | RegionRun] = field(default_factory=list)

    @property
    def work(self) -> int:
        """Groups that run, those of bodies too."""
        own = sum(not g.is_alias and g not in self.inner for g in self.groups)
        return own + sum(p.work for parts in self.inner.values() for p in parts)


def part_of(graph: Graph, kept: Iterable[str] = (), loose: Iterable[str] = ()) -> Part:
    """The groups of a network's graph; its outputs `kept` are what its states become, its inputs `loose` begin anywhere."""
    graph, rows = compact(graph, strided(graph), set(kept))
    anywhere = set(loose)
    return _part(graph, rows, [v for v in graph.inputs if v.name in anywhere])


def _part(graph: Graph, rows: Rows, loose: Iterable[Value] = (), written: Sequence[int] = ()) -> Part:
    """The groups of a graph. `rows`: values that are rows of a state; `loose`: values that are rows of others; `written`: outputs that are rows which a loop
    makes, and come first where one value is several."""
    part = Part(graph, fuse(graph, rows))
    part.made = _made(part, [*written, *range(len(graph.outputs))])
    # What a function makes as a row begins anywhere for whoever reads it as well: in this graph, through aliases, in bodies of loops within.
    anywhere = {*loose, *(graph.outputs[n] for n in written if n in part.made)}
    for group in part.groups:
        if group.is_alias and any(v in anywhere for v in group.inputs):
            anywhere.update(group.outputs)
    for group in part.groups:
        group.loose = {v for v in (*group.inputs, *group.outputs) if v in anywhere}
        node = group.nodes[0]
        if COLLECTIVE in node.definition.traits:
            part.inner[group] = []
        if not is_region(node):
            continue
        part.inner[group] = [_body(node, k, body, rows, anywhere) for k, (_, body) in enumerate(bodies(node))]
    return part


def _body(node: Any, k: int, body: Graph, rows: Rows, loose: set[Value]) -> Part:
    """The part of one body."""
    attrs = node.attrs
    first = len(attrs.get("extras", ())) if node.op == "loop" else 1 + (len(attrs["then"].graph.inputs) if k else 0)
    given = node.inputs[first:]
    body, held = compact(body, {i: rows[v] for v, i in zip(given, body.inputs) if v in rows})
    if node.op == "choose":
        return _part(body, held, [i for v, i in zip(given, body.inputs) if v in loose])
    states, over, made = attrs["states"], len(attrs.get("rows", ())), len(attrs.get("made", ()))
    own = [
        i
        for n, (v, i) in enumerate(zip(given, body.inputs))
        if states <= n < states + over or (n >= states and v in loose)
    ]
    # Rows that are made come before states: they may be long, and there are as many of them as trips.
    order = range(states, states + made)
    return _part(body, held, own, order)


def _made(part: Part, order: list[int]) -> set[int]:
    """The outputs that a function makes and nothing else is: each value counts once."""
    made = {v for g in part.groups if not g.is_alias and not is_region(g.nodes[0]) for v in g.outputs}
    found: set[int] = set()
    taken: set[Value] = set()
    for k in order:
        v = part.graph.outputs[k]
        if v in made and v not in taken:
            taken.add(v)
            found.add(k)
    return found
