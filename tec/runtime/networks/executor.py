"""Executor: what a network needs to run on one device: memory, state, a stream.

A `Network` is code and weights, which threads share; an `Executor` belongs to one run at a time. `run(inputs)` gives arrays on
the device, `launch(inputs)` returns at once with a `Job`. Sizes are bound by the inputs' shapes at each run; what depends on
sizes alone is a few array operations (see `layout`). Memory grows to what the largest sizes took and stays.

How steps run is the engine's: `host_engine` calls machine code over one table of addresses, `device_engine` calls functions
on arrays and replays them as a graph where shapes repeat.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import ArgumentError
from ..arrays.ndarray import NDArray
from ..devices.device import Device, DeviceLike
from ..devices.storage import ALIGN, Storage
from ..devices.stream import Event, Stream
from ..plans.layout import Binding
from ..plans.plan import Output
from .exchanges import Collectives, check_communicators
from .inputs import Feeds, as_array
from .state import States

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from .device_engine import Settled
    from .network import Network

_TOGETHER = 1 << 16  # bytes of outputs that are made in one block, which lasts as long as one of them
_BINDINGS = 256  # sets of sizes whose numbers are kept: a few kilobytes each


class Engine(Protocol):
    """Runs the steps of a plan."""

    @property
    def stream(self) -> Stream | None:
        """What work is queued in; None where it is done when `start` returns."""

    def start(self, binding: Binding, given: Sequence[NDArray], results: Sequence[NDArray | None]) -> None:
        """Queue a run that reads `given` and writes `results` (all outputs, the hidden ones too; None for a state in its place)."""

    def wait(self) -> None:
        """Until what was queued is done."""

    def event(self) -> Event | None:
        """A mark behind what was queued; None where work is done when `start` returns."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are held."""

    def release(self) -> None:
        """Give memory back; the next run takes it anew."""

    def drop_graphs(self) -> None:
        """The next runs are captured anew."""


class Job:
    """A run that was launched. `sync()` waits for it and gives its outputs; `done` says whether that would be at once."""

    def __init__(self, future: Future[list[NDArray]] | None, outputs: list[NDArray], event: Event | None, check: Any):
        self._future = future
        self._outputs = outputs
        self._check = check
        self.event = event

    @property
    def outputs(self) -> list[NDArray]:
        """The outputs, which may not be there yet: what is queued behind the run in its stream may read them. On a CPU it waits."""
        return self._future.result() if self._future is not None else self._outputs

    @property
    def done(self) -> bool:
        """Whether the outputs are there; on a GPU it is known once somebody waited."""
        return self._future.done() if self._future is not None else self._check is None

    def sync(self) -> list[NDArray]:
        """Wait; the outputs. Raises what the run raised."""
        if self._future is not None:
            return self._future.result()
        if self._check is not None:
            if self.event is not None:
                self.event.sync()
            check, self._check = self._check, None
            check()
        return self._outputs

    synchronize = sync


