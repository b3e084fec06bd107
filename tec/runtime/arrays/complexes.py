"""Complex arrays as compiled code takes them: arrays of their parts."""

from __future__ import annotations

from .ndarray import NDArray

_PARTS = {"complex64": "float32", "complex128": "float64"}


def as_parts(a: NDArray) -> NDArray:
    """The memory of a complex array as one of reals with a last dimension of 2, real and imaginary part; another array as it is."""
    part = _PARTS.get(a.dtype)
    if part is None:
        return a
    strides = None if a.is_contiguous else (*[2 * s for s in a.strides], 1)
    return NDArray(a.storage, a.address, (*a.shape, 2), part, strides, a.writable)
