"""rfactor: a reduction as partial reductions along one of its loops, and the reduction of their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import Loc, caller_loc
from ...ir import build as B
from ...ir.expr import Expr, IterKind, IterVar, Range, Reduce, TensorRead, Var
from ...records import dataclass
from ...te.operation import ComputeOp
from ..index_arith import IndexArith
from ..relations import Ranges, Values, check_counts, guarded_loops
from ..rewrite import fresh_axes, guarded_condition, substitute_all
from ..show import fail, fixed_loops
from ..state import AttachKind
from .base import Primitive
from .checks import check_loop, stage_of

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..stage import Stage


@dataclass(frozen=True, slots=True)
class Rfactor(Primitive[Any]):
    """A reduction becomes two, along one of its loops."""

    method: ClassVar[str] = "rfactor"

    tensor: Any
    axis: Any
    factor_axis: Any = 0

    def check(self, sch: Schedule) -> None:
        stage = stage_of(sch, self.tensor, "rfactor", "give the tensor of a reduction")
        what = f"rfactor of {stage.name}"
        op = stage.op
        if not isinstance(op, ComputeOp) or not isinstance(op.body[0], Reduce):
            hint = "it splits a reduction (tec.sum(..., axis=k)) in two"
            raise fail(sch, f"{what}, which is no reduction", mark=stage, hint=hint)
        loop = check_loop(stage, self.axis, "rfactor")
        if loop.kind != IterKind.REDUCE:
            raise fail(
                sch, f"{what} along {loop.name}, which is a {loop.kind} loop", mark=loop,
                hint=f"give a reduce loop: {', '.join(v.name for v in stage.leaf if v.kind == IterKind.REDUCE)}",
            )  # fmt: skip
        ndim, at = len(op.axis), self.factor_axis
        if isinstance(at, bool) or not isinstance(at, int) or not -ndim - 1 <= at <= ndim:
            hint = f"the place of the new axis, 0 to {ndim}"
            raise fail(sch, f"{what}: factor_axis is {at!r}", mark=loop, hint=hint)
        a = stage.attrs.get(loop)
        if a is not None and (a.thread is not None or a.kind != "serial"):
            raise fail(
                sch, f"rfactor along {loop.name}, which is bound or annotated already", mark=loop,
                hint="rfactor first; then bind the new axis",
            )  # fmt: skip
        _check_plain(sch, stage)

    def apply(self, sch: Schedule) -> Any:
        stage = sch[self.tensor]
        op, loop = stage.op, self.axis
        assert isinstance(op, ComputeOp)
        at = self.factor_axis + len(op.axis) + 1 if self.factor_axis < 0 else self.factor_axis
        loc = caller_loc()
        partial, extent = _partial(stage, op, loop, at, loc)
        final = _final(op, partial, loop, extent, at, loc)
        sch.set_stage_op(stage, final, fresh=True)
        new_stage = sch.add_stage(partial, sch.stages.index(stage))
        new_stage.group = stage.group
        return list(partial.outputs) if len(op.body) > 1 else partial.outputs[0]


def _check_plain(sch: Schedule, stage: Stage) -> None:
    """Data loops are made anew (splits and fuses of them are forgotten), so nothing may be done with them yet."""
    for iv, a in stage.attrs.items():
        if iv.kind != IterKind.REDUCE and (a.thread is not None or a.kind != "serial" or a.notes):
            raise fail(
                sch, f"rfactor of {stage.name}, whose data loop {iv.name} is bound or annotated already", mark=iv,
                hint="rfactor first, then schedule the data loops",
            )  # fmt: skip
    for other in (*sch.stages, *sch.groups):
        if other.attach == AttachKind.SCOPE and other.attach_stage is stage:
            raise fail(
                sch, f"rfactor of {stage.name}: {other.name} is computed in its loops", mark=other,
                hint="rfactor first, then compute_at",
            )  # fmt: skip


def _partial(stage: Stage, op: ComputeOp, loop: IterVar, at: int, loc: Loc | None) -> tuple[ComputeOp, Expr]:
    """The partial reductions, with `loop` as data axis `at`, and that axis's extent.

    The other loops that reduce become its reduce axes; the operation's own axes are expressions of them.
    """
    first = op.body[0]
    assert isinstance(first, Reduce)
    ranges: Ranges = {iv: iv.dom for iv in op.root_iter_vars() if iv.dom is not None}
    relations = [r for r in stage.relations if all(c.kind == IterKind.REDUCE for c in r.children)]
    for r in relations:
        r.extents_down(ranges, fixed_loops(stage))
        check_counts(r, ranges)
    data, sub = fresh_axes(op.axis, "_rf")
    extent = ranges[loop].extent
    factor = IterVar(
        Var(loop.name, loop.var.dtype, True), Range(B.const(0, extent.dtype), extent), IterKind.DATA, "", loc
    )
    # A loop that is the operation's own axis may start elsewhere than at 0; the new axis does not.
    values: Values = {loop: B.add(factor.var, ranges[loop].min)}
    reduce_axes: list[IterVar] = []
    for iv in stage.leaf:
        if iv.kind == IterKind.REDUCE and iv is not loop:
            # An axis that no split or fuse touched stays the one that the user holds.
            new = iv
            if not any(iv is root for root in op.reduce_axis):
                new = IterVar(Var(iv.name, iv.var.dtype, iv.var.is_size), ranges[iv], IterKind.REDUCE, "", loc)
            reduce_axes.append(new)
            values[iv] = new.var
    for r in reversed(relations):
        r.index_up(values, ranges)
    arith = IndexArith()
    for iv in (*data, *reduce_axes, factor):
        if iv.dom is not None:
            lo, top = arith.bounds(iv.dom.min)[0], arith.bounds(B.add(iv.dom.min, iv.dom.extent))[1]
            arith.bind(iv.var, lo, None if top is None else top - 1)
    for root in op.reduce_axis:
        sub[root.var] = arith.simplify(values[root])
    guards: list[Expr] = []
    for iv in guarded_loops(relations, op.reduce_axis, ranges, arith):
        guards.append(B.compare("lt", arith.simplify(values[iv]), B.add(ranges[iv].min, ranges[iv].extent)))
    source = substitute_all(first.source, sub)
    (condition,) = substitute_all((first.condition,), sub)
    if guards:
        condition = guarded_condition(condition, B.all_of(*guards))
    body = _partial_body(first, source, tuple(reduce_axes), condition, len(op.body))
    return ComputeOp(f"{op.name}_rf", [*data[:at], factor, *data[at:]], body, op.tag, op.attrs, loc), extent


def _partial_body(
    first: Reduce, source: tuple[Expr, ...], axes: tuple[IterVar, ...], condition: Expr, n: int
) -> list[Expr]:
    """A reduction over the axes that are left, or the values themselves where none is."""
    if axes:
        return [Reduce(first.combiner, source, axes, condition, k) for k in range(n)]
    if B.const_value(condition) == 1:
        return list(source)
    return [B.if_then_else(condition, s, i) for s, i in zip(source, first.combiner.identity)]


def _final(op: ComputeOp, partial: ComputeOp, loop: IterVar, extent: Expr, at: int, loc: Loc | None) -> ComputeOp:
    """The reduction of the partial results."""
    first = op.body[0]
    assert isinstance(first, Reduce)
    axis = IterVar(
        Var(f"{loop.name}_v", loop.var.dtype, True), Range(B.const(0, extent.dtype), extent), IterKind.REDUCE, "", loc
    )
    index: list[Expr] = [x.var for x in op.axis]
    index.insert(at, axis.var)
    reads = tuple([TensorRead(t, tuple(index)) for t in partial.outputs])
    body = [Reduce(first.combiner, reads, (axis,), B.const(True), k, first.init) for k in range(len(op.body))]
    return ComputeOp(op.name, op.axis, body, "", op.attrs, op.loc)
