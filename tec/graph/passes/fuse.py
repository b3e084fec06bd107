"""Fusion: nodes into groups, each of which becomes one function.

Every group has one output value, so merging a group into its only reader can never make a cycle. A group has at most one
anchor (a contraction, a reduction, a row operator); elementwise work follows an anchor of the same shape, injective chains
run together and into a reduction that reads them. What moves nothing stays alone (see `aliases`). A node
of which several outputs are used stays alone.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import field
from typing import Any

from ...ops.dims import at_most
from ...ops.registry import (
    ALONG_AXES,
    BROADCAST,
    COLLECTIVE,
    COMPLEX,
    COSTLY,
    ELEMENTWISE,
    INJECTIVE,
    OPAQUE,
    REDUCTION,
    REGION,
    ROW,
    VIEW,
)
from ...records import dataclass
from ...target import Target
from ..aliases import find_aliases, moves_ones
from ..graph import Graph, Node, Value
from ..state import Rows, strided

_ANCHORS = (COMPLEX, REDUCTION, OPAQUE)
_MAX_NODES = 24  # longer chains gain nothing and cost compile time
_MAX_READS = 2 * _MAX_NODES  # two a node of the longest one; two wide concatenations (see `split_concat`) stay apart
# Values computed for one element of a group: three a node of the longest one. Reads at several places (a sum of shifted copies of a
# sum of shifted copies ...) multiply from step to step; memory is cheaper than computing the same again so often.
_MAX_EVALUATIONS = 3 * _MAX_NODES
# Elements of a row that the threads of a work-group keep from pass to pass: 32 each of 1,024. Shorter ones are little work, for which a launch is much.
_LONGEST_ROW, _SHORT_ROW = 1 << 15, 1 << 12


@dataclass(eq=False)
class FusedGroup:
    """Nodes that run as one function. `inputs`: values from outside, constants included, in order of first use."""

    nodes: list[Node] = field(default_factory=list)
    anchor: Node | None = None
    unused: set[Value] = field(default_factory=set)  # outputs of the last node that nothing reads
    view_at: int | None = None  # only shows its input, from this byte on
    join_at: list[int] | None = None  # its inputs are made in its output, each from this byte on
    rows: dict[Value, tuple[int, Any]] = field(default_factory=dict)  # values that are rows of a state: axis, capacity
    loose: set[Value] = field(default_factory=set)  # rows that a loop goes over: they begin anywhere

    @property
    def outputs(self) -> list[Value]:
        """What the group makes for others."""
        return [v for v in self.nodes[-1].outputs if v not in self.unused]

    @property
    def inputs(self) -> list[Value]:
        made = {v for n in self.nodes for v in n.outputs}
        return list(dict.fromkeys(v for n in self.nodes for v in n.inputs if v not in made))

    @property
    def is_alias(self) -> bool:
        """Whether the group moves nothing and needs no function."""
        return self.view_at is not None or self.join_at is not None

    def __repr__(self) -> str:
        return f"group({' -> '.join(n.op for n in self.nodes)})"


@dataclass(frozen=True, eq=False)
class _State:
    """What is known of a graph's nodes, and the group that each is in so far."""

    readers: dict[Value, list[Node]]
    outputs: set[Value]
    lone: set[Node]  # row operators of which nothing reads the statistics: like ones without them
    alone: set[Node]  # in groups of their own
    of: dict[Node, FusedGroup] = field(default_factory=dict)


