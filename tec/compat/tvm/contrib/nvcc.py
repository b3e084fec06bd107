"""tvm.contrib.nvcc: what a GPU can do, by its version. No nvcc is used: code for NVIDIA is PTX from LLVM."""

from __future__ import annotations

from typing import Any

from ..names import absent


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """(major, minor) of "8.6"."""
    major, minor = compute_version.split(".")[:2]
    return int(major), int(minor)


def have_fp16(compute_version: str) -> bool:
    """Whether float16 is computed with: every GPU that tec makes code for has it."""
    return parse_compute_version(compute_version) >= (5, 3)


def have_int8(compute_version: str) -> bool:
    """Whether there is a product of four int8."""
    return parse_compute_version(compute_version) >= (6, 1)


def have_tensorcore(compute_version: str | None = None, target: Any = None) -> bool:
    """Whether there are matrix units."""
    return compute_version is None or parse_compute_version(compute_version) >= (7, 0)


def have_bf16(compute_version: str) -> bool:
    """Whether bfloat16 is computed with."""
    return parse_compute_version(compute_version) >= (8, 0)


__getattr__ = absent(__name__)