class Executor:
    """See the module. Made by `network.executor(device)`.

    memory_limit: bytes of working memory that are kept between runs; what a run took beyond is given back after it. A run itself takes
    what it needs. stream: what runs are queued in on a GPU; one of its own by default. communicators: of a network that is one rank of several (`tec.shard`), those of its mesh axes by name. capacity: rows that states which grow have room for at first; it doubles where that is too little.
    """

    def __init__(
        self,
        network: Network,
        device: DeviceLike = None,
        memory_limit: int | None = None,
        capacity: int | None = None,
        communicators: Mapping[str, Collectives] | None = None,
        stream: Stream | None = None,
    ):
        self.network = network
        given = {} if communicators is None else communicators
        self.device: Device = network._device(device)
        check_communicators(network.plan, self.device, given)
        self.memory_limit = _count("memory_limit", memory_limit, 0, "bytes")
        rows = _count("capacity", capacity, 1, "rows")
        self._layout = network._layout
        self._all = network._feeds
        self._states = States(network.plan, self.device, rows) if network.plan.states else None
        self._feeds = Feeds(network.plan, self._states.names) if self._states is not None else self._all
        self._kept = {s.output for s in network.plan.states}
        self._lock = threading.Lock()
        self._bindings: OrderedDict[tuple[tuple[str, int], ...], Binding] = OrderedDict()
        self._worker: ThreadPoolExecutor | None = None
        self._launched: Any = None  # the last run that was queued on a GPU and not waited for
        self._engine: Engine
        if self.device.driver is None:
            from .host_engine import HostEngine

            self._engine = HostEngine(network, self.device, given)
        else:
            from .device_engine import DeviceEngine

            self._engine = DeviceEngine(network, self.device, given, stream)

    def __repr__(self) -> str:
        return f"<tec.Executor of {self.network!r} on {self.device}, {self.nbytes} bytes>"

    @property
    def stream(self) -> Stream | None:
        """What runs are queued in; None on a CPU."""
        return self._engine.stream

    @property
    def nbytes(self) -> int:
        """Bytes of working memory and states that are held; weights are the network's."""
        return self._engine.nbytes + (self._states.nbytes if self._states is not None else 0)

    # ---- state

    @property
    def state(self) -> dict[str, NDArray]:
        """The states by their inputs' names, as they are: views, that the next run may change."""
        states = self._stateful()
        with self._lock:
            return {n: states.view(n) for n in states.names} if states.filled else {}

    @property
    def length(self) -> int:
        """The rows that the states have; the largest, where they have several sizes."""
        return max(self._stateful().rows.values(), default=0)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Rows that states with a window have let go, by the name of their size."""
        return self._stateful().dropped

    @property
    def least(self) -> int:
        """The fewest rows to which the states can be cut, beside none: what stands further back is let go where states have a window."""
        return self._stateful().least

    def drop_graphs(self) -> None:
        """Give captured graphs back: a communicator whose calls they hold ends behind them."""
        self._engine.drop_graphs()

    def reset(self) -> None:
        """The states as before the first run."""
        states = self._stateful()
        with self._lock:
            self._engine.wait()
            states.reset()

    def truncate(self, rows: int) -> None:
        """Forget all rows of the states but the first; ArgumentError where there are fewer."""
        states = self._stateful()
        with self._lock:
            states.truncate(rows)

    def reserve(self, rows: int, free: int = 0) -> int:
        """Make the states' memory `rows` long at least, with zeros behind what there is, and count all of it but the last `free` rows as filled: for a network that is
        told in which row to put what is new (`Graph.row_inputs`). Returns the rows that there are."""
        states = self._stateful()
        with self._lock:
            self._engine.wait()
            return states.reserve(rows, free)

    def go_on_from(self, other: Executor) -> None:
        """Take over the states of another executor, whose runs are queued in the same stream: the next run goes on where that one's last ended. The two share their
        memory from then on, so one of them at a time goes on. Raises ArgumentError where networks have other states.
        """
        with self._lock, other._lock:
            self._stateful().take(other._stateful())

    def reorder(self, indices: Sequence[int]) -> None:
        """Beams: element k of the batch goes on from what element `indices[k]` was. ArgumentError for an index that is not there."""
        states = self._stateful()
        with self._lock:
            self._engine.wait()
            states.reorder(indices)

    def _stateful(self) -> States:
        if self._states is None:
            raise ArgumentError("the network has no state", hint='tec.compile(model, state={"past": "present"})')
        return self._states

    def begin_with(self, states: Mapping[str, Any], length: int | None = None) -> None:
        """States by their inputs' names, as the next run finds them: arrays of the executor's device. One that does not grow is taken as it is, and written in place
        where the network writes rows of it; one that grows is copied. length: the rows of all that grow, where those with a window have let some go. Raises ArgumentError for what is no state, or has another type, and for a part of the states
        that grow together.
        """
        own = self._stateful()
        with self._lock:
            self._engine.wait()
            own.begin_with(states, length)

    # ---- running

    def run(self, inputs: Any, outputs: Mapping[str, Any] | Sequence[Any] | None = None) -> list[NDArray]:
        """The outputs for `inputs` (by name, or in order): NDArrays on the device.

        inputs: NumPy arrays, NDArrays, anything with DLPack. What lies on the device, compact and aligned to 64 bytes, is read where it is. outputs:
        arrays to write, by name or in order (None for one that is made). States are remembered from run to run and are no outputs here; given
        among the inputs, all of them, they are what the run begins with. Raises ArgumentError as `Network.run` does; then states are as they were.
        """
        with self._lock:
            shown = self._run(inputs, outputs, self._gives_states(inputs))
            return [r for o, r in shown if o.name not in self._kept and r is not None]

    def run_stateless(self, inputs: Any) -> list[NDArray]:
        """`run` with all inputs, states among them, and all outputs."""
        with self._lock:
            if self._states is not None:
                self._states.reset()
            shown = self._run(inputs, None, True)
            source = {s.output: s.input for s in self.network.plan.states}
            return [self._stateful().view(source[o.name]) if r is None else r for o, r in shown]

    def _run(self, inputs: Any, outputs: Any, full: bool) -> list[tuple[Output, NDArray | None]]:
        if self._states is None:  # without what a block costs beside a small network
            self._launched = None
            return self._waited(inputs, outputs, full)
        with self._or_as_before():
            return self._waited(inputs, outputs, full)

    def _waited(self, inputs: Any, outputs: Any, full: bool) -> list[tuple[Output, NDArray | None]]:
        results = self._start(inputs, outputs, full)
        self._engine.wait()
        return self._finish(results)

    @contextmanager
    def _or_as_before(self) -> Iterator[None]:
        """A run that fails leaves the states as they were."""
        self._launched = None
        kept = self._states.snapshot() if self._states is not None else None
        try:
            yield
        except BaseException:
            if self._states is not None:
                self._states.restore(kept)
            raise

    def _gives_states(self, inputs: Any) -> bool:
        if self._states is None:
            return True
        if isinstance(inputs, Mapping):
            return any(n in inputs for n in self._states.names)
        return isinstance(inputs, Sequence) and len(inputs) == len(self._all.names)

    __call__ = run

    def launch(self, inputs: Any, outputs: Mapping[str, Any] | Sequence[Any] | None = None) -> Job:
        """`run`, which returns at once: with a Job. Arrays that are given must be left alone until it is done.

        Runs of an executor follow one another. On a GPU they are queued in its stream, on a CPU in a thread of its own.
        """
        if self.device.driver is None:
            if self._worker is None:
                from concurrent.futures import ThreadPoolExecutor  # for `launch` alone

                self._worker = ThreadPoolExecutor(1, "tec-executor")
            return Job(self._worker.submit(self.run, inputs, outputs), [], None, None)
        with self._lock:
            kept = self._states.snapshot() if self._states is not None else None
            with self._or_as_before():
                results = self._start(inputs, outputs, self._gives_states(inputs))
            shown = [r for o, r in zip(self.network.plan.outputs, results) if self._is_shown(o) and r is not None]
            mine = self._launched = object()

            def check() -> None:
                try:
                    self._finish(results)
                except ArgumentError:
                    if self._states is not None and self._launched is mine:  # no other run went on from it
                        self._states.restore(kept)
                    raise

            return Job(None, shown, self._engine.event(), check)

    def settle(self, inputs: Mapping[str, Any], lent: Mapping[str, NDArray] | None = None) -> Settled:
        """What queues runs in a GPU's memory that stays where it is. inputs: what is copied to the inputs' memory now. lent: whole blocks of memory that inputs
        or outputs, by name, are to have in place of their own: those of another executor's. States go on as for `run`, but their lengths are the caller's."""
        from .device_engine import DeviceEngine

        engine, states = self._engine, self._states
        if not isinstance(engine, DeviceEngine):
            raise ArgumentError(
                f"an executor on {self.device} has nothing to queue", hint="run() computes at once on a CPU"
            )
        with self._lock:
            held = {n: lent[n] for n in self._feeds.names if lent and n in lent}
            given = self._feeds.arrange({**inputs, **held})
            env = self._feeds.sizes(given, None if states is None else states.known())
            by_name = dict(zip(self._feeds.names, given))
            if states is not None:
                states.prepare(env, None)
                by_name.update((n, states.array(n)) for n in states.names)
            return engine.settle(self._binding(env), by_name, lent or {})

    def _is_shown(self, o: Output) -> bool:
        return o.check is None and o.name not in self._kept

    def _start(self, inputs: Any, outputs: Any, full: bool) -> list[NDArray | None]:
        states, plan = self._states, self.network.plan
        feeds = self._all if full else self._feeds
        given = feeds.arrange(inputs)
        env = feeds.sizes(given, None if full or states is None else states.known())
        by_name = dict(zip(feeds.names, given))
        after: dict[str, int] = {}
        if states is not None:
            after = states.prepare(env, by_name if full else None)
            by_name.update((n, states.array(n)) for n in states.names)
            given = [by_name[n] for n in plan.inputs]
        binding = self._binding(env)
        results = self._results(binding, outputs, given)
        self._engine.start(binding, given, [r for r, _ in results])
        for made, asked in results:
            if asked is not None and made is not None:  # it lies so that the network cannot write there
                self._engine.wait()
                made.copyto(asked)
        if states is not None:
            states.advance(after, {o.name: r for o, (r, _) in zip(plan.outputs, results) if r is not None})
        return [made if asked is None else asked for made, asked in results]

    def _finish(self, results: list[NDArray | None]) -> list[tuple[Output, NDArray | None]]:
        if self.memory_limit is not None and self._engine.nbytes > self.memory_limit:
            self._engine.release()
        out = []
        for o, r in zip(self.network.plan.outputs, results):
            if o.check is None:
                out.append((o, r))
            elif r is not None and not r.numpy().all():
                raise failed_check(o)
        return out

    def _binding(self, env: dict[str, int]) -> Binding:
        key = tuple(sorted(env.items()))
        found = self._bindings.get(key)
        if found is None:
            found = self._bindings[key] = self._layout.bind(env)
            if len(self._bindings) > _BINDINGS:
                self._bindings.popitem(last=False)
        return found

    # ---- outputs

    def _results(
        self, binding: Binding, outputs: Any, given: Sequence[NDArray]
    ) -> list[tuple[NDArray | None, NDArray | None]]:
        """For each output of the plan the array that is written, and the one that was asked for where that is another."""
        plan = self.network.plan
        if outputs is None:
            return [(r, None) for r in self._made(binding)]
        asked = self._asked([o for o in plan.outputs if self._is_shown(o)], outputs)
        out: list[tuple[NDArray | None, NDArray | None]] = []
        kept = plan.kept_values
        for o in plan.outputs:
            v = plan.values[o.value]
            if o.value in kept:
                out.append((None, None))
                continue
            shape = self._layout.shape(binding, o.value)
            target = asked.get(o.name) if o.check is None else None
            if target is not None:
                self._check_target(o, target, shape, v.dtype)
                others = [*given, *(t for n, t in asked.items() if n != o.name)]
                if any(_overlap(target, a) for a in others):
                    raise ArgumentError(
                        f"the array for output {o.name} shares memory with an input or another output",
                        hint="give each output an array of its own",
                    )
                if target.is_contiguous and target.address % ALIGN == 0:
                    out.append((target, None))
                    continue
            storage = Storage(self.device, self._layout.nbytes(binding, self._layout.names[o.value]))
            out.append((NDArray(storage, storage.address, shape, v.dtype), target))
        return out

    def _made(self, binding: Binding) -> list[NDArray | None]:
        """New arrays for all outputs of the plan, None for rows of a state. Small ones share a block: making one takes as long as a small step."""
        nbytes, places = self._layout.outputs(binding)
        block = Storage(self.device, nbytes) if nbytes <= _TOGETHER else None
        made: list[NDArray | None] = []
        for p in places:
            if p is None:
                made.append(None)
            elif block is not None:
                made.append(NDArray(block, block.address + p.begin, p.shape, p.dtype))
            else:
                own = Storage(self.device, p.nbytes)
                made.append(NDArray(own, own.address, p.shape, p.dtype))
        return made

    def _asked(self, shown: Sequence[Output], outputs: Any) -> dict[str, NDArray]:
        """The arrays that were given for outputs, by name."""
        names = [o.name for o in shown]
        if not isinstance(outputs, Mapping):
            if len(outputs) != len(names):
                raise ArgumentError(
                    f"{len(outputs)} arrays given for outputs, the network has {len(names)}: {', '.join(names)}",
                    hint="one array for each output, or a dict by name",
                )
            outputs = dict(zip(names, outputs))
        unknown = [str(n) for n in outputs if n not in names]
        if unknown:
            raise ArgumentError(f"the network has no output {', '.join(unknown)}", hint=f"outputs: {', '.join(names)}")
        plan = self.network.plan
        values = {o.name: plan.values[o.value] for o in shown}
        return {
            n: x if isinstance(x, NDArray) else as_array(f"the array for output {n}", values[n], x, share=True)
            for n, x in outputs.items()
            if x is not None
        }

    def _check_target(self, o: Output, x: NDArray, shape: tuple[int, ...], dtype: str) -> None:
        if x.dtype != dtype or x.shape != shape:
            raise ArgumentError(
                f"the array for output {o.name} is {x.dtype}{x.shape}, the network makes {dtype}{shape}",
                hint="tec.nd.empty(shape, dtype, device) makes one that fits; without outputs= the executor makes them",
            )
        if x.device is not self.device and not (x.device.driver is None and self.device.driver is None):
            raise ArgumentError(
                f"the array for output {o.name} is on {x.device}, the executor on {self.device}",
                hint="make it there: tec.nd.empty(shape, dtype, device)",
            )
        if not x.writable:
            raise ArgumentError(f"the array for output {o.name} is read-only", hint="pass an array that may be written")


def is_of_indices(o: Output) -> bool:
    """Whether a hidden output says that all of some indices are inside, and no other condition."""
    return all(" is outside of " in text for text in (o.check or "").split(" or "))


def failed_check(o: Output) -> ArgumentError:
    """What to raise where an output that checks indices says that one is outside."""
    hint = "an input asks for an element that is not there" if is_of_indices(o) else None
    return ArgumentError(o.check or "", hint=hint)


def _count(name: str, given: Any, least: int, what: str) -> int | None:
    """A number that a user gave; ArgumentError for what is none."""
    if given is None:
        return None
    if isinstance(given, bool) or not hasattr(given, "__index__") or not least <= given < 1 << 62:
        raise ArgumentError(f"{name} is {given!r}", hint=f"{what}: an int from {least} on, or None")
    return int(given)


def _overlap(a: NDArray, b: NDArray) -> bool:
    """Whether two arrays may share memory."""
    if a.device.driver is not b.device.driver or not a.size or not b.size:
        return False
    return a.address < b.address + _reach(b) and b.address < a.address + _reach(a)


def _reach(a: NDArray) -> int:
    width = a.nbytes // a.size
    return (sum((n - 1) * abs(s) for n, s in zip(a.shape, a.strides)) + 1) * width
