"""cache_read and cache_write: copies in another memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import caller_loc
from ...ir import build as B
from ...ir.expr import Expr, IterKind, IterVar, Range, Reduce, TensorRead, Var
from ...records import dataclass
from ...te.intrin_call import tensorized, with_axes
from ...te.operation import ComputeOp, ScanOp
from ...te.tensor import Tensor
from ..index_arith import IndexArith
from ..relations import Ranges, Values, check_counts, guarded_loops
from ..rewrite import fresh_axes, replace_inputs, substitute_all, with_condition
from ..show import fail
from ..state import AttachKind
from .base import Primitive
from .checks import describe, stage_of
from .stores import SCOPES, memory

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..stage import Stage


def _check_scope(sch: Schedule, scope: Any, what: str) -> None:
    if scope not in SCOPES:
        raise fail(sch, f"{what}: unknown scope {scope!r}", hint=", ".join(SCOPES))


def _suffix(scope: str) -> str:
    return "_" + scope.replace(".", "_")


@dataclass(frozen=True, slots=True)
class CacheRead(Primitive[Tensor]):
    """Some readers read a copy of a tensor."""

    method: ClassVar[str] = "cache_read"
    lists: ClassVar[tuple[str, ...]] = ("readers",)

    tensor: Any
    scope: Any
    readers: Any

    def check(self, sch: Schedule) -> None:
        tensor = self.tensor
        _check_scope(sch, self.scope, "cache_read")
        source = stage_of(sch, tensor, "cache_read", "give a tensor that the schedule computes or reads")
        if not self.readers:
            what = f"cache_read of {tensor.name} for no readers"
            raise fail(sch, what, mark=source, hint="list the tensors that read it")
        for r in self.readers:
            stage = sch.find(r)
            if stage is None:
                raise fail(
                    sch,
                    f"cache_read of {tensor.name}: reader {describe(r)} is not part of this schedule",
                    mark=source,
                    hint="readers are tensors or operations of this schedule",
                )
            if not any(_same(sch, t, source, tensor) for t in stage.op.inputs):
                reads = ", ".join(s.name for s in sch.readers(source)) or "nothing"
                raise fail(
                    sch, f"cache_read of {tensor.name} for {stage.name}, which does not read it", mark=stage,
                    hint=f"{tensor.name} is read by {reads}",
                )  # fmt: skip

    def apply(self, sch: Schedule) -> Tensor:
        """Put the copy between the tensor and its readers; the copy."""
        tensor, source = self.tensor, sch[self.tensor]
        stages = list(dict.fromkeys(sch[r] for r in self.readers))
        loc = caller_loc()
        axes = []
        for k, extent in enumerate(tensor.shape):
            v = Var(f"ax{k}", extent.dtype, True)
            axes.append(IterVar(v, Range(B.const(0, extent.dtype), extent), IterKind.DATA, "", loc))
        name = tensor.op.name if tensor.op.num_outputs == 1 else f"{tensor.op.name}_v{tensor.value_index}"
        body = [TensorRead(tensor, tuple([a.var for a in axes]))]
        op = ComputeOp(name + _suffix(self.scope), axes, body, loc=loc)
        copy = op.output(0)

        def new(t: Tensor) -> Tensor:
            return copy if _same(sch, t, source, tensor) else t

        first = min(sch.stages.index(s) for s in stages)
        for s in stages:
            sch.set_stage_op(s, replace_inputs(s.op, new))
        stage = sch.add_stage(op, first)
        stage.scope = memory(self.scope)
        if any(isinstance(s.op, ScanOp) and any(t is copy for t in s.op.update) for s in stages):
            # The copy is the scan's next row now: like what it copies, it belongs in the time loop.
            stage.group = source.group
        else:
            stage.group = stages[0].group if len({id(s.group) for s in stages}) == 1 else None
        return copy


def _same(sch: Schedule, t: Tensor, source: Stage, tensor: Tensor) -> bool:
    return sch.stage_map.get(t.op) is source and t.value_index == tensor.value_index


@dataclass(frozen=True, slots=True)
class CacheWrite(Primitive[Any]):
    """A stage computes in another memory and is copied out.

    Where its data loops are scheduled already, the copy in that memory has a dimension for each of them: its elements lie in
    the order of the loops.
    """

    method: ClassVar[str] = "cache_write"

    tensor: Any
    scope: Any

    def _items(self) -> list[Any]:
        return list(self.tensor) if isinstance(self.tensor, (list, tuple)) else [self.tensor]

    def check(self, sch: Schedule) -> None:
        _check_scope(sch, self.scope, "cache_write")
        items = self._items()
        if not items:
            raise fail(sch, "cache_write of no tensors", hint="give the tensor to compute in that memory")
        stages = [stage_of(sch, t, "cache_write", "give a tensor that the schedule computes") for t in items]
        stage = stages[0]
        what = f"cache_write of {stage.name}"
        if any(s is not stage for s in stages):
            raise fail(
                sch, "cache_write of tensors of several operations: " + ", ".join(t.name for t in items), mark=stage,
                hint="call it for each operation",
            )  # fmt: skip
        op = stage.op
        if not isinstance(op, ComputeOp):
            raise fail(sch, f"{what}, which is no compute", mark=stage, hint="cache_read copies an input")
        if op.num_outputs != len({t.value_index for t in items}):
            raise fail(
                sch, f"cache_write of {len(items)} of the {op.num_outputs} outputs of {stage.name}", mark=stage,
                hint=f"give all: s.cache_write([{', '.join(o.name for o in op.outputs)}], {self.scope!r})",
            )  # fmt: skip
        if stage.attach == AttachKind.INLINE:
            hint = "cache_write before compute_inline, or cache the reader"
            raise fail(sch, f"{what}, which is inlined", mark=stage, hint=hint)
        _check_loops(sch, stage)

    def apply(self, sch: Schedule) -> Any:
        items = self._items()
        stage = sch[items[0]]
        op = stage.op
        assert isinstance(op, ComputeOp)
        if _is_plain(stage):
            cached, reads = _plain_cache(op, op.name + _suffix(self.scope))
        else:
            cached, reads = _loop_cache(stage, op, op.name + _suffix(self.scope))
        old = [iv for iv in stage.leaf if iv.kind != IterKind.REDUCE]
        copy = ComputeOp(op.name, op.axis, reads, "", with_axes(op.attrs, None), op.loc)
        sch.set_stage_op(stage, copy, fresh=True)
        new = sch.add_stage(cached, sch.stages.index(stage))
        new.scope = memory(self.scope)
        new.group = stage.group
        _move_attached(sch, stage, new, old)
        outs = [cached.output(t.value_index) for t in items]
        return outs if isinstance(self.tensor, (list, tuple)) else outs[0]


def _check_loops(sch: Schedule, stage: Stage) -> None:
    """The loops go to the cache; annotations and a scheduled reduction do not."""
    what = f"cache_write of {stage.name}, whose"
    call = tensorized(stage.op)
    for iv, a in stage.attrs.items():
        if call is not None and a.intrin is call.intrin:
            continue  # goes along with the computation
        if a.kind != "serial" or a.thread is not None or a.notes:
            hint = "cache_write first, then bind and annotate"
            raise fail(sch, f"{what} loops are scheduled already", mark=iv, hint=hint)
    for r in stage.relations:
        if stage.layout is not None or any(p.kind == IterKind.REDUCE for p in r.parents):
            loops = "layout is changed" if stage.layout is not None else "reduction is scheduled"
            hint = "cache_write first, then schedule what it returns"
            raise fail(sch, f"{what} {loops} already", mark=r.children[0], hint=hint)


def _is_plain(stage: Stage) -> bool:
    """Whether the data loops are the operation's axes in their order."""
    data = [iv for iv in stage.leaf if iv.kind != IterKind.REDUCE]
    return len(data) == len(stage.op.axis) and all(a is b for a, b in zip(data, stage.op.axis))


