"""Reads the text form of loop IR back: `parse(str(func))` is structurally equal to `func`.

The text is Python syntax (see `tec.ir.printer` for its grammar), so Python's own parser does the reading and this module
turns its tree into nodes; no text is ever evaluated. Errors are ParseErrors that show the offending line.

    parse(text)         an IRModule of all functions in the text
    parse_func(text)    the one function
    parse_stmt(text, {"A": A, "n": n}), parse_expr(text, {...})   pieces, with the names they use
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tec.errors import ExprError, Loc
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.buffer import Buffer
from tec.ir.func import Func, IRModule
from tec.ir.notes import NOTES, build
from tec.ir.printer import LOOP_WORDS
from tests.ir.parser_expr import ExprParser, ParseError

_KINDS = {word: kind for kind, word in LOOP_WORDS.items()}


_STORAGE_WORDS = tuple(f.name for f in fields(S.StorageNotes))
_LOOP_WORDS = ("min", "extent", "dtype", "unroll", "pipelined")


class _Parser(ExprParser):
    """Statements, buffers and functions."""

    # ---- buffers

    def declare(self, name: str, node: ast.Call) -> tuple[Buffer, S.StorageNotes]:
        """A buffer from the arguments of `alloc`, `view` or `Buffer`; and what is asked of the storage."""
        shape, dtype = self.want(node, 2)
        words = self.keywords(node)
        asked = {k: self.literal(words.pop(k)) for k in _STORAGE_WORDS if k in words}
        try:
            notes = S.StorageNotes(**asked)
        except ExprError as e:
            raise self.fail(node, e.message, e.hint) from None
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
        """The statement that a statement of Python's grammar spells."""
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
        """A loop of any kind: `serial(4)`, `thread('blockIdx.x', 4)`."""
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
        unroll = self.integer(words["unroll"]) if "unroll" in words else 0
        pipelined = self.literal(words["pipelined"]) if "pipelined" in words else False
        if unroll < 0 or not isinstance(pipelined, bool):
            raise self.fail(head, "a loop's unroll is a count, and its pipelined True or False")
        if unknown := [w for w in words if w not in _LOOP_WORDS]:
            raise self.fail(head, f"unknown fact of a loop: {unknown[0]}", f"use {', '.join(_LOOP_WORDS)}")
        var = self.new_var(name, dtype)
        return S.For(var, low, extent, self.block(body), kind, thread, unroll, pipelined)

    def scope(self, node: ast.AST, word: str, head: ast.Call, target: Any, body: list[ast.stmt]) -> S.Stmt:
        if word in NOTES:
            try:
                note = build(NOTES[word], tuple([self.value(x) for x in head.args]))
            except ExprError as misfit:
                raise self.fail(head, misfit.message, misfit.hint) from None
            return S.Attr(note, self.block(body))
        if word not in ("alloc", "let"):
            raise self.fail(node, f"unknown scope {word!r}", f"use alloc, let, or a note: {', '.join(NOTES)}")
        if not isinstance(target, ast.Name):
            raise self.fail(node, "expected `as` and a name")
        if word == "alloc":
            b, notes = self.declare(target.id, head)
            return S.Alloc(b, self.block(body), notes)
        value_node, dtype = self.want(head, 2)
        kind = self.dtype_of(dtype)
        e = self.expr(value_node, kind)
        return S.LetStmt(self.new_var(target.id, kind), e, self.block(body))

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
        """A function from its definition: parameters, attributes and body."""
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
