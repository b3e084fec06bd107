"""A Llama-like decoder as onnxruntime-genai's model builder writes it: GroupQueryAttention with rotary positions, MatMulNBits; random weights.

Inputs: input_ids [batch_size, sequence_length], attention_mask [batch_size, total_sequence_length] and past_key_values.N.key and .value
[batch_size, heads, past_sequence_length, size]. Outputs: logits, present.N.key and .value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"


def quantized(w: Any, bits: int = 4, block: int = 32, zeros: bool = False) -> tuple[Any, Any, Any]:
    """w [k, n] as MatMulNBits takes it: packed [n, blocks, bytes], scales [n, blocks] and packed zero points (None: the middle of the range)."""
    k, n = w.shape
    blocks, top = -(-k // block), (1 << bits) - 1
    rows = np.zeros((n, blocks * block), np.float32)
    rows[:, :k] = w.T
    rows = rows.reshape(n, blocks, block)
    if zeros:
        low, high = np.minimum(rows.min(-1), 0), np.maximum(rows.max(-1), 0)
        scale = (high - low) / top
        zero = np.rint(-low / np.where(scale == 0, 1, scale))
    else:
        scale, zero = np.abs(rows).max(-1) / (1 << (bits - 1)), np.full((n, blocks), 1 << (bits - 1))
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    q = np.clip(np.rint(rows / scale[..., None]) + zero[..., None], 0, top).astype(np.uint8)
    return packed(q, bits), scale, packed(zero.astype(np.uint8), bits) if zeros else None


def packed(q: Any, bits: int) -> Any:
    """Numbers below 2^bits side by side in bytes along the last axis, the first one lowest."""
    per = 8 // bits
    q = np.pad(q, [*[(0, 0)] * (q.ndim - 1), (0, -q.shape[-1] % per)])
    parts = q.reshape(*q.shape[:-1], -1, per)
    out = np.zeros(parts.shape[:-1], np.uint8)
    for j in range(per):
        out |= parts[..., j] << (bits * j)
    return out


class _Builder:
    def __init__(self, seed: int, given: Mapping[str, Any] | None):
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.rng = np.random.default_rng(seed)
        self.given = given

    def const(self, name: str, x: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(x), name))
        return name

    def weight(self, name: str, *shape: int) -> Any:
        """The given weight, or a random one."""
        if self.given is not None:
            return np.asarray(self.given[name], np.float32)
        if len(shape) == 1:
            return (1 + 0.1 * self.rng.standard_normal(shape)).astype(np.float32)
        return (self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def op(self, kind: str, inputs: list[str], outputs: str | list[str], domain: str = "", **attrs: Any) -> str:
        outs = [outputs] if isinstance(outputs, str) else outputs
        name = "/" + outs[0].replace(".", "/") + "/" + kind
        self.nodes.append(helper.make_node(kind, inputs, outs, name=name, domain=domain, **attrs))
        return outs[0]


def genai_decoder(
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    vocabulary: int = 96,
    feed: int = 0,
    bits: int = 4,
    block: int = 32,
    zeros: bool = False,
    packed_qkv: bool = False,
    packed_embedding: bool = False,
    accuracy_level: int = 0,
    positions: int = 512,
    window: int = -1,
    softcap: float = 0.0,
    theta: float = 10000.0,
    eps: float = 1e-5,
    seed: int = 0,
    weights: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """The model. bits: 0 for plain float32 products. weights: by name, [inputs, outputs], in place of random ones."""
    b = _Builder(seed, weights)
    size, feed = hidden // heads, feed or 2 * hidden

    def product(x: str, name: str, k: int, n: int) -> str:
        w, out = b.weight(name, k, n), name + ".out"
        if not bits:
            return b.op("MatMul", [x, b.const(name + ".weight", w)], out)
        q, scale, zero = quantized(w, bits, block, zeros)
        ins = [x, b.const(name + ".qweight", q), b.const(name + ".scales", scale)]
        if zero is not None:
            ins.append(b.const(name + ".qzeros", zero))
        attrs = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": accuracy_level}
        return b.op("MatMulNBits", ins, out, MS, **attrs)

    one, minus = b.const("axis1", np.array([1], np.int64)), b.const("one", np.array([1], np.int64))
    summed = b.op("ReduceSum", ["attention_mask", one], "mask.sum", keepdims=0)
    seqlens = b.op("Cast", [b.op("Sub", [summed, minus], "mask.sub")], "seqlens_k", to=TensorProto.INT32)
    total = b.op("Gather", [b.op("Shape", ["attention_mask"], "mask.shape"), b.const("index1", np.array(1, np.int64))], "mask.total", axis=0)  # fmt: skip
    total = b.op("Cast", [total], "total_seq_len", to=TensorProto.INT32)
    angles = np.arange(positions)[:, None] / theta ** (np.arange(0, size, 2, dtype=np.float32) / size)[None]
    cos = b.const("cos_cache", np.cos(angles).astype(np.float32))
    sin = b.const("sin_cache", np.sin(angles).astype(np.float32))
    embed = b.weight("embed", vocabulary, hidden)
    if packed_embedding:
        q, scale, _ = quantized(embed.T, 4, block)
        table = [b.const("embed.q", q.reshape(vocabulary, -1)), "input_ids", b.const("embed.s", scale)]
        x = b.op("GatherBlockQuantized", table, "embed", MS, bits=4, block_size=block, gather_axis=0, quantize_axis=1)
    else:
        x = b.op("Gather", [b.const("embed_tokens", embed), "input_ids"], "embed", axis=0)
    h = b.op("SimplifiedLayerNormalization", [x, b.const("norm.first", b.weight("layers.0.norm1", hidden))], "norm.0", epsilon=eps, axis=-1, stash_type=1)  # fmt: skip
    for k in range(layers):
        p = f"layers.{k}."
        if packed_qkv:
            attend = [product(h, p + "qkv_proj", hidden, hidden + 2 * kv_heads * size), "", ""]
        else:
            attend = [
                product(h, p + name, hidden, n)
                for name, n in (("q_proj", hidden), ("k_proj", kv_heads * size), ("v_proj", kv_heads * size))
            ]
        attend += [f"past_key_values.{k}.key", f"past_key_values.{k}.value", seqlens, total, cos, sin]
        outs = [p + "attn", f"present.{k}.key", f"present.{k}.value"]
        b.op("GroupQueryAttention", attend, outs, MS, num_heads=heads, kv_num_heads=kv_heads, do_rotary=1, rotary_interleaved=0,
             local_window_size=window, softcap=softcap, scale=float(size**-0.5))  # fmt: skip
        o = product(p + "attn", p + "o_proj", hidden, hidden)
        skip = [x, o, b.const(p + "norm2.weight", b.weight(p + "norm2", hidden))]
        outs = [p + "norm2", "", "", p + "x1"]
        h = b.op("SkipSimplifiedLayerNormalization", skip, outs, MS, epsilon=eps)
        gate = product(h, p + "gate_proj", hidden, feed)
        up = product(h, p + "up_proj", hidden, feed)
        act = b.op("Mul", [gate, b.op("Sigmoid", [gate], p + "sigmoid")], p + "silu")
        down = product(b.op("Mul", [act, up], p + "mul"), p + "down_proj", feed, hidden)
        after = f"layers.{k + 1}.norm1" if k + 1 < layers else "norm"
        skip = [p + "x1", down, b.const(f"norm.{k}.weight", b.weight(after, hidden))]
        last = k + 1 == layers
        h = b.op("SkipSimplifiedLayerNormalization", skip, [p + "norm1", *([] if last else ["", "", p + "x2"])], MS, epsilon=eps)  # fmt: skip
        x = p + "x2"
    product(h, "lm_head", hidden, vocabulary)
    b.nodes[-1].output[0] = "logits"
    inputs = [_info("input_ids", TensorProto.INT64, "batch_size", "sequence_length"),
              _info("attention_mask", TensorProto.INT64, "batch_size", "total_sequence_length")]  # fmt: skip
    outputs = [_info("logits", TensorProto.FLOAT, "batch_size", "sequence_length", vocabulary)]
    for k in range(layers):
        for w in ("key", "value"):
            dims = ("batch_size", kv_heads, "past_sequence_length", size)
            inputs.append(_info(f"past_key_values.{k}.{w}", TensorProto.FLOAT, *dims))
            dims = ("batch_size", kv_heads, "total_sequence_length", size)
            outputs.append(_info(f"present.{k}.{w}", TensorProto.FLOAT, *dims))
    graph = helper.make_graph(b.nodes, "genai", inputs, outputs, b.weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _info(name: str, kind: int, *shape: Any) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def feeds(ids: Any, past: int) -> dict[str, Any]:
    """The inputs of a step but for the caches, for tokens [batch, seq] behind `past` others."""
    batch, seq = np.shape(ids)
    return {"input_ids": np.asarray(ids, np.int64), "attention_mask": np.ones((batch, past + seq), np.int64)}
