"""tvm.contrib.cblas: products by NumPy's BLAS, as functions that extern operators call."""

from __future__ import annotations

from typing import Any

import numpy as np

import tec
from tec import te

from ..names import absent


def _product(a: Any, b: Any, out: Any, transa: Any = False, transb: Any = False) -> None:
    x, y = a.numpy(), b.numpy()
    x, y = (np.swapaxes(x, -1, -2) if transa else x), (np.swapaxes(y, -1, -2) if transb else y)
    out.copyfrom(np.matmul(x, y))


for _name in ("matmul", "batch_matmul"):
    tec.register_func(f"tvm.contrib.cblas.{_name}", _product)


def matmul(lhs: Any, rhs: Any, transa: bool = False, transb: bool = False, **kwargs: Any) -> Any:
    """lhs rhs of two matrices, either of them transposed."""
    return _extern("matmul", lhs, rhs, transa, transb)


def batch_matmul(
    lhs: Any, rhs: Any, transa: bool = False, transb: bool = False, iterative: bool = False, **kwargs: Any
) -> Any:
    """lhs rhs of two batches of matrices."""
    return _extern("batch_matmul", lhs, rhs, transa, transb)


def _extern(name: str, lhs: Any, rhs: Any, transa: bool, transb: bool) -> Any:
    rows, columns = lhs.shape[-1 if transa else -2], rhs.shape[-2 if transb else -1]
    return te.extern(
        (*lhs.shape[:-2], rows, columns),
        [lhs, rhs],
        lambda ins, outs: te.call_packed(f"tvm.contrib.cblas.{name}", ins[0], ins[1], outs[0], transa, transb),
        name="C",
        dtype=lhs.dtype,
    )


__all__ = ["batch_matmul", "matmul"]

__getattr__ = absent(__name__)
