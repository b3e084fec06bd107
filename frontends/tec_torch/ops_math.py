"""ATen operators on elements: arithmetic, comparison, logic, activations, casts."""

from __future__ import annotations

import math
from typing import Any

import torch

from tec import ImportModelError
from tec.graph import Value
from tec.ops.dims import Dim

from .importer import AtenCall, aten_op
from .remedies import OTHER_TYPE

FLOATS = ("float32", "float64", "float16", "bfloat16")
prims = torch.ops.prims

# ATen name: tec's operator. Integers become floats where torch's result is one.
_UNARY = {
    "abs": "abs", "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh", "ceil": "ceil",
    "cos": "cos", "cosh": "cosh", "erf": "erf", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "floor": "floor", "log": "log",
    "log1p": "log1p", "log2": "log2", "mish": "mish", "neg": "neg", "reciprocal": "reciprocal", "relu": "relu", "round": "round_even",
    "rsqrt": "rsqrt", "sigmoid": "sigmoid", "sign": "sign", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "square": "square",
    "tan": "tan", "tanh": "tanh", "trunc": "trunc", "hardswish": "hard_swish",
}  # fmt: skip
# What integers are already.
_ROUNDS = frozenset({"ceil", "floor", "round_even", "trunc"})


@aten_op(*_UNARY)
def unary(c: AtenCall, x: Value, decimals: int = 0) -> Value:
    name = _UNARY[c.name_of_op]
    x = c.cast(x, c.dtype)
    if name in _ROUNDS and c.dtype not in FLOATS:
        return x
    if decimals:
        factor = c.like(10.0 ** abs(decimals), x)
        steps = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
        return c.op(steps[1], c.op(name, c.op(steps[0], x, factor)), factor)
    if c.dtype == "bool":
        if name in ("abs", "sign", "square", "relu"):
            return x
        raise ImportModelError(f"{c.name_of_op} of bool", hint=OTHER_TYPE)
    if c.dtype == "uint8" and name == "abs":
        return x
    return c.op(name, x)


@aten_op("log10")
def log10(c: AtenCall, x: Value) -> Value:
    x = c.cast(x, c.dtype)
    return c.op("multiply", c.op("log2", x), c.like(math.log10(2.0), x))


@aten_op("logical_not")
def logical_not(c: AtenCall, x: Value) -> Value:
    return c.op("logical_not", truth(c, x))


@aten_op("bitwise_not")
def bitwise_not(c: AtenCall, x: Value) -> Value:
    return c.op("logical_not" if x.dtype == "bool" else "bitwise_not", x)


@aten_op("isnan", "isinf", "isfinite")
def is_kind(c: AtenCall, x: Value) -> Value:
    if x.dtype not in FLOATS:
        return c.broadcast(c.const(c.name_of_op == "isfinite"), x.shape)
    return c.op(c.name_of_op, x)


def truth(c: AtenCall, x: Any) -> Value:
    """Whether elements are not 0."""
    if not isinstance(x, Value):
        return c.const(bool(x))
    return x if x.dtype == "bool" else c.op("not_equal", x, c.like(0, x))


@aten_op("sgn")
def sgn(c: AtenCall, x: Value) -> Value:
    return x if x.dtype == "bool" else c.op("sign", x)


@aten_op("frac")
def frac(c: AtenCall, x: Value) -> Value:
    return c.op("subtract", x, c.op("trunc", x))


@aten_op("deg2rad", "rad2deg")
def turned(c: AtenCall, x: Value) -> Value:
    x = c.cast(x, c.dtype)
    return c.op("multiply", x, c.like(math.pi / 180 if c.name_of_op == "deg2rad" else 180 / math.pi, x))


# ---- two inputs


def scaled(c: AtenCall, x: Value, alpha: Any) -> Value:
    return x if alpha == 1 and not isinstance(alpha, Dim) else c.op("multiply", x, c.value(alpha, x.dtype))


