"""cache_read and cache_write: copies in another memory."""

from __future__ import annotations

from typing import Any

from ...errors import caller_loc
from ...ir.build import const
from ...ir.expr import IterKind, IterVar, Range, Reduce, TensorRead, Var
from ...te.operation import ComputeOp
from ...te.tensor import Tensor
from ..rewrite import fresh_axes, replace_inputs, replace_reads, substitute_all
from ..schedule import Schedule
from ..stage import AttachKind, Stage
from .annotate import SCOPES
from .common import describe, fail, stage_of


def _check_scope(sch: Schedule, scope: Any, what: str) -> None:
    if scope not in SCOPES:
        raise fail(sch, f"{what}: unknown scope {scope!r}", hint=", ".join(SCOPES))


def _suffix(scope: str) -> str:
    return "_" + scope.replace(".", "_")


def cache_read(sch: Schedule, tensor: Any, scope: Any, readers: list[Any]) -> Tensor:
    _check_scope(sch, scope, "cache_read")
    source = stage_of(sch, tensor, "cache_read", "give a tensor that the schedule computes or reads")
    if not readers:
        raise fail(
            sch, f"cache_read of {tensor.name} for no readers", mark=source, hint="list the tensors that read it"
        )
    stages: list[Stage] = []
    for r in readers:
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
        if stage not in stages:
            stages.append(stage)
    loc = caller_loc()
    axes = []
    for k, extent in enumerate(tensor.shape):
        v = Var(f"ax{k}", extent.dtype, True)
        axes.append(IterVar(v, Range(const(0, extent.dtype), extent), IterKind.DATA, "", loc))
    name = (tensor.op.name if tensor.op.num_outputs == 1 else f"{tensor.op.name}_v{tensor.value_index}") + _suffix(
        scope
    )
    op = ComputeOp(name, axes, [TensorRead(tensor, tuple([a.var for a in axes]))], loc=loc)
    copy = op.output(0)

    def new(t: Tensor) -> Tensor:
        return copy if _same(sch, t, source, tensor) else t

    first = min(sch.stages.index(s) for s in stages)
    for s in stages:
        sch.set_stage_op(s, replace_inputs(s.op, new))
    stage = sch.add_stage(op, first)
    stage.scope = scope
    stage.group = stages[0].group if len({id(s.group) for s in stages}) == 1 else None
    return copy


def _same(sch: Schedule, t: Tensor, source: Stage, tensor: Tensor) -> bool:
    return sch.stage_map.get(t.op) is source and t.value_index == tensor.value_index


def cache_write(sch: Schedule, tensor: Any, scope: Any) -> Any:
    _check_scope(sch, scope, "cache_write")
    items = list(tensor) if isinstance(tensor, (list, tuple)) else [tensor]
    if not items:
        raise fail(sch, "cache_write of no tensors", hint="give the tensor to compute in that memory")
    stages = []
    for t in items:
        stages.append(stage_of(sch, t, "cache_write", "give a tensor that the schedule computes"))
    stage = stages[0]
    if any(s is not stage for s in stages):
        raise fail(
            sch, "cache_write of tensors of several operations: " + ", ".join(t.name for t in items), mark=stage,
            hint="call it for each operation",
        )  # fmt: skip
    op = stage.op
    if not isinstance(op, ComputeOp):
        raise fail(
            sch, f"cache_write of {stage.name}, which is no compute", mark=stage, hint="cache_read copies an input"
        )
    if op.num_outputs != len({t.value_index for t in items}):
        raise fail(
            sch, f"cache_write of {len(items)} of the {op.num_outputs} outputs of {stage.name}", mark=stage,
            hint=f"give all: s.cache_write([{', '.join(o.name for o in op.outputs)}], {scope!r})",
        )  # fmt: skip
    if stage.relations or any(a.kind != "serial" or a.thread is not None or a.pragmas for a in stage.attrs.values()):
        raise fail(
            sch, f"cache_write of {stage.name}, whose loops are scheduled already", mark=stage,
            hint="cache_write first, then split and bind",
        )  # fmt: skip
    if stage.attach == AttachKind.INLINE:
        raise fail(
            sch,
            f"cache_write of {stage.name}, which is inlined",
            mark=stage,
            hint="cache_write before compute_inline, or cache the reader",
        )
    loc = caller_loc()
    axes, sub = fresh_axes(op.axis, "_c")
    body = _with_reduce(substitute_all(op.body, sub))
    cached = ComputeOp(op.name + _suffix(scope), axes, body, op.tag, op.attrs, loc)
    at = tuple([a.var for a in op.axis])
    copy = ComputeOp(op.name, op.axis, [TensorRead(t, at) for t in cached.outputs], "", op.attrs, op.loc)
    sch.set_stage_op(stage, copy, fresh=True)
    new = sch.add_stage(cached, sch.stages.index(stage))
    new.scope = scope
    new.group = stage.group
    for other in (*sch.stages, *sch.groups):  # what was computed in its loops: the loops went to the cache
        if other.attach_stage is stage and other.attach == AttachKind.SCOPE:
            if any(other.attach_ivar is iv for iv in new.leaf):
                other.attach_stage = new
            else:
                k = next((k for k, a in enumerate(op.axis) if a is other.attach_ivar), None)
                other.attach_stage = new
                other.attach_ivar = new.leaf[k if k is not None else 0]
    outs = [cached.output(t.value_index) for t in items]
    return outs if isinstance(tensor, (list, tuple)) else outs[0]


def _with_reduce(body: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of one reduction share their sources (substitution may have copied them)."""
    first = body[0]
    if not isinstance(first, Reduce):
        return body
    return tuple(
        Reduce(first.combiner, first.source, first.axis, first.condition, k, first.init) for k in range(len(body))
    )


__all__ = ["cache_read", "cache_write", "replace_reads"]
