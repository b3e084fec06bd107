"""Products of matrices, with the arguments that TVM's `topi.nn` gives them."""

from __future__ import annotations

from typing import Any

from ..te import Tensor
from . import broadcast
from .operators import tensor
from .transform import matmul as _matmul
from .transform import reshape, transpose

__all__ = ["batch_matmul", "dense", "dense_pack", "matmul"]


def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Tensor:
    """`topi.matmul` with the arguments that TVM's `topi.nn.matmul` has: a bias, and the type of the result."""
    out = _matmul(tensor_a, tensor_b, transpose_a, transpose_b, out_dtype)
    return out if bias is None else broadcast.add(out, tensor(bias, "matmul").astype(out.dtype))


def dense(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Tensor:
    """data (m, k) times the transposed weight (n, k), and a bias (n). 16-bit floats add up in 32 bits."""
    out = _matmul(tensor(data, "dense"), tensor(weight, "dense"), transp_b=True, out_dtype=out_dtype)
    return out if bias is None else broadcast.add(out, tensor(bias, "dense").astype(out.dtype))


def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    oshape: Any = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """Products of matrices, one a batch entry; the second one is (batch, n, k) unless `transpose_b` is False."""
    return _matmul(
        tensor(tensor_a, "batch_matmul"), tensor(tensor_b, "batch_matmul"), transpose_a, transpose_b, out_dtype
    )


def dense_pack(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Tensor:
    """As `dense`, with the weight in blocks of rows: (n / block, k, block)."""
    a, b = tensor(data, "dense_pack"), tensor(weight, "dense_pack")
    chunks, depth, block = b.shape
    plain = reshape(transpose(b, (0, 2, 1)), (chunks * block, depth))
    return dense(a, plain, bias, out_dtype)
