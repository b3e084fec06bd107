"""Factors of matrices and substitution (`tec.ops.factors`): a matrix a task on a CPU, whose rows go by vectors; a matrix a work-group on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from ... import te
from ...ops.factors import LOOPS, Body, Walk
from ...te.ir_builder import BufferVar, IRBuilder
from ..cost import Footprint
from ..group import extent
from ..parts import loops
from ..parts.counts import lanes_for
from ..space import Choice


class Factors(loops.LoopForm):
    """`threads`: of a work-group, for the elements of a row; of a CPU, the elements of a vector."""

    template: ClassVar[str] = "factors"
    kind: ClassVar[str] = "factors"

    def read_form(self) -> None:
        self.stage = self.form.attrs["loops"]
        sizes = [int(extent(n) or 1) for n in self.form.inputs[-1].shape[1:]]
        self.rows, self.columns = sizes[0], sizes[-1]
        self.count = int(extent(self.form.inputs[0].shape[0]) or 1)
        if self.target.is_gpu:
            least = min(loops.THREADS, max(32, 1 << (self.columns - 1).bit_length()))
            self.parameters = {"threads": tuple(dict.fromkeys((least, max(32, least // 2))))}
        else:
            lanes = lanes_for(self.form.inputs[0].dtype, self.target)
            self.parameters = {"threads": (lanes, 1) if self.columns >= lanes else (1,)}

    def sketch(self, choice: Choice) -> Footprint:
        steps = self.rows * self.rows * -(-self.columns // choice["threads"])
        return self.chains(float(steps), float(self.count * (choice["threads"] if self.target.is_gpu else 1)))

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        walk = Threads(ib, choice["threads"]) if self.target.is_gpu else Cores(ib, choice["threads"])
        LOOPS[self.stage](walk, sources, results, self.form.attrs)


class Cores(Walk):
    """Matrices over a CPU's threads."""

    @contextmanager
    def matrices(self, count: Any) -> Iterator[Any]:
        with self.ib.for_range(0, count, "matrix", kind="parallel") as m:
            yield m


class Threads(Walk):
    """A matrix a work-group, whose threads have neighbouring elements."""

    def __init__(self, ib: IRBuilder, threads: int):
        super().__init__(ib)
        self.threads = threads

    @contextmanager
    def matrices(self, count: Any) -> Iterator[Any]:
        with loops.launch(self.ib, (count,), (self.threads,)) as (block, thread):
            self.thread = thread
            yield block

    def each(self, begin: Any, end: Any, body: Body) -> None:
        with self.ib.for_range(0, te.indexdiv(end - begin + (self.threads - 1), self.threads), "r") as r:
            i = self.ib.let("i", begin + r * self.threads + self.thread)
            with self.ib.if_scope(i < end):
                body(i)

    along = each

    def meet(self) -> None:
        self.ib.emit(te.call_intrin("int32", "barrier"))

    def once(self) -> AbstractContextManager[object]:
        return self.ib.if_scope(self.thread == 0)
