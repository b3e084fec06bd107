"""ggml's block formats as codes with a scale and maybe a zero point for each block: what `tec.ops.packed` keeps packed.

A row of k weights is k / `block` blocks one behind the other. `codes_of` reads rows of bytes: codes [rows, k] uint8, scales and zero points
[rows, k / step] float32, such that a weight is (code - zero) * scale. Sources: the structs of ggml-common.h and the loops of ggml-quants.c
(`dequantize_row_*`), which say what the bits mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ImportModelError

Codes = tuple[Any, Any, Any]  # codes, scales, zero points or None


@dataclass(frozen=True)
class Format:
    """bits: of a code as it is kept, of which 6 take 8 where codes are no panels; block: weights of a block in the file; nbytes: of such a block; step: weights that share a scale; zero: the zero point
    of all blocks, None where each has its own; read: bytes [rows, blocks, nbytes] to codes, scales and zero points."""

    bits: int
    block: int
    nbytes: int
    step: int
    zero: float | None
    read: Callable[[Any], Codes]


def codes_of(format: str, data: Any, rows: int, k: int) -> Codes:
    """The codes of `rows` rows of k weights. Raises ImportModelError where the bytes are not as many."""
    f = FORMATS[format]
    raw = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data.reshape(-1).view(np.uint8)
    if k % f.block or raw.size != rows * (k // f.block) * f.nbytes:
        raise ImportModelError(
            f"{raw.size} bytes for {rows} rows of {k} weights in {format}",
            hint="whole blocks: numpy bytes [rows, k / block * bytes of a block] as the file has them",
        )
    codes, scales, zeros = f.read(raw.reshape(rows, k // f.block, f.nbytes))
    shape = rows, k // f.step
    return codes.reshape(rows, k), scales.reshape(shape), None if zeros is None else zeros.reshape(shape)


def _half(b: Any, at: int) -> Any:
    """A float16 at a byte of each block, as float32 [rows, blocks, 1]."""
    return np.ascontiguousarray(b[..., at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(q: Any) -> Any:
    """[..., n] bytes as [..., 2 n] codes: all low halves, then all high ones. Runs of 16 bytes, as most formats have them, are put beside each other as one
    element each: byte by byte NumPy takes twice as long."""
    q = np.ascontiguousarray(q)
    run = np.dtype("V16") if q.shape[-1] % 16 == 0 else q.dtype
    return np.concatenate([(q & 15).view(run), (q >> 4).view(run)], -1).view(np.uint8)


def _fifth(b: Any, at: int) -> Any:
    """The fifth bits of 32 codes, which lie in four bytes, in their place."""
    return np.unpackbits(np.ascontiguousarray(b[..., at : at + 4]), axis=-1, bitorder="little") << 4


def _with_minimum(codes: Any, scale: Any, low: Any) -> Codes:
    """code * scale + low as (code - zero) * scale. A block whose scale is 0 holds its minimum alone: codes are 0 then, and the minimum is the scale."""
    flat = scale == 0
    zero = np.divide(-low, scale, out=np.full_like(low, -1.0), where=~flat)
    codes = codes.reshape(*scale.shape, -1)
    if flat.any():
        codes = np.where(flat[..., None], np.uint8(0), codes)
        scale = np.where(flat, low, scale)
    return codes, scale, zero


def _q4_0(b: Any) -> Codes:
    return _nibbles(b[..., 2:]), _half(b, 0), None


def _q4_1(b: Any) -> Codes:
    return _with_minimum(_nibbles(b[..., 4:]), _half(b, 0)[..., 0], _half(b, 2)[..., 0])


def _q5_0(b: Any) -> Codes:
    return _nibbles(b[..., 6:]) | _fifth(b, 2), _half(b, 0), None


def _q5_1(b: Any) -> Codes:
    return _with_minimum(_nibbles(b[..., 8:]) | _fifth(b, 4), _half(b, 0)[..., 0], _half(b, 2)[..., 0])


def _q8_0(b: Any) -> Codes:
    return b[..., 2:] ^ np.uint8(128), _half(b, 0), None


def _k_scales(s: Any) -> tuple[Any, Any]:
    """Eight scales and eight minima of 6 bits from 12 bytes."""
    low, high = s[..., 8:] & 15, s[..., 8:] >> 4
    scales = np.concatenate([s[..., :4] & 63, low | (s[..., :4] >> 6 << 4)], -1)
    minima = np.concatenate([s[..., 4:8] & 63, high | (s[..., 4:8] >> 6 << 4)], -1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _pairs(q: Any) -> Any:
    """Four runs of 32 bytes, each the low halves of 32 codes and the high ones of the next 32: 256 codes."""
    return _nibbles(q.reshape(*q.shape[:-1], 4, 32)).reshape(*q.shape[:-1], 256)


def _quarters(q: Any) -> Any:
    """Two runs of 32 bytes, each the codes of 2 bits of four runs of 32, the lowest first: 256 codes."""
    q = q.reshape(*q.shape[:-1], 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    return q.reshape(*q.shape[:-3], 256)


def _q2_k(b: Any) -> Codes:
    scales, minima = ((b[..., :16] >> at & 15).astype(np.float32) for at in (0, 4))
    return _with_minimum(_quarters(b[..., 16:80]), _half(b, 80) * scales, -_half(b, 82) * minima)


def _q3_k(b: Any) -> Codes:
    """Bit 2 of a code, 4 of which stand for 0, is bit j of the first 32 bytes for run j of 32 codes; 16 scales of 6 bits."""
    third = b[..., None, :32] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    low = b[..., 96:104]
    low = np.concatenate([low & 15, low >> 4], -1)
    high = (b[..., None, 104:108] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3).reshape(low.shape)
    scales = (low | high << 4).astype(np.float32) - 32
    return _quarters(b[..., 32:96]) | third.reshape(*b.shape[:-1], 256) << 2, _half(b, 108) * scales, None


def _q4_k(b: Any) -> Codes:
    scales, minima = _k_scales(b[..., 4:16])
    return _with_minimum(_pairs(b[..., 16:]), _half(b, 0) * scales, -_half(b, 2) * minima)


def _q5_k(b: Any) -> Codes:
    scales, minima = _k_scales(b[..., 4:16])
    # Bit j of the bytes belongs to run j.
    high = b[..., 16:48][..., None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    codes = _pairs(b[..., 48:]) | (high.reshape(*high.shape[:-2], 256) << 4)
    return _with_minimum(codes, _half(b, 0) * scales, -_half(b, 2) * minima)


def _q6_k(b: Any) -> Codes:
    low = b[..., :128].reshape(*b.shape[:-1], 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], -2).reshape(*b.shape[:-1], 2, 4, 32)
    high = b[..., 128:192].reshape(*b.shape[:-1], 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    scales = np.ascontiguousarray(b[..., 192:208]).view(np.int8).astype(np.float32)
    return (low | high << 4).reshape(*b.shape[:-1], 256), _half(b, 208) * scales, None


# The numbers of IQ4_NL and IQ4_XS (`kvalues_iq4nl`), and twice those of FP4 E2M1 (`kvalues_mxfp4`).
_IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int16)
_FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int16)
_MIDDLE = 128  # what makes codes of bytes of a table's numbers


def _table(numbers: Any, q: Any) -> Any:
    return (numbers + _MIDDLE).astype(np.uint8)[_nibbles(q)]


def _iq4_nl(b: Any) -> Codes:
    return _table(_IQ4, b[..., 2:]), _half(b, 0), None


def _iq4_xs(b: Any) -> Codes:
    """A float16, 16 bits of the upper halves of scales, 4 bytes of the lower ones, 128 bytes of codes."""
    high = b[..., 2:4].astype(np.uint16)
    high = (high[..., :1] | high[..., 1:] << 8) >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = b[..., 4:8]
    low = np.stack([low & 15, low >> 4], -1).reshape(*low.shape[:-1], 8)
    scales = (low | high << 4).astype(np.float32) - 32
    codes = _table(_IQ4, b[..., 8:].reshape(*b.shape[:-1], 8, 16))
    return codes.reshape(*b.shape[:-1], 256), _half(b, 0) * scales, None


def _mxfp4(b: Any) -> Codes:
    """A power of two as a byte, halved since the table's numbers are doubled; then 16 bytes."""
    scale = np.ldexp(np.float32(1), b[..., :1].astype(np.int32) - 128)
    return _table(_FP4, b[..., 1:]), scale, None


FORMATS = {
    "Q2_K": Format(4, 256, 84, 16, None, _q2_k), "Q3_K": Format(4, 256, 110, 16, 4.0, _q3_k),
    "Q4_0": Format(4, 32, 18, 32, 8.0, _q4_0), "Q4_1": Format(4, 32, 20, 32, None, _q4_1), "Q5_0": Format(6, 32, 22, 32, 16.0, _q5_0),
    "Q5_1": Format(6, 32, 24, 32, None, _q5_1), "Q8_0": Format(8, 32, 34, 32, 128.0, _q8_0), "Q4_K": Format(4, 256, 144, 32, None, _q4_k),
    "Q5_K": Format(6, 256, 176, 32, None, _q5_k), "Q6_K": Format(6, 256, 210, 16, 32.0, _q6_k), "IQ4_NL": Format(8, 32, 18, 32, 128.0, _iq4_nl),
    "IQ4_XS": Format(8, 256, 136, 32, 128.0, _iq4_xs), "MXFP4": Format(8, 32, 17, 32, 128.0, _mxfp4),
}  # fmt: skip
WIDE_SCALES = ("MXFP4",)  # whose scales float16 does not hold
