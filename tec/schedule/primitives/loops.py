"""split, tile, fuse, reorder: the shape of a loop nest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from ...errors import caller_loc
from ...ir.expr import IterKind, IterVar, Var
from ..relations import Fuse, Singleton, Split
from ..stage import AttachKind, Stage
from .common import check_has_loops, check_loop, check_positive, describe, fail, names, position, replace_leaf


def flatten_axes(axes: Iterable[Any]) -> list[Any]:
    """Axes given one by one or as a list."""
    out: list[Any] = []
    for a in axes:
        out.extend(a) if isinstance(a, (list, tuple)) else out.append(a)
    return out


def _new_loop(name: str, like: IterVar) -> IterVar:
    return IterVar(Var(name, like.var.dtype, True), None, like.kind, "", caller_loc())


def check_free(stage: Stage, iv: IterVar, what: str) -> None:
    """A loop that is annotated or attached to does not change its shape any more."""
    a = stage.attrs.get(iv)
    if a is not None and (a.thread is not None or a.kind != "serial"):
        done = f"bound to {a.thread.thread_tag}" if a.thread is not None else a.kind
        raise fail(
            stage, f"{what}: loop {iv.name} of {stage.name} is {done} already", mark=iv,
            hint=f"{what} first, then annotate the loops that come out",
        )  # fmt: skip
    if iv.kind == IterKind.THREAD:
        raise fail(
            stage, f"{what}: {iv.name} is a launch index around the stage", mark=iv, hint="its place is outermost"
        )
    for other in stage.sch.stages + stage.sch.groups:
        if other.attach_ivar is iv and other.attach in (AttachKind.SCOPE, AttachKind.SCAN):
            if other.attach == AttachKind.SCAN:
                hint = "the time loop of a scan stays whole"
            else:
                hint = f"{what} first, then s[{other.name}].compute_at"
            raise fail(stage, f"{what}: {other.name} is computed at loop {iv.name} of {stage.name}", mark=iv, hint=hint)


def split(stage: Stage, parent: Any, factor: Any, nparts: Any) -> tuple[IterVar, IterVar]:
    check_has_loops(stage, "split")
    iv = check_loop(stage, parent, "split")
    if (factor is None) == (nparts is None):
        given = "neither factor nor nparts" if factor is None else "both factor and nparts"
        raise fail(stage, f"split of {iv.name} with {given}", mark=iv, hint="give one: factor=16 or nparts=4")
    check_free(stage, iv, "split")
    outer, inner = _new_loop(f"{iv.name}_outer", iv), _new_loop(f"{iv.name}_inner", iv)
    if factor is not None:
        relation = Split(
            iv, outer, inner, factor=check_positive(stage, factor, f"factor of the split of {iv.name}", iv)
        )
    else:
        relation = Split(
            iv, outer, inner, nparts=check_positive(stage, nparts, f"nparts of the split of {iv.name}", iv)
        )
    replace_leaf(stage, [iv], [outer, inner])
    stage.relations.append(relation)
    return outer, inner


def tile(stage: Stage, x: Any, y: Any, x_factor: Any, y_factor: Any) -> tuple[IterVar, IterVar, IterVar, IterVar]:
    check_has_loops(stage, "tile")
    xi, yi = check_loop(stage, x, "tile"), check_loop(stage, y, "tile")
    if xi is yi:
        raise fail(stage, f"tile takes two loops, {xi.name} is given twice", mark=xi, hint="give two loops")
    for iv, f, label in ((xi, x_factor, "x_factor"), (yi, y_factor, "y_factor")):
        check_free(stage, iv, "tile")
        check_positive(stage, f, f"{label} of the tile of {iv.name}", iv)
    xo, xin = split(stage, xi, x_factor, None)
    yo, yin = split(stage, yi, y_factor, None)
    reorder(stage, (xo, yo, xin, yin))
    return xo, yo, xin, yin


def fuse(stage: Stage, axes: tuple[Any, ...]) -> IterVar:
    check_has_loops(stage, "fuse")
    if not axes:
        if stage.leaf:
            raise fail(
                stage, f"fuse of no loops in {stage.name}, which has some", mark=stage,
                hint=f"give adjacent loops of {names(stage)}",
            )  # fmt: skip
        one = IterVar(Var("singleton", "int32", True), None, IterKind.DATA, "", caller_loc())
        stage.relations.append(Singleton(one))
        stage.leaf.append(one)
        stage.all.append(one)
        return one
    loops = [check_loop(stage, a, "fuse") for a in axes]
    for a, b in itertools.pairwise(loops):
        if a is b:
            raise fail(stage, f"fuse of {a.name} with itself", mark=a, hint="list each loop once")
        if a.kind != b.kind:
            raise fail(
                stage, f"fuse of {a.name}, a {a.kind} loop, with {b.name}, a {b.kind} loop", mark=b,
                hint="data loops fuse with data loops, reduce loops with reduce loops",
            )  # fmt: skip
        if position(stage, b) != position(stage, a) + 1:
            raise fail(
                stage, f"fuse of {a.name} and {b.name}, which are not adjacent in this order", mark=b,
                hint=f"s[{stage.name}].reorder(..., {a.name}, {b.name}) first",
            )  # fmt: skip
    for a in loops:
        check_free(stage, a, "fuse")
    result = loops[0]
    for b in loops[1:]:
        fused = _new_loop(f"{result.name.removesuffix('_fused')}_{b.name}_fused", b)
        stage.relations.append(Fuse(result, b, fused))
        replace_leaf(stage, [result, b], [fused])
        result = fused
    return result


def reorder(stage: Stage, order: tuple[Any, ...]) -> None:
    check_has_loops(stage, "reorder")
    loops = [check_loop(stage, a, "reorder") for a in order]
    for k, iv in enumerate(loops):
        if any(iv is x for x in loops[:k]):
            raise fail(stage, f"reorder lists loop {iv.name} twice", mark=iv, hint="list each loop once")
        if iv.kind in (IterKind.ORDERED, IterKind.OPAQUE, IterKind.THREAD):
            raise fail(
                stage, f"reorder: loop {iv.name} of {stage.name} is {iv.kind}; its place is fixed", mark=iv,
                hint=f"{describe(iv)} cannot move",
            )  # fmt: skip
    _check_tensorized(stage, loops)
    places = sorted(position(stage, iv) for iv in loops)
    for at, iv in zip(places, loops):
        stage.leaf[at] = iv


def _check_tensorized(stage: Stage, loops: list[IterVar]) -> None:
    for iv in loops:
        a = stage.attrs.get(iv)
        if a is not None and a.kind == "tensorized":
            raise fail(stage, f"reorder: loop {iv.name} is tensorized already", mark=iv, hint="reorder first")
