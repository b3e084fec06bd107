"""tvm.contrib.sparse: a sparse matrix that is an input of a computation, and one of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import tec
from tec.topi.sparse import CSR, placeholder

from ..names import absent

CSRPlaceholderOp = CSR


class CSRNDArray:
    """A CSR matrix of numbers: `data`, `indices` and `indptr` as arrays, of a dense one or of the three arrays themselves."""

    def __init__(self, arg1: Any, device: Any = None, shape: Any = None):
        if isinstance(arg1, tuple):
            data, indices, indptr = (np.asarray(x) for x in arg1)
            self.shape = tuple(shape)
        else:
            dense = np.asarray(arg1)
            rows, columns = dense.nonzero()
            data, indices = dense[rows, columns], columns.astype(np.int32)
            indptr = np.searchsorted(rows, np.arange(dense.shape[0] + 1)).astype(np.int32)
            self.shape = dense.shape
        self.dtype = str(data.dtype)
        self.data, self.indices, self.indptr = (tec.nd.array(x, device) for x in (data, indices, indptr))

    def numpy(self) -> Any:
        """The matrix, dense."""
        made = np.zeros(self.shape, self.dtype)
        ends = self.indptr.numpy()
        made[np.repeat(np.arange(self.shape[0]), np.diff(ends)), self.indices.numpy()] = self.data.numpy()
        return made

    asnumpy = numpy


def array(source_array: Any, device: Any = None, shape: Any = None, stype: str = "csr") -> CSRNDArray:
    """A sparse matrix on a device. Only CSR is there."""
    if stype != "csr":
        raise tec.ArgumentError(f"a sparse array of type {stype}", hint="csr")
    return CSRNDArray(source_array, device, shape)


csr = array

__all__ = ["CSRNDArray", "CSRPlaceholderOp", "array", "csr", "placeholder"]

__getattr__ = absent(__name__)
