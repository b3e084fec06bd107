"""ONNX operators of neural networks: convolutions, pooling, normalization, matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.ops.dims import maximum, require

from .importer import Call, Outputs, onnx_op
from .ops_shape import axis_of

# ---- windows


def window_pads(c: Call, space: Any, kernel: Any, strides: Any, dilations: Any) -> tuple[list[int], list[int]]:
    """Padding before and after each spatial dimension, from `pads` or `auto_pad`."""
    nd = len(space)
    auto = c.attr("auto_pad", "NOTSET") or "NOTSET"
    if auto == "NOTSET":
        pads = c.attr("pads", [0] * 2 * nd)
        if len(pads) != 2 * nd:
            raise ImportModelError(f"pads {pads} for {nd} spatial dimensions")
        return list(pads[:nd]), list(pads[nd:])
    if auto == "VALID":
        return [0] * nd, [0] * nd
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise ImportModelError(f"auto_pad {auto!r}")
    before, after = [], []
    for n, k, s, d in zip(space, kernel, strides, dilations):
        total = maximum(((n + s - 1) // s - 1) * s + d * (k - 1) + 1 - n, 0)
        small, large = total // 2, total - total // 2
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return before, after


def _spatial(c: Call, nd: int, name: str) -> list[int]:
    values = c.attr(name) or [1] * nd
    if len(values) != nd:
        raise ImportModelError(f"{name} {values} for {nd} spatial dimensions")
    return list(values)


def channel_shape(value: Value, ndim: int) -> tuple[int, ...]:
    return (value.type.size, *[1] * (ndim - 2))


def convolution(c: Call, x: Value, w: Value, bias: Value | None = None) -> Value:
    nd = x.ndim - 2
    if w.ndim != x.ndim or nd < 1:
        raise ImportModelError(f"convolution of {x.type} by {w.type}")
    kernel = c.attr("kernel_shape")
    if kernel is not None and tuple(kernel) != w.shape[2:]:
        raise ImportModelError(f"kernel_shape {kernel}, weights {w.type}")
    strides, dilations = _spatial(c, nd, "strides"), _spatial(c, nd, "dilations")
    before, after = window_pads(c, x.shape[2:], w.shape[2:], strides, dilations)
    y = c.op(
        "conv", x, w, strides=tuple(strides), dilations=tuple(dilations), before=tuple(before), after=tuple(after),
        groups=c.attr("group", 1),
    )  # fmt: skip
    return y if bias is None else c.op("add", y, c.reshape(bias, channel_shape(bias, x.ndim)))


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


def transposed_by_phases(
    c: Call, x: Value, w: Value, strides: list[int], before: list[int], out: list[int], groups: int
) -> Value:
    """A transposed convolution as a plain one with an output channel for each phase of the stride, then interleaved.

    Output place y + before = q * stride + p takes input q - t by window place p + t * stride: for each phase p a
    convolution of stride 1 over q. No multiplication by stuffed zeros is left, and the convolution's own schedules serve.
    """
    nd = x.ndim - 2
    n, cin = x.shape[:2]
    cout, kernel, space = w.shape[1], w.shape[2:], x.shape[2:]
    steps = [-(-k // s) for k, s in zip(kernel, strides)]
    count = [-(-(o + b) // s) for o, b, s in zip(out, before, strides)]
    fill = tuple(t * s - k for t, s, k in zip(steps, strides, kernel))
    if any(fill):
        w = c.op("pad", w, before=(0,) * w.ndim, after=(0, 0, *fill))
    split = [v for t, s in zip(steps, strides) for v in (t, s)]
    w = c.reshape(w, (groups, cin // groups, cout, *split))
    turned = [3 + 2 * d for d in range(nd)]
    w = c.op(
        "slice", w, starts=tuple(w.shape[k] - 1 if k in turned else 0 for k in range(w.ndim)),
        steps=tuple(-1 if k in turned else 1 for k in range(w.ndim)), sizes=w.shape,
    )  # fmt: skip
    w = c.transpose(w, (0, 2, *[4 + 2 * d for d in range(nd)], 1, *turned))
    phases = math.prod(strides)
    w = c.reshape(w, (groups * cout * phases, cin // groups, *steps))
    # With fewer places than inputs the tail of the input is not read.
    after = tuple(max(q - m, 0) for q, m in zip(count, space))
    y = c.op(
        "conv",
        x,
        w,
        strides=(1,) * nd,
        dilations=(1,) * nd,
        before=tuple(t - 1 for t in steps),
        after=after,
        groups=groups,
    )
    for d, q in enumerate(count):
        y = c.slice(y, 2 + d, 0, q)
    if phases > 1:
        y = c.reshape(y, (n, groups * cout, *strides, *count))
        y = c.transpose(y, (0, 1, *[k for d in range(nd) for k in (2 + nd + d, 2 + d)]))
        y = c.reshape(y, (n, groups * cout, *[q * s for q, s in zip(count, strides)]))
    for d, (b, o) in enumerate(zip(before, out)):
        have = y.shape[2 + d] - b
        y = c.slice(y, 2 + d, b, min(o, have))
        if have < o:
            y = c.op("pad", y, before=(0,) * y.ndim, after=tuple(o - have if k == 2 + d else 0 for k in range(y.ndim)))
    return y


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
    if all(d == 1 for d in dilations):
        y = transposed_by_phases(c, x, w, strides, before, out, c.attr("group", 1))
        return c.op("add", y, c.reshape(c[2], channel_shape(c[2], x.ndim))) if c.has(2) else y
    y = c.op(
        "conv_transpose", x, w, strides=tuple(strides), dilations=tuple(dilations), before=tuple(before),
        out_space=tuple(out), groups=c.attr("group", 1),
    )  # fmt: skip
    return c.op("add", y, c.reshape(c[2], channel_shape(c[2], x.ndim))) if c.has(2) else y


def _pool(c: Call, name: str, **more: Any) -> list[Value]:
    x = c[0]
    nd = x.ndim - 2
    kernel = list(c.attr("kernel_shape"))
    if len(kernel) != nd:
        raise ImportModelError(f"kernel_shape {kernel} for {x.type}")
    strides, dilations = _spatial(c, nd, "strides"), _spatial(c, nd, "dilations")
    before, after = window_pads(c, x.shape[2:], kernel, strides, dilations)
    out, reach = [], []
    for k, n in enumerate(x.shape[2:]):
        window = dilations[k] * (kernel[k] - 1) + 1
        span = n + before[k] + after[k] - window
        if c.attr("ceil_mode", 0) and isinstance(span, int) and -strides[k] < span < 0 and dilations[k] == 1:
            # One window that overhangs its input (EfficientNet's last pooling): what it covers is all there is.
            kernel[k], window, span = kernel[k] + span, window + span, 0
        if not require(0, "<=", span, f"windows of {kernel} over {x.type}"):
            raise ImportModelError(f"window {kernel} is larger than the padded input {x.type}")
        count = (-(-span // strides[k]) if c.attr("ceil_mode", 0) else span // strides[k]) + 1
        # A window that would start in the padding at the end does not count.
        if c.attr("ceil_mode", 0) and (count - 1) * strides[k] >= n + before[k]:
            count -= 1
        out.append(count)
        reach.append(maximum((count - 1) * strides[k] + window - n - before[k], after[k], 0))
    return c.ops(
        name, x, kernel=tuple(kernel), strides=tuple(strides), dilations=tuple(dilations), before=tuple(before),
        after=tuple(reach), out_space=tuple(out), **{k: v(after) if callable(v) else v for k, v in more.items()},
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
    x, p = c[0], int(c.attr("p", 2))
    axes = tuple(range(2, x.ndim))
    if p == 2:
        return c.op("sqrt", c.op("reduce_sum_square", x, axes=axes, keepdims=True))
    if p == 1:
        return c.op("reduce_sum_abs", x, axes=axes, keepdims=True)
    total = c.op("reduce_sum", c.op("power", c.op("abs", x), c.like(p, x)), axes=axes, keepdims=True)
    return c.op("power", total, c.like(1 / p, x))


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
    shape = channel_shape(scale, x.ndim)
    running: list[Any] = []
    if c.attr("training_mode", 0):
        axes = (0, *range(2, x.ndim))
        now = c.op("reduce_mean", x, axes=axes, keepdims=True)
        d = c.op("subtract", x, now)
        spread = c.op("reduce_mean", c.op("square", d), axes=axes, keepdims=True)

        def blend(old: Value, new: Value) -> Value:
            new = c.cast(c.reshape(new, old.shape), old.dtype)
            return c.op(
                "add", c.op("multiply", old, c.like(momentum, old)), c.op("multiply", new, c.like(1 - momentum, old))
            )

        running = [blend(mean, now), blend(var, spread)]
        mean, var = c.cast(c.reshape(now, mean.shape), mean.dtype), c.cast(c.reshape(spread, var.shape), var.dtype)
    wide = var.dtype
    inverse = c.op("reciprocal", c.op("sqrt", c.op("add", var, c.like(eps, var))))
    factor = c.op("multiply", c.cast(scale, wide), inverse)
    offset = c.op("subtract", c.cast(bias, wide), c.op("multiply", mean, factor))
    factor, offset = (c.cast(c.reshape(v, shape), x.dtype) for v in (factor, offset))
    y = c.op("add", c.op("multiply", x, factor), offset)
    return Outputs([y, *running]) if running else Outputs([y, *[None] * (c.num_outputs - 1)])


@onnx_op("InstanceNormalization")
def instance_norm(c: Call) -> Value:
    x, scale, bias = c[0], c[1], c[2]
    rows = c.reshape(x, (*x.shape[:2], math.prod(x.shape[2:])))
    y = c.reshape(c.ops("layer_norm", rows, axis=2, epsilon=float(c.attr("epsilon", 1e-5)))[0], x.shape)
    shape = channel_shape(scale, x.ndim)
    return c.op("add", c.op("multiply", y, c.reshape(scale, shape)), c.reshape(bias, shape))


def layer_normalization(c: Call, x: Value, scale: Value | None, bias: Value | None, axis: int, eps: float) -> Outputs:
    y, mean, inverse = c.ops("layer_norm", x, axis=axis_of(axis, x.ndim), epsilon=float(eps))
    if scale is not None:
        y = c.op("multiply", y, c.cast(scale, y.dtype))
    if bias is not None:
        y = c.op("add", y, c.cast(bias, y.dtype))
    return Outputs([y, mean, inverse])


@onnx_op("LayerNormalization")
def layer_norm(c: Call) -> Outputs:
    return layer_normalization(c, c[0], c.get(1), c.get(2), c.attr("axis", -1), c.attr("epsilon", 1e-5))


@onnx_op("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_norm(c: Call) -> Outputs:
    total = c.op("add", c[0], c[1])
    if c.has(4):
        total = c.op("add", total, c[4])
    out = layer_normalization(c, total, c[2], c.get(3), -1, c.attr("epsilon", 1e-12))
    return Outputs([*out, total])


@onnx_op("EmbedLayerNormalization", domain="com.microsoft")
def embed_layer_norm(c: Call) -> Outputs:
    ids = c[0]
    total = c.op("gather", c[2], ids, axis=0)
    places = c[8] if c.has(8) else c.const(np.arange(ids.shape[1], dtype=np.int64)[None])
    total = c.op("add", total, c.op("gather", c[3], places, axis=0))
    if c.has(1) and c.has(4):
        total = c.op("add", total, c.op("gather", c[4], c[1], axis=0))
    y = layer_normalization(c, total, c[5], c[6], -1, c.attr("epsilon", 1e-12))[0]
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
    x, p = c[0], c.attr("p", 2)
    axis = axis_of(c.attr("axis", -1), x.ndim)
    if p == 1:
        norm = c.op("reduce_sum_abs", x, axes=(axis,), keepdims=True)
    else:
        norm = c.op("sqrt", c.op("reduce_sum_square", x, axes=(axis,), keepdims=True))
    zero = c.op("equal", norm, c.like(0, x))
    return c.op("where", zero, c.like(0, x), c.op("divide", x, norm))


@onnx_op("Softmax", "LogSoftmax")
def softmax(c: Call) -> Value:
    x = c[0]
    axis = axis_of(c.attr("axis", 1 if c.opset < 13 else -1), x.ndim)
    axes = tuple(range(axis, x.ndim)) if c.opset < 13 else (axis,)
    return c.op("softmax" if c.op_type == "Softmax" else "log_softmax", x, axes=axes)


# ---- matrix products


def matmul_values(c: Call, a: Value, b: Value, **attrs: Any) -> Value:
    """NumPy's matmul: vectors are rows or columns that vanish from the result."""
    x = c.reshape(a, (1, a.shape[0])) if a.ndim == 1 else a
    y = c.reshape(b, (b.shape[0], 1)) if b.ndim == 1 else b
    if y.ndim == 2 and x.ndim > 2 and not attrs.get("transpose_a") and x.type.size:
        # One product of all rows with the same matrix.
        rows = c.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
        flat = c.op("matmul", rows, y, **attrs)
        out = c.reshape(flat, (*x.shape[:-1], flat.shape[-1]))
    else:
        out = c.op("matmul", x, y, **attrs)
    shape = list(out.shape)
    if a.ndim == 1:
        del shape[-2]
    if b.ndim == 1:
        del shape[-1]
    return c.reshape(out, shape)


