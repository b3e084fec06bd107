"""Which axes of a scan stay where they are from one time to the next."""

from __future__ import annotations

from collections import defaultdict

from tec import ir
from tec.ir.build import const
from tec.ir.expr import IterVar, TensorRead, Var
from tec.ir.visit import walk_exprs
from tec.te.operation import ComputeOp, ScanOp, topo_order
from tec.te.tensor import Tensor

# What a dimension of a tensor is read at: the scan's axes whose place it is, None for any other place.
Labels = dict[tuple[Tensor, int], set[IterVar | None]]


def fixed_axes(scan: ScanOp) -> dict[IterVar, ir.Expr]:
    """1 for each spatial axis along which a state at a time is made of the same place of the state alone, else 0."""
    spatial = iter(scan.spatial_axis)
    axes = {(s, d): next(spatial) for s in scan.state_placeholder for d in range(1, len(s.shape))}
    labels: Labels = defaultdict(set)
    for update, state in zip(scan.update, scan.state_placeholder):
        for d in range(1, len(state.shape)):
            labels[update, d].add(axes[state, d])
    ends = {op for t in (*scan.init, *scan.scan_inputs) for op in topo_order(t)}
    for op in reversed(topo_order(scan.update)):
        if op in ends:
            continue
        if isinstance(op, ComputeOp):
            _read(op, labels)
        else:
            for t in op.inputs:
                for d in range(len(t.shape)):
                    labels[t, d].add(None)
    moved: set[IterVar] = set()
    for place, own in axes.items():
        if others := labels[place] - {own}:
            moved |= {own, *(o for o in others if o is not None)}
    return {a: const(int(a not in moved)) for a in axes.values()}


def _read(op: ComputeOp, labels: Labels) -> None:
    """The labels of what an operation reads, from those of its outputs."""
    places = {id(a.var): d for d, a in enumerate(op.axis)}
    for body in op.body:
        for e in walk_exprs(body):
            if not isinstance(e, TensorRead):
                continue
            for d, i in enumerate(e.indices):
                at = places.get(id(i)) if isinstance(i, Var) else None
                found = {label for t in op.outputs for label in labels[t, at]} if at is not None else {None}
                labels[e.tensor, d] |= found
