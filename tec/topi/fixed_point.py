"""Numbers of few bits: products by fixed-point constants, what quantisation would give, products of signs that 32 stand in a word."""

from __future__ import annotations

from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from ..te.tensor_ops import elementwise
from .operators import check_sizes, compute, tensor
from .tag import BROADCAST, ELEMWISE

__all__ = [
    "SQNN_DTYPE_TO_CODE", "binarize_pack", "binary_dense", "fixed_point_multiply", "fixed_point_multiply_per_axis", "simulated_dequantize", "simulated_quantize",
]  # fmt: skip

# The number that says at run time which integers `simulated_quantize` imitates.
SQNN_DTYPE_TO_CODE = {"disable": 0, "int8": 1, "uint8": 2, "int32": 3}


def _multiplied(value: Any, multiplier: Any, left: Any, right: Any) -> Any:
    """round(value 2^left multiplier 2^-(31 + right)): halves go up."""
    wide = te.cast("int64", value) << te.cast("int64", left)
    shift = te.cast("int64", right) + 31
    half = te.const(1, "int64") << (shift - 1)
    return te.cast("int32", (wide * te.cast("int64", multiplier) + half) >> shift)


def fixed_point_multiply(x: Tensor, multiplier: int, shift: int) -> Tensor:
    """x multiplier 2^(shift - 31), rounded to the nearest, halves up. x: int32; multiplier: a fraction of 31 bits.

    >>> topi.fixed_point_multiply(te.placeholder((4,), "int32", name="x"), 1 << 30, 0).shape
    (4,)
    """
    m, s = int(multiplier), int(shift)
    a = tensor(x, "fixed_point_multiply")
    return elementwise(
        lambda v: _multiplied(v, te.const(m, "int64"), max(s, 0), max(-s, 0)),
        a,
        name="fixed_point_multiply",
        tag=ELEMWISE,
    )


def fixed_point_multiply_per_axis(
    x: Tensor, y: Tensor, lshift: Tensor, rshift: Tensor, is_lshift_required: int, is_rshift_required: int, axes: Any
) -> Tensor:
    """As `fixed_point_multiply`, with a multiplier y and shifts of each channel along `axes`. is_lshift_required, is_rshift_required: whether those shifts count."""
    a = tensor(x, "fixed_point_multiply_per_axis")
    along = [int(getattr(d, "value", d)) for d in axes]

    def element(*i: Any) -> Any:
        at = [i[d] for d in along]
        return _multiplied(
            a(*i), y(*at), lshift(*at) if is_lshift_required else 0, rshift(*at) if is_rshift_required else 0
        )

    return compute(a.shape, element, "fixed_point_multiply_per_axis", BROADCAST)


def _channel(parameter: Tensor | None, i: tuple[Any, ...], axis: int, what: str) -> Any:
    if parameter is None:
        raise ExprError(f"{what} is None", hint="a tensor of one number, or of one for each channel")
    return parameter[te.floormod(i[axis], parameter.shape[0])]


def _code(dtype: Any) -> Any:
    """The code of a dtype, from a number, a scalar tensor or a variable."""
    if isinstance(dtype, str):
        if dtype not in SQNN_DTYPE_TO_CODE:
            raise ExprError(f"quantisation to {dtype!r}", hint=f"one of {', '.join(SQNN_DTYPE_TO_CODE)}, or its code")
        return te.const(SQNN_DTYPE_TO_CODE[dtype], "int32")
    return dtype() if isinstance(dtype, Tensor) else dtype


