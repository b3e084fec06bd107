"""Networks of tools/zoo.py with dimensions left open, as exporters write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tools import zoo


def opened(model: onnx.ModelProto, dims: Mapping[str, Sequence[int | str]]) -> onnx.ModelProto:
    """The model with these input shapes; what it says of other shapes is dropped."""
    new = onnx.ModelProto()
    new.CopyFrom(model)
    for i in new.graph.input:
        if i.name in dims:
            shape = i.type.tensor_type.shape
            del shape.dim[:]
            for d in dims[i.name]:
                entry = shape.dim.add()
                if isinstance(d, int):
                    entry.dim_value = d
                else:
                    entry.dim_param = d
    for o in new.graph.output:
        o.type.tensor_type.ClearField("shape")
    del new.graph.value_info[:]
    return new


def with_open_rows(model: onnx.ModelProto, source: str, batch: int, seq: int) -> onnx.ModelProto:
    """A transformer of (batch, seq) rows with both taken from the shape of `source`: Shape, Gather, Unsqueeze, Concat before
    each Reshape; tables over the sequence and masks are sliced to its length."""
    new = onnx.ModelProto()
    new.CopyFrom(model)
    g = new.graph
    weights = {t.name: numpy_helper.to_array(t) for t in g.initializer}
    nodes: list[onnx.NodeProto] = []

    def const(name: str, values: Sequence[int]) -> str:
        g.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    zero = const("open_zero", [0])
    nodes.append(helper.make_node("Shape", [source], ["open_shape"], name="open_shape"))
    for k, name in enumerate(("batch", "seq")):
        place = const(f"open_{k}", [])
        g.initializer[-1].CopyFrom(numpy_helper.from_array(np.array(k, np.int64), place))
        nodes.append(helper.make_node("Gather", ["open_shape", place], [f"open_{name}_0"], axis=0, name=f"open_{name}"))
        nodes.append(helper.make_node("Unsqueeze", [f"open_{name}_0", zero], [f"open_{name}"]))
    for n in g.node:
        for k, name in enumerate(n.input):
            w = weights.get(name)
            if w is None:
                continue
            if n.op_type == "Reshape" and k == 1 and list(w[:2]) == [batch, seq]:
                rest = const(f"{n.output[0]}_rest", list(w[2:]))
                nodes.append(
                    helper.make_node("Concat", ["open_batch", "open_seq", rest], [f"{n.output[0]}_shape"], axis=0)
                )
                n.input[k] = f"{n.output[0]}_shape"
            elif n.op_type == "Add" and w.ndim in (3, 4) and seq in w.shape[1:]:
                axis = const(f"{n.output[0]}_axis", [list(w.shape).index(seq, 1)])
                nodes.append(
                    helper.make_node(
                        "Slice", [name, zero, "open_seq", axis], [f"{n.output[0]}_table"], name=f"{n.output[0]}_table"
                    )
                )
                n.input[k] = f"{n.output[0]}_table"
        nodes.append(n)
    nodes = [
        helper.make_node(
            n.op_type,
            n.input,
            n.output,
            n.name,
            domain=n.domain,
            **{a.name: helper.get_attribute_value(a) for a in n.attribute},
        )
        for n in nodes
    ]
    del g.node[:]
    g.node.extend(nodes)
    return new


def minilm() -> onnx.ModelProto:
    model = with_open_rows(zoo.minilm(1, 512), "input_ids", 1, 512)
    return opened(model, dict.fromkeys(("input_ids", "attention_mask"), ("batch", "seq")))


def bert_layer() -> onnx.ModelProto:
    model = with_open_rows(zoo.bert_layer(512), "input", 1, 512)
    return opened(model, {"input": ("batch", "seq", 768)})


def _named(name: str, **dims: Sequence[int | str]) -> onnx.ModelProto:
    return opened(onnx.load(str(zoo.get(name))), dims)


MODELS = {
    "minilm": minilm,
    "bert_layer": bert_layer,
    "mobilenet_v2": lambda: _named("mobilenet_v2", input=("batch", 3, 224, 224)),
    "resnet50": lambda: _named("resnet50", input=("batch", 3, 224, 224)),
    "squeezenet": lambda: _named("squeezenet", input=("batch", 3, 224, 224)),
    "magika": lambda: _named("magika", bytes=("batch", 2048)),
    "silero_vad": lambda: onnx.load(str(zoo.get("silero_vad"))),
    "ppocr_rec": lambda: _named("ppocr_rec", x=("batch", 3, 48, "width")),
    "romanizer_encoder": lambda: onnx.load(str(zoo.get("romanizer_encoder"))),
    "t5_encoder": lambda: onnx.load(str(zoo.get("t5_encoder"))),
    "mtcnn_p": lambda: onnx.load(str(zoo.get("mtcnn_p"))),
}
