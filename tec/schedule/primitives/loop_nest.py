"""split, tile, fuse, reorder: the shape of a loop nest."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import caller_loc
from ...ir.dtype import int_range
from ...ir.expr import IntImm, IterKind, IterVar, Var
from ...records import dataclass
from ...te.operation import ComputeOp
from ..relations import Fuse as FuseRelation
from ..relations import Singleton
from ..relations import Split as SplitRelation
from ..script_loops import check_one_nest, check_order
from ..show import fail
from ..state import AttachKind
from .base import Primitive
from .checks import check_has_loops, check_loop, check_positive, describe, names, position

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..stage import Stage


def new_loop(name: str, like: IterVar, dtype: str = "") -> IterVar:
    return IterVar(Var(name, dtype or like.var.dtype, True), None, like.kind, "", caller_loc())


def _counting(a: IterVar, b: IterVar) -> str:
    """The type of a variable that counts the steps of two loops fused: int64 where one of theirs is, or they take more together than int32 counts."""
    extents = [iv.dom.extent for iv in (a, b) if iv.dom is not None]
    steps = math.prod(e.value for e in extents if isinstance(e, IntImm))
    types = {a.var.dtype, b.var.dtype, *(e.dtype for e in extents)}
    return "int64" if "int64" in types or steps > int_range("int32")[1] else b.var.dtype


def replace_leaf(stage: Stage, old: list[IterVar], new: list[IterVar]) -> None:
    """Put `new` in the place of `old`, which stand together."""
    at = position(stage, old[0])
    stage.leaf[at : at + len(old)] = new
    stage.all.extend(new)


def check_free(stage: Stage, iv: IterVar, what: str) -> None:
    """A loop that is annotated, and the time loop of a scan, does not change its shape any more."""
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
    for other in (*stage.sch.stages, *stage.sch.groups):
        if other.attach_ivar is iv and other.attach == AttachKind.SCAN:
            raise fail(
                stage, f"{what}: {other.name} is computed at loop {iv.name} of {stage.name}", mark=iv,
                hint="the time loop of a scan stays whole",
            )  # fmt: skip


def move_attached(stage: Stage, old: list[IterVar], new: IterVar) -> None:
    """What is computed in each step of a loop of `old` is computed in each step of `new`, which has all of their steps."""
    for other in (*stage.sch.stages, *stage.sch.groups):
        if other.attach == AttachKind.SCOPE and any(other.attach_ivar is iv for iv in old):
            other.attach_ivar = new


def _may_repeat(stage: Stage, iv: IterVar) -> bool:
    """Whether a loop's steps may run twice: each stores what depends on no step before."""
    return isinstance(stage.op, ComputeOp) and not stage.op.reduce_axis and iv.kind == IterKind.DATA


@dataclass(frozen=True, slots=True)
class Split(Primitive[tuple[IterVar, IterVar]]):
    """One loop becomes two: `parent = outer * extent of inner + inner`."""

    method: ClassVar[str] = "split"
    by_name: ClassVar[tuple[str, ...]] = ("factor", "nparts", "shift_inwards", "long")

    stage: Any
    parent: Any
    factor: Any = None
    nparts: Any = None
    shift_inwards: bool = False
    long: bool = False

    def check(self, sch: Schedule) -> None:
        check_has_loops(self.stage, "split")
        iv = check_loop(self.stage, self.parent, "split")
        if (self.factor is None) == (self.nparts is None):
            given = "neither factor nor nparts" if self.factor is None else "both factor and nparts"
            raise fail(self.stage, f"split of {iv.name} with {given}", mark=iv, hint="give one: factor=16 or nparts=4")
        check_free(self.stage, iv, "split")
        label, value = ("factor", self.factor) if self.factor is not None else ("nparts", self.nparts)
        check_positive(self.stage, value, f"{label} of the split of {iv.name}", iv)
        if self.shift_inwards and not _may_repeat(self.stage, iv):
            raise fail(
                self.stage, f"split of {iv.name} with shift_inwards: {self.stage.name} has sums, or is made of other loops than a compute's, and may not repeat a step",
                mark=iv, hint="cache_write the result, and shift the splits of the stage that copies it",
            )  # fmt: skip

    def apply(self, sch: Schedule) -> tuple[IterVar, IterVar]:
        stage, iv = self.stage, self.parent
        outer, inner = new_loop(f"{iv.name}_outer", iv), new_loop(f"{iv.name}_inner", iv)
        if self.factor is not None:
            relation = SplitRelation(iv, outer, inner, factor=check_positive(stage, self.factor, "factor", iv))
        else:
            relation = SplitRelation(iv, outer, inner, nparts=check_positive(stage, self.nparts, "nparts", iv))
        relation.shift_inwards, relation.long = bool(self.shift_inwards), bool(self.long)
        replace_leaf(stage, [iv], [outer, inner])
        move_attached(stage, [iv], inner)
        stage.relate(relation)
        return outer, inner


