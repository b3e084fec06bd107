"""Walks over expressions and statements: children, post-order visits, rewriting, substitution, free variables.

`map_expr`/`map_stmt` rebuild a node from rewritten children and return the same object where no child changed. Passes
with a few special node types use `Rewriter` tables: a `dict[type, handler]`, no class hierarchy.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import LoweringError
from ..locks import fork_safe_lock
from . import expr as E
from . import stmt as S
from .frames import P, T, with_room
from .schema import EXPRS, STMTS, listers, map_tuple, no_children, rebuilders, walkers

ExprFn = Callable[[E.Expr], E.Expr]
StmtFn = Callable[[S.Stmt], S.Stmt]


MAP: dict[type, Callable[[Any, ExprFn], E.Expr]] = rebuilders(EXPRS, {"expr": "f"})


def _seq(s: S.Seq, fs: StmtFn, fe: ExprFn) -> S.Stmt:
    stmts = map_tuple(s.stmts, fs)
    return s if stmts is s.stmts else S.seq(*stmts)


_MAP_STMT: dict[type, Callable[[Any, StmtFn, ExprFn], S.Stmt]] = {
    **rebuilders(STMTS, {"stmt": "fs", "expr": "fe"}),
    S.Seq: _seq,
}


_MAP_STMTS: dict[type, Callable[[Any, StmtFn], S.Stmt]] = {
    **rebuilders(STMTS, {"stmt": "fs"}),
    S.Seq: lambda s, fs: _seq(s, fs, _same),
}


LEAVES = frozenset((E.Var, E.IntImm, E.FloatImm))  # nothing stands below them
CHILDREN = listers(EXPRS, "expr")  # a function of each class: what `children` gives
STMT_CHILDREN = listers(STMTS, "stmt")  # the statements right below a statement


def read_twice(e: E.Expr) -> set[int]:
    """The `id`s of the nodes below `e`, leaves apart, that more than one node reads."""
    out: set[int] = set()
    left, seen = [e], {id(e)}
    for x in left:  # grows
        for c in CHILDREN[type(x)](x) if isinstance(x, E.Expr) else ():  # the printer refuses anything else
            if type(c) in LEAVES:
                continue
            if id(c) in seen:
                out.add(id(c))
            else:
                seen.add(id(c))
                left.append(c)
    return out


def map_expr(e: E.Expr, f: ExprFn) -> E.Expr:
    """`e` with `f` applied to each direct child."""
    return MAP[type(e)](e, f)


def children(e: E.Expr) -> tuple[E.Expr, ...]:
    """The direct children of an expression."""
    return CHILDREN[type(e)](e)


def map_stmt(s: S.Stmt, fs: StmtFn, fe: ExprFn) -> S.Stmt:
    """`s` with `fs` applied to each direct child statement and `fe` to each direct expression."""
    return (_MAP_STMT.get(type(s)) or _of_base(s, _MAP_STMT))(s, fs, fe)


def map_stmts(s: S.Stmt, fs: StmtFn) -> S.Stmt:
    """`s` with `fs` applied to each direct child statement; expressions stay."""
    return (_MAP_STMTS.get(type(s)) or _of_base(s, _MAP_STMTS))(s, fs)


def _of_base(s: S.Stmt, table: Mapping[type, Any]) -> Any:
    """What a table has for a front door's own statement: what it has for the class that it derives from."""
    for base in type(s).__mro__:
        if base in table:
            return table[base]
    raise TypeError(f"not a statement: {type(s).__name__}")


class Rewriter:
    """A bottom-up or top-down rewrite from two tables.

    `exprs[type](node, rewriter)` and `stmts[type](node, rewriter)` take over for their node types and may call
    `rewriter.expr_children(node)` / `rewriter.stmt_children(node)`; every other node is rebuilt from its children.
    Shared subexpressions are rewritten once where `memo` is true.
    """

    def __init__(
        self,
        exprs: Mapping[type, Callable[[Any, Rewriter], E.Expr]] | None = None,
        stmts: Mapping[type, Callable[[Any, Rewriter], S.Stmt]] | None = None,
        memo: bool = False,
    ):
        self.exprs = exprs or {}
        self.stmts = stmts or {}
        self._memo: dict[int, tuple[E.Expr, E.Expr]] | None = {} if memo else None

    def expr(self, e: E.Expr) -> E.Expr:
        if self._memo is not None:
            hit = self._memo.get(id(e))
            if hit is not None:
                return hit[1]
        handler = self.exprs.get(type(e))
        out = handler(e, self) if handler is not None else MAP[type(e)](e, self.expr)
        if self._memo is not None:
            self._memo[id(e)] = (e, out)
        return out

    def stmt(self, s: S.Stmt) -> S.Stmt:
        handler = self.stmts.get(type(s))
        return handler(s, self) if handler is not None else map_stmt(s, self.stmt, self.expr)

    def expr_children(self, e: E.Expr) -> E.Expr:
        return MAP[type(e)](e, self.expr)

    def stmt_children(self, s: S.Stmt) -> S.Stmt:
        return map_stmt(s, self.stmt, self.expr)


