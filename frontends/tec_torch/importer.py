"""From a graph of ATen calls to a tec graph.

Each ATen operator has one function in the `ops_*` modules, found by its overload packet. It is given an `AtenCall`, which builds nodes and knows the types that
torch worked out for the result, and the call's arguments: Values for tensors, ints and `Dim`s for sizes. What fails says where in the user's program
the call was made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from tec import ImportModelError, TecError
from tec.errors import InternalError, Loc
from tec.graph import Graph, Value
from tec.graph.builders import Builder, identifier
from tec.ops.dims import Dim, Size, is_symbolic, names_of

from .open_numbers import number
from .remedies import LEFT_TO_TORCH
from .types import COMPLEX_TYPES, PART_TYPES, Sizes, array_of, dtype_of, expression_of, scalar

Converter = Callable[..., Any]
CONVERTERS: dict[Any, Converter] = {}
CUSTOM: dict[str, Converter] = {}  # of other libraries' operators, by namespace and name
COMPLEX: dict[Any, Converter] = {}  # of calls that take or give complex numbers

# Arguments that say where a result lies, which its type tells or tec decides.
_PLACE = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "implicit"})
_MISFITS = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, NotImplementedError)
# Calls that check what was asked when the graph was made, or mark a place.
_ASSERTS = ("_assert", "sym_constrain", "_functional_assert", "_functional_sym_constrain", "_linalg_check_errors")


def aten_op(*names: str, space: Any = torch.ops.aten) -> Callable[[Converter], Converter]:
    """Decorator: the function converts these operators, all their overloads ("add") or one ("add.Tensor")."""

    def add(f: Converter) -> Converter:
        for name in names:
            found: Any = space
            for part in name.split("."):
                found = getattr(found, part, None)
            if found is not None:  # of another version of torch
                CONVERTERS[found] = f
        return f

    return add


def custom_op(name: str) -> Callable[[Converter], Converter]:
    """Decorator: the function converts an operator that another library registers ("transformers::grouped_mm_fallback"), whenever it does."""

    def add(f: Converter) -> Converter:
        CUSTOM[name] = f
        return f

    return add


def complex_op(*names: str) -> Callable[[Converter], Converter]:
    """Decorator: the function converts calls of these operators that take or give complex tensors, which it is given as `Complex`."""

    def add(f: Converter) -> Converter:
        for name in names:
            for space in (torch.ops.aten, torch.ops.prims):
                found = getattr(space, name, None)
                if found is not None:
                    COMPLEX[found] = f
        return f

    return add


@dataclass(frozen=True)
class Complex:
    """A complex tensor: its parts; `imag` is None where it is zero everywhere."""

    real: Value
    imag: Value | None


def holds_complex(args: Any) -> bool:
    if isinstance(args, (list, tuple)):
        return any(map(holds_complex, args))
    return isinstance(args, Complex)


def converter_of(target: Any) -> Converter | None:
    """What converts calls of an overload, of those that were imported (see `every`)."""
    packet = getattr(target, "overloadpacket", None)
    schema = getattr(target, "_schema", None)
    name = getattr(schema, "name", "")
    return CONVERTERS.get(target) or CONVERTERS.get(packet) or COMPLEX.get(packet) or CUSTOM.get(name)


def complex_converter_of(target: Any) -> Converter | None:
    """What converts calls of an overload that take or give complex numbers."""
    return COMPLEX.get(getattr(target, "overloadpacket", None))


class AtenCall(Builder):
    """One call while it is converted. `dtype` and `shape`: of its (first) result; `types`: of all; `common`: the type that torch's promotion gives its operands."""

    def __init__(self, graph: Graph, node: Node, sizes: Sizes, earlier: Mapping[Node, Any]):
        super().__init__(graph, identifier(node.name), origin_of(node))
        self.node = node
        self.earlier = earlier  # what the calls before became
        self.sizes = sizes
        self.target = node.target
        val = node.meta.get("val")
        results = val if isinstance(val, (tuple, list)) else [val]
        self.types: list[tuple[str, tuple[Size, ...]] | None] = [
            (COMPLEX_TYPES.get(v.dtype) or dtype_of(v.dtype), sizes.shape(v)) if isinstance(v, torch.Tensor) else None
            for v in results
        ]
        first = next((t for t in self.types if t is not None), None)
        if first is None:
            raise ImportModelError("a result that is no tensor", hint=LEFT_TO_TORCH)
        self.dtype, self.shape = first

    @property
    def part(self) -> str:
        """The type of the result's parts, where it is complex."""
        return PART_TYPES.get(self.dtype, self.dtype)

    @property
    def common(self) -> str:
        operands = [a.meta["val"] if isinstance(a, Node) else a for a in self.node.args[:2]]
        try:
            return dtype_of(torch.result_type(*operands))
        except (TypeError, ValueError, RuntimeError):
            return self.dtype

    def is_read(self, k: int) -> bool:
        """Whether anything reads result k."""
        return any(u.args[1] == k and bool(u.users) for u in self.node.users if len(u.args) == 2)

    @property
    def overload(self) -> str:
        return str(getattr(self.target, "_overloadname", ""))

    @property
    def name_of_op(self) -> str:
        packet = getattr(self.target, "overloadpacket", None)
        return str(getattr(packet, "__name__", self.target))

    def value(self, x: Any, dtype: str) -> Value:
        """A tensor or a number, of a type."""
        if isinstance(x, Value):
            return self.cast(x, dtype)
        if isinstance(x, Dim):
            return self.cast(self.graph.sizes(x, "size"), dtype)
        return self.const(scalar(x, dtype), dtype)

    def whole(self, value: Value, shape: Sequence[Size]) -> Value:
        """All of a value, by other words for its sizes."""
        rank = len(shape)
        return self.op("slice", value, starts=(0,) * rank, steps=(1,) * rank, sizes=tuple(shape))

    def iota(self, size: Size, start: Any = 0, step: Any = 1, dtype: str = "int64") -> Value:
        """start, start + step, ..."""
        if not is_symbolic([size, start, step]):
            return self.const(start + np.arange(size) * step, dtype)
        return self.op("iota", size=size, start=start, step=step, dtype=dtype)

    def cast(self, value: Value, dtype: str) -> Value:
        if value.dtype == "bool" and dtype != "bool" and dtype.startswith(("float", "bfloat")):
            return super().cast(super().cast(value, "uint8"), dtype) if value.is_const else super().cast(value, dtype)
        return super().cast(value, dtype)


