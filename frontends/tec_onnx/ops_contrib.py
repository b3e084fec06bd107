"""Operators of ONNX Runtime's own domain, com.microsoft, that its tools write now and then: other layouts, NF4 weights.

Sources: the definitions in ONNX Runtime's documentation of its contrib operators; QLoRA (https://arxiv.org/abs/2305.14314) for NF4. The numbers
of FP4 and NF4 are those that bitsandbytes writes, which ONNX Runtime follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of
from tec.graph.builders.matmul import matmul
from tec.graph.builders.quantize import dequantize

from . import ops_nn, ops_quant, ops_shape
from .importer import Call, Outputs, onnx_op
from .ops_attention import heads_of
from .ops_quant import Only

MS = "com.microsoft"

# The same as in the standard.
onnx_op("GatherND", domain=MS)(ops_shape.gather_nd)
onnx_op("Range", domain=MS)(ops_shape.range_)


def channels_first(c: Call, convert: Callable[[Any], Any]) -> Value:
    """What `convert` makes of a call whose first input and whose result have their channels last."""
    x = c[0]
    if x.ndim < 3:
        raise ImportModelError(
            f"{c.op_type} of {x.type}: at least 3 dimensions are needed",
            hint="the input is (batch, size ..., channels): add the missing dimensions by Unsqueeze",
        )
    inputs = [c.transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1))), *(c.get(k) for k in range(1, len(c.inputs)))]
    y: Value = convert(Only(c, inputs))
    return c.transpose(y, (0, *range(2, y.ndim), 1))


@onnx_op("QLinearConv", domain=MS)
def qlinear_conv(c: Call) -> Value:
    """The standard's, with `channels_last` for the input and the result; weights keep the standard's order."""
    return channels_first(c, ops_quant.qlinear_conv) if c.attr("channels_last", 0) else ops_quant.qlinear_conv(c)


@onnx_op("NhwcMaxPool", domain=MS)
def nhwc_max_pool(c: Call) -> Value:
    return channels_first(c, ops_nn.max_pool)


_FP4 = [0.0, 0.0625 / 12, 8 / 12, 1.0, 4 / 12, 6 / 12, 2 / 12, 3 / 12]
_NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip
CODES = {0: [*_FP4, *(-v for v in _FP4)], 1: _NF4}


@onnx_op("MatMulBnb4", domain=MS)
def matmul_bnb4(c: Call) -> Value:
    """Weights (N, K) of FP4 or NF4, flattened, two to a byte (the first one high), with a scale for each block. They are decoded when the model is read."""
    k, n, block, kind = (int(c.attr(name, -1)) for name in ("K", "N", "block_size", "quant_type"))
    if k < 1 or n < 1 or block < 1 or kind not in CODES:
        raise ImportModelError(
            f"MatMulBnb4 of {k} by {n} in blocks of {block}, quant_type {kind} (0 is FP4, 1 is NF4)",
            hint="K, N and block_size are above 0 in a file that ONNX Runtime's quantizer wrote: quantize the model again",
        )
    packed, scales = np.asarray(c.array(1), np.uint8).reshape(-1), np.asarray(c.array(2)).reshape(-1)
    if packed.size != -(-n * k // 2) or scales.size != -(-n * k // block):
        raise ImportModelError(
            f"MatMulBnb4 of {k} by {n}: {packed.size} bytes of weights and {scales.size} scales",
            hint=f"{-(-n * k // 2)} bytes and {-(-n * k // block)} scales belong to these sizes: quantize the model again",
        )
    codes = np.stack([packed >> 4, packed & 15], -1).reshape(-1)[: n * k]
    numbers = np.array(CODES[kind], np.float32)[codes] * scales.astype(np.float32)[np.arange(n * k) // block]
    weights = c.const(numbers.reshape(n, k).astype(scales.dtype), c[0].dtype)
    return matmul(c, c[0], weights, transpose_b=c.attr("transB", 1) != 0)


@onnx_op("Unique", domain=MS)
def unique(c: Call) -> Outputs:
    """Values of a vector in the order in which they come first, where each element's value lies among them, and how often each occurs."""

    def run(x: Any) -> tuple[Any, ...]:
        values, first, inverse, counts = np.unique(x, True, True, True)
        order = np.argsort(first)
        return values[order], np.argsort(order)[inverse.reshape(-1)].astype(np.int64), counts[order].astype(np.int64)

    return Outputs(c.host(run, c[0]))


@onnx_op("CDist", domain=MS)
def cdist(c: Call) -> Value:
    """Distances (M, N) of the rows of (M, D) and (N, D)."""
    metric = c.attr("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise ImportModelError(
            f"CDist with metric {metric!r}",
            hint="sqeuclidean and euclidean are known; write others as Sub, a power and ReduceSum",
        )
    d = c.op("subtract", c.unsqueeze(c[0], 1), c.unsqueeze(c[1], 0))
    y = c.op("reduce_sum", c.op("multiply", d, d), axes=(2,), keepdims=False)
    return c.op("sqrt", y) if metric == "euclidean" else y


