"""Calls of tensor intrinsics in place of an element's value: `tec.compute((m, 16), lambda i: vadd(A[i, 0:16], B[i, 0:16]))`.

Such a compute means what the intrinsic's own compute means, element by element; its schedule has the intrinsic's loops innermost, tensorized.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import ExprError
from ..ir import build
from ..ir.expr import Expr, IntImm, IterVar, Reduce, TensorRead, Var
from ..ir.visit import Rewriter, substituter
from ..records import dataclass
from .build import reduce_axis
from .computation import RegionValue
from .operation import ComputeOp, Operation
from .tensor import Tensor, TensorRegion

if TYPE_CHECKING:
    from .extern import TensorIntrin

_NOTE = "tensor_intrin"  # under `attrs` of an operation


@dataclass(frozen=True, slots=True, eq=False)
class Tensorized:
    """The note of a compute that is a call: the last `data` data axes and all but the first `outer` reduce axes are the intrinsic's."""

    intrin: TensorIntrin
    axes: int
    data: int
    outer: int


def tensorized(op: Operation) -> Tensorized | None:
    """What a call made of a compute, None where it is none (or has other axes by now)."""
    note = op.attrs.get(_NOTE) if isinstance(op, ComputeOp) else None
    return note if isinstance(note, Tensorized) and note.axes == len(op.axis) else None


def with_axes(attrs: dict[str, Any], axes: int | None) -> dict[str, Any]:
    """An operation's notes for one of `axes` axes, the last ones as they were; None: for one that is no call."""
    note = attrs.get(_NOTE)
    if note is None:
        return attrs
    rest = {k: v for k, v in attrs.items() if k != _NOTE}
    return rest if axes is None else {**rest, _NOTE: replace(note, axes=axes)}


class IntrinCall(RegionValue):
    """A call of `intrin` on regions of tensors; `outer`: axes of loops around it that it reduces over, too; `scalars`: values of its scalar parameters."""

    def __init__(
        self, intrin: TensorIntrin, regions: Sequence[TensorRegion], outer: Sequence[IterVar], scalars: Sequence[Expr]
    ):
        self.intrin, self.regions, self.outer, self.scalars = intrin, regions, outer, scalars

    def expand(
        self, lead: Sequence[IterVar], own: Sequence[IterVar], what: str
    ) -> tuple[tuple[Expr, ...], dict[str, Any]]:
        """The body of a computation whose elements the intrinsic makes, `own` axes of them at a time, and its attributes. Raises ExprError where dimensions
        or extents do not fit."""
        op = self.intrin.op
        assert isinstance(op, ComputeOp)
        values = self._sizes(op, what) | dict(zip(self.intrin.scalar_params, self.scalars))
        spare = len(op.axis) - len(own)
        if spare < 0:
            raise ExprError(
                f"{what} has {len(own)} dimensions for {self.intrin.name} to compute, which gives {len(op.axis)}",
                hint=f"the function takes an index for each of the other dimensions: {len(lead) - spare} of them",
            )
        for k, a in enumerate(op.axis):
            values[a.var] = own[k - spare].var if k >= spare else build.const(0, a.var.dtype)
            size = substituter(values)(a.dom.extent) if a.dom is not None else None
            want = own[k - spare].dom.extent if k >= spare else build.const(1)  # type: ignore[union-attr]
            if isinstance(size, IntImm) and isinstance(want, IntImm) and size.value != want.value:
                raise ExprError(
                    f"{what}: {self.intrin.name} computes {size} elements along {a.var.name}, of {want}",
                    hint="split the axis by what the intrinsic computes",
                )
        inner = []
        for r in op.reduce_axis:
            assert r.dom is not None
            at = substituter(values)
            made = reduce_axis((at(r.dom.min), at(build.add(r.dom.min, r.dom.extent))), r.var.name)
            values[r.var] = made.var
            inner.append(made)
        where = {id(t): region for t, region in zip(op.inputs, self.regions)}
        substitute = substituter(values)

        def on_read(e: TensorRead, r: Rewriter) -> Expr:
            region = where[id(e.tensor)]
            return region.element([substitute(r.expr(i)) for i in e.indices])

        rewriter = Rewriter({TensorRead: on_read}, memo=True)

        def moved(e: Expr) -> Expr:
            return substitute(rewriter.expr(e))

        return self._bodies(op, inner, moved, what), {
            _NOTE: Tensorized(self.intrin, len(lead) + len(own), len(own), len(self.outer))
        }

    def _bodies(self, op: ComputeOp, inner: list[IterVar], moved: Any, what: str) -> tuple[Expr, ...]:
        first = op.body[0]
        if not isinstance(first, Reduce):
            if self.outer:
                raise ExprError(
                    f"{what}: {self.intrin.name} is no reduction, but is given reduce_axis=",
                    hint="leave reduce_axis= out, or declare the intrinsic for a sum",
                )
            return tuple(moved(e) for e in op.body)
        source = tuple(moved(e) for e in first.source)
        condition, init = moved(first.condition), tuple(moved(e) for e in first.init)
        axes = (*self.outer, *inner)
        return tuple(Reduce(first.combiner, source, axes, condition, k, init) for k in range(len(op.body)))

    def _sizes(self, op: ComputeOp, what: str) -> dict[Var, Expr]:
        """The intrinsic's variables, by the extents of the regions; ExprError where a constant extent is another."""
        values: dict[Var, Expr] = {}
        for t, region in zip(op.inputs, self.regions):
            for k, (n, got) in enumerate(zip(t.shape, region.extents(t.ndim))):
                if isinstance(n, Var):
                    values.setdefault(n, got)
                elif isinstance(n, IntImm) and isinstance(got, IntImm) and n.value != got.value:
                    raise ExprError(
                        f"{what}: dimension {k} of {t.name} of {self.intrin.name} has {n} elements, the region {region!r} {got}",
                        hint="write the range with the intrinsic's extent: A[i, 0:16]",
                    )
        return values


