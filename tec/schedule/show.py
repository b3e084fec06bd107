"""The loop nest of a schedule as text: what `print(s)` shows and what errors mark.

Stages in order, each with its loops; a stage that is computed inside a loop of another stands in that loop's body.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ScheduleError
from ..ir.expr import IterKind, IterVar
from ..ir.notes import Fragment
from .relations import Fuse, Ranges, Split
from .state import AttachKind, StageState

if TYPE_CHECKING:
    from .schedule import Schedule
    from .stage import Stage

Marks = Mapping[Any, str]  # an IterVar or a Stage -> what to say about it


def known_ranges(stage: Stage) -> Ranges:
    """The ranges of a stage's loops where the whole operation is computed; loops without a known extent are left out."""
    ranges: Ranges = {iv: iv.dom for iv in stage.op.root_iter_vars() if iv.dom is not None}
    fixed = fixed_loops(stage)
    for r in stage.relations:
        if all(p in ranges for p in r.parents):
            r.extents_down(ranges, fixed)
    for iv in stage.leaf:
        if iv not in ranges and iv.dom is not None:
            ranges[iv] = iv.dom
    return ranges


def fixed_loops(stage: Stage, needed: Collection[IterVar] = ()) -> set[IterVar]:
    """Loops whose extent must not shrink with their parent's: threads, what threads of a given number are made of, tensorized ones, and those over a tile that lanes hold.

    needed: threads bound to loops of which other stages need as many as the splits say.
    """
    out = {iv for iv, a in stage.attrs.items() if a.thread is not None}
    counted = {iv for iv in out if iv in needed or _is_counted(stage, iv)}
    for r in reversed(stage.relations):
        if isinstance(r, Fuse) and r.fused in counted:
            counted |= {r.outer, r.inner}
        elif isinstance(r, Split) and (r.outer if r.factor is not None else r.inner) in counted:
            counted.add(r.parent)  # whose extent, with the split's own number, says how many there are
    out |= counted
    for k, iv in enumerate(stage.leaf):
        a = stage.attrs.get(iv)
        if a is not None and (a.kind == "tensorized" or any(isinstance(note, Fragment) for note in a.notes)):
            out.update(stage.leaf[k:])
    return out


def _is_counted(stage: Stage, iv: IterVar) -> bool:
    """Whether a loop is bound to threads of a work-group whose number is given."""
    thread = stage.attrs[iv].thread
    return thread is not None and thread.dom is not None and thread.thread_tag.startswith("threadIdx")


def _loop_line(stage: Stage, iv: IterVar, ranges: Ranges) -> str:
    r = ranges.get(iv)
    placed = stage.placement.attach
    extent = f" in {r.extent}" if r is not None and placed == AttachKind.ROOT else ""
    notes = []
    if iv.kind == IterKind.REDUCE:
        notes.append("reduce")
    a = stage.attrs.get(iv)
    if a is not None:
        if a.kind == "tensorized":
            notes.append(f"tensorize {getattr(a.intrin, 'name', '?')}")
        elif a.kind != "serial":
            notes.append(a.kind)
        if a.thread is not None:
            notes.append(a.thread.thread_tag)
        notes += [f"pragma {note}" for note in a.notes]
        notes += [f"prefetch {t.name} +{d}" for t, d in a.prefetches]
    elif iv.kind == IterKind.THREAD:
        notes.append(iv.thread_tag)
    return f"for {iv.name}{extent}" + (f"  # {', '.join(notes)}" if notes else "")


def _mark(line: str, notes: list[str]) -> str:
    return line + "".join(f"   <-- {n}" for n in notes)


def _marks_of(key: Any, marks: Marks) -> list[str]:
    return [text for k, text in marks.items() if k is key]


def stage_lines(stage: Stage, marks: Marks, indent: int, seen: set[int]) -> list[str]:
    """A stage and what is computed within it, a line a loop."""
    seen.add(id(stage))
    pad = "    " * indent
    if stage.is_group:
        return [_mark(f"{pad}{stage.name}: group", _marks_of(stage, marks))]
    kind = type(stage.op).__name__.removesuffix("Op").lower()
    what = [kind]
    if stage.scope:
        what.append(stage.scope)
    if stage.attach == AttachKind.INLINE:
        what.append("inlined")
    if stage.double_buffered:
        what.append("double_buffer")
    if stage.rolling:
        what.append("rolling_buffer")
    if stage.is_output:
        what.append("output")
    lines = [_mark(f"{pad}{stage.name}: {', '.join(what)}", _marks_of(stage, marks))]
    if kind == "placeholder" or stage.attach == AttachKind.INLINE:
        return lines
    ranges = known_ranges(stage)
    for k, iv in enumerate(stage.leaf):
        lines.append(_mark(f"{pad}{'    ' * (k + 1)}{_loop_line(stage, iv, ranges)}", _marks_of(iv, marks)))
        for other in stage.sch.stages:
            place = other.placement
            if place.attach_stage is stage and place.attach_ivar is iv and id(other) not in seen:
                lines += stage_lines(other, marks, indent + k + 2, seen)
    return lines


def schedule_text(sch: Schedule, marks: Marks | None = None) -> str:
    """The whole loop nest; `marks` puts notes behind loops and stages."""
    marks = marks or {}
    seen: set[int] = set()
    lines: list[str] = []
    for stage in sch.stages:
        if stage.placement.attach in (AttachKind.ROOT, AttachKind.INLINE):
            lines += stage_lines(stage, marks, 0, seen)
    for stage in sch.stages:  # attached to a loop that is no more
        if id(stage) not in seen:
            lines += stage_lines(stage, marks, 0, seen)
    return "\n".join(lines)


def stage_text(stage: Stage) -> str:
    return "\n".join(stage_lines(stage, {}, 0, set()))


def fail(
    stage_or_schedule: Any, message: str, *, mark: Any = None, note: str = "here", hint: str | None = None
) -> ScheduleError:
    """The error of a primitive: the message, the loop nest with `mark` (IterVar or Stage) pointed out, the hint."""
    if isinstance(stage_or_schedule, StageState):
        nest = schedule_text(stage_or_schedule.sch, {mark: note} if mark is not None else None)
    else:
        nest = schedule_text(stage_or_schedule, {mark: note} if mark is not None else None)
    body = "\n".join("    " + line for line in nest.splitlines())
    return ScheduleError(f"{message}\n{body}", hint=hint)
