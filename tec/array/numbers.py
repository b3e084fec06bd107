"""Functions of numbers alone. `tec.array.sqrt(2 * tec.array.pi)` names no device, so it is a number and not an array, and keeps its digits beside any array.

NumPy computes it, in float64 (complex128 of complex numbers). The result is a number of Python, because one of NumPy's would give an array of float32 its type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

_F = TypeVar("_F", bound=Callable[..., Any])

NUMBERS = (bool, int, float, complex, np.generic)  # what may stand beside an array

# The standard's names in NumPy before version 2.
_BEFORE_2 = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atanh": "arctanh", "atan2": "arctan2",
    "pow": "power", "bitwise_invert": "invert", "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift",
}  # fmt: skip


def alone(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The value of NumPy's function `name` of these numbers; NotImplemented where one of them is no number, or a number that NumPy's function does not take."""
    if not args or not all(isinstance(x, NUMBERS) for x in args if x is not None):
        return NotImplemented
    found = getattr(np, name, None) or getattr(np, _BEFORE_2.get(name, name), None)
    if found is None:
        return NotImplemented
    # As of arrays, a value outside of a function's domain is NaN without a warning.
    with np.errstate(all="ignore"):
        try:
            made = found(*args, **options)
        except TypeError:
            return NotImplemented
    return (
        tuple(x.item() for x in made)
        if isinstance(made, tuple)
        else made.item()
        if isinstance(made, np.generic)
        else made
    )


def of_numbers(function: _F) -> _F:
    """A function of arrays that also takes numbers alone."""
    name = function.__name__

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if args and isinstance(args[0], NUMBERS):
            made = alone(name, args, options)
            if made is not NotImplemented:
                return made
        return function(*args, **options)

    return cast(_F, call)
