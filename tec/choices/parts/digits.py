"""Elementwise work as one computation over the digits of its axes: an axis that is read by parts (pixels of all images: `p // 49`, `p // 7 % 7`, `p % 7`) is one
axis for each part.

Each read is then at whole axes, as tiles and their footprints want it; the result is stored where it was (`Stage.transform_layout`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ... import te
from ...ir import Expr, IntImm, Range, TensorRead, Var
from ...ir.arith import Analyzer
from ...ir.expr import FloorDiv, FloorMod
from ...ir.visit import Rewriter, walk_exprs
from ...te import ComputeOp, PlaceholderOp, Tensor, compute
from ...te.like import Index
from ..group import const_shape

Place = Callable[..., list[Any]]  # of the digits: the index into the result


def split_index(flat: Index, shape: Sequence[Index]) -> list[Expr]:
    """The index into `shape`, of numbers or open sizes, of its element number `flat`, row-major."""
    out: list[Any] = []
    is_one = [isinstance(n, int) and n == 1 for n in shape]
    for k in reversed(range(len(shape))):
        if is_one[k]:
            out.append(0)
        elif all(is_one[:k]):
            out.append(flat)
        else:
            out.append(te.indexmod(flat, shape[k]))
            flat = te.indexdiv(flat, shape[k])
    return out[::-1]


def by_digits(out: ComputeOp) -> tuple[Tensor, Place] | None:
    """The elements of an operation and what it reads, over digits, and where each is stored. None where a size is open, an axis is read by parts that are no
    digits of one number, or something that is read is no elementwise work."""
    shape = const_shape(out.output(0))
    try:
        body = _inlined(out.body[0], {})
    except _NotElementwise:
        return None
    sizes = [_digits(a.var, n, body) for a, n in zip(out.axis, shape) if n is not None]
    if None in sizes or len(sizes) < len(shape):
        return None
    digits = [d for d in sizes if d is not None]

    def place(*at: Any) -> list[Expr]:
        own = iter(at)
        return [_number([next(own) for _ in d], d) for d in digits]

    def element(*at: Any) -> Expr:
        known = Analyzer()
        for var, n in zip(at, itertools.chain(*digits)):
            known.bind(var, Range(IntImm(0, var.dtype), IntImm(n, var.dtype)))
        moved = _at(body, dict(zip((a.var for a in out.axis), place(*at))))

        def simpler(e: TensorRead, r: Rewriter) -> Expr:
            return TensorRead(e.tensor, tuple(known.simplify(i) for i in e.indices))

        return Rewriter({TensorRead: simpler}, memo=True).expr(moved)

    return compute(tuple(itertools.chain(*digits)), element, name=out.name, tag=out.tag), place


def _number(own: list[Expr], extents: list[int]) -> Expr:
    total = own[0]
    for digit, n in zip(own[1:], extents[1:]):
        total = total * n + digit
    return total


class _NotElementwise(Exception):
    """Something that is read is a sum, or has several outputs."""


def _at(e: Expr, values: Mapping[Var, Expr]) -> Expr:
    return Rewriter({Var: lambda v, _: values.get(v, v)}, memo=True).expr(e)


def _inlined(body: Expr, values: Mapping[Var, Expr]) -> Expr:
    """A body where variables have values, of which all reads are of inputs."""

    def on_read(e: TensorRead, r: Rewriter) -> Expr:
        op = e.tensor.op
        if isinstance(op, PlaceholderOp):
            return r.expr_children(e)
        if not isinstance(op, ComputeOp) or op.reduce_axis or op.num_outputs > 1:
            raise _NotElementwise
        return _inlined(op.body[0], dict(zip((a.var for a in op.axis), (r.expr(i) for i in e.indices))))

    return Rewriter({TensorRead: on_read, Var: lambda v, _: values.get(v, v)}, memo=True).expr(body)


def _digits(var: Var, extent: int, body: Expr) -> list[int] | None:
    """Extents of the parts by which an axis is read, the first the farthest; None where they are no digits."""
    cuts = {1, extent}
    for e in _indices(body):
        if isinstance(e, FloorDiv | FloorMod) and isinstance(e.b, IntImm):
            below = 1
            if isinstance(e, FloorMod) and isinstance(e.a, FloorDiv) and isinstance(e.a.b, IntImm):
                below, part = e.a.b.value, e.a.a
            else:
                part = e.a
            if part is var:
                cuts.add(min(extent, e.b.value * below))
    ordered = sorted(cuts)
    if any(b % a for a, b in itertools.pairwise(ordered)):
        return None
    return [b // a for a, b in reversed(list(itertools.pairwise(ordered)))] or [1]


def _indices(body: Expr) -> Iterator[Expr]:
    for read in walk_exprs(body):
        if isinstance(read, TensorRead):
            for index in read.indices:
                yield from walk_exprs(index)
