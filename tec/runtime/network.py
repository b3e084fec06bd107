"""Network: a whole compiled network, run step by step over one planned arena of memory.

In: a Module with one function a fused group (equal groups share one), parameters as arrays, a `Plan`, and a `Report`.

Symbolic sizes are bound from the inputs' shapes at each run. `run({"input": x})` gives a list of NumPy arrays. Steps call the
functions with arrays whose addresses do not change between runs of equal shapes, so checks and packing happen once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..locks import fork_safe_lock
from . import device as devices
from . import exprs, memory
from .arguments import Param
from .check_plan import check_memory, check_structure
from .device import Device
from .dtypes import itemsize
from .module import Module
from .ndarray import NDArray, Storage, array, empty
from .package import damaged, read_package, write_package
from .plan import Call, Plan, Step, number
from .report import Report

_MAX_BINDINGS = 8  # sets of shapes whose memory is kept
_SIZE_END = 1 << 31  # symbolic sizes and the places in arrays of such sizes are 32-bit numbers


@dataclass(slots=True)
class _Bound:
    """A network with memory for given sizes on a device."""

    env: dict[str, int]
    arrays: dict[str, NDArray]
    calls: list[tuple[Any, list[Any]]]
    keep: list[Any] = field(default_factory=list)


class Network:
    """A compiled network. Made by `tec.compile`, or read back by `tec.load`.

    `run(inputs, device)`; `get_source(kind)`, `get_binary()`; `save(path)`; `inputs`, `outputs` (names, dtypes, shapes);
    `module`, the code; `params`, the weights by name.
    """

    def __init__(
        self,
        module: Module,
        plan: Plan,
        params: Mapping[str, Any],
        report: Report | None = None,
    ):
        self.module = module
        self.plan = plan
        self.params = dict(params)
        self.report = report or Report()
        self._check_plan()
        self._bound: dict[Any, _Bound] = {}
        self._weights: dict[Device, dict[str, NDArray]] = {}
        self._lock = fork_safe_lock()

    def __repr__(self) -> str:
        ins = ", ".join(
            f"{i['name']}: {i['dtype']}{tuple(exprs.text(d) if not isinstance(d, int) else d for d in i['shape'])}"
            for i in self.inputs
        )
        return f"<tec.Network({ins}) {len(self.plan.steps)} steps, {self.module.target}>"

    def _repr_html_(self) -> str:
        from ..notebook import table

        rows = []
        for k, step in enumerate(self.plan.steps):
            made = str(self.plan.values[step.values[-1]]) if step.values else ""
            function = step.function if isinstance(step, Call) else "copy"
            rows.append((k, function, " ".join(self.report.functions.get(function, ())), made))
        return table(("step", "function", "operators", "makes"), rows, repr(self))

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """{"name", "dtype", "shape"} of each input, in order."""
        return [self._described(n, n) for n in self.plan.inputs]

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """{"name", "dtype", "shape"} of each output, in order."""
        return [self._described(o.name, o.value) for o in self.plan.outputs if o.check is None]

    def _described(self, name: str, value: str) -> dict[str, Any]:
        v = self.plan.values[value]
        return {"name": name, "dtype": v.dtype, "shape": list(v.shape)}

    @property
    def open_sizes(self) -> list[str]:
        """The names of sizes that the inputs' shapes give when it runs, in order."""
        return self.plan.sizes

    def bind(self, sizes: Mapping[str, int] | None = None, **more: int) -> Network:
        """The same network for given sizes, its shapes and its memory plan numbers: `net.bind(batch=4)`.

        Raises ArgumentError for a missing, unknown or impossible size.
        """
        env = {**(sizes or {}), **more}
        names = self.open_sizes
        missing, unknown = [n for n in names if n not in env], [n for n in env if n not in names]
        if missing or unknown:
            what = f"no size for {', '.join(missing)}" if missing else f"no size {', '.join(map(repr, unknown))}"
            raise ArgumentError(f"the network has {what}", hint=f"its open sizes: {', '.join(names) or 'none'}")
        for name, n in env.items():
            if isinstance(n, bool) or not hasattr(n, "__index__") or not 0 < n < _SIZE_END:
                raise ArgumentError(f"size {name} is {n!r}", hint=f"an int from 1 to {_SIZE_END - 1}")
        env = {name: int(n) for name, n in env.items()}
        plan = self._placed(env)
        return Network(self.module, plan, self.params, self.report.bind(env, plan.arena_bytes))

    def _placed(self, env: Mapping[str, int]) -> Plan:
        """The plan with all sizes numbers."""
        try:
            self._check_sizes(env)
            plan = memory.place(self.plan, env) if self.plan.is_open else self.plan
            return plan.bind(env)
        except (ZeroDivisionError, OverflowError, ValueError, TypeError) as error:
            raise damaged(f"a size cannot be worked out: {error}") from None

    def _check_plan(self) -> None:
        """PackageError where the plan could make compiled code read or write what it must not; see `check_plan`."""
        check_structure(self.plan, self.params, self.signature)
        self._fixed = self.plan.is_fixed
        if self._fixed:
            check_memory(self.plan, self.params, self.signature)

    def signature(self, function: str) -> list[Param]:
        """The parameters of one of its functions; PackageError where there is none of that name."""
        if function not in self.module.specs:
            raise damaged(f"function {function!r} is missing")
        return self.module[function].checker.params

    # ---- sources

    def get_source(self, kind: str | None = None) -> str:
        """ "ir", "llvm", "asm" of the whole network's code."""
        return self.module.get_source(kind)

    def get_binary(self) -> bytes:
        """The code object (rocm), PTX (cuda) or ELF object (llvm) of the whole network."""
        return self.module.get_binary()

    # ---- running

    def run(self, inputs: Mapping[str, Any] | Sequence[Any], device: Any = None) -> list[np.ndarray[Any, Any]]:
        """The network's outputs for `inputs` (by name, or in order): NumPy arrays. `device` defaults to the target's first.

        Raises ArgumentError for a missing, unknown or misshapen input, and where an index that was worked out from it is outside
        of what it counts in.
        """
        dev = self._device(device)
        given = self._arrange(inputs)
        with self._lock:
            bound = self._bind(dev, given)
            for name in self.plan.inputs:
                bound.arrays[name].copyfrom(given[name])
            for function, args in bound.calls:
                function(*args)
            results = []
            for o in self.plan.outputs:
                value = bound.arrays[o.value].numpy()
                if o.check is None:
                    results.append(np.array(value))
                elif not value.all():
                    raise ArgumentError(o.check, hint="an input asks for an element that is not there")
            return results

    __call__ = run

    def _device(self, device: Any) -> Device:
        kind = self.module.device_kind
        if device is None:
            return devices.cpu(0) if kind == "cpu" else devices.as_device(f"{kind}:0")
        dev: Device = devices.as_device(device)
        if dev.kind != kind:
            raise ArgumentError(
                f"the network was compiled for {self.module.target}, and {dev} is no device for it",
                hint=f"use a {kind} device",
            )
        return dev

    def _arrange(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        names = self.plan.inputs
        expected = "; ".join(
            f"{i['name']}: {i['dtype']} ({', '.join(exprs.text(d) for d in i['shape'])})" for i in self.inputs
        )
        if not isinstance(inputs, Mapping):
            if isinstance(inputs, np.ndarray) or not isinstance(inputs, Sequence):
                inputs = [inputs]
            if len(inputs) != len(names):
                raise ArgumentError(
                    f"{len(inputs)} inputs given, the network has {len(names)}", hint=f"inputs: {expected}"
                )
            inputs = dict(zip(names, inputs))
        missing, unknown = [n for n in names if n not in inputs], [n for n in inputs if n not in names]
        if missing or unknown:
            what = [f"missing: {', '.join(missing)}"] * bool(missing) + [
                f"unknown: {', '.join(map(str, unknown))}"
            ] * bool(unknown)
            raise ArgumentError(f"the network's inputs do not fit ({'; '.join(what)})", hint=f"inputs: {expected}")
        out: dict[str, Any] = {}
        for spec in self.inputs:
            x = inputs[spec["name"]]
            out[spec["name"]] = a = x if isinstance(x, NDArray) else _as_array(x, spec)
            if a.dtype != spec["dtype"]:
                raise ArgumentError(
                    f"input {spec['name']} is {a.dtype}, the network takes {spec['dtype']}",
                    hint=f"x.astype({spec['dtype']!r})",
                )
            if len(a.shape) != len(spec["shape"]):
                raise ArgumentError(
                    f"input {spec['name']} has shape {a.shape}, the network takes ({', '.join(exprs.text(d) for d in spec['shape'])})"
                )
        return out

    def _sizes(self, given: Mapping[str, Any]) -> dict[str, int]:
        """The symbolic sizes, from the inputs' shapes."""
        env: dict[str, int] = {}
        for known_only in (False, True):
            for spec in self.inputs:
                shape = given[spec["name"]].shape
                for d, (e, n) in enumerate(zip(spec["shape"], shape)):
                    if isinstance(e, str) and not known_only:
                        if env.setdefault(e, n) != n:
                            raise ArgumentError(
                                f"size {e} is {env[e]} elsewhere and {n} in dimension {d} of input {spec['name']}"
                            )
                        if not 0 < n < _SIZE_END:
                            raise ArgumentError(
                                f"dimension {d} of input {spec['name']}, {e}, is {n}",
                                hint=f"a symbolic size is from 1 to {_SIZE_END - 1}; compile with shapes={{{e!r}: {n}}} for it",
                            )
                    elif known_only and not isinstance(e, str) and exprs.evaluate(exprs.compile_expr(e), env) != n:
                        raise ArgumentError(
                            f"input {spec['name']} has shape {tuple(shape)}, the network takes ({', '.join(exprs.text(x) for x in spec['shape'])})"
                        )
        return env

    def _bind(self, dev: Device, given: Mapping[str, Any]) -> _Bound:
        key = (dev, tuple(given[name].shape for name in self.plan.inputs))
        bound = self._bound.get(key)
        if bound is None:
            if len(self._bound) >= _MAX_BINDINGS:
                self._bound.pop(next(iter(self._bound)))
            bound = self._bound[key] = self._make(dev, self._sizes(given))
        return bound

    def _make(self, dev: Device, env: dict[str, int]) -> _Bound:
        plan = self.plan
        if not self._fixed:
            plan = self._placed(env)
            check_memory(plan, self.params, self.signature)
        weights = self._weights.get(dev)
        if weights is None:
            weights = self._weights[dev] = {n: array(p, dev) for n, p in self.params.items()}
        arena = Storage(dev, max(number(plan.arena_bytes, {}), 1))
        arrays: dict[str, NDArray] = {}

        def place(name: str) -> NDArray:
            found = arrays.get(name)
            if found is not None:
                return found
            v = plan.values[name]
            shape = tuple(number(d, {}) for d in v.shape)
            if v.place == "param":
                made = weights[name]
            elif v.place == "arena":
                made = NDArray(arena, arena.address + number(v.offset, {}), shape, v.dtype)
            elif v.of is not None:
                base = place(v.of)
                made = NDArray(base.storage, base.address + number(v.offset or 0, {}), shape, v.dtype)
            else:
                made = empty(shape, v.dtype, dev)
            arrays[name] = made
            return made

        for name in plan.values:
            place(name)
        calls = [self._call(step, arrays) for step in plan.steps]
        return _Bound(env, arrays, calls, [arena])

    def _call(self, step: Step, arrays: Mapping[str, NDArray]) -> tuple[Any, list[Any]]:
        """A step as a function and its arguments."""
        if isinstance(step, Call):
            args = [arrays[a] if isinstance(a, str) else number(a.value, {}) for a in step.args]
            return self.module[step.function], args
        return arrays[step.target].copyfrom, [arrays[step.source]]

    def _check_sizes(self, env: Mapping[str, int]) -> None:
        """What the code was compiled under: its conditions, and that places in every value are 32-bit numbers."""
        given = ", ".join(f"{n} = {v}" for n, v in env.items())
        for guard in self.plan.guards:
            if number(guard.size, env) < 0:
                raise ArgumentError(
                    f"the network was compiled for sizes with {guard.what}, not for {given}",
                    hint="compile with these sizes bound: shapes={name: size}",
                )
        for name, v in self.plan.values.items():
            if all(isinstance(d, int) for d in v.shape):
                continue
            count = v.nbytes(env) // itemsize(v.dtype)
            if count >= _SIZE_END:
                raise ArgumentError(
                    f"with {given} value {name!r} has {count} elements; a network with symbolic sizes takes fewer than {_SIZE_END}",
                    hint="compile with these sizes bound: shapes={name: size}",
                )

    # ---- saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network, with its weights and all it needs to run, to a `.tec` package; see `tec.load`."""
        blobs: dict[str, bytes] = {}
        meta = {"plan": self.plan.to_json(), "module": self.module.to_data(blobs), "report": self.report.to_json()}
        write_package(path, "network", meta, blobs, self.params)


def _as_array(x: Any, spec: Mapping[str, Any]) -> NDArray:
    """An input that is no NDArray as one on the host. ArgumentError where it holds no numbers."""
    try:
        # ascontiguousarray would give a scalar a dimension
        return array(np.asarray(x, order="C"))
    except (ArgumentError, ValueError, TypeError, RuntimeError, OverflowError):
        what = f"an array of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise ArgumentError(
            f"input {spec['name']} is {what} that makes no array of numbers, the network takes "
            f"{spec['dtype']}{exprs.shape_text(spec['shape'])}"
        ) from None


def load(path: str | os.PathLike[str]) -> Network:
    """Read a network that `Network.save` wrote; needs numpy and tec.runtime alone. PackageError for a damaged file."""
    with read_package(path, "network") as package:
        meta = package.meta
        plan, report = Plan.from_json(meta.get("plan")), Report.from_json(meta.get("report"))
        params = {n: package.array(n) for n in package.array_names}
        module = Module.from_data(meta.get("module"), package.blob)
    return Network(module, plan, params, report)
