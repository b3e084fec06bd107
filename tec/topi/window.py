"""How windows of convolutions and pooling are said: sizes, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ExprError


def numbers(v: Any, n: int, what: str) -> tuple[int, ...]:
    """One number for each of `n` dimensions; a single one stands for all. Raises ExprError."""
    made = (v,) * n if isinstance(v, int) else tuple(v)
    if len(made) != n or not all(isinstance(k, int) for k in made):
        raise ExprError(f"{what} is {v!r}", hint=f"give a number, or {n} of them")
    return made


def padding_of(
    padding: Any, kernel: Sequence[int], dilation: Sequence[int], what: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding in front and behind from te's forms: a number, one a dimension, or all fronts and then all backs; "SAME" (the larger half in front), "VALID"."""
    n = len(kernel)
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise ExprError(f"{what}: padding {padding!r}", hint="it is numbers, 'SAME' or 'VALID'")
        whole = [d * (k - 1) if padding.upper() == "SAME" else 0 for k, d in zip(kernel, dilation)]
        return tuple(w - w // 2 for w in whole), tuple(w // 2 for w in whole)
    if isinstance(padding, int) or len(padding) == n:
        both = numbers(padding, n, f"{what}: padding")
        return both, both
    both = numbers(padding, 2 * n, f"{what}: padding")
    return both[:n], both[n:]
