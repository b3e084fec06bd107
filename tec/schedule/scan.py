"""Scans: their updates are computed inside the time loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..te.operation import ScanOp
from .state import AttachKind

if TYPE_CHECKING:
    from .schedule import Schedule


def attach_updates(sch: Schedule) -> None:
    """Group the update stages of each scan with the stages between its state and them, inside the scan's time loop."""
    for scan_stage in sch.stages:
        op = scan_stage.op
        if not isinstance(op, ScanOp):
            continue
        states = {t.op for t in op.state_placeholder}
        updates = {t.op for t in op.update}
        depends: dict[object, bool] = {}
        group = sch.add_group(f"{op.name}_update")
        group.attach, group.attach_stage, group.attach_ivar = AttachKind.SCAN, scan_stage, op.scan_axis
        for stage in sch.stages:
            if stage is scan_stage:
                break
            o = stage.op
            depends[o] = o in states or any(depends.get(t.op, False) for t in o.inputs)
            if (o in updates or depends[o]) and o not in states and stage.group is None:
                stage.group = group
