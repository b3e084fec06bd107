"""Tensors of microscaling formats on the host, as `triton.tools.mxfp` has them: 4-bit floats (E2M1) and their scales (E8M0).

The arithmetic is NumPy's; the classes take and give torch tensors.

Source: OCP Microscaling Formats 1.0.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)  # by code
_BIAS, _NAN = 127, 255  # of E8M0: exponents from -127 on, and the code that is no number
_LOWEST, _HIGHEST = 2.0**-127, 2.0**127


def e2m1_codes(values: Array) -> Array:
    """The 4-bit float next to each number, ties to the even code; what is too large is 6."""
    size = np.minimum(np.abs(values.astype(np.float64)), E2M1[7])
    above = np.clip(np.searchsorted(E2M1[:8], size), 1, 7)
    low, high = E2M1[above - 1], E2M1[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    codes = np.where(up, above, above - 1).astype(np.uint8)
    made: Array = codes | (np.signbit(values).astype(np.uint8) << 3)
    return made


def packed(codes: Array, dim: int) -> Array:
    """Two codes a byte along a dimension, the first in the low half; an odd end is filled with 0."""
    moved = np.moveaxis(codes, dim, -1)
    if moved.shape[-1] % 2:
        moved = np.concatenate([moved, np.zeros((*moved.shape[:-1], 1), np.uint8)], -1)
    return np.ascontiguousarray(np.moveaxis(moved[..., ::2] | moved[..., 1::2] << 4, -1, dim))


def unpacked(data: Array, dim: int, size: int) -> Array:
    """`packed` taken apart: `size` codes along the dimension."""
    moved = np.moveaxis(data, dim, -1)
    both = np.stack([moved & 15, moved >> 4], -1).reshape(*moved.shape[:-1], -1)[..., :size]
    return np.ascontiguousarray(np.moveaxis(both, -1, dim))


def e8m0_codes(values: Array) -> Array:
    """The power of two next to each positive number; what is not positive or not finite is no number."""
    size = np.clip(values.astype(np.float64), _LOWEST, _HIGHEST)
    codes = np.round(np.log2(size)) + _BIAS
    return np.where((values > 0) & np.isfinite(values), codes, _NAN).astype(np.uint8)


def e8m0_values(codes: Array) -> Array:
    """Powers of two as float32."""
    return np.where(codes == _NAN, np.nan, np.exp2(codes.astype(np.float64) - _BIAS)).astype(np.float32)


class _Tensor:
    """Codes in a torch tensor of uint8."""

    def __init__(self, data: Any = None, size: Sequence[int] | None = None, device: Any = None):
        if (data is None) == (size is None):
            raise ValueError(f"{type(self).__name__} is made of data or of a size")
        self.device = data.device if data is not None else device
        self.size = tuple(data.shape if data is not None else size)  # type: ignore[arg-type]
        if data is not None:
            floating = data.is_floating_point()
            self.data = self._torch(self._codes(data.detach().float().cpu().numpy())) if floating else data

    def _codes(self, values: Array) -> Array:
        raise NotImplementedError

    def _values(self, codes: Array) -> Array:
        raise NotImplementedError

    def _torch(self, array: Array) -> Any:
        return importlib.import_module("torch").from_numpy(array).to(self.device)

    def to(self, dtype: Any) -> Any:
        """The values as a torch tensor of float32."""
        if dtype is not importlib.import_module("torch").float32:
            raise ValueError(f"{type(self).__name__}.to({dtype}): float32 alone")
        return self._torch(self._values(self.data.cpu().numpy()))

    def _drawn(self, low: int, high: int) -> Any:
        torch = importlib.import_module("torch")
        return torch.randint(low, high, self.size, dtype=torch.uint8, device=self.device)


class MXFP4Tensor(_Tensor):
    """4-bit floats, a code a byte. data: numbers, or codes as uint8; or size: of a tensor that `random` fills."""

    def _codes(self, values: Array) -> Array:
        return e2m1_codes(values)

    def _values(self, codes: Array) -> Array:
        return np.asarray(E2M1[codes & 15])

    def random(self) -> MXFP4Tensor:
        """Every code alike."""
        self.data = self._drawn(0, 16)
        return self

    def to_packed_tensor(self, dim: int) -> Any:
        """Two codes a byte along a dimension."""
        return self._torch(packed(self.data.cpu().numpy(), dim))

    def unpack_packed_tensor(self, packed_tensor: Any, dim: int, original_shape: Sequence[int]) -> Any:
        """The codes of a packed tensor."""
        return self._torch(unpacked(packed_tensor.cpu().numpy(), dim, original_shape[dim]))


class MXScaleTensor(_Tensor):
    """Powers of two, a code a byte. data: numbers, or codes as uint8; or size: of a tensor that `random` fills."""

    def _codes(self, values: Array) -> Array:
        return e8m0_codes(values)

    def _values(self, codes: Array) -> Array:
        return e8m0_values(codes)

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Powers of two from `low` to `high`."""
        ends = e8m0_codes(np.array([low or _LOWEST, high or _HIGHEST]))
        self.data = self._drawn(int(ends[0]), int(ends[1]) + 1)
        return self
