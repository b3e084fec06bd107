"""compute_at, compute_inline, compute_root, create_group: where a stage is computed."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Reduce
from ...te.operation import ComputeOp, Operation, PlaceholderOp, ScanOp
from ..schedule import Schedule
from ..stage import AttachKind, Stage
from .common import check_loop, describe, fail


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


def compute_at(stage: Stage, parent: Any, scope: Any) -> None:
    sch = stage.sch
    if not isinstance(parent, Stage):
        raise fail(
            sch, f"compute_at of {stage.name}: {describe(parent)} is no stage", hint="s[A].compute_at(s[C], axis)"
        )
    if parent.sch is not sch:
        raise fail(
            sch,
            f"compute_at of {stage.name} into {parent.name} of another schedule",
            mark=stage,
            hint="use stages of one schedule",
        )
    if parent is stage:
        raise fail(sch, f"compute_at of {stage.name} into itself", mark=stage, hint="give the stage that reads it")
    if parent.is_group:
        raise fail(
            sch,
            f"compute_at of {stage.name} into group {parent.name}, which has no loops",
            mark=stage,
            hint="give one of its stages",
        )
    if not stage.is_group and isinstance(stage.op, PlaceholderOp):
        raise fail(
            sch, f"compute_at of {stage.name}, an input, which is not computed", mark=stage,
            hint=f's.cache_read({stage.name}, "shared", [{parent.name}]) makes a copy that can be placed',
        )  # fmt: skip
    loop = check_loop(parent, scope, f"compute_at of {stage.name}")
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
        raise fail(
            sch, f"compute_at of {stage.name}, an output of the schedule", mark=stage, hint="outputs stay at root"
        )
    if is_update(stage):
        raise fail(
            sch,
            f"compute_at of {stage.name}, the update of a scan: it belongs in the time loop",
            mark=stage,
            hint="place what it reads instead",
        )
    stage.attach, stage.attach_stage, stage.attach_ivar = AttachKind.SCOPE, parent, loop


def is_update(stage: Stage) -> bool:
    """Whether a scan takes its next row (or its first ones) from `stage`."""
    return any(
        isinstance(s.op, ScanOp) and any(stage.sch.find(t) is stage for t in s.op.update) for s in stage.sch.stages
    )


def compute_inline(stage: Stage) -> None:
    sch = stage.sch
    if stage.is_group:
        raise fail(sch, f"compute_inline of group {stage.name}", hint="inline its stages one by one")
    if not isinstance(stage.op, ComputeOp):
        kind = "an input" if isinstance(stage.op, PlaceholderOp) else "no compute"
        raise fail(
            sch,
            f"compute_inline of {stage.name}, which is {kind}",
            mark=stage,
            hint="only the expression of a tec.compute can stand in its readers",
        )
    if isinstance(stage.op.body[0], Reduce):
        raise fail(
            sch, f"compute_inline of {stage.name}, a reduction", mark=stage,
            hint=f"s[{stage.name}].compute_at(consumer, axis) computes it where it is needed",
        )  # fmt: skip
    if stage.is_output:
        raise fail(
            sch, f"compute_inline of {stage.name}, an output of the schedule", mark=stage,
            hint="inline what is computed on the way",
        )  # fmt: skip
    if is_update(stage):
        raise fail(
            sch,
            f"compute_inline of {stage.name}, the update of a scan",
            mark=stage,
            hint="inline what the update reads instead",
        )
    if any(a.kind == "tensorized" for a in stage.attrs.values()):
        raise fail(
            sch,
            f"compute_inline of {stage.name}, which is tensorized",
            mark=stage,
            hint="an intrinsic needs loops: use compute_at",
        )
    for other in (*sch.stages, *sch.groups):
        if other.attach_stage is stage and other.attach == AttachKind.SCOPE:
            raise fail(
                sch, f"compute_inline of {stage.name}: {other.name} is computed in its loops", mark=other,
                hint=f"s[{other.name}].compute_root() first",
            )  # fmt: skip
    stage.attach, stage.attach_stage, stage.attach_ivar = AttachKind.INLINE, None, None


def compute_root(stage: Stage) -> None:
    if stage.attach == AttachKind.SCAN:
        raise fail(
            stage.sch,
            f"compute_root of {stage.name}, the update of a scan",
            mark=stage,
            hint="it belongs in the time loop",
        )
    stage.attach, stage.attach_stage, stage.attach_ivar = AttachKind.ROOT, None, None


def create_group(sch: Schedule, outputs: list[Any], inputs: list[Any], include_inputs: bool) -> Stage:
    outs = [_stage(sch, o, "create_group") for o in outputs]
    ins = {id(_stage(sch, i, "create_group")) for i in inputs}
    inside: list[Stage] = []
    reached: dict[int, bool] = {}

    def between(s: Stage) -> bool:
        """Whether `s` lies on a way from an input to an output."""
        if id(s) in reached:
            return reached[id(s)]
        if id(s) in ins:
            reached[id(s)] = True
            return True
        reached[id(s)] = False
        hit = [between(sch.stage_map[t.op]) for t in s.op.inputs]
        reached[id(s)] = any(hit)
        return reached[id(s)]

    for o in outs:
        between(o)
    inside = [s for s in sch.stages if reached.get(id(s)) and (include_inputs or id(s) not in ins)]
    if not inside:
        raise fail(sch, "create_group: no stage lies between the inputs and the outputs", hint="check what reads what")
    common = {id(s.group) for s in inside}
    if len(common) > 1:
        raise fail(
            sch,
            "create_group: its stages are in different groups already",
            mark=inside[0],
            hint="groups nest: group stages of one group",
        )
    for s in inside:
        if isinstance(s.op, PlaceholderOp):
            raise fail(
                sch, f"create_group with input {s.name}, which is not computed", mark=s, hint="include_inputs=False"
            )
        if s.attach_stage is not None and s.attach == AttachKind.SCOPE and s.attach_stage not in inside:
            raise fail(
                sch,
                f"create_group: {s.name} is computed in {s.attach_stage.name} already",
                mark=s,
                hint="create the group first, then compute_at",
            )
    group = Stage(sch, None, sch.unique_name("group"))
    group.group = inside[0].group
    sch.groups.append(group)
    for s in inside:
        s.group = group
    return group


def _stage(sch: Schedule, key: Any, what: str) -> Stage:
    found = sch.find(key)
    if found is None:
        raise fail(
            sch,
            f"{what}: {describe(key)} is not part of this schedule",
            hint="give tensors or operations of this schedule",
        )
    return found


__all__ = ["Operation", "compute_at", "compute_inline", "compute_root", "create_group", "members"]
