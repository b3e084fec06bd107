"""Bound inference: the range of every loop, from consumers to producers.

In: a normalized Schedule and the stages that must be computed whole. Out: a Range for each IterVar. For each stage, in
reverse order: `demand` of every consumer (which of its loops run while one step of the attachment loop does, hence
which part of the tensor is read), `union` over consumers, `extents_down` through the relations. A loop of the consumer
runs ("is relaxed") where it is inside the attachment; a launch index is relaxed where the memory scope is shared by its
threads: every index for global memory, threadIdx for shared memory, none for registers. After TVM's te (InferBound).
"""

from __future__ import annotations

from ..ir import build as B
from ..ir import expr as E
from ..ir.arith.int_set import IntSet
from ..ir.buffer import FRAGMENT_SCOPES, GLOBAL, LOCAL, SHARED
from ..ir.visit import free_vars, substitute, walk_exprs
from ..te.operation import ComputeOp, ExternOp, PlaceholderOp, ScanOp
from .index_arith import IndexArith
from .intervals import Evaluator, cover, union
from .reads import Read, body_reads
from .relations import Intervals, Ranges, Split, check_counts
from .scan import check_work_groups
from .schedule import Schedule
from .show import fail, fixed_loops
from .stage import Stage
from .state import AttachKind, scope_rank, thread_rank

Region = list[IntSet]


class _MoreThreadsError(Exception):
    """Internal: a stage needs more threads than a loop around it has, whose splits may say as many: its argument."""


