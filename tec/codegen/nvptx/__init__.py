"""NVPTX: the emitter for sm_70 to sm_121, the LLVM machine of a target, and PTX text of several kernels."""

from .emitter import NvptxEmitter
from .ptx import TRIPLE, dynamic_shared_bytes, extrema_in_words, join_ptx, machine_of, ordered_loads, sums_one_by_one

__all__ = [
    "TRIPLE",
    "NvptxEmitter",
    "dynamic_shared_bytes",
    "extrema_in_words",
    "join_ptx",
    "machine_of",
    "ordered_loads",
    "sums_one_by_one",
]
