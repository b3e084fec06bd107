"""Writing down an array program while it runs: which value is which operator on which values.

A program runs as always, with the values that it is given, so that Python's `if`, `for` and `while` do what they do; what was written down is the one way
that it took. Expressions stay expressions: writing down computes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import dtypes
from .array import Array
from .forms import Attrs, Form
from .node import COSTLY, RECORDERS, Node


class Entry:
    """`made` is `op` on `inputs`: with the attributes of an expression's form, or those of what is none (`more`)."""

    __slots__ = ("attrs", "inputs", "ints", "made", "more", "op", "out")

    def __init__(self, op: str, made: Node, inputs: tuple[Node, ...], form: Form | None, more: dict[str, Any]):
        self.op = op
        self.made = made
        self.inputs = inputs
        self.attrs: Attrs = () if form is None else form.attrs
        self.ints: Attrs = () if form is None else form.ints
        self.out = 0 if form is None else form.out
        self.more = more


class Tape:
    """What was written down, in order. Values that are looked at are those whose numbers decide where a program goes on.
    differentiates: whether gradients are taken along it."""

    def __init__(self, differentiates: bool = False) -> None:
        self.differentiates = differentiates
        self.entries: list[Entry] = []
        self.looked_at: list[Node] = []
        self.thread = threading.get_ident()

    def record(self, op: str, made: Node, inputs: tuple[Node, ...], form: Form | None, more: dict[str, Any]) -> None:
        if threading.get_ident() == self.thread:
            self.entries.append(Entry(op, made, inputs, form, more))
            made.taped = self.differentiates and op in COSTLY

    def look_at(self, n: Node) -> None:
        if threading.get_ident() == self.thread:
            self.looked_at.append(n)

    @contextmanager
    def running(self) -> Iterator[Tape]:
        """Write down what is made inside."""
        RECORDERS.append(self)
        try:
            yield self
        finally:
            RECORDERS.remove(self)


def array_of(n: Node) -> Array:
    """The array that names a node, or one that does."""
    held = n.owner() if n.owner is not None else None
    return held if held is not None and held._node is n else Array(n)


def depends(tape: Tape, on: set[Node]) -> set[Node]:
    """The values, floats and complex numbers, that are made of these."""
    found = set(on)
    for e in tape.entries:
        if not (dtypes.is_int(e.made.dtype) or e.made.dtype == "bool") and any(n in found for n in e.inputs):
            found.add(e.made)
    return found
