"""einsum: sums of products in NumPy's notation, as products of two arrays at a time in an order that takes few of them.

The order is `numpy.einsum_path`'s ("optimal" for few operands, "greedy" for many); each step is one batched matrix product.
"""

from __future__ import annotations

import math
import string
from typing import Any

import numpy as np

from . import linalg, manipulation, products, statistical
from .array import Array, node_of
from .errors import ArrayTypeError, ArrayValueError

_MOST_OPTIMAL = 5  # operands whose best order is searched for


def einsum(subscripts: str, /, *operands: Array, optimize: Any = None) -> Array:
    """Sums of products over indices: "ij,jk->ik" is a matrix product, "ii" a trace, "...ij->...ji" a transpose.

    optimize: a path as `numpy.einsum_path` gives it; by default one is chosen. Raises ArrayValueError for subscripts that do not fit.

    >>> xp.einsum("ij,j->i", xp.asarray([[1, 2], [3, 4]]), xp.asarray([1, 10]))
    Array([21, 43], dtype=int64)
    """
    if not isinstance(subscripts, str):
        raise ArrayTypeError(
            f"einsum of {type(subscripts).__name__}", hint='the subscripts are text: einsum("ij,jk->ik", a, b)'
        )
    for x in operands:
        node_of(x, "an operand of einsum")
    spelled, result, dots = _terms(subscripts, operands)
    sizes = _sizes(subscripts, spelled, operands, dots)
    held = [_without_ones(x, t, sizes) for x, t in zip(operands, spelled)]
    terms = [t for _, t in held]
    held = [_without_repeats(x, t) for x, t in held]
    for step in _path(terms, result, sizes, optimize):
        taken = [held.pop(k) for k in sorted(step, reverse=True)][::-1]
        made = taken[0]
        for k, other in enumerate(taken[1:], 2):
            made = _together(made, other, set(result).union(*(t for _, t in (*held, *taken[k:]))))
        held.append(made)
    ((x, term),) = held
    x, term = _summed(x, term, set(result))
    if term == result:
        return Array(node_of(x)) if any(x is v for v in operands) else x
    return manipulation.permute_dims(x, tuple(term.index(c) for c in result))


