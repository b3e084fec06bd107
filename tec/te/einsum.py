"""`te.einsum`: a product and sum of tensors in Einstein's notation, as one compute."""

from __future__ import annotations

from typing import Any

from ..errors import ExprError
from . import reducer
from .build import reduce_axis
from .computation import compute
from .tensor import Tensor


def einsum(subscripts: str, *operands: Tensor, name: str = "einsum") -> Tensor:
    """The sum of products of `operands` in NumPy's notation.

    subscripts: a letter for each dimension of each operand, `...` for those that are left; a letter that stands twice in one operand is its diagonal. Without
    `->` the letters that stand once make the result, in the order of the alphabet. One compute of all sums; for a chain of products, `einsum` of pairs in an order of
    your own costs less. Raises ExprError for letters that do not fit the operands.

    >>> A, B = tec.placeholder((4, 8), name="A"), tec.placeholder((8, 2), name="B")
    >>> tec.einsum("ij,jk->ik", A, B).shape
    (4, 2)
    """
    inputs, out, extents = _parsed(subscripts, operands)
    summed = [c for c in dict.fromkeys("".join(map("".join, inputs))) if c not in out]

    def element(*index: Any) -> Any:
        axes = [reduce_axis((0, extents[c]), name=f"r_{c.lower()}" if c.isalpha() else "r") for c in summed]
        at = {**dict(zip(out, index)), **dict(zip(summed, axes))}
        value: Any = None
        for t, letters in zip(operands, inputs):
            x = t[tuple(at[c] for c in letters)] if letters else t[()]
            value = x if value is None else value * x
        return reducer.sum(value, axis=axes) if axes else value

    made: Tensor = compute(tuple(extents[c] for c in out), element, name=name)
    return made


def _parsed(subscripts: str, operands: tuple[Tensor, ...]) -> tuple[list[list[str]], list[str], dict[str, Any]]:
    """The letters of each operand and of the result, and the extent of each letter."""
    text = subscripts.replace(" ", "") if isinstance(subscripts, str) else ""
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if not operands or len(parts) != len(operands) or any(not isinstance(t, Tensor) for t in operands):
        raise ExprError(
            f"einsum {subscripts!r} of {len(operands)} operands", hint='te.einsum("ij,jk->ik", A, B), of tensors'
        )
    most = max((t.ndim - len(p.replace("...", "")) for p, t in zip(parts, operands) if "..." in p), default=0)
    left_over = [str(k) for k in range(max(most, 0))]  # of `...`: digits, which are no letters
    inputs = [_letters(p, t.ndim, left_over) for p, t in zip(parts, operands)]
    extents: dict[str, Any] = {}
    for letters, t in zip(inputs, operands):
        for c, n in zip(letters, t.shape):
            old = extents.setdefault(c, n)
            a, b = getattr(old, "value", old), getattr(n, "value", n)
            if isinstance(a, int) and isinstance(b, int) and a != b:
                raise ExprError(f"einsum {subscripts!r}: {c} is {a} and {b}", hint="a letter has one extent")
    if arrow:
        out = _letters(right, len(right.replace("...", "")) + len(left_over) * ("..." in right), left_over)
    else:
        flat = "".join(parts).replace("...", "")
        out = left_over + sorted(c for c in set(flat) if flat.count(c) == 1)
    wrong = [c for c in out if c not in extents] or [c for c in out if out.count(c) > 1]
    if wrong:
        raise ExprError(
            f"einsum {subscripts!r}: {wrong[0]} of the result",
            hint="each of its letters stands in an operand, and once in the result",
        )
    return inputs, out, extents


def _letters(part: str, ndim: int, left_over: list[str]) -> list[str]:
    before, dots, after = part.partition("...")
    rest = ndim - len(before) - len(after)
    if (not (before + after).isalpha() and before + after) or rest < 0 or (rest and not dots):
        raise ExprError(
            f"the subscripts {part!r} for {ndim} dimensions", hint="one letter for each dimension, ... for others"
        )
    return [*before, *(left_over[len(left_over) - rest :] if dots and rest else []), *after]
