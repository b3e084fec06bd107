"""Small errors that a program's text can have: comparisons turned, one more or less, a `not` left out, arguments swapped, statements left out.

`mutations(text)` lists every place of a module where one can be planted. Each changes one expression or statement and no line's number.

What no test can be asked to notice is left out by these rules:

- words: what an error or a warning says, text put together, `__repr__`, documentation, types, and assertions
- chosen numbers: a name of a module's own that is a number or a product of numbers (`_ROWS = 3`, `CACHE_BYTES = 4 << 30`). It decides between right ways, and
  its reason stands beside it; a test could only say the number again. Tables of numbers are not left out.
- hints: arguments and calls that change speed or strictness alone (`_HINTS`, `_HINT_CALLS`), and caches
- what has the same value either way: arguments of a symmetric function
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip

# Whose first two arguments may change places: what comes of it has the same value, and normal forms are the same.
_SYMMETRIC = frozenset("EQ NE Add Mul And Or Min Max add mul land lor min max isclose array_equal".split())
_HINTS = frozenset("strict maxsize slots frozen stacklevel daemon exist_ok parents ignore_errors copy indent".split())
_HINT_CALLS = frozenset("collect cache_clear flush intern".split())


@dataclass(frozen=True)
class Mutation:
    """One error: the text from (line, column) to (end line, end column), counted in bytes as `ast` does, becomes `new`."""

    line: int
    column: int
    end_line: int
    end_column: int
    new: str
    what: str
    statement: int  # the line of the statement that it is in

    def apply(self, text: str) -> str:
        lines = text.encode().split(b"\n")
        head, tail = lines[self.line - 1][: self.column], lines[self.end_line - 1][self.end_column :]
        joins = b" \\\n" * (self.end_line - self.line)  # the lines behind keep their numbers
        middle = head + self.new.encode() + joins + tail
        return b"\n".join([*lines[: self.line - 1], middle, *lines[self.end_line :]]).decode()


def _changed(node: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    """What an expression can become, with the kind of error."""
    new = copy.copy(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        assert isinstance(new, ast.Compare)
        new.ops = [_COMPARISONS[type(node.ops[0])]()]
        yield new, "a comparison turned"
    elif isinstance(node, ast.BoolOp):
        assert isinstance(new, ast.BoolOp)
        new.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield new, "`and` for `or`, or the other way"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand, "a `not` left out"
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node):
        assert isinstance(new, ast.BinOp)
        new.op = _ARITHMETIC[type(node.op)]()
        yield new, "another operator"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value), "a constant"
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1), "one more"
        if node.value > 0:
            yield ast.Constant(node.value - 1), "one less"
    elif isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if ast.dump(node.args[0]) != ast.dump(node.args[1]) and name not in _SYMMETRIC:
            assert isinstance(new, ast.Call)
            new.args = [node.args[1], node.args[0], *node.args[2:]]
            yield new, "arguments swapped"
    elif isinstance(node, ast.IfExp):
        assert isinstance(new, ast.IfExp)
        new.body, new.orelse = node.orelse, node.body
        yield new, "branches swapped"


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        for n in ast.walk(node)
    )


def _skipped(node: ast.AST) -> bool:
    """What no run can tell apart, or only by its words: types, imports, assertions, errors' texts, warnings."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert, ast.Raise, ast.JoinedStr, ast.FormattedValue)):
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return True
    if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
        return True
    if isinstance(node, ast.keyword) and node.arg in _HINTS:
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return getattr(node.value.func, "attr", "") in _HINT_CALLS
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        return name in (
            "isinstance",
            "cast",
            "warn",
            "TypeVar",
            "max",
            "min",
            "gcd",
            "lcm",
            "lru_cache",
            "cache",
            "dataclass",
        ) or name.endswith(("Error", "error"))
    return False


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions of one statement, but for those of statements in it and of annotations."""
    for name, value in ast.iter_fields(node):
        if name in (
            "annotation",
            "returns",
            "decorator_list",
            "bases",
            "keywords" if isinstance(node, ast.ClassDef) else "",
            "type_comment",
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.stmt) and not _skipped(child):
                if isinstance(child, ast.expr):
                    yield child
                yield from _expressions(child)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for s in body:
        if _skipped(s):
            continue
        yield s
        for part in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(s, part, []))
        for handler in [*getattr(s, "handlers", []), *getattr(s, "cases", [])]:
            yield from _statements(handler.body)


def _is_chosen_number(s: ast.stmt) -> bool:
    """Whether a statement gives a number its name: `NAME = 4 << 30`."""
    target = s.targets[0] if isinstance(s, ast.Assign) else s.target if isinstance(s, ast.AnnAssign) else None
    value = getattr(s, "value", None)  # a declaration has none
    if not isinstance(target, ast.Name) or not target.id.isupper() or value is None:
        return False
    parts = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    return all(isinstance(n, parts) for n in ast.walk(value))


def mutations(text: str) -> list[Mutation]:
    """All that can be planted in a module's text, in its order."""
    out = []
    body = ast.parse(text).body
    for s in _statements([s for s in body if not _is_chosen_number(s)]):
        if isinstance(s, ast.AugAssign) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)) or isinstance(s, (ast.Break, ast.Continue)):  # fmt: skip
            out.append(_at(s, "pass", "a statement left out", s.lineno))
        for e in _expressions(s):
            out += [
                _at(e, f"({ast.unparse(ast.fix_missing_locations(new))})", what, s.lineno) for new, what in _changed(e)
            ]
    return sorted(out, key=lambda m: (m.line, m.column, m.new))


def _at(node: ast.expr | ast.stmt, new: str, what: str, statement: int) -> Mutation:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return Mutation(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, new, what, statement)
