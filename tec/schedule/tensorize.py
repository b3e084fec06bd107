"""Tensor intrinsics in place of loops.

In: a stage with a tensorized loop. The loops from there inwards cover a region of the output and of each input; the
region's computation must be the intrinsic's own, up to the order of commutative operands. Out: the intrinsic's statement
over views of the regions. A reduction that goes on in outer loops uses the intrinsic's reduce_init and reduce_update.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..errors import LoweringError, ScheduleError
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.arith.int_set import IntSet
from ..ir.buffer import Buffer
from ..ir.intrin import INTRINS
from ..ir.visit import children, free_vars, substitute_stmt, substituter, visit, walk_exprs
from ..records import dataclass
from ..te.operation import ComputeOp
from ..te.tensor import Tensor
from .reduction import init_nest
from .regions import View, bind_vars, over_views, strides_of
from .relations import Intervals, Values
from .show import fail
from .stage import Stage
from .storage import Storage

if TYPE_CHECKING:
    from .to_loops import Lowering


def tensorized_at(stage: Stage) -> int | None:
    """The place of the tensorized loop, None where there is none."""
    for k, iv in enumerate(stage.leaf):
        a = stage.attrs.get(iv)
        if a is not None and a.kind == "tensorized":
            return k
    return None


@dataclass(slots=True)
class _Input:
    """An input of the intrinsic: the tensor it stands for, where its region begins, which dimensions it runs along."""

    tensor: Tensor
    base: tuple[E.Expr, ...]
    dims: tuple[int, ...]


@dataclass(slots=True)
class _Match:
    """A match in progress: inputs and values of scalar parameters found so far, and the last thing that did not fit."""

    inputs: dict[Tensor, _Input] = field(default_factory=dict)
    scalars: dict[E.Var, E.Expr] = field(default_factory=dict)
    why: str = ""


def lower_tensorized(low: Lowering, stage: Stage, op: ComputeOp, at: int) -> S.Stmt:
    loop = stage.leaf[at]
    intrin = stage.attrs[loop].intrin
    try:
        return _Tensorize(low, stage, op, at, intrin).run()
    except ScheduleError:
        raise
    except LoweringError as e:
        raise fail(low.sch, e.message, mark=loop, note=f"tensorized with {intrin.name}", hint=e.hint) from None


class _Tensorize:
    def __init__(self, low: Lowering, stage: Stage, op: ComputeOp, at: int, intrin: Any):
        self.low = low
        self.stage = stage
        self.op = op
        self.at = at
        self.intrin = intrin
        self.own: ComputeOp = intrin.op  # the computation that the intrinsic stands for
        self.what = f"tensorize of {stage.name} with {intrin.name}"

    def error(self, message: str, hint: str | None = None) -> LoweringError:
        return LoweringError(f"{self.what}: {message}", hint=hint)

    def run(self) -> S.Stmt:
        low, stage = self.low, self.stage
        outer, inner = stage.leaf[: self.at], stage.leaf[self.at :]
        for iv in inner:
            if (id(stage), id(iv)) in low.attached or stage.thread_of(iv):
                done = "bound to a thread" if stage.thread_of(iv) else "the place of another stage"
                raise self.error(
                    f"loop {iv.name}, inside of the tensorized one, is {done}",
                    hint="leave the loops inside to the intrinsic",
                )
        values = low.leaf_values(stage)
        low.root_values(stage, values)
        conds = low.predicates(stage, values)
        banned = {id(iv.var) for iv in inner}
        ragged = [c for c in conds if any(id(v) in banned for v in free_vars(c))]
        if ragged and not self.intrin.ragged:
            raise self.error(
                f"the region is ragged: {ragged[0]} does not always hold inside of it",
                hint="use factors that divide the extents, or pad the tensors",
            )
        conds = [c for c in conds if not any(c is r for r in ragged)]
        mins, extents = self._region(outer, inner)
        dims, axis_of = self._align(extents)
        match = self._match(mins, dims, axis_of)
        views = self._views(match, mins, dims)
        self._check_scalars(match)
        statement = self._statement(outer, inner, values, views, conds, match.scalars)
        return low.nest(stage, outer, statement) if not isinstance(statement, tuple) else self._nested(*statement)

    # ---- the region

    def _region(
        self, outer: Sequence[E.IterVar], inner: Sequence[E.IterVar]
    ) -> tuple[dict[E.IterVar, E.Expr], dict[E.IterVar, int]]:
        """Begin and extent of each axis of the operation, over the inner loops."""
        low = self.low
        intervals: Intervals = {}
        single = {
            id(iv) for iv in self.stage.leaf if _const(low.ranges[iv].extent) == 1 and not self.stage.thread_of(iv)
        }
        for iv in outer:
            intervals[iv] = IntSet.point(low.ranges[iv].min if id(iv) in single else iv.var)
        for iv in inner:
            intervals[iv] = IntSet.point(low.ranges[iv].min) if id(iv) in single else IntSet.from_range(low.ranges[iv])
        for rel in reversed(self.stage.relations):
            rel.domain_up(intervals, low.ranges, low.arith)
        mins: dict[E.IterVar, E.Expr] = {}
        extents: dict[E.IterVar, int] = {}
        for iv in self.op.root_iter_vars():
            s = intervals.get(iv) or IntSet.from_range(low.ranges[iv])
            assert s.min is not None and s.max is not None
            mins[iv] = low.arith.simplify(s.min)
            size = _const(low.arith.simplify(B.add(B.sub(s.max, s.min), 1)))
            if size is None:
                raise self.error(
                    f"the extent of axis {iv.name} in the region, {B.sub(s.max, s.min)} + 1, is not a constant",
                    hint="split with constant factors and tensorize the inner loops",
                )
            extents[iv] = size
        return mins, extents

    def _align(self, extents: dict[E.IterVar, int]) -> tuple[tuple[int, ...], dict[E.IterVar, E.IterVar]]:
        """Which axis of the operation each axis of the intrinsic is: in order, axes of one step may be left out."""
        axis_of: dict[E.IterVar, E.IterVar] = {}
        dims: tuple[int, ...] = ()
        groups = ((self.op.axis, self.own.axis, "data"), (self.op.reduce_axis, self.own.reduce_axis, "reduce"))
        for have, want, label in groups:
            sizes = [extents[a] for a in have]
            need = [_const(a.dom.extent) if a.dom is not None else None for a in want]
            found = _aligned(sizes, need, operator.eq, 1)
            if found is None:
                raise self.error(
                    f"the {label} axes of the region have extents ({', '.join(f'{a.name}: {extents[a]}' for a in have)}), "
                    f"those of the intrinsic ({', '.join(f'{a.name}: {n}' for a, n in zip(want, need))})",
                    hint="split the loops by the intrinsic's extents and tensorize the outermost of the inner loops",
                )
            for k, a in zip(found, want):
                axis_of[have[k]] = a
            if label == "data":
                dims = tuple(found)
        return dims, axis_of

    # ---- the computation

    def _match(
        self, mins: dict[E.IterVar, E.Expr], dims: tuple[int, ...], axis_of: dict[E.IterVar, E.IterVar]
    ) -> _Match:
        values: dict[E.Var, E.Expr] = {}
        zero: dict[E.Var, E.Expr] = {}
        for a in self.op.root_iter_vars():
            inner = axis_of.get(a)
            values[a.var] = B.add(mins[a], B.cast(a.var.dtype, inner.var)) if inner is not None else mins[a]
            if inner is not None:
                zero[inner.var] = B.const(0, inner.var.dtype)
                assert inner.dom is not None
                size = _const(inner.dom.extent)
                self.low.arith.bind(inner.var, 0, size - 1 if size is not None else None)
        self._sub, self._zero = substituter(values), substituter(zero)
        match = _Match()
        if len(self.op.body) != len(self.own.body):
            raise self.error(
                f"{self.stage.name} has {len(self.op.body)} outputs, the intrinsic {len(self.own.body)}",
                hint="declare the intrinsic of a compute with as many outputs",
            )
        for have, want in zip(self.op.body, self.own.body):
            if not self._same(have, want, match):
                raise self.error(
                    f"the computations differ: {match.why}\n  of the region:    {self.op.body[0]}\n"
                    f"  of the intrinsic: {self.own.body[0]}",
                    hint="the intrinsic's compute must be that of the loops, operand types and casts included",
                )
        return match

    def _same(self, have: E.Expr, want: E.Expr, match: _Match) -> bool:
        """Whether an expression is the intrinsic's own; what `match` lacks is filled on the way."""
        if isinstance(want, E.TensorRead):
            return (isinstance(have, E.TensorRead) and self._same_read(have, want, match)) or self._differ(
                have, want, match
            )
        if isinstance(want, E.Var) and want in self.intrin.scalar_params:
            return self._same_scalar(have, want, match) or self._differ(have, want, match)
        if type(have) is not type(want) or have.dtype != want.dtype:
            return self._differ(have, want, match)
        if isinstance(have, E.Reduce):
            assert isinstance(want, E.Reduce)
            return self._same_reduce(have, want, match)
        if isinstance(have, (E.IntImm, E.FloatImm)):
            return have.value == want.value or self._differ(have, want, match)  # type: ignore[attr-defined]
        if isinstance(have, E.Var):
            return self.low.arith.equal(self._sub(have), want) or self._differ(have, want, match)
        if isinstance(have, E.Call) and (have.op != want.op or (have.attrs or {}) != (want.attrs or {})):  # type: ignore[attr-defined]
            return self._differ(have, want, match)
        mine, theirs = children(have), children(want)
        if len(mine) != len(theirs):
            return self._differ(have, want, match)
        orders = [theirs, theirs[::-1]] if type(have) in _COMMUTATIVE else [theirs]
        for order in orders:
            saved = dict(match.inputs), dict(match.scalars)
            if all(self._same(x, y, match) for x, y in zip(mine, order)):
                return True
            match.inputs, match.scalars = saved
        return False

    def _same_scalar(self, have: E.Expr, want: E.Var, match: _Match) -> bool:
        """Whether an expression may stand for a scalar parameter: one value for the whole region, and the same wherever the parameter is."""
        value = self.low.arith.simplify(self._sub(have))
        inner = {a.var for a in self.own.root_iter_vars()}
        if have.dtype != want.dtype or any(v in inner for v in free_vars(value)) or _reads(value):
            return False
        return self.low.arith.equal(match.scalars.setdefault(want, value), value)

    @staticmethod
    def _differ(have: E.Expr, want: E.Expr, match: _Match) -> bool:
        match.why = f"{have} ({have.dtype}) against {want} ({want.dtype})"
        return False

    def _same_reduce(self, have: E.Reduce, want: E.Reduce, match: _Match) -> bool:
        a, b = have.combiner, want.combiner
        renamed = substituter({**dict(zip(a.lhs, b.lhs)), **dict(zip(a.rhs, b.rhs))})
        # An intrinsic that says `te.max` says nothing of NaN: TVM, whose programs declare them so, has no other.
        same = len(a.result) == len(b.result) and all(
            str(y) in (str(renamed(x)), str(_plain(renamed(x)))) and x.dtype == y.dtype
            for x, y in zip(a.result, b.result)
        )
        same = same and all(str(x) == str(y) for x, y in zip(a.identity, b.identity))
        if not same:
            match.why = f"reduction {a.name} against {b.name}"
            return False
        pairs = [*zip(have.source, want.source), (have.condition, want.condition)]
        return all(self._same(x, y, match) for x, y in pairs)

    def _same_read(self, have: E.TensorRead, want: E.TensorRead, match: _Match) -> bool:
        """Whether a read is of the input that the intrinsic's stands for, and moves as it does."""
        arith = self.low.arith
        tensor: Tensor = have.tensor
        if tensor.dtype != want.tensor.dtype:
            return False
        index = [arith.simplify(self._sub(i)) for i in have.indices]
        base = tuple([arith.simplify(self._zero(i)) for i in index])
        relative = [arith.simplify(B.sub(i, b)) for i, b in zip(index, base)]

        def moves_as(i: E.Expr, w: E.Expr | int) -> bool:
            return arith.equal(i, B.cast(i.dtype, w))

        known = match.inputs.get(want.tensor)
        if known is not None:
            if not self._same_tensor(known.tensor, tensor):
                return False
            dims = known.dims
            if not all(arith.equal(x, y) for x, y in zip(base, known.base)):
                return False
        else:
            found = _aligned(relative, want.indices, moves_as, 0)
            if found is None:
                return False
            dims = tuple(found)
        if not all(moves_as(relative[d], w) for d, w in zip(dims, want.indices)):
            return False
        if not all(moves_as(r, 0) for d, r in enumerate(relative) if d not in dims):
            return False
        match.inputs[want.tensor] = _Input(tensor, base, dims)
        return True

    def _same_tensor(self, a: Tensor, b: Tensor) -> bool:
        return self.low.sch.stage_map.get(a.op) is self.low.sch.stage_map.get(b.op) and a.value_index == b.value_index

    # ---- the statement

    def _views(self, match: _Match, mins: dict[E.IterVar, E.Expr], dims: tuple[int, ...]) -> dict[Buffer, View]:
        low, intrin = self.low, self.intrin
        views: dict[Buffer, View] = {}
        n = len(intrin.inputs)
        pointers = _pointer_uses(intrin)
        for t, b in zip(intrin.inputs, intrin.buffers[:n]):
            found = match.inputs.get(t)
            if found is None:
                raise self.error(
                    f"input {t.name} of the intrinsic is not read by its compute",
                    hint="leave it out of the intrinsic's inputs",
                )
            storage = low.storage.of(found.tensor)
            views[b] = View(storage.buffer, low.index(storage, found.base), found.dims, strides_of(low, storage))
            self._check_compact(b, views[b], storage, pointers)
        at = [mins[a] for a in self.op.axis]
        for k, b in enumerate(intrin.buffers[n:]):
            storage = low.storage.output(self.stage, k)
            views[b] = View(storage.buffer, low.index(storage, at), dims, strides_of(low, storage))
            self._check_compact(b, views[b], storage, pointers)
        return views

    def _check_scalars(self, match: _Match) -> None:
        missing = [str(v) for v in self.intrin.scalar_params if v not in match.scalars]
        if missing:
            raise self.error(
                f"its compute does not use the scalar parameters {', '.join(missing)}",
                hint="scalar_params= names variables of the intrinsic's compute",
            )

    def _check_compact(self, b: Buffer, view: View, storage: Storage, pointers: set[int]) -> None:
        """A buffer that is used by its pointer and declares no strides must lie in one piece."""
        if b.strides or id(b) not in pointers:
            return
        step: E.Expr = B.const(1)
        for d, extent in zip(reversed(view.dims), reversed(b.shape)):
            if _const(extent) != 1 and not self.low.arith.equal(view.strides[d], B.cast(view.strides[d].dtype, step)):
                raise self.error(
                    f"buffer {b.name} is used by its pointer and declared in one piece, but the region of {storage.stage.name} "
                    f"has stride {view.strides[d]} along dimension {d}, not {step}",
                    hint=f"declare it by binds= with strides: tec.decl_buffer(..., strides=[tec.var('s'), 1]), or cache {storage.stage.name}",
                )
            step = B.mul(step, extent)

    def _statement(
        self,
        outer: Sequence[E.IterVar],
        inner: Sequence[E.IterVar],
        values: Values,
        views: dict[Buffer, View],
        conds: list[E.Expr],
        scalars: dict[E.Var, E.Expr],
    ) -> Any:
        """The statement inside of the outer loops; for a reduction that goes on outside, (common, init, rest, update)."""
        low, stage, intrin = self.low, self.stage, self.intrin
        bound = bind_vars(low, views, self.what) | scalars

        def make(s: S.Stmt) -> S.Stmt:
            return over_views(s, views, bound)

        first = next((k for k, iv in enumerate(outer) if iv.kind == E.IterKind.REDUCE), None)
        reduces = [iv for iv in outer if iv.kind == E.IterKind.REDUCE and _const(low.ranges[iv].extent) != 1]
        if not reduces:
            if intrin.body is not None:
                body = make(intrin.body)
            elif intrin.reduce_init is not None:
                body = S.seq(make(intrin.reduce_init), make(intrin.reduce_update))
            else:
                data = [iv for iv in inner if iv.kind != E.IterKind.REDUCE]
                start = init_nest(low, stage, self.op, values, data)
                body = S.seq(start, make(intrin.reduce_update))
            return low.guarded(stage, conds, low.with_store_predicate(stage, body))
        if intrin.reduce_update is None:
            raise self.error(
                f"the reduction goes on in outer loops ({', '.join(iv.name for iv in reduces)}), and the intrinsic has no reduce_update",
                hint="return (body, reduce_init, reduce_update) from its function",
            )
        assert first is not None
        common, rest = list(outer[:first]), list(outer[first:])
        data = [iv for iv in rest if iv.kind != E.IterKind.REDUCE]
        if intrin.reduce_init is None and intrin.body is not None:
            at_start = B.all_of(*[B.compare("eq", iv.var, low.ranges[iv].min) for iv in reduces])
            update: S.Stmt = S.IfThenElse(at_start, make(intrin.body), make(intrin.reduce_update))
            update = low.guarded(stage, conds, update)
            return common, S.NOP, rest, update
        update = low.guarded(stage, conds, make(intrin.reduce_update))
        if intrin.reduce_init is None:
            start = init_nest(
                low, stage, self.op, values, [*data, *[iv for iv in inner if iv.kind != E.IterKind.REDUCE]]
            )
        else:
            # What holds of the data axes holds for the start as well: a later split may reach beyond the tensor.
            reduced = {id(iv.var) for iv in stage.leaf if iv.kind == E.IterKind.REDUCE}
            own = [c for c in conds if not any(id(v) in reduced for v in free_vars(c))]
            start = self._init(low.guarded(stage, own, make(intrin.reduce_init)), data)
        return common, start, rest, update

    def _init(self, body: S.Stmt, data: Sequence[E.IterVar]) -> S.Stmt:
        """reduce_init in the data loops that stand inside of reduce loops, with variables of their own."""
        fresh = {iv.var: E.Var(f"{iv.name}_init", iv.var.dtype, True) for iv in data}
        out = substitute_stmt(body, dict(fresh))
        for iv in reversed(data):
            out = self.low.loop(self.stage, iv, fresh[iv.var], out)
        return out

    def _nested(self, common: list[E.IterVar], start: S.Stmt, rest: list[E.IterVar], update: S.Stmt) -> S.Stmt:
        low, stage = self.low, self.stage
        return low.nest(stage, common, S.seq(start, low.nest(stage, rest, update)))


