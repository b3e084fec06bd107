"""Where tensors live: the buffer of each output, and the part of the tensor that it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError, LoweringError
from ..ir import build as B
from ..ir import expr as E
from ..ir.buffer import GLOBAL, Buffer
from ..ir.visit import substitute
from ..te.operation import ComputeOp, PlaceholderOp, ScanOp
from ..te.tensor import Tensor
from .bounds import Bounds
from .schedule import Schedule
from .show import fail
from .stage import AttachKind, Stage


@dataclass(slots=True, eq=False)
class Layout:
    """From transform_layout: `apply` takes an index of the tensor to one of the buffer, whose shape is `shape`."""

    apply: Callable[[Sequence[E.Expr]], list[E.Expr]]
    shape: tuple[E.Expr, ...]


@dataclass(slots=True, eq=False)
class Place:
    """`buffer` holds the tensor's elements from `mins` on: tensor[i] is buffer[i - mins].

    layout: the buffer is indexed by layout.apply(i) instead. rolling: dimension and size of a circular buffer, where
    tensor[i] is at i modulo the size.
    """

    buffer: Buffer
    mins: tuple[E.Expr, ...]
    stage: Stage
    is_arg: bool = False
    layout: Layout | None = None
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


class Args:
    """The parameters of a function: which tensor each Buffer is. Checks what the user gave."""

    def __init__(self, sch: Schedule, args: Sequence[Any], binds: dict[Any, Buffer] | None):
        self.sch = sch
        self.params: list[Buffer | E.Var] = []
        self.tensors: dict[tuple[int, int], Buffer] = {}  # (stage, value_index) -> buffer
        self.order: list[tuple[Stage, int, Buffer]] = []
        self._names: set[str] = set()
        given = dict(binds or {})
        by_buffer = {id(b): t for t, b in given.items()}
        for k, a in enumerate(args):
            if isinstance(a, Tensor):
                self._tensor(k, a, given.pop(a, None))
            elif isinstance(a, Buffer):
                t = by_buffer.get(id(a))
                if t is None:
                    raise ArgumentError(
                        f"parameter {k}, buffer {a.name}, stands for no tensor", hint=f"binds={{tensor: {a.name}}}"
                    )
                given.pop(t, None)
                self._tensor(k, t, a)
            elif isinstance(a, E.Var):
                if any(p is a for p in self.params):
                    raise ArgumentError(f"parameter {k}, variable {a.name}, is given twice")
                self.params.append(a)
            else:
                raise ArgumentError(
                    f"parameter {k} is {a!r} ({type(a).__name__})", hint="give Tensors, Buffers (with binds=) and Vars"
                )
        if given:
            raise ArgumentError(
                f"binds names {', '.join(str(getattr(t, 'name', t)) for t in given)}, which is no parameter",
                hint="list the tensor (or its buffer) among the parameters",
            )
        self._check_complete()

    def _tensor(self, k: int, t: Any, buffer: Buffer | None) -> None:
        stage = self.sch.find(t)
        if not isinstance(t, Tensor) or stage is None:
            raise ArgumentError(f"parameter {k}, {getattr(t, 'name', t)}, is not part of the schedule")
        key = (id(stage), t.value_index)
        if key in self.tensors:
            raise ArgumentError(f"parameter {k}, tensor {t.name}, is given twice", hint="list each tensor once")
        shape = stage.layout.shape if stage.layout is not None else t.shape
        if buffer is None:
            buffer = Buffer(self._unique(t.name), t.dtype, shape, loc=stage.op.loc)
        elif buffer.dtype != t.dtype or len(buffer.shape) != len(shape):
            raise ArgumentError(
                f"buffer {buffer.name} ({buffer.dtype}, {len(buffer.shape)} dimensions) cannot hold {t.name} "
                f"({t.dtype}, {len(shape)} dimensions)"
            )
        elif buffer.scope != GLOBAL:
            raise ArgumentError(
                f"buffer {buffer.name} of parameter {k} is in {buffer.scope} memory", hint="global memory"
            )
        self.tensors[key] = buffer
        self.order.append((stage, t.value_index, buffer))
        self.params.append(buffer)

    def _unique(self, name: str) -> str:
        name = clean(name)
        base, n = name, 1
        while name in self._names:
            name = f"{base}_{n}"
            n += 1
        self._names.add(name)
        return name

    def _check_complete(self) -> None:
        states = {t.op for s in self.sch.stages if isinstance(s.op, ScanOp) for t in s.op.state_placeholder}
        for stage in self.sch.stages:
            if isinstance(stage.op, PlaceholderOp):
                needed = stage.op not in states and (stage.is_output or self.sch.readers(stage))
            else:
                needed = stage.is_output
            if not needed:
                continue
            for t in stage.op.outputs:
                if (id(stage), t.value_index) not in self.tensors:
                    kind = "input" if isinstance(stage.op, PlaceholderOp) else "output"
                    raise ArgumentError(
                        f"{kind} {t.name} is not among the parameters",
                        hint=f"add it to the list: [..., {t.name}]",
                    )


class Places:
    """The Place of every tensor of a normalized schedule; made on demand."""

    def __init__(self, sch: Schedule, bounds: Bounds, tensors: dict[tuple[int, int], Buffer]):
        self.sch = sch
        self.bounds = bounds
        self.args = tensors
        self._places: dict[tuple[int, int], Place] = {}
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

    def of(self, tensor: Tensor) -> Place:
        stage = self.sch.stage_map.get(tensor.op)
        if stage is None:
            raise LoweringError(f"tensor {tensor.name} is not part of the schedule")
        return self.output(stage, tensor.value_index)

    def output(self, stage: Stage, index: int) -> Place:
        stage, index = self.home(stage, index)
        key = (id(stage), index)
        hit = self._places.get(key)
        if hit is None:
            hit = self._places[key] = self._make(stage, index)
        return hit

    def _make(self, stage: Stage, index: int) -> Place:
        t = stage.op.output(index)
        zeros = tuple([B.const(0, d.dtype) for d in t.shape])
        arg = self.args.get((id(stage), index))
        if arg is not None:
            return Place(arg, zeros, stage, True, stage.layout)
        if isinstance(stage.op, PlaceholderOp):
            raise LoweringError(
                f"input {t.name} is not among the parameters", hint=f"add it to the list: [..., {t.name}]"
            )
        shape, mins = t.shape, zeros
        if isinstance(stage.op, ComputeOp):
            ranges = [self.bounds.ranges[iv] for iv in stage.op.axis]
            shape = tuple([r.extent for r in ranges])
            mins = tuple([self.bounds.facts.simplify(r.min) for r in ranges])
        rolling = None
        if stage.layout is not None:
            shape, mins = stage.layout.shape, zeros
        elif stage.rolling and stage.placement.attach == AttachKind.SCOPE:
            rolling = rolling_dim(self.bounds, stage)
            if rolling is not None:
                mins = tuple([zeros[d] if d == rolling[0] else m for d, m in enumerate(mins)])
        scope = self.bounds.scope(stage)
        if scope != GLOBAL and not all(isinstance(d, E.IntImm) for d in shape):
            raise fail(
                self.sch, f"{stage.name} is stored in {scope} memory with a size that is not constant: ({', '.join(map(str, shape))})",
                mark=stage, hint="compute it in a loop whose step needs a constant part of it; split with constant factors",
            )  # fmt: skip
        name = clean(stage.name) + (f"_v{index}" if stage.op.num_outputs > 1 else "")
        buffer = Buffer(name, t.dtype, shape, scope=scope, loc=stage.op.loc)
        return Place(buffer, mins, stage, False, stage.layout, rolling)


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
        step = bounds.facts.simplify(B.sub(substitute(r.min, {loop.var: B.add(loop.var, 1)}), r.min))
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
