"""One node of a model while it is converted: its inputs and attributes, and short ways to build its part of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import Builder, identifier
from tec.ops.dims import UndecidedSize, as_size, is_symbolic

from . import reader

if TYPE_CHECKING:
    from .importer import Importer, Scope

# What to do about a form of a fused operator that tec has not.
UNFUSED = "export the model without ONNX Runtime's fusions (optimization level 0): tec compiles the operators that they stand for, and fuses them itself"


class Outputs(list):
    """Several results of a converter (a plain list is a sequence value)."""


class Call(Builder):
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
        label = next((o for o in node.output if o), "")
        super().__init__(importer.graph, identifier(label), node.name or label)
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
            raise ImportModelError(
                f"input {k} is {kind}, a tensor is needed",
                hint="the operator needs it: give the node that input"
                if value is None
                else "take the element out first (SequenceAt, OptionalGetElement), or run the model through tec_onnx.session(model)",
            )
        return value

    def array(self, k: int, what: str = "") -> Any:
        """The value of input k, as an array."""
        return self.importer.value_of(self[k], what or f"input {k} of {self.op_type}")

    def ints(self, k: int) -> list[int]:
        """The value of input k, as a list of ints; of sizes where it comes from symbolic shapes."""
        return [as_size(n) for n in np.asarray(self.array(k)).reshape(-1)]

    # ---- building

    def ops(self, name: str, *values: Value, **attrs: Any) -> list[Value]:
        if any(v.dtype == "string" for v in values):
            raise ImportModelError(
                f"{self.op_type} of strings",
                hint="tensors of strings are worked on when a session runs them: tec_onnx.session(model)",
            )
        return super().ops(name, *values, **attrs)

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
