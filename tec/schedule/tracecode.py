"""The part of Python that traces are written in: names, constants, arithmetic, axes of operations, functions of indices.

`expr_code` writes an expression in it, `CodeReader` reads it without running it as Python: only what stands here is understood,
so a trace from elsewhere cannot do anything else.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ScheduleError
from ..ir import build as B
from ..ir import expr as E
from ..te.build import thread_axis

_BINARY: dict[type, str] = {
    E.Add: "+", E.Sub: "-", E.Mul: "*", E.FloorDiv: "//", E.FloorMod: "%", E.EQ: "==", E.NE: "!=", E.LT: "<",
    E.LE: "<=", E.GT: ">", E.GE: ">=",
}  # fmt: skip
_CALLS: dict[type, str] = {
    E.And: "all", E.Or: "any", E.Min: "minimum", E.Max: "maximum", E.Div: "truncdiv", E.Mod: "truncmod",
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "all": B.all_of, "any": B.any_of, "minimum": B.minimum, "maximum": B.maximum, "truncdiv": B.truncdiv,
    "truncmod": B.truncmod, "select": B.select, "if_then_else": B.if_then_else,
}  # fmt: skip
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_ATTRIBUTES = ("op", "axis", "reduce_axis", "var")


def expr_code(e: E.Expr, name_of: Callable[[E.Expr], str | None]) -> str:
    """An expression as Python; `name_of` gives the names of variables."""

    def write(e: E.Expr) -> str:
        known = name_of(e)
        if known is not None:
            return known
        if isinstance(e, E.IntImm):
            return repr(bool(e.value)) if e.dtype == "bool" else str(e.value)
        if isinstance(e, E.FloatImm):
            return repr(e.value)
        if isinstance(e, E.Var):
            return e.name
        op, call = _BINARY.get(type(e)), _CALLS.get(type(e))
        if op is not None:
            return f"({write(e.a)} {op} {write(e.b)})"  # type: ignore[attr-defined]
        if call is not None:
            return f"tec.{call}({write(e.a)}, {write(e.b)})"  # type: ignore[attr-defined]
        if isinstance(e, E.Not):
            return f"~{write(e.a)}"
        if isinstance(e, E.Cast):
            return f"{write(e.value)}.astype({e.dtype!r})"
        if isinstance(e, E.Select):
            return f"tec.select({write(e.cond)}, {write(e.a)}, {write(e.b)})"
        if isinstance(e, E.Call) and e.op == "if_then_else":
            return f"tec.if_then_else({', '.join(map(write, e.args))})"
        return str(e)

    return write(e)


class CodeReader:
    """Values of such code. `names`: what the names stand for; `sch`: what `s` does; `where` begins the errors."""

    def __init__(self, sch: Any, names: Mapping[str, Any], where: str):
        self.sch = sch
        self.names = names
        self.where = where

    def read(self, text: str) -> Any:
        """The value of an expression. Raises ScheduleError for anything that is not part of a trace."""
        try:
            tree = ast.parse(text, mode="eval")
        except SyntaxError as e:
            raise ScheduleError(
                f"{self.where} is no Python: {e.msg}: {text}", hint="paste what print(s.trace) gave, a call a line"
            ) from None
        return self.value(tree.body)

    def error(self, node: ast.AST, what: str) -> ScheduleError:
        return ScheduleError(f"{self.where}: {what}: {ast.unparse(node)}")

    def value(self, node: ast.expr) -> Any:
        """The value of an expression of a trace."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                if node.id == "s":
                    return self.sch
                if node.id not in self.names:
                    raise self.error(node, "unknown name")
                return self.names[node.id]
            case ast.List() | ast.Tuple():
                return [self.value(e) for e in node.elts]
            case ast.UnaryOp(op=ast.USub()):
                return -self.value(node.operand)
            case ast.UnaryOp(op=ast.Invert()):
                return ~self.value(node.operand)
            case ast.BinOp() | ast.Compare():
                return self._operator(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Attribute():
                if node.attr not in _ATTRIBUTES:
                    raise self.error(node, "no attribute of a trace")
                return getattr(self.value(node.value), node.attr)
            case ast.Lambda():
                return self._function(node)
            case ast.Call():
                return self._call(node)
        raise self.error(node, "not part of a trace")

    def _operator(self, node: ast.BinOp | ast.Compare) -> Any:
        if isinstance(node, ast.BinOp):
            kind: type = type(node.op)
            a, b = node.left, node.right
        else:
            kind, a, b = type(node.ops[0]), node.left, node.comparators[0]
        if kind not in _OPERATORS:
            raise self.error(node, "unknown operator")
        return _OPERATORS[kind](self.value(a), self.value(b))

    def _subscript(self, node: ast.Subscript) -> Any:
        base, key = self.value(node.value), self.value(node.slice)
        if base is self.sch:
            return self.sch[key]
        if isinstance(base, (tuple, list, dict)):
            try:
                return base[key]
            except (IndexError, KeyError, TypeError):
                raise self.error(node, "there is none") from None
        raise self.error(node, "cannot be indexed")

    def _function(self, node: ast.Lambda) -> Any:
        names = [a.arg for a in node.args.args]

        def call(*values: Any) -> Any:
            inner = CodeReader(self.sch, {**self.names, **dict(zip(names, values))}, self.where)
            return inner.value(node.body)

        parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return call

    def _call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Attribute):
            raise self.error(node, "not a primitive")
        name, base = node.func.attr, node.func.value
        args = [self.value(a) for a in node.args]
        if isinstance(base, ast.Name) and base.id == "tec":
            if name == "thread_axis":
                return thread_axis(tuple(args[0]) if len(args) == 2 else None, args[-1])
            if name in _FUNCTIONS:
                return _FUNCTIONS[name](*args)
        elif name == "astype" and len(args) == 1:
            return B.cast(args[0], self.value(base))
        raise self.error(node, "not part of a trace")
