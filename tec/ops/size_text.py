"""Sizes as text: "past + seq", "2*n", "(height + 1) // 2", "max(a, b)", as models name their dimensions.

In: text. Out: a size over the names in it, or None for what is no such expression (any other text is a name as it stands).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from .dims import Size, maximum, minimum

_LONGEST = 200  # characters: a dimension's name, no program
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {"max": maximum, "min": lambda *x: _least(*x)}


def _least(*sizes: Size) -> Size:
    best = sizes[0]
    for s in sizes[1:]:
        best = minimum(best, s)
    return best


def names_in(text: str) -> set[str]:
    """The names in an expression; none where it is no expression, or a name alone."""
    tree = _parsed(text)
    if tree is None or isinstance(tree, (ast.Name, ast.Constant)):
        return set()
    calls = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in calls}


def parse_size(text: str, size: Callable[[str], Size]) -> Size | None:
    """The size that an expression stands for, with `size(name)` for its names; None where it is none."""
    tree = _parsed(text)
    if tree is None:
        return None
    try:
        return _value(tree, size)
    except (ValueError, ZeroDivisionError, RecursionError):
        return None


def _parsed(text: str) -> ast.expr | None:
    if len(text) > _LONGEST:
        return None
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, size: Callable[[str], Size]) -> Size:
    if isinstance(node, ast.Name):
        return size(node.id)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left, size), _value(node.right, size))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.lower() in _CALLS:
        if node.args and not node.keywords:
            return _CALLS[node.func.id.lower()](*(_value(a, size) for a in node.args))
    raise ValueError
