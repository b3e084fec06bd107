"""`tec.nd`: arrays in devices' memory, and the functions that make them."""

from __future__ import annotations

from typing import NoReturn

from ...door import of_tec
from ...errors import ArgumentError, meant_by_a_call
from ..elsewhere import hint
from .filled import empty_like, full, full_like, ones, ones_like, zeros, zeros_like
from .ndarray import NDArray, Storage, array, empty, from_dlpack, from_numpy

__all__ = [
    "NDArray", "Storage", "array", "empty", "empty_like", "from_dlpack", "from_numpy", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like",
]  # fmt: skip

# `from_dlpack` raises BufferError, as DLPack says.
of_tec(ArgumentError).check_names(globals(), "tec.nd", [n for n in __all__ if n != "from_dlpack"])
meant_by_a_call(__name__, "tec.nd.array(x, dev) copies an array to a device")


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    says = hint("module", name, ()) or f": it has {', '.join(__all__)}; tec.array has NumPy's functions"
    raise AttributeError(f"tec.nd has no {name!r}{says}")


def __dir__() -> list[str]:
    """The public names, which completion then offers."""
    return sorted(__all__)
