"""tvm.ir: what TVM's levels of IR share: modules, ranges, structural equality, JSON."""

from __future__ import annotations

import json
import types
from dataclasses import dataclass
from typing import Any

from tec import ir, te
from tec.errors import ArgumentError
from tec.ir.build import const, convert, sub
from tec.ir.spelling import accept
from tec.ir.structural import structural_equal as _same
from tec.ir.structural import structural_hash
from tec.schedule import Schedule

from . import transform as transform
from .names import absent
from .te import schedule
from .tir.op import Op as _Op

__all__ = [
    "Array", "IRModule", "Map", "Op", "PointerType", "PrimExpr", "PrimType", "Range", "assert_structural_equal", "load_json",
    "save_json", "structural_equal", "structural_hash", "transform",
]  # fmt: skip

PrimExpr = ir.Expr


class _ModuleKind(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, ir.IRModule)


class IRModule(metaclass=_ModuleKind):
    """Functions by name: tec's IRModule."""

    def __new__(cls, functions: dict[Any, Any] | None = None, attrs: Any = None) -> Any:
        return ir.IRModule({str(k): functions[k] for k in sorted(functions or {}, key=str)} if functions else {})

    @staticmethod
    def from_expr(expr: ir.Func) -> ir.IRModule:
        """A module of one function."""
        return ir.IRModule({expr.name: expr})


Array = list
Map = dict


class Op:
    """Operations of calls by name: `Op.get("tir.address_of")`."""

    @staticmethod
    def get(op_name: str) -> Any:
        """The operation of a name."""
        return _Op(op_name.removeprefix("tir."))


class _RangeKind(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, ir.Range)


class Range(metaclass=_RangeKind):
    """`Range(end)` or `Range(begin, end)`; `Range.from_min_extent(begin, n)`."""

    def __new__(cls, begin: Any, end: Any = None) -> Any:
        if end is None:
            return ir.Range(const(0), convert(begin))
        return ir.Range(convert(begin), sub(end, begin))

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any, span: Any = None) -> ir.Range:
        """The range of `extent` numbers from `min_value` on."""
        return ir.Range(convert(min_value), convert(extent))


@dataclass(frozen=True)
class PrimType:
    """The type of a scalar."""

    dtype: str


@dataclass(frozen=True)
class PointerType:
    """The type of a pointer."""

    element_type: PrimType
    storage_scope: str = ""


def _plain(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_plain(v) for v in x]
    return const(x) if isinstance(x, (bool, int, float)) else x


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether both say the same, whatever their variables are called."""
    return _same(_plain(lhs), _plain(rhs), map_free_vars)


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raises ValueError where `structural_equal` does not hold."""
    if not structural_equal(lhs, rhs, map_free_vars):
        raise ValueError(f"{lhs}\nis not\n{rhs}")


def save_json(node: Any) -> str:
    """A computation, loop IR, or a container of them as JSON."""
    if isinstance(node, Schedule):
        return schedule.to_json(node)
    if isinstance(node, (ir.Stmt, ir.Func, ir.IRModule)):
        return ir.save_json(node)
    return te.save_json(node)


def load_json(json_str: str) -> Any:
    """What `save_json` stored."""
    if '"tec_schedule"' in json_str[:20]:
        return schedule.from_json(json_str)
    if '"tec_te"' not in json_str[:20]:
        return ir.load_json(json_str)
    made = te.load_json(json_str)
    for op in te.topo_order([made] if isinstance(made, te.Tensor) else made):
        if attrs := getattr(op, "attrs", None):
            op.attrs = Attrs(attrs)
    return made


class Attrs(dict[str, Any]):
    """The attributes of an operation. Their text is JSON."""

    def __str__(self) -> str:
        return json.dumps(self, default=lambda v: getattr(v, "value", str(v)))


def _only(mod: ir.IRModule) -> Any:
    if len(mod) != 1:
        raise ArgumentError(f"a module of {len(mod)} functions, where one is meant", hint='name it: mod["main"]')
    return next(iter(mod))


accept(
    ir.IRModule, {"get_global_var": lambda m: lambda name: name, "get_global_vars": lambda m: lambda: list(m.functions)}
)

base = types.SimpleNamespace(structural_equal=structural_equal, save_json=save_json, load_json=load_json)
container = types.SimpleNamespace(Array=list, Map=dict)

__path__: list[str] = []  # what stands below is found by `install`
__getattr__ = absent(__name__)
