"""Refuse a computation that reads outside of a tensor, before it is compiled to do so.

In: the stages of a schedule as the user wrote them. Each element of a compute must be there to read, under the conditions
that the read stands under (`if_then_else`, a reduction's `where`; both sides of a `select` are evaluated). What is outside
for certain is a LoweringError with the user's line; what is not known is left to `TEC_CHECK=bounds` (see
`tec.ir.passes.check_bounds`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..errors import LoweringError
from ..ir import build as B
from ..ir import expr as E
from ..ir.access_bounds import Access, Domain, describe_shape, find_outside, numbers, surely_inside
from ..ir.visit import children, walk_exprs
from ..te.operation import ComputeOp, ScanOp
from ..te.tensor import Tensor
from .schedule import Schedule

# A note of an operation whose operands come by copies that give 0 for what is beyond a tensor: its reads are not judged. The schedule that writes it down makes those copies.
ZERO_BEYOND = "zero_beyond"


class Read(NamedTuple):
    """One access of a tensor in a body."""

    tensor: Tensor
    indices: tuple[E.Expr, ...]


def body_reads(op: ComputeOp) -> list[Read]:
    """Every access in the body of `op`, each once."""
    seen: set[int] = set()
    out: list[Read] = []
    first = op.body[0]
    roots = [*first.source, first.condition, *first.init] if isinstance(first, E.Reduce) else list(op.body)
    for root in roots:
        for e in walk_exprs(root):
            if type(e) is E.TensorRead and id(e) not in seen:
                seen.add(id(e))
                out.append(Read(e.tensor, e.indices))
    return out


def check_reads(sch: Schedule) -> None:
    """Raises LoweringError for a read that is outside of its tensor for certain."""
    begins = _times(sch)
    for stage in sch.stages:
        if isinstance(stage.op, ComputeOp):
            _check(stage.op, begins.get(id(stage), 0))


def _times(sch: Schedule) -> dict[int, E.Expr | None]:
    """The first time that a stage of a scan is computed for; None for one that computes what the update asks for: between the state and
    the update, or read by nothing else."""
    begins: dict[int, E.Expr | None] = {}
    for scan in sch.stages:
        if not isinstance(scan.op, ScanOp):
            continue
        inside = [sch.stage_map[t.op] for t in scan.op.state_placeholder if t.op in sch.stage_map]
        while inside:
            for reader in sch.readers(inside.pop()):
                if id(reader) not in begins and isinstance(reader.op, ComputeOp):
                    begins[id(reader)] = None
                    inside.append(reader)
        for t in scan.op.update:
            begins[id(sch.stage_map[t.op])] = scan.op.init[0].shape[0]
    # What they alone read is computed for the times that they ask for.
    for stage in reversed(sch.stages if begins else []):
        readers = sch.readers(stage)
        if readers and not stage.is_output and all(id(r) in begins for r in readers):
            begins.setdefault(id(stage), None)
    return begins


def _check(op: ComputeOp, begin: E.Expr | int | None) -> None:
    domain: Domain = [(iv.var, iv.dom) for iv in op.root_iter_vars() if iv.dom is not None]
    if begin is None or op.attrs.get(ZERO_BEYOND):
        return
    if isinstance(begin, E.Expr) and domain:
        v, r = domain[0]
        domain = [(v, E.Range(begin, B.sub(B.add(r.min, r.extent), begin))), *domain[1:]]
    known = numbers(domain)
    whole = {id(v): r.extent for v, r in domain if type(r.min) is E.IntImm and r.min.value == 0}
    if _quick(op, known, whole):
        return
    for read, guards in guarded_reads(op):
        if surely_inside(read.tensor.shape, read.indices, known, whole):
            continue
        access = Access(read.tensor.name, read.tensor.shape, read.indices, guards)
        found = find_outside(access, domain, known)
        if found is not None:
            raise LoweringError(
                f"{op.name} reads {access}, which is outside of {read.tensor.name} {describe_shape(read.tensor.shape)}: {found}",
                where=op.loc,
                hint=f"compute as many elements as there are, or guard the read: te.if_then_else(condition, {access}, value)",
            )  # fmt: skip


def _quick(op: ComputeOp, known: dict[int, tuple[int, int]], whole: dict[int, E.Expr]) -> bool:
    """Whether no read needs its conditions to stay inside."""
    seen: set[int] = set()
    stack = _roots(op)
    while stack:
        e = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        if type(e) is E.TensorRead and not surely_inside(e.tensor.shape, e.indices, known, whole):
            return False
        stack.extend(children(e))
    return True


def _roots(op: ComputeOp) -> list[E.Expr]:
    first = op.body[0]
    return [*first.source, first.condition, *first.init] if isinstance(first, E.Reduce) else list(op.body)


def guarded_reads(op: ComputeOp) -> Iterator[tuple[E.TensorRead, list[E.Expr]]]:
    """Each read of a body with the conditions that it stands under. A node that is shared counts once for each set of them."""
    seen: set[tuple[int, ...]] = set()

    def go(e: E.Expr, guards: tuple[E.Expr, ...]) -> Iterator[tuple[E.TensorRead, list[E.Expr]]]:
        key = (id(e), *map(id, guards))
        if key in seen:
            return
        seen.add(key)
        if isinstance(e, E.Call) and e.op == "if_then_else":
            cond, yes, no = e.args
            yield from go(cond, guards)
            yield from go(yes, (*guards, cond))
            yield from go(no, (*guards, B.logical_not(cond)))
            return
        if isinstance(e, E.TensorRead):
            yield e, list(guards)
        for c in children(e):
            yield from go(c, guards)

    first = op.body[0]
    if isinstance(first, E.Reduce):
        yield from go(first.condition, ())
        always = isinstance(first.condition, E.IntImm)
        for e in first.source:
            yield from go(e, () if always else (first.condition,))
        for e in first.init:
            yield from go(e, ())
        return
    for e in op.body:
        yield from go(e, ())
