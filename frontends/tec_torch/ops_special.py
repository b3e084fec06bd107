"""Special functions (`torch.special`), parts of floats, and what integers have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec.graph import Value
from tec.graph.builders import Builder, control
from tec.ops.registry import broadcast_shapes

from .importer import AtenCall, aten_op

# ATen name: tec's operator and its attributes.
_SPECIAL: dict[str, tuple[str, dict[str, Any]]] = {
    "erfc": ("erfc", {}),
    "special_erfcx": ("erfcx", {}),
    "erfinv": ("erfinv", {}),
    "special_ndtri": ("ndtri", {}),
    "lgamma": ("lgamma", {}),
    "digamma": ("digamma", {}),
    "i0": ("bessel_i", {"order": 0, "scaled": False}),
    "special_i0e": ("bessel_i", {"order": 0, "scaled": True}),
    "special_i1": ("bessel_i", {"order": 1, "scaled": False}),
    "special_i1e": ("bessel_i", {"order": 1, "scaled": True}),
    "special_bessel_j0": ("bessel_j", {"order": 0}),
    "special_bessel_j1": ("bessel_j", {"order": 1}),
}


@aten_op(*_SPECIAL)
def special(c: AtenCall, x: Value) -> Value:
    name, attrs = _SPECIAL[c.name_of_op]
    return c.op(name, c.cast(x, c.dtype), **attrs)


@aten_op("polygamma")
def polygamma(c: AtenCall, n: int, x: Value) -> Value:
    return c.op("polygamma", c.cast(x, c.dtype), n=n)


@aten_op("special_log_ndtr")
def log_ndtr(c: AtenCall, x: Value) -> Value:
    """log(erfc(-x / sqrt(2)) / 2): far below 0 by the scaled tail, which does not vanish."""
    x = c.cast(x, c.dtype)
    t = c.op("multiply", x, c.like(0.5**0.5, x))
    half = c.like(0.5, x)
    far = c.op("log", c.op("multiply", c.op("erfcx", c.op("neg", t)), half))
    far = c.op("subtract", far, c.op("square", t))
    near = c.op("log1p", c.op("multiply", c.op("erfc", t), c.like(-0.5, x)))
    return c.op("where", c.op("less", x, c.like(-1, x)), far, near)


# ---- parts of floats


@aten_op("ldexp")
def ldexp(c: AtenCall, x: Any, exponent: Any) -> Value:
    return c.op("multiply", c.value(x, c.dtype), c.op("exp2", c.value(exponent, c.dtype)))


@aten_op("nextafter")
def nextafter(c: AtenCall, a: Value, b: Value) -> Value:
    return c.op("nextafter", c.cast(a, c.dtype), c.cast(b, c.dtype))


_FIELDS = {"float32": ("int32", 23, 8), "float64": ("int64", 52, 11), "float16": ("int16", 10, 5), "bfloat16": ("int16", 7, 8)}  # fmt: skip


@aten_op("signbit")
def signbit(c: AtenCall, x: Value) -> Value:
    if x.dtype.startswith(("float", "bfloat")):
        return c.op("signbit", x)
    return c.op("less", x, c.const(0, x.dtype)) if x.dtype.startswith("int") else c.broadcast(c.const(False), x.shape)


@aten_op("frexp")
def frexp(c: AtenCall, x: Value) -> tuple[Value, Value]:
    """The exponent's bits are read, and set to those of a number from 1/2 on. Below the normal numbers a power of two comes first."""
    whole, mantissa, width = _FIELDS[x.dtype]
    bias = (1 << (width - 1)) - 1
    tiny = c.op("less", c.op("abs", x), c.like(2.0 ** (1 - bias), x))
    bits = c.op("bitcast", c.op("where", tiny, c.op("multiply", x, c.like(2.0**mantissa, x)), x), dtype=whole)
    mask = ((1 << width) - 1) << mantissa
    field = c.op("shift_right", c.op("bitwise_and", bits, c.const(mask, whole)), c.const(mantissa, whole))
    half = c.op("bitwise_or", c.op("bitwise_and", bits, c.const(~mask, whole)), c.const((bias - 1) << mantissa, whole))
    exponent = c.op("subtract", c.cast(field, "int32"), c.const(bias - 1, "int32"))
    exponent = c.op("subtract", exponent, c.op("where", tiny, c.const(mantissa, "int32"), c.const(0, "int32")))
    plain = c.op("logical_or", c.op("equal", x, c.like(0, x)), c.op("logical_not", c.op("isfinite", x)))
    return c.op("where", plain, x, c.op("bitcast", half, dtype=x.dtype)), c.op("where", plain, c.const(0, "int32"), exponent)  # fmt: skip


# ---- of integers


@aten_op("gcd", "lcm")
def common_divisor(c: AtenCall, a: Value, b: Value) -> Value:
    """Euclid's, of all elements until none has a rest."""
    shape = broadcast_shapes(a.shape, b.shape)
    a, b = (c.op("abs", c.broadcast(c.cast(v, c.dtype), shape)) for v in (a, b))
    zero, one = (np.full((), k, c.dtype) for k in (0, 1))

    def goes(into: Builder, rest: Value) -> Value:
        left = into.op("not_equal", rest, into.const(zero))
        return into.op("reduce_any", left, axes=tuple(range(rest.ndim)), keepdims=False)

    def step(into: Builder, _: Value, now: list[Value], rows: list[Value]) -> Any:
        x, y = now
        done = into.op("equal", y, into.const(zero))
        rest = into.op("floor_mod", x, into.op("where", done, into.const(one), y))
        after = [into.op("where", done, x, y), into.op("where", done, y, rest)]
        return after, [], goes(into, after[1])

    (common, _), _ = control.loop(c, step, [a, b], start=goes(c, b))
    if c.name_of_op == "gcd":
        return common
    return c.op("multiply", c.op("divide", a, c.op("maximum", common, c.const(one))), b)
