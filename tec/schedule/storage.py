"""Where tensors live: the buffer of each output, and the part of the tensor that it holds."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import LoweringError
from ..ir import build as B
from ..ir import expr as E
from ..ir.buffer import GLOBAL, LOCAL, SHARED, SHARED_DYN, Buffer
from ..ir.visit import substitute
from ..records import dataclass
from ..te.operation import ComputeOp, PlaceholderOp, ScanOp
from ..te.tensor import Tensor
from .bounds import Bounds
from .schedule import Schedule
from .show import fail
from .stage import Stage
from .state import AttachKind, IndexMap


@dataclass(slots=True, eq=False)
class Storage:
    """`buffer` holds the tensor's elements from `mins` on: tensor[i] is buffer[i - mins].

    layout: the buffer is indexed by layout.apply(i) instead. rolling: dimension and size of a circular buffer, where
    tensor[i] is at i modulo the size.
    """

    buffer: Buffer
    mins: tuple[E.Expr, ...]
    stage: Stage
    is_arg: bool = False
    layout: IndexMap | None = None
    rolling: tuple[int, E.Expr] | None = None

    def index(self, at: Sequence[E.Expr]) -> list[E.Expr]:
        """Where element `at` of the tensor stands in the buffer; not simplified."""
        if self.layout is not None:
            return self.layout.apply(list(at))
        out = [_minus(i, low) for i, low in zip(at, self.mins)]
        if self.rolling is not None:
            d, size = self.rolling
            out[d] = B.floormod(out[d], B.cast(out[d].dtype, size))
        return out


def _minus(a: E.Expr, b: E.Expr) -> E.Expr:
    if isinstance(b, E.IntImm) and b.value < 0:
        return B.add(a, -b.value)
    return B.sub(a, b)


def clean(name: str) -> str:
    return name.replace(".", "_")


class StorageMap:
    """The Storage of every tensor of a normalized schedule; made on demand."""

    def __init__(self, sch: Schedule, bounds: Bounds, tensors: dict[tuple[int, int], Buffer], on_cpu: bool = False):
        self.sch = sch
        self.on_cpu = on_cpu  # where memory is all one, and may have any size
        self.bounds = bounds
        self.args = tensors
        self._made: dict[tuple[int, int], Storage] = {}
        self._alias: dict[tuple[int, int], tuple[Stage, int]] = {}
        self.scans: dict[int, Stage] = {}
        for stage in sch.stages:
            if isinstance(stage.op, ScanOp):
                self._alias_scan(stage, stage.op)

    def _alias_scan(self, scan: Stage, op: ScanOp) -> None:
        """State, update and (where computed) init of a scan are parts of its output."""
        for k in range(op.num_outputs):
            for t in (op.init[k], op.update[k], op.state_placeholder[k]):
                stage = self.sch.stage_map.get(t.op)
                if stage is None:  # a state that nothing reads has no stage
                    continue
                is_input = isinstance(stage.op, PlaceholderOp) and t is not op.state_placeholder[k]
                key = (id(stage), t.value_index)
                if not is_input and key not in self._alias and key not in self.args:
                    self._alias[key] = (scan, k)

    def is_alias(self, stage: Stage, index: int) -> bool:
        return (id(stage), index) in self._alias

    def home(self, stage: Stage, index: int) -> tuple[Stage, int]:
        """The stage and output whose buffer holds this one."""
        return self._alias.get((id(stage), index), (stage, index))

    def of(self, tensor: Tensor) -> Storage:
        stage = self.sch.stage_map.get(tensor.op)
        if stage is None:
            raise LoweringError(
                f"tensor {tensor.name} is not part of the schedule",
                hint="name a tensor of the schedule's own computation",
            )
        return self.output(stage, tensor.value_index)

    def output(self, stage: Stage, index: int) -> Storage:
        stage, index = self.home(stage, index)
        key = (id(stage), index)
        hit = self._made.get(key)
        if hit is None:
            hit = self._made[key] = self._make(stage, index)
        return hit

    def _make(self, stage: Stage, index: int) -> Storage:
        """Where a stage's result lies: in a parameter, or in a buffer of its own, as large as its bounds say. Raises LoweringError where the memory takes no
        such size."""
        t = stage.op.output(index)
        zeros = tuple([B.const(0, d.dtype) for d in t.shape])
        arg = self.args.get((id(stage), index))
        if arg is not None:
            return Storage(arg, zeros, stage, True, stage.layout)
        if isinstance(stage.op, PlaceholderOp):
            raise LoweringError(
                f"input {t.name} is not among the parameters", hint=f"add it to the list: [..., {t.name}]"
            )
        shape, mins = t.shape, zeros
        if isinstance(stage.op, ComputeOp):
            ranges = [self.bounds.ranges[iv] for iv in stage.op.axis]
            shape = tuple([r.extent for r in ranges])
            mins = tuple([self.bounds.arith.simplify(r.min) for r in ranges])
        rolling = None
        if stage.layout is not None:
            shape, mins = stage.layout.shape, zeros
        elif stage.rolling and stage.placement.attach == AttachKind.SCOPE:
            rolling = rolling_dim(self.bounds, stage)
            if rolling is not None:
                mins = tuple([zeros[d] if d == rolling[0] else m for d, m in enumerate(mins)])
        scope = self.bounds.scope(stage)
        is_open = not all(isinstance(d, E.IntImm) for d in shape)
        if is_open and self.on_cpu and scope in (SHARED, SHARED_DYN, LOCAL):
            scope = GLOBAL
        if is_open and scope != GLOBAL:
            raise fail(
                self.sch, f"{stage.name} is stored in {scope} memory with a size that is not constant: ({', '.join(map(str, shape))})",
                mark=stage, hint="compute it in a loop whose step needs a constant part of it; split with constant factors",
            )  # fmt: skip
        name = clean(stage.name) + (f"_v{index}" if stage.op.num_outputs > 1 else "")
        buffer = Buffer(name, t.dtype, shape, scope=scope, loc=stage.op.loc)
        return Storage(buffer, mins, stage, False, stage.layout, rolling)


def rolling_dim(bounds: Bounds, stage: Stage) -> tuple[int, E.Expr] | None:
    """The dimension along which neighbouring steps of the attachment loop overlap, and the region's size there.

    None where the loop has one step or nothing overlaps. Raises ScheduleError where the steps do not follow each other.
    """
    parent, loop = stage.placement.attach_stage, stage.placement.attach_ivar
    assert parent is not None and loop is not None
    if parent.thread_of(loop) or parent.attr(loop).kind == "parallel":
        raise fail(
            bounds.sch, f"rolling_buffer of {stage.name} along {loop.name}, whose steps do not follow each other",
            mark=loop, hint="compute_at a serial loop",
        )  # fmt: skip
    found: tuple[int, E.Expr] | None = None
    for d, iv in enumerate(stage.op.axis):
        r = bounds.ranges[iv]
        step = bounds.arith.simplify(B.sub(substitute(r.min, {loop.var: B.add(loop.var, 1)}), r.min))
        if B.is_const(step, 0):
            continue
        if not isinstance(step, E.IntImm) or step.value < 0 or not isinstance(r.extent, E.IntImm) or found is not None:
            raise fail(
                bounds.sch, f"rolling_buffer of {stage.name}: the region does not move along one dimension with {loop.name}",
                mark=loop, hint="compute_at the loop over the dimension that rolls",
            )  # fmt: skip
        if step.value >= r.extent.value:
            return None
        found = (d, r.extent)
    return found
