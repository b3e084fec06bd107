"""A Llama-like decoder with caches, made with onnx.helper: RMS norm, rotary positions, grouped queries, SwiGLU; random weights.

Inputs as optimum names them: input_ids [batch, seq], attention_mask [batch, past + seq], position_ids [batch, seq] and past_key_values.N.key and
.value [batch, heads, past, size]. Outputs: logits [batch, seq, vocabulary], present.N.key and .value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Builder:
    def __init__(self, seed: int):
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.rng = np.random.default_rng(seed)
        self.count = 0

    def const(self, x: Any, name: str = "c") -> str:
        self.count += 1
        self.weights.append(numpy_helper.from_array(np.asarray(x), f"{name}_{self.count}"))
        return str(self.weights[-1].name)

    def weight(self, *shape: int) -> str:
        scale = (1.0 if len(shape) == 1 else 1.0 / np.sqrt(shape[0])) * self.rng.standard_normal(shape)
        return self.const((scale + (1.0 if len(shape) == 1 else 0.0)).astype(np.float32), "w")

    def op(self, kind: str, *inputs: str, out: str = "", **attrs: Any) -> str:
        self.count += 1
        out = out or f"{kind.lower()}_{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=f"n{self.count}_{kind}", **attrs))
        return out


def decoder(
    layers: int = 2, hidden: int = 64, heads: int = 4, kv_heads: int = 2, vocabulary: int = 96, seed: int = 0
) -> onnx.ModelProto:
    """The model; `hidden // heads` is the size of a head, `heads` a multiple of `kv_heads`."""
    b = _Builder(seed)
    size, groups = hidden // heads, heads // kv_heads
    feed = hidden * 2
    i64 = lambda *x: b.const(np.array(x, np.int64))  # noqa: E731
    eps, two, half = b.const(np.float32(1e-5)), b.const(np.float32(2.0)), size // 2
    angles = 1.0 / 10000.0 ** (np.arange(half, dtype=np.float32) / half)
    freq = b.op(
        "Mul",
        b.op("Unsqueeze", b.op("Cast", "position_ids", to=TensorProto.FLOAT), i64(2)),
        b.const(np.concatenate([angles, angles]).astype(np.float32)),
    )
    cos, sin = (b.op("Unsqueeze", b.op(f, freq), i64(1)) for f in ("Cos", "Sin"))
    # causal: key j is seen by query i where j <= past + i, and where the mask has it
    shape_ids = b.op("Shape", "input_ids")
    seq = b.op("Gather", shape_ids, i64(1), axis=0)
    past = b.op("Gather", b.op("Shape", "past_key_values.0.key"), i64(2), axis=0)
    total = b.op("Add", past, seq)
    zero, one = b.const(np.array(0, np.int64)), b.const(np.array(1, np.int64))
    scalar = lambda x: b.op("Squeeze", x)  # noqa: E731
    keys = b.op("Range", zero, scalar(total), one)
    rows = b.op("Unsqueeze", b.op("Range", scalar(past), scalar(total), one), i64(1))
    seen = b.op("LessOrEqual", b.op("Unsqueeze", keys, i64(0)), rows)
    kept = b.op("Cast", b.op("Unsqueeze", "attention_mask", i64(1, 2)), to=TensorProto.BOOL)
    both = b.op("And", b.op("Unsqueeze", seen, i64(0, 1)), kept)
    mask = b.op("Where", both, b.const(np.float32(0.0)), b.const(np.float32(-1e9)))

    def norm(x: str) -> str:
        mean = b.op("ReduceMean", b.op("Pow", x, two), i64(-1), keepdims=1)
        return b.op("Mul", b.op("Div", x, b.op("Sqrt", b.op("Add", mean, eps))), b.weight(hidden))

    def split(x: str, n: int) -> str:
        return b.op("Transpose", b.op("Reshape", x, i64(0, 0, n, size)), perm=[0, 2, 1, 3])

    def rotate(x: str) -> str:
        low, high = (b.op("Slice", x, i64(s), i64(e), i64(3)) for s, e in ((0, half), (half, size)))
        turned = b.op("Concat", b.op("Neg", high), low, axis=3)
        return b.op("Add", b.op("Mul", x, cos), b.op("Mul", turned, sin))

    def repeat(x: str) -> str:
        if groups == 1:
            return x
        batch = b.op("Gather", shape_ids, i64(0), axis=0)
        wide = b.op("Concat", batch, i64(kv_heads, groups), total, i64(size), axis=0)
        flat = b.op("Concat", batch, i64(heads), total, i64(size), axis=0)
        return b.op("Reshape", b.op("Expand", b.op("Unsqueeze", x, i64(2)), wide), flat)

    x = b.op("Gather", b.weight(vocabulary, hidden), "input_ids", axis=0)
    for k in range(layers):
        h = norm(x)
        q = rotate(split(b.op("MatMul", h, b.weight(hidden, hidden)), heads))
        new_k = rotate(split(b.op("MatMul", h, b.weight(hidden, kv_heads * size)), kv_heads))
        new_v = split(b.op("MatMul", h, b.weight(hidden, kv_heads * size)), kv_heads)
        key, value = (
            b.op("Concat", f"past_key_values.{k}.{w}", new, axis=2, out=f"present.{k}.{w}")
            for w, new in (("key", new_k), ("value", new_v))
        )
        scores = b.op("MatMul", q, b.op("Transpose", repeat(key), perm=[0, 1, 3, 2]))
        scores = b.op("Add", b.op("Mul", scores, b.const(np.float32(size**-0.5))), mask)
        mixed = b.op("MatMul", b.op("Softmax", scores, axis=-1), repeat(value))
        merged = b.op("Reshape", b.op("Transpose", mixed, perm=[0, 2, 1, 3]), i64(0, 0, hidden))
        x = b.op("Add", x, b.op("MatMul", merged, b.weight(hidden, hidden)))
        h = norm(x)
        gate = b.op("MatMul", h, b.weight(hidden, feed))
        gate = b.op("Mul", gate, b.op("Sigmoid", gate))
        x = b.op(
            "Add",
            x,
            b.op("MatMul", b.op("Mul", gate, b.op("MatMul", h, b.weight(hidden, feed))), b.weight(feed, hidden)),
        )
    b.op("MatMul", norm(x), b.weight(hidden, vocabulary), out="logits")

    def info(name: str, kind: int, *shape: Any) -> Any:
        return helper.make_tensor_value_info(name, kind, list(shape))

    past_name, total_name = "past_sequence_length", "past_sequence_length + sequence_length"
    inputs = [
        info("input_ids", TensorProto.INT64, "batch", "sequence_length"),
        info("attention_mask", TensorProto.INT64, "batch", total_name),
        info("position_ids", TensorProto.INT64, "batch", "sequence_length"),
    ]
    outputs = [info("logits", TensorProto.FLOAT, "batch", "sequence_length", vocabulary)]
    for k in range(layers):
        for w in ("key", "value"):
            inputs.append(info(f"past_key_values.{k}.{w}", TensorProto.FLOAT, "batch", kv_heads, past_name, size))
            outputs.append(info(f"present.{k}.{w}", TensorProto.FLOAT, "batch", kv_heads, total_name, size))
    graph = helper.make_graph(b.nodes, "decoder", inputs, outputs, b.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def feeds(ids: Any, past: int) -> dict[str, Any]:
    """The inputs of a step but for the caches, for tokens [batch, seq] behind `past` others."""
    batch, seq = ids.shape
    return {
        "input_ids": np.asarray(ids, np.int64),
        "attention_mask": np.ones((batch, past + seq), np.int64),
        "position_ids": np.broadcast_to(np.arange(past, past + seq, dtype=np.int64), (batch, seq)).copy(),
    }
