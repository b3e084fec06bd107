"""A speech encoder like Whisper tiny's on the CPU against ONNX Runtime, two threads each.

    python benchmarks/encoder.py [--frames 1500] [--layers 4] [--hidden 384] [--repeat 12]

Two convolutions over 80 bands of 2 * frames, then layers of attention (heads of 64) and a GELU, as torch exports them; random weights.
One JSON line: {"name", "value", "unit", "peer", "peer_value", "ratio", "difference"}; medians of runs in blocks, the sides in turn, with a
rest before each.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("TEC_NUM_THREADS", "2")

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from recurrent import compare

BANDS = 80


class _Model:
    """Nodes and weights in the order in which they are asked for."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.rng = np.random.default_rng(0)

    def constant(self, array: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int, inputs: int) -> str:
        return self.constant((self.rng.standard_normal(shape) / inputs**0.5).astype(np.float32))

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attrs))
        return name

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(inputs, outputs, inputs=inputs)), self.weight(outputs, inputs=100))  # fmt: skip

    def gelu(self, x: str) -> str:
        half, one, root = (self.constant(np.float32(v)) for v in (0.5, 1.0, 2.0**0.5))
        y = self.op("Add", self.op("Erf", self.op("Div", x, root)), one)
        return self.op("Mul", self.op("Mul", x, y), half)

    def norm(self, x: str, size: int) -> str:
        return self.op("LayerNormalization", x, self.constant(np.ones(size, np.float32)), self.weight(size, inputs=100), axis=-1)  # fmt: skip

    def heads(self, x: str, size: int, perm: list[int]) -> str:
        shape = self.constant(np.array([1, -1, size // 64, 64]))
        return self.op("Transpose", self.op("Reshape", x, shape), perm=perm)

    def attention(self, x: str, size: int) -> str:
        q, k, v = (self.linear(x, size, size) for _ in range(3))
        q = self.op("Mul", self.heads(q, size, [0, 2, 1, 3]), self.constant(np.float32(64**-0.5)))
        scores = self.op("Softmax", self.op("MatMul", q, self.heads(k, size, [0, 2, 3, 1])), axis=-1)
        y = self.op("Transpose", self.op("MatMul", scores, self.heads(v, size, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", y, self.constant(np.array([1, -1, size]))), size, size)


def encoder(frames: int, layers: int, hidden: int) -> Any:
    """The model; its input is (1, 80, twice the frames)."""
    m = _Model()
    x = m.op("Conv", "mel", m.weight(hidden, BANDS, 3, inputs=3 * BANDS), m.weight(hidden, inputs=100), pads=[1, 1])
    x = m.gelu(x)
    x = m.op("Conv", x, m.weight(hidden, hidden, 3, inputs=3 * hidden), m.weight(hidden, inputs=100), pads=[1, 1], strides=[2])  # fmt: skip
    x = m.op("Transpose", m.gelu(x), perm=[0, 2, 1])
    x = m.op("Add", x, m.weight(frames, hidden, inputs=100))
    for _ in range(layers):
        x = m.op("Add", x, m.attention(m.norm(x, hidden), hidden))
        y = m.gelu(m.linear(m.norm(x, hidden), hidden, 4 * hidden))
        x = m.op("Add", x, m.linear(y, 4 * hidden, hidden))
    x = m.norm(x, hidden)
    graph = helper.make_graph(
        m.nodes, "encoder", [helper.make_tensor_value_info("mel", TensorProto.FLOAT, [1, BANDS, 2 * frames])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, frames, hidden])], m.weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--frames", type=int, default=1500)
    args.add_argument("--layers", type=int, default=4)
    args.add_argument("--hidden", type=int, default=384)
    args.add_argument("--repeat", type=int, default=20)
    given = args.parse_args()
    model = encoder(given.frames, given.layers, given.hidden)
    feeds = {"mel": np.random.default_rng(1).standard_normal((1, BANDS, 2 * given.frames)).astype(np.float32)}
    compare(f"encoder of {given.layers} layers, {given.frames} frames", model, feeds, given.repeat)


if __name__ == "__main__":
    main()
