"""transform_layout: how a tensor's elements lie in memory."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import ExprError, TecError
from ...ir import build as B
from ...ir.expr import Add, Expr, FloorDiv, FloorMod, IntImm, IterKind, IterVar, Mul, Sub, Var
from ...records import dataclass
from ...te.build import AXIS_SEPARATOR
from ...te.operation import ComputeOp, PlaceholderOp
from ..relations import Fuse, Relation, Split
from ..show import fail
from ..state import IndexMap
from .base import Primitive

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..stage import Stage


@dataclass(frozen=True, slots=True)
class TransformLayout(Primitive[list[IterVar]]):
    """A stage's output is stored by another index."""

    method: ClassVar[str] = "transform_layout"

    by_name: ClassVar[tuple[str, ...]] = ("keep_loops", "within")

    stage: Any
    mapping: Any
    keep_loops: Any = None
    within: Any = None

    def check(self, sch: Schedule) -> None:
        stage, mapping = self.stage, self.mapping
        if stage.is_group or not isinstance(stage.op, (ComputeOp, PlaceholderOp)):
            raise fail(
                sch, f"transform_layout of {stage.name}, which is neither a compute nor an input", mark=stage,
                hint="use it on a tec.compute or a placeholder",
            )  # fmt: skip
        what = f"transform_layout of {stage.name}"
        if stage.layout is not None:
            raise fail(stage, f"{what} a second time", mark=stage, hint="compose the two maps")
        if not callable(mapping):
            raise fail(
                stage, f"{what} takes a function of the indices, not {mapping!r}", mark=stage,
                hint="lambda n, c: [n, c // 4, c % 4]",
            )  # fmt: skip
        digits, first = _digits_of(stage, mapping, self.within is not None)
        if isinstance(stage.op, ComputeOp) and not self.keep_loops:
            _loops(stage, digits)
        if self.within is not None:
            extents = _extents(digits, stage.op.output(0).shape)
            self._check_within([B.add(n, k) if k else n for n, k in zip(extents, first)])

    def _check_within(self, extents: Sequence[Expr]) -> None:
        stage, within = self.stage, self.within
        if not isinstance(stage.op, ComputeOp) or not stage.is_output:
            raise fail(
                stage, f"transform_layout of {stage.name} within {within}: others read what would not be stored", mark=stage,
                hint="give `within` for a stage that is an output",
            )  # fmt: skip
        sizes = [n for part in _axes(within) for n in part]
        if len(sizes) != len(extents) or any(
            isinstance(n, IntImm) and not 1 <= size <= n.value for size, n in zip(sizes, extents)
        ):
            raise fail(
                stage, f"transform_layout of {stage.name} within {within}, where the layout has {', '.join(map(str, extents))}", mark=stage,
                hint="give a size for each dimension of the layout, none larger than it",
            )  # fmt: skip

    def apply(self, sch: Schedule) -> list[IterVar]:
        stage, mapping = self.stage, self.mapping
        digits, first = _digits_of(stage, mapping, self.within is not None)
        shape = stage.op.output(0).shape
        loops: list[IterVar] = []
        if isinstance(stage.op, ComputeOp) and not self.keep_loops:
            loops, relations = _loops(stage, digits)
            for r in relations:
                stage.relate(r)
                stage.all.extend(r.children)
            stage.leaf = [*loops, *[iv for iv in stage.leaf if iv.kind == IterKind.REDUCE]]
        separators = separators_of(mapping, [Var(f"i{d}", e.dtype, True) for d, e in enumerate(shape)])
        extents = tuple(_extents(digits, shape))
        axes = _axes(self.within) if self.within is not None else ()
        within = [n for part in axes for n in part]
        sizes = tuple([B.const(n) for n in within]) if axes else extents
        shape = tuple([B.const(math.prod(part)) for part in axes]) if axes else extents
        cut = tuple([k for k, n in enumerate(within) if not B.is_const(B.add(extents[k], first[k]), n)])
        before = tuple([k for k, n in enumerate(first) if n < 0])

        def places(at: Sequence[Any]) -> list[Expr]:
            return _apply(stage, mapping, at)

        stage.layout = IndexMap(lambda at: _joined(places(at), axes), shape, places, sizes, separators, cut, before)
        return loops


def _axes(within: Any) -> list[tuple[int, ...]]:
    """The sizes of each dimension of storage: of one axis of the map, or of several."""
    if not isinstance(within, (list, tuple)):
        return []
    return [tuple(n) if isinstance(n, (list, tuple)) else (n,) for n in within]


def _joined(at: list[Expr], axes: Sequence[Sequence[int]]) -> list[Expr]:
    """A place as an index of storage, which has several axes as one dimension where so many `axes` are."""
    if len(axes) in (0, len(at)):
        return at
    rest, made = iter(at), []
    for part in axes:
        index = next(rest)
        for n in part[1:]:
            index = B.add(B.mul(index, n), next(rest))
        made.append(index)
    return made


