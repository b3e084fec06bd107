"""From an ONNX model to a tec graph: scopes, nodes, functions and subgraphs.

Each ONNX operator has one function in the `ops_*` modules, found by `(domain, op_type)`; what has none is inlined where
ONNX or the model gives its body. Shapes are known throughout. Where an operator needs the *value* of something that is
not constant (a shape, a condition), the importer asks its `resolve` function, which a run-time session provides; without
one it raises `NeedsValue`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tec import ImportModelError, TecError
from tec.graph import Graph, Value
from tec.graph.fold_sizes import sizes_in
from tec.ops.dims import Dim, Size, UndecidedSize, as_size, bind_hint, is_symbolic, recording

from . import reader

Converter = Callable[["Call"], Any]
CONVERTERS: dict[tuple[str, str], Converter] = {}


_MISFITS = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, MemoryError, RecursionError)


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
        raise ImportModelError(f"nothing makes value {name!r}")


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
        self.graph = Graph(_identifier(model.graph.name))
        self.resolve = resolve
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.depth = 0

    # ---- values

    def value_of(self, value: Any, what: str = "") -> Any:
        """The array that a value is; from `resolve` where it is not constant."""
        if not isinstance(value, Value):
            raise ImportModelError(f"{what or 'a value'} is {type(value).__name__}, not a tensor")
        if value.is_const:
            return value.data
        sizes = sizes_in(value)
        if sizes is not None:
            return sizes
        if self.resolve is None:
            names = sources(value)
            which = f"input{'s' * (len(names) != 1)} {' and '.join(map(repr, names))}" if names else f"%{value.name}"
            raise NeedsValue(
                f"{what or 'the shape of the network'} depends on the value of {which}",
                names,
                hint="make it constant (freeze), or run the model through a session, which compiles as values come",
            )
        value.data = np.asarray(self.resolve(self.graph, value))
        return value.data

    # ---- nodes

    def run_nodes(
        self, nodes: Iterable[onnx.NodeProto], scope: Scope, opsets: Mapping[str, int], refs: Mapping[str, Any]
    ) -> None:
        """Takes in `nodes`, in order, writing their outputs to `scope`. `refs`: attributes of an enclosing function."""
        for node in nodes:
            domain = "" if node.domain == "ai.onnx" else node.domain
            call = Call(self, node, domain, scope, opsets, refs)
            try:
                results = self.convert(call)
            except TecError as e:
                where = f"node {node.name or '/'.join(node.output)!r} ({node.op_type})"
                if isinstance(e, ImportModelError) and e.message.startswith("node "):
                    raise
                if isinstance(e, NeedsValue):
                    raise NeedsValue(f"{where}: {e.message}", e.inputs, hint=e.hint, locate=False) from e
                kind = UndecidedSize if isinstance(e, UndecidedSize) else ImportModelError
                raise kind(f"{where}: {e.message}", hint=e.hint or self.bind_hint(call), locate=False) from e
            except _MISFITS as e:
                # An attribute of another type, a missing one, numbers that overflow: the model's fault, not the importer's.
                where = f"node {node.name or '/'.join(node.output)!r} ({node.op_type})"
                raise ImportModelError(
                    f"{where}: its inputs or attributes do not fit the operator: {e}",
                    hint=self.bind_hint(call),
                    locate=False,
                ) from e
            for name, value in zip(node.output, results):
                if name:
                    scope.names[name] = value

    def bind_hint(self, call: Call) -> str | None:
        """What may help where a node with symbolic sizes does not convert."""
        shapes = [v.shape for v in call.inputs if isinstance(v, Value)]
        return bind_hint(*shapes) if is_symbolic(shapes) else None

    def convert(self, call: Call) -> list[Any]:
        f = CONVERTERS.get((call.domain, call.op_type))
        if f is not None:
            result = f(call)
            return list(result) if isinstance(result, (tuple, Outputs)) else [result]
        body = self.function_body(call)
        if body is None:
            raise ImportModelError(f"operator {call.op_type} of domain {call.domain or 'ai.onnx'!r} is not supported")
        return self.inline(call, body)

    def function_body(self, call: Call) -> onnx.FunctionProto | None:
        """The body of an operator that is a function: the model's own, or the standard's."""
        node = call.node
        own = self.functions.get((node.domain, node.op_type, node.overload))
        if own is not None:
            return own
        try:
            schema = onnx.defs.get_schema(node.op_type, call.opset, call.domain)
        except onnx.defs.SchemaError:
            return None
        if schema.has_function:
            return schema.function_body
        if schema.has_context_dependent_function:
            # The builder reads the types unchecked: it is only asked about tensors.
            if any(v is not None and not isinstance(v, Value) for v in call.inputs):
                return None
            types = [_type_proto(v).SerializeToString() if isinstance(v, Value) else b"" for v in call.inputs]
            versions = [v for v in schema.context_dependent_function_opset_versions if v <= call.opset]
            node = _resolved(call)
            data = (
                schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), types)
                if versions
                else b""
            )
            if data:
                body = onnx.FunctionProto()
                body.ParseFromString(data)
                return body
        return None

    def inline(self, call: Call, body: onnx.FunctionProto) -> list[Any]:
        """The function's nodes in place of the call."""
        if self.depth > 50:
            raise ImportModelError(f"function {call.op_type} calls itself")
        scope = Scope()
        inputs = [*call.inputs, *[None] * (len(body.input) - len(call.inputs))]
        scope.names.update(zip(body.input, inputs))
        refs = {a.name: reader.attribute(a) for a in body.attribute_proto}
        refs.update(_default_attributes(call))
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


