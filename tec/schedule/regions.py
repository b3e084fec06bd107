"""Statements written by hand, over buffers of their own: put over parts of the schedule's buffers.

In: a statement (of an extern, or of a tensor intrinsic) and a View for each of its buffers. Out: the statement over the
real buffers, with the variables of the declared shapes, strides and offsets bound, and loop variables of its own. Scans
and prefetches, which also touch parts of buffers, stand here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import LoweringError
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.arith.int_set import IntSet
from ..ir.buffer import GLOBAL, Buffer
from ..ir.dtype import dtype_info
from ..ir.storage_align import row_major_strides
from ..ir.visit import Rewriter
from ..records import dataclass
from ..te.operation import ComputeOp, ExternOp, PlaceholderOp, ScanOp
from ..te.tensor import Tensor
from .intervals import Evaluator, union
from .relations import Intervals
from .script_loops import lower_script
from .show import fail
from .stage import Stage
from .storage import Storage

if TYPE_CHECKING:
    from .to_loops import Lowering

_CACHE_LINE_BYTES = 64


@dataclass(slots=True, eq=False)
class View:
    """Part of a buffer: element i of the view is `buffer[base + i]`, dimension d of it along `dims[d]` of the buffer."""

    buffer: Buffer
    base: tuple[E.Expr, ...]
    dims: tuple[int, ...]
    strides: tuple[E.Expr, ...]  # of the buffer, all dimensions

    def index(self, at: Sequence[E.Expr]) -> tuple[E.Expr, ...]:
        out = list(self.base)
        for d, i in zip(self.dims, at):
            if isinstance(i, E.Ramp):
                if d != len(out) - 1:
                    raise LoweringError(
                        f"a vector access runs along dimension {d} of {self.buffer.name}, which is not its last",
                        hint="access single elements, or arrange the tensor so that the dimension is the last",
                    )
                out[d] = E.Ramp(B.add(out[d], i.base), i.stride, i.lanes)
            else:
                out[d] = B.add(out[d], i)
        return tuple(out)

    def pointer(self, declared: Buffer) -> E.Expr:
        """What a declared buffer's `data` is: where its offset counts from, or without one the view's first element."""
        at = [B.const(0)] * len(self.base) if isinstance(declared.elem_offset, E.Var) else self.base
        return B.address(self.buffer, at)

    def offset(self) -> E.Expr:
        """Elements from the data pointer to the view's first."""
        total = B.convert(self.buffer.elem_offset)
        for i, s in zip(self.base, self.strides):
            total = B.add(total, B.mul(i, s))
        return total


def strides_of(low: Lowering, storage: Storage) -> tuple[E.Expr, ...]:
    """A buffer's strides in elements, storage_align included."""
    buffer = storage.buffer
    if storage.layout is not None or storage.rolling is not None:
        how = "transform_layout" if storage.layout is not None else "rolling_buffer"
        raise fail(
            low.sch, f"{storage.stage.name}, which is stored by {how}, is used in one piece by hand-written code",
            mark=storage.stage, hint="cache_read it in its plain layout for the extern or intrinsic",
        )  # fmt: skip
    if buffer.strides:
        return buffer.strides
    return row_major_strides(buffer.shape, low.storage_notes(storage).storage_align)[0]


def bind_vars(low: Lowering, views: Mapping[Buffer, View], what: str) -> dict[E.Var, E.Expr]:
    """The variables in the declared buffers' strides and offsets, from the real ones; constants must agree."""
    values: dict[E.Var, E.Expr] = {}

    def bind(want: Any, have: E.Expr, label: str) -> None:
        if isinstance(want, E.Var):
            old = values.setdefault(want, B.cast(want.dtype, have))
            if not low.arith.equal(B.cast(old.dtype, have), old):
                raise LoweringError(
                    f"{what}: {label} is {have}, and {want.name} stands for {old} already",
                    hint="name the view's sizes in the order of the buffer's, and give equal names to equal sizes",
                )
        elif isinstance(want, (int, E.IntImm)) and not low.arith.equal(B.convert(want), have):
            raise LoweringError(
                f"{what}: {label} is {have}, declared as {want}", hint="declare it as a variable: tec.var()"
            )

    for buffer, view in views.items():
        for d, want in zip(view.dims, buffer.strides):
            bind(
                want, low.arith.simplify(view.strides[d]), f"the stride of {buffer.name} along {view.buffer.name}[{d}]"
            )
        if isinstance(buffer.elem_offset, E.Var):
            bind(buffer.elem_offset, low.arith.simplify(view.offset()), f"the offset of {buffer.name}")
        if buffer.scope != GLOBAL and buffer.scope != view.buffer.scope:
            raise LoweringError(
                f"{what}: buffer {buffer.name} is declared in {buffer.scope} memory, {view.buffer.name} is in {view.buffer.scope}",
                hint=f's[...].set_scope("{buffer.scope}"), or cache_read / cache_write into it',
            )
        if buffer.offset_factor > 1:
            rest = low.arith.simplify(B.floormod(view.offset(), buffer.offset_factor))
            if not low.arith.equal(rest, B.const(0, rest.dtype)):
                raise LoweringError(
                    f"{what}: the offset of {buffer.name} in {view.buffer.name} is not a multiple of {buffer.offset_factor}",
                    hint="an offset_factor of 1, or a split that the factor divides",
                )
    return values


