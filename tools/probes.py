"""Probes in the places where errors would be planted: they write down which tests come there, and for which of them the error would change a value.

`probed(text, mutants)` puts them into a module's text, without changing the number of any line. A probe of an expression also computes the expression as the error
would have it, where that has no side effects: a test for which both are the same each time cannot notice the error, so others are run first. Each function of the
module has a probe of its own at its beginning, for what runs at import (tables, default values): who comes into the functions may notice it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.mutations import Mutation

NAME = "_tec_reached"
MODULE = "_tec_probes.py"

# What the sources import in the copy that is probed. Child processes of a test know its name by pytest's variable; lines of one `write` to a file that is
# opened to append do not mix.
RUNTIME = '''"""Written by tools/probes.py: which tests come to which places."""

import os

_OUT = os.open(os.environ["TEC_REACHED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT) if "TEC_REACHED" in os.environ else None
_ENVIRONMENT = os.environ._data
_LOOKS = 2000  # of one probe in one test, for values that differ
_SIMPLE = (bool, int, float, str, bytes, type(None))
_left = {}
_over = {}


def _write(kind, key, test):
    if _OUT is not None and test:
        os.write(_OUT, f"{kind}\\t{key}\\t{test.decode().rpartition(' (')[0]}\\n".encode())


def _tec_reached(key, value=None, other=None):
    test = _ENVIRONMENT.get(b"PYTEST_CURRENT_TEST")
    if _over.get(key, 0) == test:
        return value
    if key not in _left or _left[key][0] != test:
        _left[key] = [test, _LOOKS]
        _write("reached", key, test)
    if other is not None:
        try:
            changed = other()
            differs = value != changed if type(value) is type(changed) and type(value) in _SIMPLE else value is not changed
        except Exception:
            differs = True
        if differs:
            _write("differs", key, test)
        _left[key][1] -= 1
        if not differs and _left[key][1]:
            return value
    _over[key] = test
    return value
'''

# Calls that change nothing: an expression of them may be computed a second time.
_PURE = frozenset(
    "len isinstance issubclass abs min max all any int bool float str tuple list set frozenset sorted sum zip enumerate range getattr hasattr repr ord"
    " get startswith endswith values items keys index count bit_length union intersection issubset issuperset isdisjoint lower upper strip".split()
)


def is_pure(new: str) -> bool:
    """Whether an expression's text has nothing that could change what it reads."""
    for n in ast.walk(ast.parse(new, mode="eval")):
        if isinstance(n, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return False
        if isinstance(n, ast.Call):
            name = n.func.id if isinstance(n.func, ast.Name) else getattr(n.func, "attr", "")
            if name not in _PURE:
                return False
    return True


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions, but for kernels: those are translated from their text."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if any("kernel" in ast.unparse(d) for d in node.decorator_list):
                continue
            yield node
        yield from _functions(node)


def _entry(body: Sequence[ast.stmt]) -> ast.stmt | ast.expr | None:
    """What a function runs first: a statement before which another can stand on its line, or an expression."""
    for s in body:
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant):
            continue  # the docstring
        if isinstance(s, (ast.If, ast.While)):
            return s.test
        if isinstance(s, (ast.For, ast.AsyncFor)):
            return s.iter
        if isinstance(s, (ast.With, ast.AsyncWith)):
            return s.items[0].context_expr
        if isinstance(s, ast.Match):
            return s.subject
        if isinstance(s, ast.Try):
            return _entry(s.body)
        if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        return s
    return None


_Insertion = tuple[int, int, int, tuple[int, int], str]  # line, column in bytes, what comes first there, and next, text


