"""compute_at, compute_inline, compute_root, create_group: where a stage is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ...ir.expr import Reduce
from ...records import dataclass
from ...te.operation import ComputeOp, ExternOp, PlaceholderOp, ScanOp
from ..show import fail
from ..state import AttachKind, StageState
from .base import Primitive
from .checks import check_loop, describe

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..stage import Stage


def _needs(sch: Schedule, consumer: Stage, producers: set[int]) -> bool:
    """Whether `consumer` reads, directly or through other stages, one of `producers`."""
    todo, seen = [consumer], {id(consumer)}
    while todo:
        for t in todo.pop().op.inputs:
            s = sch.stage_map.get(t.op)
            if s is None or id(s) in seen:
                continue
            if id(s) in producers:
                return True
            seen.add(id(s))
            todo.append(s)
    return False


def members(group: Stage) -> list[Stage]:
    """The stages of a group, groups inside it included."""
    out = []
    for s in group.sch.stages:
        g = s.group
        while g is not None:
            if g is group:
                out.append(s)
                break
            g = g.group
    return out


def _attached_below(stage: Stage) -> set[int]:
    """Stages that are computed, at any depth, inside `stage`."""
    out: set[int] = {id(stage)}
    grew = True
    while grew:
        grew = False
        for s in (*stage.sch.stages, *stage.sch.groups):
            place = s.placement
            if id(s) not in out and place.attach_stage is not None and id(place.attach_stage) in out:
                out.add(id(s))
                grew = True
    return out


def is_update(stage: Stage) -> bool:
    """Whether a scan takes its next row (or its first ones) from `stage`."""
    return any(
        isinstance(s.op, ScanOp) and any(stage.sch.find(t) is stage for t in s.op.update) for s in stage.sch.stages
    )


@dataclass(frozen=True, slots=True)
class ComputeAt(Primitive[None]):
    """A stage is computed inside a loop of a stage that reads it."""

    method: ClassVar[str] = "compute_at"

    stage: Any
    parent: Any
    scope: Any

    def check(self, sch: Schedule) -> None:
        stage, parent = self.stage, self.parent
        _check_parent(sch, stage, parent)
        check_loop(parent, self.scope, f"compute_at of {stage.name}")
        if id(parent) in _attached_below(stage):
            raise fail(
                sch, f"compute_at of {stage.name} into {parent.name}, which is computed inside {stage.name}", mark=stage,
                hint=f"s[{parent.name}].compute_root() first",
            )  # fmt: skip
        own = {id(s) for s in members(stage)} if stage.is_group else {id(stage)}
        if not _needs(sch, parent, own):
            readers = ", ".join(s.name for s in sch.readers(stage)) if not stage.is_group else ""
            raise fail(
                sch, f"compute_at of {stage.name} into {parent.name}, which does not read it", mark=parent,
                hint=f"{stage.name} is read by {readers}" if readers else f"nothing reads {stage.name}; it is an output",
            )  # fmt: skip
        if stage.is_output:
            what = f"compute_at of {stage.name}, an output of the schedule"
            raise fail(sch, what, mark=stage, hint="outputs stay at root")
        if is_update(stage):
            what = f"compute_at of {stage.name}, the update of a scan: it belongs in the time loop"
            raise fail(sch, what, mark=stage, hint="place what it reads instead")

    def apply(self, sch: Schedule) -> None:
        stage = self.stage
        stage.attach, stage.attach_stage, stage.attach_ivar = AttachKind.SCOPE, self.parent, self.scope


def _check_parent(sch: Schedule, stage: Stage, parent: Any) -> None:
    """`parent` is another stage of this schedule, with loops, and `stage` is computed at all."""
    what = f"compute_at of {stage.name}"
    if not isinstance(parent, StageState):
        raise fail(sch, f"{what}: {describe(parent)} is no stage", hint="s[A].compute_at(s[C], axis)")
    if parent.sch is not sch:
        wrong, hint = f"{what} into {parent.name} of another schedule", "use stages of one schedule"
        raise fail(sch, wrong, mark=stage, hint=hint)
    if parent is stage:
        raise fail(sch, f"{what} into itself", mark=stage, hint="give the stage that reads it")
    if parent.is_group:
        wrong = f"{what} into group {parent.name}, which has no loops"
        raise fail(sch, wrong, mark=stage, hint="give one of its stages")
    if isinstance(parent.op, ExternOp):
        wrong = f"{what} into {parent.name}, whose statements are written by hand and read {stage.name} in one piece"
        raise fail(sch, wrong, mark=stage, hint=f"s[{stage.name}].compute_root()")
    if not stage.is_group and isinstance(stage.op, PlaceholderOp):
        raise fail(
            sch, f"{what}, an input, which is not computed", mark=stage,
            hint=f's.cache_read({stage.name}, "shared", [{parent.name}]) makes a copy that can be placed',
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ComputeInline(Primitive[None]):
    """A stage's expression stands in place of the reads of it."""

    method: ClassVar[str] = "compute_inline"

    stage: Any

    def check(self, sch: Schedule) -> None:
        """Raises where the stage cannot stand in its readers."""
        stage = self.stage
        what = f"compute_inline of {stage.name}"
        if stage.is_group:
            raise fail(sch, f"compute_inline of group {stage.name}", hint="inline its stages one by one")
        if not isinstance(stage.op, ComputeOp):
            kind = "an input" if isinstance(stage.op, PlaceholderOp) else "no compute"
            hint = "only the expression of a tec.compute can stand in its readers"
            raise fail(sch, f"{what}, which is {kind}", mark=stage, hint=hint)
        if isinstance(stage.op.body[0], Reduce):
            hint = f"s[{stage.name}].compute_at(consumer, axis) computes it where it is needed"
            raise fail(sch, f"{what}, a reduction", mark=stage, hint=hint)
        if stage.is_output:
            raise fail(sch, f"{what}, an output of the schedule", mark=stage, hint="inline what is computed on the way")
        if is_update(stage):
            hint = "inline what the update reads instead"
            raise fail(sch, f"{what}, the update of a scan", mark=stage, hint=hint)
        if any(a.kind == "tensorized" for a in stage.attrs.values()):
            hint = "an intrinsic needs loops: use compute_at"
            raise fail(sch, f"{what}, which is tensorized", mark=stage, hint=hint)
        for other in (*sch.stages, *sch.groups):
            if other.attach_stage is stage and other.attach == AttachKind.SCOPE:
                raise fail(
                    sch, f"{what}: {other.name} is computed in its loops", mark=other,
                    hint=f"s[{other.name}].compute_root() first",
                )  # fmt: skip

    def apply(self, sch: Schedule) -> None:
        stage = self.stage
        stage.attach, stage.attach_stage, stage.attach_ivar = AttachKind.INLINE, None, None


