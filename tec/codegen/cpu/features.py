"""What a processor must have to run code for a target: x86's features, by LLVM's names.

Source: the x86-64 psABI, section 3.1.1 (micro-architecture levels).
"""

from __future__ import annotations

from ...errors import TecError
from ...target import Target
from .build import machine_of

_V2 = ("sse4.2", "popcnt")
_V3 = (*_V2, "movbe", "lzcnt", "avx", "fma", "f16c", "bmi", "bmi2", "avx2")
_V4 = (*_V3, "avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl")
# Others that code may be made of; what else LLVM lists of a host (aes, sha, rdrand) no code here uses.
_MORE = (
    "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512vpopcntdq", "avx512fp16", "avx512bf16", "avxvnni",
    "amx-bf16", "amx-tile", "amx-int8",
)  # fmt: skip
# By the bytes of a vector of the core that code is made for.
_BY_WIDTH = {16: (), 32: _V3, 64: _V4}
_DOTS = {("uint8", 64): "avx512vnni", ("uint8", 32): "avxvnni", ("bfloat16", 64): "avx512bf16"}


def required_features(target: Target) -> tuple[str, ...]:
    """The features that code for a target may use, in the order of their names; none for other processors than x86."""
    try:
        machine = machine_of(target)
    except TecError:
        return ()
    if not machine.triple.startswith("x86_64"):
        return ()
    flags = [f for f in machine.features.split(",") if f]
    on, off = {f[1:] for f in flags if f[0] == "+"}, {f[1:] for f in flags if f[0] == "-"}
    width, dots = target.core.vector_bytes, target.core.dots
    wanted = {*_BY_WIDTH[width], *(f for (kind, bytes_), f in _DOTS.items() if kind in dots and bytes_ == width)}
    return tuple(sorted((wanted | on & {*_V4, *_MORE}) - off))
