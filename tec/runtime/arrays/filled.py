"""Functions of `tec.nd` that make arrays of one number, or arrays like others."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..devices.device import DeviceLike
from .dtypes import DTypeLike, ShapeLike, check_number, dtype_name
from .ndarray import NDArray, empty


def zeros(shape: ShapeLike, dtype: DTypeLike = "float32", device: DeviceLike = None) -> NDArray:
    """A new array of zeros on `device`."""
    made = empty(shape, dtype, device)
    if made.nbytes:
        if made.device.driver is None:
            ctypes.memset(made.address, 0, made.nbytes)
        else:
            made.device.driver.memset(made.device.index, made.address, 0, made.nbytes, made.device.local.stream)
    return made


def full(shape: ShapeLike, value: Any, dtype: DTypeLike = "float32", device: DeviceLike = None) -> NDArray:
    """A new array of one number on `device`. Raises ArgumentError for a number that the type does not hold: 2.5 or NaN as an integer, 300 as uint8."""
    name = dtype_name(dtype)
    value = check_number(value, name, f"an array of {name} is filled with it")
    made = empty(shape, dtype, device)
    return made.copyfrom(np.full(made.elements().shape, value))


def ones(shape: ShapeLike, dtype: DTypeLike = "float32", device: DeviceLike = None) -> NDArray:
    """A new array of ones on `device`."""
    return full(shape, 1, dtype, device)


def empty_like(x: NDArray, dtype: DTypeLike | None = None, device: DeviceLike = None) -> NDArray:
    """`empty` of the shape, type and device of `x`, an NDArray or a NumPy array (on the CPU)."""
    return empty(x.shape, x.dtype if dtype is None else dtype, _beside(x, device))


def zeros_like(x: NDArray, dtype: DTypeLike | None = None, device: DeviceLike = None) -> NDArray:
    """`zeros` of the shape, type and device of `x`."""
    return zeros(x.shape, x.dtype if dtype is None else dtype, _beside(x, device))


def ones_like(x: NDArray, dtype: DTypeLike | None = None, device: DeviceLike = None) -> NDArray:
    """`ones` of the shape, type and device of `x`."""
    return full_like(x, 1, dtype, device)


def full_like(x: NDArray, value: Any, dtype: DTypeLike | None = None, device: DeviceLike = None) -> NDArray:
    """`full` of the shape, type and device of `x`."""
    return full(x.shape, value, x.dtype if dtype is None else dtype, _beside(x, device))


def _beside(x: Any, device: DeviceLike) -> DeviceLike:
    return getattr(x, "device", None) if device is None and isinstance(x, NDArray) else device
