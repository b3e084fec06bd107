"""Element by element: math functions, activations, casts; and the operators of two and three inputs that broadcast.

NaN goes through all of them, as in NumPy: a network that has diverged looks so. Where a term beside it carries NaN anyway, or a
comparison can be turned so that it does, the cheaper extremum stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..ir.dtype import dtype_info
from ..te import Tensor
from .registry import (
    BROADCAST,
    COMMUTES,
    COSTLY,
    ELEMENTWISE,
    FINITE,
    FOLLOWS_16,
    SHAPED,
    Attrs,
    TensorType,
    broadcast_bool,
    broadcast_index,
    broadcast_shapes,
    broadcast_type,
    fail,
    number,
    register,
    same_type,
    static_shape,
    taking,
    to_bool,
)

# ---- one input


def const_like(value: float, x: Any) -> Any:
    return number(value, x.dtype)


def _mish(x: Any) -> Any:
    """x * tanh(log(1 + e^x)): the tangent is the quotient of e^2x + 2 e^x and that plus 2, or both over e^2x, so that no power overflows."""
    e = te.exp(-te.abs(x))
    square, twice, two = e * e, e + e, const_like(2, x)
    upper = te.select(x < 0, square + twice, const_like(1, x) + twice)
    return x * (upper / (upper + te.select(x < 0, two, square * two)))


def _gelu(x: Any) -> Any:
    """x / 2 * (1 + erf(x / sqrt(2))); of 16 bits in float32 inside, since 1 + erf loses what is small of it."""
    y = x.astype("float32") if dtype_info(x.dtype).bits == 16 else x
    out = y * const_like(0.5, y) * (const_like(1, y) + te.erf(y * const_like(math.sqrt(0.5), y)))
    return out if y is x else out.astype(x.dtype)


# What the passes count on, in the words of the tables below.
_TRAITS = {"f": FINITE, "c": COSTLY, "h": FOLLOWS_16, "x": COMMUTES}


def unary(name: str, f: Callable[..., Any], infer: Any = same_type, traits: str = "") -> None:
    """An operator on one input; `traits`: letters of f (finite of finite), c (costly), h (follows its input into half precision), x (commutes)."""

    def compute(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
        x = inputs[0]
        return [te.compute(x.shape, lambda *i: f(x(*i), **attrs), name=name)]

    register(name, ELEMENTWISE, taking(1, infer), traits=[_TRAITS[t] for t in traits])(compute)


for _traits, _names in {
    "": "sqrt rsqrt",
    "c": "exp log tan asin acos sinh cosh asinh acosh atanh log1p expm1 exp2 log2",
    "f": "floor ceil trunc sign",
    "fc": "sin cos atan erf",
    "fch": "tanh sigmoid",
    "fh": "abs",
}.items():
    for _name in _names.split():
        unary(_name, getattr(te, _name), traits=_traits)
unary("round_even", te.nearbyint, traits="f")
unary("neg", lambda x: -x, traits="fh")
unary("identity", lambda x: x, traits="fh")
unary("isnan", te.isnan, to_bool, traits="f")
unary("isfinite", te.isfinite, to_bool, traits="f")
unary("logical_not", lambda x: te.bitwise_not(x), to_bool, traits="f")
unary("bitwise_not", te.bitwise_not)
unary("reciprocal", lambda x: const_like(1, x) / x)
unary("square", lambda x: x * x, traits="f")
unary("relu", lambda x: te.maximum(x, const_like(0, x)), traits="fh")
unary("leaky_relu", lambda x, alpha: te.select(x < 0, x * const_like(alpha, x), x), traits="fh")
unary("thresholded_relu", lambda x, alpha: te.select(x <= const_like(alpha, x), const_like(0, x), x), traits="f")
unary("elu", lambda x, alpha=1.0: te.select(x < 0, te.expm1(x) * const_like(alpha, x), x), traits="fc")
unary(
    "celu",
    lambda x, alpha: (
        te.maximum(x, const_like(0, x))
        + te.min(const_like(0, x), te.expm1(x / const_like(alpha, x)) * const_like(alpha, x))
    ),
    traits="fc",
)
unary(
    "selu",
    lambda x, alpha, gamma: te.select(x > 0, x, te.expm1(x) * const_like(alpha, x)) * const_like(gamma, x),
    traits="fc",
)
unary(
    "hard_sigmoid",
    lambda x, alpha, beta: te.maximum(
        const_like(0, x), te.minimum(const_like(1, x), x * const_like(alpha, x) + const_like(beta, x))
    ),
    traits="fh",
)
unary(
    "hard_swish",
    lambda x: x * te.max(const_like(0, x), te.min(const_like(1, x), x * const_like(1 / 6, x) + const_like(0.5, x))),
    traits="fh",
)
# log(1 + e^x) without overflow: max(x, 0) + log1p(e^-|x|).
unary("softplus", lambda x: te.max(x, const_like(0, x)) + te.log1p(te.exp(-te.abs(x))), traits="fc")
unary("softsign", lambda x: x / (te.abs(x) + const_like(1, x)), traits="f")
unary("silu", lambda x, alpha=1.0: x * te.sigmoid(x * const_like(alpha, x)), traits="fch")
unary("mish", _mish, traits="fc")
unary("gelu", _gelu, traits="fch")
unary(
    "gelu_tanh",
    lambda x: (
        x
        * const_like(0.5, x)
        * (
            const_like(1, x)
            + te.tanh(const_like(math.sqrt(2 / math.pi), x) * (x + const_like(0.044715, x) * x * x * x))
        )
    ),
    traits="fch",
)


def _shrink(x: Any, lambd: float, bias: float) -> Any:
    low, high = x + const_like(bias, x), x - const_like(bias, x)
    return te.select(x < const_like(-lambd, x), low, te.select(x <= const_like(lambd, x), const_like(0, x), high))


def _clip(x: Any, low: float | None = None, high: float | None = None) -> Any:
    if low is not None:
        x = te.maximum(x, const_like(low, x))
    return te.minimum(x, const_like(high, x)) if high is not None else x


def _isinf(x: Any, positive: bool = True, negative: bool = True) -> Any:
    if positive and negative:
        return te.isinf(x)
    inf = te.infinity(x.dtype)
    return x == inf if positive else x == -inf if negative else te.const(False)


unary("shrink", _shrink)
unary("clip", _clip, traits="fh")
unary("isinf", _isinf, to_bool, traits="f")


def _cast_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    dtype_info(attrs["dtype"])
    return [TensorType(attrs["dtype"], types[0].shape)]


@register("cast", ELEMENTWISE, taking(1, _cast_type), traits=[FINITE])
def _cast(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`dtype`: the new type. Float to int truncates and saturates, int to int wraps."""
    x = inputs[0]
    return [te.compute(x.shape, lambda *i: x(*i).astype(attrs["dtype"]), name="cast")]


