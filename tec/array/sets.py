"""Sets: the different elements of an array. How many there are is a shape, so the host waits for the device."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import build, dtypes
from .array import Array, node_of, pair
from .complexes import is_complex
from .creation import beside
from .node import Node
from .search_kernels import places_of, searched
from .sorting import ordered
from .statistical import diff


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: Array
    inverse_indices: Array


class _Runs:
    """A flat array in order, and where in it another element begins. NaN differs from NaN."""

    def __init__(self, x: Array):
        n = node_of(x)
        self.shape, self.dtype, self.size, self.device = n.shape, n.dtype, n.size, n.device
        flat = build.reshape(n, (n.size,))
        if not n.size:
            self.sorted: Node = flat
            self.starts: Node = build.full(0, (0,), dtypes.int64, n.device)
            self.order: Node = self.starts
            return
        self.sorted, self.order = map(build.boundary, ordered(build.boundary(flat), 0, False))
        a = Array(self.sorted)
        first = build.full(True, (1,), dtypes.bool, n.device)
        begins = build.concat([first, (a[1:] != a[:-1])._node], 0) if n.size > 1 else first
        self.begins = build.boundary(begins)
        self.starts = places_of(self.begins)

    @property
    def values(self) -> Array:
        return Array(build.gather(self.sorted, self.starts, 0) if self.size else build.copy(self.sorted))

    @property
    def indices(self) -> Array:
        """Where each value stands first; the order is stable."""
        return Array(build.gather(self.order, self.starts, 0) if self.size else build.copy(self.order))

    @property
    def counts(self) -> Array:
        if not self.size:
            return Array(build.copy(self.order))
        end = build.full(self.size, (1,), dtypes.int64, self.device)
        return diff(Array(build.concat([self.starts, end], 0)))

    @property
    def inverse(self) -> Array:
        """For each element the number of its value."""
        if not self.size:
            return Array(build.full(0, self.shape, dtypes.int64, self.device))
        number = build.make(
            "cumsum",
            (build.boundary(build.cast(self.begins, dtypes.int64)),),
            (self.size,),
            dtypes.int64,
            (("axis", 0),),
        )
        points = build.boundary(build.reshape(self.order, (self.size, 1)))
        zeros = build.boundary(build.full(0, (self.size,), dtypes.int64, self.device))
        less = build.boundary((Array(number) - 1)._node)
        made = build.make("scatter_nd", (zeros, points, less), (self.size,), dtypes.int64, (("reduction", "none"),))
        return Array(build.reshape(made, self.shape))


def unique_all(x: Array, /) -> UniqueAll:
    """The different elements in order, where each stands first, for each element the number of its value, and how often each comes.

    >>> xp.unique_all(xp.asarray([3, 1, 3])).values
    Array([1, 3], dtype=int64)
    """
    runs = _Runs(x)
    return UniqueAll(runs.values, runs.indices, runs.inverse, runs.counts)


def unique_counts(x: Array, /) -> UniqueCounts:
    """The different elements in order, and how often each comes.

    >>> xp.unique_counts(xp.asarray([3, 1, 3])).counts
    Array([1, 2], dtype=int64)
    """
    runs = _Runs(x)
    return UniqueCounts(runs.values, runs.counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """The different elements in order, and for each element the number of its value.

    >>> xp.unique_inverse(xp.asarray([3, 1, 3])).inverse_indices
    Array([1, 0, 1], dtype=int64)
    """
    runs = _Runs(x)
    return UniqueInverse(runs.values, runs.inverse)


def unique_values(x: Array, /) -> Array:
    """The distinct elements in order. It waits for the device, because their number is a shape.

    >>> xp.unique_values(xp.asarray([3, 1, 3])).tolist()
    [1, 3]
    """
    return _Runs(x).values


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Array:
    """Whether each element of x1 is among those of x2, an array or a list. invert: the opposite.

    >>> xp.isin(xp.asarray([1, 2, 3]), xp.asarray([2, 5]))
    Array([False,  True, False], dtype=bool)
    """
    a, b = pair(x1, beside(x2, x1) if type(x1) is Array else x2)
    if not b.size or not a.size:
        return Array(build.full(invert, a.shape, dtypes.bool, a.device))
    if is_complex(a):
        wide = build.reshape(build.boundary(a), (*a.shape, 1))
        found = Array(build.binary("equal", wide, build.reshape(b, (b.size,)), dtypes.bool))
        held = build.reduce("any", found._node, (len(a.shape),), False)
        return Array(build.unary("logical_not", held) if invert else held)
    table = build.boundary(ordered(build.reshape(b, (b.size,)), 0, False)[0])
    at = Array(searched(table, a, False))
    last = b.size - 1
    near = build.gather(
        table, build.boundary(build.binary("minimum", at._node, build.full(last, (), dtypes.int64, a.device))), 0
    )
    return Array(build.binary("not_equal" if invert else "equal", near, build.boundary(a), dtypes.bool))
