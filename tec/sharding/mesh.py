"""Meshes of devices, and how a value lies on them, by the names of GSPMD (jax.sharding) and DTensor (torch.distributed.tensor).

    Mesh({"data": 2, "tensor": 4})           8 ranks; rank 5 is ("data" 1, "tensor" 1): the last axis counts fastest
    Shard(1)                                 along a mesh axis: each rank has a part of dimension 1
    Replicate(), Partial("sum")              each has all of it; each has a term of it
    PartitionSpec("data", None, "tensor")    for each dimension of a value the mesh axis, or axes, that it is split over

Sources: arXiv 2105.04663 (GSPMD); the documentation of jax.sharding and of torch.distributed.tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Shard:
    """Each rank has one of the parts of dimension `dim`. copies: so many neighbouring ranks have the same part, as heads of keys and values are held where there
    are fewer of them than ranks."""

    dim: int
    copies: int = 1

    def __str__(self) -> str:
        return f"Shard({self.dim})" if self.copies == 1 else f"Shard({self.dim}, copies={self.copies})"


@dataclass(frozen=True, slots=True)
class Replicate:
    """Each rank has all of it."""

    def __str__(self) -> str:
        return "Replicate()"


@dataclass(frozen=True, slots=True)
class Partial:
    """Each rank has a term: the value is the reduction of them."""

    reduction: str = "sum"

    def __str__(self) -> str:
        return f"Partial({self.reduction})"


Placement = Shard | Replicate | Partial


class PartitionSpec(tuple[Any, ...]):
    """For each dimension of a value the name of the mesh axis that it is split over, a tuple of names, or None. Dimensions that are left away are whole."""

    __slots__ = ()

    def __new__(cls, *dims: str | Sequence[str] | None) -> PartitionSpec:
        return super().__new__(cls, dims)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self))})"

    def placement(self, axis: str) -> Placement:
        """What it says of one mesh axis. ArgumentError where that stands twice."""
        found = [k for k, names in enumerate(self) if axis in ((names,) if isinstance(names, str) else names or ())]
        if len(found) > 1:
            raise ArgumentError(
                f"{self!r} splits two dimensions over mesh axis {axis!r}",
                hint="an axis splits one dimension of a value",
            )
        return Shard(found[0]) if found else Replicate()

    @property
    def axes(self) -> set[str]:
        """The mesh axes that it names."""
        return {n for names in self if names is not None for n in ((names,) if isinstance(names, str) else names)}


class Mesh:
    """Ranks in a grid with named axes. axes: {name: size}. devices: one a rank, in the order of ranks; `tec.shard` takes the target's first ones by default.

    Raises ArgumentError for sizes that are no positive ints, and for another number of devices.

    >>> mesh = tec.Mesh({"data": 2, "tensor": 4})
    >>> mesh.size, mesh.coordinates(5)
    (8, {'data': 1, 'tensor': 1})
    >>> mesh.line(5, "tensor")
    [4, 5, 6, 7]
    """

    def __init__(self, axes: Mapping[str, int], devices: Sequence[Any] | None = None):
        if not isinstance(axes, Mapping) or not axes or not all(isinstance(n, str) and n for n in axes):
            raise ArgumentError(f"a mesh has named axes, not {axes!r}", hint='tec.Mesh({"data": 2, "tensor": 4})')
        for name, size in axes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ArgumentError(f"mesh axis {name!r} is {size!r}", hint="a positive number of ranks")
        self.axes = dict(axes)
        self.devices = None if devices is None else tuple(devices)
        if self.devices is not None and len(self.devices) != self.size:
            raise ArgumentError(
                f"{len(self.devices)} devices for a mesh of {self.size} ranks: {self}",
                hint="as many devices as the product of the mesh's extents",
            )

    @property
    def size(self) -> int:
        """The number of ranks."""
        return math.prod(self.axes.values())

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a rank stands along each axis."""
        found = {}
        for name, size in reversed(self.axes.items()):
            rank, found[name] = divmod(rank, size)
        return {n: found[n] for n in self.axes}

    def line(self, rank: int, axis: str) -> list[int]:
        """The ranks that differ from this one along one axis alone, itself among them, in their order: the group of its collectives."""
        step = math.prod(list(self.axes.values())[list(self.axes).index(axis) + 1 :])
        first = rank - self.coordinates(rank)[axis] * step
        return [first + k * step for k in range(self.axes[axis])]

    def __repr__(self) -> str:
        return f"Mesh({self.axes})"