def origin_of(node: Node) -> str:
    """A call and where it stands in the user's program, for reports."""
    where = location_of(node)
    return f"{node.name} ({os.path.basename(where.file)}:{where.line})" if where is not None else node.name


# Frames of these folders stand between the user's line and the call.
_BETWEEN = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep)


def location_of(node: Node) -> Loc | None:
    """The innermost line outside torch that led to a call."""
    trace = node.meta.get("stack_trace") or ""
    found = None
    for line in trace.splitlines():
        line = line.strip()
        if line.startswith('File "') and '", line ' in line:
            file, _, rest = line[6:].partition('", line ')
            number = rest.partition(",")[0]
            if number.isdigit() and not file.startswith(_BETWEEN):
                found = Loc(file, int(number))
    return found


@dataclass
class Conversion:
    """A graph made of calls. `inputs`: names of the placeholders that became the graph's inputs; `outputs`: for each of the calls' results a number
    of the graph's output ("output", number) or those of a complex one's parts ("complex", real, imaginary or None), a placeholder's name, a size, or None;
    `parts`: of inputs that are the real (0) or imaginary part (1) of a complex placeholder, by their number; `failed`: calls that could not be converted, and why."""

    graph: Graph
    inputs: list[str] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    parts: dict[int, int] = field(default_factory=dict)
    failed: dict[Node, TecError] = field(default_factory=dict)
    calls: int = 0


@dataclass(frozen=True)
class Given:
    """An output that is an input as it came: the placeholder's name."""

    name: str


