"""What the schedulers ask of a group of te tensors: its operations in order, who reads whom, sizes, and which are injective."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...ir import Expr, IntImm
from ...te import ComputeOp, Operation, PlaceholderOp, Tensor


def size_of(dims: Iterable[Any]) -> int | None:
    """The product of the dimensions, or None where one is symbolic."""
    total = 1
    for d in dims:
        value = d.value if isinstance(d, IntImm) else d
        if not isinstance(value, int):
            return None
        total *= value
    return total


def const_shape(t: Tensor) -> tuple[int | None, ...]:
    """The dimensions as ints, None where symbolic."""
    return tuple(d.value if isinstance(d, IntImm) else None for d in t.shape)


def shape_key(t: Tensor) -> tuple[Any, ...]:
    """The dimensions for comparison: ints, and the text of symbolic ones."""
    return tuple(d.value if isinstance(d, IntImm) else str(d) for d in t.shape)


def reduce_size(op: Operation) -> int | None:
    """Elements that one output reduces over; 1 without a reduction."""
    return size_of(a.dom.extent for a in op.reduce_axis if a.dom is not None)


@dataclass
class Group:
    """The operations behind `outputs`, producers first, placeholders left out."""

    outputs: list[Tensor]
    ops: list[Operation] = field(default_factory=list)
    consumers: dict[Operation, list[Operation]] = field(default_factory=dict)

    @property
    def output_ops(self) -> list[Operation]:
        return list(dict.fromkeys(t.op for t in self.outputs))

    def reductions(self) -> list[ComputeOp]:
        return [op for op in self.ops if isinstance(op, ComputeOp) and op.reduce_axis]

    def is_output(self, op: Operation) -> bool:
        return any(t.op is op for t in self.outputs)

    def depends_on(self, op: Operation, on: Operation) -> bool:
        """Whether `op` reads `on`, at any distance."""
        seen: set[int] = set()
        stack = [op]
        while stack:
            for t in stack.pop().inputs:
                if t.op is on:
                    return not isinstance(on, PlaceholderOp)
                if id(t.op) not in seen:
                    seen.add(id(t.op))
                    stack.append(t.op)
        return False


def analyze(outputs: list[Tensor]) -> Group:
    """Collect the group's operations."""
    group = Group(list(outputs))
    seen: set[int] = set()

    def walk(op: Operation) -> None:
        if id(op) in seen or isinstance(op, PlaceholderOp):
            return
        seen.add(id(op))
        for t in op.inputs:
            walk(t.op)
            if not isinstance(t.op, PlaceholderOp):
                group.consumers.setdefault(t.op, []).append(op)
        group.ops.append(op)

    for t in outputs:
        walk(t.op)
    return group


def same_shape(a: Tensor, b: Tensor) -> bool:
    return shape_key(a) == shape_key(b)


def largest_divisor(n: int, limit: int) -> int:
    """The largest divisor of n that is at most `limit`."""
    return next(d for d in range(min(n, limit), 0, -1) if n % d == 0)


def extent(e: Expr) -> int | None:
    return e.value if isinstance(e, IntImm) else None
