"""Collectives among a plan's steps: the communicators that an executor is given do them, in the order of the steps.

The runtime knows no collectives: a communicator is what has these calls on compact arrays of its device (`tec.collectives.Communicator`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ...errors import ArgumentError
from ..arrays.ndarray import NDArray
from ..devices.device import Device
from ..plans.plan import Exchange, Plan


class Collectives(Protocol):
    """One rank of a group."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def device(self) -> Device: ...

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None) -> NDArray: ...
    def all_gather(self, x: Any, out: Any = None) -> NDArray: ...
    def reduce_scatter(self, x: Any, op: str = "sum", out: Any = None) -> NDArray: ...
    def all_to_all(self, x: Any, out: Any = None) -> NDArray: ...
    def together(self) -> AbstractContextManager[None]: ...
    def limited(self) -> AbstractContextManager[None]: ...


def check_communicators(plan: Plan, device: Device, given: Mapping[str, Collectives]) -> None:
    """ArgumentError where a mesh axis of the plan has no communicator, or one of other ranks or another device."""
    for step in plan.exchanges:
        comm = given.get(step.axis)
        if comm is None:
            raise ArgumentError(
                f"the network is one rank of {step.size} along mesh axis {step.axis!r}, and has no communicator for it",
                hint="run what tec.shard returned, or give executor(communicators={axis: communicator})",
            )
        if comm.size != step.size:
            raise ArgumentError(
                f"mesh axis {step.axis!r} has {step.size} ranks, and its communicator {comm.size}",
                hint="a group with a rank for each device of the axis",
            )
        if comm.device is not device:
            raise ArgumentError(
                f"the communicator of mesh axis {step.axis!r} is on {comm.device}, the executor on {device}",
                hint=f"make the group on {device}, or the executor on {comm.device}",
            )


def bound(step: Exchange, given: Mapping[str, Collectives]) -> Callable[[NDArray, NDArray], None]:
    """A step as a function of its target and its source."""
    comm = given[step.axis]
    if step.kind == "all_reduce":
        return lambda target, source: _drop(comm.all_reduce(source, step.reduction, target))
    if step.kind == "reduce_scatter":
        # Parts lie one behind the other, whatever the rank of the arrays.
        return lambda target, source: _drop(comm.reduce_scatter(_flat(source), step.reduction, _flat(target)))
    if step.kind == "all_gather":
        return lambda target, source: _drop(comm.all_gather(_flat(source), _flat(target)))
    return lambda target, source: _drop(comm.all_to_all(_flat(source), _flat(target)))


def _drop(_: NDArray) -> None:
    """What a call returns is what it was given to write."""


def _flat(a: NDArray) -> NDArray:
    return NDArray(a.storage, a.address, (a.size,), a.dtype)
