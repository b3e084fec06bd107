"""Values of packed weights: every format of ggml, to the last bit as the package `gguf` computes them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from tec.errors import ImportModelError
from tec.lm.blocks import FORMATS, codes_of
from tec.lm.formats import Format, dequantize_blocks, of_ggml, packed_bytes
from tests import seeds

PEERS = {Format[t.name]: cls for t, cls in quants._type_traits.items() if t.name in Format.__members__}


@pytest.mark.parametrize("kind", GGMLQuantizationType, ids=lambda k: k.name)
def test_sizes_are_ggml_s(kind):
    format = of_ggml(int(kind))
    # Two float16 in ggml-common.h; the package still has two float32.
    size = (32, 36) if kind.name == "Q8_1" else GGML_QUANT_SIZES[kind]
    assert (format.name, format.block, format.nbytes) == (kind.name, *size)


def test_every_format_that_the_peer_knows_is_compared():
    assert len(PEERS) >= 24, "the package gguf keeps its functions elsewhere"


@pytest.mark.parametrize("format", PEERS, ids=lambda f: f.name)
def test_values_are_the_peer_s(format):
    rng = np.random.default_rng(seeds.first(7))
    raw = rng.integers(0, 256, (3, 40 * format.nbytes), np.uint8)
    with np.errstate(all="ignore"):
        expected = PEERS[format].dequantize(raw)
        found = dequantize_blocks(format, raw)
    assert found.dtype == np.float32
    # Random bytes hold scales that are NaN: those are compared as NaN, all others by their bits.
    same = (found.view(np.uint32) == expected.reshape(-1).view(np.uint32)) | (
        np.isnan(found) & np.isnan(expected.reshape(-1))
    )
    assert same.all(), f"{(~same).sum()} of {same.size} differ"


@pytest.mark.parametrize("name", FORMATS)
def test_codes_that_stay_packed_stand_for_the_same_numbers(name):
    """To float32's last bits, since a minimum becomes a zero point; scales that are no numbers are left out."""
    f, format = FORMATS[name], Format[name]
    raw = np.random.default_rng(seeds.first(9)).integers(0, 256, (4, 512 // f.block, f.nbytes), np.uint8)
    with np.errstate(all="ignore"):
        codes, scales, zeros = codes_of(name, raw, 4, 512)
        want = dequantize_blocks(format, raw.reshape(-1)).reshape(4, 512)
        zero = np.repeat(zeros, f.step, 1) if zeros is not None else f.zero
        found = (codes - zero) * np.repeat(scales, f.step, 1)
        near = 1e-6 * (np.abs(zero) + codes) * np.abs(np.repeat(scales, f.step, 1))
        same = (np.abs(found - want) <= near) | ~np.isfinite(near) | (found == want) | ~np.isfinite(want)
    assert codes.max() < 1 << f.bits and np.isfinite(near).mean() > 0.5
    assert same.all(), f"{(~same).sum()} of {same.size} differ"


@pytest.mark.parametrize(
    "format", [Format.Q4_0, Format.Q4_1, Format.Q5_0, Format.Q5_1, Format.Q8_0, Format.BF16, Format.MXFP4]
)
def test_what_the_peer_quantized_is_near_what_it_was(format):
    weights = np.random.default_rng(seeds.first(8)).standard_normal((4, 256)).astype(np.float32)
    raw = PEERS[format].quantize(weights)
    found = dequantize_blocks(format, raw).reshape(weights.shape)
    assert packed_bytes(format, weights.shape) == raw.nbytes
    if format == Format.MXFP4:  # codes to 6 of what is up to 8 of a block's scale
        most = np.abs(weights).reshape(-1, 32).max(1, keepdims=True) / 4
    else:
        most = 0.02 if format in (Format.Q8_0, Format.BF16) else 0.6
    assert (np.abs(found - weights).reshape(-1, 32) <= most).all()


@pytest.mark.parametrize(
    "format,dtype", [(Format.F8_E4M3, ml_dtypes.float8_e4m3fn), (Format.F8_E5M2, ml_dtypes.float8_e5m2)]
)
def test_all_bytes_of_8_bit_floats(format, dtype):
    raw = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(dequantize_blocks(format, raw), raw.view(dtype).astype(np.float32))


def test_blocks_of_sums_hold_the_values_of_the_codes():
    """Q8_1 and Q8_K, which the peer has no function for: d * code."""
    codes = np.arange(-128, 128, dtype=np.int8)
    k = np.concatenate([np.array([0.5], "<f4").view(np.uint8), codes.view(np.uint8), np.zeros(32, np.uint8)])
    np.testing.assert_array_equal(dequantize_blocks(Format.Q8_K, k), codes * np.float32(0.5))
    one = np.concatenate([np.array([0.25, 3.0], "<f2").view(np.uint8), codes[:32].view(np.uint8)])
    np.testing.assert_array_equal(dequantize_blocks(Format.Q8_1, one), codes[:32] * np.float32(0.25))
    bits = np.concatenate([np.array([2.0], "<f2").view(np.uint8), np.full(16, 0b00000101, np.uint8)])
    assert dequantize_blocks(Format.Q1_0, bits)[:8].tolist() == [2, -2, 2, -2, -2, -2, -2, -2]


def test_bytes_that_are_no_whole_blocks():
    with pytest.raises(ImportModelError, match="no whole blocks of Q4_0"):
        dequantize_blocks(Format.Q4_0, np.zeros(17, np.uint8))
    with pytest.raises(ImportModelError, match="rows of 33 weights in Q8_0"):
        packed_bytes(Format.Q8_0, (2, 33))


@pytest.mark.parametrize("number,match", [(4, "Q4_2, a format that ggml gave up"), (1000, "number 1000")])
def test_numbers_of_no_format(number, match):
    with pytest.raises(ImportModelError, match=match):
        of_ggml(number)