def only_checks(target: Any) -> bool:
    """Whether calls of an operator check something or mark a place, and have no result."""
    return getattr(target, "__name__", "").startswith(_ASSERTS)


def is_assertion(node: Node) -> bool:
    """Whether a call only checks, or marks a place: it has no result that is read."""
    return node.meta.get("val") is None and not node.users and only_checks(node.target)


def convert(
    graph: torch.fx.Graph,
    frozen: Mapping[str, torch.Tensor] | None = None,
    names: Mapping[str, str] | None = None,
    collect: bool = False,
) -> Conversion:
    """The tec graph of an FX graph of ATen calls.

    frozen: placeholders that are constants, by name. names: other names for torch's size symbols.
    collect: calls that cannot be converted are noted, and what follows them is tried all the same; else the first raises ImportModelError.
    """
    return _Conversion(graph, frozen or {}, Sizes(names), collect).run()


def called(module: torch.fx.GraphModule, graph: Graph, values: Sequence[Any], sizes: Sizes) -> list[Any]:
    """The results of a body's calls on these values (a branch, a loop's trip), which are made in `graph`."""
    return _Conversion(module.graph, {}, sizes, False).inlined(graph, values)


class _Failed:
    """In a value's place: what made it could not be converted."""


_FAILED = _Failed()


