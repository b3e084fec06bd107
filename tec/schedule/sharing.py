"""Values that an inlined body reads more than once, computed once.

In: an expression whose nodes may be shared (inlining makes a graph of them). Out: the same value where shared nodes are bound by
`Let`, so that later passes, which walk trees, take time linear in the nodes. Nothing moves out of a branch that may not be
taken: what only one arm of a selection holds is bound inside of that arm.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import expr as E
from ..ir.arith import Analyzer
from ..ir.visit import children, map_expr

# Written out as a tree, a body of so many nodes takes about 0.15 s to compile; smaller ones are left to LLVM, which shares by itself.
TREE_NODES = 2048
_LEAVES = (E.Var, E.IntImm, E.FloatImm, E.StringImm)


def tree_size(e: E.Expr, sizes: dict[int, int]) -> int:
    """The nodes of `e` with shared ones counted each time they are met. `sizes` keeps what is known, by identity."""
    stack = [e]
    while stack:
        x = stack[-1]
        missing = [] if id(x) in sizes else [c for c in children(x) if id(c) not in sizes]
        if missing:
            stack += missing
            continue
        stack.pop()
        sizes.setdefault(id(x), 1 + sum(sizes[id(c)] for c in children(x)))
    return sizes[id(e)]


def share(e: E.Expr, analyzer: Analyzer, limit: int) -> E.Expr | None:
    """`e` with what occurs more than once bound by Let; None where more than `limit` nodes are left even so."""
    try:
        return _Sharing(limit).scope(analyzer.intern(e), {})
    except _TooLarge:
        return None


class _TooLarge(Exception):
    pass


class _Sharing:
    """One expression's nodes, interned; `left`: how many may still be made."""

    def __init__(self, limit: int):
        self.left = limit
        self.sure: dict[int, dict[int, E.Expr]] = {}

    def always(self, root: E.Expr) -> dict[int, E.Expr]:
        """The nodes that evaluating `root` always evaluates, by id: of a selection, what both of its arms do."""
        stack = [root]
        while stack:
            x = stack[-1]
            missing = [c for c in _values(x) if id(c) not in self.sure]
            if missing:
                stack += missing
                continue
            stack.pop()
            if id(x) in self.sure:
                continue
            arms = _arms(x)
            found = {id(x): x}
            for c in _values(x):
                if not any(c is a for a in arms):
                    found |= self.sure[id(c)]
            if arms:
                both = self.sure[id(arms[0])].keys() & self.sure[id(arms[1])].keys()
                found |= {k: self.sure[id(arms[0])][k] for k in both}
            self.sure[id(x)] = found
            self.left -= len(found) // 64  # sets of large graphs cost, too
            if self.left < 0:
                raise _TooLarge
        return self.sure[id(root)]

    def scope(self, root: E.Expr, around: Mapping[int, E.Var]) -> E.Expr:
        """`root` with Lets for the nodes that it always evaluates and holds more than once; `around`: those bound outside."""
        sure = self.always(root)
        names = dict(around)
        done: dict[int, E.Expr] = {}

        def rewrite(x: E.Expr) -> E.Expr:
            if id(x) in names:
                return names[id(x)]
            hit = done.get(id(x))
            if hit is None:
                self.left -= 1
                if self.left < 0:
                    raise _TooLarge
                arms = {id(a) for a in _arms(x)}
                hit = done[id(x)] = map_expr(x, lambda c: self.scope(c, names) if id(c) in arms else rewrite(c))
            return hit

        lets: list[tuple[E.Var, E.Expr]] = []
        for x, times in _occurrences(root, around):
            if times > 1 and id(x) in sure:
                value = rewrite(x)
                names[id(x)] = var = E.Var("shared", x.dtype)
                lets.append((var, value))
        out = rewrite(root)
        for var, value in reversed(lets):
            out = E.Let(var, value, out)
        return out


def _occurrences(root: E.Expr, around: Mapping[int, E.Var]) -> list[tuple[E.Expr, int]]:
    """The nodes below `root`, each after those that it reads, and by how many they are read; leaves left out."""
    order: list[E.Expr] = []
    times = {id(root): 1}
    seen: set[int] = set()
    stack = [(root, False)]
    while stack:
        x, done = stack.pop()
        if done:
            order.append(x)
        elif id(x) not in seen and id(x) not in around and not isinstance(x, _LEAVES):
            seen.add(id(x))
            stack.append((x, True))
            for c in _values(x):
                times[id(c)] = times.get(id(c), 0) + 1
                stack.append((c, False))
    return [(x, times[id(x)]) for x in order]


def _values(x: E.Expr) -> tuple[E.Expr, ...]:
    """The children that are values: indices stay as they are, since bounds are inferred from them."""
    if isinstance(x, (E.TensorRead, E.BufferLoad, E.Reduce, E.Let)):
        return ()
    return children(x)


def _arms(x: E.Expr) -> tuple[E.Expr, ...]:
    """The children that are evaluated under a condition alone; a Select's may guard a read that would be out of bounds."""
    if isinstance(x, E.Select):
        return (x.a, x.b)
    if isinstance(x, E.Call) and x.op == "if_then_else":
        return x.args[1:]
    return ()
