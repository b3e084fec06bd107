"""Conditions of rules: a closed language of comparisons over named features, parsed and never run as Python.

    512 < longest <= 1024 and rows >= 8 * units
    not turned and n % 96 == 0

Numbers, texts in quotes, names, + - * / // %, comparisons (in chains too), and, or, not. What a name stands for may be unknown (None: a symbolic
size): what is reckoned from it is unknown too, and a condition holds only where it is known to.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

Value = int | float | str | bool | None
Features = Mapping[str, Value]

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Value]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip


class Condition:
    """A parsed condition; `names` are the features that it asks for. ValueError, with what is wrong, where a text is none."""

    def __init__(self, text: str):
        self.text = text
        try:
            self._tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"{text!r} is no expression") from error
        self.names = frozenset(_names(self._tree, text))

    def holds(self, features: Features) -> bool:
        """Whether it is known to be true. KeyError for a feature that there is none of, ZeroDivisionError and TypeError as Python."""
        return _value(self._tree, features) is True


def _names(e: ast.expr, text: str) -> set[str]:
    """The names of a tree; ValueError for a node that the language has not."""
    match e:
        case ast.Name(id=name):
            return {name}
        case ast.Constant(value=int() | float() | str()):
            return set()
        case ast.BoolOp(values=parts):
            pass
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=x):
            parts = [x]
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _ARITHMETIC:
            parts = [a, b]
        case ast.Compare(left=a, ops=ops, comparators=rest) if all(type(op) in _COMPARISONS for op in ops):
            parts = [a, *rest]
        case _:
            raise ValueError(f"{ast.unparse(e)!r} in {text!r} is no comparison, arithmetic, name, number or text")
    return set().union(*(_names(p, text) for p in parts))


def _value(e: ast.expr, features: Features) -> Value:
    """The value of a condition's expression; None where that stands on what is unknown."""
    match e:
        case ast.Name(id=name):
            return features[name]
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.BoolOp(op=op, values=parts):
            decides = isinstance(op, ast.Or)  # one of these is enough, whatever is unknown of the others
            unknown = False
            for p in parts:
                v = _value(p, features)
                if v is not None and bool(v) is decides:
                    return decides
                unknown |= v is None
            return None if unknown else not decides
        case ast.UnaryOp(op=ast.Not(), operand=x):
            v = _value(x, features)
            return None if v is None else not v
        case ast.UnaryOp(operand=x):
            v = _value(x, features)
            return None if v is None else 0 - v  # type: ignore[operator]
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left, features), _value(right, features)
            return None if a is None or b is None else _ARITHMETIC[type(op)](a, b)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            values = [_value(x, features) for x in (left, *rest)]
            found = [
                None if a is None or b is None else _COMPARISONS[type(op)](a, b)
                for a, op, b in zip(values, ops, values[1:])
            ]
            return False if False in found else None if None in found else True
    raise AssertionError(e)
