"""What a model is, without its weights and the names of its nodes: for reports."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx

from .importer import CONVERTERS


def operators() -> dict[str, str]:
    """All operators of the standard, of ai.onnx.ml and those of other domains that are converted: name -> how tec takes it, "converted",
    "by its definition in ONNX", or "no".

    >>> found = tec_onnx.operators()
    >>> found["Conv"], found["Gelu"]
    ('converted', 'converted')
    """
    standard = {(s.domain, s.name): s for s in onnx.defs.get_all_schemas()}
    found = {}
    for domain, name in sorted(set(CONVERTERS) | set(standard)):
        if (domain, name) in CONVERTERS:
            how = "converted"
        elif domain not in ("", "ai.onnx.ml"):
            continue
        else:
            schema = standard[domain, name]
            defined = schema.has_function or schema.has_context_dependent_function
            how = "by its definition in ONNX" if defined else "no"
        found[f"{domain}.{name}" if domain else name] = how
    return found


def describe(path: str) -> dict[str, Any]:
    """Producer, versions, types of inputs and outputs, operators with their numbers; external data is not read."""
    model = onnx.load(path, load_external_data=False)

    def kind(info: Any) -> str:
        t = info.type.tensor_type
        dims = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in t.shape.dim]
        return f"{onnx.TensorProto.DataType.Name(t.elem_type).lower()}[{', '.join(dims)}]"

    def counts(nodes: Any, found: Counter[str]) -> Counter[str]:
        for n in nodes:
            found[f"{n.domain}.{n.op_type}" if n.domain else n.op_type] += 1
            for a in n.attribute:
                for g in (*([a.g] if a.HasField("g") else []), *a.graphs):
                    counts(g.node, found)
        return found

    graph = model.graph
    constants = {t.name for t in graph.initializer}
    return {
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "opsets": {o.domain or "ai.onnx": o.version for o in model.opset_import},
        "inputs": [kind(i) for i in graph.input if i.name not in constants],
        "outputs": [kind(o) for o in graph.output],
        "operators": dict(counts(graph.node, Counter()).most_common()),
        "functions": {f"{f.domain}.{f.name}": dict(counts(f.node, Counter())) for f in model.functions},
    }
