"""Make a schedule ready for lowering, on a copy: inline, and let every loop run from 0.

In: a Schedule as the user left it. Out: a copy of its stages (loops and operations are shared) without inlined stages,
where each loop that is still an operation's own axis has become a Rebase of it.
"""

from __future__ import annotations

import copy
import warnings

from ..errors import ScheduleError
from ..ir import expr as E
from ..ir.arith import Analyzer
from ..ir.buffer import LOCAL, SHARED
from ..ir.visit import Rewriter, substituter, walk_exprs
from ..te.operation import ComputeOp, PlaceholderOp
from ..te.tensor import Tensor
from .relations import Rebase
from .schedule import Schedule
from .sharing import TREE_NODES, share, tree_size
from .show import fail
from .stage import Stage
from .state import AttachKind


def clone(sch: Schedule) -> Schedule:
    """Stages of their own, everything else shared."""
    new: Schedule = copy.copy(sch)
    new.recorder = None  # nothing is recorded on a copy
    twin: dict[int, Stage] = {}
    for s in (*sch.stages, *sch.groups):
        t = copy.copy(s)
        t.sch = new
        t.leaf, t.all, t.relations, t.attrs = list(s.leaf), list(s.all), list(s.relations), dict(s.attrs)
        twin[id(s)] = t
    for t in twin.values():
        t.group = twin[id(t.group)] if t.group is not None else None
        t.attach_stage = twin.get(id(t.attach_stage)) if t.attach_stage is not None else None
    new.stages = [twin[id(s)] for s in sch.stages]
    new.groups = [twin[id(s)] for s in sch.groups]
    new.stage_map = {op: twin[id(s)] for op, s in sch.stage_map.items() if id(s) in twin}
    return new


def normalize(sch: Schedule) -> Schedule:
    """A copy that is ready for lowering: inlined, every loop from 0. The schedule stays as it is."""
    new = clone(sch)
    inline(new)
    for stage in new.stages:
        if not isinstance(stage.op, PlaceholderOp):
            own_threads(stage)
            rebase(new, stage)
    return new


def own_threads(stage: Stage) -> None:
    """A stage in `local` memory whose data loop is bound to threads: each thread has that memory for itself, and fills all of it that it reads. So it is of
    `shared` memory and work-groups."""
    if stage.scope not in (LOCAL, SHARED) or stage.attach != AttachKind.SCOPE:
        return
    for iv in stage.leaf:
        a = stage.attrs.get(iv)
        if a is None or a.thread is None or iv.kind == E.IterKind.REDUCE:
            continue
        if (stage.scope == SHARED) != a.thread.thread_tag.startswith("blockIdx"):
            continue
        if iv.dom is not None and isinstance(iv.dom.extent, E.IntImm) and iv.dom.extent.value == 1:
            continue
        stage.attrs[iv] = copy.copy(a)
        stage.attrs[iv].thread, stage.attrs[iv].kind = None, "serial"
        who, instead = (
            ("thread", "shared memory is filled by the threads together")
            if stage.scope == LOCAL
            else ("work-group", "the threads of one fill it together")
        )
        warnings.warn(
            f"{stage.name} lives in {stage.scope} memory, which each {who} has for itself: its loop {iv.name} runs in each {who}, not over "
            f"{a.thread.thread_tag} ({instead})",
            stacklevel=2,
        )


# Nodes that a body may have after inlining, shared ones counted once: beyond, a build takes minutes.
MAX_NODES = 50_000


def inline(sch: Schedule) -> None:
    """Put the bodies of inlined stages in place of the reads of them, producers first.

    A value that is read twice at one place is one node, and computed once where a body would get large. ScheduleError where
    one grows beyond all bounds even so: reads at ever more places double the work at each step.
    """
    bodies: dict[int, Stage] = {}
    large = Inliner(sch, bodies)
    in_memory = {
        id(sch.stage_map.get(t.op)) for s in sch.stages if not isinstance(s.op, ComputeOp) for t in s.op.inputs
    }
    for stage in list(sch.stages):
        op = stage.op
        inlined = stage.attach == AttachKind.INLINE and id(stage) not in in_memory
        if isinstance(op, ComputeOp) and any(id(sch.stage_map.get(t.op)) in bodies for t in op.inputs):
            op = large.into(stage, op, stays=not inlined)
            sch.set_stage_op(stage, op)
        if inlined:
            bodies[id(stage)] = stage
        elif stage.attach == AttachKind.INLINE:
            stage.attach = AttachKind.ROOT  # an extern or a scan reads memory, not an expression
    sch.stages = [s for s in sch.stages if id(s) not in bodies]


