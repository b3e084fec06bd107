"""Where a NumPy array's elements begin.

NumPy's own ways to it (`x.ctypes.data`, `x.__array_interface__`) make objects and take as long as a small kernel. In CPython the address is the first field behind
an array's head: part of NumPy's binary interface, which extensions read in place (`PyArrayObject_fields`). That it is so is tried once on arrays of several kinds.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_HEAD = object.__basicsize__
_FIELD = ctypes.c_size_t.from_address


def _slowly(x: np.ndarray[Any, Any]) -> int:
    return int(x.__array_interface__["data"][0])


def _quickly(x: np.ndarray[Any, Any]) -> int:
    return _FIELD(id(x) + _HEAD).value


def _is_plain() -> bool:
    """Whether the field lies where it is looked for."""
    if sys.implementation.name != "cpython" or np.ndarray.__basicsize__ < _HEAD + ctypes.sizeof(ctypes.c_size_t):
        return False
    whole = np.zeros((3, 5))
    return all(_quickly(x) == _slowly(x) for x in (whole, whole[1:, ::2], whole[::-1], np.zeros(70, np.int8)[5:]))


address_of: Callable[[np.ndarray[Any, Any]], int] = _quickly if _is_plain() else _slowly
