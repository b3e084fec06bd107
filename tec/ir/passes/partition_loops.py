"""Split off the part of a loop where guards can fail, so that the rest runs without them.

In: loops whose bodies hold `if likely(cond)` from splits that do not divide. Out: up to three loops over consecutive
ranges; in the main one the conditions are gone, the ones before and after keep them. The range where a condition holds
for every iteration of the loops (and for every thread) inside is found with interval sets and solved for the loop's
variable; a condition that does not solve stays everywhere. On a GPU the same is done for block indices where a
vectorized loop is guarded: a branch on the block chooses between the two bodies. Loops whose guards read their ends from memory
run over what passes these (`read_ends`).
"""

from __future__ import annotations

from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..func import Func
from ..visit import any_expr, any_stmt, map_stmts
from .read_ends import with_read_ends
from .rewrite_util import BLOCK_TAGS, THREAD_TAGS, clone, needs_all_threads, stmt_size, uses_var

_MAX_STATEMENTS = 600  # what the repeated bodies may add up to
_MAX_DEPTH = 3  # loops around each other that are split


def partition_loops(func: Func, target: Target) -> Func:
    """Loops without guards, and their ragged ends; see the module."""
    body = func.body if target.is_gpu else _with_lanes_likely(func.body, frozenset())
    if not func.attrs.get("simt"):  # a kernel's loops are as its author wrote them
        body = with_read_ends(body)
    if _has_likely(body):
        return func.with_body(_Partitioner().stmt(body, 0))
    return func if body is func.body else func.with_body(body)


def _with_lanes_likely(s: S.Stmt, lanes: frozenset[E.Var]) -> S.Stmt:
    """What a reduction along vectors asks of its lanes, whose loop a split made too long, as a likely condition."""
    if isinstance(s, S.For) and s.kind == S.ForKind.VECTORIZED:
        lanes = lanes | {s.var}
    out = map_stmts(s, lambda x: _with_lanes_likely(x, lanes))
    if not lanes or not isinstance(out, S.IfThenElse) or out.orelse is not None:
        return out
    marked = [E.Call("likely", (c,), "bool") if _of_lanes(c, lanes) else c for c in _conjuncts(out.cond)]
    return S.IfThenElse(B.all_of(*marked), out.then) if any(map(_is_likely, marked)) else out


def _of_lanes(c: E.Expr, lanes: frozenset[E.Var]) -> bool:
    return isinstance(c, (E.LT, E.LE)) and any(uses_var(c, v) for v in lanes) and not _loads(c)


def _has_likely(s: S.Stmt) -> bool:
    return any_stmt(s, lambda x: isinstance(x, S.IfThenElse) and any(_is_likely(c) for c in _conjuncts(x.cond)))


def _is_likely(e: E.Expr) -> bool:
    return type(e) is E.Call and e.op == "likely"


def _conjuncts(e: E.Expr) -> list[E.Expr]:
    """The conditions that must all hold; `likely(a and b)` counts as `likely(a) and likely(b)`."""
    if type(e) is E.And:
        return [*_conjuncts(e.a), *_conjuncts(e.b)]
    if type(e) is E.Call and e.op == "likely" and type(e.args[0]) is E.And:
        return [E.Call("likely", (c,), "bool") for c in _conjuncts(e.args[0])]
    return [e]


class _Guard:
    """A likely condition below a loop, with the variables that range freely between the two."""

    __slots__ = ("cond", "domain", "vector")

    def __init__(self, cond: E.Expr, domain: dict[E.Var, E.Range], vector: bool):
        self.cond = cond
        self.domain = domain
        self.vector = vector


