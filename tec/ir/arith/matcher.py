"""Compiles the rule table to Python: one function a root operator, a nested `if` a rule.

`compile_rules(RULES)` gives {root: function(f, e) -> Expr | None}, root a node class or, for a Call, the operation's
name. Matching runs on canonical nodes, so that "the same expression" is `is`. A compiled table costs about 1 us a node,
`match` statements three times that.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from typing import Any

from .. import expr as E
from ..build import wrap_int
from ..dtype import dtype_info
from .rules import Rule

RuleFn = Callable[[Any, Any], "E.Expr | None"]

_BINOP: dict[type, str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Div: "Div",
    ast.FloorDiv: "FloorDiv",
    ast.Mod: "FloorMod",
}
_CMP: dict[type, str] = {ast.Lt: "LT", ast.LtE: "LE", ast.Gt: "GT", ast.GtE: "GE", ast.Eq: "EQ", ast.NotEq: "NE"}
_FUNCS = {"min": "Min", "max": "Max", "truncdiv": "Div", "truncmod": "Mod"}
_INT_OPS = (ast.BitAnd, ast.BitOr)


def _is_const_name(name: str) -> bool:
    return re.fullmatch(r"c\d*", name) is not None


def _children(n: ast.expr) -> tuple[str, list[tuple[str, ast.expr]]]:
    """(class or ":op" of a Call, [(attribute path, child pattern)])."""
    match n:
        case ast.BinOp(left, op, right):
            return _BINOP[type(op)], [("a", left), ("b", right)]
        case ast.Compare(left, [op], [right]):
            return _CMP[type(op)], [("a", left), ("b", right)]
        case ast.BoolOp(op, [left, right]):
            return ("And" if isinstance(op, ast.And) else "Or"), [("a", left), ("b", right)]
        case ast.UnaryOp(ast.Not(), operand):
            return "Not", [("a", operand)]
        case ast.Call(ast.Name("select"), [c, a, b]):
            return "Select", [("cond", c), ("a", a), ("b", b)]
        case ast.Call(ast.Name(name), args) if name in _FUNCS:
            return _FUNCS[name], [("a", args[0]), ("b", args[1])]
        case ast.Call(ast.Name(name), args):
            return ":" + name, [(f"args[{i}]", x) for i, x in enumerate(args)]
    raise ValueError(f"not a pattern: {ast.unparse(n)}")


def _literal(n: ast.expr) -> Any:
    if isinstance(n, ast.Constant):
        return n.value
    if isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.USub) and isinstance(n.operand, ast.Constant):
        return -n.operand.value  # type: ignore[operator]
    return None


class _Writer:
    """Code of one rule: conditions nest, bindings are assignments."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.bound: set[str] = set()
        self.temps = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def need(self, condition: str) -> None:
        self.line(f"if {condition}:")
        self.depth += 1

    def pattern(self, n: ast.expr, at: str) -> None:
        """Match the pattern `n` against the node that the Python expression `at` gives."""
        value = _literal(n)
        if isinstance(value, bool):
            self.need(f"type({at}) is IntImm and {at}.value == {int(value)} and {at}.dtype == 'bool'")
        elif isinstance(value, int):
            self.need(f"type({at}) is IntImm and {at}.value == {value}")
        elif isinstance(value, float):
            self.need(f"type({at}) is FloatImm and {at}.value == {value}")
            if value == 0:
                self.need(f"copysign(1.0, {at}.value) == {'-1.0' if str(value)[0] == '-' else '1.0'}")
        elif isinstance(n, ast.Name):
            self._name(n.id, at)
        else:
            cls, children = _children(n)
            if cls[0] == ":":
                self.need(f"type({at}) is Call and {at}.op == {cls[1:]!r}")
            else:
                self.need(f"type({at}) is {cls}")
            self.operands(children, at)

    def operands(self, children: list[tuple[str, ast.expr]], at: str) -> None:
        for path, child in children:
            if isinstance(child, ast.Name) and child.id not in self.bound and not _is_const_name(child.id):
                self._name(child.id, f"{at}.{path}")
                continue
            self.temps += 1
            temp = f"t{self.temps}"
            self.line(f"{temp} = {at}.{path}")
            self.pattern(child, temp)

    def _name(self, name: str, at: str) -> None:
        if _is_const_name(name):
            self.need(f"type({at}) is IntImm and {at}.dtype != 'bool'")
            if name in self.bound:
                self.need(f"{at}.value == {name}")
            else:
                self.line(f"{name} = {at}.value")
                self.line(f"{name}_dtype = {at}.dtype")
        elif name in self.bound:
            self.need(f"{at} is {name}")
        else:
            self.line(f"{name} = {at}")
        self.bound.add(name)

    # ---- results

    def _const_names(self, n: ast.expr) -> list[str] | None:
        """The constants' names where `n` is arithmetic on constants alone, else None."""
        names: list[str] = []
        for x in ast.walk(n):
            if isinstance(x, ast.Name):
                if not _is_const_name(x.id):
                    return None
                names.append(x.id)
            elif isinstance(x, (ast.Call, ast.Compare, ast.BoolOp)):
                return None
        return names

    def result(self, n: ast.expr) -> str:
        """Python code that builds the result pattern."""
        value = _literal(n)
        if isinstance(value, bool):
            return f"f.imm({int(value)}, 'bool')"
        if isinstance(value, int):
            return f"f.number({value}, e.dtype)"
        names = self._const_names(n)
        if names is not None:
            dtype = f"{names[0]}_dtype" if f"{names[0]}" in self.bound else "e.dtype"
            return f"f.imm(wrap_int({ast.unparse(n)}, {dtype}), {dtype})"
        if isinstance(n, ast.Name):
            return n.id
        cls, children = _children(n)
        parts = ", ".join(self.result(child) for _, child in children)
        if cls[0] == ":":
            return f"f.mk_call({cls[1:]!r}, ({parts},), e.dtype)"
        return f"f.make({cls}, {parts})"


