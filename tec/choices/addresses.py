"""Values of index expressions: for some values of their variables, numbers or an array of one for each lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..ir import expr as E
from ..ir.dtype import dtype_info

_BINARY: dict[type[E.Expr], Callable[[Any, Any], Any]] = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.Min: np.minimum, E.Max: np.maximum, E.EQ: np.equal, E.NE: np.not_equal,
    E.LT: np.less, E.LE: np.less_equal, E.GT: np.greater, E.GE: np.greater_equal, E.And: np.logical_and, E.Or: np.logical_or,
}  # fmt: skip
_DIVISIONS: dict[type[E.Expr], Callable[[Any, Any], Any]] = {
    E.FloorDiv: np.floor_divide, E.FloorMod: np.mod, E.Div: np.floor_divide, E.Mod: np.mod,
}  # fmt: skip
_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip


_Values = Mapping[E.Var, Any]


def evaluated(e: E.Expr, values: _Values) -> Any:
    """An integer expression where variables have `values`, numbers or an array of one for each lane; None where it is made of anything else. A vector's elements are the last
    axis of the array."""
    how = _EVALUATED.get(type(e))
    return None if how is None else how(e, values)


def _ramp(e: Any, values: _Values) -> Any:
    base, stride = evaluated(e.base, values), evaluated(e.stride, values)
    if base is None or stride is None:
        return None
    return np.expand_dims(base, -1) + np.arange(e.lanes) * np.expand_dims(stride, -1)


def _broadcast(e: Any, values: _Values) -> Any:
    value = evaluated(e.value, values)
    return None if value is None else np.expand_dims(value, -1)


def _not(e: Any, values: _Values) -> Any:
    inner = evaluated(e.a, values)
    return None if inner is None else np.logical_not(inner)


def _select(e: Any, values: _Values) -> Any:
    parts = [evaluated(x, values) for x in (e.cond, e.a, e.b)]
    if any(x is None for x in parts):
        return None
    if dtype_info(e.dtype).lanes > dtype_info(e.cond.dtype).lanes == 1:  # one condition for a vector's elements
        parts[0] = np.expand_dims(parts[0], -1)
    return np.where(*parts)


def _call(e: Any, values: _Values) -> Any:
    if e.op in ("likely", "readfirstlane", "computed"):
        return evaluated(e.args[0], values)
    made = _CALLS.get(e.op)
    if made is None:
        return None
    a, b = (evaluated(x, values) for x in e.args)
    return None if a is None or b is None else made(a, b)


def _binary(how: Callable[[Any, Any], Any], divides: bool) -> Callable[[Any, _Values], Any]:
    def binary(e: Any, values: _Values) -> Any:
        a, b = evaluated(e.a, values), evaluated(e.b, values)
        return None if a is None or b is None or (divides and not np.all(b)) else how(a, b)

    return binary


_EVALUATED: dict[type[E.Expr], Callable[[Any, _Values], Any]] = {
    E.IntImm: lambda e, values: e.value, E.Var: lambda e, values: values.get(e), E.Cast: lambda e, values: evaluated(e.value, values),
    E.Ramp: _ramp, E.Broadcast: _broadcast, E.Not: _not, E.Select: _select, E.Call: _call,
    **{t: _binary(how, False) for t, how in _BINARY.items()}, **{t: _binary(how, True) for t, how in _DIVISIONS.items()},
}  # fmt: skip
