"""From an ONNX model to a tec graph: scopes, nodes, functions and subgraphs.

Each ONNX operator has one function in the `ops_*` modules, found by `(domain, op_type)`; what has none is inlined where
ONNX or the model gives its body. Shapes are known throughout. Where an operator needs the *value* of something that is
not constant (a shape, a condition), the importer asks its `resolve` function, which a run-time session provides; without
one it raises `NeedsValue`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx

from tec import ImportModelError, TecError
from tec.errors import InternalError, one_line
from tec.graph import Graph, Value
from tec.graph.fold_sizes import sizes_in
from tec.graph.operators import run_op
from tec.ops.dims import UndecidedSize, bind_hint, is_symbolic
from tec.ops.guards import recording
from tec.ops.registry import PACKED, SizesMeet

from . import reader
from .call import Call, Outputs, identifier
from .functions import default_attributes, standard_body, what_is_wrong
from .inputs import input_info
from .order import in_order, label

Converter = Callable[["Call"], Any]
CONVERTERS: dict[tuple[str, str], Converter] = {}


_MISFITS = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, MemoryError, RecursionError)


# Nodes that a model may come to with its functions inlined and its loops unrolled: minutes of import. The largest network of
# tests/networks, a recurrent one unrolled, has 10,000.
MOST_NODES = 200_000


class NeedsValue(ImportModelError):
    """The graph depends on the value of something that is only known when it runs; `inputs` names what it comes from."""

    def __init__(self, message: str, inputs: Sequence[str] = (), **more: Any):
        super().__init__(message, **more)
        self.inputs = tuple(inputs)


def onnx_op(*names: str, domain: str = "") -> Callable[[Converter], Converter]:
    """Decorator: the function converts these operators."""

    def add(f: Converter) -> Converter:
        for name in names:
            CONVERTERS[domain, name] = f
        return f

    return add


class Scope:
    """Names of values, with those of the enclosing graphs."""

    def __init__(self, parent: Scope | None = None):
        self.names: dict[str, Any] = {}
        self.parent = parent

    def get(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        raise ImportModelError(
            f"nothing makes value {name!r}",
            hint="an input of that name, an initializer, or a node before it must make it; onnx.checker.check_model(model) lists what is missing",
        )

    def has(self, name: str) -> bool:
        return name in self.names or (self.parent is not None and self.parent.has(name))


def sources(value: Value) -> list[str]:
    """The names of the graph's inputs that a value is computed from, in the order in which they are met."""
    names: dict[str, None] = {}
    seen: set[int] = set()
    todo = [value]
    while todo:
        v = todo.pop()
        if id(v) in seen or v.is_const:
            continue
        seen.add(id(v))
        if v.node is None:
            names[v.name] = None
        else:
            todo.extend(reversed(v.node.inputs))
    return list(names)


