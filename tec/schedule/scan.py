"""Scans: their updates are computed inside the time loop, and work-groups that run it side by side keep to what is their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import build as B
from ..ir import expr as E
from ..ir.arith.int_set import IntSet
from ..ir.buffer import GLOBAL
from ..ir.build import is_const
from ..ir.visit import free_vars
from ..te.operation import ComputeOp, ScanOp
from .intervals import Evaluator
from .relations import Fuse, Relation, Split
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
    """Refuse scans whose time loop runs in several work-groups that read each other's values: `env_threads` puts the loop inside of one kernel, and blockIdx
    is among its indices, or bound by a stage inside.

    Nothing makes one work-group wait for another within a kernel: at each step a work-group may read of global memory only what it
    wrote itself. In a time loop outside of the kernels, one launch a step, there is no such race.
    """
    for scan in bounds.sch.stages:
        if isinstance(scan.op, ScanOp) and scan.env:
            inside = [s for s in bounds.sch.stages if any(p is scan for p, _ in bounds.path(s))]
            tagged = [
                *((iv.thread_tag, iv) for iv in scan.env),
                *((s.thread_of(iv), iv) for s in inside for iv in s.leaf),
            ]
            blocks: dict[str, E.IterVar] = {}
            for tag, iv in tagged:
                if tag.startswith("blockIdx") and not bounds.single(iv):
                    blocks.setdefault(tag, iv)
            if blocks:
                _WorkGroups(bounds, scan, scan.op, blocks, inside).check()


class _WorkGroups:
    """One scan; `blocks`: the work-group indices of its kernel, by tag; `inside`: the stages in its time loop."""

    def __init__(self, bounds: Bounds, scan: Stage, op: ScanOp, blocks: dict[str, E.IterVar], inside: list[Stage]):
        self.bounds = bounds
        self.scan = scan
        self.op = op
        self.blocks = blocks
        self.inside = inside
        self.parts: dict[tuple[str, ...], IntSet] = {}

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

    def _own(self, stage: Stage) -> dict[E.Var, IntSet]:
        """What one work-group covers of each axis of a stage in one step of the time loop."""
        bounds = self.bounds
        intervals: Intervals = {iv: self._span(stage, iv) for iv in stage.leaf}
        for rel in reversed(stage.relations):
            if not self._scattered(rel, intervals):
                rel.domain_up(intervals, bounds.ranges, bounds.arith)
        # Where the stage is computed at other stages' loops, its ranges begin at what depends on them.
        around = {iv.var: self._span(s, iv) for s, iv in bounds.path(stage) if s is not self.scan}
        outer = Evaluator(around, bounds.arith)
        out: dict[E.Var, IntSet] = {}
        for iv in stage.op.root_iter_vars():
            lo, hi = intervals.get(iv) or IntSet.from_range(bounds.ranges[iv])
            if around and lo is not None and hi is not None:
                lo, hi = outer(bounds.arith.simplify(lo)).min, outer(bounds.arith.simplify(hi)).max
            out[iv.var] = IntSet(lo, hi)
        return out

    def _scattered(self, rel: Relation, intervals: Intervals) -> bool:
        """Intervals of axes whose part of a work-group is none, where `domain_up` gives one that covers it: of fused axes, and of a split whose inner loop is
        over work-groups. A name of its own stands for such a part, one for all that are split alike: an element is in it where it has the same index."""
        ranges, arith = self.bounds.ranges, self.bounds.arith
        if isinstance(rel, Fuse):
            s = intervals.get(rel.fused)
            if s is None or s.min is None or s.max is None or s.is_point or not self._by_group(s):
                return False
            outer, inner = ranges[rel.outer], ranges[rel.inner]
            for one, other, at in ((outer, inner, rel.inner), (inner, outer, rel.outer)):
                if is_const(arith.simplify(one.extent), 1):
                    intervals[rel.outer if at is rel.inner else rel.inner] = IntSet.point(one.min)
                    intervals[at] = IntSet(
                        arith.simplify(B.add(s.min, other.min)), arith.simplify(B.add(s.max, other.min))
                    )
                    return True
            if arith.equal(B.floordiv(s.min, inner.extent), B.floordiv(s.max, inner.extent)):
                return False
            parts = (s.min, s.max, outer.min, outer.extent, inner.min, inner.extent)
            intervals[rel.outer], intervals[rel.inner] = self._part("outer", parts), self._part("inner", parts)
            return True
        if isinstance(rel, Split) and rel.outer in intervals and rel.inner in intervals:
            o, i = intervals[rel.outer], intervals[rel.inner]
            if o.is_point or not self._by_group(i) or None in (*o, *i):
                return False
            whole = ranges[rel.parent]
            intervals[rel.parent] = self._part("split", (*o, *i, ranges[rel.inner].extent, whole.min, whole.extent))
            return True
        return False

    def _by_group(self, s: IntSet) -> bool:
        """Whether an interval is another one in another work-group."""
        mine = {*(id(iv.var) for iv in self.blocks.values()), *(id(p.min) for p in self.parts.values())}
        return any(id(v) in mine for end in s if end is not None for v in free_vars(end))

    def _part(self, what: str, ends: tuple[E.Expr | None, ...]) -> IntSet:
        plain = [self.bounds.arith.simplify(e) for e in ends if e is not None]
        key = (what, *map(str, plain), *(str(id(v)) for e in plain for v in free_vars(e)))
        return self.parts.setdefault(key, IntSet.point(E.Var(f"{what}_part{len(self.parts)}", "int32")))

    def _span(self, stage: Stage, iv: E.IterVar) -> IntSet:
        """A work-group does one step of a loop over its index, and all steps of others."""
        block = self.blocks.get(stage.thread_of(iv))
        if block is not None and not self.bounds.single(iv):
            return IntSet.point(block.var)
        return IntSet.from_range(self.bounds.ranges[iv])

    def _within(self, inner: IntSet, outer: IntSet) -> bool:
        if inner.min is None or inner.max is None or outer.min is None or outer.max is None:
            return False
        arith = self.bounds.arith
        return arith.le(arith.simplify(outer.min), arith.simplify(inner.min)) and arith.le(
            arith.simplify(inner.max), arith.simplify(outer.max)
        )

    def _refuse(self, writer: Stage, reader: Stage, axis: E.IterVar) -> Exception:
        tags = ", ".join(self.blocks)
        return fail(
            self.bounds.sch, f"the time loop of {self.scan.name} runs in several work-groups ({tags}), and {reader.name} reads what "
            f"other work-groups write of {writer.name} along {axis.name}: they do not wait for each other",
            mark=writer, note="written here",
            hint=f"give each work-group the part of {writer.name} that it reads, or leave {tags} out of the scan: without env_threads each step is a launch",
        )  # fmt: skip
