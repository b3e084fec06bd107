"""Products of few columns (a head of two classes, a gate for each expert) on a CPU: vectors lie along the sum, since columns fill none.

The matrix is turned round first unless it lies along the sum already. Some rows by all columns are summed together, so that each vector that is loaded serves several sums; the lanes of
each meet at the end.
"""

from __future__ import annotations

from typing import ClassVar

from .... import te
from ....ir import Expr, Reduce, TensorRead
from ....ir.visit import Rewriter
from ....target import Target
from ....te import ComputeOp, Tensor
from ... import parallel
from ...cost import Footprint, on_cores
from ...group import Group, const_shape, extent_of, is_used, largest_divisor, reads_of, same_shape, substitute
from ...parts.counts import lanes_for, moved_bytes, work
from ...parts.pointwise import begin_cpu, elementwise
from ...space import Choice, Scheduled, Space

_MOST_COLUMNS = 8
_LEAST_ROWS = 4  # fewer are products of few rows
_MOST_TOGETHER = 8  # rows: of few columns more are no quicker
# Vectors of a sum at least, where there are so many columns that register tiles take them, in vectors of four: with fewer, lanes take longer to meet than tiles that
# are partly filled.
_TILED, _CHAIN = 4, 4


class FewColumns(Space):
    """`rows` of the result at once, by all of its columns."""

    template: ClassVar[str] = "cpu few columns"

    def __init__(self, group: Group, target: Target, red: ComputeOp, out: ComputeOp, matrix: TensorRead):
        super().__init__(group, target)
        self.red, self.out, self.matrix = red, out, matrix
        rows, columns = (n or 1 for n in const_shape(red.output(0))[-2:])
        # A step's vectors of the matrix stand in registers beside the sums: two rows of 6 columns took a core with 16 registers 1.7 times as long as one row.
        most = max(1, min(_MOST_TOGETHER, target.core.registers // columns - 1))
        best = largest_divisor(rows, most)
        self.parameters = {
            "rows": (best, *(r for r in range(most, 0, -1) if rows % r == 0 and r != best)),
            "parallel": (True, False),
        }

    @classmethod
    def match(cls, group: Group, target: Target) -> FewColumns | None:
        """Of one sum along one axis of an operand that lies along it, and one that has the result's columns."""
        found = None if target.is_gpu else group.ended_sum()
        if found is None or len(found[0].reduce_axis) != 1 or len(found[0].axis) < 2 or found[0].num_outputs > 1:
            return None
        red, out = found
        shape, lanes, (k,) = const_shape(red.output(0)), lanes_for(red.output(0).dtype, target), red.reduce_axis
        length = extent_of(k)
        if None in shape or length is None or not same_shape(out.output(0), red.output(0)):
            return None
        columns, rows = shape[-1] or 0, shape[-2] or 0
        least = lanes * (_CHAIN if columns >= _TILED else 1)
        if not 1 < columns <= _MOST_COLUMNS or rows < _LEAST_ROWS or length < least:
            return None
        reads = reads_of(red)
        matrix = [e for e in reads if is_used(red.axis[-1].var, *e.indices)]
        if len(reads) != 2 or len(matrix) != 1:
            return None
        (along,) = (e for e in reads if e is not matrix[0])
        data = [a.var for a in red.axis]
        is_plain = [i is v for i in matrix[0].indices for v in (*data, k.var)].count(True) == len(matrix[0].indices)
        if not along.indices or along.indices[-1] is not k.var or is_used(k.var, *along.indices[:-1]):
            return None
        if not is_plain or not any(i is k.var for i in matrix[0].indices) or red.axis[-2].var in matrix[0].indices:
            return None
        return cls(group, target, red, out, matrix[0])

    @property
    def default(self) -> Choice:
        threads = parallel.worth(work(self.red) * parallel.POINTWISE)
        return self.choice(rows=self.parameters["rows"][0], parallel=threads)

    def sketch(self, choice: Choice) -> Footprint:
        lanes = lanes_for(self.red.output(0).dtype, self.target)
        return on_cores(work(self.red) / lanes, moved_bytes(self.group), choice["parallel"])

    def _turned(self) -> tuple[Tensor | None, Tensor]:
        """The matrix along the sum, None where it lies so, and the sum that reads it."""
        (k,), e = self.red.reduce_axis, self.matrix
        if e.indices[-1] is k.var:
            return None, self.red.output(0)
        at = next(d for d, i in enumerate(e.indices) if i is k.var)
        order = [d for d in range(len(e.indices)) if d != at] + [at]

        def body(*i: Expr) -> Expr:
            index = dict(zip(order, i))
            return e.tensor(*[index[d] for d in range(len(order))])  # type: ignore[no-any-return]

        turned = te.compute([e.tensor.shape[d] for d in order], body, name="turned")
        read = TensorRead(turned, tuple(e.indices[d] for d in order))
        rewriter = Rewriter({TensorRead: lambda x, r: read if x is e else x})
        first = self.red.body[0]
        assert isinstance(first, Reduce)
        made = Reduce(
            first.combiner, tuple(map(rewriter.expr, first.source)), first.axis, first.condition, 0, first.init
        )
        return turned, ComputeOp(
            self.red.name, self.red.axis, (made,), self.red.tag, self.red.attrs, self.red.loc
        ).output(0)

    def build(self, choice: Choice) -> Scheduled:
        turned, summed = self._turned()
        outputs = substitute(self.group.outputs, {self.red.output(0): summed})
        s = begin_cpu(Group.of(outputs), self.target, keep=[turned.op] if turned is not None else [])
        if turned is not None:
            assert isinstance(turned.op, ComputeOp)
            elementwise(s, turned.op, self.target)
        lanes = lanes_for(summed.dtype, self.target)
        whole, final = s[summed], s[outputs[0]]
        _, inner = whole.split(whole.op.reduce_axis[0], factor=lanes)
        partial = s[s.rfactor(summed, inner, len(whole.op.axis))]
        whole.pragma(whole.op.reduce_axis[0], "any_order")
        *lead, row, _ = final.op.axis
        row, _ = final.split(row, factor=choice["rows"])
        loop = final.fuse(*lead, row)
        if choice["parallel"]:
            final.parallel(loop)
        if whole is not final:
            whole.set_scope("local")
            whole.compute_at(final, loop)
        partial.set_scope("local")
        partial.compute_at(final, loop)
        *data, vec = partial.op.axis
        partial.reorder(*data[:-2], *partial.op.reduce_axis, *data[-2:], vec)
        partial.vectorize(vec)
        for axis in data[-2:]:
            partial.unroll(axis)
        return Scheduled(s, outputs, choice)
