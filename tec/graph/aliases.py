"""Nodes that move nothing: values that are a part of another value's memory.

A reshape shows its input's elements under another shape. A slice of whole rows is a piece of its input. A concatenation of
whole rows is its inputs, made one behind the other from the start. None of them needs a function, and steps that read or
make one row each of a long sequence (an LSTM's) are one function with another address.

In: a graph, after its passes. Out: `Aliases`: which nodes are views and at which byte of their input they begin, and which
concatenations are joined, with the place of each input in the result. Sizes must be numbers but for reshapes.
"""

from __future__ import annotations

from dataclasses import field
from math import prod

from ..ops.dims import is_symbolic
from ..ops.registry import BROADCAST, ELEMENTWISE, INJECTIVE, PITCHED, REDUCTION, REGION, ROW, VIEW, normalize_axis
from ..records import dataclass
from ..te.numpy_dtype import np_dtype
from .graph import Graph, Node, Value
from .state import Rows

PIECE_ALIGN = 64  # bytes: what functions may expect of an argument's address
_SHORT = 4096  # elements: a few for each thread of one work-group


@dataclass
class Aliases:
    """`views`: node -> first byte in its input; `joins`: node -> first byte of each input in its output; `pitched`: views whose rows lie apart, each with the dimension that is cut
    and how long it is in memory."""

    views: dict[Node, int] = field(default_factory=dict)
    joins: dict[Node, list[int]] = field(default_factory=dict)
    pitched: dict[Value, tuple[int, int]] = field(default_factory=dict)


def find_aliases(graph: Graph, rows: Rows) -> Aliases:
    """The graph's nodes that need no function."""
    found = Aliases()
    readers = graph.users()
    for node in graph.nodes:
        if node.inputs and (node.inputs[0].is_const or node.inputs[0] in rows):
            continue
        if VIEW in node.definition.traits:
            if not moves_ones(node, readers):
                found.views[node] = 0
        elif node.op == "slice":
            begin = _piece(node)
            if begin is not None and not _worth_fusing(node.inputs[0], readers):
                found.views[node] = begin
            elif begin is None and (apart := _apart(node, readers, graph)) is not None:
                found.views[node], found.pitched[node.outputs[0]] = apart
    if any(v.type.is_symbolic for v in graph.inputs):
        return found  # places are found when sizes are bound, one by one
    placed: set[Value] = set(graph.outputs)
    for node in reversed(graph.nodes):  # the largest come last
        if node.op == "concat":
            _join(node, found, placed)
    return found


def _whole_rows(shape: tuple[int, ...], axis: int) -> bool:
    """Whether pieces along `axis` of a row-major array are one behind the other."""
    return prod(shape[:axis]) == 1


def _piece(node: Node) -> int | None:
    """The byte at which a slice begins in its input, where it is one aligned piece of it."""
    x, y = node.inputs[0], node.outputs[0]
    if x.type.is_symbolic or y.type.is_symbolic or y.type.size == 0 or x.dtype != y.dtype:
        return None
    starts = node.attrs["starts"]
    cut = [k for k, (a, b) in enumerate(zip(x.shape, y.shape)) if a != b]
    axis = cut[0] if cut else 0
    if any(s != 1 for s, n in zip(node.attrs["steps"], y.shape) if n > 1) or len(cut) > 1:
        return None
    if not _whole_rows(x.shape, axis):
        return None
    begin = starts[axis] * prod(x.shape[axis + 1 :]) * np_dtype(x.dtype).itemsize if x.ndim else 0
    return begin if begin % PIECE_ALIGN == 0 else None


def cut_dimensions(node: Node) -> list[int]:
    """The dimensions that a slice makes shorter."""
    return [k for k, (a, b) in enumerate(zip(node.inputs[0].shape, node.outputs[0].shape)) if a != b]


def _apart(node: Node, readers: dict[Value, list[Node]], graph: Graph) -> tuple[int, tuple[int, int]] | None:
    """(the first byte, (the dimension that is cut, its length in memory)) of a slice whose rows lie apart in its input, where all that read it may read it there."""
    x, y = node.inputs[0], node.outputs[0]
    if x.node is None or y in graph.outputs or not readers.get(y) or x.dtype != y.dtype:
        return None
    if any(PITCHED not in n.definition.traits for n in readers[y]):
        return None
    cut = cut_dimensions(node)
    if len(cut) != 1 or any(s != 1 for s in node.attrs["steps"]) or is_symbolic(x.shape):
        return None
    (axis,) = cut
    row = prod(x.shape[axis + 1 :]) * np_dtype(x.dtype).itemsize
    begin, pitch = node.attrs["starts"][axis] * row, x.shape[axis] * row
    if begin % PIECE_ALIGN or pitch % PIECE_ALIGN or _worth_fusing(x, readers):
        return None
    return begin, (axis, x.shape[axis])


def moves_ones(node: Node, readers: dict[Value, list[Node]]) -> bool:
    """Whether a reshape only puts in or takes out dimensions of 1 on the way from one kernel's work to the next one's: it goes into their loops, which
    are then one: at no cost where rows are appended, and where there are few elements at one that is less than a call's."""
    x, y = node.inputs[0], node.outputs[0]
    after = readers.get(y, ())
    if (
        x.node is None
        or len(readers[x]) != 1
        or len(after) != 1
        or [n for n in x.shape if n != 1] != [n for n in y.shape if n != 1]
    ):
        return False
    moved = (INJECTIVE, ELEMENTWISE, BROADCAST)
    taken = after[0].definition.kind in (*moved, REDUCTION) or ROW in after[0].definition.traits
    return (
        x.node.definition.kind in moved
        and x.node.op != "slice"
        and (after[0].op == "append" or (is_short(y) and taken))
        and not any(VIEW in n.definition.traits for n in (x.node, after[0]))  # of two views each shows memory
    )


def is_short(v: Value) -> bool:
    """Whether a value has so few elements that a call of its own is most of what it costs to make it, and how it is read does not matter."""
    return isinstance(v.type.size, int) and v.type.size <= _SHORT


def _worth_fusing(v: Value, readers: dict[Value, list[Node]]) -> bool:
    """Whether only a part of `v` is needed at all: its maker is better run on that part."""
    return v.node is not None and len(readers.get(v, ())) == 1 and v.node.definition.kind not in ("complex", "opaque")


def _join(node: Node, found: Aliases, placed: set[Value]) -> None:
    """Take a concatenation into `found` where its inputs can be made in place."""
    out = node.outputs[0]
    axis = normalize_axis(node.attrs["axis"], out.ndim)
    if out.type.is_symbolic or not _whole_rows(out.shape, axis):
        return
    begins, at = [], 0
    makers: list[Value] = []
    for v in node.inputs:
        source = v
        while source.node in found.views and found.views[source.node] == 0 and _same_bytes(source):
            source = source.node.inputs[0]
        if source.node is None or source.node in found.views or source in placed or source in makers:
            return
        if REGION in source.node.definition.traits:  # its states change places
            return
        if at % PIECE_ALIGN or v.type.size == 0:
            return
        makers.append(source)
        begins.append(at)
        at += v.type.size * np_dtype(v.dtype).itemsize
    if len(makers) < 2:
        return
    found.joins[node] = begins
    placed.update(makers)


def _same_bytes(v: Value) -> bool:
    assert v.node is not None
    return bool(v.node.inputs[0].type.size == v.type.size)
