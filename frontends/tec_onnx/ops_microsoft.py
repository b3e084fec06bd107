"""Operators of ONNX Runtime's own domain, com.microsoft, that its quantizer and its optimizer write: QLinear*, fused products.

Sources: the operators' definitions in ONNX Runtime's documentation of its contrib operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of, linear_algebra, norm
from tec.graph.builders.matmul import matmul
from tec.graph.builders.packed import packed_constant
from tec.graph.builders.quantize import dequantize, integer_matmul, quantize

from . import ops_image, ops_quant, ops_shape
from .importer import Call, onnx_op
from .ops_nn import average_pool, fused_matmul, gemm
from .ops_quant import Only

MS = "com.microsoft"

# The same as in the standard.
for _name, _function in (
    ("QuantizeLinear", ops_quant.quantize_linear), ("DequantizeLinear", ops_quant.dequantize_linear), ("Pad", ops_shape.pad),
    ("Trilu", ops_shape.trilu), ("GridSample", ops_image.grid_sample), ("TransposeMatMul", fused_matmul),
):  # fmt: skip
    onnx_op(_name, domain=MS)(_function)


# ---- quantized


def stored(c: Call, y: Value, scale: Value, zero: Value | None, dtype: str) -> Value:
    return quantize(c, y, c.reshape(scale, ()), c.reshape(zero, ()) if zero is not None else None, dtype)


@onnx_op("QLinearAdd", "QLinearMul", domain=MS)
def qlinear_binary(c: Call) -> Value:
    a, b = dequantize(c, c[0], c[1], c.get(2)), dequantize(c, c[3], c[4], c.get(5))
    return stored(c, c.op("add" if c.op_type == "QLinearAdd" else "multiply", a, b), c[6], c.get(7), c[0].dtype)


@onnx_op("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", domain=MS)
def qlinear_unary(c: Call) -> Value:
    x = dequantize(c, c[0], c[1], c.get(2))
    if c.op_type == "QLinearSigmoid":
        y = c.op("sigmoid", x)
    elif c.op_type == "QLinearLeakyRelu":
        y = c.op("leaky_relu", x, alpha=float(c.attr("alpha", 0.01)))
    else:
        axis = axis_of(c.attr("axis", -1), x.ndim)
        old = int(c.attr("opset", 13)) < 13
        y = c.op("softmax", x, axes=tuple(range(axis, x.ndim)) if old else (axis,))
    return stored(c, y, c[3], c.get(4), c[0].dtype)


@onnx_op("QLinearGlobalAveragePool", "QLinearAveragePool", domain=MS)
def qlinear_pool(c: Call) -> Value:
    x = dequantize(c, c[0], c[1], c.get(2))
    last = bool(c.attr("channels_last", 0))
    if last:
        x = c.transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))
    if c.op_type == "QLinearGlobalAveragePool":
        y = c.op("reduce_mean", x, axes=tuple(range(2, x.ndim)), keepdims=True)
    else:
        y = average_pool(Only(c, [x]))
    if last:
        y = c.transpose(y, (0, *range(2, y.ndim), 1))
    return stored(c, y, c[3], c.get(4), c[0].dtype)


@onnx_op("QLinearConcat", domain=MS)
def qlinear_concat(c: Call) -> Value:
    parts = [dequantize(c, c[k], c[k + 1], c.get(k + 2)) for k in range(2, len(c.inputs), 3)]
    return stored(c, c.concat(parts, c.attr("axis")), c[0], c.get(1), c[2].dtype)


@onnx_op("QLinearReduceMean", domain=MS)
def qlinear_reduce_mean(c: Call) -> Value:
    x = dequantize(c, c[0], c[1], c.get(2))
    axes = tuple(axis_of(a, x.ndim) for a in c.attr("axes") or range(x.ndim))
    return stored(c, c.op("reduce_mean", x, axes=axes, keepdims=c.attr("keepdims", 1) == 1), c[3], c.get(4), c[0].dtype)


@onnx_op("QLinearWhere", domain=MS)
def qlinear_where(c: Call) -> Value:
    y = c.op("where", c[0], dequantize(c, c[1], c[2], c.get(3)), dequantize(c, c[4], c[5], c.get(6)))
    return stored(c, y, c[7], c.get(8), c[1].dtype)


@onnx_op("QGemm", domain=MS)
def q_gemm(c: Call) -> Value:
    a, b, sb, zb = c[0], c[3], c[4], c.get(5)
    if c.attr("transA", 0):
        a = c.transpose(a, (1, 0))
    if c.attr("transB", 0):
        b = c.transpose(b, (1, 0))
    y = integer_matmul(c, a, b, c.get(2), zb)
    if c.has(6):
        y = c.op("add", y, c[6])
    scale = c.op("multiply", c.reshape(c[1], ()), c.reshape(sb, ()) if sb.type.size == 1 else sb)
    y = c.op("multiply", c.cast(y, "float32"), c.op("multiply", scale, c.like(float(c.attr("alpha", 1.0)), scale)))
    return stored(c, y, c[7], c.get(8), c[0].dtype) if c.has(7) else y


@onnx_op("MatMulNBits", domain=MS)
def matmuln_bits(c: Call) -> Value:
    """Weights of a few bits, in blocks along K with a scale each. They stay packed; those of 2 bits take 4. With g_idx, which says the block of each row,
    rows are put in the order of their blocks and the input's with them. accuracy_level 4 lets the input be rounded to bytes, block by block."""
    k, n, bits, block = (int(c.attr(name, d)) for name, d in (("K", 0), ("N", 0), ("bits", 4), ("block_size", 32)))
    if bits not in (2, 4, 8) or block < 1 or k < 1 or n < 1:
        raise ImportModelError(
            f"MatMulNBits of {bits} bits, {k} by {n} in blocks of {block}",
            hint="2, 4 or 8 bits, with K, N and block_size above 0: quantize the model again",
        )
    blocks = -(-k // block)
    codes = n_bits(c.array(1), bits, n, blocks * block)[:, :k]
    scales = np.asarray(c.array(2)).reshape(n, blocks)
    zeros = None
    if c.has(3):
        given = np.asarray(c.array(3))
        zeros = n_bits(given, bits, n, blocks) if given.dtype == np.uint8 else given.reshape(n, blocks)
    elif bits == 2:
        zeros = np.full((n, blocks), 2, np.uint8)
    x = c[0]
    if c.has(4):
        group = np.asarray(c.array(4)).reshape(-1)
        order = np.argsort(group, kind="stable")
        if group.shape != (k,) or not np.array_equal(group[order], np.arange(k) // block):
            raise ImportModelError(
                "MatMulNBits with a g_idx whose blocks have not all as many rows",
                hint=f"each group has {block} of the {k} rows: quantize without reordering by activation (desc_act, g_idx), or with groups that divide K",
            )
        if not np.array_equal(order, np.arange(k)):
            codes, x = codes[:, order], c.op("gather", x, c.const(order.astype(np.int64)), axis=x.ndim - 1)
    w = packed_constant(
        c, codes, max(bits, 4), scales, zeros, 1, block, x.dtype, c[2].dtype, int(c.attr("accuracy_level", 0)) == 4
    )
    y = matmul(c, x, w, transpose_b=True)
    return c.op("add", y, c[5]) if c.has(5) else y


def n_bits(a: Any, bits: int, n: int, count: int) -> Any:
    """Rows of numbers side by side in bytes, the first one lowest, one a byte: `count` of each row."""
    a, per = np.asarray(a, np.uint8).reshape(n, -1), 8 // bits
    wide = np.stack([(a >> (bits * j)) & ((1 << bits) - 1) for j in range(per)], -1)
    return wide.reshape(n, -1)[:, :count]


@onnx_op("GatherBlockQuantized", domain=MS)
def gather_block_quantized(c: Call) -> Value:
    """Rows of a table of 4 or 8 bits, in blocks along `quantize_axis` with a scale each; numbers are made of the rows that are taken."""
    data, indices, scale = c[0], c[1], c[2]
    bits, block = int(c.attr("bits", 4)), int(c.attr("block_size", 128))
    if data.dtype in ("int4", "uint4"):
        bits = 4
    elif data.dtype != "uint8" or bits not in (4, 8):
        raise ImportModelError(
            f"GatherBlockQuantized of {data.type} with {bits} bits", hint="int4, uint4, or uint8 with bits 4 or 8"
        )
    axis, along = axis_of(c.attr("gather_axis", 0), data.ndim), axis_of(c.attr("quantize_axis", 1), data.ndim)
    codes = np.asarray(c.array(0))
    rows = scale.shape[-1]
    if data.dtype == "uint8":
        flat = n_bits(codes, bits, int(np.prod(codes.shape[:-1])), codes.shape[-1] * 8 // bits)
        codes = flat.reshape(*codes.shape[:-1], -1)
    shift = 8 if data.dtype == "int4" else 0
    zeros: Any = np.full(scale.shape, shift or (1 << (bits - 1) if data.dtype == "uint8" else 0), np.uint8)
    if c.has(3):
        given = np.asarray(c.array(3))
        if data.dtype == "uint8":
            given = n_bits(given, bits, int(np.prod(scale.shape[:-1])), rows).reshape(scale.shape)
        zeros = (given.astype(np.int16) + shift).astype(np.uint8)
    codes = (codes.astype(np.int16) + shift).astype(np.uint8)
    table = packed_constant(c, codes, bits, np.asarray(c.array(2)), zeros, along, block, scale.dtype, scale.dtype)
    return c.op("gather", table, indices, axis=axis)


# ---- fused


def activated(c: Call, y: Value, kind: str) -> Value:
    if kind in ("", "Relu", "Tanh", "Sigmoid"):
        return c.op(kind.lower(), y) if kind else y
    alpha, beta = c.attr("activation_alpha", 0.01), c.attr("activation_beta", 0.5)
    if kind == "LeakyRelu":
        return c.op("leaky_relu", y, alpha=float(alpha))
    if kind == "HardSigmoid":
        return c.op("hard_sigmoid", y, alpha=float(alpha), beta=float(beta))
    raise ImportModelError(
        f"activation {kind!r} of {c.op_type}",
        hint="Relu, Sigmoid, Tanh, LeakyRelu or HardSigmoid; or undo the fusion and leave the activation as a node",
    )


@onnx_op("FusedGemm", domain=MS)
def fused_gemm(c: Call) -> Value:
    return activated(c, gemm(c), c.attr("activation", ""))


@onnx_op("GemmFastGelu", domain=MS)
def gemm_fast_gelu(c: Call) -> Value:
    y = matmul(c, c[0], c[1])
    return c.op("gelu_tanh", c.op("add", y, c[2]) if c.has(2) else y)


@onnx_op("BiasSoftmax", domain=MS)
def bias_softmax(c: Call) -> Value:
    x, bias = c[0], c[1]
    axis = axis_of(c.attr("axis", 1), x.ndim)
    if not c.attr("is_inner_broadcast", 1) and bias.ndim < x.ndim:
        bias = c.reshape(bias, (*bias.shape[:axis], *[1] * (x.ndim - bias.ndim), *bias.shape[axis:]))
    return c.op("softmax", c.op("add", x, bias), axes=tuple(range(axis, x.ndim)))


@onnx_op("BiasAdd", domain=MS)
def bias_add(c: Call) -> Value:
    return c.op("add", c.op("add", c[0], c[1]), c[2])


@onnx_op("BiasSplitGelu", domain=MS)
def bias_split_gelu(c: Call) -> Value:
    y = c.op("add", c[0], c[1])
    half = y.shape[-1] // 2
    return c.op("multiply", c.slice(y, -1, 0, half), c.op("gelu", c.slice(y, -1, half, half)))


@onnx_op("GroupNorm", domain=MS)
def group_norm(c: Call) -> Value:
    x = c[0]
    last = bool(c.attr("channels_last", 1))
    if last:
        x = c.transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))
    groups = int(c.attr("groups"))
    y = norm.scale_channels(c, norm.group_norm(c, x, groups, float(c.attr("epsilon", 1e-5)))[0], c[1], c[2])
    if c.attr("activation", 0):
        y = c.op("silu", y, alpha=1.0)
    return c.transpose(y, (0, *range(2, y.ndim), 1)) if last else y


@onnx_op("ExpandDims", domain=MS)
def expand_dims(c: Call) -> Value:
    return c.unsqueeze(c[0], int(np.asarray(c.array(1)).reshape(-1)[0]))


@onnx_op("Inverse", domain=MS)
def inverse(c: Call) -> Value:
    x = c[0]
    wide = x if x.dtype in linear_algebra.WIDE else c.cast(x, "float32")
    return c.cast(linear_algebra.inverse(c, wide)[0], x.dtype)
