"""rfactor: a reduction as partial reductions along one of its loops, and the reduction of their results."""

from __future__ import annotations

from typing import Any

from ...errors import caller_loc
from ...ir import build as B
from ...ir.expr import Expr, IterKind, IterVar, Range, Reduce, TensorRead, Var
from ...te.operation import ComputeOp
from ..facts import Facts
from ..relations import Ranges, Values, guarded_loops
from ..rewrite import fresh_axes, substitute_all
from ..schedule import Schedule
from ..show import fixed_loops
from ..stage import AttachKind, Stage
from .common import check_loop, fail, stage_of


def rfactor(sch: Schedule, tensor: Any, axis: Any, factor_axis: Any) -> Any:
    stage = stage_of(sch, tensor, "rfactor", "give the tensor of a reduction")
    op = stage.op
    if not isinstance(op, ComputeOp) or not isinstance(op.body[0], Reduce):
        raise fail(
            sch,
            f"rfactor of {stage.name}, which is no reduction",
            mark=stage,
            hint="it splits a reduction (tec.sum(..., axis=k)) in two",
        )
    loop = check_loop(stage, axis, "rfactor")
    if loop.kind != IterKind.REDUCE:
        raise fail(
            sch, f"rfactor of {stage.name} along {loop.name}, which is a {loop.kind} loop", mark=loop,
            hint=f"give a reduce loop: {', '.join(v.name for v in stage.leaf if v.kind == IterKind.REDUCE)}",
        )  # fmt: skip
    ndim = len(op.axis)
    if isinstance(factor_axis, bool) or not isinstance(factor_axis, int) or not -ndim - 1 <= factor_axis <= ndim:
        raise fail(
            sch, f"rfactor of {stage.name}: factor_axis is {factor_axis!r}", mark=loop,
            hint=f"the place of the new axis, 0 to {ndim}",
        )  # fmt: skip
    a = stage.attrs.get(loop)
    if a is not None and (a.thread is not None or a.kind != "serial"):
        raise fail(
            sch, f"rfactor along {loop.name}, which is bound or annotated already", mark=loop,
            hint="rfactor first; then bind the new axis",
        )  # fmt: skip
    _check_plain(sch, stage)
    place = factor_axis + ndim + 1 if factor_axis < 0 else factor_axis
    return _rfactor(sch, stage, op, loop, place)


def _check_plain(sch: Schedule, stage: Stage) -> None:
    """Data loops are made anew, so they must not be scheduled yet."""
    for r in stage.relations:
        if any(c.kind != IterKind.REDUCE for c in r.children):
            raise fail(
                sch, f"rfactor of {stage.name}, whose data loops are scheduled already", mark=r.children[0],
                hint="rfactor first, then split the data axes",
            )  # fmt: skip
    for other in (*sch.stages, *sch.groups):
        if other.attach == AttachKind.SCOPE and other.attach_stage is stage:
            raise fail(
                sch, f"rfactor of {stage.name}: {other.name} is computed in its loops", mark=other,
                hint="rfactor first, then compute_at",
            )  # fmt: skip


def _rfactor(sch: Schedule, stage: Stage, op: ComputeOp, loop: IterVar, place: int) -> Any:
    first = op.body[0]
    assert isinstance(first, Reduce)
    loc = caller_loc()
    ranges: Ranges = {iv: iv.dom for iv in op.root_iter_vars() if iv.dom is not None}
    for r in stage.relations:
        r.extents_down(ranges, fixed_loops(stage))

    # The loops that reduce become: `loop` a data axis, the others reduce axes; roots are expressions of them.
    data, sub = fresh_axes(op.axis, "_rf")
    extent = ranges[loop].extent
    factor = IterVar(
        Var(loop.name, loop.var.dtype, True), Range(B.const(0, extent.dtype), extent), IterKind.DATA, "", loc
    )
    values: Values = {loop: B.add(factor.var, _offset(ranges[loop]))}
    reduce_axes: list[IterVar] = []
    for iv in stage.leaf:
        if iv.kind == IterKind.REDUCE and iv is not loop:
            new = IterVar(Var(iv.name, iv.var.dtype, iv.var.is_size), ranges[iv], IterKind.REDUCE, "", loc)
            reduce_axes.append(new)
            values[iv] = new.var
    for r in reversed(stage.relations):
        r.index_up(values, ranges)
    facts = Facts()
    for iv in (*data, *reduce_axes, factor):
        if iv.dom is not None:
            lo, top = facts.bounds(iv.dom.min)[0], facts.bounds(B.add(iv.dom.min, iv.dom.extent))[1]
            facts.bind(iv.var, lo, None if top is None else top - 1)
    for root in op.reduce_axis:
        sub[root.var] = facts.simplify(values[root])
    guards: list[Expr] = []
    for iv in guarded_loops(stage.relations, op.reduce_axis, ranges, facts):
        guards.append(B.compare("lt", facts.simplify(values[iv]), B.add(ranges[iv].min, ranges[iv].extent)))
    source = substitute_all(first.source, sub)
    # The condition may read: it is asked inside of the loops' own bounds alone.
    (own,) = substitute_all((first.condition,), sub)
    condition = own if not guards else B.all_of(*guards)
    if guards and B.const_value(own) is None:
        condition = B.if_then_else(condition, own, B.const(False))
    axes = [*data[:place], factor, *data[place:]]
    n = len(op.body)
    name = f"{op.name}_rf"
    if reduce_axes:
        axis = tuple(reduce_axes)
        body: list[Expr] = [Reduce(first.combiner, source, axis, condition, k) for k in range(n)]
    elif isinstance(condition, Expr) and B.const_value(condition) == 1:
        body = list(source)
    else:
        body = [B.if_then_else(condition, s, i) for s, i in zip(source, first.combiner.identity)]
    partial = ComputeOp(name, axes, body, op.tag, op.attrs, loc)

    again = IterVar(
        Var(f"{loop.name}_v", loop.var.dtype, True), Range(B.const(0, extent.dtype), extent), IterKind.REDUCE, "", loc
    )
    at: list[Expr] = [x.var for x in op.axis]
    at.insert(place, again.var)
    reads = tuple([TensorRead(t, tuple(at)) for t in partial.outputs])
    final: list[Expr] = [Reduce(first.combiner, reads, (again,), B.const(True), k, first.init) for k in range(n)]
    sch.set_stage_op(stage, ComputeOp(op.name, op.axis, final, "", op.attrs, op.loc), fresh=True)
    new_stage = sch.add_stage(partial, sch.stages.index(stage))
    new_stage.group = stage.group
    return list(partial.outputs) if n > 1 else partial.outputs[0]


def _offset(r: Range) -> Expr:
    """What a loop of a relation adds to its own count: a root axis starts at its domain's begin."""
    return r.min
