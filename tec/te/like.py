"""What the language takes where it wants an expression, a type or a shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..ir.expr import Expr, IterVar

Index: TypeAlias = Expr | int  # a place or a count: a number, or an expression of one
ExprLike: TypeAlias = Expr | IterVar | bool | int | float | np.number[Any]
DTypeLike: TypeAlias = str | type | np.dtype[Any]  # "float32", float, np.float32
ShapeLike: TypeAlias = Sequence[ExprLike] | ExprLike

# A function of as many values as there are dimensions or types. It is written out by their number, because checkers of types
# give the parameters of a lambda no type from `Callable[..., Any]`, and in strict mode report each of them.
_V: TypeAlias = Any
FunctionOfEach: TypeAlias = (
    Callable[[_V], Any]
    | Callable[[_V, _V], Any]
    | Callable[[_V, _V, _V], Any]
    | Callable[[_V, _V, _V, _V], Any]
    | Callable[[_V, _V, _V, _V, _V], Any]
    | Callable[[_V, _V, _V, _V, _V, _V], Any]
    | Callable[[_V, _V, _V, _V, _V, _V, _V], Any]
    | Callable[[_V, _V, _V, _V, _V, _V, _V, _V], Any]
    | Callable[[], Any]
)
