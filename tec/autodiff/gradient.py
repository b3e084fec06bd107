"""Reverse mode over the operations of a computation.

In: an output, the tensors to differentiate by, and the gradient of some value by the output (`head`). Out: a computation for each of them.
From the output backwards, each read `A[f(i, r)]` in `T[i] = sum over r of e(i, r)` gives

    dA[a] += sum over (i, r) with f(i, r) == a  of  dT[i] * de/dA[f]

where `inverse` turns the condition into what is left to sum over, so that a product's gradients are products and a convolution's are
convolutions. Reference: Baydin et al., Automatic Differentiation in Machine Learning: a Survey, 2018.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ExprError
from ..ir import build as B
from ..ir import expr as E
from ..ir.dtype import dtype_info
from ..ir.visit import substitute, walk_exprs
from ..te.build import as_shape, reduce_axis
from ..te.computation import compute
from ..te.operation import ComputeOp, Operation, PlaceholderOp, ScanOp, topo_order
from ..te.reducer import prod as _prod
from ..te.reducer import sum as te_sum
from ..te.tensor import Tensor
from .inverse import readers
from .partials import partials
from .scans import Rebuilt, through_scan, timed

Term = Callable[[Sequence[Any], Sequence[Any]], E.Expr]  # of the head's leading indices and the element's


def gradient(output: Tensor, inputs: Tensor | Sequence[Tensor], head: Tensor | None = None) -> list[Tensor]:
    """Gradients of a computation.

    output: a tensor of a floating type. inputs: tensors that it is computed from, placeholders or computed
    themselves. head: the gradient of some value with respect to the output, of the output's shape, or with dimensions
    in front of it (one gradient for each of them); without it the whole Jacobian is computed. Returns one tensor per
    input, of the head's leading dimensions (without a head the output's) and the input's; zeros if the output does
    not depend on the input. They are computations like any other, to be scheduled and built.

    Gradients are defined for sums, products, maxima and minima over axes (equal values share) and all floating
    functions, through conditions, gathers, views, and scans whose updates read the row before. Raises ExprError for
    integers, externs, and other reducers of your own.

    >>> A, B, k = tec.placeholder((4, 8), name="A"), tec.placeholder((8, 3), name="B"), tec.reduce_axis(8, name="k")
    >>> C = tec.compute((4, 3), lambda i, j: tec.sum(A[i, k] * B[k, j], axis=k), name="C")
    >>> ones = tec.compute((4, 3), lambda i, j: 1.0, name="ones")
    >>> dA, dB = te.gradient(C, [A, B], head=ones)
    >>> [int(n) for n in dA.shape]
    [4, 8]
    """
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for t in (output, *wanted):
        if not isinstance(t, Tensor):
            raise ExprError(f"gradient takes tensors, not {t!r}", hint="te.gradient(C, [A, B], head)")
        if not dtype_info(t.dtype).is_float:
            raise ExprError(
                f"gradient by or of {t.name}, whose elements are {t.dtype}", hint="integers have no derivative"
            )
    head = _checked(output, head)
    return _Reverse(output, wanted, head).run()


def _checked(output: Tensor, head: Tensor | None) -> Tensor:
    if head is None:
        n = output.ndim
        same = lambda *i: B.cast(output.dtype, _all([B.compare("eq", a, b) for a, b in zip(i[:n], i[n:])]))  # noqa: E731
        return _tensor(compute((*output.shape, *output.shape), same, name=f"{output.op.name}_identity"))
    if not isinstance(head, Tensor) or head.dtype != output.dtype:
        raise ExprError(
            f"the head of the gradient is {head!r}", hint=f"a {output.dtype} tensor of {output.name}'s shape"
        )
    tail = head.shape[head.ndim - output.ndim :]
    if head.ndim < output.ndim or any(
        isinstance(a, E.IntImm) and isinstance(b, E.IntImm) and a.value != b.value for a, b in zip(tail, output.shape)
    ):
        raise ExprError(
            f"the head has shape ({', '.join(map(str, head.shape))}), {output.name} ({', '.join(map(str, output.shape))})",
            hint="its last dimensions are those of the output",
        )
    return head


def _tensor(made: Any) -> Tensor:
    assert isinstance(made, Tensor)
    return made


def _zeros(t: Tensor) -> Tensor:
    return _tensor(compute(t.shape, lambda *i: B.const(0, t.dtype), name="zeros"))


def _all(conditions: Sequence[E.Expr]) -> E.Expr:
    out: E.Expr = B.const(True)
    for c in conditions:
        out = B.logical_and(out, c)
    return out


class _Reverse:
    def __init__(self, output: Tensor, wanted: Sequence[Tensor], head: Tensor):
        self.output, self.wanted, self.head = output, wanted, head
        self.front = head.shape[: head.ndim - output.ndim]
        self.order = list(topo_order([output.op]))
        self.on_path = self._find_path()
        self.terms: dict[Tensor, list[Term]] = {}
        self.sums: dict[Tensor, Tensor] = {output: head}  # a gradient of one term that is a tensor already
        self.done: dict[Tensor, Tensor] = {}
        self.timed: set[Operation] = set()  # what a scan's update takes from the row before
        self.after: dict[Tensor, Tensor] = {}  # a scan's state while it runs: what it is in the end

    def _find_path(self) -> set[Tensor]:
        """The tensors through which the output depends on an input that is asked for."""
        found = set(self.wanted)
        for op in self.order:
            if any(t in found for t in op.inputs):
                found.update(op.outputs)
        return found

    def run(self) -> list[Tensor]:
        for op in reversed(self.order):
            have = [t for t in op.outputs if (t in self.terms or t is self.output) and t in self.on_path]
            if have and any(t in self.on_path for t in op.inputs):
                self._through(op, have)
        made = [self._adjoint(t) for t in self.wanted]
        return list(map(Rebuilt(self.after), made)) if self.after else made

    def _adjoint(self, t: Tensor) -> Tensor:
        """The gradient by a tensor, all of whose readers have been gone through."""
        if t not in self.done:
            terms = self.terms.get(t, [])
            n = len(self.front)

            def body(*i: Any) -> E.Expr:
                values = [term(i[:n], i[n:]) for term in terms]
                return functools.reduce(B.add, values) if values else B.const(0, t.dtype)

            if t in self.sums and len(terms) <= (t is not self.output):
                self.done[t] = self.sums[t]
            else:
                self.done[t] = _tensor(compute((*self.front, *t.shape), body, name=f"d_{t.op.name}"))
        return self.done[t]

    def _through(self, op: Any, have: Sequence[Tensor]) -> None:
        if isinstance(op, PlaceholderOp):
            return
        if isinstance(op, ScanOp):
            self._scan(op, have)
            return
        if not isinstance(op, ComputeOp):
            raise ExprError(
                f"no gradient through {op.name}, which is no compute ({type(op).__name__})",
                hint="write its steps as computes; a scan of few steps can be written out",
            )
        first = op.body[0]
        for t in have:
            if isinstance(first, E.Reduce):
                self._reduction(op, first, t)
            else:
                self._reads(op, t, op.body[t.value_index], {}, lambda v, g: g)

    def _scan(self, op: ScanOp, have: Sequence[Tensor]) -> None:
        """What comes to the inits and the updates; the states that updates read are those after the scan."""
        if self.front:
            raise ExprError(
                f"no gradient through {op.name} without a head, or with {len(self.front)} dimensions in front of its own",
                hint="give a head of the output's own shape",
            )
        heads = [self._adjoint(t) if t in have else _zeros(t) for t in op.outputs]
        rows = through_scan(op, heads, lambda u, by, g: _Reverse(u, by, g).run())
        for init, update, row in zip(op.init, op.update, rows):
            for t in (init, update):
                self.terms.setdefault(t, []).append(functools.partial(_at, row))
            self.timed.update(timed(update.op, op.state_placeholder))
        self.after.update(zip(op.state_placeholder, op.outputs))

    def _reduction(self, op: ComputeOp, r: E.Reduce, t: Tensor) -> None:
        """Add what a reduction passes on: of a sum the gradient itself, of an extreme its share for each element that has it. Raises ExprError for other
        combiners."""
        over = {a.var: a.dom for a in r.axis if a.dom is not None}
        if len(r.source) != 1:
            raise ExprError(
                f"no gradient through {op.name}, which reduces tuples by {r.combiner.name}",
                hint="take the maximum's values by te.max, whose gradient goes to the largest",
            )
        kind = _kind(r.combiner)
        source = r.source[0]
        if kind == "sum":
            self._reads(op, t, source, over, lambda v, g: g, r.condition)
        elif kind == "extreme":
            count = self._count(op, r, t)
            data = [a.var for a in op.axis]

            def of_ties(v: dict[E.Var, E.Expr], g: E.Expr) -> E.Expr:
                here = [v[x] for x in data]
                mine = B.compare("eq", substitute(source, v), t(*here))
                share: E.Expr = B.select(mine, g / count(*here), B.const(0, g.dtype))
                return share

            self._reads(op, t, source, over, of_ties, r.condition)
        elif kind == "product":
            others = self._others(op, r)
            names = [*(a.var for a in op.axis), *over]

            def of_others(v: dict[E.Var, E.Expr], g: E.Expr) -> E.Expr:
                where = [B.sub(v[x], over[x].min) if x in over else v[x] for x in names]
                rest: E.Expr = g * others(*where)
                return rest

            self._reads(op, t, source, over, of_others, r.condition)
        else:
            raise ExprError(
                f"no gradient through {op.name}, which reduces by {r.combiner.name}",
                hint="tec.sum, prod, max and min have one",
            )
        for start in r.init:
            if kind != "sum" and any(
                isinstance(e, E.TensorRead) and e.tensor in self.on_path for e in walk_exprs(start)
            ):
                raise ExprError(
                    f"no gradient through the start value of {op.name}", hint="combine it in a compute of its own"
                )
            self._reads(op, t, start, {}, lambda v, g: g)

    def _count(self, op: ComputeOp, r: E.Reduce, t: Tensor) -> Tensor:
        """How many elements are the largest (smallest): they share what comes."""

        def body(*i: Any) -> E.Expr:
            axes, value = _fresh(op, r, i)
            equal = B.cast(t.dtype, B.compare("eq", value, t(*i)))
            total: E.Expr = te_sum(equal, axis=axes, where=_renamed(r.condition, op, r, i, axes))
            return total

        return _tensor(compute(t.shape, body, name=f"{op.name}_ties"))

    def _others(self, op: ComputeOp, r: E.Reduce) -> Tensor:
        """The product of all elements but one: a quotient would not do where that one is 0."""
        n = len(op.axis)
        sizes = [a.dom.extent for a in r.axis if a.dom is not None]

        def body(*i: Any) -> E.Expr:
            axes, value = _fresh(op, r, i[:n])
            mine = _all([B.compare("eq", B.sub(a.var, a.dom.min), k) for a, k in zip(axes, i[n:]) if a.dom is not None])
            factor = B.select(mine, B.const(1, value.dtype), value)
            product: E.Expr = _prod(factor, axis=axes, where=_renamed(r.condition, op, r, i[:n], axes))
            return product

        return _tensor(compute((*op.output(0).shape, *sizes), body, name=f"{op.name}_others"))

    def _reads(
        self, op: ComputeOp, t: Tensor, value: E.Expr, over: dict[E.Var, E.Range], scale: Callable[[dict[E.Var, E.Expr], E.Expr], E.Expr],
        condition: E.Expr | None = None,
    ) -> None:  # fmt: skip
        """The terms that the reads of one value give: `scale` has what a reduction makes of the gradient that comes."""
        found = partials(value, lambda e: e.tensor in self.on_path, f"gradient of {op.name}")
        if not found:
            return
        adjoint = self._adjoint(t)
        n = len(self.front)
        always = () if condition is None or B.is_const(condition, 1) else (condition,)
        if op in self.timed:  # a scan takes row 0 from elsewhere
            always = (*always, B.compare("ge", op.axis[0].var, 1))
        for number, (read, guards, slope) in enumerate(found):
            source: Tensor = read.tensor
            variables = {a.var: a.dom for a in op.axis if a.dom is not None} | over

            def term(p: Sequence[Any], a: Sequence[Any], made: Any = (op, read, guards, slope, variables)) -> E.Expr:
                op_, read_, guards_, slope_, variables_ = made
                return _term(op_, adjoint, read_, (*always, *guards_), slope_, variables_, scale, p, a)

            # A sum is a tensor of its own: a reduction stands outermost in a compute.
            probe = [E.Var(f"a{k}", d.dtype) for k, d in enumerate(source.shape)]
            left = readers(list(zip(probe, source.shape)), read.indices, variables).free
            if left:
                name = f"d_{source.op.name}_{op.name}" + (f"_{number}" if len(found) > 1 else "")
                shape = (*self.front, *as_shape(source.shape, source.name))
                # called at once, so that it holds this round's term
                whole = _tensor(compute(shape, lambda *i: term(i[:n], i[n:]), name=name))
                self.sums[source] = whole
                self.terms.setdefault(source, []).append(functools.partial(_at, whole))
            else:
                self.terms.setdefault(source, []).append(term)


def _term(
    op: ComputeOp, adjoint: Tensor, read: E.TensorRead, guards: Sequence[E.Expr], slope: E.Expr, variables: dict[E.Var, E.Range],
    scale: Callable[[dict[E.Var, E.Expr], E.Expr], E.Expr], p: Sequence[Any], a: Sequence[Any],
) -> E.Expr:  # fmt: skip
    """What comes to the element `a` through one read, summed over the readers that are left."""
    source: Tensor = read.tensor
    found = readers(list(zip(a, source.shape)), read.indices, variables)
    axes = [reduce_axis((r.min, r.min + r.extent), name=v.name) for v, r in found.free.items()]
    values: dict[E.Var, E.Expr] = {v: k.var for v, k in zip(found.free, axes)}
    values |= {v: substitute(e, values) for v, e in found.solved.items()}
    conditions = [substitute(c, values) for c in (*found.conditions, *guards)]
    came = _at(adjoint, p, [values[x.var] for x in op.axis])
    total = scale(values, came * substitute(slope, values))
    if conditions:
        total = B.if_then_else(_all(conditions), total, B.const(0, total.dtype))
    return te_sum(total, axis=axes) if axes else total


def _at(t: Tensor, p: Sequence[Any], a: Sequence[Any]) -> E.Expr:
    value = t(*p, *a)
    return value.asexpr() if isinstance(value, Tensor) else value


def _fresh(op: ComputeOp, r: E.Reduce, i: Sequence[Any]) -> tuple[list[E.IterVar], E.Expr]:
    """Reduce axes of one's own and the reduced value at data indices `i`."""
    axes = [reduce_axis((a.dom.min, a.dom.min + a.dom.extent), name=a.var.name) for a in r.axis if a.dom is not None]
    return axes, _renamed(r.source[0], op, r, i, axes)


def _renamed(e: E.Expr, op: ComputeOp, r: E.Reduce, i: Sequence[Any], axes: Sequence[E.IterVar]) -> E.Expr:
    names = {a.var: B.convert(x) for a, x in zip(op.axis, i)} | {a.var: k.var for a, k in zip(r.axis, axes)}
    return substitute(e, names)


def _kind(c: E.CommReducer) -> str:
    """ "sum", "product", "extreme" or "" of a reducer of one value, whatever its name."""
    result, (x,), (y,) = c.result[0], c.lhs, c.rhs
    operands = (
        result.args if isinstance(result, E.Call) else (result.a, result.b) if isinstance(result, E.BinaryExpr) else ()
    )
    if {id(e) for e in operands} != {id(x), id(y)}:
        return ""
    if isinstance(result, E.Add):
        return "sum"
    if isinstance(result, E.Mul):
        return "product"
    is_extreme = isinstance(result, (E.Max, E.Min)) or (
        isinstance(result, E.Call) and result.op in ("max_nan", "min_nan")
    )
    return "extreme" if is_extreme else ""
