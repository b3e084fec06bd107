"""tvm.script: functions of loop IR written as Python text (TVMScript), as far as programs beside te write them."""

from ..names import absent
from . import ir as ir
from . import tir as tir
from .ir import ir_module
from .tir import prim_func

__all__ = ["ir", "ir_module", "prim_func", "tir"]

__getattr__ = absent(__name__)
