"""What the namespace can do, as the standard's inspection functions tell it."""

from __future__ import annotations

import sys
from typing import Any

from ..errors import DeviceError
from ..runtime.devices import device as devices
from ..runtime.devices.device import DeviceLike
from . import dtypes
from .errors import ArrayValueError

API_VERSION = "2025.12"
_EARLIER = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


def namespace(api_version: str | None) -> Any:
    """The module `tec.array`. Raises ArrayValueError for a version of the standard that there is not."""
    if api_version is not None and api_version not in _EARLIER:
        raise ArrayValueError(
            f"version {api_version!r} of the array API standard", hint=f"versions: {', '.join(_EARLIER)}"
        )
    return sys.modules[__package__]


class Info:
    """See the functions of the standard's inspection API."""

    def capabilities(self) -> dict[str, Any]:
        """Masks and shapes that depend on values are there; dimensions are not limited."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Any:
        """The CPU."""
        return devices.cpu()

    def devices(self) -> tuple[Any, ...]:
        """The CPU, and the GPUs that are there: the first of each kind."""
        found = [devices.cpu()]
        for make in (devices.rocm, devices.cuda):
            try:
                found.append(make(0))
            except DeviceError:
                pass
        return tuple(found)

    def default_dtypes(self, *, device: DeviceLike = None) -> dict[str, Any]:
        """The types of Python's numbers, and of indices."""
        return {
            "real floating": dtypes.DEFAULT_FLOAT, "complex floating": dtypes.DEFAULT_COMPLEX, "integral": dtypes.DEFAULT_INT, "indexing": dtypes.int64,
        }  # fmt: skip

    def dtypes(self, *, device: DeviceLike = None, kind: Any = None) -> dict[str, Any]:
        """The standard's types by name, those of a kind where one is given."""
        return {str(d): d for d in dtypes.STANDARD if kind is None or dtypes.isdtype(d, kind)}


def __array_namespace_info__() -> Info:
    """The inspection functions.

    >>> sorted(xp.__array_namespace_info__().default_dtypes())
    ['complex floating', 'indexing', 'integral', 'real floating']
    """
    return Info()
