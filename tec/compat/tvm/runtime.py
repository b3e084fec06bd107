"""tvm.runtime: modules, arrays, constants from Python values."""

from __future__ import annotations

from typing import Any

from tec import ir, te
from tec.ir.build import const
from tec.ir.build import convert as _convert
from tec.runtime import NDArray
from tec.runtime.modules.module import Module

from . import nd as ndarray
from .devices import Absent, Device, cpu, device
from .modules import load_module
from .names import absent

__all__ = ["DataType", "Device", "Module", "NDArray", "const", "convert", "device", "enabled", "load_module", "ndarray"]


class _DataTypeKind(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, ir.DTypeInfo)


class DataType(metaclass=_DataTypeKind):
    """A dtype by text, with `bits`, `lanes` and TVM's `type_code`."""

    def __new__(cls, type_str: str) -> Any:
        return ir.dtype_info(type_str)


def convert(value: Any, span: Any = None) -> Any:
    """A node, or a container of nodes, from Python values. Tensors, arrays and functions stay as they are."""
    if isinstance(value, (list, tuple)):
        return [convert(v) for v in value]
    if isinstance(value, dict):
        return {k: convert(v) for k, v in value.items()}
    if isinstance(value, te.Tensor) or callable(value) or value is None:
        return value
    if isinstance(value, (ir.Stmt, ir.Buffer, ir.IterVar, NDArray)):
        return value
    return _convert(value)


def enabled(target: Any) -> bool:
    """Whether this machine runs code for `target`."""
    found = device(target)
    return not isinstance(found, Absent)


def num_threads() -> int:
    """Threads that parallel loops run in."""
    return cpu().compute_units


__path__: list[str] = []  # what stands below is found by `install`
__getattr__ = absent(__name__)
