"""Complex Fourier transforms along the last dimension by cuFFT and rocFFT. Arrays are [..., n, 2] of float32 or float64: pairs of a real and an imaginary part.

The inverse has no scale, as in both libraries. Sources: cufft.h; rocfft.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_void_p
from dataclasses import dataclass

from ...errors import ArgumentError
from ..arrays.ndarray import NDArray
from ..devices.device import Device
from .finding import require
from .handles import LOCK, call, enter, kept, stream, workspace

_CUFFT_C2C, _CUFFT_Z2Z, _CUFFT_FORWARD, _CUFFT_INVERSE = 0x29, 0x69, -1, 1
_ROCFFT_NOT_IN_PLACE, _ROCFFT_FORWARD, _ROCFFT_INVERSE = 1, 0, 1  # rocfft_result_placement, rocfft_transform_type


@dataclass(frozen=True, slots=True)
class Transform:
    """One call."""

    dtype: str
    n: int
    batch: int
    forward: bool
    x: int
    y: int

    @classmethod
    def of(cls, x: NDArray, y: NDArray, direction: str) -> Transform:
        """Raises ArgumentError for arrays that are no pairs."""
        if direction not in ("forward", "inverse"):
            raise ArgumentError(
                f"a Fourier transform is forward or inverse, not {direction!r}", hint='"forward" or "inverse"'
            )
        wrong = len(x.shape) < 2 or x.shape[-1] != 2 or x.shape != y.shape or x.dtype != y.dtype
        if wrong or x.dtype not in ("float32", "float64"):
            raise ArgumentError(
                f"a Fourier transform of {x.dtype} {x.shape} to {y.dtype} {y.shape}",
                hint="[..., n, 2] of float32 or float64: pairs of a real and an imaginary part",
            )
        return cls(x.dtype, x.shape[-2], math.prod(x.shape[:-2]), direction == "forward", x.address, y.address)


def _cufft(device: Device, t: Transform) -> None:
    double = t.dtype == "float64"

    def plan() -> c_int:
        made = c_int()
        call(lib, "cufftPlan1d", byref(made), c_int(t.n), c_int(_CUFFT_Z2Z if double else _CUFFT_C2C), c_int(t.batch))
        return made

    with LOCK:
        lib = require("cufft")
        enter(device)
        own = kept(("cufft", device.index, t.dtype, t.n, t.batch), plan)
        call(lib, "cufftSetStream", own, stream(device))
        way = c_int(_CUFFT_FORWARD if t.forward else _CUFFT_INVERSE)
        call(lib, "cufftExecZ2Z" if double else "cufftExecC2C", own, c_void_p(t.x), c_void_p(t.y), way)


def _rocfft(device: Device, t: Transform) -> None:
    """Run a transform by rocFFT, whose plan is kept for the next of the same kind."""

    def set_up() -> bool:
        call(lib, "rocfft_setup")
        return True

    def plan() -> tuple[c_void_p, c_void_p, int]:
        made, info, length, nbytes = c_void_p(), c_void_p(), c_size_t(t.n), c_size_t()
        way = c_int(_ROCFFT_FORWARD if t.forward else _ROCFFT_INVERSE)
        precision = c_int(1 if t.dtype == "float64" else 0)
        call(
            lib, "rocfft_plan_create", byref(made), c_int(_ROCFFT_NOT_IN_PLACE), way, precision, c_size_t(1), byref(length), c_size_t(t.batch), c_void_p(),
        )  # fmt: skip
        call(lib, "rocfft_execution_info_create", byref(info))
        call(lib, "rocfft_plan_get_work_buffer_size", made, byref(nbytes))
        return made, info, nbytes.value

    with LOCK:
        lib = require("rocfft")
        enter(device)
        kept(("rocfft setup",), set_up)
        own, info, nbytes = kept(("rocfft", device.index, t.dtype, t.n, t.batch, t.forward), plan)
        call(lib, "rocfft_execution_info_set_stream", info, stream(device))
        if nbytes:
            call(
                lib,
                "rocfft_execution_info_set_work_buffer",
                info,
                workspace("rocfft", device, nbytes),
                c_size_t(nbytes),
            )
        call(lib, "rocfft_execute", own, (c_void_p * 1)(t.x), (c_void_p * 1)(t.y), info)


TRANSFORMS: dict[str, Callable[[Device, Transform], None]] = {"cufft": _cufft, "rocfft": _rocfft}
