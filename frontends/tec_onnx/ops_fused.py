"""Operators of com.microsoft that ONNX Runtime's graph optimizers write for diffusion models, relative positions, gated layers and whole-number arithmetic.

Sources: the operators' definitions in ONNX Runtime's documentation of its contrib operators; for RelativePositionBias, whose table lies transposed under the
shape of the untransposed one, and its buckets, the T5 model of transformers and ONNX Runtime's fusion of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import fourier, norm
from tec.graph.builders.matmul import matmul

from . import ops_nn
from .call import UNFUSED
from .importer import Call, Outputs, onnx_op
from .ops_quant import Only

MS = "com.microsoft"


# ---- diffusion


@onnx_op("SkipGroupNorm", domain=MS)
def skip_group_norm(c: Call) -> Outputs:
    """GroupNorm of x + skip + bias, and that sum."""
    x, skip = c[0], c[3]
    last = bool(c.attr("channels_last", 1))
    at = 1 if not last else x.ndim - 1
    of_channels = tuple(x.shape[at] if k == at else 1 for k in range(x.ndim))
    if skip.ndim == 2 or skip.shape != x.shape:
        skip = c.reshape(skip, (x.shape[0], *of_channels[1:]))
    total = c.op("add", x, skip)
    if c.has(4):
        total = c.op("add", total, c.reshape(c[4], of_channels))
    y = c.transpose(total, (0, x.ndim - 1, *range(1, x.ndim - 1))) if last else total
    groups, epsilon = int(c.attr("groups")), float(c.attr("epsilon", 1e-5))
    y = norm.scale_channels(c, norm.group_norm(c, y, groups, epsilon)[0], c[1], c[2])
    if c.attr("activation", 0):
        y = c.op("silu", y, alpha=1.0)
    return Outputs((c.transpose(y, (0, *range(2, y.ndim), 1)) if last else y, total))


@onnx_op("NhwcConv", "NhwcFusedConv", domain=MS)
def nhwc_conv(c: Call) -> Value:
    """Channels are last in the input, in what is added and in the result; weights keep the standard's order."""

    def moved(k: int) -> Any:
        return c.transpose(c[k], (0, c[k].ndim - 1, *range(1, c[k].ndim - 1))) if c.has(k) else None

    y: Value = ops_nn.fused_conv(Only(c, [moved(0), c.get(1), c.get(2), moved(3)]))  # type: ignore[arg-type]
    return c.transpose(y, (0, *range(2, y.ndim), 1))


# ---- relative positions


@onnx_op("RelativePositionBias", domain=MS)
def relative_position_bias(c: Call) -> Value:
    """T5's: (1, heads, queries, keys) of a table of buckets of distances, of which the far ones grow by a constant factor."""
    table = c[0]
    buckets, heads = (int(n) for n in table.shape)
    (queries,), (keys,) = c.ints(1), c.ints(2)
    both = bool(c.attr("is_bidirectional", 0))
    rows = c.reshape(c.op("iota", size=queries, start=0, step=1, dtype="int32"), (queries, 1))
    ahead = c.op("subtract", c.op("iota", size=keys, start=0, step=1, dtype="int32"), rows)
    count, zero = buckets // 2 if both else buckets, c.const(0, "int32")
    distance = c.op("abs", ahead) if both else c.op("neg", c.op("minimum", ahead, zero))
    exact = count // 2
    share = c.op("log", c.op("divide", c.cast(c.op("maximum", distance, c.const(1, "int32")), "float32"), c.const(float(exact), "float32")))  # fmt: skip
    factor = (count - exact) / math.log(int(c.attr("max_distance")) / exact)
    far = c.op("add", c.cast(c.op("multiply", share, c.const(factor, "float32")), "int32"), c.const(exact, "int32"))
    near = c.op("less", distance, c.const(exact, "int32"))
    bucket = c.op("where", near, distance, c.op("minimum", far, c.const(count - 1, "int32")))
    if both:
        beyond = c.op("where", c.op("greater", ahead, zero), c.const(count, "int32"), zero)
        bucket = c.op("add", bucket, beyond)
    return c.unsqueeze(c.op("gather", c.reshape(table, (heads, buckets)), bucket, axis=1), 0)


