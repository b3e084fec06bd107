"""What templates count of a group: operations, bytes, lanes of a vector, stages that get loops of their own."""

from __future__ import annotations

from ...ir import Call
from ...ir.dtype import dtype_info
from ...ir.expr import BinaryExpr
from ...ir.visit import walk_exprs
from ...target import Target
from ...te import ComputeOp, ExternOp, Operation, Tensor
from .. import parallel
from ..group import Group, reduce_size, size_of

_CALL_CLOCKS = 12  # instructions that a function of the math library (erf, exp, tanh) takes in an epilogue, roughly: GELU has 13 in all


def lanes_for(dtype: str, target: Target) -> int:
    """Lanes of a vector register for a dtype (at least 4)."""
    bits = {"64": 8, "16": 2, "t8": 1}.get(dtype[-2:], 4)
    return max(4, target.vector_bytes // bits if bits >= 4 else 16)


def work(op: Operation) -> int:
    """Multiply-adds, roughly; where sizes are symbolic, of as many elements as are expected."""
    elems = size_of(op.output(0).shape)
    return (elems if elems is not None else parallel.open_elements()) * (reduce_size(op) or 1)


def moved_bytes(group: Group) -> int:
    """Bytes that outputs and what they are made from take, each once; symbolic sizes count one element."""
    tensors = {id(t): t for op in group.ops for t in op.inputs if not t.op.inputs} | {id(t): t for t in group.outputs}
    return sum((size_of(t.shape) or 1) * dtype_info(t.dtype).bytes for t in tensors.values())


def computed(group: Group) -> list[ComputeOp]:
    """The stages that get loops of their own: outputs, reductions, and what loops written by hand read (a constant of one element)."""
    return [
        op
        for op in group.ops
        if isinstance(op, ComputeOp)
        and (group.is_output(op) or op.reduce_axis or any(isinstance(c, ExternOp) for c in group.consumers.get(op, [])))
    ]


def instructions_behind(group: Group, result: Tensor) -> int:
    """Instructions an element of what follows a result, roughly, with two for what stores it."""
    total, known = 2, {result}
    for o in group.ops:
        if isinstance(o, ComputeOp) and not known.isdisjoint(o.inputs):
            known.add(o.output(0))
            for e in walk_exprs(o.body[0]):
                total += _CALL_CLOCKS if isinstance(e, Call) else isinstance(e, BinaryExpr)
    return total
