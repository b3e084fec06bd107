"""Products of a few terms on a GPU, written out: each element of the result is a few multiply-adds of what lies in the caches, and storing it takes longer than they do. So they are
elementwise work as any other (`stages`), whose threads have neighbours, where a sum by itself would be a loop of a thread for one element."""

from __future__ import annotations

from functools import cached_property
from functools import reduce as folded
from typing import ClassVar

from .... import te
from ....ir import Reduce, build
from ....ir.dtype import dtype_info
from ....ir.visit import substitute
from ....target import Target
from ....te import ComputeOp
from ...group import Group, const_shape, extent_of, whole_reduce
from ...group import substitute as with_tensors
from ...parts.counts import computed
from ...parts.threads import THREADS
from ...rules import figures
from ...space import Choice
from ...stages import GpuStages

MOST_TERMS = 3  # more are tiles of a product (`products.match`), where no figure says otherwise
_ROWS = 8  # of a thread, where elements come one by one: the second operand's terms serve all of them


class FewTerms(GpuStages):
    """See the module; the parameters are those of stages."""

    template: ClassVar[str] = "few terms"

    def why_not(self, choice: Choice) -> str | None:
        if not choice["rows"] and self._rows_alone is not None:
            return "elements come one by one: those of some rows have what they read in common"
        return super().why_not(choice)

    @property
    def default(self) -> Choice:
        """Vectors of neighbours; of lines that begin anywhere, an element of each of some rows."""
        if self._rows_alone is not None:
            return self._rows_alone
        return self.choice(threads=min(THREADS, self.target.max_threads), vector=self.parameters["vector"][0], rows=0)

    @cached_property
    def _rows_alone(self) -> Choice | None:
        """A choice by rows, where a line is no vectors of 16 bytes or of half of that."""
        out = computed(self.group)[0].output(0)
        if (const_shape(out)[-1] or 1) * dtype_info(out.dtype).bytes % 8 == 0:
            return None
        threads = sorted((t for t in self.parameters["threads"] if t <= THREADS), reverse=True)
        some = (self.choice(threads=t, vector=self.parameters["vector"][0], rows=_ROWS) for t in threads)
        return next((c for c in some if super(FewTerms, self).why_not(c) is None), None)


def most_terms(target: Target) -> int:
    """Of a product that is written out."""
    known = figures.of(FewTerms.template, target)
    return known.count("most_terms") if known else MOST_TERMS


def few_sum(group: Group, target: Target) -> ComputeOp | None:
    """The one reduction of a group, where it is a sum of so few terms of known sizes."""
    found = group.ended_sum()
    if found is None or len(found[0].reduce_axis) != 1:
        return None
    red = found[0]
    body, terms = whole_reduce(red), extent_of(red.reduce_axis[0])
    is_few = terms is not None and 0 < terms <= most_terms(target) and None not in const_shape(red.output(0))
    return red if is_few and body is not None and body.combiner.name == "sum" else None


def match(group: Group, target: Target) -> FewTerms | None:
    """The space of a group with such a sum."""
    red = few_sum(group, target)
    return None if red is None else FewTerms(_written_out(group, red), target)


def _written_out(group: Group, red: ComputeOp) -> Group:
    (k,), (body,) = red.reduce_axis, red.body
    assert isinstance(body, Reduce)
    first = k.dom.min if k.dom is not None else 0
    each = [substitute(body.source[0], {k.var: build.add(first, n)}) for n in range(extent_of(k) or 0)]
    total = folded(build.add, each)
    written = te.compute(
        red.output(0).shape, lambda *i: substitute(total, {a.var: x for a, x in zip(red.axis, i)}), name=red.name
    )
    return Group.of(with_tensors(group.outputs, {red.output(0): written}))
