"""Which inputs of a model are what an output was in the run before, where the names say it plainly.

The layouts of exporters: optimum (past_key_values.0.key and present.0.key, with decoder. and encoder. between), onnxruntime-genai
(past_key_values.0.key and present.0.key), older ones (past_key_0 and present_key_0, past_0 and present_0, pkv). Types must agree: one dtype and rank,
and dimensions that differ along one axis at most.
"""

from __future__ import annotations

import onnx

from .inputs import input_info

_NAMES = (
    ("past_key_values", "present"),
    ("past_key_values", "present_key_values"),
    ("past", "present"),
)


def find_state(model: onnx.ModelProto) -> dict[str, str]:
    """{input: output}; all that the names say, or nothing where one of a family has no counterpart."""
    outputs = {o.name: o.type.tensor_type for o in model.graph.output if o.type.HasField("tensor_type")}
    found: dict[str, str] = {}
    for name, entry in input_info(model).items():
        if entry is None or not name.startswith("past"):
            continue
        target = next((t for a, b in _NAMES if (t := name.replace(a, b, 1)) != name and t in outputs), None)
        if target is None and ".encoder." in name:
            continue  # keys and values of what the encoder said, which stay as they are
        if target is None or target in found.values() or not _fits(model, name, outputs[target]):
            return {}
        found[name] = target
    return found


def _fits(model: onnx.ModelProto, name: str, target: onnx.TypeProto.Tensor) -> bool:
    source = next(i for i in model.graph.input if i.name == name).type.tensor_type
    if source.elem_type != target.elem_type:
        return False
    if not target.HasField("shape") or len(target.shape.dim) == 0:
        return True  # shapes of outputs are often left out
    if len(source.shape.dim) != len(target.shape.dim):
        return False
    pairs = zip(source.shape.dim, target.shape.dim)
    return (
        sum(a.HasField("dim_value") and b.HasField("dim_value") and a.dim_value != b.dim_value for a, b in pairs) == 0
    )