def over_views(stmt: S.Stmt, views: Mapping[Buffer, View], values: Mapping[E.Var, E.Expr]) -> S.Stmt:
    """`stmt` with its buffers as views and its variables bound; what it declares itself is made anew."""
    own = dict(values) | {b.data: view.pointer(b) for b, view in views.items()}
    fresh: dict[int, Buffer] = {}

    def on_var(e: E.Var, r: Rewriter) -> E.Expr:
        return own.get(e, e)

    def on_load(e: E.BufferLoad, r: Rewriter) -> E.Expr:
        idx = tuple([r.expr(i) for i in e.indices])
        p = r.expr(e.predicate) if e.predicate is not None else None
        view = views.get(e.buffer)
        if view is not None:
            return E.BufferLoad(view.buffer, view.index(idx), p)
        return E.BufferLoad(fresh.get(id(e.buffer), e.buffer), idx, p)

    def on_store(s: S.BufferStore, r: Rewriter) -> S.Stmt:
        idx, value = tuple([r.expr(i) for i in s.indices]), r.expr(s.value)
        p = r.expr(s.predicate) if s.predicate is not None else None
        view = views.get(s.buffer)
        if view is not None:
            return S.BufferStore(view.buffer, value, view.index(idx), p, s.loc)
        return S.BufferStore(fresh.get(id(s.buffer), s.buffer), value, idx, p, s.loc)

    def on_for(s: S.For, r: Rewriter) -> S.Stmt:
        lo, extent = r.expr(s.min), r.expr(s.extent)
        v = own[s.var] = E.Var(s.var.name, s.var.dtype, s.var.is_size)
        return replace(s, var=v, min=lo, extent=extent, body=r.stmt(s.body))

    def on_let(s: S.LetStmt, r: Rewriter) -> S.Stmt:
        value = r.expr(s.value)
        v = own[s.var] = E.Var(s.var.name, s.var.dtype, s.var.is_size)
        return S.LetStmt(v, value, r.stmt(s.body))

    def on_alloc(s: S.Alloc, r: Rewriter) -> S.Stmt:
        b = s.buffer
        shape = tuple([r.expr(d) for d in b.shape])
        new = Buffer(b.name, b.dtype, shape, b.strides, b.elem_offset, b.scope, b.align_bytes, loc=b.loc)
        fresh[id(b)] = new
        return S.Alloc(new, r.stmt(s.body), s.notes)

    def on_all_reduce(s: S.AllReduce, r: Rewriter) -> S.Stmt:
        out = r.stmt_children(s)
        assert isinstance(out, S.AllReduce)
        dests = tuple([fresh.get(id(b), b) for b in s.dests])
        threads = tuple([v if isinstance(v := own.get(t, t), E.Var) else t for t in s.threads])
        return S.AllReduce(s.combiner, out.values, out.predicate, dests, threads, s.loc)

    rewriter = Rewriter(
        {E.Var: on_var, E.BufferLoad: on_load},
        {
            S.BufferStore: on_store, S.For: on_for, S.LetStmt: on_let, S.Alloc: on_alloc, S.AllReduce: on_all_reduce,
        },
    )  # fmt: skip
    return rewriter.stmt(stmt)


# ---- externs


def lower_extern(low: Lowering, stage: Stage, op: ExternOp) -> S.Stmt:
    views: dict[Buffer, View] = {}
    values: dict[E.Var, E.Expr] = {}
    pairs: list[tuple[Buffer, Storage]] = [(b, low.storage.of(t)) for b, t in zip(op.input_placeholders, op._inputs)]
    pairs += [(b, low.storage.output(stage, k)) for k, b in enumerate(op.output_placeholders)]
    for b, storage in pairs:
        views[b] = View(
            storage.buffer, tuple([B.sub(B.const(0, m.dtype), m) for m in storage.mins]), tuple(range(len(b.shape))),
            strides_of(low, storage),
        )  # fmt: skip
        for want, have in zip(b.shape, storage.buffer.shape):
            if isinstance(want, E.Var) and want is not have:
                values[want] = B.cast(want.dtype, have)
    values.update(bind_vars(low, views, f"extern {stage.name}"))
    return over_views(lower_script(low, stage, op), views, values)


# ---- scans


def lower_scan(low: Lowering, stage: Stage, op: ScanOp) -> S.Stmt:
    """The time loop around the updates, which are attached to it; inits that are not computed in place are copied."""
    copies = []
    for k, init in enumerate(op.init):
        source = low.storage.of(init)
        target = low.storage.output(stage, k)
        if source.buffer is not target.buffer:
            copies.append(_copy(init, source, target, stage))
    time = next(n for n, iv in enumerate(stage.leaf) if iv.kind != E.IterKind.THREAD)
    body = low.nest(stage, stage.leaf[time:], S.NOP)
    return low.nest(stage, stage.leaf[:time], S.seq(*copies, body))


