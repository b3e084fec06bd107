"""ONNX operators on elements: arithmetic, comparison, logic, activations, casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders.quantize import to_float8
from tec.ir.dtype import FLOAT_MAX, dtype_info
from tec.te.numpy_dtype import np_dtype

from . import reader
from .casts import cast_on_host
from .importer import Call, Outputs, onnx_op

FLOATS = ("float32", "float16", "float64", "bfloat16")
FLOATS8 = tuple(d for d in FLOAT_MAX if dtype_info(d).is_float8)

_UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "HardSwish": "hard_swish", "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "neg", "Not": "logical_not",
    "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round_even", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip


@onnx_op(*_UNARY)
def unary(c: Call) -> Value:
    return c.op(_UNARY[c.op_type], c[0])


@onnx_op("Identity")
def identity(c: Call) -> Any:
    return c.get(0)


@onnx_op("Erfc")
def erfc(c: Call) -> Value:
    """No operator of ONNX: tf2onnx leaves TensorFlow's in the file where a Keras network has an exact GELU, which ONNX Runtime refuses."""
    return c.op("subtract", c.const(1, c[0].dtype), c.op("erf", c[0]))


_WITH_ATTRS: dict[str, tuple[str, dict[str, tuple[str, float]]]] = {
    # ONNX name: (operator, {its attribute: (ONNX attribute, default)})
    "LeakyRelu": ("leaky_relu", {"alpha": ("alpha", 0.01)}),
    "Elu": ("elu", {"alpha": ("alpha", 1.0)}),
    "Celu": ("celu", {"alpha": ("alpha", 1.0)}),
    "Selu": ("selu", {"alpha": ("alpha", 1.6732632423543772), "gamma": ("gamma", 1.0507009873554805)}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": ("alpha", 0.2), "beta": ("beta", 0.5)}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": ("alpha", 1.0)}),
    "Shrink": ("shrink", {"lambd": ("lambd", 0.5), "bias": ("bias", 0.0)}),
    "Swish": ("silu", {"alpha": ("alpha", 1.0)}),
}


@onnx_op(*_WITH_ATTRS)
def with_attrs(c: Call) -> Value:
    name, attrs = _WITH_ATTRS[c.op_type]
    return c.op(name, c[0], **{k: float(c.attr(onnx_name, default)) for k, (onnx_name, default) in attrs.items()})


@onnx_op("Gelu")
def gelu(c: Call) -> Value:
    return c.op("gelu_tanh" if c.attr("approximate", "none") == "tanh" else "gelu", c[0])


@onnx_op("Gelu", "FastGelu", domain="com.microsoft")
def microsoft_gelu(c: Call) -> Value:
    x = c.op("add", c[0], c[1]) if c.has(1) else c[0]
    return c.op("gelu_tanh" if c.op_type == "FastGelu" else "gelu", x)


@onnx_op("QuickGelu", domain="com.microsoft")
def quick_gelu(c: Call) -> Value:
    return c.op("silu", c[0], alpha=float(c.attr("alpha", 1.702)))


@onnx_op("IsInf")
def isinf(c: Call) -> Value:
    return c.op("isinf", c[0], positive=bool(c.attr("detect_positive", 1)), negative=bool(c.attr("detect_negative", 1)))


@onnx_op("Clip")
def clip(c: Call) -> Value:
    x = c[0]
    if c.opset < 11:
        low, high = c.attr("min"), c.attr("max")
        return c.op("clip", x, low=low, high=high) if low is not None or high is not None else x
    bounds = {}
    for k, name in ((1, "low"), (2, "high")):
        if c.has(k):
            if c[k].is_const and c[k].type.size == 1 and x.dtype in FLOATS:
                bounds[name] = float(np.asarray(c[k].data).reshape(-1)[0])
            else:
                x = c.op("maximum" if k == 1 else "minimum", x, c.cast(c[k], x.dtype))
    return c.op("clip", x, **bounds) if bounds else x


# ---- casts


def host_dtype(dtype: str) -> bool:
    """Whether only the host knows this type: strings, 4-bit floats, powers of two alone, sub-byte integers."""
    return dtype not in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", *FLOATS, *FLOATS8,
    )  # fmt: skip


def convert(c: Call, x: Value, to: str, saturate: bool = True, round_mode: str = "up") -> Value:
    """`x` as dtype `to`; exotic types on the host."""
    if x.dtype == to:
        return x
    if not host_dtype(x.dtype) and not host_dtype(to):
        return to_float8(c, x, to, saturate) if to in FLOATS8 else c.cast(x, to)
    array = cast_on_host(c.importer.value_of(x, f"a cast to {to}"), to, saturate, round_mode)
    return c.graph.constant(array, "cast", to)


@onnx_op("Cast")
def cast(c: Call) -> Value:
    return convert(c, c[0], reader.dtype_name(c.attr("to")), bool(c.attr("saturate", 1)), c.attr("round_mode", "up"))


@onnx_op("CastLike")
def cast_like(c: Call) -> Value:
    return convert(c, c[0], c[1].dtype, bool(c.attr("saturate", 1)), c.attr("round_mode", "up"))


