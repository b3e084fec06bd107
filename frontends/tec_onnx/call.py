"""One node of a model while it is converted: its inputs and attributes, and short ways to build its part of the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import Builder, identifier
from tec.graph.operators import infer_types, run_op
from tec.ops.dims import UndecidedSize, as_size, is_symbolic
from tec.ops.registry import TensorType, get_op

from . import reader

if TYPE_CHECKING:
    from .importer import Importer, Scope

# What to do about a form of a fused operator that tec has not.
UNFUSED = "export the model without ONNX Runtime's fusions (optimization level 0): tec compiles the operators that they stand for, and fuses them itself"

# Operators that leave elements as they are, or tell which are equal: strings pass through them as numbers that stand for them.
_MOVES = frozenset(
    "broadcast_to concat equal gather gather_elements gather_nd pad reshape reverse_sequence slice tile transpose trilu where".split()
)


def _moved(name: str, attrs: Mapping[str, Any], arrays: Sequence[Any]) -> tuple[Any, ...]:
    """What an operator of `_MOVES` makes of arrays of which some hold strings. Number 0, with which it fills, is the empty string."""
    number = {"": 0}
    coded = [
        np.reshape([number.setdefault(s, len(number)) for s in a.flat], a.shape).astype(np.int64)
        if a.dtype == object
        else a
        for a in map(np.asarray, arrays)
    ]
    types = [TensorType(str(a.dtype), a.shape) for a in coded]
    given, definition = {k: v for k, v in attrs.items() if v is not None}, get_op(name)
    outs = infer_types(definition, types, given)
    texts = np.array(list(number), object)
    made = run_op(definition, given, coded, types, outs)
    return tuple(texts[a] if t.dtype == "int64" else a for a, t in zip(made, outs))


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
        if not any(v.dtype == "string" for v in values):
            return super().ops(name, *values, **attrs)
        if name not in _MOVES:
            raise ImportModelError(
                f"{self.op_type} of strings",
                hint="tensors of strings are worked on when a session runs them: tec_onnx.session(model)",
            )
        return list(self.host(lambda *arrays: _moved(name, attrs, arrays), *values))

    def host(self, f: Callable[..., Any], *values: Any, what: str = "") -> Any:
        """Constants worked out on the host from the values of `values` (for results whose shape depends on values)."""
        strings = any(v is not None and v.dtype == "string" for v in values)
        what = what or (f"{self.op_type} of strings" if strings else f"the result of {self.op_type}")
        arrays = [None if v is None else self.importer.value_of(v, what) for v in values]
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