@onnx_op("MatMul")
def matmul(c: Call) -> Value:
    return matmul_values(c, c[0], c[1])


@onnx_op("FusedMatMul", domain="com.microsoft")
def fused_matmul(c: Call) -> Value:
    y = matmul_values(c, c[0], c[1], transpose_a=bool(c.attr("transA", 0)), transpose_b=bool(c.attr("transB", 0)))
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
    return c.op("add", y, c.reshape(c[3], channel_shape(c[3], x.ndim))) if c.has(3) else y


@onnx_op("Det")
def det(c: Call) -> Value:
    """By cofactors up to three rows, on the host above."""
    x = c[0]
    n = x.shape[-1]
    if x.shape[-2] != n:
        raise ImportModelError(f"the determinant of {x.type}")
    if n > 3:
        return c.const(np.linalg.det(c.importer.value_of(x, "a determinant")), x.dtype)

    def at(i: int, j: int) -> Value:
        return c.reshape(c.slice(c.slice(x, -2, i, 1), -1, j, 1), x.shape[:-2])

    def minor(rows: list[int], cols: list[int]) -> Value:
        if len(rows) == 1:
            return at(rows[0], cols[0])
        total = None
        for k, j in enumerate(cols):
            term = c.op("multiply", at(rows[0], j), minor(rows[1:], cols[:k] + cols[k + 1 :]))
            total = term if total is None else c.op("subtract" if k % 2 else "add", total, term)
        assert total is not None
        return total

    return minor(list(range(n)), list(range(n)))
