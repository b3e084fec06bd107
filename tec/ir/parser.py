"""Reads the text form of loop IR back: `parse(str(func))` is structurally equal to `func`.

The text is Python syntax (see `tec.ir.printer` for its grammar), so Python's own parser does the reading and this module
turns its tree into nodes; no text is ever evaluated. Errors are ParseErrors that show the offending line.

    parse(text)         an IRModule of all functions in the text
    parse_func(text)    the one function
    parse_stmt(text, {"A": A, "n": n}), parse_expr(text, {...})   pieces, with the names they use
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import Loc, TecError
from . import expr as E
from . import stmt as S
from .buffer import Buffer
from .build import const, round_float, wrap_int
from .dtype import dtype_info
from .func import Func, IRModule
from .intrin import INTRINS
from .printer import LOOP_WORDS, call_dtype

_KINDS = {word: kind for kind, word in LOOP_WORDS.items()}
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


class _Parser:
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
        dtype = self.dtype_of(stated) if stated is not None else call_dtype(name, args)
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

    def _ramp(self, node: ast.Call) -> E.Expr:
        base, step, lanes = self.want(node, 3)
        return E.Ramp(self.expr(base), self.expr(step), self.integer(lanes))

    def _broadcast(self, node: ast.Call) -> E.Expr:
        value, lanes = self.want(node, 2)
        return E.Broadcast(self.expr(value), self.integer(lanes))

    def _shuffle(self, node: ast.Call) -> E.Expr:
        vectors, picks = self.want(node, 2)
        return E.Shuffle(self.exprs(vectors), tuple(self.literal(picks)))

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

    # ---- buffers

    def declare(self, name: str, node: ast.Call) -> tuple[Buffer, dict[str, Any]]:
        """A buffer from the arguments of `alloc`, `view` or `Buffer`; and the annotations."""
        shape, dtype = self.want(node, 2)
        words = self.keywords(node)
        notes = self.value(words.pop("annotations")) if "annotations" in words else {}
        b = Buffer(name, self.dtype_of(dtype), self.exprs(shape))
        for key, v in words.items():
            if key == "strides":
                b.strides = self.exprs(v)
            elif key == "elem_offset":
                offset = self.expr(v)
                b.elem_offset = offset.value if isinstance(offset, E.IntImm) and offset.dtype == "int32" else offset
            elif key == "scope":
                b.scope = str(self.literal(v))
            elif key == "align":
                b.align_bytes = self.integer(v)
            elif key == "offset_factor":
                b.offset_factor = self.integer(v)
            elif key == "data":
                data = self.expr(v)
                if not isinstance(data, E.Var):
                    raise self.fail(v, "expected A.data")
                b.data = data
            else:
                raise self.fail(v, f"unknown fact of a buffer: {key}")
        self.names[name] = b
        return b, notes

    # ---- statements

    def block(self, body: list[ast.stmt]) -> S.Stmt:
        out: list[S.Stmt] = []
        for k, node in enumerate(body):
            rest = body[k + 1 :]
            match node:
                case ast.Assign([ast.Name(name)], ast.Call(ast.Name("alloc")) as call):
                    b, notes = self.declare(name, call)
                    return S.seq(*out, S.Alloc(b, self.block(rest), notes))
                case ast.Assign([ast.Name(name)], ast.Call(ast.Name("view")) as call):
                    self.declare(name, call)
                case ast.AnnAssign(ast.Name(name), dtype, value) if value is not None:
                    kind = self.dtype_of(dtype)
                    e = self.expr(value, kind)
                    return S.seq(*out, S.LetStmt(self.new_var(name, kind), e, self.block(rest)))
                case ast.Pass():
                    pass
                case _:
                    out.append(self.stmt(node))
        return S.seq(*out)

    def stmt(self, node: ast.stmt) -> S.Stmt:
        match node:
            case ast.Assign([ast.Subscript() as target], value):
                access = self.load(target, None)
                return self.store(node, access, self.expr(value, access.buffer.dtype), None)
            case ast.For(ast.Name(name), ast.Call(ast.Name(word)) as head, body, []):
                return self.loop(name, word, head, body)
            case ast.While(test, body, []):
                return S.While(self.expr(test), self.block(body))
            case ast.If(test, body, orelse):
                cond = self.expr(test)
                then = self.block(body)
                return S.IfThenElse(cond, then, self.block(orelse) if orelse else None)
            case ast.With([ast.withitem(ast.Call(ast.Name(word)) as head, target)], body):
                return self.scope(node, word, head, target, body)
            case ast.Assert(test, message):
                return S.Assert(self.expr(test), str(self.literal(message)) if message is not None else "")
            case ast.Expr(ast.Call(ast.Name("store")) as call):
                where, stored, predicate = self.want(call, 3)
                at = self.load(where, None)
                return self.store(node, at, self.expr(stored, at.buffer.dtype), self.expr(predicate))
            case ast.Expr(ast.Call(ast.Name("allreduce")) as call):
                return self.allreduce(call)
            case ast.Expr(value):
                return S.Evaluate(self.expr(value))
        raise self.fail(node, f"not a statement of loop IR: {ast.unparse(node).splitlines()[0]}")

    def store(self, node: ast.AST, at: E.BufferLoad, value: E.Expr, predicate: E.Expr | None) -> S.Stmt:
        if value.dtype != at.dtype:
            raise self.fail(node, f"{at.buffer.name} takes {at.dtype} here, the value is {value.dtype}")
        return S.BufferStore(at.buffer, value, at.indices, predicate)

    def loop(self, name: str, word: str, head: ast.Call, body: list[ast.stmt]) -> S.Stmt:
        args, words = list(head.args), self.keywords(head)
        thread = ""
        if word == "thread":
            kind = S.ForKind.THREAD
            thread = str(self.literal(args.pop(0))) if args else ""
        elif word in _KINDS:
            kind = _KINDS[word]
        else:
            raise self.fail(head, f"unknown kind of loop {word!r}", f"use {', '.join([*_KINDS, 'thread'])}")
        low: E.Expr | None = None
        if "extent" in words and len(args) == 1:
            low = self.expr(args[0])
            extent = self.expr(words["extent"])
        elif len(args) == 1:
            extent = self.expr(args[0])
            low = self.expr(words["min"]) if "min" in words else E.IntImm(0, extent.dtype)
        else:
            raise self.fail(head, f"expected {word}(extent) or {word}(min, extent=...)")
        dtype = self.dtype_of(words["dtype"]) if "dtype" in words else extent.dtype
        notes = self.value(words["annotations"]) if "annotations" in words else {}
        var = self.new_var(name, dtype)
        return S.For(var, low, extent, self.block(body), kind, thread, notes)

    def scope(self, node: ast.AST, word: str, head: ast.Call, target: Any, body: list[ast.stmt]) -> S.Stmt:
        if word == "attr":
            key, value = self.want(head, 2)
            note = self.value(value)
            return S.Attr(str(self.literal(key)), note, self.block(body))
        if not isinstance(target, ast.Name):
            raise self.fail(node, "expected `as` and a name")
        if word == "alloc":
            b, notes = self.declare(target.id, head)
            return S.Alloc(b, self.block(body), notes)
        if word == "let":
            value_node, dtype = self.want(head, 2)
            kind = self.dtype_of(dtype)
            e = self.expr(value_node, kind)
            return S.LetStmt(self.new_var(target.id, kind), e, self.block(body))
        raise self.fail(node, f"unknown scope {word!r}", "use alloc, let or attr")

    def allreduce(self, node: ast.Call) -> S.Stmt:
        made, values, predicate = self.want(node, 3)
        words = self.keywords(node)
        if not (isinstance(made, ast.Call) and len(made.args) == 3 and isinstance(made.args[0], ast.Lambda)):
            raise self.fail(node, "expected combiner(lambda x, y: (x + y,), (0.0,), 'sum')")
        function, identity, name = made.args
        assert isinstance(function, ast.Lambda)
        starts = self.exprs(identity)
        params = [a.arg for a in function.args.args]
        if len(params) != 2 * len(starts):
            raise self.fail(function, f"a combiner of {len(starts)} values takes {2 * len(starts)} variables")
        both = [self.new_var(p, starts[k % len(starts)].dtype) for k, p in enumerate(params)]
        half = len(starts)
        combiner = E.CommReducer(tuple(both[:half]), tuple(both[half:]), self.exprs(function.body), starts, str(self.literal(name)))  # fmt: skip
        if "dests" not in words or "threads" not in words:
            raise self.fail(node, "expected dests=[...] and threads=[...]")
        dests = tuple([self.buffer(x) for x in getattr(words["dests"], "elts", ())])
        threads = self.exprs(words["threads"])
        return S.AllReduce(combiner, self.exprs(values), self.expr(predicate), dests, threads)  # type: ignore[arg-type]

    # ---- functions

    def func(self, node: ast.FunctionDef) -> Func:
        self.names = {}
        name, attrs = node.name, {}
        for a in node.args.kwonlyargs:
            self._param_var(a)
        for a in node.args.args:
            if not self._is_buffer(a):
                self._param_var(a)
        params: list[Buffer | E.Var] = []
        for a in node.args.args:
            if self._is_buffer(a):
                assert isinstance(a.annotation, ast.Call)
                params.append(self.declare(a.arg, a.annotation)[0])
            else:
                params.append(self.names[a.arg])
        body = list(node.body)
        threads: dict[str, tuple[E.Var, E.Expr]] = {}
        while body:
            match body[0]:
                case ast.Assign([ast.Name(var)], ast.Call(ast.Name("launch_index"), [tag, extent]) as call):
                    e = self.expr(extent)
                    words = self.keywords(call)
                    dtype = self.dtype_of(words["dtype"]) if "dtype" in words else "int32"
                    threads[str(self.literal(tag))] = (self.new_var(var, dtype), e)
                    del body[0]
                case _:
                    break
        for d in node.decorator_list:
            match d:
                case ast.Call(ast.Name("attrs"), [], notes):
                    attrs = {str(k.arg): self.value(k.value) for k in notes}
                case ast.Call(ast.Name("name"), [x]):
                    name = str(self.literal(x))
                case _:
                    raise self.fail(d, "expected @attrs(...) or @name(...)")
        if threads:
            attrs["threads"] = threads
        return Func(name, tuple(params), self.block(body), attrs)

    def _is_buffer(self, a: ast.arg) -> bool:
        return isinstance(a.annotation, ast.Call) and isinstance(a.annotation.func, ast.Name) and a.annotation.func.id == "Buffer"  # fmt: skip

    def _param_var(self, a: ast.arg) -> None:
        note = a.annotation
        if note is None:
            raise self.fail(
                a, f"the parameter {a.arg} has no type", 'n: int32, n: size("int32"), A: Buffer((n,), "float32")'
            )
        if isinstance(note, ast.Call) and isinstance(note.func, ast.Name) and note.func.id == "size":
            self.new_var(a.arg, self.dtype_of(self.want(note, 1)[0]), True)
        else:
            self.new_var(a.arg, self.dtype_of(note))


_CALLS: dict[str, Callable[[_Parser, ast.Call], E.Expr]] = {
    "cast": _Parser._cast, "select": _Parser._select, "load": _Parser._load, "ramp": _Parser._ramp,
    "broadcast": _Parser._broadcast, "shuffle": _Parser._shuffle, "let": _Parser._let,
}  # fmt: skip


def parse(text: str, filename: str = "<ir>") -> IRModule:
    """The functions of a text. Raises ParseError."""
    p = _Parser(text, None, filename)
    functions: dict[str, Func] = {}
    for node in p.tree(text).body:
        if not isinstance(node, ast.FunctionDef):
            raise p.fail(node, "expected a function: def name(...):")
        f = p.func(node)
        functions[f.name] = f
    return IRModule(functions)


def parse_func(text: str, filename: str = "<ir>") -> Func:
    """The one function of a text. Raises ParseError."""
    functions = list(parse(text, filename))
    if len(functions) != 1:
        raise ParseError(f"expected one function, found {len(functions)}", where=Loc(filename, 1))
    return functions[0]


def parse_stmt(text: str, names: Mapping[str, Any] | None = None, filename: str = "<ir>") -> S.Stmt:
    """A statement that uses `names` (variables and buffers). Raises ParseError."""
    p = _Parser(text, names, filename)
    return p.block(p.tree(text).body)


def parse_expr(text: str, names: Mapping[str, Any] | None = None, filename: str = "<ir>") -> E.Expr:
    """An expression that uses `names` (variables and buffers). Raises ParseError."""
    p = _Parser(text, names, filename)
    body = p.tree(text.strip()).body
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise ParseError("expected one expression", where=Loc(filename, 1))
    return p.expr(body[0].value)
