"""One spelling for what exporters write in several: operators in place of their parts, as rules.

A rule is a pattern of operators, a condition that gives the new operator's attributes (None: the rule does not hold), the operator, and why it is one.
Patterns are nested tuples: (operator, operand, ...); a name stands for any value, the same one wherever it comes again; `Either` lists
alternatives. Operands of sums and products match in both orders. Parts that something else reads stay, beside the new operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ops import registry
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, const_of, rebuild

Found = Mapping[str, Value]
_COMMUTE = frozenset({"add", "multiply"})


class Either:
    """A pattern that matches where one of several does."""

    def __init__(self, *patterns: Any):
        self.patterns = patterns


@dataclass(frozen=True)
class Rule:
    """`pattern` is written as `op`, on the values that `operands` name, where `condition` gives its attributes."""

    name: str
    pattern: tuple[Any, ...]
    condition: Callable[[Found, Value], dict[str, Any] | None]
    op: str
    operands: tuple[str, ...]
    why: str
    is_ordered: bool = False  # whether the outermost operands are taken in the order in which they stand


def number(v: Value) -> float | None:
    """A constant's one value."""
    data = const_of(v)
    return float(np.asarray(data).reshape(())) if data is not None and np.size(data) == 1 else None


def _norm(found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of a layer norm: its means are over the last dimensions, both over the same, and kept as dimensions of 1."""
    x, epsilon = found["x"], number(found["epsilon"])
    if epsilon is None or x.dtype not in ("float32", "float64", "float16") or out.shape != x.shape:
        return None
    mean, variance = found["mean"].node, found["variance"].node
    assert mean is not None and variance is not None
    axes = sorted({a % x.ndim for a in mean.attrs["axes"]})
    same = sorted({a % x.ndim for a in variance.attrs["axes"]}) == axes
    kept = mean.attrs["keepdims"] and variance.attrs["keepdims"]
    if not axes or not same or not kept or axes != list(range(axes[0], x.ndim)):
        return None
    return {"axis": axes[0], "epsilon": epsilon}


def _one(found: Found, out: Value) -> dict[str, Any] | None:
    return {} if number(found["one"]) == 1 and out.dtype.startswith("float") and out.shape == found["x"].shape else None


def _is_two(found: Found, out: Value) -> dict[str, Any] | None:
    return {} if number(found["two"]) == 2 and out.shape == found["x"].shape else None


def _same(found: Found, out: Value) -> dict[str, Any] | None:
    return {} if out.dtype.startswith(("float", "bfloat")) else None


def _constant_first(found: Found, out: Value) -> dict[str, Any] | None:
    return {} if found["a"].is_const and not found["b"].is_const else None


def _axes_in_order(found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of a reduction whose axes do not stand in order, with axes that do."""
    assert out.node is not None
    axes = tuple(out.node.attrs["axes"])
    ordered = tuple(sorted(a % found["x"].ndim for a in axes))
    return {**out.node.attrs, "axes": ordered} if axes != ordered else None


_WINDOW = frozenset({"strides", "dilations", "before", "after", "groups"})


def _padded(found: Found, out: Value) -> dict[str, Any] | None:
    """The attributes of a convolution with the zeros that an operator before it puts around the picture."""
    assert out.node is not None
    attrs, node = out.node.attrs, found["padded"].node
    assert node is not None
    pad = node.attrs
    if set(attrs) - _WINDOW or pad.get("mode", "constant") != "constant" or pad.get("value", 0) != 0:
        return None
    around = {key: tuple(pad[key]) for key in ("before", "after")}
    sizes = [n for key in around for n in around[key]]
    if any(not isinstance(n, int) or n < 0 for n in sizes) or any(any(a[:2]) for a in around.values()):
        return None
    made = {key: tuple(a + b for a, b in zip(attrs[key], around[key][2:])) for key in around}
    reach = [(k - 1) * d for k, d in zip(found["w"].shape[2:], attrs["dilations"])]
    if any(n > most for key in made for n, most in zip(made[key], reach)):
        return None  # windows of zeros alone
    return {**attrs, **made}


def _last_two(found: Found, out: Value) -> dict[str, Any] | None:
    """The dimensions before the last two are one meanwhile, and come out as they were."""
    x = found["x"]
    turned = out.node.inputs[0].node if out.node is not None else None
    if turned is None or x.ndim < 4 or tuple(turned.attrs["perm"]) != (0, 2, 1):
        return None
    if turned.inputs[0].shape[1:] != x.shape[-2:] or out.shape != (*x.shape[:-2], x.shape[-1], x.shape[-2]):
        return None
    return {"perm": (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)}


class Named:
    """A pattern whose value gets a name."""

    def __init__(self, name: str, pattern: Any):
        self.name, self.pattern = name, pattern


_GAP = ("subtract", "x", Named("mean", ("reduce_mean", "x")))
_SQUARE = Either(("square", _GAP), ("multiply", _GAP, _GAP))
_SPREAD = ("add", Named("variance", ("reduce_mean", _SQUARE)), "epsilon")
_ROOT = ("sqrt", _SPREAD)
_INVERSE = Either(("rsqrt", _SPREAD), ("reciprocal", _ROOT))

RULES = (
    *(
        Rule(f"axes of {op} in order", (op, "x"), _axes_in_order, op, ("x",), "torch's newer exporter writes them as they were given, from the end")
        for op, made in sorted(registry.OPS.items())
        if registry.ALONG_AXES in made.traits and made.kind == registry.REDUCTION
    ),
    Rule(
        "a constant summand second", ("add", "a", "b"), _constant_first, "add", ("b", "a"),
        "the older exporter of torch writes bias + product, the newer one product + bias", is_ordered=True,
    ),
    Rule(
        "a constant factor second", ("multiply", "a", "b"), _constant_first, "multiply", ("b", "a"),
        "as for sums", is_ordered=True,
    ),
    Rule(
        "square of a product", ("multiply", "x", "x"), _same, "square", ("x",),
        "ONNX's own body of RMSNormalization multiplies x by itself, torch's takes a power",
    ),
    Rule(
        "transpose of the last two", ("reshape", ("transpose", ("reshape", "x"))), _last_two, "transpose", ("x",),
        "the newer exporter of torch turns the keys of attention with batch and heads as one dimension: a copy, where the product reads them as they lie",
    ),
    Rule(
        "square", ("power", "x", "two"), _is_two, "square", ("x",),
        "a power with a constant exponent is a product; exporters write both",
    ),
    Rule(
        "mish", ("multiply", "x", ("tanh", ("softplus", "x"))), _same, "mish", ("x",),
        "ONNX has an operator from opset 18 on; its parts compute an exponential and a logarithm in a kernel of their own",
    ),
    Rule(
        "padding of a convolution", ("conv", Named("padded", ("pad", "x")), "w"), _padded, "conv", ("x", "w"),
        "the older exporter of torch and TensorFlow's write zeros around a picture as an operator: a copy of the whole picture",
    ),
    Rule(
        "reciprocal", ("divide", "one", "x"), _one, "reciprocal", ("x",),
        "the older exporter of torch writes 1 / sqrt(x) where the newer one writes Reciprocal",
    ),
    Rule(
        "layer norm", ("multiply", _GAP, _INVERSE), _norm, "layer_norm", ("x",),
        "one kernel in place of two reductions and what reads them; before opset 17, in Keras and in norms of channels there is no operator",
    ),
    Rule(
        "layer norm by a quotient", ("divide", _GAP, _ROOT), _norm, "layer_norm", ("x",),
        "the same, as torch's exporters write it",
    ),
)  # fmt: skip


def one_spelling(graph: Graph) -> Graph:
    """The graph with each rule's pattern as its operator. A rule sees what those before it wrote."""
    for rule in RULES:
        graph = apply_rule(rule, graph)
    return graph


def apply_rule(rule: Rule, graph: Graph) -> Graph:
    """The graph with the rule's operator wherever its pattern is found."""
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
        inputs = [b.value(found[name]) for name in rule.operands]
        b.map[out] = b.new.add(rule.op, inputs, attrs, out.name, node.origin)[0]
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
        if op in _COMMUTE:
            yield from _all(parts, node.inputs[::-1], found)


def _all(parts: list[Any], inputs: list[Value], found: dict[str, Value]) -> Iterator[dict[str, Value]]:
    if not parts:
        yield found
        return
    for more in matches(parts[0], inputs[0], found):
        yield from _all(parts[1:], inputs[1:], more)


__all__ = ["RULES", "Either", "Named", "Rule", "apply_rule", "matches", "number", "one_spelling"]