class Inliner:
    """Takes the bodies of inlined stages into their readers."""

    def __init__(self, sch: Schedule, bodies: dict[int, Stage]):
        self.sch = sch
        self.bodies = bodies
        self.analyzer = Analyzer()
        self.nodes: dict[int, int] = {}  # of each inlined stage's body, shared ones counted once

    def into(self, stage: Stage, op: ComputeOp, stays: bool) -> ComputeOp:
        """`op` without reads of inlined stages; `stays`: it is none itself, so what it reads twice may be bound."""
        total = len(op.body)
        made: dict[tuple[int, ...], E.Expr] = {}

        def on_read(e: E.TensorRead, r: Rewriter) -> E.Expr:
            nonlocal total
            out = r.expr_children(e)
            assert isinstance(out, E.TensorRead)
            tensor: Tensor = out.tensor
            producer = self.bodies.get(id(self.sch.stage_map.get(tensor.op)))
            if producer is None:
                return out
            indices = tuple([self.analyzer.intern(i) for i in out.indices])
            key = (id(producer), tensor.value_index, *map(id, indices))
            if key not in made:
                source = producer.op
                assert isinstance(source, ComputeOp)
                total += self.nodes.setdefault(id(producer), _count(source.body))
                if total > MAX_NODES:
                    raise self.too_large(stage, producer)
                values = {a.var: i for a, i in zip(source.axis, indices)}
                made[key] = substituter(values)(source.body[tensor.value_index])
            return made[key]

        rewriter = Rewriter({E.TensorRead: on_read}, memo=True)

        def values_of(exprs: tuple[E.Expr, ...]) -> tuple[E.Expr, ...]:
            out = tuple([rewriter.expr(e) for e in exprs])
            sizes: dict[int, int] = {}
            if stays and sum(tree_size(e, sizes) for e in out) > TREE_NODES:
                shared = [share(e, self.analyzer, MAX_NODES) for e in out]
                out = tuple([e for e in shared if e is not None])
                if len(out) < len(shared):
                    raise self.too_large(stage, next(iter(self.bodies.values())))
            return out

        first = op.body[0]
        if isinstance(first, E.Reduce):
            source = values_of(first.source)
            cond = rewriter.expr(first.condition)
            init = values_of(first.init)
            body: tuple[E.Expr, ...] = tuple(
                [E.Reduce(first.combiner, source, first.axis, cond, k, init) for k in range(len(op.body))]
            )
        else:
            body = values_of(op.body)
        return ComputeOp(op.name, op.axis, body, op.tag, op.attrs, op.loc)

    def too_large(self, stage: Stage, producer: Stage) -> ScheduleError:
        return fail(
            self.sch, f"inlining makes more than {MAX_NODES} nodes of {stage.name}", mark=stage,
            hint=f"let what is read at several places be computed in memory, not inlined: {producer.name}, say",
        )  # fmt: skip


def _count(body: tuple[E.Expr, ...]) -> int:
    """The nodes of a body, shared ones counted once."""
    return len({id(x) for e in body for x in walk_exprs(e)})


def rebase(sch: Schedule, stage: Stage) -> None:
    """Each loop that is an axis of the operation itself runs from 0; annotations and attachments go along."""
    roots = {id(a) for a in stage.op.root_iter_vars()}
    for k, iv in enumerate(stage.leaf):
        if id(iv) not in roots:
            continue
        dtype = iv.dom.extent.dtype if iv.dom is not None else iv.var.dtype
        new = E.IterVar(E.Var(iv.var.name, dtype, True), None, iv.kind, "", iv.loc)
        stage.leaf[k] = new
        stage.all.append(new)
        stage.relations.append(Rebase(iv, new))
        if iv in stage.attrs:
            stage.attrs[new] = stage.attrs[iv]
        for other in (*sch.stages, *sch.groups):
            if other.attach_ivar is iv and other.attach_stage is stage:
                other.attach_ivar = new