class Outputs(list):
    """Several results of a converter (a plain list is a sequence value)."""


class Call:
    """One node while it is converted: its inputs, attributes, and short ways to build."""

    def __init__(
        self,
        importer: Importer,
        node: onnx.NodeProto,
        domain: str,
        scope: Scope,
        opsets: Mapping[str, int],
        refs: Mapping[str, Any],
    ):
        self.importer = importer
        self.node = node
        self.op_type = node.op_type
        self.domain = domain
        self.scope = scope
        self.opsets = opsets
        self.refs = refs
        self.opset = opsets.get(domain, opsets.get("", 1) if domain == "" else 1)
        self.inputs: list[Any] = [scope.get(name) if name else None for name in node.input]
        self.attrs: dict[str, Any] = {}
        for a in node.attribute:
            if a.ref_attr_name:
                if a.ref_attr_name in refs:
                    self.attrs[a.name] = refs[a.ref_attr_name]
            else:
                self.attrs[a.name] = reader.attribute(a)

    # ---- reading the node

    @property
    def num_outputs(self) -> int:
        return len(self.node.output)

    def wants(self, k: int) -> bool:
        """Whether output k is used by name."""
        return k < len(self.node.output) and bool(self.node.output[k])

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    def has(self, k: int) -> bool:
        return k < len(self.inputs) and self.inputs[k] is not None

    def get(self, k: int) -> Any:
        """Input k, or None."""
        return self.inputs[k] if k < len(self.inputs) else None

    def __getitem__(self, k: int) -> Value:
        value = self.get(k)
        if not isinstance(value, Value):
            kind = "missing" if value is None else f"a {type(value).__name__}"
            raise ImportModelError(f"input {k} is {kind}, a tensor is needed")
        return value

    def array(self, k: int, what: str = "") -> Any:
        """The value of input k, as an array."""
        return self.importer.value_of(self[k], what or f"input {k} of {self.op_type}")

    def ints(self, k: int) -> list[int]:
        """The value of input k, as a list of ints; of sizes where it comes from symbolic shapes."""
        return [as_size(n) for n in np.asarray(self.array(k)).reshape(-1)]

    # ---- building

    @property
    def graph(self) -> Graph:
        return self.importer.graph

    def op(self, name: str, *values: Value, **attrs: Any) -> Value:
        """The (first) output of a new node."""
        return self.ops(name, *values, **attrs)[0]

    def ops(self, name: str, *values: Value, **attrs: Any) -> list[Value]:
        """All outputs of a new node, named after this ONNX node's first output."""
        if any(v.dtype == "string" for v in values):
            raise ImportModelError(f"{self.op_type} of strings")
        label = next((o for o in self.node.output if o), "")
        return self.graph.add(name, values, attrs, name=_identifier(label), origin=self.node.name or label)

    def const(self, array: Any, dtype: str | None = None) -> Value:
        """A constant, with NumPy's dtype or as `dtype`."""
        if dtype is not None and not isinstance(array, Value):
            from tec.te.evaluate import np_dtype

            array = np.asarray(array).astype(np_dtype(dtype))
        return self.graph.constant(array, "const", dtype)

    def like(self, number: float, value: Value) -> Value:
        """A 0-dimensional constant of the dtype of `value`."""
        return self.const(number, value.dtype)

    def cast(self, value: Value, dtype: str) -> Value:
        return value if value.dtype == dtype else self.op("cast", value, dtype=dtype)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        shape = tuple(map(as_size, shape))
        return value if value.shape == shape else self.op("reshape", value, shape=shape)

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        return value if list(perm) == list(range(len(perm))) else self.op("transpose", value, perm=tuple(perm))

    def broadcast(self, value: Value, shape: Sequence[int]) -> Value:
        return value if value.shape == tuple(shape) else self.op("broadcast_to", value, shape=tuple(shape))

    def slice(self, value: Value, axis: int, start: int, size: int, step: int = 1) -> Value:
        """`size` elements along one axis."""
        axis %= value.ndim
        if size == value.shape[axis] and step == 1:
            return value
        starts, steps, sizes = [0] * value.ndim, [1] * value.ndim, list(value.shape)
        starts[axis], steps[axis], sizes[axis] = start, step, size
        return self.op("slice", value, starts=tuple(starts), steps=tuple(steps), sizes=tuple(sizes))

    def squeeze(self, value: Value, axis: int) -> Value:
        axis %= value.ndim
        return self.reshape(value, value.shape[:axis] + value.shape[axis + 1 :])

    def unsqueeze(self, value: Value, axis: int) -> Value:
        axis %= value.ndim + 1
        return self.reshape(value, (*value.shape[:axis], 1, *value.shape[axis:]))

    def host(self, f: Callable[..., Any], *values: Any) -> Any:
        """Constants worked out on the host from the values of `values` (for results whose shape depends on values)."""
        arrays = [None if v is None else self.importer.value_of(v, f"the result of {self.op_type}") for v in values]
        for a in arrays:
            if a is not None and is_symbolic(np.asarray(a).reshape(-1).tolist()):
                raise UndecidedSize(
                    f"{self.op_type} works on numbers, and is given symbolic sizes",
                    hint="bind them: shapes={name: size}",
                )
        result = f(*arrays)
        if isinstance(result, tuple):
            return Outputs(self.graph.constant(r, "host", "string" if r.dtype == object else None) for r in result)
        return self.graph.constant(result, "host", "string" if result.dtype == object else None)