class _Partitioner:
    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.threads: dict[E.Var, E.Range] = {}

    def stmt(self, s: S.Stmt, depth: int) -> S.Stmt:
        if isinstance(s, S.For):
            with self.analyzer.scope():
                return self.loop(s, depth)
        return map_stmts(s, lambda x: self.stmt(x, depth))

    def loop(self, s: S.For, depth: int) -> S.Stmt:
        rng = E.Range(s.min, s.extent)
        self.analyzer.bind(s.var, rng)
        if s.kind == S.ForKind.THREAD and s.thread in THREAD_TAGS:
            self.threads[s.var] = rng
        if s.kind != S.ForKind.THREAD:
            narrow = self.narrowed(s)
            if narrow is not None:
                return self.stmt(narrow, depth)
        serial = s.kind in (S.ForKind.SERIAL, S.ForKind.PARALLEL, S.ForKind.UNROLLED)
        block = s.kind == S.ForKind.THREAD and s.thread in BLOCK_TAGS
        if (serial or block) and depth < _MAX_DEPTH and stmt_size(s.body) * 2 <= _MAX_STATEMENTS:
            guards = [g for g in self.guards(s.body) if uses_var(g.cond, s.var)]
            if block:
                guards = [g for g in guards if g.vector]
            if guards:
                out = self.block(s, guards, depth) if block else self.split(s, guards, depth)
                if out is not None:
                    return out
        return self.plain(s, depth)

    def narrowed(self, s: S.For) -> S.Stmt | None:
        """A loop around nothing but a guarded body, run over just the iterations that pass the guard."""
        if not isinstance(s.body, S.IfThenElse) or s.body.orelse is not None:
            return None
        guards = [_Guard(c, {}, False) for c in _conjuncts(s.body.cond) if _is_likely(c) and uses_var(c, s.var)]
        guards = [g for g in guards if not _uses_any(g.cond, self.threads)]
        solved, low, high = self.holds(guards, s.var)
        if not solved:
            return None
        begin, end = s.min, B.add(s.min, s.extent)
        if low is not None:
            begin = B.maximum(begin, B.cast(begin.dtype, low))
        if high is not None:
            end = B.minimum(end, B.add(B.cast(end.dtype, high), 1))
        extent = self.analyzer.simplify(B.maximum(B.sub(end, begin), 0))
        begin = self.analyzer.simplify(begin)
        if not isinstance(extent, E.IntImm):
            return None  # symbolic ends are split off instead, which keeps the main loop's length simple
        if extent.value == 0:
            return S.NOP
        return s.with_range(begin, extent, _without(s.body, solved))

    def plain(self, s: S.For, depth: int) -> S.For:
        body = self.stmt(s.body, depth)
        return s if body is s.body else s.with_body(body)

    def guards(self, body: S.Stmt) -> list[_Guard]:
        found: list[_Guard] = []

        def go(s: S.Stmt, domain: dict[E.Var, E.Range], vectors: frozenset[E.Var]) -> None:
            if isinstance(s, S.For):
                domain = {**domain, s.var: E.Range(s.min, s.extent)}
                if s.kind == S.ForKind.VECTORIZED:
                    vectors = vectors | {s.var}
            elif isinstance(s, S.IfThenElse):
                for c in _conjuncts(s.cond):
                    if _is_likely(c):
                        found.append(_Guard(c, domain, any(uses_var(c, v) for v in vectors)))

            def child(x: S.Stmt) -> S.Stmt:
                go(x, domain, vectors)
                return x

            map_stmts(s, child)

        go(body, dict(self.threads), frozenset())
        return found

    def holds(self, guards: list[_Guard], var: E.Var) -> tuple[list[E.Expr], E.Expr | None, E.Expr | None]:
        """The conditions that solve for `var`, and the least and greatest value of it with which all of them hold."""
        solved: list[E.Expr] = []
        low: E.Expr | None = None
        high: E.Expr | None = None
        ana = self.analyzer
        for g in guards:
            inner = g.cond.args[0]  # type: ignore[attr-defined]
            slack = _slack(inner)
            if slack is None:
                continue
            domain = {v: r for v, r in g.domain.items() if v is not var and uses_var(slack, v)}
            if any(uses_var(x, var) or _uses_any(x, domain) for r in domain.values() for x in (r.min, r.extent)):
                continue
            worst = ana.int_set(slack, domain).min
            if worst is None or not uses_var(worst, var):
                continue
            bounds = ana.detect_clip_bound(E.GE(worst, B.const(0, worst.dtype)), [var])
            if bounds is None:
                continue
            b = bounds[0]
            if b.min is not None:
                low = b.min if low is None else B.maximum(low, b.min)
            if b.max is not None:
                high = b.max if high is None else B.minimum(high, b.max)
            solved.append(g.cond)
        return solved, low, high

    def split(self, s: S.For, guards: list[_Guard], depth: int) -> S.Stmt | None:
        """The loop in up to three parts, the middle one without those of `guards` that hold in it; None where no bound follows from them."""
        ana = self.analyzer
        solved, low, high = self.holds(guards, s.var)
        if not solved:
            return None
        begin = s.min
        end = ana.simplify(B.add(s.min, s.extent))
        first, last = begin, end  # the main range
        head_short = tail_short = False
        if low is not None and not ana.can_prove(E.LE(low, begin)):
            low = B.cast(begin.dtype, low)
            first = ana.simplify(B.minimum(B.maximum(low, begin), end))
            head_short = self.at_most_one(low, begin)
        if high is not None:
            stop = B.add(B.cast(end.dtype, high), 1)
            if not ana.can_prove(E.GE(stop, end)):
                last = ana.simplify(B.maximum(B.minimum(stop, end), first))
                tail_short = self.at_most_one(end, ana.simplify(stop))
        main_extent = ana.simplify(B.sub(last, first))
        if isinstance(s.extent, E.IntImm) and not (isinstance(first, E.IntImm) and isinstance(last, E.IntImm)):
            return None  # a tile's own loop keeps its constant length; the loop over tiles is the one to split
        if ana.can_prove(E.LE(main_extent, B.const(0, main_extent.dtype))):
            return None
        if s.kind == S.ForKind.UNROLLED and not isinstance(main_extent, E.IntImm):
            return None  # its parts could not be unrolled any more
        parts: list[S.Stmt] = []
        edge = S.ForKind.SERIAL if s.kind == S.ForKind.PARALLEL else s.kind

        def part(lo: E.Expr, extent: E.Expr, body: S.Stmt, kind: str) -> None:
            var = E.Var(s.var.name, s.var.dtype)
            with self.analyzer.scope():
                self.analyzer.bind(var, E.Range(lo, extent))
                piece = self.stmt(clone(body, {s.var: var}), depth + 1)
            parts.append(S.For(var, lo, extent, piece, kind, s.thread, s.unroll, s.pipelined))

        if first is not begin:
            part(begin, ana.simplify(B.sub(first, begin)), s.body, edge if head_short else s.kind)
        part(first, main_extent, _without(s.body, solved), s.kind)
        if last is not end:
            part(last, ana.simplify(B.sub(end, last)), s.body, edge if tail_short else s.kind)
        return S.seq(*parts)

    def at_most_one(self, end: E.Expr, start: E.Expr) -> bool:
        """Whether end - start <= 1; also by floor(x/c) - floor(y/c) <= ceil((x - y)/c)."""
        if self.analyzer.can_prove(E.LE(B.sub(end, start), B.const(1, end.dtype))):
            return True
        (x, c, p), (y, d, q) = _quotient(end), _quotient(start)
        gap = self.analyzer.simplify(B.sub(x, y)) if c == d else None
        return isinstance(gap, E.IntImm) and -(-gap.value // c) + p - q <= 1

    def block(self, s: S.For, guards: list[_Guard], depth: int) -> S.Stmt | None:
        """Blocks whose threads are all inside take a body without guards."""
        inner = s.body
        nest: list[S.For] = []
        while isinstance(inner, S.For) and inner.kind == S.ForKind.THREAD:
            nest.append(inner)
            inner = inner.body
        if needs_all_threads(inner):
            return None
        for f in nest:
            self.analyzer.bind(f.var, E.Range(f.min, f.extent))
        solved, low, high = self.holds(guards, s.var)
        if not solved:
            return None
        conds = []
        if low is not None:
            conds.append(B.compare("ge", s.var, low))
        if high is not None:
            conds.append(B.compare("le", s.var, high))
        cond = self.analyzer.simplify(B.all_of(*conds))
        if isinstance(cond, E.IntImm) and not cond.value:
            return None
        fast = clone(_without(inner, solved), {})
        body: S.Stmt = S.IfThenElse(cond, fast, inner)
        body = self.stmt(body, depth + 1)
        for f in reversed(nest):
            body = f.with_body(body)
        return s.with_body(body)


def _quotient(e: E.Expr) -> tuple[E.Expr, int, int]:
    """(x, c, k) with e = x // c + k."""
    k = 0
    if isinstance(e, (E.Add, E.Sub)) and isinstance(e.b, E.IntImm):
        k = e.b.value if type(e) is E.Add else -e.b.value
        e = e.a
    if isinstance(e, E.FloorDiv) and isinstance(e.b, E.IntImm):
        return e.a, e.b.value, k
    return e, 1, k


def _slack(cond: E.Expr) -> E.Expr | None:
    """An integer expression that is not negative just where `cond` holds."""
    if isinstance(cond, (E.GT, E.GE)):
        cond = (E.LT if isinstance(cond, E.GT) else E.LE)(cond.b, cond.a)
    if not isinstance(cond, (E.LT, E.LE)) or cond.a.dtype not in ("int32", "int64"):
        return None
    if _loads(cond):
        return None
    of = cond.a
    # Of the first of fused loops: x // c < n where x < n * c.
    if isinstance(of, E.FloorDiv) and isinstance(of.b, E.IntImm) and of.b.value > 0:
        end = cond.b if isinstance(cond, E.LT) else B.add(cond.b, 1)
        cond = E.LT(of.a, B.mul(end, of.b))
    slack: E.Expr = B.sub(cond.b, cond.a)
    return B.sub(slack, 1) if isinstance(cond, E.LT) else slack


def _loads(e: E.Expr) -> bool:
    return any_expr(e, lambda x: type(x) in (E.BufferLoad, E.Let))


def _uses_any(e: E.Expr, variables: dict[E.Var, E.Range]) -> bool:
    return any(uses_var(e, v) for v in variables)


def _without(s: S.Stmt, solved: list[E.Expr]) -> S.Stmt:
    """`s` with the conditions `solved` taken to hold."""
    gone = {id(c) for c in solved}
    texts = [c.args[0] for c in solved]  # type: ignore[attr-defined]

    def holds(c: E.Expr) -> bool:
        return id(c) in gone or (_is_likely(c) and any(c.args[0] is t for t in texts))  # type: ignore[attr-defined]

    def fs(x: S.Stmt) -> S.Stmt:
        out = map_stmts(x, fs)
        if isinstance(out, S.IfThenElse):
            kept = [c for c in _conjuncts(x.cond) if not holds(c)]  # type: ignore[attr-defined]
            if len(kept) < len(_conjuncts(out.cond)):
                if not kept:
                    return out.then
                return S.IfThenElse(B.all_of(*kept), out.then, out.orelse)
        return out

    return fs(s)
