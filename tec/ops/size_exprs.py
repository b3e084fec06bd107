"""Sizes and te expressions: what te computes of a size, and the size that an expression of te stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import Add, Cast, Expr, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var, build
from .dims import Dim, Size, UndecidedSize, maximum, minimum
from .size_vars import names


def inverse(x: Size, dtype: str) -> Expr:
    """1 / x as a number of te, for means."""
    if isinstance(x, Dim):
        return build.truediv(build.const(1.0, dtype), build.cast(dtype, x.asexpr("int64")))
    return build.const(1.0 / max(x, 1), dtype)


def share(total: Expr, x: Size) -> Expr:
    """total / x, of a sum of x numbers, right to the last digit or nearly: times the nearest number to 1 / x, and times what that leaves. The error of a rounded 1 / x would
    be as large beside a mean far from 0 as the numbers' distances from it are small."""
    if isinstance(x, Dim):
        return build.truediv(total, build.cast(total.dtype, x.asexpr("int64")))
    exact = 1.0 / max(x, 1)
    near = exact if total.dtype == "float64" else float(np.float32(exact))
    mean = build.mul(total, build.const(near, total.dtype))
    return build.add(mean, build.mul(total, build.const(exact - near, total.dtype))) if exact != near else mean


def from_expr(e: Any) -> Size:
    """The size that a te expression of `asexpr` stands for."""
    if isinstance(e, IntImm):
        return e.value
    if isinstance(e, Var) and id(e) in names:
        return Dim(names[id(e)])
    if isinstance(e, Cast):
        return from_expr(e.value)
    both = _FROM.get(type(e))
    if both is not None:
        size: Size = both(from_expr(e.a), from_expr(e.b))
        return size
    raise UndecidedSize(f"{e} is no size of the network")


_FROM: dict[type, Callable[[Any, Any], Any]] = {
    Add: lambda a, b: a + b, Sub: lambda a, b: a - b, Mul: lambda a, b: a * b,
    FloorDiv: lambda a, b: a // b, FloorMod: lambda a, b: a % b, Min: minimum, Max: maximum,
}  # fmt: skip