class _Conversion:
    def __init__(self, source: torch.fx.Graph, frozen: Mapping[str, torch.Tensor], sizes: Sizes, collect: bool):
        self.source, self.frozen, self.sizes, self.collect = source, frozen, sizes, collect
        self.graph = Graph("torch")
        self.env: dict[Node, Any] = {}
        self.made = Conversion(self.graph)
        self.named: tuple[int, set[str]] = (0, set())  # how many inputs were looked at for names of sizes, and these

    def run(self) -> Conversion:
        for node in self.source.nodes:
            if node.op == "output":
                self._outputs(node)
            else:
                self.env[node] = self._node(node)
        return self.made

    def inlined(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        """The results, with values in the placeholders' places, in a graph that is there."""
        self.graph, given, self.named = graph, iter(values), (0, set())
        for node in self.source.nodes:
            if node.op == "output":
                results = node.args[0] if isinstance(node.args[0], (tuple, list)) else [node.args[0]]
                return [self._argument(r) for r in results]
            self.env[node] = next(given) if node.op == "placeholder" else self._node(node)
        return []

    def _node(self, node: Node) -> Any:
        if node.op == "placeholder":
            return self._placeholder(node)
        if node.op == "get_attr":
            found: Any = self.source.owning_module
            for part in str(node.target).split("."):
                found = getattr(found, part)
            return self._constant(found, node) if isinstance(found, torch.Tensor) else found
        try:
            return self._call(node)
        except TecError as error:
            failed: TecError = error
        except _MISFITS as error:
            failed = InternalError(f"{node.target}: {type(error).__name__} {error}")
            failed.__cause__ = error
        located = _located(failed, node)
        if not self.collect:
            raise located
        self.made.failed[node] = located
        return self._unknown(node)

    def _unknown(self, node: Node) -> Any:
        """What stands for the results of a call that is left to torch: inputs of the right types."""

        def one(v: Any) -> Any:
            if not isinstance(v, torch.Tensor):
                return _FAILED
            try:
                return self.graph.input(identifier(node.name), dtype_of(v.dtype), self.sizes.shape(v))
            except TecError:
                return _FAILED

        val = node.meta.get("val")
        return tuple(map(one, val)) if isinstance(val, (tuple, list)) else one(val)

    def _placeholder(self, node: Node) -> Any:
        val = node.meta.get("val")
        if node.name in self.frozen:
            return self._constant(self.frozen[node.name], node)
        if isinstance(val, torch.Tensor) and val.dtype in COMPLEX_TYPES:
            return self._complex_input(val, node)
        if isinstance(val, torch.Tensor):
            try:
                if val.layout is not torch.strided:
                    raise ImportModelError(f"a tensor of layout {val.layout}", hint="x.to_dense()")
                value = self.graph.input(identifier(node.name), dtype_of(val.dtype), self.sizes.shape(val))
            except TecError as error:
                if not self.collect:
                    raise _located(error, node) from None
                return _FAILED
            self.made.inputs.append(node.name)
            return value
        if isinstance(val, torch.SymInt):
            return self._size(val)
        return val

    def _complex_input(self, val: torch.Tensor, node: Node) -> Complex:
        """Two inputs: each of the parts is one of its own."""
        part = PART_TYPES[COMPLEX_TYPES[val.dtype]]
        made = []
        for k, name in enumerate(("real", "imag")):
            self.made.parts[len(self.made.inputs)] = k
            self.made.inputs.append(node.name)
            made.append(self.graph.input(identifier(f"{node.name}_{name}"), part, self.sizes.shape(val)))
        return Complex(*made)

    def _size(self, val: Any) -> Any:
        try:
            return self.sizes.of(val)
        except TecError:
            return _FAILED

    def _constant(self, tensor: torch.Tensor, node: Node) -> Value | Complex:
        if tensor.dtype in COMPLEX_TYPES:
            t = tensor.detach().resolve_conj().resolve_neg()
            re, im = (
                self.graph.constant(array_of(x), identifier(f"{node.name}_{name}"), dtype_of(x.dtype))
                for name, x in (("real", t.real), ("imag", t.imag))
            )
            return Complex(re, im if bool(t.imag.any()) else None)
        return self.graph.constant(array_of(tensor), identifier(node.name), dtype_of(tensor.dtype))

    def _call(self, node: Node) -> Any:
        """The value of a call: a part of an earlier result, a size, or what the operator's rule makes. Raises ImportModelError for operators without one."""
        target: Any = node.target
        val = node.meta.get("val")
        if node.op != "call_function":
            raise ImportModelError(
                f"a node of kind {node.op} ({target})",
                hint="a graph of torch.export or torch.compile, whose nodes are calls of functions",
            )
        name = getattr(target, "__name__", str(target))
        if name == "getitem":
            whole = self.env[node.args[0]]  # type: ignore[index]
            if isinstance(whole, _Failed):
                return whole
            part = whole[node.args[1]]
            if part is None and node.users and isinstance(val, torch.Tensor):
                raise ImportModelError(
                    f"result {node.args[1]} of {node.args[0].target} is not made",
                    hint=f"a use of the other results alone; {LEFT_TO_TORCH}",
                )  # type: ignore[union-attr]
            return part
        if isinstance(val, torch.SymInt) or (isinstance(val, int) and not isinstance(val, bool)):
            return self._known(self.sizes.of(val))
        if isinstance(val, torch.SymFloat):
            b = Builder(self.graph, identifier(node.name), origin_of(node))
            return number(val.node.expr, b, lambda e: self._known(expression_of(e, self.sizes.names)))
        if isinstance(val, (bool, float)):
            return val
        if is_assertion(node):
            return None
        convert = converter_of(target)
        self.made.calls += 1
        if convert is None:
            raise ImportModelError(f"{target} has no conversion", hint=LEFT_TO_TORCH)
        args = torch.fx.node.map_aggregate(node.args, self._argument)
        kwargs = {k: torch.fx.node.map_aggregate(v, self._argument) for k, v in node.kwargs.items() if k not in _PLACE}
        call = AtenCall(self.graph, node, self.sizes, self.env)
        if call.dtype in PART_TYPES or holds_complex([args, list(kwargs.values())]):
            convert = complex_converter_of(target)
        if convert is None:
            raise ImportModelError(
                f"{target} of complex numbers has no conversion",
                hint=f"torch.view_as_real gives both parts as numbers; {LEFT_TO_TORCH}",
            )
        made = convert(call, *args, **kwargs)
        if isinstance(val, torch.Tensor):
            if isinstance(made, (tuple, list)):
                made = made[0]
            return self._fitting(made, call.dtype, call.shape, call)
        types = [*call.types, *[None] * len(made)]
        return tuple(m if m is None or t is None else self._fitting(m, *t, call) for m, t in zip(made, types))

    @staticmethod
    def _fitting(made: Any, dtype: str, shape: Sequence[Size], call: AtenCall) -> Any:
        """What a rule made, its sizes in the form that the call's have. Raises ImportModelError where it is not of torch's type."""
        if isinstance(made, Complex) and dtype in PART_TYPES:
            real, imag = (
                p if p is None else _Conversion._fitting(p, PART_TYPES[dtype], shape, call)
                for p in (made.real, made.imag)
            )
            return Complex(real, imag)
        if not isinstance(made, Value):
            raise ImportModelError(
                f"{call.target} gives {type(made).__name__}",
                hint="a rule of custom_op returns the values that the operator gives, or a tuple of them",
            )
        if made.dtype != dtype or tuple(map(call.sizes.form, made.shape)) != tuple(shape):
            raise ImportModelError(
                f"{call.target} is converted to {made.type}, torch's is {dtype}{list(shape)}",
                hint="a rule of custom_op makes the type and shape of the operator's registered fake; cast or reshape in it",
            )
        return made if made.shape == tuple(shape) else call.whole(made, shape)

    def _argument(self, x: Any) -> Any:
        if isinstance(x, Node):
            found = self.env[x]
            if isinstance(found, _Failed):
                raise ImportModelError(f"it reads {x.name}, which tec does not make", hint=LEFT_TO_TORCH)
            return self._known(found) if isinstance(found, Dim) else found
        return self._known(self.sizes.of(x)) if isinstance(x, torch.SymInt) else x

    def _known(self, size: Size) -> Size:
        """A size of names that tensors of the network have. ImportModelError for another: a number that Python gave, which no call's tensors tell."""
        if isinstance(size, Dim) and not size.names() <= self._names_of_inputs():
            raise ImportModelError(
                f"a size that no tensor which the network takes has ({size})",
                hint="a number that is no size of an argument: with dynamic=False each of its values has a network of its own",
            )
        return size

    def _names_of_inputs(self) -> set[str]:
        inputs = self.graph.inputs
        if len(inputs) != self.named[0]:
            self.named = len(inputs), names_of([v.shape for v in inputs])
        return self.named[1]

    def _outputs(self, node: Node) -> None:
        results = node.args[0] if isinstance(node.args[0], (tuple, list)) else [node.args[0]]
        values: list[Value] = []
        number: dict[int, int] = {}
        for r in results:
            v = self.env[r] if isinstance(r, Node) else r
            if isinstance(r, Node) and r.op == "placeholder":
                self.made.outputs.append(Given(r.name))
            elif isinstance(v, (Value, Complex)):
                parts = [v] if isinstance(v, Value) else [v.real, v.imag]
                for part in parts:
                    if part is not None and id(part) not in number:
                        number[id(part)] = len(values)
                        values.append(part)
                kind = "output" if isinstance(v, Value) else "complex"
                self.made.outputs.append((kind, *(None if p is None else number[id(p)] for p in parts)))
            else:
                self.made.outputs.append(v)
        self.graph.set_outputs(values, [f"output{k}" if len(values) > 1 else "output" for k in range(len(values))])


def _located(error: TecError, node: Node) -> TecError:
    """The error at the user's line."""
    where = location_of(node)
    if isinstance(error, InternalError):
        made: TecError = InternalError(error.message.removeprefix("a fault inside tec: "))
        made.__cause__ = error.__cause__
        return made
    text = error.message if str(node.target) in error.message else f"{node.target}: {error.message}"
    return type(error)(text, where=where, hint=error.hint, locate=False)


__all__ = [
    "COMPLEX", "CONVERTERS", "CUSTOM", "AtenCall", "Complex", "Conversion", "Given", "aten_op", "called", "complex_op", "convert", "converter_of",
    "custom_op", "is_assertion",
]  # fmt: skip
