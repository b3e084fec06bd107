"""Inlines every stage of a schedule that may be, by what its values are: the functions of te's name for it.

    tec.schedule.AutoInlineInjective(s)

They change the schedule in place. A stage is left as it is where it is an output, reduces, is attached or has annotated loops.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.expr import Expr, TensorRead
from ..ir.visit import walk_exprs
from ..te.operation import ComputeOp
from .schedule import Schedule
from .state import AttachKind


def _inline(s: Schedule, fits: Callable[[ComputeOp], bool]) -> None:
    for stage in s.stages:
        op = stage.op
        if not isinstance(op, ComputeOp) or stage.is_output or op.reduce_axis or stage.attach != AttachKind.ROOT:
            continue
        if not stage.attrs and fits(op):
            stage.compute_inline()


def _reads(op: ComputeOp) -> list[tuple[Expr, ...]]:
    return [e.indices for body in op.body for e in walk_exprs(body) if isinstance(e, TensorRead)]


def _is_elemwise(op: ComputeOp) -> bool:
    own = [a.var for a in op.axis]
    return all(len(at) == len(own) and all(i is v for i, v in zip(at, own)) for at in _reads(op))


def AutoInlineElemWise(s: Schedule) -> None:
    """Inline the stages whose elements are computed from the same places of their inputs.

    >>> A = te.placeholder((8,), name="A")
    >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    >>> C = te.compute((8,), lambda i: B[i] * 2.0, name="C")
    >>> s = te.create_schedule(C.op)
    >>> tec.schedule.AutoInlineElemWise(s)
    >>> print(s)
    A: placeholder
    B: compute, inlined
    C: compute, output
        for i in 8
    """
    _inline(s, _is_elemwise)


def AutoInlineBroadcast(s: Schedule) -> None:
    """Inline the stages that are tagged "broadcast" or "elemwise", or compute element by element.

    >>> A = te.placeholder((8,), name="A")
    >>> B = te.compute((4, 8), lambda i, j: A[j], name="B", tag="broadcast")
    >>> C = te.compute((4, 8), lambda i, j: B[i, j] * 2.0, name="C")
    >>> s = te.create_schedule(C.op)
    >>> tec.schedule.AutoInlineBroadcast(s)
    >>> print(s)
    A: placeholder
    B: compute, inlined
    C: compute, output
        for i in 4
            for j in 8
    """
    _inline(s, lambda op: op.tag.startswith(("broadcast", "elemwise")) or _is_elemwise(op))


def AutoInlineInjective(s: Schedule) -> None:
    """Inline the stages that do not reduce.

    >>> A = te.placeholder((4, 8), name="A")
    >>> B = te.compute((8, 4), lambda i, j: A[j, i], name="B")
    >>> C = te.compute((8, 4), lambda i, j: B[i, j] * 2.0, name="C")
    >>> s = te.create_schedule(C.op)
    >>> tec.schedule.AutoInlineInjective(s)
    >>> print(s)
    A: placeholder
    B: compute, inlined
    C: compute, output
        for i in 8
            for j in 4
    """
    _inline(s, lambda op: True)
