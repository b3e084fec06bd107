"""Products by cuBLAS, rocBLAS, hipBLASLt and oneDNN: c[..., m, n] = a @ b, row-major.

The GPU libraries take column-major matrices. A row-major matrix is the column-major form of its transpose, so c^T = b^T a^T is asked for: operands change places, and
each keeps its own flag. Sums are in float32 (float64 for float64), whatever the operands' type. Sources: cublas_api.h, rocblas-functions.h, hipblaslt.h, dnnl.h.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from ctypes import byref, c_double, c_float, c_int, c_int64, c_longlong, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from ...errors import ArgumentError, DeviceError
from ..arrays.ndarray import NDArray
from ..devices.device import Device
from .finding import require
from .handles import LOCK, call, handle, kept, stream, workspace


@dataclass(frozen=True, slots=True)
class Product:
    """One call: sizes, flags, addresses, how far matrices of a batch lie apart (0: one serves all)."""

    dtype: str
    out_dtype: str
    m: int
    n: int
    k: int
    batch: int
    trans_a: bool
    trans_b: bool
    a: int
    b: int
    c: int
    step_a: int
    step_b: int

    @classmethod
    def of(cls, a: NDArray, b: NDArray, c: NDArray, transposes: str) -> Product:
        """Raises ArgumentError for shapes that do not go together."""
        trans_a, trans_b = transposes[0] == "t", transposes[1] == "t"
        *lead, m, n = c.shape
        k = a.shape[-2] if trans_a else a.shape[-1]
        batch = math.prod(lead)
        fit = a.shape[-2:] == ((k, m) if trans_a else (m, k)) and b.shape[-2:] == ((n, k) if trans_b else (k, n))
        whole = all(math.prod(x.shape[:-2]) in (1, batch) for x in (a, b))
        wide = a.dtype in ("float16", "bfloat16") and c.dtype == "float32"
        if not fit or not whole or a.dtype != b.dtype or not (c.dtype == a.dtype or wide):
            raise ArgumentError(
                f"a product of {a.dtype} {a.shape} and {b.dtype} {b.shape} ({transposes}) to {c.dtype} {c.shape}",
                hint="a is (..., m, k), b (..., k, n) and c (..., m, n), before transpositions, with batches equal or 1; a and b have one type, and c has it too, or float32 of 16-bit operands",
            )
        steps = [math.prod(x.shape[-2:]) if math.prod(x.shape[:-2]) == batch and batch > 1 else 0 for x in (a, b)]
        return cls(a.dtype, c.dtype, m, n, k, batch, trans_a, trans_b, a.address, b.address, c.address, *steps)

    @property
    def lda(self) -> int:
        """Elements of a row of `a` as it lies."""
        return self.m if self.trans_a else self.k

    @property
    def ldb(self) -> int:
        return self.k if self.trans_b else self.n


def _types(p: Product, numbers: dict[str, int], library: str) -> int:
    if p.dtype not in numbers:
        raise ArgumentError(f"{library} multiplies no {p.dtype}", hint=", ".join(numbers))
    return numbers[p.dtype]


def _scalars(p: Product) -> tuple[Any, Any]:
    kind = c_double if p.dtype == "float64" else c_float
    return kind(1), kind(0)


_CUDA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType, and hipDataType
_CUBLAS_COMPUTE_32F, _CUBLAS_COMPUTE_64F, _CUBLAS_GEMM_DEFAULT = 68, 70, -1


def _cublas(device: Device, p: Product) -> None:
    kind, out = _types(p, _CUDA_TYPES, "cuBLAS"), _CUDA_TYPES[p.out_dtype]
    compute = _CUBLAS_COMPUTE_64F if p.dtype == "float64" else _CUBLAS_COMPUTE_32F
    one, zero = _scalars(p)
    with LOCK:
        lib, own = handle("cublas", device, "cublasCreate_v2")
        call(lib, "cublasSetStream_v2", own, stream(device))
        call(
            lib, "cublasGemmStridedBatchedEx", own, c_int(p.trans_b), c_int(p.trans_a), c_int(p.n), c_int(p.m), c_int(p.k), byref(one),
            c_void_p(p.b), c_int(kind), c_int(p.ldb), c_longlong(p.step_b), c_void_p(p.a), c_int(kind), c_int(p.lda), c_longlong(p.step_a), byref(zero),
            c_void_p(p.c), c_int(out), c_int(p.n), c_longlong(p.m * p.n), c_int(p.batch), c_int(compute), c_int(_CUBLAS_GEMM_DEFAULT),
        )  # fmt: skip


_ROCBLAS_TYPES = {"float16": 150, "float32": 151, "float64": 152, "bfloat16": 168}  # rocblas_datatype
_ROCBLAS_NONE, _ROCBLAS_TRANSPOSE, _ROCBLAS_GEMM_STANDARD = 111, 112, 0


def _rocblas(device: Device, p: Product) -> None:
    kind, out = _types(p, _ROCBLAS_TYPES, "rocBLAS"), _ROCBLAS_TYPES[p.out_dtype]
    compute = _ROCBLAS_TYPES["float64" if p.dtype == "float64" else "float32"]
    one, zero = _scalars(p)
    ways = [c_int(_ROCBLAS_TRANSPOSE if t else _ROCBLAS_NONE) for t in (p.trans_b, p.trans_a)]
    step = c_int64(p.m * p.n)
    with LOCK:
        lib, own = handle("rocblas", device, "rocblas_create_handle")
        call(lib, "rocblas_set_stream", own, stream(device))
        call(
            lib, "rocblas_gemm_strided_batched_ex", own, *ways, c_int(p.n), c_int(p.m), c_int(p.k), byref(one),
            c_void_p(p.b), c_int(kind), c_int(p.ldb), c_int64(p.step_b), c_void_p(p.a), c_int(kind), c_int(p.lda), c_int64(p.step_a), byref(zero),
            c_void_p(p.c), c_int(out), c_int(p.n), step, c_void_p(p.c), c_int(out), c_int(p.n), step, c_int(p.batch), c_int(compute),
            c_int(_ROCBLAS_GEMM_STANDARD), c_int(0), c_uint32(0),
        )  # fmt: skip


_HIPBLAS_COMPUTE_32F, _HIPBLAS_COMPUTE_64F = 2, 3
_DESC_TRANSA, _DESC_TRANSB, _LAYOUT_BATCH, _LAYOUT_STRIDE, _PREFERENCE_WORKSPACE = 0, 1, 0, 1, 1
_HIPBLASLT_WORKSPACE = 32 << 20  # bytes: what hipBLASLt's own samples give it


class _Heuristic(ctypes.Structure):
    """hipblasLtMatmulHeuristicResult_t: the algorithm is 16 bytes and a limit on workspace."""

    _fields_ = [
        ("algo", ctypes.c_uint8 * 16), ("max_workspace", c_size_t), ("workspace", c_size_t), ("state", c_int), ("waves", c_float), ("reserved", c_int * 4),
    ]  # fmt: skip


def _hipblaslt_plan(lib: Any, own: Any, p: Product, kind: int) -> tuple[Any, ...]:
    """The descriptors of a product, and the algorithm that the library thinks the best."""
    compute, scale = (_HIPBLAS_COMPUTE_64F, 1) if p.dtype == "float64" else (_HIPBLAS_COMPUTE_32F, 0)
    desc = c_void_p()
    call(lib, "hipblasLtMatmulDescCreate", byref(desc), c_int(compute), c_int(scale))
    for which, t in ((_DESC_TRANSA, p.trans_b), (_DESC_TRANSB, p.trans_a)):
        way = c_int(_ROCBLAS_TRANSPOSE if t else _ROCBLAS_NONE)  # hipblasOperation_t has these numbers
        call(lib, "hipblasLtMatmulDescSetAttribute", desc, c_int(which), byref(way), c_size_t(4))
    layouts = []
    for of, rows, columns, ld, step in (
        (kind, *((p.k, p.n) if p.trans_b else (p.n, p.k)), p.ldb, p.step_b),
        (kind, *((p.m, p.k) if p.trans_a else (p.k, p.m)), p.lda, p.step_a),
        (_CUDA_TYPES[p.out_dtype], p.n, p.m, p.n, p.m * p.n),
    ):
        made = c_void_p()
        call(lib, "hipblasLtMatrixLayoutCreate", byref(made), c_int(of), c_uint64(rows), c_uint64(columns), c_int64(ld))
        if p.batch > 1:
            count, apart = c_int(p.batch), c_int64(step)
            call(lib, "hipblasLtMatrixLayoutSetAttribute", made, c_int(_LAYOUT_BATCH), byref(count), c_size_t(4))
            call(lib, "hipblasLtMatrixLayoutSetAttribute", made, c_int(_LAYOUT_STRIDE), byref(apart), c_size_t(8))
        layouts.append(made)
    preference, most = c_void_p(), c_uint64(_HIPBLASLT_WORKSPACE)
    call(lib, "hipblasLtMatmulPreferenceCreate", byref(preference))
    call(
        lib, "hipblasLtMatmulPreferenceSetAttribute", preference, c_int(_PREFERENCE_WORKSPACE), byref(most), c_size_t(8)
    )
    best, count = _Heuristic(), c_int()
    call(
        lib, "hipblasLtMatmulAlgoGetHeuristic", own, desc, layouts[0], layouts[1], layouts[2], layouts[2], preference, c_int(1), byref(best), byref(count),
    )  # fmt: skip
    call(lib, "hipblasLtMatmulPreferenceDestroy", preference)
    if not count.value:
        raise DeviceError(
            f"hipBLASLt has no algorithm for a product of {p.dtype} {p.m} x {p.n} x {p.k}",
            hint="let tec compile this product: leave the extern call out",
        )
    return desc, layouts, best


def _hipblaslt(device: Device, p: Product) -> None:
    kind = _types(p, _CUDA_TYPES, "hipBLASLt")
    one, zero = _scalars(p)
    with LOCK:
        lib, own = handle("hipblaslt", device, "hipblasLtCreate")
        key = (
            "hipblaslt",
            device.index,
            p.dtype,
            p.out_dtype,
            p.m,
            p.n,
            p.k,
            p.batch,
            p.trans_a,
            p.trans_b,
            p.step_a,
            p.step_b,
        )
        desc, (first, second, out), best = kept(key, lambda: _hipblaslt_plan(lib, own, p, kind))
        call(
            lib, "hipblasLtMatmul", own, desc, byref(one), c_void_p(p.b), first, c_void_p(p.a), second, byref(zero), c_void_p(p.c), out, c_void_p(p.c), out,
            byref(best), workspace("hipblaslt", device, best.workspace), c_size_t(best.workspace), stream(device),
        )  # fmt: skip


def _onednn(device: Device, p: Product) -> None:
    _types(p, {"float32": 0}, "oneDNN's dnnl_sgemm")
    lib = require("onednn")
    ways = [ctypes.c_char(b"T" if t else b"N") for t in (p.trans_a, p.trans_b)]
    for k in range(p.batch):
        call(
            lib, "dnnl_sgemm", *ways, c_int64(p.m), c_int64(p.n), c_int64(p.k), c_float(1), c_void_p(p.a + 4 * k * p.step_a), c_int64(p.lda),
            c_void_p(p.b + 4 * k * p.step_b), c_int64(p.ldb), c_float(0), c_void_p(p.c + 4 * k * p.m * p.n), c_int64(p.n),
        )  # fmt: skip


PRODUCTS: dict[str, Callable[[Device, Product], None]] = {
    "cublas": _cublas,
    "rocblas": _rocblas,
    "hipblaslt": _hipblaslt,
    "onednn": _onednn,
}
TYPES = {
    "cublas": tuple(_CUDA_TYPES),
    "rocblas": tuple(_ROCBLAS_TYPES),
    "hipblaslt": tuple(_CUDA_TYPES),
    "onednn": ("float32",),
}
