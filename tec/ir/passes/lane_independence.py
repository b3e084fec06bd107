"""May the steps of a loop run side by side, as lanes of a vector?

`Lanes(loop).why_not(lanes)` says what forbids it, None where nothing does. Allowed are stores, conditions, lets, storage of the
body's own and inner loops whose bounds are the same in every step; accesses of memory from outside step by one element, or (loads) not
at all. Two steps that are less than `lanes` apart must not meet in an element that one of them writes: every pair of accesses of a
buffer that is written is compared as linear forms, where variables of inner loops may have any values in either.
"""

from __future__ import annotations

from math import gcd

from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..buffer import Buffer
from ..dtype import dtype_info
from ..intrin import INTRINS
from ..visit import any_stmt, map_expr
from .rewrite_util import const_int, is_named, same_expr

# Of storage made in the body, for all lanes together: what stays in the first-level cache with ease.
_PRIVATE_BYTES = 4096
# Accesses of one memory that differ: each is compared with each, and of these many the pairs take a second.
_MOST_COMPARED = 256
_DIVISIONS = (E.Div, E.Mod, E.FloorDiv, E.FloorMod)


class _NoLanesError(Exception):
    """Internal: the reason is its message."""


class _Access:
    """An access of memory from outside of the body: `index` is `step` times the loop's variable and `rest`."""

    __slots__ = ("buffer", "index", "is_write", "rest", "step")

    def __init__(self, buffer: Buffer, index: E.Expr, is_write: bool):
        self.buffer, self.index, self.is_write = buffer, index, is_write
        self.step = 0
        self.rest = index