def index_names(mapping: Callable[..., Any], ndim: int) -> list[str]:
    """Names for `ndim` indices that `mapping` takes: its parameters', numbers for those that `*i` takes."""
    first, last, varargs = _parameters(mapping)
    many = ndim - len(first) - len(last)
    return [*first, *[f"{varargs}{k}" for k in range(many)], *last]


def call_mapping(mapping: Callable[..., Any], indices: Sequence[Any]) -> list[Any]:
    """What a layout's function gives for `indices`: `*i` takes what the parameters before it and after it leave.

    Memory is flat, so separators between the dimensions of a layout have no effect and are dropped. Raises TypeError.
    """
    return [e for e in _called(mapping, indices) if not _is_separator(e)]


def separators_of(mapping: Callable[..., Any], indices: Sequence[Any]) -> tuple[int, ...]:
    """The dimensions of a layout before which a separator stands."""
    found, d = [], 0
    for e in _called(mapping, indices):
        if _is_separator(e):
            found.append(d)
        else:
            d += 1
    return tuple(found)


def _is_separator(e: Any) -> bool:
    return isinstance(e, str) and e == AXIS_SEPARATOR


def _called(mapping: Callable[..., Any], indices: Sequence[Any]) -> list[Any]:
    _, last, varargs = _parameters(mapping)
    at = len(indices) - len(last)
    if last and (not varargs or at < 0):
        raise TypeError("parameters after a * stand for the last indices")
    out = mapping(*indices[:at], **dict(zip(last, indices[at:])))
    return list(out) if isinstance(out, (list, tuple)) else [out]