def fuse(graph: Graph, rows: Rows | None = None) -> list[FusedGroup]:
    """The groups, in an order in which they can run. `rows`: the values that are rows of a state (default: as the graph appends them)."""
    rows = strided(graph) if rows is None else rows
    readers = graph.users()
    outputs = set(graph.outputs)
    aliases = find_aliases(graph, rows)
    rows = {**rows, **aliases.pitched}
    lone = {
        n for n in graph.nodes
        if ROW in n.definition.traits and not any(v in readers or v in outputs for v in n.outputs[1:])
    }  # fmt: skip
    fused_views = {n for n in graph.nodes if VIEW in n.definition.traits and n.inputs and moves_ones(n, readers)}
    alone = (
        {n for n in graph.nodes if n not in fused_views and not _may_fuse(n, lone, rows)}
        | aliases.views.keys()
        | aliases.joins.keys()
    )
    state = _State(readers, outputs, lone, alone)
    of = state.of
    for node in graph.nodes:
        group = FusedGroup(view_at=aliases.views.get(node), join_at=aliases.joins.get(node))
        if node not in alone:
            for producer in _mergeable(node, state):
                if group.anchor is not None and producer.anchor is not None:
                    continue
                if _anchor_of(node) is not None and producer.anchor is not None:
                    continue
                if len(group.nodes) + len(producer.nodes) >= _MAX_NODES or _reads(group, producer, node) > _MAX_READS:
                    continue
                if producer.anchor is None and evaluations([*producer.nodes, *group.nodes, node]) > _MAX_EVALUATIONS:
                    continue
                group.nodes.extend(producer.nodes)
                group.anchor = group.anchor or producer.anchor
        group.nodes.append(node)
        if _anchor_of(node) is not None:
            group.anchor = node
        for n in group.nodes:
            of[n] = group
    _join_forks(graph, state)
    _join_rows(graph, state)
    position = {n: k for k, n in enumerate(graph.nodes)}
    groups = list(dict.fromkeys(of[n] for n in graph.nodes))
    for g in groups:
        g.nodes.sort(key=position.__getitem__)
        last = g.nodes[-1].definition
        if last.kind != OPAQUE or ROW in last.traits:  # the others may be one loop nest that makes all of them
            g.unused = {v for v in g.nodes[-1].outputs if v not in readers and v not in outputs}
        if rows:
            g.rows = {v: rows[v] for v in (*g.inputs, *g.outputs) if v in rows}
    return sorted(groups, key=lambda g: position[g.nodes[-1]])


def _join_forks(graph: Graph, state: _State) -> None:
    """A value that several nodes of one elementwise group read, and no other: its group takes them in (a bias and a GELU behind a
    product, say; the scale and the SiLU behind a norm of groups)."""
    of = state.of
    for group in dict.fromkeys(of[n] for n in reversed(graph.nodes)):
        if _sums_along_axes(group.anchor):
            _take_forks(group, state)
            continue
        if not _is_pure(group):
            continue
        for v in group.inputs:
            before = _forked(group, v, state)
            if before is None:
                continue
            if before.anchor is None and (not _is_pure(before) or _reads(group, before, group.nodes[-1]) > _MAX_READS):
                continue
            before.nodes.extend(group.nodes)
            for n in group.nodes:
                of[n] = before
            break


def _join_rows(graph: Graph, state: _State) -> None:
    """On a GPU: what is summed over rows, and the work on the same rows that alone reads it, which then are read once (a row over its norm; the cosine of two)."""
    target = Target.current()
    if target is None or not target.is_gpu:
        return
    for group in dict.fromkeys(state.of[n] for n in reversed(graph.nodes)):
        if group.nodes[0] in state.of and state.of[group.nodes[0]] is group:
            _take_row_sums(group, state, target.machine.units)


def _take_row_sums(group: FusedGroup, state: _State, units: int) -> None:
    rows: _RowShape | None = None
    left = group.inputs
    while left:
        v = left.pop()
        before = state.of[v.node] if v.node is not None and v not in state.outputs else None
        if before is None or before is group or before.nodes[-1] is not v.node or v.node in state.alone:
            continue
        if any(state.of.get(r) is not group for r in state.readers[v]):
            continue
        if len(before.nodes) + len(group.nodes) > _MAX_NODES or _reads(group, before, group.nodes[-1]) > _MAX_READS:
            continue
        found = rows or _row_shape(before)
        if found is None or not found.is_worth(units) or not (rows or found.holds(group)) or not found.holds(before):
            continue
        if before.anchor is None and not _cheap(before):
            continue
        if before.anchor is not None and not _same_rows(before, group, found):
            continue
        group.nodes[:0] = before.nodes
        group.anchor = group.anchor or before.anchor
        for n in before.nodes:
            state.of[n] = group
        rows, left = found, group.inputs


