"""Sums in parts (split-K): work-groups, or wavefronts of one, have equal parts of k each, and something adds the parts up and ends the computation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import IterVar
from ...ir.dtype import dtype_info
from ...ir.shared_layout import PIECE_BYTES
from ...ops.contraction import Element
from ...schedule import Schedule
from ...target.machines import Machine
from ...te import ComputeOp, Operation, Tensor
from ...te.like import Index
from ..group import Group, const_shape
from .threads import bind_all

_FEWEST = 4  # neighbours of a row that a thread ends together, where 16 bytes have as many
KERNEL_US = 2.0  # a second kernel, in a network's graph


def sums(
    shape: Sequence[Any], depth: Index, parts: int, x: Element, y: Element, acc: str, name: str, tag: str = "", attrs: dict[str, Any] | None = None,
) -> Tensor:  # fmt: skip
    """sum_k x(batch, i, k) * y(batch, j, k), in the type `acc`, over `shape` (batch..., rows, columns); k below `depth`. In parts of `depth` terms each where there are more
    than one: their number is then the first dimension."""
    r = te.reduce_axis((0, depth), "k")

    def term(k: Any, at: Sequence[Any]) -> Any:
        *lead, i, j = at
        return te.sum(x(lead, i, k).astype(acc) * y(lead, j, k).astype(acc), axis=r)

    if parts > 1:
        made: Tensor = te.compute(
            (parts, *shape), lambda s, *at: term(s * depth + r, at), name=name, tag=tag, attrs=attrs
        )
    else:
        made = te.compute(tuple(shape), lambda *at: term(r, at), name=name, tag=tag, attrs=attrs)
    return made


def total(parts: Tensor, count: int, shape: Sequence[Any], dtype: str) -> Tensor:
    """The result of a product whose parts, `count` of them, are the first dimension of `parts`: their sum, in `dtype`."""
    r = te.reduce_axis((0, count), "part")
    whole = te.compute(tuple(shape), lambda *i: te.sum(parts(r, *i), axis=r), name="sum")
    result: Tensor = te.compute(tuple(shape), lambda *i: whole(*i).astype(dtype), name="result")
    return result


def schedule_total(s: Schedule, group: Group, product: Operation) -> None:
    """Schedule the kernel that adds the parts up and ends the computation."""
    out = group.output_ops[0]
    assert isinstance(out, ComputeOp)
    # Neighbours of a row at once: where they were of two rows, whole rows would be summed for them.
    size = dtype_info(out.output(0).dtype).bytes
    piece = PIECE_BYTES // size
    together = math.gcd(const_shape(out.output(0))[-1] or 1, piece)
    end(s, group, product, bind_all(s, out, vector=together * size if together >= min(_FEWEST, piece) else 0))


def end(s: Schedule, group: Group, product: Operation, thread: IterVar) -> None:
    """The sum of a group's parts in a thread's registers, at the axis of what ends the computation."""
    out = group.output_ops[0]
    (sums,) = (o for o in group.reductions() if o is not product)
    if sums is not out:
        s[sums].compute_at(s[out], thread)
        s[sums].set_scope("local")
    s[sums].unroll(s[sums].op.reduce_axis[0])


def traffic_seconds(parts: int, results: float, machine: Machine) -> float:
    """What storing and adding up the parts takes; they are still in the second-level cache, at about twice its memory's rate. 0 of one part."""
    gbps = machine.reached_gbps
    return 0.0 if parts == 1 else KERNEL_US * 1e-6 + 4.0 * results * (2 * parts + 1) / (2e9 * gbps)
