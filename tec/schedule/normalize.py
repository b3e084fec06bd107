"""Make a schedule ready for lowering, on a copy: inline, and let every loop run from 0.

In: a Schedule as the user left it. Out: a copy of its stages (loops and operations are shared) without inlined stages,
where each loop that is still an operation's own axis has become a Rebase of it.
"""

from __future__ import annotations

import copy

from ..ir import expr as E
from ..ir.visit import Rewriter, substituter
from ..te.operation import ComputeOp, PlaceholderOp
from ..te.tensor import Tensor
from .relations import Rebase
from .schedule import Schedule
from .stage import AttachKind, Stage


def clone(sch: Schedule) -> Schedule:
    """Stages of their own, everything else shared."""
    new: Schedule = copy.copy(sch)
    new.trace = None  # type: ignore[assignment]  # nothing is recorded on a copy
    twin: dict[int, Stage] = {}
    for s in (*sch.stages, *sch.groups):
        t = copy.copy(s)
        t.sch = new
        t.leaf, t.all, t.relations, t.attrs = list(s.leaf), list(s.all), list(s.relations), dict(s.attrs)
        twin[id(s)] = t
    for t in twin.values():
        t.group = twin[id(t.group)] if t.group is not None else None
        t.attach_stage = twin.get(id(t.attach_stage)) if t.attach_stage is not None else None
    new.stages = [twin[id(s)] for s in sch.stages]
    new.groups = [twin[id(s)] for s in sch.groups]
    new.stage_map = {op: twin[id(s)] for op, s in sch.stage_map.items() if id(s) in twin}
    return new


def normalize(sch: Schedule) -> Schedule:
    new = clone(sch)
    inline(new)
    for stage in new.stages:
        if not isinstance(stage.op, PlaceholderOp):
            rebase(new, stage)
    return new


def inline(sch: Schedule) -> None:
    """Put the bodies of inlined stages in place of the reads of them, producers first."""
    bodies: dict[int, Stage] = {}
    in_memory = {
        id(sch.stage_map.get(t.op)) for s in sch.stages if not isinstance(s.op, ComputeOp) for t in s.op.inputs
    }
    for stage in list(sch.stages):
        op = stage.op
        if isinstance(op, ComputeOp) and any(id(sch.stage_map.get(t.op)) in bodies for t in op.inputs):
            op = _inline_into(sch, op, bodies)
            sch.set_stage_op(stage, op)
        if stage.attach == AttachKind.INLINE:
            if id(stage) in in_memory:
                stage.attach = AttachKind.ROOT  # an extern or a scan reads memory, not an expression
            else:
                bodies[id(stage)] = stage
    sch.stages = [s for s in sch.stages if id(s) not in bodies]


def _inline_into(sch: Schedule, op: ComputeOp, bodies: dict[int, Stage]) -> ComputeOp:
    def on_read(e: E.TensorRead, r: Rewriter) -> E.Expr:
        out = r.expr_children(e)
        assert isinstance(out, E.TensorRead)
        tensor: Tensor = out.tensor
        producer = bodies.get(id(sch.stage_map.get(tensor.op)))
        if producer is None:
            return out
        source = producer.op
        assert isinstance(source, ComputeOp)
        values = {a.var: i for a, i in zip(source.axis, out.indices)}
        return substituter(values)(source.body[tensor.value_index])

    rewriter = Rewriter({E.TensorRead: on_read}, memo=True)
    first = op.body[0]
    if isinstance(first, E.Reduce):
        source = tuple([rewriter.expr(e) for e in first.source])
        cond = rewriter.expr(first.condition)
        init = tuple([rewriter.expr(e) for e in first.init])
        body: list[E.Expr] = [E.Reduce(first.combiner, source, first.axis, cond, k, init) for k in range(len(op.body))]
    else:
        body = [rewriter.expr(e) for e in op.body]
    return ComputeOp(op.name, op.axis, body, op.tag, op.attrs, op.loc)


def rebase(sch: Schedule, stage: Stage) -> None:
    """Each loop that is an axis of the operation itself runs from 0; annotations and attachments go along."""
    roots = {id(a) for a in stage.op.root_iter_vars()}
    for k, iv in enumerate(stage.leaf):
        if id(iv) not in roots:
            continue
        dtype = iv.dom.extent.dtype if iv.dom is not None else iv.var.dtype
        new = E.IterVar(E.Var(iv.var.name, dtype, True), None, iv.kind, "", iv.loc)
        stage.leaf[k] = new
        stage.all.append(new)
        stage.relations.append(Rebase(iv, new))
        if iv in stage.attrs:
            stage.attrs[new] = stage.attrs[iv]
        for other in (*sch.stages, *sch.groups):
            if other.attach_ivar is iv and other.attach_stage is stage:
                other.attach_ivar = new


__all__ = ["clone", "inline", "normalize", "rebase"]
