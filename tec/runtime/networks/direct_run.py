"""Runs on the CPU whose inputs are NumPy arrays of shapes that were seen before, without what is worked out anew for each run.

A run of some shapes leaves its addresses and numbers in the engine's tables. The next one of these shapes changes the addresses of inputs and outputs alone, calls
the table of steps, and hands its outputs over as NumPy arrays. Of all else (states, loops of steps, other devices, other arrays, a profile, what fails) `run`
says None, and the way by `Executor` is taken, which also tells what is wrong with an input.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.addresses import address_of
from ..arrays.dtypes import numpy_dtype
from ..devices.device import cpu
from ..devices.storage import ALIGN, PAGE, PAGED_BYTES
from ..plans.layout import Binding
from ..plans.plan import Plan

if TYPE_CHECKING:
    from .host_engine import HostEngine

_MOST_BYTES = 1 << 30  # of an output: larger ones are held against what the host has
_MOST_PLACES = 64  # where addresses of inputs and outputs are read: with more the tables are quicker filled as a whole
_MOST_SHAPES = 64  # that are kept
# Memory of an output is kept for the next run, where nobody has that output any more: the host gives new pages one by one, and to write 16 MB of them
# takes 2.0 ms where 1.2 do (a Zen 3 core). Smaller blocks stay with the allocator.
_KEPT_BYTES = range(1 << 20, 1 << 30)
Places = list[tuple[int, int]]  # in the table of addresses: the place, and bytes behind the array's first
Shapes = tuple[tuple[int, ...], ...]


def serves(plan: Plan) -> bool:
    """Whether runs of a plan can be direct: no states, no steps that hold others, each output another value, and all of types that NumPy has, or gets of ml_dtypes."""
    each = len({o.value for o in plan.outputs}) == len(plan.outputs)
    return (
        not plan.states
        and not plan.holders
        and not plan.exchanges
        and each
        and all(numpy_dtype(t).name == t for t in _types(plan))
    )


def has_own_types(plan: Plan) -> bool:
    """Whether NumPy itself has all types of inputs and outputs. Others that take its arrays know none of ml_dtypes."""
    return all(numpy_dtype(t).isbuiltin == 1 for t in _types(plan))


def _types(plan: Plan) -> set[str]:
    return {plan.values[n].dtype for n in (*plan.inputs, *(o.value for o in plan.outputs))}


def in_order(names: Sequence[str], inputs: Any) -> Sequence[Any] | None:
    """The inputs in the order of `names`; None where they are others."""
    if len(inputs) != len(names):
        return None
    if type(inputs) is list or type(inputs) is tuple:
        return inputs
    if isinstance(inputs, dict):
        try:
            return [inputs[n] for n in names]
        except KeyError:
            return None
    return None if isinstance(inputs, Mapping) else inputs


class _Known:
    """What runs of some shapes need: the inputs' shapes, types and places, what outputs are made of, and the tables as they stood."""

    def __init__(self, engine: HostEngine, binding: Binding, shapes: Shapes):
        plan, layout = engine.plan, engine.layout
        self.binding, self.arena, self.shapes = binding, engine._arena, shapes
        self.pointers = engine.pointers[: len(binding.pointers)].copy()
        read: dict[int, Places] = {}
        for at, base in enumerate(layout.argument_bases.tolist()):
            read.setdefault(base, []).append((at, int(binding.pointers[at])))
        types = [numpy_dtype(plan.values[n].dtype) for n in plan.inputs]
        at_inputs = [read.get(b, []) if b is not None else [] for b in engine._inputs]
        self.inputs = list(zip(shapes, types, at_inputs))
        self.outputs = []
        # Outputs that are no memory of their own: (which, bytes, the array that they lie in, as its number among inputs and outputs, the place there or the address).
        self.copies: list[tuple[int, int, int | None, int]] = []
        moving = [*engine._inputs, *engine._outputs]  # bases that lie elsewhere in each run
        # What says whether indices are inside is nobody's but ours, and stays where it is.
        self.flags: list[np.ndarray[Any, Any]] = []
        checks = [k for k, o in enumerate(plan.outputs) if o.check is not None]
        is_last = checks == list(range(len(plan.outputs) - len(checks), len(plan.outputs)))
        stay = is_last and not any(engine._outputs[k] is None for k in checks)
        self.checks = frozenset() if stay else frozenset(checks)
        for k, (o, base, place) in enumerate(zip(plan.outputs, engine._outputs, layout.outputs(binding)[1])):
            assert place is not None
            align = PAGE if place.nbytes >= PAGED_BYTES else ALIGN
            places = [] if base is None else read.get(base, [])
            if stay and o.check is not None:
                self._keep(engine, place.nbytes, places)
                continue
            self.outputs.append((place.nbytes + align, align, place.shape, numpy_dtype(place.dtype), places))
            if base is None:
                value = layout.names[o.value]
                of = layout.base_of[value]
                array = moving.index(of) if of in moving else None
                start = engine.address(value) if array is None else int(binding.offsets[value])
                self.copies.append((k, place.nbytes, array, start))
        self.kept: dict[int, np.ndarray[Any, Any]] = {}  # by the output
        self.places = sum(map(len, at_inputs)) + sum(len(o[4]) for o in self.outputs)

    def _keep(self, engine: HostEngine, nbytes: int, places: Places) -> None:
        raw = np.empty(nbytes + ALIGN, np.uint8)
        behind = -address_of(raw) & ALIGN - 1
        self.flags.append(raw[behind : behind + nbytes])
        for at, offset in places:
            self.pointers[at] = engine.pointers[at] = address_of(raw) + behind + offset


