"""What a model is, without its weights and the names of its nodes: for reports."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx


def describe(path: str) -> dict[str, Any]:
    """Producer, versions, types of inputs and outputs, operators with their numbers; external data is not read."""
    model = onnx.load(path, load_external_data=False)

    def kind(info: Any) -> str:
        t = info.type.tensor_type
        dims = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in t.shape.dim]
        return f"{onnx.TensorProto.DataType.Name(t.elem_type).lower()}[{', '.join(dims)}]"

    def operators(nodes: Any, found: Counter[str]) -> Counter[str]:
        for n in nodes:
            found[f"{n.domain}.{n.op_type}" if n.domain else n.op_type] += 1
            for a in n.attribute:
                for g in (*([a.g] if a.HasField("g") else []), *a.graphs):
                    operators(g.node, found)
        return found

    graph = model.graph
    constants = {t.name for t in graph.initializer}
    return {
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "opsets": {o.domain or "ai.onnx": o.version for o in model.opset_import},
        "inputs": [kind(i) for i in graph.input if i.name not in constants],
        "outputs": [kind(o) for o in graph.output],
        "operators": dict(operators(graph.node, Counter()).most_common()),
        "functions": {f"{f.domain}.{f.name}": dict(operators(f.node, Counter())) for f in model.functions},
    }
