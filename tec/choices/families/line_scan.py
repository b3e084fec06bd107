"""Running sums and products one line after another on a CPU: linear work for any sizes. It takes what has open sizes, where the definition (an expression an element) adds up each
element's whole past, and stands behind `running` where that is refused; on a GPU other choices of `running` stand there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from ... import te
from ...ops.forms import Form
from ...ops.sort import joined, neutral
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..cost import Footprint
from ..group import size_of
from ..parts import loops
from ..space import Choice
from .running_scan import Scan

_OPEN_ELEMENTS = 1 << 20  # of a tensor whose sizes are open, for its price


class LineScan(loops.LoopForm):
    """A loop along each line. Lines that lie side by side go along together where sums are of the elements' type: each row is what the row before it was, and its own."""

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
        with ExitStack() as around:
            at = [around.enter_context(_loop(ib, d, j == 0)) for j, d in enumerate(before)]
            if after and a["acc"] == x.dtype:
                _together(self, ib, sources[0], results[0], at, n, after)
                return
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


def _together(space: LineScan, ib: IRBuilder, src: Any, dst: Any, before: list[Any], n: Any, after: list[Any]) -> None:
    """All lines behind one index `before`: a row of them after another."""
    a = space.form.attrs
    strict, one = a["exclusive"], neutral(a["join"], space.form.inputs[0].dtype)

    def row(k: Any, value: Any) -> None:
        with ExitStack() as inside:
            rest = [inside.enter_context(ib.for_range(0, d, "j")) for d in after]
            dst[(*before, k, *rest)] = value(rest)

    first = n - 1 if a["reverse"] else 0
    with ib.if_scope(n > 0):
        row(first, lambda rest: one if strict else src[(*before, first, *rest)])
    with ib.for_range(1, te.max(n, 1), "k") as step:
        k, past = (n - 1 - step, n - step) if a["reverse"] else (step, step - 1)

        def value(rest: list[Any]) -> Any:
            return joined(a["join"], dst[(*before, past, *rest)], src[(*before, past if strict else k, *rest)])

        row(k, value)
