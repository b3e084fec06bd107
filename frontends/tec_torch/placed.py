"""Calls of a network on a GPU in torch's own stream: inputs are read and outputs written where torch has them, and nothing waits."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tec.runtime.arrays.ndarray import NDArray
from tec.runtime.devices.storage import ALIGN, compact_strides
from tec.runtime.networks.executor import failed_check, is_of_indices
from tec.runtime.networks.network import Network
from tec.runtime.networks.placed_runs import PlacedRuns
from tec.runtime.plans.layout import Binding

from .late_checks import LateChecks, synchronize

_MOST_SHAPES = 256  # sets of shapes whose numbers are kept
_LEGACY_STREAM = 1  # the default stream by a handle: a copy without one waits
_WAITS = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") != "0"  # torch's own word for calls that tell their own errors

# What inductor's own code asks: torch.empty and torch.cuda.current_device take several times as long. Of the current device. Absent from builds without CUDA.
_empty_cuda: Callable[..., torch.Tensor] | None = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
_current_device: Callable[[], int] | None = getattr(torch._C, "_cuda_getDevice", None)


@dataclass(frozen=True)
class _Known:
    """A set of shapes: their numbers, and what the plan's outputs are that a call makes memory for."""

    binding: Binding
    outputs: list[tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True)
class _Fixed:
    """The one set of shapes of a network without open sizes, on one GPU."""

    runs: PlacedRuns
    binding: Binding
    device: torch.device
    outputs: list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]]  # shape, strides


class PlacedCalls:
    """`calls(tensors)`: the outputs, or None for what goes another way; `learn` sees the first run of some shapes, which went that way. `calls.checked(tensors)`
    is the same for tensors whose shapes, types and device are known to be those of the graph: TorchDynamo's guards have looked at them."""

    def __init__(self, network: Network):
        self._network = network
        self._runs: dict[torch.device, PlacedRuns | None] = {}
        self._known: dict[Any, _Known] = {}
        self._fixed: _Fixed | None = None
        self._is_fixed = network.plan.is_fixed
        self._checks = [(k, o) for k, o in enumerate(network.plan.outputs) if o.check is not None]
        self._shown = [k for k, o in enumerate(network.plan.outputs) if o.check is None]
        self._late = late_checks(network)
        self._flags: dict[torch.device, torch.Tensor] = {}  # of `_late`
        self._order = threading.Lock()

    def __call__(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        known = self._known.get(_key(given)) if self._known else None
        if known is None:
            return None
        device = given[0].device
        runs = self._runs[device]
        assert runs is not None
        given = [_in_place(t) for t in given]
        made = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in known.outputs]
        return self._queue(
            runs, known.binding, (*[t.data_ptr() for t in given], *[t.data_ptr() for t in made]), made, device
        )

    def checked(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        fixed = self._fixed
        if fixed is None or _current_device is None or _empty_cuda is None or _current_device() != fixed.device.index:
            return self(given)
        ins = [t.data_ptr() for t in given]
        for t, place in zip(given, ins):
            if place % ALIGN or not t.is_contiguous():
                return self(given)
        made = [_empty_cuda(*o) for o in fixed.outputs]
        return self._queue(fixed.runs, fixed.binding, (*ins, *[t.data_ptr() for t in made]), made, fixed.device)

    def _queue(
        self,
        runs: PlacedRuns,
        binding: Binding,
        places: tuple[int, ...],
        made: list[torch.Tensor],
        device: torch.device,
    ) -> list[torch.Tensor]:
        """A run in torch's stream; the outputs that are the user's. Raises what a failed check of the model's raises, of this call or of an earlier one."""
        late = self._late
        if late is None:
            self._run(runs, binding, places, device.index)
            return self._seen(made) if self._checks else made
        begin = self._flags[device].data_ptr()
        late.tell()
        with self._order:  # a call in another stream writes the flags when they are copied
            is_captured = self._run(runs, binding, (*places, *[begin + k for k in late.offsets]), device.index)
            stream = torch._C._cuda_getCurrentRawStream(device.index) or _LEGACY_STREAM
            driver: Any = runs.device.driver
            late.queue(lambda to, n: driver.copy_from_device(device.index, to, begin, n, stream), is_captured)
        if _WAITS and not is_captured:
            synchronize()
        return made

    def _run(self, runs: PlacedRuns, binding: Binding, places: tuple[int, ...], index: int) -> bool:
        """Whether torch captures it."""
        local = runs.device.local
        is_captured: bool = torch.cuda.is_current_stream_capturing()
        # As inductor asks for it: torch.cuda.current_stream makes an object, which takes longer than all else here.
        outer, local.stream = local.stream, torch._C._cuda_getCurrentRawStream(index) or None
        try:
            runs.run(binding, places, not is_captured)
        finally:
            local.stream = outer
        return is_captured

    def _seen(self, made: list[torch.Tensor]) -> list[torch.Tensor]:
        for k, o in self._checks:
            if not bool(made[k].all()):
                raise failed_check(o)
        return [made[k] for k in self._shown]

    def learn(self, given: Sequence[torch.Tensor], arrays: Sequence[NDArray]) -> None:
        """Makes ready for tensors of these shapes on their GPU, given the same as arrays."""
        if not given or not given[0].is_cuda or any(t.device != given[0].device for t in given):
            return
        device = given[0].device
        if device not in self._runs:
            self._runs[device] = self._network.placed_runs(arrays[0].device)
        runs = self._runs[device]
        if runs is None or len(self._known) >= _MOST_SHAPES:
            return
        if self._late is not None and device not in self._flags:
            self._flags[device] = self._late.flags(device)
        binding = runs.binding(arrays)
        places = self._network._layout.outputs(binding)[1]
        own = places if self._late is None else places[: len(self._shown)]
        outputs = [(tuple(p.shape), getattr(torch, p.dtype)) for p in own if p is not None]
        self._known[_key(given)] = _Known(binding, outputs)
        if self._is_fixed and device.type == "cuda" and torch.version.hip is None:
            laid = [(shape, compact_strides(shape), dtype) for shape, dtype in outputs]
            self._fixed = _Fixed(runs, binding, device, laid)


def late_checks(network: Network) -> LateChecks | None:
    """The checks of a network's calls where they may be told later: all are of indices. Another condition (that a matrix has an inverse) is one that programs expect to
    hear of from the call itself."""
    plan = network.plan
    checks = [o for o in plan.outputs if o.check is not None]
    counts = [math.prod(plan.values[o.value].shape) for o in checks]
    is_last = plan.outputs[len(plan.outputs) - len(checks) :] == tuple(checks)
    if (
        not checks
        or not is_last
        or not all(map(is_of_indices, checks))
        or not all(isinstance(n, int) and n for n in counts)
    ):
        return None
    return LateChecks(checks, counts)


def _key(given: Sequence[torch.Tensor]) -> Any:
    return tuple([(t.shape, t.dtype, t.device) for t in given])


def _in_place(t: torch.Tensor) -> torch.Tensor:
    """The tensor as a kernel reads it: one element after another, from an aligned place."""
    t = resolved(t)
    if not t.is_contiguous():
        t = t.contiguous()
    return t if t.data_ptr() % ALIGN == 0 else t.clone()


def resolved(t: torch.Tensor) -> torch.Tensor:
    """The tensor with its own elements in memory: torch may keep conjugates and negatives as a mark."""
    return t.resolve_conj().resolve_neg() if t.is_conj() or t.is_neg() else t
