"""transform_layout and rolling_buffer: how a tensor's elements lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import ExprError, Loc, TecError
from ...ir import build as B
from ...ir.expr import Add, Expr, FloorDiv, FloorMod, IntImm, IterKind, IterVar, Mul, Var
from ...te.operation import ComputeOp, PlaceholderOp
from ..places import Layout
from ..relations import Fuse, Split
from ..stage import AttachKind, Stage
from .common import check_has_loops, fail


@dataclass(slots=True)
class _Digit:
    """(axis // div) % mod; mod 0 means the rest of the axis. `weight`: its place value in a sum."""

    axis: int
    div: int
    mod: int
    weight: int = 1


def rolling_buffer(stage: Stage) -> None:
    check_has_loops(stage, "rolling_buffer")
    if not isinstance(stage.op, ComputeOp):
        raise fail(
            stage, f"rolling_buffer of {stage.name}, which is no compute", mark=stage, hint="use it on a tec.compute"
        )
    if stage.is_output:
        raise fail(
            stage, f"rolling_buffer of {stage.name}, an output", mark=stage, hint="use it on an intermediate tensor"
        )
    if stage.placement.attach != AttachKind.SCOPE:
        raise fail(
            stage, f"rolling_buffer of {stage.name}, which is not computed in a loop of its reader", mark=stage,
            hint=f"s[{stage.name}].compute_at(consumer, axis) first",
        )  # fmt: skip
    stage.rolling = True


def transform_layout(stage: Stage, mapping: Any, loc: Loc | None) -> list[IterVar]:
    if stage.is_group or not isinstance(stage.op, (ComputeOp, PlaceholderOp)):
        raise fail(
            stage.sch,
            f"transform_layout of {stage.name}, which is neither a compute nor an input",
            mark=stage,
            hint="use it on a tec.compute or a placeholder",
        )
    if stage.layout is not None:
        raise fail(stage, f"transform_layout of {stage.name} a second time", mark=stage, hint="compose the two maps")
    if not callable(mapping):
        raise fail(
            stage, f"transform_layout of {stage.name} takes a function of the indices, not {mapping!r}", mark=stage,
            hint="lambda n, c: [n, c // 4, c % 4]",
        )  # fmt: skip
    shape = stage.op.output(0).shape
    indices = [Var(f"i{d}", e.dtype, True) for d, e in enumerate(shape)]
    outs = _apply(stage, mapping, indices)
    digits = [_digits(stage, e, indices) for e in outs]
    _check_cover(stage, digits, len(indices), outs)
    extents = _extents(digits, shape)
    loops: list[IterVar] = []
    if isinstance(stage.op, ComputeOp):
        loops = _loops(stage, digits)
    stage.layout = Layout(lambda at: _apply(stage, mapping, at), tuple(extents))
    return loops


def _apply(stage: Stage, mapping: Callable[..., Any], indices: Any) -> list[Expr]:
    try:
        out = mapping(*indices)
    except TypeError as e:
        why = f"the layout map of {stage.name} does not take {len(indices)} indices ({e})"
        raise fail(stage, why, mark=stage, hint=f"{stage.name} has {len(indices)} dimensions") from None
    except ExprError as e:
        raise fail(stage, f"the layout map of {stage.name}: {e.message}", mark=stage, hint=e.hint) from None
    items = list(out) if isinstance(out, (list, tuple)) else [out]
    try:
        return [B.convert(e) for e in items]
    except TecError as e:
        raise fail(
            stage,
            f"the layout map of {stage.name} gives no expressions: {e.message}",
            mark=stage,
            hint="return a list of index expressions",
        ) from None


def _digits(stage: Stage, e: Expr, indices: list[Var]) -> list[_Digit]:
    """An index of the new layout as digits of the old indices, most significant first."""
    if isinstance(e, Add):
        both = [*_digits(stage, e.a, indices), *_digits(stage, e.b, indices)]
        return sorted(both, key=lambda d: -d.weight)
    if isinstance(e, Mul) and isinstance(e.b, IntImm) and e.b.value > 0:
        return [_Digit(d.axis, d.div, d.mod, d.weight * e.b.value) for d in _digits(stage, e.a, indices)]
    mod, div, inner = 0, 1, e
    if isinstance(inner, FloorMod) and isinstance(inner.b, IntImm):
        mod, inner = inner.b.value, inner.a
    if isinstance(inner, FloorDiv) and isinstance(inner.b, IntImm):
        div, inner = inner.b.value, inner.a
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


def _extent(d: _Digit, shape: tuple[Expr, ...]) -> Expr:
    if d.mod:
        return B.const(d.mod, shape[d.axis].dtype)
    return B.floordiv(B.add(shape[d.axis], d.div - 1), d.div)


def _extents(digits: list[list[_Digit]], shape: tuple[Expr, ...]) -> list[Expr]:
    out = []
    for group in digits:
        size = _extent(group[0], shape)
        for d in group[1:]:
            size = B.mul(size, _extent(d, shape))
        out.append(size)
    return out


def _loops(stage: Stage, digits: list[list[_Digit]]) -> list[IterVar]:
    """One loop an index of the new layout, by splits and fuses of the old loops."""
    roots = list(stage.op.axis)
    data = [iv for iv in stage.leaf if iv.kind != IterKind.REDUCE]
    if len(data) != len(roots) or any(a is not b for a, b in zip(data, roots)):
        raise fail(
            stage, f"transform_layout of {stage.name}, whose loops are scheduled already", mark=stage,
            hint="transform_layout first, then schedule the loops that it returns",
        )  # fmt: skip
    shape = stage.op.output(0).shape
    parts: dict[tuple[int, int], IterVar] = {}
    relations: list[Any] = []
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
    loops: list[IterVar] = []
    for group in digits:
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
        loops.append(loop)
    stage.relations.extend(relations)
    for r in relations:
        stage.all.extend(r.children)
    stage.leaf = [*loops, *[iv for iv in stage.leaf if iv.kind == IterKind.REDUCE]]
    return loops
