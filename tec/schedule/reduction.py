"""Reductions as loops.

In one thread: the loops outside of the first reduce loop stand around an init nest (the data loops that are left, with
variables of their own) and the update nest. Over threads: each thread reduces its share into a register, an AllReduce
combines the registers, and the result is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.arith.int_set import IntSet
from ..ir.buffer import LOCAL, Buffer
from ..ir.visit import free_vars, substituter
from ..te.operation import ComputeOp
from .intervals import Evaluator
from .relations import Values
from .show import fail
from .stage import Stage
from .state import AttachKind
from .storage import clean

if TYPE_CHECKING:
    from .to_loops import Lowering


def first_reduce(op: ComputeOp) -> E.Reduce:
    r = op.body[0]
    assert isinstance(r, E.Reduce)
    return r


def lower_reduction(low: Lowering, stage: Stage, op: ComputeOp) -> S.Stmt:
    if any(iv.kind == E.IterKind.REDUCE and stage.thread_of(iv) for iv in stage.leaf):
        return _over_threads(low, stage, op)
    return _in_one_thread(low, stage, op)


def init_nest(low: Lowering, stage: Stage, op: ComputeOp, values: Values, loops: Sequence[E.IterVar]) -> S.Stmt:
    """The start values: `loops` are the data loops that stand inside of the common ones; they get new variables."""
    first = first_reduce(op)
    own: Values = {iv: values[iv] for iv in stage.leaf if iv in values}
    fresh: list[tuple[E.IterVar, E.Var]] = []
    for iv in loops:
        v = E.Var(f"{iv.name}_init", iv.var.dtype, True)
        fresh.append((iv, v))
        low.arith.bind(v, *low.arith.bounds(iv.var))
        if own[iv] is iv.var:
            own[iv] = v
    for iv in stage.leaf:
        if iv.kind == E.IterKind.REDUCE:
            own[iv] = low.ranges[iv].min
    low.root_values(stage, own)
    rewrite = low.body_rewriter(op, own)
    start = first.init or first.combiner.identity
    at = [own[a] for a in op.axis]
    body = low.store_all(stage, op, at, [rewrite(e) for e in start])
    spans = {v: low.everywhere.env[iv.var] for iv, v in fresh if iv.var in low.everywhere.env}
    with_fresh(low, spans)
    body = low.guarded(stage, low.predicates(stage, own, skip=op.reduce_axis), body)
    for iv, v in reversed(fresh):
        body = low.loop(stage, iv, v, body)
    return body


def with_fresh(low: Lowering, spans: dict[E.Var, IntSet]) -> None:
    """Let guards be decided for loop variables made after bound inference."""
    low.everywhere = Evaluator({**low.everywhere.env, **spans}, low.arith)


def update(low: Lowering, stage: Stage, op: ComputeOp, values: Values) -> S.Stmt:
    """One step: combine what is stored with the source."""
    first = first_reduce(op)
    rewrite = low.body_rewriter(op, values)
    at = [values[a] for a in op.axis]
    sources = [rewrite(e) for e in first.source]
    old = [low.load(stage, k, at) for k in range(len(sources))]
    body = combine(first.combiner, old, sources, lambda k, v: low.store(stage, k, at, v))
    if not (isinstance(first.condition, E.IntImm) and first.condition.value):
        body = S.IfThenElse(rewrite(first.condition), body)
    return body


def combine(combiner: E.CommReducer, old: list[E.Expr], new: list[E.Expr], store: object) -> S.Stmt:
    """Store `combiner(old, new)`; of a tuple all values are read before the first is written."""
    assert callable(store)
    n = len(old)
    if n == 1:
        sub = substituter({combiner.lhs[0]: old[0], combiner.rhs[0]: new[0]})
        stored: S.Stmt = store(0, sub(combiner.result[0]))
        return stored
    lhs = [E.Var(f"{v.name}_old", v.dtype) for v in combiner.lhs]
    rhs = [E.Var(f"{v.name}_new", v.dtype) for v in combiner.rhs]
    sub = substituter({**dict(zip(combiner.lhs, lhs)), **dict(zip(combiner.rhs, rhs))})
    body: S.Stmt = S.seq(*[store(k, sub(r)) for k, r in enumerate(combiner.result)])
    for v, e in reversed([*zip(lhs, old), *zip(rhs, new)]):
        body = S.LetStmt(v, e, body)
    return body


def _in_one_thread(low: Lowering, stage: Stage, op: ComputeOp) -> S.Stmt:
    values = low.leaf_values(stage)
    low.root_values(stage, values)
    begin = next((k for k, iv in enumerate(stage.leaf) if iv.kind == E.IterKind.REDUCE), len(stage.leaf))
    common, rest = stage.leaf[:begin], stage.leaf[begin:]
    start = init_nest(low, stage, op, values, [iv for iv in rest if iv.kind != E.IterKind.REDUCE])
    body = low.guarded(stage, low.predicates(stage, values), update(low, stage, op, values))
    start, body = low.with_store_predicate(stage, start), low.with_store_predicate(stage, body)
    return low.nest(stage, common, S.seq(start, low.nest(stage, rest, body)))


def _over_threads(low: Lowering, stage: Stage, op: ComputeOp) -> S.Stmt:
    """data and thread loops, outermost; registers; the thread's own share; AllReduce; the store."""
    first = first_reduce(op)
    values = low.leaf_values(stage)
    low.root_values(stage, values)
    serial = [iv for iv in stage.leaf if iv.kind == E.IterKind.REDUCE and not stage.thread_of(iv)]
    outer = [iv for iv in stage.leaf if not any(iv is s for s in serial)]
    for iv in outer:
        if iv.kind == E.IterKind.REDUCE and not isinstance(low.ranges[iv].extent, E.IntImm):
            raise fail(
                low.sch, f"the threads of {stage.thread_of(iv)} that reduce {stage.name} are {low.ranges[iv].extent} in number, "
                "not a constant",
                mark=iv, hint=f"s[{stage.name}].split({iv.name}, factor=64) and bind the inner loop",
            )  # fmt: skip
    threads = tuple([iv.var for iv in outer if iv.kind == E.IterKind.REDUCE])
    _same_element(low, stage, op, values)
    order = [*outer, *serial]
    rewrite = low.body_rewriter(op, values)
    everything = low.predicates(stage, values)
    name, one, zero = clean(stage.name), B.const(1), B.const(0)
    sources = [rewrite(e) for e in first.source]
    identity = list(first.combiner.identity)
    dests = [Buffer(f"{name}_all{k or ''}", e.dtype, (one,), scope=LOCAL) for k, e in enumerate(sources)]
    condition = rewrite(first.condition)
    loc = stage.op.loc
    accs: list[Buffer] = []
    shares: tuple[E.Expr, ...]
    if any(not _single(low, iv) for iv in serial) or _attached(low, stage, serial):
        accs = [Buffer(f"{name}_part{k or ''}", e.dtype, (one,), scope=LOCAL) for k, e in enumerate(sources)]
        start = S.seq(*[S.BufferStore(b, e, (zero,), None, loc) for b, e in zip(accs, identity)])
        old: list[E.Expr] = [E.BufferLoad(b, (zero,)) for b in accs]
        step = combine(first.combiner, old, sources, lambda k, v: S.BufferStore(accs[k], v, (zero,), None, loc))
        if not (isinstance(condition, E.IntImm) and condition.value):
            step = S.IfThenElse(condition, step)
        step = low.guarded(stage, everything, step)
        step = _wrap(low, stage, order, serial, step)
        shares = tuple([E.BufferLoad(b, (zero,)) for b in accs])
        combined = S.seq(start, step, S.AllReduce(first.combiner, shares, B.const(True), tuple(dests), threads, loc))
    else:
        # The condition may read: it is asked inside of the loops' own bounds alone.
        inside = B.all_of(*everything)
        chosen = [B.if_then_else(condition, v, e) for v, e in zip(sources, identity)]
        shares = tuple([B.if_then_else(inside, v, e) for v, e in zip(chosen, identity)])
        combined = S.AllReduce(first.combiner, shares, B.const(True), tuple(dests), threads, loc)
    at = [values[a] for a in op.axis]
    results: list[E.Expr] = [E.BufferLoad(b, (zero,)) for b in dests]
    if first.init:
        init = [rewrite(e) for e in first.init]
        final = combine(first.combiner, init, results, lambda k, v: low.store(stage, k, at, v))
    else:
        final = S.seq(*[low.store(stage, k, at, v) for k, v in enumerate(results)])
    final = _stored_once(low, stage, threads, final)
    final = low.guarded(stage, low.predicates(stage, values, skip=op.reduce_axis), final)
    body: S.Stmt = S.seq(combined, low.with_store_predicate(stage, final))
    for b in reversed([*accs, *dests]):
        body = S.Alloc(b, body)
    return _wrap(low, stage, order, outer, body)


