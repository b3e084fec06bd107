"""What all ways to the largest elements in order are asked (`sorts`, `heaps`, `insertions`, `selection`, `word_sorts`)."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import Expr
from ...ops.forms import Form
from ...records import dataclass
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..parts import loops

_RUN = 16  # elements that a CPU looks at together: some vectors


@dataclass(frozen=True, slots=True)
class TopK:
    """The k largest (or smallest) of each of `lines` in order, and their places, into `kept`; of equals the first comes first."""

    target: Target
    dtype: str
    lines: loops.Lines
    kept: loops.Lines
    k: Any  # a number, or an expression of an open one
    largest: bool

    @classmethod
    def of(cls, form: Form, target: Target) -> TopK:
        x, axis = form.inputs[0], form.attrs["axis"]
        lines, kept = (loops.Lines(loops.index_of(t.shape), axis) for t in (x, form.outputs[0]))
        return cls(target, x.dtype, lines, kept, kept.n, form.attrs["largest"])


def offered(
    ib: IRBuilder,
    src: BufferVar,
    lines: loops.Lines,
    line: Expr,
    places: tuple[int, Index],
    worst: Expr | None,
    largest: bool,
    offer: Any,
) -> None:
    """Offers a line's elements one by one. With `worst`, what they must be better than, in runs, and those runs alone that have one: most runs of a long line have none, which vectors
    tell (a NaN compares with nothing, and is offered)."""
    begin, end = places
    is_known = isinstance(end, int)
    runs = 0 if worst is None else (end - begin) // _RUN if is_known else te.indexdiv(end - begin, _RUN)
    if not is_known or runs:
        with ib.for_range(0, runs, "run") as run:
            first = begin + run * _RUN
            bound = ib.let("bound", worst)
            some = ib.allocate("int32", (1,), "some", scope="local")
            some[0] = te.const(0, "int32")
            with ib.for_range(0, _RUN, "r") as r:
                v = src[lines.at(line, first + r)]
                behind = v <= bound if largest else v >= bound
                some[0] = te.max(some[0], te.select(behind, te.const(0, "int32"), te.const(1, "int32")))
            with ib.if_scope(some[0] > 0), ib.for_range(0, _RUN, "r") as r:
                offer(first + r)
    with ib.for_range(begin + runs * _RUN, end, "j") as j:
        offer(j)
