"""The place of the largest or smallest element of a line on a CPU: the extreme first, then the first (or last) place that has it.

One pass that carries pairs of a value and its place compares both for each element, under masks whose lanes are of several widths. Two passes are a maximum and a minimum
each, which a vector unit has; the line is in the first cache when it is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ... import te
from ...ir import Call, Expr, IterVar, Reduce, Var
from ...ir.dtype import dtype_info
from ...ir.passes.vectorize_loops import COSTLY
from ...ir.visit import walk_exprs
from ...ops.reduce import arg_kind
from ...schedule.rewrite import substitute_all
from ...target import Target
from ...te import ComputeOp, Tensor
from .. import parallel
from ..cost import Footprint, on_cores
from ..group import Group, const_shape, is_used, reads_of, reduce_size, same_shape, substitute
from ..parts.counts import lanes_for, moved_bytes, work
from ..parts.pointwise import begin_cpu
from ..parts.summed import reads_contiguously
from ..space import Choice, Scheduled, Space
from .reductions import few_at_the_end, rows_in_lanes

_ROWS = 16  # of a task where the output has one axis alone


def _lies_near(red: ComputeOp, var: Var, target: Target) -> bool:
    """Whether lines lie beside few others, which are the last axis of what is read: some steps of all of them are a line of memory."""
    reads = [e for e in reads_of(red) if is_used(var, *e.indices)]
    few = const_shape(red.output(0))[-1] if len(red.axis) > 1 else None
    beside = all(len(e.indices) > 1 and e.indices[-2] is var and e.indices[-1] is red.axis[-1].var for e in reads)
    return few is not None and beside and all(1 < few < lanes_for(e.dtype, target) for e in reads)


class ExtremeIndex(Space):
    """Two reductions of a line, one after another, inside of the output's loops."""

    template: ClassVar[str] = "cpu extreme index"

    def __init__(self, group: Group, target: Target, red: ComputeOp, out: ComputeOp):
        super().__init__(group, target)
        self.red, self.out = red, out
        self.parameters = {"parallel": (True, False)}

    @classmethod
    def match(cls, group: Group, target: Target) -> ExtremeIndex | None:
        """Lines of at least some vectors that lie in order, or beside few others, of elements that are quickly made again."""
        found = None if target.is_gpu else group.ended_sum()
        if found is None:
            return None
        red, out = found
        first = red.body[0]
        if not isinstance(first, Reduce) or arg_kind(first.combiner) is None or first.init or not red.axis:
            return None
        if out is red or not same_shape(out.output(0), red.output(0)):
            return None
        (k,), (place, value) = red.reduce_axis, first.source
        length = reduce_size(red)
        along = reads_contiguously(red, k.var, directly=True) or _lies_near(red, k.var, target)
        if not along or place is not k.var or (length is not None and length < 4 * lanes_for(value.dtype, target)):
            return None
        made = [e for op in group.ops if isinstance(op, ComputeOp) for b in op.body for e in walk_exprs(b)]
        return None if any(isinstance(e, Call) and e.op in COSTLY for e in made) else cls(group, target, red, out)

    @property
    def default(self) -> Choice:
        return self.choice(parallel=parallel.worth(2 * work(self.red) * parallel.POINTWISE))

    def sketch(self, choice: Choice) -> Footprint:
        return on_cores(2 * work(self.red) * parallel.POINTWISE, moved_bytes(self.group), choice["parallel"])

    def _passes(self) -> tuple[Tensor, Tensor]:
        """The extreme of each line, NaN where it has one, and its place."""
        first, (old,) = self.red.body[0], self.red.reduce_axis
        assert isinstance(first, Reduce)
        span, found = old.dom, arg_kind(first.combiner)
        assert span is not None and found is not None
        is_largest, is_last = found
        value, none = first.source[1], te.const(-1, old.var.dtype) if is_last else te.max_value(old.var.dtype)

        def line(name: str) -> tuple[IterVar, Callable[[tuple[Expr, ...]], Expr]]:
            k = te.reduce_axis((span.min, span.extent), name)

            def at(index: tuple[Expr, ...]) -> Expr:
                values: dict[Var, Expr] = {a.var: i for a, i in zip(self.red.axis, index)} | {old.var: k.var}
                return substitute_all((value,), values)[0]

            return k, at

        k, at = line("k")
        extreme = te.maximum if is_largest else te.minimum
        best = te.compute(self.red.output(0).shape, lambda *i: extreme(at(i), axis=k), name="extreme")
        j, again = line("j")

        def place(*i: Expr) -> Expr:
            x = again(i)
            same = te.any(x == best(*i), x != x) if dtype_info(x.dtype).is_float else x == best(*i)
            among: Expr = (te.max if is_last else te.min)(te.select(same, j.var, none), axis=j)
            return among

        return best, te.compute(self.red.output(0).shape, place, name="place")

    def build(self, choice: Choice) -> Scheduled:
        best, place = self._passes()
        outputs = substitute(self.group.outputs, {self.red.output(0): place, self.red.output(1): best})
        s, out = begin_cpu(Group.of(outputs), self.target), outputs[0].op
        stage = s[out]
        rows = stage.fuse(*(out.axis[:-1] or out.axis))
        if len(out.axis) == 1:
            rows, _ = stage.split(rows, factor=_ROWS)
        if choice["parallel"]:
            stage.parallel(rows)
        around, loop = stage, rows
        for t in (place, best):
            s[t].compute_at(around, loop)
            assert isinstance(t.op, ComputeOp)
            few = few_at_the_end(s, t.op, self.target)
            around, loop = s[t], s[t].op.axis[-1 if few is None else -2]
            if few is None:
                rows_in_lanes(s, t.op, self.target)
            else:
                few.compute_at(around, loop)
        return Scheduled(s, outputs, choice)
