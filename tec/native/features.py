"""What a processor must have to run code for a target: x86's features, as `cpuid` and XCR0 say them (c/machine.c).

Source: Intel's Software Developer's Manual, volume 2, CPUID, and volume 1, chapter 13 (states that the system saves).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..codegen.cpu.features import CHOSEN
from ..errors import TargetError
from .data import Data, Word

_EAX, _EBX, _ECX, _EDX = range(4)
_AVX, _AVX512, _AMX, _APX = 6, 0xE6, 0x60000, 0x80000  # of XCR0
# LLVM's name -> leaf, subleaf, register, bit, states.
_FEATURES: dict[str, tuple[int, int, int, int, int]] = {
    "sse3": (1, 0, _ECX, 0, 0), "ssse3": (1, 0, _ECX, 9, 0), "sse4.1": (1, 0, _ECX, 19, 0), "sse4a": (0x80000001, 0, _ECX, 6, 0),
    "xop": (0x80000001, 0, _ECX, 11, _AVX), "fma4": (0x80000001, 0, _ECX, 16, _AVX), "tbm": (0x80000001, 0, _ECX, 21, 0),
    "sse4.2": (1, 0, _ECX, 20, 0), "popcnt": (1, 0, _ECX, 23, 0), "movbe": (1, 0, _ECX, 22, 0), "lzcnt": (0x80000001, 0, _ECX, 5, 0),
    "avx": (1, 0, _ECX, 28, _AVX), "fma": (1, 0, _ECX, 12, _AVX), "f16c": (1, 0, _ECX, 29, _AVX),
    "bmi": (7, 0, _EBX, 3, 0), "bmi2": (7, 0, _EBX, 8, 0), "avx2": (7, 0, _EBX, 5, _AVX),
    "avx512f": (7, 0, _EBX, 16, _AVX512), "avx512dq": (7, 0, _EBX, 17, _AVX512), "avx512cd": (7, 0, _EBX, 28, _AVX512),
    "avx512bw": (7, 0, _EBX, 30, _AVX512), "avx512vl": (7, 0, _EBX, 31, _AVX512), "avx512ifma": (7, 0, _EBX, 21, _AVX512),
    "avx512vbmi": (7, 0, _ECX, 1, _AVX512), "avx512vbmi2": (7, 0, _ECX, 6, _AVX512), "avx512vnni": (7, 0, _ECX, 11, _AVX512),
    "avx512bitalg": (7, 0, _ECX, 12, _AVX512), "avx512vpopcntdq": (7, 0, _ECX, 14, _AVX512), "avx512fp16": (7, 0, _EDX, 23, _AVX512),
    "amx-bf16": (7, 0, _EDX, 22, _AMX), "amx-tile": (7, 0, _EDX, 24, _AMX), "amx-int8": (7, 0, _EDX, 25, _AMX),
    "gfni": (7, 0, _ECX, 8, 0), "cmpccxadd": (7, 1, _EAX, 7, 0), "avxifma": (7, 1, _EAX, 23, _AVX), "avxneconvert": (7, 1, _EDX, 5, _AVX),
    "avxvnniint8": (7, 1, _EDX, 4, _AVX), "avxvnniint16": (7, 1, _EDX, 10, _AVX),
    **dict.fromkeys(("egpr", "ndd", "ccmp", "nf", "zu", "push2pop2", "ppx"), (7, 1, _EDX, 21, _APX)),
    "avxvnni": (7, 1, _EAX, 4, _AVX), "avx512bf16": (7, 1, _EAX, 5, _AVX512),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Features:
    """Names of features, in the order in which they are looked for."""

    names: tuple[str, ...]

    def words(self, data: Data) -> list[Word]:
        """The members `features`, `n_features`, `feature_names` of a record."""
        numbers = []
        for n in self.names:
            leaf, sub, register, bit, states = _FEATURES[n]
            word = leaf << 32 | sub << 16 | register << 8 | bit
            numbers += [word - (1 << 64) if word >> 63 else word, states]
        return [data.numbers(numbers), len(self.names), data.texts(self.names)]


def required(attrs: Mapping[str, Any], target: str) -> Features:
    """The features that a module's code may use, as its attributes say them; none for other processors than x86.

    Raises: TargetError: no bit says whether a processor has one.
    """
    names = attrs.get("cpu_features", ())
    if set(names) <= set(CHOSEN["aarch64"]):
        return Features(())
    for name in names:
        if name not in _FEATURES:
            raise TargetError(
                f"a library cannot ask a processor for {name}, which code for {target} may use",
                hint=f"leave it out: -mattr=-{name}",
                locate=False,
            )
    return Features(tuple(f for f in _FEATURES if f in names))
