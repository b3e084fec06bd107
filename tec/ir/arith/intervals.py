"""Intervals of numbers, by simple rules: quick, for the many indices whose bounds are plain; the Analyzer knows more and takes longer.

In: an index expression and what is known of its variables. Out: the numbers between which it lies, both inclusive, or None where these rules
know none. Index arithmetic is taken not to overflow.
"""

from __future__ import annotations

from collections.abc import Mapping

from .. import expr as E
from ..dtype import dtype_info

Interval = tuple[int, int]


def interval_of(e: E.Expr, known: Mapping[int, Interval]) -> Interval | None:
    """Where `e` lies; `known`: the intervals of variables, by their ids."""
    t = type(e)
    if t is E.IntImm:
        return e.value, e.value  # type: ignore[attr-defined]
    if t is E.Var:
        return known.get(id(e))
    if t is E.Cast:
        return _cast(e, known)  # type: ignore[arg-type]
    if t is E.Call and e.op in ("bitxor", "bitor"):  # type: ignore[attr-defined]
        a, b = (interval_of(x, known) for x in e.args)  # type: ignore[attr-defined]
        return None if a is None or b is None or min(a[0], b[0]) < 0 else (0, bits_of(max(a[1], b[1])))
    if not isinstance(e, E.BinaryExpr):
        return None
    a, b = interval_of(e.a, known), interval_of(e.b, known)
    if t is E.FloorMod and b is not None and b[0] == b[1] > 0:
        return a if a is not None and 0 <= a[0] and a[1] < b[0] else (0, b[0] - 1)
    return None if a is None or b is None else _binary(t, a, b)


def bits_of(top: int) -> int:
    """The largest number of the bits that numbers up to `top` have, and so of what bits of two such make."""
    return (1 << top.bit_length()) - 1


def _binary(t: type, a: Interval, b: Interval) -> Interval | None:
    if t is E.Add:
        return a[0] + b[0], a[1] + b[1]
    if t is E.Sub:
        return a[0] - b[1], a[1] - b[0]
    if t is E.Mul:
        corners = [x * y for x in a for y in b]
        return min(corners), max(corners)
    if t is E.FloorDiv and b[0] == b[1] > 0:
        return a[0] // b[0], a[1] // b[0]
    if t is E.Min or t is E.Max:
        pick = min if t is E.Min else max
        return pick(a[0], b[0]), pick(a[1], b[1])
    return None


def _cast(e: E.Cast, known: Mapping[int, Interval]) -> Interval | None:
    """Values of indices are taken to fit; what is below zero has no place in an unsigned type."""
    info = dtype_info(e.dtype)
    if not info.is_int or info.bits < 32 or info.lanes > 1:
        return None
    inner = interval_of(e.value, known)
    return inner if inner is not None and (info.is_signed or inner[0] >= 0) else None
