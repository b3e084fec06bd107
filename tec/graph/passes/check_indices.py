"""Indices that are known only when a network runs: an output more for each, which says whether all are inside. Other conditions (`require`) alike.

In: a graph. Out: the same with hidden outputs, and for each the text of the error that the network raises where it is false.
The operators themselves clamp (gathers) or leave out (scatters) what is outside, so that no memory beyond is touched; without
the check that would be a wrong result in silence. Indices that are constants are checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ImportModelError
from ...ops.dims import Size
from ...ops.indices import check_index, index_sizes, spans
from ...ops.registry import CHECKED, INDEXED
from ..graph import Graph, Node, Value
from ..regions import Body, bodies, is_region
from .common_subexpressions import common_subexpressions
from .rewrite import Rebuild

_PARTED = 1024  # indices of a flag, where there are so many: a work-group's
_VECTORS = 32  # indices that a part is best a multiple of, so that no vector is a part of one
_MOST_FLAGS = 4096  # that a host reads at once
_LIMITS = {"int8": 127, "uint8": 255, "int16": 32767, "uint16": 65535}


def check_indices(graph: Graph) -> tuple[Graph, list[str]]:
    """(the graph, the text for each of its last outputs)."""
    if not any(_bounds(n) or CHECKED in n.definition.traits or is_region(n) for n in graph.nodes):
        return graph, []
    graph = common_subexpressions(graph)  # equal conditions are one
    b = Rebuild(graph)
    seen: dict[tuple[Value, Any], Value] = {}
    texts: list[str] = []
    flags: list[Value] = []
    for node in graph.nodes:
        if is_region(node):
            flag, text = _region(b, node)
            if flag is not None:
                flags.append(flag)
                texts.append(text)
            continue
        if CHECKED in node.definition.traits:
            condition, text = b.value(node.inputs[1]), node.attrs["text"]
            if condition.is_known and not condition.data:
                raise ImportModelError(text, hint="indices within the axis: a constant of the model is none")
            if not condition.is_known and (condition, (text,)) not in seen:
                seen[condition, (text,)] = condition
                flags.append(condition)
                texts.append(text)
            b.map[node.outputs[0]] = b.value(node.inputs[0])
            continue
        found = _bounds(node)
        if found is not None:
            index, sizes = found
            if len(sizes) == 1 and index.node is not None and index.node.op == "broadcast_to":
                (index,) = index.node.inputs  # all of its elements are copied
            key = (index, tuple(map(str, sizes)))
            if key not in seen:
                if index.is_known:
                    check_index(index.data, sizes, _text(node))
                else:
                    seen[key] = _inside(b, b.value(index), sizes, len(seen))
                    flags.append(seen[key])
                    texts.append(f"{_text(node)} is outside of {spans(sizes)}")
        b.copy(node)
    new = b.finish()
    new.set_outputs([*new.outputs, *flags], [*new.output_names, *(_fresh(new, f"check{k}") for k in range(len(flags)))])
    return new, texts


def _region(b: Rebuild, node: Node) -> tuple[Value | None, str]:
    """A loop or a branch, rebuilt: whether all indices in its bodies are inside, at all trips, and the text where one is not. None without any."""
    found = {k: check_indices(body) for k, body in bodies(node)}
    texts = list(dict.fromkeys(t for _, ts in found.values() for t in ts))
    if not texts:
        b.copy(node)
        return None, ""
    flags = {k: _taken_off(g, len(ts)) for k, (g, ts) in found.items()}
    attrs = node.attrs | {k: Body(g) for k, (g, _) in found.items()}
    inputs = [b.value(v) for v in node.inputs]
    if node.op == "choose":
        for k, (g, _) in found.items():
            g.set_outputs([*g.outputs, _all(g, flags[k])])
        outs = b.new.add("choose", inputs, attrs, node.outputs[0].name, node.origin)
        b.map.update(zip(node.outputs, outs))
        return outs[-1], " or ".join(texts)
    # It is one more state: true until an index is outside.
    g, n = found["body"][0], node.attrs["states"]
    before = g.input(g.unique_name("inside"), "bool", ())
    g.inputs.insert(n, g.inputs.pop())
    ok = _all(g, [before, *flags["body"]])
    g.set_outputs([*g.outputs[:n], ok, *g.outputs[n:]])
    at = len(attrs.get("extras", ())) + n
    inputs.insert(at, b.new.constant(np.asarray(True), "inside"))
    outs = b.new.add(
        "loop", inputs, attrs | {"states": n + 1}, node.outputs[0].name if node.outputs else "loop", node.origin
    )
    b.map.update(zip(node.outputs, [*outs[:n], *outs[n + 1 :]]))
    return outs[n], " or ".join(texts)


def _taken_off(g: Graph, count: int) -> list[Value]:
    """The last outputs of a graph, which are none from then on."""
    flags = g.outputs[len(g.outputs) - count :]
    g.set_outputs(g.outputs[: len(g.outputs) - count])
    return flags


def _all(g: Graph, flags: list[Value]) -> Value:
    """Whether all are true."""
    if not flags:
        return g.constant(np.asarray(True), "inside")
    total = flags[0]
    for f in flags[1:]:
        total = g.add("logical_and", [total, f])[0]
    return total


def _fresh(graph: Graph, name: str) -> str:
    while name in graph.output_names or any(v.name == name for v in graph.inputs):
        name += "_"
    return name


def _bounds(node: Node) -> tuple[Value, list[Size]] | None:
    """The index of a node and the sizes that it counts in: one, or one an element of its last dimension."""
    if INDEXED not in node.definition.traits:
        return None
    x, index = node.inputs[0], node.inputs[1]
    if index.type.size == 0 or not index.dtype.startswith(("int", "uint")):
        return None
    sizes = index_sizes(node.op, node.attrs, x.shape, index.shape)
    if node.op.endswith("_nd"):
        return index, sizes
    n = sizes[0]
    if isinstance(n, int) and n > _LIMITS.get(index.dtype, 1 << 62):
        return None  # no index of that type reaches the end
    return index, [n]


def _text(node: Node) -> str:
    return f"an index of {node.op} ({node.origin or node.outputs[0].name})"


def _inside(b: Rebuild, index: Value, sizes: list[Size], number: int) -> Value:
    """Whether all of `index` is inside: a bool of no dimensions, or one for each part of many indices."""
    g: Graph = b.new
    dtype, unsigned = index.dtype, index.dtype.startswith("uint")
    top = _LIMITS.get(dtype, 1 << 31)
    known = [min(n, top) if isinstance(n, int) else n for n in sizes]
    length = _part(index.type.size)
    if length and len(known) == 1 and isinstance(known[0], int):
        flat = index if index.ndim == 1 else g.add("reshape", [index], {"shape": (index.type.size,)}, index.name)[0]
        attrs = {"length": length, "low": 0 if unsigned else -known[0], "high": known[0] - 1}
        return g.add("all_in_parts", [flat], attrs)[0]
    shape = known[0] if len(known) == 1 else known
    fits = g.add("less", [index, g.sizes(shape, f"size{number}", dtype)])[0]
    if not unsigned:
        low = [-n if isinstance(n, int) else 0 - n for n in known]
        start = g.sizes(low[0] if len(low) == 1 else low, f"start{number}", dtype)
        fits = g.add("logical_and", [fits, g.add("greater_equal", [index, start])[0]])[0]
    if fits.ndim == 1 and length:
        return g.add("all_in_parts", [fits], {"length": length})[0]
    if fits.ndim:
        fits = g.add("reduce_all", [fits], {"axes": tuple(range(fits.ndim)), "keepdims": False})[0]
    return fits


def _part(count: Size) -> int:
    """How many of so many indices a flag stands for; 0 where one stands for all. Who reads the flags reads them all: one flag of many indices is two kernels on a GPU
    one after the other, or one that a single work-group takes long for."""
    if not isinstance(count, int) or count < 2 * _PARTED:
        return 0
    least = -(-count // _MOST_FLAGS)
    wanted = max(_PARTED, least)
    whole = [n for n in range(max(wanted // 8, least), wanted * 4) if count % n == 0]
    return min(whole, key=lambda n: (n % _VECTORS > 0, abs(n - wanted)), default=wanted)
