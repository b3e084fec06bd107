"""Reads the expressions of loop IR's text form; see `tests.ir.parser`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from tec.errors import Loc, TecError
from tec.ir import expr as E
from tec.ir.buffer import Buffer
from tec.ir.build import const, round_float, wrap_int
from tec.ir.dtype import dtype_info
from tec.ir.intrin import INTRINS, result_dtype
from tec.ir.printer import BY_FIELDS
from tec.ir.schema import FIELDS

_BINARY: dict[type, type] = {
    ast.Add: E.Add, ast.Sub: E.Sub, ast.Mult: E.Mul, ast.Div: E.Div, ast.FloorDiv: E.FloorDiv, ast.Mod: E.FloorMod,
}  # fmt: skip
_COMPARE: dict[type, type] = {
    ast.Eq: E.EQ, ast.NotEq: E.NE, ast.Lt: E.LT, ast.LtE: E.LE, ast.Gt: E.GT, ast.GtE: E.GE,
}  # fmt: skip
_CALLS2: dict[str, type] = {"min": E.Min, "max": E.Max, "truncdiv": E.Div, "truncmod": E.Mod}


class ParseError(TecError):
    """Text that is not loop IR; `where` is the line in it."""


class _Literal:
    """A number whose dtype its surroundings decide."""

    __slots__ = ("value",)

    def __init__(self, value: int | float):
        self.value = value


class ExprParser:
    """Turns Python's syntax trees into expressions; `names` are the variables, buffers and tensors known so far."""

    def __init__(self, text: str, names: Mapping[str, Any] | None = None, filename: str = "<ir>"):
        self.lines = text.splitlines()
        self.filename = filename
        self.names: dict[str, Any] = dict(names or {})

    # ---- errors

    def fail(self, node: Any, message: str, hint: str | None = None) -> ParseError:
        line = getattr(node, "lineno", 1)
        col = getattr(node, "col_offset", 0)
        shown = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        mark = (
            f"\n    {shown.strip()}\n    {' ' * (col - (len(shown) - len(shown.lstrip())))}^" if shown.strip() else ""
        )
        return ParseError(message + mark, where=Loc(self.filename, line), hint=hint)

    def tree(self, text: str) -> ast.Module:
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
            line = getattr(e, "lineno", None) or 1
            raise ParseError(f"syntax: {e}", where=Loc(self.filename, line)) from None

    # ---- names

    def name(self, node: ast.AST, name: str) -> Any:
        try:
            return self.names[name]
        except KeyError:
            raise self.fail(node, f"the name {name!r} is not declared") from None

    def buffer(self, node: ast.AST) -> Buffer:
        if isinstance(node, ast.Name):
            b = self.name(node, node.id)
            if isinstance(b, Buffer):
                return b
        raise self.fail(node, "not the name of a buffer")

    def new_var(self, name: str, dtype: str, is_size: bool = False) -> E.Var:
        var = E.Var(name, dtype, is_size)
        self.names[name] = var
        return var

    def dtype_of(self, node: ast.AST) -> str:
        name = node.id if isinstance(node, ast.Name) else node.value if isinstance(node, ast.Constant) else None
        try:
            return dtype_info(name).name
        except TecError:
            raise self.fail(node, f"not a dtype: {name!r}") from None

    # ---- expressions

    def expr(self, node: ast.AST, expect: str | None = None) -> E.Expr:
        """An expression; a bare number takes `expect` where that suits it, else int32 or float32."""
        return self.settle(node, self._expr(node), expect)

    def settle(self, node: ast.AST, e: E.Expr | _Literal, expect: str | None) -> E.Expr:
        if not isinstance(e, _Literal):
            return e
        try:
            if isinstance(e.value, int):
                info = dtype_info(expect) if expect else None
                if info is not None and info.lanes == 1 and info.is_float:
                    return E.FloatImm(round_float(float(e.value), info.name), info.name)
                return const(e.value, expect if info is not None and info.is_int and info.lanes == 1 else "int32")
            info = dtype_info(expect) if expect else None
            name = info.name if info is not None and info.is_float and info.lanes == 1 else "float32"
            return E.FloatImm(round_float(e.value, name), name)
        except TecError as err:
            raise self.fail(node, err.message) from None

    def pair(self, a: ast.AST, b: ast.AST) -> tuple[E.Expr, E.Expr]:
        """Two operands of one dtype: a bare number takes the other's."""
        x, y = self._expr(a), self._expr(b)
        left = y.dtype if isinstance(x, _Literal) and not isinstance(y, _Literal) else None
        right = x.dtype if isinstance(y, _Literal) and not isinstance(x, _Literal) else None
        return self.settle(a, x, left), self.settle(b, y, right)

    def _expr(self, node: ast.AST) -> E.Expr | _Literal:
        """An expression, or a number that has no type yet."""
        match node:
            case ast.Constant(value):
                if isinstance(value, bool):
                    return E.IntImm(int(value), "bool")
                if isinstance(value, (int, float)):
                    return _Literal(value)
                if isinstance(value, str):
                    return E.StringImm(value)
            case ast.UnaryOp(ast.USub(), operand):
                x = self._expr(operand)
                if isinstance(x, _Literal):
                    return _Literal(-x.value)
                zero = E.FloatImm(-0.0, x.dtype) if dtype_info(x.dtype).is_float else E.IntImm(0, x.dtype)
                return E.Sub(zero, x)
            case ast.UnaryOp(ast.Not(), operand):
                return E.Not(self.expr(operand))
            case ast.Name(name):
                found = self.name(node, name)
                if isinstance(found, E.Expr):
                    return found
                raise self.fail(node, f"{name} is not a variable", "a buffer is read with indices: A[i, j]")
            case ast.Attribute(ast.Name(), "data"):
                return self.buffer(node.value).data
            case ast.BinOp(a, op, b) if type(op) in _BINARY:
                return self.typed(node, _BINARY[type(op)], *self.pair(a, b))
            case ast.Compare(a, [op], [b]) if type(op) in _COMPARE:
                return self.typed(node, _COMPARE[type(op)], *self.pair(a, b))
            case ast.BoolOp(op, values):
                cls = E.And if isinstance(op, ast.And) else E.Or
                out = self.expr(values[0])
                for v in values[1:]:
                    out = self.typed(node, cls, out, self.expr(v))
                return out
            case ast.Subscript():
                return self.load(node, None)
            case ast.Call(ast.Name(name)):
                return self.call(node, name)
        raise self.fail(node, f"not an expression of loop IR: {ast.unparse(node)}")

    def typed(self, node: ast.AST, cls: Any, a: E.Expr, b: E.Expr) -> E.Expr:
        if a.dtype != b.dtype:
            raise self.fail(node, f"operands of {a.dtype} and {b.dtype}", "cast one: int64(x)")
        out: E.Expr = cls(a, b)
        return out

    def indices(self, node: ast.Subscript) -> tuple[E.Expr, ...]:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return tuple([self.expr(p) for p in parts])

    def load(self, node: ast.AST, predicate: E.Expr | None) -> E.BufferLoad:
        if not isinstance(node, ast.Subscript):
            raise self.fail(node, "expected an access A[i, ...]")
        b, idx = self.buffer(node.value), self.indices(node)
        if len(idx) != len(b.shape):
            raise self.fail(node, f"{b.name} has {len(b.shape)} dimensions, indexed with {len(idx)}")
        return E.BufferLoad(b, idx, predicate)

    def keywords(self, node: ast.Call) -> dict[str, ast.expr]:
        return {k.arg: k.value for k in node.keywords if k.arg is not None}

    def want(self, node: ast.Call, count: int) -> list[ast.expr]:
        if len(node.args) != count:
            raise self.fail(node, f"expected {count} arguments, got {len(node.args)}")
        return node.args

    def integer(self, node: ast.AST) -> int:
        value = self.literal(node)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise self.fail(node, "expected an integer")

    def literal(self, node: ast.AST) -> Any:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise self.fail(node, "expected a plain value") from None

    def call(self, node: ast.Call, name: str) -> E.Expr:
        handler = _CALLS.get(name)
        if handler is not None:
            return handler(self, node)
        if name in BY_FIELDS:
            return self.by_fields(node, BY_FIELDS[name])
        if name in _CALLS2:
            return self.typed(node, _CALLS2[name], *self.pair(*self.want(node, 2)))
        if name in INTRINS:
            return self.intrinsic(node, name)
        try:
            dtype = dtype_info(name).name
        except TecError:
            raise self.fail(node, f"unknown operation {name!r}") from None
        (arg,) = self.want(node, 1)
        return self.conversion(arg, dtype)

    def conversion(self, arg: ast.expr, dtype: str) -> E.Expr:
        """`int64(1)`, `float32("nan")`: constants; `int64(x)`: a Cast."""
        info = dtype_info(dtype)
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str) and info.is_float:
            if arg.value.lstrip("-") not in ("nan", "inf"):
                raise self.fail(arg, f"not a float: {arg.value!r}")
            return E.FloatImm(float(arg.value), dtype)
        value = self._expr(arg)
        if not isinstance(value, _Literal):
            return E.Cast(dtype, value)
        if info.is_float:
            return E.FloatImm(round_float(float(value.value), dtype), dtype)
        if isinstance(value.value, int):
            if wrap_int(value.value, dtype) != value.value:
                raise self.fail(arg, f"{value.value} does not fit {dtype}")
            return E.IntImm(value.value, dtype)
        raise self.fail(arg, f"{value.value} is not a value of {dtype}", 'a conversion: cast("int32", 1.5)')

    def intrinsic(self, node: ast.Call, name: str) -> E.Expr:
        want = INTRINS[name].nargs
        if want >= 0 and len(node.args) != want:
            raise self.fail(node, f"{name} takes {want} arguments, got {len(node.args)}")
        if name == "if_then_else":
            args: tuple[E.Expr, ...] = (self.expr(node.args[0]), *self.pair(node.args[1], node.args[2]))
        else:
            args = tuple([self.expr(a) for a in node.args])
        words = self.keywords(node)
        stated = words.pop("dtype", None)
        dtype = self.dtype_of(stated) if stated is not None else result_dtype(name, args)
        return E.Call(name, args, dtype, {k: self.value(v) for k, v in words.items()} or None)

    def _cast(self, node: ast.Call) -> E.Expr:
        dtype, value = self.want(node, 2)
        return E.Cast(self.dtype_of(dtype), self.expr(value))

    def _select(self, node: ast.Call) -> E.Expr:
        c, a, b = self.want(node, 3)
        return E.Select(self.expr(c), *self.pair(a, b))

    def _load(self, node: ast.Call) -> E.Expr:
        access, predicate = self.want(node, 2)
        return self.load(access, self.expr(predicate))

    def by_fields(self, node: ast.Call, cls: type) -> E.Expr:
        """A node without a syntax of its own: its name, and its fields in order."""
        own, parts = FIELDS[cls], []
        for f, x in zip(own, self.want(node, len(own))):
            read: Callable[[Any], Any] = self.exprs if f.how == "many" else self.expr
            parts.append(read(x) if f.holds == "expr" else self._fact(x))
        made: E.Expr = cls(*parts)
        return made

    def _fact(self, node: ast.AST) -> Any:
        """A number, or a tuple of them."""
        return self.integer(node) if isinstance(node, ast.Constant) else tuple(self.literal(node))

    def _let(self, node: ast.Call) -> E.Expr:
        bound, body = self.want(node, 2)
        if not isinstance(bound, ast.NamedExpr):
            raise self.fail(node, "expected let(x := value, body)")
        value = self.expr(bound.value)
        stated = self.keywords(node).get("dtype")
        var = self.new_var(bound.target.id, self.dtype_of(stated) if stated is not None else value.dtype)
        return E.Let(var, value, self.expr(body))

    def exprs(self, node: ast.AST, expect: str | None = None) -> tuple[E.Expr, ...]:
        if not isinstance(node, (ast.Tuple, ast.List)):
            raise self.fail(node, "expected a tuple")
        return tuple([self.expr(x, expect) for x in node.elts])

    # ---- compile-time facts

    def value(self, node: ast.AST) -> Any:
        match node:
            case ast.Call(ast.Name("expr"), [x]):
                return self.expr(x)
            case ast.Call(ast.Name("buffer"), [x]):
                return self.buffer(x)
            case ast.Call(ast.Name("opaque"), [x]):
                return self.literal(x)
            case ast.Call(ast.Name("set"), []):
                return set()
            case ast.Tuple(elts):
                return tuple([self.value(x) for x in elts])
            case ast.List(elts):
                return [self.value(x) for x in elts]
            case ast.Set(elts):
                return {self.value(x) for x in elts}
            case ast.Dict(keys, values):
                return {self.value(k): self.value(v) for k, v in zip(keys, values) if k is not None}
        return self.literal(node)


_CALLS: dict[str, Callable[[ExprParser, ast.Call], E.Expr]] = {
    "cast": ExprParser._cast, "select": ExprParser._select, "load": ExprParser._load, "let": ExprParser._let,
}  # fmt: skip