class Importer:
    """Takes nodes into `graph`. `resolve(value) -> array` gives values at run time, if there is one."""

    def __init__(self, model: onnx.ModelProto, resolve: Callable[[Graph, Value], Any] | None = None):
        self.model = model
        self.graph = Graph(identifier(model.graph.name))
        self.resolve = resolve
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.depth = 0
        self.taken = 0  # nodes, those of bodies counted each time

    # ---- values

    def value_of(self, value: Any, what: str = "") -> Any:
        """The array that a value is; from `resolve` where it is not constant."""
        if not isinstance(value, Value):
            raise ImportModelError(
                f"{what or 'a value'} is {type(value).__name__}, not a tensor",
                hint="take the element out of the sequence first (SequenceAt), or run the model through tec_onnx.session(model)",
            )
        if value.is_const:
            return value.data
        source = value.node
        if source is not None and PACKED in source.definition.traits and all(v.is_const for v in source.inputs):
            types = [v.type for v in source.inputs]
            return run_op(source.definition, source.attrs, [v.data for v in source.inputs], types, [value.type])[0]
        sizes = sizes_in(value)
        if sizes is not None:
            return sizes
        if self.resolve is None:
            names = sources(value)
            which = f"input{'s' * (len(names) != 1)} {' and '.join(map(repr, names))}" if names else f"%{value.name}"
            raise NeedsValue(
                f"{what or 'the shape of the network'} depends on the value of {which}",
                names,
                hint="make it constant (freeze), or run the model through tec_onnx.session(model), which compiles as values come",
            )
        value.data = np.asarray(self.resolve(self.graph, value))
        return value.data

    @contextmanager
    def inside(self, body: Graph) -> Iterator[None]:
        """Nodes go to the graph of a loop or a branch meanwhile. What only the graph around gives has a value as before."""
        outer, resolve = self.graph, self.resolve

        def known(_: Graph, value: Value) -> Any:
            own = value in body.inputs or (value.node is not None and value.node in body.nodes)
            if own or resolve is None:
                raise NeedsValue(f"the body of a loop or a branch depends on the value of %{value.name}")
            return resolve(outer, value)

        self.graph, self.resolve = body, known if resolve is not None else None
        try:
            yield
        finally:
            self.graph, self.resolve = outer, resolve

    @contextmanager
    def trial(self) -> Iterator[None]:
        """What is taken in leaves nothing where it raises."""
        guards, nodes, taken = len(self.graph.guards), len(self.graph.nodes), self.taken
        try:
            yield
        except ImportModelError:
            del self.graph.guards[guards:], self.graph.nodes[nodes:]
            self.taken = taken
            raise

    # ---- nodes

    def run_nodes(
        self, nodes: Iterable[onnx.NodeProto], scope: Scope, opsets: Mapping[str, int], refs: Mapping[str, Any]
    ) -> None:
        """Takes in `nodes`, sorted where need be, writing their outputs to `scope`. `refs`: attributes of an enclosing function."""
        for node in in_order(nodes, scope.has):
            self.taken += 1
            if self.taken > MOST_NODES:
                raise ImportModelError(
                    f"the model's functions and loops come to more than {MOST_NODES} nodes",
                    hint="functions that call others several times double at each level; a smaller model, or fewer steps",
                )
            domain = "" if node.domain == "ai.onnx" else node.domain
            call = Call(self, node, domain, scope, opsets, refs)
            try:
                results = self.convert(call)
            except InternalError:
                raise
            except TecError as e:
                where = f"node {label(node)}"
                if isinstance(e, ImportModelError) and e.message.startswith("node "):
                    raise
                if isinstance(e, NeedsValue):
                    raise NeedsValue(f"{where}: {e.message}", e.inputs, hint=e.hint, locate=False) from e
                if isinstance(e, SizesMeet):
                    raise SizesMeet(f"{where}: {e.message}", e.pairs, hint=e.hint, locate=False) from e
                kind = UndecidedSize if isinstance(e, UndecidedSize) else ImportModelError
                own, bind = e.hint or "", self.bind_hint(call) or ""
                hint = (
                    own
                    if bind in own or (own and isinstance(e, UndecidedSize))
                    else "; or ".join(filter(None, (own, bind)))
                )
                raise kind(f"{where}: {e.message}", hint=hint or None, locate=False) from e
            except _MISFITS as e:
                raise self.misfit(call, e) from e
            for name, value in zip(node.output, results):
                if name:
                    scope.names[name] = value

    def misfit(self, call: Call, e: BaseException) -> TecError:
        """What to raise for an exception of a converter: it may be the model's fault (an attribute of another type, a missing one,
        numbers that overflow), sizes that are not known yet, or a fault of tec where the standard's own checks find none."""
        where = f"node {label(call.node)}"
        text = f"{where}: its inputs or attributes do not fit the operator: {type(e).__name__} {one_line(str(e))}"
        hint = self.bind_hint(call)
        if hint is not None:
            return UndecidedSize(text, hint=hint, locate=False)
        wrong = what_is_wrong(call)
        if wrong or isinstance(e, (ArithmeticError, MemoryError, RecursionError)):
            return ImportModelError(f"{text} ({wrong})" if wrong else text, locate=False)
        return InternalError(
            f"{where} is as the standard asks, and tec fails on it: {type(e).__name__} {one_line(str(e))}"
        )

    def bind_hint(self, call: Call) -> str | None:
        """What may help where a node with symbolic sizes does not convert."""
        shapes = [v.shape for v in call.inputs if isinstance(v, Value)]
        return bind_hint(*shapes) if is_symbolic(shapes) else None

    def convert(self, call: Call) -> list[Any]:
        f = CONVERTERS.get((call.domain, call.op_type))
        if f is not None:
            result = f(call)
            return list(result) if isinstance(result, (tuple, Outputs)) else [result]
        node = call.node
        body = self.functions.get((node.domain, node.op_type, node.overload)) or standard_body(call)
        if body is None:
            raise ImportModelError(
                f"operator {one_line(call.op_type)} of domain {call.domain or 'ai.onnx'!r} is not supported",
                hint="`tec ops` lists those that are; a function of that name in the model defines an operator of your own",
            )
        return self.inline(call, body)

    def inline(self, call: Call, body: onnx.FunctionProto) -> list[Any]:
        """The function's nodes in place of the call."""
        if self.depth > 50:
            raise ImportModelError(
                f"function {one_line(call.op_type)} calls itself",
                hint="a function may call only functions that do not lead back to it: write the repetition as a Loop",
            )
        scope = Scope()
        inputs = [*call.inputs, *[None] * (len(body.input) - len(call.inputs))]
        scope.names.update(zip(body.input, inputs))
        refs = {a.name: reader.attribute(a) for a in body.attribute_proto}
        refs.update(default_attributes(call))
        refs.update(call.attrs)
        opsets = {**call.opsets, **reader.opsets(body.opset_import)}
        self.depth += 1
        try:
            self.run_nodes(body.node, scope, opsets, refs)
        finally:
            self.depth -= 1
        # A body may leave out outputs that this call does not ask for.
        return [scope.names.get(name) if not call.wants(k) else scope.get(name) for k, name in enumerate(body.output)]

    def subgraph(self, graph: onnx.GraphProto, call: Call, inputs: Sequence[Any]) -> list[Any]:
        """A body graph of If, Loop, Scan with `inputs`; it sees the names around it."""
        scope = Scope(call.scope)
        for t in graph.initializer:
            scope.names[t.name] = self.graph.constant(reader.tensor_array(t), t.name)
        scope.names.update(zip([i.name for i in graph.input], inputs))
        self.run_nodes(graph.node, scope, call.opsets, call.refs)
        return [scope.get(o.name) for o in graph.output]