class Bounds:
    """What bound inference finds: `ranges` of all loops, `arith` about their variables."""

    def __init__(self, sch: Schedule, whole: set[Stage], needed: set[E.IterVar]):
        self.sch = sch
        self.whole = whole
        self.needed = needed  # loops over threads that keep the extents of their splits
        self.ranges: Ranges = {}
        self.arith = IndexArith()
        self.paths: dict[int, list[tuple[Stage, E.IterVar]]] = {}
        self.scopes: dict[int, str] = {}
        self._loops: dict[int, tuple[Stage, E.IterVar]] = {}  # loop variable -> its loop
        # Of a stage in registers that is computed outside of its readers' thread loops: these loops, by their variables.
        self.own_threads: dict[int, dict[E.Var, tuple[Stage, E.IterVar]]] = {}
        self.scans: dict[int, Stage] = {}  # an update or init stage -> its scan
        for s in sch.stages:
            if isinstance(s.op, ScanOp):
                self.scans.update((id(sch.stage_map[t.op]), s) for t in (*s.op.update, *s.op.init))
        self._reads: dict[int, list[Read]] = {}
        self._readers: dict[int, list[Stage]] = {}
        self._envs: dict[tuple[int, int, int], Evaluator] = {}
        self._bind_symbols()

    def _bind_symbols(self) -> None:
        """Shapes are not negative; an operation's own axes stay within their domains."""
        for stage in self.sch.stages:
            op = stage.op
            for t in op.outputs:
                for d in t.shape:
                    if isinstance(d, E.Var):
                        self.arith.bind(d, 0, None)
        for stage in self.sch.stages:
            for iv in stage.op.root_iter_vars():
                if iv.dom is not None:
                    self._bind(iv.var, iv.dom)

    def _bind(self, var: E.Var, r: E.Range) -> None:
        self.arith.bind(var, *self._value_bounds(r))

    def readers(self, stage: Stage) -> list[Stage]:
        """The stages that read an output of `stage`, in order."""
        if not self._readers:
            for s in self.sch.stages:
                for source in dict.fromkeys(
                    self.sch.stage_map[t.op] for t in s.op.inputs if t.op in self.sch.stage_map
                ):
                    self._readers.setdefault(id(source), []).append(s)
        return self._readers.get(id(stage), [])

    # ---- attachment

    def path(self, stage: Stage) -> list[tuple[Stage, E.IterVar]]:
        """The loops around a stage, innermost first."""
        hit = self.paths.get(id(stage))
        if hit is not None:
            return hit
        out: list[tuple[Stage, E.IterVar]] = []
        at = stage.placement
        while at.attach in (AttachKind.SCOPE, AttachKind.SCAN):
            parent, iv = at.attach_stage, at.attach_ivar
            assert parent is not None
            k = next((k for k, x in enumerate(parent.leaf) if x is iv), None)
            if k is None:
                raise fail(
                    self.sch, f"{stage.name} is computed at a loop of {parent.name} that is no more", mark=stage,
                    hint="split and fuse first, then compute_at",
                )  # fmt: skip
            out += [(parent, x) for x in reversed(parent.leaf[: k + 1])]
            at = parent.placement
        self.paths[id(stage)] = out
        return out

    def scope(self, stage: Stage) -> str:
        """The memory scope: as set, else by the launch indices around: none global, blockIdx shared, threadIdx local."""
        if stage.scope:
            return stage.scope
        scan = self.scans.get(id(stage))
        if scan is not None:  # its rows are the scan's own
            return self.scope(scan)
        hit = self.scopes.get(id(stage))
        if hit is None:
            rank = max((thread_rank(s.thread_of(iv)) for s, iv in self.path(stage)), default=-1)
            hit = self.scopes[id(stage)] = (GLOBAL, SHARED, LOCAL)[rank + 1]
        return hit

    # ---- the inference

    def infer(self) -> None:
        for stage in reversed(self.sch.stages):
            if isinstance(stage.op, PlaceholderOp):
                continue
            self._root_ranges(stage)
            self._pass_down(stage)
        check_work_groups(self)

    def _root_ranges(self, stage: Stage) -> None:
        op = stage.op
        for iv in op.root_iter_vars():
            assert iv.dom is not None
            self.ranges[iv] = iv.dom
        at = stage.placement
        if stage in self.whole or not isinstance(op, ComputeOp):
            if at.attach == AttachKind.SCOPE and not isinstance(op, ComputeOp):
                self._check_inside(stage)
            return
        demand: Region | None = None
        for consumer in self.readers(stage):
            region = self._demand(stage, consumer)
            if region is None:
                continue
            demand = region if demand is None else [union(a, b, self.arith) for a, b in zip(demand, region)]
        if demand is None:
            return
        for iv, interval, tile in zip(op.axis, demand, _tile_extents(stage)):
            assert iv.dom is not None
            dtype = iv.var.dtype
            r = _whole_tiles(cover(self._clamp(interval, iv.dom.extent), iv.dom, self.arith), iv.dom, tile)
            self.ranges[iv] = E.Range(B.cast(dtype, r.min), B.cast(dtype, r.extent))
            self._check_in_scope(stage, self.ranges[iv])
            self.arith.bind(iv.var, *self._value_bounds(self.ranges[iv]))

    def _value_bounds(self, r: E.Range) -> tuple[int | None, int | None]:
        if type(r.min) is E.IntImm and type(r.extent) is E.IntImm and abs(r.min.value) + abs(r.extent.value) < 1 << 31:
            return r.min.value, r.min.value + r.extent.value - 1
        lo = self.arith.bounds(r.min)[0]
        return lo, self.arith.bounds(B.sub(B.add(r.min, r.extent), 1))[1]

    def _pass_down(self, stage: Stage) -> None:
        fixed = fixed_loops(stage, self.needed)
        for iv in stage.env:
            assert iv.dom is not None
            self.ranges[iv] = iv.dom
            self._bind(iv.var, iv.dom)
        for r in stage.relations:
            r.extents_down(self.ranges, fixed)
            check_counts(r, self.ranges)
            for child in r.children:
                extent = self.arith.simplify(self.ranges[child].extent)
                self.ranges[child] = E.Range(self.ranges[child].min, extent)
            self._assume(r.asked(self.ranges) if isinstance(r, Split) else None)
        for iv in stage.leaf:
            self._loops[id(iv.var)] = (stage, iv)
        for iv in stage.all:
            if iv in self.ranges:
                self._bind(iv.var, self.ranges[iv])
        for iv in stage.leaf:
            thread = stage.attrs[iv].thread if iv in stage.attrs else None
            if thread is not None and thread.dom is not None:
                have, most = self.ranges[iv].extent, thread.dom.extent
                if not self.arith.le(have, most) and isinstance(have, E.IntImm):
                    raise fail(
                        self.sch, f"loop {iv.name} of {stage.name} has {have} steps and is bound to {thread.thread_tag} of extent {most}",
                        mark=iv, hint=f"split by factor={most}, or leave the thread axis without an extent",
                    )  # fmt: skip

        self._check_private(stage)
        self._check_nested_threads(stage)

    def _assume(self, asked: E.Expr | None) -> None:
        """What a split asks of sizes holds wherever the loops run (`to_loops` asserts it); of a loop around them it is refused there."""
        if asked is not None and not any(id(v) in self._loops for v in free_vars(asked)):
            self.arith.assume(asked)

    def private(self, stage: Stage, iv: E.IterVar) -> bool:
        """Whether loop `iv` is bound to a launch index each of whose values has the stage's memory for itself."""
        tag = stage.thread_of(iv)
        return bool(tag) and scope_rank(self.scope(stage)) > thread_rank(tag)

    def _check_private(self, stage: Stage) -> None:
        """Memory that each thread has for itself is filled by that thread: its loops are not spread over threads.

        A reduction over threads may end there, since each of them gets the result; not inside of another loop over
        the same threads.
        """
        if stage in self.whole or isinstance(stage.op, PlaceholderOp):
            return
        around = {s.thread_of(iv) for s, iv in self.path(stage)}
        self._check_lifetime(stage, around)
        for iv in stage.leaf:
            tag = stage.thread_of(iv)
            if not self.private(stage, iv) or self.single(iv) or (iv.kind == E.IterKind.REDUCE and tag not in around):
                continue
            owner = "work-group" if tag.startswith("blockIdx") else "thread"
            raise fail(
                self.sch, f"{stage.name} lives in {self.scope(stage)} memory, which each {owner} has for itself, but its loop "
                f"{iv.name} is bound to {tag}: each would compute only a part of what it reads",
                mark=iv, hint=f'leave the loop serial, or s[{stage.name}].set_scope("{SHARED if owner == "thread" else GLOBAL}")',
            )  # fmt: skip

    def _check_nested_threads(self, stage: Stage) -> None:
        """A loop over a launch index inside of another over the same one: the threads beyond the outer loop do nothing."""
        outside = [(s, iv) for s, iv in self.path(stage)]
        readers = [(s, iv) for s in self.readers(stage) for iv in s.leaf]
        for iv in stage.leaf:
            tag = stage.thread_of(iv)
            if tag in ("", "vthread"):
                continue
            have = self.ranges[iv].extent
            for s, outer in outside:
                if s.thread_of(outer) == tag and not self.arith.le(have, self.ranges[outer].extent):
                    if outer not in self.needed and tag.startswith("threadIdx"):
                        raise _MoreThreadsError(outer)
                    raise fail(
                        self.sch, f"loop {iv.name} of {stage.name} needs {have} steps of {tag}, inside of loop {outer.name} of "
                        f"{s.name}, which has {self.ranges[outer].extent}: the other threads are switched off there",
                        mark=iv, hint=f"split by the {self.ranges[outer].extent} threads that are there",
                    )  # fmt: skip
            if iv.kind != E.IterKind.REDUCE or not self.private(stage, iv):
                continue
            for s, other in readers:
                if s.thread_of(other) == tag and not self.arith.le(self.ranges[other].extent, have):
                    raise fail(
                        self.sch, f"{stage.name} is reduced by {have} threads of {tag} into their {self.scope(stage)} memory, and "
                        f"loop {other.name} of {s.name}, which reads it, has {self.ranges[other].extent}",
                        mark=iv, hint=f'use as many threads, or s[{stage.name}].set_scope("{SHARED}")',
                    )  # fmt: skip

    def _check_lifetime(self, stage: Stage, around: set[str]) -> None:
        """Shared memory and registers last as long as a kernel: who fills and who reads them is inside of one."""
        scope = self.scope(stage)
        if scope_rank(scope) == 0 or around - {"", "vthread"}:
            return
        for s in (stage, *self.readers(stage)):
            for iv in s.leaf:
                if s.thread_of(iv) not in ("", "vthread"):
                    raise fail(
                        self.sch, f"{stage.name} lives in {scope} memory, which lasts for one kernel, but is computed outside of "
                        f"loop {iv.name} of {s.name}, where a kernel begins ({s.thread_of(iv)})",
                        mark=iv, note="the kernel", hint=f"s[{stage.name}].compute_at a loop inside of it, or use global memory",
                    )  # fmt: skip

    def _check_in_scope(self, stage: Stage, r: E.Range) -> None:
        """The region of a stage depends on loops around it alone."""
        inside = {id(iv.var) for _, iv in self.path(stage)}
        for v in (*free_vars(r.min), *free_vars(r.extent)):
            found = self._loops.get(id(v))
            if found is None or id(v) in inside:
                continue
            other, iv = found
            own = self.own_threads.setdefault(id(stage), {})
            tag = other.thread_of(iv)
            same = [v2 for v2, (s, x) in own.items() if s.thread_of(x) == tag]
            private_to = {LOCAL: "threadIdx", SHARED: "blockIdx"}.get(self.scope(stage))
            if self.scope(stage) == SHARED and not self._is_in_kernel(stage):
                private_to = None  # it would end with the kernel that fills it
            if private_to and tag.startswith(private_to) and same in ([], [v]):
                own[v] = found  # each thread, or work-group, computes the part that it reads
                continue
            raise fail(
                self.sch, f"{stage.name} lives in {self.scope(stage)} memory, but is computed outside of loop {iv.name} of "
                f"{other.name}, which is bound to {other.thread_of(iv)}: each thread needs another part of it",
                mark=iv, note="this loop",
                hint=f"compute it inside: s[{stage.name}].compute_at(s[{other.name}], {iv.name}), or set_scope to memory that is shared",
            )  # fmt: skip

    def _is_in_kernel(self, stage: Stage) -> bool:
        """Whether a loop around a stage is bound to a launch index."""
        return any(s.thread_of(iv) not in ("", "vthread") for s, iv in self.path(stage))

    def single(self, iv: E.IterVar) -> bool:
        """Whether a loop has one step."""
        extent = self.ranges[iv].extent
        return isinstance(extent, E.IntImm) and extent.value == 1

    def _check_inside(self, stage: Stage) -> None:
        for consumer in self.readers(stage):
            self._relaxed(stage, consumer)

    # ---- demand

    def _relaxed(self, stage: Stage, consumer: Stage) -> tuple[dict[E.IterVar, bool], dict[E.Var, IntSet]]:
        """Which loops of `consumer` run while `stage` stays in memory, and the loops around it that do too."""
        at = stage.placement
        rank = scope_rank(self.scope(stage))
        found = False

        def runs(s: Stage, iv: E.IterVar) -> bool:
            tag = s.thread_of(iv)
            # A thread's registers hold the parts of all virtual threads inside of where they are filled.
            if tag in ("", "vthread") and not found:
                return True
            return bool(tag) and rank <= thread_rank(tag)

        own: dict[E.IterVar, bool] = {}
        around: dict[E.Var, IntSet] = {}
        for iv in reversed(consumer.leaf):
            if at.attach_stage is consumer and at.attach_ivar is iv:
                found = True
            own[iv] = runs(consumer, iv)
        for s, iv in self.path(consumer):
            if at.attach_stage is s and at.attach_ivar is iv:
                found = True
            if runs(s, iv):
                around[iv.var] = IntSet.from_range(self.ranges[iv])
        for v, (s, iv) in self.own_threads.get(id(consumer), {}).items():
            if runs(s, iv):
                around[v] = IntSet.from_range(self.ranges[iv])
        if not found and at.attach in (AttachKind.SCOPE, AttachKind.SCAN):
            parent = at.attach_stage
            assert parent is not None and at.attach_ivar is not None
            raise fail(
                self.sch, f"{stage.name} is computed in loop {at.attach_ivar.name} of {parent.name}, but {consumer.name}, which reads it, is not",
                mark=consumer, note="reads it outside",
                hint=f"s[{stage.name}].compute_root(), or compute {consumer.name} in the same loop",
            )  # fmt: skip
        return own, around

    def _evaluator(self, stage: Stage, consumer: Stage) -> Evaluator:
        """Evaluates expressions over the axes of `consumer` to what it covers while one copy of `stage` is live."""
        at = stage.placement
        key = (id(consumer), id(at.attach_ivar), scope_rank(self.scope(stage)))
        hit = self._envs.get(key)
        if hit is not None:
            return hit
        own, around = self._relaxed(stage, consumer)
        intervals: Intervals = {}
        for iv, runs in own.items():
            r = self.ranges[iv]
            if isinstance(r.extent, E.IntImm) and r.extent.value == 1:
                intervals[iv] = IntSet.point(r.min)
            else:
                intervals[iv] = IntSet.from_range(r) if runs else IntSet.point(iv.var)
        for rel in reversed(consumer.relations):
            rel.domain_up(intervals, self.ranges, self.arith)
        outer = Evaluator(around, self.arith) if around else None
        env: dict[E.Var, IntSet] = {}
        for iv in consumer.op.root_iter_vars():
            s = intervals.get(iv) or IntSet.from_range(self.ranges[iv])
            lo, hi = s
            if outer is not None and lo is not None and hi is not None:
                low = outer(self.arith.simplify(lo))
                s = low if s.is_point else IntSet(low.min, outer(self.arith.simplify(hi)).max)
            env[iv.var] = s
        hit = self._envs[key] = Evaluator(env, self.arith)
        return hit

    def _demand(self, stage: Stage, consumer: Stage) -> Region | None:
        op = consumer.op
        if isinstance(op, ComputeOp):
            return self._demand_compute(stage, consumer, op)
        if isinstance(op, ScanOp):
            return self._demand_scan(stage, consumer, op)
        if isinstance(op, ExternOp):
            self._relaxed(stage, consumer)
            return [IntSet(B.const(0, d.dtype), B.sub(d, 1)) for d in stage.op.output(0).shape]
        return None

    def _demand_compute(self, stage: Stage, consumer: Stage, op: ComputeOp) -> Region | None:
        evaluate = self._evaluator(stage, consumer)
        out: Region | None = None
        for read in self.reads(op):
            if self.sch.stage_map.get(read.tensor.op) is not stage:
                continue
            indices = [self.arith.simplify(i) for i in read.indices]
            region = [
                self._clamp(self._digit(stage, consumer, i, evaluate(i)), d) for i, d in zip(indices, read.tensor.shape)
            ]
            out = region if out is None else [union(a, b, self.arith) for a, b in zip(out, region)]
        return out

    def _digit(self, stage: Stage, consumer: Stage, index: E.Expr, found: IntSet) -> IntSet:
        """What a remainder of a consumer's axes covers: less than `found` where the axes' values lie apart, as of rows of pixels counted through. Loops in place of the axes say so."""
        if found.is_point or not any(type(e) is E.FloorMod for e in walk_exprs(index)):
            return found
        own, around = self._relaxed(stage, consumer)
        values: dict[E.IterVar, E.Expr] = {iv: iv.var for iv in own}
        for rel in reversed(consumer.relations):
            rel.index_up(values, self.ranges)
        axes = {iv.var: values[iv] for iv in consumer.op.root_iter_vars() if iv in values}
        env = around | {iv.var: IntSet.from_range(self.ranges[iv]) for iv, runs in own.items() if runs}
        loops = Evaluator(env, self.arith)(self.arith.simplify(substitute(index, axes)))
        extents = [self._extent(s) for s in (loops, found)]
        return loops if extents[0] is not None and (extents[1] is None or extents[0] < extents[1]) else found

    def _extent(self, s: IntSet) -> int | None:
        if s.min is None or s.max is None:
            return None
        return self.arith.constant(self.arith.simplify(B.sub(s.max, s.min)))

    def _demand_scan(self, stage: Stage, consumer: Stage, op: ScanOp) -> Region | None:
        """The update is needed for one time (a point of the time loop) and all of space; the init whole."""
        t = stage.op.output(0)
        if any(self.sch.stage_map.get(i.op) is stage for i in op.init):
            step = next((iv for s, iv in self.path(stage) if s is consumer), None)
            if step is not None:
                raise fail(
                    self.sch, f"{stage.name}, the start of scan {consumer.name}, is computed in its loop {step.name}, at every step",
                    mark=step, note="computed here", hint=f"s[{stage.name}].compute_root(), or compute it where the scan is",
                )  # fmt: skip
        full = [IntSet(B.const(0, d.dtype), B.sub(d, 1)) for d in t.shape]
        if any(self.sch.stage_map.get(u.op) is stage for u in op.update):
            evaluate = self._evaluator(stage, consumer)
            full[0] = evaluate(op.scan_axis.var)
        return full

    def _clamp(self, s: IntSet, extent: E.Expr) -> IntSet:
        """Reads outside of the shape are guarded by whoever makes them: an end that is surely outside moves in."""
        arith, zero = self.arith, B.const(0, extent.dtype)
        last = B.sub(extent, 1)
        if s.min is None or s.max is None:
            return IntSet()
        lo, hi = s.min, s.max
        if s.is_point:
            return s
        if arith.le(lo, zero) and (arith.le(zero, hi) or arith.le(last, hi)):
            lo = zero
        if arith.le(last, hi) and (arith.le(lo, last) or lo is zero):
            hi = last
        return s if lo is s.min and hi is s.max else IntSet(lo, hi)

    def reads(self, op: ComputeOp) -> list[Read]:
        """Every access in the body of `op`."""
        hit = self._reads.get(id(op))
        if hit is None:
            hit = self._reads[id(op)] = body_reads(op)
        return hit


