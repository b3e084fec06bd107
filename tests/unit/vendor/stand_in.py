"""Stand-ins for AMD's libraries that check each call against the published headers, and then do what the arguments say: on the software GPU's memory, by NumPy.

A prototype is one word an argument: p a pointer or a handle, i and u 32 bits (enumerations too), l and L 64 bits (strides, sizes). Sources: rocblas-functions.h and
rocblas-types.h, hipblaslt.h and hipblas-enums.h, miopen.h, rocfft.h.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

PROTOTYPES = {
    "rocblas_create_handle": "p", "rocblas_set_stream": "pp",
    "rocblas_gemm_strided_batched_ex": "pii iii p pi i l pi i l p pi i l pi i l i i i i u",
    "hipblasLtCreate": "p", "hipblasLtMatmulDescCreate": "pii", "hipblasLtMatmulDescSetAttribute": "pipL",
    "hipblasLtMatrixLayoutCreate": "piLLl", "hipblasLtMatrixLayoutSetAttribute": "pipL", "hipblasLtMatmulPreferenceCreate": "p",
    "hipblasLtMatmulPreferenceSetAttribute": "pipL", "hipblasLtMatmulPreferenceDestroy": "p",
    "hipblasLtMatmulAlgoGetHeuristic": "pppppppipp", "hipblasLtMatmul": "pp p pp pp p pp pp p pL p",
    "miopenCreate": "p", "miopenSetStream": "pp", "miopenCreateTensorDescriptor": "p", "miopenSet4dTensorDescriptor": "pi iiii",
    "miopenCreateConvolutionDescriptor": "p", "miopenInitConvolutionDescriptor": "pi iiiiii", "miopenSetConvolutionGroupCount": "pi",
    "miopenConvolutionForwardGetSolution": "ppppp Lpp", "miopenConvolutionForwardCompileSolution": "ppppp L",
    "miopenConvolutionForwardImmediate": "p pp pp p pp pL L",
    "rocfft_setup": "", "rocfft_plan_create": "p iii L p L p", "rocfft_execution_info_create": "p", "rocfft_plan_get_work_buffer_size": "pp",
    "rocfft_execution_info_set_stream": "pp", "rocfft_execution_info_set_work_buffer": "ppL", "rocfft_execute": "pppp",
}  # fmt: skip
_KINDS = {
    "i": (ctypes.c_int,),
    "u": (ctypes.c_uint32,),
    "l": (ctypes.c_int64,),
    "L": (ctypes.c_uint64, ctypes.c_size_t),
}
_ROCBLAS = {150: np.float16, 151: np.float32, 152: np.float64}
_HIP = {0: np.float32, 1: np.float64, 2: np.float16}
_NONE, _TRANSPOSE = 111, 112


class Refused(AssertionError):
    """A call that the header does not allow."""


def _right(kind: str, a: Any) -> bool:
    if kind == "p":
        return isinstance(a, (ctypes.c_void_p, ctypes.Array)) or type(a).__name__ == "CArgObject"
    return isinstance(a, _KINDS[kind])


class StandIn:
    """A library. `device` is the software GPU whose memory the addresses are of; `calls` names what was called."""

    def __init__(self, device: Any):
        self.device, self.calls = device, []
        self._objects: dict[int, dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in PROTOTYPES:
            raise AttributeError(name)
        kinds = PROTOTYPES[name].replace(" ", "")

        def call(*args: Any) -> int:
            if len(args) != len(kinds) or not all(map(_right, kinds, args)):
                raise Refused(f"{name} takes {kinds}, was given {args}")
            self.calls.append(name)
            plain = [a if k == "p" else a.value for k, a in zip(kinds, args)]
            return getattr(self, f"_{name}", self._make if "reate" in name else lambda *a: 0)(*plain) or 0

        return call

    # ---- objects and memory

    def _make(self, out: Any, *facts: Any) -> None:
        number = 0x1000 + len(self._objects)
        out._obj.value = number
        self._objects[number] = {"facts": facts, "attributes": {}}

    def _of(self, handle: Any) -> dict[str, Any]:
        if handle.value not in self._objects:
            raise Refused(f"{handle} was made by nobody")
        return self._objects[handle.value]

    def read(self, address: Any, n: int, dtype: Any) -> np.ndarray:
        out = np.empty(n, dtype)
        self.device.driver.copy_from_device(self.device.index, out.ctypes.data, address.value, out.nbytes)
        return out

    def write(self, address: Any, data: np.ndarray) -> None:
        data = np.ascontiguousarray(data)
        self.device.driver.copy_to_device(self.device.index, address.value, data.ctypes.data, data.nbytes)

    def _matrix(self, address: Any, k: int, step: int, ld: int, rows: int, columns: int, dtype: Any) -> np.ndarray:
        """Matrix k of a batch, column-major, of `rows` by `columns`."""
        if ld < rows:
            raise Refused(f"a leading dimension of {ld} for {rows} rows")
        at = ctypes.c_void_p(address.value + k * step * np.dtype(dtype).itemsize)
        return self.read(at, ld * columns, dtype).reshape(columns, ld).T[:rows]

    def _gemm(self, ways: Any, m: int, n: int, k: int, a: Any, b: Any, d: Any, batch: int) -> None:
        """d = op(a) op(b), column-major; each of a, b, d is (address, type, leading dimension, step)."""
        for j in range(batch):
            left, right = (
                self._matrix(at, j, step, ld, *((y, x) if way == _TRANSPOSE else (x, y)), dtype)
                for (at, dtype, ld, step), way, (x, y) in zip((a, b), ways, ((m, k), (k, n)))
            )
            if not set(ways) <= {_NONE, _TRANSPOSE}:
                raise Refused(f"operations {ways}")
            left, right = (x.T if way == _TRANSPOSE else x for x, way in zip((left, right), ways))
            at, dtype, ld, step = d
            if ld != m:
                raise Refused(f"the result has {m} rows and a leading dimension of {ld}")
            out = (left.astype(np.float64) @ right.astype(np.float64)).astype(dtype)
            self.write(ctypes.c_void_p(at.value + j * step * np.dtype(dtype).itemsize), out.T)

    # ---- rocBLAS

    def _rocblas_gemm_strided_batched_ex(self, own: Any, *x: Any) -> None:
        self._of(own)
        (
            ta,
            tb,
            m,
            n,
            k,
            alpha,
            a,
            a_type,
            lda,
            step_a,
            b,
            b_type,
            ldb,
            step_b,
            beta,
            c,
            c_type,
            ldc,
            step_c,
            d,
            d_type,
            ldd,
            step_d,
        ) = x[:23]
        batch, compute, algo, solution, flags = x[23:]
        if (c.value, c_type, ldc, step_c) != (d.value, d_type, ldd, step_d) or (algo, solution, flags) != (0, 0, 0):
            raise Refused("c and d are to be one")
        scalar = ctypes.c_double if compute == 152 else ctypes.c_float
        if not (isinstance(alpha._obj, scalar) and alpha._obj.value == 1 and beta._obj.value == 0):
            raise Refused("alpha and beta are of the computation's type")
        if compute != (152 if a_type == 152 else 151) or a_type != b_type:
            raise Refused(f"a computation in {compute} of {a_type} and {b_type}")
        a, b = (a, _ROCBLAS[a_type], lda, step_a), (b, _ROCBLAS[b_type], ldb, step_b)
        self._gemm((ta, tb), m, n, k, a, b, (d, _ROCBLAS[d_type], ldd, step_d), batch)

    # ---- hipBLASLt

    def _set(self, what: Any, which: int, value: Any, nbytes: int) -> None:
        if ctypes.sizeof(value._obj) != nbytes:
            raise Refused(f"attribute {which} of {nbytes} bytes")
        self._of(what)["attributes"][which] = value._obj.value

    _hipblasLtMatmulDescSetAttribute = _hipblasLtMatrixLayoutSetAttribute = _hipblasLtMatmulPreferenceSetAttribute = (
        _set
    )

    def _hipblasLtMatmulAlgoGetHeuristic(self, own: Any, desc: Any, *x: Any) -> None:
        *layouts, preference, asked, best, count = x
        for o in (own, desc, *layouts, preference):
            self._of(o)
        if ctypes.sizeof(best._obj) != 16 + 8 + 8 + 4 + 4 + 16 or asked != 1:  # hipblasLtMatmulHeuristicResult_t
            raise Refused("a heuristic result of another size")
        best._obj.workspace, count._obj.value = 4096, 1

    def _hipblasLtMatmul(self, own: Any, desc: Any, alpha: Any, *x: Any) -> None:
        a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, _, space, space_bytes, _ = x
        ways = [self._of(desc)["attributes"][k] for k in (0, 1)]
        if (
            self._of(desc)["facts"] not in ((2, 0), (3, 1))
            or space_bytes != 4096
            or not space.value
            or c.value != d.value
        ):
            raise Refused("a computation, or a workspace, of another kind")
        facts = [self._of(o) for o in (a_layout, b_layout, d_layout)]
        sizes = [f["facts"] for f in facts]  # type, rows, columns, leading dimension
        steps, batches = ([f["attributes"].get(k, d) for f in facts] for k, d in ((1, 0), (0, 1)))
        m, n = sizes[2][1:3]
        k = sizes[0][1] if ways[0] == _TRANSPOSE else sizes[0][2]
        want = [(k, m) if ways[0] == _TRANSPOSE else (m, k), (n, k) if ways[1] == _TRANSPOSE else (k, n)]
        if [s[1:3] for s in sizes[:2]] != want or len(set(batches)) != 1:
            raise Refused(f"layouts {sizes} for {m} x {n} x {k}, batches {batches}")
        rows = [(at, _HIP[s[0]], s[3], step) for at, s, step in zip((a, b, d), sizes, steps)]
        self._gemm(ways, m, n, k, *rows, batches[0])

    # ---- MIOpen

    def _miopenSet4dTensorDescriptor(self, t: Any, *facts: int) -> None:
        self._of(t)["facts"] = facts

    def _miopenInitConvolutionDescriptor(self, conv: Any, mode: int, *facts: int) -> None:
        if mode:
            raise Refused("another mode than miopenConvolution")
        self._of(conv)["facts"] = facts

    def _miopenSetConvolutionGroupCount(self, conv: Any, groups: int) -> None:
        self._of(conv)["groups"] = groups

    def _miopenConvolutionForwardGetSolution(
        self, own: Any, w: Any, x: Any, conv: Any, y: Any, most: int, n: Any, best: Any
    ) -> None:
        if most != 1 or ctypes.sizeof(best._obj) != 32:  # miopenConvSolution_t
            raise Refused("a solution of another size")
        n._obj.value, best._obj.id, best._obj.workspace = 1, 77, 512

    def _miopenConvolutionForwardImmediate(self, own: Any, wd: Any, w: Any, xd: Any, x: Any, conv: Any, yd: Any, y: Any, space: Any, nbytes: int, solution: int) -> None:  # fmt: skip
        if (
            (solution, nbytes) != (77, 512)
            or not space.value
            or "miopenConvolutionForwardCompileSolution" not in self.calls
        ):
            raise Refused("the solution was not compiled, or its workspace is missing")
        (kind, *xs), (_, *ws), (_, *ys) = (self._of(t)["facts"] for t in (xd, wd, yd))
        dtype = {0: np.float16, 1: np.float32}[kind]
        ph, pw, sh, sw, dh, dw = self._of(conv)["facts"]
        groups = self._of(conv)["groups"]
        data = self.read(x, int(np.prod(xs)), dtype).reshape(xs).astype(np.float64)
        weights = self.read(w, int(np.prod(ws)), dtype).reshape(ws).astype(np.float64)
        self.write(y, convolved(data, weights, (sh, sw), (ph, pw), (dh, dw), groups).astype(dtype).reshape(ys))

    # ---- rocFFT

    def _rocfft_plan_create(self, out: Any, *facts: Any) -> None:
        placement, way, precision, rank, lengths, batch, description = facts
        if placement != 1 or rank != 1 or description.value is not None:
            raise Refused("a plan in place, or of several dimensions")
        self._make(out, way, precision, lengths._obj.value, batch)

    def _rocfft_plan_get_work_buffer_size(self, plan: Any, out: Any) -> None:
        out._obj.value = 64

    def _rocfft_execution_info_set_work_buffer(self, info: Any, space: Any, nbytes: int) -> None:
        if not space.value or nbytes != 64:
            raise Refused("no work buffer")

    def _rocfft_execute(self, plan: Any, x: Any, y: Any, info: Any) -> None:
        self._of(info)
        way, precision, n, batch = self._of(plan)["facts"]
        dtype = np.complex128 if precision else np.complex64
        given = self.read(ctypes.c_void_p(x[0]), n * batch, dtype).reshape(batch, n)
        made = np.fft.ifft(given, norm="forward") if way else np.fft.fft(given)
        self.write(ctypes.c_void_p(y[0]), made.astype(dtype))


def convolved(x: np.ndarray, w: np.ndarray, stride: Any, pad: Any, dilation: Any, groups: int) -> np.ndarray:
    """The convolution by its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2))
    k, per, r, s = w.shape
    h = (x.shape[2] - dilation[0] * (r - 1) - 1) // stride[0] + 1
    width = (x.shape[3] - dilation[1] * (s - 1) - 1) // stride[1] + 1
    out = np.zeros((x.shape[0], k, h, width))
    for i in range(r):
        for j in range(s):
            rows = x[:, :, i * dilation[0] :: stride[0], j * dilation[1] :: stride[1]][:, :, :h, :width]
            for g in range(groups):
                a, b = slice(g * per, (g + 1) * per), slice(g * k // groups, (g + 1) * k // groups)
                out[:, b] += np.einsum("nchw,kc->nkhw", rows[:, a], w[b, :, i, j])
    return out
