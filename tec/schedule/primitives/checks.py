"""Checks that the primitives share, and how their errors name things."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir import build as B
from ...ir.dtype import dtype_info
from ...ir.expr import Expr, IntImm, IterKind, IterVar
from ...te.operation import PlaceholderOp
from ...te.tensor import Tensor
from ..relations import Fuse, Split
from ..show import fail
from ..state import StageState

if TYPE_CHECKING:
    from ..stage import Stage


def describe(value: Any) -> str:
    """A value as an error names it."""
    if isinstance(value, IterVar):
        return value.name
    if isinstance(value, StageState):
        return f"stage {value.name}"
    name = getattr(value, "name", None)
    return f"{type(value).__name__} {name}" if isinstance(name, str) else f"{value!r} ({type(value).__name__})"


def stage_of(sch: Any, tensor: Any, what: str, hint: str) -> Stage:
    """The stage of a tensor; a ScheduleError where it is no tensor of the schedule."""
    stage: Stage | None = sch.find(tensor)
    if not isinstance(tensor, Tensor) or stage is None:
        raise fail(sch, f"{what} of {describe(tensor)}, which is no tensor of this schedule", hint=hint)
    return stage


def owner(stage: Stage, iv: IterVar) -> Stage | None:
    """The stage of the schedule that has (or had) `iv` as a loop."""
    for s in stage.sch.stages:
        if any(x is iv for x in s.all):
            return s
    return None


def check_loop(stage: Stage, iv: Any, what: str) -> IterVar:
    """`iv` as a loop of `stage` that still stands; a ScheduleError that says why not otherwise."""
    if not isinstance(iv, IterVar):
        raise fail(
            stage, f"{what}: {describe(iv)} is not a loop", mark=stage, hint=f"loops of {stage.name}: {names(stage)}"
        )
    if any(x is iv for x in stage.leaf):
        return iv
    for r in stage.relations:
        if any(p is iv for p in r.parents):
            how = "split" if isinstance(r, Split) else "fused" if isinstance(r, Fuse) else "rebased"
            into = ", ".join(c.name for c in r.children)
            raise fail(
                stage, f"{what}: loop {iv.name} of {stage.name} was {how} into {into} before", mark=r.children[0],
                note=f"came from {iv.name}", hint=f"use {into}",
            )  # fmt: skip
    other = owner(stage, iv)
    if other is not None and other is not stage:
        raise fail(
            stage, f"{what}: {iv.name} is a loop of {other.name}, not of {stage.name}", mark=iv, note="this one",
            hint=f"loops of {stage.name}: {names(stage)}; did you mean s[{other.name}]?",
        )  # fmt: skip
    if iv.kind == IterKind.REDUCE and stage.origin_op is not stage.op:
        hint = "the reduction moved: schedule the tensor that cache_write or rfactor returned"
    else:
        hint = f"loops of {stage.name}: {names(stage)}"
    raise fail(stage, f"{what}: {iv.name} is not a loop of {stage.name}", mark=stage, hint=hint)


def names(stage: Stage) -> str:
    return ", ".join(iv.name for iv in stage.leaf) or "none"


def check_has_loops(stage: Stage, what: str) -> None:
    """Placeholders, groups and inlined stages have no loops to change."""
    if stage.is_group:
        raise fail(
            stage.sch,
            f"{what}: {stage.name} is a group, which has no loops of its own",
            hint="schedule the loops of its stages; a group can be placed by compute_at",
        )
    if isinstance(stage.op, PlaceholderOp):
        raise fail(
            stage, f"{what}: {stage.name} is an input; it has no loops", mark=stage,
            hint="schedule what is computed, or cache_read the input",
        )  # fmt: skip


def check_positive(stage: Stage, value: Any, what: str, mark: Any = None) -> Expr:
    """`value` as a positive integer expression."""
    ok = isinstance(value, (int, Expr)) and not isinstance(value, bool)
    if not ok and hasattr(value, "__index__"):
        value, ok = int(value), True
    if not ok:
        raise fail(stage, f"{what} is {value!r} ({type(value).__name__})", mark=mark, hint="give a positive integer")
    e = B.convert(value)
    if not dtype_info(e.dtype).is_int:
        raise fail(stage, f"{what} has type {e.dtype}: {e}", mark=mark, hint="give a positive integer")
    if isinstance(e, IntImm) and e.value <= 0:
        raise fail(stage, f"{what} is {e.value}", mark=mark, hint="give a positive integer")
    return e


def position(stage: Stage, iv: IterVar) -> int:
    return next(k for k, x in enumerate(stage.leaf) if x is iv)
