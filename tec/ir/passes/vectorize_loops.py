"""Make vectors of serial loops of a CPU whose schedule made none.

    for i in range(n): C[i] = exp(A[i])     ->    for o in range(ceil(n / 16)):
                                                      for lane in vectorized(16): C[min(16*o, n - 16) + lane] = exp(A[...])

In: flat buffers, before `vectorize`, which makes the vectors. Tried are innermost loops first, and the loops around one that has no
form for vectors: of a product whose sum runs along rows, the columns. Results are those of the scalar program bit for bit:
floating sums keep their order, unless a note (`AnyOrder`) gives it up (the terms, where they are costly, are computed as vectors and added one by one); integer sums, minima
and maxima are taken in parts. What is left over repeats some of the last vector's steps where a step may run twice, else runs in
smaller vectors and by itself. What forbids it is `lane_independence`'s. Loops that the schedule marked, or that stand around
vectors of the schedule's own, are left alone.
"""

from __future__ import annotations

from collections.abc import Callable

from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..buffer import LOCAL, Buffer
from ..dtype import dtype_info
from ..func import Func
from ..notes import AnyOrder, AutoUnrollMaxStep
from ..visit import map_stmt, substitute, visit, walk_exprs
from .hoist_conditions import hoisted
from .lane_independence import Lanes
from .math_functions import FUNCTIONS
from .rewrite_util import clone, const_int, same_expr, uses_var

_FEWEST = 4  # lanes of a vector that is worth its code, where the vector unit has as many
_TREES = 4  # vectors that a reduction in parts keeps apart: as many as hide the latency of one operation
_EXACT_OPS = (E.Min, E.Max, E.And, E.Or)  # in any order, and the start may count any number of times
_EXACT_CALLS = ("min_nan", "max_nan")  # as well
COSTLY = frozenset(FUNCTIONS) - {"abs", "copysign", "isnan", "isinf", "isfinite"}


def vectorize_loops(func: Func, target: Target) -> Func:
    """Loops of kind "vectorized" where they change no result; see the module."""
    if target.is_gpu or not func.attrs.get("noalias", True):
        return func
    return func.with_body(_Search(target.vector_bytes).stmt(func.body))


