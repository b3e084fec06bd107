"""Values of arrays: a value is in memory, or it is an expression of other values that nobody has asked for yet.

A `Node` never changes its value. An array names one node; assignment to the array makes it name another, or, where nobody else can see the
difference, writes to the node's memory. So whoever reads a node reads what it was when the expression was written.

Who could see a difference is known: a node knows the expressions that read it (`readers`), and its memory the nodes that lie in it
(`Memory.holders`), whether others read it (`Memory.lent`), and whether others may write it (`Memory.foreign`). Memory that others may write
holds one node alone, so that what they write shows in one array alone.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from math import prod
from typing import Any
from weakref import WeakSet, ref

import numpy as np

from ..runtime.arrays.dtypes import itemsize, numpy_dtype
from ..runtime.arrays.ndarray import NDArray, array
from ..runtime.devices.device import Device
from .dtypes import PART, DType
from .forms import Attrs, Form, form_of, leaf_form

# Nodes of an expression that is computed at once: as many as the graph compiler fuses (24) into two or three kernels. Longer chains are cut there, so that
# a loop that never asks for its result compiles one piece and runs it again and again.
MOST_NODES = 64
# Operators that take longer to compute than their results to keep, where expressions that are computed one after another ask for them. All else is computed where it is read.
COSTLY = frozenset(("matmul", "einsum", "conv", "conv_transpose", "max_pool"))
# Those who write down what is made of what (`tape`), the innermost last: for gradients, and to map programs over a batch. Empty but for that.
RECORDERS: list[Any] = []
# Functions that are being compiled whole (`whole`), the innermost last: what follows from their arguments has no value yet.
TRACED: list[Any] = []
_PRUNE = 32  # readers after which the dead ones are forgotten


def is_traced(n: Node) -> bool:
    """Whether it follows from an argument of a function that is being compiled whole, so that it has no value yet."""
    return bool(TRACED) and bool(TRACED[-1].depends(n))


def decides(n: Node, what: str) -> None:
    """Say that these numbers decide what is computed, such as a shape. Raises FromNumbersError where they have no value yet."""
    if TRACED:
        TRACED[-1].follows(n, what)


class Memory:
    """A piece of memory that several nodes may lie in, that others read (`lent`), or that others may write (`foreign`)."""

    __slots__ = ("__weakref__", "foreign", "holders", "lent")

    def __init__(self, foreign: bool = False):
        self.holders: WeakSet[Node] = WeakSet()
        self.foreign = foreign
        self.lent = False


class Node:
    """A value. `data` is where it lies (compact), or None for an expression: `form.op` (an operator of graphs, `tec.ops.OPS`) on `inputs`
    with `form.attrs`, which are constants of the code, and `form.ints`, sizes and places that the code takes as numbers."""

    __slots__ = ("__weakref__", "computed", "data", "form", "inputs", "memory", "owner", "readers", "taped")

    def __init__(self, form: Form, inputs: tuple[Node, ...]):
        self.form = form  # of the expression, from `settle` on of what is in memory
        self.inputs = inputs
        self.data: NDArray | None = None
        self.memory: Memory | None = None  # None: its own alone
        self.owner: Any = None  # a weak reference to the array that names it
        self.computed = 0  # how often it was computed inside of another expression
        self.taped = False  # whether a gradient asks for it again, and it is one of `COSTLY`
        self.readers: list[Any] | None = []
        if inputs:
            if RECORDERS:
                note(form.op, self, inputs, form)
            me = ref(self)
            for n in inputs:
                seen = n.readers
                if seen is not None:
                    seen.append(me)
                    if not len(seen) % _PRUNE:
                        n.readers = n.pending_readers(as_refs=True)

    @property
    def op(self) -> str:
        return self.form.op

    @property
    def shape(self) -> tuple[int, ...]:
        return self.form.shape

    @property
    def dtype(self) -> DType:
        return self.form.dtype

    @property
    def device(self) -> Device:
        return self.form.device

    @property
    def weight(self) -> int:
        return self.form.weight

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * itemsize(self.dtype.name)

    def pending_readers(self, as_refs: bool = False) -> list[Any]:
        """The expressions that read it and have not been computed; as weak references where asked."""
        found = [(r, n) for r in self.readers or () if (n := r()) is not None and n.data is None]
        return [r for r, _ in found] if as_refs else [n for _, n in found]

    def settle(self, data: NDArray) -> None:
        """The value is here from now on."""
        self.data = data
        self.form = leaf_form(data)
        self.inputs = ()

    def held(self) -> Memory:
        """Its memory, in which others may lie."""
        memory = self.memory
        if memory is None:
            memory = self.memory = Memory()
            memory.holders.add(self)
        return memory

    @property
    def is_shared(self) -> bool:
        """Whether others may see its memory."""
        memory = self.memory
        return memory is not None and (memory.foreign or memory.lent or len(memory.holders) > 1)

    @property
    def is_foreign(self) -> bool:
        """Whether others may write its memory."""
        return self.memory is not None and self.memory.foreign

    def lie_beside(self, other: Node) -> None:
        """Its memory is that of another node."""
        self.memory = other.held()
        self.memory.holders.add(self)

    def __repr__(self) -> str:
        return f"<{self.op} {self.dtype}{list(self.shape)}{'' if self.data is None else ' in memory'}>"


def note(op: str, made: Node, inputs: tuple[Node, ...], form: Form | None = None, **more: Any) -> None:
    """Tell the recorders that `made` is an operator on `inputs`: what expressions do by themselves, and who makes a value in memory of others has to."""
    for r in RECORDERS:
        r.record(op, made, inputs, form, more)


def look_at(n: Node) -> None:
    """Tell the recorders that a value is taken out of the array program: what is made of it is not written down."""
    for r in RECORDERS:
        r.look_at(n)


def leaf(data: NDArray, foreign: bool = False, beside: Node | None = None) -> Node:
    """A node in memory; `beside`: that of another node."""
    made = Node(leaf_form(data), ())
    made.data = data
    if foreign:
        made.memory = Memory(True)
        made.memory.holders.add(made)
    elif beside is not None:
        made.lie_beside(beside)
    return made


_SCALARS: OrderedDict[Any, Node] = OrderedDict()
_MOST_SCALARS = 4096


def scalar(value: Any, dtype: DType, device: Device) -> Node:
    """A number on a device. Numbers are kept: one that comes again is there already."""
    if dtype.name in PART:
        number = complex(value)
        parts = tuple([scalar(v, PART[dtype.name], device) for v in (number.real, number.imag)])
        return Node(form_of("complex", tuple([p.form for p in parts]), (), dtype, device), parts)
    key = (device, dtype, struct.pack("d", value) if type(value) is float else value)
    found = _SCALARS.get(key)
    if found is None:
        held = np.asarray(value).astype(numpy_dtype(dtype.name))  # beyond the type infinity, of which NumPy warns
        found = leaf(array(held, device, dtype.name))
        found.held().lent = True
        found.readers = None
        _SCALARS[key] = found
        if len(_SCALARS) > _MOST_SCALARS:
            _SCALARS.popitem(last=False)
    return found


def attributes(**given: Any) -> Attrs:
    return tuple(sorted(given.items()))


def broadcast_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The common shape, or None."""
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    ndim = max(map(len, shapes))
    out = []
    for k in range(-ndim, 0):
        sizes = {s[k] for s in shapes if len(s) >= -k} - {1}
        if len(sizes) > 1:
            return None
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)
