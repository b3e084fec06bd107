"""Convolutions of images by cuDNN and MIOpen: x [n, c, h, w], w [k, c / groups, r, s], y [n, k, h', w'], all of one type; sums in float32.

The algorithm is what each library thinks the best for the sizes without a measurement (cuDNN's heuristic, MIOpen's immediate mode). Sources: cudnn_cnn.h and
cudnn_graph.h (the interface of descriptors); miopen.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from ...errors import ArgumentError, DeviceError
from ..arrays.ndarray import NDArray
from ..devices.device import Device
from .handles import LOCK, call, handle, kept, stream, workspace

_CUDNN_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}  # cudnnDataType_t
_MIOPEN_TYPES = {"float16": 0, "float32": 1, "bfloat16": 5}  # miopenDataType_t
_NCHW, _CROSS_CORRELATION, _TENSOR_OP_MATH, _FMA_MATH = 0, 1, 1, 3


@dataclass(frozen=True, slots=True)
class Convolution:
    """One call. numbers: strides, padding, dilations (each of rows and columns), groups."""

    dtype: str
    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    numbers: tuple[int, ...]
    x: int
    w: int
    y: int

    @classmethod
    def of(cls, x: NDArray, w: NDArray, y: NDArray, numbers: tuple[int, ...]) -> Convolution:
        """Raises ArgumentError for shapes that do not go together."""
        n, c, h, width = x.shape
        k, per_group, r, s = w.shape
        sh, sw, ph, pw, dh, dw, groups = numbers
        want = (n, k, (h + 2 * ph - dh * (r - 1) - 1) // sh + 1, (width + 2 * pw - dw * (s - 1) - 1) // sw + 1)
        if per_group * groups != c or k % groups or tuple(y.shape) != want or not x.dtype == w.dtype == y.dtype:
            raise ArgumentError(
                f"a convolution of {x.shape} by {w.shape} in {groups} groups gives {want}, not {y.shape}",
                hint=f"x is (n, c, h, w), weights (k, c / groups, r, s), all of one type, and the output {want}",
            )
        return cls(x.dtype, tuple(x.shape), tuple(w.shape), tuple(y.shape), numbers, x.address, w.address, y.address)

    @property
    def key(self) -> tuple[Any, ...]:
        return self.dtype, self.x_shape, self.w_shape, self.numbers


class _Perf(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t."""

    _fields_ = [
        ("algo", c_int), ("status", c_int), ("time", c_float), ("memory", c_size_t), ("determinism", c_int), ("math", c_int), ("reserved", c_int * 3),
    ]  # fmt: skip


def _made(lib: Any, create: str) -> c_void_p:
    out = c_void_p()
    call(lib, create, byref(out))
    return out


def _type(c: Convolution, numbers: dict[str, int], library: str) -> c_int:
    if c.dtype not in numbers:
        raise ArgumentError(f"{library} convolves no {c.dtype}", hint=", ".join(numbers))
    return c_int(numbers[c.dtype])


def _cudnn_plan(lib: Any, own: Any, c: Convolution) -> tuple[Any, ...]:
    """cuDNN's descriptors of a convolution, its algorithm, and the workspace that it wants."""
    kind = _type(c, _CUDNN_TYPES, "cuDNN")
    tensors = []
    for shape in (c.x_shape, c.y_shape):
        tensors.append(_made(lib, "cudnnCreateTensorDescriptor"))
        call(lib, "cudnnSetTensor4dDescriptor", tensors[-1], c_int(_NCHW), kind, *map(c_int, shape))
    w = _made(lib, "cudnnCreateFilterDescriptor")
    call(lib, "cudnnSetFilter4dDescriptor", w, kind, c_int(_NCHW), *map(c_int, c.w_shape))
    conv = _made(lib, "cudnnCreateConvolutionDescriptor")
    sh, sw, ph, pw, dh, dw, groups = map(c_int, c.numbers)
    compute = c_int(1 if c.dtype == "float64" else 0)
    call(lib, "cudnnSetConvolution2dDescriptor", conv, ph, pw, sh, sw, dh, dw, c_int(_CROSS_CORRELATION), compute)
    call(lib, "cudnnSetConvolutionGroupCount", conv, groups)
    math = _FMA_MATH if c.dtype == "float32" else _TENSOR_OP_MATH  # no TF32: float32 means it
    call(lib, "cudnnSetConvolutionMathType", conv, c_int(math))
    found, rows = c_int(), (_Perf * 8)()
    call(
        lib,
        "cudnnGetConvolutionForwardAlgorithm_v7",
        own,
        tensors[0],
        w,
        conv,
        tensors[1],
        c_int(8),
        byref(found),
        rows,
    )
    for row in rows[: found.value]:
        nbytes = c_size_t()
        status = lib.cudnnGetConvolutionForwardWorkspaceSize(
            own, tensors[0], w, conv, tensors[1], c_int(row.algo), byref(nbytes)
        )
        if not row.status and not status:
            return tensors[0], w, conv, tensors[1], row.algo, nbytes.value
    raise DeviceError(
        f"cuDNN has no algorithm for a convolution of {c.dtype} {c.x_shape} by {c.w_shape}",
        hint="let tec compile this convolution: leave the extern call out",
    )