@onnx_op("UnfoldTensor", domain=MS)
def unfold_tensor(c: Call) -> Value:
    """Windows of `size` elements along one axis, `step` apart; a window's elements become the last dimension."""
    x = c[0]
    axis, size, step = axis_of(c.attr("dim", -1), x.ndim), int(c.attr("size", 0)), int(c.attr("step", 1))
    if size < 1 or step < 1 or x.shape[axis] < size:
        raise ImportModelError(
            f"UnfoldTensor of {x.type} along {axis} with size {size} and step {step}",
            hint=f"size and step are 1 or more, and size is at most {x.shape[axis]}, the length of that dimension",
        )
    count = (x.shape[axis] - size) // step + 1
    index = c.op("add", c.reshape(c.count(count, step), (count, 1)), c.reshape(c.count(size), (1, size)))
    y = c.op("gather", x, index, axis=axis)
    return c.transpose(y, (*(d for d in range(y.ndim) if d != axis + 1), axis + 1))


@onnx_op("ScaledSiLU", domain=MS)
def scaled_silu(c: Call) -> Value:
    scale = c.reshape(c[1], ()) if c.has(1) else c.like(float(c.attr("alpha", 1.0)), c[0])
    z = c.op("multiply", c[0], scale)
    return c.op("multiply", z, c.op("sigmoid", z))


@onnx_op("GatedRMSNorm", domain=MS)
def gated_rms_norm(c: Call) -> Value:
    """x / sqrt(mean of x²) * scale * activation(gate), in float32; as many elements of a row as `scale` has are normalized together."""
    x, scale, gate = (c.cast(c[k], "float32") for k in range(3))
    width, kind = scale.type.size, c.attr("activation", "silu")
    if x.shape[-1] % width or kind not in ("silu", "swish", "sigmoid"):
        raise ImportModelError(
            f"GatedRMSNorm of {x.type} with {width} scales and activation {kind!r}",
            hint="activation is silu, swish or sigmoid, and the last dimension a multiple of the number of scales",
        )
    rows = c.reshape(x, (*x.shape[:-1], x.shape[-1] // width, width))
    mean = c.op("reduce_mean", c.op("multiply", rows, rows), axes=(rows.ndim - 1,), keepdims=True)
    root = c.op("sqrt", c.op("add", mean, c.like(float(c.attr("epsilon", 1e-5)), mean)))
    y = c.reshape(c.op("multiply", c.op("divide", rows, root), c.reshape(scale, (width,))), x.shape)
    opened = c.op("sigmoid", gate)
    if kind != "sigmoid":
        opened = c.op("multiply", gate, opened)
    return c.cast(c.op("multiply", y, opened), c[0].dtype)


@onnx_op("GatedAdd", domain=MS)
def gated_add(c: Call) -> Value:
    if c.has(3):
        raise ImportModelError(
            "GatedAdd with gate_weight, which only ONNX Runtime's CUDA provider runs",
            hint="write the gate as the MatMul and the Sigmoid that gate_weight stands for",
        )
    return c.op("add", c[0], c.op("multiply", c[1], c[2]))


@onnx_op("MRotaryEmbedding", domain=MS)
def multimodal_rotary_embedding(c: Call) -> Value:
    """RotaryEmbedding whose angles follow three positions (time, height, width), [3, batch, tokens]; `mrope_section` says how many angles each has.

    Angles of one position are neighbours (mrope_layout 0, Qwen2-VL), or those of height and width are every third, from the second and the third on (1, Qwen3-VL).
    """
    x, places, cos, sin = c[0], c.cast(c[1], "int64"), c[2], c[3]
    dims, parts = int(c.attr("rotary_embedding_dim", 0)), [int(n) for n in c.attr("mrope_section", ())]
    half = dims // 2 or cos.shape[1]
    if (
        len(parts) != 3
        or sum(parts) != half
        or c.attr("mrope_layout", 0) not in (0, 1)
        or c.attr("is_packed_batching", 0)
    ):
        raise ImportModelError(
            f"MRotaryEmbedding with mrope_section {parts} for {half} angles, or with is_packed_batching",
            hint="mrope_section has three parts that add up to half of a head's size; write packed batches as one text a row",
        )
    n = int(c.attr("num_heads", 0)) or x.shape[-1] // (dims or 2 * cos.shape[1])
    own = heads_of(c, x, n) if x.ndim == 3 else c.transpose(x, (0, 2, 1, 3))
    of = np.repeat(np.arange(3), parts)
    if c.attr("mrope_layout", 0):
        of = np.zeros(half, np.int64)
        for j in (1, 2):
            of[j : 3 * parts[j] : 3] = j
    batch, tokens = places.shape[1:]
    flat = c.reshape(
        c.transpose(c.op("gather", places, c.const(of.astype(np.int64)), axis=0), (1, 2, 0)), (batch * tokens, half)
    )

    def angles(table: Value) -> Value:
        rows = c.op("gather_elements", c.slice(table, 1, 0, half), flat, axis=0)
        scaled = (
            c.op("multiply", rows, c.like(float(c.attr("scale", 1.0)), rows)) if c.attr("scale", 1.0) != 1.0 else rows
        )
        return c.reshape(scaled, (batch, tokens, 1, half))

    y = c.op("rotary", own, angles(cos), angles(sin), interleaved=bool(c.attr("interleaved", 0)))
    return c.reshape(y, x.shape) if x.ndim == 3 else c.transpose(y, (0, 2, 1, 3))


@onnx_op("QEmbedLayerNormalization", domain=MS)
def quantized_embed_layer_norm(c: Call) -> Outputs:
    """EmbedLayerNormalization of tables, gamma and beta of bytes, each with a scale and a zero point."""
    tables = [dequantize(c, c[k], c[k + 6], c.get(k + 11)) if c.has(k) else None for k in (2, 3, 4, 5, 6)]
    y = ops_nn.embed_layer_norm(Only(c, [c[0], c.get(1), *tables, c.get(7)]))
    return Outputs(list(y)[:2])
