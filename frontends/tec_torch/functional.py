"""An exported graph without writes, where it can be had without tracing once more.

torch.export's graph still has calls in place (`relu_`, `add_`). `run_decompositions` makes functions of them by tracing the whole graph a second time, which takes
as long as the first. Most graphs need only this: the call is that of the function, and whoever reads the written tensor later reads its result. Which
tensors lie on one storage, the graph's own types tell.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from .importer import converter_of, is_assertion

# Composites that are left to torch's decompositions: their parts serve better.
_IN_PARTS = frozenset({"einsum"})


def functional(graph: Graph) -> Graph | None:
    """A copy of the graph in which no call writes and each has a conversion, or None where that needs torch's own machinery."""
    made = Graph(graph.owning_module)
    now: dict[Node, Node] = {}  # what each node of the old graph is read as
    seen: list[Node] = []
    order = {n: k for k, n in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op == "call_function":
            function, places = _function(node, seen)
            if function is None or any(
                order[u] > order[node] for p in places[1:] for u in p.users if not _same(p, node)
            ):
                return None
            copy = made.node_copy(node, now.__getitem__)
            copy.target = function
            for p in places:
                now[p] = copy
        elif node.op in ("placeholder", "output"):
            copy = made.node_copy(node, now.__getitem__)
        else:
            return None
        copy.name = node.name  # a graph gives names that are no identifiers of its own
        now[node] = copy
        seen.append(node)
    return made


def _function(node: Node, before: list[Node]) -> tuple[Any, list[Node]]:
    """(the function that a call is of, the nodes whose storage it writes, that of its argument first); (None, []) where there is none."""
    target, val = node.target, node.meta.get("val")
    name = getattr(target, "__name__", str(target))
    if name == "getitem" or not isinstance(target, torch._ops.OpOverload):
        return (target, []) if name == "getitem" or _is_number(val) else (None, [])
    if _is_number(val) or is_assertion(node):
        return target, []
    packet = target.overloadpacket.__name__
    written = [k for k, a in enumerate(target._schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    if not written:
        return (target, []) if converter_of(target) is not None and packet not in _IN_PARTS else (None, [])
    pure = getattr(getattr(torch.ops.aten, packet.removesuffix("_"), None), target._overloadname, None)
    self = node.args[0] if node.args else None
    if (
        written != [0]
        or not packet.endswith("_")
        or pure is None
        or converter_of(pure) is None
        or not isinstance(self, Node)
    ):
        return None, []
    if _promotes(node) or not _same(self, node):
        return None, []
    places = [self] + [n for n in before if n is not self and _shares(n, node)]
    if any(p.op == "placeholder" for p in places):
        return None, []  # an input or a weight is written
    return pure, places


def _is_number(val: Any) -> bool:
    return isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float))


def _promotes(node: Node) -> bool:
    """Whether the function's result would be of another type than the tensor that the call writes."""
    written, *others = [a.meta.get("val") if isinstance(a, Node) else a for a in (*node.args, *node.kwargs.values())]
    numbers = [v for v in others if isinstance(v, (torch.Tensor, bool, int, float))]
    return any(torch.result_type(written, v) != written.dtype for v in numbers)


def _tensors(node: Node) -> list[torch.Tensor]:
    val = node.meta.get("val")
    return [v for v in (val if isinstance(val, (tuple, list)) else [val]) if isinstance(v, torch.Tensor)]


def _storage(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def _shares(a: Node, b: Node) -> bool:
    """Whether two nodes have tensors of one storage."""
    return not {_storage(t) for t in _tensors(a)}.isdisjoint(map(_storage, _tensors(b)))


def _same(a: Node, b: Node) -> bool:
    """Whether two nodes are one tensor: of one storage, and as they lie in it."""
    x, y = a.meta.get("val"), b.meta.get("val")
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor) or _storage(x) != _storage(y):
        return False
    return (x.shape, x.stride(), x.storage_offset(), x.dtype) == (y.shape, y.stride(), y.storage_offset(), y.dtype)


__all__ = ["functional"]
