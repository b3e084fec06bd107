"""Network: a whole compiled network, run step by step over one planned arena of memory.

In: a Module with one function a fused group (equal groups share one), parameters as arrays, a `Plan`, and a `Report`.

A network is code and weights, and does not change. `run({"input": x})` gives a list of NumPy arrays, in as many threads as
one likes: each takes an executor (memory, a stream; see `executor`) from a pool. `executor(device)` gives one to keep.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from ...door import of_tec
from ...errors import ArgumentError, one_line, other_part
from ...locks import fork_safe_lock
from ...notebook import table
from ..arrays.addresses import address_of
from ..arrays.dtypes import itemsize
from ..arrays.ndarray import NDArray, array, from_numpy
from ..devices import device as devices
from ..devices.device import Device, DeviceLike
from ..devices.storage import ALIGN
from ..devices.stream import Stream
from ..modules import exprs
from ..modules.arguments import Param
from ..modules.module import Module
from ..modules.package import damaged, is_native, read_package, write_package
from ..plans import memory_plan
from ..plans.check_plan import check_memory, check_order, check_structure
from ..plans.launches import Launches
from ..plans.layout import PlanLayout
from ..plans.plan import Plan, number
from . import direct_run, placed_runs
from .bound_run import BoundRun, takes_arrays
from .executor import Executor
from .inputs import SIZE_END, Feeds
from .placed_runs import PlacedRuns
from .report import Report

Feed = Mapping[str, Any] | Sequence[Any]  # arrays by name, or in order
_CPU = devices.cpu(0)
_MAX_IDLE = 8  # executors that `run` keeps a device: as many threads as run it side by side again and again


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
        *,
        trusted: bool = False,
        layout: PlanLayout | None = None,
    ):
        """trusted: the plan was checked when the same user's cache took it, whose machine code is trusted too. layout: the plan's, where it is there already."""
        self.module = module
        self.plan = plan
        self.params = dict(params)
        self.report = report or Report()
        if not trusted:
            self._check_plan()
        self._layout = PlanLayout(plan, self.signature) if layout is None else layout
        self._feeds = Feeds(plan)
        self._idle: dict[Device, list[Executor]] = {}
        self._is_direct = module.device_kind == "cpu" and direct_run.serves(plan)
        self._weights: dict[Device, dict[str, NDArray]] = {}
        self._provided: set[str] = set()  # weights that a CPU reads where they are
        self._source: Network | None = None  # whose weights of the names in `_same` are read on devices
        self._same: set[str] = set()
        self._launched: Launches | None = None
        self._lock = fork_safe_lock()

    def __repr__(self) -> str:
        ins = ", ".join(
            f"{one_line(i['name'])}: {i['dtype']}{tuple(exprs.text(d) if not isinstance(d, int) else d for d in i['shape'])}"
            for i in self.inputs
        )
        return f"<tec.Network({ins}) {len(self.plan.steps)} steps, {self.module.target}>"

    def _repr_html_(self) -> str:
        rows = []
        for k, step in enumerate(self.plan.flat):
            made = str(self.plan.values[step.values[-1]]) if step.values else ""
            rows.append((k, step.label, " ".join(self.report.functions.get(step.label, ())), made))
        steps = table(("step", "function", "operators", "makes"), rows)
        ends = [("input", i) for i in self.inputs] + [("output", o) for o in self.outputs]
        about = table(
            ("", "name", "type", "shape"),
            [
                (kind, x["name"], x["dtype"], " x ".join(str(exprs.text(d)) for d in x["shape"]) or "one number")
                for kind, x in ends
            ],
            f"network for {self.module.target}: {len(rows)} steps, {sum(p.nbytes for p in self.params.values()) / 1e6:.1f} MB of weights; "
            "show() opens its page",
        )
        return f'{about}<details><summary>steps</summary><div style="overflow:auto;max-height:40em">{steps}</div></details>'

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

    @overload
    def bind(self, sizes: Mapping[str, int] | None = None, /, **more: int) -> Network: ...

    @overload
    def bind(self, inputs: Feed, outputs: Feed | None = None, /, device: DeviceLike = None) -> BoundRun: ...

    def bind(self, first: Any = None, outputs: Any = None, /, device: Any = None, **more: int) -> Network | BoundRun:
        """The network for given sizes, or a run of it over given arrays.

        `net.bind(batch=4)`, `net.bind({"batch": 4})`: the same network for these sizes, its shapes and its memory plan numbers. Raises ArgumentError for a missing, unknown
        or impossible size.

        `run = net.bind(inputs, outputs)`: a `BoundRun`. `run()` reads `inputs` (by name, or in order: contiguous arrays, NDArrays, anything with DLPack) and writes `outputs` (by name, or
        in order; None for those that it makes) where they lie, and gives the outputs, in each call the same arrays. Raises ArgumentError as `Executor.run` does, and for an
        input that cannot be read in place.
        """
        if outputs is not None or takes_arrays(first):
            if unknown := list(more):
                raise ArgumentError(f"a run over arrays has no {unknown[0]!r}", hint="the arrays say the sizes")
            return BoundRun(self, self._device(device), first if first is not None else {}, outputs)
        if device is not None:  # a size may have that name
            more = {"device": device, **more}
        return self._bound(first, more)

    def _bound(self, sizes: Mapping[str, int] | None, more: Mapping[str, int]) -> Network:
        if self.plan.growing:
            raise ArgumentError("a network whose states grow has no fixed sizes", hint="compile it with state=False")
        env = {**(sizes or {}), **more}
        names = self.open_sizes
        missing, unknown = [n for n in names if n not in env], [n for n in env if n not in names]
        if missing or unknown:
            what = (
                f"no size for {', '.join(map(one_line, missing))}"
                if missing
                else f"no size {', '.join(map(repr, unknown))}"
            )
            raise ArgumentError(
                f"the network has {what}", hint=f"its open sizes: {', '.join(map(one_line, names)) or 'none'}"
            )
        for name, n in env.items():
            least = 0 if name in self.plan.empty else 1
            if isinstance(n, bool) or not hasattr(n, "__index__") or not least <= n < SIZE_END:
                raise ArgumentError(f"size {one_line(name)} is {n!r}", hint=f"an int from {least} to {SIZE_END - 1}")
        env = {name: int(n) for name, n in env.items()}
        plan = self._placed(env)
        return Network(self.module, plan, self.params, self.report.bind(env, plan.arena_bytes))

    def _placed(self, env: Mapping[str, int]) -> Plan:
        """The plan with all sizes numbers."""
        try:
            self._check_sizes(env)
            plan = memory_plan.place(self.plan, env) if self.plan.is_open else self.plan
            return plan.bind(env)
        except (ZeroDivisionError, OverflowError, ValueError, TypeError) as error:
            raise damaged(f"a size cannot be worked out: {error}") from None

    def _check_plan(self) -> None:
        """PackageError where the plan could make compiled code read or write what it must not; see `check_plan`."""
        check_structure(self.plan, self.params, self.signature)
        if self.plan.is_open:
            check_order(self.plan, self.signature)
        elif self.plan.is_fixed:
            check_memory(self.plan, self.params, self.signature)
        else:
            raise damaged("its arena is laid out for sizes that are not numbers")

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

    def show(
        self,
        path: Any = None,
        *,
        device: DeviceLike = None,
        measure: bool | None = None,
        against: Any = None,
        **sizes: int,
    ) -> Any:
        """Write a page with everything about the network, and open it in a browser; in a notebook it stands in the cell.

        The steps, a roofline, what limits each kernel, its loop IR, LLVM IR and assembly. path: the page's file, a temporary one by default.
        device: to time the kernels on; an AMD GPU that is not there is modelled. measure: False takes no times. against: an earlier page's
        file, to compare with. sizes: of an open network, 1 by default. Returns the page: its `path`. Raises ArgumentError.
        """
        # The page is made by what compiled the network; one that only runs needs none of it.
        report = other_part("tec.report.show", "a network's page")
        return report.show(self, path, device=device, measure=measure, against=against, sizes=sizes)

    # ---- running

    def run(self, inputs: Mapping[str, Any] | Sequence[Any], device: DeviceLike = None) -> list[np.ndarray[Any, Any]]:
        """The network's outputs for `inputs` (by name, or in order): NumPy arrays. `device` defaults to the target's first.

        Raises ArgumentError for a missing, unknown or misshapen input, and where an index that was worked out from it is outside
        of what it counts in.
        """
        if device is None and self._is_direct and (found := self._run_directly(inputs)) is not None:
            return found
        made = self.run_arrays(inputs, device)
        if self.plan.states or len({r.address for r in made}) < len(made):  # memory that is kept, or seen twice
            return [r.numpy() for r in made]
        return [r.handed_over() for r in made]

    __call__ = run

    @property
    def takes_numpy(self) -> bool:
        """Whether NumPy arrays are the shortest way to it: a network for the CPU, all of NumPy's own types, which keeps nothing from run to run."""
        return self._is_direct and direct_run.has_own_types(self.plan)

    def _run_directly(self, inputs: Any) -> list[np.ndarray[Any, Any]] | None:
        """A run as the last one of these shapes (`direct_run`); None where it is another."""
        given = direct_run.in_order(self.plan.inputs, inputs) if isinstance(inputs, (dict, list, tuple)) else None
        idle = self._idle.get(_CPU)
        if given is None or not idle:
            return None
        try:
            executor = idle.pop()
        except IndexError:  # another thread took it
            return None
        try:
            engine: Any = executor._engine
            found: list[np.ndarray[Any, Any]] | None = engine.direct.run(given)
            return found
        finally:
            idle.append(executor)

    def run_arrays(self, inputs: Mapping[str, Any] | Sequence[Any], device: DeviceLike = None) -> list[NDArray]:
        """As `run`, with outputs that stay on the device."""
        executor = self._take(self._device(device))
        try:
            return executor.run_stateless(inputs)
        finally:
            self._give(executor)

    def executor(
        self,
        device: DeviceLike = None,
        memory_limit: int | None = None,
        capacity: int | None = None,
        communicators: Mapping[str, Any] | None = None,
        stream: Stream | None = None,
    ) -> Executor:
        """What runs it on a device, with memory, states and a stream of its own, or that of another; see `Executor`."""
        return Executor(self, device, memory_limit, capacity, communicators, stream)

    def placed_runs(self, device: DeviceLike = None) -> PlacedRuns | None:
        """What queues runs on a GPU over arrays where they lie; None for a CPU, and for a network with states, with loops or branches in its plan, or whose outputs
        are its inputs."""
        dev = self._device(device)
        if dev.driver is None or not placed_runs.serves(self.plan, self):
            return None
        return PlacedRuns(self, dev)

    def _take(self, dev: Device) -> Executor:
        """An executor that nobody uses; a thread that runs at the same time gets another."""
        with self._lock:
            idle = self._idle.setdefault(dev, [])
            if idle:
                return idle.pop()
        return Executor(self, dev)

    def _give(self, executor: Executor) -> None:
        with self._lock:
            idle = self._idle[executor.device]
            if len(idle) < _MAX_IDLE:
                idle.append(executor)

    def check_numbers(self) -> None:
        """ArgumentError where weights have no numbers yet (`Graph.deferred`, `provide`): the network would compute with zeros."""
        missing = [name for name, value in self.params.items() if getattr(value, "is_deferred", False)]
        if missing:
            raise ArgumentError(
                f"{len(missing)} of {len(self.params)} weights have no numbers yet: {', '.join(map(one_line, missing[:4]))}{', …' if missing[4:] else ''}",
                hint="net.provide({name: array}) gives them",
            )

    def _weights_on(self, dev: Device) -> dict[str, NDArray]:
        """The weights on a device; all executors read the same."""
        with self._lock:
            weights = self._weights.get(dev)
            if weights is None:
                self.check_numbers()
                theirs = self._source._weights_on(dev) if self._source is not None else {}
                weights = self._weights[dev] = {
                    n: theirs[n] if n in self._same else self._weight(n, p, dev) for n, p in self.params.items()
                }
            return weights

    def share(self, other: Network) -> None:
        """The weights of another network, as far as names, shapes and types agree: on a device both read the same memory. Those that the other was provided with
        later are its own."""
        alike = {
            n: p
            for n, p in other.params.items()
            if n in self.params and (p.shape, p.dtype) == (self.params[n].shape, self.params[n].dtype)
        }
        self.provide({n: p for n, p in alike.items() if n in other._provided})
        self._source, self._same = other, {n for n in alike if n in other._provided}

    def _weight(self, name: str, value: Any, dev: Device) -> NDArray:
        """A weight on a device: what `provide` gave is read where it is."""
        if name in self._provided and dev.driver is None and address_of(value) % ALIGN == 0:
            return from_numpy(value)
        return array(value, dev)

    def provide(self, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Numbers for weights, some or all, by their names in `params`: of the constants that a graph left deferred (`Graph.deferred`). A CPU reads arrays that
        begin at multiples of 64 bytes in place; they must not change any more. Executors that are there keep what they have. Raises ArgumentError for a
        name, a shape or a type that the network has not."""
        for name, value in weights.items():
            own = self.params.get(name)
            if own is None:
                raise ArgumentError(f"the network has no weight {name!r}", hint="net.params has the names")
            if value.shape != own.shape or value.dtype != own.dtype or not value.flags.c_contiguous:
                raise ArgumentError(
                    f"weight {name!r} is {own.dtype} {own.shape}, not {value.dtype} {value.shape}",
                    hint="one behind the other, as np.ascontiguousarray makes them",
                )
        with self._lock:
            self.params.update(weights)
            self._provided.update(weights)
            self._same -= set(weights)
            self._weights.clear()

    def _launches(self) -> Launches:
        """The launches of its plan, for executors on GPUs: made before the first of them runs, for their sizes are rows of the layout's table."""
        with self._lock:
            if self._launched is None:
                self._launched = Launches(self)
            return self._launched

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

    def _check_sizes(self, env: Mapping[str, int]) -> None:
        """What the code was compiled under: its conditions, and that places in every value are 32-bit numbers."""
        given = ", ".join(f"{n} = {v}" for n, v in env.items())
        for guard in self.plan.guards:
            if number(guard.size, env) < 0:
                raise ArgumentError(
                    f"the network was compiled for sizes with {guard.what}, not for {given}",
                    hint="give sizes for which that holds, or compile with these sizes bound: shapes={name: size}",
                )
        for name, v in self.plan.values.items():
            if all(isinstance(d, int) for d in v.shape):
                continue
            count = v.nbytes(env) // itemsize(v.dtype)
            if count >= SIZE_END:
                raise ArgumentError(
                    f"with {given} value {name!r} has {count} elements; a network with symbolic sizes takes fewer than {SIZE_END}",
                    hint="compile with these sizes bound: shapes={name: size}",
                )

    # ---- saving

    def save(self, path: str | os.PathLike[str], *, unmade: bool = True) -> None:
        """Write the network, with its weights and all it needs to run, to a `.tec` package; see `tec.load`. unmade: with the assembly, though
        LLVM has yet to make it; without, the package keeps the texts there are. A pipe or a device is written into, `-` is standard output.
        Raises ArgumentError for a name that promises a library or an object, PackageError where the file cannot be written."""
        self._save(path, unmade)

    def export_library(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        weights: str = "inside",
        linker: str | None = None,
        host: str | None = None,
        others: Sequence[Network] = (),
    ) -> None:
        """Write a native library and its C header: a shared object (`.so`), a static library (`.a`) or one object (`.o`). Any other name gets a
        package, as `save` writes it.

        name: the network's in C, the file's by default. weights: "inside", or "beside" in a file NAME.weights that is mapped. linker: a compiler
        driver such as "cc", which links a shared object in tec's place. host: of a network for a GPU, the target of the program that runs it, such as
        "llvm -mtriple=aarch64-linux-gnu"; this machine by default. others: the same network, compiled for other targets. A net of the library is of the
        first, this one foremost, that the machine can run. Raises ArgumentError for what cannot be a library.
        """
        if not is_native(path):
            if others:
                raise ArgumentError("a package is for one target", hint="others= is for libraries: .so, .a and .o")
            self.save(path)
            return
        native = other_part("tec.native.library", "a native library")
        native.export_network(self, path, name=name, weights=weights, linker=linker, host=host, others=others)

    def _save(self, path: str | os.PathLike[str], unmade: bool, durable: bool = True) -> None:
        self.check_numbers()
        blobs: dict[str, bytes] = {}
        meta = {
            "plan": self.plan.to_json(),
            "module": self.module.to_data(blobs, unmade=unmade),
            "report": self.report.to_json(),
        }
        write_package(path, "network", meta, blobs, self.params, durable)


@of_tec(ArgumentError).named("tec.load")
def load(path: str | os.PathLike[str]) -> Network:
    """The network that `Network.save` wrote. It runs with NumPy and tec.runtime alone, without the compiler.

    path: of the package. Raises PackageError for a file that is damaged or none of tec's.

        net = tec.load("model.tec")
        outputs = net.run({"input": x})

    >>> import tempfile, pathlib
    >>> g = tec.graph.Graph()
    >>> x = g.input("x", "float32", (4,))
    >>> g.set_outputs([g.add("relu", [x])[0]], ["y"])
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.tec")
    >>> tec.compile(g, target="llvm").save(path)
    >>> net = tec.load(path)
    >>> net.run({"x": np.float32([-1, 0, 1, 2])})[0]
    array([0., 0., 1., 2.], dtype=float32)
    """
    with read_package(path, "network") as package:
        meta = package.meta
        plan, report = Plan.from_json(meta.get("plan")), Report.from_json(meta.get("report"))
        params = {n: package.array(n) for n in package.array_names}
        module = Module.from_data(meta.get("module"), package.blob)
    return Network(module, plan, params, report)
