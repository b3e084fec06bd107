"""The order of a graph's nodes, and the graph as networkx has it. That package is imported by who asks: it takes a quarter of the compiler's own import."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import MissingPackageError

if TYPE_CHECKING:
    from .graph import Graph, Node


def networkx_of(graph: Graph) -> Any:
    """A MultiDiGraph: nodes are Node objects and input/constant Values, edges carry the value. Raises MissingPackageError."""
    g = _networkx("Graph.networkx").MultiDiGraph(name=graph.name)
    for v in [*graph.inputs, *graph.constants()]:
        g.add_node(v, label=v.name)
    for n in graph.nodes:
        g.add_node(n, label=n.op)
        for k, v in enumerate(n.inputs):
            g.add_edge(v.node if v.node is not None else v, n, value=v, index=k)
    return g


def in_order(nodes: Sequence[Node]) -> list[Node] | None:
    """Nodes such that each comes after those that make what it reads, else in the order given; None where there is a cycle, or a value that none of them makes.
    Raises MissingPackageError."""
    nx = _networkx("sorting a graph")
    g = nx.DiGraph()
    g.add_nodes_from(nodes)
    g.add_edges_from((v.node, n) for n in nodes for v in n.inputs if v.node is not None)
    position = {n: k for k, n in enumerate(nodes)}
    try:
        return list(nx.lexicographical_topological_sort(g, key=position.__getitem__))
    except (nx.NetworkXUnfeasible, KeyError):
        return None


def _networkx(what: str) -> Any:
    try:
        return import_module("networkx")
    except ModuleNotFoundError:
        raise MissingPackageError(what, "networkx") from None
