"""Running sums and products one line after another: linear work for any sizes, open ones too. It stands behind `running`, whose ways it serves for where none can be made; on a
CPU it takes what has open sizes, where the definition (an expression an element) adds up each element's whole past."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, ClassVar

from ... import te
from ...ops.forms import Form
from ...ops.registry import static_shape
from ...target import Target
from ...te import Tensor
from ...te.ir_builder import BufferVar, IRBuilder
from ..cost import Footprint
from ..group import Group, size_of
from ..parts import loops
from ..space import Choice

_OPEN_ELEMENTS = 1 << 20  # of a tensor whose sizes are open, for its price


class LineScan(loops.LoopForm):
    """A loop along each line. Lines that lie side by side go along together where sums are of the elements' type: each row is what the row before it was, and its own."""

    template: ClassVar[str] = "running sum by lines"
    kind: ClassVar[str] = "running"

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor]):
        super().__init__(group, target, form, carriers)
        self.stage = form.attrs["name"]

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        """On a CPU sizes may be open."""
        return not target.is_gpu or loops.fits(form)

    def sketch(self, choice: Choice) -> Footprint:
        return self.chains(float(size_of(self.form.inputs[0].shape) or _OPEN_ELEMENTS), 1)

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        x, a = self.form.inputs[0], self.form.attrs
        if self.target.is_gpu:
            lines = loops.Lines(static_shape(x), a["axis"])
            with loops.each(ib, self.target, lines.count, "line") as line:
                _along(self, ib, sources[0], results[0], lambda k: lines.at(line, k), lines.n)
            return
        shape = [getattr(d, "value", d) for d in x.shape]
        before, n, after = shape[: a["axis"]], shape[a["axis"]], shape[a["axis"] + 1 :]
        with ExitStack() as around:
            at = [around.enter_context(_loop(ib, d, j == 0)) for j, d in enumerate(before)]
            if after and a["acc"] == x.dtype:
                _together(self, ib, sources[0], results[0], at, n, after)
                return
            rest = [around.enter_context(_loop(ib, d, not before and j == 0)) for j, d in enumerate(after)]
            _along(self, ib, sources[0], results[0], lambda k: (*at, k, *rest), n)


def _loop(ib: IRBuilder, count: Any, is_parallel: bool) -> Any:
    return ib.for_range(0, count, "i", kind="parallel" if is_parallel else "serial")


def _along(space: LineScan, ib: IRBuilder, src: Any, dst: Any, at: Any, n: Any) -> None:
    """One line, its sum in a register."""
    a, dtype = space.form.attrs, space.form.inputs[0].dtype
    acc = loops.scalar(ib, a["acc"], "acc", te.const(1 if a["product"] else 0, a["acc"]))
    with ib.for_range(0, n, "k") as step:
        place = at(n - 1 - step if a["reverse"] else step)
        value = ib.let("value", src[place].astype(a["acc"]))
        following = ib.let("following", acc[0] * value if a["product"] else acc[0] + value)
        dst[place] = (acc[0] if a["exclusive"] else following).astype(dtype)
        acc[0] = following


def _together(space: LineScan, ib: IRBuilder, src: Any, dst: Any, before: list[Any], n: Any, after: list[Any]) -> None:
    """All lines behind one index `before`: a row of them after another."""
    a, one = space.form.attrs, te.const(1 if space.form.attrs["product"] else 0, space.form.inputs[0].dtype)
    strict = a["exclusive"]

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
            x, y = dst[(*before, past, *rest)], src[(*before, past if strict else k, *rest)]
            return x * y if a["product"] else x + y

        row(k, value)
