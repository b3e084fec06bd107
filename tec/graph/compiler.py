"""tec.compile: an operator graph to one module: graph passes, groups, te computes, schedules, functions, memory plan.

In: a path, a frontend's model or a Graph. Out: a `tec.runtime.network.Network`. Groups that are equal but for their names and
their weights share one function. Whole compiled networks are kept in the disk cache by content.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

import numpy as np

from .. import te
from ..driver import build
from ..errors import ImportModelError, TecError
from ..ops.dims import Dim, Guard, UndecidedSize, bind_hint, data_of, evaluate, recording, variable
from ..ops.registry import TensorType
from ..ops.schedules import schedule_group
from ..runtime.network import Network
from ..schedule import to_loops
from ..target import Target, as_target
from ..te.evaluate import np_dtype
from . import memory
from .graph import Graph, Value, compute_op, node_flops
from .passes.fuse import FusedGroup, fuse
from .sizes import GroupSizes, sizes_of_group


def compile(
    model: Any,
    target: Any = None,
    shapes: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    cache: bool = True,
    progress: Any = None,
    freeze: Mapping[str, Any] | None = None,
) -> Network:
    """Compile a whole network.

    model: a path to an ONNX file, a ModelProto, or a `tec.graph.Graph`. target: text or Target ("llvm", "rocm
    -mcpu=gfx942", "cuda"). shapes: input name -> shape, or dimension's name -> size, for what the model leaves open; dimensions
    with a name and no size stay symbolic, and a name in a shape is such a dimension: {"x": ("batch", 3, 224, 224)}. dtype: "float16"
    for mixed precision. progress: a callable that takes (done, total, what); by default stderr shows a bar on a terminal, and a line
    every ten seconds elsewhere. A compilation can be interrupted (Ctrl-C).
    Raises ImportModelError, LoweringError, CodegenError.
    """
    tgt = as_target(target)
    key = _cache_key(model, tgt, shapes, dtype, freeze) if cache else None
    if key is not None:
        found = _from_cache(key)
        if found is not None:
            return found
    graph = _as_graph(model, shapes, freeze)
    net = compile_graph(graph, tgt, dtype=dtype, progress=progress or default_progress())
    if key is not None:
        _to_cache(key, net)
    return net


def _as_graph(model: Any, shapes: Mapping[str, Any] | None, freeze: Mapping[str, Any] | None = None) -> Graph:
    if isinstance(model, Graph):
        model.check()  # built or changed by hand
        return model
    points = list(entry_points(group="tec.frontends"))
    if not points:
        raise ImportModelError("no frontend is installed", hint='pip install "tec[onnx]"')
    graph: Graph = points[0].load()(model, shapes, freeze=freeze)
    return graph


@dataclass
class _Unit:
    """One function to be made, and the groups that run it."""

    name: str
    func: Any
    inputs: list[int]  # which of the group's inputs are arguments
    guards: list[Guard] = field(default_factory=list)  # what its sizes must satisfy, under the names it has for them
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
        for k, group in enumerate(real):
            sizes = sizes_of_group(group)
            signature = _signature(group, sizes)
            unit = units.get(signature)
            if unit is None:
                unit = units[signature] = _make_unit(group, len(units), target, sizes, graph.guards)
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
        try:
            module = build([u.func for u in units.values()] if units else _nothing(), target=target)
        except TecError as error:
            if error.hint is not None or not any(v.type.is_symbolic for v in graph.inputs):
                raise
            hint = bind_hint(*(v.shape for v in graph.inputs))
            raise type(error)(error.message, where=error.where, hint=hint, locate=False) from error
        if progress is not None:
            progress(len(real) + 1, len(real) + 1, "code")
    plan, params = _plan(graph, groups, steps)
    for io, text in zip(plan["outputs"][len(plan["outputs"]) - len(checks) :], checks):
        io["check"] = text
    report = {
        "functions": {u.name: [str(n.op) for n in u.groups[0].nodes] for u in units.values()},
        "sources": {u.name: "\n".join(map(_line, u.groups[0].nodes)) for u in units.values()},
        "origins": {u.name: [g.nodes[-1].origin for g in u.groups] for u in units.values()},
        "function_flops": {u.name: data_of(sum(map(node_flops, u.groups[0].nodes))) for u in units.values()},
        "lower_seconds": lowered_s,
        "compile_seconds": time.perf_counter() - start,
        "arena_bytes": plan["arena_bytes"],
        "arena_lower_bound": plan.pop("lower_bound"),
        "flops": data_of(graph.flops()),
    }
    return Network(module, plan, params, report)


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
        sch = schedule_group(outputs, target)
        func = to_loops(sch, [*args, *outputs, *map(variable, sizes.names)], name=name)
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
    return _Unit(name, func, used, guards=conditions[len(known) :])


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


# ---- the plan


def _plan(
    graph: Graph, groups: list[FusedGroup], steps: list[tuple[FusedGroup, _Unit, list[Any]]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    values: dict[str, dict[str, Any]] = {}
    params: dict[str, Any] = {}
    names: dict[Value, str] = {}
    roots: dict[Value, Value] = {}
    order = {g: k for k, g in enumerate(groups)}
    starts: dict[Value, int] = {}  # of views: the first byte in their root
    parts: dict[Value, list[tuple[Value, int]]] = {}  # joined values, and where the others are made in them
    for g in groups:
        made = g.outputs[0] if g.is_alias else None
        if made is not None and g.view_at is not None:
            source = g.nodes[0].inputs[0]
            roots[made] = roots.get(source, source)
            starts[made] = starts.get(source, 0) + g.view_at
        elif made is not None and g.join_at is not None:
            parts[made] = [(roots.get(v, v), at) for v, at in zip(g.nodes[0].inputs, g.join_at)]
    inside = {v for some in parts.values() for v, _ in some}

    def root(v: Value) -> Value:
        return roots.get(v, v)

    taken_names = {v.name for v in graph.inputs} | set(graph.output_names)

    def fresh(v: Value) -> str:
        """A name that no other value has: passes may have left two values with one."""
        name, k = v.name, 1
        while name in taken_names:
            name, k = f"{v.name}.{k}", k + 1
        taken_names.add(name)
        return name

    def entry(v: Value, place: str, **extra: Any) -> str:
        name = names.get(v)
        if name is None:
            name = names[v] = v.name if place == "input" else fresh(v)
            values[name] = {"dtype": v.dtype, "shape": list(map(data_of, v.shape)), "place": place, **extra}
        return name

    inputs = [{"name": entry(v, "input"), "dtype": v.dtype, "shape": list(map(data_of, v.shape))} for v in graph.inputs]
    # Outputs get arrays of their own, under the network's names for them.
    outputs, copies = [], []
    taken: set[Value] = set()
    for v, name in zip(graph.outputs, graph.output_names):
        if v.is_const or v in graph.inputs or root(v) in taken or root(v) is not v or v in parts:
            copies.append((v, name))
        else:
            taken.add(v)
            names[v] = name
            values[name] = {"dtype": v.dtype, "shape": list(map(data_of, v.shape)), "place": "output"}
        outputs.append({"name": name, "dtype": v.dtype, "shape": list(map(data_of, v.shape))})

    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for g in groups:
        for v in g.inputs:
            if not v.is_const:
                last[root(v)] = max(last.get(root(v), 0), order[g])
        for v in g.outputs:
            if root(v) is v:
                first[v] = order[g]
                last.setdefault(v, order[g])
    for v, _ in copies:
        if not v.is_const:
            last[root(v)] = len(groups)
    for v in parts:  # joins within joins come first
        for x, _ in parts[v]:
            first[v] = min(first[v], first[x])
            last[v] = max(last[v], last[x])
    in_arena = [v for v in first if v not in names]
    arena: int | None = None
    lifetimes: list[memory.Lifetime] = []
    if not any(v.type.is_symbolic for v in graph.inputs):
        whole = [v for v in in_arena if v not in inside]
        lifetimes = [
            memory.Lifetime(str(id(v)), v.type.size * np_dtype(v.dtype).itemsize, first[v], last[v]) for v in whole
        ]
        offsets, arena = memory.plan(lifetimes)
        by_name = {str(id(v)): v for v in first}

        def lay(v: Value, offset: int) -> str:
            pieces = [lay(x, offset + at) for x, at in parts.get(v, ())]
            return entry(v, "arena", offset=offset, **({"parts": pieces} if pieces else {}))

        for life in lifetimes:
            lay(by_name[life.name], offsets[life.name])
    else:  # offsets are found when sizes are bound
        for v in in_arena:
            entry(v, "arena")

    def use(v: Value) -> str:
        if v in names:
            return names[v]
        if v.is_const:
            name = entry(v, "param")
            params[name] = _param(v)
            return name
        all_of_it = starts.get(v, 0) == 0 and v.type.size == root(v).type.size
        return entry(v, "alias", of=use(root(v)), **({} if all_of_it else {"offset": starts[v]}))

    planned = []
    for g, unit, sizes in steps:
        ins = g.inputs
        tensors = [*[use(ins[k]) for k in unit.inputs], *[use(v) for v in g.outputs]]
        planned.append({"function": unit.name, "args": [*tensors, *({"scalar": e} for e in sizes)]})
    plan: dict[str, Any] = {
        "inputs": inputs,
        "outputs": outputs,
        "values": values,
        "steps": planned,
        "arena_bytes": arena,
        "lower_bound": memory.lower_bound(lifetimes) if arena is not None else None,
    }
    if graph.guards:
        plan["guards"] = [{"size": data_of(g.size), "what": g.what} for g in dict.fromkeys(graph.guards)]
    for v, name in copies:
        origin = use(v)
        values[name + "'" if name in values else name] = {
            "dtype": v.dtype,
            "shape": list(map(data_of, v.shape)),
            "place": "alias",
            "of": origin,
        }
        if name in values and values[name].get("of") != origin:
            for o in outputs:
                if o["name"] == name:
                    o["value"] = name + "'"
    return plan, params


def _param(v: Value) -> Any:
    # ascontiguousarray would give a scalar a dimension
    return np.asarray(v.data, np_dtype(v.dtype), order="C")


# ---- the cache and progress


def _cache_key(model: Any, target: Target, shapes: Any, dtype: str | None, freeze: Any = None) -> str | None:
    if os.environ.get("TEC_CACHE_DISABLE"):
        return None
    h = hashlib.sha256()
    if isinstance(model, (str, os.PathLike)):
        try:
            with open(model, "rb") as f:
                content = f.read()
            h.update(content)
        except OSError:
            return None
        folder = os.path.dirname(os.path.abspath(model))
        h.update(folder.encode())
        if b"location" in content:  # weights may lie in files beside it
            for where, _, files in sorted(os.walk(folder)):
                for name in sorted(files):
                    st = os.stat(os.path.join(where, name))
                    h.update(f"{where} {name} {st.st_size} {st.st_mtime_ns};".encode())
    elif hasattr(model, "SerializeToString"):
        h.update(model.SerializeToString())
    else:
        return None
    from ..codegen import llvm_util
    from ..target import host_features

    h.update(
        repr(
            (
                str(target),
                host_features() if target.is_host else "",
                sorted((shapes or {}).items()),
                sorted(
                    (k, np.asarray(v).dtype.str, np.asarray(v).shape, np.asarray(v).tobytes())
                    for k, v in (freeze or {}).items()
                ),
                dtype,
                _source_stamp(),
                getattr(llvm_util, "LLVM_VERSION", ""),
            )
        ).encode()
    )
    return h.hexdigest()


def _source_stamp() -> str:
    """What the compiler's own sources look like: a changed compiler never serves old code."""
    roots = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    for point in entry_points(group="tec.frontends"):
        spec = find_spec(point.module.partition(".")[0])
        roots += sorted(spec.submodule_search_locations or ()) if spec is not None else ()
    h = hashlib.sha256()
    for folder, dirs, files in (entry for root in roots for entry in os.walk(root)):
        dirs.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                st = os.stat(os.path.join(folder, name))
                h.update(f"{name} {st.st_size} {st.st_mtime_ns};".encode())
    return h.hexdigest()


def _cache_path(key: str) -> str:
    root = os.environ.get("TEC_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tec"
    )
    return os.path.join(root, "networks", key + ".tec")


def _from_cache(key: str) -> Network | None:
    from ..runtime.network import load

    path = _cache_path(key)
    if not os.path.exists(path):
        return None
    try:
        net = load(path)
        os.utime(path)
        return net
    except TecError:
        try:
            os.unlink(path)
        except OSError:
            pass
        return None


_NETWORK_CACHE_BYTES = 4 << 30


def _to_cache(key: str, net: Network) -> None:
    path = _cache_path(key)
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        net.save(path)
        files = sorted(((e.stat().st_mtime, e.stat().st_size, e.path) for e in os.scandir(folder)), reverse=True)
        total = 0
        for _, size, other in files:
            total += size
            if total > _NETWORK_CACHE_BYTES:
                os.unlink(other)
    except (OSError, TecError):
        return  # a cache that cannot be written costs time, not the result


_BAR = 24
_LINE_SECONDS = 10.0


def default_progress(stream: Any = None, clock: Any = time.monotonic) -> Any:
    """What shows how far a long compilation is: a bar that grows on a terminal, now and then a line in a log."""
    out = sys.stderr if stream is None else stream
    last = clock()

    def bar(done: int, total: int, what: str) -> None:
        full = _BAR * done // max(total, 1)
        end = "\n" if done == total else ""
        print(f"\r\x1b[Kcompiling [{'#' * full:<{_BAR}}] {done}/{total} {what[:50]}", end=end, file=out, flush=True)

    def line(done: int, total: int, what: str) -> None:
        nonlocal last
        now = clock()
        if now - last >= _LINE_SECONDS:
            last = now
            print(f"compiling {done}/{total} {what[:80]}", file=out, flush=True)

    return bar if out.isatty() else line
