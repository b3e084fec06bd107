"""Microscaling (MX) formats: blocks of 32 small floats along the sum that share a power of two.

Matrices of them are two tensors: elements side by side in bytes, and a byte a block, its scale. `quantize` and `dequantize` are NumPy's, `mx_quantize` and `mx_matmul`
are computations.

>>> codes, scales = topi.mx.quantize(np.ones((4, 64)), "mxfp4")          # NumPy
>>> codes.shape, scales.shape
((4, 32), (4, 2))
>>> a, sa = topi.mx.placeholders((16, 64), "mxfp4", "a")
>>> b, sb = topi.mx.placeholders((32, 64), "mxfp4", "b")                 # [n, k]
>>> c = topi.mx.mx_matmul(a, sa, b, sb, "mxfp4")
"""

from __future__ import annotations

from typing import Any

from .. import te
from ..errors import ExprError, listed
from ..ir.microscaling import BLOCK, FORMATS, dequantize, format_of, quantize
from ..te import Tensor
from .operators import output, outputs, tensor
from .tag import INJECTIVE

__all__ = ["BLOCK", "FORMATS", "dequantize", "mx_matmul", "mx_quantize", "placeholders", "quantize"]


def placeholders(shape: tuple[Any, int], format: str, name: str = "x") -> tuple[Tensor, Tensor]:
    """The elements and scales of a matrix of `shape`, as parameters. Raises ExprError where its columns are no whole blocks."""
    rows, columns = shape
    if not isinstance(columns, int) or columns % BLOCK:
        raise ExprError(f"{columns} columns are no whole blocks of {BLOCK}", hint="fill the matrix up with zeros")
    stored = format_of(format).stored(columns)
    return (
        te.placeholder((rows, stored), name=name, dtype="uint8"),
        te.placeholder((rows, columns // BLOCK), name=f"{name}_scales", dtype="uint8"),
    )


def mx_matmul(
    a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor, format: str, format_b: str | None = None,
    out_dtype: str = "float32",
) -> Tensor:  # fmt: skip
    """a [m, k] times b [n, k] transposed, summed in float32, as [m, n] of `out_dtype`. `format_b`: b's, where it is not a's `format`."""
    inputs = [tensor(x, "mx_matmul") for x in (a, a_scales, b, b_scales)]
    names = format_of(format).name, format_of(format_b or format).name
    made: Tensor = output("mx_matmul", inputs, format_a=names[0], format_b=names[1], out_dtype=out_dtype)
    return made


def mx_quantize(x: Tensor, format: str) -> tuple[Tensor, Tensor]:
    """Elements and scales of x [m, k], as `quantize` has them."""
    made = outputs("mx_quantize", [tensor(x, "mx_quantize")], INJECTIVE, format=format_of(format).name)
    return made[0], made[1]


__dir__ = listed(__name__)
