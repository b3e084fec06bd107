"""Lowered functions whose buffers have several physical dimensions: `te.AXIS_SEPARATOR` in a layout says where one ends.

tec's memory is flat, and what runs is not changed by a separator: an element's address is the same either way. This is for
programs that read the loops: each group of dimensions between separators is flattened to one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from tec import ir
from tec.driver import PIPELINE, run_passes
from tec.ir import build as B
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.arith import Analyzer
from tec.ir.storage_align import row_major_strides
from tec.ir.visit import map_expr, map_stmt
from tec.target import Target

from .tir.buffer import flattened


def physical(func: ir.Func, separators: Mapping[str, Sequence[int]], target: Target) -> ir.Func:
    """A function of stage "loops" with parameters flattened between their separators. separators: by name of the parameter, the
    dimensions before which one stands."""
    last = [name for name, _ in PIPELINE].index("flatten_buffers")
    first = [name for name, _ in PIPELINE].index("pipeline.bulk_copies")
    func = run_passes(func, target, PIPELINE[first:last])
    shapes: dict[int, tuple[ir.Buffer, list[range]]] = {}
    params: list[ir.Buffer | E.Var] = []
    for p in func.params:
        if isinstance(p, ir.Buffer):
            groups = between(len(p.shape), separators.get(p.name, ()))
            shapes[id(p)] = flattened(p, groups), groups
            params.append(shapes[id(p)][0])
        else:
            params.append(p)

    def at(b: ir.Buffer, indices: Sequence[E.Expr]) -> tuple[ir.Buffer, tuple[E.Expr, ...]]:
        if id(b) not in shapes:
            return b, tuple(indices)
        flat, groups = shapes[id(b)]
        return flat, tuple(_index([b.shape[d] for d in g], [indices[d] for d in g]) for g in groups)

    def expr(e: E.Expr) -> E.Expr:
        e = map_expr(e, expr)
        return E.BufferLoad(*at(e.buffer, e.indices), e.predicate) if isinstance(e, E.BufferLoad) else e

    def stmt(s: S.Stmt) -> S.Stmt:
        s = map_stmt(s, stmt, expr)
        if isinstance(s, S.BufferStore):
            buffer, indices = at(s.buffer, s.indices)
            return S.BufferStore(buffer, s.value, indices, s.predicate, s.loc)
        return s

    return ir.Func(func.name, tuple(params), stmt(func.body), func.attrs)


def between(ndim: int, separators: Sequence[int]) -> list[range]:
    """The groups of dimensions between separators."""
    ends = [0, *separators, ndim]
    return [range(a, b) for a, b in itertools.pairwise(ends)]


def _index(shape: Sequence[E.Expr], indices: Sequence[E.Expr]) -> E.Expr:
    strides, _ = row_major_strides(tuple(shape), ())
    total: E.Expr = B.const(0)
    for i, step in zip(indices, strides):
        total = B.add(total, B.mul(i, step))
    return Analyzer().simplify(total) if len(shape) > 1 else indices[0]
