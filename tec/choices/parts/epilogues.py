"""What follows a form's result, elementwise, for templates that are written as loops: an expression at a place, computed on the result where it is made.

`FusedForm` is the base of such templates on GPUs: one kernel, which stores what follows in the result's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import BufferLoad, Expr, TensorRead
from ...ir.visit import Rewriter, substituter
from ...te import ComputeOp, PlaceholderOp, Tensor
from ...te.ir_builder import BufferVar, IRBuilder
from ..group import Group, same_shape
from ..space import Choice, Scheduled
from ..stages import GpuStages
from . import loops
from .operands import follows


class Epilogue:
    """The group's output as a function of `result`'s value at the same place, and of `reads`, tensors that lie in memory."""

    def __init__(self, output: Tensor, result: Tensor, reads: list[Tensor]):
        self.output, self.result, self.reads = output, result, reads

    @classmethod
    def of(cls, group: Group, result: Tensor) -> Epilogue | None:
        """None where the group gives more than one tensor, of another shape, or what follows `result` is more than a value of each element."""
        if len(group.outputs) != 1 or not same_shape(group.outputs[0], result):
            return None
        out = group.outputs[0]
        if out is result:
            return cls(out, result, [])
        if not isinstance(result.op, ComputeOp) or not follows(out.op, result.op):
            return None
        reads: list[Tensor] = []
        known, stack = {result}, [out]
        while stack:
            t = stack.pop()
            if t in known:
                continue
            known.add(t)
            if isinstance(t.op, PlaceholderOp):
                reads.append(t)
            elif not isinstance(t.op, ComputeOp) or t.op.reduce_axis or t.op.num_outputs > 1:
                return None
            stack += t.op.inputs
        return cls(out, result, reads)

    def at(self, place: Sequence[Any], value: Expr, sources: Sequence[BufferVar]) -> Expr:
        """The output's value at `place`, where the result's is `value`. `sources`: the buffers of `reads`."""
        buffers = dict(zip(self.reads, sources))

        def computed(t: Tensor, place: Sequence[Any]) -> Expr:
            if t is self.result:
                return value
            if t in buffers:
                return BufferLoad(buffers[t].buffer, tuple(place))
            assert isinstance(t.op, ComputeOp)  # `of` has seen to it
            body = substituter({a.var: e for a, e in zip(t.op.axis, place)})(t.op.body[0])

            def on_read(e: TensorRead, r: Rewriter) -> Expr:
                inner = r.expr_children(e)
                assert isinstance(inner, TensorRead)
                return computed(inner.tensor, inner.indices)

            return Rewriter({TensorRead: on_read}, memo=True).expr(body)

        return computed(self.output, place)


class FusedForm(loops.LoopForm):
    """A product as loops on a GPU, with what follows it in the same kernel where that is elementwise; else in kernels of its own."""

    def read_form(self) -> None:
        self.epilogue = Epilogue.of(self.group, self.carriers[0])

    def kernel(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], out: BufferVar) -> None:
        """The loops. sources: what the product reads, then what the epilogue reads."""
        raise NotImplementedError

    @property
    def operands(self) -> Sequence[Tensor]:
        """What the product reads."""
        read: Sequence[Tensor] = self.form.attrs["contraction"].tensors_read
        return read

    def tensors(self, choice: Choice) -> list[Tensor]:
        dtype = self.form.outputs[0].dtype if self.epilogue is None else self.epilogue.output.dtype
        read = [*self.operands, *(self.epilogue.reads if self.epilogue is not None else ())]

        def body(ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
            self.kernel(choice, ib, sources, results[0])

        return loops.extern(self.stage, read, [(self.form.outputs[0].shape, dtype)], body)

    def build(self, choice: Choice) -> Scheduled:
        if self.epilogue is None:
            return super().build(choice)
        outputs = self.tensors(choice)
        return Scheduled(GpuStages(Group.of(outputs), self.target).apply().schedule, outputs, choice)

    def ended(self, place: tuple[Any, ...], value: Expr, sources: Sequence[BufferVar]) -> Expr:
        """What is stored at a place of the result for the product's value there. sources: of the epilogue."""
        return value if self.epilogue is None else self.epilogue.at(place, value, sources)