@dataclass(frozen=True, slots=True)
class Tile(Primitive[tuple[IterVar, IterVar, IterVar, IterVar]]):
    """Two splits and a reorder."""

    method: ClassVar[str] = "tile"

    stage: Any
    x_parent: Any
    y_parent: Any
    x_factor: Any
    y_factor: Any

    def check(self, sch: Schedule) -> None:
        stage = self.stage
        check_has_loops(stage, "tile")
        x, y = check_loop(stage, self.x_parent, "tile"), check_loop(stage, self.y_parent, "tile")
        if x is y:
            raise fail(stage, f"tile takes two loops, {x.name} is given twice", mark=x, hint="give two loops")
        for iv, f, label in ((x, self.x_factor, "x_factor"), (y, self.y_factor, "y_factor")):
            check_free(stage, iv, "tile")
            check_positive(stage, f, f"{label} of the tile of {iv.name}", iv)
            check_movable(stage, [iv])
        check_order(stage, [y, x])  # the inner loop of x comes to stand in the outer one of y

    def apply(self, sch: Schedule) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        xo, xi = Split(self.stage, self.x_parent, self.x_factor).apply(sch)
        yo, yi = Split(self.stage, self.y_parent, self.y_factor).apply(sch)
        Reorder(self.stage, (xo, yo, xi, yi)).apply(sch)
        return xo, yo, xi, yi


@dataclass(frozen=True, slots=True)
class Fuse(Primitive[IterVar]):
    """Neighbouring loops become one; of none, a loop of one step around the others."""

    method: ClassVar[str] = "fuse"
    by_name: ClassVar[tuple[str, ...]] = ("wide",)
    variadic: ClassVar[str] = "axes"
    lists: ClassVar[tuple[str, ...]] = ("axes",)

    stage: Any
    axes: tuple[Any, ...]
    wide: bool = False

    def check(self, sch: Schedule) -> None:
        stage = self.stage
        check_has_loops(stage, "fuse")
        if not self.axes and any(iv.kind != IterKind.REDUCE for iv in stage.leaf):
            raise fail(
                stage, f"fuse of no loops in {stage.name}, which has some", mark=stage,
                hint=f"give adjacent loops of {names(stage)}",
            )  # fmt: skip
        loops = [check_loop(stage, a, "fuse") for a in self.axes]
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
        check_one_nest(stage, loops, "fuse")

    def apply(self, sch: Schedule) -> IterVar:
        stage = self.stage
        if not self.axes:
            one = IterVar(Var("singleton", "int32", True), None, IterKind.DATA, "", caller_loc())
            stage.relate(Singleton(one))
            stage.leaf.insert(0, one)
            stage.all.append(one)
            return one
        result: IterVar = self.axes[0]
        for b in self.axes[1:]:
            fused = new_loop(
                f"{result.name.removesuffix('_fused')}_{b.name}_fused",
                b,
                "int64" if self.wide else _counting(result, b),
            )
            stage.relate(FuseRelation(result, b, fused))
            replace_leaf(stage, [result, b], [fused])
            move_attached(stage, [result, b], fused)
            result = fused
        return result


@dataclass(frozen=True, slots=True)
class Reorder(Primitive[None]):
    """The given loops in this order, in the places that they take together."""

    method: ClassVar[str] = "reorder"
    variadic: ClassVar[str] = "order"
    lists: ClassVar[tuple[str, ...]] = ("order",)

    stage: Any
    order: tuple[Any, ...]

    def check(self, sch: Schedule) -> None:
        check_has_loops(self.stage, "reorder")
        loops = [check_loop(self.stage, a, "reorder") for a in self.order]
        for k, iv in enumerate(loops):
            if any(iv is x for x in loops[:k]):
                raise fail(self.stage, f"reorder lists loop {iv.name} twice", mark=iv, hint="list each loop once")
        check_movable(self.stage, loops)
        check_order(self.stage, loops)

    def apply(self, sch: Schedule) -> None:
        leaf = self.stage.leaf
        slots = sorted(position(self.stage, iv) for iv in self.order)
        for at, iv in zip(slots, self.order):
            leaf[at] = iv


def check_movable(stage: Stage, loops: list[IterVar]) -> None:
    """Loops whose order is fixed do not move. Where an intrinsic begins is what its loop has inside when it is lowered."""
    for iv in loops:
        if iv.kind in (IterKind.ORDERED, IterKind.OPAQUE, IterKind.THREAD):
            raise fail(
                stage, f"reorder: loop {iv.name} of {stage.name} is {iv.kind}; its place is fixed", mark=iv,
                hint=f"{describe(iv)} cannot move",
            )  # fmt: skip