def _resolved(call: Call) -> onnx.NodeProto:
    """The node with the attributes that it takes from an enclosing function filled in."""
    if not any(a.ref_attr_name for a in call.node.attribute):
        return call.node
    node = onnx.NodeProto()
    node.CopyFrom(call.node)
    del node.attribute[:]
    for a in call.node.attribute:
        if not a.ref_attr_name:
            node.attribute.append(a)
        elif a.ref_attr_name in call.refs:
            value = call.refs[a.ref_attr_name]
            node.attribute.append(
                onnx.helper.make_attribute(
                    a.name, onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
                )
            )
    return node


def _default_attributes(call: Call) -> dict[str, Any]:
    """What the standard says for attributes that the node leaves out."""
    try:
        schema = onnx.defs.get_schema(call.op_type, call.opset, call.domain)
    except onnx.defs.SchemaError:
        return {}
    return {n: reader.attribute(a.default_value) for n, a in schema.attributes.items() if a.default_value.name}


def _identifier(text: str) -> str:
    """A name that is safe in every output: letters, digits, underscores."""
    out = "".join(ch if ch.isalnum() and ch.isascii() else "_" for ch in text)
    return ("v" + out if out[:1].isdigit() else out) or "v"


def _type_proto(v: Value) -> onnx.TypeProto:
    dims = [d if isinstance(d, int) else str(d) for d in v.shape]
    return onnx.helper.make_tensor_type_proto(reader.elem_type(v.dtype), dims)


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


