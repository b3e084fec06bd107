"""tvm.te.schedule: schedules, what a stage's loops came from, and what is asked of both."""

from __future__ import annotations

import copyreg
import json
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

from tec import ir, te
from tec.driver import lower
from tec.ir import notes
from tec.ir.spelling import accept
from tec.schedule import AutoInlineBroadcast, AutoInlineElemWise, AutoInlineInjective, Schedule, Trace, replay, to_loops
from tec.schedule import create_schedule as _create_schedule
from tec.schedule.bounds import infer_bounds
from tec.schedule.normalize import normalize
from tec.schedule.relations import *  # noqa: F403
from tec.schedule.stage import Stage
from tec.schedule.state import StageState
from tec.te.operation import Operation, PlaceholderOp, ScanOp, topo_order
from tec.te.tensor import Tensor

from ..names import absent
from ..tir.nodes import IterVar
from ..transform import PassContext
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


class _Hint(notes.Note):
    """A pragma of TVM's thread pool. The loops of a schedule here wait for one another, however they are run."""

    __slots__ = ()


for _word in ("parallel_launch_point", "parallel_barrier_when_finish", "parallel_stride_pattern"):
    notes.note(_word)(type(_word, (_Hint,), {"__slots__": (), "__doc__": _Hint.__doc__}))

_RECORDED: WeakSet[Schedule] = WeakSet()  # those made while PassContext asked for records


class NoSchedule:
    """A schedule of no operations: there is nothing to lower."""

    stages, outputs = (), ()

    def __init__(self) -> None:
        self.primitive_record = ["vanilla"] if _recording() else []

    @property
    def schedule_record(self) -> list[Any]:
        """The schedule after each primitive."""
        return [self] * len(self.primitive_record)


def _recording() -> bool:
    return bool(PassContext.current().config.get("te.keep_schedule_record"))


def create_schedule(ops: Any) -> Any:
    """A schedule that computes `ops`; of an empty list one that computes nothing."""
    if isinstance(ops, (list, tuple)) and not ops:
        return NoSchedule()
    made = _create_schedule(ops)
    if _recording():
        _RECORDED.add(made)
    return made


# What TVM's primitives are made of.
_STEPS: dict[str, tuple[str, ...]] = {"tile": ("split", "split", "reorder"), "define": ()}


def _primitives(s: Schedule) -> list[str]:
    if s not in _RECORDED:
        return []
    return ["vanilla", *(name for r in s.trace.records for name in _STEPS.get(r.method, (r.method,)))]


accept(
    Schedule,
    {
        "normalize": lambda s: lambda: normalize(s),
        "primitive_record": _primitives,
        "schedule_record": lambda s: [s] * len(_primitives(s)),
    },
)


def to_json(s: Schedule) -> str:
    """A schedule as text: its computation, with the tensors that it reads, and its trace."""
    inputs = [st.op for st in s.stages if isinstance(st.op, PlaceholderOp)]
    tensors = [op.output(0) for op in (*inputs, *_first(s))]
    return json.dumps({"tec_schedule": te.save_json(tensors), "inputs": len(inputs), "trace": s.trace.to_json()})


def _first(s: Schedule) -> list[Operation]:
    return [getattr(s.stage_map[op], "origin_op", None) or op for op in s.outputs]


def from_json(text: str) -> Schedule:
    """What `to_json` wrote: a schedule of new tensors."""
    data = json.loads(text)
    outs = te.load_json(data["tec_schedule"])[data["inputs"] :]
    return replay(Trace.from_json(data["trace"]), outs)


copyreg.pickle(Schedule, lambda s: (from_json, (to_json(s),)))


def InferBound(sch: Any) -> dict[ir.IterVar, ir.Range]:
    """The range of each loop and axis."""
    return infer_bounds(normalize(sch)).ranges


def ScheduleOps(sch: Any, bounds: Any = None, *options: Any) -> ir.Stmt:
    """The loops of a schedule, its inputs and outputs as parameters. They are for reading: a read outside of its tensor stands there, which `build` refuses."""
    inputs = [st.op.output(0) for st in sch.stages if isinstance(st.op, PlaceholderOp)]
    outs = [t for st in sch.stages if getattr(st, "is_output", False) for t in st.op.outputs]
    loops = to_loops(sch, [*inputs, *outs], on_cpu=True, reads_checked=False)
    return next(iter(lower(loops, simple_mode=True))).body


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