class _Search:
    def __init__(self, vector_bytes: int):
        self.vector_bytes = vector_bytes
        self.analyzer = Analyzer()
        self.changed = 0  # loops that became vectors
        self.any_order = False  # whether floating sums are exact in any order, as far as who asked is concerned

    def stmt(self, s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Attr) and isinstance(s.note, AutoUnrollMaxStep) and s.note.steps > 0:
            return s  # the schedule wants it written out
        if isinstance(s, S.Attr) and isinstance(s.note, AnyOrder):
            self.any_order, kept = True, self.any_order
            body = self.stmt(s.body)
            self.any_order = kept
            return body
        if not isinstance(s, S.For):
            return map_stmt(s, self.stmt, _same)
        before = self.changed
        body = self.stmt(s.body)
        if body is not s.body:
            s = s.with_body(body)
        if self.changed > before or s.kind not in (S.ForKind.SERIAL, S.ForKind.PARALLEL) or s.unroll or s.pipelined:
            return s
        outside = hoisted(s) if s.kind == S.ForKind.SERIAL else s
        if not isinstance(outside, S.For):  # what all lanes answer alike is no reason against them
            return map_stmt(outside, self.stmt, _same)
        out = self.loop(s)
        if out is None:
            return s
        self.changed += 1
        return out

    def loop(self, s: S.For) -> S.Stmt | None:
        """The loop in vectors, None where it has to stay."""
        extent = const_int(s.extent)
        if extent is not None and extent < _FEWEST:
            return None
        if extent is None and not self.analyzer.can_prove(B.compare("ge", s.extent, 0)):
            # A loop of fewer than no steps has none; its parts would count some.
            none = B.const(0, s.extent.dtype)
            s = s.with_range(s.min, B.maximum(s.extent, none), s.body)
        if s.kind == S.ForKind.SERIAL and isinstance(s.body, S.BufferStore):
            reduced = _Reduction.of(s, s.body, self)
            if reduced is not None:
                return reduced
        lanes = Lanes(s.var, s.body, self.analyzer)
        if lanes.why_not(1) is not None:
            return None
        n = _lanes_for(self.vector_bytes // lanes.widest, extent)
        if n is None or lanes.why_not(n) is not None:
            return None
        return _Split(s, n).statement(twice=lanes.repeats(shared=s.kind == S.ForKind.PARALLEL))


def _same(e: E.Expr) -> E.Expr:
    return e


def _lanes_for(wide: int, extent: int | None) -> int | None:
    """Lanes of vectors for a loop: as many as a register has, or fewer for a short loop."""
    n = wide
    while extent is not None and n > extent:
        n //= 2
    return n if n >= min(_FEWEST, wide) and n > 1 else None


class _Split:
    """A loop as steps of `lanes` at once; `body` makes one from the index of its first step."""

    def __init__(self, loop: S.For, lanes: int, body: Callable[[E.Expr, int], S.Stmt] | None = None):
        self.loop = loop
        self.lanes = lanes
        self.extent = const_int(loop.extent)
        self.body = body or self._vector

    def _const(self, value: int) -> E.Expr:
        return E.IntImm(value, self.loop.var.dtype)

    def _vector(self, first: E.Expr, lanes: int) -> S.Stmt:
        lane = E.Var("lane", self.loop.var.dtype)
        body = clone(self.loop.body, {self.loop.var: B.add(first, lane)})
        return S.For(lane, self._const(0), self._const(lanes), body, S.ForKind.VECTORIZED)

    def _steps(self, count: E.Expr, start: Callable[[E.Expr], E.Expr]) -> S.Stmt:
        if const_int(count) == 1:
            return self.body(B.add(self.loop.min, start(self._const(0))), self.lanes)
        o = E.Var(self.loop.var.name, self.loop.var.dtype)
        body = self.body(B.add(self.loop.min, start(o)), self.lanes)
        return S.For(o, self._const(0), count, body, self.loop.kind)

    def statement(self, twice: bool) -> S.Stmt:
        """The whole loop. twice: whether a step may run again."""
        n, lanes = self.loop.extent, self.lanes
        if self.extent is None:
            if twice:
                whole = self._repeating(B.floordiv(B.add(n, lanes - 1), lanes), B.sub(n, lanes))
                return S.IfThenElse(B.compare("ge", n, self._const(lanes)), whole, _serial(self.loop))
        elif twice and self.extent % lanes:
            return self._repeating(self._const(-(-self.extent // lanes)), self._const(self.extent - lanes))
        return S.seq(self.whole(), *self.remainder())

    def _repeating(self, count: E.Expr, last: E.Expr) -> S.Stmt:
        """Vectors of which the last, at `last`, repeats some steps of the one before."""
        if _has_loop(self.loop.body):
            return self._steps(count, lambda o: B.minimum(B.mul(o, self.lanes), last))
        # Behind the loop: a start that is the lesser of two would be computed and widened in each step, which is much beside a body of a few operations.
        end = self.body(B.add(self.loop.min, last), self.lanes)
        if self.extent is None:
            end = S.IfThenElse(B.compare("ne", B.floormod(self.loop.extent, self.lanes), self._const(0)), end)
        return S.seq(self.whole(), end)

    def whole(self) -> S.Stmt:
        """The steps that fill vectors."""
        return self._steps(B.floordiv(self.loop.extent, self.lanes), lambda o: B.mul(o, self.lanes))

    def remainder(self) -> tuple[S.Stmt, S.Stmt]:
        """The steps after those: in smaller vectors where their number is known, and what is left one by one."""
        n, lanes = self.loop.extent, self.lanes
        if self.extent is None:
            return S.NOP, self._rest(B.mul(B.floordiv(n, lanes), lanes), B.floormod(n, lanes))
        parts: list[S.Stmt] = []
        left = self.extent % lanes
        done, smaller = self.extent - left, lanes // 2
        while smaller >= _FEWEST and left:
            if left >= smaller:
                parts.append(self.body(B.add(self.loop.min, self._const(done)), smaller))
                done, left = done + smaller, left - smaller
            smaller //= 2
        return S.seq(*parts), self._rest(self._const(done), self._const(left)) if left else S.NOP

    def _rest(self, done: E.Expr, left: E.Expr) -> S.Stmt:
        """The last steps, one by one."""
        var = E.Var(self.loop.var.name, self.loop.var.dtype)
        body = clone(self.loop.body, {self.loop.var: B.add(B.add(self.loop.min, done), var)})
        return S.For(var, self._const(0), left, body)


def _has_loop(s: S.Stmt) -> bool:
    found: list[S.Stmt] = []
    visit(s, None, lambda x: found.append(x) if isinstance(x, S.For) else None)
    return bool(found)


def _serial(loop: S.For) -> S.Stmt:
    again = clone(loop, {})
    assert isinstance(again, S.For)
    return S.For(again.var, again.min, again.extent, again.body)


class _Reduction:
    """`acc = op(acc, value)` in every step of a loop, `acc` one element."""

    def __init__(self, loop: S.For, store: S.BufferStore, old: E.Expr, value: E.Expr, lanes: int):
        self.loop, self.store, self.old, self.value = loop, store, old, value
        self.total = store.value
        self.lanes = lanes
        self.dtype = store.buffer.dtype

    @staticmethod
    def of(loop: S.For, store: S.BufferStore, search: _Search) -> S.Stmt | None:
        """The loop as a reduction in vectors, None where it is none, or none that keeps its bits."""
        total, extent = store.value, const_int(loop.extent)
        a, b = _operands(total)
        if a is None or b is None or store.predicate is not None or len(store.indices) != 1:
            return None
        sides = ((a, b), (b, a))
        old, value = next((x for x in sides if _is_element(x[0], store)), (None, None))
        if old is None or value is None:
            return None
        integers = dtype_info(store.buffer.dtype).is_int
        exact = _is_exact(total) or ((integers or search.any_order) and type(total) in (E.Add, E.Mul))
        costly = type(total) is E.Add and any(type(x) is E.Call and x.op in COSTLY for x in walk_exprs(value))
        if not (exact or costly) or uses_var(store.indices[0], loop.var):
            return None
        # As a loop that stores the values one behind the other, which the reduction's parts are.
        apart = Buffer("lanes", store.buffer.dtype, (loop.extent,), scope=LOCAL)
        as_map = S.BufferStore(apart, value, (loop.var,))
        lanes = Lanes(loop.var, as_map, search.analyzer)
        if lanes.why_not(1) is not None or any(a.buffer.data is store.buffer.data for a in lanes.accesses):
            return None
        n = _lanes_for(search.vector_bytes // lanes.widest, extent)
        if n is None or lanes.why_not(n) is not None:
            return None
        if exact and extent is not None and extent >= 2 * _TREES * n:
            n *= _TREES
        self = _Reduction(loop, store, old, value, n)
        return self.in_parts() if exact else self.in_order()

    def in_order(self) -> S.Stmt:
        """The terms as vectors, added one by one."""

        def body(first: E.Expr, lanes: int) -> S.Stmt:
            part = self._part(lanes)
            values = self._lanes(part, lanes, lambda at: substitute(self.value, {self.loop.var: B.add(first, at)}))
            k = E.Var("k", self.loop.var.dtype)
            one = S.BufferStore(
                self.store.buffer,
                self._combine(self.old, E.BufferLoad(part, (k,))),
                self.store.indices,
                None,
                self.store.loc,
            )
            adds = S.For(k, E.IntImm(0, k.dtype), E.IntImm(lanes, k.dtype), one, S.ForKind.UNROLLED)
            return S.Alloc(part, S.seq(values, adds))

        return _Split(self.loop, self.lanes, body).statement(twice=False)

    def in_parts(self) -> S.Stmt:
        """Each lane reduces its own steps, then the lanes are reduced by halves."""
        part = self._part(self.lanes)
        neutral = 0 if type(self.total) is E.Add else 1
        start = self.old if _is_exact(self.total) else B.const(neutral, self.dtype)
        split = _Split(self.loop, self.lanes)
        steps: list[S.Stmt] = [self._lanes(part, self.lanes, lambda at: start)]

        def body(first: E.Expr, lanes: int) -> S.Stmt:
            def step(at: E.Expr) -> E.Expr:
                return self._combine(
                    E.BufferLoad(part, (at,)), substitute(self.value, {self.loop.var: B.add(first, at)})
                )

            return self._lanes(part, lanes, step)

        split.body = body
        smaller, rest = split.remainder()
        steps += [split.whole(), smaller]
        half = self.lanes // 2
        while half:
            steps.append(self._halve(part, half))
            half //= 2
        last = self._combine(self.old, E.BufferLoad(part, (E.IntImm(0),)))
        steps.append(S.BufferStore(self.store.buffer, last, self.store.indices, None, self.store.loc))
        steps.append(rest)
        return S.Alloc(part, S.seq(*steps))

    def _part(self, lanes: int) -> Buffer:
        return Buffer("lanes", self.dtype, (E.IntImm(lanes),), scope=LOCAL)

    def _combine(self, a: E.Expr, b: E.Expr) -> E.Expr:
        if isinstance(self.total, E.Call):
            return E.Call(self.total.op, (a, b), self.dtype)
        assert isinstance(self.total, E.BinaryExpr)
        return type(self.total)(a, b)

    def _halve(self, part: Buffer, half: int) -> S.Stmt:
        return self._lanes(
            part,
            half,
            lambda at: self._combine(E.BufferLoad(part, (at,)), E.BufferLoad(part, (B.add(at, half),))),
        )

    def _lanes(self, part: Buffer, lanes: int, value: Callable[[E.Expr], E.Expr]) -> S.Stmt:
        lane = E.Var("lane", self.loop.var.dtype)
        store = S.BufferStore(part, value(lane), (lane,))
        return S.For(lane, E.IntImm(0, lane.dtype), E.IntImm(lanes, lane.dtype), store, S.ForKind.VECTORIZED)


def _operands(total: E.Expr) -> tuple[E.Expr | None, E.Expr | None]:
    """The two operands of what may be a reduction's step."""
    if isinstance(total, E.BinaryExpr):
        return total.a, total.b
    if type(total) is E.Call and total.op in _EXACT_CALLS:
        return total.args[0], total.args[1]
    return None, None


def _is_exact(total: E.Expr) -> bool:
    return type(total) in _EXACT_OPS or (type(total) is E.Call and total.op in _EXACT_CALLS)


def _is_element(e: E.Expr, store: S.BufferStore) -> bool:
    """Whether an expression is the element that is stored."""
    return (
        isinstance(e, E.BufferLoad)
        and e.buffer is store.buffer
        and e.predicate is None
        and same_expr(e.indices[0], store.indices[0])
    )
