"""What is known of vectors before they run: one scalar condition for all lanes or for any, places that come several times each, and a loop of vectors."""

from __future__ import annotations

from collections.abc import Callable

from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..dtype import dtype_info, int_range
from ..visit import any_expr
from .rewrite_util import clone, const_int


def strip_likely(e: E.Expr) -> E.Expr:
    """A condition without its `likely` marks."""
    if type(e) is E.Call and e.op == "likely":
        return strip_likely(e.args[0])
    if type(e) is E.And:
        a, b = strip_likely(e.a), strip_likely(e.b)
        return e if a is e.a and b is e.b else E.And(a, b)
    return e


def is_load(e: E.Expr) -> bool:
    return isinstance(e, E.BufferLoad)


def reads_where(e: E.Expr, anywhere: bool) -> bool:
    """Whether an expression reads memory at a place that data say, or `anywhere`."""
    return any_expr(
        e, lambda x: isinstance(x, E.BufferLoad) and (anywhere or any(any_expr(i, is_load) for i in x.indices))
    )


def all_lanes(guard: E.Expr, cond: E.Expr) -> E.Expr | None:
    """Of the guard of a split's last vector, whose lanes are `first + lane < bound`, whether it holds for all of them; None for another condition."""
    if not (isinstance(guard, E.Call) and guard.op == "likely" and isinstance(cond, E.LT)):
        return None
    ramp, bound = cond.a, cond.b
    if not isinstance(ramp, E.Ramp) or not isinstance(bound, E.Broadcast) or not B.is_const(ramp.stride, 1):
        return None
    last = B.add(ramp.base, E.IntImm(ramp.lanes - 1, ramp.base.dtype))
    return E.Call("likely", (B.compare("lt", last, bound.value),), "bool")


def any_lane(cond: E.Expr) -> E.Expr | None:
    """The scalar condition that says whether some lane of `cond` is on, where one lane decides."""
    if not isinstance(cond, (E.LT, E.LE, E.GT, E.GE)):
        return None
    sides = []
    falling = isinstance(cond, (E.LT, E.LE))
    for side, first_wins in ((cond.a, falling), (cond.b, not falling)):
        if isinstance(side, E.Broadcast):
            sides.append(side.value)
        elif isinstance(side, E.Ramp) and (step := const_int(side.stride)) is not None:
            first = first_wins if step >= 0 else not first_wins
            sides.append(side.base if first else B.add(side.base, B.mul(side.stride, side.lanes - 1)))
        else:
            return None
    if isinstance(cond.a, E.Ramp) and isinstance(cond.b, E.Ramp):
        return None
    result: E.Expr = type(cond)(sides[0], sides[1])
    return result


def repeats(index: E.Expr, analyzer: Analyzer) -> tuple[E.Expr, int] | None:
    """Of places `first + ramp // c` whose ramp begins at a multiple of c: the places that differ, as a ramp, and how many lanes have each. A load of those and a shuffle
    are a few instructions, where a load lane by lane is some for each."""
    if isinstance(index, E.Cast) and (found := repeats(index.value, analyzer)) is not None:
        ramp, times = found
        assert isinstance(ramp, E.Ramp)
        element = dtype_info(index.dtype).element
        return E.Ramp(B.cast(element, ramp.base), B.cast(element, ramp.stride), ramp.lanes), times
    if isinstance(index, E.Add):
        for one, other in ((index.a, index.b), (index.b, index.a)):
            if isinstance(other, E.Broadcast) and (found := repeats(one, analyzer)) is not None:
                ramp, times = found
                assert isinstance(ramp, E.Ramp)
                return E.Ramp(B.add(ramp.base, other.value), ramp.stride, ramp.lanes), times
        return None
    if not isinstance(index, E.FloorDiv) or not isinstance(index.a, E.Ramp) or not B.is_const(index.a.stride, 1):
        return None
    ramp, divisor = index.a, const_int(index.b.value) if isinstance(index.b, E.Broadcast) else None
    if divisor is None or divisor < 2 or ramp.lanes <= divisor:
        return None
    if not analyzer.can_prove(B.compare("eq", B.floormod(ramp.base, divisor), 0)):
        return None
    first = analyzer.simplify(B.floordiv(ramp.base, divisor))
    return E.Ramp(first, E.IntImm(1, first.dtype), -(-ramp.lanes // divisor)), divisor


def in_steps(loop: S.For, lanes: int, analyzer: Analyzer, vector: Callable[[S.For], S.Stmt]) -> S.Stmt:
    """A loop of constant extent as steps of `lanes`, and one of what is left. `vector` makes one from its loop, which is a copy."""

    def one(first: E.Expr, n: int) -> S.Stmt:
        var = E.Var(loop.var.name, loop.var.dtype)
        body = clone(loop.body, {loop.var: var})
        return vector(S.For(var, B.add(loop.min, first), E.IntImm(n, var.dtype), body, loop.kind))

    extent = const_int(loop.extent)
    assert extent is not None
    step, (count, left) = E.Var(f"{loop.var.name}_step", loop.var.dtype), divmod(extent, lanes)
    zero, steps = E.IntImm(0, step.dtype), E.IntImm(count, step.dtype)
    with analyzer.scope():
        analyzer.bind(step, E.Range(zero, steps))
        whole = S.For(step, zero, steps, one(B.mul(step, lanes), lanes))
    return S.seq(whole, *([one(E.IntImm(extent - left, step.dtype), left)] if left else []))


def fits(x: E.Ramp, dtype: str) -> bool:
    """Whether a vector of numbers is one of a narrower type too."""
    first, step = const_int(x.base), const_int(x.stride)
    if first is None or step is None:
        return False
    low, high = int_range(dtype)
    return all(low <= n <= high for n in (first, first + step * (x.lanes - 1)))


def neighbours(s: S.BufferStore) -> tuple[int, int] | None:
    """Where a store's lanes begin and end, those that a mask leaves out too; None where they are no neighbours at a numbered place within a buffer of known size."""
    (index, *more) = s.indices
    lanes, size = dtype_info(index.dtype).lanes, const_int(s.buffer.shape[0])
    base = const_int(index.base if isinstance(index, E.Ramp) else index)
    is_line = lanes == 1 or (isinstance(index, E.Ramp) and const_int(index.stride) == 1)
    if more or not is_line or base is None or size is None or not 0 <= base <= size - lanes:
        return None
    return base, base + lanes
