"""Expand math functions into arithmetic, the same on every target.

In: Calls of float math. Out: only what every code generator lowers by itself: sqrt, floor, ceil, trunc, round,
nearbyint, abs, copysign, fma, ldexp, fmod, minimum and maximum. float16 and bfloat16 compute in float32 and round once, but for extremes of float16 on
GPUs: these are one of the operands, and each way to float32 and back is an instruction.
float64 is expanded too, apart from sin, cos and tan on a CPU, which call libm: their reduction of huge angles costs a
vector unit more than the calls.

Shifts by a count that may reach the width get their defined value, 0 or the sign, and count only below it from here on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...target import Target
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..dtype import dtype_info, with_lanes
from ..func import Func
from ..visit import Rewriter, any_expr
from .math_builder import MathBuilder, has_reciprocal
from .math_functions import FUNCTIONS, OF_HALFS, erf_beside, times_one_plus_erf
from .rewrite_util import same_expr

# Lowered natively everywhere in float32 and float64; half formats go through float32 all the same.
_NATIVE = frozenset(("sqrt", "floor", "ceil", "trunc", "round", "nearbyint", "fmod", "ldexp", "min_nan", "max_nan"))
_EXTREMES = frozenset(("min_nan", "max_nan"))
_LIBM_F64 = frozenset(("sin", "cos", "tan"))


_FAST = frozenset(("exp2_fast", "rcp_fast", "div_fast"))
_LOWERED = _NATIVE | _FAST | {"shl", "shr"} | FUNCTIONS.keys()


def _is_lowered(e: E.Expr) -> bool:
    return type(e) is E.Call and e.op in _LOWERED


def lower_math(func: Func, target: Target) -> Func:
    """Math functions as arithmetic; see the module."""
    if not any_expr(func.body, _is_lowered):
        return func
    analyzer = Analyzer()

    def on_for(s: S.For, rw: Rewriter) -> S.Stmt:
        analyzer.bind(s.var, E.Range(s.min, s.extent))
        return rw.stmt_children(s)

    def on_call(e: E.Call, rw: Rewriter) -> E.Expr:
        out = rw.expr_children(e)
        assert isinstance(out, E.Call)
        if out.op == "exp2_fast" and not (target.is_gpu and dtype_info(out.dtype).element == "float32"):
            out = E.Call("exp2", out.args, out.dtype)  # no instruction for it
        if out.op == "rcp_fast" and not (has_reciprocal(target) and dtype_info(out.dtype).element == "float32"):
            one = E.FloatImm(1.0, dtype_info(out.dtype).element)
            lanes = dtype_info(out.dtype).lanes
            return E.Div(one if lanes == 1 else E.Broadcast(one, lanes), out.args[0])
        if out.op == "div_fast" and not (target.kind == "cuda" and dtype_info(out.dtype).element == "float32"):
            return E.Div(*out.args)
        if out.op == "rsqrt" and target.kind == "cuda" and dtype_info(out.dtype).element == "float32":
            return out  # an instruction
        if out.op in FUNCTIONS or out.op in _NATIVE:
            return expand(out, target)
        return shift(out, analyzer) if out.op in ("shl", "shr") else out

    def on_sum(e: E.Add | E.Sub, rw: Rewriter) -> E.Expr:
        parts = [_erf_beside(x, y, rw, target) for x, y in ((e.a, e.b), (e.b, e.a))]
        if parts == [None, None]:
            return rw.expr_children(e)
        return type(e)(*(rw.expr(own) if made is None else made for own, made in zip((e.a, e.b), parts)))

    def on_product(e: E.Mul, rw: Rewriter) -> E.Expr:
        made = _times_one_plus_erf(e, rw, target) if e.dtype.startswith("float32") else None
        return rw.expr_children(e) if made is None else made

    calls: dict[type, Callable[[Any, Rewriter], E.Expr]] = {
        E.Call: on_call,
        E.Add: on_sum,
        E.Sub: on_sum,
        E.Mul: on_product,
    }
    rewriter = Rewriter(calls, {S.For: on_for}, memo=True)
    return func.with_body(rewriter.stmt(func.body))


def _erf_beside(e: E.Expr, other: E.Expr, rw: Rewriter, target: Target) -> E.Expr | None:
    """erf of float32 in a sum with a number of 1/2 or more; None for anything else."""
    number = other.value if isinstance(other, E.Broadcast) else other
    if not (isinstance(e, E.Call) and e.op == "erf" and dtype_info(e.dtype).element == "float32"):
        return None
    if not isinstance(number, E.FloatImm) or not abs(number.value) >= 0.5:
        return None
    m = MathBuilder(e.dtype, target)
    return m.finish(erf_beside(m, m.let(rw.expr(e.args[0]), "x0")))


def _number(e: E.Expr) -> float | None:
    """The constant that an expression is, of all its lanes."""
    e = e.value if isinstance(e, E.Broadcast) else e
    return e.value if isinstance(e, E.FloatImm) else None


def _factors(e: E.Expr) -> tuple[float, list[E.Expr]]:
    """A product as a constant and what is none."""
    number = _number(e)
    if number is not None:
        return number, []
    if isinstance(e, E.Mul):
        (a, left), (b, right) = _factors(e.a), _factors(e.b)
        return a * b, left + right
    if isinstance(e, E.Div) and _number(e.b):
        a, left = _factors(e.a)
        return a / (_number(e.b) or 1.0), left
    return 1.0, [e]


def _erf_of(e: E.Expr) -> E.Expr | None:
    """What is x where `e` is 1 + erf(x)."""
    if isinstance(e, E.Add):
        for one, call in ((e.a, e.b), (e.b, e.a)):
            if isinstance(call, E.Call) and call.op == "erf" and _number(one) == 1.0:
                return call.args[0]
    return None


def _times_one_plus_erf(e: E.Mul, rw: Rewriter, target: Target) -> E.Expr | None:
    """d * x * (1 + erf(c * x)) of float32, with constants c and d above 0; None for anything else."""
    weight, parts = _factors(e)
    inside = [_erf_of(p) for p in parts]
    if len(parts) != 2 or (inside[0] is None) == (inside[1] is None) or not 0 < weight < float("inf"):
        return None
    x, of = (parts[1], inside[0]) if inside[0] is not None else (parts[0], inside[1])
    assert of is not None
    scale, of_parts = _factors(of)
    if len(of_parts) != 1 or not 0 < scale < float("inf") or not same_expr(of_parts[0], x):
        return None
    m = MathBuilder(e.dtype, target)
    return m.finish(times_one_plus_erf(m, m.let(rw.expr(x), "x0"), weight, scale))


def shift(e: E.Call, analyzer: Analyzer) -> E.Expr:
    """A shift whose count need not be below the width (see the table of intrinsics), of one whose count is: LLVM's shifts are
    undefined beyond. A count that is provably below costs nothing."""
    x, count = e.args
    info = dtype_info(x.dtype)
    one = count.value if isinstance(count, E.Broadcast) else count
    low, high = analyzer.const_int_bound(one) if dtype_info(one.dtype).lanes == 1 else (None, None)
    if low is not None and high is not None and 0 <= low and high < info.bits:
        return e
    kind = with_lanes(f"uint{info.bits}", info.lanes)
    held = E.Var("count", kind)

    def const(value: int, dtype: str) -> E.Expr:
        c = E.IntImm(value, dtype_info(dtype).element)
        return c if info.lanes == 1 else E.Broadcast(c, info.lanes)

    if e.op == "shr" and info.is_signed:  # the sign is all that is left
        near = E.Cast(count.dtype, E.Min(held, const(info.bits - 1, kind)))
        return E.Let(held, E.Cast(kind, count), E.Call(e.op, (x, near), e.dtype))
    inside = E.Call(e.op, (x, E.Cast(count.dtype, held)), e.dtype)
    zero = const(0, e.dtype)
    return E.Let(held, E.Cast(kind, count), E.Select(E.LT(held, const(info.bits, kind)), inside, zero))


def expand(e: E.Call, target: Target) -> E.Expr:
    """One call of a math function, its arguments already lowered."""
    info = dtype_info(e.dtype)
    if not info.is_float:
        return e
    if e.op == "exp_below" and target.is_gpu:
        e = E.Call("exp", e.args, e.dtype)
    if info.element == "float16" and target.is_gpu and e.op in _EXTREMES:
        return e
    if info.bits < 32:
        wide = with_lanes("float32", info.lanes)
        args = tuple([E.Cast(wide, a) if dtype_info(a.dtype).is_float else a for a in e.args])
        m = MathBuilder(wide, target)
        if info.element == "float16" and m.has_exp2 and e.op in OF_HALFS:
            return E.Cast(e.dtype, OF_HALFS[e.op](m, *args))
        return E.Cast(e.dtype, expand(E.Call(e.op, args, wide, e.attrs), target))
    if e.op in _NATIVE:
        return e
    if info.bits == 64 and e.op in _LIBM_F64 and not target.is_gpu:
        return _libm(e)
    m = MathBuilder(e.dtype, target)
    if e.op == "pow":
        simple = _simple_power(m, e)
        if simple is not None:
            return simple
    args = tuple([m.let(a, f"x{k}") for k, a in enumerate(e.args)])
    return m.finish(FUNCTIONS[e.op](m, *args))


def _simple_power(m: MathBuilder, e: E.Call) -> E.Expr | None:
    """Powers by a few multiplications, exact in their special values."""
    y = e.args[1].value if isinstance(e.args[1], E.Broadcast) else e.args[1]
    if not isinstance(y, E.FloatImm) or y.value not in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, -1.0):
        return None
    x = m.let(e.args[0], "x")
    if y.value == 0.5:  # sqrt apart from -0 and -inf
        root = m.add(m.sqrt(x), m.f(0.0))
        return m.finish(m.select(E.EQ(x, m.f(float("-inf"))), m.inf, root))
    if y.value in (0.0, 1.0, -1.0):
        return m.finish({0.0: m.f(1.0), 1.0: x, -1.0: m.div(m.f(1.0), x)}[y.value])
    square = m.let(m.mul(x, x), "square")
    return m.finish({2.0: square, 3.0: m.mul(square, x), 4.0: m.mul(square, square)}[y.value])


def _libm(e: E.Call) -> E.Expr:
    """The C library's function, lane by lane."""
    lanes = dtype_info(e.dtype).lanes
    attrs = {"symbol": e.op}
    if lanes == 1:
        return E.Call("call_pure_extern", e.args, e.dtype, attrs)
    names = [E.Var(f"v{k}", a.dtype) for k, a in enumerate(e.args)]
    element = dtype_info(e.dtype).element
    parts = tuple([
        E.Call("call_pure_extern", tuple([E.Shuffle((v,), (k,)) for v in names]), element, attrs) for k in range(lanes)
    ])  # fmt: skip
    result: E.Expr = E.Shuffle(parts, tuple(range(lanes)))
    for v, a in reversed(list(zip(names, e.args))):
        result = E.Let(v, a, result)
    return result