def _same_element(low: Lowering, stage: Stage, op: ComputeOp, values: Values) -> None:
    """The threads that share a reduction share its element: where a loop of its readers runs over them too, and says which, each would want another."""
    names = {stage.thread_of(iv) for iv in stage.leaf if iv.kind == E.IterKind.REDUCE} - {None, ""}
    firsts = [low.ranges[iv].min for iv in stage.leaf if iv.kind != E.IterKind.REDUCE]
    used = {v for e in (*[values[a] for a in op.axis], *firsts) for v in free_vars(e)}
    for reader in low.sch.stages:
        for iv in reader.leaf if reader is not stage else ():
            if iv.var in used and reader.thread_of(iv) in names:
                raise fail(
                    low.sch, f"{reader.thread_of(iv)} shares the reduction {stage.name}, and {reader.name} needs another element of it in each thread",
                    mark=iv, hint=f"reduce {stage.name} over another thread axis, or in one thread",
                )  # fmt: skip


def _stored_once(low: Lowering, stage: Stage, threads: tuple[E.Var, ...], final: S.Stmt) -> S.Stmt:
    """The store, by one of the threads that all have the result, where nothing in this kernel reads it from memory.

    Of the threads that a store predicate asks for, it says itself which one stores.
    """
    if stage.attach != AttachKind.ROOT or stage.group is not None or stage.scope not in ("", "global"):
        return final
    asked = {id(v) for v in free_vars(low.with_store_predicate(stage, S.seq()))}
    unasked = [t for t in threads if id(t) not in asked]
    return S.IfThenElse(B.all_of(*[E.EQ(t, B.const(0, t.dtype)) for t in unasked]), final) if unasked else final


def _single(low: Lowering, iv: E.IterVar) -> bool:
    extent = low.ranges[iv].extent
    return isinstance(extent, E.IntImm) and extent.value == 1


def _attached(low: Lowering, stage: Stage, loops: list[E.IterVar]) -> bool:
    return any((id(stage), id(iv)) in low.attached for iv in loops)


def _wrap(low: Lowering, stage: Stage, order: list[E.IterVar], loops: list[E.IterVar], body: S.Stmt) -> S.Stmt:
    """`body` in `loops`. Thread loops moved outwards: what is attached to a loop goes where all the loops that stood
    around it do."""
    place: dict[int, int] = {}  # loop -> the place in `order` where what is attached to it goes
    for k, iv in enumerate(stage.leaf):
        around = stage.leaf[: k + 1]
        place[id(iv)] = max(next(n for n, x in enumerate(order) if x is y) for y in around)
    for iv in reversed(loops):
        n = next(n for n, x in enumerate(order) if x is iv)
        for other in reversed(stage.leaf):
            if place[id(other)] == n:
                body = low.inside(stage, other, body)
        body = low.loop(stage, iv, iv.var, body)
    return body
