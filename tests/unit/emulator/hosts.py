"""Kinds of host CPU that translated kernels are tried on: LLVM's names, and what a machine must have to run code for them."""

from __future__ import annotations

import platform

import pytest

from tec.target.cpus import host_features

_AVX512 = "avx512f avx512bw avx512dq avx512vl avx512cd"
# What /proc/cpuinfo must list; where a machine lacks only features that no kernel needs, code for the CPU without them.
_LEVELS = {
    "x86-64-v2": "sse4_2 ssse3 popcnt",
    "x86-64-v3": "avx2 fma bmi2 f16c",
    "x86-64-v4": _AVX512,
    "znver4": _AVX512 + " avx512_vbmi2 avx512_bf16 avx512_vnni avx512_bitalg avx512_vpopcntdq gfni",
    "sapphirerapids": _AVX512 + " avx512_vbmi2 avx512_bf16 avx512_vnni avx512_bitalg avx512_vpopcntdq gfni avx512_fp16 amx_tile",
    "sapphirerapids,-avx512fp16,-amx-tile,-amx-int8,-amx-bf16": _AVX512 + " avx512_vbmi2 avx512_bf16 avx512_vnni avx512_bitalg gfni",
}  # fmt: skip


def _missing(needs: str) -> list[str]:
    have = set(host_features().split()) if platform.machine() in ("x86_64", "AMD64") else set()
    return [n for n in needs.split() if n not in have]


HOSTS = [
    pytest.param(name, marks=pytest.mark.skipif(bool(_missing(needs)), reason=f"this host lacks {', '.join(_missing(needs))}"))
    for name, needs in _LEVELS.items()
]  # fmt: skip
