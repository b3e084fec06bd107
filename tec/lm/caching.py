"""Types of caches of keys and values: which there are, by the names that people give them. No compiler is imported."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ArgumentError
from ..likeness import near

# By what people write: this page's names, NumPy's, and those of other programs.
TYPES: Mapping[str, str] = {
    "float32": "float32", "float16": "float16", "bfloat16": "bfloat16", "int8": "int8", "fp8": "float8_e4m3",
}  # fmt: skip
_ALSO: Mapping[str, str] = {
    "f32": "float32", "f16": "float16", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "q8_0": "int8", "float8_e4m3": "float8_e4m3",
    "float8_e4m3fn": "float8_e4m3", "fp8_e4m3": "float8_e4m3",
}  # fmt: skip
# What caches may be of beside the activations' type: of fewer bits, so that activations hold what a cache has.
_NARROWER: Mapping[str, tuple[str, ...]] = {
    "float32": ("float16", "bfloat16", "int8", "fp8"), "float16": ("int8", "fp8"), "bfloat16": ("int8", "fp8"),
}  # fmt: skip


def type_of(given: str | None, dtype: str) -> str:
    """The type of caches, for what was asked and the activations' type. Raises ArgumentError."""
    if given is None:
        return dtype
    found = {**TYPES, **_ALSO}.get(given) if isinstance(given, str) else None
    names = (dtype, *_NARROWER[dtype])
    if found is None:
        like = near(given, list(TYPES), 1) if isinstance(given, str) else []
        raise ArgumentError(f"cache_type is {given!r}", hint=f"{like[0]}?" if like else ", ".join(names))
    if found not in [TYPES[n] for n in names]:
        raise ArgumentError(
            f"caches of {given} with activations of {dtype}", hint=f"{', '.join(names)}, or another dtype"
        )
    return found
