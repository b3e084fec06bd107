"""What CUDA, numba and PyTorch call what tiles have, for the message about a word that is not there."""

from __future__ import annotations

from collections.abc import Iterable

from ..likeness import by_name, meant
from . import libdevice

_WORDS = by_name({
    "nothing: the compiler places the barriers; tl.debug_barrier() is one": "syncthreads barrier __syncthreads syncwarp",
    "nothing: the compiler places tiles in registers and in shared memory": "shared shared_memory alloc local",
    "tl.arange(0, n): a program works on whole tiles, and has no threads": "threadIdx thread_id thread_idx lane laneid",
    "tl.program_id(axis)": "blockIdx block_idx block_id", "tl.num_programs(axis)": "gridDim grid_dim",
    "tl.sum(x, axis) / n": "mean", "tl.sum((x - mean) * (x - mean), axis) / n": "var",
    "tl.dot(a, b)": "matmul mm", "tl.trans(x)": "transpose", "tl.cat(a, b)": "concatenate concat", "tl.expand_dims(x, axis)": "unsqueeze",
    "tl.clamp(x, low, high)": "clip", "x * tl.sigmoid(x)": "silu swish", "tl.maximum(x, 0.0)": "relu",
    "tl.float32": "float float_", "tl.int32": "int int_", "tl.int1": "bool bool_", "a number: 3.14159265": "pi",
    "x.to(dtype)": "astype", "tl.load(x + i)": "ld", "tl.store(x + i, v)": "st",
})  # fmt: skip


def hint(name: str, there: Iterable[str]) -> str:
    """What to write in place of a word that the language of tiles has not."""
    if name in _WORDS:
        return _WORDS[name]
    if callable(getattr(libdevice, name, None)) and not name.startswith("_"):
        return f"tl.extra.libdevice.{name}"
    return meant(name, there) or "docs/tiles.md lists the words"
