"""Constant bounds of nodes that are no sums: quotients, remainders, extrema, choices, casts, calls, each from its operands'."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING, Any

from .. import expr as E
from ..dtype import dtype_info, int_range
from .intervals import bits_of

if TYPE_CHECKING:
    from .facts import Facts

INF = 1 << 100  # bounds at or beyond INF // 2 mean "unbounded"
_HALF = INF >> 1
Bound = tuple[int, int]
EVERYTHING: Bound = (-INF, INF)
INDEX_DTYPES = ("int32", "int64")


def clamp(lo: int, hi: int) -> Bound:
    """Bounds with everything beyond half of INF read as infinite."""
    return (-INF if lo <= -_HALF else lo), (INF if hi >= _HALF else hi)


def _scalar_index(e: E.Expr) -> bool:
    return e.dtype in INDEX_DTYPES


def _divisor(f: Facts, e: E.Expr) -> Bound:
    """Bounds of a divisor: a program does not divide by a size that is 0."""
    lo, hi = f.bound(e)
    return (1 if lo == 0 and hi > 0 and _scalar_index(e) else lo), hi


def _b_floordiv(f: Facts, e: Any) -> Bound:
    (a, b), (c, d) = f.bound(e.a), _divisor(f, e.b)
    if e.a.dtype not in INDEX_DTYPES and not (c > 0 and dtype_info(e.dtype).lanes == 1):
        return f._dtype_bound(e)
    if c > 0:
        qs = (
            a // c,
            a // d if d < INF else (0 if a >= 0 else -1),
            b // c,
            b // d if d < INF else (0 if b >= 0 else -1),
        )
        return clamp(min(qs), max(qs))
    return EVERYTHING if _scalar_index(e) else f._dtype_bound(e)


def _b_floormod(f: Facts, e: Any) -> Bound:
    (a, b), (c, d) = f.bound(e.a), _divisor(f, e.b)
    if c <= 0 or dtype_info(e.dtype).lanes > 1:
        return EVERYTHING if _scalar_index(e) else f._dtype_bound(e)
    if a >= 0 and b < c:
        return (a, b)
    if c == d and d < INF:
        if a > -INF and b < INF and a // c == b // c:
            return (a % c, b % c)
        m, r = f.modulus(e.a)
        g = gcd(m, c)
        if m == 0 or g == c:
            return (r % c, r % c)
        return (r % g, c - g + r % g) if g > 1 else (0, c - 1)
    return (0, d - 1 if d < INF else INF) if a < 0 or b >= d - 1 else (0, b)


def _b_div(f: Facts, e: Any) -> Bound:
    (a, b), (c, d) = f.bound(e.a), f.bound(e.b)
    if dtype_info(e.dtype).lanes > 1 or c <= 0:
        return f._dtype_bound(e) if not _scalar_index(e) else EVERYTHING

    def q(x: int, y: int) -> int:
        if y >= INF:
            return 0
        return abs(x) // y * (1 if x >= 0 else -1)

    qs = (q(a, c), q(a, d), q(b, c), q(b, d))
    return clamp(min(qs), max(qs))


def _b_mod(f: Facts, e: Any) -> Bound:
    (a, b), (c, d) = f.bound(e.a), f.bound(e.b)
    if dtype_info(e.dtype).lanes > 1 or c <= 0:
        return f._dtype_bound(e) if not _scalar_index(e) else EVERYTHING
    top = d - 1 if d < INF else INF
    return (0 if a >= 0 else max(a, -top)), (0 if b <= 0 else min(b, top))


def _b_min(f: Facts, e: Any) -> Bound:
    (a, b), (c, d) = f.bound(e.a), f.bound(e.b)
    return min(a, c), min(b, d)


def _b_max(f: Facts, e: Any) -> Bound:
    (a, b), (c, d) = f.bound(e.a), f.bound(e.b)
    return max(a, c), max(b, d)


def _b_select(f: Facts, e: Any) -> Bound:
    (a, b), (c, d) = f.bound(e.a), f.bound(e.b)
    return min(a, c), max(b, d)


def _b_cast(f: Facts, e: E.Cast) -> Bound:
    src = dtype_info(e.value.dtype)
    if not (src.is_int or src.kind == "bool") or src.lanes > 1:
        return f._dtype_bound(e)
    inner = f.bound(e.value)
    if e.dtype in INDEX_DTYPES and e.value.dtype in INDEX_DTYPES:
        if e.dtype == "int64" or not f.has_data(e.value):
            return inner  # index values are taken to fit
    return f._within_dtype(inner, e.dtype)


def _b_call(f: Facts, e: E.Call) -> Bound:
    info = dtype_info(e.dtype)
    if info.lanes > 1 or not (info.is_int or info.kind == "bool"):
        return EVERYTHING
    if e.op == "likely":
        return f.bound(e.args[0])
    if e.op == "if_then_else":
        (a, b), (c, d) = f.bound(e.args[1]), f.bound(e.args[2])
        return min(a, c), max(b, d)
    if e.op == "bitand":
        tops = [hi for lo, hi in map(f.bound, e.args) if 0 <= lo and hi < INF]
        return (0, min(tops)) if tops else int_range(e.dtype)
    if e.op in ("bitor", "bitxor"):
        (a, b), (c, d) = f.bound(e.args[0]), f.bound(e.args[1])
        return (0, bits_of(max(int(b), int(d)))) if min(a, c) >= 0 and max(b, d) < INF else int_range(e.dtype)
    if e.op == "shr":
        (a, b), (c, d) = f.bound(e.args[0]), f.bound(e.args[1])
        if c == d and 0 <= c < 64 and -INF < a and b < INF:
            return a >> c, b >> c
        return (0, b) if a >= 0 else int_range(e.dtype)
    if e.op == "shl":
        (a, b), (c, d) = f.bound(e.args[0]), f.bound(e.args[1])
        if c == d and 0 <= c < 64:
            return f._within_dtype(clamp(a << c, b << c), e.dtype)
    if e.op == "abs":
        a, b = f.bound(e.args[0])
        return f._within_dtype((0 if a <= 0 <= b else min(abs(a), abs(b)), max(abs(a), abs(b))), e.dtype)
    if e.op in ("popcount", "clz", "ctz"):
        return 0, info.bits
    if e.op == "wave_lane":
        return 0, 63
    return int_range(e.dtype)


def _b_let(f: Facts, e: E.Let) -> Bound:
    return f.bound(e.body)


def _b_bool(f: Facts, e: E.Expr) -> Bound:
    return (0, 1)


BOUND: dict[type, Callable[[Facts, Any], Bound]] = {
    E.FloorDiv: _b_floordiv, E.FloorMod: _b_floormod, E.Div: _b_div, E.Mod: _b_mod, E.Min: _b_min, E.Max: _b_max,
    E.Select: _b_select, E.Cast: _b_cast, E.Call: _b_call, E.Let: _b_let,
    **dict.fromkeys((E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE, E.And, E.Or, E.Not), _b_bool),
}  # fmt: skip
