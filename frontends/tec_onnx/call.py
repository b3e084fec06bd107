"""One node of a model while it is converted: its inputs and attributes, and short ways to build its part of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from tec import ImportModelError
from tec.graph import Graph, Value
from tec.ops.dims import UndecidedSize, as_size, is_symbolic

from . import reader

if TYPE_CHECKING:
    from .importer import Importer, Scope


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
        return self.graph.add(name, values, attrs, name=identifier(label), origin=self.node.name or label)

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


def identifier(text: str) -> str:
    """A name that is safe in every output: letters, digits, underscores."""
    out = "".join(ch if ch.isalnum() and ch.isascii() else "_" for ch in text)
    return ("v" + out if out[:1].isdigit() else out) or "v"
