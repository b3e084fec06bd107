"""tec.compile: an operator graph to one module: graph passes, groups, te computes, schedules, functions, plan.

In: a path, a frontend's model or a Graph. Out: a `tec.runtime.network.Network`. Groups that are equal but for their names and
their weights share one function. Whole compiled networks are kept in the disk cache by content (`cache`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import te
from ..choices import Group, records, schedule
from ..driver import Building, checks_bounds
from ..errors import ImportModelError, TecError
from ..llvmworker import client
from ..ops.dims import Dim, Guard, UndecidedSize, bind_hint, data_of, evaluate, recording, variable
from ..ops.registry import TensorType
from ..runtime.memory import lifetimes, lower_bound
from ..runtime.network import Network
from ..runtime.report import Report
from ..schedule import to_loops
from ..target import Target, as_target
from .cache import cache_key, from_cache, to_cache
from .frontends import graph_of, registered
from .graph import Graph, Value, compute_op, node_flops
from .passes.fuse import FusedGroup, fuse
from .plan import make_plan
from .progress import default_progress
from .sizes import GroupSizes, sizes_of_group


def compile(
    model: Any,
    target: Any = None,
    shapes: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    cache: bool = True,
    progress: Any = None,
    freeze: Mapping[str, Any] | None = None,
    choices: Any = None,
) -> Network:
    """Compile a whole network.

    model: a `tec.graph.Graph`, or what an installed frontend takes (`tec.graph.frontends`): a path to an ONNX file, a ModelProto. target: text or Target ("llvm", "rocm
    -mcpu=gfx942", "cuda"). shapes: input name -> shape, or dimension's name -> size, for what the model leaves open; dimensions
    with a name and no size stay symbolic, and a name in a shape is such a dimension: {"x": ("batch", 3, 224, 224)}. dtype: "float16"
    for mixed precision. progress: a callable that takes (done, total, what); by default stderr shows a bar on a terminal, and a line
    every ten seconds elsewhere. A compilation can be interrupted (Ctrl-C). choices: how groups are computed, in place of the defaults:
    {signature: choice}, or a function of (signature, target, machine); `Network.report.choices` has those that were taken (see `tec.choices`).
    Raises ImportModelError, LoweringError, CodegenError.
    """
    tgt = as_target(target)
    lasting = (
        choices is None or isinstance(choices, Mapping)
    ) and not registered()  # what a function will say is not known
    key = cache_key(model, tgt, shapes, dtype, freeze, choices) if cache and lasting else None
    if key is not None:
        found = from_cache(key)
        if found is not None:
            return found
    client.start()  # beside the reading of the model
    graph = _as_graph(model, shapes, freeze)
    with records.using(choices):
        net = compile_graph(graph, tgt, dtype=dtype, progress=progress or default_progress())
    if key is not None:
        to_cache(key, net)
    return net


def _as_graph(model: Any, shapes: Mapping[str, Any] | None, freeze: Mapping[str, Any] | None = None) -> Graph:
    if isinstance(model, Graph):
        model.check()  # built or changed by hand
        return model
    return graph_of(model, shapes, freeze)


@dataclass
class _Unit:
    """One function to be made, and the groups that run it."""

    name: str
    func: Any
    inputs: list[int]  # which of the group's inputs are arguments
    guards: list[Guard] = field(default_factory=list)  # what its sizes must satisfy, under the names it has for them
    chosen: dict[str, Any] = field(default_factory=dict)  # the group's signature, and the choice that was taken for it
    groups: list[FusedGroup] = field(default_factory=list)


def compile_graph(graph: Graph, target: Target, dtype: str | None = None, progress: Any = None) -> Network:
    """Compile a graph for a target; see `compile`."""
    from .optimize import optimize
    from .passes.check_indices import check_indices

    start = time.perf_counter()
    with target:
        graph, checks = check_indices(graph)
        graph = optimize(graph, target, dtype)
        groups = fuse(graph)
        units: dict[Any, _Unit] = {}
        steps: list[tuple[FusedGroup, _Unit, list[Any]]] = []
        real = [g for g in groups if not g.is_alias]
        building = Building(target, checks_bounds(None))
        for k, group in enumerate(real):
            sizes = sizes_of_group(group)
            signature = _signature(group, sizes)
            unit = units.get(signature)
            if unit is None:
                unit = units[signature] = _make_unit(group, len(units), target, sizes, graph.guards)
                with _hint_at_sizes(graph):
                    building.add(unit.func)
            for g in unit.guards:
                size = evaluate(g.size, sizes.back)
                if isinstance(size, Dim):
                    graph.guards.append(Guard(size, f"{size} >= 0 ({group.nodes[-1].origin}: {g.what})"))
                elif size < 0:
                    raise ImportModelError(
                        f"while compiling {group} ({group.nodes[-1].origin}): {g.what} does not hold"
                    )
            unit.groups.append(group)
            steps.append((group, unit, sizes.values))
            if progress is not None:
                progress(k + 1, len(real) + 1, str(group))
        lowered_s = time.perf_counter() - start
        with _hint_at_sizes(graph):
            if not units:
                building.add(_nothing())
            module = building.finish()
        if progress is not None:
            progress(len(real) + 1, len(real) + 1, "code")
    plan, params = make_plan(graph, groups, [(g, u.name, u.inputs, sizes) for g, u, sizes in steps], checks)
    report = Report(
        functions={u.name: [str(n.op) for n in u.groups[0].nodes] for u in units.values()},
        sources={u.name: "\n".join(map(_line, u.groups[0].nodes)) for u in units.values()},
        origins={u.name: [g.nodes[-1].origin for g in u.groups] for u in units.values()},
        function_flops={u.name: data_of(sum(map(node_flops, u.groups[0].nodes))) for u in units.values()},
        choices={u.name: u.chosen for u in units.values()},
        lower_seconds=lowered_s,
        compile_seconds=time.perf_counter() - start,
        arena_bytes=plan.arena_bytes,
        arena_lower_bound=None if plan.is_open else lower_bound(lifetimes(plan, {})),
        flops=data_of(graph.flops()),
    )
    return Network(module, plan, params, report)


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
    from ..ir import NOP, Func

    return Func("nothing", (), NOP)


def _inline_constant(v: Value) -> bool:
    return bool(v.is_const and v.type.size == 1 and not v.dtype.startswith("float8"))


def _signature(group: FusedGroup, sizes: GroupSizes) -> Any:
    """What makes two groups the same function: operators, attributes, wiring, types, the values of scalars."""
    inputs = group.inputs
    index: dict[Value, Any] = {}
    for k, v in enumerate(inputs):
        index[v] = ("in", k)
    wiring = []
    for k, n in enumerate(group.nodes):
        wiring.append((n.op, repr(sorted(sizes.own(n.attrs).items())), tuple(index[v] for v in n.inputs)))
        for j, v in enumerate(n.outputs):
            index[v] = ("out", k, j)
    wiring.append(("live", "", tuple(index[v] for v in group.outputs)))
    types = tuple((sizes.own(v.type), np.asarray(v.data).tobytes() if _inline_constant(v) else None) for v in inputs)
    return tuple(wiring), types


def _make_unit(group: FusedGroup, number: int, target: Target, sizes: GroupSizes, guards: list[Guard]) -> _Unit:
    """The te program of a group, scheduled and turned into loops."""
    inputs = group.inputs
    tensors: dict[Value, Any] = {}
    args: list[Any] = []
    used: list[int] = []
    for k, v in enumerate(inputs):
        if _inline_constant(v):
            number_value = (
                np.asarray(v.data).reshape(()).item()
                if v.dtype != "bfloat16"
                else float(np.asarray(v.data).astype(np.float32).reshape(()))
            )
            tensors[v] = te.compute(
                v.shape, (lambda value, kind: lambda *i: te.const(value, kind))(number_value, v.dtype), name="scalar"
            )
        else:
            tensors[v] = te.placeholder(sizes.own(v.shape), v.dtype, name=f"x{k}")
            args.append(tensors[v])
            used.append(k)
    name = _name(group, number)
    known = sizes.own_guards(guards)
    conditions = list(known)
    try:
        with recording(conditions):
            for n in group.nodes:
                types = [sizes.own(v.type) for v in n.outputs]
                outs = compute_op(n.definition, sizes.own(n.attrs), [tensors[v] for v in n.inputs], types)
                tensors.update(zip(n.outputs, outs))
        outputs = [_as_output(tensors[v], sizes.own(v.type)) for v in group.outputs]
        read = _placeholders(outputs)
        used = [k for k, t in zip(used, args) if t.op in read]  # an empty part of a concatenation is not
        args = [t for t in args if t.op in read]
        scheduled = schedule(outputs, target)
        func = to_loops(scheduled.schedule, [*args, *scheduled.outputs, *map(variable, sizes.names)], name=name)
    except TecError as error:
        own = f" ({', '.join(f'{n} is {s}' for n, s in sizes.back.items())})" if sizes.names else ""
        raise type(error)(
            f"while compiling {group} ({group.nodes[-1].origin}): {error.message}{own}",
            where=error.where,
            hint=bind_hint(sizes.products) if sizes.names else error.hint,
            locate=False,
        ) from error
    except (TypeError, ValueError, AttributeError, AssertionError) as error:
        if not sizes.names:
            raise
        # A definition or a schedule that counts on numbers.
        raise UndecidedSize(
            f"{group} ({group.nodes[-1].origin}) cannot be compiled while its sizes are symbolic: {error}",
            hint=bind_hint(sizes.products),
            locate=False,
        ) from error
    chosen = {"signature": Group.of(outputs).signature, "choice": scheduled.choice}
    return _Unit(name, func, used, conditions[len(known) :], chosen)


def _placeholders(outputs: list[Any]) -> set[Any]:
    """The placeholders that tensors are computed from."""
    found: set[Any] = set()
    seen: set[int] = set()
    stack = [t.op for t in outputs]
    while stack:
        op = stack.pop()
        if id(op) in seen:
            continue
        seen.add(id(op))
        if isinstance(op, te.PlaceholderOp):
            found.add(op)
        stack.extend(t.op for t in op.inputs)
    return found


def _as_output(t: Any, type_: TensorType) -> Any:
    """A tensor that can be an output: a compute of its own where the operator gave one of its inputs back."""
    if isinstance(t.op, te.PlaceholderOp):
        return te.compute(type_.shape, lambda *i: t(*i), name="copy")
    return t


def _name(group: FusedGroup, number: int) -> str:
    words = [n.op for n in group.nodes]
    text = "_".join(dict.fromkeys(words))
    return f"f{number}_{text[:48]}"