def _copy(tensor: Tensor, source: Storage, target: Storage, stage: Stage) -> S.Stmt:
    loops = [E.Var(f"i{d}", extent.dtype, True) for d, extent in enumerate(tensor.shape)]
    at: list[E.Expr] = list(loops)
    load = E.BufferLoad(source.buffer, tuple(source.index(at)))
    body: S.Stmt = S.BufferStore(target.buffer, load, tuple(target.index(at)), None, stage.op.loc)
    for v, extent in zip(reversed(loops), reversed(tensor.shape)):
        body = S.For(v, B.const(0, v.dtype), extent, body)
    return body


# ---- prefetch


def prefetch_stmt(low: Lowering, stage: Stage, iv: E.IterVar, tensor: Tensor, distance: E.Expr) -> S.Stmt:
    """Ask for what `stage` will read of `tensor` when loop `iv` is `distance` steps further, line by line."""
    if not isinstance(stage.op, ComputeOp):
        raise fail(
            low.sch, f"prefetch of {tensor.name} in a loop of {stage.name}, whose own loops read nothing", mark=iv,
            hint="prefetch in the stage that computes the step",
        )  # fmt: skip
    for s, loop in low.bounds.path(low.sch[tensor]) if tensor.op in low.sch.stage_map else ():
        if s is stage and stage.leaf.index(iv) <= stage.leaf.index(loop):
            raise fail(
                low.sch, f"prefetch of {tensor.name} in loop {iv.name} of {stage.name}, outside of the storage that it is computed in",
                mark=iv, hint=f"prefetch in a loop inside of {loop.name}",
            )  # fmt: skip
    region = _later_reads(low, stage, stage.op, iv, tensor, distance)
    if region is None:
        return S.NOP
    storage = low.storage.of(tensor)
    if isinstance(low.sch[tensor].op, PlaceholderOp) and not storage.is_arg:
        raise fail(
            low.sch,
            f"prefetch of {tensor.name}, which is not among the parameters",
            mark=stage,
            hint="list it among the parameters",
        )
    step = max(1, _CACHE_LINE_BYTES // dtype_info(tensor.dtype).bytes)
    loops: list[tuple[E.Var, E.Expr]] = []
    at: list[E.Expr] = []
    conds: list[E.Expr] = []
    for d, (interval, low_end, extent) in enumerate(zip(region, storage.mins, storage.buffer.shape)):
        if interval.min is None or interval.max is None:
            return S.NOP  # data decides what is read
        size = low.arith.simplify(B.add(B.sub(interval.max, interval.min), 1))
        first = B.sub(interval.min, low_end)
        if d == len(region) - 1:
            size = B.floordiv(B.add(size, step - 1), step)
        if not (isinstance(size, E.IntImm) and size.value == 1):
            v = E.Var(f"line{d}", size.dtype, True)
            loops.append((v, size))
            first = B.add(first, B.mul(v, step) if d == len(region) - 1 else v)
        at.append(low.arith.simplify(first))
        conds.append(B.compare("lt", at[-1], extent))
    body: S.Stmt = S.Evaluate(
        E.Call("prefetch", (E.BufferLoad(storage.buffer, tuple(at)),), "int32", {"rw": "r", "locality": 3})
    )
    body = S.IfThenElse(B.all_of(*conds), body)
    for v, size in reversed(loops):
        body = S.For(v, B.const(0, v.dtype), size, body)
    return body


def _later_reads(
    low: Lowering, stage: Stage, op: ComputeOp, iv: E.IterVar, tensor: Tensor, distance: E.Expr
) -> list[IntSet] | None:
    """What one step of loop `iv` reads of `tensor`, `distance` steps ahead; None where it reads nothing."""
    intervals: Intervals = {}
    inside = False
    for loop in stage.leaf:
        r = low.ranges[loop]
        if inside:
            intervals[loop] = IntSet.from_range(r)
        elif loop is iv:
            intervals[loop] = IntSet.point(B.add(loop.var, B.cast(loop.var.dtype, distance)))
            inside = True
        else:
            intervals[loop] = IntSet.point(loop.var)
    for rel in reversed(stage.relations):
        rel.domain_up(intervals, low.ranges, low.arith)
    env = {a.var: intervals.get(a) or IntSet.from_range(low.ranges[a]) for a in op.root_iter_vars()}
    evaluate = Evaluator(env, low.arith)
    source = low.sch.find(tensor)
    region: list[IntSet] | None = None
    for read in low.bounds.reads(op):
        if low.sch.stage_map.get(read.tensor.op) is source and read.tensor.value_index == tensor.value_index:
            here = [evaluate(low.arith.simplify(i)) for i in read.indices]
            region = here if region is None else [union(a, b, low.arith) for a, b in zip(region, here)]
    return region
