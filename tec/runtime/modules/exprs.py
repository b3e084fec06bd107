"""Expressions of the runtime data: an int, a variable's name, or `[op, a, b]`; compiled to closures over an environment.

In: plain data from a module or a package. Out: an int, or a function of the environment (a dict from names to numbers).
Malformed data raises PackageError, so a damaged package is found when it is loaded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...errors import PackageError, one_line

# What to do about a record that no version of tec has written.
DAMAGED = "the package was changed after it was saved, or cut off: copy it again, or compile and save it again"

Env = Mapping[str, Any]
Compiled = int | float | Callable[[Env], Any]

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "floormod": operator.mod, "min": min, "max": max,
    "eq": lambda a, b: int(a == b), "ne": lambda a, b: int(a != b), "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b), "gt": lambda a, b: int(a > b), "ge": lambda a, b: int(a >= b),
    "and": lambda a, b: int(bool(a) and bool(b)), "or": lambda a, b: int(bool(a) or bool(b)),
}  # fmt: skip
_MAX_DEPTH = 200
_REGISTER = 1 << 63
_SYMBOL = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "and": "and", "or": "or",
}  # fmt: skip


def compile_expr(e: Any, depth: int = 0) -> Compiled:
    """A constant, or a function from the environment to the value."""
    if isinstance(e, bool):
        return int(e)
    if isinstance(e, (int, float)):
        return e
    if isinstance(e, str):
        return operator.itemgetter(e)
    if hasattr(e, "__index__"):
        return int(e.__index__())
    if depth > _MAX_DEPTH or not isinstance(e, (list, tuple)) or not e:
        raise PackageError(f"not an expression: {_brief(e)}", hint=DAMAGED, locate=False)
    op = e[0]
    parts = [compile_expr(x, depth + 1) for x in e[1:]]
    if op == "select" and len(parts) == 3:
        cond, a, b = (_function(p) for p in parts)
        return lambda env: a(env) if cond(env) else b(env)
    function = BINARY.get(op) if isinstance(op, str) else None
    if function is None or len(parts) != 2:
        raise PackageError(f"not an expression: {_brief(e)}", hint=DAMAGED, locate=False)
    return _binary(function, parts[0], parts[1])


def _binary(f: Callable[[Any, Any], Any], a: Compiled, b: Compiled) -> Compiled:
    if not callable(a):
        if not callable(b):
            try:
                return f(a, b)  # type: ignore[no-any-return]
            except ZeroDivisionError:
                raise PackageError("an expression divides by the constant 0", hint=DAMAGED, locate=False) from None
        g = b
        return lambda env: f(a, g(env))
    h = a
    if not callable(b):
        return lambda env: f(h(env), b)
    k = b
    return lambda env: f(h(env), k(env))


def _function(c: Compiled) -> Callable[[Env], Any]:
    return c if callable(c) else lambda env: c


def evaluate(c: Compiled, env: Env) -> Any:
    """The value of a compiled expression."""
    return c(env) if callable(c) else c


def names(e: Any) -> Iterator[str]:
    """The variables an expression reads."""
    if isinstance(e, str):
        yield e
    elif isinstance(e, (list, tuple)):
        for x in e[1:]:
            yield from names(x)


def check_integral(e: Any) -> None:
    """PackageError for an expression of a size, an offset or a stride that is none, or has another number than an int that a register holds."""
    compile_expr(e)
    for leaf in _leaves(e):
        if not isinstance(leaf, str) and (isinstance(leaf, float) or not -_REGISTER <= int(leaf) < _REGISTER):
            raise PackageError(f"not a size: {_brief(leaf)} in {_brief(e)}", hint=DAMAGED, locate=False)


def _leaves(e: Any) -> Iterator[Any]:
    if isinstance(e, (list, tuple)):
        for x in e[1:]:
            yield from _leaves(x)
    else:
        yield e


def _brief(e: Any) -> str:
    try:
        return repr(e)[:80]
    except RecursionError:
        return "nested too deeply"


def text(e: Any) -> str:
    """An expression as a user would write it."""
    if isinstance(e, (list, tuple)) and e:
        op, args = e[0], [text(x) for x in e[1:]]
        if isinstance(op, str) and op in _SYMBOL and len(args) == 2:
            return f"({args[0]} {_SYMBOL[op]} {args[1]})"
        return f"{op}({', '.join(args)})"
    return one_line(str(e))


def shape_text(shape: Any) -> str:
    """A signature's shape: "(n, 4)"."""
    parts = [text(e) for e in shape]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def solve(e: Any, value: int, env: Env) -> tuple[str, int] | None:
    """The one unknown variable of `e` and what makes `e` equal `value`; None where that is not unique or not there.

    Undoes +, - and * with known operands; enough for shapes such as `n * 4` and `n + 2`.
    """
    if isinstance(e, str):
        return None if e in env else (e, value)
    if not isinstance(e, (list, tuple)) or len(e) != 3:
        return None
    op, a, b = e
    unknown_a = any(n not in env for n in names(a))
    if unknown_a == any(n not in env for n in names(b)):
        return None
    inner, known = (a, b) if unknown_a else (b, a)
    k = evaluate(compile_expr(known), env)
    if op == "add":
        return solve(inner, value - k, env)
    if op == "sub":
        return solve(inner, value + k if unknown_a else k - value, env)
    if op == "mul" and k and value % k == 0:
        return solve(inner, value // k, env)
    return None
