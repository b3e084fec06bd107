"""Which layout each convolution of a network takes, and what stands between them: chosen for all together, so that their times and the copies between
producers and readers that differ are the least in all.

In: a graph before `choose_layouts`. Out: a layout for each node that may have several. A value is copied once into each layout that any of its readers wants.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from ...choices import layout_options
from ...choices import layouts as preferred
from ...choices.layout_options import Option, relayout_seconds
from ...choices.layouts import Convolution
from ...ops.layouts import Layout, plain
from ...ops.registry import FINITE, SHAPED, WINDOWED
from ...records import dataclass
from ...target import Target
from ..graph import Graph, Node, Value
from ..least_cost import Problem

_NEVER = 1.0  # seconds: more than any copy


@dataclass
class Layouts:
    """What was chosen: of open convolutions, and of nodes that work in any layout of their input."""

    convolutions: dict[Node, Convolution | None] = field(default_factory=dict)
    others: dict[Node, Layout] = field(default_factory=dict)


@dataclass
class _Place:
    """A node in the problem: its variable (None: one label), and what each label reads and makes."""

    variable: int | None
    reads: list[Layout]
    makes: list[Layout]


def choose(graph: Graph, target: Target) -> Layouts:
    """The layouts of least cost; nothing where no convolution has a choice that may pay."""
    found = options_of(graph, target)
    return _Choice(graph, target, found).solve() if found else Layouts()


def options_of(graph: Graph, target: Target) -> dict[Node, list[Option]]:
    """What each convolution may be; empty where no choice may pay."""
    if target.is_gpu:
        return {}
    convs = [n for n in graph.nodes if _is_open(n, target)]
    sizes = layout_options.blocks(target, ((n.inputs[0].type, n.inputs[1].type, n.attrs) for n in convs))
    found = {n: _options(n, target, sizes) for n in convs}
    is_open = len(sizes) > 1 or any(_may_be_plain(n, options, target) for n, options in found.items())
    return found if is_open else {}


def _is_open(node: Node, target: Target) -> bool:
    if node.op != "conv" or not node.inputs[1].is_known or "layouts" in node.attrs:
        return False
    x, w = node.inputs
    return layout_options.is_open(target, x.type, w.type, node.attrs)


def wanted(node: Node, target: Target, lies: Any) -> Convolution | None:
    """The layouts that the target's template likes for a convolution of constant weights; `lies`: those that its input has already."""
    if node.op != "conv" or not 4 <= node.inputs[0].ndim <= 5 or not node.inputs[1].is_known or "layouts" in node.attrs:
        return None
    if not lies and _is_plain_volume(node, target):
        return None
    return preferred.convolution(target, node.inputs[0].type, node.inputs[1].type, node.attrs, lies)


