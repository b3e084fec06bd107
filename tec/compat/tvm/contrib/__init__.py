"""tvm.contrib: temporary folders, files of modules, networks."""

from ..names import absent
from . import cc, clang, graph_executor, nvcc, utils

graph_runtime = graph_executor  # as it was called before TVM 0.8

__getattr__ = absent(__name__)
