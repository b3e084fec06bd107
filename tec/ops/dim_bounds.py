"""Bounds of symbolic sizes: what their polynomials say about the least and the largest value.

In: a size with `terms` (a polynomial over atoms; see `dims`). Out: (low, high). Every name is from 1 to LARGEST, an `Empty` one from 0.
"""

from __future__ import annotations

from math import lcm
from typing import Any

from ..polynomials import Polynomial, add_to, times

LARGEST = (1 << 31) - 1
INF = 1 << 200

Atom = Any  # a name, or (operator, a, b) with operator in floordiv, floormod, min, max


class Empty(str):
    """The name of a size that may be 0: the length of a cache before the first token."""

    __slots__ = ()


def order(a: Atom) -> str:
    return a if isinstance(a, str) else repr(a)


def span(x: Any) -> tuple[int, int]:
    """The bounds of a size, which may be a number."""
    return x.bounds() if hasattr(x, "terms") else (int(x), int(x))


def bounds(x: Any) -> tuple[int, int]:
    """Bounds by intervals of the products; then with every atom as its least value plus something that is not negative, which
    also sees that b*s - s is at least 0; then with quotients p // d
    taken as p / d less a remainder."""
    low, high = _one_sided(x)
    a, b = _intervals(x)
    low, high = max(low, a), min(high, b)
    if low < 0 or high > 0:
        for sign in (1, -1):
            loose, times_ = _without_quotients(x * sign)
            if loose is not None:
                bound = loose if isinstance(loose, int) else max(_one_sided(loose)[0], _intervals(loose)[0])
                bound = -(-bound // times_)
                low, high = (max(low, bound), high) if sign == 1 else (low, min(high, -bound))
    return low, high


def _intervals(x: Any) -> tuple[int, int]:
    low = high = 0
    for m, c in x.terms:
        a = b = c
        for atom in m:
            p, q = _atom_bounds(atom)
            ends = (a * p, a * q, b * p, b * q)
            a, b = min(ends), max(ends)
        low, high = low + a, high + b
    return max(low, -INF), min(high, INF)


def _one_sided(x: Any) -> tuple[int, int]:
    shifted: Polynomial = {}
    for m, c in x.terms:
        parts: Polynomial = {(): c}
        for atom in m:
            least = _atom_bounds(atom)[0]
            if least <= -INF:
                return -INF, INF
            parts = times(parts, {(): least, (atom,): 1}, order)
        add_to(shifted, parts)
    constant = shifted.pop((), 0)
    values = shifted.values()
    return (constant if all(v >= 0 for v in values) else -INF), (constant if all(v <= 0 for v in values) else INF)


def _without_quotients(x: Any) -> tuple[Any, int]:
    """(something that is at most k times x, without quotients by numbers; k); None where x has none that stand alone."""
    if not hasattr(x, "terms"):
        return None, 1
    divisors = [m[0][2] for m, _ in x.terms if len(m) == 1 and _by_number(m[0])]
    if not divisors:
        return None, 1
    k = lcm(*divisors)
    total: Any = 0
    for m, c in x.terms:
        if len(m) == 1 and _by_number(m[0]):
            _, p, d = m[0]
            c = c * k // d
            # d * (p // d) is from p - d + 1 to p
            total = total + p * c - (c * (d - 1) if c > 0 else 0)
        else:
            total = total + x.term(m, c * k)
    return total, k


def _by_number(a: Atom) -> bool:
    return isinstance(a, tuple) and a[0] == "floordiv" and isinstance(a[2], int) and a[2] > 0


def _atom_bounds(a: Atom) -> tuple[int, int]:
    if isinstance(a, str):
        return (0 if isinstance(a, Empty) else 1), LARGEST
    op, x, y = a
    (p, q), (r, s) = span(x), span(y)
    if op == "min":
        return min(p, r), min(q, s)
    if op == "max":
        return max(p, r), max(q, s)
    if op == "floormod" and r > 0:
        return 0, s - 1
    if op == "floordiv" and r > 0:
        return (p // s if p >= 0 else p // r), (q // r if q >= 0 else q // s)
    return -INF, INF
