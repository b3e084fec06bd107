"""A Python function as its syntax tree, with the lines of its file and what its free names stand for."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import textwrap
from dataclasses import field
from functools import lru_cache
from types import FunctionType
from typing import Any

from ..errors import KernelError, Loc
from ..records import dataclass

MISSING = object()


@dataclass(slots=True, eq=False)
class Source:
    """A function: its definition with line numbers of the file, and the values of names that it does not assign."""

    function: FunctionType
    tree: ast.FunctionDef | ast.Lambda
    file: str
    taken: dict[str, Any] = field(default_factory=dict)  # names looked up outside, and what they were
    own: frozenset[str] = frozenset()  # names that it binds itself
    called: str = ""  # its name, where it is defined within `function`

    def __post_init__(self) -> None:
        _fold(self.tree)
        stored = (x for x in ast.walk(self.tree) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store))
        self.own = frozenset(x.id for x in stored)

    @property
    def name(self) -> str:
        return self.called or self.function.__name__

    @property
    def loc(self) -> Loc:
        return Loc(self.file, self.tree.lineno)

    @property
    def body(self) -> list[ast.stmt]:
        if isinstance(self.tree, ast.Lambda):
            return [ast.copy_location(ast.Return(self.tree.body), self.tree.body)]
        return self.tree.body

    def lookup(self, name: str) -> Any:
        """What a free name stands for: a closure's cell, a global, a builtin; MISSING where there is none."""
        f = self.function
        if name in f.__code__.co_freevars and f.__closure__ is not None:
            try:
                return f.__closure__[f.__code__.co_freevars.index(name)].cell_contents
            except ValueError:
                return MISSING
        if name in f.__globals__:
            return f.__globals__[name]
        return getattr(builtins, name, MISSING)

    def is_as_taken(self, taken: dict[str, Any] | None = None) -> bool:
        """Whether what was taken from outside is what it was: of `taken`, or of all that was read so far."""
        held = self.function.__globals__
        cells = self.function.__code__.co_freevars
        for name, value in (self.taken if taken is None else taken).items():
            if (held.get(name, MISSING) is not value or name in cells) and self.lookup(name) is not value:
                return False
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Inner:
    """The value of a constant that stands for the definition of a function within another, so that nobody takes its statements for those around it."""

    tree: ast.FunctionDef | ast.Lambda


class _Fold(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.decorator_list:
            return node  # refused, as a statement of this kind
        made = ast.Assign([ast.Name(node.name, ast.Store())], ast.Constant(Inner(node)))  # type: ignore[arg-type]
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return ast.copy_location(ast.Constant(Inner(node)), node)  # type: ignore[arg-type]


def _fold(tree: ast.FunctionDef | ast.Lambda) -> None:
    """Definitions within a function become constants (`Inner`)."""
    if isinstance(tree, ast.Lambda):
        tree.body = _Fold().visit(tree.body)
    else:
        tree.body = [_Fold().visit(s) for s in tree.body]


def inner_source(inner: Inner, outer: Source) -> Source:
    """A function that is defined within another. Raises KernelError for parameters that are no plain ones."""
    if isinstance(inner.tree, ast.FunctionDef):
        _check_parameters(inner.tree, Loc(outer.file, inner.tree.lineno), rest=True)
    name = "<lambda>" if isinstance(inner.tree, ast.Lambda) else inner.tree.name
    return Source(outer.function, inner.tree, outer.file, called=name)


def source_of(f: Any, what: str = "the kernel", rest: bool = False) -> Source:
    """The source of a function. rest: it may take `*args`. Raises KernelError where it is not at hand, or what stands there is no plain function."""
    if not isinstance(f, FunctionType):
        raise KernelError(f"{what} is {f!r}, no Python function", hint="@tec.kernel stands above a def")
    where = Loc(f.__code__.co_filename, f.__code__.co_firstlineno)
    if inspect.isgeneratorfunction(f) or inspect.iscoroutinefunction(f):
        raise KernelError(f"{f.__name__} is a generator or coroutine", where=where, hint="a kernel is a plain function")
    try:
        lines, first = inspect.getsourcelines(f)
    except (OSError, TypeError):
        raise KernelError(
            f"the source of {f.__name__} is not at hand, and kernels are compiled from it",
            where=where,
            hint="write it in a file or a notebook cell; text run by exec() has no source",
        ) from None
    tree = _lambda_of(f) if f.__name__ == "<lambda>" else _parse("".join(lines), f)
    if tree is None:
        raise KernelError(
            f"the definition of {f.__name__} was not found in its source",
            where=where,
            hint="write it as a def of its own",
        )
    if isinstance(tree, ast.FunctionDef):
        ast.increment_lineno(tree, max(first, 1) - 1)
        _check_parameters(tree, where, rest)
    return Source(f, tree, where.file)


def _parse(text: str, f: FunctionType) -> ast.FunctionDef | None:
    try:
        module = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return None
    return next((x for x in ast.walk(module) if isinstance(x, ast.FunctionDef) and x.name == f.__name__), None)


def _lambda_of(f: FunctionType) -> ast.Lambda | None:
    """A lambda's tree, with the lines of its file: of those that its code's positions lie in, the innermost."""
    lines = linecache.getlines(f.__code__.co_filename, f.__globals__)
    names = f.__code__.co_varnames[: f.__code__.co_argcount]
    used = [(p[0], p[2]) for p in f.__code__.co_positions() if p[0] is not None and p[2] and p[1] is not None]
    found = [
        x
        for x in _lambdas("".join(lines))
        if x.lineno == f.__code__.co_firstlineno
        and tuple(a.arg for a in x.args.args) == names
        and all(_start(x.body) <= p <= _end(x.body) for p in used)
    ]
    return min(found, key=lambda x: (_end(x)[0] - x.lineno, _end(x)[1] - x.col_offset), default=None)


def _start(x: ast.expr) -> tuple[int, int]:
    return x.lineno, x.col_offset


def _end(x: ast.expr) -> tuple[int, int]:
    return x.end_lineno or x.lineno, x.end_col_offset or 0


@lru_cache(maxsize=32)
def _lambdas(text: str) -> tuple[ast.Lambda, ...]:
    """The lambdas of a file."""
    try:
        return tuple(x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Lambda))
    except SyntaxError:
        return ()


def _check_parameters(tree: ast.FunctionDef, where: Loc, rest: bool) -> None:
    a = tree.args
    for star, text in ((None if rest else a.vararg, "*"), (a.kwarg, "**")):
        if star is not None:
            raise KernelError(
                f"{tree.name} takes {text}{star.arg}",
                where=where,
                hint="name each parameter: kernels are compiled for their types",
            )


def parameters(source: Source) -> list[str]:
    """The names of a function's parameters, in order, without that of `*args`."""
    a = source.tree.args
    return [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
