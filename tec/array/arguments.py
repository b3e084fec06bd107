"""Wrong arguments of array functions: an error of the Python type that array libraries raise, which names the argument; and names that other libraries have for one
(`dim=` in place of `axis=`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import door
from ..errors import TecError
from .array import Array
from .elsewhere import ARGUMENTS
from .errors import ArrayBufferError, ArrayIndexError, ArrayTypeError, ArrayValueError


def _is_integer(x: Any) -> bool:
    return door.is_integer(x) or (type(x) is Array and x.ndim == 0)


def _is_number(x: Any) -> bool:
    return door.is_number(x) or (type(x) is Array and x.ndim == 0)


def _is_array(x: Any) -> bool:
    return isinstance(x, (Array, np.ndarray, np.generic, int, float, complex))


def _shown(x: Any) -> str | None:
    return f"an array {x.dtype} {x.shape}" if type(x) is Array else None


def _error(error: BaseException, message: str, hint: str) -> TecError:
    if isinstance(error, IndexError):
        return ArrayIndexError(message, hint=hint)
    if isinstance(error, BufferError):
        return ArrayBufferError(message, hint=hint)
    kind = ArrayTypeError if isinstance(error, (TypeError, AttributeError)) else ArrayValueError
    return kind(message, hint=hint)


_KINDS = {
    **door.plain_kinds(_is_integer, _is_number),
    "Array": (_is_array, "an array"),
    "Sequence[Array]": (door.several(_is_array), "a list of arrays"),
}
_DOOR = door.Door(__package__ or "tec.array", _KINDS, _shown, _error, ARGUMENTS)
checked, check_names = _DOOR.checked, _DOOR.check_names
