"""Vendor libraries as stages of a computation: `te.libraries.matmul(a, b, library="cublas")` is a tensor that the library computes.

A stage is a `te.extern` that calls a registered function (`tec.runtime.vendor.calls`) on arrays where they lie: in the thread's stream on a GPU, in the caller's thread on a
CPU. Whether a library is there is asked when the function runs, or by `tec.runtime.vendor.finding`; the machine that compiles needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ExprError
from ..ir import Buffer, build
from ..runtime.modules.callbacks import Argument, symbol
from ..runtime.vendor.finding import LIBRARIES
from .extern import extern
from .math import call_with
from .tensor import Tensor


def serving(operations: str) -> dict[str, str]:
    """The libraries that have "products", "convolutions" or "Fourier transforms", each with the kind of its targets."""
    return {k.name: "llvm" if k.kind == "cpu" else k.kind for k in LIBRARIES.values() if k.operations == operations}


def _checked(library: str, operations: str) -> None:
    if library not in (some := serving(operations)):
        raise ExprError(f"{library!r} has no {operations}", hint=f"one of {', '.join(some)}")


def _call(function: str, texts: Sequence[str], arrays: Sequence[Buffer]) -> Any:
    """The call of a function of some texts and arrays, the last of which it writes."""
    kinds = [Argument("text", text=t) for t in texts]
    values: list[Any] = []
    for k, a in enumerate(arrays):
        written = k == len(arrays) - 1
        kinds.append(Argument("array", a.dtype, len(a.shape), written=written))
        values += [build.access_ptr(a, "w" if written else "r"), *(build.cast("int64", n) for n in a.shape)]
    return call_with(symbol(function, kinds), values)


def matmul(
    a: Tensor, b: Tensor, library: str, transpose_a: bool = False, transpose_b: bool = False, dtype: str | None = None, name: str = "product",
) -> Tensor:  # fmt: skip
    """c[..., m, n] = a @ b, by "cublas", "rocblas", "hipblaslt" or "onednn" (float32 alone). a: [..., m, k], or [..., k, m] with transpose_a; b: [..., k, n], or
    [..., n, k] with transpose_b; float16, bfloat16, float32 or float64, sums in float32 or float64. One of them may have two dimensions: it serves all products of a
    batch. dtype: of the result, the operands' by default; float32 is possible for operands of 16 bits. Raises ExprError for shapes that do not go together.
    """
    _checked(library, "products")
    if min(a.ndim, b.ndim) < 2 or a.dtype != b.dtype:
        raise ExprError(
            f"a product of {a.dtype} {a.name} of {a.ndim} dimensions and {b.dtype} {b.name} of {b.ndim}",
            hint="two matrices of one dtype; tec.topi.matmul takes others",
        )
    m, k = a.shape[-2:][::-1] if transpose_a else a.shape[-2:]
    k_b, n = b.shape[-2:][::-1] if transpose_b else b.shape[-2:]
    if str(k) != str(k_b):
        raise ExprError(
            f"a product over {k} of {a.name} and {k_b} of {b.name}",
            hint="a is [..., m, k] and b [..., k, n]; transpose_a=True and transpose_b=True take them turned",
        )
    lead = (a if a.ndim >= b.ndim else b).shape[:-2]
    ways = "nt"[transpose_a] + "nt"[transpose_b]
    made = extern(
        (*lead, m, n), [a, b], lambda ins, outs: _call("tec.library.matmul", [library, ways], [*ins, *outs]), name=name, dtype=dtype or a.dtype,
    )  # fmt: skip
    assert isinstance(made, Tensor)
    return made


def conv2d(
    x: Tensor, w: Tensor, library: str, strides: tuple[int, int] = (1, 1), padding: tuple[int, int] = (0, 0), dilation: tuple[int, int] = (1, 1),
    groups: int = 1, name: str = "conv",
) -> Tensor:  # fmt: skip
    """A convolution of images [n, c, h, w] by weights [k, c / groups, r, s], by "cudnn" or "miopen". padding: rows above and below, columns left and right."""
    _checked(library, "convolutions")
    n, _, h, width = x.shape
    k, _, r, s = w.shape
    shape = (
        n,
        k,
        *(
            (size + 2 * p - d * (f - 1) - 1) // t + 1
            for size, p, d, f, t in zip((h, width), padding, dilation, (r, s), strides)
        ),
    )
    numbers = ",".join(map(str, (*strides, *padding, *dilation, groups)))
    made = extern(
        shape, [x, w], lambda ins, outs: _call("tec.library.conv2d", [library, numbers], [*ins, *outs]), name=name, dtype=x.dtype
    )  # fmt: skip
    assert isinstance(made, Tensor)
    return made


def fft(x: Tensor, library: str, inverse: bool = False, name: str = "fft") -> Tensor:
    """The complex Fourier transform of [..., n, 2] (pairs of a real and an imaginary part; float32, float64) along n, by "cufft" or "rocfft". The inverse has no scale."""
    _checked(library, "Fourier transforms")
    way = "inverse" if inverse else "forward"
    made = extern(
        tuple(x.shape), [x], lambda ins, outs: _call("tec.library.fft", [library, way], [*ins, *outs]), name=name, dtype=x.dtype
    )  # fmt: skip
    assert isinstance(made, Tensor)
    return made


__all__ = ["conv2d", "fft", "matmul", "serving"]
