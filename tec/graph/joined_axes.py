"""Axes that lie side by side in all that a group reads and makes become one, before any template sees them.

    out[i, j, k] = sum(x[r, i, j, k], r)                  ->  out[f] = sum(x[r, f], r)             f = (i * J + j) * K + k
    out[i, j, k] = if(j < 5, x[i, j, k], y[i, j - 5, k])  ->  out[i, f] = if(f < 5 * K, x[i, f], y[i, f - 5 * K])

A last axis of two elements is then no reason for vectors of two, and rows that are copied are copied as one. Neighbouring axes v and w are joined where every
operation agrees: all reads have them side by side, as (v + c, w) or (v % n, w), with all of the dimension that w counts, and no more is asked of v than how it
compares with numbers; beside open sizes v alone. What lies in memory is the same, so the function only notes what shapes its callers know (`Joined.told`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..choices.group import Group, reads_of
from ..ir import Buffer, Func, IntImm
from ..ir import build as B
from ..ir import expr as E
from ..ir.build import const_value
from ..ir.visit import Rewriter, children
from ..ops.dims import Dim
from ..ops.size_exprs import from_expr
from ..records import dataclass
from ..target import Target
from ..te import ComputeOp, Operation, PlaceholderOp, Tensor

_LIMIT = 1 << 31  # flat indices are int32
# v < c is f < c * W where f = v * W + w; v <= c is f < (c + 1) * W.
_COMPARED: dict[type, tuple[str, int]] = {E.LT: ("lt", 0), E.GE: ("ge", 0), E.LE: ("lt", 1), E.GT: ("ge", 1)}

# Neighbours among an operation's data ("") or reduction ("r") axes: the operation, the kind, the first one's number.
Pair = tuple[int, str, int]
Extent = int | str | None


@dataclass(frozen=True)
class Joined:
    """A computation with fewer axes. shapes: those of its arguments, then its outputs, with all axes."""

    args: list[Tensor]
    outputs: list[Tensor]
    shapes: list[tuple[int | E.Expr, ...]]

    def told(self, f: Func) -> Func:
        """The function of the joined computation, which says what shapes its callers know its parameters by."""
        known = {
            k: s for k, (p, s) in enumerate(zip(f.params, self.shapes)) if isinstance(p, Buffer) and p.ndim < len(s)
        }
        return f.with_attrs(shapes=known)


def join_axes(args: Sequence[Tensor], outputs: Sequence[Tensor], target: Target | None = None) -> Joined | None:
    """The same computation with fewer axes; None where none can be joined, or where a note tells templates of an operation what they could not tell of another.

    For a CPU axes of sums whose sizes are no numbers are joined too. Their products are counted in int64, which takes a GPU two registers and several instructions."""
    group = Group.of(outputs)
    ops = [op for op in group.ops if isinstance(op, ComputeOp)]
    known = {t.op for t in args}
    if (
        len(ops) < len(group.ops)
        or any(op.tag or op.attrs for op in ops)
        or any(
            t.op not in known for op in ops for t in op.inputs if not t.op.inputs and not isinstance(t.op, ComputeOp)
        )
    ):
        return None
    open_sizes = target is not None and not target.is_gpu and any(op.reduce_axis for op in ops)
    pairs = _Pairs(ops, [t.op for t in args], open_sizes)
    return pairs.rebuilt(args, outputs) if pairs.joined else None


class _Pairs:
    """Which neighbouring axes are joined: classes of pairs that only go together, and of these the ones that nothing is against."""

    def __init__(self, ops: Sequence[ComputeOp], placeholders: Sequence[Operation], open_sizes: bool):
        self.ops, self.open_sizes = ops, open_sizes
        self.parent: dict[Pair, Pair] = {}
        self.apart: set[Pair] = set()
        for op in placeholders:
            self._begin(op, "", [_size(n) for n in op.output(0).shape])
        for op in ops:
            self._begin(op, "", [_extent(a) for a in op.axis])
            self._begin(op, "r", [_extent(a) for a in op.reduce_axis])
        for op in ops:
            _Reader(self, op).run()
        split = {self.root(p) for p in self.apart}
        self.joined = {p for p in self.parent if self.root(p) not in split}

    def _begin(self, op: Operation, kind: str, extents: list[Extent]) -> None:
        is_long = math.prod(n for n in extents if isinstance(n, int) and n) >= _LIMIT
        for k in range(len(extents) - 1):
            pair = (id(op), kind, k)
            self.parent[pair] = pair
            both = extents[k : k + 2]
            if is_long or not all(both) or not (self.open_sizes or all(isinstance(n, int) for n in both)):
                self.apart.add(pair)

    def root(self, p: Pair) -> Pair:
        while self.parent[p] != p:
            self.parent[p] = p = self.parent[self.parent[p]]
        return p

    def together(self, a: Pair, b: Pair) -> None:
        self.parent[self.root(a)] = self.root(b)

    def runs(self, op: Operation, kind: str, count: int) -> list[list[int]]:
        """Numbers of axes by what becomes one."""
        out: list[list[int]] = []
        for k in range(count):
            if k and (id(op), kind, k - 1) in self.joined:
                out[-1].append(k)
            else:
                out.append([k])
        return out

    def rebuilt(self, args: Sequence[Tensor], outputs: Sequence[Tensor]) -> Joined:
        made: dict[int, Operation] = {}
        runs = {id(op): self.runs(op, "", len(op.output(0).shape)) for op in (*(t.op for t in args), *self.ops)}
        shapes = {
            id(t.op): [[t.shape[k] for k in run] for run in runs[id(t.op)]]
            for t in (*args, *(op.output(0) for op in self.ops))
        }
        for t in args:
            made[id(t.op)] = _placeholder(t.op, [_product(run) for run in shapes[id(t.op)]])
        for op in self.ops:
            made[id(op)] = _Writer(self, op, runs[id(op)], made, runs).written()
        new = [made[id(t.op)].output(t.value_index) for t in (*args, *outputs)]
        return Joined(new[: len(args)], new[len(args) :], [_numbers(t.shape) for t in (*args, *outputs)])


class _Reader:
    """What the body of an operation says of its own axes, and of those of what it reads."""

    def __init__(self, pairs: _Pairs, op: ComputeOp):
        self.pairs, self.op = pairs, op
        self.places = {
            id(a.var): (kind, k, a) for kind, axes in (("", op.axis), ("r", op.reduce_axis)) for k, a in enumerate(axes)
        }
        self.count = {"": len(op.axis), "r": len(op.reduce_axis)}
        sizes = [_extent(a) for a in (*op.axis, *op.reduce_axis)]
        sizes += [_size(n) for e in reads_of(op) for n in e.tensor.shape]
        self.is_open = not all(isinstance(n, int) for n in sizes)
        self.seen: set[int] = set()

    def run(self) -> None:
        for e in self.op.body:
            self.visit(e)

    def visit(self, e: E.Expr) -> None:
        if id(e) in self.seen:
            return
        self.seen.add(id(e))
        if isinstance(e, E.Var):
            self._part(e, first=False, second=False)
        elif isinstance(e, E.TensorRead):
            self._read(e)
        elif not self.is_open and (found := _comparison(e)) is not None and id(found[0]) in self.places:
            self._part(found[0], first=True, second=False)
        else:
            for c in children(e):
                self.visit(c)

    def _part(self, v: E.Var, first: bool, second: bool) -> None:
        """A place where an axis stands: whether the next one stands behind it, and the one before ahead of it, as joined axes do."""
        kind, k, _ = self.places.get(id(v), ("", 0, None))
        if id(v) not in self.places:
            return
        if not first and k + 1 < self.count[kind]:
            self.pairs.apart.add((id(self.op), kind, k))
        if not second and k > 0:
            self.pairs.apart.add((id(self.op), kind, k - 1))

    def _read(self, e: E.TensorRead) -> None:
        sizes = [_size(n) for n in e.tensor.shape]
        met = [self._axis(i, n) for i, n in zip(e.indices, sizes)]
        # Of each dimension, and the one ahead of it: whether they are neighbouring axes.
        beside = [False] * (len(met) + 1)
        for d in range(1, len(met)):
            a, b, pair = met[d - 1], met[d], (id(e.tensor.op), "", d - 1)
            if a is not None and b is not None:
                (kind, k, _), (other, m, axis) = self.places[id(a[0])], self.places[id(b[0])]
                beside[d] = kind == other and m == k + 1 and b[1] and _extent(axis) == sizes[d]
            if beside[d]:
                self.pairs.together(pair, (id(self.op), kind, k))
            elif not (sizes[d - 1] == sizes[d] == 1 and _is_zero(e.indices[d - 1]) and _is_zero(e.indices[d])):
                self.pairs.apart.add(pair)
        for d, found in enumerate(met):
            if found is None:
                self.visit(e.indices[d])
            else:
                self._part(found[0], first=beside[d + 1], second=beside[d])

    def _axis(self, index: E.Expr, size: Extent) -> tuple[E.Var, bool] | None:
        """The axis of `v`, `v + c` or `v % size`, and whether it is `v` alone; beside open sizes `v` alone."""
        if self.is_open:
            return (index, True) if isinstance(index, E.Var) and id(index) in self.places else None
        found = _moved(index)
        if found is None and isinstance(index, E.FloorMod) and const_value(index.b) == size is not None:
            found = (index.a, 1) if isinstance(index.a, E.Var) else None
        if found is None or id(found[0]) not in self.places:
            return None
        # What is moved by more than there is never lies in the dimension, and by the steps of a joined axis it may not fit int32.
        most = max(n for n in (size, _extent(self.places[id(found[0])][2]), 0) if isinstance(n, int))
        if not isinstance(index, E.FloorMod) and abs(found[1]) > most:
            return None
        return found[0], index is found[0]


class _Writer:
    """An operation with joined axes, which reads tensors with joined dimensions."""

    def __init__(self, pairs: _Pairs, op: ComputeOp, runs: list[list[int]], made: Mapping[int, Operation], read: Mapping[int, list[list[int]]]):  # fmt: skip
        self.op, self.made, self.read = op, made, read
        # Of a variable that begins a run: the run's variable, how many of its steps are one of the variable's own, and the values that the variable has.
        self.places: dict[int, tuple[E.Var, int, int]] = {}
        self.axes = self._joined(op.axis, runs)
        self.reduced = self._joined(op.reduce_axis, pairs.runs(op, "r", len(op.reduce_axis)))

    def _joined(self, axes: Sequence[E.IterVar], runs: list[list[int]]) -> tuple[E.IterVar, ...]:
        out = []
        for run in runs:
            first = axes[run[0]]
            if len(run) > 1:
                extents = [a.dom.extent for a in (axes[k] for k in run) if a.dom is not None]
                count, sizes = _product(extents), [n.value for n in extents if isinstance(n, IntImm)]
                var = E.Var(first.var.name, count.dtype)
                # Of open ones no more is asked than the variable.
                self.places[id(first.var)] = var, math.prod(sizes[1:]), sizes[0] if sizes else 0
                dom = E.Range(B.const(0, var.dtype), count)
                first = E.IterVar(var, dom, first.kind, "", first.loc)
            out.append(first)
        return tuple(out)

    def written(self) -> ComputeOp:
        handlers: dict[type, Any] = {E.TensorRead: self._read, E.Reduce: self._reduce}
        rewriter = Rewriter({**handlers, **dict.fromkeys(_COMPARED, self._compare)}, memo=True)
        body = [rewriter.expr(e) for e in self.op.body]
        return ComputeOp(self.op.name, self.axes, body, self.op.tag, self.op.attrs, self.op.loc)

    def _read(self, e: E.TensorRead, r: Rewriter) -> E.Expr:
        indices = [self._index(e, run, r) for run in self.read[id(e.tensor.op)]]
        return E.TensorRead(self.made[id(e.tensor.op)].output(e.tensor.value_index), tuple(indices))

    def _index(self, e: E.TensorRead, run: list[int], r: Rewriter) -> E.Expr:
        first = e.indices[run[0]]
        if len(run) == 1 or _is_zero(first):
            return r.expr(first)
        if isinstance(first, E.FloorMod):
            var, step, _ = self.places[id(first.a)]
            return B.floormod(var, (const_value(first.b) or 1) * step)
        found = _moved(first)
        assert found is not None
        var, step, _ = self.places[id(found[0])]
        return B.add(var, found[1] * step)

    def _reduce(self, e: E.Reduce, r: Rewriter) -> E.Expr:
        source, init = tuple(map(r.expr, e.source)), tuple(map(r.expr, e.init))
        return E.Reduce(e.combiner, source, self.reduced, r.expr(e.condition), e.value_index, init)

    def _compare(self, e: E.CmpExpr, r: Rewriter) -> E.Expr:
        found = _comparison(e)
        if found is None or id(found[0]) not in self.places:
            return r.expr_children(e)
        var, step, count = self.places[id(found[0])]
        how, more = _COMPARED[found[1]]
        # A bound past either end says what the end says, and fits the variable's type.
        return B.compare(how, var, min(max(found[2] + more, 0), count) * step)


def _comparison(e: E.Expr) -> tuple[E.Var, type, int] | None:
    """(v, <, c) of a comparison of a variable, or of one and a number, with a number."""
    if type(e) not in _COMPARED:
        return None
    for a, b, how in ((e.a, e.b, type(e)), (e.b, e.a, E.TURNED[type(e)])):  # type: ignore[attr-defined]
        found, bound = _moved(a), const_value(b)
        if found is not None and isinstance(bound, int):
            return found[0], how, bound - found[1]
    return None


def _moved(e: E.Expr) -> tuple[E.Var, int] | None:
    """(v, c) of v + c."""
    if isinstance(e, E.Var):
        return e, 0
    if isinstance(e, E.Add) and isinstance(e.a, IntImm) and isinstance(e.b, E.Var):
        return e.b, e.a.value
    if isinstance(e, (E.Add, E.Sub)) and isinstance(e.a, E.Var) and isinstance(e.b, IntImm):
        return e.a, e.b.value if isinstance(e, E.Add) else -e.b.value
    return None


def _product(run: Sequence[E.Expr]) -> E.Expr:
    if len(run) == 1:
        return run[0]
    size = math.prod(from_expr(n) for n in run)
    return size.asexpr("int64") if isinstance(size, Dim) else B.const(size)


def _numbers(shape: Sequence[E.Expr]) -> tuple[int | E.Expr, ...]:
    return tuple([n.value if isinstance(n, IntImm) else n for n in shape])


def _is_zero(e: E.Expr) -> bool:
    return const_value(e) == 0


def _size(e: E.Expr) -> Extent:
    """A number, or the text of what is none."""
    return e.value if isinstance(e, IntImm) else str(e)


def _extent(axis: E.IterVar) -> Extent:
    """Of an axis from 0 on."""
    return _size(axis.dom.extent) if axis.dom is not None and _is_zero(axis.dom.min) else None


def _placeholder(op: Operation, shape: Sequence[E.Expr]) -> Operation:
    """An input of another shape."""
    made = PlaceholderOp(op.name, tuple(shape), op.output(0).dtype, op.loc)
    made.attrs.update(op.attrs)
    return made
