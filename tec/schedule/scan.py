"""Scans: their updates are computed inside the time loop, and work-groups that run it side by side keep to what is their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import expr as E
from ..ir.buffer import GLOBAL
from ..te.operation import ComputeOp, ScanOp
from .intervals import Evaluator, Interval, from_range, point
from .show import fail
from .state import AttachKind

if TYPE_CHECKING:
    from .bounds import Bounds
    from .relations import Intervals
    from .schedule import Schedule
    from .stage import Stage


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


def check_work_groups(bounds: Bounds) -> None:
    """Refuse scans whose time loop runs in several work-groups (`env_threads` with blockIdx) that read each other's values.

    Nothing makes one work-group wait for another within a kernel: at each step a work-group may read of global memory only what it
    wrote itself. In a time loop outside of the kernels, one launch a step, there is no such race.
    """
    for scan in bounds.sch.stages:
        blocks = {
            iv.thread_tag: iv for iv in scan.env if iv.thread_tag.startswith("blockIdx") and not bounds.single(iv)
        }
        if isinstance(scan.op, ScanOp) and blocks:
            _WorkGroups(bounds, scan, scan.op, blocks).check()


class _WorkGroups:
    """One scan; `blocks`: the work-group indices around it, by tag."""

    def __init__(self, bounds: Bounds, scan: Stage, op: ScanOp, blocks: dict[str, E.IterVar]):
        self.bounds = bounds
        self.scan = scan
        self.op = op
        self.blocks = blocks
        self.inside = [s for s in bounds.sch.stages if any(p is scan for p, _ in bounds.path(s))]

    def check(self) -> None:
        stage_of = self.bounds.sch.stage_map
        states = {(t.op, t.value_index): k for k, t in enumerate(self.op.state_placeholder)}
        for reader in self.inside:
            if not isinstance(reader.op, ComputeOp):
                continue
            evaluate = Evaluator(self._own(reader), self.bounds.arith)
            for read in self.bounds.reads(reader.op):
                k = states.get((read.tensor.op, read.tensor.value_index))
                writer = stage_of.get((self.op.update[k] if k is not None else read.tensor).op)
                if writer not in self.inside or not self.bounds.scope(writer).startswith(GLOBAL):
                    continue
                # Of the state, an earlier step's row is read: all of space counts, the time does not.
                first = 1 if self.bounds.scans.get(id(writer)) is self.scan else 0
                regions = [evaluate(self.bounds.arith.simplify(i)) for i in read.indices]
                written = self._own(writer)
                for axis, region in list(zip(writer.op.axis, regions))[first:]:
                    if not self._within(region, written[axis.var]):
                        raise self._refuse(writer, reader, axis)

    def _own(self, stage: Stage) -> dict[E.Var, Interval]:
        """What one work-group covers of each axis of a stage in one step of the time loop."""
        bounds = self.bounds
        intervals: Intervals = {iv: self._span(stage, iv) for iv in stage.leaf}
        for rel in reversed(stage.relations):
            rel.domain_up(intervals, bounds.ranges, bounds.arith)
        # Where the stage is computed at other stages' loops, its ranges begin at what depends on them.
        around = {iv.var: self._span(s, iv) for s, iv in bounds.path(stage) if s is not self.scan}
        outer = Evaluator(around, bounds.arith)
        out: dict[E.Var, Interval] = {}
        for iv in stage.op.root_iter_vars():
            lo, hi = intervals.get(iv) or from_range(bounds.ranges[iv])
            if around and lo is not None and hi is not None:
                lo, hi = outer(bounds.arith.simplify(lo)).lo, outer(bounds.arith.simplify(hi)).hi
            out[iv.var] = Interval(lo, hi)
        return out

    def _span(self, stage: Stage, iv: E.IterVar) -> Interval:
        """A work-group does one step of a loop over its index, and all steps of others."""
        block = self.blocks.get(stage.thread_of(iv))
        if block is not None and not self.bounds.single(iv):
            return point(block.var)
        return from_range(self.bounds.ranges[iv])

    def _within(self, inner: Interval, outer: Interval) -> bool:
        if inner.lo is None or inner.hi is None or outer.lo is None or outer.hi is None:
            return False
        arith = self.bounds.arith
        return arith.le(arith.simplify(outer.lo), arith.simplify(inner.lo)) and arith.le(
            arith.simplify(inner.hi), arith.simplify(outer.hi)
        )

    def _refuse(self, writer: Stage, reader: Stage, axis: E.IterVar) -> Exception:
        tags = ", ".join(self.blocks)
        return fail(
            self.bounds.sch, f"the time loop of {self.scan.name} runs in several work-groups ({tags}), and {reader.name} reads what "
            f"other work-groups write of {writer.name} along {axis.name}: they do not wait for each other",
            mark=writer, note="written here",
            hint=f"give each work-group the part of {writer.name} that it reads, or leave {tags} out of env_threads",
        )  # fmt: skip