@dataclass(frozen=True)
class _RowShape:
    """Rows along the last `count` axes of values of a shape."""

    shape: tuple[int, ...]
    count: int

    @property
    def one_a_row(self) -> tuple[int, ...]:
        return (*self.shape[: len(self.shape) - self.count], *(1,) * self.count)

    def is_worth(self, units: int) -> bool:
        """Whether a work-group may have a row: its threads keep it, and there are enough of them, or little work."""
        length = math.prod(self.shape[len(self.shape) - self.count :])
        return length <= _LONGEST_ROW and (math.prod(self.one_a_row) >= units or length <= _SHORT_ROW)

    def holds(self, group: FusedGroup) -> bool:
        """Whether a group computes values of these rows and sums of them, and nothing else."""
        own = {self.shape, self.one_a_row, self.one_a_row[: -self.count]}
        sums = [n for n in group.nodes if n.definition.kind == REDUCTION or ROW in n.definition.traits]
        pure = all(n.definition.kind in (ELEMENTWISE, BROADCAST) for n in group.nodes if n not in sums)
        shapes = all(v.shape in own for n in group.nodes for v in n.outputs)
        return pure and shapes and len(group.outputs) == 1 and all(map(self._is_sum, sums))

    def _is_sum(self, node: Node) -> bool:
        """Or an operator of whole rows: softmax and its logarithm."""
        axes = tuple(sorted(a % len(self.shape) for a in node.attrs.get("axes", ())))
        last = tuple(range(len(self.shape) - self.count, len(self.shape)))
        along = ALONG_AXES in node.definition.traits and len(node.outputs) == 1
        return along and axes == last and all(v.shape == self.shape for v in node.inputs)


def _row_shape(group: FusedGroup) -> _RowShape | None:
    """The rows that a group sums over."""
    node = group.anchor
    if node is None or not (_sums_along_axes(node) or ROW in node.definition.traits) or not node.attrs.get("axes"):
        return None
    (x,) = node.inputs[:1]
    if not all(isinstance(n, int) for n in x.shape):
        return None
    return _RowShape(x.shape, len(node.attrs["axes"]))


def _same_rows(before: FusedGroup, group: FusedGroup, rows: _RowShape) -> bool:
    """Whether both read a value of all rows, and what one makes for the other is one a row; or it makes rows that the other sums."""
    if before.outputs[0].shape == rows.shape:
        return group.anchor is not None
    common = {v for v in before.inputs if v.shape == rows.shape} & set(group.inputs)
    return bool(common) and before.outputs[0].shape == rows.one_a_row


def _sums_along_axes(anchor: Node | None) -> bool:
    """Whether it reads each element once: windows overlap."""
    return anchor is not None and anchor.definition.kind == REDUCTION and ALONG_AXES in anchor.definition.traits


def _take_forks(group: FusedGroup, state: _State) -> None:
    """Values that several nodes of a reduction's own elementwise work read, and nothing else, are computed there: the difference of a Huber loss takes no memory."""
    left = group.inputs
    while left:
        v = left.pop()
        before = state.of[v.node] if v.node is not None and v not in state.outputs else None
        if before is None or not _is_pure(before) or before.nodes[-1] is not v.node or v.node in state.alone:
            continue
        if any(state.of.get(r) is not group for r in state.readers[v]) or not _reaches_the_anchor(group, v):
            continue
        if len(before.nodes) + len(group.nodes) > _MAX_NODES or _reads(group, before, group.nodes[-1]) > _MAX_READS:
            continue
        group.nodes[:0] = before.nodes
        for n in before.nodes:
            state.of[n] = group
        left = group.inputs


def _reaches_the_anchor(group: FusedGroup, v: Value) -> bool:
    """Whether what depends on v is computed at v's own places, as far as the anchor, which sums it."""
    after = {v}
    for n in group.nodes:
        if any(i in after for i in n.inputs):
            if n is group.anchor:
                return True
            if n.definition.kind not in (ELEMENTWISE, BROADCAST) or n.outputs[0].shape != v.shape:
                return False
            after.update(n.outputs)
    return False


def _is_behind_an_anchor(group: FusedGroup, state: _State) -> bool:
    """Whether it may run where a product or a sum is made, which is better than where what moves elements reads it."""
    forked = (_forked(group, v, state) for v in group.inputs)
    return _is_pure(group) and any(before is not None and before.anchor is not None for before in forked)


def _forked(group: FusedGroup, v: Value, state: _State) -> FusedGroup | None:
    """The group that makes a value which only this group of elementwise work reads, at its own place, and that may take this work in."""
    if v.node is None or v in state.outputs or v.shape != group.nodes[-1].outputs[0].shape:
        return None
    before = state.of[v.node]
    if any(state.of.get(r) is not group for r in state.readers[v]) or v.node in state.alone:
        return None
    if (
        before.nodes[-1] is not v.node
        or len(before.nodes) + len(group.nodes) > _MAX_NODES
        or not _same_places(group, v)
    ):
        return None
    return before if before.anchor is None or _allowed(before, group.nodes[-1], v, state.lone) else None


