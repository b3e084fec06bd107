"""Element by element as the Python array API standard has it: division that floors, shifts of any count, signs, powers of integers, neighbours of
floats; and `positions`, an array's own indices.

Integers wrap around. Division by an integer 0 gives 0, as it must not end the process; floats follow IEEE 754.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..ir.dtype import dtype_info
from ..te import Tensor
from .elementwise import binary, const_like, unary
from .registry import INJECTIVE, Attrs, TensorType, register, taking, to_bool

_UINT = {"float16": "uint16", "bfloat16": "uint16", "float32": "uint32", "float64": "uint64"}


def _is_float(x: Any) -> bool:
    return dtype_info(x.dtype).is_float


def _both(a: Any, b: Any) -> Any:
    return te.all(a, b)


def _differ(a: Any, b: Any) -> Any:
    """Whether just one of two conditions holds."""
    return te.any(te.all(a, te.bitwise_not(b)), te.all(te.bitwise_not(a), b))


# ---- division


def _divisible(b: Any) -> Any:
    """A divisor that no division traps on: neither 0 nor -1, whose cases are answered apart."""
    special = b == const_like(0, b)
    if not dtype_info(b.dtype).kind.startswith("u"):
        special = te.any(special, b == const_like(-1, b))
    return te.select(special, const_like(1, b), b)


def _int_floor_divide(a: Any, b: Any) -> Any:
    q = te.floordiv(a, _divisible(b))
    if not dtype_info(b.dtype).kind.startswith("u"):
        q = te.select(b == const_like(-1, b), const_like(0, a) - a, q)
    return te.select(b == const_like(0, b), const_like(0, a), q)


def _int_remainder(a: Any, b: Any) -> Any:
    r = te.floormod(a, _divisible(b))
    special = b == const_like(0, b)
    if not dtype_info(b.dtype).kind.startswith("u"):
        special = te.any(special, b == const_like(-1, b))
    return te.select(special, const_like(0, a), r)


def _float_floor_divide(a: Any, b: Any) -> Any:
    """As NumPy has it, but for infinities: there the standard has what the quotient is."""
    return te.select(te.any(te.isinf(a), te.isinf(b)), te.div(a, b), te.floordiv(a, b))


binary("floor_divide", lambda a, b: _float_floor_divide(a, b) if _is_float(a) else _int_floor_divide(a, b))
binary("remainder", lambda a, b: te.floormod(a, b) if _is_float(a) else _int_remainder(a, b))


# ---- powers, shifts


def _pow(a: Any, b: Any) -> Any:
    if _is_float(a):
        return te.pow(a, b)
    # By squaring. A larger exponent than 63 leaves 0, 1, -1 and what wrapped around.
    result, square = const_like(1, a), a
    for bit in range(min(6, dtype_info(a.dtype).bits - 1)):
        taken = te.bitwise_and(b >> const_like(bit, b), const_like(1, b)) != const_like(0, b)
        result = te.select(taken, result * square, result)
        square = square * square
    result = te.select(_both(a == const_like(0, a), b != const_like(0, b)), const_like(0, a), result)
    if dtype_info(b.dtype).kind.startswith("u"):
        return result
    # Toward 0, as integers divide: of what a negative exponent gives, only 1 and -1 are whole, and of these the bits above have told.
    far_from_one = te.any(a > const_like(1, a), a < const_like(-1, a))
    return te.select(_both(b < const_like(0, b), far_from_one), const_like(0, a), result)


def _shift(left: bool) -> Any:
    def shifted(a: Any, b: Any) -> Any:
        info = dtype_info(a.dtype)
        far = (
            te.any(b < const_like(0, b), b >= const_like(info.bits, b))
            if not info.kind.startswith("u")
            else b >= const_like(info.bits, b)
        )
        count = te.select(far, const_like(0, b), b)
        if left:
            return te.select(far, const_like(0, a), a << count)
        return te.select(
            far,
            te.select(a < const_like(0, a), const_like(-1, a), const_like(0, a))
            if not info.kind.startswith("u")
            else const_like(0, a),
            a >> count,
        )

    return shifted


binary("int_power", _pow)
binary("left_shift", _shift(True))
binary("right_shift", _shift(False))


# ---- floats


def _bits(x: Any) -> Any:
    return te.reinterpret(_UINT[x.dtype], x)


def _signbit(x: Any) -> Any:
    raw = _bits(x)
    return raw >> const_like(dtype_info(x.dtype).bits - 1, raw) != const_like(0, raw)


def _nextafter(a: Any, b: Any) -> Any:
    raw = _bits(a)
    n = dtype_info(a.dtype).bits
    one = const_like(1, raw)
    away = te.bitwise_not(_differ(b > a, a > const_like(0, a)))
    step = te.select(away, raw + one, raw - one)
    least = te.select(b > a, one, one | (one << const_like(n - 1, raw)))
    moved = te.reinterpret(a.dtype, te.select(a == const_like(0, a), least, step))
    found = te.select(a == b, b, moved)
    return te.select(te.any(te.isnan(a), te.isnan(b)), a + b, found)


def _logaddexp(a: Any, b: Any) -> Any:
    top = te.maximum(a, b)
    gap = te.select(a == b, const_like(0, a), te.abs(a - b))
    return top + te.log1p(te.exp(const_like(0, a) - gap))


def _signum(x: Any) -> Any:
    """The sign, 0 for both zeros."""
    return te.select(x == const_like(0, x), const_like(0, x), te.sign(x))


unary("signum", _signum)
unary("log10", te.log10, traits="c")
unary("signbit", _signbit, to_bool)
binary("copysign", te.copysign)
binary("hypot", te.hypot)
binary("nextafter", _nextafter)
binary("logaddexp", _logaddexp, traits="c")


# ---- what has no inputs


def _positions_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    return [TensorType(attrs["dtype"], tuple(attrs["shape"]))]


@register("positions", INJECTIVE, taking(0, _positions_type))
def _positions(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Each element's place along `axis` of an array of `shape`, as `dtype`."""
    axis = attrs["axis"]
    return [te.compute(outputs[0].shape, lambda *i: te.cast(attrs["dtype"], i[axis]), name="positions")]
