"""Turn loops of kind "vectorized" into vector operations.

In: flat buffers; For(kind=vectorized) of constant extent. Out: no vectorized loop; the loop variable is a Ramp, values
that depend on it are vectors, loads and stores have vector indices. A condition on the variable becomes a predicate of
the stores (and of the loads that it guards); on a CPU the guard of a split asks first whether it holds for all lanes, for a masked
store takes a core of AVX2 some twenty times as long as a plain one. What has no vector form (inner loops whose bounds depend on the variable,
calls of functions outside, whiles) runs lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from ...errors import LoweringError
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..buffer import Buffer
from ..dtype import dtype_info, with_lanes
from ..effects import effects, is_call
from ..func import Func
from ..intrin import INTRINS
from ..visit import any_expr, map_stmts
from . import ragged_pieces
from .crossings import Crossings, of_one_of_two
from .lane_forms import all_lanes, any_lane, fits, in_steps, is_load, reads_where, repeats, strip_likely
from .rewrite_util import clone, const_int, reshaped

# Lanes of one vector: a register's of bytes on the widest unit (AVX-512). LLVM's time for a vector of scattered elements grows with the square of its
# lanes: stores 512 elements apart took 0.5 s for 64 lanes, 2.1 s for 128 and 41 s for 512.
_MAX_LANES = 64


class _CannotVectorizeError(Exception):
    """Internal: this statement has no vector form."""


def vectorize(func: Func, target: Target) -> Func:
    """No loop of kind "vectorized" left; see the module."""
    analyzer = Analyzer()

    def stmt(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.For):
            with analyzer.scope():
                analyzer.bind(s.var, E.Range(s.min, s.extent))
                body = stmt(s.body)
                if s.kind == S.ForKind.VECTORIZED:
                    return _vector_loop(s, body, analyzer, target)
            return s if body is s.body else s.with_body(body)
        return map_stmts(s, stmt)

    body = stmt(func.body)
    return func.with_body(ragged_pieces.moved_late(body) if target.chip.loads_anywhere else body)


def _vector_loop(loop: S.For, body: S.Stmt, analyzer: Analyzer, target: Target) -> S.Stmt:
    lanes = const_int(loop.extent)
    if lanes is None:
        raise LoweringError(
            f"the vectorized loop over {loop.var.name} has the extent {loop.extent}, which is not a constant",
            hint="split the axis by a constant factor and vectorize the inner axis",
        )
    if lanes == 0:
        return S.NOP
    if lanes == 1:
        return clone(body, {loop.var: loop.min})
    if lanes > _MAX_LANES:
        return in_steps(
            loop.with_body(body), _MAX_LANES, analyzer, lambda one: _vector_loop(one, one.body, analyzer, target)
        )
    crossings = Crossings(loop.var, lanes, body, analyzer) if target.kind == "rocm" else None
    made = _Vectorizer(loop.var, loop.min, lanes, analyzer, target, crossings).statement(body)
    return made if crossings is None else crossings.around(made)


def lanes_of(e: E.Expr) -> int:
    return dtype_info(e.dtype).lanes


def widen(e: E.Expr, lanes: int) -> E.Expr:
    """`e` as a vector of `lanes` lanes."""
    return e if lanes_of(e) == lanes else E.Broadcast(e, lanes)


class _Vectorizer:
    def __init__(
        self, var: E.Var, lo: E.Expr, lanes: int, analyzer: Analyzer, target: Target, crossings: Crossings | None
    ):
        self.var = var
        self.lo = lo
        self.lanes = lanes
        self.analyzer = analyzer
        # A masked access is a branch for each lane, of a CPU as of an AMD GPU.
        self.parts_guards = not target.is_gpu or target.chip.loads_anywhere
        self.loads_anywhere = target.chip.loads_anywhere
        self.crossings = crossings
        self.lets: dict[E.Var, E.Expr] = {}
        self.grown: dict[int, Buffer] = {}
        self.predicates: list[E.Expr] = []  # vector conditions that hold where we are
        self.memo: dict[int, tuple[E.Expr, E.Expr]] = {}

    # ---- statements

    def statement(self, s: S.Stmt) -> S.Stmt:
        """The vector form of `s`, or `s` lane by lane."""
        saved = list(self.predicates), dict(self.lets), dict(self.grown)
        try:
            return self.stmt(s)
        except _CannotVectorizeError:
            self.predicates, self.lets, self.grown = saved
            self.memo.clear()
            if self.grown or self.lets:
                raise  # lanes of outer storage are laid out already: an outer statement must go lane by lane
            return self.scalarize(s)

    def scalarize(self, s: S.Stmt) -> S.Stmt:
        var = E.Var(self.var.name, self.var.dtype)
        body = clone(s, {self.var: var})
        if self.predicates:
            raise _CannotVectorizeError
        return S.For(var, self.lo, E.IntImm(self.lanes, self.lo.dtype), body)

    def uses_var(self, e: E.Expr | S.Stmt) -> bool:
        return any_expr(
            e,
            lambda x: x is self.var or x in self.lets or (type(x) is E.BufferLoad and id(x.buffer) in self.grown),
        )

    def stmt(self, s: S.Stmt) -> S.Stmt:
        """A statement for all lanes at once. Raises _CannotVectorizeError."""
        match s:
            case S.BufferStore():
                return self.store(s)
            case S.Seq():
                return S.seq(*[self.statement(x) for x in s.stmts])
            case S.For():
                if self.uses_var(s.min) or self.uses_var(s.extent):
                    raise _CannotVectorizeError
                with self.analyzer.scope():
                    self.analyzer.bind(s.var, E.Range(s.min, s.extent))
                    body = self.statement(s.body)
                return s.with_body(body)
            case S.IfThenElse():
                return self.branch(s)
            case S.LetStmt():
                value = self.expr(s.value)
                if lanes_of(value) == lanes_of(s.value):
                    return S.LetStmt(s.var, value, self.statement(s.body))
                new = E.Var(s.var.name, value.dtype)
                self.lets[s.var] = new
                self.memo.clear()
                body = self.stmt(s.body)
                del self.lets[s.var]
                self.memo.clear()
                return S.LetStmt(new, value, body)
            case S.Alloc():
                return self.alloc(s)
            case S.Attr():
                return S.Attr(s.note, self.statement(s.body))
            case S.Evaluate():
                if self.uses_var(s.value):
                    raise _CannotVectorizeError
                return self.repeat(s)
            case S.Assert() if not self.uses_var(s.cond):
                return s
        raise _CannotVectorizeError

    def repeat(self, s: S.Stmt) -> S.Stmt:
        """A statement that does not depend on the lane: its effect happens once for each lane all the same."""
        if self.predicates:
            raise _CannotVectorizeError
        if isinstance(s, S.Evaluate) and (is_call(s, "barrier") or effects(s.value).is_constant):
            return s
        raise _CannotVectorizeError

    def store(self, s: S.BufferStore) -> S.Stmt:
        index = self.index(s.buffer, s.indices)
        value = self.expr(s.value)
        lanes = max(lanes_of(index), lanes_of(value))
        buffer = self.grown.get(id(s.buffer), s.buffer)
        if lanes == 1 and not self.predicates:
            if id(s.buffer) in effects(s.value).reads:
                raise _CannotVectorizeError  # an update, once for each lane
            return S.BufferStore(buffer, value, (index,), self._own(s.predicate), s.loc)
        if lanes_of(index) == 1 or dtype_info(s.buffer.dtype).lanes > 1:
            raise _CannotVectorizeError  # all lanes write one element: their order counts
        if lanes != self.lanes:
            raise _CannotVectorizeError
        pred = self._own(s.predicate)
        conds = [*self.predicates, *([pred] if pred is not None else [])]
        return S.BufferStore(buffer, widen(value, lanes), (widen(index, lanes),), self.conjunction(conds), s.loc)

    def _own(self, predicate: E.Expr | None) -> E.Expr | None:
        return None if predicate is None else self.expr(predicate)

    def conjunction(self, conds: list[E.Expr]) -> E.Expr | None:
        if not conds:
            return None
        out = widen(conds[0], self.lanes)
        for c in conds[1:]:
            out = E.And(out, widen(c, self.lanes))
        return out

    def branch(self, s: S.IfThenElse) -> S.Stmt:
        cond = self.condition(strip_likely(s.cond))
        if lanes_of(cond) == 1:
            then = self.statement(s.then)
            orelse = self.statement(s.orelse) if s.orelse is not None else None
            return S.IfThenElse(cond if self.uses_var(s.cond) else s.cond, then, orelse)
        changed = effects(s.cond).reads & effects(s).writes
        if not changed:
            return self.masked(s, cond)
        # A copy for each lane, of which the branch changes what the condition read: the condition is kept as it was.
        if changed <= self.grown.keys():
            mask = E.Var("mask", cond.dtype)
            return S.LetStmt(mask, cond, self.masked(s, mask, held=True))
        # The lanes of the condition are all taken beforehand, for one store.
        if s.orelse is not None or not isinstance(s.then, S.BufferStore):
            raise _CannotVectorizeError
        return self.masked(s, cond)

    def masked(self, s: S.IfThenElse, cond: E.Expr, held: bool = False) -> S.Stmt:
        """A branch with a condition for each lane. held: it is a variable."""
        asks = self.parts_guards and s.orelse is None and not self.predicates and not held
        whole = all_lanes(s.cond, cond) if asks else None
        if whole is not None:
            return S.IfThenElse(whole, self.stmt(clone(s.then, {})), self.under(cond, s.then))
        then = self.under(cond, s.then)
        if s.orelse is None:
            return then
        return S.seq(then, self.under(E.Not(cond), s.orelse))

    def under(self, cond: E.Expr, s: S.Stmt) -> S.Stmt:
        self.predicates.append(cond)
        self.memo.clear()
        try:
            return self.stmt(s)
        finally:
            self.predicates.pop()
            self.memo.clear()

    def alloc(self, s: S.Alloc) -> S.Stmt:
        """A buffer made anew in each iteration gets a copy for each lane, lanes side by side."""
        old = s.buffer
        if not self.uses_var(s.body) or old.scope not in ("local", "global"):
            return S.Alloc(old, self.statement(s.body), s.notes)
        new = reshaped(old, (B.mul(old.shape[0], self.lanes),))
        self.grown[id(old)] = new
        self.memo.clear()
        body = self.stmt(s.body)
        del self.grown[id(old)]
        self.memo.clear()
        return S.Alloc(new, body, s.notes)

    # ---- expressions

    def index(self, buffer: Buffer, indices: tuple[E.Expr, ...]) -> E.Expr:
        if len(indices) != 1:
            raise LoweringError(f"{buffer.name} is not flat", locate=False, hint="run flatten_buffers before vectorize")
        i = self.expr(indices[0])
        if id(buffer) in self.grown:
            if lanes_of(i) == 1:
                return E.Ramp(self.analyzer.simplify(B.mul(i, self.lanes)), E.IntImm(1, i.dtype), self.lanes)
            dtype = dtype_info(i.dtype).element
            lane = E.Ramp(E.IntImm(0, dtype), E.IntImm(1, dtype), self.lanes)
            return self.binary(E.Add, self.binary(E.Mul, i, E.IntImm(self.lanes, dtype)), lane)
        return i

    def expr(self, e: E.Expr) -> E.Expr:
        if e is self.var:
            return E.Ramp(self.lo, E.IntImm(1, e.dtype), self.lanes)
        t = type(e)
        if t is E.Var:
            return self.lets.get(e, e)  # type: ignore[call-overload,no-any-return]
        if t is E.IntImm or t is E.FloatImm or t is E.StringImm:
            return e
        hit = self.memo.get(id(e))
        if hit is not None:
            return hit[1]
        out = _EXPR[t](self, e)
        self.memo[id(e)] = (e, out)
        return out

    def binary(self, cls: type, a: E.Expr, b: E.Expr) -> E.Expr:
        """The operation on vectors, of which one side may be a single number."""
        la, lb = lanes_of(a), lanes_of(b)
        if la == 1 and lb == 1:
            out: E.Expr = cls(a, b)
            return _fold(out)
        lanes = max(la, lb)
        if la != lb and min(la, lb) != 1:
            raise _CannotVectorizeError
        if cls in (E.Add, E.Sub) and dtype_info(a.dtype).is_int:
            build = B.add if cls is E.Add else B.sub
            if isinstance(a, E.Ramp) and lb == 1:
                return E.Ramp(build(a.base, b), a.stride, lanes)
            if isinstance(b, E.Ramp) and la == 1:
                stride = b.stride if cls is E.Add else B.neg(b.stride)
                return E.Ramp(build(a, b.base), stride, lanes)
            if isinstance(a, E.Ramp) and isinstance(b, E.Ramp):
                stride = self.analyzer.simplify(build(a.stride, b.stride))
                base = build(a.base, b.base)
                return E.Broadcast(base, lanes) if B.is_const(stride, 0) else E.Ramp(base, stride, lanes)
        if cls is E.Mul and dtype_info(a.dtype).is_int:
            for ramp, other in ((a, b), (b, a)):
                if isinstance(ramp, E.Ramp) and lanes_of(other) == 1:
                    return E.Ramp(B.mul(ramp.base, other), self.analyzer.simplify(B.mul(ramp.stride, other)), lanes)
        if cls in (E.FloorDiv, E.FloorMod) and isinstance(a, E.Ramp):
            split = self.split_ramp(cls, a, b)
            if split is None and self.crossings is not None:
                split = self.crossings.divided(cls, a, b)
            if split is not None:
                return split
        if self.crossings is not None and (chosen := of_one_of_two(cls, a, b, self.binary)) is not None:
            return chosen
        result: E.Expr = cls(widen(a, lanes), widen(b, lanes))
        return result

    def split_ramp(self, cls: type, ramp: E.Ramp, divisor: E.Expr) -> E.Expr | None:
        """`ramp // c` and `ramp % c` where no lane crosses a multiple of c: one value, and a Ramp again."""
        c, step = const_int(divisor), const_int(ramp.stride)
        if c is None or step is None or c <= 0 or step < 0:
            return None
        rest = self.analyzer.simplify(B.floormod(ramp.base, c))
        high = self.analyzer.const_int_bound(rest)[1]
        coeff, base = self.analyzer.modular(ramp.base)
        if coeff:
            # base of the ramp is base + k*coeff: the residues modulo c are base + multiples of gcd(coeff, c).
            g = gcd(int(coeff), c)
            most = c - g + int(base) % g
            high = most if high is None else min(high, most)
        elif coeff == 0:
            high = int(base) % c
        if high is None or high + step * (ramp.lanes - 1) >= c:
            return None
        if cls is E.FloorDiv:
            return E.Broadcast(self.analyzer.simplify(B.floordiv(ramp.base, c)), ramp.lanes)
        return E.Ramp(rest, ramp.stride, ramp.lanes)

    def condition(self, e: E.Expr) -> E.Expr:
        """The lanes of a condition, whose right side reads where the left one lets it, as that of one lane does: at places that data say, or that the left side is about."""
        if not isinstance(e, (E.And, E.Or)):
            return self.expr(e)
        a = self.condition(e.a)
        asks = lanes_of(a) > 1 and reads_where(e.b, anywhere=not any_expr(e.a, is_load))
        b = self.guarded_by(a if type(e) is E.And else E.Not(a), e.b) if asks else self.condition(e.b)
        return e if a is e.a and b is e.b else self.binary(type(e), a, b)

    def guarded_by(self, cond: E.Expr, e: E.Expr) -> E.Expr:
        self.predicates.append(cond)
        self.memo, saved = {}, self.memo
        try:
            return self.condition(e)
        finally:
            self.predicates.pop()
            self.memo = saved


def _fold(e: E.Expr) -> E.Expr:
    folder = B.FOLD.get(type(e))
    if folder is not None and isinstance(e, E.BinaryExpr):
        return folder(e.a, e.b) or e
    return e


def _binary(v: _Vectorizer, e: Any) -> E.Expr:
    a, b = v.expr(e.a), v.expr(e.b)
    if a is e.a and b is e.b:
        return e  # type: ignore[no-any-return]
    return v.binary(type(e), a, b)


def _not(v: _Vectorizer, e: E.Not) -> E.Expr:
    a = v.expr(e.a)
    return e if a is e.a else E.Not(a)


def _select(v: _Vectorizer, e: E.Select) -> E.Expr:
    c, a, b = v.expr(e.cond), v.expr(e.a), v.expr(e.b)
    if c is e.cond and a is e.a and b is e.b:
        return e
    lanes = max(lanes_of(c), lanes_of(a), lanes_of(b))
    if lanes_of(c) == 1 and lanes > 1:
        c = E.Broadcast(c, lanes)
    return E.Select(c, widen(a, lanes), widen(b, lanes))


def _cast(v: _Vectorizer, e: E.Cast) -> E.Expr:
    x = v.expr(e.value)
    if x is e.value:
        return e
    lanes = lanes_of(x)
    dst, src = dtype_info(e.dtype), dtype_info(x.dtype)
    if isinstance(x, E.Ramp) and dst.is_int and src.is_int and (dst.bits >= src.bits or fits(x, dst.element)):
        # Index arithmetic does not overflow, so widening goes through the Ramp.
        return E.Ramp(B.cast(dst.element, x.base), B.cast(dst.element, x.stride), lanes)
    if isinstance(x, E.Broadcast):
        return E.Broadcast(B.cast(dst.element, x.value), lanes)
    return E.Cast(with_lanes(e.dtype, lanes), x)


def _let(v: _Vectorizer, e: E.Let) -> E.Expr:
    value = v.expr(e.value)
    if lanes_of(value) == lanes_of(e.value):
        body = v.expr(e.body)
        return e if value is e.value and body is e.body else E.Let(e.var, value, body)
    new = E.Var(e.var.name, value.dtype)
    v.lets[e.var] = new
    v.memo, saved = {}, v.memo
    body = v.expr(e.body)
    v.memo = saved
    del v.lets[e.var]
    return E.Let(new, value, body)


def _load(v: _Vectorizer, e: E.BufferLoad) -> E.Expr:
    index = v.index(e.buffer, e.indices)
    pred = v._own(e.predicate)
    buffer = v.grown.get(id(e.buffer), e.buffer)
    if lanes_of(index) == 1 and (pred is None or lanes_of(pred) == 1):
        if v.predicates:
            # One address for all lanes: load it once, if any lane is on.
            some = any_lane(v.predicates[0]) if len(v.predicates) == 1 and pred is None else None
            if some is not None:
                load = E.BufferLoad(buffer, (index,))
                return E.Call("if_then_else", (some, load, B.const(0, load.dtype)), load.dtype)
            index = E.Broadcast(index, v.lanes)
        elif index is e.indices[0] and buffer is e.buffer and pred is e.predicate:
            return e
        else:
            return E.BufferLoad(buffer, (index,), pred)
    if dtype_info(e.buffer.dtype).lanes > 1 or lanes_of(index) not in (1, v.lanes):
        raise _CannotVectorizeError
    conds = [*v.predicates, *([pred] if pred is not None else [])]
    again = None if conds else repeats(index, v.analyzer)
    if again is not None:
        ramp, times = again
        return E.Shuffle((E.BufferLoad(buffer, (ramp,)),), tuple(k // times for k in range(v.lanes)))
    index = widen(index, v.lanes)
    return E.BufferLoad(buffer, (index,), v.conjunction(conds))


def _call(v: _Vectorizer, e: E.Call) -> E.Expr:
    """A call on vectors: by the intrinsic's kind for all lanes at once, or refused (`_CannotVectorizeError`)."""
    if e.op == "likely":
        return v.expr(e.args[0])
    if e.op == "if_then_else":
        cond = v.condition(strip_likely(e.args[0]))
        if lanes_of(cond) == 1:
            a, b = v.expr(e.args[1]), v.expr(e.args[2])
            lanes = max(lanes_of(a), lanes_of(b))
            return E.Call(e.op, (cond, widen(a, lanes), widen(b, lanes)), with_lanes(e.dtype, lanes))
        if v.loads_anywhere and not v.predicates:
            choice = E.Call(e.op, (strip_likely(e.args[0]), *e.args[1:]), e.dtype)
            made = ragged_pieces.by_one_load(choice, v.lanes, v.expr, v.uses_var, v.analyzer)
            if made is not None:
                return made
        a = v.guarded_by(cond, e.args[1])
        b = v.guarded_by(E.Not(cond), e.args[2])
        return E.Select(cond, widen(a, v.lanes), widen(b, v.lanes))
    if INTRINS[e.op].pointer and v.predicates and not any(map(v.uses_var, e.args)):
        return e  # an element whose address is asked for is not read, whatever lanes are on
    args = tuple([v.expr(a) for a in e.args])
    if INTRINS[e.op].writes or (INTRINS[e.op].opaque and INTRINS[e.op].lanes != "map"):
        raise _CannotVectorizeError  # once for each lane, though no lane may show in its arguments
    if all(a is b for a, b in zip(args, e.args)):
        return e
    lanes = max([lanes_of(a) for a in args], default=1)
    if lanes == 1:
        return E.Call(e.op, args, e.dtype, e.attrs)
    info = INTRINS[e.op]
    if info.lanes == "map" or (e.op == "reinterpret" and dtype_info(e.dtype).bits == dtype_info(e.args[0].dtype).bits):
        return E.Call(e.op, tuple([widen(a, lanes) for a in args]), with_lanes(e.dtype, lanes), e.attrs)
    if info.is_pure and all(lanes_of(a) in (1, lanes) for a in args) and not v.predicates:
        picked = [tuple([E.Shuffle((a,), (k,)) if lanes_of(a) == lanes else a for a in args]) for k in range(lanes)]
        return E.Shuffle(tuple([E.Call(e.op, p, e.dtype, e.attrs) for p in picked]), tuple(range(lanes)))
    raise _CannotVectorizeError


def _vector_leaf(v: _Vectorizer, e: E.Expr) -> E.Expr:
    # A vector inside of a vectorized loop: its lanes are not those of the loop, even where they are as many.
    raise _CannotVectorizeError


_EXPR: dict[type, Callable[[_Vectorizer, Any], E.Expr]] = {
    **dict.fromkeys((E.Add, E.Sub, E.Mul, E.Div, E.Mod, E.FloorDiv, E.FloorMod, E.Min, E.Max, E.And, E.Or), _binary),
    **dict.fromkeys((E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE), _binary),
    E.Not: _not, E.Select: _select, E.Cast: _cast, E.Let: _let, E.BufferLoad: _load, E.Call: _call,
    E.Ramp: _vector_leaf, E.Broadcast: _vector_leaf, E.Shuffle: _vector_leaf,
}  # fmt: skip