def _parameters(mapping: Callable[..., Any]) -> tuple[list[str], list[str], str]:
    """The parameters before a *, those after it, and the name of the * ("" where there is none)."""
    try:
        given = inspect.signature(mapping).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return [], [], "i"
    first = [p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    last = [p.name for p in given if p.kind == p.KEYWORD_ONLY]
    return first, last, next((p.name for p in given if p.kind == p.VAR_POSITIONAL), "")


def _apply(stage: Stage, mapping: Callable[..., Any], indices: Sequence[Any]) -> list[Expr]:
    try:
        items = call_mapping(mapping, indices)
    except TypeError as e:
        why = f"the layout map of {stage.name} does not take {len(indices)} indices ({e})"
        raise fail(stage, why, mark=stage, hint=f"{stage.name} has {len(indices)} dimensions") from None
    except ExprError as e:
        raise fail(stage, f"the layout map of {stage.name}: {e.message}", mark=stage, hint=e.hint) from None
    try:
        return [B.convert(e) for e in items]
    except TecError as e:
        why = f"the layout map of {stage.name} gives no expressions: {e.message}"
        raise fail(stage, why, mark=stage, hint="return a list of index expressions") from None


# ---- an index of the new layout is a sum of digits of the old indices


@dataclass(slots=True)
class _Digit:
    """(axis // div) % mod; mod 0 means the rest of the axis. `weight`: its place value in a sum."""

    axis: int
    div: int
    mod: int
    weight: int = 1


def _digits_of(stage: Stage, mapping: Callable[..., Any], is_cut: bool) -> tuple[list[list[_Digit]], list[int]]:
    """The digits of each index of the new layout, and what the index of the first element is, 0 or below it where places are cut; each element has a place of its own."""
    shape = stage.op.output(0).shape
    indices = [Var(f"i{d}", e.dtype, True) for d, e in enumerate(shape)]
    parts = [_moved_back(e) if is_cut else (e, 0) for e in _apply(stage, mapping, indices)]
    outs, first = [e for e, _ in parts], [n for _, n in parts]
    digits = [[d for d in _digits(stage, e, indices) if not _is_zero(d, shape)] for e in outs]
    for d in (d for group in digits for d in group):
        if d.mod and B.is_const(shape[d.axis], d.div * d.mod):
            d.mod = 0  # the remainder of all that there is
    _check_cover(stage, digits, len(indices), outs)
    return digits, first


def _moved_back(e: Expr) -> tuple[Expr, int]:
    """An index without the constant that is taken off it, and that, 0 or below."""
    if isinstance(e, Sub) and isinstance(e.b, IntImm) and e.b.value > 0:
        return e.a, -e.b.value
    if isinstance(e, Add) and isinstance(e.b, IntImm) and e.b.value < 0:
        return e.a, e.b.value
    return e, 0


def _digits(stage: Stage, e: Expr, indices: list[Var]) -> list[_Digit]:
    """An index of the new layout as digits of the old indices, most significant first; none of them where it is always 0."""
    if isinstance(e, IntImm) and e.value == 0:
        return []
    if isinstance(e, Add):
        both = [*_digits(stage, e.a, indices), *_digits(stage, e.b, indices)]
        return sorted(both, key=lambda d: -d.weight)
    if isinstance(e, Mul) and isinstance(e.b, IntImm) and e.b.value > 0:
        return [_Digit(d.axis, d.div, d.mod, d.weight * e.b.value) for d in _digits(stage, e.a, indices)]
    mod, div, inner = 0, 1, e
    if isinstance(inner, FloorMod) and isinstance(inner.b, IntImm):
        mod, inner = inner.b.value, inner.a
    while isinstance(inner, FloorDiv) and isinstance(inner.b, IntImm):
        div, inner = div * inner.b.value, inner.a
    axis = next((k for k, v in enumerate(indices) if v is inner), None)
    if axis is None or div < 1 or mod < 0:
        raise fail(
            stage, f"transform_layout of {stage.name}: {e} is no digit of an index", mark=stage,
            hint="an index i, its parts i // c and i % c, or sums of such parts with place values: i * 16 + j",
        )  # fmt: skip
    return [_Digit(axis, div, mod)]


def _check_cover(stage: Stage, digits: list[list[_Digit]], ndim: int, outs: list[Expr]) -> None:
    """Each old index is made up of its digits, each once."""
    for axis in range(ndim):
        mine = sorted((d for group in digits for d in group if d.axis == axis), key=lambda d: d.div)
        place = 1
        for k, d in enumerate(mine):
            last = k == len(mine) - 1
            if d.div != place or (d.mod == 0) != last:
                break
            place *= d.mod
        else:
            if mine:
                continue
        raise fail(
            stage, f"transform_layout of {stage.name}: index {axis} cannot be told from ({', '.join(map(str, outs))})",
            mark=stage, hint="each element needs a place of its own: use i // c and i % c together",
        )  # fmt: skip


def _is_zero(d: _Digit, shape: tuple[Expr, ...]) -> bool:
    """Whether a digit counts what an axis never reaches: the row of an image of one row."""
    size = shape[d.axis]
    return d.div > 1 and isinstance(size, IntImm) and size.value <= d.div


def _extent(d: _Digit, shape: tuple[Expr, ...]) -> Expr:
    if d.mod:
        return B.const(d.mod, shape[d.axis].dtype)
    return B.floordiv(B.add(shape[d.axis], d.div - 1), d.div)


def _extents(digits: list[list[_Digit]], shape: tuple[Expr, ...]) -> list[Expr]:
    out = []
    for group in digits:
        size: Expr = B.const(1)
        for d in group:
            size = B.mul(size, _extent(d, shape))
        out.append(size)
    return out


def _loops(stage: Stage, digits: list[list[_Digit]]) -> tuple[list[IterVar], list[Relation]]:
    """One loop an index of the new layout that is not always 0, by splits and fuses of the old loops, which are returned too."""
    roots = list(stage.op.axis)
    data = [iv for iv in stage.leaf if iv.kind != IterKind.REDUCE]
    if len(data) != len(roots) or any(a is not b for a, b in zip(data, roots)):
        raise fail(
            stage, f"transform_layout of {stage.name}, whose loops are scheduled already", mark=stage,
            hint="transform_layout first, then schedule the loops that it returns",
        )  # fmt: skip
    relations: list[Relation] = []
    parts = _split_axes(digits, roots, relations)
    loops = [_fuse_digits(stage, group, parts, relations) for group in digits if group]
    return loops, relations


def _split_axes(
    digits: list[list[_Digit]], roots: list[IterVar], relations: list[Relation]
) -> dict[tuple[int, int], IterVar]:
    """A loop for each digit (axis, div), split off its axis."""
    parts: dict[tuple[int, int], IterVar] = {}
    for axis, iv in enumerate(roots):
        rest = iv
        mine = sorted((d for group in digits for d in group if d.axis == axis), key=lambda d: d.div)
        for d in mine[:-1]:
            outer = IterVar(Var(f"{iv.name}_outer", iv.var.dtype, True), None, iv.kind, "", iv.loc)
            inner = IterVar(Var(f"{iv.name}_inner", iv.var.dtype, True), None, iv.kind, "", iv.loc)
            relations.append(Split(rest, outer, inner, factor=B.const(d.mod)))
            parts[axis, d.div] = inner
            rest = outer
        parts[axis, mine[-1].div] = rest
    return parts


def _fuse_digits(
    stage: Stage, group: list[_Digit], parts: dict[tuple[int, int], IterVar], relations: list[Relation]
) -> IterVar:
    """The loop over one index of the layout: its digits' loops, fused."""
    shape = stage.op.output(0).shape
    loop = parts[group[0].axis, group[0].div]
    for k, d in enumerate(group[1:], 1):
        size = B.const(1)
        for below in group[k:]:
            size = B.mul(size, _extent(below, shape))
        if not (isinstance(size, IntImm) and size.value == group[k - 1].weight):
            raise fail(
                stage, f"transform_layout of {stage.name}: place value {group[k - 1].weight} over parts of extent {size}",
                mark=stage, hint="the place value of a part is the product of the extents of those after it",
            )  # fmt: skip
        inner = parts[d.axis, d.div]
        fused = IterVar(Var(f"{loop.name}_{inner.name}_fused", loop.var.dtype, True), None, loop.kind, "", loop.loc)
        relations.append(Fuse(loop, inner, fused))
        loop = fused
    if group[-1].weight != 1:
        raise fail(
            stage,
            f"transform_layout of {stage.name}: an index skips {group[-1].weight - 1} places",
            mark=stage,
            hint="the last part of a sum has place value 1",
        )
    return loop
