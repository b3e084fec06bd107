"""tec.compile: an operator graph to one module: graph passes, groups, te computes, schedules, functions, plan.

In: a path, a frontend's model or a Graph. Out: a `tec.runtime.networks.network.Network`. Groups that are equal but for their names and
their weights share one function. Whole compiled networks are kept in the disk cache by content (`cache`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..choices import warn_of_slower
from ..choices.families.libraries import using as by_libraries
from ..choices.store import database, records
from ..collector import looks_rarely
from ..door import of_tec
from ..driver import Building, checks_bounds
from ..errors import ArgumentError, ImportModelError, TecError
from ..ir import NOP, Func
from ..llvmworker import client
from ..ops.dims import Dim, bind_hint, data_of, evaluate
from ..ops.guards import Guard
from ..records import dataclass
from ..runtime.networks.network import Network
from ..runtime.networks.report import Report
from ..runtime.plans.memory_plan import lifetimes, lower_bound
from ..runtime.plans.plan import State
from ..target import Target, as_target
from .beside import neighbours
from .cache import cache_key, from_cache, to_cache
from .frontends import graph_of, registered
from .graph import Graph, node_flops
from .optimize import optimize
from .parts import Part, RegionRun, Run, part_of
from .passes.check_indices import check_indices
from .passes.fuse import FusedGroup
from .plan import make_plan
from .precision import check_names, precision_of
from .programs import signature_of
from .progress import default_progress
from .sizes import sizes_of_group
from .state import declare
from .units import Unit, make_unit


@of_tec(ArgumentError).named("tec.compile")
@looks_rarely()
def compile(
    model: Any,
    target: str | Target | None = None,
    shapes: Mapping[str, Any] | None = None,
    dtype: str | Mapping[str, str] | None = None,
    cache: bool = True,
    progress: Callable[[int, int, str], None] | None = None,
    freeze: Mapping[str, Any] | None = None,
    choices: Mapping[str, Any] | Callable[..., Any] | None = None,
    tuned: bool | str | os.PathLike[str] = True,
    state: Mapping[str, str] | bool = True,
    args: Any = None,
    libraries: bool = False,
) -> Network:
    """Compile a whole network.

    model: a `tec.graph.Graph`, or what an installed frontend takes (`tec.graph.frontends`): a path of an ONNX file, a
    ModelProto, a torch module or an exported program. target: text or Target ("llvm", "rocm -mcpu=gfx942", "cuda").
    shapes: {input name: shape} or {dimension's name: size}, for what the model leaves symbolic. A dimension with a
    name and no size stays symbolic, and a name in a shape makes one: {"x": ("batch", 3, 224, 224)}. dtype: "float16"
    or "bfloat16" for mixed precision, or types by node: {"": "float16", "/head/*": "float32"}, with patterns of node
    names, and "" for all others. cache: keep the compiled network on the disk. progress: a callable that takes (done,
    total, what); by default stderr shows a bar on a terminal, and a line every ten seconds elsewhere. Ctrl-C
    interrupts a compilation. freeze: {input name: value} makes inputs constants. choices: how groups are computed, in
    place of the defaults: {signature: choice}, or a function of (signature, target, machine);
    `Network.report.choices` has those that were used, and `Network.report.refused` those that could not be made (see
    `tec.choices`). tuned: whether the records of `tec.tune` (`TEC_TUNE_DB`) replace the defaults, or their
    file. state: {input: output}: the input is the output of the run before, like the
    caches of a decoder. Executors keep it on the device, and what grows by concatenation grows in place. True takes
    those that the model's names state clearly, False none. args: what a torch module is traced with: a tensor, a
    tuple of arguments, or a dict of named ones; the network is then called as the module is. libraries: whether products
    may be computed by vendor libraries, where `tec.tune(..., libraries=True)` found one quicker. Returns a Network.
    Raises ImportModelError, LoweringError, CodegenError.

    >>> g = tec.graph.Graph()
    >>> x = g.input("x", "float32", (1, 2))
    >>> g.set_outputs(g.add("add", [x, x]), ["y"])
    >>> net = tec.compile(g, "llvm")
    >>> net.run({"x": np.float32([[1, 2]])})[0].tolist()
    [[2.0, 4.0]]
    """
    tgt = as_target(target)
    if not isinstance(state, (bool, Mapping)):
        raise ImportModelError(f"state is {state!r}", hint="{input: the output that it becomes}, True or False")
    precision = precision_of(dtype)
    dtype = precision.text or None
    found_before = database.tuned(tuned, tgt)
    key = _key(model, tgt, shapes, dtype, freeze, choices, found_before, libraries, state) if cache else None
    if key is not None and (kept := from_cache(key)) is not None:
        return kept
    client.start()  # beside the reading of the model
    graph = as_graph(model, shapes, freeze, state, args)
    check_names(precision, graph)
    declared = graph.state if state is True else dict(state or {})
    with records.using(records.first_of(choices, found_before)), by_libraries(libraries):
        net = compile_graph(graph, tgt, dtype=dtype, progress=progress or default_progress(), state=declared)
    if key is not None:
        to_cache(key, net)
    presented: Network = net if graph.present is None else graph.present(net)
    return presented


def _key(
    model: Any, target: Target, shapes: Any, dtype: str | None, freeze: Any, choices: Any, tuned: database.Tuned | None, libraries: bool, state: Any
) -> str | None:  # fmt: skip
    """The key of a network on the disk; None where it depends on what no key has: what a function will say is not known."""
    if not (choices is None or isinstance(choices, Mapping)) or registered():
        return None
    stamp = " ".join(["libraries"] * bool(libraries) + ([tuned.stamp] if tuned is not None else []))
    return cache_key(model, target, shapes, dtype, freeze, choices, stamp, state)


def as_graph(
    model: Any,
    shapes: Mapping[str, Any] | None,
    freeze: Mapping[str, Any] | None = None,
    state: Mapping[str, str] | bool = True,
    args: Any = None,
) -> Graph:
    """The operator graph of what `compile` takes."""
    if isinstance(model, Graph):
        model.check()  # built or changed by hand
        return model
    return graph_of(model, shapes, freeze, state, args)


def compile_graph(
    graph: Graph, target: Target, dtype: str | None = None, progress: Any = None, state: Mapping[str, str] | None = None
) -> Network:
    """Compile a graph for a target; see `compile`."""
    return compile_graphs([graph], target, dtype, progress, state)[0]


@looks_rarely()
def compile_graphs(
    graphs: Sequence[Graph],
    target: Target,
    dtype: str | None = None,
    progress: Any = None,
    state: Mapping[str, str] | None = None,
) -> list[Network]:
    """Compile graphs for a target to networks that share one module, and each function that several of them have: the ranks of a mesh (`tec.shard`)."""
    start = time.perf_counter()
    ready = []
    for graph in graphs:
        with target:
            graph, states = declare(graph, state or {})
            graph, checks = check_indices(graph)
        ready.append((graph, states, checks))
    kept = [s.output for s in ready[0][1]]
    lowered = lower_graphs([graph for graph, _, _ in ready], target, dtype, progress, kept)
    return [_network(low, states, checks, start) for low, (_, states, checks) in zip(lowered, ready)]


def _network(lowered: Lowered, states: Sequence[State], checks: Sequence[str], start: float) -> Network:
    part, units = lowered.part, lowered.units
    plan, params = make_plan(part, checks, states)
    report = Report(
        functions={u.name: [str(n.op) for n in u.groups[0].nodes] for u in units.values()},
        sources={u.name: "\n".join(map(_line, u.groups[0].nodes)) for u in units.values()},
        origins={u.name: [g.nodes[-1].origin for g in u.groups] for u in units.values()},
        function_flops={u.name: data_of(sum(map(node_flops, u.groups[0].nodes))) for u in units.values()},
        choices={u.name: u.chosen for u in units.values()},
        refused={u.name: [r.to_json() for r in u.refused] for u in units.values() if u.refused},
        lower_seconds=lowered.seconds,
        compile_seconds=time.perf_counter() - start,
        arena_bytes=plan.arena_bytes,
        arena_lower_bound=None if plan.is_open else lower_bound(lifetimes(plan, {})),
        flops=data_of(lowered.graph.flops()),
    )
    return Network(lowered.module, plan, params, report)


@dataclass(frozen=True)
class Lowered:
    """A graph as code: the graph after its passes, its groups with the functions that they run, and the module of these."""

    graph: Graph
    part: Part
    units: dict[Any, Unit]
    module: Any
    seconds: float  # until LLVM had all functions


def lower_graph(
    graph: Graph,
    target: Target,
    dtype: str | None = None,
    progress: Any = None,
    kept: Iterable[str] = (),
    loose: Iterable[str] = (),
) -> Lowered:
    """The passes, the groups and the module of a graph. kept: outputs that states become. loose: inputs that begin anywhere, not at a multiple
    of 64 bytes."""
    return lower_graphs([graph], target, dtype, progress, kept, loose)[0]


def lower_graphs(
    graphs: Sequence[Graph],
    target: Target,
    dtype: str | None = None,
    progress: Any = None,
    kept: Iterable[str] = (),
    loose: Iterable[str] = (),
) -> list[Lowered]:
    """Several graphs as one module; a function that several of them have is there once."""
    start = time.perf_counter()
    kept, loose = list(kept), list(loose)
    with target:
        ready = [optimize(graph, target, dtype) for graph in graphs]
        parts = [part_of(graph, kept, loose) for graph in ready]
        # A network with states makes a step after the other of many short kernels, which gain by it; of one that is alone it is a loss.
        building = Building(target, checks_bounds(None), early=bool(kept) and target.chip.early_start)
        lowering = _Lowering(ready[0], building, progress, sum(p.work for p in parts))
        for graph, part in zip(ready, parts):
            lowering.graph = graph
            part.runs = lowering.runs(part)
        seconds = time.perf_counter() - start
        with _hint_at_sizes(ready[0]):
            if not lowering.units:
                lowering.building.add(_nothing())
            module = lowering.building.finish()
        for unit in lowering.units.values():
            unit.settle()
        warn_of_slower({u.name: u.refused for u in lowering.units.values()})
        if progress is not None:
            progress(lowering.work + 1, lowering.work + 1, "code")
    return [Lowered(part.graph, part, lowering.units, module, seconds) for part in parts]


class _Lowering:
    """Groups as functions, those of loops and branches too; equal ones share a function. `graph`: the one whose groups come next."""

    def __init__(self, graph: Graph, building: Building, progress: Any, work: int):
        self.graph, self.building, self.progress = graph, building, progress
        self.units: dict[Any, Unit] = {}
        self.done, self.work = 0, work

    def runs(self, part: Part) -> list[Run | RegionRun]:
        """What the groups of a part run, in order."""
        made: list[Run | RegionRun] = []
        beside = neighbours(part.graph, part.groups) if self.building.target.is_gpu else {}
        joined = {g for others in beside.values() for g in others}
        for group in part.groups:
            if group.is_alias or group in joined:
                continue
            if group in part.inner:
                for p in part.inner[group]:
                    p.runs = self.runs(p)
                made.append(RegionRun(group, part.inner[group]))
                continue
            others = beside.get(group, ())
            unit, sizes = self._unit(group, others)
            made.append(Run(group, unit.name, unit.inputs, sizes, others, unit.beside))
            self.done += 1 + len(others)
            if self.progress is not None:
                self.progress(self.done, self.work + 1, str(group))
        return made

    def _unit(self, group: FusedGroup, beside: Sequence[FusedGroup]) -> tuple[Unit, list[Any]]:
        guards = self.graph.guards
        sizes = sizes_of_group(group, *beside)
        signature = tuple(signature_of(g, sizes) for g in (group, *beside))
        unit = self.units.get(signature)
        if unit is None:
            with _hint_at_sizes(self.graph):
                unit = make_unit(group, len(self.units), self.building, sizes, guards, beside)
            self.units[signature] = unit
        for g in unit.guards:
            size = evaluate(g.size, sizes.back)
            if isinstance(size, Dim):
                guards.append(Guard(size, f"{size} >= 0 ({group.nodes[-1].origin}: {g.what})"))
            elif size < 0:
                raise ImportModelError(
                    f"while compiling {group} ({group.nodes[-1].origin}): {g.what} does not hold",
                    hint="other sizes in shapes=",
                )
        unit.groups.append(group)
        return unit, sizes.values


@contextmanager
def _hint_at_sizes(graph: Graph) -> Iterator[None]:
    """Errors of code generation on a network with symbolic inputs say that these can be bound."""
    try:
        yield
    except TecError as error:
        if error.hint is not None or not any(v.type.is_symbolic for v in graph.inputs):
            raise
        hint = bind_hint(*(v.shape for v in graph.inputs))
        raise type(error)(error.message, where=error.where, hint=hint, locate=False) from error


def _line(n: Any) -> str:
    """A node as a line of text for reports: long attributes are cut."""
    text = " ".join(repr(n).split())
    return text if len(text) <= 400 else text[:399] + "…"


def _nothing() -> Any:
    return Func("nothing", (), NOP)
