"""A group: te tensors that are computed together, as templates see them: operations in order, who reads whom, sizes, a text that names it.

Two groups with one text are one computation: names do not count, shapes, dtypes, layouts (as indices) and constants do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from ..ir import Expr, IntImm, IterVar, Reduce, TensorRead, Var
from ..ir.build import is_const
from ..ir.visit import free_vars, walk_exprs
from ..locks import cached_property
from ..ops.dims import Dim
from ..ops.registry import TensorType, static_shape
from ..ops.typical import TYPICAL, typical
from ..records import dataclass
from ..schedule import Schedule, create_schedule
from ..schedule.rewrite import replace_inputs, replace_reads, substitute_all
from ..te import ComputeOp, ExternOp, Operation, PlaceholderOp, Tensor


def size_of(dims: Iterable[Any]) -> int | None:
    """The product of the dimensions, or None where one is symbolic."""
    total = 1
    for d in dims:
        value = d.value if isinstance(d, IntImm) else d
        if not isinstance(value, int):
            return None
        total *= value
    return total


def const_shape(t: Tensor | TensorType) -> tuple[int | None, ...]:
    """The dimensions as ints, None where symbolic."""
    return tuple(d.value if isinstance(d, IntImm) else d if isinstance(d, int) else None for d in t.shape)


def shape_key(t: Tensor) -> tuple[Any, ...]:
    """The dimensions for comparison: ints, and the text of symbolic ones."""
    return tuple(d.value if isinstance(d, IntImm) else str(d) for d in t.shape)


def likely_shape(t: Tensor) -> list[int]:
    """The dimensions as tiles are chosen by them: symbolic ones as what they are thought to be, and what follows from them (a quotient) as no less than a name stands for."""
    return [max(typical(n), TYPICAL) if isinstance(n, Dim) else n for n in static_shape(t)]


def reduce_size(op: Operation) -> int | None:
    """Elements that one output reduces over; 1 without a reduction."""
    return size_of(a.dom.extent for a in op.reduce_axis if a.dom is not None)


@dataclass
class Group:
    """The operations behind `outputs`, producers first, placeholders left out."""

    outputs: list[Tensor]
    ops: list[Operation] = field(default_factory=list)
    consumers: dict[Operation, list[Operation]] = field(default_factory=dict)

    @classmethod
    def of(cls, outputs: Iterable[Tensor]) -> Group:
        """The group that computes `outputs`."""
        group = cls(list(outputs))
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

        for t in group.outputs:
            walk(t.op)
        return group

    @property
    def output_ops(self) -> list[Operation]:
        return list(dict.fromkeys(t.op for t in self.outputs))

    def reductions(self) -> list[ComputeOp]:
        return [op for op in self.ops if isinstance(op, ComputeOp) and op.reduce_axis]

    def ended_sum(self) -> tuple[ComputeOp, ComputeOp] | None:
        """The group's one reduction, and the one output that it is or that follows it without another; None for another group."""
        found, ends = self.reductions(), self.output_ops
        return (found[0], ends[0]) if len(found) == len(ends) == 1 and isinstance(ends[0], ComputeOp) else None

    def is_output(self, op: Operation) -> bool:
        return any(t.op is op for t in self.outputs)

    @property
    def name(self) -> str:
        """The outputs' names, for messages."""
        return ", ".join(t.name for t in self.outputs)

    def form(self, *kinds: str) -> tuple[Any, dict[int, Tensor]] | None:
        """The note of another form (`tec.ops.forms`) of one of these kinds that the group carries, and the tensors that carry it by the form's
        output; None without one."""
        found: Any = None
        carriers: dict[int, Tensor] = {}
        for op in self.ops:
            form = op.attrs.get("form")
            if form is not None and form.kind in kinds and found in (None, form):
                found = form
                if op.num_outputs > 1:  # one operation that makes all of them
                    carriers.update(enumerate(op.outputs))
                else:
                    carriers[op.attrs["form_output"]] = op.output(0)
        return (found, carriers) if found is not None else None

    @cached_property
    def text(self) -> str:
        """The computation: a line an operation, tensors and axes by number."""
        return _text(self)

    @cached_property
    def signature(self) -> str:
        """`text`, short: equal computations have equal signatures, in every process."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:24]


def depends(op: Operation, on: Operation) -> bool:
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


def begin(group: Group, keep: Iterable[Operation] = ()) -> Schedule:
    """A schedule of the group in which computes without a reduction that are no outputs go into their readers, but for those to `keep`."""
    s = create_schedule([t.op for t in group.outputs])
    kept = set(keep)
    for op in group.ops:
        inlined = isinstance(op, ComputeOp) and not op.reduce_axis and op.num_outputs == 1
        if not inlined or group.is_output(op) or op in kept:
            continue
        if all(isinstance(c, ComputeOp) for c in group.consumers.get(op, [])):
            s[op].compute_inline()
    return s


def substitute(outputs: list[Tensor], new: Mapping[Tensor, Tensor]) -> list[Tensor]:
    """The outputs of the same computation with some tensors replaced."""
    made: dict[Operation, Operation] = {}

    def tensor(t: Tensor) -> Tensor:
        found = new.get(t)
        return found if found is not None else operation(t.op).output(t.value_index)

    def operation(op: Operation) -> Operation:
        if op not in made:
            made[op] = op if isinstance(op, PlaceholderOp) else replace_inputs(op, tensor)
        return made[op]

    return [tensor(t) for t in outputs]


def _text(group: Group) -> str:
    """See `Group.text`."""
    numbers: dict[Operation, str] = {}
    stands: dict[Tensor, Tensor] = {}
    lines = []

    def number(op: Operation) -> str:
        if op not in numbers:
            numbers[op] = f"t{len(numbers)}"
            for t in op.outputs:
                name = numbers[op] + (f"_{t.value_index}" if op.num_outputs > 1 else "")
                stands[t] = PlaceholderOp(name, t.shape, t.dtype).output(0)
            if isinstance(op, PlaceholderOp):
                lines.append(f"{numbers[op]}: {_type(op.output(0))}")
        return numbers[op]

    for op in group.ops:
        for t in op.inputs:
            number(t.op)
        types = ", ".join(_type(t) for t in op.outputs)
        if isinstance(op, ComputeOp):
            axes = {a.var: Var(f"i{k}", a.var.dtype) for k, a in enumerate(op.axis)}
            axes |= {a.var: Var(f"r{k}", a.var.dtype) for k, a in enumerate(op.reduce_axis)}
            reduced = ", ".join(str(a.dom.extent) for a in op.reduce_axis if a.dom is not None)
            bodies = [_body(e) for e in substitute_all(replace_reads(op.body, lambda t: stands.get(t, t)), axes)]
            what = f"[{reduced}] {'; '.join(bodies)}"
        else:
            reads = ", ".join(numbers[t.op] for t in op.inputs)
            what = f"{type(op).__name__}({reads}) {op.body if isinstance(op, ExternOp) else ''}"
        tag = f" {op.tag}" if op.tag else ""
        lines.append(f"{number(op)}: {types}{tag} = {what}")
    lines.append("-> " + ", ".join(f"{numbers[t.op]}.{t.value_index}" for t in group.outputs))
    return "\n".join(lines)


def _body(e: Expr) -> str:
    if not isinstance(e, Reduce):
        return str(e)
    c = e.combiner
    named = {v: Var(f"{side}{k}", v.dtype) for side, vs in (("a", c.lhs), ("b", c.rhs)) for k, v in enumerate(vs)}
    combined = ", ".join(map(str, substitute_all(c.result, named)))
    start = ", ".join(map(str, e.init or c.identity))
    return f"reduce({combined}; from {start}; of {', '.join(map(str, e.source))}; where {e.condition})[{e.value_index}]"


def _type(t: Tensor) -> str:
    return f"{t.dtype}[{', '.join(map(str, t.shape))}]"


def same_shape(a: Tensor, b: Tensor) -> bool:
    return shape_key(a) == shape_key(b)


def largest_divisor(n: int, limit: int) -> int:
    """The largest divisor of n that is at most `limit`."""
    return next(d for d in range(min(n, limit), 0, -1) if n % d == 0)


def extent(e: Expr) -> int | None:
    return e.value if isinstance(e, IntImm) else None


def extent_of(axis: IterVar) -> int | None:
    """How many values an axis has; None where that is symbolic, or not known yet."""
    return None if axis.dom is None else extent(axis.dom.extent)


def reads_of(op: ComputeOp) -> list[TensorRead]:
    """What the bodies of an operation read of tensors, each as often as it stands there."""
    return [e for body in op.body for e in walk_exprs(body) if isinstance(e, TensorRead)]


def whole_reduce(op: ComputeOp) -> Reduce | None:
    """The one body of a reduction that takes every element, from the combiner's own start; None for another one."""
    body = op.body[0]
    if op.num_outputs > 1 or not isinstance(body, Reduce) or body.init:
        return None
    return body if is_const(body.condition, True) else None


def is_used(var: Var, *exprs: Expr) -> bool:
    """Whether a variable stands in one of some expressions."""
    return any(v is var for e in exprs for v in free_vars(e))
