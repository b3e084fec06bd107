"""Sorting: stable, NaN behind all numbers."""

from __future__ import annotations

from . import build, dtypes
from .array import Array, node_of
from .manipulation import axis_of
from .node import Node


def ordered(n: Node, axis: int, descending: bool, out: int) -> Node:
    """The elements in order (out 0), or their places (1)."""
    kind = n.dtype
    if kind == "bool":
        n = build.cast(n, dtypes.uint8)
    m = n.shape[axis]
    attrs = (("axis", axis), ("largest", descending))
    made = build.make("topk", (build.boundary(n),), n.shape, dtypes.int64 if out else n.dtype, attrs, (("k", m),), out)
    return made if out else build.cast(made, kind)


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements in order along `axis`."""
    n = node_of(x)
    k = axis_of(axis, len(n.shape))
    return Array(ordered(n, k, descending, 0) if n.size else build.copy(n))


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The places of the elements in order along `axis`; equal ones stay in theirs."""
    n = node_of(x)
    k = axis_of(axis, len(n.shape))
    return Array(ordered(n, k, descending, 1) if n.size else build.full(0, n.shape, dtypes.int64, n.device))
