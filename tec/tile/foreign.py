"""Triton's words as ours: a kernel that was written for Triton names `triton.language`'s functions, which stand here by their names.

Nothing of Triton is imported: what a name stands for is known by the module that it says it comes from.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from . import host, language
from .grammar import OF_NAME

GLUON_HINT = (
    "write it with triton.language, of which tec picks layouts, or as @tec.kernel, which says what each thread does"
)

_LANGUAGE = ("triton.language", "triton.language.core", "triton.language.standard", "triton.language.random")
_MATH = (
    "triton.language.math",
    "triton.language.extra.libdevice",
    "triton.language.extra.cuda.libdevice",
    "triton.language.extra.hip.libdevice",
)


def ours(v: Any) -> Any:
    """What an object of Triton's is in tec.tile; anything else as it is. Raises KernelError for what only Gluon has."""
    kind = type(v)
    if hasattr(kind, "__tec_refuse__"):
        v.__tec_refuse__()
    if kind.__module__.startswith("tec.") and not isinstance(v, type):
        return v
    if isinstance(v, ModuleType):
        return _module(v)
    if kind.__name__ == "constexpr" and kind.__module__.startswith("triton"):
        return v.value
    if kind.__name__ == "dtype" and kind.__module__.startswith("triton"):
        return OF_NAME.get(v.name, v)
    home = getattr(v, "__module__", None) or ""
    if home.startswith("triton."):
        name = getattr(v, "__name__", "")
        if home in _MATH and hasattr(language.math, name):
            return getattr(language.math, name)
        if home.startswith("triton.language"):
            return getattr(language, name, v)
        if name in ("cdiv", "next_power_of_2"):
            return getattr(host, name)
    if kind.__name__ in ("JITFunction", "Autotuner", "Heuristics") and kind.__module__.startswith("triton"):
        while hasattr(v, "fn") and type(v).__module__.startswith("triton"):
            v = v.fn
    return v


def _module(v: ModuleType) -> Any:
    if v.__name__ in _LANGUAGE:
        return language
    if v.__name__ in _MATH:
        return language.math
    return v