def _is_pure(group: FusedGroup) -> bool:
    """Whether it is elementwise work and nothing else."""
    return group.anchor is None and all(n.definition.kind in (ELEMENTWISE, BROADCAST) for n in group.nodes)


def evaluations(nodes: Sequence[Node]) -> int:
    """How many values of the nodes one element of the last one takes (up to a limit), where each node is inlined into its readers.

    What is read at the reader's own place is computed there once, by whatever ways it is reached; a read at another place (of a
    slice, of a transpose) is a computation of its own for each of the reader's.
    """
    members = set(nodes)
    places: dict[Node, set[Any]] = {nodes[-1]: {()}}
    total = 0
    for n in reversed(nodes):
        here = places.get(n, set())
        total += len(here)
        if total > _MAX_EVALUATIONS:
            break
        for k, v in enumerate(n.inputs):
            if v.node is None or v.node not in members:
                continue
            stays = n.definition.kind in (ELEMENTWISE, BROADCAST) and v.shape == n.outputs[0].shape
            places.setdefault(v.node, set()).update(here if stays else {(p, n.outputs[0].name, k) for p in here})
    return total


def _reads(group: FusedGroup, producer: FusedGroup, node: Node) -> int:
    """How often the two groups would read a value from outside, together with the node."""
    nodes = [*producer.nodes, *group.nodes, node]
    made = {v for n in nodes for v in n.outputs}
    return sum(v not in made for n in nodes for v in n.inputs)


def _same_places(group: FusedGroup, v: Value) -> bool:
    """Whether everything in the group that depends on v has v's shape."""
    after = {v}
    for n in group.nodes:
        if any(i in after for i in n.inputs):
            if n.outputs[0].shape != v.shape:
                return False
            after.add(n.outputs[0])
    return True


def _may_fuse(node: Node, lone: set[Node], rows: Container[Value]) -> bool:
    """Also a view of rows that lie apart, which is none."""
    if {REGION, COLLECTIVE} & node.definition.traits:
        return False
    shows = VIEW in node.definition.traits and node.inputs[0] not in rows
    return (len(node.outputs) == 1 or node in lone) and not shows


def _anchor_of(node: Node) -> Node | None:
    return node if node.definition.kind in _ANCHORS else None


def _mergeable(node: Node, state: _State) -> list[FusedGroup]:
    """Groups of producers that may run inside the node's own group."""
    found: list[FusedGroup] = []
    for v in node.inputs:
        producer = v.node
        if producer is None or v in state.outputs or any(r is not node for r in state.readers[v]):
            continue
        group = state.of[producer]
        if group in found or producer in state.alone or group.outputs[0] is not v:
            continue
        if _allowed(group, node, v, state.lone) and not (
            node.definition.kind == INJECTIVE and _is_behind_an_anchor(group, state)
        ):
            found.append(group)
    # An anchored producer first: its group takes the node in; the others are inlined.
    return sorted(found, key=lambda g: g.anchor is None)


def _allowed(group: FusedGroup, node: Node, v: Value, lone: set[Node]) -> bool:
    kind = node.definition.kind
    if group.anchor is not None:
        stored = node.op == "append" and v is node.inputs[1] and sums_along_rows(group.anchor)
        same = stored or (kind in (ELEMENTWISE, BROADCAST) and node.outputs[0].shape == v.shape)
        return (
            same
            and group.anchor.outputs[0].shape == v.shape
            and (len(group.anchor.outputs) == 1 or group.anchor in lone)
        )
    if kind in (ELEMENTWISE, BROADCAST, INJECTIVE):
        # An expensive function behind a broadcast would be computed once for each copy.
        return at_most(node.outputs[0].type.size, 4 * v.type.size) or _cheap(group)
    if kind == REDUCTION:
        return True
    if kind == OPAQUE:
        return ROW in node.definition.traits and _cheap(group)
    return False


def sums_along_rows(node: Node) -> bool:
    """Whether it is a reduction or a row operator: what it makes may be stored in a state's rows at once."""
    return node.definition.kind == REDUCTION or ROW in node.definition.traits


def _cheap(group: FusedGroup) -> bool:
    return not any(COSTLY in n.definition.traits for n in group.nodes)
