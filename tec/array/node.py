"""Values of arrays: a value is in memory, or it is an expression of other values that nobody has asked for yet.

A `Node` never changes its value. An array names one node; assignment to the array makes it name another, or, where nobody else can see the
difference, writes to the node's memory. So whoever reads a node reads what it was when the expression was written.

Who could see a difference is known: a node knows the expressions that read it (`readers`), and its memory the nodes that lie in it
(`Memory.holders`) and whether it was given to or taken from others (`Memory.foreign`).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from math import prod
from typing import Any
from weakref import WeakSet, ref

import numpy as np

from ..runtime.device import Device
from ..runtime.dtypes import itemsize, numpy_dtype
from ..runtime.ndarray import NDArray, array
from . import dtypes
from .dtypes import DType

# Nodes of an expression that is computed at once: as many as the graph compiler fuses (24) into two or three kernels. Longer chains are cut there, so that
# a loop that never asks for its result compiles one piece and runs it again and again.
MOST_NODES = 64
_PRUNE = 32  # readers after which the dead ones are forgotten

Attrs = tuple[tuple[str, Any], ...]


class Memory:
    """A piece of memory as nodes share it."""

    __slots__ = ("__weakref__", "foreign", "holders")

    def __init__(self, foreign: bool = False):
        self.holders: WeakSet[Node] = WeakSet()
        self.foreign = foreign


class Node:
    """A value. `data` is where it lies (compact), or None for an expression: `op` (an operator of graphs, `tec.ops.OPS`) on `inputs`
    with `attrs`, which are constants of the code, and `ints`, sizes and places that the code takes as numbers."""

    __slots__ = (
        "__weakref__", "attrs", "computed", "data", "device", "dtype", "inputs", "ints", "memory", "op", "out", "owner", "readers", "shape", "weight",
    )  # fmt: skip

    def __init__(
        self,
        op: str,
        inputs: tuple[Node, ...],
        shape: tuple[int, ...],
        dtype: DType,
        device: Device,
        attrs: Attrs = (),
        ints: Attrs = (),
        out: int = 0,
    ):
        self.op = op
        self.inputs = inputs
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.attrs = attrs
        self.ints = ints
        self.out = out  # which of the operator's outputs
        self.data: NDArray | None = None
        self.memory: Memory | None = None
        self.owner: Any = None  # a weak reference to the array that names it
        self.computed = 0  # how often it was computed inside of another expression
        self.readers: list[Any] | None = []
        weight: int = 1
        if inputs:
            me = ref(self)
            for n in inputs:
                weight += n.weight
                seen = n.readers
                if seen is not None:
                    seen.append(me)
                    if len(seen) % _PRUNE == 0:
                        n.readers = n.pending_readers(as_refs=True)
        self.weight: int = weight

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

    def settle(self, data: NDArray, memory: Memory | None = None) -> None:
        """The value is here from now on."""
        self.data = data
        self.memory = memory = Memory() if memory is None else memory
        memory.holders.add(self)
        self.inputs = ()
        self.weight = 0

    def __repr__(self) -> str:
        return f"<{self.op} {self.dtype}{list(self.shape)}{'' if self.data is None else ' in memory'}>"


def leaf(data: NDArray, foreign: bool = False, memory: Memory | None = None) -> Node:
    """A node in memory."""
    made = Node("leaf", (), data.shape, dtypes.ALL[data.dtype], data.device)
    made.settle(data, Memory(foreign) if memory is None else memory)
    return made


_SCALARS: OrderedDict[Any, Node] = OrderedDict()
_MOST_SCALARS = 4096


def scalar(value: Any, dtype: DType, device: Device) -> Node:
    """A number on a device. Numbers are kept: one that comes again is there already."""
    key = (device, dtype, struct.pack("d", value) if type(value) is float else value)
    found = _SCALARS.get(key)
    if found is None:
        with np.errstate(over="ignore"):
            held = np.asarray(value).astype(numpy_dtype(dtype.name))
        found = leaf(array(held, device, dtype.name), foreign=True)
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