def _around(node: ast.expr | ast.stmt | Mutation, key: str, other: str) -> list[_Insertion]:
    if isinstance(node, Mutation):
        line, column, end_line, end_column, is_statement = node.line, node.column, node.end_line, node.end_column, node.new == "pass"  # fmt: skip
    else:
        assert node.end_lineno is not None and node.end_col_offset is not None
        line, column, end_line, end_column = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
        is_statement = isinstance(node, ast.stmt)
    if is_statement:
        return [(line, column, 1, (0, 0), f"{NAME}({key!r}); ")]
    # Of those that begin at one place the longest comes first, and of those that end at one place what began last.
    return [
        (line, column, 2, (-end_line, -end_column), f"{NAME}({key!r}, "),
        (end_line, end_column, 0, (-line, -column), f", lambda: {other})" if other else ")"),
    ]


def _inserted(text: str, insertions: list[_Insertion]) -> str:
    lines = [line.encode() for line in text.split("\n")]
    # Of probes around one expression the first opens last, and closes first.
    order = [(*i[:4], n if i[2] == 0 else -n, i[4]) for n, i in enumerate(insertions)]
    for line, column, *_, new in sorted(order, reverse=True):
        lines[line - 1] = lines[line - 1][:column] + new.encode() + lines[line - 1][column:]
    return b"\n".join(lines).decode()


def function_of(text: str, line: int) -> int | None:
    """The line of the innermost function whose head or body has a line; None at a module's own level."""
    inside = [f for f in _functions(ast.parse(text)) if f.lineno <= line <= (f.end_lineno or f.lineno)]
    return max((f.lineno for f in inside), default=None)


def is_default(text: str, place: Mutation) -> bool:
    """Whether a place is a default value of a function of a module or a class: what runs when that is imported."""
    for f in _outermost(ast.parse(text)):
        for value in (*f.args.defaults, *filter(None, f.args.kw_defaults)):
            begin, end = (value.lineno, value.col_offset), (value.end_lineno or 0, value.end_col_offset or 0)
            if begin <= (place.line, place.column) and (place.end_line, place.end_column) <= end:
                return True
    return False


def _outermost(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions that are in no other."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
        else:
            yield from _outermost(node)


def probed(text: str, mutants: Mapping[str, Mutation], file: str) -> str:
    """A module's text with a probe for each of its mutants, by key, and one for each function: "FILE:line of the function"."""
    tree = ast.parse(text)
    groups = [_around(m, key, m.new if m.new != "pass" and is_pure(m.new) else "") for key, m in mutants.items()]
    for f in _functions(tree):
        entry = _entry(f.body)
        if entry is not None:
            groups.append(_around(entry, f"{file}:{f.lineno}", ""))
    head = [s for s in tree.body if isinstance(s, ast.ImportFrom) and s.module == "__future__"] or [
        s for s in tree.body[:1] if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)
    ]
    module = MODULE.removesuffix(".py")
    if head:
        assert head[-1].end_lineno is not None and head[-1].end_col_offset is not None
        groups.append([(head[-1].end_lineno, head[-1].end_col_offset, 0, (0, 0), f"; from {module} import {NAME}")])
    else:  # no line takes an import
        groups = [[(*i[:4], i[4].replace(f"{NAME}(", f"__import__({module!r}).{NAME}(")) for i in g] for g in groups]
    try:
        new = _inserted(text, [i for g in groups for i in g])
        compile(new, file, "exec")
        return new
    except SyntaxError:  # a place that takes no call, such as a pattern of a `match`: that probe is left out
        kept: list[list[_Insertion]] = []
        for g in reversed(groups):
            try:
                compile(_inserted(text, [i for k in [g, *kept] for i in k]), file, "exec")
            except SyntaxError:
                continue
            kept.insert(0, g)
        return _inserted(text, [i for g in kept for i in g])


def read(path: Path) -> dict[str, dict[str, list[str]]]:
    """{"reached" or "differs": {key: [tests]}} of what probes wrote."""
    found: dict[str, dict[str, dict[str, None]]] = {"reached": {}, "differs": {}}
    for line in path.read_text("utf-8").splitlines() if path.exists() else []:
        kind, _, rest = line.partition("\t")
        key, _, test = rest.partition("\t")
        if kind in found and test:
            found[kind].setdefault(key, {})[test] = None
    return {kind: {key: list(tests) for key, tests in keys.items()} for kind, keys in found.items()}
