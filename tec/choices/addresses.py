"""Values of index expressions: for some values of their variables, numbers or an array of one for each lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..ir import expr as E
from ..ir.dtype import dtype_info
from ..ir.visit import children

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


def evaluated(e: E.Expr, values: Mapping[E.Var, Any]) -> Any:
    """An integer expression where variables have `values`, numbers or an array of one for each lane; None where it is made of anything else. A vector's elements are the last
    axis of the array."""
    if isinstance(e, E.IntImm):
        return e.value
    if isinstance(e, E.Var):
        return values.get(e)
    if isinstance(e, E.Ramp):
        base, stride = evaluated(e.base, values), evaluated(e.stride, values)
        return (
            None
            if base is None or stride is None
            else np.expand_dims(base, -1) + np.arange(e.lanes) * np.expand_dims(stride, -1)
        )
    if isinstance(e, E.Broadcast):
        value = evaluated(e.value, values)
        return None if value is None else np.expand_dims(value, -1)
    if isinstance(e, (E.Cast, E.Not)):
        inner = evaluated(e.value if isinstance(e, E.Cast) else e.a, values)
        return inner if inner is None or isinstance(e, E.Cast) else np.logical_not(inner)
    if isinstance(e, E.Select):
        parts = [evaluated(x, values) for x in (e.cond, *children(e)[1:])]
        if any(x is None for x in parts):
            return None
        if dtype_info(e.dtype).lanes > dtype_info(e.cond.dtype).lanes == 1:  # one condition for a vector's elements
            parts[0] = np.expand_dims(parts[0], -1)
        return np.where(*parts)
    if isinstance(e, E.Call):
        if e.op in ("likely", "readfirstlane", "computed"):
            return evaluated(e.args[0], values)
        made = _CALLS.get(e.op)
        if made is None:
            return None
        a, b = (evaluated(x, values) for x in e.args)
        return None if a is None or b is None else made(a, b)
    how = _BINARY.get(type(e)) or _DIVISIONS.get(type(e))
    if how is None:
        return None
    a, b = (evaluated(x, values) for x in children(e))
    if a is None or b is None or (type(e) in _DIVISIONS and not np.all(b)):
        return None
    return how(a, b)