def simulated_quantize(
    data: Tensor,
    out_dtype: Any,
    output_scale: Tensor | None = None,
    output_zero_point: Tensor | None = None,
    axis: int = -1,
) -> Tensor:
    """What quantisation would give, as float: clip(round(data / scale) + zero point). out_dtype: a code of `SQNN_DTYPE_TO_CODE`, which may be a variable; 0 changes nothing.
    output_scale, output_zero_point: of one element, or one for each channel along `axis`."""  # fmt: skip
    x, code = tensor(data, "simulated_quantize"), _code(out_dtype)

    def element(*i: Any) -> Any:
        v = x(*i)
        q = te.round(v / _channel(output_scale, i, axis, "output_scale"))
        q = q + te.cast(x.dtype, _channel(output_zero_point, i, axis, "output_zero_point"))
        for dtype in ("int8", "uint8", "int32"):
            low, high = te.min_value(dtype), te.max_value(dtype)
            clipped = te.max(te.min(q, te.cast(x.dtype, high)), te.cast(x.dtype, low))
            v = te.select(code == SQNN_DTYPE_TO_CODE[dtype], clipped, v)
        return v

    return compute(x.shape, element, "simulated_quantize", ELEMWISE)


def simulated_dequantize(
    data: Tensor,
    in_dtype: Any,
    input_scale: Tensor | None = None,
    input_zero_point: Tensor | None = None,
    axis: int = -1,
) -> Tensor:
    """(data - zero point) scale, or data where the code `in_dtype` is 0. See `simulated_quantize`."""
    x, code = tensor(data, "simulated_dequantize"), _code(in_dtype)

    def element(*i: Any) -> Any:
        zero = te.cast(x.dtype, _channel(input_zero_point, i, axis, "input_zero_point"))
        return te.select(code == 0, x(*i), (x(*i) - zero) * _channel(input_scale, i, axis, "input_scale"))

    return compute(x.shape, element, "simulated_dequantize", ELEMWISE)


def binarize_pack(data: Tensor, axis: int | None = None, name: str = "PackedInput") -> Tensor:
    """The signs of 32 neighbours along an axis (the last) in a uint32, the first as the highest bit: 1 where the element is not negative.

    >>> topi.nn.binarize_pack(te.placeholder((3, 64), name="x")).shape
    (3, 2)
    """
    x = tensor(data, "binarize_pack")
    d = x.ndim - 1 if axis is None else axis
    if getattr(x.shape[d], "value", 0) % 32 or not 0 <= d < x.ndim:
        raise ExprError(f"binarize_pack of {x.shape} along axis {d}", hint="32 elements make a word: pad the axis")

    def element(*i: Any) -> Any:
        word = te.const(0, "uint32")
        for j in range(32):
            bit = te.cast("uint32", x(*i[:d], i[d] * 32 + j, *i[d + 1 :]) >= 0)
            word = word | (bit << te.const(31 - j, "uint32"))
        return word

    made: Tensor = te.compute(
        [n // 32 if k == d else n for k, n in enumerate(x.shape)], element, name=name, tag="binarize_pack"
    )
    return made


def binary_dense(data: Tensor, weight: Tensor) -> Tensor:
    """The product of signs +1 and -1 that `binarize_pack` packed: data (m, words) times the transposed weight (n, words), as float32.

    >>> a, b = te.placeholder((3, 2), "uint32", name="a"), te.placeholder((5, 2), "uint32", name="b")
    >>> topi.nn.binary_dense(a, b).shape
    (3, 5)
    """
    a, b = tensor(data, "binary_dense"), tensor(weight, "binary_dense")
    if (a.ndim, b.ndim, a.dtype, b.dtype) != (2, 2, "uint32", "uint32"):
        raise ExprError(f"binary_dense of {a.dtype} {a.shape} and {b.dtype} {b.shape}", hint="two matrices of uint32")
    check_sizes("binary_dense", (a.shape[1], b.shape[1]))
    k = te.reduce_axis((0, a.shape[1]), name="k")
    differing = te.compute(
        (a.shape[0], b.shape[0]), lambda i, j: te.sum(te.popcount(a[i, k] ^ b[j, k]), axis=k), name="differing", tag="binary_dense",
    )  # fmt: skip
    bits = 32 * a.shape[1]
    return compute(
        differing.shape, lambda i, j: te.cast("float32", bits) - 2.0 * te.cast("float32", differing[i, j]), "binary_dense", ELEMWISE,
    )  # fmt: skip
