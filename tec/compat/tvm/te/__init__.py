"""tvm.te: tec's te, with the names that TVM has for it."""

from tec import te as _te
from tec.autodiff import gradient
from tec.schedule import Schedule
from tec.schedule.stage import Stage
from tec.te import AXIS_SEPARATOR, ComputeOp, ExternOp, PlaceholderOp, ScanOp, Tensor, TensorIntrin, TensorSlice

from ..names import absent
from ..tir.op import add, all, any, multiply, subtract
from . import hybrid, operation, schedule, tag, tensor
from .operation import compute, const, create_prim_func, extern, extern_primfunc, size_var, var
from .schedule import create_schedule

globals().update(
    {name: value for name in _te.__all__ if name not in globals() and (value := getattr(_te, name)) is not None}
)
TensorComputeOp = ComputeOp  # a call of an intrinsic is a compute here
HybridOp = ExternOp

__getattr__ = absent(__name__)
