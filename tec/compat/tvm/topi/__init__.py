"""tvm.topi: tec.topi, with TVM's modules for targets, whose schedules are the current target's here."""

from types import SimpleNamespace

from tec import topi as _topi
from tec.topi import broadcast, generic, math, reduction, sparse, tag, transform, utils

from ..names import absent
from . import nn

globals().update({name: getattr(_topi, name) for name in _topi.__all__ if name != "nn"})
# What TVM keeps for one target: here the definitions that all have, and schedules for the current target.
cuda = SimpleNamespace(**{n: getattr(m, n) for m in (nn, generic) for n in dir(m) if not n.startswith("_")})
rocm = x86 = gpu = arm_cpu = mali = bifrost = intel_graphics = hls = cuda

__getattr__ = absent(__name__)
