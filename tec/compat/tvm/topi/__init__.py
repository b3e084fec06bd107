"""tvm.topi: tec.topi, with TVM's modules for targets, whose schedules are the current target's here."""

from tec import topi as _topi
from tec.topi import broadcast, generic, math, reduction, tag, transform, utils

from ..names import absent
from . import nn

globals().update({name: getattr(_topi, name) for name in _topi.__all__ if name != "nn"})
cuda = rocm = x86 = gpu = arm_cpu = mali = bifrost = intel_graphics = hls = generic

__getattr__ = absent(__name__)
