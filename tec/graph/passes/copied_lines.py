"""Repetitions and padded edges as copies of whole lines, and running sums of lines that lie side by side in one row, on CPUs.

Repeated axes become axes of their own, which nothing that is read depends on, so that what was loaded is stored for each of them:

    tile(x[a, b], (r, s))  ->  reshape(broadcast_to(reshape(x, [1, a, 1, b]), [r, a, s, b]), [r * a, s * b])

Lines that are short are made longer first, by a kernel of its own that repeats the last axes. Padding that repeats elements (reflect, edge, wrap) asks for what lies
inside first, which is copied as it lies. The axes behind that of a running sum become one, whose vectors are sums side by side. A GPU's threads have an element each and gain nothing by either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import zip_longest

from ...ops.dims import Dim, Size
from ...ops.registry import CUMULATIVE, normalize_axis
from ...ops.typical import TYPICAL, typical
from ...target import Target
from ..graph import Graph, Node, Value
from .rewrite import Rebuild, rebuild

_LINE = 64  # elements of a line that is copied: some vectors of the widest registers, in any type
_LEAST = 4  # elements of a line that are quicker copied than picked one by one


def copy_lines(graph: Graph, target: Target) -> Graph:
    """The graph whose repetitions and paddings copy lines."""
    if target.is_gpu or not any(_handler(n) for n in graph.nodes):
        return graph

    def visit(b: Rebuild, n: Node) -> bool:
        handler = _handler(n)
        return handler is not None and handler(b, n)

    return rebuild(graph, visit)


def _handler(node: Node) -> Callable[[Rebuild, Node], bool] | None:
    return _running if CUMULATIVE in node.definition.traits else _HANDLERS.get(node.op)


def _running(b: Rebuild, node: Node) -> bool:
    x = b.value(node.inputs[0])
    axis = normalize_axis(node.attrs["axis"], x.ndim)
    behind, out = x.shape[axis + 1 :], node.outputs[0]
    if len(behind) < 2:
        return False
    (y,) = b.new.add("reshape", [x], {"shape": (*x.shape[: axis + 1], math.prod(behind))}, out.name, node.origin)
    (y,) = b.new.add(node.op, [y], {**node.attrs, "axis": axis}, out.name, node.origin)
    (b.map[out],) = b.new.add("reshape", [y], {"shape": out.shape}, out.name, node.origin)
    return True


def _padded(b: Rebuild, node: Node) -> bool:
    if node.attrs.get("mode", "constant") == "constant":
        return False
    values = [b.value(v) for v in node.inputs]
    out = node.outputs[0]
    (b.map[out],) = b.new.add("pad", values, {**node.attrs, "inside_first": True}, out.name, node.origin)
    return True


def _tiled(b: Rebuild, node: Node) -> bool:
    x, repeats = b.value(node.inputs[0]), tuple(node.attrs["repeats"])
    # An open size is taken to be a line.
    sizes = [max(typical(n), TYPICAL) if isinstance(n, Dim) else n for n in x.shape]
    if 0 in sizes or not all(isinstance(r, int) and r > 0 for r in repeats):
        return False
    first = _short_from(sizes, repeats)
    if first < len(sizes):
        inner = (*(1,) * first, *repeats[first:])
        last = max(k for k, r in enumerate(repeats) if r > 1)
        if math.prod(sizes[last:]) >= _LEAST:
            x = _copied(b, node, x, inner)
        else:
            (x,) = b.new.add("tile", [x], {"repeats": inner}, node.outputs[0].name, node.origin)
    if any(r > 1 for r in repeats[:first]):
        x = _copied(b, node, x, repeats[:first])
    b.map[node.outputs[0]] = x
    return True


def _short_from(sizes: list[int], repeats: tuple[int, ...]) -> int:
    """The first of the last axes that are repeated by themselves, so that all axes ahead of them repeat lines of some length."""
    line, first = 1, len(sizes)
    for k in reversed(range(len(sizes))):
        line *= sizes[k]
        if repeats[k] > 1:
            if line < _LINE:
                first = k
            line *= repeats[k]
    return first


def _copied(b: Rebuild, node: Node, x: Value, repeats: tuple[int, ...]) -> Value:
    """x with its first axes repeated. The reshape behind it keeps two of these in kernels of their own."""
    apart: list[Size] = []
    wide: list[Size] = []
    after: list[Size] = []
    for n, r in zip_longest(x.shape, repeats, fillvalue=1):
        apart += [1, n] if r > 1 else [n]
        wide += [r, n] if r > 1 else [n]
        after.append(n * r)
    name, origin = node.outputs[0].name, node.origin
    (y,) = b.new.add("reshape", [x], {"shape": tuple(apart)}, name, origin)
    (y,) = b.new.add("broadcast_to", [y], {"shape": tuple(wide)}, name, origin)
    (y,) = b.new.add("reshape", [y], {"shape": tuple(after)}, name, origin)
    return y


_HANDLERS = {"tile": _tiled, "pad": _padded}
