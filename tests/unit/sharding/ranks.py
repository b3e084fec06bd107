"""The ranks' graphs run side by side in NumPy, node by node: what propagation made is right or wrong before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tec.graph import Graph
from tec.graph.operators import run_op
from tec.ops.registry import COLLECTIVE
from tec.sharding import Mesh
from tec.sharding.network import rank_graphs
from tec.sharding.rules import Rules

_JOIN = {
    "sum": lambda xs: np.sum(xs, axis=0), "avg": lambda xs: np.mean(xs, axis=0), "max": lambda xs: np.max(xs, axis=0), "min": lambda xs: np.min(xs, axis=0),
    "prod": lambda xs: np.prod(xs, axis=0),
}  # fmt: skip


def exchanged(op: str, attrs: Mapping[str, Any], xs: list[Any], at: int) -> Any:
    """What the rank at place `at` of a line gets of all ranks' arrays."""
    n = len(xs)
    assert n == attrs["ranks"]
    if op == "all_gather":
        return np.concatenate(xs)
    if op == "all_to_all":
        return np.concatenate([np.split(x, n)[at] for x in xs])
    whole = _JOIN[attrs["reduction"]](np.stack(xs)).astype(xs[0].dtype)
    return whole if op == "all_reduce" else np.split(whole, n)[at]


def run_ranks(
    graph: Graph, mesh: Mesh, rules: Mapping[str, Any], feeds: Mapping[str, Any]
) -> tuple[list[Any], list[Graph], dict[str, Any]]:
    """The whole outputs of a graph that is split, for whole inputs; the ranks' graphs, and what was told of the split."""
    graphs, notes, ends = rank_graphs(graph, mesh, Rules(rules, mesh))
    for g in graphs:
        g.check()
    values: list[dict[Any, Any]] = [
        {v: ends.part(feeds[v.name], v.name, mesh, r) for v in g.inputs} for r, g in enumerate(graphs)
    ]

    def get(r: int, v: Any) -> Any:
        return v.data if v.is_const else values[r][v]

    for r, g in enumerate(graphs):
        assert [n.op for n in g.nodes] == [n.op for n in graphs[0].nodes], f"rank {r} has another program"
        for v in g.inputs:
            assert values[r][v].shape == v.shape
    for nodes in zip(*(g.nodes for g in graphs)):
        if COLLECTIVE in nodes[0].definition.traits:
            made = []
            for r, n in enumerate(nodes):
                line = mesh.line(r, n.attrs["mesh_axis"])
                made.append([exchanged(n.op, n.attrs, [get(q, nodes[q].inputs[0]) for q in line], line.index(r))])
        else:
            made = [
                run_op(
                    n.definition,
                    n.attrs,
                    [get(r, v) for v in n.inputs],
                    [v.type for v in n.inputs],
                    [v.type for v in n.outputs],
                )
                for r, n in enumerate(nodes)
            ]
        for r, (n, outs) in enumerate(zip(nodes, made)):
            values[r].update(zip(n.outputs, outs))
    names = graph.output_names
    joined = [
        ends.joined([np.asarray(get(r, g.outputs[k])) for r, g in enumerate(graphs)], f"output {name}", mesh)
        for k, name in enumerate(names)
    ]
    return joined, graphs, notes
