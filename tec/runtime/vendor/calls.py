"""What compiled programs call: functions of arrays that lie on one device, by the name of the library that is to do it.

    tec.library.matmul    (library, transposes, a, b, c)      c = a @ b by batches
    tec.library.conv2d    (library, numbers, x, w, y)         images [n, c, h, w], weights [k, c / groups, r, s]
    tec.library.fft       (library, direction, x, y)          along the last dimension; pairs of (real, imaginary)

They are queued in the thread's stream and not waited for. Row-major products are handed over as column-major ones of the operands in the other order.
"""

from __future__ import annotations

from typing import Any

from ...errors import ArgumentError, DeviceError
from ..arrays.ndarray import NDArray
from ..devices.device import Device
from ..modules.callbacks import register_func
from . import blas, convolution, fft
from .finding import LIBRARIES


def _device(library: str, *arrays: NDArray) -> Device:
    known = LIBRARIES.get(library)
    if known is None:
        raise ArgumentError(f"no library {library!r} is known", hint=", ".join(LIBRARIES))
    device = arrays[0].device
    if device.kind != known.kind:
        raise DeviceError(
            f"{library} works on {known.kind}, and the array is on {device}",
            hint=f"copy the arrays there: x.copyto(tec.{known.kind}(0))",
        )
    return device


def matmul(library: str, transposes: str, a: Any, b: Any, c: Any) -> None:
    """c[..., m, n] = a @ b. transposes: "nn", "tn", "nt" or "tt": whether a is [k, m] and b [n, k]. A matrix without a batch serves all products."""
    if library not in blas.PRODUCTS:
        raise ArgumentError(f"{library} has no products", hint=", ".join(blas.PRODUCTS))
    blas.PRODUCTS[library](_device(library, a, b, c), blas.Product.of(a, b, c, transposes))


def conv2d(library: str, numbers: str, x: Any, w: Any, y: Any) -> None:
    """numbers: "stride_h,stride_w,pad_h,pad_w,dilation_h,dilation_w,groups"."""
    if library not in convolution.CONVOLUTIONS:
        raise ArgumentError(f"{library} has no convolutions", hint=", ".join(convolution.CONVOLUTIONS))
    convolution.CONVOLUTIONS[library](
        _device(library, x, w, y), convolution.Convolution.of(x, w, y, tuple(map(int, numbers.split(","))))
    )


def transform(library: str, direction: str, x: Any, y: Any) -> None:
    """direction: "forward", or "inverse" without a scale."""
    if library not in fft.TRANSFORMS:
        raise ArgumentError(f"{library} has no Fourier transforms", hint=", ".join(fft.TRANSFORMS))
    fft.TRANSFORMS[library](_device(library, x, y), fft.Transform.of(x, y, direction))


register_func("tec.library.matmul", matmul, override=True)
register_func("tec.library.conv2d", conv2d, override=True)
register_func("tec.library.fft", transform, override=True)
