"""An expression as plain data: what is compiled, once for all expressions that are alike.

In: nodes. Out: `entries`, one for each value in order, of numbers and texts alone, so that they are a key:

    (dtype, shape, aligned)                      a value in memory
    (op, attrs, ints, inputs, shape, output)     an operator on the values of these numbers

`collapsed` merges dimensions that all values go through alike (a chain over arrays of one shape is a chain over one dimension).
`symbolic` puts names in the place of sizes: equal sizes get one name, 0 and 1 stay; places in a slice get names of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..ops.registry import BROADCAST, ELEMENTWISE, OPS
from ..runtime.devices.storage import ALIGN
from .node import Node

Entry = tuple[Any, ...]
_REDUCTIONS = frozenset(("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_any", "reduce_all"))


class Trace:
    """The entries of expressions: `leaves` are the nodes in memory, `order` those that are computed, `roots` the numbers of what is asked for."""

    __slots__ = ("entries", "key", "leaves", "order", "roots")

    def __init__(self, roots: Sequence[Node]):
        entries: list[Entry] = []
        leaves: list[Node] = []
        order: list[Node] = []
        number: dict[int, int] = {}

        def numbers(nodes: Sequence[Node]) -> tuple[int, ...]:
            """The places of some nodes among the entries; what a node is made of comes before it."""
            out = []
            for n in nodes:
                k = number.get(id(n))
                if k is None:
                    data = n.data
                    if data is not None:
                        leaves.append(n)
                        entry: Entry = (data.dtype, data.shape, data.alignment == ALIGN)
                    else:
                        inputs, f = numbers(n.inputs), n.form
                        order.append(n)
                        entry = (f.op, f.attrs, f.ints, inputs, f.shape, f.out)
                    k = number[id(n)] = len(entries)
                    entries.append(entry)
                out.append(k)
            return tuple(out)

        self.roots = numbers(roots)
        self.entries = tuple(entries)
        self.leaves = leaves
        self.order = order
        self.key = (self.entries, self.roots)


def is_leaf(e: Entry) -> bool:
    return len(e) == 3


def collapsed(entries: Sequence[Entry], roots: tuple[int, ...]) -> list[Entry] | None:
    """The same over as few dimensions as do; None where an operator goes through them otherwise. A reduction may stand at the end."""
    if len(roots) != 1 or roots[0] != len(entries) - 1:
        return None
    root = entries[-1]
    axes: tuple[int, ...] = ()
    body = entries
    if not is_leaf(root) and root[0] in _REDUCTIONS:
        axes, body = dict(root[1])["axes"], entries[:-1]
        full = _shape(entries[root[3][0]])
    else:
        full = _shape(root)
    for e in body:
        if not is_leaf(e) and (e[0] not in OPS or OPS[e[0]].kind not in (ELEMENTWISE, BROADCAST)):
            return None
    ndim = len(full)
    shapes = [_shape(e) for e in body]
    if any(len(s) > ndim for s in shapes):
        return None
    groups: list[tuple[Any, list[int]]] = []
    for d in range(ndim):
        if full[d] == 1:
            if any(len(s) - ndim + d >= 0 and s[len(s) - ndim + d] != 1 for s in shapes):
                return None  # wider inside than at the end
            continue
        alike = (tuple([len(s) - ndim + d < 0 or s[len(s) - ndim + d] == 1 for s in shapes]), d in axes)
        if groups and groups[-1][0] == alike:
            groups[-1][1].append(d)
        else:
            groups.append((alike, [d]))

    def fold(s: tuple[int, ...]) -> tuple[int, ...]:
        if not s:
            return s
        return tuple([prod([s[len(s) - ndim + d] for d in ds if len(s) - ndim + d >= 0]) for _, ds in groups])

    out: list[Entry] = []
    for e in body:
        if is_leaf(e):
            out.append((e[0], fold(e[1]), e[2]))
        else:
            ints = (("shape", fold(e[4])),) if e[0] == "broadcast_to" else e[2]
            out.append((e[0], e[1], ints, e[3], fold(e[4]), e[5]))
    if len(body) != len(entries):
        kept = tuple(k for k, ((_, reduced), _) in enumerate(groups) if reduced)
        shape = tuple(prod(full[d] for d in ds) for (_, reduced), ds in groups if not reduced)
        if kept:
            out.append((root[0], (("axes", kept), ("keepdims", False)), (), root[3], shape, 0))
        else:
            out.append(("identity", (), (), root[3], shape, 0))
    return out


def _shape(e: Entry) -> tuple[int, ...]:
    return e[1] if is_leaf(e) else e[4]  # type: ignore[no-any-return]


def symbolic(entries: Sequence[Entry]) -> tuple[tuple[Entry, ...], dict[str, int]]:
    """(entries with names for sizes, the numbers that the names stand for here)."""
    names: dict[int, str] = {}
    env: dict[str, int] = {}

    def size(n: int) -> Any:
        if n < 2:
            return n
        found = names.get(n)
        if found is None:
            found = names[n] = f"n{len(names)}"
            env[found] = n
        return found

    def place(n: int) -> Any:
        if n <= 0:
            return n
        name = f"b{len(env)}"
        env[name] = n
        return name

    out: list[Entry] = []
    for e in entries:
        if is_leaf(e):
            out.append((e[0], tuple(map(size, e[1])), e[2]))
        else:
            ints = tuple(
                (k, size(v) if isinstance(v, int) else tuple(map(place if k == "starts" else size, v))) for k, v in e[2]
            )
            out.append((e[0], e[1], ints, e[3], tuple(map(size, e[4])), e[5]))
    return tuple(out), env
