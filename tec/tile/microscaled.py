"""tl.dot_scaled: products of microscaling formats (OCP Microscaling Formats 1.0), by bfloat16 (float16 where an operand is) on the same units as tl.dot.

An operand is a tile of floats, or of bytes: 8-bit floats, or two 4-bit floats a byte ("e2m1"). Each 32 elements along k share a scale, the exponent of a
power of two (E8M0). NVFP4 has a scale for each 16 elements, an 8-bit float (E4M3): how many share one is what the scales' tile says.
"""

from __future__ import annotations

from typing import Any

from .access import dot
from .builder import bfloat16, current, describe, float16, float32, int32, plain
from .grammar import DTYPES
from .words import join, where

BLOCK = 32  # elements that share a scale
_FORMATS = {"e4m3": DTYPES["float8e4nv"], "e5m2": DTYPES["float8e5"], "bf16": bfloat16, "fp16": float16}


def _nibble(n: Any) -> Any:
    """E2M1: a sign, two bits of exponent, one of mantissa; 0 to 6."""
    exponent, half = (n >> 1) & 3, current().cast(n & 1, float32) * 0.5
    size = where(exponent == 0, half, (1.0 + half) * where(exponent == 1, 1.0, where(exponent == 2, 2.0, 4.0)))
    return where((n & 8) != 0, 0.0 - size, size)


def _opened(x: Any, axis: int) -> Any:
    """Two 4-bit floats a byte, the low half first, side by side along an axis: float32."""
    b = current()
    x = b.cast(x, int32) & 255
    both = join(_nibble(x & 15), _nibble((x >> 4) & 15))
    m, n = x.ty.shape
    return b.reshape(both, (m, 2 * n)) if axis == 1 else b.reshape(b.permute(both, (0, 2, 1)), (2 * m, n))


def _factors(scale: Any, k: int) -> Any:
    """Scales [rows, k / 32] as float32 [rows, k]: exponents in bytes, or 8-bit floats."""
    b = current()
    rows, groups = scale.ty.shape
    if k % groups:
        raise b.error(f"{groups} scales along a k of {k}", hint="a scale for each 32 elements, of NVFP4 for each 16")
    if scale.ty.dtype.is_floating():
        factor = b.cast(scale, float32)
    else:
        bits = b.cast(scale, int32) & 255
        bits = where(bits == 0, 0x00400000, where(bits == 255, 0x7FC00000, bits << 23))
        factor = b.cast(bits, float32, bitcast=True)
    spread = b.broadcast_to(b.expand_dims(factor, 2), (rows, groups, k // groups))
    return b.reshape(spread, (rows, k))


def _operand(x: Any, scale: Any, form: str, along: int, packed: bool) -> Any:
    """An operand in float32, times its scales. `along`: the dimension of k; `packed`: whether bytes of two lie along it."""
    b = current()
    if form not in ("e2m1", *_FORMATS):
        raise b.error(f"a format {form!r} of tl.dot_scaled", hint=", ".join(("e2m1", *_FORMATS)))
    if form == "e2m1":
        if x.ty.dtype.primitive_bitwidth != 8:
            raise b.error(f"e2m1 in {x.ty.dtype}", hint="two of them are a byte: uint8")
        wide = _opened(x, along if packed else 1 - along)
    else:
        t = _FORMATS[form]
        if x.ty.dtype.primitive_bitwidth != t.primitive_bitwidth:
            raise b.error(
                f"{form} in {describe(x)}", hint="give a tile of that format, or of the bytes that hold it (uint8)"
            )
        wide = b.cast(b.cast(x, t, bitcast=x.ty.dtype.is_int()), float32)
    if plain(scale) is None:
        return wide
    factors = _factors(scale, wide.ty.shape[along])
    return wide * (factors if along == 1 else b.permute(factors, (1, 0)))


def dot_scaled(
    lhs: Any,
    lhs_scale: Any,
    lhs_format: Any,
    rhs: Any,
    rhs_scale: Any,
    rhs_format: Any,
    acc: Any = None,
    fast_math: Any = False,
    lhs_k_pack: Any = True,
    rhs_k_pack: Any = True,
    out_dtype: Any = float32,
) -> Any:
    """acc + (lhs * lhs_scale) @ (rhs * rhs_scale), in the type of the sums.

    lhs: (M, K). rhs: (K, N). lhs_scale, rhs_scale: (M, K / 32) and (N, K / 32) of uint8, (M, K / 16) and (N, K / 16) of
    float8e4nv, or None. lhs_format,
    rhs_format: "e2m1" (two per byte, along K unless `lhs_k_pack` or `rhs_k_pack` is false), "e4m3", "e5m2", "bf16" or
    "fp16".

    >>> @tl.jit
    ... def show(a, out):
    ...     i, k = tl.arange(0, 16), tl.arange(0, 32)
    ...     x = tl.load(a + 32 * i[:, None] + k[None, :]).to(tl.bfloat16)
    ...     ones = tl.full((16, 1), 128, tl.uint8)  # 2 to the power 128 - 127
    ...     made = tl.dot_scaled(x, ones, "bf16", tl.trans(x), None, "bf16")
    ...     tl.store(out + 16 * i[:, None] + i[None, :], made)
    >>> a, out = np.ones((16, 32), "float32"), np.zeros((16, 16), "float32")
    >>> show[(1,)](a, out)
    >>> out[0, :4]
    array([64., 64., 64., 64.], dtype=float32)
    """
    b = current()
    forms = (str(plain(lhs_format)), str(plain(rhs_format)))
    x = _operand(lhs, lhs_scale, forms[0], 1, bool(plain(lhs_k_pack)))
    y = _operand(rhs, rhs_scale, forms[1], 0, bool(plain(rhs_k_pack)))
    t = float16 if "fp16" in forms else bfloat16
    return dot(b.cast(x, t), b.cast(y, t), acc, out_dtype=out_dtype)