def _plain_cache(op: ComputeOp, name: str) -> tuple[ComputeOp, list[Expr]]:
    """The operation with axes of its own, and the reads that copy it out."""
    axes, sub = fresh_axes(op.axis, "_c")
    cached = ComputeOp(name, axes, _with_reduce(substitute_all(op.body, sub)), op.tag, op.attrs, caller_loc())
    at = tuple([a.var for a in op.axis])
    return cached, [TensorRead(t, at) for t in cached.outputs]


def _loop_cache(stage: Stage, op: ComputeOp, name: str) -> tuple[ComputeOp, list[Expr]]:
    """The operation over the data loops as they stand (guarded where a split does not divide), and the reads that copy it out."""
    loc = caller_loc()
    ranges: Ranges = {iv: iv.dom for iv in op.root_iter_vars() if iv.dom is not None}
    for r in stage.relations:
        r.extents_down(ranges)
        check_counts(r, ranges)
    loops = [iv for iv in stage.leaf if iv.kind != IterKind.REDUCE]
    axes = [IterVar(Var(f"{iv.name}_c", iv.var.dtype, True), ranges[iv], IterKind.DATA, "", loc) for iv in loops]
    arith = IndexArith()
    for axis in axes:
        assert axis.dom is not None
        top = arith.bounds(B.add(axis.dom.min, axis.dom.extent))[1]
        arith.bind(axis.var, 0, None if top is None else top - 1)
    inside: Values = {iv: axis.var for iv, axis in zip(loops, axes)}
    for r in reversed(stage.relations):
        r.index_up(inside, ranges)
    guards: list[Expr] = []
    for iv in guarded_loops(stage.relations, op.axis, ranges, arith):
        guards.append(B.compare("lt", arith.simplify(inside[iv]), B.add(ranges[iv].min, ranges[iv].extent)))
    body = _with_reduce(substitute_all(op.body, {a.var: arith.simplify(inside[a]) for a in op.axis}))
    notes = with_axes(op.attrs, len(axes))
    cached = ComputeOp(name, axes, _with_reduce(with_condition(body, guards)), op.tag, notes, loc)
    outside: Values = {a: a.var for a in op.axis}
    for r in stage.relations:
        r.index_down(outside, ranges)
    at = tuple([IndexArith().simplify(outside[iv]) for iv in loops])
    return cached, [TensorRead(t, at) for t in cached.outputs]


def _move_attached(sch: Schedule, stage: Stage, new: Stage, old: list[IterVar]) -> None:
    """What was computed in the stage's loops goes along with them; `old` are its data loops, one for each axis of `new`."""
    moved = dict(zip(old, new.op.axis))
    for other in (*sch.stages, *sch.groups):
        if other.attach_stage is stage and other.attach == AttachKind.SCOPE:
            assert other.attach_ivar is not None
            other.attach_stage, other.attach_ivar = new, moved.get(other.attach_ivar, other.attach_ivar)


def _with_reduce(body: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of one reduction share their sources (substitution may have copied them)."""
    first = body[0]
    if not isinstance(first, Reduce):
        return body
    return tuple(
        Reduce(first.combiner, first.source, first.axis, first.condition, k, first.init) for k in range(len(body))
    )
