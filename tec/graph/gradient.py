"""Gradients of networks: a graph that also gives the gradients of an output, compiled as one module like any other graph.

Reverse mode over the nodes. An operator's gradient is its rule (`gradient_rules`) or, for every other, what its te definition gives
(`vjp`, through `te.gradient`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import te
from ..errors import ArgumentError, ExprError, ImportModelError
from ..ir.dtype import dtype_info
from ..ops.registry import REGION
from .builders import Builder
from .compiler import as_graph
from .gradient_rules import RULES
from .graph import Graph, Node, Value
from .subgraph import subgraph


def grad(
    model: Any,
    wrt: str | Sequence[str],
    output: str | None = None,
    shapes: Mapping[str, Any] | None = None,
    head: str | None = None,
) -> Graph:
    """The graph of a model with the gradients of an output.

    model: what `tec.compile` takes. wrt: the inputs or parameters (constants, by name) to differentiate by; the parameters become inputs.
    output: the output whose elements' sum is differentiated, the first by default; a loss of one element is. head: a name for a new
    input that weighs the output's elements in place of the sum. Returns a graph with the model's outputs and after them, for each of `wrt`, one
    called grad_NAME; `tec.compile` makes one module of it.
    Raises ArgumentError for a name that is not there or holds integers, and where an operator on the way has no gradient.

    >>> from tec.graph import Graph
    >>> g = Graph("squares")
    >>> x = g.input("x", "float32", (3,))
    >>> g.set_outputs(g.add("multiply", [x, x]), ["y"])
    >>> y, dx = tec.compile(tec.grad(g, ["x"]), "llvm").run({"x": np.arange(3, dtype="float32")})
    >>> y.tolist(), dx.tolist()
    ([0.0, 1.0, 4.0], [0.0, 2.0, 4.0])
    """
    source = as_graph(model, shapes)
    names = [wrt] if isinstance(wrt, str) else list(wrt)
    graph = subgraph(source, source.outputs)
    graph.output_names = list(source.output_names)
    graph.state = dict(source.state)
    have = {v.name for v in graph.inputs}
    graph.inputs += [Value(v.name, v.type) for v in source.inputs if v.name not in have]  # nothing reads them
    _open_parameters(graph, names)
    inputs = {v.name: v for v in graph.inputs}
    wanted = [inputs[n] for n in names]
    for v in wanted:
        if not dtype_info(v.dtype).is_float:
            raise ArgumentError(
                f"gradient by {v.name}, whose elements are {v.dtype}", hint="integers have no derivative"
            )
    which = graph.output_names[0] if output is None else output
    if which not in graph.output_names:
        raise ArgumentError(f"the model has no output {which!r}", hint=f"outputs: {', '.join(graph.output_names)}")
    made = _Reverse(graph, graph.outputs[graph.output_names.index(which)], head).run(wanted)
    graph.set_outputs([*graph.outputs, *made], [*graph.output_names, *(f"grad_{n}" for n in names)])
    return graph


def _open_parameters(graph: Graph, names: Sequence[str]) -> None:
    """Make inputs of the constants among `names`."""
    have = {v.name: v for v in graph.constants()}
    known = {v.name for v in graph.inputs}
    for name in names:
        if name in known:
            continue
        constant = have.get(name)
        if constant is None:
            near = [n for n in (*known, *have) if not n.startswith("const")][:12]
            raise ArgumentError(f"the model has no input or parameter {name!r}", hint=f"it has {', '.join(near)}")
        fresh = Value(constant.name, constant.type)
        graph.inputs.append(fresh)
        for node in graph.nodes:
            node.inputs = [fresh if v is constant else v for v in node.inputs]
        graph.outputs = [fresh if v is constant else v for v in graph.outputs]


def pulled_back(graph: Graph, output: Value, head: Value, wrt: Sequence[Value]) -> list[Value]:
    """The gradients, by values of a graph, of a value that is made of them, weighed by `head`; their nodes are added to the graph."""
    return _Reverse(graph, output, head).run(wrt)


class _Reverse:
    def __init__(self, graph: Graph, output: Value, head: str | Value | None):
        if not dtype_info(output.dtype).is_float:
            raise ArgumentError(
                f"gradient of {output.name}, whose elements are {output.dtype}", hint="give a floating output"
            )
        self.graph = graph
        b = Builder(graph, f"d_{output.name}")
        if head is None:
            head = b.broadcast(b.like(1, output), output.shape)
        elif isinstance(head, str):
            head = graph.input(head, output.dtype, output.shape)
        self.adjoints: dict[Value, Value] = {output: head}

    def run(self, wanted: Sequence[Value]) -> list[Value]:
        moving = set(wanted)
        nodes = list(self.graph.nodes)
        for node in nodes:
            if any(v in moving for v in node.inputs):
                moving.update(v for v in node.outputs if dtype_info(v.dtype).is_float)
        for node in reversed(nodes):
            if any(v in moving for v in node.inputs) and any(v in self.adjoints for v in node.outputs):
                self._through(node, moving)
        return [self.adjoints[v] if v in self.adjoints else self._zeros(v) for v in wanted]

    def _zeros(self, v: Value) -> Value:
        b = Builder(self.graph, f"d_{v.name}")
        return b.broadcast(b.like(0, v), v.shape)

    def _through(self, node: Node, moving: set[Value]) -> None:
        b = Builder(self.graph, f"d_{node.op}", node.origin)
        for k, out in enumerate(node.outputs):
            g = self.adjoints.get(out)
            if g is None:
                continue
            given = self._by_rule(b, node, g) if k == 0 else None
            for j, v in enumerate(node.inputs):
                if v not in moving or not dtype_info(v.dtype).is_float:
                    continue
                part = given[j] if given is not None else self._by_definition(b, node, k, j, g)
                if part is not None:
                    have = self.adjoints.get(v)
                    self.adjoints[v] = part if have is None else b.op("add", have, part)

    def _by_rule(self, b: Builder, node: Node, g: Value) -> Sequence[Value | None] | None:
        found = RULES.get(node.op)
        try:
            return found(b, node, g) if found is not None else None
        except NotImplementedError:  # a form of the operator that the rule does not know
            return None

    def _by_definition(self, b: Builder, node: Node, out: int, wrt: int, g: Value) -> Value:
        if REGION in node.definition.traits:
            raise ArgumentError(
                f"no gradient through {node.op} ({node.origin or node.outputs[0].name}): its graphs run many times or not at all",
                hint="write its steps out; a choice by values is a where",
            )
        attrs = {"of": node.op, "attrs": tuple(sorted(node.attrs.items())), "wrt": wrt, "out": out}
        try:
            value = b.op("vjp", *node.inputs, g, **attrs)
            _try(value)
        except (ExprError, ImportModelError) as error:
            raise ArgumentError(
                f"no gradient through {node.op} ({node.origin or node.outputs[0].name}): {error.message}",
                hint=error.hint,
            ) from error
        return value


def _try(value: Value) -> None:
    """Make the te definition once, so that an operator without a gradient is refused here, by its name."""
    node = value.node
    if node is not None:
        tensors = [te.placeholder(_te_shape(v), v.dtype, name=f"x{k}") for k, v in enumerate(node.inputs)]
        node.definition.compute(node.attrs, tensors, [value.type])


def _te_shape(v: Value) -> tuple[Any, ...]:
    return tuple(n if isinstance(n, int) else 2 for n in v.shape)