def walk_exprs(e: E.Expr) -> Iterator[E.Expr]:
    """Every subexpression, `e` last; a node met twice comes once."""
    seen: dict[int, None] = {}
    stack: list[tuple[E.Expr, bool]] = [(e, False)]
    while stack:
        x, done = stack.pop()
        if done:
            yield x
            continue
        k, t = id(x), type(x)
        if k in seen:
            continue
        seen[k] = None
        if t in LEAVES:
            yield x
        else:
            stack.append((x, True))
            stack.extend([(c, False) for c in reversed(CHILDREN[t](x))])


def visit(
    root: E.Expr | S.Stmt, expr: Callable[[E.Expr], None] | None = None, stmt: Callable[[S.Stmt], None] | None = None
) -> None:
    """Call `expr` and `stmt` on every node below `root`, children first. An expression met twice is visited once."""
    if isinstance(root, E.Expr):
        if expr is not None:
            _visit_expr(root, {}, expr)
    elif expr is None:
        _visit_stmts(root, stmt or _same)
    else:
        _visit_stmt(root, ({}, expr, stmt or _same))


def _visit_expr(e: E.Expr, seen: dict[int, None], expr: Callable[[E.Expr], None]) -> None:
    k = id(e)
    if k not in seen:
        seen[k] = None  # stored into without a call
        t = type(e)
        if t not in LEAVES:
            for c in CHILDREN[t](e):
                if type(c) not in LEAVES:
                    _visit_expr(c, seen, expr)
                elif id(c) not in seen:  # most nodes are leaves: they take no call of this function
                    seen[id(c)] = None
                    expr(c)
        expr(e)


def _visit_stmt(s: S.Stmt, walk: tuple[dict[int, None], Callable[[E.Expr], None], Callable[[S.Stmt], Any]]) -> None:
    (_VISIT.get(type(s)) or _of_base(s, _VISIT))(s, walk)
    walk[2](s)


def _visit_stmts(s: S.Stmt, stmt: Callable[[S.Stmt], Any]) -> None:
    """The statements alone."""
    below = STMT_CHILDREN.get(type(s)) or _of_base(s, STMT_CHILDREN)
    if below is not no_children:
        for c in below(s):
            _visit_stmts(c, stmt)
    stmt(s)


def visit_children(s: S.Stmt, walk: Any) -> None:
    """Call `walk.expr` and `walk.stmt` on what stands right in a statement."""
    (_VISIT_CHILDREN.get(type(s)) or _of_base(s, _VISIT_CHILDREN))(s, walk)


def visit_roots(s: S.Stmt, expr: Callable[[E.Expr], Any]) -> None:
    """Call `expr` on every expression that stands in a statement, and on none below it."""
    (_VISIT_ROOTS.get(type(s)) or _of_base(s, _VISIT_ROOTS))(s, expr)


MAX_FRAMES = 20_000


class _FoundError(Exception):
    """Internal: what a walk looked for stands here."""


def any_stmt(s: S.Stmt, test: Callable[[S.Stmt], bool]) -> bool:
    """Whether `test` holds of a statement or one inside of it."""

    def look(x: S.Stmt) -> None:
        if test(x):
            raise _FoundError

    try:
        visit(s, None, look)
    except _FoundError:
        return True
    return False


def any_expr(root: E.Expr | S.Stmt, test: Callable[[E.Expr], bool]) -> bool:
    """Whether `test` holds of an expression at or below `root`."""
    seen: set[int] = set()
    if isinstance(root, E.Expr):
        return _is_below(root, test, seen)

    def look(e: E.Expr) -> None:
        if _is_below(e, test, seen):
            raise _FoundError

    try:
        visit_roots(root, look)
    except _FoundError:
        return True
    return False


def _is_below(root: E.Expr, test: Callable[[E.Expr], bool], seen: set[int]) -> bool:
    """See `any_expr`. A search ends early and calls nothing but the test: most are asked of small indices, thousands in a kernel."""
    if id(root) in seen:
        return False
    seen.add(id(root))
    left = [root]
    for x in left:  # grows
        if test(x):
            return True
        t = type(x)
        if t not in LEAVES:
            for c in CHILDREN[t](x):
                if id(c) not in seen:
                    seen.add(id(c))
                    left.append(c)
    return False


def holds(s: S.Stmt, kind: type[S.Stmt]) -> bool:
    """Whether a statement is, or has in it, one of that kind."""
    return any_stmt(s, lambda x: isinstance(x, kind))


