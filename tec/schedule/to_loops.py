"""From a schedule to loop IR.

In: a Schedule and the function's parameters. Out: a Func of stage "loops": multi-dimensional loads and stores, an Alloc
for each intermediate where it is attached and of the size needed there, loops with their kinds, guards as
`if likely(cond)` where a split does not divide, AllReduce for reductions over threads.

`lower_stage` modules: reductions in `reduction.py`, tensor intrinsics in `tensorize.py`, externs and scans in
`regions.py`; this one walks the tree of attachments.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ..errors import LoweringError, caller_loc
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.arith.int_set import IntSet
from ..ir.buffer import Buffer
from ..ir.func import Func
from ..ir.notes import ImportLlvm
from ..ir.visit import Rewriter, free_vars, substitute, substitute_stmt
from ..te.operation import ComputeOp, ExternOp, PlaceholderOp, ScanOp
from .bounds import Bounds, infer_bounds
from .inner_outputs import copy_out, split_off
from .intervals import Evaluator
from .normalize import normalize
from .parameters import Parameters
from .reads import check_reads
from .reduction import lower_reduction
from .regions import lower_extern, lower_scan, prefetch_stmt
from .relations import Split, Values, guarded_loops
from .schedule import Schedule
from .show import fail
from .stage import Stage
from .state import AttachKind, LoopAttr
from .storage import Storage, StorageMap
from .tensorize import lower_tensorized, tensorized_at

_SERIAL = LoopAttr()
_KINDS = {
    "serial": S.ForKind.SERIAL, "parallel": S.ForKind.PARALLEL, "vectorized": S.ForKind.VECTORIZED,
    "unrolled": S.ForKind.UNROLLED,
}  # fmt: skip


def to_loops(
    sch: Schedule,
    args: Sequence[Any],
    name: str = "main",
    binds: dict[Any, Buffer] | None = None,
    on_cpu: bool = False,
    reads_checked: bool = True,
) -> Func:
    """The loop IR of a schedule.

    args: the parameters in call order: Tensors, Buffers (with `binds`: {tensor: buffer}) and Vars; all inputs and
    outputs must be there. on_cpu: GPUs' scopes are memory like all other, of any size. reads_checked: a read that is certain to leave its tensor is refused. Returns a Func of stage "loops". Raises ScheduleError, LoweringError, ArgumentError.

    >>> A = te.placeholder((8,), name="A")
    >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    >>> print(tec.schedule.to_loops(te.create_schedule(B.op), [A, B]))
    @attrs(writes=('B',))
    def main(A: Buffer((8,), "float32"), B: Buffer((8,), "float32")):
        for i in range(8):
            B[i] = A[i] + 1.0
    """
    given = Parameters(sch, args, binds)
    if reads_checked:
        check_reads(sch)
    norm = normalize(sch)
    index = {id(s): t for s, t in zip(sch.stages + sch.groups, _twins(sch, norm)) if t is not None}
    tensors: dict[tuple[int, int], Buffer] = {}
    untouched: set[int] = set()
    for stage, k, buffer in given.order:
        twin = index.get(id(stage))
        if twin is None or twin not in norm.stages:
            what = f"parameter {stage.name} is inlined: the function takes its buffer and leaves it as it is"
            warnings.warn(what, stacklevel=2)
            untouched.add(id(buffer))
            continue
        tensors[(id(twin), k)] = buffer
    inner = split_off(norm, tensors)
    whole = {s for s in norm.stages if any((id(s), k) in tensors for k in range(s.op.num_outputs))}
    bounds = infer_bounds(norm, whole)
    storage = StorageMap(norm, bounds, tensors, on_cpu)
    low = Lowering(norm, bounds, storage, inner)
    body = low.run()
    written = [b for s, _, b in given.order if not isinstance(s.op, PlaceholderOp) and id(b) not in untouched]
    writes = [b.name for b in written]
    attrs: dict[str, Any] = {"writes": tuple(writes), "loc": caller_loc()}
    if given.complex:
        attrs["complex"] = tuple(given.complex)
    if low.imports:
        attrs["import_llvm"] = tuple(low.imports)
    return Func(name, tuple(given.params), body, attrs)


def _twins(sch: Schedule, norm: Schedule) -> list[Stage | None]:
    """The normalized schedule's stage of each stage and group."""
    out: list[Stage | None] = [norm.stage_map.get(s.op) for s in sch.stages]
    return out + [None] * len(sch.groups)