def _tile_extents(stage: Stage) -> list[int]:
    """What the extents of a stage's axes are multiples of: those of the register tiles that an instruction fills, where it has some."""
    rank = len(stage.op.axis)
    intrins = [a.intrin for a in stage.attrs.values() if a.intrin is not None and a.intrin.ragged]
    if not intrins or stage.scope not in (*FRAGMENT_SCOPES, "local"):
        return [1] * rank
    tile = [n.value if isinstance(n, E.IntImm) else 1 for n in intrins[0].op.output(0).shape]
    return [1] * (rank - len(tile)) + tile


def _whole_tiles(r: E.Range, dom: E.Range, tile: int) -> E.Range:
    """A range filled up to whole tiles where its domain has as many: of a product smaller than a tile the rest is computed as well, and not stored."""
    if tile == 1 or not isinstance(r.extent, E.IntImm) or not isinstance(dom.extent, E.IntImm):
        return r
    whole = -(-r.extent.value // tile) * tile
    is_within = isinstance(r.min, E.IntImm) and r.min.value + whole <= dom.extent.value
    return E.Range(r.min, B.const(whole, r.extent.dtype)) if is_within else r


def infer_bounds(sch: Schedule, whole: set[Stage] | None = None) -> Bounds:
    """The ranges of all loops of a normalized schedule; `whole` (the outputs by default) are computed in full."""
    full = set(whole or ())
    full.update(s for s in sch.stages if s.is_output)
    needed: set[E.IterVar] = set()
    while True:
        bounds = Bounds(sch, full, needed)
        try:
            bounds.infer()
        except _MoreThreadsError as more:
            needed.update(more.args)
        else:
            return bounds
