"""What a communicator stands on: a transport that does a call for one rank, on memory by its address or as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ..runtime.arrays.ndarray import NDArray

REDUCTIONS = ("sum", "prod", "max", "min", "avg")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a rank, in what all ranks must agree on. count: elements of this rank's part; root: the rank that gives or takes, -1 where there is none."""

    name: str
    dtype: str
    count: int
    reduction: str = ""
    root: int = -1

    def __str__(self) -> str:
        of = f" by {self.reduction}" if self.reduction else ""
        root = f", root {self.root}" if self.root >= 0 else ""
        return f"{self.name} of {self.count} {self.dtype}{of}{root}"


Doing = Callable[[NDArray, NDArray], None]  # of an operand and where its result goes


class Transport(Protocol):
    """One rank's side of the calls. Arrays are compact and on the rank's device; `out` may be the operand itself where shapes are equal."""

    rank: int
    size: int

    def ready(self, call: Call) -> Doing:
        """What makes calls of all_reduce, reduce_scatter, all_gather or all_to_all, with all that is the same for each of them looked up."""

    def broadcast(self, call: Call, x: NDArray) -> None: ...
    def send(self, call: Call, x: NDArray, to: int) -> None: ...
    def receive(self, call: Call, out: NDArray, source: int) -> None: ...
    def together(self) -> AbstractContextManager[None]: ...
    def finish(self, timeout_s: float) -> None: ...
    def limited(self) -> AbstractContextManager[None]: ...
    def abort(self, why: str) -> None: ...
    def close(self) -> None: ...