def _rule_code(rule: Rule) -> tuple[str, list[str]]:
    pattern, result, guard, why = rule
    tree = ast.parse(pattern, mode="eval").body
    root, children = _children(tree)
    w = _Writer()
    w.line(f"# {pattern} -> {result}: {why}")
    w.operands(children, "e")
    if guard.startswith("let("):
        name, _, value = guard[4:-1].partition(",")
        w.line(f"{name} = {value.strip()}")
        w.line(f"{name}_dtype = c1_dtype")
        w.bound.add(name)
    elif guard:
        w.need(guard)
    w.line(f"return {w.result(ast.parse(result, mode='eval').body)}")
    return root, w.lines


def is_int(e: E.Expr) -> bool:
    """Whether `e` is an integer or bool (no NaN to mind)."""
    return not dtype_info(e.dtype).is_float


def is_const(e: E.Expr) -> bool:
    return type(e) is E.IntImm or type(e) is E.FloatImm


def compile_rules(rules: tuple[Rule, ...]) -> dict[Any, RuleFn]:
    """{node class or name of a Call's operation: function(f, e) -> the rewritten node or None}."""
    bodies: dict[str, list[str]] = {}
    for rule in rules:
        root, lines = _rule_code(rule)
        bodies.setdefault(root, []).extend(lines)
    scope: dict[str, Any] = {
        **vars(E),
        "wrap_int": wrap_int,
        "is_int": is_int,
        "is_const": is_const,
        "copysign": math.copysign,
    }
    out: dict[Any, RuleFn] = {}
    for root, lines in bodies.items():
        name = "rules_" + root.replace(":", "call_")
        source = f"def {name}(f, e):\n" + "\n".join(lines) + "\n    return None\n"
        exec(compile(source, f"<tec rules for {root}>", "exec"), scope)
        out[root[1:] if root[0] == ":" else getattr(E, root)] = scope[name]
    return out