def _cudnn(device: Device, c: Convolution) -> None:
    one, zero = c_float(1), c_float(0)
    if c.dtype == "float64":
        one, zero = ctypes.c_double(1), ctypes.c_double(0)  # type: ignore[assignment]
    with LOCK:
        lib, own = handle("cudnn", device, "cudnnCreate")
        call(lib, "cudnnSetStream", own, stream(device))
        x, w, conv, y, algo, nbytes = kept(("cudnn", device.index, *c.key), lambda: _cudnn_plan(lib, own, c))
        call(
            lib, "cudnnConvolutionForward", own, byref(one), x, c_void_p(c.x), w, c_void_p(c.w), conv, c_int(algo),
            workspace("cudnn", device, nbytes), c_size_t(nbytes), byref(zero), y, c_void_p(c.y),
        )  # fmt: skip


class _Solution(ctypes.Structure):
    """miopenConvSolution_t."""

    _fields_ = [("time", c_float), ("workspace", c_size_t), ("id", c_uint64), ("algorithm", c_int)]


def _miopen_plan(lib: Any, own: Any, c: Convolution) -> tuple[Any, ...]:
    kind = _type(c, _MIOPEN_TYPES, "MIOpen")
    x, w, y = (_made(lib, "miopenCreateTensorDescriptor") for _ in range(3))
    for t, shape in ((x, c.x_shape), (w, c.w_shape), (y, c.y_shape)):
        call(lib, "miopenSet4dTensorDescriptor", t, kind, *map(c_int, shape))
    conv = _made(lib, "miopenCreateConvolutionDescriptor")
    sh, sw, ph, pw, dh, dw, groups = map(c_int, c.numbers)
    call(lib, "miopenInitConvolutionDescriptor", conv, c_int(0), ph, pw, sh, sw, dh, dw)  # 0: miopenConvolution
    call(lib, "miopenSetConvolutionGroupCount", conv, groups)
    found, best = c_size_t(), _Solution()
    call(lib, "miopenConvolutionForwardGetSolution", own, w, x, conv, y, c_size_t(1), byref(found), byref(best))
    if not found.value:
        raise DeviceError(
            f"MIOpen has no solution for a convolution of {c.dtype} {c.x_shape} by {c.w_shape}",
            hint="let tec compile this convolution: leave the extern call out",
        )
    call(lib, "miopenConvolutionForwardCompileSolution", own, w, x, conv, y, c_uint64(best.id))
    return x, w, conv, y, best.id, best.workspace


def _miopen(device: Device, c: Convolution) -> None:
    with LOCK:
        lib, own = handle("miopen", device, "miopenCreate")
        call(lib, "miopenSetStream", own, stream(device))
        x, w, conv, y, solution, nbytes = kept(("miopen", device.index, *c.key), lambda: _miopen_plan(lib, own, c))
        call(
            lib, "miopenConvolutionForwardImmediate", own, w, c_void_p(c.w), x, c_void_p(c.x), conv, y, c_void_p(c.y),
            workspace("miopen", device, nbytes), c_size_t(nbytes), c_uint64(solution),
        )  # fmt: skip


CONVOLUTIONS: dict[str, Callable[[Device, Convolution], None]] = {"cudnn": _cudnn, "miopen": _miopen}