class Lowering:
    """Makes the loops of every stage; see the module."""

    def __init__(self, sch: Schedule, bounds: Bounds, storage: StorageMap, inner: dict[tuple[int, int], Buffer]):
        self.sch = sch
        self.inner = inner  # parameters that are computed in storage of each thread's own
        self.bounds = bounds
        self.arith = bounds.arith
        self.ranges = bounds.ranges
        self.storage = storage
        self.allocated: set[int] = set()
        self.attached: dict[tuple[int, int], list[Stage]] = {}
        self.outside: dict[tuple[int, int], list[Storage]] = {}  # storage around a loop
        self.roots: list[Stage] = []
        self.imports: dict[str, None] = {}  # texts of LLVM modules
        for stage in sch.stages:
            if isinstance(stage.op, PlaceholderOp):
                continue
            at = stage.placement
            if at.attach in (AttachKind.SCOPE, AttachKind.SCAN):
                self.attached.setdefault((id(at.attach_stage), id(at.attach_ivar)), []).append(stage)
            else:
                self.roots.append(stage)
        whole = {iv.var: IntSet.from_range(r) for iv, r in bounds.ranges.items()}
        self.everywhere = Evaluator(whole, self.arith)

    def run(self) -> S.Stmt:
        body = self.pipeline(self.roots, S.NOP)
        return S.seq(*(S.Assert(c, f"the schedule is for sizes with {c}") for c in self._asked()), body)

    def _asked(self) -> list[E.Expr]:
        """What splits ask of sizes (`Split.long`), each once."""
        found: list[E.Expr] = []
        loops = {iv.var for iv in self.ranges}
        for stage in self.sch.stages:
            for asked in (r.asked(self.ranges) for r in stage.relations if isinstance(r, Split)):
                if asked is None:
                    continue
                if not loops.isdisjoint(free_vars(asked)):
                    raise fail(
                        self.sch, f"a split of {stage.name} is long, and its extent changes in the loops around it: {asked}",
                        mark=stage, hint="split it without long",
                    )  # fmt: skip
                found.append(asked)
        return _distinct(found)

    # ---- attachments

    def pipeline(self, stages: list[Stage], body: S.Stmt) -> S.Stmt:
        """`body` with the stages before it, each in storage that lasts until its end."""
        owned: list[list[Storage]] = []
        for stage in stages:
            mine = []
            for k in range(stage.op.num_outputs):
                storage = self.storage.output(stage, k)
                if not storage.is_arg and id(storage.buffer) not in self.allocated:
                    self.allocated.add(id(storage.buffer))
                    mine.append(storage)
            owned.append(mine)
        for stage, mine in zip(reversed(stages), reversed(owned)):
            copies = [
                copy_out(self.storage.output(stage, k), self.inner[id(stage), k])
                for k in range(stage.op.num_outputs)
                if (id(stage), k) in self.inner
            ]
            body = S.seq(self.in_own_threads(stage, self.produce(stage)), *copies, body)
            for storage in reversed(mine):
                if storage.rolling is not None:  # lives from one step of the loop to the next
                    at = stage.placement
                    self.outside.setdefault((id(at.attach_stage), id(at.attach_ivar)), []).append(storage)
                else:
                    body = S.Alloc(storage.buffer, body, self.storage_notes(storage))
        return body

    def in_own_threads(self, stage: Stage, body: S.Stmt) -> S.Stmt:
        """`body` in loops over the threads whose registers it fills, where it stands outside of their loops."""
        for v, (reader, iv) in self.bounds.own_threads.get(id(stage), {}).items():
            mine = E.Var(f"{stage.name}_{v.name}", v.dtype, True)
            extent = B.cast(v.dtype, self.ranges[iv].extent)
            inner = substitute_stmt(body, {v: mine})
            body = S.For(mine, B.const(0, v.dtype), extent, inner, S.ForKind.THREAD, reader.thread_of(iv))
        return body

    def storage_notes(self, storage: Storage) -> S.StorageNotes:
        stage = storage.stage
        align = ((k, stage.attrs[a].align) for k, a in enumerate(stage.op.axis) if a in stage.attrs)
        return S.StorageNotes(stage.double_buffered, tuple((k, *v) for k, v in align if v is not None))

    def inside(self, stage: Stage, iv: E.IterVar, body: S.Stmt) -> S.Stmt:
        """The body of loop `iv`, with what is computed there."""
        found = self.attached.get((id(stage), id(iv)))
        return self.pipeline(found, body) if found else body

    # ---- one stage

    def produce(self, stage: Stage) -> S.Stmt:
        op = stage.op
        if isinstance(op, ComputeOp):
            at = tensorized_at(stage)
            if at is not None:
                return lower_tensorized(self, stage, op, at)
            if isinstance(op.body[0], E.Reduce):
                return lower_reduction(self, stage, op)
            return self.lower_map(stage, op)
        if isinstance(op, ExternOp):
            return lower_extern(self, stage, op)
        if isinstance(op, ScanOp):
            return lower_scan(self, stage, op)
        raise LoweringError(f"cannot lower {op!r}")

    def lower_map(self, stage: Stage, op: ComputeOp) -> S.Stmt:
        """A compute without reduction: loops, guard, stores."""
        values = self.leaf_values(stage)
        self.root_values(stage, values)
        rewrite = self.body_rewriter(op, values)
        at = [values[a] for a in op.axis]
        body = self.store_all(stage, op, at, [rewrite(e) for e in op.body])
        body = self.guarded(stage, self.predicates(stage, values), body)
        return self.nest(stage, stage.leaf, self.with_store_predicate(stage, body))

    def store_all(self, stage: Stage, op: ComputeOp, at: list[E.Expr], values: list[E.Expr]) -> S.Stmt:
        return S.seq(*[self.store(stage, k, at, v) for k, v in enumerate(values)])

    def store(self, stage: Stage, k: int, at: Sequence[E.Expr], value: E.Expr) -> S.Stmt:
        storage = self.storage.output(stage, k)
        return S.BufferStore(storage.buffer, value, self.index(storage, at), None, stage.op.loc)

    def load(self, stage: Stage, k: int, at: Sequence[E.Expr]) -> E.Expr:
        storage = self.storage.output(stage, k)
        return E.BufferLoad(storage.buffer, self.index(storage, at))

    def index(self, storage: Storage, at: Sequence[E.Expr]) -> tuple[E.Expr, ...]:
        """Where element `at` of the tensor stands in its buffer."""
        return tuple([self.arith.simplify(i) for i in storage.index(at)])

    # ---- values, bodies, guards

    def leaf_values(self, stage: Stage) -> Values:
        """The value of each loop: its variable, or 0 where it has one step."""
        out: Values = {}
        for iv in stage.leaf:
            r = self.ranges[iv]
            out[iv] = r.min if self.single(stage, iv) else iv.var
        return out

    def single(self, stage: Stage, iv: E.IterVar) -> bool:
        """Whether a loop has one step and needs no loop: a launch index stays, unless every thread does the step."""
        extent = self.ranges[iv].extent
        if not (isinstance(extent, E.IntImm) and extent.value == 1):
            return False
        return not stage.thread_of(iv) or (iv.kind != E.IterKind.REDUCE and self.bounds.private(stage, iv))

    def root_values(self, stage: Stage, values: Values) -> None:
        """Fill in the values of the operation's axes from those of the loops."""
        for r in reversed(stage.relations):
            r.index_up(values, self.ranges)
        for iv in stage.op.root_iter_vars():
            if iv in values:
                values[iv] = self.arith.simplify(values[iv])

    def body_rewriter(self, op: ComputeOp, values: Values) -> Any:
        """A function that makes loads of reads, and loop values of axes."""
        subs = {id(iv.var): values[iv] for iv in op.root_iter_vars() if iv in values}

        def on_var(e: E.Var, r: Rewriter) -> E.Expr:
            return subs.get(id(e), e)

        def on_read(e: E.TensorRead, r: Rewriter) -> E.Expr:
            storage = self.storage.of(e.tensor)
            return E.BufferLoad(storage.buffer, self.index(storage, [r.expr(i) for i in e.indices]))

        return Rewriter({E.Var: on_var, E.TensorRead: on_read}, memo=True).expr

    def predicates(self, stage: Stage, values: Values, skip: Sequence[E.IterVar] = ()) -> list[E.Expr]:
        """Conditions for the loops to be within the axes' ranges, and these within the tensor's shape."""
        roots = stage.op.root_iter_vars()
        out: list[E.Expr] = []
        for iv in guarded_loops(stage.relations, roots, self.ranges, self.arith):
            if any(iv is x for x in skip) or (skip and iv.kind == E.IterKind.REDUCE):
                continue
            own = self.ranges[iv]
            value = self.arith.simplify(values[iv])
            end = self.arith.simplify(B.add(own.min, own.extent))
            if not self._below(value, self.everywhere(value), end):
                out.append(_before(value, end))
        for iv in roots:
            if any(iv is x for x in skip) or iv.kind == E.IterKind.OPAQUE:
                continue
            value, own, dom = values[iv], self.ranges[iv], iv.dom
            assert dom is not None
            span = self.everywhere(value)
            if own is dom or self._within(own, dom):  # loops stay within their axes' ranges: see above
                continue
            if not (self.arith.le(dom.min, value) or (span.min is not None and self.arith.le(dom.min, span.min))):
                out.append(B.compare("ge", value, dom.min))
            end = B.add(dom.min, dom.extent)
            if not self._below(value, span, end):
                out.append(_before(value, end))
        return _distinct([*self.unrolled_before(stage, values), *out, *self.within_layout(stage, values)])

    def within_layout(self, stage: Stage, values: Values) -> list[E.Expr]:
        """Of a layout that is cut, that elements are stored."""
        if stage.layout is None or not (stage.layout.cut or stage.layout.before):
            return []
        at = [self.arith.simplify(i) for i in stage.layout.places([values[iv] for iv in stage.op.root_iter_vars()])]
        front = [B.compare("ge", at[k], 0) for k in stage.layout.before]
        return [*front, *(_before(at[k], stage.layout.sizes[k]) for k in stage.layout.cut)]

    def unrolled_before(self, stage: Stage, values: Values) -> list[E.Expr]:
        """For a rolling buffer: not what an earlier step of the attachment loop has computed."""
        if not stage.rolling:
            return []
        storage = self.storage.output(stage, 0)
        if storage.rolling is None:
            return []
        loop = stage.placement.attach_ivar
        assert loop is not None
        iv = stage.op.axis[storage.rolling[0]]
        r = self.ranges[iv]
        before = substitute(r.min, {loop.var: B.sub(loop.var, 1)})
        fresh = B.compare("ge", values[iv], self.arith.simplify(B.add(before, r.extent)))
        return [B.logical_or(B.compare("eq", loop.var, 0), fresh)]

    def _within(self, own: E.Range, whole: E.Range) -> bool:
        ends = (B.add(r.min, r.extent) for r in (own, whole))
        return self.arith.le(whole.min, own.min) and self.arith.le(*ends)

    def _below(self, value: E.Expr, span: IntSet, end: E.Expr) -> bool:
        return self.arith.lt(value, end) or (span.max is not None and self.arith.lt(span.max, end))

    def guarded(self, stage: Stage, conds: Sequence[E.Expr], body: S.Stmt) -> S.Stmt:
        for c in reversed(conds):
            body = S.IfThenElse(E.Call("likely", (c,), "bool"), body)
        return body

    def with_store_predicate(self, stage: Stage, body: S.Stmt) -> S.Stmt:
        """`body` where the stage's store predicate holds, over the launch indices that the predicate asks for."""
        if stage.store_predicate is None:
            return body
        around = [(stage, iv) for iv in stage.leaf] + self.bounds.path(stage)
        loops: dict[str, E.Var] = {}
        for s, iv in around:
            if s.thread_of(iv):
                loops.setdefault(s.thread_of(iv), iv.var)
        tags = {
            id(a.thread.var): a.thread.thread_tag
            for s in self.sch.stages for a in s.attrs.values() if a.thread is not None
        }  # fmt: skip
        values: dict[E.Var, E.Expr] = {}
        added: list[tuple[str, E.Var, E.Expr]] = []
        for v in free_vars(stage.store_predicate):
            tag = tags.get(id(v), v.name.replace("_", ".") if v.name.startswith("threadIdx_") else "")
            if any(v is iv.var for _, iv in around) or (v.is_size and not tag):
                continue
            extent = None if tag in loops else self.kernel_extent(stage, tag)
            if extent is not None:  # the index of other stages of this kernel
                loops[tag] = E.Var(v.name, v.dtype, True)
                added.append((tag, loops[tag], extent))
            if tag not in loops:
                raise fail(
                    self.sch, f"the store predicate of {stage.name} uses {v.name}, which no loop around it is bound to",
                    mark=stage, hint="bind a loop of the stage to that thread axis",
                )  # fmt: skip
            values[v] = loops[tag]
        out: S.Stmt = S.IfThenElse(substitute(stage.store_predicate, values), body)
        for tag, var, extent in added:
            out = S.For(var, B.const(0, var.dtype), B.cast(var.dtype, extent), out, S.ForKind.THREAD, tag)
        return out

    def kernel_extent(self, stage: Stage, tag: str) -> E.Expr | None:
        """How many of a launch index other stages in the kernel of `stage` use; None where none is bound to it."""
        root = self.kernel(stage)
        for s in self.sch.stages:
            if not isinstance(s.op, PlaceholderOp) and self.kernel(s) is root:
                for iv in s.leaf:
                    if tag and s.thread_of(iv) == tag:
                        return self.ranges[iv].extent
        return None

    def kernel(self, stage: Stage) -> Stage:
        """The stage whose loops are outermost around `stage`."""
        path = self.bounds.path(stage)
        return path[-1][0] if path else stage

    # ---- loops

    def nest(self, stage: Stage, loops: Sequence[E.IterVar], body: S.Stmt, attach: bool = True) -> S.Stmt:
        """`body` in `loops` (outermost first), each with what is attached to it."""
        for iv in reversed(loops):
            if attach:
                body = self.inside(stage, iv, body)
            body = self.loop(stage, iv, iv.var, body)
        return body

    def loop(self, stage: Stage, iv: E.IterVar, var: E.Var, body: S.Stmt) -> S.Stmt:
        """One loop around `body`; none for a single step."""
        extent = self.ranges[iv].extent
        a = stage.attrs.get(iv, _SERIAL)
        out: S.Stmt
        # Start values, in loops of their own, read nothing.
        for tensor, distance in a.prefetches if var is iv.var else ():
            body = S.seq(prefetch_stmt(self, stage, iv, tensor, distance), body)
        zero = B.const(0, var.dtype)
        extent = B.cast(var.dtype, extent)
        tag = stage.thread_of(iv)
        if self.single(stage, iv):
            out = body
        elif tag:
            out = S.For(var, zero, extent, body, S.ForKind.THREAD, tag)
        else:
            if a.kind == "vectorized" and not isinstance(extent, E.IntImm):
                raise fail(
                    self.sch, f"loop {iv.name} of {stage.name} is vectorized, and its extent is {extent}, not a constant",
                    mark=iv, hint="split it with a constant factor and vectorize the inner loop",
                )  # fmt: skip
            out = S.For(var, zero, extent, body, _KINDS.get(a.kind, S.ForKind.SERIAL))
        for note in reversed(a.notes):
            if isinstance(note, ImportLlvm):
                self.imports.setdefault(note.text)
            else:
                out = S.Attr(note, out)
        for storage in self.outside.pop((id(stage), id(iv)), ()):
            out = S.Alloc(storage.buffer, out, self.storage_notes(storage))
        return out


def _before(value: E.Expr, end: E.Expr) -> E.Expr:
    """`value < end`; of an axis that was fused as a question of what it was fused to, which neighbours share: x // c < n is x < c * n."""
    while isinstance(value, E.FloorDiv) and isinstance(divisor := value.b, E.IntImm) and divisor.value > 0:
        end = B.mul(end, divisor)
        value = value.a
    return B.compare("lt", value, end)


def _distinct(conds: list[E.Expr]) -> list[E.Expr]:
    """Conditions without repetitions (the range's end and the shape's are often the same)."""
    out: list[E.Expr] = []
    seen: set[tuple[Any, str, str]] = set()
    for c in conds:
        key = (type(c), str(getattr(c, "a", c)), str(getattr(c, "b", "")))
        if key not in seen:
            seen.add(key)
            out.append(c)
    return out