@aten_op("add", "sub", "rsub")
def add(c: AtenCall, a: Any, b: Any, alpha: Any = 1) -> Value:
    name = c.name_of_op
    a, b = c.value(a, c.dtype), c.value(b, c.dtype)
    if name == "rsub":
        a, b, name = b, a, "sub"
    if c.dtype == "bool":
        if name == "sub":
            raise ImportModelError("sub of bool", hint="a ^ b or torch.logical_xor(a, b)")
        return c.op("logical_or", a, b) if alpha else c.broadcast(a, c.shape)
    return c.op("add" if name == "add" else "subtract", a, scaled(c, b, alpha))


@aten_op("mul")
def mul(c: AtenCall, a: Any, b: Any) -> Value:
    a, b = c.value(a, c.dtype), c.value(b, c.dtype)
    return c.op("logical_and" if c.dtype == "bool" else "multiply", a, b)


@aten_op("div", "true_divide", "floor_divide")
def div(c: AtenCall, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    mode = "floor" if c.name_of_op == "floor_divide" else rounding_mode
    a, b = c.value(a, c.dtype), c.value(b, c.dtype)
    if c.dtype in FLOATS:
        if mode == "floor":
            return float_floor_divide(c, a, b)
        y = c.op("divide", a, b)
        return c.op("trunc", y) if mode == "trunc" else y
    if mode is None:
        raise ImportModelError(f"a quotient of {c.dtype}", hint=OTHER_TYPE)
    return whole_floor_divide(c, a, b) if mode == "floor" else c.op("divide", a, b)


def whole_floor_divide(c: AtenCall, a: Value, b: Value) -> Value:
    """Of integers, whose own quotient is cut off."""
    return c.op("divide", c.op("subtract", a, c.op("floor_mod", a, b)), b)


def float_floor_divide(c: AtenCall, a: Value, b: Value) -> Value:
    """(a - a mod b) / b, rounded: what Python's // gives, where a quotient rounded up would be one too large."""
    rest = c.op("floor_mod", a, b)
    whole = c.op("divide", c.op("subtract", a, rest), b)
    near = c.op("round_even", whole)
    zero = c.op("equal", b, c.like(0, b))
    return c.op(
        "where",
        c.op("logical_or", zero, c.op("logical_not", c.op("isfinite", whole))),
        c.op("floor", c.op("divide", a, b)),
        near,
    )


_BINARY = {
    "maximum": "maximum", "minimum": "minimum", "atan2": "atan2", "remainder": "floor_mod", "fmod": "trunc_mod",
    "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "__and__": "bitwise_and",
    "__or__": "bitwise_or", "__xor__": "bitwise_xor", "bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right",
    "__lshift__": "shift_left", "__rshift__": "shift_right",
}  # fmt: skip
_OF_BOOL = {
    "bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor", "maximum": "logical_or", "minimum": "logical_and",
}  # fmt: skip


@aten_op(*_BINARY)
def binary(c: AtenCall, a: Any, b: Any) -> Value:
    name = _BINARY[c.name_of_op]
    if c.dtype == "bool":
        name = _OF_BOOL[name]
    return c.op(name, c.value(a, c.dtype), c.value(b, c.dtype))


@aten_op("fmax", "fmin")
def over_numbers(c: AtenCall, a: Value, b: Value) -> Value:
    """Where one is NaN, the other."""
    a, b = c.cast(a, c.dtype), c.cast(b, c.dtype)
    y = binary_extremum(c, "maximum" if c.name_of_op == "fmax" else "minimum", a, b)
    if c.dtype not in FLOATS:
        return y
    return c.op("where", c.op("isnan", a), b, c.op("where", c.op("isnan", b), a, y))


def binary_extremum(c: AtenCall, name: str, a: Value, b: Value) -> Value:
    return c.op(_OF_BOOL[name] if a.dtype == "bool" else name, a, b)


@aten_op("pow")
def power(c: AtenCall, a: Any, b: Any) -> Value:
    if not isinstance(b, (Value, Dim)) and isinstance(a, Value):
        x = c.cast(a, c.dtype)
        if b == 2:
            return c.op("square", x)
        if b == 1:
            return x
        if b == 3:
            return c.op("multiply", c.op("square", x), x)
        if c.dtype in FLOATS:
            if b == 0.5:
                return c.op("sqrt", x)
            if b == -0.5:
                return c.op("rsqrt", x)
            if b == -1:
                return c.op("reciprocal", x)
            if b == 0:
                return c.broadcast(c.like(1, x), x.shape)
    return c.op("power" if c.dtype in FLOATS else "int_power", c.value(a, c.dtype), c.value(b, c.dtype))


_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip


@aten_op(*_COMPARISONS)
def compare(c: AtenCall, a: Any, b: Any) -> Value:
    kind = c.common
    if kind == "bool" and c.name_of_op not in ("eq", "ne"):
        kind = "uint8"
    return c.op(_COMPARISONS[c.name_of_op], c.value(a, kind), c.value(b, kind))


@aten_op("logical_and", "logical_or", "logical_xor")
def logical(c: AtenCall, a: Value, b: Value) -> Value:
    return c.op(c.name_of_op, truth(c, a), truth(c, b))


@aten_op("isclose")
def isclose(c: AtenCall, a: Value, b: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Value:
    if a.dtype not in FLOATS:
        a, b = c.cast(a, "float64"), c.cast(b, "float64")
    limit = c.op("add", c.op("multiply", c.op("abs", b), c.like(rtol, b)), c.like(atol, b))
    gap = c.op("abs", c.op("subtract", a, b))
    near = c.op("logical_and", c.op("isfinite", gap), c.op("less_equal", gap, limit))
    y = c.op("logical_or", c.op("equal", a, b), near)
    return c.op("logical_or", y, c.op("logical_and", c.op("isnan", a), c.op("isnan", b))) if equal_nan else y


@aten_op("hypot")
def hypot(c: AtenCall, a: Value, b: Value) -> Value:
    return c.op("sqrt", c.op("add", c.op("square", a), c.op("square", b)))


@aten_op("logaddexp")
def logaddexp(c: AtenCall, a: Value, b: Value) -> Value:
    a, b = c.cast(a, c.dtype), c.cast(b, c.dtype)
    top = c.op("maximum", a, b)
    gap = c.op("neg", c.op("abs", c.op("subtract", a, b)))
    y = c.op("add", top, c.op("log1p", c.op("exp", gap)))
    return c.op("where", c.op("equal", a, b), c.op("add", a, c.like(math.log(2.0), a)), y)


@aten_op("copysign")
def copysign(c: AtenCall, a: Any, b: Any) -> Value:
    a, b = c.value(a, c.dtype), c.value(b, c.dtype)
    if c.dtype not in ("float32", "float64"):
        raise ImportModelError(f"copysign of {c.dtype}", hint="x.float() or x.double() before")
    bits = "int32" if c.dtype == "float32" else "int64"
    negative = c.op("less", c.op("bitcast", b, dtype=bits), c.const(0, bits))
    size = c.op("abs", a)
    return c.op("where", negative, c.op("neg", size), size)


# ---- three inputs


@aten_op("where")
def where(c: AtenCall, condition: Value, a: Any, b: Any) -> Value:
    return c.op("where", truth(c, condition), c.value(a, c.dtype), c.value(b, c.dtype))


@aten_op("masked_fill")
def masked_fill(c: AtenCall, x: Value, mask: Value, value: Any) -> Value:
    return c.broadcast(c.op("where", mask, c.value(value, c.dtype), x), c.shape)


@aten_op("lerp")
def lerp(c: AtenCall, a: Value, b: Value, weight: Any) -> Value:
    """From the nearer end, as torch does."""
    w = c.value(weight, c.dtype)
    gap = c.op("subtract", b, a)
    low = c.op("add", a, c.op("multiply", w, gap))
    high = c.op("subtract", b, c.op("multiply", gap, c.op("subtract", c.like(1, w), w)))
    return c.op("where", c.op("less", c.op("abs", w), c.like(0.5, w)), low, high)


@aten_op("addcmul", "addcdiv")
def addc(c: AtenCall, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    x, a, b = (c.cast(v, c.dtype) for v in (x, a, b))
    y = c.op("multiply" if c.name_of_op == "addcmul" else "divide", scaled(c, a, value), b)
    return c.op("add", x, y)


@aten_op("clamp", "clamp_min", "clamp_max", "hardtanh", "clip")
def clamp(
    c: AtenCall, x: Value, low: Any = None, high: Any = None, min: Any = None, max: Any = None, **bounds: Any
) -> Value:
    name = c.name_of_op
    low = low if low is not None else min if min is not None else bounds.get("min_val")
    high = high if high is not None else max if max is not None else bounds.get("max_val")
    if name == "hardtanh":
        low, high = (-1 if low is None else low), (1 if high is None else high)
    if name == "clamp_max":
        low, high = None, (low if high is None else high)
    x = c.cast(x, c.dtype)
    if not any(isinstance(v, (Value, Dim)) for v in (low, high)):
        if c.dtype not in FLOATS:  # cut as torch cuts
            low, high = (v if v is None else int(v) for v in (low, high))
        return c.op("clip", x, low=low, high=high)
    for name, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            x = c.op(name, x, c.value(bound, c.dtype))
    return c.broadcast(x, c.shape)


# ---- activations


@aten_op("gelu")
def gelu(c: AtenCall, x: Value, approximate: str = "none") -> Value:
    return c.op("gelu" if approximate == "none" else "gelu_tanh", x)


@aten_op("silu")
def silu(c: AtenCall, x: Value) -> Value:
    return c.op("silu", x)


@aten_op("hardsigmoid")
def hardsigmoid(c: AtenCall, x: Value) -> Value:
    return c.op("hard_sigmoid", x, alpha=1 / 6, beta=0.5)


@aten_op("relu6")
def relu6(c: AtenCall, x: Value) -> Value:
    return c.op("clip", x, low=0, high=6)


@aten_op("leaky_relu")
def leaky_relu(c: AtenCall, x: Value, negative_slope: float = 0.01) -> Value:
    return c.op("leaky_relu", x, alpha=float(negative_slope))


@aten_op("rrelu_with_noise_functional", "rrelu_with_noise")
def rrelu(
    c: AtenCall, x: Value, noise: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *more: Any
) -> Any:
    """By the mean slope. In training torch draws as many numbers as there are elements up to 0, which is for values to say."""
    if training:
        raise ImportModelError("rrelu in training, which draws by values", hint="module.eval()")
    return c.op("leaky_relu", x, alpha=(lower + upper) / 2), noise


@aten_op("elu")
def elu(c: AtenCall, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    if scale == 1 and input_scale == 1:
        return c.op("elu", x, alpha=float(alpha))
    low = c.op("multiply", c.op("expm1", c.op("multiply", x, c.like(input_scale, x))), c.like(alpha * scale, x))
    return c.op("where", c.op("greater", x, c.like(0, x)), c.op("multiply", x, c.like(scale, x)), low)


@aten_op("selu")
def selu(c: AtenCall, x: Value) -> Value:
    return c.op("selu", x, alpha=1.6732632423543772, gamma=1.0507009873554805)


@aten_op("celu")
def celu(c: AtenCall, x: Value, alpha: float = 1.0) -> Value:
    return c.op("celu", x, alpha=float(alpha))


@aten_op("softplus")
def softplus(c: AtenCall, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    z = scaled(c, x, beta)
    y = c.op("softplus", z)
    y = y if beta == 1 else c.op("divide", y, c.like(beta, y))
    return c.op("where", c.op("greater", z, c.like(threshold, z)), x, y)


@aten_op("log_sigmoid", "log_sigmoid_forward")
def log_sigmoid(c: AtenCall, x: Value) -> Any:
    y = c.op("neg", c.op("softplus", c.op("neg", x)))
    if c.name_of_op == "log_sigmoid":
        return y
    # What the backward call reads on a CPU.
    kept = c.is_read(1) and c.types[1] == (x.dtype, x.shape)
    return y, c.op("exp", c.op("neg", c.op("abs", x))) if kept else None


@aten_op("threshold")
def threshold(c: AtenCall, x: Value, limit: Any, value: Any) -> Value:
    return c.op("where", c.op("less_equal", x, c.value(limit, x.dtype)), c.value(value, x.dtype), x)


@aten_op("prelu", "_prelu_kernel")
def prelu(c: AtenCall, x: Value, weight: Value) -> Value:
    if weight.type.size != 1 and weight.ndim == 1 and x.ndim > 1:
        weight = c.reshape(weight, (weight.shape[0], *[1] * (x.ndim - 2)))
    elif weight.type.size == 1:
        weight = c.reshape(weight, ())
    return c.op("prelu", x, weight)


@aten_op("glu")
def glu(c: AtenCall, x: Value, dim: int = -1) -> Value:
    half = x.shape[dim] // 2
    a, b = c.split(x, dim, [half, half])
    return c.op("multiply", a, c.op("sigmoid", b))


@aten_op("logit")
def logit(c: AtenCall, x: Value, eps: float | None = None) -> Value:
    x = c.cast(x, c.dtype)
    if eps is not None:
        x = c.op("clip", x, low=float(eps), high=1 - float(eps))
    return c.op("log", c.op("divide", x, c.op("subtract", c.like(1, x), x)))


@aten_op("nan_to_num")
def nan_to_num(
    c: AtenCall, x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    if x.dtype not in FLOATS:
        return x
    most = float(torch.finfo(getattr(torch, x.dtype)).max)
    y = c.op("where", c.op("isnan", x), c.like(0.0 if nan is None else nan, x), x)
    y = c.op("where", c.op("isinf", x, positive=True, negative=False), c.like(most if posinf is None else posinf, x), y)
    return c.op(
        "where", c.op("isinf", x, positive=False, negative=True), c.like(-most if neginf is None else neginf, x), y
    )


# ---- casts and copies


@aten_op("_to_copy", "to", "type_as")
def to_copy(c: AtenCall, x: Value, *more: Any) -> Value:
    return convert_type(c, x)


@aten_op("convert_element_type", space=prims)
def convert_element_type(c: AtenCall, x: Value, *more: Any) -> Value:
    return convert_type(c, x)


def convert_type(c: AtenCall, x: Any) -> Value:
    """Of a number too: functions that were written for one element and are called on all make numbers tensors so."""
    if not isinstance(x, Value):
        return c.value(x, c.dtype)
    if c.dtype == "bool":
        return truth(c, x)
    return c.cast(x, c.dtype)


@aten_op("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "contiguous", "dropout", "positive")
def same(c: AtenCall, x: Value, *more: Any) -> Value:
    if c.name_of_op == "dropout" and len(more) > 1 and more[1] and more[0]:
        raise ImportModelError("dropout in training", hint="module.eval()")
    return x


@aten_op("device_put", space=prims)
def device_put(c: AtenCall, x: Value, *more: Any) -> Value:
    return x


@aten_op("native_dropout")
def native_dropout(c: AtenCall, x: Value, p: float, train: bool | None = None) -> Any:
    if train is False or not p:
        return x, c.broadcast(c.const(True), x.shape)
    if p != 1:
        raise ImportModelError("dropout in training", hint="module.eval()")
    return c.op("multiply", x, c.like(0.0, x)), c.broadcast(c.const(False), x.shape)


@aten_op("copy")
def copy(c: AtenCall, x: Value, source: Value, *more: Any) -> Value:
    return c.broadcast(c.cast(source, c.dtype), c.shape)