def call(intrin: TensorIntrin, args: Sequence[Any], outer: Any) -> IntrinCall:
    """The call of an intrinsic, its arguments checked: regions and scalars, each in their order. Raises ExprError."""
    what = f"a call of {intrin.name}"
    of_tensors = [a for a in args if isinstance(a, (Tensor, TensorRegion))]
    others = [a for a in args if not isinstance(a, (Tensor, TensorRegion))]
    if not intrin.scalar_params and len(args) == len(intrin.inputs) and others:
        t = intrin.inputs[next(k for k, a in enumerate(args) if a is others[0])]
        raise ExprError(f"{what}: {t.name} is {others[0]!r}", hint="give a region of a tensor: A[i, 0:16]")
    names, scalars = [t.name for t in intrin.inputs], [str(v) for v in intrin.scalar_params]
    if len(of_tensors) != len(names) or len(others) != len(scalars):
        takes = f"{len(names)} regions ({', '.join(names)})"
        takes += f" and {len(scalars)} scalars ({', '.join(scalars)})" if scalars else ""
        given = f"{len(of_tensors)}" + (f" and {', '.join(map(repr, others))}" if others else "")
        raise ExprError(
            f"{what} takes {takes}, given {given}",
            hint="one region for each input: A[i, 0:16]"
            + (", and a value for each scalar parameter" if scalars else ""),
        )
    regions = [_region(t, a, what) for t, a in zip(intrin.inputs, of_tensors)]
    axes = [] if outer is None else list(outer) if isinstance(outer, (list, tuple)) else [outer]
    if not all(isinstance(r, IterVar) for r in axes):
        raise ExprError(f"{what}: reduce_axis={outer!r}", hint="axes of tec.reduce_axis")
    return IntrinCall(intrin, regions, axes, [_scalar(v, e, what) for v, e in zip(intrin.scalar_params, others)])


def _region(t: Tensor, a: Tensor | TensorRegion, what: str) -> TensorRegion:
    """The region for input `t`. Raises ExprError where dimensions or types do not fit."""
    region: TensorRegion = a[tuple(slice(None) for _ in a.shape)] if isinstance(a, Tensor) else a
    if region.tensor.dtype != t.dtype or region.tensor.ndim < t.ndim:
        raise ExprError(
            f"{what}: {t.name} is {t.dtype} of {t.ndim} dimensions, {region!r} is {region.tensor.dtype} of {region.tensor.ndim}",
            hint="a region of as many ranges as the intrinsic's tensor has dimensions, in its dtype",
        )
    return region


def _scalar(v: Expr, value: Any, what: str) -> Expr:
    """The value of scalar parameter `v`, in its type. Raises ExprError."""
    e = build.convert(value)
    if e.dtype == v.dtype:
        return e
    if isinstance(value, (int, float)):
        return build.const(value, v.dtype)
    raise ExprError(f"{what}: {v} is {v.dtype}, {e} is {e.dtype}", hint=f"cast it: x.astype({v.dtype!r})")
