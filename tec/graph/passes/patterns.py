"""Graph rewrites as data: patterns of operators, and what is written in their place.

A rule is a pattern of operators, a condition that gives the new operator's attributes (None: the rule does not hold), the operator, and why it is one.
Patterns are nested tuples: (operator, operand, ...); a name stands for any value, the same one wherever it comes again; `Either` lists
alternatives. Operands of what commutes match in both orders. Parts that something else reads stay, beside the new operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ...ops.registry import COMMUTES
from ...records import dataclass
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, const_of, rebuild

Found = Mapping[str, Value]
MADE = "made"  # in what stands around a new operator: its result


class Either:
    """A pattern that matches where one of several does."""

    def __init__(self, *patterns: Any):
        self.patterns = patterns


class Named:
    """A pattern whose value gets a name."""

    def __init__(self, name: str, pattern: Any):
        self.name, self.pattern = name, pattern


@dataclass(frozen=True)
class Rule:
    """`pattern` is written as `op`, on the values that `operands` name, where `condition` gives its attributes."""

    name: str
    pattern: tuple[Any, ...]
    condition: Callable[[Found, Value], dict[str, Any] | None]
    op: str
    operands: tuple[Any, ...]  # names, or operators without attributes on them
    why: str
    is_ordered: bool = False  # whether the outermost operands are taken in the order in which they stand
    around: Any = MADE  # operators on the new one's result and what the pattern's names stand for; a reshape gives the pattern's own shape
    is_repeated: bool = False  # whether what it writes may be part of its pattern again


def number(v: Value) -> float | None:
    """A constant's one value."""
    data = const_of(v)
    return float(np.asarray(data).reshape(())) if data is not None and np.size(data) == 1 else None


def last_axes(*reductions: Value) -> int | None:
    """The first of the dimensions that all reductions are over; None unless these are the last ones and stay with extent 1."""
    found = set()
    for v in reductions:
        assert v.node is not None
        ndim = v.node.inputs[0].ndim
        axes = sorted({a % ndim for a in v.node.attrs["axes"]})
        if not v.node.attrs.get("keepdims", True) or not axes or axes != list(range(axes[0], ndim)):
            return None
        found.add(axes[0])
    return found.pop() if len(found) == 1 else None


def apply_rule(rule: Rule, graph: Graph) -> Graph:
    """The graph with a rule's pattern as its operator; the same graph where it is nowhere."""
    after = _once(rule, graph)
    while rule.is_repeated and after is not graph:
        graph, after = after, _once(rule, after)
    return after


def _once(rule: Rule, graph: Graph) -> Graph:
    """The graph with what a rule finds replaced, once for each node that it begins at."""
    made: dict[Node, tuple[Found, dict[str, Any]]] = {}
    for node in graph.nodes:
        if node.op != rule.pattern[0]:
            continue
        (out,) = node.outputs
        ways = _all(list(rule.pattern[1:]), node.inputs, {}) if rule.is_ordered else matches(rule.pattern, out, {})
        for found in ways:
            attrs = rule.condition(found, out)
            if attrs is not None:
                made[node] = found, attrs
                break
    if not made:
        return graph

    def handle(b: Rebuild, node: Node) -> bool:
        if node not in made:
            return False
        found, attrs = made[node]
        (out,) = node.outputs

        def write(part: Any) -> Value:
            if isinstance(part, str) and part != MADE:
                return b.value(found[part])
            op, *operands = (rule.op, *rule.operands) if part == MADE else part
            given = attrs if part == MADE else {"shape": out.shape} if op == "reshape" else {}
            values = [write(p) for p in operands]
            if op == "reshape" and values[0].shape == tuple(given["shape"]):
                return values[0]  # what two reshapes may come to: it would hide a transpose from what is found next
            return b.new.add(op, values, given, out.name, node.origin)[0]

        b.map[out] = write(rule.around)
        return True

    return rebuild(graph, handle)


def matches(pattern: Any, value: Value, found: dict[str, Value]) -> Iterator[dict[str, Value]]:
    """All ways in which a pattern fits a value, with what its names stand for."""
    if isinstance(pattern, str):
        if found.get(pattern, value) is value:
            yield {**found, pattern: value}
    elif isinstance(pattern, Either):
        for p in pattern.patterns:
            yield from matches(p, value, found)
    elif isinstance(pattern, Named):
        if found.get(pattern.name, value) is value:
            yield from matches(pattern.pattern, value, {**found, pattern.name: value})
    else:
        op, *parts = pattern
        node = value.node
        if node is None or node.op != op or len(node.inputs) != len(parts):
            return
        yield from _all(parts, node.inputs, found)
        if COMMUTES in node.definition.traits:
            yield from _all(parts, node.inputs[::-1], found)


def _all(parts: list[Any], inputs: list[Value], found: dict[str, Value]) -> Iterator[dict[str, Value]]:
    if not parts:
        yield found
        return
    for more in matches(parts[0], inputs[0], found):
        yield from _all(parts[1:], inputs[1:], more)
