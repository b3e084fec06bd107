"""tvm.te.schedule: schedules, what a stage's loops came from, and what is asked of both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tec import ir
from tec.driver import lower
from tec.ir.spelling import accept
from tec.schedule import AutoInlineBroadcast, AutoInlineElemWise, AutoInlineInjective, Schedule, create_schedule
from tec.schedule.bounds import infer_bounds
from tec.schedule.normalize import normalize
from tec.schedule.relations import *  # noqa: F403
from tec.schedule.stage import Stage
from tec.schedule.state import StageState
from tec.te.operation import Operation, PlaceholderOp, ScanOp, topo_order
from tec.te.tensor import Tensor

from ..names import absent
from ..tir.nodes import IterVar
from .scan_axes import fixed_axes

Buffer = ir.Buffer

_ATTACH = {"root": 1, "inline": 2, "scope": 4, "scan": 5}
accept(
    StageState,
    {
        "attach_type": lambda s: _ATTACH[s.attach],
        "iter_var_attrs": lambda s: {k: SimpleNamespace(iter_type=v.kind) for k, v in s.attrs.items()},
    },
)


accept(
    Schedule,
    {
        "normalize": lambda s: lambda: normalize(s),
    },
)


def InferBound(sch: Any) -> dict[ir.IterVar, ir.Range]:
    """The range of each loop and axis."""
    return infer_bounds(normalize(sch)).ranges


def ScheduleOps(sch: Any, bounds: Any = None, *options: Any) -> ir.Stmt:
    """The loops of a schedule, its inputs and outputs as parameters."""
    inputs = [st.op.output(0) for st in sch.stages if isinstance(st.op, PlaceholderOp)]
    outs = [t for st in sch.stages if getattr(st, "is_output", False) for t in st.op.outputs]
    return next(iter(lower(sch, [*inputs, *outs], simple_mode=True))).body


def CreateReadGraph(ops: Any) -> dict[Operation, list[Tensor]]:
    """The tensors that each operation below `ops` reads."""
    return {op: list(op.inputs) for op in topo_order(ops)}


def PostDFSOrder(roots: Any, graph: Any = None) -> list[Operation]:
    """Operations, producers first."""
    return topo_order(roots)


def ScanGetBody(scan: ScanOp) -> list[Operation]:
    """The operations that a scan runs at each time."""
    ends = {t.op for t in (*scan.init, *scan.state_placeholder, *scan.scan_inputs)}
    ends |= {op for end in ends for op in topo_order(end)}
    return [op for op in topo_order(scan.update) if op not in ends]


def ScanFixPointAnalysis(scan: ScanOp) -> dict[ir.IterVar, ir.Expr]:
    """Of each spatial axis of a scan, whether all its values at a time depend on the same place of the time before alone (1) or not (0)."""
    return fixed_axes(scan)


accept(ScanOp, {"spatial_axis_": "spatial_axis"})

__all__ = ["Schedule", "Stage", "create_schedule"]

__getattr__ = absent(__name__)
