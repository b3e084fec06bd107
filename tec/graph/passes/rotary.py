"""Rotary positions in what exporters write, as one operator; where they turn an attention's queries, they go into its loads.

    x * cos + concat(-x[half:], x[:half]) * sin     ->  rotary(x, cos, sin)                     (find_rotary)
    concat(rotary(x[:n]), x[n:])                    ->  rotary(x) of its first n features
    attention(rotary(q, cos, sin), k, v)            ->  attention(q, k, v, cos, sin)            (turn_queries)

Keys stay: they are turned once, on their way into the cache (`append` takes the operator in), and read many times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...choices.families.attention.ping_pong import takes_copies
from ...ops.attention import ANGLES, PLAIN, order_of
from ...ops.registry import broadcast_shapes, normalize_axis
from ...records import dataclass
from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_Turned = tuple[Value, Value, Value, dict[str, Any]]  # what is turned, cosines, sines, attributes


def find_rotary(graph: Graph) -> Graph:
    """The graph with `rotary` for what exporters write out."""
    if not any(n.op == "neg" for n in graph.nodes):
        return graph
    look = _Look(graph)
    found: dict[Node, _Turned] = {}
    for n in graph.nodes:
        turned = look.written_out(n) if n.op == "add" else look.beside_rest(n, found) if n.op == "concat" else None
        if turned is not None:
            found[n] = turned

    def handle(b: Rebuild, node: Node) -> bool:
        if node not in found:
            return False
        *inputs, attrs = found[node]
        out = node.outputs[0]
        b.map[out] = b.new.add("rotary", [b.value(v) for v in inputs], attrs, out.name, node.origin)[0]
        return True

    return rebuild(graph, handle) if found else graph


class _Look:
    """Finding, on the old graph."""

    def __init__(self, graph: Graph):
        self.users, self.outputs = graph.users(), set(graph.outputs)

    def made_by(self, v: Value, op: str) -> Node | None:
        """The node of this operator that made v, where nothing else reads v."""
        single = len(self.users.get(v, ())) == 1 and v not in self.outputs
        return v.node if v.node is not None and v.node.op == op and single else None

    def written_out(self, node: Node) -> _Turned | None:
        """x cos + turned sin, in any order of operands."""
        out = node.outputs[0]
        for one, other in (node.inputs, reversed(node.inputs)):
            plain, crossed = self.made_by(one, "multiply"), self.made_by(other, "multiply")
            if plain is None or crossed is None:
                continue
            for half, sin in (crossed.inputs, reversed(crossed.inputs)):
                x = self.halves(half)
                if x is None or x not in plain.inputs or x.shape != out.shape:
                    continue
                cos = plain.inputs[1 - plain.inputs.index(x)]
                if cos.type == sin.type and _are_tables(cos, x) and cos is not x:
                    return x, cos, sin, {"interleaved": False, "whole": True}
        return None

    def halves(self, v: Value) -> Value | None:
        """x of concat(-x[half:], x[:half]) along the last dimension."""
        node = self.made_by(v, "concat")
        if node is None or len(node.inputs) != 2 or normalize_axis(node.attrs["axis"], v.ndim) != v.ndim - 1:
            return None
        minus = self.made_by(node.inputs[0], "neg")
        high = self.made_by(minus.inputs[0], "slice") if minus is not None else None
        low = self.made_by(node.inputs[1], "slice")
        if high is None or low is None or high.inputs[0] is not low.inputs[0]:
            return None
        x, size = low.inputs[0], v.shape[-1]
        half = size // 2 if isinstance(size, int) and size % 2 == 0 else None
        fits = half is not None and x.shape == v.shape
        return x if fits and _part(low) == (0, half) and _part(high) == (half, half) else None

    def beside_rest(self, node: Node, found: dict[Node, _Turned]) -> _Turned | None:
        """concat(x[:n] turned, x[n:]) along the last dimension."""
        out = node.outputs[0]
        if len(node.inputs) != 2 or normalize_axis(node.attrs["axis"], out.ndim) != out.ndim - 1:
            return None
        turned, rest = node.inputs
        inner = found.get(turned.node) if turned.node is not None else None
        if inner is None or len(self.users.get(turned, ())) != 1 or turned in self.outputs:
            return None
        first, last = inner[0].node, rest.node
        if first is None or last is None or (first.op, last.op) != ("slice", "slice"):
            return None
        x, n = first.inputs[0], turned.shape[-1]
        whole = x is last.inputs[0] and x.shape == out.shape
        if not whole or _part(first) != (0, n) or _part(last) != (n, out.shape[-1] - n):
            return None
        return (x, *inner[1:])


def _are_tables(cos: Value, x: Value) -> bool:
    """Whether these broadcast to x, but for the last dimension, which they have."""
    if not cos.ndim or cos.ndim > x.ndim or cos.shape[-1] != x.shape[-1] or "float" not in x.dtype:
        return False
    return bool(broadcast_shapes(cos.shape[:-1], x.shape[:-1]) == x.shape[:-1])


def _part(node: Node) -> tuple[Any, Any] | None:
    """(first, how many) of a slice of the last dimension alone."""
    x, y = node.inputs[0], node.outputs[0]
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    plain = x.shape[:-1] == y.shape[:-1] and all(s == 0 for s in starts[:-1]) and all(s == 1 for s in steps)
    return (starts[-1], y.shape[-1]) if plain else None


# ---- into attention


def turn_queries(graph: Graph, target: Target) -> Graph:
    """The graph with attentions that turn the queries they read, where their kernels do so at no cost."""
    look = _Look(graph)
    found = {n: q for n in graph.nodes if n.op == "attention" and (q := _queries_of(n, look, target)) is not None}

    def handle(b: Rebuild, node: Node) -> bool:
        if node not in found:
            return False
        q = found[node]
        inputs = [b.value(q.stored), *(b.value(v) for v in node.inputs[1:])]
        inputs += [_in_order(b, b.value(t), q.order) for t in q.rotary.inputs[1:]]
        attrs = node.attrs | {
            "extras": (*node.attrs.get("extras", ()), *ANGLES), "q_order": q.stored_order,
            "interleaved": bool(q.rotary.attrs.get("interleaved")), "whole": bool(q.rotary.attrs.get("whole")),
        }  # fmt: skip
        out = node.outputs[0]
        b.map[out] = b.new.add("attention", inputs, attrs, out.name, node.origin)[0]
        return True

    return rebuild(graph, handle) if found else graph


@dataclass(frozen=True)
class _Queries:
    """Queries of an attention: the node that turns them, the order of its dimensions; what it turns, as that is stored, and its order."""

    rotary: Node
    order: tuple[int, ...]
    stored: Value
    stored_order: tuple[int, ...]


def _queries_of(node: Node, look: _Look, target: Target) -> _Queries | None:
    """What turns an attention's queries, where they are turned for it alone."""
    q = node.inputs[0]
    value_size = node.inputs[2].shape[order_of(node.attrs, "v")[3]]
    places, size = (q.shape[a] for a in order_of(node.attrs, "q")[2:])
    if "cos" in node.attrs.get("extras", ()) or takes_copies(target, q.dtype, size, value_size, places):
        return None
    v, order = q, order_of(node.attrs, "q")
    while (moved := look.made_by(v, "cast") or look.made_by(v, "transpose")) is not None:
        v, order = _before(moved, order)
    rotary = look.made_by(v, "rotary")
    if rotary is None or order[3] != 3:
        return None
    x, stored = rotary.inputs[0], order
    if x.dtype != q.dtype:  # in 16 bits, made float32 to be turned
        if x.node is None or x.node.op != "cast" or x.node.inputs[0].dtype != q.dtype:
            return None
        x = x.node.inputs[0]
    while x.node is not None and x.node.op == "transpose":
        x, stored = _before(x.node, stored)
    return _Queries(rotary, order, x, stored)


def _before(node: Node, order: tuple[int, ...]) -> tuple[Value, tuple[int, ...]]:
    """What a cast or a transpose is of, and the order of its dimensions."""
    perm = node.attrs.get("perm")
    return node.inputs[0], order if perm is None else tuple(perm[a] for a in order)


def _in_order(b: Rebuild, table: Value, order: Sequence[int]) -> Value:
    """A table that broadcasts to queries as they were turned, as (batch, heads, places, columns)."""
    shape = (*(1,) * (4 - table.ndim), *table.shape)
    wanted = tuple(shape[a] for a in order)
    if tuple(order) == PLAIN or [n for n in wanted if n != 1] == [n for n in shape if n != 1]:
        return table if wanted == table.shape else b.new.add("reshape", [table], {"shape": wanted}, table.name)[0]
    if shape != table.shape:
        table = b.new.add("reshape", [table], {"shape": shape}, table.name)[0]
    return b.new.add("transpose", [table], {"perm": tuple(order)}, table.name)[0]
