"""What of a program is shown, and with which arguments.

A program calls `show(x, ...)`, which it need not import. Without a call its last schedule is shown, with its list `args`, or with the tensors that the schedule reads and
writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ArgumentError, Loc, caller_loc, kind_of
from ..jit import Kernel
from ..jit.tiles import TileKernel
from ..schedule import Schedule
from ..te.operation import PlaceholderOp


@dataclass
class Subject:
    """kind: "schedule", "kernel" or "tiles". args: Tensors of a schedule; else (shape, dtype) pairs, numbers and constants. `named`: constants and options of a tile
    kernel by name."""

    kind: str
    what: Any
    args: list[Any]
    grid: Any = None
    block: Any = 256
    named: dict[str, Any] = field(default_factory=dict)
    where: Loc | None = None


def subject_of(what: Any, args: Sequence[Any], grid: Any = None, block: Any = 256, **named: Any) -> Subject:
    """The subject of `show(what, *args)`.

    A schedule takes its list of tensors: `show(s, [A, B])`. A kernel takes a (shape, dtype) pair for each array, and numbers:
    `show(saxpy, (4096, "float32"), (4096, "float32"), 2.0, 4096, grid=16, block=256)`. A tile kernel takes the same, and its constants by name. Raises
    ArgumentError for anything else.
    """
    where = caller_loc()
    if isinstance(what, Schedule):
        tensors = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
        return Subject("schedule", what, tensors or tensors_of(what), where=where)
    if isinstance(what, Kernel):
        if named:
            raise ArgumentError(f"show: a kernel has no option {next(iter(named))!r}", hint="it has grid= and block=")
        return Subject("kernel", what, [_described(a) for a in args], grid, block, where=where)
    if isinstance(what, TileKernel):
        return Subject("tiles", what, [_described(a) for a in args], grid, named=named, where=where)
    raise ArgumentError(
        f"show: {kind_of(what)} cannot be shown", hint="it takes a schedule, a kernel (@tec.kernel) or a tile kernel (@tec.tile.jit)"
    )  # fmt: skip


def _described(a: Any) -> Any:
    """An argument: ((shape), dtype) of an array, or what it is."""
    if isinstance(a, tuple) and len(a) == 2 and isinstance(a[1], str):
        shape = a[0] if isinstance(a[0], tuple) else (a[0],)
        if not all(isinstance(n, int) and n > 0 for n in shape):
            raise ArgumentError(
                f"show: {shape} is no shape of an array", hint="a pair is (shape, dtype): ((64, 128), 'float32')"
            )
        return shape, a[1]
    if hasattr(a, "shape") and hasattr(a, "dtype"):
        return tuple(int(n) for n in a.shape), str(a.dtype)
    return a


def tensors_of(s: Schedule) -> list[Any]:
    """The tensors that a schedule reads from outside, in their order in the program, and those it computes."""
    inputs = [t for stage in s.stages if isinstance(stage.op, PlaceholderOp) for t in stage.op.outputs]
    return [*inputs, *[t for op in s.outputs for t in op.outputs]]


def found(namespace: Mapping[str, Any]) -> Subject:
    """What a program without a call of `show` means by its names. Raises ArgumentError where there is nothing."""
    schedules = [v for v in namespace.values() if isinstance(v, Schedule)]
    if schedules:
        args = namespace.get("args")
        given = list(args) if isinstance(args, (list, tuple)) and args else tensors_of(schedules[-1])
        return Subject("schedule", schedules[-1], given)
    kernels = [n for n, v in namespace.items() if isinstance(v, (Kernel, TileKernel))]
    if kernels:
        raise ArgumentError(
            f"{kernels[-1]} needs arguments to be compiled for",
            hint=f'add show({kernels[-1]}, (4096, "float32"), ..., grid=16): a (shape, dtype) pair for each array, and numbers',
            locate=False,
        )
    raise ArgumentError(
        "the program has nothing to show",
        hint="make a schedule (tec.create_schedule), or call show(kernel, ...)",
        locate=False,
    )
