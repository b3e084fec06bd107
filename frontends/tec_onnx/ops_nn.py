"""ONNX operators of neural networks: convolutions, pooling, normalization, matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of, linear_algebra, norm
from tec.graph.builders.conv import add_bias, pool_windows, same_pads
from tec.graph.builders.conv import conv_transpose as transposed
from tec.graph.builders.matmul import determinant
from tec.graph.builders.matmul import matmul as product
from tec.graph.builders.reduce import p_norm
from tec.ops.registry import unfit

from .importer import Call, Outputs, onnx_op

# ---- windows


def window_pads(c: Call, space: Any, kernel: Any, strides: Any, dilations: Any) -> tuple[list[int], list[int]]:
    """Padding before and after each spatial dimension, from `pads` or `auto_pad`."""
    nd = len(space)
    auto = c.attr("auto_pad", "NOTSET") or "NOTSET"
    if auto == "NOTSET":
        pads = c.attr("pads", [0] * 2 * nd)
        if len(pads) != 2 * nd:
            raise ImportModelError(
                f"pads {pads} for {nd} spatial dimensions",
                hint=f"{2 * nd} numbers: the begin of each spatial dimension, then the end of each",
            )
        return list(pads[:nd]), list(pads[nd:])
    if auto == "VALID":
        return [0] * nd, [0] * nd
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise ImportModelError(f"auto_pad {auto!r}", hint="NOTSET, SAME_UPPER, SAME_LOWER or VALID")
    return same_pads(space, kernel, strides, dilations, auto == "SAME_UPPER")


def _spatial(c: Call, nd: int, name: str) -> list[int]:
    values = c.attr(name) or [1] * nd
    if len(values) != nd:
        raise ImportModelError(
            f"{name} {values} for {nd} spatial dimensions",
            hint=f"{nd} numbers, one for each dimension after batch and channels",
        )
    return list(values)


def convolution(c: Call, x: Value, w: Value, bias: Value | None = None) -> Value:
    nd = x.ndim - 2
    if w.ndim != x.ndim or nd < 1:
        raise ImportModelError(
            f"convolution of {x.type} by {w.type}",
            hint="the input is (batch, channels, size ...), the weights (outputs, channels / group, window ...), with as many dimensions, three at least",
        )
    kernel = c.attr("kernel_shape")
    if kernel is not None and tuple(kernel) != w.shape[2:]:
        raise unfit(
            f"kernel_shape {kernel}, weights {w.type}",
            *zip(w.shape[2:], kernel),
            hint="kernel_shape is the weights' window; it may be left out",
        )
    strides, dilations = _spatial(c, nd, "strides"), _spatial(c, nd, "dilations")
    before, after = window_pads(c, x.shape[2:], w.shape[2:], strides, dilations)
    y = c.op(
        "conv", x, w, strides=tuple(strides), dilations=tuple(dilations), before=tuple(before), after=tuple(after),
        groups=c.attr("group", 1),
    )  # fmt: skip
    return add_bias(c, y, bias)


@onnx_op("Conv")
def conv(c: Call) -> Value:
    return convolution(c, c[0], c[1], c.get(2))


@onnx_op("FusedConv", domain="com.microsoft")
def fused_conv(c: Call) -> Value:
    y = convolution(c, c[0], c[1], c.get(2))
    if c.has(3):
        y = c.op("add", y, c[3])
    kind = c.attr("activation", "")
    params = c.attr("activation_params", [])
    if kind == "LeakyRelu":
        return c.op("leaky_relu", y, alpha=params[0])
    if kind == "Clip":
        return c.op("clip", y, low=params[0], high=params[1])
    if kind == "HardSigmoid":
        return c.op("hard_sigmoid", y, alpha=params[0], beta=params[1])
    return c.op({"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}[kind], y) if kind else y


@onnx_op("ConvTranspose")
def conv_transpose(c: Call) -> Value:
    x, w = c[0], c[1]
    nd = x.ndim - 2
    strides, dilations = _spatial(c, nd, "strides"), _spatial(c, nd, "dilations")
    extra = list(c.attr("output_padding") or [0] * nd)
    full = [(n - 1) * s + d * (k - 1) + 1 for n, s, k, d in zip(x.shape[2:], strides, w.shape[2:], dilations)]
    auto = c.attr("auto_pad", "NOTSET") or "NOTSET"
    wanted = c.attr("output_shape")
    if wanted is not None or auto.startswith("SAME"):
        out = list(wanted)[-nd:] if wanted is not None else [n * s for n, s in zip(x.shape[2:], strides)]
        # Where more is asked for than the windows reach, zeros follow at the end.
        total = [max(f + e - o, 0) for f, e, o in zip(full, extra, out)]
        before = [
            n // 2 if auto == "SAME_UPPER" or (wanted is None and auto != "SAME_LOWER") else n - n // 2 for n in total
        ]
    else:
        pads = c.attr("pads", [0] * 2 * nd) if auto == "NOTSET" else [0] * 2 * nd
        before = list(pads[:nd])
        out = [f + e - b - a for f, e, b, a in zip(full, extra, pads[:nd], pads[nd:])]
    return add_bias(c, transposed(c, x, w, strides, dilations, before, out, c.attr("group", 1)), c.get(2))


def _pool(c: Call, name: str, **more: Any) -> list[Value]:
    x = c[0]
    nd = x.ndim - 2
    kernel = c.attr("kernel_shape")
    if len(kernel) != nd:
        raise ImportModelError(
            f"kernel_shape {kernel} for {x.type}", hint=f"{nd} numbers, one for each dimension after batch and channels"
        )
    strides, dilations = _spatial(c, nd, "strides"), _spatial(c, nd, "dilations")
    before, after = window_pads(c, x.shape[2:], kernel, strides, dilations)
    windows = pool_windows(x, kernel, strides, dilations, before, after, bool(c.attr("ceil_mode", 0)))
    return c.ops(
        name, x, kernel=windows.kernel, strides=tuple(strides), dilations=tuple(dilations), before=tuple(before),
        after=windows.after, out_space=windows.out, **{k: v(after) if callable(v) else v for k, v in more.items()},
    )  # fmt: skip


@onnx_op("MaxPool")
def max_pool(c: Call) -> Any:
    if c.wants(1):
        return Outputs(_pool(c, "max_pool", indices=True, column_major=bool(c.attr("storage_order", 0))))
    return _pool(c, "max_pool")[0]


@onnx_op("AveragePool")
def average_pool(c: Call) -> Value:
    return _pool(c, "avg_pool", include_pad=bool(c.attr("count_include_pad", 0)), counted_after=tuple)[0]


@onnx_op("LpPool")
def lp_pool(c: Call) -> Value:
    return _pool(c, "lp_pool", p=int(c.attr("p", 2)))[0]


@onnx_op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(c: Call) -> Value:
    x = c[0]
    return c.op(
        "reduce_mean" if "Average" in c.op_type else "reduce_max", x, axes=tuple(range(2, x.ndim)), keepdims=True
    )


@onnx_op("GlobalLpPool")
def global_lp_pool(c: Call) -> Value:
    return p_norm(c, c[0], int(c.attr("p", 2)), tuple(range(2, c[0].ndim)), True)


@onnx_op("MaxUnpool")
def max_unpool(c: Call) -> Value:
    x, index = c[0], c[1]
    nd = x.ndim - 2
    kernel, strides = c.attr("kernel_shape"), _spatial(c, nd, "strides")
    pads = c.attr("pads", [0] * 2 * nd)
    natural = [
        (n - 1) * s + k - pads[d] - pads[d + nd] for d, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel))
    ]
    shape = c.ints(2) if c.has(2) else [*x.shape[:2], *natural]
    y = c.op("max_unpool", x, index, shape=(*x.shape[:2], *natural))
    if list(shape) == list(y.shape):
        return y
    return c.op("pad", y, before=(0,) * y.ndim, after=tuple(n - m for n, m in zip(shape, y.shape)))


# ---- normalization


@onnx_op("BatchNormalization")
def batch_norm(c: Call) -> Any:
    x, scale, bias, mean, var = (c[k] for k in range(5))
    eps, momentum = c.attr("epsilon", 1e-5), c.attr("momentum", 0.9)
    running: list[Any] = []
    if c.attr("training_mode", 0):
        now, spread = norm.batch_statistics(c, x)

        def blend(old: Value, new: Value) -> Value:
            new = c.cast(c.reshape(new, old.shape), old.dtype)
            return c.op(
                "add", c.op("multiply", old, c.like(momentum, old)), c.op("multiply", new, c.like(1 - momentum, old))
            )

        running = [blend(mean, now), blend(var, spread)]
        mean, var = c.cast(c.reshape(now, mean.shape), mean.dtype), c.cast(c.reshape(spread, var.shape), var.dtype)
    y = norm.batch_norm(c, x, scale, bias, mean, var, eps)
    return Outputs([y, *running]) if running else Outputs([y, *[None] * (c.num_outputs - 1)])


@onnx_op("MeanVarianceNormalization")
def mean_variance_norm(c: Call) -> Value:
    """Over the spread of what is left: the difference of mean squares that ONNX writes has no digits where numbers are large beside their spread. Nor has the mean, so that
    what it leaves of one is taken away too."""
    x = c[0]
    axes = tuple(axis_of(a, x.ndim) for a in c.attr("axes", [0, 2, 3]))

    def mean(of: Value) -> Value:
        return c.op("reduce_mean", of, axes=axes, keepdims=True)

    rest = c.op("subtract", x, mean(x))
    rest = c.op("subtract", rest, mean(rest))
    spread = c.op("sqrt", mean(c.op("square", rest)))
    return c.op("divide", rest, c.op("add", spread, c.like(1e-9, spread)))


@onnx_op("InstanceNormalization")
def instance_norm(c: Call) -> Value:
    y, _, _ = norm.group_norm(c, c[0], c[0].shape[1], float(c.attr("epsilon", 1e-5)))
    return norm.scale_channels(c, y, c[1], c[2])


@onnx_op("GroupNormalization")
def group_norm(c: Call) -> Value:
    """Scale and bias are of channels; before opset 21 of groups."""
    x, groups = c[0], int(c.attr("num_groups"))
    wide = c.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    y, _, _ = norm.group_norm(c, wide, groups, float(c.attr("epsilon", 1e-5)))

    def of_channels(v: Value) -> Value:
        if v.type.size == x.shape[1]:
            return v
        each = c.reshape(v, (groups, 1))
        return c.reshape(c.broadcast(each, (groups, x.shape[1] // groups)), (x.shape[1],))

    return norm.scale_channels(c, c.cast(y, x.dtype), of_channels(c[1]), of_channels(c[2]))


@onnx_op("RMSNormalization")
def rms_norm(c: Call) -> Value:
    return norm.rms_norm(c, c[0], c[1], int(c.attr("axis", -1)), float(c.attr("epsilon", 1e-5)))[0]


@onnx_op("LayerNormalization")
def layer_norm(c: Call) -> Outputs:
    return Outputs(norm.layer_norm(c, c[0], c.get(1), c.get(2), c.attr("axis", -1), c.attr("epsilon", 1e-5)))


@onnx_op("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_norm(c: Call) -> Outputs:
    total = c.op("add", c[0], c[1])
    if c.has(4):
        total = c.op("add", total, c[4])
    out = norm.layer_norm(c, total, c[2], c.get(3), -1, c.attr("epsilon", 1e-12))
    return Outputs([*out, total])


@onnx_op("EmbedLayerNormalization", domain="com.microsoft")
def embed_layer_norm(c: Call) -> Outputs:
    ids = c[0]
    total = c.op("gather", c[2], ids, axis=0)
    places = c[8] if c.has(8) else c.reshape(c.count(ids.shape[1]), (1, ids.shape[1]))
    total = c.op("add", total, c.op("gather", c[3], places, axis=0))
    if c.has(1) and c.has(4):
        total = c.op("add", total, c.op("gather", c[4], c[1], axis=0))
    y = norm.layer_norm(c, total, c[5], c[6], -1, c.attr("epsilon", 1e-12))[0]
    mask = c[7] if c.has(7) else None
    index = (
        c.op("reduce_sum", mask, axes=(1,), keepdims=False)
        if mask is not None
        else c.const(np.zeros(ids.shape[0], np.int32))
    )
    return Outputs([y, c.cast(index, "int32"), total])


@onnx_op("LRN")
def lrn(c: Call) -> Value:
    return c.op(
        "lrn",
        c[0],
        size=c.attr("size"),
        alpha=c.attr("alpha", 1e-4),
        beta=c.attr("beta", 0.75),
        bias=c.attr("bias", 1.0),
    )


@onnx_op("LpNormalization")
def lp_norm(c: Call) -> Value:
    return norm.lp_normalize(c, c[0], c.attr("p", 2), axis_of(c.attr("axis", -1), c[0].ndim))


@onnx_op("Softmax", "LogSoftmax")
def softmax(c: Call) -> Value:
    x = c[0]
    axis = axis_of(c.attr("axis", 1 if c.opset < 13 else -1), x.ndim)
    axes = tuple(range(axis, x.ndim)) if c.opset < 13 else (axis,)
    return c.op("softmax" if c.op_type == "Softmax" else "log_softmax", x, axes=axes)


# ---- matrix products


@onnx_op("MatMul")
def matmul(c: Call) -> Value:
    return product(c, c[0], c[1])


@onnx_op("FusedMatMul", domain="com.microsoft")
def fused_matmul(c: Call) -> Value:
    y = product(c, c[0], c[1], transpose_a=bool(c.attr("transA", 0)), transpose_b=bool(c.attr("transB", 0)))
    alpha = c.attr("alpha", 1.0)
    return y if alpha == 1.0 else c.op("multiply", y, c.like(alpha, y))


@onnx_op("Gemm")
def gemm(c: Call) -> Value:
    a, b = c[0], c[1]
    alpha, beta = c.attr("alpha", 1.0), c.attr("beta", 1.0)
    y = c.op("matmul", a, b, transpose_a=bool(c.attr("transA", 0)), transpose_b=bool(c.attr("transB", 0)))

    def scaled(v: Value, by: float) -> Value:
        if by == 1.0:
            return v
        if v.dtype.startswith(("int", "uint")):
            return c.cast(c.op("multiply", c.cast(v, "float64"), c.const(np.float64(by))), v.dtype)
        return c.op("multiply", v, c.like(by, v))

    y = scaled(y, alpha)
    return c.op("add", y, scaled(c[2], beta)) if c.has(2) and beta != 0 else y


@onnx_op("Einsum")
def einsum(c: Call) -> Value:
    values = [c[k] for k in range(len(c.inputs))]
    return c.op("einsum", *values, equation=c.attr("equation").replace(" ", ""))


@onnx_op("DeformConv")
def deform_conv(c: Call) -> Value:
    x, w, offset = c[0], c[1], c[2]
    strides, dilations = _spatial(c, 2, "strides"), _spatial(c, 2, "dilations")
    before, after = window_pads(c, x.shape[2:], w.shape[2:], strides, dilations)
    y = c.op(
        "deform_conv", x, w, offset, *([c[4]] if c.has(4) else []), strides=tuple(strides), dilations=tuple(dilations),
        before=tuple(before), after=tuple(after), groups=c.attr("group", 1), offset_groups=c.attr("offset_group", 1),
    )  # fmt: skip
    return add_bias(c, y, c.get(3))


@onnx_op("Det")
def det(c: Call) -> Value:
    """By cofactors up to three rows, by LU factors above."""
    x = c[0]
    if x.shape[-1] <= 3:
        return determinant(c, x)
    wide = x if x.dtype in linear_algebra.WIDE else c.cast(x, "float32")
    return c.cast(linear_algebra.determinant(c, linear_algebra.lu(c, wide)), x.dtype)