class Lanes:
    """What there is to know of a loop of flat buffers; `body` is its body, or the part of it that is asked about."""

    def __init__(self, var: E.Var, body: S.Stmt, analyzer: Analyzer):
        self.var = var
        self.body = body
        self.analyzer = analyzer
        self.accesses: list[_Access] = []
        self.private: set[int] = set()
        self.inner: list[E.Var] = []
        self.varying: set[int] = {id(var)}  # variables whose value differs from step to step
        self.widest = 1  # bytes of the largest element that is computed with
        self._private_bytes = 0
        self._seen: dict[int, tuple[E.Expr, bool]] = {}
        # Of the loops' variables, by their id: a variable that stands for its value as int64.
        self._wide: dict[int, E.Var] = {}

    def why_not(self, lanes: int) -> str | None:
        """None where `lanes` steps may run side by side."""
        try:
            self.collect()
            self._private_size(lanes)
            self._conflicts(lanes)
        except _NoLanesError as e:
            return str(e)
        return None

    def collect(self) -> None:
        """Walk the body; `_NoLanesError` where something has no form for vectors."""
        if not self.accesses:
            self._stmt(self.body)
            for a in list(self.accesses):
                self._split(a)
            if self._wide and any_stmt(self.body, lambda s: isinstance(s, S.IfThenElse)):
                # Of a stencil of 2048 x 2048 whose edges are asked for, LLVM's own vectors took 4.6 ms, masked stores 11 to 14 (Zen 3).
                raise _NoLanesError("a condition around accesses whose indices are widened")

    def repeats(self, shared: bool) -> bool:
        """Whether a step that runs twice, with others between, leaves what it leaves when it runs once: what it writes it does not read
        before. shared: also at once in two threads, so it reads nothing of that."""
        written = {id(a.buffer): a.buffer for a in self.accesses if a.is_write}
        if shared:
            return all(a.is_write for a in self.accesses if id(a.buffer) in written)
        return not any(self._reads_old(b) for b in written.values())

    def _reads_old(self, buffer: Buffer) -> bool:
        mine = [a for a in self.accesses if a.buffer is buffer]
        if all(a.is_write for a in mine):
            return False
        # Written whole before anything reads it, at the one place where all accesses are.
        parts = self.body.stmts if isinstance(self.body, S.Seq) else (self.body,)
        if not all(same_expr(a.index, mine[0].index) for a in mine) or any(self._moves(v, mine[0]) for v in self.inner):
            return True
        for s in parts:
            if isinstance(s, S.BufferStore) and s.buffer is buffer:
                return any(b is buffer for b in _buffers(s.value))
            if is_named(s, buffer):
                return True
        return True

    def _moves(self, v: E.Var, a: _Access) -> bool:
        linear = self.analyzer.detect_linear(a.index, [v])
        return linear is None or not B.is_const(linear[0], 0)

    # ---- the walk

    def _stmt(self, s: S.Stmt) -> None:
        """Look at a statement. Raises _NoLanesError where lanes cannot run side by side."""
        match s:
            case S.Seq():
                for x in s.stmts:
                    self._stmt(x)
            case S.BufferStore():
                if s.predicate is not None or len(s.indices) != 1:
                    raise _NoLanesError("a store with a predicate")
                self._expr(s.value)
                self._access(s.buffer, s.indices[0], True)
            case S.For():
                if s.kind not in (S.ForKind.SERIAL, S.ForKind.UNROLLED) or s.unroll or s.pipelined:
                    raise _NoLanesError(f"a loop of kind {s.kind}")
                if self._expr(s.min) or self._expr(s.extent):
                    raise _NoLanesError("an inner loop whose bounds differ from step to step")
                self.inner.append(s.var)
                self._stmt(s.body)
            case S.IfThenElse():
                self._expr(s.cond)
                self._stmt(s.then)
                if s.orelse is not None:
                    self._stmt(s.orelse)
            case S.LetStmt():
                if self._expr(s.value):
                    self.varying.add(id(s.var))
                self._stmt(s.body)
            case S.Alloc():
                self._alloc(s)
            case _:
                raise _NoLanesError(f"a statement of kind {type(s).__name__}")

    def _alloc(self, s: S.Alloc) -> None:
        size = const_int(s.buffer.shape[0]) if len(s.buffer.shape) == 1 else None
        if size is None or s.buffer.scope not in ("local", "global") or s.notes != S.NO_NOTES:
            raise _NoLanesError("storage of a size that is not known")
        self.private.add(id(s.buffer))
        self._private_bytes += size * self._element(s.buffer)
        self._stmt(s.body)

    def _element(self, buffer: Buffer) -> int:
        info = dtype_info(buffer.dtype)
        if info.lanes != 1 or info.kind == "handle":
            raise _NoLanesError("elements that are vectors")
        self.widest = max(self.widest, info.bytes)
        return info.bytes

    def _access(self, buffer: Buffer, index: E.Expr, is_write: bool) -> bool:
        """Whether the value of an access differs from step to step."""
        self._element(buffer)
        widest = self.widest
        moves = self._expr(index)
        self.widest = widest  # index arithmetic is scalar
        if id(buffer) in self.private:
            if moves:
                raise _NoLanesError("storage of the body that is indexed by the step")
            return True
        self.accesses.append(_Access(buffer, index, is_write))
        return moves

    def _expr(self, e: E.Expr) -> bool:
        """Look at an expression; whether its value differs from step to step."""
        t = type(e)
        if t is E.Var:
            return id(e) in self.varying
        if t is E.IntImm or t is E.FloatImm:
            return False
        hit = self._seen.get(id(e))
        if hit is not None:
            return hit[1]
        moves = self._node(e, t)
        self._seen[id(e)] = e, moves
        return moves

    def _node(self, e: E.Expr, t: type) -> bool:
        """Whether a value may differ from lane to lane. Raises _NoLanesError where lanes cannot run side by side."""
        if isinstance(e, E.BufferLoad):
            if e.predicate is not None or len(e.indices) != 1:
                raise _NoLanesError("a load with a predicate")
            return self._access(e.buffer, e.indices[0], False)
        if t in (E.Ramp, E.Broadcast, E.Shuffle, E.StringImm):
            raise _NoLanesError("a vector")
        if isinstance(e, E.Let):
            if self._expr(e.value):
                self.varying.add(id(e.var))
            return self._expr(e.body) or id(e.var) in self.varying
        if isinstance(e, E.Call):
            known = INTRINS[e.op]
            if known.lanes != "map" or not known.is_pure or known.varying:
                raise _NoLanesError(f"a call of {e.op}")
        moves = False

        def child(x: E.Expr) -> E.Expr:
            nonlocal moves
            moves = self._expr(x) or moves
            return x

        map_expr(e, child)
        info = dtype_info(e.dtype)
        if isinstance(e, _DIVISIONS) and info.is_int and (moves or e.dtype not in ("int32", "int64")):
            by = const_int(e.b)
            if not by:  # a lane that is switched off may divide by 0
                raise _NoLanesError("a division by what is not known")
        if isinstance(e, E.Cast):
            self.widest = max(self.widest, info.bytes)
        return moves

    # ---- memory

    def _split(self, a: _Access) -> None:
        linear = self.analyzer.detect_linear(self._spread(a.index), self._as_int64(self.var))
        steps = [] if linear is None else [const_int(c) for c in linear[:-1]]
        step = sum(c for c in steps if c is not None) if None not in steps else None
        if linear is None or step not in (0, 1) or (a.is_write and step == 0):
            raise _NoLanesError(f"an access of {a.buffer.name} that does not step by one element")
        widest = self.widest
        moves = self._expr(linear[-1])
        self.widest = widest  # index arithmetic is scalar
        if moves:
            raise _NoLanesError(f"an access of {a.buffer.name} at a place that differs from step to step")
        a.step, a.rest = step, linear[-1]

    def _as_int64(self, v: E.Var) -> list[E.Var]:
        """The names of a loop's variable in spread indices: its own, and that of its value as int64."""
        return [v, self._wide[id(v)]] if id(v) in self._wide else [v]

    def _spread(self, e: E.Expr) -> E.Expr:
        """An index in which sums are made int64 term by term, int64(a + v) as int64(a) + int64(v): index arithmetic does not overflow."""
        if type(e) in (E.Add, E.Sub, E.Mul):
            a, b = self._spread(e.a), self._spread(e.b)  # type: ignore[attr-defined]
            return e if a is e.a and b is e.b else type(e)(a, b)  # type: ignore[attr-defined, call-arg]
        if type(e) is not E.Cast or e.dtype != "int64" or e.value.dtype != "int32":
            return e
        inner = e.value
        if type(inner) in (E.Add, E.Sub, E.Mul):
            a, b = (self._spread(E.Cast("int64", x)) for x in (inner.a, inner.b))  # type: ignore[attr-defined]
            return type(inner)(a, b)  # type: ignore[call-arg]
        if type(inner) is E.IntImm:
            return E.IntImm(inner.value, "int64")
        if type(inner) is E.Var and (inner is self.var or any(inner is v for v in self.inner)):
            return self._wide.setdefault(id(inner), E.Var(inner.name, "int64"))
        return e

    def _private_size(self, lanes: int) -> None:
        if self._private_bytes * lanes > _PRIVATE_BYTES:
            raise _NoLanesError("too much storage for all lanes")

    def _conflicts(self, lanes: int) -> None:
        written = {id(a.buffer.data) for a in self.accesses if a.is_write}
        memories: dict[int, list[_Access]] = {}  # accesses that differ, by what they touch
        for a in self.accesses:
            if id(a.buffer.data) in written:
                alike = memories.setdefault(id(a.buffer.data), [])
                if not any(a.is_write == b.is_write and _alike(a, b) for b in alike):
                    alike.append(a)
                    if len(alike) > _MOST_COMPARED:
                        raise _NoLanesError(f"more accesses of {a.buffer.name} than are compared")
        for touched in memories.values():
            apart = [self._apart(a, written) for a in touched]
            for k, (a, forms) in enumerate(zip(touched, apart)):
                for b, others in zip(touched[k:], apart[k:]):
                    if (a.is_write or b.is_write) and self._meet(a, forms, b, others, lanes):
                        raise _NoLanesError(f"steps that meet in {a.buffer.name}")

    def _apart(self, a: _Access, written: set[int]) -> list[E.Expr] | None:
        """How an access moves with each inner loop, and the rest; None where that is not linear or follows from what the loop writes."""
        forms = self.analyzer.detect_linear(a.rest, [x for v in self.inner for x in self._as_int64(v)])
        if forms is None or any(id(b.data) in written for b in _buffers(forms[-1])):
            return None
        return list(forms)

    def _meet(
        self, a: _Access, first: list[E.Expr] | None, b: _Access, second: list[E.Expr] | None, lanes: int
    ) -> bool:
        """Whether two steps less than `lanes` apart may touch one element. first, second: see `_apart`."""
        if a.step != b.step or a.buffer is not b.buffer:
            return True
        if not self.inner and same_expr(a.rest, b.rest):
            return False
        if first is None or second is None:
            return True
        away = const_int(self.analyzer.simplify(B.sub(first[-1], second[-1])))
        stride = 0  # inner loops move the distance by multiples of it
        for c in (*first[:-1], *second[:-1]):
            value = const_int(c)
            if value is None:
                return True
            stride = gcd(stride, value)
        if away is None:
            return True
        if stride == 0:
            return 0 < abs(away) < lanes
        rest = away % stride  # the distances are rest + k * stride, of which 0 is the step itself
        return stride < lanes if rest == 0 else min(rest, stride - rest) < lanes


def _alike(a: _Access, b: _Access) -> bool:
    return a.buffer is b.buffer and a.step == b.step and same_expr(a.rest, b.rest)


def _buffers(e: E.Expr) -> list[Buffer]:
    found: list[Buffer] = []

    def go(x: E.Expr) -> E.Expr:
        if isinstance(x, E.BufferLoad):
            found.append(x.buffer)
        map_expr(x, go)
        return x

    go(e)
    return found