def _terms(subscripts: str, operands: tuple[Array, ...]) -> tuple[list[str], str, str]:
    """The letters of each operand and of the result, `...` spelled out, and the letters that stand for it."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ArrayValueError(f'einsum "{subscripts}" of {len(operands)} arrays', hint="one term for each, with commas")
    free = [c for c in string.ascii_letters if c not in text]
    dots = max((x.ndim - len(t.replace("...", "")) for x, t in zip(operands, terms) if "..." in t), default=0)
    letters = "".join(free[: max(dots, 0)])
    spelled = []
    for x, t in zip(operands, terms):
        n = x.ndim - len(t.replace("...", ""))
        t = t.replace("...", letters[len(letters) - n :] if n else "", 1) if "..." in t else t
        if (not t.isalpha() and t) or len(t) != x.ndim:
            raise ArrayValueError(
                f'einsum "{subscripts}": a term "{t}" for an array of {x.ndim} dimensions',
                hint="a letter for each dimension, and ... for any number of them",
            )
        spelled.append(t)
    if not arrow:
        every = "".join(spelled)
        once = sorted(c for c in set(every) if every.count(c) == 1 and c not in letters)
        return spelled, letters + "".join(once), letters
    if letters and "..." not in right:
        raise ArrayValueError(f'einsum "{subscripts}": the result has no "..."', hint=f'"{left}->...{right}"')
    result = right.replace("...", letters, 1)
    if len(set(result)) != len(result) or not set(result) <= set("".join(spelled)):
        raise ArrayValueError(
            f'einsum "{subscripts}": the result "{right}" has an index twice, or one that no operand has',
            hint="each index of the result stands once, and in an operand",
        )
    return spelled, result, letters


def _sizes(subscripts: str, terms: list[str], operands: tuple[Array, ...], dots: str) -> dict[str, int]:
    """The extent of each letter; those of `...` broadcast."""
    sizes: dict[str, int] = {}
    for x, t in zip(operands, terms):
        for c, n in zip(t, x.shape):
            known = sizes.setdefault(c, n)
            if known != n and not (c in dots and 1 in (known, n)):
                raise ArrayValueError(
                    f'einsum "{subscripts}": the index {c} has extents {known} and {n}',
                    hint="dimensions of one letter have one extent",
                )
            sizes[c] = n if known == 1 else known
    return sizes


def _without_ones(x: Array, term: str, sizes: dict[str, int]) -> tuple[Array, str]:
    """Without dimensions of extent 1 that are wider elsewhere: it does not depend on those."""
    kept = [k for k, c in enumerate(term) if x.shape[k] == sizes[c]]
    if len(kept) == x.ndim:
        return x, term
    return manipulation.reshape(x, tuple(x.shape[k] for k in kept)), "".join(term[k] for k in kept)


def _path(terms: list[str], result: str, sizes: dict[str, int], optimize: Any) -> list[tuple[int, ...]]:
    if len(terms) == 1:
        return []
    if optimize is not None and not isinstance(optimize, (bool, str)):
        return [tuple(step) for step in optimize if step != "einsum_path"]
    how = optimize if isinstance(optimize, str) else "optimal" if len(terms) <= _MOST_OPTIMAL else "greedy"
    nothing = np.zeros(())
    once = ["".join(dict.fromkeys(t)) for t in terms]
    shapes = [np.broadcast_to(nothing, tuple(sizes[c] for c in t)) for t in once]
    found = np.einsum_path(f"{','.join(once)}->{result}", *shapes, optimize=how)[0]
    return [tuple(step) for step in found[1:]]


def _without_repeats(x: Array, term: str) -> tuple[Array, str]:
    """Only the diagonal where an index stands twice."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            a = term.index(c)
            b = term.index(c, a + 1)
            x = linalg.diagonal(manipulation.moveaxis(x, (a, b), (-2, -1)))
            term = "".join(d for k, d in enumerate(term) if k not in (a, b)) + c
    return x, term


def _summed(x: Array, term: str, kept: set[str]) -> tuple[Array, str]:
    """Sums over indices that nobody else has."""
    lone = tuple(k for k, c in enumerate(term) if c not in kept)
    return (statistical.sum(x, axis=lone, dtype=x.dtype), "".join(c for c in term if c in kept)) if lone else (x, term)


def _together(one: tuple[Array, str], other: tuple[Array, str], later: set[str]) -> tuple[Array, str]:
    """The product of two operands, summed over what nobody needs later."""
    (x, s), (y, t) = one, other
    x, s = _summed(x, s, later | set(t))
    y, t = _summed(y, t, later | set(s))
    both = [c for c in s if c in t]
    batch = [c for c in both if c in later]
    inner = [c for c in both if c not in later]
    left, right = [c for c in s if c not in t], [c for c in t if c not in s]
    n = {c: d for z, u in ((x, s), (y, t)) for c, d in zip(u, z.shape)}

    def count(letters: list[str]) -> int:
        return math.prod(n[c] for c in letters)

    def laid(z: Array, u: str, *groups: list[str]) -> Array:
        order = tuple(u.index(c) for g in groups for c in g)
        z = manipulation.permute_dims(z, order) if order != tuple(range(len(order))) else z
        return manipulation.reshape(z, tuple(count(g) for g in groups))

    if inner:
        out = products.matmul(laid(x, s, batch, left, inner), laid(y, t, batch, inner, right))
    else:
        out = laid(x, s, batch, left, []) * laid(y, t, batch, [], right)
    term = "".join([*batch, *left, *right])
    return manipulation.reshape(out, tuple(n[c] for c in term)), term
