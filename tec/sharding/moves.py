"""From one placement to another: which collective, and the transposes around it, as collectives move parts along the first dimension alone.

Partial -> Replicate   all_reduce          Shard -> Replicate   all_gather
Partial -> Shard       reduce_scatter      Shard -> Shard       all_to_all        Replicate -> Shard   a slice
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ImportModelError
from ..graph import Graph, Value
from ..graph.builders import Builder
from ..ops.dims import Dim
from ..runtime.arrays.dtypes import itemsize
from .mesh import Partial, Placement, Replicate, Shard

if TYPE_CHECKING:
    from .splitter import Line


class Moves:
    """Adds collectives to a rank's graph. told: hears each kind and the bytes of the operand."""

    def __init__(self, graph: Graph, line: Line, told: Callable[[str, int], None]):
        self.graph, self.line, self.told = graph, line, told

    def move(self, x: Value, of: Value, have: Placement, want: Placement) -> Value:
        """The rank's part `x` of value `of`, which lies as `have`, as `want`."""
        # Without an origin: rules are not about them.
        b = Builder(self.graph, f"{of.name}.{type(want).__name__.lower()}")
        if have == want:
            return x
        if isinstance(want, Partial):
            raise ImportModelError(f"%{of.name} lies as {have} and is wanted as {want}")
        if isinstance(have, Partial):
            if isinstance(want, Shard) and want.copies == 1 and isinstance(of.shape[want.dim], int):
                return self._scattered(b, x, want.dim, have.reduction)
            whole = self._call(b, "all_reduce", x, reduction=have.reduction)
            return whole if isinstance(want, Replicate) else self._part(b, whole, want)
        if isinstance(have, Replicate):
            assert isinstance(want, Shard)
            return self._part(b, x, want)
        if isinstance(want, Shard) and have.copies == want.copies == 1 and have.dim != want.dim:
            return self._turned(b, x, have.dim, want.dim)
        whole = self._gathered(b, x, have)
        return whole if isinstance(want, Replicate) else self._part(b, whole, want)

    def _call(self, b: Builder, kind: str, x: Value, **attrs: Any) -> Value:
        size = itemsize(x.dtype)
        for n in x.shape:
            size *= n if isinstance(n, int) else 1
        self.told(kind, size)
        return b.op(kind, x, mesh_axis=self.line.axis, ranks=self.line.ranks, **attrs)

    def _part(self, b: Builder, x: Value, want: Shard) -> Value:
        size = x.shape[want.dim]
        if isinstance(size, Dim):
            raise ImportModelError(
                f"a part of size {size} is not known while it is open", hint="bind the size: shapes={name: number}"
            )
        own = size // (self.line.ranks // want.copies)
        return b.slice(x, want.dim, self.line.rank // want.copies * own, own)

    def _gathered(self, b: Builder, x: Value, have: Shard) -> Value:
        """All parts along a dimension."""
        n, d, c = self.line.ranks, have.dim, have.copies
        if isinstance(x.shape[d], Dim):
            raise ImportModelError(f"size {x.shape[d]} is a rank's part, and all of it is wanted")
        y = self._call(b, "all_gather", b.reshape(x, (1, *x.shape)))
        if c > 1:
            y = b.reshape(b.slice(b.reshape(y, (n // c, c, *x.shape)), 1, 0, 1), (n // c, *x.shape))
        y = b.transpose(y, [*range(1, d + 1), 0, *range(d + 1, x.ndim + 1)])
        return b.reshape(y, (*x.shape[:d], x.shape[d] * (n // c), *x.shape[d + 1 :]))

    def _front(self, b: Builder, x: Value, d: int) -> Value:
        """[ranks, ...]: the parts along a dimension one behind the other."""
        n = self.line.ranks
        y = b.reshape(x, (*x.shape[:d], n, x.shape[d] // n, *x.shape[d + 1 :]))
        return b.transpose(y, [d, *range(d), *range(d + 1, y.ndim)])

    def _scattered(self, b: Builder, x: Value, d: int, reduction: str) -> Value:
        y = self._call(b, "reduce_scatter", self._front(b, x, d), reduction=reduction)
        return b.reshape(y, y.shape[1:])

    def _turned(self, b: Builder, x: Value, have: int, want: int) -> Value:
        """Parts of one dimension for parts of another."""
        y = self._call(b, "all_to_all", self._front(b, x, want))
        n, inner = self.line.ranks, y.shape[1:]
        y = b.transpose(y, [*range(1, have + 1), 0, *range(have + 1, y.ndim)])
        return b.reshape(y, (*inner[:have], n * inner[have], *inner[have + 1 :]))
