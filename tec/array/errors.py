"""The errors of arrays: each is a TecError, and of the Python type that array libraries raise."""

from __future__ import annotations

from ..errors import ArgumentError


class ArrayValueError(ArgumentError, ValueError):
    """Shapes, sizes or values that do not fit."""


class ArrayTypeError(ArgumentError, TypeError):
    """Types that do not go together, or something that is no array."""


class FromNumbersError(ArrayTypeError):
    """What decides what is computed, such as a shape, follows from numbers, in a function that is compiled whole."""


class ArrayIndexError(ArgumentError, IndexError):
    """An index that is not there."""


class ArrayAxisError(ArrayValueError, IndexError):
    """An axis that is not there; as with NumPy, a ValueError and an IndexError."""


class ArrayBufferError(ArgumentError, BufferError):
    """Memory that cannot be shared."""
