"""Row operators in place of a reduction and what reads it: one function that reads a row once, where the reduction and its readers would be two.

In: a graph whose products have taken in the norms that they fold (`projections`). Out: the same with what is left of them as operators of rows.
"""

from __future__ import annotations

from typing import Any

from ..graph import Graph, Node, Value
from .patterns import Either, Found, Named, Rule, apply_rule, last_axes, number
from .rewrite import Rebuild, rebuild

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def _rms(found: Found, out: Value) -> dict[str, Any] | None:
    axis, epsilon = last_axes(found["mean"]), number(found["epsilon"])
    if not axis or epsilon is None or out.dtype not in _FLOATS or out.shape != found["x"].shape:
        return None
    return {"axis": axis, "epsilon": epsilon}


def _log_sum(found: Found, out: Value) -> dict[str, Any] | None:
    axis = last_axes(found["top"], found["total"])
    if not axis or number(found["zero"]) != 0 or out.dtype not in _FLOATS or out.dtype != found["x"].dtype:
        return None
    return {"axis": axis}


_MEAN = ("add", Named("mean", ("reduce_mean", ("square", "x"))), "epsilon")
_INVERSE = Either(("rsqrt", _MEAN), ("reciprocal", ("sqrt", _MEAN)))
_SAFE = Named("safe", ("where", ("isfinite", "top"), Named("top", ("reduce_max", "x")), "zero"))
_DIFFERENCE = ("subtract", "x", _SAFE)

RULES = (
    Rule(
        "root mean square norm", ("multiply", "x", _INVERSE), _rms, "rms_norm", ("x",),
        "the mean of squares is a kernel that reads x, and the quotient another",
    ),
    Rule(
        "root mean square norm by a quotient", ("divide", "x", ("sqrt", _MEAN)), _rms, "rms_norm", ("x",),
        "the same, as torch's exporters write it",
    ),
    Rule(
        "log of a sum of exponentials", ("add", ("log", Named("total", ("reduce_sum", ("exp", _DIFFERENCE)))), "safe"),
        _log_sum, "log_sum_exp", ("x",), "the largest is a kernel that reads x, and the sum another",
    ),
    Rule(
        "log of a sum of exponentials of float16", ("cast", ("add", ("log", Named("total", ("reduce_sum", ("exp", ("cast", _DIFFERENCE))))), ("cast", "safe"))),
        _log_sum, "log_sum_exp", ("x",), "the same, whose sum float16 may not hold",
    ),
)  # fmt: skip


def _picked_logarithms(graph: Graph) -> Graph:
    """Elements picked from a logarithm of softmax as those of its operand less the rows' largest and the logarithms of their sums, one after the other as the operator has it: a
    loss over a vocabulary then reads the rows once and writes none of them. Narrow floats stay: the operator rounds to one once."""
    outputs, users = set(graph.outputs), graph.users()

    def handle(b: Rebuild, node: Node) -> bool:
        log = node.inputs[0] if node.op == "gather_elements" else None
        if log is None or log.node is None or log.node.op != "log_softmax" or log.dtype not in ("float32", "float64"):
            return False
        last = log.ndim - 1
        axes = {a % log.ndim for a in (*log.node.attrs["axes"], node.attrs["axis"])}
        if axes != {last} or log in outputs or len(users[log]) > 1:
            return False
        if log.shape[:last] != node.inputs[1].shape[:last]:
            return False
        x, index = b.value(log.node.inputs[0]), b.value(node.inputs[1])
        (picked,) = b.new.add("gather_elements", [x, index], node.attrs, "", node.origin)
        (out,) = node.outputs
        b.map[out] = b.new.add("log_softmax_of", [x, picked], {"axis": last}, out.name, node.origin)[0]
        return True

    return rebuild(graph, handle)


def row_operators(graph: Graph) -> Graph:
    """The graph with each rule's pattern as its operator."""
    for rule in RULES:
        graph = apply_rule(rule, graph)
    return _picked_logarithms(graph) if any(n.op == "log_softmax" for n in graph.nodes) else graph
