"""Products whose results stand folded in a tensor of other dimensions (`tec.ops.contraction.Fold`): convolutions in groups, images kept as NCHW.

Templates of products take (batch..., rows, columns). So what follows the product is computed over these, and stored where the tensor has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ....ir import Expr, TensorRead, Var
from ....ir.visit import Rewriter
from ....ops.contraction import Contraction, Fold
from ....target import Target
from ....te import ComputeOp, Tensor, compute
from ....te import max as maximum
from ....te import min as minimum
from ...cost import Cost, Footprint
from ...group import Group, depends
from ...parts.operands import is_own_place
from ...space import Choice, Scheduled, Space

Match = Callable[[Group, Target], Iterator[Space]]


def match(group: Group, target: Target, templates: Match) -> Iterator[Space]:
    """The spaces that `templates` have for a group around a product whose result is folded."""
    found = unfolded(group)
    if found is not None:
        flat, contraction = found
        yield from (Folded(space, group, contraction) for space in templates(flat, target))


def is_folded(group: Group) -> bool:
    """Whether the group's product has its result folded."""
    form = group.form("product")
    return form is not None and form[0].attrs["contraction"].fold is not None


class Folded(Space):
    """Another space's choices for the product as it is, stored as the tensor has it."""

    def __init__(self, inner: Space, group: Group, contraction: Contraction):
        super().__init__(group, inner.target)
        self.inner, self.contraction = inner, contraction
        self.template, self.parameters, self.is_second = inner.template, inner.parameters, inner.is_second  # type: ignore[misc]
        self.neutral, self.outline, self.former = inner.neutral, inner.outline, inner.former  # type: ignore[misc]

    def why_not(self, choice: Choice) -> str | None:
        return self.inner.why_not(choice)

    def sketch(self, choice: Choice) -> Footprint | None:
        return self.inner.sketch(choice)

    def cost(self, choice: Choice) -> Cost:
        return self.inner.cost(choice)

    def drafts(self) -> Iterator[Choice]:
        return self.inner.drafts()

    @property
    def default(self) -> Choice:
        return self.inner.default

    def check(self, choice: Mapping[str, Any]) -> Choice:
        return self.inner.check(choice)

    def build(self, choice: Choice) -> Scheduled:
        made = self.inner.build(choice)
        fold = self.contraction.fold
        assert fold is not None
        for t in made.outputs:
            made.schedule[t].transform_layout(
                lambda *at: fold.place(*at), keep_loops=True, within=fold.shape if fold.is_cut else None
            )
        return made


def unfolded(group: Group) -> tuple[Group, Contraction] | None:
    """The same computation over the product's own dimensions; None where what follows it reads it elsewhere than at its own place."""
    form = group.form("product")
    if form is None or len(group.outputs) != 1:
        return None
    contraction: Contraction = form[0].attrs["contraction"]
    if contraction.fold is None:
        return None
    plain = replace(contraction, fold=None)
    made: dict[Tensor, Tensor] = {form[1][0]: plain.tensors()[0]}
    fold = _within(contraction.fold) if contraction.fold.is_cut else contraction.fold
    try:
        return Group.of([_moved(group.outputs[0], form[1][0], plain.shape, fold, made)]), contraction
    except _Elsewhere:
        return None


def _within(fold: Fold) -> Fold:
    """With a place of the tensor for results beyond it too: these are not kept, but what follows the product reads other tensors there."""
    return replace(fold, place=lambda *at: [maximum(minimum(i, n - 1), 0) for i, n in zip(fold.place(*at), fold.shape)])


def _moved(t: Tensor, result: Tensor, shape: tuple[Any, ...], fold: Fold, made: dict[Tensor, Tensor]) -> Tensor:
    """What follows the product, over the product's dimensions."""
    if t in made:
        return made[t]
    op = t.op
    if not isinstance(op, ComputeOp) or op.reduce_axis or op.num_outputs > 1 or len(op.axis) != len(fold.shape):
        raise _Elsewhere

    def element(*at: Any) -> Expr:
        values = {a.var: e for a, e in zip(op.axis, fold.place(*at))}

        def on_read(e: TensorRead, r: Rewriter) -> Expr:
            if e.tensor is not result and not depends(e.tensor.op, result.op):
                return r.expr_children(e)
            if len(e.indices) != len(op.axis) or not all(map(is_own_place, e.indices, op.axis)):
                raise _Elsewhere
            read: Expr = _moved(e.tensor, result, shape, fold, made)(*at)
            return read

        rewriter = Rewriter({TensorRead: on_read, Var: lambda v, _: values.get(v, v)}, memo=True)
        return rewriter.expr(op.body[0])

    made[t] = compute(shape, element, name=op.name, tag=op.tag)
    return made[t]


def placed(group: Group, made: Tensor, fold: Fold) -> Tensor | None:
    """The group's output over the dimensions of `made`, the product by another form, whose results stand where `fold` says; None where what follows reads it elsewhere."""
    form = group.form("product")
    assert form is not None
    try:
        return _moved(group.outputs[0], form[1][0], made.shape, fold, {form[1][0]: made})
    except _Elsewhere:
        return None


class _Elsewhere(Exception):
    """A read of the product at another place than its own."""