def _is_plain_volume(node: Node, target: Target) -> bool:
    """Whether a convolution of float32 volumes, which has no part in the choice for all, is quicker plain than in blocks and the copy into them."""
    x, w = (v.type for v in node.inputs)
    is_float = x.dtype == w.dtype == "float32"
    if (
        target.is_gpu
        or x.ndim != 5
        or not is_float
        or node.attrs["groups"] > 1
        or node.attrs.get("fill")
        or x.is_symbolic
    ):
        return False
    sizes = (max(8, target.vector_bytes // 4),)
    found = layout_options.options(target, x, w, node.outputs[0].type, node.attrs, sizes)
    own = next((o for o in found if o.convolution is None), None)
    best = min((o for o in found if o is not own), key=lambda o: o.seconds, default=None)
    if own is None or best is None:
        return False
    return own.seconds < best.seconds + relayout_seconds(target, x, own.x, best.x)


def _closed(node: Node, target: Target) -> Convolution | None:
    """The layouts of a convolution that has no choice: of several groups, of another type."""
    return wanted(node, target, ()) if node.inputs and node.inputs[0].ndim == 4 else None


def _options(node: Node, target: Target, sizes: tuple[int, ...]) -> list[Option]:
    x, w = node.inputs
    return layout_options.options(target, x.type, w.type, node.outputs[0].type, node.attrs, sizes)


def _may_be_plain(node: Node, options: list[Option], target: Target) -> bool:
    """Whether plain NCHW is quicker than a block and the copies that it may need."""
    own = next((o for o in options if o.convolution is None), None)
    others = [o for o in options if o is not own]
    if own is None or not others:
        return own is not None
    best = min(others, key=lambda o: o.seconds)
    copies = (node.inputs[0].type, own.x, best.x), (node.outputs[0].type, best.y, own.y)
    return own.seconds < best.seconds + sum(relayout_seconds(target, *c) for c in copies)


class _Choice:
    """The problem of one graph."""

    def __init__(self, graph: Graph, target: Target, options: dict[Node, list[Option]]):
        self.graph, self.target, self.options = graph, target, options
        self.problem = Problem()
        self.closed = {n: w for n in graph.nodes if n not in options and (w := _closed(n, target)) is not None}
        blocked = {lies for found in options.values() for o in found for lies in (o.x, o.y) if lies.blocks}
        blocked |= {lies for c in self.closed.values() for lies in (c.x, c.y) if lies.blocks}
        self.blocked = sorted(blocked, key=lambda lies: -max(lies.blocks.values()))
        self.places = {node: self._place(node) for node in graph.nodes}

    def _place(self, node: Node) -> _Place:
        if node in self.options:
            found = self.options[node]
            return _Place(self.problem.variable([o.seconds for o in found]), [o.x for o in found], [o.y for o in found])
        if node in self.closed:
            return _Place(None, [self.closed[node].x], [self.closed[node].y])
        lies = [*(b for b in self.blocked if follows(node, b)), plain(4)]
        return _Place(self.problem.variable([0.0] * len(lies)) if len(lies) > 1 else None, lies, lies)

    def solve(self) -> Layouts:
        readers: dict[Value, list[_Place]] = {}
        for node, place in self.places.items():
            for v in dict.fromkeys(v for v in node.inputs if not v.is_const and v.ndim == 4):
                readers.setdefault(v, []).append(place)
        outside = _Place(None, [plain(4)], [plain(4)])
        for v in self.graph.outputs:
            if v.ndim == 4:
                readers.setdefault(v, []).append(outside)
        for v, those in readers.items():
            source = self.places[v.node] if v.node is not None else outside
            if len(those) == 1:
                self._edge(v, source, those[0])
            else:
                self._edges(v, source, those)
        labels = self.problem.solve()
        made = Layouts()
        for node, place in self.places.items():
            if node in self.options:
                assert place.variable is not None
                made.convolutions[node] = self.options[node][labels[place.variable]].convolution
            elif place.variable is not None:
                made.others[node] = place.makes[labels[place.variable]]
        return made

    def _edge(self, v: Value, source: _Place, reader: _Place) -> None:
        self._pair(
            source.variable,
            reader.variable,
            [[relayout_seconds(self.target, v.type, a, b) for b in reader.reads] for a in source.makes],
        )

    def _edges(self, v: Value, source: _Place, readers: list[_Place]) -> None:
        """A copy in each layout that is read, made once: a variable says whether there is one."""
        for lies in dict.fromkeys(b for r in readers for b in r.reads):
            there = self.problem.variable([0.0, 0.0])
            self._pair(
                source.variable,
                there,
                [[_NEVER if a == lies else 0.0, relayout_seconds(self.target, v.type, a, lies)] for a in source.makes],
            )
            for r in readers:
                self._pair(there, r.variable, [[_NEVER if b == lies else 0.0 for b in r.reads], [0.0] * len(r.reads)])

    def _pair(self, a: int | None, b: int | None, costs: list[list[float]]) -> None:
        if a is not None and b is not None:
            self.problem.pair(a, b, costs)
        elif a is not None:
            self.problem.alone(a, [row[0] for row in costs])
        elif b is not None:
            self.problem.alone(b, costs[0])


def follows(node: Node, layout: Layout) -> bool:
    """Whether a node can work in a blocked layout of its inputs; see `passes.layout`, which does it."""
    out = node.outputs[0]
    if len(node.outputs) != 1 or out.ndim != 4:
        return False
    traits, block = node.definition.traits, layout.blocks["c"]
    if node.definition.kind in ("elementwise", "broadcast"):
        by_constant = node.op == "divide" and node.inputs[1].is_const
        is_finite = FINITE in traits or by_constant or out.shape[1] % block == 0
        return SHAPED not in traits and is_finite and all(_lies_along(v, out) for v in node.inputs)
    if WINDOWED in traits:
        return not node.attrs.get("indices")
    if node.op == "reduce_mean":
        x = node.inputs[0]
        return out.shape == (*x.shape[:2], *(1,) * (x.ndim - 2))
    if node.op == "concat":
        return bool(node.attrs["axis"] % 4 == 1) and all(v.shape[1] % block == 0 for v in node.inputs[:-1])
    return False


def _lies_along(v: Value, out: Value) -> bool:
    """Whether an operand of elementwise work can lie as the output does."""
    ones = (1, 1)
    if v.is_const:
        channels = (1,) * (4 - v.ndim) + v.shape in ((1, out.shape[1], *ones), out.shape)
        return v.is_known and (v.type.size == 1 or channels)
    return v.shape == out.shape or (v.ndim == 4 and v.shape[:2] == out.shape[:2] and v.shape[2:] == ones)
