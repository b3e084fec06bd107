"""Calls within array programs: what is no expression of elements but a function of whole arrays, such as a sort, a Fourier transform, a factor of a matrix.

Outside of `tec.array.jit` such a function runs at once. A function that is compiled whole is cut there: the call becomes a step between two graphs
(`staged`), whose function runs again in each run, on the values of that run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import build
from .complexes import is_complex, woven
from .computing import in_memory
from .node import RECORDERS, TRACED, Node, is_traced, leaf, note


def apart(function: Callable[..., Any], *nodes: Node) -> Any:
    """A function of nodes, which gives one or a tuple, of shapes and types that follow from those of the nodes: now, or as a step of what is compiled whole."""
    if any(map(is_traced, nodes)):
        return TRACED[-1].step(function, nodes)
    return function(*nodes)


@contextmanager
def unwritten() -> Iterator[None]:
    """What this thread does inside is not written down for gradients."""
    mine = [r for r in RECORDERS if r.thread == threading.get_ident()]
    for r in mine:
        RECORDERS.remove(r)
    try:
        yield
    finally:
        RECORDERS.extend(mine)  # others may have begun or ended meanwhile


def alone(n: Node) -> Node:
    """The value as a node that nothing else is written down of; `tell` says what it is."""
    if is_traced(n):  # no value yet: one of its own by name alone
        with unwritten():
            return build.of_pairs(build.unary("identity", woven(n))) if is_complex(n) else build.unary("identity", n)
    return leaf(in_memory(n), beside=n)


def tell(op: str, made: Node, inputs: tuple[Node, ...], **more: Any) -> None:
    """Tell the recorders what made a node of `alone`."""
    note(op, made, inputs, **more)
    if RECORDERS and made.data is None and is_complex(made):  # others read its parts, which are there already
        for part in made.inputs:
            path = [part]
            while path[-1].op != "identity":
                path.append(path[-1].inputs[0])
            pairs = path.pop()
            if part is made.inputs[0]:
                note("pairs", pairs, (made,))
            for n in reversed(path):
                note(n.op, n, n.inputs, n.form)
