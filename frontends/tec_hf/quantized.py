"""Weights of GPTQ, AWQ and 8-bit floats, whose values are several tensors of a file, and the MXFP4 of gpt-oss.

GPTQ   qweight int32 [in / (32 / bits), out]: the rows of one word lie one above the other, lowest bits first; qzeros [groups, out / (32 / bits)], one less than
       the zero point unless the checkpoint says "gptq_v2"; scales [groups, out]; g_idx [in]: each row's group. weight = (q - zero) * scale.
AWQ    qweight int32 [in, out / 8]: columns of one word in the order 0 2 4 6 1 3 5 7; qzeros likewise; scales [groups, out].
fp8    weight float8 [out, in] and weight_scale_inv (a block of 128 x 128 each, DeepSeek) or weight_scale (one, or one a row): value = weight * scale.
MXFP4  blocks uint8 [..., out, in / 32, 16] and scales uint8 [..., out, in / 32]: neighbours share a byte; here as ggml has it, elements j and j + 16.

Sources: AutoGPTQ's qlinear modules, AutoAWQ's `packing_utils`, transformers' `finegrained_fp8` and `mxfp4` integrations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tec.errors import ImportModelError
from tec.lm.checkpoint import PackedTensor
from tec.lm.formats import Format
from tec.lm.remedies import FETCH_AGAIN

_AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]  # where column k of eight lies among a word's nibbles


def _array(t: PackedTensor, dtype: str) -> Any:
    return t.data.view(dtype).reshape(t.shape)


def _need(condition: bool, name: str, text: str) -> None:
    if not condition:
        raise ImportModelError(f"{name}: {text}", hint="the checkpoint is damaged, or packed in another way")


def gptq(name: str, parts: Mapping[str, PackedTensor], settings: Mapping[str, Any]) -> PackedTensor:
    """One weight of GPTQ, [out, in]. Raises ImportModelError for parts that do not fit each other."""
    bits = settings.get("bits", 4)
    _need(bits in (2, 4, 8), name, f"{bits} bits a weight; 2, 4 and 8 are read")
    _need(
        {"qweight", "qzeros", "scales"} <= parts.keys(), name, f"of its parts there are only {', '.join(sorted(parts))}"
    )
    each = 32 // bits
    q, zeros, scales = parts["qweight"], parts["qzeros"], parts["scales"]
    _need(
        len(q.shape) == len(scales.shape) == 2 and q.format is zeros.format is Format.I32,
        name,
        f"qweight is {q.format.name} {list(q.shape)}",
    )
    rows, out = q.shape[0] * each, q.shape[1]
    groups = scales.shape[0]
    _need(
        scales.shape == (groups, out) and zeros.shape == (groups, out // each) and groups > 0,
        name,
        f"scales are {list(scales.shape)}, zero points {list(zeros.shape)}",
    )
    held = {"scales": scales, "qzeros": zeros}
    if "g_idx" in parts:
        index = parts["g_idx"]
        _need(index.shape == (rows,) and index.format is Format.I32, name, f"g_idx is {list(index.shape)}")
        held["g_idx"] = index
    else:
        _need(rows % groups == 0, name, f"{groups} groups of {rows} rows")
    shift = 0 if settings.get("checkpoint_format") == "gptq_v2" else 1
    said = settings.get("group_size", -1)
    group = said if type(said) is int and said > 0 else rows

    def held_codes() -> tuple[Any, Any]:
        """Codes [in, out] and zero points [groups, out]."""
        shifts = np.arange(0, 32, bits, dtype=np.uint32)
        mask = np.uint32((1 << bits) - 1)
        codes = (_array(q, "<u4")[:, None] >> shifts[:, None] & mask).astype(np.uint8).reshape(rows, out)
        zero = (_array(zeros, "<u4")[..., None] >> shifts & mask).reshape(groups, out).astype(np.float32) + shift
        return codes, zero

    def in_order() -> tuple[Any, Any, Any]:
        codes, zero = held_codes()
        if "g_idx" in held and (_array(held["g_idx"], "<i4") != np.arange(rows) // group).any():
            raise ImportModelError(f"{name}: g_idx is not in order", hint="desc_act = true in the quantization config")
        return np.ascontiguousarray(codes.T), scales.dequantize().T, zero.T

    def values(t: PackedTensor) -> Any:
        codes, zero = held_codes()
        index = _array(held["g_idx"], "<i4") if "g_idx" in held else np.arange(rows) // (rows // groups)
        if index.size and not 0 <= index.min() <= index.max() < groups:
            raise ImportModelError(
                f"{name}: g_idx names groups {index.min()} to {index.max()} of {groups}", hint=FETCH_AGAIN
            )
        return np.ascontiguousarray(((codes - zero[index]) * scales.dequantize()[index]).T)

    is_in_order = settings.get("desc_act") is False and groups * group == rows
    codes = in_order if is_in_order else None
    return PackedTensor(
        name, (out, rows), Format.GPTQ, q.raw, parts=held, bits=bits, group=group, values=values, codes=codes
    )


def awq(name: str, parts: Mapping[str, PackedTensor], settings: Mapping[str, Any]) -> PackedTensor:
    """One weight of AWQ (gemm), [out, in]. Raises ImportModelError for parts that do not fit each other."""
    bits = settings.get("bits", settings.get("w_bit", 4))
    _need(
        bits == 4 and str(settings.get("version", "gemm")).lower() == "gemm",
        name,
        f"{bits} bits, version {settings.get('version')}; 4 bits of gemm are read",
    )
    _need(
        {"qweight", "qzeros", "scales"} <= parts.keys(), name, f"of its parts there are only {', '.join(sorted(parts))}"
    )
    q, zeros, scales = parts["qweight"], parts["qzeros"], parts["scales"]
    _need(
        len(q.shape) == len(scales.shape) == 2 and q.format is zeros.format is Format.I32,
        name,
        f"qweight is {q.format.name} {list(q.shape)}",
    )
    rows, out = q.shape[0], q.shape[1] * 8
    groups = scales.shape[0]
    fits = groups > 0 and rows % groups == 0 and scales.shape == (groups, out) and zeros.shape == (groups, out // 8)
    _need(fits, name, f"scales are {list(scales.shape)}, zero points {list(zeros.shape)}, and {rows} rows")

    def held_codes() -> tuple[Any, Any]:
        """Codes [in, out] and zero points [groups, out]."""
        shifts = 4 * np.array(_AWQ_ORDER, np.uint32)
        codes = (_array(q, "<u4")[..., None] >> shifts & 15).astype(np.uint8).reshape(rows, out)
        return codes, (_array(zeros, "<u4")[..., None] >> shifts & 15).reshape(groups, out).astype(np.float32)

    def in_order() -> tuple[Any, Any, Any]:
        codes, zero = held_codes()
        return np.ascontiguousarray(codes.T), scales.dequantize().T, zero.T

    def values(t: PackedTensor) -> Any:
        codes, zero = held_codes()
        index = np.arange(rows) // (rows // groups)
        return np.ascontiguousarray(((codes - zero[index]) * scales.dequantize()[index]).T)

    return PackedTensor(
        name,
        (out, rows),
        Format.AWQ,
        q.raw,
        parts={"scales": scales, "qzeros": zeros},
        bits=4,
        group=rows // groups,
        values=values,
        codes=in_order,
    )


def fp8(name: str, weight: PackedTensor, scale: PackedTensor, block: Any) -> PackedTensor:
    """A weight of 8-bit floats with its scales, [out, in]. block: [rows, columns] that share one where there is one for blocks."""
    shape = weight.shape
    _need(len(shape) == 2, name, f"8-bit floats of shape {list(shape)} with scales")
    rows, columns = (int(n) for n in block) if isinstance(block, list) and len(block) == 2 else (128, 128)
    blocks = (math.ceil(shape[0] / max(rows, 1)), math.ceil(shape[1] / max(columns, 1)))
    count = math.prod(scale.shape)
    _need(
        count in (1, shape[0]) or scale.shape == blocks,
        name,
        f"scales of {list(scale.shape)} for weights of {list(shape)}",
    )

    def values(t: PackedTensor) -> Any:
        s = scale.dequantize()
        if count == 1:
            s = s.reshape(1, 1)
        elif scale.shape == blocks and scale.shape != (shape[0], 1):
            s = np.repeat(np.repeat(s, rows, 0)[: shape[0]], columns, 1)[:, : shape[1]]
        else:
            s = s.reshape(-1, 1)
        return PackedTensor(name, shape, weight.format, weight.raw).dequantize() * s

    return PackedTensor(name, shape, weight.format, weight.raw, parts={"scale": scale}, values=values)


def mxfp4(name: str, blocks: PackedTensor, scales: PackedTensor, every: slice) -> PackedTensor:
    """The MXFP4 of gpt-oss in ggml's blocks. every: which of the rows (axis 1): those of the gate and of the other product lie in turn."""
    shape = blocks.shape
    _need(
        len(shape) == 4 and shape[3] == 16 and scales.shape == shape[:3],
        name,
        f"blocks are {list(shape)}, scales {list(scales.shape)}",
    )
    rows = len(range(*every.indices(shape[1])))

    def join() -> Any:
        q = blocks.data.reshape(shape)[:, every]
        codes = np.stack([q & 15, q >> 4], -1).reshape(*q.shape[:3], 2, 16)
        packed = codes[..., 0, :] | codes[..., 1, :] << 4
        return np.concatenate([scales.data.reshape(scales.shape)[:, every, :, None], packed], -1).reshape(-1)

    return PackedTensor(name, (shape[0], rows, shape[2] * 32), Format.MXFP4, join)