@onnx_op("BitCast")
def bit_cast(c: Call) -> Value:
    to = reader.dtype_name(c.attr("to"))
    x = c[0]
    if host_dtype(x.dtype) or host_dtype(to):
        return c.graph.constant(np.asarray(c.importer.value_of(x), order="C").view(np_dtype(to)), "bits", to)
    if x.dtype == "bool" or to == "bool":
        return c.cast(x, to)
    return c.op("bitcast", x, dtype=to)


# ---- two inputs

_BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "And": "logical_and", "Or": "logical_or",
    "Xor": "logical_xor", "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
}  # fmt: skip


@onnx_op(*_BINARY)
def binary(c: Call) -> Value:
    a, b = c[0], c[1]
    if c.opset < 7 and c.attr("broadcast"):
        b = old_broadcast(c, a, b)
    return c.op(_BINARY[c.op_type], a, b)


def old_broadcast(c: Call, a: Value, b: Value) -> Value:
    """Opset 6 and older: `b` lines up with the dimensions of `a` from `axis` on."""
    axis = c.attr("axis", a.ndim - b.ndim) % max(a.ndim, 1)
    return c.reshape(b, (*b.shape, *[1] * (a.ndim - axis - b.ndim)))


@onnx_op("Pow")
def power(c: Call) -> Value:
    a, b = c[0], c[1]
    if c.opset < 7 and c.attr("broadcast"):
        b = old_broadcast(c, a, b)
    if b.is_const and b.type.size == 1 and a.dtype in FLOATS:
        exponent = float(np.asarray(b.data).reshape(-1)[0])
        simple = {2.0: "square", 0.5: "sqrt", -1.0: "reciprocal", 1.0: "identity"}.get(exponent)
        if simple is not None and b.ndim <= a.ndim:
            return c.op(simple, a)
    if a.dtype == b.dtype:
        return c.op("power", a, b)
    if a.dtype in FLOATS:
        return c.op("power", a, c.cast(b, a.dtype))
    wide = "float64"
    return c.cast(c.op("power", c.cast(a, wide), c.cast(b, wide)), a.dtype)


@onnx_op("Mod")
def mod(c: Call) -> Value:
    if c.attr("fmod", 0):
        return c.op("trunc_mod", c[0], c[1])
    return c.op("remainder" if c[0].dtype in FLOATS else "floor_mod", c[0], c[1])


@onnx_op("BitShift")
def bit_shift(c: Call) -> Value:
    direction = c.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise ImportModelError(f"direction {direction!r} of BitShift", hint="LEFT or RIGHT")
    return c.op("shift_left" if direction == "LEFT" else "shift_right", c[0], c[1])


@onnx_op("PRelu")
def prelu(c: Call) -> Value:
    x, slope = c[0], c[1]
    if slope.ndim == 1 and x.ndim > 2 and slope.shape[0] not in (1, x.shape[-1]) and slope.shape[0] == x.shape[1]:
        slope = c.reshape(slope, (slope.shape[0], *[1] * (x.ndim - 2)))
    return c.op("prelu", x, slope)


_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add", "Mean": "add"}


@onnx_op(*_VARIADIC)
def variadic(c: Call) -> Value:
    total = c[0]
    for k in range(1, len(c.inputs)):
        total = c.op(_VARIADIC[c.op_type], total, c[k])
    if c.op_type == "Mean" and len(c.inputs) > 1:
        total = c.op("multiply", total, c.like(1.0 / len(c.inputs), total))
    return total


@onnx_op("Where")
def where(c: Call) -> Value:
    return c.op("where", c[0], c[1], c[2])


@onnx_op("Dropout")
def dropout(c: Call) -> Any:
    """Inference passes its input through; a training ratio of 0 as well."""
    x = c[0]
    training = c.opset >= 12 and c.has(2) and bool(np.asarray(c.array(2)))
    # A ratio that is not used may be an input.
    ratio = 0.0 if not training else float(np.asarray(c.array(1))) if c.has(1) else float(c.attr("ratio", 0.5))
    if ratio == 0:
        return Outputs([x, c.broadcast(c.const(np.asarray(True)), x.shape) if c.wants(1) else None])
    # ONNX leaves the random numbers to the implementation; seeded ones, so that runs agree.
    keep = np.random.RandomState(int(c.attr("seed", 0))).uniform(0, 1, x.shape) >= ratio
    mask = c.const(keep)
    scaled = c.op("multiply", x, c.like(1.0 / (1.0 - ratio) if ratio < 1 else 0.0, x))
    return Outputs([c.op("where", mask, scaled, c.like(0, x)), mask])


@onnx_op("Binarizer", domain="ai.onnx.ml")
def binarizer(c: Call) -> Value:
    return c.cast(c.op("greater", c[0], c.like(float(c.attr("threshold", 0.0)), c[0])), c[0].dtype)


@onnx_op("BiasGelu", domain="com.microsoft")
def bias_gelu(c: Call) -> Value:
    return c.op("gelu", c.op("add", c[0], c[1]))
