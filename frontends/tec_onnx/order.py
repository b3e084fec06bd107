"""The order of a model's nodes: as the file has them where that works, else sorted, as the standard asks a file to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

import onnx

from tec import ImportModelError
from tec.errors import one_line


def in_order(nodes: Iterable[onnx.NodeProto], known: Callable[[str], bool]) -> list[onnx.NodeProto]:
    """`nodes` such that each comes after those that make what it reads; the order given is kept where it can be.

    `known`: whether a name has a value from outside. ImportModelError where nodes wait for each other.
    """
    nodes = list(nodes)
    maker: dict[str, int] = {}
    for k, n in enumerate(nodes):
        for name in n.output:
            if name:
                maker.setdefault(name, k)
    reads = [list(dict.fromkeys(name for name in _reads(n) if name in maker and not known(name))) for n in nodes]
    if all(maker[name] < k for k, names in enumerate(reads) for name in names):
        return nodes
    nx = import_module("networkx")  # most files are in order, and it takes long to import
    graph: Any = nx.DiGraph()
    graph.add_nodes_from(range(len(nodes)))
    graph.add_edges_from((maker[name], k) for k, names in enumerate(reads) for name in names)
    try:
        return [nodes[k] for k in nx.lexicographical_topological_sort(graph)]
    except nx.NetworkXUnfeasible:
        around = [label(nodes[a]) for a, _ in nx.find_cycle(graph)]
        shown = " -> ".join([*around[:8], *["..."] * (len(around) > 8), around[0]])
        raise ImportModelError(
            f"nodes wait for each other's results: {shown}",
            hint="one of these nodes must read another value; a repetition is written as a Loop",
        ) from None


def label(node: onnx.NodeProto) -> str:
    """A node as messages name it."""
    return f"{node.name or '/'.join(node.output)!r} ({one_line(node.op_type)})"


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, those that its bodies take from around them included."""
    yield from (name for name in node.input if name)
    for a in node.attribute:
        for g in [*([a.g] if a.HasField("g") else []), *a.graphs]:
            own = {i.name for i in g.input} | {t.name for t in g.initializer}
            own |= {name for n in g.node for name in n.output}
            yield from (o.name for o in g.output if o.name not in own)
            for n in g.node:
                yield from (name for name in _reads(n) if name not in own)
