"""Blocks of weights as float32, exactly as ggml's reference computes them: one function a format.

Each takes blocks [n, nbytes] uint8 and gives values [n, block] float32. The order of the operations is that of ggml-quants.c, so that results agree to the
last bit. Codebooks are in `codebooks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ImportModelError
from . import grids
from .bits import half, words
from .kinds import Format

# Weights at a time, so that what lies between bytes and values fits into a second-level cache of a few MB.
CHUNK = 1 << 20


def dequantize_blocks(format: Format, data: Any) -> Any:
    """The values of whole blocks as a flat float32 array. data: bytes, uint8 [m * nbytes]. Raises ImportModelError for other sizes, or a format without
    blocks (GPTQ, AWQ)."""
    raw = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    raw = raw.reshape(-1).view(np.uint8)
    if not format.nbytes or raw.size % format.nbytes:
        raise ImportModelError(
            f"{raw.size} bytes are no whole blocks of {format.name} ({format.nbytes} bytes each)",
            hint="whole rows of the tensor as the file has them",
        )
    if format.dtype is not None:
        return raw.view(format.dtype).astype(np.float32)
    read = _READ[format]
    blocks = raw.reshape(-1, format.nbytes)
    out = np.empty((len(blocks), format.block), np.float32)
    step = max(1, CHUNK // format.block)
    for at in range(0, len(blocks), step):
        out[at : at + step] = read(blocks[at : at + step]).reshape(-1, format.block)
    return out.reshape(-1)


def nibbles(q: Any) -> Any:
    """[..., m] bytes as [..., 2 m]: all low halves, then all high ones."""
    return np.concatenate([q & 15, q >> 4], -1)


def _bf16(b: Any) -> Any:
    return (b.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(b: Any) -> Any:
    return half(b, 0) * (nibbles(b[:, 2:]).astype(np.int8) - 8).astype(np.float32)


def _q4_1(b: Any) -> Any:
    return half(b, 0) * nibbles(b[:, 4:]).astype(np.float32) + half(b, 2)


def _fifth_bits(b: Any, at: int) -> Any:
    return np.unpackbits(np.ascontiguousarray(b[:, at : at + 4]), axis=-1, bitorder="little") << 4


def _q5_0(b: Any) -> Any:
    return half(b, 0) * ((nibbles(b[:, 6:]) | _fifth_bits(b, 2)).astype(np.int8) - 16).astype(np.float32)


def _q5_1(b: Any) -> Any:
    return half(b, 0) * (nibbles(b[:, 8:]) | _fifth_bits(b, 4)).astype(np.float32) + half(b, 2)


def _q8_0(b: Any) -> Any:
    return b[:, 2:].view(np.int8).astype(np.float32) * half(b, 0)


def _q8_1(b: Any) -> Any:
    return b[:, 4:].view(np.int8).astype(np.float32) * half(b, 0)


def _q8_k(b: Any) -> Any:
    return np.ascontiguousarray(b[:, :4]).view("<f4") * b[:, 4:260].view(np.int8).astype(np.float32)


def _q1_0(b: Any) -> Any:
    bits = np.unpackbits(np.ascontiguousarray(b[:, 2:]), axis=-1, bitorder="little").astype(np.float32)
    return half(b, 0) * (2 * bits - 1)


def _two_bits(q: Any) -> Any:
    """[n, m] bytes as codes of two bits: of each run of 32 bytes first all lowest pairs, then the next ones."""
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    return (q.reshape(len(q), -1, 1, 32) >> shifts & 3).reshape(len(q), -1)


def _q2_k(b: Any) -> Any:
    scales = half(b, 80) * (b[:, :16] & 15).astype(np.float32)
    minima = half(b, 82) * (b[:, :16] >> 4).astype(np.float32)
    codes = _two_bits(b[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
    return scales[..., None] * codes - minima[..., None]


def _q3_k(b: Any) -> Any:
    packed = b[:, 96:108]
    low = nibbles(packed[:, :8])
    high = (packed[:, None, 8:] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3).reshape(-1, 16)
    scales = half(b, 108) * ((low | high << 4).astype(np.int8) - 32).astype(np.float32)
    above = (b[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None] & 1).reshape(-1, 256)
    codes = _two_bits(b[:, 32:96]).astype(np.int8) - ((above ^ 1) << 2).astype(np.int8)
    return scales[..., None] * codes.reshape(-1, 16, 16).astype(np.float32)


def _scales_and_minima(b: Any) -> tuple[Any, Any]:
    """Those of the eight sub-blocks of Q4_K and Q5_K [n, 8, 1]: six bits each in bytes 4 to 16, times the two float16 before them."""
    s = b[:, 4:16]
    low, high = s[:, 8:] & 15, s[:, 8:] >> 4
    scales = np.concatenate([s[:, :4] & 63, low | (s[:, :4] >> 6 << 4)], -1).astype(np.float32)
    minima = np.concatenate([s[:, 4:8] & 63, high | (s[:, 4:8] >> 6 << 4)], -1).astype(np.float32)
    return (half(b, 0) * scales)[..., None], (half(b, 2) * minima)[..., None]


def _q4_k(b: Any) -> Any:
    scales, minima = _scales_and_minima(b)
    codes = nibbles(b[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32).astype(np.float32)
    return scales * codes - minima


def _q5_k(b: Any) -> Any:
    scales, minima = _scales_and_minima(b)
    high = b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    codes = nibbles(b[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | high << 4
    return scales * codes.astype(np.float32) - minima


def _q6_k(b: Any) -> Any:
    low = nibbles(b[:, :128].reshape(-1, 2, 64)).reshape(-1, 256)
    codes = (low | _two_bits(b[:, 128:192]) << 4).astype(np.int8) - 32
    scales = half(b, 208) * b[:, 192:208].view(np.int8).astype(np.float32)
    return scales[..., None] * codes.reshape(-1, 16, 16).astype(np.float32)


def _tq1_0(b: Any) -> Any:
    """Five digits of base three a byte, as fractions of 256: times 3 to the k, and the top digit is next."""

    def digits(q: Any, count: int) -> Any:
        powers = np.array([1, 3, 9, 27, 81][:count], np.uint8)[:, None]
        return (q[:, None] * powers).reshape(len(q), -1)

    q = np.concatenate([digits(b[:, :32], 5), digits(b[:, 32:48], 5), digits(b[:, 48:52], 4)], -1)
    return half(b, 52) * ((q.astype(np.uint16) * 3 >> 8).astype(np.int8) - 1).astype(np.float32)


def _tq2_0(b: Any) -> Any:
    return half(b, 64) * (_two_bits(b[:, :64]).astype(np.int8) - 1).astype(np.float32)


# Twice the values of FP4 E2M1 (OCP Microscaling Formats 1.0), and the values of IQ4_NL (`kvalues_iq4nl`).
FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def _mxfp4(b: Any) -> Any:
    """A scale of E8M0, halved since the table holds twice the values. Exponents 0 and 1 give subnormal floats."""
    e = b[:, :1].astype(np.uint32)
    scale = np.where(e < 2, np.uint32(0x200000) << e, (np.maximum(e, 1) - 1) << 23).view(np.float32)
    return scale * FP4[nibbles(b[:, 1:])]


def _e4m3_scales() -> Any:
    """Half the values of unsigned E4M3 bytes, as ggml reads the scales of NVFP4; 0x7f and what lies above it have their sign ignored."""
    x = np.arange(256)
    exponent, mantissa = (x >> 3 & 15), (x & 7).astype(np.float32)
    raw = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    return np.where((x == 0) | (x == 0x7F), 0, raw * 0.5).astype(np.float32)


_E4M3_HALVES = _e4m3_scales()


def _nvfp4(b: Any) -> Any:
    codes = nibbles(b[:, 4:].reshape(-1, 4, 8))
    return _E4M3_HALVES[b[:, :4]][..., None] * FP4[codes]


def _iq4_nl(b: Any) -> Any:
    return half(b, 0) * IQ4[nibbles(b[:, 2:])]


def _iq4_xs(b: Any) -> Any:
    high = words(b, 2, 4, "<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], -1).reshape(-1, 8)
    scales = half(b, 0) * ((low | high.astype(np.uint8) << 4).astype(np.int8) - 32).astype(np.float32)
    return scales[..., None] * IQ4[nibbles(b[:, 8:].reshape(-1, 8, 16))]


def _e4m3fn(b: Any) -> Any:
    return _E4M3[b.reshape(-1)]


def _e5m2(b: Any) -> Any:
    """The upper bytes of float16."""
    return (b.reshape(-1).astype(np.uint16) << 8).view(np.float16).astype(np.float32)


def _e4m3_values() -> Any:
    """E4M3 without infinities: 0x7f and 0xff are NaN."""
    x = np.arange(256)
    exponent, mantissa = x >> 3 & 15, (x & 7) / 8
    size = np.where(exponent == 0, mantissa * 2.0**-6, (1 + mantissa) * 2.0 ** (exponent - 7))
    return np.where((x & 127) == 127, np.nan, np.where(x & 128, -size, size)).astype(np.float32)


_E4M3 = _e4m3_values()

_READ: dict[Format, Callable[[Any], Any]] = {
    Format.BF16: _bf16, Format.Q4_0: _q4_0, Format.Q4_1: _q4_1, Format.Q5_0: _q5_0, Format.Q5_1: _q5_1, Format.Q8_0: _q8_0,
    Format.Q8_1: _q8_1, Format.Q8_K: _q8_k, Format.Q1_0: _q1_0, Format.Q2_K: _q2_k, Format.Q3_K: _q3_k, Format.Q4_K: _q4_k,
    Format.Q5_K: _q5_k, Format.Q6_K: _q6_k, Format.TQ1_0: _tq1_0, Format.TQ2_0: _tq2_0, Format.MXFP4: _mxfp4, Format.NVFP4: _nvfp4,
    Format.IQ4_NL: _iq4_nl, Format.IQ4_XS: _iq4_xs, Format.IQ1_S: grids.iq1_s, Format.IQ1_M: grids.iq1_m,
    Format.IQ2_XXS: grids.iq2_xxs, Format.IQ2_XS: grids.iq2_xs, Format.IQ2_S: grids.iq2_s, Format.IQ3_XXS: grids.iq3_xxs,
    Format.IQ3_S: grids.iq3_s, Format.F8_E4M3: _e4m3fn, Format.F8_E5M2: _e5m2,
}  # fmt: skip