@onnx_op("GatedRelativePositionBias", domain=MS)
def gated_relative_position_bias(c: Call) -> Value:
    """WavLM's: positions scaled by two gates of each query."""
    x, bias, positions, weight, gate_bias, eco = (c[k] for k in range(6))
    if c.has(6) or x.ndim != 3:
        raise ImportModelError(
            "GatedRelativePositionBias of tokens without padding",
            hint=f"{UNFUSED}; or put the padding back, which makes the input three-dimensional",
        )
    heads = int(c.attr("num_heads"))
    batch, length, width = x.shape
    queries = c.reshape(c.op("add", x, bias), (batch, length, heads, width // heads))
    queries = c.transpose(queries, (0, 2, 1, 3))
    gates = c.op("add", matmul(c, queries, weight), gate_bias)
    halves = c.reshape(gates, (batch, heads, length, 2, gates.shape[-1] // 2))
    gates = c.op("sigmoid", c.op("reduce_sum", halves, axes=(4,), keepdims=False))
    update, reset = c.slice(gates, 3, 0, 1), c.slice(gates, 3, 1, 1)
    inside = c.op("subtract", c.op("multiply", reset, eco), c.like(1.0, eco))
    return c.op("multiply", c.op("add", c.op("multiply", update, inside), c.like(2.0, update)), positions)


@onnx_op("GemmaRotaryEmbedding", domain=MS)
def gemma_rotary_embedding(c: Call) -> Outputs:
    """Queries and keys, turned by angles; their halves come exchanged as inputs of their own."""
    angles = c.unsqueeze(c[0], 1)
    cos, sin = (c.cast(c.op(f, angles), c[1].dtype) for f in ("cos", "sin"))
    turned = [c.op("add", c.op("multiply", c[k], cos), c.op("multiply", c[k + 1], sin)) for k in (1, 3)]
    return Outputs(turned)


# ---- gates and norms


@onnx_op("SwiGLU", domain=MS)
def swiglu(c: Call) -> Value:
    """gate * sigmoid(alpha gate) * (up + beta), in float32; both halves may be clamped, and may come side by side."""
    gate = c[0]
    half = gate.shape[-1] // 2
    gate, up = (gate, c[1]) if c.has(1) else (c.slice(gate, -1, 0, half), c.slice(gate, -1, half, half))
    dtype, limit = gate.dtype, float(c.attr("limit", 0.0))
    gate, up = c.cast(gate, "float32"), c.cast(up, "float32")
    if limit > 0:
        gate = c.op("minimum", gate, c.like(limit, gate))
        up = c.op("clip", up, low=-limit, high=limit)
    gate = c.op("silu", gate, alpha=float(c.attr("activation_alpha", 1.0)))
    if c.attr("round_activation", 0):
        gate = c.cast(c.cast(gate, dtype), "float32")
    beta = float(c.attr("activation_beta", 0.0))
    return c.cast(c.op("multiply", gate, c.op("add", up, c.like(beta, up)) if beta else up), dtype)


@onnx_op("BranchwiseRMSNorm", domain=MS)
def branchwise_rms_norm(c: Call) -> Value:
    """Each branch of (..., branches, width), or of both in one dimension, by its own mean square."""
    x, branches = c[0], int(c.attr("num_branches", 0) or 0)
    split = c.reshape(x, (*x.shape[:-1], branches, x.shape[-1] // branches)) if branches else x
    scale = c[1] if c.has(1) else c.const(np.ones(int(split.shape[-1])), x.dtype)
    if scale.ndim == 1 and scale.shape[0] != split.shape[-1]:
        scale = c.reshape(scale, split.shape[-2:])
    wide = norm.rms_norm(c, c.cast(split, "float32"), c.cast(scale, "float32"), -1, float(c.attr("epsilon", 1e-5)))[0]
    return c.reshape(c.cast(wide, x.dtype), x.shape)


# ---- transforms and complex numbers, whose parts are the last dimension


def _one_dimension(c: Call) -> None:
    if c.attr("signal_ndim", 1) != 1 or not c.attr("onesided", 1) or c.attr("normalized", 0):
        raise ImportModelError(
            f"{c.op_type} over several dimensions, of both sides or normalized",
            hint="signal_ndim 1, onesided 1 and normalized 0 are compiled; the standard's DFT takes the other forms, one dimension at a time",
        )


@onnx_op("Rfft", domain=MS)
def rfft(c: Call) -> Value:
    _one_dimension(c)
    x = c[0]
    parts = fourier.transform(c, (x, None), x.ndim - 1, rows=int(x.shape[-1]) // 2 + 1)
    return c.stack(parts, x.ndim)


@onnx_op("Irfft", domain=MS)
def irfft(c: Call) -> Value:
    """Of an even number of places, by its length."""
    _one_dimension(c)
    real, imag = _parts(c, c[0])
    n = 2 * (int(real.shape[-1]) - 1)
    return fourier.real_inverse(c, (real, imag), real.ndim - 1, n, 1.0 / n)


def _parts(c: Call, x: Value) -> tuple[Value, Value]:
    return c.take(x, x.ndim - 1, 0), c.take(x, x.ndim - 1, 1)


@onnx_op("ComplexMul", "ComplexMulConj", domain=MS)
def complex_mul(c: Call) -> Value:
    (ar, ai), (br, bi) = _parts(c, c[0]), _parts(c, c[1])
    if c.op_type.endswith("Conj"):
        bi = c.op("neg", bi)
    real = c.op("subtract", c.op("multiply", ar, br), c.op("multiply", ai, bi))
    imag = c.op("add", c.op("multiply", ar, bi), c.op("multiply", ai, br))
    return c.stack((real, imag), real.ndim)


# ---- whole numbers


@onnx_op("MulInteger", domain=MS)
def mul_integer(c: Call) -> Value:
    """(A - zero) (B - zero) in int32."""

    def off(k: int) -> Value:
        x = c.cast(c[k], "int32")
        return c.op("subtract", x, c.cast(c[k + 1], "int32")) if c.has(k + 1) else x

    return c.op("multiply", off(0), off(2))


@onnx_op("ReduceSumInteger", domain=MS)
def reduce_sum_integer(c: Call) -> Value:
    x = c.cast(c[0], "int32" if c[0].dtype.startswith("int") else "uint32")
    axes = tuple(k % x.ndim for k in c.attr("axes", None) or range(x.ndim))
    return c.op("reduce_sum", x, axes=axes, keepdims=bool(c.attr("keepdims", 1)))


@onnx_op("MatMulInteger16", domain=MS)
def matmul_integer16(c: Call) -> Any:
    """Of 16 bits, summed in 32."""
    wide = "int32" if "int16" in (c[0].dtype, c[1].dtype) else "uint32"
    return matmul(c, c.cast(c[0], wide), c.cast(c[1], wide))
