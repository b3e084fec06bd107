"""Polynomials with integer factors over atoms of any kind: the arithmetic of sizes, for the compiler and for what runs its plans.

A polynomial is {product of atoms: factor}; a product is a sorted tuple of atoms, with repetition, and () is the number alone. Sums and products keep no
order and may leave factors of 0: who holds a normal form drops them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Monomial = tuple[Any, ...]
Polynomial = dict[Monomial, int]
Terms = Iterable[tuple[Monomial, int]]


def add_to(total: Polynomial, terms: Mapping[Monomial, int] | Terms, factor: int = 1) -> Polynomial:
    """`total` + `factor` * `terms`, in place; returns `total`."""
    for m, c in terms.items() if isinstance(terms, Mapping) else terms:
        total[m] = total.get(m, 0) + factor * c
    return total


def minus(a: Polynomial, b: Polynomial) -> Polynomial:
    """`a` - `b`."""
    return add_to(dict(a), b, -1)


def times(
    a: Mapping[Monomial, int] | Terms, b: Mapping[Monomial, int] | Terms, key: Callable[[Any], Any] | None = None
) -> Polynomial:
    """`a` * `b`. `key`: what atoms are sorted by, themselves by default."""
    if isinstance(b, dict) and len(b) == 1 and () in b:  # most factors are numbers
        factor = b[()]
        return {m: c * factor for m, c in (a.items() if isinstance(a, Mapping) else a)}
    out: Polynomial = {}
    right = list(b.items() if isinstance(b, Mapping) else b)
    for m, c in a.items() if isinstance(a, Mapping) else a:
        add_to(out, ((tuple(sorted(m + n, key=key)), d) for n, d in right), c)
    return out
