"""Small functions that programs use around kernels and in them."""

from __future__ import annotations

from typing import Any

from ..door import of_tec
from ..errors import ArgumentError
from .arithmetic import cdiv as of_tiles
from .grammar import Value


def cdiv(x: Any, y: Any) -> Any:
    """x / y, rounded up."""
    return of_tiles(x, y) if isinstance(x, Value) or isinstance(y, Value) else -(-x // y)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n; 1 for 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 1


_DOOR = of_tec(ArgumentError)
cdiv, next_power_of_2 = _DOOR.checked("cdiv", cdiv), _DOOR.checked("next_power_of_2", next_power_of_2)
