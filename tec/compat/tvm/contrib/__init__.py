"""tvm.contrib: temporary folders, files of modules, networks, products by BLAS, sparse matrices."""

from ..names import absent
from . import cblas, cc, clang, graph_executor, nvcc, pickle_memoize, sparse, utils

graph_runtime = graph_executor  # as it was called before TVM 0.8

__getattr__ = absent(__name__)
