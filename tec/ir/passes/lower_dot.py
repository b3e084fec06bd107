"""Use the dot-product instruction for sums of products of bytes.

    for r in range(4*n):                                    for o in range(n):
        C[i] += int32(A[a + r]) * int32(B[b + r])     ->        C[i] = dot4(A[a + 4*o : +4], B[b + 4*o : +4], C[i])

In: flat buffers, the loop innermost, `i` the same in every step, both operands contiguous and starting at a multiple of
four elements, both int8 or both uint8. Out: the same sum (32-bit addition wraps in any order), a quarter of the
instructions and one load for four. Only where the target has the instruction.
"""

from __future__ import annotations

from dataclasses import replace

from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..func import Func
from ..visit import map_stmts, substitute, substitute_stmt
from .rewrite_util import const_int, same_expr


def lower_dot(func: Func, target: Target) -> Func:
    """Byte products summed four at a time; see the module."""
    if not target.chip.dot4:
        return func
    analyzer = Analyzer()

    def fs(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.For):
            analyzer.bind(s.var, E.Range(s.min, s.extent))
            if s.kind in (S.ForKind.SERIAL, S.ForKind.UNROLLED) and isinstance(s.body, S.BufferStore):
                out = _dot(s, s.body, analyzer)
                if out is not None:
                    return out
        return map_stmts(s, fs)

    return func.with_body(fs(func.body))


def _dot(loop: S.For, store: S.BufferStore, analyzer: Analyzer) -> S.Stmt | None:
    """The loop by instructions that multiply and add four bytes; None where it is no sum of products of bytes."""
    extent = const_int(loop.extent)
    value = store.value
    if extent is None or extent % 4 or store.predicate is not None or store.buffer.dtype != "int32":
        return None
    if not isinstance(value, E.Add) or len(store.indices) != 1 or analyzer.detect_linear(store.indices[0], []) is None:
        return None
    for total, product in ((value.a, value.b), (value.b, value.a)):
        if isinstance(total, E.BufferLoad) and total.buffer is store.buffer and isinstance(product, E.Mul):
            break
    else:
        return None
    if not same_expr(total.indices[0], store.indices[0]) or _moves(store.indices[0], loop.var, analyzer):
        return None
    outer = E.Var(loop.var.name, loop.var.dtype)
    analyzer.bind(outer, E.Range(E.IntImm(0, outer.dtype), E.IntImm(extent // 4, outer.dtype)))
    operands = [_four(x, loop, outer, analyzer) for x in (product.a, product.b)]
    a, b = operands
    if a is None or b is None or a.dtype != b.dtype:
        return None
    dot = E.Call("dot4", (a, b, total), "int32")
    new = S.BufferStore(store.buffer, dot, store.indices, None, store.loc)
    if extent == 4:
        return substitute_once(new, outer)
    low, steps = E.IntImm(0, outer.dtype), E.IntImm(extent // 4, outer.dtype)
    return replace(loop, var=outer, min=low, extent=steps, body=new)


def substitute_once(s: S.BufferStore, var: E.Var) -> S.Stmt:
    """The store for the single step 0."""
    return substitute_stmt(s, {var: E.IntImm(0, var.dtype)})


def _moves(index: E.Expr, var: E.Var, analyzer: Analyzer) -> bool:
    linear = analyzer.detect_linear(index, [var])
    return linear is None or not B.is_const(linear[0], 0)


def _four(e: E.Expr, loop: S.For, outer: E.Var, analyzer: Analyzer) -> E.Expr | None:
    """Four neighbours of a byte buffer as a vector, from the conversion of one."""
    if not isinstance(e, E.Cast) or e.dtype != "int32" or not isinstance(e.value, E.BufferLoad):
        return None
    load = e.value
    if load.buffer.dtype not in ("int8", "uint8") or load.predicate is not None or len(load.indices) != 1:
        return None
    index = load.indices[0]
    linear = analyzer.detect_linear(index, [loop.var])
    if linear is None or not B.is_const(linear[0], 1):
        return None
    start = substitute(index, {loop.var: B.add(loop.min, B.mul(outer, 4))})
    start = analyzer.simplify(start)
    coefficient, base = analyzer.modular(start)
    if coefficient % 4 or base % 4:
        return None
    return E.BufferLoad(load.buffer, (E.Ramp(start, E.IntImm(1, start.dtype), 4),))
