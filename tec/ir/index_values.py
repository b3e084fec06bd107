"""Values of index expressions: for some values of their variables, numbers or an array of one for each lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import expr as E
from .dtype import dtype_info


def _truncated_quotient(a: Any, b: Any) -> Any:
    return np.floor_divide(a - np.fmod(a, b), b)


_BINARY: dict[type[E.Expr], Callable[[Any, Any], Any]] = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.Min: np.minimum, E.Max: np.maximum, E.EQ: np.equal, E.NE: np.not_equal,
    E.LT: np.less, E.LE: np.less_equal, E.GT: np.greater, E.GE: np.greater_equal, E.And: np.logical_and, E.Or: np.logical_or,
}  # fmt: skip
_DIVISIONS: dict[type[E.Expr], Callable[[Any, Any], Any]] = {
    E.FloorDiv: np.floor_divide, E.FloorMod: np.mod, E.Div: _truncated_quotient, E.Mod: np.fmod,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip

Known = dict[int, tuple[E.Expr, Any]]
_Values = Mapping[E.Var, Any]


def evaluated(e: E.Expr, values: _Values, known: Known | None = None) -> Any:
    """An integer expression where variables have `values`, numbers or an array of one for each lane; None where it is made of anything else. A vector's elements are the last
    axis of the array. known: what was found for these values, kept for other expressions."""
    how = _EVALUATED.get(type(e))
    if how is None:
        return None
    known = {} if known is None else known
    hit = known.get(id(e))
    if hit is None:
        hit = known[id(e)] = (e, how(e, values, known))
    return hit[1]


def _ramp(e: Any, values: _Values, known: Known) -> Any:
    base, stride = evaluated(e.base, values, known), evaluated(e.stride, values, known)
    if base is None or stride is None:
        return None
    return np.expand_dims(base, -1) + np.arange(e.lanes) * np.expand_dims(stride, -1)


def _broadcast(e: Any, values: _Values, known: Known) -> Any:
    value = evaluated(e.value, values, known)
    return None if value is None else np.expand_dims(value, -1)


def _not(e: Any, values: _Values, known: Known) -> Any:
    inner = evaluated(e.a, values, known)
    return None if inner is None else np.logical_not(inner)


def _chosen(cond: Any, a: Any, b: Any, values: _Values, known: Known) -> Any:
    parts = [evaluated(x, values, known) for x in (cond, a, b)]
    if any(x is None for x in parts):
        return None
    if dtype_info(a.dtype).lanes > dtype_info(cond.dtype).lanes:  # one condition for a vector's elements
        parts[0] = np.expand_dims(parts[0], -1)
    return np.where(*parts)


def _cast(e: Any, values: _Values, known: Known) -> Any:
    return evaluated(e.value, values, known) if "int" in e.dtype or "bool" in e.dtype else None


def _call(e: Any, values: _Values, known: Known) -> Any:
    if e.op in ("likely", "readfirstlane", "computed"):
        return evaluated(e.args[0], values, known)
    if e.op == "if_then_else":
        cond, a, b = e.args
        return _chosen(cond, a, b, values, known)
    made = _CALLS.get(e.op)
    if made is None:
        return None
    parts = [evaluated(x, values, known) for x in e.args]
    return None if any(x is None for x in parts) else made(*parts)


def _binary(how: Callable[[Any, Any], Any], divides: bool) -> Callable[[Any, _Values, Known], Any]:
    def binary(e: Any, values: _Values, known: Known) -> Any:
        a, b = evaluated(e.a, values, known), evaluated(e.b, values, known)
        return None if a is None or b is None or (divides and not np.all(b)) else how(a, b)

    return binary


_EVALUATED: dict[type[E.Expr], Callable[[Any, _Values, Known], Any]] = {
    E.IntImm: lambda e, values, known: e.value, E.Var: lambda e, values, known: values.get(e), E.Cast: _cast,
    E.Ramp: _ramp, E.Broadcast: _broadcast, E.Not: _not, E.Select: lambda e, values, known: _chosen(e.cond, e.a, e.b, values, known), E.Call: _call,
    **{t: _binary(how, False) for t, how in _BINARY.items()}, **{t: _binary(how, True) for t, how in _DIVISIONS.items()},
}  # fmt: skip