# ---- whole models


def unsupported(model: onnx.ModelProto) -> Counter[str]:
    """Operators of a model that can be neither converted nor inlined, with their numbers."""
    return Counter({name: len(nodes) for name, nodes in unsupported_nodes(model).items()})


def unsupported_nodes(model: onnx.ModelProto) -> dict[str, list[str]]:
    """The same, with the names of the nodes that use them."""
    missing: dict[str, list[str]] = {}
    own = {(f.domain, f.name) for f in model.functions}

    def known(n: onnx.NodeProto, domain: str, version: int) -> bool:
        if (domain, n.op_type) in CONVERTERS or (n.domain, n.op_type) in own:
            return True
        try:
            schema = onnx.defs.get_schema(n.op_type, version, domain)
        except onnx.defs.SchemaError:
            return False
        return bool(schema.has_function or schema.has_context_dependent_function)

    def walk(nodes: Any, versions: Mapping[str, int]) -> None:
        for n in nodes:
            domain = "" if n.domain == "ai.onnx" else n.domain
            if not known(n, domain, versions.get(domain, 1)):
                label = n.name or next((o for o in n.output if o), "?")
                missing.setdefault(f"{domain + '.' if domain else ''}{n.op_type}", []).append(label)
            for a in n.attribute:
                if a.HasField("g"):
                    walk(a.g.node, versions)
                for g in a.graphs:
                    walk(g.node, versions)

    walk(model.graph.node, reader.opsets(model.opset_import))
    for f in model.functions:
        walk(f.node, reader.opsets(f.opset_import))
    return missing


def import_model(
    model: onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]],
    feeds: Mapping[str, Any] | None = None,
    resolve: Callable[[Graph, Value], Any] | None = None,
) -> tuple[Graph, list[Any]]:
    """The graph of a model for given input shapes, and its outputs (Values, lists for sequences, None for empty optionals).

    `feeds` gives constants for inputs by name (sequences and optionals too). Raises ImportModelError.
    """
    missing = unsupported_nodes(model)
    if missing:
        lines = []
        for name, nodes in sorted(missing.items(), key=lambda item: -len(item[1])):
            shown = ", ".join(map(one_line, nodes[:3])) + (", ..." if len(nodes) > 3 else "")
            lines.append(f"{one_line(name)} ({len(nodes)}x: {shown})")
        newest, known = reader.opsets(model.opset_import).get("", 1), onnx.defs.onnx_opset_version()
        newer = f"the model is of opset {newest}, the installed onnx {onnx.__version__} defines operators up to {known}"
        hint = (
            f"{newer}: pip install -U onnx"
            if newest > known
            else "`tec ops` lists those that are; docs/onnx.md says how to add one"
        )
        raise ImportModelError("operators that are not supported: " + "; ".join(lines), hint=hint)
    importer = Importer(model, resolve)
    g, scope = importer.graph, Scope()
    for t in model.graph.initializer:
        array = reader.tensor_array(t)
        scope.names[t.name] = g.constant(array, identifier(t.name), reader.dtype_name(t.data_type))
    for st in model.graph.sparse_initializer:
        scope.names[st.values.name] = g.constant(reader.sparse_array(st), identifier(st.values.name))
    for name, entry in input_info(model).items():
        if feeds is not None and name in feeds:
            scope.names[name] = _as_values(g, feeds[name], name)
        elif entry is None:
            raise ImportModelError(
                f"input {name!r} is a sequence or an optional", hint="such models run through a session"
            )
        else:
            scope.names[name] = g.input(name, entry[0], shapes[name])
    with recording(g.guards):
        importer.run_nodes(model.graph.node, scope, reader.opsets(model.opset_import), {})
    outputs = [scope.get(o.name) for o in model.graph.output]
    return g, outputs


def _as_values(g: Graph, data: Any, name: str) -> Any:
    if data is None:
        return None
    if isinstance(data, (list, tuple)):
        return [_as_values(g, d, name) for d in data]
    array = np.asarray(data)
    if array.dtype.kind in "OUS":
        array = np.array(
            [s.decode() if isinstance(s, bytes) else str(s) for s in array.reshape(-1)], dtype=object
        ).reshape(array.shape)
        return g.constant(array, identifier(name), "string")
    return g.constant(array, identifier(name))
