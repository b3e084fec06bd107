"""Assert, once at the start of a function, that loop extents made of symbolic sizes stay within 32 bits.

A loop over fused axes runs m * n times. Loop variables are int32: past 2^31 - 1 the product wraps, and the loop would run
a part of its way, or not at all, without a word. In: a function at stage "loops". Out: the same behind one `assert` for
each distinct extent that could wrap; functions of constant sizes come back as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..buffer import Buffer
from ..func import Func
from ..printer import expr_to_text
from ..visit import free_vars, visit
from .rewrite_util import widen

_LIMIT = 2**31 - 1
_NESTS = (E.FloorDiv, E.FloorMod, E.Div, E.Mod, E.Min, E.Max)
_SUMS = (E.Add, E.Sub, E.Mul)


def check_extents(func: Func, target: Target) -> Func:
    """The function with its symbolic loop extents checked against int32."""
    params = {id(v) for p in func.params for v in _sizes(p)}
    if not params:
        return func
    found: dict[str, tuple[E.Expr, str]] = {}

    def look(s: S.Stmt) -> None:
        if isinstance(s, S.For) and s.extent.dtype == "int32" and not isinstance(s.extent, E.IntImm):
            for e in _could_wrap(s.extent):
                if all(id(v) in params for v in free_vars(e)):
                    found.setdefault(expr_to_text(e), (e, s.var.name))

    visit(func.body, stmt=look)
    analyzer = Analyzer()
    asserts: list[S.Stmt] = []
    for text, (e, loop) in found.items():
        cond = analyzer.simplify(B.compare("le", widen(e), E.IntImm(_LIMIT, "int64")))
        if isinstance(cond, E.IntImm) and cond.value:
            continue
        asserts.append(S.Assert(cond, f"the loop {loop} is too long: {text} must be less than 2147483648"))
    return func.with_body(S.seq(*asserts, func.body)) if asserts else func


def _sizes(param: E.Var | Buffer) -> Iterator[E.Var]:
    """What is known when the function starts: scalar parameters and the symbols in buffers' shapes."""
    if isinstance(param, E.Var):
        yield param
        return
    for e in (*param.shape, *param.strides):
        if not isinstance(e, E.IntImm):
            yield from free_vars(e)


def _could_wrap(e: E.Expr) -> Iterator[E.Expr]:
    """The largest sums and products in `e` with a product of, or by, a symbol in them."""
    if isinstance(e, _SUMS):
        if _has_product(e):
            yield e
    elif isinstance(e, _NESTS):
        yield from _could_wrap(e.a)
        yield from _could_wrap(e.b)


def _has_product(e: E.Expr) -> bool:
    if isinstance(e, E.Mul):
        return True
    return isinstance(e, (*_SUMS, *_NESTS)) and (_has_product(e.a) or _has_product(e.b))
