"""GGUF files for tests: `write` lets the package `gguf` write one; `header` writes bytes that no honest writer would."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np


def write(
    path: Path,
    architecture: str,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Any],
    kinds: Mapping[str, str] | None = None,
) -> Path:
    """A file by the package `gguf`. tensors: float32 arrays. kinds: the format of some of them, by name."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        _add(writer, key, value)
    for name, value in tensors.items():
        kind = gguf.GGMLQuantizationType[(kinds or {}).get(name, "F32")]
        if kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, value)
        else:
            writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, list(value))


LLAMA = {
    "llama.context_length": 64, "llama.embedding_length": 64, "llama.block_count": 1, "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.rope.freq_base": 500000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.eot_token_id": 3,
}  # fmt: skip


def llama_tensors(seed: int = 0) -> dict[str, np.ndarray]:
    """A Llama of one layer: hidden 64, four heads of 16 over two of keys, 96 in between, 40 tokens."""
    rng = np.random.default_rng(seed)
    shapes = {
        "token_embd.weight": (40, 64), "output_norm.weight": (64,), "blk.0.attn_norm.weight": (64,), "blk.0.attn_q.weight": (64, 64),
        "blk.0.attn_k.weight": (32, 64), "blk.0.attn_v.weight": (32, 64), "blk.0.attn_output.weight": (64, 64), "blk.0.ffn_norm.weight": (64,),
        "blk.0.ffn_gate.weight": (96, 64), "blk.0.ffn_up.weight": (96, 64), "blk.0.ffn_down.weight": (64, 96),
    }  # fmt: skip
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def text(value: str | bytes) -> bytes:
    """A text as it lies in a file."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def tensor(name: str | bytes, dimensions: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    """What a header says of a tensor; dimensions in the file's order."""
    return text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset)


def header(
    pairs: list[bytes], tensors: list[bytes], *, version: int = 3, counts: tuple[int, int] | None = None, data: int = 0
) -> bytes:
    """A file's bytes: counts (of tensors, of pairs) may lie; `data` zeros behind the header, on the next multiple of 32."""
    n = counts or (len(tensors), len(pairs))
    out = b"GGUF" + struct.pack("<IQQ", version, *n) + b"".join(pairs) + b"".join(tensors)
    return out + bytes(-len(out) % 32) + bytes(data)


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    """One pair of metadata."""
    return text(key) + struct.pack("<I", kind) + value
