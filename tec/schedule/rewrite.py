"""Rewrites of operation bodies: other tensors read, other axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..ir import build as B
from ..ir import expr as E
from ..ir.visit import Rewriter, substituter
from ..te.operation import ComputeOp, ExternOp, Operation, ScanOp
from ..te.tensor import Tensor

Replace = Callable[[Tensor], Tensor]


def replace_reads(exprs: tuple[E.Expr, ...], new: Replace) -> tuple[E.Expr, ...]:
    """Expressions with each TensorRead's tensor mapped by `new`."""

    def on_read(e: E.TensorRead, r: Rewriter) -> E.Expr:
        out = r.expr_children(e)
        assert isinstance(out, E.TensorRead)
        t = new(out.tensor)
        return out if t is out.tensor else E.TensorRead(t, out.indices)

    rewriter = Rewriter({E.TensorRead: on_read}, memo=True)
    return tuple([rewriter.expr(e) for e in exprs])


def replace_inputs(op: Operation, new: Replace) -> Operation:
    """`op` reading other tensors; the same object where nothing changes."""
    if all(new(t) is t for t in op.inputs):
        return op
    if isinstance(op, ComputeOp):
        body = replace_reads(op.body, new)
        return ComputeOp(op.name, op.axis, body, op.tag, op.attrs, op.loc)
    if isinstance(op, ExternOp):
        inputs = [new(t) for t in op._inputs]
        return ExternOp(
            op.name, inputs, op.input_placeholders, op.output_placeholders, op.body, op.tag, op.attrs, op.loc, op.axis
        )
    if isinstance(op, ScanOp):
        clone = ScanOp(
            op.name, [new(t) for t in op.init], [new(t) for t in op.update], op.state_placeholder, op.scan_inputs,
            op.tag, op.attrs, op.loc, op.scan_axis,
        )  # fmt: skip
        clone.spatial_axis = op.spatial_axis
        return clone
    return op


def fresh_axes(axes: tuple[E.IterVar, ...], suffix: str) -> tuple[tuple[E.IterVar, ...], dict[E.Var, E.Expr]]:
    """Copies of data axes with variables of their own, and the substitution that goes with them."""
    out, sub = [], {}
    for a in axes:
        v = E.Var(a.var.name + suffix, a.var.dtype, a.var.is_size)
        out.append(E.IterVar(v, a.dom, a.kind, "", a.loc))
        sub[a.var] = v
    return tuple(out), dict(sub)


def substitute_all(exprs: tuple[E.Expr, ...], values: Mapping[E.Var, E.Expr]) -> tuple[E.Expr, ...]:
    sub = substituter(values)
    return tuple([sub(e) for e in exprs])


def with_condition(body: tuple[E.Expr, ...], guards: list[E.Expr]) -> tuple[E.Expr, ...]:
    """A body that counts only where all of `guards` hold; elsewhere 0, or nothing for a reduction."""
    if not guards:
        return body
    inside = B.all_of(*guards)
    first = body[0]
    if not isinstance(first, E.Reduce):
        return tuple([B.if_then_else(inside, e, B.const(0, e.dtype)) for e in body])
    condition = guarded_condition(first.condition, inside)
    return tuple(
        [E.Reduce(first.combiner, first.source, first.axis, condition, k, first.init) for k in range(len(body))]
    )


def guarded_condition(own: E.Expr, inside: E.Expr) -> E.Expr:
    """A reduction's condition inside of its loops' bounds; one that may read is asked there alone."""
    return inside if B.const_value(own) == 1 else B.if_then_else(inside, own, B.const(False))