_COMMUTATIVE = (E.Add, E.Mul, E.Min, E.Max, E.EQ, E.NE, E.And, E.Or)


def _const(e: E.Expr) -> int | None:
    return e.value if isinstance(e, E.IntImm) else None


def _plain(e: E.Expr) -> E.Expr:
    """The extremum that an operation gives where neither side is NaN; other expressions as they are."""
    if isinstance(e, E.Call) and e.op in ("max_nan", "min_nan"):
        return (E.Max if e.op == "max_nan" else E.Min)(*e.args)
    return e


def _aligned(
    have: Sequence[Any], want: Sequence[Any], same: Callable[[Any, Any], bool], nothing: int
) -> list[int] | None:
    """Places in `have` of what is the same in `want`, in order from the right; what is the same as `nothing` may be left out. None where they do not fit."""
    out: list[int] = []
    left = list(want)
    for d in reversed(range(len(have))):
        if left and same(have[d], left[-1]):
            left.pop()
            out.append(d)
        elif not same(have[d], nothing):
            return None
    return None if left else out[::-1]


def _reads(e: E.Expr) -> bool:
    """Whether a value is read from a tensor: an element lies in memory, where the schedule decides, and is no scalar."""
    return any(isinstance(part, E.TensorRead) for part in walk_exprs(e))


def _pointer_uses(intrin: Any) -> set[int]:
    """Buffers whose address is taken in the intrinsic's statements."""
    out: set[int] = set()

    def on_expr(e: E.Expr) -> None:
        if isinstance(e, E.Call) and INTRINS[e.op].pointer and isinstance(e.args[0], E.BufferLoad):
            out.add(id(e.args[0].buffer))

    for s in (intrin.body, intrin.reduce_init, intrin.reduce_update):
        if s is not None:
            visit(s, on_expr)
    return out
