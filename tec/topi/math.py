"""Operators of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import te
from ..errors import listed
from ..ir.expr import IntImm
from ..te import Tensor
from ..te.tensor_ops import ELEMWISE, elementwise
from .operators import output, tensor

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "cast", "ceil", "ceil_log2", "clip", "cos", "cosh", "erf", "exp", "exp2", "fast_erf", "fast_exp",
    "fast_tanh", "floor", "identity", "isfinite", "isinf", "isnan", "log", "log10", "log2", "logical_not", "negative", "reinterpret", "round", "rsqrt",
    "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
]  # fmt: skip


def _unary(name: str, f: Callable[[Any], Any], text: str = "", of: str = "float32") -> Callable[[Tensor], Tensor]:
    def operator(x: Tensor) -> Tensor:
        return elementwise(f, tensor(x, name), name=name, tag=ELEMWISE)

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"""{text or f"{name}(x)"}, element by element: a tensor of x's shape. Raises ExprError for a type that has it not.

    >>> topi.{name}(te.placeholder((2, 3), "{of}", name="x")).shape
    (2, 3)
    """
    return operator


abs = _unary("abs", te.abs)
acos = _unary("acos", te.acos)
acosh = _unary("acosh", te.acosh)
asin = _unary("asin", te.asin)
asinh = _unary("asinh", te.asinh)
atan = _unary("atan", te.atan)
atanh = _unary("atanh", te.atanh)
bitwise_not = _unary("bitwise_not", te.bitwise_not, "~x", "int32")
ceil = _unary("ceil", te.ceil)
cos = _unary("cos", te.cos)
cosh = _unary("cosh", te.cosh)
erf = _unary("erf", te.erf)
exp = _unary("exp", te.exp)
exp2 = _unary("exp2", te.exp2)
fast_erf = _unary("fast_erf", te.erf, "erf(x): tec's own is the fast one")
fast_exp = _unary("fast_exp", te.exp, "exp(x): tec's own is the fast one")
fast_tanh = _unary("fast_tanh", te.tanh, "tanh(x): tec's own is the fast one")
floor = _unary("floor", te.floor)
identity = _unary("identity", lambda x: x, "x")
isfinite = _unary("isfinite", te.isfinite)
isinf = _unary("isinf", te.isinf)
isnan = _unary("isnan", te.isnan)
log = _unary("log", te.log)
log10 = _unary("log10", te.log10)
log2 = _unary("log2", te.log2)
logical_not = _unary("logical_not", lambda x: te.select(x, False, True), "not x", "bool")
negative = _unary("negative", lambda x: -x, "-x")
round = _unary("round", te.round)
rsqrt = _unary("rsqrt", te.rsqrt, "1 / sqrt(x)")
sigmoid = _unary("sigmoid", te.sigmoid)
sign = _unary("sign", te.sign)
sin = _unary("sin", te.sin)
sinh = _unary("sinh", te.sinh)
sqrt = _unary("sqrt", te.sqrt)
square = _unary("square", lambda x: x * x, "x * x")
tan = _unary("tan", te.tan)
tanh = _unary("tanh", te.tanh)
trunc = _unary("trunc", te.trunc)


def cast(x: Any, dtype: Any) -> Any:
    """`x`, a tensor or an expression, as `dtype`.

    >>> topi.cast(te.placeholder((3,), name="x"), "float16").dtype
    'float16'
    """
    return x.astype(dtype) if isinstance(x, Tensor) else te.cast(dtype, x)


def ceil_log2(x: Any) -> Any:
    """The base-2 logarithm of a number or an expression, rounded up; of an integer as its own type.

    >>> topi.ceil_log2(te.const(9, "int32"))
    4
    """
    v = te.const(x) if isinstance(x, (int, float)) else x
    if "float" in v.dtype:
        return te.ceil(te.log2(v))
    if isinstance(v, IntImm):
        return te.const(max(v.value - 1, 0).bit_length(), v.dtype)
    bits = int(v.dtype.removeprefix("u").removeprefix("int"))
    return te.cast(v.dtype, te.select(v <= 1, te.const(0, "int32"), bits - te.cast("int32", te.clz(v - 1))))


def reinterpret(x: Tensor, dtype: str) -> Tensor:
    """The bits of `x` as a `dtype` of the same size.

    >>> topi.reinterpret(te.placeholder((3,), name="x"), "int32").dtype
    'int32'
    """
    return output("bitcast", [tensor(x, "reinterpret")], ELEMWISE, dtype=dtype)


def clip(x: Tensor, a_min: Any, a_max: Any) -> Tensor:
    """`x` with what is below `a_min` or above `a_max` set to that.

    >>> x = te.placeholder((3,), name="x")
    >>> te.evaluate([topi.clip(x, 0.0, 1.0)], {x: np.float32([-1, 0.5, 2])})[0]
    array([0. , 0.5, 1. ], dtype=float32)
    """
    x = tensor(x, "clip")
    low, high = te.const(a_min, x.dtype), te.const(a_max, x.dtype)
    return elementwise(lambda v: te.maximum(te.minimum(v, high), low), x, name="clip", tag=ELEMWISE)


__dir__ = listed(__name__)