def input_info(model: onnx.ModelProto) -> dict[str, tuple[str, list[int | str | None]] | None]:
    """{name: (dtype, dims)} of the inputs that are no initializers; dims are ints, names or None; None for non-tensors."""
    given = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    out: dict[str, tuple[str, list[int | str | None]] | None] = {}
    for i in model.graph.input:
        if i.name in given:
            continue
        if not i.type.HasField("tensor_type"):
            out[i.name] = None
            continue
        t = i.type.tensor_type
        dims: list[int | str | None] = []
        for d in t.shape.dim:
            # Some exporters write -1 for a dimension that they do not know.
            known = d.HasField("dim_value") and d.dim_value >= 0
            dims.append(d.dim_value if known else d.dim_param or None)
        out[i.name] = (reader.dtype_name(t.elem_type), dims)
    return out


def bind_shapes(model: onnx.ModelProto, shapes: Mapping[str, Any] | None) -> dict[str, tuple[Size, ...]]:
    """The shape of every tensor input: the model's, with `shapes` and named dimensions filled in.

    `shapes` has shapes of ints and names by input, and numbers or names by a dimension's name. Dimensions with a name and no
    number stay symbolic under that name.
    """
    info = input_info(model)
    shapes = dict(shapes or {})
    dims: dict[str, Size] = {}
    for name, given in list(shapes.items()):
        if name not in info:
            # A dimension by its name: shapes={"batch": 4}; or under another name: {"width": "n"}.
            if isinstance(given, (int, str)) and any(e and name in e[1] for e in info.values()):
                dims[name] = _size(name, given)
                del shapes[name]
                continue
            raise ImportModelError(f"the model has no input {name!r}", hint=f"inputs: {', '.join(info)}")
    for name, given in shapes.items():
        entry = info[name]
        if entry is None:
            raise ImportModelError(f"input {name!r} is no tensor")
        if isinstance(given, (str, int)):
            raise ImportModelError(f"input {name!r}: the shape {given!r} is no tuple of sizes")
        given = shapes[name] = tuple(_size(name, n) for n in given)
        if len(entry[1]) != len(given):
            raise ImportModelError(
                f"input {name!r} has {len(entry[1])} dimensions {entry[1]}, the shape given {len(given)}"
            )
        for d, n in zip(entry[1], given):
            if not isinstance(n, Dim) and n < 0:
                raise ImportModelError(f"input {name!r}: shape {tuple(given)} has a negative dimension")
            if isinstance(d, int) and d != n:
                raise ImportModelError(f"input {name!r} has shape {entry[1]}, not {tuple(given)}")
            if isinstance(d, str) and d.strip("?") and dims.setdefault(d, n) != n:
                raise ImportModelError(f"dimension {d!r} is {dims[d]} and {n}")
    out: dict[str, tuple[Size, ...]] = {}
    for name, entry in info.items():
        if entry is None:
            continue
        if name in shapes:
            out[name] = shapes[name]
            continue
        known = [d if isinstance(d, int) else _named(d, dims) for d in entry[1]]
        if any(n is None for n in known):
            raise ImportModelError(
                f"input {name!r} has shape {entry[1]}: some dimensions are not known",
                hint=f'give them, as sizes or as names that stay open: shapes={{"{name}": (...)}}',
            )
        out[name] = tuple(n for n in known if n is not None)
    return out


def _named(d: str | None, dims: Mapping[str, Size]) -> Size | None:
    """The size of a dimension by its name; None for one without a name."""
    return dims.get(d, Dim(d)) if d and d.strip("?") else None


def _size(what: str, n: Any) -> Size:
    if isinstance(n, str):
        if not n.strip("? "):
            raise ImportModelError(f"{what!r}: {n!r} is no name of a dimension")
        return Dim(n)
    try:
        return as_size(n)
    except (TypeError, ValueError):
        raise ImportModelError(
            f"{what!r}: {n!r} is no size", hint="an int, or a name for one that stays open"
        ) from None


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
            shown = ", ".join(nodes[:3]) + (", ..." if len(nodes) > 3 else "")
            lines.append(f"{name} ({len(nodes)}x: {shown})")
        raise ImportModelError("operators that are not supported: " + "; ".join(lines))
    importer = Importer(model, resolve)
    g, scope = importer.graph, Scope()
    for t in model.graph.initializer:
        array = reader.tensor_array(t)
        scope.names[t.name] = g.constant(array, _identifier(t.name), reader.dtype_name(t.data_type))
    for st in model.graph.sparse_initializer:
        scope.names[st.values.name] = g.constant(reader.sparse_array(st), _identifier(st.values.name))
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
        return g.constant(array, _identifier(name), "string")
    return g.constant(array, _identifier(name))
