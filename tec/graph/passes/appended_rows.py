"""On a GPU what is appended to a state is made for it alone, where it is short work: codes of keys, and their scales, each in one kernel from the keys as they were.

    r = rotary(k); append(codes(r)), append(scale(r))    ->   append(codes(rotary(k))), append(scale(rotary(k)))
    append(reshape(scale(k)))                            ->   append(scale(reshape(k)))

A launch takes as long as such work does several times over. A reshape that moves dimensions of 1 stands behind sums along rows where it came down the graph with
others; it goes ahead of them again, so that the kernel of the sums is that of what is appended.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.dims import Size
from ...ops.registry import BROADCAST, COSTLY, ELEMENTWISE, INJECTIVE
from ...target import Target
from ..aliases import is_short
from ..graph import Graph, Node, Value
from .fuse import sums_along_rows
from .rewrite import Rebuild, copied, rebuild

_MOST_NODES = 12  # of one state's rows: with what they are appended by fewer than a fused group may have


def appended_rows(graph: Graph, target: Target) -> Graph:
    """The graph in which new rows of states share no sums; as it is on CPUs, where a call costs little."""
    if not target.is_gpu:
        return graph
    users = graph.users()

    def handle(b: Rebuild, node: Node) -> bool:
        if node.op != "append" or not is_short(node.inputs[1]):
            return False
        chain = _chain(node.inputs[1])
        if chain is None or not any(len(users[v]) > 1 or n.op == "reshape" for n in chain for v in n.outputs):
            return False
        past, rows, *place = node.inputs
        made = _made(b, chain, rows.shape)
        b.map.update(zip(node.outputs, copied(b.new, node, [b.value(past), made, *map(b.value, place)])))
        return True

    return rebuild(graph, handle)


def _chain(rows: Value) -> list[Node] | None:
    """The nodes that make a state's new rows, one after the other, the last first: elementwise work on sums along rows of a value, these, and the short work that makes
    the value; None where that is no such chain."""
    chain: list[Node] = []
    sums = 0
    v = rows
    while (n := v.node) is not None and is_short(v) and len(n.outputs) == 1 and len(chain) < _MOST_NODES:
        if sums_along_rows(n):
            if sums or not _goes_along_last(n):
                break
            sums = 1
        elif (
            n.definition.kind not in (ELEMENTWISE, BROADCAST, INJECTIVE)
            or COSTLY in n.definition.traits
            or n.op in ("slice", "concat")
        ):
            break
        elif not sums and any(not w.is_known or w.type.size != 1 for w in n.inputs[1:]):
            return None
        elif not sums and n.op == "reshape" and not _moves_ones(n):
            return None
        chain.append(n)
        v = n.inputs[0]
    return chain if sums else None


def _goes_along_last(n: Node) -> bool:
    """Whether a reduction or a row operator goes along the last dimension alone, and leaves as many dimensions. Windows have no axis."""
    rank = n.inputs[0].ndim
    axes = (n.attrs["axis"],) if "axis" in n.attrs else n.attrs.get("axes", ())
    return [a % rank for a in axes] == [rank - 1] and n.outputs[0].ndim == rank


def _moves_ones(n: Node) -> bool:
    before, after = ([d for d in v.shape[:-1] if d != 1] for v in (n.inputs[0], n.outputs[0]))
    return before == after and n.inputs[0].shape[-1:] == n.outputs[0].shape[-1:]


def _made(b: Rebuild, chain: Sequence[Node], shape: Sequence[Size]) -> Value:
    """The chain's value of this shape again, as nodes of its own."""
    at = next(k for k, n in enumerate(chain) if sums_along_rows(n))
    v = b.value(chain[-1].inputs[0])
    behind: list[Node] = []  # elementwise work on one value, which may as well follow a reshape

    def reshaped(to: Sequence[Size]) -> Value:
        x = v if v.shape == to else b.new.add("reshape", [v], {"shape": to}, v.name)[0]
        for n in behind:
            (x,) = b.new.add(n.op, [x], n.attrs, n.outputs[0].name, n.origin)
        behind.clear()
        return x

    for n in reversed(chain[at + 1 :]):
        if n.definition.kind == ELEMENTWISE and len(n.inputs) == 1:
            behind.append(n)
        elif n.op != "reshape":
            x = reshaped(n.inputs[0].shape)
            (v,) = copied(b.new, n, [x, *map(b.value, n.inputs[1:])])
    v = reshaped((*shape[:-1], chain[at].inputs[0].shape[-1]))
    axis = len(shape) - 1
    for n in reversed(chain[: at + 1]):
        if n.op == "reshape":
            continue
        attrs = (
            {**n.attrs, **({"axis": axis} if "axis" in n.attrs else {"axes": (axis,)})} if n is chain[at] else n.attrs
        )
        (v,) = b.new.add(n.op, [v, *map(b.value, n.inputs[1:])], attrs, n.outputs[0].name, n.origin)
    return v