def _bitcast_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    if dtype_info(types[0].dtype).bytes != dtype_info(attrs["dtype"]).bytes:
        raise fail(
            f"bits of {types[0].dtype} as {attrs['dtype']}: the sizes differ", hint="the two types have as many bits"
        )
    return [TensorType(attrs["dtype"], types[0].shape)]


@register("bitcast", ELEMENTWISE, taking(1, _bitcast_type))
def _bitcast(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The same bits as another type of the same size."""
    x = inputs[0]
    return [te.compute(x.shape, lambda *i: te.reinterpret(attrs["dtype"], x(*i)), name="bitcast")]


# ---- two inputs


def binary(name: str, f: Callable[[Any, Any], Any], infer: Any = broadcast_type, traits: str = "") -> None:
    """The same on two inputs."""

    def compute(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
        a, b = inputs
        shape_a, shape_b = static_shape(a), static_shape(b)
        return [
            te.compute(
                outputs[0].shape,
                lambda *i: f(a(*broadcast_index(shape_a, i)), b(*broadcast_index(shape_b, i))),
                name=name,
            )
        ]

    register(name, BROADCAST, taking(2, infer), traits=[_TRAITS[t] for t in traits])(compute)


def _power(a: Any, b: Any) -> Any:
    if dtype_info(a.dtype).is_float:
        return te.pow(a, b)
    return te.nearbyint(te.pow(a.astype("float64"), b.astype("float64"))).astype(a.dtype)


def _floor_mod(a: Any, b: Any) -> Any:
    if not dtype_info(a.dtype).is_float:
        return te.floormod(a, b)
    # As PyTorch has it: a remainder of 0 keeps the sign of `a`, where NumPy's (`te.floormod`) has that of `b`
    r = te.fmod(a, b)
    return te.select(te.all(r != const_like(0, r), (r < const_like(0, r)) != (b < const_like(0, b))), r + b, r)


_BINARY: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "add": (lambda a, b: a + b, "fhx"),
    "subtract": (lambda a, b: a - b, "fh"),
    "multiply": (lambda a, b: a * b, "fhx"),
    "divide": (te.div, ""),
    "floor_mod": (_floor_mod, ""),
    "trunc_mod": (te.truncmod, ""),
    "power": (_power, "c"),
    "maximum": (te.maximum, "fhx"),
    "minimum": (te.minimum, "fhx"),
    "bitwise_and": (te.bitwise_and, ""),
    "bitwise_or": (te.bitwise_or, ""),
    "bitwise_xor": (te.bitwise_xor, ""),
    "shift_left": (lambda a, b: a << b, ""),
    "shift_right": (lambda a, b: a >> b, ""),
    "prelu": (lambda a, b: te.select(a < const_like(0, a), a * b, a), "fh"),
    "atan2": (te.atan2, "c"),
}
for _name, (_f, _traits) in _BINARY.items():
    binary(_name, _f, traits=_traits)
_COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "equal": (lambda a, b: a == b if a.dtype != "bool" else te.bitwise_not(a ^ b), "f"),
    "not_equal": (lambda a, b: a != b if a.dtype != "bool" else a ^ b, "f"),
    "less": (lambda a, b: a < b, "f"),
    "less_equal": (lambda a, b: a <= b, "f"),
    "greater": (lambda a, b: a > b, "f"),
    "greater_equal": (lambda a, b: a >= b, "f"),
    "logical_and": (lambda a, b: te.all(a, b), "f"),
    "logical_or": (lambda a, b: te.any(a, b), "f"),
    "logical_xor": (lambda a, b: a ^ b, "f"),
}
for _name, (_f, _traits) in _COMPARISONS.items():
    binary(_name, _f, broadcast_bool, _traits)


# ---- three inputs


def _where_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    cond, a, b = types
    if cond.dtype != "bool" or a.dtype != b.dtype:
        raise fail(
            f"where takes a bool and two values of one type, not {cond}, {a}, {b}",
            hint="cast the condition to bool, and both values to one type",
        )
    return [TensorType(a.dtype, broadcast_shapes(cond.shape, a.shape, b.shape))]


@register("where", BROADCAST, taking(3, _where_type), traits=[FINITE, FOLLOWS_16])
def _where(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`cond ? a : b`, element by element."""
    shapes = [static_shape(t) for t in inputs]

    def body(*i: Any) -> Any:
        cond, a, b = (t(*broadcast_index(s, i)) for t, s in zip(inputs, shapes))
        return te.select(cond, a, b)

    return [te.compute(outputs[0].shape, body, name="where")]


def _broadcast_to_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    shape = tuple(attrs["shape"])
    if broadcast_shapes(types[0].shape, shape) != shape:
        raise fail(f"{types[0]} does not broadcast to {shape}", hint="each size is equal from the right, or 1")
    return [TensorType(types[0].dtype, shape)]


@register("broadcast_to", BROADCAST, taking(1, _broadcast_to_type), traits=[FOLLOWS_16, SHAPED])
def _broadcast_to(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`shape`: the new shape."""
    x = inputs[0]
    shape = static_shape(x)
    return [te.compute(outputs[0].shape, lambda *i: x(*broadcast_index(shape, i)), name="broadcast_to")]
