"""Operators that are functions: the bodies that the standard gives them, and what a call fills in."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tec.graph import Value

from . import reader
from .call import Call


def standard_body(call: Call) -> onnx.FunctionProto | None:
    """The body that the standard gives an operator that is a function; None where it is none."""
    node = call.node
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


def what_is_wrong(call: Call) -> str:
    """What the standard's checks of types and shapes find in a node; "" where nothing, or where they do not know the operator."""
    try:
        schema = onnx.defs.get_schema(call.op_type, call.opset, call.domain)
    except onnx.defs.SchemaError:
        return ""
    node = _resolved(call)
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = {call.domain: call.opset}
    types = {name: _type_proto(v) for name, v in zip(node.input, call.inputs) if isinstance(v, Value)}
    data = {
        name: onnx.numpy_helper.from_array(np.asarray(v.data))
        for name, v in zip(node.input, call.inputs)
        if isinstance(v, Value) and v.is_const and v.type.size <= 1024 and np.asarray(v.data).dtype.kind in "iufb"
    }
    try:
        onnx.checker.check_node(node, context)
        onnx.shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=[onnx.helper.make_opsetid(call.domain, call.opset)]
        )
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ValueError,
        TypeError,
        RuntimeError,
    ) as e:
        return " ".join(str(e).split())[:200]
    return ""


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


def default_attributes(call: Call) -> dict[str, Any]:
    """What the standard says for attributes that the node leaves out."""
    try:
        schema = onnx.defs.get_schema(call.op_type, call.opset, call.domain)
    except onnx.defs.SchemaError:
        return {}
    return {n: reader.attribute(a.default_value) for n, a in schema.attributes.items() if a.default_value.name}


def _type_proto(v: Value) -> onnx.TypeProto:
    dims = [d if isinstance(d, int) else str(d) for d in v.shape]
    return onnx.helper.make_tensor_type_proto(reader.elem_type(v.dtype), dims)