class deep_recursion:
    """Room for the walks of expressions with thousands of terms; a decorator as well, which gives their frames room too (`frames`). Raises LoweringError
    where it does not do.

    The limit is the process's: with several threads inside, the last one out puts back what the first one found.
    """

    def __enter__(self) -> None:
        global _deep, _usual_limit
        with _DEEP_LOCK:
            if _deep == 0:
                _usual_limit = sys.getrecursionlimit()
            _deep += 1
            sys.setrecursionlimit(max(sys.getrecursionlimit(), MAX_FRAMES))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        global _deep
        with _DEEP_LOCK:
            _deep -= 1
            if _deep == 0:
                sys.setrecursionlimit(_usual_limit)
        if isinstance(error, RecursionError):
            raise LoweringError(
                "the program is nested too deeply: terms in one expression, or values in a row that each need the one before",
                hint="compute part of it in a stage of its own; in a kernel, a loop in place of a static_range of thousands",
            ) from None

    def __call__(self, f: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(f)
        def deep(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                return with_room(f, *args, **kwargs)

        return deep


_DEEP_LOCK = fork_safe_lock()
_deep = 0  # blocks of deep_recursion that are open
_usual_limit = 1000


def _same(node: Any) -> Any:
    return node


_VISIT = walkers(
    STMTS,
    {"expr": "visit_expr({}, walk[0], walk[1])", "stmt": "visit_stmt({}, walk)"},
    visit_expr=_visit_expr,
    visit_stmt=_visit_stmt,
)


_VISIT_CHILDREN = walkers(STMTS, {"expr": "walk.expr({})", "stmt": "walk.stmt({})"})
_VISIT_ROOTS = walkers(STMTS, {"expr": "walk({})", "stmt": "roots({}, walk)"}, roots=visit_roots)


def substitute(e: E.Expr, values: Mapping[E.Var, E.Expr]) -> E.Expr:
    """`e` with variables replaced (by identity); rebuilt nodes are folded by the builders of `tec.ir.build`."""
    return substituter(values)(e)


class _Substituter:
    """See `substituter`."""

    __slots__ = ("_memo", "_values")

    def __init__(self, values: Mapping[E.Var, E.Expr]):
        self._values = values
        self._memo: dict[int, tuple[E.Expr, E.Expr]] = {}

    def __call__(self, e: E.Expr) -> E.Expr:
        t = type(e)
        if t is E.Var:
            return self._values.get(e, e)  # type: ignore[call-overload,no-any-return]
        if t is E.IntImm or t is E.FloatImm:
            return e
        hit = self._memo.get(id(e))
        if hit is not None:
            return hit[1]
        folder = _REBUILD.get(t)
        if folder is None:
            out = MAP[t](e, self)
        else:
            a, b = self(e.a), self(e.b)  # type: ignore[attr-defined]
            out = e if a is e.a and b is e.b else folder(a, b)  # type: ignore[attr-defined]
        self._memo[id(e)] = (e, out)
        return out


def substituter(values: Mapping[E.Var, E.Expr]) -> ExprFn:
    """A substitution to be used many times; memoised on node identity."""
    return _Substituter(values)


def substitute_stmt(s: S.Stmt, values: Mapping[E.Var, E.Expr]) -> S.Stmt:
    """`s` with variables replaced in every expression."""
    fe = substituter(values)

    def fs(x: S.Stmt) -> S.Stmt:
        return map_stmt(x, fs, fe)

    return fs(s)


def free_vars(root: E.Expr | S.Stmt) -> list[E.Var]:
    """Variables used and not bound inside (loops, lets), in order of appearance; buffers' data pointers not counted."""
    if type(root) in LEAVES:
        return [root] if type(root) is E.Var else []
    bound: set[int] = set()
    used: dict[int, E.Var] = {}

    def on_expr(e: E.Expr) -> None:
        if type(e) is E.Var:
            used.setdefault(id(e), e)
        elif e.binds:
            bound.update(id(getattr(e, n)) for n in e.binds)
        elif type(e) is E.Reduce:
            bound.update(id(a.var) for a in e.axis)

    def on_stmt(s: S.Stmt) -> None:
        bound.update(id(getattr(s, n)) for n in s.binds)

    visit(root, on_expr, on_stmt)
    return [v for k, v in used.items() if k not in bound]


from . import build as _b  # noqa: E402

_REBUILD: dict[type, Callable[[Any, Any], E.Expr]] = {
    E.Add: _b.add, E.Sub: _b.sub, E.Mul: _b.mul, E.Div: _b.truncdiv, E.Mod: _b.truncmod, E.FloorDiv: _b.floordiv,
    E.FloorMod: _b.floormod, E.Min: _b.minimum, E.Max: _b.maximum, E.And: _b.logical_and, E.Or: _b.logical_or,
    **{c: (lambda how: lambda a, b: _b.compare(how, a, b))(h) for c, h in ((E.EQ, "eq"), (E.NE, "ne"), (E.LT, "lt"), (E.LE, "le"), (E.GT, "gt"), (E.GE, "ge"))},
}  # fmt: skip