@dataclass(frozen=True, slots=True)
class ComputeRoot(Primitive[None]):
    """A stage is a loop nest of its own."""

    method: ClassVar[str] = "compute_root"

    stage: Any

    def check(self, sch: Schedule) -> None:
        if self.stage.attach == AttachKind.SCAN:
            what = f"compute_root of {self.stage.name}, the update of a scan"
            raise fail(sch, what, mark=self.stage, hint="it belongs in the time loop")

    def apply(self, sch: Schedule) -> None:
        stage = self.stage
        stage.attach, stage.attach_stage, stage.attach_ivar = AttachKind.ROOT, None, None


# ---- groups


@dataclass(frozen=True, slots=True)
class CreateGroup(Primitive[Any]):
    """Several stages are placed together. Groups nest: one whose stages are all inside goes in whole."""

    method: ClassVar[str] = "create_group"
    by_name: ClassVar[tuple[str, ...]] = ("include_inputs",)
    lists: ClassVar[tuple[str, ...]] = ("outputs", "inputs")

    outputs: Any
    inputs: Any
    include_inputs: bool = False

    def check(self, sch: Schedule) -> None:
        inside = self._between(sch)
        if not inside:
            what = "create_group: no stage lies between the inputs and the outputs"
            raise fail(sch, what, hint="check what reads what")
        for s in inside:
            if isinstance(s.op, PlaceholderOp):
                what = f"create_group with input {s.name}, which is not computed"
                raise fail(sch, what, mark=s, hint="include_inputs=False")
            if s.attach_stage is not None and s.attach == AttachKind.SCOPE and s.attach_stage not in inside:
                what = f"create_group: {s.name} is computed in {s.attach_stage.name} already"
                raise fail(sch, what, mark=s, hint="create the group first, then compute_at")
        outer = _common_group(inside)
        for s in inside:
            child = _child_of(outer, s)
            if child.is_group and any(m not in inside for m in members(child)):
                raise fail(
                    sch, f"create_group: {s.name} is in {child.name} already, and not all of that group would be inside",
                    mark=s, hint="groups nest: take all stages of a group, or stages of one group",
                )  # fmt: skip

    def apply(self, sch: Schedule) -> Stage:
        inside = self._between(sch)
        outer = _common_group(inside)
        children = list(dict.fromkeys(_child_of(outer, s) for s in inside))
        group = sch.add_group("group")
        group.group = outer
        for child in children:
            child.group = group
        return group

    def _between(self, sch: Schedule) -> list[Stage]:
        """The stages on a way from an input to an output."""
        outs = [_stage(sch, o) for o in self.outputs]
        reached: dict[int, bool] = {id(_stage(sch, i)): True for i in self.inputs}
        ins = set(reached)
        for s in sch.stages:  # producers come first
            if id(s) not in ins:
                reached[id(s)] = any(reached.get(id(sch.stage_map.get(t.op))) for t in s.op.inputs)
        needed: set[int] = set()
        for s in reversed(sch.stages):
            if s in outs or any(id(r) in needed and id(r) not in ins for r in sch.readers(s)):
                needed.add(id(s))
        return [
            s for s in sch.stages if reached[id(s)] and id(s) in needed and (self.include_inputs or id(s) not in ins)
        ]


def _common_group(stages: list[Stage]) -> Stage | None:
    """The innermost group that all of `stages` are in, None where there is none."""
    common = _groups_around(stages[0])
    for s in stages[1:]:
        around = _groups_around(s)
        common = [g for g in common if g in around]
    return common[0] if common else None


def _groups_around(stage: Stage) -> list[Stage]:
    """The groups that a stage is in, innermost first."""
    out: list[Stage] = []
    while stage.group is not None:
        stage = stage.group
        out.append(stage)
    return out


def _child_of(outer: Stage | None, stage: Stage) -> Stage:
    """What stands directly in `outer`: the stage, or the group that it is in."""
    while stage.group is not None and stage.group is not outer:
        stage = stage.group
    return stage


def _stage(sch: Schedule, key: Any) -> Stage:
    found = sch.find(key)
    if found is None:
        raise fail(
            sch,
            f"create_group: {describe(key)} is not part of this schedule",
            hint="give tensors or operations of this schedule",
        )
    return found
