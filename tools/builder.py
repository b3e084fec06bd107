"""A small builder of ONNX graphs for the networks of this folder."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """Collects nodes and weights; every method returns the name of its result."""

    def __init__(self, name: str, opset: int = 17):
        self.name, self.opset = name, opset
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> str:
        out = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=f"{kind}_{len(self.nodes)}", **attrs))
        return out

    def const(self, value: Any, name: str = "") -> str:
        name = name or f"w{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def conv(
        self, x: str, w: np.ndarray, b: np.ndarray | None = None, stride: int = 1, pad: Any = 0, group: int = 1
    ) -> str:
        pads = [pad] * 4 if isinstance(pad, int) else list(pad)
        args = [x, self.const(w)] + ([self.const(b)] if b is not None else [])
        return self.op("Conv", *args, kernel_shape=list(w.shape[2:]), strides=[stride] * 2, pads=pads, group=group)

    def model(self, inputs: list[Any], outputs: list[str]) -> onnx.ModelProto:
        outs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, self.name, inputs, outs, list(self.weights.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], producer_name="tec-zoo")
        model.ir_version = 9
        return onnx.shape_inference.infer_shapes(model)


def float_input(name: str = "input", shape: tuple[Any, ...] = (1, 3, 224, 224)) -> Any:
    """A float32 input of a graph, a batch of ImageNet pictures by default."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
