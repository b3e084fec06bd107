"""The gradient of a scan: a scan backwards in time over the gradient by each row.

With R[k] the gradient by row T - 1 - k of the state, R[0] is what comes from outside to the last row, and

    R[k] = what comes to row T - 1 - k + (gradient of the update by the row before)(R[k - 1])

The rows of the state are all there after the scan, so that none is computed again. Reference: Werbos, Backpropagation through time, 1990.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ExprError
from ..ir import build as B
from ..ir import expr as E
from ..ir.arith import Analyzer
from ..ir.visit import Rewriter, substitute, walk_exprs
from ..te.build import placeholder
from ..te.computation import compute, scan
from ..te.operation import ComputeOp, Operation, PlaceholderOp, ScanOp, topo_order
from ..te.tensor import Tensor

Gradient = Callable[[Tensor, Sequence[Tensor], Tensor], list[Tensor]]


class Rebuilt:
    """Computations again over other tensors: `leaves` in the place of some, and what reads one of `mirrored` with its first axis backwards."""

    def __init__(self, leaves: Mapping[Tensor, Tensor], mirrored: Sequence[Tensor] = (), rows: Any = 0):
        self.done: dict[Tensor, Tensor] = dict(leaves)
        self.mirrored, self.rows = set(mirrored), rows
        self.arith = Analyzer()

    def __call__(self, t: Tensor) -> Tensor:
        for op in topo_order([t.op]):
            if isinstance(op, ComputeOp) and op.output(0) not in self.done:
                self._op(op)
        return self.done.get(t, t)

    def _back(self, i: Any) -> E.Expr:
        mirrored: E.Expr = self.arith.simplify(B.sub(B.sub(self.rows, 1), i))
        return mirrored

    def _op(self, op: ComputeOp) -> None:
        """Rebuild an operation that reads what was rebuilt; of mirrored tensors it reads backwards."""
        if all(self.done.get(x, x) is x for x in op.inputs):
            return
        turned = any(x in self.mirrored for x in op.inputs)
        first = op.axis[0].var if op.axis else None

        def on_read(e: E.TensorRead, r: Rewriter) -> E.Expr:
            at = tuple([r.expr(i) for i in e.indices])
            if e.tensor in self.mirrored:
                at = (self._back(at[0]), *at[1:])
            new = self.done.get(e.tensor, e.tensor)
            read: E.Expr = E.TensorRead(new, at)
            # Before the first row there is none, and nobody takes what is computed of it.
            if isinstance(new.op, ScanOp) and new is not e.tensor:
                read = B.if_then_else(B.compare("ge", at[0], 0), read, B.const(0, new.dtype))
            return read

        rewrite = Rewriter({E.TensorRead: on_read}).expr

        def body(*i: Any) -> Any:
            values = {a.var: B.convert(x) for a, x in zip(op.axis, i)}
            if turned and first is not None:
                values[first] = self._back(i[0])
            parts = tuple([rewrite(substitute(e, values)) for e in op.body])
            return parts if len(parts) > 1 else parts[0]

        made = compute(op.output(0).shape, body, name=op.name)
        for old, new in zip(op.outputs, made if isinstance(made, (tuple, list)) else [made]):
            self.done[old] = new
            if turned:
                self.mirrored.add(old)


def through_scan(op: ScanOp, heads: Sequence[Tensor], gradient: Gradient) -> list[Tensor]:
    """The gradients by all rows of each state, given what comes to them from outside. Raises ExprError for updates that reach further back than a row."""
    states = op.state_placeholder
    rows = states[0].shape[0]
    if not B.is_const(op.init[0].shape[0], 1):
        raise ExprError(
            f"no gradient through {op.name}, which begins with {op.init[0].shape[0]} rows",
            hint="one row, and states of their own for what was before",
        )
    _check_reads(op)
    came = [placeholder(u.shape, u.dtype, name=f"came_{k}") for k, u in enumerate(op.update)]
    back = [placeholder(s.shape, s.dtype, name=f"back_{k}") for k, s in enumerate(states)]
    leaves = dict(zip(states, op.outputs)) | dict(zip(came, back))
    rebuilt = Rebuilt(leaves, came, rows)
    parts: list[list[Tensor]] = [[] for _ in states]
    for u, g in zip(op.update, came):
        needed = [s for s in states if _reaches(u.op, s)]
        for s, d in zip(needed, gradient(u, needed, g) if needed else []):
            parts[states.index(s)].append(rebuilt(d))
    first, step = [], []
    for head, mine in zip(heads, parts):

        def begin(k: Any, *i: Any, head: Tensor = head) -> Any:
            return head(B.sub(rows, 1), *i)

        def row(k: Any, *i: Any, head: Tensor = head, mine: Sequence[Tensor] = mine) -> Any:
            total = head(B.sub(B.sub(rows, 1), k), *i)
            for d in mine:
                total = total + d(k, *i)
            return total

        first.append(compute((1, *head.shape[1:]), begin, name="last_row"))
        step.append(compute(head.shape, row, name="row_before"))
    made = scan(first, step, back, name=f"d_{op.name}")
    found = list(made) if isinstance(made, (tuple, list)) else [made]
    return [
        compute(r.shape, lambda t, *i, r=r: r(B.sub(B.sub(rows, 1), t), *i), name=f"d_rows_{k}")
        for k, r in enumerate(found)
    ]


def _reaches(op: Operation, t: Tensor) -> bool:
    return any(t in x.inputs for x in topo_order([op]))


def timed(op: Operation, states: Sequence[Tensor]) -> list[Operation]:
    """`op` and what it is computed from, as far as that comes from a row before: in each the first axis is the time. `op`, too, where it does not."""
    found: set[Operation] = set()
    order = topo_order([op])
    for x in order:
        if any(t in states or t.op in found for t in x.inputs):
            found.add(x)
    return [x for x in order if x is op or x in found]


def _check_reads(op: ScanOp) -> None:
    """Each read of a state is of the row before, in computes whose first axis is the time."""
    states = set(op.state_placeholder)
    arith = Analyzer()
    for x in topo_order([u.op for u in op.update]):
        if isinstance(x, PlaceholderOp) or not any(t in states for t in x.inputs):
            continue
        time = x.axis[0].var if isinstance(x, ComputeOp) and x.axis else None
        for e in (e for b in getattr(x, "body", ()) for e in walk_exprs(b)):
            if isinstance(e, E.TensorRead) and e.tensor in states:
                lag = None if time is None else arith.simplify(B.sub(time, e.indices[0]))
                if lag is None or not B.is_const(lag, 1):
                    raise ExprError(
                        f"no gradient through {op.name}: {x.name} reads {e}",
                        hint="an update reads the row before its own",
                    )
