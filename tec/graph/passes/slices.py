"""Slices that a reshape takes apart are made behind it, of the whole.

    reshape(slice(x[b, s, 3 h d], columns), [b, s, h, d])  ->  slice(reshape(x, [b, s, 3 h, d]), heads)

A reshape that parts the dimension which the slice cuts, where the slice begins and ends between its parts. The reshape of the whole then shows what lies in memory, and the
slice is read where it lies, or goes into its reader's loops (`aliases`, `fuse`): queries, keys and values of one product need no copies.
"""

from __future__ import annotations

from math import prod

from ...ops.dims import is_symbolic
from ..aliases import cut_dimensions
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild


def slices_behind_reshapes(graph: Graph) -> Graph:
    """The graph with such slices behind such reshapes."""
    users, outputs = graph.users(), set(graph.outputs)
    found: dict[Node, tuple[tuple[int, ...], int]] = {}
    for node in graph.nodes:
        made = node.inputs[0].node if node.op == "reshape" else None
        if made is None or made.op != "slice" or made.inputs[0].is_const:
            continue
        if len(users[made.outputs[0]]) > 1 or made.outputs[0] in outputs:
            continue
        if (parted := _parted(made, node)) is not None:
            found[node] = parted
    if not found:
        return graph
    whole: dict[tuple[Value, tuple[int, ...]], Value] = {}

    def handle(b: Rebuild, node: Node) -> bool:
        if node not in found:
            return False
        cut, out = node.inputs[0].node, node.outputs[0]
        assert cut is not None
        x, (shape, axis) = cut.inputs[0], found[node]
        if (x, shape) not in whole:
            whole[x, shape] = b.new.add("reshape", [b.value(x)], {"shape": shape}, x.name)[0]
        inner = prod(out.shape[axis + 1 :])
        (before,) = cut_dimensions(cut)
        begin = cut.attrs["starts"][before] * prod(x.shape[before + 1 :]) // inner
        starts = tuple(begin if k == axis else 0 for k in range(out.ndim))
        attrs = {"starts": starts, "steps": (1,) * out.ndim, "sizes": out.shape}
        b.map[out] = b.new.add("slice", [whole[x, shape]], attrs, out.name, cut.origin)[0]
        return True

    return rebuild(graph, handle)


def _parted(cut: Node, reshape: Node) -> tuple[tuple[int, ...], int] | None:
    """The shape of the whole behind the reshape, and the dimension that is cut there; None where parts are no whole ones."""
    x, out = cut.inputs[0], reshape.outputs[0]
    shorter = cut_dimensions(cut)
    if len(shorter) != 1:
        return None
    (axis,) = shorter
    if any(s != 1 for s in cut.attrs["steps"]) or is_symbolic(x.shape[axis:]) or not out.ndim:
        return None
    before = [n for n in x.shape[:axis] if n != 1]
    at = 0  # how many of the result's dimensions are those before the cut one
    while before and at < out.ndim:
        if out.shape[at] != 1 and out.shape[at] != before.pop(0):
            return None
        at += 1
    while at < out.ndim - 1 and out.shape[at] == 1:
        at += 1
    if before or at == out.ndim or is_symbolic(out.shape[at:]):
        return None
    inner, outer = prod(out.shape[at + 1 :]), prod(x.shape[axis + 1 :])
    whole, first = x.shape[axis] * outer, cut.attrs["starts"][axis] * outer
    if not inner or whole % inner or first % inner:
        return None
    return (*out.shape[:at], whole // inner, *out.shape[at + 1 :]), at