def _is_unseen(block: np.ndarray[Any, Any]) -> bool:
    """Whether nobody but a table and the caller has a block: arrays in it have it as their base."""
    return sys.getrefcount(block) <= 4  # the table's, the caller's, this function's and getrefcount's own


def _counts() -> bool:
    """Whether references are counted as `_is_unseen` wants them; tried once."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    table = {0: np.empty(8, np.uint8)}
    block = table[0]
    free = _is_unseen(block)
    seen = np.ndarray((2,), np.uint8, block, 1)[:1]
    return free and not _is_unseen(block) and seen.size == 1


_IS_COUNTED = _counts()


def _block(kept: dict[int, np.ndarray[Any, Any]], k: int, nbytes: int) -> np.ndarray[Any, Any]:
    """Memory for output `k`: the last run's, where nobody has an array in it any more."""
    block = kept.get(k)
    if block is None or not _is_unseen(block):
        block = np.empty(nbytes, np.uint8)
        if _IS_COUNTED:
            kept[k] = block
    return block


class DirectRuns:
    """The direct runs of one engine, which one thread at a time uses."""

    def __init__(self, engine: HostEngine):
        self._engine, self._cpu = engine, cpu()
        self._known: dict[Shapes, _Known] = {}
        self._current: _Known | None = None  # whose addresses the tables hold
        self._asked: Shapes | None = None

    def forget(self) -> None:
        """The tables, or the memory behind them, are about to change."""
        if self._current is not None:
            self._current.kept.clear()
        self._current = None

    def learn(self, binding: Binding, shapes: Shapes) -> None:
        """The tables hold what a run of such shapes needs."""
        asked, self._asked = self._asked, None
        outputs = self._engine.layout.outputs(binding)[1]
        sizes = [p.nbytes if p is not None else 0 for p in outputs]
        if (
            asked != shapes
            or self._engine._own
            or 0 in sizes
            or max(sizes, default=0) >= _MOST_BYTES
            or any(0 in s for s in shapes)
        ):
            return
        known = _Known(self._engine, binding, shapes)
        if known.places <= _MOST_PLACES:
            if len(self._known) >= _MOST_SHAPES:
                self._known.clear()
            self._known[shapes] = self._current = known

    def run(self, given: Sequence[Any]) -> list[np.ndarray[Any, Any]] | None:
        """The outputs for NumPy arrays in the inputs' order; None where the run is not direct."""
        if self._cpu.profile is not None:
            return None
        known = self._current
        if known is None or not self._put(known, given):
            known = self._other(given)
            if known is None or not self._put(known, given):
                return None
        engine = self._engine
        pointers, out = engine.pointers, []
        for k, (nbytes, align, shape, dtype, places) in enumerate(known.outputs):
            raw = np.empty(nbytes, np.uint8) if nbytes not in _KEPT_BYTES else _block(known.kept, k, nbytes)
            start = address_of(raw)
            behind = -start & align - 1
            for at, offset in places:
                pointers[at] = start + behind + offset
            out.append(np.ndarray(shape, dtype, raw, behind))
        _, status = engine._run_steps(engine._table, len(engine._steps))
        for k, nbytes, array, start in known.copies:
            if array is not None:
                start += address_of(given[array] if array < len(given) else out[array - len(given)])
            ctypes.memmove(address_of(out[k]), start, nbytes)
        if status or (known.checks and not all(out[k].all() for k in known.checks)):
            return None
        for flags in known.flags:
            if b"\0" in flags.tobytes():
                return None
        return [made for k, made in enumerate(out) if k not in known.checks] if known.checks else out

    def _put(self, known: _Known, given: Sequence[Any]) -> bool:
        """Whether arrays are such as a run of known shapes takes; then their addresses are in the tables."""
        pointers = self._engine.pointers
        for x, (shape, dtype, places) in zip(given, known.inputs):
            if type(x) is not np.ndarray or x.shape != shape or (x.dtype is not dtype and x.dtype != dtype):
                return False
            flags = x.flags
            if not (flags.c_contiguous and flags.aligned):
                return False
            start = address_of(x)
            for at, offset in places:
                pointers[at] = start + offset
        return True

    def _other(self, given: Sequence[Any]) -> _Known | None:
        """What is known of other shapes than the last ones, in the tables."""
        if not all(type(x) is np.ndarray for x in given):
            return None
        shapes = tuple(x.shape for x in given)
        known, engine = self._known.get(shapes), self._engine
        if known is None or known.arena is not engine._arena:
            self._asked = shapes
            return None
        self.forget()
        binding = known.binding
        engine.pointers[: len(known.pointers)] = known.pointers
        if binding is not engine.binding:
            engine._scalars[: len(binding.scalars)] = binding.scalars
            engine.binding = binding
        self._current = known
        return known
