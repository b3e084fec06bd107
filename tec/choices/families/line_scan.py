"""Running sums and products one line after another on a CPU: linear work for any sizes. It takes what has open sizes, where the definition (an expression an element) adds up each
element's whole past, and stands behind `running` where that is refused; on a GPU other choices of `running` stand there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from ...ir.dtype import dtype_info
from ...ops.forms import Form
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..cost import Footprint
from ..group import size_of
from ..parts import loops
from ..parts.counts import lanes_for
from ..space import Choice
from .running_scan import Scan

_STRIP = 4  # vectors of lines that go along together
_OPEN_ELEMENTS = 1 << 20  # of a tensor whose sizes are open, for its price


class LineScan(loops.LoopForm):
    """A loop along each line. Lines that lie side by side go along together in vectors, where they fill one."""

    template: ClassVar[str] = "running sum by lines"
    kind: ClassVar[str] = "running"

    def read_form(self) -> None:
        self.stage = self.form.attrs["name"]

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        return not target.is_gpu

    def sketch(self, choice: Choice) -> Footprint:
        return self.chains(float(size_of(self.form.inputs[0].shape) or _OPEN_ELEMENTS), 1)

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        x, a = self.form.inputs[0], self.form.attrs
        shape = [getattr(d, "value", d) for d in x.shape]
        before, n, after = shape[: a["axis"]], shape[a["axis"]], shape[a["axis"] + 1 :]
        lanes = lanes_for(a["acc"], self.target)
        is_short = not after or (isinstance(after[-1], int) and after[-1] < lanes)
        if is_short or dtype_info(x.dtype).lanes > 1 or x.dtype == "bool":
            self._one_by_one(ib, sources, results, before, n, after)
            return
        with loops.where(ib, after[-1] >= lanes):
            lines = loops.Lines(shape, a["axis"])
            Scan(self, lines, ib, sources[0], results[0]).by_strips(lanes, _STRIP, in_registers=True)
        if not isinstance(after[-1], int):
            with ib.else_scope():
                self._one_by_one(ib, sources, results, before, n, after)

    def _one_by_one(
        self,
        ib: IRBuilder,
        sources: list[BufferVar],
        results: list[BufferVar],
        before: list[Any],
        n: Any,
        after: list[Any],
    ) -> None:
        a = self.form.attrs
        with ExitStack() as around:
            at = [around.enter_context(_loop(ib, d, j == 0)) for j, d in enumerate(before)]
            rest = [around.enter_context(_loop(ib, d, not before and j == 0)) for j, d in enumerate(after)]
            scan = Scan(self, _Line(at, n, rest), ib, sources[0], results[0])
            scan.write(0, 0, n, loops.scalar(ib, a["acc"], "acc", scan.one))


class _Line(loops.Lines):
    """One line between places in the other dimensions; its length may be open."""

    def __init__(self, before: Sequence[Index], n: Any, after: Sequence[Index]):
        self.n, self.around = n, (tuple(before), tuple(after))

    def at(self, line: Index, k: Index) -> tuple[Any, ...]:
        before, after = self.around
        return (*before, k, *after)


def _loop(ib: IRBuilder, count: Index, is_parallel: bool) -> Any:
    return ib.for_range(0, count, "i", kind="parallel" if is_parallel else "serial")
