"""The operator graph: values, nodes, constants; what frontends make, passes change and the network compiler takes.

A `Value` has a name, a dtype and a shape of ints, or of symbolic sizes (`tec.ops.dims`). A `Node` applies an operator (`tec.ops.OPS`) to values. Nodes stand in
an order in which every value is made before it is used; `networkx()` gives the same as a MultiDiGraph for topology.
`Graph.add` infers the types and works out at once what depends on constants alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ..errors import ImportModelError, one_line
from ..ir.dtype import from_ml_dtypes_name
from ..notebook import layered_svg, styled
from ..ops import OpDef, TensorType, get_op
from ..ops.dims import Dim, as_size, given_shape, is_symbolic
from ..ops.dims import evaluate as evaluate_sizes
from ..ops.guards import Guard, recording
from ..ops.layouts import Layout
from ..ops.registry import COLLECTIVE, PACKED, REGION, UnequalSizes
from ..records import dataclass
from ..te.numpy_dtype import np_dtype
from .agree import agreed_shapes
from .deferred import Deferred
from .fold_sizes import fold_sizes
from .operators import infer_types, run_op
from .order import in_order, networkx_of

# Constants are folded while the graph is made, unless that would take long or make a weight much larger than it was.
MAX_ELEMENTS = 1 << 40
FOLD_ELEMENTS = 1 << 29  # so that the vocabulary of a large decoder is turned once
FOLD_FLOPS = 1 << 28
FOLD_GROWTH = 1 << 20  # elements that a result may have beyond its inputs'


@dataclass(frozen=True, slots=True)
class Quantized:
    """What a constant of float32 was made from: `data`, integers less their zero point, times `scale`, which broadcasts. `dtype`: of 8-bit floats,
    whose numbers `data` has in place of integers.

    >>> codes = np.int8([1, -2])
    >>> kept = tec.graph.Quantized(codes, np.float32(0.5))
    >>> kept.data * kept.scale
    array([ 0.5, -1. ], dtype=float32)
    """

    data: Any
    scale: Any
    dtype: str = ""


class Value:
    """A tensor in a graph. `node` made it (None for an input or a constant); `data` holds a constant's array, `quantized` what that was made from where
    it stood for integers; `layout`: how it lies, where a pass chose that (its type's shape is then that of storage).

    >>> g = tec.graph.Graph()
    >>> x = g.input("x", "float32", (2, 4))
    >>> x.shape, x.type, x.is_const
    ((2, 4), TensorType(dtype='float32', shape=(2, 4)), False)
    """

    __slots__ = ("data", "layout", "name", "node", "quantized", "type")

    def __init__(self, name: str, type: TensorType, node: Node | None = None, data: Any = None):
        self.name = name
        self.type = type
        self.node = node
        self.data = data
        self.layout: Layout | None = None
        self.quantized: Quantized | None = None

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def is_const(self) -> bool:
        return self.data is not None

    @property
    def is_known(self) -> bool:
        """A constant whose numbers are there: what computes with them asks for this, for those of a deferred constant come after compilation."""
        return self.data is not None and not isinstance(self.data, Deferred)

    def __repr__(self) -> str:
        return f"%{one_line(self.name)}: {one_line(str(self.type))}{f' as {self.layout}' if self.layout else ''}"


@dataclass(eq=False, slots=True)
class Node:
    """`op` applied to `inputs` with `attrs`; `origin` names the node of the model that it came from.

    >>> g = tec.graph.Graph()
    >>> y = g.add("relu", [g.input("x", "float32", (4,))])[0]
    >>> y.node.op, y.node.inputs
    ('relu', [%x: float32[4]])
    """

    op: str
    inputs: list[Value]
    attrs: dict[str, Any]
    outputs: list[Value] = field(default_factory=list)
    origin: str = ""

    @property
    def definition(self) -> OpDef:
        return get_op(self.op)

    def __repr__(self) -> str:
        attrs = ", ".join(f"{one_line(k)}={one_line(repr(v))}" for k, v in self.attrs.items())
        outs = ", ".join(map(repr, self.outputs))
        args = ", ".join(f"%{one_line(v.name)}" for v in self.inputs)
        return f"{outs} = {self.op}({args}{', ' if attrs and args else ''}{attrs})"


class Graph:
    """Nodes in order, inputs and outputs. `params` are the constants that nodes use, by name.

    >>> g = tec.graph.Graph()
    >>> x = g.input("x", "float32", (4,))
    >>> y = g.add("add", [x, g.constant(np.ones(4, "float32"))])[0]
    >>> g.set_outputs([y], ["y"])
    >>> print(g)
    graph main(%x: float32[4]):
      const %const: float32[4]
      %add: float32[4] = add(%x, %const)
      return %add
    """

    def __init__(self, name: str = "main"):
        self.name = name
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.output_names: list[str] = []
        self.nodes: list[Node] = []
        self.guards: list[Guard] = []  # what symbolic sizes must satisfy
        self.state: dict[str, str] = {}  # inputs that are what an output was in the run before
        self.row_inputs: dict[str, str] = {}  # by states' size: the input, one int64, that says where new rows go
        self.windows: dict[str, int] = {}  # by states' size: how many rows back a new one reads, itself counted
        self.present: Any = None  # of a frontend: makes what users get of the compiled network
        self._names: dict[str, int] = {}

    # ---- building

    def unique_name(self, name: str) -> str:
        """`name`, with a number behind it where it is taken."""
        name = name or "v"
        count = self._names.get(name)
        if count is None:
            self._names[name] = 1
            return name
        while True:
            candidate = f"{name}_{count}"
            count += 1
            if candidate not in self._names:
                self._names[name] = count
                self._names[candidate] = 1
                return candidate

    def input(self, name: str, dtype: str, shape: Sequence[int | Dim]) -> Value:
        """A new input. shape: ints, and `tec.ops.dims.Dim("batch")` for symbolic sizes. Raises ArgumentError for others.

        >>> from tec.ops.dims import Dim
        >>> tec.graph.Graph().input("x", "float32", (Dim("batch"), 4))
        %x: float32[batch, 4]
        """
        value = Value(self.unique_name(name), TensorType(dtype, given_shape(shape, f"input {name}")))
        self.inputs.append(value)
        return value

    def constant(self, array: Any, name: str = "const", dtype: str | None = None) -> Value:
        """A constant; `dtype` names a type that NumPy's own name does not.

        >>> tec.graph.Graph().constant(np.ones(3, "float32"))
        %const: float32[3]
        """
        data = np.asarray(array)
        kind = dtype or dtype_of(data)
        return Value(self.unique_name(name), TensorType(kind, tuple(data.shape)), None, data)

    def deferred(self, name: str, dtype: str, shape: Sequence[int]) -> Value:
        """A constant whose numbers come after compilation (`Deferred`). It keeps its name in the network's parameters."""
        return Value(self.unique_name(name), TensorType(dtype, tuple(shape)), None, Deferred.of(dtype, shape))

    def sizes(self, sizes: Any, name: str = "sizes", dtype: str = "int64") -> Value:
        """An integer tensor of sizes: a constant where all are numbers, a node that is known when the network runs else."""
        array = np.asarray(sizes, dtype=object)
        flat = array.reshape(-1).tolist()
        if not is_symbolic(flat):
            return self.constant(array.astype(np_dtype(dtype)), name, dtype)
        attrs = {"values": tuple(map(as_size, flat)), "shape": array.shape, "dtype": dtype}
        return self.add("sizes", [], attrs, name)[0]

    def add(
        self, op: str, inputs: Sequence[Value], attrs: dict[str, Any] | None = None, name: str = "", origin: str = ""
    ) -> list[Value]:
        """The outputs of a new node; constants where all its inputs are small constants. Raises ImportModelError.

        >>> g = tec.graph.Graph()
        >>> g.add("reduce_sum", [g.input("x", "float32", (2, 3))], {"axes": (1,), "keepdims": False})
        [%reduce_sum: float32[2]]
        """
        attrs = {k: v for k, v in (attrs or {}).items() if v is not None}
        definition = get_op(op)
        for v in inputs:
            if not isinstance(v, Value):
                hint = "add() returns a list: take its first value" if isinstance(v, list) else ""
                raise ImportModelError(f"an input of {op} is no value of a graph but {type(v).__name__}", hint=hint)
        folded = fold_sizes(op, inputs, attrs)
        if folded is not None:
            return [self.sizes(folded[0], name or op, folded[1])]
        with recording(self.guards):
            try:
                types = infer_types(definition, [v.type for v in inputs], attrs)
            except UnequalSizes:
                inputs = self._agreed(inputs, attrs.get("axis") if op == "concat" else None)
                types = infer_types(definition, [v.type for v in inputs], attrs)
        if any(not t.is_symbolic and t.size > MAX_ELEMENTS for t in types):
            raise ImportModelError(
                f"{op} would make {', '.join(map(str, types))}: more than any memory holds",
                hint="smaller sizes in shapes=; a constant that says a size may be damaged",
            )
        if inputs and all(v.is_known for v in inputs) and _foldable(definition, inputs, types, attrs):
            arrays = run_op(definition, attrs, [v.data for v in inputs], [v.type for v in inputs], types)
            return [Value(self.unique_name(name or op), t, None, a) for t, a in zip(types, arrays)]
        return self.put(op, inputs, attrs, types, name or op, origin)

    def put(
        self,
        op: str,
        inputs: Sequence[Value],
        attrs: dict[str, Any],
        types: Sequence[TensorType],
        name: str,
        origin: str,
    ) -> list[Value]:
        """The outputs of a new node of known types: the caller's own list, with which some go on."""
        node = Node(op, list(inputs), attrs, origin=origin)
        node.outputs = [Value(self.unique_name(f"{name}.{k}" if k else name), t, node) for k, t in enumerate(types)]
        self.nodes.append(node)
        return [*node.outputs]

    def _agreed(self, inputs: Sequence[Value], axis: int | None) -> list[Value]:
        """The inputs with sizes of one form where sizes that must be equal have two."""
        rows = agreed_shapes([v.shape for v in inputs], axis)
        return [
            v if sizes == v.shape else self.add("slice", [v], {"starts": (0,) * v.ndim, "steps": (1,) * v.ndim, "sizes": sizes}, v.name)[0]
            for v, sizes in zip(inputs, rows)
        ]  # fmt: skip

    def set_outputs(self, values: Iterable[Value], names: Iterable[str] | None = None) -> None:
        self.outputs = list(values)
        self.output_names = list(names) if names is not None else [v.name for v in self.outputs]

    # ---- looking at it

    def constants(self) -> list[Value]:
        """Constants that nodes or outputs use, each once, in order of first use."""
        seen: dict[Value, None] = {}
        for v in [*(v for n in self.nodes for v in n.inputs), *self.outputs]:
            if v.is_const:
                seen.setdefault(v)
        return list(seen)

    @property
    def params(self) -> dict[str, Any]:
        return {v.name: v.data for v in self.constants()}

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value; a node that reads it twice comes twice."""
        out: dict[Value, list[Node]] = {}
        for n in self.nodes:
            for v in n.inputs:
                out.setdefault(v, []).append(n)
        return out

    def networkx(self) -> Any:
        """The graph as a networkx MultiDiGraph: nodes are Node objects and input/constant Values, edges carry the value."""
        return networkx_of(self)

    def sort(self) -> None:
        """Puts the nodes in topological order (stable); ImportModelError on a cycle."""
        found = in_order(self.nodes)
        if found is None:
            raise ImportModelError(
                f"graph {one_line(self.name)} has a cycle or a value that nothing makes",
                hint="make each value by a node before it is read, once",
            )
        self.nodes = found

    def check(self) -> None:
        """Every value is made once, before its use, and types are what inference gives. Raises ImportModelError."""
        made: set[Value] = set()

        def fail(message: str) -> ImportModelError:
            return ImportModelError(f"graph {one_line(self.name)}: {message}")

        for v in self.inputs:
            if v in made or v.is_const or v.node is not None:
                raise fail(f"input {v!r} is there twice, or is no input")
            made.add(v)
        names = [v.name for v in self.inputs]
        if len(set(names)) != len(names):
            raise fail(f"two inputs have one name: {', '.join(map(one_line, names))}")
        for v in self.constants():
            if tuple(np.shape(v.data)) != v.shape:
                raise fail(f"constant {v!r} holds an array of shape {np.shape(v.data)}")
        for n in self.nodes:
            for v in n.inputs:
                if not v.is_const and v not in made:
                    raise ImportModelError(
                        f"graph {one_line(self.name)}: {n} reads %{one_line(v.name)}, which nothing before it makes",
                        hint="graph.sort() puts the nodes in order, where there is one",
                    )
            with recording(list(self.guards)):
                types = infer_types(n.definition, [v.type for v in n.inputs], n.attrs)
            if types != [v.type for v in n.outputs]:
                raise fail(f"{n} should give {', '.join(map(str, types))}")
            if any(v in made for v in n.outputs):
                raise fail(f"{n} is there twice")
            made.update(n.outputs)
        if len(self.output_names) != len(self.outputs):
            raise fail(f"{len(self.outputs)} outputs and {len(self.output_names)} names for them")
        for v in self.outputs:
            if not v.is_const and v not in made:
                raise fail(f"nothing makes output %{one_line(v.name)}")

    def flops(self) -> int:
        """Arithmetic of one run: multiply and add count each; one for each element of anything else."""
        return sum(map(node_flops, self.nodes))

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __str__(self) -> str:
        lines = [f"graph {one_line(self.name)}({', '.join(map(repr, self.inputs))}):"]
        lines += [f"  const {v!r}" for v in self.constants()]
        lines += [f"  {n!r}" for n in self.nodes]
        lines.append("  return " + ", ".join(f"%{one_line(v.name)}" for v in self.outputs))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        place: dict[Any, int] = {}
        labels: dict[int, tuple[str, str, str]] = {}

        def put(x: Any, title: str, under: str, kind: str) -> None:
            place[x] = len(place)
            labels[place[x]] = title, under, kind

        for v in self.inputs:
            put(v, v.name, str(v.type), "")
        for n in self.nodes:
            put(n, n.op, f"{n.origin}  {n.outputs[0].type}".strip(), n.op)
        edges = {
            (place[v.node or v], place[n])
            for n in self.nodes
            for v in n.inputs
            if (v.node or v) in place and not v.is_const
        }
        for v, name in zip(self.outputs, self.output_names):
            put((v, name), name, str(v.type), "")
            if (v.node or v) in place:
                edges.add((place[v.node or v], place[v, name]))
        return styled(layered_svg(labels, edges))

    def dot(self) -> str:
        """The graph in the DOT language."""
        ids: dict[Any, str] = {}

        def ident(x: Any) -> str:
            return ids.setdefault(x, f"n{len(ids)}")

        def quote(text: str) -> str:
            return '"' + one_line(text).replace("\\", "\\\\").replace('"', '\\"') + '"'

        lines = [f"digraph {quote(self.name)} {{", "  node [shape=box];"]
        for v in self.inputs:
            lines.append(f"  {ident(v)} [label={quote(repr(v))}, shape=oval];")
        for v in self.constants():
            lines.append(f"  {ident(v)} [label={quote(repr(v))}, shape=note];")
        for n in self.nodes:
            lines.append(f"  {ident(n)} [label={quote(n.op)}];")
            for v in n.inputs:
                lines.append(f"  {ident(v.node or v)} -> {ident(n)} [label={quote(str(v.type))}];")
        for v, name in zip(self.outputs, self.output_names):
            lines.append(f"  out_{ident(v)} [label={quote(name)}, shape=oval];")
            lines.append(f"  {ident(v.node or v)} -> out_{ident(v)};")
        return "\n".join([*lines, "}"])


def node_flops(n: Node) -> int:
    """Arithmetic of one node: multiply and add count each; one for each element where the operator does not say."""
    types, outs = [v.type for v in n.inputs], [v.type for v in n.outputs]
    return n.definition.flops(types, outs, n.attrs) if n.definition.flops else sum(t.size for t in outs)


def dtype_of(array: Any) -> str:
    """The tec dtype of a NumPy array."""
    return from_ml_dtypes_name(str(array.dtype.name))


def _foldable(definition: OpDef, inputs: Sequence[Value], types: Sequence[TensorType], attrs: dict[str, Any]) -> bool:
    has_open = any(t.is_symbolic for t in types) or is_symbolic(list(attrs.values()))
    if has_open or {PACKED, REGION, COLLECTIVE} & definition.traits:
        return False
    given, made = sum(v.type.size for v in inputs), sum(t.size for t in types)
    work = definition.flops([v.type for v in inputs], types, attrs) if definition.flops else made
    return given + made <= FOLD_ELEMENTS and work <= FOLD_FLOPS and made <= given + FOLD_GROWTH


def run_graph(graph: Graph, feeds: dict[str, Any]) -> list[Any]:
    """The outputs of a graph for given inputs, operator by operator: the reference that compiled networks are held against.

    >>> g = tec.graph.Graph()
    >>> x = g.input("x", "float32", (3,))
    >>> g.set_outputs(g.add("relu", [x]), ["y"])
    >>> tec.graph.run_graph(g, {"x": np.float32([-1, 0, 1])})
    [array([0., 0., 1.], dtype=float32)]
    """
    if any(v.type.is_symbolic for v in graph.inputs):
        graph = bind_sizes(graph, sizes_of(graph, feeds))
    values: dict[Value, Any] = {}
    for v in graph.inputs:
        if v.name not in feeds:
            raise ImportModelError(
                f"no array for input {one_line(v.name)}", hint=f"inputs: {', '.join(map(repr, graph.inputs))}"
            )
        values[v] = np.asarray(feeds[v.name])
        if values[v].shape != v.shape:
            raise ImportModelError(f"input {one_line(v.name)} has shape {values[v].shape}, not {v.shape}")

    def get(v: Value) -> Any:
        return v.data if v.is_const else values[v]

    for n in graph.nodes:
        outs = run_op(
            n.definition, n.attrs, [get(v) for v in n.inputs], [v.type for v in n.inputs], [v.type for v in n.outputs]
        )
        values.update(zip(n.outputs, outs))
    return [get(v) for v in graph.outputs]


def sizes_of(graph: Graph, feeds: dict[str, Any]) -> dict[str, int]:
    """The numbers that input arrays give to symbolic dimensions."""
    env: dict[str, int] = {}
    for v in graph.inputs:
        for d, n in zip(v.shape, np.shape(feeds.get(v.name, ()))):
            if isinstance(d, Dim) and env.setdefault(str(d), n) != n:
                raise ImportModelError(
                    f"size {d} is {env[str(d)]} elsewhere and {n} in input {one_line(v.name)}",
                    hint="arrays whose sizes agree: a name stands for one size",
                )
    return env


def bind_sizes(graph: Graph, env: dict[str, int]) -> Graph:
    """The graph with names of dimensions replaced by numbers."""
    new = Graph(graph.name)
    copies: dict[Value, Value] = {}
    for v in graph.inputs:
        copies[v] = new.input(v.name, v.dtype, evaluate_sizes(v.shape, env))
    for g in graph.guards:
        size = evaluate_sizes(g.size, env)
        if isinstance(size, Dim):
            new.guards.append(Guard(size, g.what))
        elif size < 0:
            raise ImportModelError(f"{g.what}: {g.size} is {size}, below 0", hint="larger sizes in shapes=")
    for n in graph.nodes:
        attrs = {
            k: x.bound(env) if REGION in n.definition.traits and hasattr(x, "bound") else evaluate_sizes(x, env)
            for k, x in n.attrs.items()
        }
        ins = [copies.get(v, v) for v in n.inputs]
        if n.op == "sizes":
            outs = [
                new.sizes(np.array(attrs["values"], object).reshape(attrs["shape"]), n.outputs[0].name, attrs["dtype"])
            ]
        else:
            outs = new.add(n.op, ins, attrs, n.outputs[0].name, n.origin)
        copies.update(zip(n.outputs, outs))
    new.set_outputs([copies.get(v, v) for v in graph.outputs], graph.output_names)
    return new
